package controller

import (
	"maps"
	"slices"
	"time"

	"logbook/engine/replica"
)

// calls are requests to other brokers that wait for their replies.
type calls struct {
	last    uint64
	waiting map[uint64]*call
}

type call struct {
	to       replica.BrokerID
	deadline time.Time
	done     func(reply Message, failed string) // failed: why there is no reply
}

// begin registers a call and returns its id.
func (c *calls) begin(to replica.BrokerID, deadline time.Time, done func(Message, string)) uint64 {
	if c.waiting == nil {
		c.waiting = map[uint64]*call{}
	}
	c.last++
	c.waiting[c.last] = &call{to, deadline, done}
	return c.last
}

// answer hands a reply to whoever waits for it.
func (c *calls) answer(from replica.BrokerID, id uint64, m Message) {
	if w := c.waiting[id]; w != nil && w.to == from {
		delete(c.waiting, id)
		w.done(m, "")
	}
}

// fail ends the calls that are lost, in the order in which they began.
func (c *calls) fail(why string, lost func(*call) bool) {
	for _, id := range slices.Sorted(maps.Keys(c.waiting)) {
		if w := c.waiting[id]; w != nil && lost(w) {
			delete(c.waiting, id)
			w.done(nil, why)
		}
	}
}

func (c *calls) expire(now time.Time) {
	c.fail("it did not answer in time", func(w *call) bool { return !now.Before(w.deadline) })
}

func (c *calls) next() time.Time {
	var next time.Time
	for _, w := range c.waiting {
		next = sooner(next, w.deadline)
	}
	return next
}

// sooner returns the earlier of two times, of which a zero one means never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
