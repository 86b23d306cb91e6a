// Package coordinator drives the state machines of package group: it is what they leave
// out, the clock, the disk and the waiting. The embedded engine has one Coordinator, a
// networked broker one for each partition of the groups' topic that it leads.
//
// A timer runs for each group in which time matters; Close stops them all.
package coordinator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"logbook/engine/group"
	"logbook/engine/topic"
)

// ErrClosed: the coordinator was closed; another may take its groups over.
var ErrClosed = errors.New("coordinator: closed")

// Storage keeps what was decided. It is called for one group at a time.
type Storage interface {
	// Save stores a group's state durably, before anybody hears of it.
	Save(group string, snapshot []byte) error
	// Commit stores committed offsets durably.
	Commit(group string, offsets map[group.Partition]int64) error
}

// Config configures a coordinator. Storage and Counts must be set.
type Config struct {
	Storage Storage
	// Counts looks up the partition counts of topics. Errors are the members' to see.
	Counts func(topics []string) (map[string]int, error)
	// Check, if set, holds the offsets of a commit to what is there.
	Check func(group string, offsets map[group.Partition]int64) error
	Now   func() time.Time // nil: time.Now
}

// Coordinator drives groups. It is safe for concurrent use; groups do not wait for one
// another.
type Coordinator struct {
	cfg Config

	mu     sync.Mutex
	groups map[string]*hosted
	closed bool
}

// hosted is a group and those who wait for its replies.
type hosted struct {
	c *Coordinator

	mu      sync.Mutex
	g       *group.Group
	next    uint64
	waiting map[uint64]chan group.Reply
	timer   *time.Timer
	closed  bool
}

// New returns a coordinator without groups.
func New(cfg Config) *Coordinator {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Coordinator{cfg: cfg, groups: map[string]*hosted{}}
}

// Restore takes over a group from its last snapshot. Its members' sessions begin anew.
func (c *Coordinator) Restore(name string, snapshot []byte) error {
	g, err := group.Restore(snapshot, nil, c.cfg.Now())
	if err != nil {
		return fmt.Errorf("coordinator: the state of group %q: %w", name, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.host(name, g)
	return nil
}

// host adds a group and lets its time run. c.mu is held.
func (c *Coordinator) host(name string, g *group.Group) *hosted {
	h := &hosted{c: c, g: g, waiting: map[uint64]chan group.Reply{}}
	c.groups[name] = h
	h.mu.Lock()
	h.schedule()
	h.mu.Unlock()
	return h
}

func (c *Coordinator) group(name string) (*hosted, error) {
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

// Groups returns the names of the groups, sorted.
func (c *Coordinator) Groups() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.groups))
}

// Description is a group as it is at a moment.
type Description struct {
	Name       string
	State      group.State
	Generation int32
	Members    map[string][]group.Partition // each member's partitions
}

// Describe describes a group; ok is false where there is none.
func (c *Coordinator) Describe(name string) (d Description, ok bool) {
	c.mu.Lock()
	h := c.groups[name]
	c.mu.Unlock()
	if h == nil {
		return d, false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return Description{Name: name, State: h.g.State(), Generation: h.g.Generation(), Members: h.g.Assignment()}, true
}

// Snapshots calls f with each group's present state.
func (c *Coordinator) Snapshots(f func(name string, snapshot []byte) error) error {
	for _, name := range c.Groups() {
		c.mu.Lock()
		h := c.groups[name]
		c.mu.Unlock()
		h.mu.Lock()
		data := h.g.Snapshot()
		h.mu.Unlock()
		if err := f(name, data); err != nil {
			return err
		}
	}
	return nil
}

// Call sends a request to a group and waits for its reply.
//
// Errors: *topic.NameError, those of package group, of Config.Counts, Check and Storage,
// the context's, ErrClosed.
func (c *Coordinator) Call(ctx context.Context, name string, r group.Request) (group.Reply, error) {
	h, err := c.group(name)
	if err != nil {
		return group.Reply{}, err
	}
	var counts map[string]int
	if len(r.Topics) > 0 {
		if counts, err = c.cfg.Counts(r.Topics); err != nil {
			return group.Reply{}, err
		}
	}
	if len(r.Offsets) > 0 && c.cfg.Check != nil {
		if err := c.cfg.Check(name, r.Offsets); err != nil {
			return group.Reply{}, err
		}
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
	now := c.cfg.Now()
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
		if err := h.c.cfg.Storage.Save(h.g.Name(), h.g.Snapshot()); err != nil {
			return fmt.Errorf("coordinator: storing the state of group %q: %w", h.g.Name(), err)
		}
	}
	if len(out.Commits) > 0 {
		return h.c.cfg.Storage.Commit(h.g.Name(), out.Commits)
	}
	return nil
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
	h.timer = time.AfterFunc(max(0, next.Sub(h.c.cfg.Now())), func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if !h.closed {
			h.deliver(h.g.Tick(h.c.cfg.Now()))
		}
	})
}

// Close stops every group's time and refuses whoever still waits.
func (c *Coordinator) Close() {
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
