package node

import (
	"container/heap"
	"sync"
	"time"
)

// noDeadline is the place in the heap of a driver that is not in it.
const noDeadline = -1

// deadlines are the times at which replicas want to be ticked, the next one first. A
// deadline that is put off stays until it is due, and is looked at again then.
type deadlines struct {
	mu   sync.Mutex
	heap deadlineHeap
	wake func()
}

type deadlineHeap []*replicaDriver

func (h deadlineHeap) Len() int           { return len(h) }
func (h deadlineHeap) Less(i, j int) bool { return before(h[i], h[j]) }
func (h deadlineHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].due, h[j].due = i, j
}
func (h *deadlineHeap) Push(x any) {
	d := x.(*replicaDriver)
	d.due = len(*h)
	*h = append(*h, d)
}
func (h *deadlineHeap) Pop() any {
	old := *h
	d := old[len(old)-1]
	*h, d.due = old[:len(old)-1], noDeadline
	return d
}

// before orders drivers by their deadlines, and then by partition: the same every time.
func before(a, b *replicaDriver) bool {
	if a.dueAt.Equal(b.dueAt) {
		return a.partition.Compare(b.partition) < 0
	}
	return a.dueAt.Before(b.dueAt)
}

// set sees to it that a driver is ticked at a time, or earlier.
func (s *deadlines) set(d *replicaDriver, at time.Time) {
	if at.IsZero() {
		return
	}
	s.mu.Lock()
	if d.due != noDeadline && !at.Before(d.dueAt) {
		s.mu.Unlock()
		return
	}
	d.dueAt = at
	if d.due == noDeadline {
		heap.Push(&s.heap, d)
	} else {
		heap.Fix(&s.heap, d.due)
	}
	first := s.heap[0] == d
	s.mu.Unlock()
	if first && s.wake != nil {
		s.wake()
	}
}

// remove takes a driver out.
func (s *deadlines) remove(d *replicaDriver) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.due != noDeadline {
		heap.Remove(&s.heap, d.due)
	}
}

// pop takes out the drivers whose time has come.
func (s *deadlines) pop(now time.Time) []*replicaDriver {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*replicaDriver
	for len(s.heap) > 0 && !s.heap[0].dueAt.After(now) {
		out = append(out, heap.Pop(&s.heap).(*replicaDriver))
	}
	return out
}

func (s *deadlines) next() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.heap) == 0 {
		return time.Time{}
	}
	return s.heap[0].dueAt
}
