package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"logbook/engine/commitlog"
	"logbook/engine/consumer"
	"logbook/engine/group"
	"logbook/engine/record"
	"logbook/engine/topic"
)

// coordinator drives the groups of an engine: it is what package group leaves out, the
// clock, the disk and the waiting. A group's state is a record in a compacted log, stored
// before anybody hears of it.
type coordinator struct {
	engine *Engine
	log    *commitlog.Log

	mu     sync.Mutex
	groups map[string]*hosted
	closed bool
	saves  int
}

// hosted is a group and those who wait for its replies.
type hosted struct {
	c *coordinator

	mu      sync.Mutex
	g       *group.Group
	next    uint64
	waiting map[uint64]chan group.Reply
	timer   *time.Timer
	closed  bool
}

func openCoordinator(e *Engine, dir string) (*coordinator, error) {
	l, err := commitlog.Open(dir, e.logOptions(commitlog.Options{SegmentBytes: 4 << 20}))
	if err != nil {
		return nil, err
	}
	c := &coordinator{engine: e, log: l, groups: map[string]*hosted{}}
	latest := map[string][]byte{}
	for rec, err := range l.Records(l.StartOffset()) {
		if err != nil {
			return nil, errors.Join(err, l.Close())
		}
		latest[string(rec.Key)] = append([]byte(nil), rec.Value...)
	}
	for name, data := range latest {
		g, err := group.Restore(data, nil, e.opt.Now())
		if err != nil {
			return nil, errors.Join(fmt.Errorf("engine: the state of group %q in %s: %w", name, dir, err), l.Close())
		}
		c.host(name, g)
	}
	return c, nil
}

// host adds a group and lets its time run.
func (c *coordinator) host(name string, g *group.Group) *hosted {
	h := &hosted{c: c, g: g, waiting: map[uint64]chan group.Reply{}}
	c.groups[name] = h
	h.mu.Lock()
	h.schedule()
	h.mu.Unlock()
	return h
}

func (c *coordinator) group(name string) (*hosted, error) {
	if err := topic.CheckName("group", name); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, ErrClosed
	}
	if h := c.groups[name]; h != nil {
		return h, nil
	}
	return c.host(name, group.New(name, nil)), nil
}

// call sends a request to a group and waits for its reply.
func (c *coordinator) call(ctx context.Context, name string, r group.Request) (group.Reply, error) {
	h, err := c.group(name)
	if err != nil {
		return group.Reply{}, err
	}
	counts, err := c.counts(r.Topics)
	if err == nil {
		err = c.checkOffsets(name, r.Offsets)
	}
	if err != nil {
		return group.Reply{}, err
	}
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return group.Reply{}, ErrClosed
	}
	h.next++
	r.ID = h.next
	answer := make(chan group.Reply, 1)
	h.waiting[r.ID] = answer
	now := c.engine.opt.Now()
	if counts != nil {
		h.deliver(h.g.SetCounts(now, h.merge(counts)))
	}
	h.deliver(h.g.Step(now, r))
	h.mu.Unlock()
	select {
	case reply := <-answer:
		return reply, reply.Err
	case <-ctx.Done():
		return group.Reply{}, ctx.Err()
	}
}

// checkOffsets holds a commit to what its partitions hold.
func (c *coordinator) checkOffsets(name string, offsets map[group.Partition]int64) error {
	for p, offset := range offsets {
		t, err := c.engine.Topic(p.Topic)
		if err != nil {
			return err
		}
		l, err := t.Partition(p.ID)
		if err != nil {
			return err
		}
		progress := consumer.Progress{Consumer: name, Topic: p.Topic, Partition: p.ID}
		if offset < 0 {
			return &consumer.NegativeOffsetError{Progress: progress, Offset: offset}
		}
		if end := l.EndOffset(); offset > end {
			return &consumer.CommitBeyondEndError{Progress: progress, Wanted: offset, End: end}
		}
	}
	return nil
}

// counts looks up the partition counts of topics; nil for none.
func (c *coordinator) counts(topics []string) (map[string]int, error) {
	if len(topics) == 0 {
		return nil, nil
	}
	counts := map[string]int{}
	for _, name := range topics {
		t, err := c.engine.Topic(name)
		if err != nil {
			return nil, err
		}
		counts[name] = t.Partitions()
	}
	return counts, nil
}

// merge adds counts to those that the group knows. h.mu is held.
func (h *hosted) merge(counts map[string]int) map[string]int {
	all := h.g.Counts()
	for name, n := range counts {
		all[name] = n
	}
	return all
}

// deliver does what a step leads to, in the order that package group demands. h.mu is held.
func (h *hosted) deliver(out group.Output) {
	err := h.store(out)
	for _, reply := range out.Replies {
		if reply.Err == nil {
			reply.Err = err
		}
		if answer := h.waiting[reply.ID]; answer != nil {
			answer <- reply // never blocks: one reply a request, and room for it
			delete(h.waiting, reply.ID)
		}
	}
	h.schedule()
}

func (h *hosted) store(out group.Output) error {
	if out.Save {
		if err := h.c.save(h.g); err != nil {
			return fmt.Errorf("engine: storing the state of group %q: %w", h.g.Name(), err)
		}
	}
	for p, offset := range out.Commits {
		if err := h.c.engine.offsets.Commit(consumer.Progress{Consumer: h.g.Name(), Topic: p.Topic, Partition: p.ID}, offset); err != nil {
			return err
		}
	}
	return nil
}

// compactGroupsEvery is how many saves pass between compactions of the groups' log.
const compactGroupsEvery = 10_000

func (c *coordinator) save(g *group.Group) error {
	_, err := c.log.Append(record.Record{Key: []byte(g.Name()), Value: g.Snapshot()})
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.saves++
	due := c.saves%compactGroupsEvery == 0
	c.mu.Unlock()
	if due {
		_, err = c.log.Compact(0)
	}
	return err
}

// schedule sets the timer for the group's next tick. h.mu is held.
func (h *hosted) schedule() {
	if h.timer != nil {
		h.timer.Stop()
		h.timer = nil
	}
	next := h.g.Next()
	if next.IsZero() || h.closed {
		return
	}
	h.timer = time.AfterFunc(max(0, next.Sub(h.c.engine.opt.Now())), func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if !h.closed {
			h.deliver(h.g.Tick(h.c.engine.opt.Now()))
		}
	})
}

// close stops every group's time and refuses whoever still waits.
func (c *coordinator) close() {
	c.mu.Lock()
	c.closed = true
	groups := c.groups
	c.mu.Unlock()
	for _, h := range groups {
		h.mu.Lock()
		h.closed = true
		h.schedule()
		for id, answer := range h.waiting {
			answer <- group.Reply{Err: ErrClosed}
			delete(h.waiting, id)
		}
		h.mu.Unlock()
	}
}
