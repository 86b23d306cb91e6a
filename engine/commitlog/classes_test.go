package commitlog_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"logbook/engine/commitlog"
	"logbook/engine/record"
	"logbook/engine/vfs"
)

// The fault classes in which public logs have lost or invented records, one by one, in
// format 2, and what this log makes of them. The log holds 12 records in 250-byte
// segments and was killed, so the mark is at its end.
func TestKnownFaultClasses(t *testing.T) {
	log := func(base int64) string { return filepath.Join("log", commitlog.SegmentName(base)+".log") }
	index := func(base int64) string { return filepath.Join("log", commitlog.SegmentName(base)+".index") }
	drop := func(name string) func(*vfs.Mem) {
		return func(d *vfs.Mem) { require.NoError(t, d.Remove(name)) }
	}
	edit := func(name string, f func([]byte) []byte) func(*vfs.Mem) {
		return func(d *vfs.Mem) { d.Edit(name, f) }
	}
	tail := func([]byte) int { return activeBytes }
	const active = 10 // base offset of the active segment
	for _, c := range []struct {
		class string
		harm  func(*vfs.Mem)
		want  string // part of the error; empty: opens
		end   int64  // log end offset then
		cut   bool   // and a torn tail was cut
	}{
		{"torn last record", edit(log(active), appendTorn(30)), "", 12, true},
		{"zero-filled tail", edit(log(active), func(b []byte) []byte { return append(b, make([]byte, 5000)...) }), "", 12, false},
		{"garbage length in the tail", edit(log(active), func(b []byte) []byte {
			return append(b[:tail(b)], "\x00\x00\x00\x00\x00\x00\x00\x0c\x7f\xff\xff\xff\x00\x00\x00\x00\x02"...)
		}), "", 12, true},
		{"a hole: the second of two unsynced writes persisted", edit(log(active), func(b []byte) []byte {
			return append(append(b[:tail(b)], make([]byte, 70)...), batchAt(13, 0)...)
		}), "", 12, true},
		{"stray byte after the end", edit(log(active), func(b []byte) []byte { return append(b[:tail(b)], 'x') }), "", 12, true},
		{"acknowledged bytes zeroed", edit(log(active), func(b []byte) []byte { clear(b[tail(b)-40:]); return b }), "no frame", 0, false},
		{"acknowledged record cut off at its edge", edit(log(active), func(b []byte) []byte { return b[:tail(b)/2] }), "were synced", 0, false},
		{"flipped length in the last record", edit(log(active), func(b []byte) []byte { b[tail(b)/2+9] ^= 0x40; return b }), "no frame", 0, false},
		{"damage in an early segment", edit(log(2), func(b []byte) []byte { b[100] ^= 1; return b }), "", 12, false}, // reads report it
		{"early segment cut", edit(log(2), func(b []byte) []byte { return b[:100] }), "has 100 bytes", 0, false},
		{"missing middle segment", drop(log(4)), "segment is missing", 0, false},
		{"missing first segment", drop(log(0)), "segment is missing", 0, false},
		{"missing active segment", drop(log(active)), "segment is missing", 0, false},
		{"index missing", drop(index(4)), "", 12, false},
		{"index empty", edit(index(4), func(b []byte) []byte { return nil }), "", 12, false},
		{"index damaged", edit(index(4), func(b []byte) []byte { b[60] ^= 1; return b }), "", 12, false},
		{"index of another segment", func(d *vfs.Mem) {
			other, _ := vfs.ReadFile(d, index(2), 1000)
			d.Edit(index(4), func([]byte) []byte { return other })
		}, "", 12, false},
		{"two segments with one base offset", func(d *vfs.Mem) {
			f, err := d.Create(filepath.Join("log", "4.log"))
			require.NoError(t, err)
			require.NoError(t, f.Close())
		}, "not named like a segment", 0, false},
		{"overlapping segments", func(d *vfs.Mem) {
			f, err := d.Create(log(5))
			require.NoError(t, err)
			require.NoError(t, f.Close())
		}, "overlaps", 0, false},
		{"empty segment after a crash at roll", func(d *vfs.Mem) {
			f, err := d.Create(log(12))
			require.NoError(t, err)
			require.NoError(t, f.Close())
			d.Edit(log(active), func(b []byte) []byte { return b[:tail(b)] })
		}, "", 12, false},
		{"preallocated segment after a crash at roll", func(d *vfs.Mem) {
			f, err := d.Create(log(12))
			require.NoError(t, err)
			require.NoError(t, f.Truncate(250))
			d.Edit(log(active), func(b []byte) []byte { return b[:tail(b)] })
		}, "", 12, false},
		{"mark lost", drop("log/mark"), "mark cannot be read", 0, false},
		{"checkpoint lost", drop("log/checkpoint"), "is missing", 0, false},
		{"meta lost", drop("log/log.meta"), "is not a log", 0, false},
	} {
		t.Run(c.class, func(t *testing.T) {
			disk := twelve(t)
			c.harm(disk)
			opt := commitlog.Options{FS: disk, SegmentBytes: 250, Now: ticking()}
			l, err := commitlog.Open("log", opt)
			if c.want != "" {
				require.ErrorContains(t, err, c.want)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, c.end, l.EndOffset())
			assert.Equal(t, c.cut, l.Recovery().CutFile != "", "%+v", l.Recovery())
			if c.class == "damage in an early segment" {
				var ce *commitlog.CorruptionError
				require.ErrorAs(t, l.Verify(), &ce)
				require.Equal(t, log(2), ce.File)
				_, err := l.Read(3)
				require.ErrorAs(t, err, &ce)
				return
			}
			requireValues(t, l, 0, 12)
			appendN(t, l, 1) // and it is acknowledged, and there after another restart
			opt.FS = disk.Kill()
			l, err = commitlog.Open("log", opt)
			require.NoError(t, err)
			requireValues(t, l, 0, 13)
			require.NoError(t, l.Close())
		})
	}
}

