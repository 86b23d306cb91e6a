package commitlog_test

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"logbook/engine/commitlog"
	"logbook/engine/record"
	"logbook/engine/vfs"
)

// Cases that a log met in trials, and once got wrong.

// Ten acknowledged and synced; the power fails, and with it goes the unsynced note in
// the mark; one bit of the sixth record rots. The log opens with 5 and calls the rest
// "never acknowledged", though it counts intact batches in it.
func TestDamageAboveAMarkThatLagsIsNotATornTail(t *testing.T) {
	m := vfs.NewMem()
	opt := commitlog.Options{FS: m, SegmentBytes: 1 << 16}
	l, err := commitlog.Open("log", opt)
	require.NoError(t, err)
	for i := range 10 {
		_, err := l.Append(record.Record{Value: fmt.Append(nil, i)})
		require.NoError(t, err)
	}
	for c := range m.Crashes(1, rand.New(rand.NewPCG(1, 1))) { // nothing unsynced survives
		opt.FS = c.FS
		c.FS.Edit("log/00000000000000000000.log", func(b []byte) []byte { b[5*69+66] ^= 1; return b })
	}
	l, err = commitlog.Open("log", opt)
	if err == nil {
		t.Fatalf("ten were acknowledged, the log ends at %d: %+v", l.EndOffset(), l.Recovery())
	}
}

// Two records of one append, 300 years apart: the second reads 1615.
func TestTimestampsFarApartInOneBatch(t *testing.T) {
	l, err := commitlog.Open("log", commitlog.Options{FS: vfs.NewMem(), SegmentBytes: 1 << 16})
	require.NoError(t, err)
	late := time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)
	at, err := l.Append(record.Record{Timestamp: time.Date(1900, 1, 1, 0, 0, 0, 0, time.UTC)}, record.Record{Timestamp: late})
	require.NoError(t, err)
	r, err := l.Read(at.LastOffset)
	require.NoError(t, err)
	require.Equal(t, late, r.Timestamp.UTC())
}

// Two wide batches (what compaction makes) take a segment past 2^32 offsets. The index
// entry wraps, happens to be in order, and is believed after a clean reopen.
func TestIndexEntryBeyondFourBillionOffsets(t *testing.T) {
	opt := commitlog.Options{FS: vfs.NewMem(), SegmentBytes: 1 << 16, IndexBytes: 300}
	l, err := commitlog.Open("log", opt)
	require.NoError(t, err)
	for _, r := range [][2]int64{{0, 0}, {1, 1}, {2, math.MaxInt32 + 1}, {math.MaxInt32 + 2, 1 << 32}, {1<<32 + 1, 1<<32 + 1}, {1<<32 + 2, 1<<32 + 2}} {
		b, err := record.V2.AppendFrames(nil, []record.Record{{Offset: r[0], Timestamp: time.Unix(1, 0), Value: fmt.Append(nil, r[0])}},
			record.Encoding{KeepOffsets: true, BaseOffset: r[0], LastOffset: r[1]})
		require.NoError(t, err)
		_, err = l.AppendReplica(b, 0)
		require.NoError(t, err)
	}
	require.NoError(t, l.Close())
	l, err = commitlog.Open("log", opt)
	require.NoError(t, err)
	for _, offset := range []int64{0, 1, 2, 1<<32 + 1, 1<<32 + 2} {
		r, err := l.Read(offset)
		require.NoError(t, err, "offset %d of a healthy log", offset)
		require.Equal(t, fmt.Sprint(offset), string(r.Value))
	}
}

// dirs remembers which names were made durable by syncing their directory.
type dirs struct {
	vfs.FS
	durable map[string]bool
}

func (d dirs) SyncDir(dir string) error {
	names, _ := d.ReadDir(dir)
	for _, n := range names {
		d.durable[filepath.Join(dir, n)] = true
	}
	return d.FS.SyncDir(dir)
}

