package stream

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"logbook/engine/failure"
	"logbook/engine/record"
)

// MemberOptions configure a member of a group. Topics must be set.
type MemberOptions struct {
	Topics   []string
	Assignor string // roundrobin (also ""), range or cooperative-sticky; all members must use one
	// Instance makes the member static: it gets its partitions back when it restarts
	// within its session.
	Instance         string
	SessionTimeout   time.Duration // how long the group waits for a silent member; 0 is 10 s. Heartbeats are sent three times as often
	RebalanceTimeout time.Duration // 0 is the session timeout
	Reset            Reset
	// HandlingTimeout is the longest that records may be handled: the time from a Fetch that
	// returned some to the next call of Fetch or Commit. A member that takes longer leaves the
	// group within a third of a session, so that others get its partitions, and joins again
	// with its next Fetch; its Commit is refused until then. 0 is 5 minutes, and a negative
	// time no limit.
	HandlingTimeout time.Duration
	// LeaveTimeout is the longest that Close waits for the group to hear of it; 0 is 2 s.
	// A group that does not hear finds out when the session ends.
	LeaveTimeout time.Duration
}

// Member is a consumer that shares a group's partitions with others. Goroutines of its own
// send heartbeats, take part in rebalances, and fetch ahead, until Close. Its methods are
// for one goroutine, but Close for any.
type Member struct {
	c     *Client
	group string
	opt   MemberOptions
	ctx   context.Context
	stop  context.CancelFunc
	work  sync.WaitGroup
	ready chan fetchedAhead
	back  chan struct{} // a Fetch came from a member that had left

	mu         sync.Mutex
	id         string
	wanted     string // the id of its first join
	generation int32
	epoch      int32 // the highest of a coordinator heard of
	owned      map[Partition]*owned
	positions  map[Partition]int64 // next to hand out; what Commit commits
	rest       fetchedAhead        // what of a fetch was not handed out yet
	handling   time.Time           // since when records are; zero: none are
	away       bool                // it has left because that took too long
	err        error               // why it is out for good
	closed     bool
}

// owned is a partition that the member reads.
type owned struct{ stop context.CancelFunc }

// fetchedAhead is what a fetch brought.
type fetchedAhead struct {
	p       Partition
	of      *owned
	records []record.Record
	next    int64
	err     error
}

// Delivered is a record and where it came from.
type Delivered struct {
	Topic     string
	Partition int
	record.Record
}

// JoinGroup makes a member of a group and returns when it has its partitions. ctx bounds
// the joining only. Close the member, or the client will.
//
// Errors: failure.BadRequest, failure.UnknownTopic, failure.Unavailable, the context's,
// ErrClosed.
func (c *Client) JoinGroup(ctx context.Context, name string, opt MemberOptions) (*Member, error) {
	if len(opt.Topics) == 0 {
		return nil, &failure.Error{Code: failure.BadRequest, Message: "a group's member needs a topic"}
	}
	if opt.SessionTimeout == 0 {
		opt.SessionTimeout = 10 * time.Second
	}
	if opt.HandlingTimeout == 0 {
		opt.HandlingTimeout = 5 * time.Minute
	}
	if opt.LeaveTimeout == 0 {
		opt.LeaveTimeout = 2 * time.Second
	}
	if c.ctx.Err() != nil {
		return nil, ErrClosed
	}
	m := &Member{c: c, group: name, opt: opt, ready: make(chan fetchedAhead), back: make(chan struct{}, 1), owned: map[Partition]*owned{}, positions: map[Partition]int64{}}
	m.ctx, m.stop = context.WithCancel(c.ctx)
	joining, cancel := c.within(ctx)
	defer cancel()
	if err := m.join(joining); err != nil {
		m.giveUp()
		return nil, c.check(err)
	}
	if err := c.keep(m); err != nil {
		m.giveUp()
		return nil, err
	}
	m.work.Go(m.heartbeats)
	return m, nil
}

// giveUp ends a member that has not joined, so that nobody waits for it.
func (m *Member) giveUp() {
	m.stop()
	m.work.Wait()
	m.leave()
}

// leave tells the group, if it knows the member.
func (m *Member) leave() {
	m.mu.Lock()
	id := cmp.Or(m.id, m.wanted)
	m.mu.Unlock()
	if id == "" || m.opt.Instance != "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), m.opt.LeaveTimeout)
	defer cancel()
	_ = m.c.t.Leave(ctx, m.group, Membership{Member: id}) // its session ends by itself where this is lost
}

func (m *Member) membership() Membership {
	m.mu.Lock()
	defer m.mu.Unlock()
	return Membership{Member: m.id, Instance: m.opt.Instance, Generation: m.generation}
}

