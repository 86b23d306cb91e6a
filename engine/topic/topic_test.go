package topic_test

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"logbook/engine/topic"
)

// The golden table was computed by other implementations of the three hashes.
func TestRoutersMatchTheGoldenTable(t *testing.T) {
	f, err := os.Open("../../testdata/routing.tsv")
	require.NoError(t, err)
	defer f.Close()
	lines := 0
	for s := bufio.NewScanner(f); s.Scan(); {
		if strings.HasPrefix(s.Text(), "#") {
			continue
		}
		col := strings.Split(s.Text(), "\t")
		require.Len(t, col, 5, s.Text())
		key, err := hex.DecodeString(col[0])
		require.NoError(t, err)
		n, err := strconv.Atoi(col[1])
		require.NoError(t, err)
		for i, router := range []topic.Partitioner{topic.SHA256, topic.FNV1a, topic.Murmur2} {
			assert.Equal(t, col[2+i], fmt.Sprint(router.Partition(key, n)), "%s of %q among %d", router.Name(), key, n)
		}
		lines++
	}
	require.Greater(t, lines, 50)
	for i := range 1000 { // whatever the hash's sign, never a negative partition
		key := fmt.Appendf(nil, "%d", i)
		for _, router := range []topic.Partitioner{topic.SHA256, topic.FNV1a, topic.Murmur2} {
			p := router.Partition(key, 7)
			require.True(t, p >= 0 && p < 7)
		}
	}
}

func TestNames(t *testing.T) {
	for _, good := range []string{"a", "A.b_c-9", "...", strings.Repeat("x", 249)} {
		assert.NoError(t, topic.CheckName("topic", good), good)
	}
	for _, bad := range []string{"", ".", "..", "a/b", `a\b`, "a b", "é", "a\x00", strings.Repeat("x", 250), "../escape"} {
		var ne *topic.NameError
		require.ErrorAs(t, topic.CheckName("topic", bad), &ne, bad)
	}
}

func TestCounts(t *testing.T) {
	var count *topic.CountError
	for _, n := range []int{-1, 0, topic.MaxPartitions + 1} {
		require.ErrorAs(t, topic.CheckCount("t", n), &count)
	}
	require.NoError(t, topic.CheckCount("t", topic.MaxPartitions))
	_, err := topic.PartitionerByName("random")
	var unknown *topic.PartitionerError
	require.ErrorAs(t, err, &unknown)
}

func TestTurnsStartAtPartitionZero(t *testing.T) {
	var turns topic.Turns
	var got []int
	for range 5 {
		got = append(got, turns.Choose("t", topic.Murmur2, nil, 3))
	}
	assert.Equal(t, []int{0, 1, 2, 0, 1}, got)
	assert.Zero(t, turns.Take("another", 3), "each topic has its own turn")
	assert.Equal(t, topic.Murmur2.Partition([]byte{}, 3), turns.Choose("t", topic.Murmur2, []byte{}, 3), "an empty key is a key")
}
