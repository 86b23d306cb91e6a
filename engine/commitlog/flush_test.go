package commitlog_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"logbook/engine/commitlog"
	"logbook/engine/record"
	"logbook/engine/vfs"
)

// several logs share a committer and a disk that can flush files together.
type several struct {
	disk  *vfs.Mem
	names []string
	logs  []*commitlog.Log
	acked []int // records, by log
	begun []int
}

var severalOptions = commitlog.Options{SegmentBytes: 500, CheckpointBytes: 300, IndexBytes: 100}

func openSeveral(t *testing.T) *several {
	t.Helper()
	s := &several{disk: vfs.NewMem(), names: []string{"data/a", "data/b", "data/c", "data/d"}}
	s.disk.Flushes, s.disk.BlockSize = true, 64
	opt := severalOptions
	opt.FS, opt.Committer, opt.Now = s.disk, commitlog.NewCommitter(), ticking()
	for _, name := range s.names {
		l, err := commitlog.Open(name, opt)
		require.NoError(t, err)
		s.logs = append(s.logs, l)
	}
	s.acked, s.begun = make([]int, len(s.names)), make([]int, len(s.names))
	return s
}

// round appends to each log, in one round of the committer. It returns the errors, by log.
func (s *several) round(t *testing.T) []error {
	t.Helper()
	pending, errs := make([]commitlog.Pending, len(s.logs)), make([]error, len(s.logs))
	for i, l := range s.logs {
		b, err := commitlog.NewBatch(l.Format(), []record.Record{{Value: value(s.begun[i])}}, record.Encoding{Timestamp: ticking()()}, commitlog.Limits{})
		require.NoError(t, err)
		s.begun[i]++
		if pending[i], errs[i] = l.Begin(b); errs[i] != nil {
			s.begun[i]--
		}
	}
	for i := range s.logs {
		if errs[i] == nil {
			if _, errs[i] = pending[i].Wait(); errs[i] == nil {
				s.acked[i]++
			}
		}
	}
	return errs
}

// check opens what a crash left and looks for what was acknowledged.
func (s *several) check(disk *vfs.Mem) error {
	for i, name := range s.names {
		opt := severalOptions
		opt.FS, opt.Now = disk, ticking()
		l, err := commitlog.Open(name, opt)
		if err != nil {
			return fmt.Errorf("%s does not open: %w", name, err)
		}
		if end := int(l.EndOffset()); end < s.acked[i] || end > s.begun[i] {
			return fmt.Errorf("%s ends at %d; %d were acknowledged, %d begun", name, end, s.acked[i], s.begun[i])
		}
		n := 0
		for r, err := range l.Records(0) {
			if err != nil || string(r.Value) != string(value(n)) {
				return fmt.Errorf("%s reads %q at %d: %v", name, r.Value, n, err)
			}
			n++
		}
		if err := l.Close(); err != nil {
			return err
		}
	}
	return nil
}

// Files that are flushed together are as durable as files that are synced one by one: power
// fails after each operation on the disk, and every log has what it acknowledged.
func TestCrashesOfAFlush(t *testing.T) {
	synctest.Test(t, crashesOfAFlush) // where work takes no time, a flush is never too slow
}

func crashesOfAFlush(t *testing.T) {
	s := openSeveral(t)
	limit := 2
	if everything {
		limit = 60
	}
	rng := rand.New(rand.NewPCG(11, 1))
	flushes, states := 0, 0
	require.Equal(t, make([]error, 4), s.round(t)) // the first is synced file by file, to measure it
	s.disk.After = func(op vfs.Op) {
		if op.Kind == vfs.OpSync && filepath.Ext(op.Name) == "" && filepath.Dir(op.Name) == "data" {
			flushes++
		}
		for c := range s.disk.Crashes(limit, rng) {
			states++
			if err := s.check(c.FS); err != nil && !t.Failed() {
				t.Errorf("after %s (on disk: %s): %v", op, c.What, err)
			}
		}
	}
	for range 19 {
		for i, err := range s.round(t) {
			require.NoError(t, err, s.names[i])
		}
	}
	assert.Positive(t, flushes, "nothing was flushed together")
	s.disk.After = nil
	for _, l := range s.logs {
		require.NoError(t, l.Close())
	}
	require.NoError(t, s.check(s.disk.Kill()))
	t.Logf("%d flushes, %d states", flushes, states)
}

// A flush that fails is some file's failure: that log takes no more appends, and the others
// go on.
func TestAFailedFlushIsOneLogsFailure(t *testing.T) {
	synctest.Test(t, aFailedFlush)
}

func aFailedFlush(t *testing.T) {
	s := openSeveral(t)
	require.Equal(t, make([]error, 4), s.round(t)) // the first is synced file by file, to measure it
	failed := false
	s.disk.Inject(func(op vfs.Op) error {
		if op.Kind == vfs.OpSync && filepath.Dir(op.Name) == "data" && !failed {
			failed = true
			return syscall.EIO
		}
		return nil
	})
	bad := 0
	for i, err := range s.round(t) {
		if err != nil {
			var p *commitlog.PoisonedError
			require.ErrorAs(t, err, &p, s.names[i])
			require.ErrorIs(t, err, syscall.EIO)
			bad++
		}
	}
	require.True(t, failed, "nothing was flushed together")
	require.Equal(t, 1, bad, "one log, and somebody, must hear of it")
	for i, err := range s.round(t) {
		if p := (*commitlog.PoisonedError)(nil); !errors.As(err, &p) {
			require.NoError(t, err, s.names[i])
		}
	}
	require.NoError(t, s.check(lastState(s.disk)), "and nothing acknowledged is lost")
}
