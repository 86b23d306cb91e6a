package group

import (
	"maps"
	"regexp"
	"slices"
	"time"
)

// Consumer is a group in the protocol of KIP-848: the coordinator assigns, each member moves
// towards its part on its own, and nobody waits for everybody. It is a state machine like
// Group, but answers each request at once.
//
// There is a target: what each member is to have, worked out anew in a new epoch whenever
// members, subscriptions or topics change. A member that has more than its target is told to
// give partitions up, and says when it has; one that lacks some is given what nobody else
// holds any more. When nothing is to be given up its epoch becomes the target's. Offsets are
// committed in the member's own epoch.
//
// What it keeps lasts as long as the coordinator: the next one knows no member, and they
// join again. Committed offsets are kept elsewhere.
type Consumer struct {
	opt     ConsumerOptions
	epoch   int32 // of the target
	members map[string]*consumerMember
	topics  Topics         // as they were looked at last
	counts  map[string]int // of topics that somebody subscribes to
}

// ConsumerOptions configure a group. Zero values are Kafka's defaults.
type ConsumerOptions struct {
	Session  time.Duration // who is not heard of for so long is a member no more; 0 is 45 s
	Interval time.Duration // between heartbeats; 0 is 5 s
}

// Topics is what there is to read, at one moment. It never changes.
type Topics interface {
	// Names are the topics' names, sorted; Count is how many partitions one has, 0: there is none.
	Names() []string
	Count(topic string) int
}

// hurry is the interval between the heartbeats of a member that is not where it is to be.
const hurry = 500 * time.Millisecond

// Away is the epoch of a static member that has left for a while.
const Away = -2

type consumerMember struct {
	id, instance, rack string
	client, host       string
	topics             []string // by name
	pattern            string
	matches            *regexp.Regexp
	assignor           string
	patience           time.Duration // to give partitions up

	epoch, previous int32
	subscribed      []string            // topics that there are, sorted
	target          []Partition         // sorted, as the next two
	assigned        []Partition         // what it may read
	revoking        []Partition         // what it was told to give up, and may still read
	changed         bool                // it was not told yet what is assigned
	since           map[Partition]int32 // the epoch in which a partition was assigned

	expires time.Time
	revoked time.Time // until when it must have given up; zero: nothing is to be
}

// ConsumerBeat is a member's heartbeat. Fields that are nil are as they were.
type ConsumerBeat struct {
	Member, Instance, Rack string
	ClientID, Host         string
	Epoch                  int32 // 0 joins, -1 leaves, Away leaves for a while
	Patience               time.Duration
	Topics                 []string
	Pattern                *string
	Assignor               *string
	Owned                  []Partition
}

// ConsumerReply answers a heartbeat.
type ConsumerReply struct {
	Member   string
	Epoch    int32
	Interval time.Duration
	// Assigned is what the member may read; nil: as it was told before.
	Assigned []Partition
}

// NewConsumer returns an empty group.
func NewConsumer(opt ConsumerOptions) *Consumer {
	if opt.Session == 0 {
		opt.Session = 45 * time.Second
	}
	if opt.Interval == 0 {
		opt.Interval = 5 * time.Second
	}
	return &Consumer{opt: opt, members: map[string]*consumerMember{}}
}

// Idle reports whether the group has no members.
func (g *Consumer) Idle() bool { return len(g.members) == 0 }

// Epoch counts how often the target was worked out.
func (g *Consumer) Epoch() int32 { return g.epoch }

// Reconciling is the state of a Consumer some of whose members are not where they are to be.
const Reconciling State = "Reconciling"

// State is where the group is in its life: Empty, Reconciling or Stable.
func (g *Consumer) State() State {
	if len(g.members) == 0 {
		return Empty
	}
	for _, m := range g.members {
		if m.epoch != Away && !m.settled(g.epoch) {
			return Reconciling
		}
	}
	return Stable
}

func (m *consumerMember) settled(epoch int32) bool {
	return m.epoch == epoch && len(m.revoking) == 0 && slices.Equal(m.assigned, m.target)
}

