package logtest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// TestGroupCommit checks a group commit: group is given what flushes, and returns what many
// callers commit with. Commit must return when a flush that began after its call has ended,
// and no two flushes may run at the same time. Beside a lock around the flush, 64 callers must
// share flushes, and none may wait longer for it. It compares the two, and so needs a moment.
func TestGroupCommit(group func(flush func()) (commit func())) error {
	locked := func(flush func()) func() {
		var one sync.Mutex
		return func() {
			one.Lock()
			defer one.Unlock()
			flush()
		}
	}
	naive, mine := driveCommits(locked), driveCommits(group)
	switch {
	case mine.err != nil:
		return mine.err
	case mine.perFlush < 8*naive.perFlush:
		return fmt.Errorf("%.1f commits share a flush, with a lock it is %.1f: who waits while a flush runs should share the next one", mine.perFlush, naive.perFlush)
	case mine.slowest > naive.slowest:
		return fmt.Errorf("the slowest of a hundred commits takes %v, with a lock %v: somebody is left out of the round that it should be in", mine.slowest, naive.slowest)
	}
	return nil
}

type commitRun struct {
	perFlush float64
	slowest  time.Duration // at the 99th percentile
	err      error
}

// driveCommits has 64 callers commit a few times each.
func driveCommits(group func(func()) func()) (r commitRun) {
	const callers, each = 64, 5
	var order, covered, flushes, running atomic.Int64
	var overlap, early atomic.Bool
	commit := group(func() {
		began := order.Add(1)
		if running.Add(1) > 1 {
			overlap.Store(true)
		}
		time.Sleep(time.Millisecond) // the device
		running.Add(-1)
		flushes.Add(1)
		covered.Store(began)
	})
	var mu sync.Mutex
	var times []time.Duration
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for range each {
				called, began := order.Add(1), time.Now()
				commit()
				took := time.Since(began)
				if covered.Load() < called {
					early.Store(true)
				}
				mu.Lock()
				times = append(times, took)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	slices.Sort(times)
	switch {
	case overlap.Load():
		r.err = errors.New("two flushes ran at the same time")
	case early.Load():
		r.err = errors.New("commit returned although no flush that began after its call had ended: what was written in between may be lost")
	case flushes.Load() == 0:
		r.err = errors.New("nothing was flushed")
	default:
		r.perFlush = float64(len(times)) / float64(flushes.Load())
		r.slowest = times[len(times)*99/100]
	}
	return r
}