// join joins the next generation and takes over its partitions; again, if the group moves
// on meanwhile.
func (m *Member) join(ctx context.Context) error {
	for ctx.Err() == nil {
		m.mu.Lock()
		if m.id == "" {
			m.wanted = m.group[:min(len(m.group), 200)] + "-" + rand.Text()
		}
		q := Join{
			Member: m.id, NewMember: m.wanted, Instance: m.opt.Instance, Topics: m.opt.Topics, Assignor: m.opt.Assignor,
			SessionTimeout: m.opt.SessionTimeout, RebalanceTimeout: m.opt.RebalanceTimeout, Owned: slices.SortedFunc(maps.Keys(m.owned), Partition.Compare),
		}
		m.mu.Unlock()
		joined, err := m.c.t.Join(ctx, m.group, q)
		switch code(err) {
		case failure.UnknownMember:
			m.assign("", 0, nil)
			continue
		case failure.Rejoin:
			continue
		}
		if err != nil {
			return err
		}
		m.mu.Lock()
		m.id = joined.Member
		m.epoch = max(m.epoch, joined.Epoch)
		missed := joined.Generation > m.generation+1
		m.mu.Unlock()
		partitions, err := m.c.t.Sync(ctx, m.group, Membership{Member: joined.Member, Instance: m.opt.Instance, Generation: joined.Generation})
		switch code(err) {
		case failure.UnknownMember, failure.Rejoin:
			continue
		}
		if err != nil {
			return err
		}
		if missed {
			// Somebody else may have had the partitions meanwhile: read on from what is committed.
			m.assign(joined.Member, joined.Generation, nil)
		}
		return m.take(ctx, joined, partitions)
	}
	return ctx.Err()
}

// take begins to read the partitions of a generation.
func (m *Member) take(ctx context.Context, joined Joined, partitions []Partition) error {
	m.mu.Lock()
	fresh := slices.DeleteFunc(slices.Clone(partitions), func(p Partition) bool { return m.owned[p] != nil })
	epoch := m.epoch
	m.mu.Unlock()
	starts := map[Partition]int64{}
	if len(fresh) > 0 {
		committed, err := m.c.t.Committed(ctx, m.group, epoch)
		if err != nil {
			return err
		}
		starts = committed
	}
	for _, p := range fresh {
		if _, ok := starts[p]; ok {
			continue
		}
		where := Earliest
		if m.opt.Reset == ResetToLatest {
			where = Latest
		}
		offset, err := m.c.t.Offset(ctx, p, where, time.Time{})
		if err != nil {
			return err
		}
		starts[p] = offset
	}
	m.assign(joined.Member, joined.Generation, partitions)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range fresh {
		m.readFrom(p, starts[p])
	}
	return nil
}

// readFrom begins to read a partition. The lock is held.
func (m *Member) readFrom(p Partition, offset int64) {
	m.positions[p] = offset
	ctx, stop := context.WithCancel(m.ctx)
	o := &owned{stop: stop}
	m.owned[p] = o
	m.work.Go(func() { m.read(ctx, o, p, offset) })
}

// assign gives up what is not in partitions.
func (m *Member) assign(id string, generation int32, partitions []Partition) {
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
func (m *Member) read(ctx context.Context, o *owned, p Partition, offset int64) {
	epoch := int32(0)
	for ctx.Err() == nil {
		f, err := m.c.t.Fetch(ctx, Fetch{Partition: p, Offset: offset, MaxWait: maxWait, LeaderEpoch: epoch})
		if ctx.Err() != nil {
			return
		}
		if e, ok := errors.AsType[*failure.Error](err); ok && e.Code == failure.OutOfRange {
			switch m.opt.Reset {
			case ResetToEarliest:
				offset = e.LogStartOffset
				continue
			case ResetToLatest:
				offset = e.LogEndOffset
				continue
			}
			err = &OutOfRangeError{Partition: p, Position: offset, First: e.LogStartOffset, After: e.LogEndOffset, Err: e}
		}
		epoch = max(epoch, f.LeaderEpoch)
		if err == nil && len(f.Records) == 0 {
			offset = max(offset, f.NextOffset)
			continue
		}
		select {
		case m.ready <- fetchedAhead{p: p, of: o, records: f.Records, next: f.NextOffset, err: err}:
		case <-ctx.Done():
			return
		}
		if err != nil && pause(ctx, maxWait) != nil {
			return
		}
		offset = max(offset, f.NextOffset)
	}
}

// heartbeats keep the member's session alive until it is closed.
func (m *Member) heartbeats() {
	t := time.NewTicker(m.opt.SessionTimeout / 3)
	defer t.Stop()
	for {
		var err error
		select {
		case <-m.ctx.Done():
			return
		case <-m.back:
			err = m.join(m.ctx)
		case <-t.C:
			err = m.heartbeat()
		}
		if code(err) == failure.Fenced && m.ctx.Err() == nil {
			m.mu.Lock()
			m.err = err
			m.mu.Unlock()
			m.assign("", 0, nil)
			return
		}
		// Whatever else went wrong may pass: the next heartbeat tries again.
	}
}

// heartbeat says that the member is there, joins again where the group wants it to, and
// leaves where records are handled for too long.
func (m *Member) heartbeat() error {
	m.mu.Lock()
	late := !m.handling.IsZero() && m.opt.HandlingTimeout > 0 && time.Since(m.handling) > m.opt.HandlingTimeout
	away := m.away
	m.away = away || late
	m.mu.Unlock()
	switch {
	case away:
		return nil
	case late:
		m.leave()
		m.assign("", 0, nil)
		return nil
	}
	epoch, err := m.c.t.Heartbeat(m.ctx, m.group, m.membership())
	m.mu.Lock()
	m.epoch = max(m.epoch, epoch)
	m.mu.Unlock()
	switch code(err) {
	case failure.UnknownMember:
		m.assign("", 0, nil)
		return m.join(m.ctx)
	case failure.Rejoin:
		return m.join(m.ctx)
	}
	return err
}

// called says that the member's owner is alive, and has it join again if it had left.
func (m *Member) called() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.handling = time.Time{}
	if m.away {
		m.away = false
		m.back <- struct{}{} // it is empty: heartbeats took the last one before they left again
	}
}

