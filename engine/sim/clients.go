package sim

import (
	"errors"
	"fmt"
	"time"

	"logbook/engine/commitlog"
	"logbook/engine/record"
	"logbook/engine/replica"
	"logbook/engine/service"
	"logbook/engine/topic"
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
		r := &reader{w: w, id: id, next: map[topic.Partition]int64{}, epochs: map[topic.Partition]int32{}, busy: map[topic.Partition]bool{}}
		w.every(150*time.Millisecond, r.read)
	}
	for n := 1; n <= memberCount; n++ {
		c.members = append(c.members, newMember(w, n))
	}
	w.every(time.Second, func() {
		if c.probe {
			c.produce(4)
		}
	})
	return c
}

// ask returns the broker that some broker takes for a partition's leader.
func (w *world) ask(client int, p topic.Partition) *broker {
	b := w.brokers[w.dice(forClient+uint64(client)).IntN(len(w.brokers))]
	if !b.up {
		return nil
	}
	a, ok := b.service.Image().Assignment(p)
	if !ok || a.Leader == replica.None || !w.brokers[a.Leader-1].up {
		return nil
	}
	return w.brokers[a.Leader-1]
}

// trip is how long a request or a reply is on its way between a client and a broker.
func (w *world) trip(client int) time.Duration {
	return between(w.dice(forClient+uint64(client)), time.Millisecond, 4*time.Millisecond)
}

// visit takes a request to a broker and its reply back, unless the broker dies in between.
// lost is called if it was gone when the request came: nothing happened then.
func (w *world) visit(client int, b *broker, lost func(), do func(s *service.Service, back func(func()))) {
	life := b.life
	var come func()
	come = func() {
		switch {
		case !b.up || b.life != life:
			lost()
		case b.paused:
			b.held = append(b.held, come)
		default:
			do(b.service, func(arrive func()) { w.after(w.trip(client), arrive) })
		}
	}
	w.after(w.trip(client), come)
}

// write is a value on its way.
type write struct {
	value    string
	p        topic.Partition
	producer int
	call     time.Time
	done     bool
	tries    int
}

func (c *clients) produce(producer int) {
	c.next++
	x := &write{value: fmt.Sprintf("v%d", c.next), p: parts[c.next%len(parts)], producer: producer, call: c.w.now}
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
	if x.done {
		return
	}
	again := func() {
		if x.tries++; x.tries < 30 && !x.done {
			c.w.after(between(c.w.dice(forClient+uint64(x.producer)), 50*time.Millisecond, 250*time.Millisecond), func() { c.try(x) })
		}
	}
	b := c.w.ask(x.producer, x.p)
	if b == nil {
		again()
		return
	}
	c.w.visit(x.producer, b, again, func(s *service.Service, back func(func())) {
		if x.done {
			return
		}
		batch, err := commitlog.NewBatch(record.V2, []record.Record{{Value: []byte(x.value)}}, record.Encoding{Timestamp: c.w.now}, commitlog.Limits{})
		if err != nil {
			panic(err) // one small record
		}
		s.Produce(service.Produce{Topic: x.p.Topic, Partition: x.p.ID, Batch: batch}, func(at service.Produced, err error) {
			back(func() { c.answer(x, b, at.BaseOffset, err, again) })
		})
	})
}

func (c *clients) answer(x *write, b *broker, offset int64, err error, again func()) {
	switch {
	case x.done:
	case err != nil && neverStored(err):
		again()
	case err != nil:
		x.done = true
		c.w.checks.unknown(x)
	default:
		x.done = true
		c.w.note("%s is acknowledged at %d of %s by %d", x.value, offset, x.p, b.id)
		c.w.draw.acknowledged(b.id, x.value, x.p, offset)
		c.w.checks.acknowledge(x, offset)
	}
}

// neverStored reports whether an error says that nothing was stored.
func neverStored(err error) bool {
	e, _ := errors.AsType[*service.Error](err)
	if ne, ok := errors.AsType[*replica.NotEnoughReplicasError](err); ok {
		return !ne.Stored
	}
	return e != nil && (e.Code == service.NotLeader || e.Code == service.UnknownTopic)
}

// reader reads the partitions from their starts, on and on.
type reader struct {
	w      *world
	id     int
	next   map[topic.Partition]int64
	epochs map[topic.Partition]int32 // the highest leader epochs heard of: who leads in a lower one is not believed
	busy   map[topic.Partition]bool
}

func (r *reader) read() {
	for _, p := range parts {
		r.readPartition(p)
	}
}

func (r *reader) readPartition(p topic.Partition) {
	b := r.w.ask(10+r.id, p)
	if b == nil || r.busy[p] {
		return
	}
	call := r.w.now
	r.busy[p] = true
	r.w.visit(10+r.id, b, func() { r.busy[p] = false }, func(s *service.Service, back func(func())) {
		life := b.life
		r.w.after(5*time.Second, func() { // the reply never came
			if b.life != life || !b.up {
				r.busy[p] = false
			}
		})
		q := service.FetchPartition{Partition: p, Offset: r.next[p], MaxBytes: 1 << 16, LeaderEpoch: r.epochs[p]}
		s.Fetch(service.Fetch{Partitions: []service.FetchPartition{q}}, func(all []service.Fetched) {
			back(func() { r.fetched(b, q, all[0], call) })
		})
	})
}

func (r *reader) fetched(b *broker, q service.FetchPartition, f service.Fetched, call time.Time) {
	p := q.Partition
	r.busy[p] = false
	if e, ok := errors.AsType[*service.Error](f.Err); ok {
		if e.Code == service.OutOfRange && e.LogEndOffset < q.Offset {
			r.w.checks.violation("went back: reader %d has read %s up to %d, and broker %d, which leads, ends at %d", r.id, p, q.Offset, b.id, e.LogEndOffset)
			r.next[p] = e.LogEndOffset
		}
		return
	}
	r.epochs[p] = max(r.epochs[p], f.Look.LeaderEpoch)
	frames, err := record.ParseAll(f.Format, f.Frames)
	if err != nil {
		r.w.checks.violation("no frame: broker %d serves what is none: %v", b.id, err)
		return
	}
	for _, frame := range frames {
		records, err := frame.Records()
		if err != nil {
			r.w.checks.violation("no record: broker %d serves what is none: %v", b.id, err)
		}
		for _, rec := range records {
			r.w.checks.read(r.id, b.id, p, rec.Offset, string(rec.Value), call)
		}
	}
	r.next[p] = max(r.next[p], f.Next)
}
