package engine_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"logbook/engine"
	"logbook/engine/commitlog"
	"logbook/engine/group"
	"logbook/engine/record"
	"logbook/engine/service"
	"logbook/engine/stream"
	"logbook/engine/topic"
	"logbook/engine/vfs"
)

func openMem(t testing.TB, disk *vfs.Mem) *engine.Engine {
	t.Helper()
	e, err := engine.Open("data", engine.Options{FS: disk, Log: commitlog.Options{SegmentBytes: 1 << 20}})
	require.NoError(t, err)
	return e
}

func fill(t testing.TB, e *engine.Engine, name string, n int) {
	t.Helper()
	p, err := e.Producer(t.Context(), name, stream.ProducerOptions{})
	require.NoError(t, err)
	for i := range n {
		_, err := p.Send(t.Context(), record.Record{Value: fmt.Appendf(nil, "%d", i)})
		require.NoError(t, err)
	}
	require.NoError(t, p.Close())
}

func TestEngineRemembersEverythingAcrossRestarts(t *testing.T) {
	dir := t.TempDir()
	e, err := engine.Open(dir, engine.Options{})
	require.NoError(t, err)
	_, err = e.CreateTopic(t.Context(), "flights", 2, topic.SHA256)
	require.NoError(t, err)
	_, err = e.CreateTopic(t.Context(), "flights", 2, nil)
	var exists *topic.ExistsError
	require.ErrorAs(t, err, &exists)
	_, err = e.CreateTopic(t.Context(), "quakes", 1, nil)
	require.NoError(t, err)
	fill(t, e, "flights", 10)
	c, err := e.Consumer(t.Context(), stream.ConsumerOptions{ID: "worker", Topic: "flights"})
	require.NoError(t, err)
	records, err := c.Fetch(t.Context(), 3)
	require.NoError(t, err)
	require.Len(t, records, 3)
	require.NoError(t, c.Commit(t.Context()))
	_, err = engine.Open(dir, engine.Options{})
	var locked *commitlog.LockedError
	require.ErrorAs(t, err, &locked)
	require.NoError(t, e.Close())
	require.ErrorIs(t, e.Close(), engine.ErrClosed)
	_, err = e.Topic(t.Context(), "flights")
	require.ErrorIs(t, err, engine.ErrClosed)

	e, err = engine.Open(dir, engine.Options{})
	require.NoError(t, err)
	names, err := e.Topics(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []string{"flights", "quakes"}, names)
	tp, err := e.Topic(t.Context(), "flights")
	require.NoError(t, err)
	assert.Equal(t, topic.SHA256, tp.Partitioner())
	offset, ok, err := e.Committed(t.Context(), "worker", "flights", 0)
	require.NoError(t, err)
	assert.True(t, ok)
	assert.Equal(t, int64(3), offset)
	_, err = e.Topic(t.Context(), "nothing")
	var unknown *topic.UnknownError
	require.ErrorAs(t, err, &unknown)
	require.NoError(t, e.Close())
}

// sorted waits for n records of a member and returns their values.
func sorted(t testing.TB, m *stream.Member, n int) []string {
	t.Helper()
	var out []string
	for len(out) < n {
		records, err := m.Fetch(t.Context(), n-len(out))
		require.NoError(t, err)
		for _, r := range records {
			out = append(out, string(r.Value))
		}
	}
	slices.Sort(out)
	return out
}

func TestGroupSharesPartitionsAndHandsThemOver(t *testing.T) {
	for _, assignor := range []group.Assignor{group.RoundRobin, group.CooperativeSticky} {
		synctest.Test(t, func(t *testing.T) {
			e := openMem(t, vfs.NewMem())
			_, err := e.CreateTopic(t.Context(), "flights", 4, nil)
			require.NoError(t, err)
			opt := stream.MemberOptions{Topics: []string{"flights"}, Assignor: assignor.Name(), SessionTimeout: 9 * time.Second}
			a, err := e.JoinGroup(t.Context(), "workers", opt)
			require.NoError(t, err)
			assert.Len(t, a.Assignment(), 4)
			b, err := e.JoinGroup(t.Context(), "workers", opt)
			require.NoError(t, err)
			time.Sleep(20 * time.Second) // the bubble's clock: heartbeats, and the handing over
			synctest.Wait()
			assert.Len(t, a.Assignment(), 2)
			assert.Len(t, b.Assignment(), 2)
			assert.Equal(t, a.Generation(), b.Generation())

			fill(t, e, "flights", 8)
			got := append(sorted(t, a, 4), sorted(t, b, 4)...)
			slices.Sort(got)
			assert.Equal(t, []string{"0", "1", "2", "3", "4", "5", "6", "7"}, got)
			require.NoError(t, a.Commit(t.Context()))
			require.NoError(t, b.Close(), "b leaves without committing")
			time.Sleep(20 * time.Second)
			synctest.Wait()
			assert.Len(t, a.Assignment(), 4)
			assert.Len(t, sorted(t, a, 4), 4, "what b did not commit is seen again")
			require.NoError(t, e.Close())
		})
	}
}

func TestStaleMemberCannotCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := openMem(t, vfs.NewMem())
		_, err := e.CreateTopic(t.Context(), "flights", 2, nil)
		require.NoError(t, err)
		fill(t, e, "flights", 4)
		opt := stream.MemberOptions{Topics: []string{"flights"}, SessionTimeout: 9 * time.Second, Instance: "box"}
		a, err := e.JoinGroup(t.Context(), "workers", opt)
		require.NoError(t, err)
		_, err = a.Fetch(t.Context(), 4)
		require.NoError(t, err)
		b, err := e.JoinGroup(t.Context(), "workers", opt) // the same instance: a is fenced
		require.NoError(t, err)
		assert.Len(t, b.Assignment(), 2)
		require.ErrorIs(t, a.Commit(t.Context()), group.ErrFencedInstance)
		_, ok, err := e.Committed(t.Context(), "workers", "flights", 0)
		require.NoError(t, err)
		assert.False(t, ok)
		time.Sleep(10 * time.Second)
		_, err = a.Fetch(t.Context(), 1)
		require.ErrorIs(t, err, group.ErrFencedInstance, "its heartbeat has told it")
		require.NoError(t, a.Close())
		require.NoError(t, b.Commit(t.Context()))
		require.NoError(t, e.Close())
	})
}

// A killed engine's groups come back with their generation and offsets; the members that
// died with it are out when their sessions are.
func TestGroupSurvivesAKill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfs.NewMem()
		e := openMem(t, disk)
		_, err := e.CreateTopic(t.Context(), "flights", 2, nil)
		require.NoError(t, err)
		fill(t, e, "flights", 6)
		opt := stream.MemberOptions{Topics: []string{"flights"}, SessionTimeout: 9 * time.Second}
		a, err := e.JoinGroup(t.Context(), "workers", opt)
		require.NoError(t, err)
		assert.Len(t, sorted(t, a, 4), 4)
		require.NoError(t, a.Commit(t.Context()))
		generation := a.Generation()
		killed := disk.Kill()
		require.NoError(t, e.Close())

		e = openMem(t, killed)
		began := time.Now()
		b, err := e.JoinGroup(t.Context(), "workers", opt)
		require.NoError(t, err)
		assert.InDelta(t, 9, time.Since(began).Seconds(), 0.1, "a's session had to end first")
		assert.Equal(t, generation+1, b.Generation())
		assert.Len(t, sorted(t, b, 2), 2)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err = b.Fetch(ctx, 1)
		require.ErrorIs(t, err, context.DeadlineExceeded, "nothing committed is seen again")
		require.NoError(t, e.Close())
	})
}

func TestGroupMisuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := openMem(t, vfs.NewMem())
		_, err := e.CreateTopic(t.Context(), "flights", 1, nil)
		require.NoError(t, err)
		_, err = e.JoinGroup(t.Context(), "workers", stream.MemberOptions{})
		require.Error(t, err)
		_, err = e.JoinGroup(t.Context(), "../x", stream.MemberOptions{Topics: []string{"flights"}})
		var ne *topic.NameError
		require.ErrorAs(t, err, &ne)
		_, err = e.JoinGroup(t.Context(), "workers", stream.MemberOptions{Topics: []string{"nothing"}})
		var unknown *topic.UnknownError
		require.ErrorAs(t, err, &unknown)
		m, err := e.JoinGroup(t.Context(), "workers", stream.MemberOptions{Topics: []string{"flights"}})
		require.NoError(t, err)
		_, err = e.JoinGroup(t.Context(), "workers", stream.MemberOptions{Topics: []string{"flights"}, Assignor: group.Range.Name()})
		var mismatch *group.AssignorMismatchError
		require.ErrorAs(t, err, &mismatch)
		require.NoError(t, m.Close())
		require.ErrorIs(t, m.Close(), engine.ErrClosed)
		_, err = m.Fetch(t.Context(), 1)
		require.ErrorIs(t, err, engine.ErrClosed)
		require.ErrorIs(t, m.Commit(t.Context()), engine.ErrClosed)
		require.NoError(t, e.Close())
		_, err = e.JoinGroup(t.Context(), "workers", stream.MemberOptions{Topics: []string{"flights"}})
		require.ErrorIs(t, err, engine.ErrClosed)
	})
}

