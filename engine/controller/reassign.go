package controller

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"logbook/engine/metadata"
	"logbook/engine/replica"
)

// A partition moves in two decisions. With the first its replicas are those of before and those
// to come; the new ones copy what there is, and their leader proposes them as in sync. With the
// second, when all that are to stay are in sync, the others are let go. In between it can be taken
// back. Each decision begins a leader epoch, so that who leads counts with the followers that it
// has now.

// ReassignPartition begins to move a partition to brokers, in their order of preference; without
// any it takes back a move that is under way.
//
// Errors: *UnknownPartitionError, *ReassignmentError, ErrNotMoving, *EpochError.
func ReassignPartition(image *metadata.Image, p Partition, target []replica.BrokerID) ([]metadata.Record, error) {
	a, ok := image.Assignment(p)
	if !ok {
		return nil, &UnknownPartitionError{p}
	}
	origin := a.Replicas
	if a.Target != nil {
		origin = a.Origin
	}
	if len(target) == 0 {
		if a.Target == nil {
			return nil, ErrNotMoving
		}
		return settleOn(image, p, a, a.Origin, "none of the replicas that it had is in sync; wait until it has moved")
	}
	if err := checkTarget(image, p, target); err != nil {
		return nil, err
	}
	both := slices.Clone(target)
	for _, id := range origin {
		if !slices.Contains(target, id) {
			both = append(both, id)
		}
	}
	a.Target, a.Origin = target, origin
	// Who was being added and is no more counts no more.
	return placeOn(image, p, a, both, "the only replicas in sync are ones that were being added; wait until it has moved")
}

func checkTarget(image *metadata.Image, p Partition, target []replica.BrokerID) error {
	if n := image.Topic(p.Topic).Replication; len(target) != n {
		return &ReassignmentError{p, fmt.Sprintf("%d brokers are named, and it has %d replicas", len(target), n)}
	}
	for i, id := range target {
		if slices.Contains(target[:i], id) {
			return &ReassignmentError{p, fmt.Sprintf("broker %d is named twice", id)}
		}
		if !image.Stores(id) {
			return &ReassignmentError{p, fmt.Sprintf("there is no broker %d that stores records", id)}
		}
	}
	return nil
}

// settleOn ends a move with some of the replicas.
func settleOn(image *metadata.Image, p Partition, a replica.Assignment, replicas []replica.BrokerID, otherwise string) ([]metadata.Record, error) {
	a.Target, a.Origin = nil, nil
	return placeOn(image, p, a, replicas, otherwise)
}

// placeOn gives a partition other replicas, in a new leader epoch: in sync are those that were, and
// one of them leads. otherwise says why that cannot be where none of them is left.
func placeOn(image *metadata.Image, p Partition, a replica.Assignment, replicas []replica.BrokerID, otherwise string) ([]metadata.Record, error) {
	next, err := ledBy(a, a.Leader)
	if err != nil {
		return nil, err
	}
	next.Replicas = slices.Clone(replicas)
	next.ISR = slices.DeleteFunc(next.ISR, func(id replica.BrokerID) bool { return !slices.Contains(replicas, id) })
	next.Eligible = slices.DeleteFunc(next.Eligible, func(id replica.BrokerID) bool { return !slices.Contains(replicas, id) })
	if next.Leader != replica.None && !slices.Contains(replicas, next.Leader) {
		stay := next
		stay.Eligible = nil // who is in sync, if anybody: a move is no reason to lose what only they have
		next.Leader = successor(image, stay, replica.None)
	}
	if len(next.ISR) == 0 || next.Leader == replica.None && a.Leader != replica.None {
		return nil, &ReassignmentError{p, otherwise}
	}
	return []metadata.Record{assignedIn(image, p, next)}, nil
}

// FinishReassignments ends the moves whose new replicas are all in sync.
func FinishReassignments(image *metadata.Image) ([]metadata.Record, error) {
	var out []metadata.Record
	for p, a := range image.Assignments() {
		if a.Target == nil || slices.ContainsFunc(a.Target, func(id replica.BrokerID) bool { return !slices.Contains(a.ISR, id) }) {
			continue
		}
		records, err := settleOn(image, p, a, a.Target, "")
		if _, later := errors.AsType[*ReassignmentError](err); later {
			continue // none of them can lead yet
		}
		if err != nil {
			return nil, err
		}
		out = append(out, records...)
	}
	return out, nil
}

// Moving reports whether some partition is being moved.
func Moving(image *metadata.Image) bool {
	for _, a := range image.Assignments() {
		if a.Target != nil {
			return true
		}
	}
	return false
}

// Reassign implements Machine: with this controller partitions stay where they are.
func (m *Manual) Reassign(now time.Time, id uint64, _ Partition, _ []replica.BrokerID) []Effect {
	m.begin(now)
	m.emit(Done{ID: id, Err: ErrNoReassignment})
	return m.effects()
}

// Reassign implements Machine: where replicas are is worked out from the topic's name.
func (c *FirstAlive) Reassign(now time.Time, id uint64, _ Partition, _ []replica.BrokerID) []Effect {
	c.begin(now)
	c.emit(Done{ID: id, Err: ErrNoReassignment})
	return c.effects()
}
