// Package producer sends records to a topic, many at a time.
//
// Records that are on their way to one partition gather for a moment, Options.Linger, or
// until a batch is full, and are appended together: one frame, one checksum, and with the
// writers of other partitions one sync. Their order within a partition is the order of
// the calls.
//
// A producer has a goroutine for each partition that has a batch under way, and Close
// waits for them. It borrows its topic and never closes it. It is safe for concurrent use.
package producer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"logbook/engine/record"
	"logbook/engine/topic"
)

// ErrClosed: the producer was closed.
var ErrClosed = errors.New("producer: closed")

// Options configure a producer. The zero value sends each record at once; batches then
// form only while an append is under way.
type Options struct {
	Linger       time.Duration // how long a record may wait for company
	BatchRecords int           // records at which a batch is full; 0 is 1000
	BatchBytes   int           // bytes at which it is; 0 is 1 MiB
	// BufferBytes bounds what is held in memory: a Send that finds no room waits. 0 is 32 MiB.
	BufferBytes int
}

// Producer sends to one topic.
type Producer struct {
	topic *topic.Topic
	opt   Options
	parts []*partition

	mu      sync.Mutex
	room    int           // bytes left of the buffer
	freed   chan struct{} // closed when room grows; nil while nobody waits
	closed  bool
	senders sync.WaitGroup
}

// partition gathers what goes to one partition.
type partition struct {
	id      int
	mu      sync.Mutex
	queue   []*Pending
	last    *Pending // the newest, answered or not
	bytes   int
	sending bool
	timer   *time.Timer
}

// Pending is a record on its way.
type Pending struct {
	record record.Record
	size   int
	done   chan struct{}
	at     topic.Appended
	err    error
}

// Wait returns where the record landed, once it is durable. When ctx ends first, the
// record is still on its way.
func (p *Pending) Wait(ctx context.Context) (topic.Appended, error) {
	select {
	case <-p.done:
		return p.at, p.err
	default:
	}
	select {
	case <-p.done:
		return p.at, p.err
	case <-ctx.Done():
		return topic.Appended{}, ctx.Err()
	}
}

// New returns a producer for a topic.
func New(t *topic.Topic, opt Options) (*Producer, error) {
	opt.BatchRecords = cmp.Or(opt.BatchRecords, 1000)
	opt.BatchBytes = cmp.Or(opt.BatchBytes, 1<<20)
	opt.BufferBytes = cmp.Or(opt.BufferBytes, 32<<20)
	if opt.Linger < 0 || opt.BatchRecords < 0 || opt.BatchBytes < 0 || opt.BufferBytes < 0 {
		return nil, fmt.Errorf("producer: an option is negative: %+v; leave it 0 for the default", opt)
	}
	p := &Producer{topic: t, opt: opt, room: opt.BufferBytes}
	for i := range t.Partitions() {
		p.parts = append(p.parts, &partition{id: i})
	}
	return p, nil
}

// Send routes a record, waits until it is durable, and says where it landed. A nil key
// takes turns over the partitions; an empty one is a key.
//
// When ctx ends first, the record may still be stored. Errors: ErrClosed, the context's,
// and those of the log's Append.
func (p *Producer) Send(ctx context.Context, r record.Record) (topic.Appended, error) {
	pending, err := p.SendAsync(ctx, r)
	if err != nil {
		return topic.Appended{}, err
	}
	return pending.Wait(ctx)
}

// SendAsync routes a record and returns at once, but waits for room in the buffer. The
// producer keeps the record's bytes until it is durable: do not change them.
func (p *Producer) SendAsync(ctx context.Context, r record.Record) (*Pending, error) {
	pending := &Pending{record: r, size: r.Size() + 100, done: make(chan struct{})}
	if pending.size > p.opt.BufferBytes {
		return nil, fmt.Errorf("producer: a record of %d bytes does not fit the buffer of %d; raise Options.BufferBytes", r.Size(), p.opt.BufferBytes)
	}
	if err := p.reserve(ctx, pending.size); err != nil {
		return nil, err
	}
	part := p.parts[p.topic.Route(r.Key)]
	part.mu.Lock()
	defer part.mu.Unlock()
	part.queue = append(part.queue, pending)
	part.last = pending
	part.bytes += pending.size
	switch {
	case part.sending:
		// The sender looks again when its append is done.
	case p.opt.Linger == 0 || len(part.queue) >= p.opt.BatchRecords || part.bytes >= p.opt.BatchBytes:
		p.start(part)
	case part.timer == nil:
		part.timer = time.AfterFunc(p.opt.Linger, func() {
			part.mu.Lock()
			defer part.mu.Unlock()
			part.timer = nil
			if !part.sending && len(part.queue) > 0 {
				p.start(part)
			}
		})
	}
	return pending, nil
}

