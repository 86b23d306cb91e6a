package commitlog_test

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"logbook/engine/commitlog"
	"logbook/engine/record"
	"logbook/engine/vfs"
)

// For every k, the k-th operation on the disk fails, while the script of the crash
// enumeration appends, rolls, truncates, compacts and retains. Nothing is acknowledged
// that is not durable; appends are refused from then on, though the disk works again;
// what was acknowledged can still be read; and a reopened log has it and goes on. One
// operation in five, unless make crash asks for all.
func TestEveryFailingOperation(t *testing.T) {
	if testing.Short() {
		t.Skip("a long enumeration")
	}
	tried := 0
	eachFormat(t, func(t *testing.T, f record.Format) {
		opt := commitlog.Options{Format: f, SegmentBytes: 300, CheckpointBytes: 200, IndexBytes: 100, Now: ticking()}
		clean := vfs.NewMem()
		_, err := script(clean, opt, newModel())
		require.NoError(t, err)
		for k := 1; k <= clean.Ops(); k += everyNth(5) {
			for _, fault := range []error{syscall.EIO, syscall.ENOSPC, &vfs.ShortWrite{N: 7, Err: syscall.ENOSPC}} {
				disk := vfs.NewMem()
				disk.Before = vfs.FailNth(k, fault)
				tried++
				checkAfterFault(t, disk, opt, k, fault)
			}
		}
	})
	fmt.Printf("disk errors: %d failing operations, %s\n", tried, verdict(t))
}

func checkAfterFault(t *testing.T, disk *vfs.Mem, opt commitlog.Options, k int, fault error) {
	t.Helper()
	m := newModel()
	l, err := script(disk, opt, m)
	var p *commitlog.PoisonedError
	if errors.As(err, &p) {
		require.ErrorIs(t, err, errors.Unwrap(unshort(fault)), "k=%d", k)
		_, again := l.Append(record.Record{Value: []byte("no")})
		require.ErrorAs(t, again, &p, "k=%d: the disk works again, the log must not", k)
		require.NoError(t, m.compareAsync(l), "k=%d", k)
		require.NoError(t, l.Close())
	} else if l != nil {
		l.Close()
	}
	for _, state := range []*vfs.Mem{disk.Kill(), lastState(disk)} {
		require.NoError(t, m.checkAsync(state, opt), "k=%d, %v, which failed with: %v", k, fault, err)
	}
}

// unshort wraps a fault so that its cause can be asked for in one way.
func unshort(fault error) error {
	if short, ok := fault.(*vfs.ShortWrite); ok {
		return short
	}
	return &vfs.ShortWrite{Err: fault}
}

// lastState is the disk after the power failed now and nothing unsynced survived.
func lastState(m *vfs.Mem) *vfs.Mem {
	for c := range m.Crashes(1, nil) {
		return c.FS
	}
	return nil
}

// A disk that is full stays full: the log opens and can be read, and says why it takes
// no appends.
func TestFullDiskCanStillBeRead(t *testing.T) {
	eachFormat(t, func(t *testing.T, f record.Format) {
		disk := vfs.NewMem()
		opt := commitlog.Options{FS: disk, Format: f, SegmentBytes: 300, Now: ticking()}
		l, err := commitlog.Open("log", opt)
		require.NoError(t, err)
		appendN(t, l, 20)
		full := func(op vfs.Op) error {
			if op.Kind == vfs.OpWrite || op.Kind == vfs.OpCreate {
				return syscall.ENOSPC
			}
			return nil
		}
		disk.Before = full
		_, err = l.Append(record.Record{Value: value(20)})
		require.ErrorIs(t, err, syscall.ENOSPC)
		killed := disk.Kill()
		killed.Before = full
		opt.FS = killed
		l, err = commitlog.Open("log", opt)
		require.NoError(t, err)
		requireValues(t, l, 0, 20)
		_, err = l.Append(record.Record{Value: value(20)})
		require.ErrorIs(t, err, syscall.ENOSPC)
		requireValues(t, l, 0, 20)
		require.NoError(t, l.Close())
		killed.Before = nil
		l, err = commitlog.Open("log", opt)
		require.NoError(t, err)
		appendN(t, l, 1)
		requireValues(t, l, 0, 21)
		require.NoError(t, l.Close())
	})
}

// A sync that fails once and succeeds later: the kernel has dropped the bytes, so the
// second success proves nothing. The log must not try again.
func TestFailedSyncIsNotRetried(t *testing.T) {
	mem := vfs.NewMem()
	syncs := 0
	l, err := commitlog.Open("log", commitlog.Options{FS: mem, Now: ticking(), SegmentBytes: 64 << 10})
	require.NoError(t, err)
	appendN(t, l, 5)
	mem.Before = func(op vfs.Op) error {
		if op.Kind == vfs.OpSync {
			if syncs++; syncs == 1 {
				return syscall.EIO
			}
		}
		return nil
	}
	_, err = l.Append(record.Record{Value: value(5)})
	require.ErrorIs(t, err, syscall.EIO)
	before := mem.Ops()
	_, err = l.Append(record.Record{Value: value(6)})
	require.ErrorIs(t, err, syscall.EIO)
	require.NoError(t, l.Close())
	assert.Equal(t, before, mem.Ops(), "a poisoned log does not touch the disk")
	opt := commitlog.Options{FS: lastState(mem), Now: ticking(), SegmentBytes: 64 << 10}
	l, err = commitlog.Open("log", opt)
	require.NoError(t, err)
	requireValues(t, l, 0, 5)
	require.NoError(t, l.Close())
}

// A killed process leaves frames in the page cache that were never synced. Once a reopened
// log has shown them to a reader, a power failure must not take them.
func TestRecoveredRecordsAreMadeDurable(t *testing.T) {
	eachFormat(t, func(t *testing.T, f record.Format) {
		disk := vfs.NewMem()
		opt := commitlog.Options{FS: disk, Format: f, Sync: commitlog.SyncOS, Now: ticking(), SegmentBytes: 64 << 10}
		l, err := commitlog.Open("log", opt)
		require.NoError(t, err)
		appendN(t, l, 5)
		require.Zero(t, l.Stats().Syncs)
		for range 2 { // recovered once, and then again
			disk = disk.Kill()
			opt.FS = disk
			l, err = commitlog.Open("log", opt)
			require.NoError(t, err)
			requireValues(t, l, 0, 5) // a kill takes nothing under any policy
		}
		opt.FS, opt.Sync = lastState(disk), commitlog.SyncAlways
		l, err = commitlog.Open("log", opt)
		require.NoError(t, err)
		requireValues(t, l, 0, 5)
		require.NoError(t, l.Close())
	})
}
