package controller

import (
	"slices"

	"logbook/engine/metadata"
	"logbook/engine/replica"
)

// The decisions of a controller that agrees with others, as functions of what was decided
// before: they return the records that are to be agreed on, none where nothing is to change.
// Package quorum sees to it that a majority has them before they count.

// RegisterBroker begins a new life of a broker. It is fenced until it has shown that it knows
// of it. What its earlier life led is led by others, and it counts as in sync nowhere but where
// nobody else does. least is how many replicas should be in sync where a topic does not say, here
// and below.
func RegisterBroker(image *metadata.Image, r metadata.BrokerRecord, least int) ([]metadata.Record, error) {
	r.Fenced = true
	return without(image, r, least)
}

// FenceBroker takes a broker that is not heard of, or is about to stop, out of everything.
func FenceBroker(image *metadata.Image, id replica.BrokerID, least int) ([]metadata.Record, error) {
	r, known := image.Broker(id)
	if !known || r.Fenced {
		return nil, nil
	}
	r.Fenced = true
	return without(image, r, least)
}

func without(image *metadata.Image, r metadata.BrokerRecord, least int) ([]metadata.Record, error) {
	out := []metadata.Record{{Broker: &r}}
	for p, a := range image.Assignments() {
		next, changed, err := leave(image, a, r.ID, minInSync(image, p, least))
		if err != nil {
			return nil, err
		}
		if !changed {
			continue
		}
		if next.Leader == replica.None && image.Topic(p.Topic).Settings.Unclean() {
			next = unclean(image, next, r.ID)
		}
		out = append(out, assignedIn(image, p, next))
	}
	return out, nil
}

// minInSync is how many replicas of a partition should be in sync: no more than there are.
func minInSync(image *metadata.Image, p Partition, least int) int {
	t := image.Topic(p.Topic)
	if n, ok := t.Settings.Number("min.insync.replicas"); ok {
		least = int(n)
	}
	return min(max(1, least), t.Replication)
}

// leave is an assignment without a broker: somebody else that is in sync leads, or somebody that
// is eligible to, and it is in sync no more. Where there are fewer in sync than should be, it stays
// eligible itself. Where nobody can lead, the last in-sync replica stays the one to wait for, beside
// those that are eligible (KIP-966).
func leave(image *metadata.Image, a replica.Assignment, id replica.BrokerID, least int) (next replica.Assignment, changed bool, err error) {
	if a.Leader == replica.None || !slices.Contains(a.ISR, id) {
		return a, false, nil // who leads is in sync
	}
	next = a.Clone()
	next.Version++
	if a.Leader == id {
		next.Leader = successor(image, a, id)
		next.LeaderEpoch, err = NextEpoch(a.LeaderEpoch)
	}
	if next.Leader != replica.None {
		next = shrunk(next, id, least)
	}
	return next, true, err
}

// shrunk is an assignment without a replica among the in-sync ones: the leader is among them, if
// it was one that was eligible. Those who were in sync or eligible stay eligible while there are
// fewer in sync than should be.
func shrunk(a replica.Assignment, id replica.BrokerID, least int) replica.Assignment {
	were := slices.Concat(a.ISR, a.Eligible)
	if !slices.Contains(a.ISR, a.Leader) {
		a.ISR = []replica.BrokerID{a.Leader}
	}
	a.ISR = slices.DeleteFunc(a.ISR, func(o replica.BrokerID) bool { return o == id })
	return withEligible(a, were, least)
}

// withEligible is an assignment in which those are eligible that were, or left the in-sync
// replicas, as long as fewer are in sync than should be.
func withEligible(a replica.Assignment, were []replica.BrokerID, least int) replica.Assignment {
	a.Eligible = nil
	if len(a.ISR) >= least {
		return a
	}
	for _, id := range a.Replicas {
		if slices.Contains(were, id) && !slices.Contains(a.ISR, id) {
			a.Eligible = append(a.Eligible, id)
		}
	}
	return a
}

// successor is the first in-sync replica that can lead, in the order of the assignment, or else
// the first that is eligible.
func successor(image *metadata.Image, a replica.Assignment, not replica.BrokerID) replica.BrokerID {
	for _, among := range [][]replica.BrokerID{a.ISR, a.Eligible} {
		for _, id := range a.Replicas {
			if id != not && slices.Contains(among, id) && image.Usable(id) {
				return id
			}
		}
	}
	return replica.None
}

// unclean is an assignment that nobody leads, led by a replica that was not in sync, if there is
// one that can: its topic's settings prefer a partition without some of its records to none. In
// sync is who leads, and nobody else: all others have to become what it is.
func unclean(image *metadata.Image, a replica.Assignment, not replica.BrokerID) replica.Assignment {
	for _, id := range a.Replicas {
		if id != not && image.Usable(id) {
			a = a.Clone()
			a.Leader, a.ISR, a.Eligible = id, []replica.BrokerID{id}, nil
			return a
		}
	}
	return a
}