// Beat handles a heartbeat.
//
// Errors: ErrUnknownMember, ErrFencedEpoch (join again), ErrFencedInstance, ErrUnreleasedInstance
// (a static member of that name is still there), ErrFull, *UnknownAssignorError, *PatternError,
// ErrInvalidBeat.
func (g *Consumer) Beat(now time.Time, topics Topics, q ConsumerBeat) (ConsumerReply, error) {
	switch {
	case q.Epoch == -1 || q.Epoch == Away:
		return g.leave(now, topics, q)
	case q.Epoch < 0 || q.Member == "" || q.Epoch == 0 && (q.Topics == nil && q.Pattern == nil || len(q.Owned) > 0 || q.Patience <= 0):
		return ConsumerReply{}, ErrInvalidBeat
	}
	var pattern *regexp.Regexp
	if q.Pattern != nil && *q.Pattern != "" {
		var err error
		if pattern, err = regexp.Compile("^(?:" + *q.Pattern + ")$"); err != nil {
			return ConsumerReply{}, &PatternError{Pattern: *q.Pattern, Err: err}
		}
	}
	if q.Assignor != nil {
		if _, err := serverAssignor(*q.Assignor); err != nil {
			return ConsumerReply{}, err
		}
	}
	m, err := g.find(q)
	if err != nil {
		return ConsumerReply{}, err
	}
	fresh := m == nil
	if fresh {
		if len(g.members) >= MaxMembers {
			return ConsumerReply{}, ErrFull
		}
		m = &consumerMember{id: q.Member, instance: q.Instance}
		g.members[m.id] = m
	}
	m.expires = now.Add(g.opt.Session)
	m.client, m.host = q.ClientID, q.Host
	if q.Epoch == 0 { // it has nothing, whatever it had
		m.revoking, m.revoked, m.changed = nil, time.Time{}, true
		m.epoch, m.previous = 0, 0
	}
	if m.update(q, pattern) || fresh || topics != g.topics {
		g.aim(topics, fresh)
	}
	if q.Owned != nil && len(m.revoking) > 0 && !slices.ContainsFunc(q.Owned, func(p Partition) bool { return has(m.revoking, p) }) {
		m.revoking, m.revoked = nil, time.Time{}
	}
	g.reconcile(now, m)
	r := ConsumerReply{Member: m.id, Epoch: m.epoch, Interval: g.opt.Interval}
	if !m.settled(g.epoch) {
		r.Interval = min(r.Interval, hurry)
	}
	if m.changed || q.Owned != nil && !slices.Equal(sorted(q.Owned), m.assigned) {
		r.Assigned, m.changed = append([]Partition{}, m.assigned...), false
	}
	return r, nil
}

func sorted(ps []Partition) []Partition {
	return slices.SortedFunc(slices.Values(ps), Partition.Compare)
}

func has(ps []Partition, p Partition) bool {
	_, found := slices.BinarySearchFunc(ps, p, Partition.Compare)
	return found
}

func without(ps, others []Partition) (out []Partition) {
	for _, p := range ps {
		if !has(others, p) {
			out = append(out, p)
		}
	}
	return out
}

// find returns the member that a heartbeat is of; nil: it is one to be.
func (g *Consumer) find(q ConsumerBeat) (*consumerMember, error) {
	m := g.members[q.Member]
	if static := g.byInstance(q.Instance); static != nil && static != m {
		switch {
		case q.Epoch != 0:
			return nil, ErrFencedInstance
		case static.epoch != Away:
			return nil, ErrUnreleasedInstance
		}
		delete(g.members, static.id) // it comes back under another id, to what it had
		static.id = q.Member
		g.members[static.id] = static
		return static, nil
	}
	switch {
	case m == nil && q.Epoch == 0:
		return nil, nil
	case m == nil:
		return nil, ErrUnknownMember
	case q.Epoch == 0, q.Epoch == m.epoch:
		return m, nil
	case q.Epoch == m.previous && q.Owned != nil && !slices.ContainsFunc(q.Owned, func(p Partition) bool { return !has(m.assigned, p) && !has(m.revoking, p) }):
		return m, nil // the reply with the new epoch was lost
	}
	return nil, ErrFencedEpoch
}

