package commitlog_test

import (
	"errors"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"logbook/engine/commitlog"
	"logbook/engine/record"
	"logbook/engine/vfs"
)

// appendUntilError appends to a fresh log until something fails or n records are in. It
// returns the acknowledged values and the first error.
func appendUntilError(fsys vfs.FS, opt commitlog.Options, n int) (l *commitlog.Log, acked int, err error) {
	opt.FS = fsys
	l, err = commitlog.Open("log", opt)
	if err != nil {
		return nil, 0, err
	}
	for i := range n {
		if _, err := l.Append(record.Record{Value: value(i)}); err != nil {
			return l, i, err
		}
	}
	return l, n, nil
}

// For every k, the k-th operation on the disk fails. Nothing is acknowledged that is not
// durable, appends are refused from then on, what was acknowledged can still be read, and
// a reopened log has it and goes on.
func TestEveryFailingOperation(t *testing.T) {
	for _, cause := range []error{syscall.EIO, syscall.ENOSPC} {
		eachFormat(t, func(t *testing.T, f record.Format) {
			opt := commitlog.Options{Format: f, SegmentBytes: 300, CheckpointBytes: 200, Now: ticking()}
			clean := vfs.NewMem()
			l, acked, err := appendUntilError(clean, opt, 20)
			require.NoError(t, err)
			require.Equal(t, 20, acked)
			require.NoError(t, l.Close())
			ops := clean.Ops()
			require.Greater(t, ops, 100)
			for k := 1; k <= ops; k++ {
				for _, short := range []int{0, 7} {
					mem := vfs.NewMem()
					mem.Before = func(op vfs.Op) error {
						if op.N != k {
							return nil
						}
						if op.Kind == vfs.OpWrite && short > 0 {
							return &vfs.ShortWrite{N: short, Err: cause}
						}
						return cause
					}
					checkAfterFault(t, mem, opt, k, cause)
				}
			}
		})
	}
}

func checkAfterFault(t *testing.T, mem *vfs.Mem, opt commitlog.Options, k int, cause error) {
	t.Helper()
	l, acked, err := appendUntilError(mem, opt, 20)
	if l != nil && err != nil {
		require.ErrorIs(t, err, cause, "k=%d", k)
		var p *commitlog.PoisonedError
		require.ErrorAs(t, err, &p, "k=%d", k)
		_, again := l.Append(record.Record{Value: []byte("no")})
		require.ErrorAs(t, again, &p, "k=%d: the disk works again, the log must not", k)
		requireValues(t, l, 0, acked)
	}
	if l != nil {
		if cerr := l.Close(); err == nil && cerr != nil {
			require.ErrorIs(t, cerr, cause)
		}
	}
	for _, disk := range []*vfs.Mem{mem.Kill(), lastState(mem)} {
		opt.FS = disk
		l, err := commitlog.Open("log", opt)
		require.NoError(t, err, "k=%d: reopening", k)
		got := int(l.EndOffset())
		require.GreaterOrEqual(t, got, acked, "k=%d: an acknowledged record is lost", k)
		require.LessOrEqual(t, got, acked+1, "k=%d: at most the one that failed may be there", k)
		requireValues(t, l, 0, got)
		appendN(t, l, 3)
		requireValues(t, l, 0, got+3)
		require.NoError(t, l.Close())
	}
}

// lastState is the disk after the power failed now and nothing unsynced survived.
func lastState(m *vfs.Mem) *vfs.Mem {
	for c := range m.Crashes(1, nil) {
		return c.FS
	}
	return nil
}

// A sync that fails once and succeeds later: the kernel has dropped the bytes, so the
// second success proves nothing. The log must not try again.
func TestFailedSyncIsNotRetried(t *testing.T) {
	mem := vfs.NewMem()
	syncs := 0
	l, acked, err := appendUntilError(mem, commitlog.Options{Now: ticking()}, 5)
	require.NoError(t, err)
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
	opt := commitlog.Options{FS: lastState(mem), Now: ticking()}
	l, err = commitlog.Open("log", opt)
	require.NoError(t, err)
	requireValues(t, l, 0, acked)
	require.NoError(t, l.Close())
	require.False(t, errors.Is(err, syscall.EIO))
}
