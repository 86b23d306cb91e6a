package topic_test

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"logbook/engine/commitlog"
	"logbook/engine/record"
	"logbook/engine/topic"
	"logbook/engine/vfs"
)

func create(t testing.TB, root, name string, partitions int) *topic.Topic {
	t.Helper()
	tp, err := topic.Create(root, name, topic.Options{Partitions: partitions})
	require.NoError(t, err)
	t.Cleanup(func() { tp.Close() })
	return tp
}

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
		for i, router := range []topic.Router{topic.SHA256, topic.FNV1a, topic.Murmur2} {
			assert.Equal(t, col[2+i], fmt.Sprint(router.Partition(key, n)), "%s of %q among %d", router.Name(), key, n)
		}
		lines++
	}
	require.Greater(t, lines, 50)
	for i := range 1000 { // whatever the hash's sign, never a negative partition
		key := fmt.Appendf(nil, "%d", i)
		for _, router := range []topic.Router{topic.SHA256, topic.FNV1a, topic.Murmur2} {
			p := router.Partition(key, 7)
			require.True(t, p >= 0 && p < 7)
		}
	}
}

func TestKeyedRecordsStayInOnePartitionAcrossRestarts(t *testing.T) {
	for _, router := range []topic.Router{topic.SHA256, topic.FNV1a, topic.Murmur2} {
		root := t.TempDir()
		tp, err := topic.Create(root, "events", topic.Options{Partitions: 3, Router: router})
		require.NoError(t, err)
		where := map[string]int{}
		for round := range 3 {
			for i := range 20 {
				key := fmt.Sprintf("user-%d", i)
				at, err := tp.Append(record.Record{Key: []byte(key), Value: []byte("v")})
				require.NoError(t, err)
				if round > 0 {
					require.Equal(t, where[key], at.Partition)
				}
				where[key] = at.Partition
			}
			require.NoError(t, tp.Close())
			tp, err = topic.Open(root, "events", topic.Options{})
			require.NoError(t, err)
			require.Equal(t, router.Name(), tp.Router().Name(), "the router is remembered")
		}
		require.NoError(t, tp.Close())
	}
}

func TestOffsetsArePartitionLocal(t *testing.T) {
	tp := create(t, t.TempDir(), "events", 2)
	for i := range 6 {
		at, err := tp.AppendTo(i%2, record.Record{Value: []byte("v")})
		require.NoError(t, err)
		assert.Equal(t, topic.Appended{Topic: "events", Partition: i % 2, Offset: int64(i / 2), Timestamp: at.Timestamp}, at)
	}
}

func TestKeylessRecordsTakeTurnsFromPartitionZero(t *testing.T) {
	root := t.TempDir()
	tp := create(t, root, "events", 3)
	for i := range 7 {
		at, err := tp.Append(record.Record{})
		require.NoError(t, err)
		assert.Equal(t, i%3, at.Partition)
	}
	require.NoError(t, tp.Close())
	tp, err := topic.Open(root, "events", topic.Options{})
	require.NoError(t, err)
	defer tp.Close()
	at, err := tp.Append(record.Record{})
	require.NoError(t, err)
	assert.Zero(t, at.Partition, "after a restart the turn begins anew")
	at, err = tp.Append(record.Record{Key: []byte{}})
	require.NoError(t, err)
	assert.Equal(t, topic.Murmur2.Partition(nil, 3), at.Partition, "an empty key is a key")
}

func TestConcurrentAppends(t *testing.T) {
	tp := create(t, t.TempDir(), "events", 4)
	var wg sync.WaitGroup
	for w := range 16 {
		wg.Go(func() {
			for i := range 20 {
				_, err := tp.Append(record.Record{Key: fmt.Appendf(nil, "%d-%d", w, i)})
				assert.NoError(t, err)
			}
		})
	}
	wg.Wait()
	total := int64(0)
	for i := range 4 {
		l, err := tp.Partition(i)
		require.NoError(t, err)
		total += l.EndOffset()
	}
	assert.Equal(t, int64(320), total)
}

