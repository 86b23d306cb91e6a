package commitlog_test

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"logbook/engine/commitlog"
	"logbook/engine/record"
)

func TestRetentionBySizeKeepsAtLeastTheLimit(t *testing.T) {
	eachFormat(t, func(t *testing.T, f record.Format) {
		dir := t.TempDir()
		// kafka-lite's experiment: 100 small records, 2 KB segments, a limit of 5 KB.
		l := open(t, dir, commitlog.Options{Format: f, SegmentBytes: 2000})
		appendN(t, l, 100)
		n, err := l.Retain(commitlog.Retention{Bytes: 3000})
		require.NoError(t, err)
		if f == record.V2 {
			require.Positive(t, n)
		}
		in, err := commitlog.Inspect(nil, dir)
		require.NoError(t, err)
		total := int64(0)
		for _, s := range in.Segments {
			total += s.Used
		}
		if n > 0 {
			assert.GreaterOrEqual(t, total, int64(3000))
			assert.Less(t, total, int64(3000+2000))
		}
		start := l.StartOffset()
		assert.Equal(t, in.Segments[0].Base, start)
		requireValues(t, l, int(start), 100)
		require.NoError(t, l.Close())
		l = open(t, dir, commitlog.Options{})
		assert.Equal(t, start, l.StartOffset(), "the start is remembered")
		requireValues(t, l, int(start), 100)
	})
}

func TestRetentionByAgeGoesByTheNewestRecord(t *testing.T) {
	now := epoch
	l := open(t, t.TempDir(), commitlog.Options{SegmentBytes: 160, Now: func() time.Time { return now }})
	for i := range 10 { // two to a segment, an hour apart
		now = epoch.Add(time.Duration(i) * time.Hour)
		appendN(t, l, 1)
	}
	for _, c := range []struct {
		age   time.Duration
		start int64
	}{{100 * time.Hour, 0}, {8*time.Hour + 1, 0}, {7*time.Hour + 1, 2}, {6*time.Hour + 1, 2}, {6*time.Hour - 1, 4}, {time.Nanosecond, 8}} {
		_, err := l.Retain(commitlog.Retention{Age: c.age})
		require.NoError(t, err)
		assert.Equal(t, c.start, l.StartOffset(), "%s", c.age)
	}
	now = epoch.AddDate(1, 0, 0)
	_, err := l.Retain(commitlog.Retention{Age: time.Hour, Bytes: 1})
	require.NoError(t, err)
	assert.Equal(t, int64(8), l.StartOffset(), "the active segment stays, however old")
	requireValues(t, l, 8, 10)
}

// A clock that was a year behind for a while stamped records too early. They are no
// older than what came before them, and must not be deleted before it.
func TestRetentionIsNotFooledByAClockThatWentBack(t *testing.T) {
	now := epoch
	l := open(t, t.TempDir(), commitlog.Options{SegmentBytes: 160, Now: func() time.Time { return now }})
	appendN(t, l, 4)
	now = epoch.AddDate(-1, 0, 0)
	appendN(t, l, 4)
	now = epoch.Add(time.Hour)
	appendN(t, l, 4)
	n, err := l.Retain(commitlog.Retention{Age: 24 * time.Hour})
	require.NoError(t, err)
	assert.Zero(t, n)
	now = epoch.AddDate(-2, 0, 0)
	n, err = l.Retain(commitlog.Retention{Age: 24 * time.Hour})
	require.NoError(t, err)
	assert.Zero(t, n, "nor when the clock is behind right now")
}

// Readers that stand in a deleted or truncated part learn the new bounds; they never
// see bytes that are not theirs.
func TestReadersInARemovedPartLearnTheBounds(t *testing.T) {
	l := open(t, t.TempDir(), commitlog.Options{SegmentBytes: 160})
	appendN(t, l, 12)
	front, err := l.NewReader(0)
	require.NoError(t, err)
	_, err = front.Next()
	require.NoError(t, err)
	back, err := l.NewReader(9)
	require.NoError(t, err)
	_, err = back.Next()
	require.NoError(t, err)

	_, err = l.Retain(commitlog.Retention{Bytes: 500})
	require.NoError(t, err)
	var oor *commitlog.OffsetOutOfRangeError
	_, err = front.Next()
	require.ErrorAs(t, err, &oor)
	assert.Equal(t, commitlog.OffsetOutOfRangeError{Offset: 1, Start: l.StartOffset(), End: 12}, *oor)

	to, err := l.Truncate(9)
	require.NoError(t, err)
	assert.Equal(t, int64(9), to)
	_, err = back.Next()
	require.ErrorAs(t, err, &oor)
	assert.Equal(t, int64(9), oor.End)
	for i := range 4 { // the offsets are given out again
		got, err := l.Append(record.Record{Value: fmt.Appendf(nil, "new %d", i)})
		require.NoError(t, err)
		require.Equal(t, int64(9+i), got.BaseOffset)
	}
	f, err := back.Next()
	require.NoError(t, err)
	rs, err := f.Records()
	require.NoError(t, err)
	assert.Equal(t, "new 1", string(rs[0].Value), "offset 10, as it is now")
}

func TestTruncate(t *testing.T) {
	eachFormat(t, func(t *testing.T, f record.Format) {
		for to := range 21 {
			dir := t.TempDir()
			l := open(t, dir, commitlog.Options{Format: f, SegmentBytes: 200})
			appendN(t, l, 20)
			got, err := l.Truncate(int64(to))
			require.NoError(t, err)
			require.Equal(t, int64(to), got)
			requireValues(t, l, 0, to)
			appendN(t, l, 3)
			requireValues(t, l, 0, to+3)
			require.NoError(t, l.Close())
			l = open(t, dir, commitlog.Options{Verify: true, Recovery: commitlog.Strict})
			requireValues(t, l, 0, to+3)
		}
		l := open(t, t.TempDir(), commitlog.Options{Format: f})
		for _, bad := range []int64{-1, 1} {
			_, err := l.Truncate(bad)
			var oor *commitlog.OffsetOutOfRangeError
			require.ErrorAs(t, err, &oor)
		}
	})
}

