package controller

import (
	"maps"
	"slices"
	"time"

	"logbook/engine/replica"
)

// Calls are requests to other brokers that wait for their replies.
type Calls struct {
	last    uint64
	waiting map[uint64]*call
}

type call struct {
	to       replica.BrokerID
	deadline time.Time
	done     func(reply Message, failed string) // failed: why there is no reply
}

// Begin registers a call and returns its id.
func (c *Calls) Begin(to replica.BrokerID, deadline time.Time, done func(Message, string)) uint64 {
	if c.waiting == nil {
		c.waiting = map[uint64]*call{}
	}
	c.last++
	c.waiting[c.last] = &call{to, deadline, done}
	return c.last
}

// Answer hands a reply to whoever waits for it.
func (c *Calls) Answer(from replica.BrokerID, id uint64, m Message) {
	if w := c.waiting[id]; w != nil && w.to == from {
		delete(c.waiting, id)
		w.done(m, "")
	}
}

// fail ends the calls that are lost, in the order in which they began.
func (c *Calls) fail(why string, lost func(*call) bool) {
	for _, id := range slices.Sorted(maps.Keys(c.waiting)) {
		if w := c.waiting[id]; w != nil && lost(w) {
			delete(c.waiting, id)
			w.done(nil, why)
		}
	}
}

// Lost ends the calls to a broker, with the reason.
func (c *Calls) Lost(to replica.BrokerID, why string) {
	c.fail(why, func(w *call) bool { return w.to == to })
}

// Expire ends the calls whose time is over.
func (c *Calls) Expire(now time.Time) {
	c.fail("it did not answer in time", func(w *call) bool { return !now.Before(w.deadline) })
}

// Next is when Expire is due; zero if nothing waits for time to pass.
func (c *Calls) Next() time.Time {
	var next time.Time
	for _, w := range c.waiting {
		next = Sooner(next, w.deadline)
	}
	return next
}

// Sooner returns the earlier of two times, of which a zero one means never.
func Sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
