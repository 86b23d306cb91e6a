package controller

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"sync"

	"logbook/engine/replica"
)

// FirstAlive is kafka-lite's controller: there is none. Each broker reckons for itself
// who leads, from what it hears of the others, and nobody agrees on anything.
//
//   - The replicas of a partition are worked out from the topic's name and the list of
//     brokers, so every broker finds the same.
//   - Whoever leads claims so, with an epoch and the replicas in sync; of several claims the
//     one with more of these counts, and of equals the higher epoch.
//     A broker that comes back finds the claim of the one that took its place, and follows.
//   - Where nobody who is alive claims a partition, the first live replica takes it.
//   - A broker is alive until it has failed to answer, a few times in a row. Taking silent
//     ones for dead instead makes every broker a leader of everything while they start:
//     AssumeDead is that mistake, to be looked at.
//
// Two brokers that cannot hear each other may both lead. When they hear each other again,
// one gives up, and what it alone took is lost, acknowledged or not. Epochs of
// different brokers are never equal, so that the logs can be told apart.
//
// It has no I/O, goroutine or clock: hand it what was heard. It is safe for concurrent use.
type FirstAlive struct {
	id  replica.BrokerID
	opt FirstAliveOptions

	mu      sync.Mutex
	brokers []replica.BrokerID // sorted
	fails   map[replica.BrokerID]int
	heard   map[replica.BrokerID]bool
	alive   map[replica.BrokerID]bool
	claims  map[replica.BrokerID]map[Partition]Claim
	seen    map[Partition]int32 // the highest epoch that was heard of
	topics  map[string]Topic
	told    []func(Partition, replica.Assignment)
	queue   []change
	telling bool
}

type change struct {
	p Partition
	a replica.Assignment
}

// FirstAliveOptions configure it. The zero value is usable.
type FirstAliveOptions struct {
	// FailAfter is how many checks in a row a broker must fail to be taken for dead; 0 is 3.
	FailAfter int
	// AssumeDead takes brokers for dead until they were heard. It is a mistake; see above.
	AssumeDead bool
}

// Claim says that a broker leads a partition, in an epoch.
type Claim struct {
	Partition Partition
	Epoch     int32
	Active    []replica.BrokerID // the replicas that it takes for in-sync
}

// NewFirstAlive returns the controller of one broker; brokers is the fixed list of all.
func NewFirstAlive(id replica.BrokerID, brokers []replica.BrokerID, opt FirstAliveOptions) (*FirstAlive, error) {
	sorted := slices.Sorted(slices.Values(brokers))
	if !slices.Contains(sorted, id) || len(slices.Compact(slices.Clone(sorted))) != len(sorted) || sorted[0] <= replica.None {
		return nil, &BrokerError{fmt.Sprintf("the list of brokers %v must have each once, positive, and broker %d among them", brokers, id)}
	}
	if opt.FailAfter == 0 {
		opt.FailAfter = 3
	}
	c := &FirstAlive{
		id: id, opt: opt, brokers: sorted, fails: map[replica.BrokerID]int{}, heard: map[replica.BrokerID]bool{},
		alive: map[replica.BrokerID]bool{id: true}, claims: map[replica.BrokerID]map[Partition]Claim{id: {}},
		seen: map[Partition]int32{}, topics: map[string]Topic{},
	}
	for _, b := range sorted {
		if b != id {
			c.alive[b] = !opt.AssumeDead
			c.claims[b] = map[Partition]Claim{}
		}
	}
	return c, nil
}

// AssignReplicas works out the replicas of a partition, the preferred leader first:
// FNV-1a of the topic plus the partition, round the list of brokers.
func AssignReplicas(topic string, partition, replication int, brokers []replica.BrokerID) []replica.BrokerID {
	h := fnv.New32a()
	h.Write([]byte(topic))
	start := (uint64(h.Sum32()) + uint64(partition)) % uint64(len(brokers))
	out := make([]replica.BrokerID, min(replication, len(brokers)))
	for i := range out {
		out[i] = brokers[(start+uint64(i))%uint64(len(brokers))]
	}
	return out
}

