package broker

import (
	"context"
	"errors"
	"fmt"

	"logbook/engine/cluster"
	"logbook/engine/commitlog"
	"logbook/engine/consumer"
	"logbook/engine/controller"
	"logbook/engine/coordinator"
	"logbook/engine/group"
	"logbook/engine/record"
	"logbook/engine/replica"
	"logbook/engine/topic"
	"logbook/engine/wire"
)

// is reports whether an error is of a type.
func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// WireError turns an error into what a client is told.
func (b *Broker) WireError(err error) *wire.Error {
	if we, ok := errors.AsType[*wire.Error](err); ok {
		return we
	}
	we := &wire.Error{Code: wire.Internal, Message: err.Error()}
	if nl, ok := errors.AsType[*cluster.NotLeaderError](err); ok {
		we.Code, we.Leader, we.Address, we.Epoch = wire.NotLeader, nl.Leader, b.addressOf(nl.Leader), nl.Epoch
		if nl.Leader == b.cfg.ID {
			return &wire.Error{Code: wire.Unavailable, Message: fmt.Sprintf("broker %d is about to lead %s; try again", nl.Leader, nl.Partition)}
		}
		return we
	}
	if nr, ok := errors.AsType[*cluster.NoReplicaError](err); ok {
		a, _ := b.dir.Assignment(nr.Partition)
		we.Code, we.Leader, we.Epoch = wire.NotLeader, a.Leader, a.Epoch
		if a.Leader != replica.None && a.Leader != b.cfg.ID {
			we.Address = b.addressOf(a.Leader)
		}
		return we
	}
	if oor, ok := errors.AsType[*commitlog.OffsetOutOfRangeError](err); ok {
		we.Code, we.Start, we.End = wire.OutOfRange, oor.Start, oor.End
		return we
	}
	if re, ok := errors.AsType[*cluster.ReplicationError](err); ok {
		we.Code, we.Offset = wire.Replication, re.Offset
		return we
	}
	if d, ok := errors.AsType[*controller.DivergenceError](err); ok {
		we.Code, we.Offset = wire.Diverged, d.Offset
		return we
	}
	if d, ok := errors.AsType[*cluster.ReplicaDivergenceError](err); ok {
		we.Code, we.Offset = wire.Diverged, d.Offset
		return we
	}
	we.Code = code(err)
	return we
}

func code(err error) wire.Code {
	switch {
	case is[*replica.NotEnoughReplicasError](err):
		return wire.NotEnough
	case is[*topic.UnknownError](err):
		return wire.UnknownTopic
	case is[*topic.PartitionError](err), is[*controller.UnknownPartitionError](err):
		return wire.UnknownPartition
	case is[*topic.ExistsError](err):
		return wire.TopicExists
	case is[*commitlog.TooLargeError](err):
		return wire.TooLarge
	case is[*topic.NameError](err), is[*record.FrameError](err), is[*controller.BrokerError](err), is[*consumer.NegativeOffsetError](err),
		is[*consumer.CommitBeyondEndError](err), is[*group.AssignorMismatchError](err), is[*group.NotOwnerError](err), errors.Is(err, commitlog.ErrEmptyAppend):
		return wire.BadRequest
	case is[*commitlog.CorruptionError](err), is[*cluster.CorruptReplicaError](err), is[*cluster.MissingReplicaError](err):
		return wire.Damaged
	case is[*consumer.OffsetRegressionError](err):
		return wire.Regression
	case errors.Is(err, group.ErrUnknownMember):
		return wire.UnknownMember
	case errors.Is(err, group.ErrFencedInstance):
		return wire.Fenced
	case errors.Is(err, group.ErrRebalanceInProgress), is[*group.StaleGenerationError](err):
		return wire.Rejoin
	case is[*controller.LeaderStillAvailableError](err):
		return wire.LeaderAvailable
	case is[*controller.NoEligibleReplicaError](err):
		return wire.NoEligible
	case errors.Is(err, cluster.ErrClosed), errors.Is(err, coordinator.ErrClosed), errors.Is(err, replica.ErrLeadershipLost), errors.Is(err, replica.ErrSuperseded),
		errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), is[*commitlog.PoisonedError](err), is[*controller.UnsettledError](err),
		is[*replica.UnreachableError](err), is[*replica.RefusedError](err), is[*cluster.NotSettledError](err):
		return wire.Unavailable
	}
	return wire.Internal
}
