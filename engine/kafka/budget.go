package kafka

import (
	"errors"
	"sync"
	"time"
)

// budget bounds the bytes of requests that are under way, all connections together.
type budget struct {
	mu    sync.Mutex
	free  int64
	freed chan struct{} // closed when some are given back
}

func newBudget(n int64) *budget { return &budget{free: n, freed: make(chan struct{})} }

var errBusy = errors.New("kafka: requests under way take all the memory there is for them")

// acquire takes n bytes, and waits for them at most for so long.
func (b *budget) acquire(n int64, patience time.Duration) error {
	var limit <-chan time.Time
	for {
		b.mu.Lock()
		if b.free >= n {
			b.free -= n
			b.mu.Unlock()
			return nil
		}
		freed := b.freed
		b.mu.Unlock()
		if limit == nil {
			timer := time.NewTimer(patience)
			defer timer.Stop()
			limit = timer.C
		}
		select {
		case <-freed:
		case <-limit:
			return errBusy
		}
	}
}

func (b *budget) release(n int64) {
	if n == 0 {
		return
	}
	b.mu.Lock()
	b.free += n
	close(b.freed)
	b.freed = make(chan struct{})
	b.mu.Unlock()
}
