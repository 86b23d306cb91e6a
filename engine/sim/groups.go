package sim

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"logbook/engine/cluster"
	"logbook/engine/group"
	"logbook/engine/record"
	"logbook/engine/replica"
)

// A consumer group, coordinated by the partition's leader. Its state and its committed
// offsets are records in the partition, with a key that says what they are, as in the
// broker's own topic; readers of the partition pass over them.

const (
	groupTopic      = "shared"
	groupPartitions = 4
	memberCount     = 3
)

var groupCounts = map[string]int{groupTopic: groupPartitions}

// coordination is a coordinator for one leader epoch.
type coordination struct {
	b       *broker
	life    int
	epoch   int32
	g       group.Machine
	offsets map[int]int64
	next    uint64
	waiting map[uint64]func(group.Reply)
	queue   []func()
	busy    bool // something is being stored: nobody hears of what comes after it
	broken  bool
	end     int64 // of the log that was loaded: nobody hears of it before that is safe
}

// stored is a record of the group's.
type stored struct {
	Partition int   `json:"partition"`
	Offset    int64 `json:"offset"`
}

var (
	stateKey  = []byte("state")
	offsetKey = []byte("offset")
)

var errNotCoordinator = errors.New("sim: not the coordinator")

// coordinate returns the broker's coordination, if it leads.
func (b *broker) coordinate() *coordination {
	s, err := b.node.Status(part)
	if err != nil || s.Role != replica.Leader {
		b.coord = nil
		return nil
	}
	if b.coord == nil || b.coord.broken || b.coord.epoch != s.Assignment.Epoch {
		b.coord = b.load(s.Assignment.Epoch)
	}
	if b.coord != nil && s.HighWatermark < b.coord.end {
		return nil // what was loaded may be lost yet
	}
	return b.coord
}

// load reads the group back from the log.
func (b *broker) load(epoch int32) *coordination {
	c := &coordination{b: b, life: b.life, epoch: epoch, offsets: map[int]int64{}, waiting: map[uint64]func(group.Reply){}}
	l, err := b.node.Log(part)
	if err != nil {
		return nil
	}
	c.end = l.EndOffset()
	var state []byte
	for r, err := range l.Records(l.StartOffset()) {
		if err != nil {
			return nil
		}
		switch string(r.Key) {
		case string(stateKey):
			state = append([]byte(nil), r.Value...)
		case string(offsetKey):
			var o stored
			if json.Unmarshal(r.Value, &o) == nil {
				c.offsets[o.Partition] = o.Offset
			}
		}
	}
	d := b.w.design
	if state == nil {
		c.g = d.newGroup("g", groupCounts)
		return c
	}
	if c.g, err = d.restoreGroup(state, groupCounts, b.w.now); err != nil {
		b.w.checks.violation("group unreadable: broker %d cannot restore it: %v", b.id, err)
		return nil
	}
	return c
}

// do queues something that must wait for what is being stored.
func (c *coordination) do(f func()) {
	c.queue = append(c.queue, f)
	c.work()
}

func (c *coordination) work() {
	for len(c.queue) > 0 && !c.busy && !c.broken {
		f := c.queue[0]
		c.queue = c.queue[1:]
		f()
	}
}

// ask handles a member's request.
func (c *coordination) ask(r group.Request, reply func(group.Reply)) {
	c.do(func() {
		c.next++
		r.ID = c.next
		c.waiting[r.ID] = reply
		c.deliver(c.g.Step(c.b.w.now, r))
	})
}

// deliver does what a step leads to, in the order that package group demands.
func (c *coordination) deliver(out group.Output) {
	var records []record.Record
	if out.Save {
		records = append(records, record.Record{Key: stateKey, Value: c.g.Snapshot()})
	}
	for p := range groupPartitions {
		if offset, ok := out.Commits[group.Partition{Topic: groupTopic, ID: p}]; ok {
			value, _ := json.Marshal(stored{p, offset})
			records = append(records, record.Record{Key: offsetKey, Value: value})
		}
	}
	finish := func(err error) {
		if !c.b.up || c.b.life != c.life {
			return
		}
		c.busy = false
		if err != nil {
			c.fail(err)
			return
		}
		for p, offset := range out.Commits {
			c.offsets[p.ID] = offset
		}
		for _, r := range out.Replies {
			c.reply(r)
		}
		c.work()
	}
	if len(records) == 0 {
		finish(nil)
		return
	}
	c.busy = true
	_, _, err := c.b.node.AppendAsync(part, c.b.w.acks, cluster.Records(records...), finish)
	if err != nil {
		finish(err)
	}
}

func (c *coordination) reply(r group.Reply) {
	if f := c.waiting[r.ID]; f != nil {
		delete(c.waiting, r.ID)
		f(r)
	}
}

// fail: something could not be stored, so this coordinator knows more than it may say.
func (c *coordination) fail(err error) {
	c.broken = true
	for _, id := range slices.Sorted(maps.Keys(c.waiting)) {
		c.reply(group.Reply{ID: id, Err: err})
	}
}

