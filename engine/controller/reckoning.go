package controller

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"

	"logbook/engine/replica"
)

// Reckoning is what one broker with the first-alive controller, kafka-lite's, makes of what
// it hears: who leads what. Each broker reckons for itself, and nobody agrees on anything.
//
//   - The replicas of a partition are worked out from the topic's name and the list of
//     brokers, so every broker finds the same.
//   - Whoever leads claims so, with an epoch and the replicas in sync. Of several claims the
//     one counts that more replicas support, and of equals the one with the higher epoch. An
//     in-sync replica supports a claim unless its own log has gone on to a later epoch: a
//     leader that was paused still claims those that left it.
//   - Where nobody who is alive claims a partition, the live replica takes it whose log is
//     newest: who was in sync when somebody led last comes first, then the last epoch
//     counts, then the length, then the place on the list. One whose
//     log is damaged, missing, or refused by its disk leads nothing, and gives up what it led.
//   - A broker is alive until it has failed to answer, a few times in a row. Taking silent
//     ones for dead instead makes every broker a leader of everything while they start:
//     AssumeDead is that mistake, to be looked at.
//
// Two brokers that cannot hear each other may both lead. When they hear each other again,
// one gives up, and what it alone took is lost, acknowledged or not. Epochs of
// different brokers are never equal, so that the logs can be told apart.
//
// It has no I/O, goroutine or clock: hand it what was heard. FirstAlive does that in a broker.
type Reckoning struct {
	id  replica.BrokerID
	opt ReckoningOptions

	brokers   []replica.BrokerID // sorted
	fails     map[replica.BrokerID]int
	heard     map[replica.BrokerID]bool
	alive     map[replica.BrokerID]bool
	leaving   map[replica.BrokerID]bool // about to stop: not to be taken into a set in sync
	claims    map[replica.BrokerID]map[Partition]LeadershipClaim
	standings map[replica.BrokerID]map[Partition]Standing
	seen      map[Partition]int32           // the highest epoch that was heard of
	last      map[Partition]LeadershipClaim // the latest claim that was heard, of whomever
	parts     map[Partition]*replica.Assignment
	order     []Partition // of parts, sorted
	changes   []Decide    // not yet handed out
}

// ReckoningOptions configure it. The zero value is usable.
type ReckoningOptions struct {
	// FailAfter is how many checks in a row a broker must fail to be taken for dead; 0 is 3.
	FailAfter int
	// AssumeDead takes brokers for dead until they were heard. It is a mistake; see above.
	AssumeDead bool
}

// MaxEpoch is the highest leader epoch there can be.
const MaxEpoch = 1 << 30

