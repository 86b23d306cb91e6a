package controller

import (
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
	t := image.Topic(p.Topic)
	origin := a.Replicas
	if a.Target != nil {
		origin = a.Origin
	}
	if len(target) == 0 {
		if a.Target == nil {
			return nil, ErrNotMoving
		}
		return takeBack(image, t, p, a)
	}
	if err := checkTarget(image, t, p, target); err != nil {
		return nil, err
	}
	next, err := ledBy(a, a.Leader)
	if err != nil {
		return nil, err
	}
	next.Origin, next.Target = slices.Clone(origin), slices.Clone(target)
	next.Replicas = slices.Clone(target)
	for _, id := range origin {
		if !slices.Contains(target, id) {
			next.Replicas = append(next.Replicas, id)
		}
	}
	// Who was being added and is no more counts no more.
	next.ISR = slices.DeleteFunc(next.ISR, func(id replica.BrokerID) bool { return !slices.Contains(next.Replicas, id) })
	if next.Leader != replica.None && !slices.Contains(next.ISR, next.Leader) {
		next.Leader = successor(image, next, replica.None)
	}
	if len(next.ISR) == 0 || next.Leader == replica.None && a.Leader != replica.None {
		return nil, &ReassignmentError{p, "the only replicas in sync are ones that were being added; wait until it has moved"}
	}
	return []metadata.Record{Assigned(t.ID, p, next)}, nil
}

func checkTarget(image *metadata.Image, t *metadata.Topic, p Partition, target []replica.BrokerID) error {
	if len(target) != t.Replication {
		return &ReassignmentError{p, fmt.Sprintf("%d brokers are named, and it has %d replicas", len(target), t.Replication)}
	}
	for i, id := range target {
		if slices.Contains(target[:i], id) {
			return &ReassignmentError{p, fmt.Sprintf("broker %d is named twice", id)}
		}
		if _, known := image.Broker(id); !known {
			return &ReassignmentError{p, fmt.Sprintf("there is no broker %d", id)}
		}
	}
	return nil
}

// takeBack ends a move where it began.
func takeBack(image *metadata.Image, t *metadata.Topic, p Partition, a replica.Assignment) ([]metadata.Record, error) {
	return settleOn(image, t, p, a, a.Origin, "none of the replicas that it had is in sync; wait until it has moved")
}

// settleOn ends a move with some of the replicas.
func settleOn(image *metadata.Image, t *metadata.Topic, p Partition, a replica.Assignment, replicas []replica.BrokerID, otherwise string) ([]metadata.Record, error) {
	next, err := ledBy(a, a.Leader)
	if err != nil {
		return nil, err
	}
	next.Replicas, next.Target, next.Origin = slices.Clone(replicas), nil, nil
	next.ISR = slices.DeleteFunc(next.ISR, func(id replica.BrokerID) bool { return !slices.Contains(replicas, id) })
	if next.Leader != replica.None && !slices.Contains(replicas, next.Leader) {
		next.Leader = successor(image, next, replica.None)
	}
	if len(next.ISR) == 0 || next.Leader == replica.None && a.Leader != replica.None {
		return nil, &ReassignmentError{p, otherwise}
	}
	return []metadata.Record{Assigned(t.ID, p, next)}, nil
}

// FinishReassignments ends the moves whose new replicas are all in sync.
func FinishReassignments(image *metadata.Image) ([]metadata.Record, error) {
	var out []metadata.Record
	err := eachAssignment(image, func(t *metadata.Topic, p Partition, a replica.Assignment) error {
		if a.Target == nil || slices.ContainsFunc(a.Target, func(id replica.BrokerID) bool { return !slices.Contains(a.ISR, id) }) {
			return nil
		}
		records, err := settleOn(image, t, p, a, a.Target, "")
		if _, later := err.(*ReassignmentError); later { //nolint:errorlint // settleOn returns it as it is
			return nil // none of them can lead yet
		}
		out = append(out, records...)
		return err
	})
	return out, err
}

// Moving reports whether some partition is being moved.
func Moving(image *metadata.Image) bool {
	for _, name := range image.Topics() {
		if slices.ContainsFunc(image.Topic(name).Partitions, func(a replica.Assignment) bool { return a.Target != nil }) {
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