func TestCompactionKeepsTheLastRecordOfEachKey(t *testing.T) {
	for _, compression := range []record.Compression{record.None, record.Zstd} {
		dir := t.TempDir()
		now := epoch
		opt := commitlog.Options{SegmentBytes: 600, Compression: compression, Now: func() time.Time { return now }}
		l := open(t, dir, opt)
		put := func(key string, value []byte) int64 {
			now = now.Add(time.Minute)
			var k []byte
			if key != "" {
				k = []byte(key)
			}
			at, err := l.Append(record.Record{Key: k, Value: value})
			require.NoError(t, err)
			return at.BaseOffset
		}
		last := map[string]int64{}
		keyless := map[int64]bool{}
		for i := range 60 {
			if i%10 == 9 {
				keyless[put("", value(i))] = true
				continue
			}
			key := fmt.Sprintf("airport %d", i%4)
			last[key] = put(key, value(i))
		}
		last["gone"] = put("gone", value(60))
		last["gone"] = put("gone", nil)
		for i := range 20 { // so that all of the above is in closed segments
			put(fmt.Sprintf("filler %d", i), value(i))
		}
		c, err := l.Compact(24 * time.Hour)
		require.NoError(t, err)
		assert.Positive(t, c.Removed)
		assert.Less(t, c.After, c.Before)
		check := func(tombstone bool) {
			require.NoError(t, l.Verify())
			seen := map[int64]bool{}
			for rec, err := range l.Records(0) {
				require.NoError(t, err)
				seen[rec.Offset] = true
				if offset, ok := last[string(rec.Key)]; ok && rec.Offset < 62 {
					assert.Equal(t, offset, rec.Offset, "only the last %s", rec.Key)
				}
			}
			for key, offset := range last {
				assert.Equal(t, tombstone || key != "gone", seen[offset], key)
			}
			for offset := range keyless {
				assert.True(t, seen[offset], "keyless records stay")
			}
			assert.Equal(t, int64(82), l.EndOffset())
		}
		check(true)
		r, err := l.NewReader(0)
		require.NoError(t, err)
		for next := int64(0); ; { // in format 2 batches cover every offset, removed or not
			f, err := r.Next()
			if err == io.EOF {
				break
			}
			require.NoError(t, err)
			require.Equal(t, next, f.BaseOffset)
			next = f.NextOffset()
		}
		now = now.Add(48 * time.Hour)
		_, err = l.Compact(24 * time.Hour)
		require.NoError(t, err)
		check(false)
		again, err := l.Compact(24 * time.Hour)
		require.NoError(t, err)
		assert.Zero(t, again.Segments, "a compacted log has nothing to compact")
		require.NoError(t, l.Close())
		opt.Verify, opt.Recovery = true, commitlog.Strict
		l = open(t, dir, opt)
		check(false)
		rec, err := l.Read(0)
		require.NoError(t, err)
		assert.Positive(t, rec.Offset, "reading a removed offset gives the next record that is left")
	}
}

func TestCompactionOfFormat1LeavesGapsAndFormat0IsRefused(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, commitlog.Options{Format: record.V1, SegmentBytes: 200})
	for i := range 30 {
		_, err := l.Append(record.Record{Key: []byte("k"), Value: value(i)})
		require.NoError(t, err)
	}
	_, err := l.Compact(0)
	require.NoError(t, err)
	require.NoError(t, l.Close())
	l = open(t, dir, commitlog.Options{Verify: true})
	n := 0
	for _, err := range l.Records(0) {
		require.NoError(t, err)
		n++
	}
	assert.Less(t, n, 8)
	l0 := open(t, t.TempDir(), commitlog.Options{Format: record.V0})
	_, err = l0.Compact(0)
	require.True(t, errors.Is(err, record.ErrUnsupported))
}

// Maintenance beside writers and readers, under the race detector.
func TestMaintenanceBesideWritersAndReaders(t *testing.T) {
	l := open(t, t.TempDir(), commitlog.Options{SegmentBytes: 2000})
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for w := range 3 {
		wg.Go(func() {
			for i := range 300 {
				_, err := l.Append(record.Record{Key: fmt.Appendf(nil, "%d", i%10), Value: fmt.Appendf(nil, "%d of %d", i, w)})
				assert.NoError(t, err)
			}
		})
	}
	var others sync.WaitGroup
	others.Go(func() {
		for {
			for rec, err := range l.Records(l.StartOffset()) {
				var oor *commitlog.OffsetOutOfRangeError
				if err != nil && !errors.As(err, &oor) {
					assert.NoError(t, err)
				}
				_ = rec
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	others.Go(func() {
		for i := 0; ; i++ {
			var err error
			switch i % 3 {
			case 0:
				_, err = l.Compact(0)
			case 1:
				_, err = l.Retain(commitlog.Retention{Bytes: 8000})
			case 2:
				err = l.Verify()
				var oor *commitlog.CorruptionError
				if errors.As(err, &oor) {
					assert.NoError(t, err)
				}
				err = nil // retention may close a file under it
			}
			assert.NoError(t, err)
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	wg.Wait()
	close(stop)
	others.Wait()
	require.NoError(t, l.Verify())
	assert.Equal(t, int64(900), l.EndOffset())
}
