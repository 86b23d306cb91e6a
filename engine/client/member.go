package client

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"logbook/engine/wire"
)

// MemberOptions configure a member of a group.
type MemberOptions struct {
	Topics   []string
	Assignor string // "" is roundrobin
	Instance string // makes the member static
	// SessionTimeout is how long the group waits for a silent member; 0 is 10 s. Heartbeats
	// are sent three times as often.
	SessionTimeout time.Duration
	FromEnd        bool // where nothing is committed, begin at the end instead of the start
}

// Member is a consumer that shares a group's partitions with others. Goroutines of its own
// send heartbeats, take part in rebalances, and fetch ahead, until Close. Its methods are
// for one goroutine.
type Member struct {
	c     *Client
	group string
	opt   MemberOptions
	ctx   context.Context
	stop  context.CancelFunc
	work  sync.WaitGroup
	ready chan batch

	mu         sync.Mutex
	id         string
	generation int32
	epoch      int32 // the highest of a coordinator heard of
	owned      map[wire.TopicPartition]*owned
	positions  map[wire.TopicPartition]int64 // next to hand out; what Commit commits
	err        error
	closed     bool
}

// owned is a partition that the member reads.
type owned struct{ stop context.CancelFunc }

// batch is what a fetch brought.
type batch struct {
	p       wire.TopicPartition
	of      *owned
	records []wire.Record
	next    int64
	err     error
}

// Fetched is a record and where it came from.
type Fetched struct {
	Topic     string
	Partition int
	wire.Record
}

// JoinGroup becomes a member of a group, and returns when it has its partitions.
func (c *Client) JoinGroup(ctx context.Context, group string, opt MemberOptions) (*Member, error) {
	if opt.SessionTimeout == 0 {
		opt.SessionTimeout = 10 * time.Second
	}
	m := &Member{c: c, group: group, opt: opt, ready: make(chan batch), owned: map[wire.TopicPartition]*owned{}, positions: map[wire.TopicPartition]int64{}}
	m.ctx, m.stop = context.WithCancel(c.ctx)
	if err := m.join(ctx); err != nil {
		m.stop()
		return nil, err
	}
	m.work.Go(m.heartbeats)
	return m, nil
}

func code(err error) wire.Code {
	if we, ok := errors.AsType[*wire.Error](err); ok {
		return we.Code
	}
	return ""
}

// join joins the next generation and takes over its partitions; again, if the group moves
// on meanwhile.
func (m *Member) join(ctx context.Context) error {
	for ctx.Err() == nil {
		m.mu.Lock()
		q := wire.JoinGroup{
			Group: m.group, Member: m.id, Instance: m.opt.Instance, Topics: m.opt.Topics, Assignor: m.opt.Assignor,
			SessionTimeoutMS: m.opt.SessionTimeout.Milliseconds(), Owned: slices.Collect(maps.Keys(m.owned)),
		}
		m.mu.Unlock()
		joined, err := retry[wire.JoinGroupReply](ctx, m.c, m.c.coordinator(m.group), "join_group", q, 2*m.opt.SessionTimeout)
		switch code(err) {
		case wire.UnknownMember:
			m.assign("", 0, nil)
			continue
		case wire.Rejoin:
			continue
		}
		if err != nil {
			return err
		}
		m.mu.Lock()
		m.id = joined.Member
		m.epoch = max(m.epoch, joined.Epoch)
		m.mu.Unlock()
		who := wire.MemberRequest{Group: m.group, Member: joined.Member, Instance: m.opt.Instance, Generation: joined.Generation}
		synced, err := retry[wire.SyncGroupReply](ctx, m.c, m.c.coordinator(m.group), "sync_group", who, 0)
		switch code(err) {
		case wire.UnknownMember, wire.Rejoin:
			continue
		}
		if err != nil {
			return err
		}
		return m.take(ctx, joined, synced.Partitions)
	}
	return ctx.Err()
}

// take begins to read the partitions of a generation.
func (m *Member) take(ctx context.Context, joined wire.JoinGroupReply, partitions []wire.TopicPartition) error {
	fresh := slices.DeleteFunc(slices.Clone(partitions), func(p wire.TopicPartition) bool { return m.owned[p] != nil })
	starts := map[wire.TopicPartition]int64{}
	if len(fresh) > 0 {
		m.mu.Lock()
		epoch := m.epoch
		m.mu.Unlock()
		committed, err := m.c.committedSince(ctx, m.group, epoch, fresh)
		if err != nil {
			return err
		}
		for _, o := range committed {
			starts[wire.TopicPartition{Topic: o.Topic, Partition: o.Partition}] = o.Offset
		}
	}
	for _, p := range fresh {
		if _, ok := starts[p]; ok {
			continue
		}
		find := m.c.Earliest
		if m.opt.FromEnd {
			find = m.c.Latest
		}
		offset, err := find(ctx, p.Topic, p.Partition)
		if err != nil {
			return err
		}
		starts[p] = offset
	}
	m.assign(joined.Member, joined.Generation, partitions)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range fresh {
		m.positions[p] = starts[p]
		ctx, stop := context.WithCancel(m.ctx)
		o := &owned{stop: stop}
		m.owned[p] = o
		m.work.Go(func() { m.read(ctx, o, p, starts[p]) })
	}
	return nil
}