func TestNames(t *testing.T) {
	for _, good := range []string{"a", "A.b_c-9", "...", strings.Repeat("x", 249)} {
		assert.NoError(t, topic.CheckName("topic", good), good)
	}
	for _, bad := range []string{"", ".", "..", "a/b", `a\b`, "a b", "é", "a\x00", strings.Repeat("x", 250), "../escape"} {
		var ne *topic.NameError
		require.ErrorAs(t, topic.CheckName("topic", bad), &ne, bad)
		root := t.TempDir()
		_, err := topic.Create(root, bad, topic.Options{Partitions: 1})
		require.ErrorAs(t, err, &ne)
		_, err = topic.Open(root, bad, topic.Options{})
		require.ErrorAs(t, err, &ne)
		entries, err := os.ReadDir(root)
		require.NoError(t, err)
		assert.Empty(t, entries)
	}
}

func TestMisuse(t *testing.T) {
	root := t.TempDir()
	tp := create(t, root, "events", 2)
	_, err := topic.Create(root, "events", topic.Options{Partitions: 2})
	var exists *topic.ExistsError
	require.ErrorAs(t, err, &exists)
	_, err = topic.Open(root, "nothing", topic.Options{})
	var unknown *topic.UnknownError
	require.ErrorAs(t, err, &unknown)
	for _, n := range []int{0, -1, topic.MaxPartitions + 1} {
		_, err = topic.Create(root, "other", topic.Options{Partitions: n})
		require.Error(t, err)
	}
	for _, p := range []int{-1, 2} {
		_, err = tp.AppendTo(p, record.Record{})
		var pe *topic.PartitionError
		require.ErrorAs(t, err, &pe)
		assert.Equal(t, topic.PartitionError{Topic: "events", Partition: p, Count: 2}, *pe)
	}
	require.NoError(t, tp.Close())
	_, err = tp.Append(record.Record{})
	require.ErrorIs(t, err, topic.ErrClosed)
	require.ErrorIs(t, tp.Close(), topic.ErrClosed)
	var mismatch *topic.MismatchError
	_, err = topic.Open(root, "events", topic.Options{Partitions: 3})
	require.ErrorAs(t, err, &mismatch)
	_, err = topic.Open(root, "events", topic.Options{Router: topic.FNV1a})
	require.ErrorAs(t, err, &mismatch)
	assert.Equal(t, "router", mismatch.What)
}

func TestDamagedMetadataIsReportedAndLeftAlone(t *testing.T) {
	root := t.TempDir()
	tp := create(t, root, "events", 2)
	_, err := tp.Append(record.Record{Value: []byte("v")})
	require.NoError(t, err)
	require.NoError(t, tp.Close())
	file := filepath.Join(root, "events", "topic.meta")
	good, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.JSONEq(t, `{"version":1,"name":"events","partition_count":2,"router":"murmur2"}`, string(good))
	for name, bad := range map[string]string{
		"not JSON":        "{",
		"empty":           "",
		"missing field":   `{"version":1,"name":"events","router":"murmur2"}`,
		"unknown field":   `{"version":1,"name":"events","partition_count":2,"router":"murmur2","x":1}`,
		"another version": `{"version":2,"name":"events","partition_count":2,"router":"murmur2"}`,
		"another topic":   `{"version":1,"name":"other","partition_count":2,"router":"murmur2"}`,
		"an unsafe name":  `{"version":1,"name":"../x","partition_count":2,"router":"murmur2"}`,
		"no partitions":   `{"version":1,"name":"events","partition_count":0,"router":"murmur2"}`,
		"more partitions": `{"version":1,"name":"events","partition_count":3,"router":"murmur2"}`,
		"wrong type":      `{"version":1,"name":"events","partition_count":"2","router":"murmur2"}`,
		"unknown router":  `{"version":1,"name":"events","partition_count":2,"router":"dice"}`,
		"trailing text":   string(good) + "{}",
	} {
		require.NoError(t, os.WriteFile(file, []byte(bad), 0o644))
		for _, try := range []func() (*topic.Topic, error){
			func() (*topic.Topic, error) { return topic.Open(root, "events", topic.Options{}) },
			func() (*topic.Topic, error) { return topic.Create(root, "events", topic.Options{Partitions: 2}) },
		} {
			_, err := try()
			var exists *topic.ExistsError
			if name == "more partitions" && errors.As(err, &exists) {
				continue // to Create it is a topic like any other
			}
			var me *topic.MetadataError
			require.ErrorAs(t, err, &me, name)
			assert.Equal(t, file, me.File)
		}
		after, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.Equal(t, bad, string(after), name)
	}
	require.NoError(t, os.Remove(file))
	_, err = topic.Create(root, "events", topic.Options{Partitions: 2})
	var me *topic.MetadataError
	require.ErrorAs(t, err, &me, "records without metadata are not taken over")
	require.NoError(t, os.WriteFile(file, good, 0o644))
	require.NoError(t, os.RemoveAll(filepath.Join(root, "events", "partition-000001")))
	_, err = topic.Open(root, "events", topic.Options{})
	require.ErrorAs(t, err, &me, "a partition that is gone does not come back empty")
}