// member is a member of the group: it joins, sends heartbeats, and commits as it goes.
type member struct {
	w          *world
	n          int
	id         string
	generation int32
	joined     bool
	positions  map[int]int64
	busy       bool
	silent     bool // it hangs, and believes what it believed
	beats      int
	epoch      int32 // the highest of a coordinator heard of: who coordinates in a lower one was replaced
}

func newMember(w *world, n int) *member {
	m := &member{w: w, n: n, positions: map[int]int64{}}
	w.every(400*time.Millisecond, m.live)
	return m
}

// call sends a request to the coordinator, and waits so long and no longer.
func (m *member) call(do func(c *coordination, reply func(group.Reply)), then func(group.Reply, error)) {
	m.busy = true
	done := false
	finish := func(r group.Reply, err error) {
		if !done {
			done, m.busy = true, false
			then(r, err)
		}
	}
	m.w.after(6*time.Second, func() { finish(group.Reply{}, errors.New("sim: no answer")) })
	b := m.w.ask(20 + m.n)
	if b == nil {
		finish(group.Reply{}, errNotCoordinator)
		return
	}
	life := b.life
	trip := func() time.Duration {
		return between(m.w.dice(forClient+uint64(20+m.n)), time.Millisecond, 4*time.Millisecond)
	}
	m.w.after(trip(), func() {
		if !b.up || b.life != life {
			return
		}
		c := b.coordinate()
		if c == nil || c.epoch < m.epoch {
			m.w.after(trip(), func() { finish(group.Reply{}, errNotCoordinator) })
			return
		}
		do(c, func(r group.Reply) {
			m.w.after(trip(), func() {
				m.epoch = max(m.epoch, c.epoch)
				finish(r, r.Err)
			})
		})
	})
}

func (m *member) live() {
	if m.silent || m.busy {
		return
	}
	if !m.joined {
		m.join()
		return
	}
	if m.beats++; m.beats%2 == 0 {
		m.commit()
		return
	}
	r := group.Request{Kind: group.Heartbeat, Member: m.id, Generation: m.generation}
	m.call(func(c *coordination, reply func(group.Reply)) { c.ask(r, reply) }, func(_ group.Reply, err error) { m.heed(err) })
}

// heed does what an error says.
func (m *member) heed(err error) {
	switch {
	case errors.Is(err, group.ErrUnknownMember):
		m.id, m.joined = "", false
	case errors.Is(err, group.ErrRebalanceInProgress):
		m.joined = false
	default:
		if _, stale := errors.AsType[*group.StaleGenerationError](err); stale {
			m.joined = false
		}
	}
}

func (m *member) join() {
	r := group.Request{Kind: group.Join, Member: m.id, Topics: []string{groupTopic}, SessionTimeout: 3 * time.Second, RebalanceTimeout: 2 * time.Second}
	if m.id == "" {
		m.beats++
		r.NewMember = fmt.Sprintf("m%d-%d", m.n, m.beats)
	}
	m.call(func(c *coordination, reply func(group.Reply)) { c.ask(r, reply) }, func(reply group.Reply, err error) {
		if err != nil {
			m.heed(err)
			return
		}
		m.id, m.generation = reply.Member, reply.Generation
		m.w.checks.told(reply.Generation)
		m.sync()
	})
}

func (m *member) sync() {
	r := group.Request{Kind: group.Sync, Member: m.id, Generation: m.generation}
	var offsets map[int]int64
	m.call(func(c *coordination, reply func(group.Reply)) {
		c.ask(r, func(rep group.Reply) {
			offsets = map[int]int64{}
			for p, o := range c.offsets {
				offsets[p] = o
			}
			reply(rep)
		})
	}, func(reply group.Reply, err error) {
		if err != nil {
			m.heed(err)
			return
		}
		m.positions = map[int]int64{}
		for _, p := range reply.Partitions {
			m.w.checks.owns(m.generation, p.ID, m.id)
			m.positions[p.ID] = offsets[p.ID]
			m.w.checks.resumes(p.ID, offsets[p.ID])
		}
		m.joined = true
	})
}

func (m *member) commit() {
	commits := map[group.Partition]int64{}
	for p := range groupPartitions {
		if _, mine := m.positions[p]; mine {
			m.positions[p]++
			commits[group.Partition{Topic: groupTopic, ID: p}] = m.positions[p]
		}
	}
	if len(commits) == 0 {
		return
	}
	newest := m.w.checks.generation
	generation := m.generation
	r := group.Request{Kind: group.Commit, Member: m.id, Generation: generation, Offsets: commits}
	m.call(func(c *coordination, reply func(group.Reply)) { c.ask(r, reply) }, func(_ group.Reply, err error) {
		if err != nil {
			m.heed(err)
			return
		}
		m.w.checks.commits(generation, newest, commits)
	})
}
