package stream

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"logbook/engine/failure"
	"logbook/engine/record"
)

// ProducerOptions configure a producer. The zero value sends each record at once; batches
// then form only while an append is under way.
type ProducerOptions struct {
	Acks         Acks
	Linger       time.Duration // how long a record may wait for company
	BatchRecords int           // records at which a batch is full; 0 is 1000
	BatchBytes   int           // bytes at which it is; 0 is 1 MiB
	// BufferBytes bounds what is held in memory: a Send that finds no room waits. 0 is 32 MiB.
	BufferBytes int
	// MaxInFlight bounds the batches that are on their way at the same time, one of a
	// partition at most, so that order is kept. 0 is 5.
	MaxInFlight int
	// Acknowledged, if set, is told of each batch that was acknowledged: its first offset,
	// and how many records it has. It must not wait.
	Acknowledged func(at Appended, records int)
}

// ProducerStats count what a producer did.
type ProducerStats struct {
	Sent         int64 // records handed to it
	Acknowledged int64 // of these
	Failed       int64 // of these
	Batches      int64 // acknowledged
}

// Producer sends records to a topic, many at a time. Their order within a partition is the
// order of the calls. It is safe for concurrent use.
type Producer struct {
	topic    *TopicHandle
	opt      ProducerOptions
	parts    []*gathering
	inFlight chan struct{}
	ctx      context.Context // ends when the client does
	stats    struct{ sent, acknowledged, failed, batches atomic.Int64 }

	mu      sync.Mutex
	room    int           // bytes left of the buffer
	freed   chan struct{} // closed when room grows; nil while nobody waits
	closed  bool
	senders sync.WaitGroup
}

// gathering is what goes to one partition.
type gathering struct {
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
	at     Appended
	err    error
}

// Wait returns where the record landed, once it is acknowledged. When ctx ends first, the
// record is still on its way.
func (p *Pending) Wait(ctx context.Context) (Appended, error) {
	select {
	case <-p.done:
		return p.at, p.err
	default:
	}
	select {
	case <-p.done:
		return p.at, p.err
	case <-ctx.Done():
		return Appended{}, ctx.Err()
	}
}

// Producer returns a producer for a topic. Close it, or the client will.
//
// Errors: failure.UnknownTopic, failure.Unavailable, ErrClosed, and what is wrong with the options.
func (c *Client) Producer(ctx context.Context, name string, opt ProducerOptions) (*Producer, error) {
	t, err := c.Topic(ctx, name)
	if err != nil {
		return nil, err
	}
	opt.BatchRecords = cmp.Or(opt.BatchRecords, 1000)
	opt.BatchBytes = cmp.Or(opt.BatchBytes, 1<<20)
	opt.BufferBytes = cmp.Or(opt.BufferBytes, 32<<20)
	opt.MaxInFlight = cmp.Or(opt.MaxInFlight, 5)
	if opt.Linger < 0 || opt.BatchRecords < 0 || opt.BatchBytes < 0 || opt.BufferBytes < 0 || opt.MaxInFlight < 0 {
		return nil, fmt.Errorf("stream: an option of the producer is negative: %+v; leave it 0 for the default", opt)
	}
	p := &Producer{topic: t, opt: opt, room: opt.BufferBytes, inFlight: make(chan struct{}, opt.MaxInFlight), ctx: c.ctx}
	for i := range t.Partitions() {
		p.parts = append(p.parts, &gathering{id: i})
	}
	return p, c.keep(p)
}

// Send routes a record, waits until it is acknowledged, and says where it landed. A nil key
// takes turns over the partitions; an empty one is a key.
//
// When ctx ends first, the record may still be stored. Errors: ErrClosed, the context's,
// and those of TopicHandle.AppendTo.
func (p *Producer) Send(ctx context.Context, r record.Record) (Appended, error) {
	pending, err := p.SendAsync(ctx, r)
	if err != nil {
		return Appended{}, err
	}
	return pending.Wait(ctx)
}

// SendAsync routes a record and returns at once, but waits for room in the buffer. The
// producer keeps the record's bytes until it is acknowledged: do not change them.
func (p *Producer) SendAsync(ctx context.Context, r record.Record) (*Pending, error) {
	return p.SendTo(ctx, p.topic.choose(r), r)
}

// SendTo is SendAsync to a partition of the caller's choice.
//
// Error: failure.UnknownPartition, too.
func (p *Producer) SendTo(ctx context.Context, partition int, r record.Record) (*Pending, error) {
	if partition < 0 || partition >= len(p.parts) {
		return nil, &failure.Error{Code: failure.UnknownPartition, Message: fmt.Sprintf("topic %q has partitions 0 to %d", p.topic.Name(), len(p.parts)-1)}
	}
	pending := &Pending{record: r, size: r.Size() + 100, done: make(chan struct{})}
	if pending.size > p.opt.BufferBytes {
		return nil, fmt.Errorf("stream: a record of %d bytes does not fit the producer's buffer of %d; raise BufferBytes", r.Size(), p.opt.BufferBytes)
	}
	if err := p.reserve(ctx, pending.size); err != nil {
		return nil, err
	}
	p.stats.sent.Add(1)
	part := p.parts[partition]
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
func (p *Producer) start(part *gathering) {
	if part.timer != nil {
		part.timer.Stop()
		part.timer = nil
	}
	part.sending = true
	go p.send(part)
}

// send appends batch after batch until the partition's queue is empty.
func (p *Producer) send(part *gathering) {
	for {
		p.inFlight <- struct{}{}
		part.mu.Lock()
		batch := p.take(part)
		if len(batch) == 0 {
			part.sending = false
			part.mu.Unlock()
			<-p.inFlight
			return
		}
		part.mu.Unlock()
		p.append(part.id, batch)
		<-p.inFlight
	}
}

// take removes the next batch from the queue. part.mu is held.
func (p *Producer) take(part *gathering) []*Pending {
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

// append stores a batch and answers its records. If a batch is refused for what it holds,
// its records are tried one by one, so that one bad record does not take others with it.
func (p *Producer) append(partition int, batch []*Pending) {
	records := make([]record.Record, len(batch))
	for i, pending := range batch {
		records[i] = pending.record
	}
	at, err := p.topic.c.t.Produce(p.ctx, Partition{Topic: p.topic.t.Name, ID: partition}, p.opt.Acks, records)
	if c := code(err); (c == failure.BadRequest || c == failure.TooLarge) && len(batch) > 1 {
		for _, pending := range batch {
			p.append(partition, []*Pending{pending})
		}
		return
	}
	if err == nil {
		p.stats.batches.Add(1)
		p.stats.acknowledged.Add(int64(len(batch)))
		if p.opt.Acknowledged != nil {
			p.opt.Acknowledged(at, len(batch))
		}
	} else {
		p.stats.failed.Add(int64(len(batch)))
	}
	freed := 0
	for i, pending := range batch {
		pending.at, pending.err = at, p.topic.c.check(err)
		pending.at.Offset += int64(i)
		if ts := pending.record.Timestamp; !ts.IsZero() {
			pending.at.Timestamp = ts.Truncate(time.Millisecond) // as it is stored
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

// Flush sends what lingers and waits until everything sent before is acknowledged, or has
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

// Stats returns what the producer did so far.
func (p *Producer) Stats() ProducerStats {
	return ProducerStats{Sent: p.stats.sent.Load(), Acknowledged: p.stats.acknowledged.Load(), Failed: p.stats.failed.Load(), Batches: p.stats.batches.Load()}
}

// Close sends what lingers, waits for all of it and ends the producer.
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
	p.topic.c.forget(p)
	return nil
}