// A process was killed between the mkdir of the log's directory and the sync of its
// parent. The next one acknowledges records in it and never syncs the parent.
func TestDirectoryOfAKilledProcessIsMadeDurable(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	require.NoError(t, os.Mkdir(dir, 0o755))
	d := dirs{vfs.OS, map[string]bool{}}
	l, err := commitlog.Open(dir, commitlog.Options{FS: d})
	require.NoError(t, err)
	defer l.Close()
	_, err = l.Append(record.Record{Value: []byte("acknowledged")})
	require.NoError(t, err)
	require.True(t, d.durable[dir], "a power failure takes the directory, and with it the record")
}

// A truncation was interrupted, and the disk is full when the log is opened.
func TestFullDiskAfterAnInterruptedTruncation(t *testing.T) {
	m := vfs.NewMem()
	opt := commitlog.Options{FS: m, SegmentBytes: 1 << 16}
	l, err := commitlog.Open("log", opt)
	require.NoError(t, err)
	for i := range 10 {
		_, err := l.Append(record.Record{Value: fmt.Append(nil, i)})
		require.NoError(t, err)
	}
	m.Before = vfs.FailNth(m.Ops()+5, syscall.EIO) // the first step after the intention is durable
	_, err = l.Truncate(5)
	require.Error(t, err)
	m = m.Kill()
	m.Before = func(op vfs.Op) error {
		if op.Kind == vfs.OpCreate {
			return syscall.ENOSPC
		}
		return nil
	}
	opt.FS = m
	_, err = commitlog.Open("log", opt)
	require.NoError(t, err, "records 0 to 4 can be read")
}

// Formats 0 and 1 without a sync on every append: a crash leaves the first bytes of
// the last record and, behind them, the zeros of the preallocated file.
func TestHalfARecordIsNotServedWithoutAChecksum(t *testing.T) {
	for _, f := range []record.Format{record.V0, record.V1} {
		m := vfs.NewMem()
		opt := commitlog.Options{FS: m, Format: f, SegmentBytes: 1 << 12, Sync: commitlog.SyncOS}
		l, err := commitlog.Open("log", opt)
		require.NoError(t, err)
		_, err = l.Append(record.Record{Value: []byte("first")})
		require.NoError(t, err)
		require.NoError(t, l.Sync())
		_, err = l.Append(record.Record{Value: []byte("second")})
		require.NoError(t, err)
		m = m.Kill()
		m.Edit("log/00000000000000000000.log", func(b []byte) []byte {
			clear(b[strings.Index(string(b), "second")+3:])
			return b
		})
		opt.FS = m
		l, err = commitlog.Open("log", opt)
		require.NoError(t, err)
		if l.EndOffset() == 2 {
			r, err := l.Read(1)
			t.Errorf("format %d: offset 1 reads %q, %v", f.Version(), r.Value, err) // "sec\x00\x00\x00"
		}
	}
}

// Format 1, compacted (records 1 and 2 are gone), then truncated to 3: the last frame
// ends at offset 1, the log at 3. After a kill it does not open, and before it cannot be read.
func TestTruncationBehindAGapOfCompaction(t *testing.T) {
	m := vfs.NewMem()
	opt := commitlog.Options{FS: m, Format: record.V1, SegmentBytes: 120}
	l, err := commitlog.Open("log", opt)
	require.NoError(t, err)
	for _, k := range []string{"a", "b", "b", "b", "c", "d", "e"} {
		_, err := l.Append(record.Record{Key: []byte(k), Value: []byte("value")})
		require.NoError(t, err)
	}
	_, err = l.Compact(0)
	require.NoError(t, err)
	to, err := l.Truncate(3)
	require.NoError(t, err)
	require.Equal(t, int64(3), to)
	for _, err := range l.Records(0) {
		if err != nil {
			t.Errorf("reading a healthy log: %v", err)
		}
	}
	opt.FS = m.Kill()
	_, err = commitlog.Open("log", opt)
	require.NoError(t, err)
}

