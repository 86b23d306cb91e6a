package offsettest_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	"logbook/engine/commitlog"
	"logbook/engine/consumer"
	"logbook/engine/consumer/offsettest"
	"logbook/engine/vfs"
)

func openFiles(fsys vfs.FS, dir string) (consumer.OffsetStore, error) {
	return consumer.NewFileStore(fsys, dir), nil
}

func TestBothStoresPass(t *testing.T) {
	assert.NoError(t, offsettest.TestStore(openFiles), "one file each")
	assert.NoError(t, offsettest.TestStore(func(fsys vfs.FS, dir string) (consumer.OffsetStore, error) {
		return consumer.OpenLogStore(dir, commitlog.Options{FS: fsys, SegmentBytes: 2000})
	}), "in a log")
}

// inMemory forgets with the process, and lets offsets go back.
type inMemory struct {
	mu      sync.Mutex
	offsets map[consumer.Progress]int64
}

func (m *inMemory) Committed(p consumer.Progress) (int64, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	offset, ok := m.offsets[p]
	return offset, ok, nil
}

func (m *inMemory) Commit(p consumer.Progress, offset int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.offsets[p] = offset
	return nil
}

func (m *inMemory) Close() error { return nil }

func TestTheSuiteCatchesWhatItShould(t *testing.T) {
	err := offsettest.TestStore(func(vfs.FS, string) (consumer.OffsetStore, error) {
		return &inMemory{offsets: map[consumer.Progress]int64{}}, nil
	})
	for _, want := range []string{"regression: ", "misuse: ", "restart: "} {
		assert.ErrorContains(t, err, want)
	}
}
