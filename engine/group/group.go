package group

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// State is where a group is in its life.
type State string

const (
	Empty     State = "Empty"     // no members; generation and offsets are kept
	Preparing State = "Preparing" // members are joining the next generation
	Stable    State = "Stable"    // every member's partitions are decided
)

// Request is what a member asks. ID is the driver's, to match the Reply.
type Request struct {
	ID         uint64
	Kind       Kind
	Member     string // "" in the first join
	Instance   string // static member: the same across restarts; "": dynamic
	Generation int32  // all but joins and leaves

	// Joins.
	NewMember        string // id to give a member that has none; the driver makes it unique
	Topics           []string
	Assignor         string // "" is round robin
	SessionTimeout   time.Duration
	RebalanceTimeout time.Duration
	Owned            []Partition // cooperative: what the member still has

	// Commits.
	Offsets map[Partition]int64
}

// Kind is a kind of request.
type Kind string

const (
	Join      Kind = "join"      // become part of the next generation
	Sync      Kind = "sync"      // fetch one's partitions
	Heartbeat Kind = "heartbeat" // stay, and hear of rebalances
	Leave     Kind = "leave"
	Commit    Kind = "commit" // store offsets
)

// Reply answers a request.
type Reply struct {
	ID         uint64
	Err        error
	Member     string
	Generation int32
	Partitions []Partition // of a sync, in order
}

// Output is what a step leads to. See the package comment for what to do with it.
type Output struct {
	Save    bool
	Commits map[Partition]int64
	Replies []Reply
}

// Limits on what members may ask for.
const (
	MinSessionTimeout     = 10 * time.Millisecond
	MaxSessionTimeout     = 30 * time.Minute
	DefaultSessionTimeout = 10 * time.Second
)

// Group is one group's state.
type Group struct {
	name       string
	state      State
	generation int32
	assignor   Assignor
	counts     map[string]int // partitions of each topic that exists
	members    map[string]*member
	deadline   time.Time // of the rebalance, while Preparing
	followUp   bool      // cooperative: partitions were withheld, another rebalance must come
	soonest    time.Time // no session ends before
	out        *Output
}

// member is one member's state.
type member struct {
	id, instance     string
	topics           []string
	session, patient time.Duration // session and rebalance timeout
	expires          time.Time     // of the session
	joined           bool          // for the coming generation
	waiting          *Request      // its join, unanswered
	synced           bool          // has fetched this generation's partitions
	owned            []Partition   // as claimed in its join
	partitions       []Partition   // of this generation
}

// New returns an empty group. counts gives the partition count of each topic; see SetCounts.
func New(name string, counts map[string]int) *Group {
	return &Group{name: name, state: Empty, counts: maps.Clone(counts), members: map[string]*member{}}
}

// Name, State and Generation describe the group.
func (g *Group) Name() string      { return g.name }
func (g *Group) State() State      { return g.state }
func (g *Group) Generation() int32 { return g.generation }

// Counts returns the partition counts that the group knows of.
func (g *Group) Counts() map[string]int {
	if g.counts == nil {
		return map[string]int{}
	}
	return maps.Clone(g.counts)
}

// Assignment returns each member's partitions in this generation.
func (g *Group) Assignment() map[string][]Partition {
	out := map[string][]Partition{}
	for id, m := range g.members {
		out[id] = slices.Clone(m.partitions)
	}
	return out
}

// Step handles a request.
func (g *Group) Step(now time.Time, r Request) Output {
	g.out = &Output{}
	g.expire(now)
	switch r.Kind {
	case Join:
		g.join(now, r)
	case Sync:
		g.sync(now, r)
	case Heartbeat:
		if m := g.admit(now, r); m != nil {
			g.reply(r, Reply{Member: m.id, Generation: g.generation})
		}
	case Leave:
		g.leave(now, r)
	case Commit:
		g.commit(now, r)
	default:
		g.reply(r, Reply{Err: fmt.Errorf("group: unknown request %q", r.Kind)})
	}
	return g.finish(now)
}

// Tick handles the passing of time: sessions that expire, rebalances whose time is up.
func (g *Group) Tick(now time.Time) Output {
	g.out = &Output{}
	g.expire(now)
	return g.finish(now)
}

// SetCounts tells the group of topics that were made or removed. Members whose
// partitions change are rebalanced.
func (g *Group) SetCounts(now time.Time, counts map[string]int) Output {
	g.out = &Output{}
	changed := false
	for _, m := range g.members {
		for _, t := range m.topics {
			changed = changed || g.counts[t] != counts[t]
		}
	}
	if g.counts = maps.Clone(counts); changed {
		g.prepare(now)
	}
	return g.finish(now)
}

// Next is when Tick is due; the zero time when nothing is.
func (g *Group) Next() time.Time {
	var next time.Time
	consider := func(t time.Time) {
		if next.IsZero() || t.Before(next) {
			next = t
		}
	}
	if g.state == Preparing || g.followUp {
		consider(g.deadline)
	}
	for _, m := range g.members {
		if m.waiting == nil {
			consider(m.expires)
		}
	}
	return next
}

func (g *Group) reply(r Request, reply Reply) {
	reply.ID = r.ID
	g.out.Replies = append(g.out.Replies, reply)
}

func (g *Group) refuse(r Request, err error) { g.reply(r, Reply{Err: err}) }

// find returns the member that a request comes from, or refuses it.
func (g *Group) find(r Request) *member {
	if r.Instance != "" {
		if holder := g.byInstance(r.Instance); holder != nil && holder.id != r.Member {
			g.refuse(r, ErrFencedInstance)
			return nil
		}
	}
	m := g.members[r.Member]
	if m == nil {
		g.refuse(r, ErrUnknownMember)
	}
	return m
}

// admit is find, for requests that belong to a generation, and that keep a session alive.
func (g *Group) admit(now time.Time, r Request) *member {
	m := g.find(r)
	switch {
	case m == nil:
		return nil
	case r.Generation != g.generation:
		g.refuse(r, &StaleGenerationError{Member: m.id, Got: r.Generation, Current: g.generation})
		return nil
	}
	g.extend(now, m)
	if g.state == Preparing && r.Kind != Commit {
		g.refuse(r, ErrRebalanceInProgress)
		return nil
	}
	return m
}

func (g *Group) byInstance(instance string) *member {
	for _, m := range g.members {
		if m.instance == instance {
			return m
		}
	}
	return nil
}

func (g *Group) sync(now time.Time, r Request) {
	m := g.admit(now, r)
	if m == nil {
		return
	}
	m.synced = true
	g.reply(r, Reply{Member: m.id, Generation: g.generation, Partitions: slices.Clone(m.partitions)})
}

func (g *Group) leave(now time.Time, r Request) {
	if m := g.find(r); m != nil {
		g.remove(now, m)
		g.reply(r, Reply{Member: m.id, Generation: g.generation})
	}
}

func (g *Group) commit(now time.Time, r Request) {
	m := g.admit(now, r)
	if m == nil {
		return
	}
	for p := range r.Offsets {
		if !slices.Contains(m.partitions, p) {
			g.refuse(r, &NotOwnerError{Member: m.id, Partition: p})
			return
		}
	}
	g.out.Commits = maps.Clone(r.Offsets)
	g.reply(r, Reply{Member: m.id, Generation: g.generation})
}

// sortedMembers returns the members in order of their ids.
func (g *Group) sortedMembers() []*member {
	var out []*member
	for _, id := range slices.Sorted(maps.Keys(g.members)) {
		out = append(out, g.members[id])
	}
	return out
}