// A reader has read ahead; the log is truncated and gets other records there.
func TestReaderDoesNotServeWhatWasTruncated(t *testing.T) {
	l, err := commitlog.Open("log", commitlog.Options{FS: vfs.NewMem(), SegmentBytes: 1 << 16})
	require.NoError(t, err)
	for i := range 10 {
		_, err := l.Append(record.Record{Value: fmt.Append(nil, "old ", i)})
		require.NoError(t, err)
	}
	r, err := l.NewReader(0)
	require.NoError(t, err)
	for range 5 {
		_, err := r.Next()
		require.NoError(t, err)
	}
	_, err = l.Truncate(3)
	require.NoError(t, err)
	for i := 3; i < 8; i++ {
		_, err := l.Append(record.Record{Value: fmt.Append(nil, "new ", i)})
		require.NoError(t, err)
	}
	f, err := r.Next() // Truncate promises *OffsetOutOfRangeError; the new record would do too
	if err == nil {
		rs, err := f.Records()
		require.NoError(t, err)
		require.Equal(t, "new 5", string(rs[0].Value))
	}
}

// Checkpoint and segments are gone, the mark says that ten were acknowledged.
func TestALogWhoseMarkIsAheadIsNotNew(t *testing.T) {
	m := vfs.NewMem()
	opt := commitlog.Options{FS: m, SegmentBytes: 400}
	l, err := commitlog.Open("log", opt)
	require.NoError(t, err)
	for i := range 10 {
		_, err := l.Append(record.Record{Value: fmt.Append(nil, i)})
		require.NoError(t, err)
	}
	m = m.Kill()
	for _, f := range m.Files("log") {
		if strings.HasSuffix(f, ".log") || strings.HasSuffix(f, ".index") || strings.HasSuffix(f, "checkpoint") {
			require.NoError(t, m.Remove(f))
		}
	}
	opt.FS = m
	l, err = commitlog.Open("log", opt)
	if err == nil {
		t.Errorf("opens as healthy, clean %v, with log end offset %d", l.Recovery().Clean, l.EndOffset())
	}
}

// A truncation is stopped at each of its steps in turn; then the disk is full. What was
// below it can be read, and once there is room again the truncation is finished.
func TestFullDiskAfterEveryStepOfATruncation(t *testing.T) {
	for _, format := range []record.Format{record.V0, record.V1, record.V2} {
		for step := 1; ; step++ {
			m := vfs.NewMem()
			opt := commitlog.Options{FS: m, Format: format, SegmentBytes: 300}
			l, err := commitlog.Open("log", opt)
			require.NoError(t, err)
			for i := range 20 {
				_, err := l.Append(record.Record{Value: fmt.Append(nil, i)})
				require.NoError(t, err)
			}
			m.Before = vfs.FailNth(m.Ops()+step, syscall.EIO)
			if _, err = l.Truncate(5); err == nil {
				require.Greater(t, step, 8, "format %d: the truncation has no steps", format.Version())
				break
			}
			m = m.Kill()
			m.Before = func(op vfs.Op) error {
				if op.Kind == vfs.OpCreate || op.Kind == vfs.OpWrite {
					return syscall.ENOSPC
				}
				return nil
			}
			opt.FS = m
			l, err = commitlog.Open("log", opt)
			require.NoError(t, err, "format %d, step %d", format.Version(), step)
			for i := range 5 {
				r, err := l.Read(int64(i))
				require.NoError(t, err, "format %d, step %d", format.Version(), step)
				require.Equal(t, fmt.Sprint(i), string(r.Value))
			}
			end := l.EndOffset()
			require.Contains(t, []int64{5, 20}, end)
			_ = l.Close()

			m = m.Kill()
			opt.FS = m
			l, err = commitlog.Open("log", opt)
			require.NoError(t, err)
			require.Equal(t, end, l.EndOffset(), "format %d, step %d", format.Version(), step)
			_, err = l.Append(record.Record{Value: []byte("goes on")})
			require.NoError(t, err)
			require.NoError(t, l.Verify())
			require.NoError(t, l.Close())
		}
	}
}

