package commitlog_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"logbook/engine/commitlog"
	"logbook/engine/record"
	_ "logbook/engine/record/compression"
)

var formats = []record.Format{record.V0, record.V1, record.V2}

func eachFormat(t *testing.T, test func(t *testing.T, f record.Format)) {
	for _, f := range formats {
		t.Run(fmt.Sprintf("format%d", f.Version()), func(t *testing.T) { test(t, f) })
	}
}

var epoch = time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)

// ticking is a clock that advances a second with every reading.
func ticking() func() time.Time {
	var n atomic.Int64
	return func() time.Time { return epoch.Add(time.Duration(n.Add(1)) * time.Second) }
}

func open(t testing.TB, dir string, opt commitlog.Options) *commitlog.Log {
	t.Helper()
	if opt.Now == nil {
		opt.Now = ticking()
	}
	l, err := commitlog.Open(dir, opt)
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

func value(i int) []byte { return fmt.Appendf(nil, "value %d", i) }

func appendN(t testing.TB, l *commitlog.Log, n int) {
	t.Helper()
	for range n {
		i := int(l.EndOffset())
		got, err := l.Append(record.Record{Value: value(i)})
		require.NoError(t, err)
		require.Equal(t, int64(i), got.BaseOffset)
	}
}

func requireValues(t testing.TB, l *commitlog.Log, from, to int) {
	t.Helper()
	i := from
	for rec, err := range l.Records(int64(from)) {
		require.NoError(t, err)
		require.Equal(t, int64(i), rec.Offset)
		require.Equal(t, string(value(i)), string(rec.Value))
		i++
	}
	require.Equal(t, to, i)
	require.Equal(t, int64(to), l.EndOffset())
}

func TestAppendReturnsOffsetsFromZeroAndTheStoredTimestamp(t *testing.T) {
	eachFormat(t, func(t *testing.T, f record.Format) {
		now := epoch.Add(1234567 * time.Nanosecond)
		l := open(t, t.TempDir(), commitlog.Options{Format: f, Now: func() time.Time { return now }})
		for i := range 3 {
			got, err := l.Append(record.Record{Value: value(i)})
			require.NoError(t, err)
			want := now
			if f == record.V2 {
				want = now.Truncate(time.Millisecond)
			}
			assert.Equal(t, int64(i), got.BaseOffset)
			assert.True(t, want.Equal(got.Timestamp), "%s, not %s", got.Timestamp, want)
			rec, err := l.Read(int64(i))
			require.NoError(t, err)
			assert.True(t, rec.Timestamp.Equal(got.Timestamp))
		}
	})
}

func TestReopenGoesOnWhereTheLogEnded(t *testing.T) {
	eachFormat(t, func(t *testing.T, f record.Format) {
		dir := t.TempDir()
		for round := range 4 {
			l := open(t, dir, commitlog.Options{Format: f, SegmentBytes: 300, Recovery: commitlog.Strict})
			assert.True(t, l.Recovery().Clean, "round %d: %+v", round, l.Recovery())
			assert.Zero(t, l.Recovery().ScannedBytes)
			requireValues(t, l, 0, round*10)
			appendN(t, l, 10)
			requireValues(t, l, 0, round*10+10)
			require.NoError(t, l.Close())
		}
	})
}

func TestSegmentsRollBySizeAndReadBackAcross(t *testing.T) {
	eachFormat(t, func(t *testing.T, f record.Format) {
		dir := t.TempDir()
		l := open(t, dir, commitlog.Options{Format: f, SegmentBytes: 500})
		appendN(t, l, 100)
		files, err := filepath.Glob(filepath.Join(dir, "*.log"))
		require.NoError(t, err)
		assert.Greater(t, len(files), 5)
		for _, from := range []int{0, 1, 37, 99, 100} {
			requireValues(t, l, from, 100)
		}
		for i := range 100 {
			rec, err := l.Read(int64(i))
			require.NoError(t, err)
			require.Equal(t, string(value(i)), string(rec.Value))
		}
		require.NoError(t, l.Verify())
		require.NoError(t, l.Close())
		for _, file := range files {
			info, err := os.Stat(file)
			require.NoError(t, err)
			assert.LessOrEqual(t, info.Size(), int64(500), "no segment is over its limit once closed")
		}
	})
}

func TestBatchesKeysHeadersAndCompression(t *testing.T) {
	for _, c := range []record.Compression{record.None, record.Gzip, record.Snappy, record.LZ4, record.Zstd} {
		l := open(t, t.TempDir(), commitlog.Options{Compression: c})
		want := []record.Record{
			{Key: []byte("DTW"), Value: bytes.Repeat([]byte("a"), 500), Headers: []record.Header{{Key: "h", Value: []byte("v")}}},
			{Key: []byte{}, Value: []byte{}},
			{},
		}
		got, err := l.Append(want...)
		require.NoError(t, err)
		assert.Equal(t, []int64{0, 2}, []int64{got.BaseOffset, got.LastOffset})
		for i := range want {
			rec, err := l.Read(int64(i))
			require.NoError(t, err)
			want[i].Offset, want[i].Timestamp = int64(i), got.Timestamp
			assert.True(t, want[i].Equal(rec), "%s: %+v is not %+v", c, rec, want[i])
		}
	}
}

// A batch that a client encoded is stored as it is; only offset and epoch are patched.
func TestAppendBatchStoresTheBytesAsTheyCame(t *testing.T) {
	l := open(t, t.TempDir(), commitlog.Options{})
	appendN(t, l, 3)
	batch, err := record.V2.AppendFrames(nil, []record.Record{{Value: []byte("a")}, {Value: []byte("b")}},
		record.Encoding{Timestamp: epoch, Compression: record.Gzip, Producer: &record.Producer{ID: 7}})
	require.NoError(t, err)
	got, err := l.AppendBatch(bytes.Clone(batch))
	require.NoError(t, err)
	assert.Equal(t, []int64{3, 4}, []int64{got.BaseOffset, got.LastOffset})
	r, err := l.NewReader(4)
	require.NoError(t, err)
	f, err := r.Next()
	require.NoError(t, err)
	record.V2.Assign(batch, 3, 0)
	assert.Equal(t, batch, f.Bytes)

	gappy, err := record.V2.AppendFrames(nil, []record.Record{{Value: []byte("a")}},
		record.Encoding{Timestamp: epoch, KeepOffsets: true, LastOffset: 1 << 20})
	require.NoError(t, err)
	for name, bad := range map[string][]byte{
		"gaps":           gappy,
		"garbage":        []byte("not a batch at all, but long enough to be one, is it not? sixty-one bytes"),
		"cut":            batch[:len(batch)-1],
		"flipped":        append(bytes.Clone(batch[:len(batch)-1]), batch[len(batch)-1]^1),
		"trailing bytes": append(bytes.Clone(batch), 0),
	} {
		_, err := l.AppendBatch(bad)
		var fe *record.FrameError
		require.ErrorAs(t, err, &fe, name)
	}
	require.Equal(t, int64(5), l.EndOffset(), "nothing of a bad batch is stored")
}

func TestAppendLimits(t *testing.T) {
	l := open(t, t.TempDir(), commitlog.Options{MaxKeyBytes: 10, MaxRecordBytes: 20, MaxBatchBytes: 200})
	for _, c := range []struct {
		what    string
		index   int
		records []record.Record
	}{
		{"key", 0, []record.Record{{Key: make([]byte, 11)}}},
		{"record", 1, []record.Record{{}, {Value: make([]byte, 21)}}},
		{"batch", 3, []record.Record{{Value: make([]byte, 20)}, {Value: make([]byte, 20)}, {Value: make([]byte, 20)}, {Value: make([]byte, 20)}}},
	} {
		_, err := l.Append(c.records...)
		var tle *commitlog.TooLargeError
		require.ErrorAs(t, err, &tle)
		assert.Equal(t, c.what, tle.What)
		assert.Equal(t, c.index, tle.Index)
	}
	big, err := record.V2.AppendFrames(nil, []record.Record{{Value: make([]byte, 21)}}, record.Encoding{Timestamp: epoch})
	require.NoError(t, err)
	_, err = l.AppendBatch(big)
	var tle *commitlog.TooLargeError
	require.ErrorAs(t, err, &tle)
	_, err = l.Append()
	require.ErrorIs(t, err, commitlog.ErrEmptyAppend)
	require.Zero(t, l.EndOffset())
}

func TestReadsOutOfRangeNameTheBounds(t *testing.T) {
	l := open(t, t.TempDir(), commitlog.Options{})
	appendN(t, l, 3)
	for _, offset := range []int64{-1, 3, 4, 1 << 40} {
		_, err := l.Read(offset)
		var oor *commitlog.OffsetOutOfRangeError
		require.ErrorAs(t, err, &oor)
		assert.Equal(t, commitlog.OffsetOutOfRangeError{Offset: offset, Start: 0, End: 3}, *oor)
	}
	_, err := l.NewReader(4)
	var oor *commitlog.OffsetOutOfRangeError
	require.ErrorAs(t, err, &oor)
	r, err := l.NewReader(3)
	require.NoError(t, err, "a reader may stand at the log end")
	_, err = r.Next()
	require.ErrorIs(t, err, io.EOF)
	appendN(t, l, 1)
	f, err := r.Next()
	require.NoError(t, err, "and goes on when more is appended")
	require.Equal(t, int64(3), f.BaseOffset)
}

func TestSecondOwnerIsRefused(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, commitlog.Options{})
	_, err := commitlog.Open(dir, commitlog.Options{})
	var le *commitlog.LockedError
	require.ErrorAs(t, err, &le)
	assert.Equal(t, dir, le.Dir)
	require.NoError(t, l.Close())
	open(t, dir, commitlog.Options{})
}

