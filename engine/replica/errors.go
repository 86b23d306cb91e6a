package replica

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// ErrLeadershipLost: the broker stopped leading while a write waited for its followers.
// The record may survive or not: write it again, or look.
var ErrLeadershipLost = errors.New("replica: the broker lost the leadership while the write waited; it may be stored or not")

// ErrSuperseded: another command, or a change of leader, ended a command.
var ErrSuperseded = errors.New("replica: the command was ended by a later one, or by a change of leader; run it again")

// NotLeaderError: the replica does not take writes.
type NotLeaderError struct {
	Leader      BrokerID // who does, as far as this broker knows; None: nobody
	LeaderEpoch int32
}

func (e *NotLeaderError) Error() string {
	if e.Leader == None {
		return "replica: this broker is not the leader, and there is none"
	}
	return fmt.Sprintf("replica: this broker is not the leader; broker %d is, in epoch %d", e.Leader, e.LeaderEpoch)
}

// ReplicationError: a write is in the leader's log, where it stays, and in-sync replicas
// do not have it. It may be acknowledged to nobody, and a failover may lose it.
type ReplicationError struct {
	Offset int64 // of its first record
	Failed map[BrokerID]string
}

func (e *ReplicationError) Error() string {
	var who []string
	for _, id := range slices.Sorted(maps.Keys(e.Failed)) {
		who = append(who, fmt.Sprintf("broker %d (%s)", id, e.Failed[id]))
	}
	return fmt.Sprintf("replica: offset %d is on the leader only in part: missing on %s; the leader keeps it, catch the others up", e.Offset, strings.Join(who, ", "))
}

// NotEnoughReplicasError: fewer replicas are in sync than a write demands.
type NotEnoughReplicasError struct {
	ISR    []BrokerID
	Min    int
	Stored bool // the record is in the leader's log all the same
}

func (e *NotEnoughReplicasError) Error() string {
	s := fmt.Sprintf("replica: %d in-sync replicas %v, the write wants at least %d", len(e.ISR), e.ISR, e.Min)
	if e.Stored {
		return s + "; the leader keeps it, and it may be acknowledged to nobody"
	}
	return s + "; nothing was stored"
}

// DivergenceError: a follower's log parts from its leader's. Nothing was changed.
type DivergenceError struct {
	Leader, Follower BrokerID
	Offset           int64 // the first at which they differ
	Detail           string
}

func (e *DivergenceError) Error() string {
	return fmt.Sprintf("replica: broker %d parts from its leader, broker %d, at offset %d: %s; nothing was changed, recover the replica to cut it there", e.Follower, e.Leader, e.Offset, e.Detail)
}

// RefusedError: the leader does not serve a follower.
type RefusedError struct {
	By     BrokerID
	Reason Reason
	Detail string
}

func (e *RefusedError) Error() string {
	s := fmt.Sprintf("replica: broker %d refuses: %s", e.By, e.Reason)
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	return s
}

// UnreachableError: contact with a broker is lost.
type UnreachableError struct {
	Broker BrokerID
	Detail string
}

func (e *UnreachableError) Error() string {
	return fmt.Sprintf("replica: broker %d is unreachable: %s", e.Broker, e.Detail)
}
