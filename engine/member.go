package engine

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"logbook/engine/consumer"
	"logbook/engine/group"
	"logbook/engine/record"
)

// MemberOptions configure a member of a group.
type MemberOptions struct {
	Topics   []string
	Assignor group.Assignor // nil is group.RoundRobin; all members must use one
	// Instance makes the member static: it gets its partitions back when it restarts
	// within its session.
	Instance         string
	SessionTimeout   time.Duration // 0 is 10 s; heartbeats are sent three times as often
	RebalanceTimeout time.Duration // 0 is the session timeout
	Reset            consumer.Reset
}

// Member is a consumer that shares a group's partitions with others. A goroutine of its
// own sends heartbeats and takes part in rebalances until Close. Fetch, Commit and the
// rest are safe to call from one goroutine beside it.
type Member struct {
	engine *Engine
	group  string
	opt    MemberOptions
	stop   context.CancelFunc
	done   chan struct{}

	mu         sync.Mutex
	id         string
	generation int32
	consumers  map[group.Partition]*consumer.Consumer
	order      []group.Partition
	turn       int
	changed    chan struct{} // closed when the assignment changes
	err        error         // why the member is out for good
	closed     bool
}

// Fetched is a record and where it came from.
type Fetched struct {
	Topic     string
	Partition int
	record.Record
}

// JoinGroup makes a member of a group and returns when it has its partitions. ctx bounds
// the joining only. Close the member, or the engine will.
//
// Errors: *topic.NameError, *topic.UnknownError, *group.AssignorMismatchError, the
// context's, ErrClosed.
func (e *Engine) JoinGroup(ctx context.Context, name string, opt MemberOptions) (*Member, error) {
	if len(opt.Topics) == 0 {
		return nil, errors.New("engine: a group's member needs a topic")
	}
	if opt.SessionTimeout == 0 {
		opt.SessionTimeout = group.DefaultSessionTimeout
	}
	m := &Member{
		engine: e, group: name, opt: opt, done: make(chan struct{}), changed: make(chan struct{}),
		consumers: map[group.Partition]*consumer.Consumer{},
	}
	if err := m.join(ctx); err != nil {
		return nil, err
	}
	beat, stop := context.WithCancel(context.Background())
	m.stop = stop
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		stop()
		return nil, ErrClosed
	}
	e.members[m] = true
	go m.heartbeats(beat)
	return m, nil
}

// join joins the next generation and takes over its partitions, again if the group moves
// on meanwhile.
func (m *Member) join(ctx context.Context) error {
	for {
		r := group.Request{
			Kind: group.Join, Member: m.ID(), Instance: m.opt.Instance, Topics: m.opt.Topics,
			SessionTimeout: m.opt.SessionTimeout, RebalanceTimeout: m.opt.RebalanceTimeout, Owned: m.Assignment(),
		}
		if m.opt.Assignor != nil {
			r.Assignor = m.opt.Assignor.Name()
		}
		if r.Member == "" {
			r.NewMember = m.group + "-" + rand.Text()[:12]
		}
		reply, err := m.engine.callGroup(ctx, m.group, r)
		if errors.Is(err, group.ErrUnknownMember) && r.Member != "" {
			m.assign("", 0, nil) // it was away too long: start over
			continue
		}
		if err != nil {
			return err
		}
		sync := group.Request{Kind: group.Sync, Member: reply.Member, Instance: m.opt.Instance, Generation: reply.Generation}
		synced, err := m.engine.callGroup(ctx, m.group, sync)
		if err == nil {
			return m.assign(reply.Member, reply.Generation, synced.Partitions)
		}
		m.mu.Lock()
		m.id = reply.Member
		m.mu.Unlock()
		if !m.mustRejoin(err) {
			return err
		}
	}
}

func (m *Member) mustRejoin(err error) bool {
	_, stale := errors.AsType[*group.StaleGenerationError](err)
	return stale || errors.Is(err, group.ErrRebalanceInProgress) || errors.Is(err, group.ErrUnknownMember)
}

// assign makes partitions the member's: those it keeps go on where they are, new ones
// start at the committed offset.
func (m *Member) assign(id string, generation int32, partitions []group.Partition) error {
	fresh := map[group.Partition]*consumer.Consumer{}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range partitions {
		// Only a member that missed no generation can know that nobody read on meanwhile.
		if c := m.consumers[p]; c != nil && generation == m.generation+1 && m.opt.Assignor == group.CooperativeSticky {
			fresh[p] = c
			continue
		}
		c, err := m.engine.Consumer(m.group, p.Topic, p.ID, m.opt.Reset)
		if err != nil {
			return err
		}
		fresh[p] = c
	}
	m.id, m.generation, m.consumers, m.order = id, generation, fresh, slices.Clone(partitions)
	close(m.changed)
	m.changed = make(chan struct{})
	return nil
}