func (g *Consumer) byInstance(instance string) *consumerMember {
	if instance != "" {
		for _, m := range g.members {
			if m.instance == instance {
				return m
			}
		}
	}
	return nil
}

// update takes in what a member says of itself, and reports whether the target may change.
func (m *consumerMember) update(q ConsumerBeat, pattern *regexp.Regexp) (changed bool) {
	if q.Patience > 0 {
		m.patience = q.Patience
	}
	m.rack = q.Rack
	if q.Topics != nil {
		topics := slices.Compact(slices.Sorted(slices.Values(q.Topics)))
		changed = changed || !slices.Equal(topics, m.topics)
		m.topics = topics
	}
	if q.Pattern != nil && *q.Pattern != m.pattern {
		m.pattern, m.matches, changed = *q.Pattern, pattern, true
	}
	if q.Assignor != nil && *q.Assignor != m.assignor {
		m.assignor, changed = *q.Assignor, true
	}
	return changed
}

// serverAssignor returns the assignor that Kafka calls by a name.
func serverAssignor(name string) (Assignor, error) {
	switch name {
	case "", "uniform":
		return CooperativeSticky, nil
	case "range":
		return Range, nil
	}
	return nil, &UnknownAssignorError{Name: name}
}

// aim works the target out anew, where something has changed that it depends on.
func (g *Consumer) aim(topics Topics, force bool) {
	g.topics = topics
	counts := map[string]int{}
	changed := force
	for _, m := range g.members {
		var now []string
		for _, name := range m.topics {
			if topics.Count(name) > 0 {
				now = append(now, name)
			}
		}
		if m.matches != nil {
			for _, name := range topics.Names() {
				if m.matches.MatchString(name) && topics.Count(name) > 0 {
					now = append(now, name)
				}
			}
			now = slices.Compact(slices.Sorted(slices.Values(now)))
		}
		changed = changed || !slices.Equal(now, m.subscribed)
		m.subscribed = now
		for _, name := range now {
			counts[name] = topics.Count(name)
		}
	}
	changed = changed || !maps.Equal(counts, g.counts)
	if !changed {
		return
	}
	g.counts = counts
	g.epoch++
	var subs []Subscriber
	votes := map[string]int{}
	for _, id := range slices.Sorted(maps.Keys(g.members)) {
		m := g.members[id]
		subs = append(subs, Subscriber{Member: id, Topics: m.subscribed, Owned: m.target})
		votes[m.assignor]++
	}
	assignor, _ := serverAssignor(favourite(votes)) // it was known when it was taken in
	targets := assignor.Assign(subs, counts)
	for id, m := range g.members {
		m.target = sorted(targets[id])
	}
}

// favourite is what most members ask for; of those that ask for nothing in particular there is no vote.
func favourite(votes map[string]int) (best string) {
	for _, name := range slices.Sorted(maps.Keys(votes)) {
		if name != "" && (best == "" || votes[name] > votes[best]) {
			best = name
		}
	}
	return best
}

// reconcile moves a member towards its target.
func (g *Consumer) reconcile(now time.Time, m *consumerMember) {
	if len(m.revoking) > 0 {
		return // it has still to give up
	}
	if give := without(m.assigned, m.target); len(give) > 0 && m.epoch != 0 {
		m.assigned, m.revoking = without(m.assigned, give), give
		m.revoked, m.changed = now.Add(m.patience), true
		return
	}
	held := map[Partition]bool{}
	for _, other := range g.members {
		if other != m {
			for _, p := range other.assigned {
				held[p] = true
			}
			for _, p := range other.revoking {
				held[p] = true
			}
		}
	}
	var next []Partition
	for _, p := range m.target {
		if !held[p] {
			next = append(next, p)
		}
	}
	if !slices.Equal(next, m.assigned) {
		since := map[Partition]int32{}
		for _, p := range next {
			since[p] = g.epoch
			if has(m.assigned, p) {
				since[p] = m.since[p]
			}
		}
		m.assigned, m.since, m.changed = next, since, true
	}
	if m.epoch != g.epoch {
		m.previous, m.epoch = m.epoch, g.epoch
	}
}