func TestClosedLog(t *testing.T) {
	l := open(t, t.TempDir(), commitlog.Options{})
	appendN(t, l, 2)
	r, err := l.NewReader(0)
	require.NoError(t, err)
	require.NoError(t, l.Close())
	_, err = l.Append(record.Record{})
	require.ErrorIs(t, err, commitlog.ErrClosed)
	_, err = l.Read(0)
	require.ErrorIs(t, err, commitlog.ErrClosed)
	_, err = r.Next()
	require.ErrorIs(t, err, commitlog.ErrClosed)
	require.ErrorIs(t, l.Wait(context.Background(), 5), commitlog.ErrClosed)
	require.ErrorIs(t, l.Close(), commitlog.ErrClosed)
}

func TestDirectoriesThatAreNoLog(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "thesis.txt"), []byte("mine"), 0o644))
	_, err := commitlog.Open(dir, commitlog.Options{})
	var not *commitlog.NotALogError
	require.ErrorAs(t, err, &not)
	assert.Contains(t, not.Reason, "thesis.txt")
	names, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, names, 1, "nothing was added")

	_, err = commitlog.Open(filepath.Join(dir, "thesis.txt"), commitlog.Options{})
	require.ErrorAs(t, err, &not)
	_, err = commitlog.Inspect(nil, dir)
	require.ErrorAs(t, err, &not)
}