// AddTopic makes a topic known. epochs gives the last leader epoch in this broker's log of
// each partition, where it has one, so that a new one is higher.
func (c *FirstAlive) AddTopic(name string, partitions, replication int, router string, epochs map[int]int32) {
	c.mu.Lock()
	defer c.unlock()
	if _, ok := c.topics[name]; ok {
		return
	}
	t := Topic{Router: router, Replication: min(replication, len(c.brokers))}
	for i := range partitions {
		c.seen[Partition{name, i}] = epochs[i]
		t.Partitions = append(t.Partitions, replica.Assignment{Replicas: AssignReplicas(name, i, replication, c.brokers)})
	}
	c.topics[name] = t
	c.reckon()
}

// Topics returns what is known, as a copy.
func (c *FirstAlive) Topics() map[string]Topic {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Meta{Topics: c.topics}.clone().Topics
}

// Topic returns what is known of a topic, as a copy.
func (c *FirstAlive) Topic(name string) (Topic, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t, ok := c.topics[name]
	return t.clone(), ok
}

// Brokers returns the list of brokers, and who is taken to be alive.
func (c *FirstAlive) Brokers() (all []replica.BrokerID, alive map[replica.BrokerID]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.brokers), maps.Clone(c.alive)
}

// Claims returns what this broker leads, in order.
func (c *FirstAlive) Claims() []Claim {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []Claim
	for p, claim := range c.claims[c.id] {
		claim.Active = slices.Clone(c.topics[p.Topic].Partitions[p.ID].Active)
		out = append(out, claim)
	}
	slices.SortFunc(out, func(a, b Claim) int { return a.Partition.Compare(b.Partition) })
	return out
}

// Heard takes in a sign of life: peer is alive, and leads what it claims and nothing else.
func (c *FirstAlive) Heard(peer replica.BrokerID, claims []Claim) {
	c.mu.Lock()
	defer c.unlock()
	if peer == c.id || !slices.Contains(c.brokers, peer) {
		return
	}
	c.fails[peer], c.alive[peer], c.heard[peer] = 0, true, true
	c.claims[peer] = map[Partition]Claim{}
	for _, claim := range claims {
		c.claims[peer][claim.Partition] = claim
		c.seen[claim.Partition] = max(c.seen[claim.Partition], claim.Epoch)
	}
	c.reckon()
}

// Failed takes in that peer did not answer a check.
func (c *FirstAlive) Failed(peer replica.BrokerID) {
	c.mu.Lock()
	defer c.unlock()
	if peer == c.id || !slices.Contains(c.brokers, peer) {
		return
	}
	if c.fails[peer]++; c.fails[peer] >= c.opt.FailAfter {
		c.alive[peer], c.heard[peer] = false, true
		c.claims[peer] = map[Partition]Claim{}
	}
	c.reckon()
}

// reckon works out who leads what. c.mu is held.
func (c *FirstAlive) reckon() {
	for _, name := range slices.Sorted(maps.Keys(c.topics)) {
		for i := range c.topics[name].Partitions {
			c.reckonPartition(Partition{name, i}, &c.topics[name].Partitions[i])
		}
	}
}

func (c *FirstAlive) reckonPartition(p Partition, a *replica.Assignment) {
	next := a.Clone()
	next.Leader, next.Epoch = c.claimant(p, a)
	if next.Leader == replica.None {
		next.Leader = c.first(a.Replicas)
	}
	mine := c.claims[c.id]
	switch {
	case next.Leader != c.id:
		delete(mine, p)
		next.Active = nil // the leader knows
		if next.Leader != replica.None {
			next.Active = slices.Clone(c.claims[next.Leader][p].Active)
		}
	case next.Epoch == 0:
		if !c.informed(a.Replicas) {
			next.Leader, next.Active = replica.None, nil
			break
		}
		next.Epoch = c.nextEpoch(p)
		mine[p], c.seen[p] = Claim{Partition: p, Epoch: next.Epoch}, next.Epoch
		next.Active = c.living(a.Replicas)
	default:
		next.Active = c.living(a.Active) // who died counts no more; who comes back is proposed
		if next.Epoch < c.seen[p] {
			// Somebody led in a higher epoch and gave up: who heard of that must hear of a
			// higher one from here.
			next.Epoch = c.nextEpoch(p)
			mine[p], c.seen[p] = Claim{Partition: p, Epoch: next.Epoch}, next.Epoch
		}
	}
	slices.Sort(next.Active)
	if next.Leader == a.Leader && next.Epoch == a.Epoch && slices.Equal(next.Active, a.Active) {
		return
	}
	c.decide(p, a, next)
}