// A crash at any moment of Create leaves no topic or the whole topic.
func TestCreateUnderCrashes(t *testing.T) {
	disk := vfs.NewMem()
	log := commitlog.Options{SegmentBytes: 1000, Now: func() time.Time { return time.Unix(1, 0) }}
	states := 0
	disk.After = func(op vfs.Op) {
		for c := range disk.Crashes(6, rand.New(rand.NewPCG(1, 1))) {
			states++
			opt := topic.Options{Log: log}
			opt.Log.FS = c.FS
			tp, err := topic.Open("data", "events", opt)
			var unknown *topic.UnknownError
			if errors.As(err, &unknown) {
				opt.Partitions = 2
				tp, err = topic.Create("data", "events", opt)
			}
			require.NoError(t, err, "%s: %s", op, c.What)
			require.Equal(t, 2, tp.Partitions())
			require.NoError(t, tp.Close())
		}
	}
	opt := topic.Options{Partitions: 2, Log: log}
	opt.Log.FS = disk
	tp, err := topic.Create("data", "events", opt)
	require.NoError(t, err)
	require.NoError(t, tp.Close())
	require.Greater(t, states, 50)
}

// Each operation of Create fails in turn; the process dies, the next one finds or makes
// the topic and stores a record, and the power fails: the record is there.
func TestCreateOnAFailingDisk(t *testing.T) {
	log := commitlog.Options{SegmentBytes: 1000, Now: func() time.Time { return time.Unix(1, 0) }}
	for k := 1; ; k++ {
		disk := vfs.NewMem()
		disk.Before = vfs.FailNth(k, syscall.EIO)
		opt := topic.Options{Partitions: 2, Log: log}
		opt.Log.FS = disk
		_, first := topic.Create("data", "events", opt)
		if first == nil && disk.Ops() < k {
			return
		}
		killed := disk.Kill()
		opt.Log.FS = killed
		tp, err := topic.Open("data", "events", opt)
		var unknown *topic.UnknownError
		if errors.As(err, &unknown) {
			tp, err = topic.Create("data", "events", opt)
		}
		require.NoError(t, err, "k=%d, which failed with %v", k, first)
		_, err = tp.AppendTo(1, record.Record{Value: []byte("v")})
		require.NoError(t, err)
		for c := range killed.Crashes(1, nil) {
			opt.Log.FS = c.FS
			tp, err := topic.Open("data", "events", opt)
			require.NoError(t, err, "k=%d, which failed with %v", k, first)
			l, err := tp.Partition(1)
			require.NoError(t, err)
			rec, err := l.Read(0)
			require.NoError(t, err)
			require.Equal(t, "v", string(rec.Value))
		}
	}
}