func TestFormatIsRecordedAndChecked(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, open(t, dir, commitlog.Options{Format: record.V1}).Close())
	_, err := commitlog.Open(dir, commitlog.Options{Format: record.V2})
	var fm *commitlog.FormatMismatchError
	require.ErrorAs(t, err, &fm)
	assert.Equal(t, []int{1, 2}, []int{fm.Stored, fm.Wanted})
	assert.Equal(t, record.V1, open(t, dir, commitlog.Options{}).Format())
}

func TestIndexesAreCaches(t *testing.T) {
	eachFormat(t, func(t *testing.T, f record.Format) {
		for name, harm := range map[string]func(file string) error{
			"missing": os.Remove,
			"empty":   func(file string) error { return os.Truncate(file, 0) },
			"cut":     func(file string) error { return os.Truncate(file, 30) },
			"garbage": func(file string) error { return os.WriteFile(file, bytes.Repeat([]byte{0xaa}, 500), 0o644) },
		} {
			dir := t.TempDir()
			l := open(t, dir, commitlog.Options{Format: f, SegmentBytes: 600, IndexBytes: 100})
			appendN(t, l, 60)
			require.NoError(t, l.Close())
			files, err := filepath.Glob(filepath.Join(dir, "*.index"))
			require.NoError(t, err)
			require.NotEmpty(t, files)
			for _, file := range files {
				require.NoError(t, harm(file), name)
			}
			l = open(t, dir, commitlog.Options{SegmentBytes: 600, IndexBytes: 100, Recovery: commitlog.Strict})
			for i := range 60 {
				rec, err := l.Read(int64(i))
				require.NoError(t, err, name)
				require.Equal(t, string(value(i)), string(rec.Value))
			}
			appendN(t, l, 5)
			requireValues(t, l, 0, 65)
			require.NoError(t, l.Close())
			for _, file := range files {
				info, err := os.Stat(file)
				require.NoError(t, err, "%s: rebuilt", name)
				assert.Positive(t, info.Size())
			}
		}
	})
}