// reserve takes room in the buffer, and counts the caller as somebody Close waits for.
func (p *Producer) reserve(ctx context.Context, size int) error {
	for {
		p.mu.Lock()
		switch {
		case p.closed:
			p.mu.Unlock()
			return ErrClosed
		case size <= p.room:
			p.room -= size
			p.senders.Add(1) // done when the record is answered
			p.mu.Unlock()
			return nil
		}
		if p.freed == nil {
			p.freed = make(chan struct{})
		}
		freed := p.freed
		p.mu.Unlock()
		p.flush() // what lingers takes room that somebody needs now
		select {
		case <-freed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// start begins sending. part.mu is held.
func (p *Producer) start(part *partition) {
	if part.timer != nil {
		part.timer.Stop()
		part.timer = nil
	}
	part.sending = true
	go p.send(part)
}

// send appends batch after batch until the partition's queue is empty.
func (p *Producer) send(part *partition) {
	for {
		part.mu.Lock()
		batch := p.take(part)
		if len(batch) == 0 {
			part.sending = false
			part.mu.Unlock()
			return
		}
		part.mu.Unlock()
		p.append(part.id, batch)
	}
}

// take removes the next batch from the queue. part.mu is held.
func (p *Producer) take(part *partition) []*Pending {
	n, bytes := 0, 0
	for n < len(part.queue) && n < p.opt.BatchRecords && (n == 0 || bytes+part.queue[n].size <= p.opt.BatchBytes) {
		bytes += part.queue[n].size
		n++
	}
	batch := part.queue[:n:n]
	part.queue = part.queue[n:]
	part.bytes -= bytes
	return batch
}

// append stores a batch and answers its records. If the log refuses the batch, its
// records are tried one by one, so that one bad record does not take others with it.
func (p *Producer) append(partition int, batch []*Pending) {
	records := make([]record.Record, len(batch))
	for i, pending := range batch {
		records[i] = pending.record
	}
	at, err := p.topic.AppendTo(partition, records...)
	if err != nil && len(batch) > 1 {
		for _, pending := range batch {
			p.append(partition, []*Pending{pending})
		}
		return
	}
	freed := 0
	for i, pending := range batch {
		pending.at, pending.err = at, err
		pending.at.Offset += int64(i)
		if ts := pending.record.Timestamp; !ts.IsZero() && i > 0 {
			pending.at.Timestamp = p.stored(ts)
		}
		freed += pending.size
		close(pending.done)
	}
	p.mu.Lock()
	p.room += freed
	if p.freed != nil {
		close(p.freed)
		p.freed = nil
	}
	p.mu.Unlock()
	p.senders.Add(-len(batch))
}

// stored returns a timestamp as the log keeps it: format 2 has milliseconds.
func (p *Producer) stored(ts time.Time) time.Time {
	if l, err := p.topic.Partition(0); err == nil && l.Format() == record.V2 {
		return ts.Truncate(time.Millisecond)
	}
	return ts
}

// flush sends what lingers.
func (p *Producer) flush() {
	for _, part := range p.parts {
		part.mu.Lock()
		if !part.sending && len(part.queue) > 0 {
			p.start(part)
		}
		part.mu.Unlock()
	}
}

// Flush sends what lingers and waits until everything sent before is durable, or has
// failed; each record's own Pending says which.
func (p *Producer) Flush(ctx context.Context) error {
	for _, part := range p.parts {
		part.mu.Lock()
		last := part.last
		if !part.sending && len(part.queue) > 0 {
			p.start(part)
		}
		part.mu.Unlock()
		if last != nil {
			if _, err := last.Wait(ctx); ctx.Err() != nil {
				return err
			}
		}
	}
	return nil
}

// Close sends what lingers, waits for all of it and ends the producer. The topic stays open.
func (p *Producer) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return ErrClosed
	}
	p.closed = true
	if p.freed != nil {
		close(p.freed)
		p.freed = nil
	}
	p.mu.Unlock()
	p.flush()
	p.senders.Wait()
	return nil
}