// heartbeats keeps the session alive and follows the group through its generations.
func (m *Member) heartbeats(ctx context.Context) {
	defer close(m.done)
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(m.opt.SessionTimeout / 3):
		}
		_, err := m.engine.callGroup(ctx, m.group, group.Request{
			Kind: group.Heartbeat, Member: m.ID(), Instance: m.opt.Instance, Generation: m.Generation(),
		})
		if err != nil && m.mustRejoin(err) {
			err = m.join(ctx)
		}
		if err != nil && ctx.Err() == nil {
			m.fail(err)
			return
		}
	}
}

func (m *Member) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err = err
	m.consumers, m.order = map[group.Partition]*consumer.Consumer{}, nil
	close(m.changed)
	m.changed = make(chan struct{})
}

// ID is the member's id in the group, "" while it has none.
func (m *Member) ID() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.id
}

// Generation is the generation that the member is in.
func (m *Member) Generation() int32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.generation
}

// Assignment returns the member's partitions in this generation.
func (m *Member) Assignment() []group.Partition {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.order)
}

// Fetch returns up to max records of the member's partitions, which take turns. It waits
// until there is one or ctx ends.
//
// Errors: those of consumer.Fetch, group.ErrFencedInstance (another has this instance id
// now), the context's, ErrClosed.
func (m *Member) Fetch(ctx context.Context, max int) ([]Fetched, error) {
	for {
		out, changed, err := m.fetchNow(max)
		if err != nil || len(out) > 0 {
			return out, err
		}
		if err := m.wait(ctx, changed); err != nil {
			return nil, err
		}
	}
}

func (m *Member) fetchNow(max int) ([]Fetched, chan struct{}, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.refusal(); err != nil {
		return nil, nil, err
	}
	var out []Fetched
	for range m.order {
		p := m.order[m.turn%len(m.order)]
		m.turn++
		records, err := m.consumers[p].Fetch(max - len(out))
		for _, r := range records {
			out = append(out, Fetched{Topic: p.Topic, Partition: p.ID, Record: r})
		}
		if err != nil && len(out) == 0 {
			return nil, nil, fmt.Errorf("engine: fetching %s: %w", p, err)
		}
		if len(out) >= max || err != nil {
			break
		}
	}
	return out, m.changed, nil
}

// wait returns when a partition has a record to fetch, or the assignment changed.
func (m *Member) wait(ctx context.Context, changed chan struct{}) error {
	ctx, cancel := context.WithCancel(ctx)
	woken := make(chan error, 1)
	var wg sync.WaitGroup
	m.mu.Lock()
	for p, c := range m.consumers {
		t, err := m.engine.Topic(p.Topic)
		if err != nil {
			m.mu.Unlock()
			cancel()
			return err
		}
		l, err := t.Partition(p.ID)
		if err != nil {
			m.mu.Unlock()
			cancel()
			return err
		}
		position := c.Position()
		wg.Go(func() {
			if err := l.Wait(ctx, position); ctx.Err() == nil {
				select {
				case woken <- err:
				default:
				}
			}
		})
	}
	m.mu.Unlock()
	defer wg.Wait()
	defer cancel()
	select {
	case err := <-woken:
		return err
	case <-changed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Commit stores how far the member has fetched in each of its partitions. It is refused
// when the group has moved on: the partitions may be another's by now, and what was
// fetched will be seen again there.
//
// Errors: *group.StaleGenerationError, group.ErrUnknownMember, group.ErrFencedInstance,
// *consumer.OffsetRegressionError, the context's, ErrClosed.
func (m *Member) Commit(ctx context.Context) error {
	m.mu.Lock()
	if err := m.refusal(); err != nil {
		m.mu.Unlock()
		return err
	}
	offsets := map[group.Partition]int64{}
	for p, c := range m.consumers {
		offsets[p] = c.Position()
	}
	r := group.Request{Kind: group.Commit, Member: m.id, Instance: m.opt.Instance, Generation: m.generation, Offsets: offsets}
	m.mu.Unlock()
	if len(offsets) == 0 {
		return nil
	}
	_, err := m.engine.callGroup(ctx, m.group, r)
	return err
}

// refusal says why the member takes no calls, if it does not. m.mu is held.
func (m *Member) refusal() error {
	switch {
	case m.err != nil:
		return m.err
	case m.closed:
		return ErrClosed
	}
	return nil
}

// Close leaves the group, so that others take over at once, and commits nothing. A
// static member leaves too; to let one restart quietly, end its process instead.
func (m *Member) Close() error {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return ErrClosed
	}
	m.closed = true
	id, failed := m.id, m.err != nil
	m.mu.Unlock()
	m.stop()
	<-m.done
	m.engine.mu.Lock()
	if !m.engine.closed {
		delete(m.engine.members, m)
	}
	m.engine.mu.Unlock()
	if failed {
		return nil
	}
	_, err := m.engine.callGroup(context.Background(), m.group, group.Request{Kind: group.Leave, Member: id, Instance: m.opt.Instance})
	return ignore(ignore(err, group.ErrUnknownMember), ErrClosed)
}