// Closing releases everything: members, lingering batches, waiting fetches, goroutines.
func TestCloseLeavesNoGoroutine(t *testing.T) {
	before := runtime.NumGoroutine()
	synctest.Test(t, func(t *testing.T) { // the bubble itself fails when a goroutine is left
		e := openMem(t, vfs.NewMem())
		_, err := e.CreateTopic(t.Context(), "flights", 3, nil)
		require.NoError(t, err)
		p, err := e.Producer(t.Context(), "flights", stream.ProducerOptions{Linger: time.Hour})
		require.NoError(t, err)
		pending, err := p.SendAsync(t.Context(), record.Record{Value: []byte("lingers")})
		require.NoError(t, err)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				m, err := e.JoinGroup(t.Context(), "workers", stream.MemberOptions{Topics: []string{"flights"}})
				if err != nil {
					assert.ErrorIs(t, err, engine.ErrClosed)
					return
				}
				for err == nil {
					_, err = m.Fetch(t.Context(), 1)
				}
				if !errors.Is(err, engine.ErrClosed) {
					assert.NoError(t, err)
				}
			})
		}
		time.Sleep(time.Minute)
		require.NoError(t, e.Close())
		wg.Wait()
		_, err = pending.Wait(t.Context())
		require.NoError(t, err, "what lingered was sent")
	})
	assert.LessOrEqual(t, runtime.NumGoroutine(), before+1)
}

// A group's commits are checked against the log like any others.
func TestGroupOffsetsNeverGoBackOrAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := openMem(t, vfs.NewMem())
		_, err := e.CreateTopic(t.Context(), "flights", 1, nil)
		require.NoError(t, err)
		fill(t, e, "flights", 5)
		m, err := e.JoinGroup(t.Context(), "workers", stream.MemberOptions{Topics: []string{"flights"}})
		require.NoError(t, err)
		for _, want := range []int64{2, 5} {
			sorted(t, m, int(want)-int(max(0, committed(t, e))))
			require.NoError(t, m.Commit(t.Context()))
			assert.Equal(t, want, committed(t, e))
		}
		require.NoError(t, m.Commit(t.Context()), "again is fine")
		require.NoError(t, e.Close())
	})
}

func committed(t testing.TB, e *engine.Engine) int64 {
	t.Helper()
	offset, ok, err := e.Committed(t.Context(), "workers", "flights", 0)
	require.NoError(t, err)
	if !ok {
		return -1
	}
	return offset
}

func TestLayoutOnDisk(t *testing.T) {
	disk := vfs.NewMem()
	e := openMem(t, disk)
	_, err := e.CreateTopic(t.Context(), "flights", 1, nil)
	require.NoError(t, err)
	require.NoError(t, e.SetOffsets(t.Context(), "workers", map[stream.Partition]int64{{Topic: "flights"}: 0}))
	require.NoError(t, e.Close())
	files := strings.Join(disk.Files("data"), "\n")
	for _, want := range []string{"data/__cluster_metadata/log.meta", "data/topics/flights/partition-000000/log.meta", "data/topics/__groups/partition-000000/log.meta", "data/high-watermarks"} {
		assert.Contains(t, files, want)
	}
}

// Topics are not hidden because the decisions about them are gone.
func TestTopicsWithoutDecisionsAreReported(t *testing.T) {
	disk := vfs.NewMem()
	e := openMem(t, disk)
	_, err := e.CreateTopic(t.Context(), "flights", 1, nil)
	require.NoError(t, err)
	require.NoError(t, e.Close())
	for _, f := range disk.Files("data/__cluster_metadata") {
		require.NoError(t, disk.Remove(f))
	}
	before := disk.Files("data")
	_, err = engine.Open("data", engine.Options{FS: disk})
	var undecided *service.UndecidedDataError
	require.ErrorAs(t, err, &undecided)
	assert.Equal(t, []string{"flights"}, undecided.Topics)
	assert.ErrorContains(t, err, "restore it from a backup")
	assert.Subset(t, disk.Files("data"), before)

	// The layout of an earlier version, which had no decisions.
	disk = vfs.NewMem()
	require.NoError(t, disk.MkdirAll("data/topics/flights/partition-000000"))
	_, err = engine.Open("data", engine.Options{FS: disk})
	require.ErrorAs(t, err, &undecided)
	assert.Empty(t, disk.Files("data"), "nothing is begun beside it")
}

// Groups are listed from the first moment on, though it takes one until their coordinator leads.
func TestGroupsAreListedAfterOpening(t *testing.T) {
	dir := t.TempDir()
	for i := range 20 {
		e, err := engine.Open(dir, engine.Options{})
		require.NoError(t, err)
		if i == 0 {
			_, err := e.CreateTopic(t.Context(), "flights", 1, nil)
			require.NoError(t, err)
			require.NoError(t, e.SetOffsets(t.Context(), "dashboards", map[stream.Partition]int64{{Topic: "flights"}: 0}))
		}
		names, err := e.Groups(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{"dashboards"}, names)
		require.NoError(t, e.Close())
	}
}
