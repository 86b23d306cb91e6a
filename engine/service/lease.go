package service

import (
	"cmp"
	"time"
)

// A lease lets this broker serve what it leads: its controller gives it, and gives no other broker
// the lead before it is over.

// leased says that what this broker leads may not be served, if that is so: its controller has
// not been heard of for so long that others may lead by now.
func (s *Service) leased(p Partition) error {
	until := s.lease.Load()
	if until == nil || s.now().Before(*until) {
		return nil
	}
	return unavailable("broker %d has lost its controller, and another broker may lead %s by now; try again", s.cfg.ID, p)
}

// leaseGrace is how long those who wait for writes wait on when the lease is over, in case that it
// is renewed, as when another controller takes over: no other broker leads for so long.
func (s *Service) leaseGrace() time.Duration {
	return time.Duration(max(1, cmp.Or(s.cfg.FailAfter, 3)-1)) * s.cfg.HealthEvery / 4
}

// watchLease sees to it that nobody waits on when the lease is over. It is called on control.
func (s *Service) watchLease() {
	until := s.lease.Load().Add(s.leaseGrace())
	if left := until.Sub(s.now()); left > 0 && !s.watched && !s.isClosed() {
		s.watched = true
		s.after(left, func() { s.control.do(s.leaseEnds) })
	}
}

// leaseEnds answers those who wait for writes, unless the lease was renewed: they can be had by the
// next leader sooner than here.
func (s *Service) leaseEnds() {
	s.watched = false
	if s.now().Before(s.lease.Load().Add(s.leaseGrace())) {
		s.watchLease()
		return
	}
	s.node.GiveUpWrites()
}
