package service

import (
	"container/heap"
	"sync"
	"time"
)

// timers are what must happen later.
type timers struct {
	mu   sync.Mutex
	heap timerHeap
	seq  uint64
	wake func()
}

// timer is one of them. It is stopped at most once.
type timer struct {
	at    time.Time
	seq   uint64 // of equals, the one set first comes first
	index int    // -1: not in the heap
	fire  func()
}

type timerHeap []*timer

func (h timerHeap) Len() int { return len(h) }
func (h timerHeap) Less(i, j int) bool {
	return h[i].at.Before(h[j].at) || h[i].at.Equal(h[j].at) && h[i].seq < h[j].seq
}
func (h timerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}
func (h *timerHeap) Push(x any) {
	t := x.(*timer)
	t.index = len(*h)
	*h = append(*h, t)
}
func (h *timerHeap) Pop() any {
	old := *h
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*h, t.index = old[:len(old)-1], -1
	return t
}

// set calls fire at a time. fire must not wait.
func (s *timers) set(at time.Time, fire func()) *timer {
	s.mu.Lock()
	s.seq++
	t := &timer{at: at, seq: s.seq, fire: fire}
	heap.Push(&s.heap, t)
	first := s.heap[0] == t
	s.mu.Unlock()
	if first && s.wake != nil {
		s.wake()
	}
	return t
}

// stop takes a timer back, if it has not fired. nil is no timer.
func (s *timers) stop(t *timer) {
	if t == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.index >= 0 {
		heap.Remove(&s.heap, t.index)
	}
}

// tick fires what is due.
func (s *timers) tick(now time.Time) {
	s.fire(func(t *timer) bool { return !t.at.After(now) })
}

// close fires everything at once: whoever waits finds that the service is closed.
func (s *timers) close() { s.fire(func(*timer) bool { return true }) }

// fire fires the next timer, as long as it is one of those that are wanted.
func (s *timers) fire(wanted func(*timer) bool) {
	for {
		s.mu.Lock()
		if len(s.heap) == 0 || !wanted(s.heap[0]) {
			s.mu.Unlock()
			return
		}
		t := heap.Pop(&s.heap).(*timer)
		s.mu.Unlock()
		t.fire()
	}
}

func (s *timers) next() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.heap) == 0 {
		return time.Time{}
	}
	return s.heap[0].at
}