// A record from the year 2200 does not hold its segment, and those after it, until then.
func TestRetentionDoesNotWaitForTheFuture(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	opt := commitlog.Options{FS: vfs.NewMem(), SegmentBytes: 200, Now: func() time.Time { return now }}
	l, err := commitlog.Open("log", opt)
	require.NoError(t, err)
	for i := range 9 {
		at := now
		if i == 1 {
			at = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)
		}
		_, err := l.Append(record.Record{Timestamp: at, Value: fmt.Append(nil, i)})
		require.NoError(t, err)
	}
	require.NoError(t, l.Close()) // what the rule goes by lasts in the index
	l, err = commitlog.Open("log", opt)
	require.NoError(t, err)
	n, err := l.Retain(commitlog.Retention{Age: time.Hour})
	require.NoError(t, err)
	require.Zero(t, n, "it was written just now")
	now = now.Add(2 * time.Hour)
	n, err = l.Retain(commitlog.Retention{Age: time.Hour})
	require.NoError(t, err)
	require.Positive(t, n)
	require.Greater(t, l.StartOffset(), int64(1))
}

// Retention by size deletes a damaged segment like any other: it has no question to ask of it.
func TestRetentionBySizeIsNotStoppedByDamage(t *testing.T) {
	m := vfs.NewMem()
	opt := commitlog.Options{FS: m, SegmentBytes: 200}
	l, err := commitlog.Open("log", opt)
	require.NoError(t, err)
	for i := range 12 {
		_, err := l.Append(record.Record{Value: fmt.Append(nil, i)})
		require.NoError(t, err)
	}
	require.NoError(t, l.Close())
	first := filepath.Join("log", commitlog.SegmentName(0))
	m.Edit(first+".log", func(b []byte) []byte { b[65] ^= 1; return b })
	require.NoError(t, m.Remove(first+".index"))
	l, err = commitlog.Open("log", opt)
	require.NoError(t, err)
	n, err := l.Retain(commitlog.Retention{Bytes: 250})
	require.NoError(t, err)
	require.Positive(t, n)
	require.NoError(t, l.Verify())
	_, err = l.Retain(commitlog.Retention{Age: time.Nanosecond})
	require.NoError(t, err)
}

// What a batch says of its newest record is not believed: look-ups by time go by it.
func TestABatchThatLiesAboutItsNewestRecordIsRefused(t *testing.T) {
	l, err := commitlog.Open("log", commitlog.Options{FS: vfs.NewMem()})
	require.NoError(t, err)
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	b, err := record.V2.AppendFrames(nil, []record.Record{{Timestamp: at, Value: []byte("a")}}, record.Encoding{})
	require.NoError(t, err)
	binary.BigEndian.PutUint64(b[35:], uint64(at.Add(time.Hour).UnixMilli()))
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))
	_, err = l.AppendBatch(b)
	var fe *record.FrameError
	require.ErrorAs(t, err, &fe)
	require.Equal(t, "max_timestamp", fe.Field)
	require.Zero(t, l.EndOffset())
}

// Times that nanoseconds cannot count, as other programs' batches may hold them, sort
// before and after all others.
func TestTimesBeyondNanoseconds(t *testing.T) {
	l, err := commitlog.Open("log", commitlog.Options{FS: vfs.NewMem()})
	require.NoError(t, err)
	for _, year := range []int{1, 1970, 9999} {
		at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		b, err := record.V2.AppendFrames(nil, []record.Record{{Timestamp: at, Value: fmt.Append(nil, year)}}, record.Encoding{})
		require.NoError(t, err)
		ms := time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()
		binary.BigEndian.PutUint64(b[27:], uint64(ms))
		binary.BigEndian.PutUint64(b[35:], uint64(ms))
		binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))
		_, err = l.AppendBatch(b)
		require.NoError(t, err)
	}
	for i, year := range []int{1, 1970, 9999} {
		r, err := l.Read(int64(i))
		require.NoError(t, err)
		require.Equal(t, year, r.Timestamp.UTC().Year())
	}
	offset, err := l.OffsetForTime(math.MaxInt64)
	require.NoError(t, err)
	require.Equal(t, int64(2), offset)
	offset, err = l.OffsetForTime(0)
	require.NoError(t, err)
	require.Equal(t, int64(1), offset)
	offset, err = l.OffsetForTime(math.MinInt64)
	require.NoError(t, err)
	require.Equal(t, int64(0), offset)
}
