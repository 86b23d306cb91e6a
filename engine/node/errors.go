package node

import (
	"errors"
	"fmt"

	"logbook/engine/commitlog"

	"logbook/engine/replica"
)

// ErrClosed: the node or cluster was closed.
var ErrClosed = errors.New("node: closed; open it again")

// ErrOpening: a replica's log is being opened.
var ErrOpening = errors.New("node: the replica's log is being opened; try again")

// NoReplicaError: a broker holds no replica of a partition.
type NoReplicaError struct {
	Partition Partition
	Broker    BrokerID
}

func (e *NoReplicaError) Error() string {
	return fmt.Sprintf("node: broker %d has no replica of %s; its assignment says who has", e.Broker, e.Partition)
}

// MissingReplicaError: a replica's directory is gone. It is not made anew by itself,
// since an empty log would pass for one that has lost nothing.
type MissingReplicaError struct {
	Partition Partition
	Broker    BrokerID
	Dir       string
}

func (e *MissingReplicaError) Error() string {
	return fmt.Sprintf("node: broker %d: the log of %s in %s is missing; put it back, or fail over and recover the replica to copy it anew", e.Broker, e.Partition, e.Dir)
}

// ReplicationError: a write is on the leader, where it stays, and not on every in-sync
// replica. It may be acknowledged to nobody.
type ReplicationError struct {
	Partition Partition
	Leader    BrokerID
	Offset    int64               // of its first record
	Failed    map[BrokerID]string // who lacks it, and why
	Err       error
}

func (e *ReplicationError) Error() string {
	return fmt.Sprintf("node: %s: %v", e.Partition, e.Err)
}

func (e *ReplicationError) Unwrap() error { return e.Err }

// ReplicaDivergenceError: two replicas hold different records at one offset, or a
// follower is ahead of its leader. Nothing was changed.
type ReplicaDivergenceError struct {
	Partition        Partition
	Leader, Follower BrokerID // or two candidates for leader
	Offset           int64    // the first at which they differ
	Err              error
}

func (e *ReplicaDivergenceError) Error() string {
	return fmt.Sprintf("node: %s: %v", e.Partition, e.Err)
}

func (e *ReplicaDivergenceError) Unwrap() error { return e.Err }

// NotLeaderError: a broker does not lead the partition.
type NotLeaderError struct {
	Partition   Partition
	Broker      BrokerID
	Leader      BrokerID // who does; replica.None: nobody, or this broker does not know
	LeaderEpoch int32
}

func (e *NotLeaderError) Error() string {
	if e.Leader == replica.None {
		return fmt.Sprintf("node: broker %d does not lead %s and knows nobody who does; try again", e.Broker, e.Partition)
	}
	return fmt.Sprintf("node: broker %d does not lead %s; ask broker %d, which leads in epoch %d", e.Broker, e.Partition, e.Leader, e.LeaderEpoch)
}

// CorruptReplicaError: a replica's log is damaged. It cannot lead or follow, and nothing
// of it was changed.
type CorruptReplicaError struct {
	Partition Partition
	Broker    BrokerID
	Err       error // a *commitlog.CorruptionError
}

func (e *CorruptReplicaError) Error() string {
	return fmt.Sprintf("node: broker %d cannot use its log of %s: %v; or, where another replica is in sync, move the directory away and recover the replica to copy it from the leader", e.Broker, e.Partition, e.Err)
}

func (e *CorruptReplicaError) Unwrap() error { return e.Err }

// OpenReplicaError: a replica's log could not be opened, and is not damaged as far as that
// tells: it is open elsewhere, or the system refused.
type OpenReplicaError struct {
	Partition Partition
	Broker    BrokerID
	Err       error
}

func (e *OpenReplicaError) Error() string {
	return fmt.Sprintf("node: broker %d cannot open its log of %s: %v; its records are untouched: see to what is named, and start the broker again", e.Broker, e.Partition, e.Err)
}

func (e *OpenReplicaError) Unwrap() error { return e.Err }

// openError tells damage from what merely kept a log from being opened. Nobody must be
// told to remove what may be the last copy.
func openError(p Partition, broker BrokerID, err error) error {
	if _, damaged := errors.AsType[*commitlog.CorruptionError](err); damaged {
		return &CorruptReplicaError{Partition: p, Broker: broker, Err: err}
	}
	return &OpenReplicaError{Partition: p, Broker: broker, Err: err}
}

// StaleLeaderError: a reader has heard of a later leader epoch than the one in which this
// broker leads.
type StaleLeaderError struct {
	Partition          Partition
	Broker             BrokerID
	LeaderEpoch, Known int32
}

func (e *StaleLeaderError) Error() string {
	return fmt.Sprintf("node: broker %d led %s in epoch %d, and has yet to hear of the one who leads in epoch %d", e.Broker, e.Partition, e.LeaderEpoch, e.Known)
}

// OffsetNotAvailableError: a leader began a moment ago, and has yet to hear from the others which
// records are safe. There may be more to read than it can show.
type OffsetNotAvailableError struct {
	Partition     Partition
	Broker        BrokerID
	HighWatermark int64 // as far as it is known
}

func (e *OffsetNotAvailableError) Error() string {
	return fmt.Sprintf("node: broker %d has just begun to lead %s and has yet to hear how far it can be read beyond offset %d; try again", e.Broker, e.Partition, e.HighWatermark)
}
