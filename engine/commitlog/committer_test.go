package commitlog_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"logbook/engine/commitlog"
	"logbook/engine/record"
	"logbook/engine/vfs"
)

func TestConcurrentWritersShareSyncsAndGetDistinctOffsets(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, commitlog.Options{SegmentBytes: 8 << 10})
	const writers, each = 64, 20
	seen := make([]atomic.Bool, writers*each)
	stop := make(chan struct{})
	var readers, wg sync.WaitGroup
	readers.Go(func() { // a reader beside them sees only whole, contiguous records
		for {
			i := int64(0)
			for rec, err := range l.Records(0) {
				if !assert.NoError(t, err) || !assert.Equal(t, i, rec.Offset) {
					return
				}
				i++
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				got, err := l.Append(record.Record{Value: fmt.Appendf(nil, "%d/%d", w, i)})
				if !assert.NoError(t, err) {
					return
				}
				assert.False(t, seen[got.BaseOffset].Swap(true), "offset %d twice", got.BaseOffset)
				rec, err := l.Read(got.BaseOffset)
				assert.NoError(t, err, "an acknowledged record can be read")
				assert.Equal(t, fmt.Sprintf("%d/%d", w, i), string(rec.Value))
			}
		})
	}
	wg.Wait()
	close(stop)
	readers.Wait()
	s := l.Stats()
	assert.Equal(t, int64(writers*each), s.Frames)
	assert.Less(t, s.Syncs, s.Frames/4, "64 writers share syncs")
	require.NoError(t, l.Close())
	l = open(t, dir, commitlog.Options{Verify: true, Recovery: commitlog.Strict})
	assert.Equal(t, int64(writers*each), l.EndOffset())
}

func TestLogsShareACommitter(t *testing.T) {
	c := commitlog.NewCommitter()
	var wg sync.WaitGroup
	for range 8 {
		l := open(t, t.TempDir(), commitlog.Options{Committer: c})
		wg.Go(func() {
			for i := range 50 {
				got, err := l.Append(record.Record{Value: value(i)})
				if !assert.NoError(t, err) || !assert.Equal(t, int64(i), got.BaseOffset) {
					return
				}
			}
		})
	}
	wg.Wait()
}

// A log that is busy, here with a compaction whose disk hangs, holds up nobody but its
// own writers.
func TestOneLogDoesNotHoldUpAnother(t *testing.T) {
	c := commitlog.NewCommitter()
	slow := vfs.NewMem()
	a, err := commitlog.Open("log", commitlog.Options{FS: slow, Committer: c, SegmentBytes: 300, Now: ticking()})
	require.NoError(t, err)
	b, err := commitlog.Open("log", commitlog.Options{FS: vfs.NewMem(), Committer: c, SegmentBytes: 300, Now: ticking()})
	require.NoError(t, err)
	for i := range 20 {
		_, err := a.Append(record.Record{Key: []byte("k"), Value: value(i)})
		require.NoError(t, err)
	}
	hangs, gate := make(chan struct{}), make(chan struct{})
	var once sync.Once
	slow.After = func(op vfs.Op) {
		if op.Kind == vfs.OpRename {
			once.Do(func() { close(hangs) })
			<-gate
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := a.Compact(0)
		assert.NoError(t, err)
	})
	<-hangs
	for i := range 3 { // writers of the busy log, queued behind it
		wg.Go(func() {
			_, err := a.Append(record.Record{Value: value(20 + i)})
			assert.NoError(t, err)
		})
	}
	appendN(t, b, 200) // would never return if it waited for them
	assert.Equal(t, int64(20), a.EndOffset())
	close(gate)
	wg.Wait()
	assert.Equal(t, int64(23), a.EndOffset())
	require.NoError(t, a.Close())
	require.NoError(t, b.Close())
}