// ElectUnclean has a topic's partitions led that nobody leads, where its settings allow that a
// replica leads that was not in sync.
func ElectUnclean(image *metadata.Image, name string) ([]metadata.Record, error) {
	t := image.Topic(name)
	if t == nil || !t.Settings.Unclean() {
		return nil, nil
	}
	var out []metadata.Record
	for i, a := range t.Partitions {
		if a.Leader != replica.None {
			continue
		}
		next, err := ledBy(a, replica.None)
		if err != nil {
			return nil, err
		}
		if next = unclean(image, next, replica.None); next.Leader != replica.None {
			out = append(out, Assigned(t.ID, Partition{Topic: name, ID: i}, next))
		}
	}
	return out, nil
}

// UnfenceBroker lets a broker count again, and lead what nobody but it can. unusable are its
// replicas that it cannot use.
func UnfenceBroker(image *metadata.Image, id replica.BrokerID, unusable []Partition, least int) ([]metadata.Record, error) {
	r, known := image.Broker(id)
	if !known || !r.Fenced {
		return nil, nil
	}
	r.Fenced = false
	out := []metadata.Record{{Broker: &r}}
	for p, a := range image.Assignments() {
		inSync := slices.Contains(a.ISR, id)
		eligible := slices.Contains(a.Eligible, id) && !slices.Contains(unusable, p)
		may := inSync || eligible || image.Topic(p.Topic).Settings.Unclean() && slices.Contains(a.Replicas, id)
		if a.Leader != replica.None || !may {
			continue
		}
		next, err := ledBy(a, id)
		if err != nil {
			return nil, err
		}
		switch {
		case inSync:
		case eligible:
			next = shrunk(next, replica.None, minInSync(image, p, least))
		default:
			next.ISR, next.Eligible = []replica.BrokerID{id}, nil
		}
		out = append(out, assignedIn(image, p, next))
	}
	return out, nil
}

// ledBy is an assignment in the next leader epoch, led by a broker.
func ledBy(a replica.Assignment, id replica.BrokerID) (replica.Assignment, error) {
	epoch, err := NextEpoch(a.LeaderEpoch)
	a = a.Clone()
	a.Version++
	a.Leader, a.LeaderEpoch = id, epoch
	return a, err
}

// GiveUpReplicas takes replicas that a broker cannot use out of the in-sync ones, and has others
// lead. Where it has the last in-sync one nothing changes: that may be the last good copy.
func GiveUpReplicas(image *metadata.Image, id replica.BrokerID, parts []Partition, least int) (out []metadata.Record, err error) {
	for _, p := range parts {
		a, ok := image.Assignment(p)
		if !ok || a.Leader == id && successor(image, a, id) == replica.None {
			continue
		}
		next, changed, err := leave(image, a, id, minInSync(image, p, least))
		if err != nil {
			return nil, err
		}
		if slices.Contains(next.Eligible, id) {
			if !changed {
				next = next.Clone()
				next.Version++
			}
			next.Eligible, changed = slices.DeleteFunc(next.Eligible, func(o replica.BrokerID) bool { return o == id }), true
		}
		if changed {
			out = append(out, assignedIn(image, p, next))
		}
	}
	return out, nil
}

// ChangeISR takes a leader's proposal, made in its own epoch. Members that are fenced, or that
// unfit says more of, are left out of it; where nothing is left of what was proposed, it is refused.
//
// Errors: *UnknownPartitionError, *StaleError, *BrokerError.
func ChangeISR(image *metadata.Image, from replica.BrokerID, p Partition, a replica.Assignment, unfit func(replica.BrokerID) bool, least int) ([]metadata.Record, error) {
	old, err := proposedOn(image, p, a)
	if err != nil {
		return nil, err
	}
	if from != a.Leader {
		return nil, &StaleError{Partition: p, Proposed: a, Present: old}
	}
	proposed := len(a.ISR)
	a = a.Clone()
	a.ISR = slices.DeleteFunc(a.ISR, func(id replica.BrokerID) bool {
		return !slices.Contains(old.ISR, id) && (!image.Usable(id) || unfit(id))
	})
	if len(a.ISR) < proposed && slices.Equal(a.ISR, old.ISR) {
		return nil, &BrokerError{"an in-sync replica cannot be on a broker that is fenced, or cannot use it"}
	}
	a = withEligible(a, slices.Concat(old.ISR, old.Eligible), minInSync(image, p, least))
	return []metadata.Record{assignedIn(image, p, a)}, nil
}