// NewReckoning returns the reckoning of one broker; brokers is the fixed list of all.
func NewReckoning(id replica.BrokerID, brokers []replica.BrokerID, opt ReckoningOptions) (*Reckoning, error) {
	sorted := slices.Sorted(slices.Values(brokers))
	if !slices.Contains(sorted, id) || len(slices.Compact(slices.Clone(sorted))) != len(sorted) || sorted[0] <= replica.None {
		return nil, &BrokerError{fmt.Sprintf("the list of brokers %v must have each once, positive, and broker %d among them", brokers, id)}
	}
	if opt.FailAfter == 0 {
		opt.FailAfter = 3
	}
	c := &Reckoning{
		id: id, opt: opt, brokers: sorted, fails: map[replica.BrokerID]int{}, heard: map[replica.BrokerID]bool{},
		alive: map[replica.BrokerID]bool{}, leaving: map[replica.BrokerID]bool{}, claims: map[replica.BrokerID]map[Partition]LeadershipClaim{},
		standings: map[replica.BrokerID]map[Partition]Standing{}, seen: map[Partition]int32{}, last: map[Partition]LeadershipClaim{}, parts: map[Partition]*replica.Assignment{},
	}
	for _, b := range sorted {
		c.alive[b] = b == id || !opt.AssumeDead
		c.claims[b], c.standings[b] = map[Partition]LeadershipClaim{}, map[Partition]Standing{}
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
func (c *Reckoning) AddTopic(name string, partitions, replication int, epochs map[int]int32) {
	for i := range partitions {
		p := Partition{Topic: name, ID: i}
		replicas := AssignReplicas(name, i, replication, c.brokers)
		if a := c.parts[p]; a != nil {
			a.Replicas = replicas // another broker's topic may have had others
			continue
		}
		c.seen[p] = max(c.seen[p], epochs[i])
		c.parts[p] = &replica.Assignment{Replicas: replicas}
		at, _ := slices.BinarySearchFunc(c.order, p, Partition.Compare)
		c.order = slices.Insert(c.order, at, p)
	}
	c.reckon()
}

// RemoveTopic forgets a topic that was deleted.
func (c *Reckoning) RemoveTopic(name string) {
	mine := func(p Partition) bool { return p.Topic == name }
	c.order = slices.DeleteFunc(c.order, mine)
	maps.DeleteFunc(c.parts, func(p Partition, _ *replica.Assignment) bool { return mine(p) })
	maps.DeleteFunc(c.seen, func(p Partition, _ int32) bool { return mine(p) })
	maps.DeleteFunc(c.last, func(p Partition, _ LeadershipClaim) bool { return mine(p) })
	for _, id := range c.brokers {
		maps.DeleteFunc(c.claims[id], func(p Partition, _ LeadershipClaim) bool { return mine(p) })
		maps.DeleteFunc(c.standings[id], func(p Partition, _ Standing) bool { return mine(p) })
	}
	c.changes = slices.DeleteFunc(c.changes, func(d Decide) bool { return mine(d.Partition) })
}

// Assignment returns what the broker reckons about a partition.
func (c *Reckoning) Assignment(p Partition) (replica.Assignment, bool) {
	a := c.parts[p]
	if a == nil {
		return replica.Assignment{}, false
	}
	return a.Clone(), true
}

// Changes returns what has changed since it was last called.
func (c *Reckoning) Changes() []Decide {
	out := c.changes
	c.changes = nil
	return out
}

// Claims returns what this broker leads, in order.
func (c *Reckoning) Claims() []LeadershipClaim {
	var out []LeadershipClaim
	for _, claim := range c.claims[c.id] {
		claim.ISR = slices.Clone(c.parts[claim.Partition].ISR)
		out = append(out, claim)
	}
	slices.SortFunc(out, func(a, b LeadershipClaim) int { return a.Partition.Compare(b.Partition) })
	return out
}

// Stands takes in how far a broker's logs have come, this one's own too.
func (c *Reckoning) Stands(broker replica.BrokerID, standings []Standing) {
	if c.standings[broker] == nil {
		return
	}
	all := make(map[Partition]Standing, len(standings))
	for _, s := range standings {
		all[s.Partition] = s
	}
	old := c.standings[broker]
	c.standings[broker] = all
	if broker == c.id {
		c.reckon() // a log that failed leads no more
		return
	}
	for _, p := range c.order {
		if all[p].Unusable && !old[p].Unusable {
			c.drop(broker, p)
		}
	}
}

// drop takes a broker whose log has failed out of the in-sync replicas of what this one
// leads: nobody need wait for it. The leader proposes it again once it follows.
func (c *Reckoning) drop(broker replica.BrokerID, p Partition) {
	a := c.parts[p]
	if a.Leader != c.id || !slices.Contains(a.ISR, broker) {
		return
	}
	next := a.Clone()
	next.ISR = slices.DeleteFunc(next.ISR, func(id replica.BrokerID) bool { return id == broker })
	c.decide(p, a, next)
}

// Leaving takes in whether a broker is about to stop.
func (c *Reckoning) Leaving(broker replica.BrokerID, leaving bool) { c.leaving[broker] = leaving }

// unusable reports whether a broker has said that it cannot use its log.
func (c *Reckoning) unusable(id replica.BrokerID, p Partition) bool {
	return c.standings[id][p].Unusable
}

// Heard takes in a sign of life: peer is alive, and leads what it claims and nothing else.
func (c *Reckoning) Heard(peer replica.BrokerID, claims []LeadershipClaim) {
	if peer == c.id || c.claims[peer] == nil {
		return
	}
	c.fails[peer], c.alive[peer], c.heard[peer] = 0, true, true
	c.claims[peer] = map[Partition]LeadershipClaim{}
	for _, claim := range claims {
		if claim.LeaderEpoch < 1 || claim.LeaderEpoch > MaxEpoch {
			continue // nobody counted so far
		}
		c.claims[peer][claim.Partition] = claim
		c.remember(claim)
		c.seen[claim.Partition] = max(c.seen[claim.Partition], claim.LeaderEpoch)
	}
	c.reckon()
}

// Failed takes in that peer did not answer a check.
func (c *Reckoning) Failed(peer replica.BrokerID) {
	if peer == c.id || c.claims[peer] == nil {
		return
	}
	if c.fails[peer]++; c.fails[peer] >= c.opt.FailAfter {
		c.alive[peer], c.heard[peer] = false, true
		c.claims[peer] = map[Partition]LeadershipClaim{}
	}
	c.reckon()
}

// Answered takes in that peer answers, and claims what it did before.
func (c *Reckoning) Answered(peer replica.BrokerID) { c.fails[peer] = 0 }

// reckon works out who leads what.
func (c *Reckoning) reckon() {
	for _, p := range c.order {
		c.reckonPartition(p, c.parts[p])
	}
}

func (c *Reckoning) reckonPartition(p Partition, a *replica.Assignment) {
	next := *a // its slices are not changed in place
	next.Leader, next.LeaderEpoch = c.claimant(p, a)
	if next.Leader == replica.None {
		next.Leader = c.newest(p, a.Replicas)
	}
	mine := c.claims[c.id]
	switch {
	case next.Leader != c.id:
		delete(mine, p)
		next.ISR = nil // the leader knows
		if next.Leader != replica.None {
			next.ISR = slices.Clone(c.claims[next.Leader][p].ISR)
		}
	case next.LeaderEpoch == 0:
		if !c.informed(a.Replicas) || !c.lead(p, &next) {
			next.Leader, next.ISR = replica.None, nil
			break
		}
		next.ISR = slices.DeleteFunc(c.living(a.Replicas), func(id replica.BrokerID) bool { return c.unusable(id, p) })
	default:
		next.ISR = c.living(a.ISR) // who died counts no more; who comes back is proposed
		if next.LeaderEpoch < c.seen[p] {
			// Somebody led in a higher epoch and gave up: who heard of that must hear of a
			// higher one from here.
			if !c.lead(p, &next) {
				delete(mine, p)
				next.Leader, next.LeaderEpoch, next.ISR = replica.None, 0, nil
			}
		}
	}
	slices.Sort(next.ISR)
	if next.Leader == a.Leader && next.LeaderEpoch == a.LeaderEpoch && slices.Equal(next.ISR, a.ISR) {
		return
	}
	c.decide(p, a, next)
}

// lead claims a partition in a new epoch, if there is one left.
func (c *Reckoning) lead(p Partition, next *replica.Assignment) bool {
	epoch, ok := c.NextEpoch(p)
	if !ok {
		return false
	}
	next.LeaderEpoch = epoch
	c.claims[c.id][p], c.seen[p] = LeadershipClaim{Partition: p, LeaderEpoch: epoch}, epoch
	return true
}

// remember keeps the latest claim of a partition: who was in sync when somebody led last.
func (c *Reckoning) remember(claim LeadershipClaim) {
	if claim.LeaderEpoch >= c.last[claim.Partition].LeaderEpoch && len(claim.ISR) > 0 {
		claim.ISR = slices.Clone(claim.ISR)
		c.last[claim.Partition] = claim
	}
}

// decide makes an assignment the present one.
func (c *Reckoning) decide(p Partition, a *replica.Assignment, next replica.Assignment) {
	if next.Leader == c.id {
		c.remember(LeadershipClaim{Partition: p, LeaderEpoch: next.LeaderEpoch, ISR: next.ISR})
	}
	next.Version = a.Version + 1
	*a = next
	c.changes = append(c.changes, Decide{p, next.Clone()})
}

// claimant returns the living broker whose claim counts.
func (c *Reckoning) claimant(p Partition, a *replica.Assignment) (leader replica.BrokerID, epoch int32) {
	most := 0
	for _, id := range a.Replicas {
		claim := c.claims[id][p]
		if !c.alive[id] || claim.LeaderEpoch == 0 || id == c.id && c.unusable(id, p) {
			continue
		}
		if id == c.id {
			claim.ISR = a.ISR
		}
		n := c.support(p, id, claim)
		if leader == replica.None || n > most || n == most && claim.LeaderEpoch > epoch {
			leader, epoch, most = id, claim.LeaderEpoch, n
		}
	}
	return leader, epoch
}

// support counts the in-sync replicas of a claim whose logs have not gone on without it.
func (c *Reckoning) support(p Partition, leader replica.BrokerID, claim LeadershipClaim) int {
	n := 0
	for _, id := range claim.ISR {
		if id == leader || c.standings[id][p].LastEpoch <= claim.LeaderEpoch && c.claims[id][p].LeaderEpoch <= claim.LeaderEpoch {
			n++
		}
	}
	return n
}

// newest returns the living replica whose log is newest, as far as is known, and of equals
// the first on the list. Who was in sync when somebody led last comes before all others: a
// length that was heard while somebody led is old.
func (c *Reckoning) newest(p Partition, replicas []replica.BrokerID) replica.BrokerID {
	inSync := slices.DeleteFunc(slices.Clone(replicas), func(id replica.BrokerID) bool { return !slices.Contains(c.last[p].ISR, id) })
	if best := c.newestOf(p, inSync); best != replica.None {
		return best
	}
	if slices.ContainsFunc(inSync, func(id replica.BrokerID) bool { return c.alive[id] && c.standings[id][p].Passing }) {
		return replica.None // it has what was acknowledged: better to wait for its disk
	}
	return c.newestOf(p, replicas)
}

func (c *Reckoning) newestOf(p Partition, replicas []replica.BrokerID) replica.BrokerID {
	best := replica.None
	var top Standing
	for _, id := range replicas {
		if !c.alive[id] || c.unusable(id, p) {
			continue
		}
		s, known := c.standings[id][p]
		if !known {
			s.LastEpoch = -1
		}
		if best == replica.None || s.LastEpoch > top.LastEpoch || s.LastEpoch == top.LastEpoch && s.LogEndOffset > top.LogEndOffset {
			best, top = id, s
		}
	}
	return best
}

// informed reports whether each other replica was heard, or is known to be silent: before
// that one of them may lead without our knowing.
func (c *Reckoning) informed(replicas []replica.BrokerID) bool {
	return c.opt.AssumeDead || !slices.ContainsFunc(replicas, func(id replica.BrokerID) bool { return id != c.id && !c.heard[id] })
}

func (c *Reckoning) living(ids []replica.BrokerID) []replica.BrokerID {
	return slices.DeleteFunc(slices.Clone(ids), func(id replica.BrokerID) bool { return !c.alive[id] || c.leaving[id] })
}

// NextEpoch is the lowest epoch above all seen that only this broker may take; false where
// there is none left.
func (c *Reckoning) NextEpoch(p Partition) (int32, bool) {
	n := int64(len(c.brokers))
	i, _ := slices.BinarySearch(c.brokers, c.id)
	epoch := int64(c.seen[p])/n*n + int64(i) + 1
	if epoch <= int64(c.seen[p]) {
		epoch += n
	}
	return int32(epoch), epoch <= MaxEpoch
}

// Propose takes a change of the in-sync replicas from the leader on this broker.
//
// Errors: *UnknownPartitionError, *StaleError, *BrokerError.
func (c *Reckoning) Propose(p Partition, a replica.Assignment) error {
	now := c.parts[p]
	if now == nil {
		return &UnknownPartitionError{p}
	}
	if a.Leader != c.id || a.Version != now.Version+1 || a.LeaderEpoch != now.LeaderEpoch || now.Leader != c.id {
		return &StaleError{Partition: p, Proposed: a, Present: now.Clone()}
	}
	next := now.Clone()
	if next.ISR = c.living(a.ISR); slices.Equal(next.ISR, now.ISR) {
		// The leader would propose it again at once, and so on without end.
		return &BrokerError{fmt.Sprintf("of %v only %v are alive, as they are in sync now", a.ISR, next.ISR)}
	}
	c.decide(p, now, next)
	return nil
}