// refusal says why the member takes no calls, if it does not.
func (m *Member) refusal() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return ErrClosed
	}
	return m.err
}

// Fetch returns up to max records of one of the member's partitions, which take turns. It
// waits until there is one or ctx ends. What Commit commits moves past them.
//
// Errors: *OutOfRangeError (see Reset), failure.Fenced (another has this instance id now),
// failure.Damaged, failure.Unavailable, the context's, ErrClosed.
func (m *Member) Fetch(ctx context.Context, max int) ([]Delivered, error) {
	m.called()
	for {
		if err := m.refusal(); err != nil {
			return nil, err
		}
		if out := m.deliver(max); out != nil {
			return out, nil
		}
		select {
		case b := <-m.ready:
			m.mu.Lock()
			mine := m.owned[b.p] == b.of
			if mine && b.err == nil {
				m.rest = b
			}
			m.mu.Unlock()
			if mine && b.err != nil {
				return nil, m.c.check(b.err)
			}
		case <-time.After(m.opt.SessionTimeout / 3): // the heartbeats may have something to say
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-m.ctx.Done():
			return nil, ErrClosed
		}
	}
}

// deliver hands out of what was fetched, unless its partition is another's by now.
func (m *Member) deliver(max int) []Delivered {
	m.mu.Lock()
	defer m.mu.Unlock()
	b := &m.rest
	if len(b.records) == 0 || m.owned[b.p] != b.of {
		m.rest = fetchedAhead{}
		return nil
	}
	n := min(max, len(b.records))
	m.handling = time.Now()
	out := make([]Delivered, n)
	for i, r := range b.records[:n] {
		out[i] = Delivered{Topic: b.p.Topic, Partition: b.p.ID, Record: r}
		m.positions[b.p] = r.Offset + 1
	}
	if b.records = b.records[n:]; len(b.records) == 0 {
		m.positions[b.p] = b.next
	}
	return out
}

// Seek goes on at an offset of one of the member's partitions; see Reset.
//
// Errors: failure.BadRequest (the partition is not the member's), failure.Fenced, ErrClosed.
func (m *Member) Seek(p Partition, offset int64) error {
	if err := m.refusal(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return ErrClosed
	}
	o := m.owned[p]
	if o == nil {
		return &failure.Error{Code: failure.BadRequest, Message: fmt.Sprintf("%s is not this member's at the moment; see Assignment", p)}
	}
	o.stop()
	m.readFrom(p, offset)
	return nil
}

// Commit stores how far the member has come in each of its partitions: after the last
// record that Fetch returned. It is refused when the group has moved on: the partitions may
// be another's by now, and what was fetched will be seen again there.
//
// Errors: failure.Rejoin, failure.UnknownMember, failure.Fenced, failure.Regression,
// failure.Unavailable, the context's, ErrClosed.
func (m *Member) Commit(ctx context.Context) error {
	if err := m.refusal(); err != nil {
		return err
	}
	m.mu.Lock()
	if !m.handling.IsZero() {
		m.handling = time.Now() // it is not stuck
	}
	offsets, away := maps.Clone(m.positions), m.away
	m.mu.Unlock()
	if away {
		return &failure.Error{Code: failure.UnknownMember, Message: fmt.Sprintf("the member left group %q because records were handled for more than %v; they may be another's by now, and Fetch joins again", m.group, m.opt.HandlingTimeout)}
	}
	if len(offsets) == 0 {
		return nil
	}
	return m.c.check(m.c.t.Commit(ctx, m.group, m.membership(), offsets))
}

// Assignment returns the member's partitions, in order.
func (m *Member) Assignment() []Partition {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.SortedFunc(maps.Keys(m.owned), Partition.Compare)
}

// ID is the member's id in the group, "" while it has none.
func (m *Member) ID() string { return m.membership().Member }

// Generation is the group's generation that the member is in.
func (m *Member) Generation() int32 { return m.membership().Generation }

// Close leaves the group, so that others take over at once, and commits nothing. A static
// member does not leave: its partitions wait for it until its session ends.
func (m *Member) Close() error {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return ErrClosed
	}
	m.closed = true
	failed := m.err != nil
	m.mu.Unlock()
	m.stop()
	m.work.Wait()
	m.c.forget(m)
	if !failed {
		m.leave()
	}
	return nil
}