// ElectEligible has partitions led that nobody leads, by replicas that are in sync, or eligible, and
// not unfit.
func ElectEligible(image *metadata.Image, unfit func(replica.BrokerID, Partition) bool, least int) ([]metadata.Record, error) {
	var out []metadata.Record
	for p, a := range image.Assignments() {
		if a.Leader != replica.None {
			continue
		}
		fit := a.Clone()
		fit.ISR = slices.DeleteFunc(fit.ISR, func(id replica.BrokerID) bool { return unfit(id, p) })
		fit.Eligible = slices.DeleteFunc(fit.Eligible, func(id replica.BrokerID) bool { return unfit(id, p) })
		id := successor(image, fit, replica.None)
		if id == replica.None {
			continue
		}
		next, err := ledBy(a, id)
		if err != nil {
			return nil, err
		}
		out = append(out, assignedIn(image, p, shrunk(next, replica.None, minInSync(image, p, least))))
	}
	return out, nil
}

// Settle ends eligibility in a topic's partitions that have as many replicas in sync as they
// should: its settings may have changed how many these are.
func Settle(image *metadata.Image, name string, least int) ([]metadata.Record, error) {
	t := image.Topic(name)
	if t == nil {
		return nil, nil
	}
	var out []metadata.Record
	for i, a := range t.Partitions {
		p := Partition{Topic: name, ID: i}
		if len(a.Eligible) > 0 && len(a.ISR) >= minInSync(image, p, least) {
			next := a.Clone()
			next.Version++
			next.Eligible = nil
			out = append(out, Assigned(t.ID, p, next))
		}
	}
	return out, nil
}

// proposedOn is the decision that a leader's proposal is based on: the present one, of which it
// changes the in-sync replicas alone.
//
// Errors: *UnknownPartitionError, *StaleError.
func proposedOn(image *metadata.Image, p Partition, a replica.Assignment) (replica.Assignment, error) {
	old, ok := image.Assignment(p)
	if !ok {
		return old, &UnknownPartitionError{p}
	}
	if a.Version != old.Version+1 || a.LeaderEpoch != old.LeaderEpoch || a.Leader != old.Leader ||
		!slices.Equal(a.Replicas, old.Replicas) || !slices.Equal(a.Target, old.Target) || !slices.Equal(a.Origin, old.Origin) {
		return old, &StaleError{Partition: p, Proposed: a, Present: old}
	}
	return old, nil
}

// Balance gives partitions back to their preferred leaders, the first of their replicas, where
// these are in sync.
func Balance(image *metadata.Image) ([]metadata.Record, error) {
	var out []metadata.Record
	for p, a := range image.Assignments() {
		first := a.Replicas[0]
		if a.Leader == replica.None || a.Leader == first || !slices.Contains(a.ISR, first) || !image.Usable(first) {
			continue
		}
		next, err := ledBy(a, first)
		if err != nil {
			return nil, err
		}
		out = append(out, assignedIn(image, p, next))
	}
	return out, nil
}

// PlaceAlive places partitions as Place does, from a number on, and has those lead and be in
// sync that are not fenced.
//
// Errors: *BrokerError, *NoEligibleReplicaError.
func PlaceAlive(image *metadata.Image, brokers []replica.BrokerID, name string, from, to, replication int) ([]replica.Assignment, error) {
	// Of a broker that has never been seen it is not known whether it stores anything.
	brokers = slices.DeleteFunc(slices.Clone(brokers), func(id replica.BrokerID) bool {
		r, _ := image.Broker(id)
		return r.Life == 0 || !r.Role.Stores()
	})
	all, err := PlaceInRacks(brokers, to, replication, func(id replica.BrokerID) string {
		r, _ := image.Broker(id)
		return r.Rack
	})
	if err != nil {
		return nil, err
	}
	for i := from; i < to; i++ {
		a := &all[i]
		a.ISR = slices.DeleteFunc(a.ISR, func(id replica.BrokerID) bool { return !image.Usable(id) })
		if a.Leader = successor(image, *a, replica.None); a.Leader == replica.None {
			return nil, &NoEligibleReplicaError{Partition: Partition{Topic: name, ID: i}}
		}
	}
	return all[from:], nil
}

// ReplicasByBroker says which replicas each broker has to make of partitions that are numbered
// from first on. The brokers are in order.
func ReplicasByBroker(first int, placed []replica.Assignment, wanted func(replica.Assignment) []replica.BrokerID) (brokers []replica.BrokerID, parts map[replica.BrokerID][]int) {
	parts = map[replica.BrokerID][]int{}
	for i, a := range placed {
		for _, b := range wanted(a) {
			if parts[b] == nil {
				brokers = append(brokers, b)
			}
			parts[b] = append(parts[b], first+i)
		}
	}
	slices.Sort(brokers)
	return brokers, parts
}
