package commitlog_test

import (
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"logbook/engine/commitlog"
	"logbook/engine/record"
	"logbook/engine/vfs"
)

// seedLog is a small log on disk, in a format, for the fuzzer to spoil.
func seedLog(t testing.TB, f record.Format) *vfs.Mem {
	t.Helper()
	disk := vfs.NewMem()
	l, err := commitlog.Open("log", commitlog.Options{FS: disk, Format: f, SegmentBytes: 250, IndexBytes: 60, Now: ticking()})
	require.NoError(t, err)
	appendN(t, l, 6)
	return disk.Kill()
}

var fuzzFiles = []string{
	"log.meta", "checkpoint", "mark",
	commitlog.SegmentName(0) + ".log", commitlog.SegmentName(0) + ".index",
	commitlog.SegmentName(2) + ".log", commitlog.SegmentName(2) + ".index",
	commitlog.SegmentName(4) + ".log",
}

// FuzzOpen gives one file of a log arbitrary contents: opening, reading, verifying and
// inspecting it neither panics nor hangs, and costs memory in proportion to the files.
func FuzzOpen(f *testing.F) {
	for _, format := range formats {
		disk := seedLog(f, format)
		for i, name := range fuzzFiles {
			if data, err := vfs.ReadFile(disk, filepath.Join("log", name), 1<<20); err == nil {
				f.Add(format.Version() == 1, format.Version() == 2, uint8(i), data)
			}
		}
	}
	disks := map[record.Format]*vfs.Mem{}
	for _, format := range formats {
		disks[format] = seedLog(f, format)
	}
	f.Fuzz(func(t *testing.T, v1, v2 bool, file uint8, data []byte) {
		format := record.V0
		if v2 {
			format = record.V2
		} else if v1 {
			format = record.V1
		}
		disk := disks[format].Kill()
		name := filepath.Join("log", fuzzFiles[int(file)%len(fuzzFiles)])
		if _, err := vfs.ReadFile(disk, name, 1<<20); err != nil {
			w, err := disk.Create(name)
			require.NoError(t, err)
			require.NoError(t, w.Close())
		}
		disk.Edit(name, func([]byte) []byte { return data })
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		use(disk)
		runtime.ReadMemStats(&after)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(64<<20+200*len(data)))
	})
}

// use opens a log and does everything that reads it. What it returns does not matter.
func use(disk *vfs.Mem) {
	if in, err := commitlog.Inspect(disk, "log"); err == nil {
		for _, s := range in.Segments {
			_ = commitlog.InspectFrames(disk, s, in.Format, func(commitlog.FrameAt) bool { return true })
		}
	}
	for _, policy := range []commitlog.RecoveryPolicy{commitlog.Strict, commitlog.TruncateTail} {
		l, err := commitlog.Open("log", commitlog.Options{FS: disk, Recovery: policy, SegmentBytes: 250, Now: ticking()})
		if err != nil {
			continue
		}
		_ = l.Verify()
		n := 0
		for range l.Records(l.StartOffset()) {
			if n++; n > 100_000 {
				panic("endless")
			}
		}
		_, _ = l.Read(3)
		_, _ = l.OffsetForTime(epoch.UnixNano())
		_, _ = l.Append(record.Record{Value: []byte("x")})
		_, _ = l.Truncate(2)
		_, _ = l.Retain(commitlog.Retention{Bytes: 1})
		_ = l.Close()
	}
}
