package service

import "time"

// Clock ticks a service that runs on goroutines, when it wants to be.
type Clock struct{ wake chan struct{} }

// NewClock returns a clock. Its Wake is for Config.Wake.
func NewClock() *Clock { return &Clock{wake: make(chan struct{}, 1)} }

// Wake makes Run look when the service wants to be ticked.
func (c *Clock) Wake() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Run lets time pass for a service, until quit is closed.
func (c *Clock) Run(s *Service, quit <-chan struct{}) {
	for {
		var due <-chan time.Time
		var timer *time.Timer
		if next := s.Next(); !next.IsZero() {
			timer = time.NewTimer(max(0, next.Sub(s.Now())))
			due = timer.C
		}
		select {
		case <-quit:
		case <-c.wake:
		case <-due:
		}
		if timer != nil {
			timer.Stop()
		}
		select {
		case <-quit:
			return
		default:
			s.Tick()
		}
	}
}
