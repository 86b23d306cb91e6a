package consumer_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"logbook/engine/consumer"
)

func TestDamagedOffsetFilesAreReportedAndLeftAlone(t *testing.T) {
	root := t.TempDir()
	store := consumer.NewFileStore(nil, root)
	key := consumer.OffsetKey{Consumer: "worker", Topic: "events"}
	require.NoError(t, store.Commit(key, 3))
	file := filepath.Join(root, "worker", "events", "partition-000000.offset")
	good, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.JSONEq(t, `{"version":1,"offset":3}`, string(good))
	for name, bad := range map[string]string{
		"not JSON": "{", "empty": "", "missing field": `{"version":1}`, "wrong type": `{"version":1,"offset":"3"}`,
		"negative": `{"version":1,"offset":-3}`, "unknown version": `{"version":2,"offset":3}`,
		"a fraction": `{"version":1,"offset":3.5}`, "trailing": string(good) + "x", "unknown field": `{"version":1,"offset":3,"x":0}`,
	} {
		require.NoError(t, os.WriteFile(file, []byte(bad), 0o644))
		var ce *consumer.OffsetCorruptionError
		require.ErrorAs(t, store.Commit(key, 4), &ce, name)
		assert.Equal(t, file, ce.File)
		_, _, err := store.Committed(key)
		require.ErrorAs(t, err, &ce, name)
		after, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.Equal(t, bad, string(after), name)
	}
}