// An index of another log is intact in itself; it must not be believed. The two logs
// have equally many records and bytes, but not the same positions.
func TestIndexOfAnotherLogIsNotBelieved(t *testing.T) {
	dirs := [2]string{t.TempDir(), t.TempDir()}
	name := commitlog.SegmentName(0) + ".index"
	for i, dir := range dirs {
		l := open(t, dir, commitlog.Options{IndexBytes: 100})
		for j := range 30 {
			_, err := l.Append(record.Record{Value: make([]byte, 50+50*((i+j)%2))})
			require.NoError(t, err)
		}
		require.NoError(t, l.Close())
	}
	data, err := os.ReadFile(filepath.Join(dirs[1], name))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dirs[0], name), data, 0o644))
	l := open(t, dirs[0], commitlog.Options{IndexBytes: 100})
	for j := range 30 {
		rec, err := l.Read(int64(j))
		require.NoError(t, err)
		require.Len(t, rec.Value, 50+50*(j%2))
	}
}

func TestOffsetForTime(t *testing.T) {
	eachFormat(t, func(t *testing.T, f record.Format) {
		l := open(t, t.TempDir(), commitlog.Options{Format: f, SegmentBytes: 500, IndexBytes: 100})
		for i := range 50 { // offset i has time i+1 seconds
			_, err := l.Append(record.Record{Value: value(i), Timestamp: epoch.Add(time.Duration(i+1) * time.Second)})
			require.NoError(t, err)
		}
		for _, c := range []struct {
			at   time.Duration
			want int64
		}{{-time.Hour, 0}, {1, 0}, {time.Second, 0}, {1500 * time.Millisecond, 1}, {30 * time.Second, 29}, {50 * time.Second, 49}, {51 * time.Second, 50}} {
			got, err := l.OffsetForTime(epoch.Add(c.at).UnixNano())
			require.NoError(t, err)
			assert.Equal(t, c.want, got, c.at)
		}
	})
}

func TestWaitWakesOnAppend(t *testing.T) {
	l := open(t, t.TempDir(), commitlog.Options{})
	done := make(chan error, 1)
	go func() { done <- l.Wait(context.Background(), 1) }()
	appendN(t, l, 2)
	require.NoError(t, <-done)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, l.Wait(ctx, 2), context.Canceled)
}

func TestSyncIntervalSyncsLater(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		l, err := commitlog.Open(dir, commitlog.Options{Sync: commitlog.SyncInterval, SyncEvery: time.Second})
		require.NoError(t, err)
		appendN(t, l, 10)
		assert.Zero(t, l.Stats().Syncs)
		time.Sleep(2 * time.Second) // the bubble's clock, not a wait
		synctest.Wait()
		assert.Equal(t, int64(1), l.Stats().Syncs)
		appendN(t, l, 1)
		require.NoError(t, l.Sync())
		assert.Equal(t, int64(2), l.Stats().Syncs)
		require.NoError(t, l.Close())
	})
}

func TestInspectSeesWhatIsThereAndTouchesNothing(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, commitlog.Options{SegmentBytes: 1000})
	appendN(t, l, 30)
	in, err := commitlog.Inspect(nil, dir) // while it is open
	require.NoError(t, err)
	assert.Equal(t, int64(30), in.End)
	assert.False(t, in.Clean)
	assert.Positive(t, in.Segments[len(in.Segments)-1].UnusedZeros)
	require.NoError(t, l.Close())
	in, err = commitlog.Inspect(nil, dir)
	require.NoError(t, err)
	assert.True(t, in.Clean)
	assert.Equal(t, int64(30), in.MarkNext)
	total := 0
	for _, s := range in.Segments {
		assert.NoError(t, s.Damage)
		assert.Equal(t, s.Bytes, s.Used)
		n := 0
		require.NoError(t, commitlog.InspectFrames(nil, s, in.Format, func(commitlog.FrameAt) bool { n++; return true }))
		assert.Equal(t, s.Frames, n)
		total += s.Records
	}
	assert.Equal(t, 30, total)
}

func TestOptionsAreValidated(t *testing.T) {
	for _, opt := range []commitlog.Options{
		{SegmentBytes: -1}, {SegmentBytes: 1 << 40}, {Recovery: 7}, {Sync: 9}, {MaxRecordBytes: -5},
	} {
		_, err := commitlog.Open(t.TempDir(), opt)
		assert.Error(t, err, "%+v", opt)
	}
}