func (g *Consumer) leave(now time.Time, topics Topics, q ConsumerBeat) (ConsumerReply, error) {
	m := g.members[q.Member]
	switch static := g.byInstance(q.Instance); {
	case q.Instance != "" && static != nil && static != m:
		return ConsumerReply{}, ErrFencedInstance
	case m == nil:
		return ConsumerReply{}, ErrUnknownMember
	}
	if q.Epoch == Away && m.instance != "" {
		m.epoch, m.revoking, m.revoked = Away, nil, time.Time{}
		m.expires = now.Add(g.opt.Session)
	} else {
		g.remove(topics, m)
	}
	return ConsumerReply{Member: q.Member, Epoch: q.Epoch}, nil
}

func (g *Consumer) remove(topics Topics, m *consumerMember) {
	delete(g.members, m.id)
	g.aim(topics, true)
}

// Tick lets time pass: who was not heard of for too long, or does not give up what it was
// told to, is a member no more.
func (g *Consumer) Tick(now time.Time, topics Topics) {
	for _, id := range slices.Sorted(maps.Keys(g.members)) {
		m := g.members[id]
		if !now.Before(m.expires) || !m.revoked.IsZero() && !now.Before(m.revoked) {
			g.remove(topics, m)
		}
	}
}

// Next is when Tick is due; zero if nothing waits for time to pass.
func (g *Consumer) Next() (next time.Time) {
	for _, m := range g.members {
		for _, t := range []time.Time{m.expires, m.revoked} {
			if !t.IsZero() && (next.IsZero() || t.Before(next)) {
				next = t
			}
		}
	}
	return next
}

// CheckEpoch says whether a member may commit offsets of partitions, or without any ask what was
// committed, in an epoch: its own, or an earlier one in which it had the partitions already
// (KIP-1251). Who is none, with a negative epoch, may while there are none.
//
// Errors: ErrUnknownMember, ErrStaleEpoch.
func (g *Consumer) CheckEpoch(member string, epoch int32, partitions ...Partition) error {
	if member == "" && epoch < 0 {
		if len(g.members) > 0 {
			return ErrUnknownMember
		}
		return nil
	}
	m := g.members[member]
	switch {
	case m == nil:
		return ErrUnknownMember
	case m.epoch == epoch:
		return nil
	case epoch > m.epoch || epoch <= 0 || len(partitions) == 0:
		return ErrStaleEpoch
	}
	for _, p := range partitions {
		if since, held := m.since[p]; !held || epoch < since || !has(m.assigned, p) && !has(m.revoking, p) {
			return ErrStaleEpoch
		}
	}
	return nil
}

// Reads reports whether a member subscribes to a topic.
func (g *Consumer) Reads(topic string) bool {
	for _, m := range g.members {
		if slices.Contains(m.topics, topic) || slices.Contains(m.subscribed, topic) {
			return true
		}
	}
	return false
}

// ConsumerMember describes a member.
type ConsumerMember struct {
	ID, Instance, Rack   string
	ClientID, ClientHost string
	Topics               []string
	Pattern              string
	Epoch                int32
	Assigned, Target     []Partition
}

// Assignor is what most members ask for, by Kafka's name.
func (g *Consumer) Assignor() string {
	votes := map[string]int{}
	for _, m := range g.members {
		votes[m.assignor]++
	}
	if name := favourite(votes); name != "" {
		return name
	}
	return "uniform"
}

// Members describes the members, by id.
func (g *Consumer) Members() []ConsumerMember {
	var out []ConsumerMember
	for _, id := range slices.Sorted(maps.Keys(g.members)) {
		m := g.members[id]
		held := sorted(slices.Concat(m.assigned, m.revoking))
		out = append(out, ConsumerMember{
			ID: id, Instance: m.instance, Rack: m.rack, ClientID: m.client, ClientHost: m.host,
			Topics: m.topics, Pattern: m.pattern, Epoch: m.epoch, Assigned: held, Target: m.target,
		})
	}
	return out
}
