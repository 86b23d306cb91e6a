package service

import "sync"

// serial runs functions one after another, in the order in which they were given, on
// goroutines that last only while there are some.
type serial struct {
	run func(func()) bool // false: it does not, any more

	mu      sync.Mutex
	queue   []func()
	running bool
}

func (s *serial) do(f func()) {
	s.mu.Lock()
	s.queue = append(s.queue, f)
	start := !s.running
	s.running = true
	s.mu.Unlock()
	if start && !s.run(s.drain) {
		s.drain() // nothing is begun any more, and everybody is told so
	}
}

func (s *serial) drain() {
	for {
		s.mu.Lock()
		if len(s.queue) == 0 {
			s.running = false
			s.mu.Unlock()
			return
		}
		f := s.queue[0]
		s.queue = s.queue[1:]
		s.mu.Unlock()
		f()
	}
}