// twelve is a killed log of 12 records, two to a closed segment.
func twelve(t *testing.T) *vfs.Mem {
	t.Helper()
	disk := vfs.NewMem()
	l, err := commitlog.Open("log", commitlog.Options{FS: disk, SegmentBytes: 160, Now: ticking()})
	require.NoError(t, err)
	appendN(t, l, 12)
	return disk.Kill()
}

func batchAt(offset int64, epoch int32) []byte {
	b, err := record.V2.AppendFrames(nil, []record.Record{{Value: value(int(offset))}},
		record.Encoding{BaseOffset: offset, LeaderEpoch: epoch, Timestamp: ticking()()})
	if err != nil {
		panic(err)
	}
	return b
}

// appendTorn puts the first n bytes of the next batch after the frames.
func appendTorn(n int) func([]byte) []byte {
	return func(b []byte) []byte {
		return append(b[:activeBytes], batchAt(12, 0)[:n]...)
	}
}

// activeBytes is the size of the frames in the active segment of twelve.
var activeBytes = len(batchAt(10, 0)) + len(batchAt(11, 0))

// A log emptied by retention goes on with the next offset.
func TestRetentionNeverForgetsTheNextOffset(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, commitlog.Options{SegmentBytes: 160})
	appendN(t, l, 12)
	require.NoError(t, l.AdvanceLogStart(12))
	assert.Equal(t, []int64{12, 12}, []int64{l.StartOffset(), l.EndOffset()})
	require.NoError(t, l.Close())
	l = open(t, dir, commitlog.Options{SegmentBytes: 160})
	assert.Equal(t, []int64{12, 12}, []int64{l.StartOffset(), l.EndOffset()})
	got, err := l.Append(record.Record{Value: value(12)})
	require.NoError(t, err)
	assert.Equal(t, int64(12), got.BaseOffset)
	for offset := range int64(12) {
		_, err := l.Read(offset)
		var oor *commitlog.OffsetOutOfRangeError
		require.ErrorAs(t, err, &oor, fmt.Sprint(offset))
	}
}
