package sim

import (
	"errors"
	"fmt"
	"time"

	"logbook/engine/cluster"
	"logbook/engine/commitlog"
	"logbook/engine/record"
	"logbook/engine/replica"
)

// clients are producers, who write each value once, and consumers, who read on and on.
type clients struct {
	w       *world
	next    int
	members []*member
	probe   bool // the faults are over: write now and then, to see that it can be done
}

func newClients(w *world) *clients {
	c := &clients{w: w}
	for id := 1; id <= 2; id++ {
		r := &reader{w: w, id: id}
		w.every(150*time.Millisecond, r.read)
	}
	for n := 1; n <= memberCount; n++ {
		c.members = append(c.members, newMember(w, n))
	}
	w.every(2*time.Second, func() {
		if c.probe {
			c.produce(4)
		}
	})
	return c
}

// ask returns the broker that some broker takes for the leader.
func (w *world) ask(client int) *broker {
	b := w.brokers[w.dice(forClient+uint64(client)).IntN(len(w.brokers))]
	if !b.up {
		return nil
	}
	a, ok := b.view.Assignment(part)
	if !ok || a.Leader == replica.None || !w.brokers[a.Leader-1].up {
		return nil
	}
	return w.brokers[a.Leader-1]
}

// write is a value on its way.
type write struct {
	value    string
	producer int
	call     time.Time
	done     bool
	tries    int
}

func (c *clients) produce(producer int) {
	c.next++
	x := &write{value: fmt.Sprintf("v%d", c.next), producer: producer, call: c.w.now}
	c.w.checks.called(x)
	c.try(x)
	c.w.after(8*time.Second, func() {
		if !x.done {
			x.done = true
			c.w.checks.unknown(x)
		}
	})
}

// try sends a value to the leader. It is sent again only where it surely was not stored.
func (c *clients) try(x *write) {
	again := func() {
		if x.tries++; x.tries < 30 && !x.done {
			c.w.after(between(c.w.dice(forClient+uint64(x.producer)), 50*time.Millisecond, 250*time.Millisecond), func() { c.try(x) })
		}
	}
	b := c.w.ask(x.producer)
	if b == nil {
		again()
		return
	}
	life := b.life
	c.w.after(between(c.w.dice(forClient+uint64(x.producer)), time.Millisecond, 4*time.Millisecond), func() {
		if !b.up || b.life != life || x.done {
			if !x.done {
				again() // nobody was there to hear it
			}
			return
		}
		var offset int64
		at, _, err := b.node.AppendAsync(part, c.w.acks, cluster.Records(record.Record{Value: []byte(x.value)}), func(err error) {
			c.w.after(between(c.w.dice(forClient+uint64(x.producer)), time.Millisecond, 4*time.Millisecond), func() { c.answer(x, b, offset, err) })
		})
		offset = at.BaseOffset
		if err != nil {
			c.refused(x, err, again)
		}
	})
}

// refused: the leader did not take it, or its disk failed and nobody knows.
func (c *clients) refused(x *write, err error, again func()) {
	if _, poisoned := errors.AsType[*commitlog.PoisonedError](err); poisoned {
		if !x.done {
			x.done = true
			c.w.checks.unknown(x)
		}
		return
	}
	again()
}

func (c *clients) answer(x *write, b *broker, offset int64, err error) {
	if x.done {
		return
	}
	x.done = true
	if err != nil {
		c.w.checks.unknown(x)
		return
	}
	c.w.note("%s is acknowledged at %d by %d", x.value, offset, b.id)
	c.w.draw.acknowledged(b.id, x.value, offset)
	c.w.checks.acknowledge(x, offset)
}

// reader reads the partition from its start, on and on.
type reader struct {
	w     *world
	id    int
	next  int64
	epoch int32 // the highest leader epoch heard of: who leads in a lower one is not believed
	busy  bool
}

func (r *reader) read() {
	b := r.w.ask(10 + r.id)
	if b == nil || r.busy {
		return
	}
	life := b.life
	call := r.w.now
	r.busy = true
	r.w.after(between(r.w.dice(forClient+uint64(10+r.id)), time.Millisecond, 4*time.Millisecond), func() {
		r.busy = false
		if !b.up || b.life != life {
			return
		}
		epoch, err := b.node.LeaderEpoch(part)
		if err != nil || epoch < r.epoch {
			return
		}
		r.epoch = epoch
		from := r.next
		c, err := b.node.Read(part, from, 1<<16)
		if err != nil {
			if oor, ok := errors.AsType[*commitlog.OffsetOutOfRangeError](err); ok && oor.End < from {
				r.w.checks.violation("went back: reader %d has read up to %d, and broker %d, which leads, ends at %d", r.id, from, b.id, oor.End)
				r.next = oor.End
			}
			return
		}
		l, err := b.node.Log(part)
		if err != nil {
			return
		}
		frames, err := record.ParseAll(l.Format(), c.Frames)
		if err != nil {
			r.w.checks.violation("no frame: broker %d serves what is none: %v", b.id, err)
			return
		}
		for _, f := range frames {
			records, err := f.Records()
			if err != nil {
				r.w.checks.violation("no record: broker %d serves what is none: %v", b.id, err)
			}
			for _, rec := range records {
				if rec.Key != nil {
					continue // the group's
				}
				r.w.checks.read(r.id, b.id, rec.Offset, string(rec.Value), call)
			}
		}
		r.next = max(r.next, c.Next)
	})
}
