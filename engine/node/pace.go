package node

import (
	"sync"
	"time"
)

// pace spreads what a broker's replicas copy that are not in sync, all together, over time.
type pace struct {
	rate int64 // bytes a second

	mu   sync.Mutex
	free time.Time // when all that was copied has had its time
}

// after returns when the next bytes may be copied, so many having been copied now.
func (p *pace) after(now time.Time, bytes int) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.free.Before(now) {
		p.free = now
	}
	p.free = p.free.Add(time.Duration(float64(bytes) / float64(p.rate) * float64(time.Second)))
	return p.free
}