// assign gives up what is not in partitions.
func (m *Member) assign(id string, generation int32, partitions []wire.TopicPartition) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.id, m.generation = id, generation
	for p, o := range m.owned {
		if !slices.Contains(partitions, p) {
			o.stop()
			delete(m.owned, p)
			delete(m.positions, p)
		}
	}
}

// read fetches a partition ahead, one reply at a time.
func (m *Member) read(ctx context.Context, o *owned, p wire.TopicPartition, offset int64) {
	for ctx.Err() == nil {
		r, err := m.c.Fetch(ctx, p.Topic, p.Partition, offset, 0, 5*time.Second)
		if ctx.Err() != nil {
			return
		}
		if we, ok := errors.AsType[*wire.Error](err); ok && we.Code == wire.OutOfRange {
			// Retention has removed what was next, or a failover lost what was read: go on at
			// the nearer end.
			offset = max(min(offset, we.End), we.Start)
			continue
		}
		if err == nil && len(r.Records) == 0 {
			offset = r.Next
			continue
		}
		select {
		case m.ready <- batch{p: p, of: o, records: r.Records, next: r.Next, err: err}:
		case <-ctx.Done():
			return
		}
		offset = max(offset, r.Next)
	}
}

// heartbeats keep the member's session alive until it is closed.
func (m *Member) heartbeats() {
	t := time.NewTicker(m.opt.SessionTimeout / 3)
	defer t.Stop()
	for {
		select {
		case <-m.ctx.Done():
			return
		case <-t.C:
		}
		m.mu.Lock()
		who := wire.MemberRequest{Group: m.group, Member: m.id, Instance: m.opt.Instance, Generation: m.generation}
		m.mu.Unlock()
		beat, err := retry[wire.HeartbeatReply](m.ctx, m.c, m.c.coordinator(m.group), "heartbeat", who, 0)
		m.mu.Lock()
		m.epoch = max(m.epoch, beat.Epoch)
		m.mu.Unlock()
		switch code(err) {
		case wire.UnknownMember:
			m.assign("", 0, nil)
			err = m.join(m.ctx)
		case wire.Rejoin:
			err = m.join(m.ctx)
		}
		if err != nil && m.ctx.Err() == nil {
			m.mu.Lock()
			m.err = err
			m.mu.Unlock()
			if code(err) == wire.Fenced {
				return
			}
		}
	}
}

// Fetch returns the next records of the member's partitions, waiting for some until ctx
// ends. What Commit commits moves behind them.
func (m *Member) Fetch(ctx context.Context) ([]Fetched, error) {
	for {
		m.mu.Lock()
		err, closed := m.err, m.closed
		m.err = nil
		m.mu.Unlock()
		switch {
		case closed:
			return nil, ErrClosed
		case err != nil:
			return nil, err
		}
		select {
		case b := <-m.ready:
			if b.err != nil {
				return nil, b.err
			}
			if out := m.accept(b); out != nil {
				return out, nil
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-m.ctx.Done():
			return nil, ErrClosed
		}
	}
}

// accept takes a batch, unless its partition is another's by now.
func (m *Member) accept(b batch) []Fetched {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.owned[b.p] != b.of {
		return nil
	}
	m.positions[b.p] = b.next
	out := make([]Fetched, len(b.records))
	for i, r := range b.records {
		out[i] = Fetched{Topic: b.p.Topic, Partition: b.p.Partition, Record: r}
	}
	return out
}

// Commit stores how far the member has come, in all its partitions. An error with code
// wire.Rejoin means that a rebalance came first: some of them may be another's now, and
// the records are seen again.
func (m *Member) Commit(ctx context.Context) error {
	m.mu.Lock()
	q := wire.CommitOffsets{Group: m.group, Member: m.id, Instance: m.opt.Instance, Generation: m.generation}
	for p, offset := range m.positions {
		q.Offsets = append(q.Offsets, wire.CommitOffset{Topic: p.Topic, Partition: p.Partition, Offset: offset})
	}
	m.mu.Unlock()
	if len(q.Offsets) == 0 {
		return nil
	}
	_, err := retry[wire.Empty](ctx, m.c, m.c.coordinator(m.group), "commit_offsets", q, 0)
	return err
}

// Assignment returns the member's partitions, in order.
func (m *Member) Assignment() []wire.TopicPartition {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.SortedFunc(maps.Keys(m.owned), func(a, b wire.TopicPartition) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
}

// ID and Generation identify the member in its group.
func (m *Member) ID() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.id
}

// Generation is the group's generation that the member is in.
func (m *Member) Generation() int32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.generation
}

// Close leaves the group, unless the member is static, and ends its goroutines.
func (m *Member) Close() error {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return ErrClosed
	}
	m.closed = true
	id := m.id
	m.mu.Unlock()
	m.stop()
	m.work.Wait()
	if id == "" || m.opt.Instance != "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), m.c.opt.Timeout)
	defer cancel()
	_, err := retry[wire.Empty](ctx, m.c, m.c.coordinator(m.group), "leave_group", wire.MemberRequest{Group: m.group, Member: id}, 0)
	if code(err) == wire.UnknownMember || errors.Is(err, ErrClosed) {
		err = nil
	}
	return err
}