// decide makes an assignment the present one. c.mu is held.
func (c *FirstAlive) decide(p Partition, a *replica.Assignment, next replica.Assignment) {
	next.Version = a.Version + 1
	*a = next
	c.queue = append(c.queue, change{p, next.Clone()})
}

// claimant returns the living broker whose claim counts: that with most replicas in sync,
// and of equals the one with the higher epoch. A broker that was cut off and led nobody but
// itself must not overrule those who went on without it.
func (c *FirstAlive) claimant(p Partition, a *replica.Assignment) (leader replica.BrokerID, epoch int32) {
	most := 0
	for _, id := range a.Replicas {
		claim := c.claims[id][p]
		n := len(claim.Active)
		if id == c.id {
			n = len(a.Active)
		}
		if c.alive[id] && claim.Epoch > 0 && (n > most || n == most && claim.Epoch > epoch || leader == replica.None) {
			leader, epoch, most = id, claim.Epoch, n
		}
	}
	return leader, epoch
}

func (c *FirstAlive) first(replicas []replica.BrokerID) replica.BrokerID {
	for _, id := range replicas {
		if c.alive[id] {
			return id
		}
	}
	return replica.None
}

// informed reports whether each other replica was heard, or is known to be silent: before
// that one of them may lead without our knowing.
func (c *FirstAlive) informed(replicas []replica.BrokerID) bool {
	return c.opt.AssumeDead || !slices.ContainsFunc(replicas, func(id replica.BrokerID) bool { return id != c.id && !c.heard[id] })
}

func (c *FirstAlive) living(ids []replica.BrokerID) []replica.BrokerID {
	return slices.DeleteFunc(slices.Clone(ids), func(id replica.BrokerID) bool { return !c.alive[id] })
}

// nextEpoch is the lowest epoch above all seen that only this broker may take.
func (c *FirstAlive) nextEpoch(p Partition) int32 {
	n := int32(len(c.brokers))
	i, _ := slices.BinarySearch(c.brokers, c.id)
	epoch := c.seen[p]/n*n + int32(i) + 1
	for epoch <= c.seen[p] {
		epoch += n
	}
	return epoch
}

// Assignment implements Controller.
func (c *FirstAlive) Assignment(p Partition) (replica.Assignment, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t, ok := c.topics[p.Topic]
	if !ok || p.ID < 0 || p.ID >= len(t.Partitions) {
		return replica.Assignment{}, false
	}
	return t.Partitions[p.ID].Clone(), true
}

// Watch implements Controller.
func (c *FirstAlive) Watch(f func(Partition, replica.Assignment)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told = append(c.told, f)
}

// Propose implements Controller: the leader on this broker says who is active.
func (c *FirstAlive) Propose(p Partition, a replica.Assignment) error {
	c.mu.Lock()
	defer c.unlock()
	t, ok := c.topics[p.Topic]
	if !ok || p.ID < 0 || p.ID >= len(t.Partitions) {
		return &UnknownPartitionError{p}
	}
	now := &t.Partitions[p.ID]
	if a.Leader != c.id || a.Version != now.Version+1 || a.Epoch != now.Epoch || now.Leader != c.id {
		return &StaleError{Partition: p, Proposed: a, Present: now.Clone()}
	}
	next := now.Clone()
	if next.Active = c.living(a.Active); slices.Equal(next.Active, now.Active) {
		// The leader would propose it again at once, and so on without end.
		return &BrokerError{fmt.Sprintf("of %v only %v are alive, as they are active now", a.Active, next.Active)}
	}
	c.decide(p, now, next)
	return nil
}

// unlock releases c.mu and tells the watchers what changed, in order.
func (c *FirstAlive) unlock() {
	for len(c.queue) > 0 && !c.telling {
		c.telling = true
		next := c.queue[0]
		c.queue = c.queue[1:]
		told := c.told
		c.mu.Unlock()
		for _, f := range told {
			f(next.p, next.a)
		}
		c.mu.Lock()
		c.telling = false
	}
	c.mu.Unlock()
}
