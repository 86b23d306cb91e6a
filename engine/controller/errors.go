package controller

import (
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
	return fmt.Sprintf("controller: no replica of %s can replace leader %d: %s; bring one of the active replicas back", e.Partition, e.Leader, strings.Join(why, ", "))
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
	return fmt.Sprintf("controller: a change of %s to version %d of epoch %d is refused: version %d of epoch %d stands", e.Partition, e.Proposed.Version, e.Proposed.Epoch, e.Present.Version, e.Present.Epoch)
}

// MetadataError: cluster.meta is damaged or contradicts itself. It was not changed.
type MetadataError struct {
	File   string
	Reason string
	Err    error
}

func (e *MetadataError) Error() string {
	s := "controller: " + e.File + " " + e.Reason
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s + "; nothing was changed: restore it from a backup"
}

func (e *MetadataError) Unwrap() error { return e.Err }

// UnsettledError: a write of cluster.meta failed in such a way that nobody knows which
// content a restart would find, and putting the old one back failed too. The next change
// tries again.
type UnsettledError struct {
	File string
	Err  error
}

func (e *UnsettledError) Error() string {
	return fmt.Sprintf("controller: writing %s failed, and it is not known what it holds now: %v; repair the disk and try again", e.File, e.Err)
}

func (e *UnsettledError) Unwrap() error { return e.Err }

// BrokerError: a broker is not there, or there are too few.
type BrokerError struct{ Reason string }

func (e *BrokerError) Error() string { return "controller: " + e.Reason }
