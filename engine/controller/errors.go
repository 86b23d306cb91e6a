package controller

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"logbook/engine/replica"
)

// LeaderStillAvailableError: a failover was asked for, and the leader can lead. Failover
// replaces a leader that failed; it does not move leadership about.
type LeaderStillAvailableError struct {
	Partition Partition
	Leader    replica.BrokerID
}

func (e *LeaderStillAvailableError) Error() string {
	return fmt.Sprintf("controller: broker %d still leads %s; stop it first, failover is for a leader that is gone", e.Leader, e.Partition)
}

// NoEligibleReplicaError: nobody can take the lead without losing acknowledged records.
// The partition keeps its recorded leader.
type NoEligibleReplicaError struct {
	Partition Partition
	Leader    replica.BrokerID
	Reasons   map[replica.BrokerID]string // why each other replica cannot
}

func (e *NoEligibleReplicaError) Error() string {
	var why []string
	for _, id := range slices.Sorted(maps.Keys(e.Reasons)) {
		why = append(why, fmt.Sprintf("broker %d (%s)", id, e.Reasons[id]))
	}
	if len(why) == 0 {
		why = []string{"it has no other replica"}
	}
	return fmt.Sprintf("controller: no replica of %s can replace leader %d: %s; bring one of the in-sync replicas back", e.Partition, e.Leader, strings.Join(why, ", "))
}

// DivergenceError: two candidates hold different records at one offset, so there is no
// telling which history is the true one. Nothing was changed.
type DivergenceError struct {
	Partition     Partition
	First, Second replica.BrokerID
	Offset        int64 // the first at which they differ
}

func (e *DivergenceError) Error() string {
	return fmt.Sprintf("controller: brokers %d and %d hold different records of %s at offset %d; nothing was changed: inspect both logs and stop the one that is wrong", e.First, e.Second, e.Partition, e.Offset)
}

// UnknownPartitionError: there is no such topic or partition.
type UnknownPartitionError struct{ Partition Partition }

func (e *UnknownPartitionError) Error() string {
	return fmt.Sprintf("controller: there is no partition %s; create its topic first", e.Partition)
}

// StaleError: a proposal is based on a decision that was replaced.
type StaleError struct {
	Partition Partition
	Proposed  replica.Assignment
	Present   replica.Assignment
}

func (e *StaleError) Error() string {
	return fmt.Sprintf("controller: a change of %s to version %d of epoch %d is refused: version %d of epoch %d stands", e.Partition, e.Proposed.Version, e.Proposed.LeaderEpoch, e.Present.Version, e.Present.LeaderEpoch)
}

// ReassignmentError: a partition cannot be moved as it was asked for.
type ReassignmentError struct {
	Partition Partition
	Reason    string
}

func (e *ReassignmentError) Error() string {
	return fmt.Sprintf("controller: %s cannot be moved so: %s", e.Partition, e.Reason)
}

// ErrNotMoving: a partition that is not being moved cannot be taken back.
var ErrNotMoving = errors.New("controller: the partition is not being moved")

// ErrNoReassignment: this kind of controller does not move partitions.
var ErrNoReassignment = errors.New("controller: partitions are moved by the quorum controller only")

// EpochError: leader epochs have come to the end of their numbers.
type EpochError struct{ Epoch int32 }

func (e *EpochError) Error() string {
	return fmt.Sprintf("controller: there is no leader epoch after %d; a number so high was not counted to: look for a broker that says what is not so", e.Epoch)
}

// UnreachableError: a broker did not answer.
type UnreachableError struct {
	Broker replica.BrokerID
	Why    string
}

func (e *UnreachableError) Error() string {
	return fmt.Sprintf("controller: broker %d cannot be reached: %s", e.Broker, e.Why)
}

// BrokerError: a broker is not there, or there are too few.
type BrokerError struct{ Reason string }

func (e *BrokerError) Error() string { return "controller: " + e.Reason }

// BusyError: a topic is being made or changed at the moment.
type BusyError struct{ Topic string }

func (e *BusyError) Error() string {
	return fmt.Sprintf("controller: topic %q is being changed; try again", e.Topic)
}

// NoControllerError: this broker is not the active controller, which takes commands.
type NoControllerError struct {
	Known replica.BrokerID // which broker is; None: none is known at the moment
}

func (e *NoControllerError) Error() string {
	if e.Known == replica.None {
		return "controller: no controller is active at the moment: fewer than half of the brokers can reach each other, or one is being elected; try again"
	}
	return fmt.Sprintf("controller: broker %d is the active controller: ask it", e.Known)
}

// UnsureError: the controller stopped being the active one before it was known whether a
// decision counts, or it took too long.
type UnsureError struct{}

func (e *UnsureError) Error() string {
	return "controller: it is not known yet whether the decision counts: another controller took over, or most of the brokers did not store it in time; look, and try again"
}
