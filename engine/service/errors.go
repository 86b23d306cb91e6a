package service

import (
	"context"
	"errors"
	"fmt"

	"logbook/engine/commitlog"
	"logbook/engine/consumer"
	"logbook/engine/controller"
	"logbook/engine/failure"
	"logbook/engine/group"
	"logbook/engine/metadata"
	"logbook/engine/node"
	"logbook/engine/record"
	"logbook/engine/replica"
	"logbook/engine/topic"
)

// Error, Code and the codes are package failure's.
type (
	Error = failure.Error
	Code  = failure.Code
)

// The codes of package failure, for who uses the service.
const (
	NotLeader        = failure.NotLeader
	NotCoordinator   = failure.NotCoordinator
	UnknownTopic     = failure.UnknownTopic
	UnknownPartition = failure.UnknownPartition
	TopicExists      = failure.TopicExists
	BadRequest       = failure.BadRequest
	TooLarge         = failure.TooLarge
	OutOfRange       = failure.OutOfRange
	Replication      = failure.Replication
	NotEnough        = failure.NotEnough
	Unavailable      = failure.Unavailable
	Damaged          = failure.Damaged
	Unauthorized     = failure.Unauthorized
	Rejoin           = failure.Rejoin
	UnknownMember    = failure.UnknownMember
	Fenced           = failure.Fenced
	Regression       = failure.Regression
	LeaderAvailable  = failure.LeaderAvailable
	NoEligible       = failure.NoEligible
	Diverged         = failure.Diverged
	Internal         = failure.Internal
)

func badRequest(format string, args ...any) *Error {
	return &Error{Code: BadRequest, Message: fmt.Sprintf(format, args...)}
}

func unavailable(format string, args ...any) *Error {
	return &Error{Code: Unavailable, Message: fmt.Sprintf(format, args...)}
}

// is reports whether an error is of a type.
func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// fail turns an error into what a caller is told; nil stays nil.
func (s *Service) fail(err error) error {
	if err == nil || is[*Error](err) {
		return err
	}
	e := &Error{Code: codeOf(err), Message: err.Error(), Err: err}
	if nl, ok := errors.AsType[*node.NotLeaderError](err); ok {
		e.Code, e.Leader, e.LeaderEpoch = NotLeader, int32(nl.Leader), nl.LeaderEpoch
		if nl.Leader == s.cfg.ID {
			e.Code, e.Message = Unavailable, fmt.Sprintf("broker %d is about to lead %s; try again", nl.Leader, nl.Partition)
		}
		return e
	}
	if sl, ok := errors.AsType[*node.StaleLeaderError](err); ok {
		e.Code, e.LeaderEpoch = NotLeader, sl.LeaderEpoch
		return e
	}
	if nr, ok := errors.AsType[*node.NoReplicaError](err); ok {
		a, _ := s.Image().Assignment(nr.Partition)
		e.Code, e.LeaderEpoch = NotLeader, a.LeaderEpoch
		if a.Leader != s.cfg.ID {
			e.Leader = int32(a.Leader)
		}
		return e
	}
	if nc, ok := errors.AsType[*controller.NoControllerError](err); ok && nc.Known != replica.None {
		e.Code, e.Leader = NotCoordinator, int32(nc.Known)
	}
	if oor, ok := errors.AsType[*commitlog.OffsetOutOfRangeError](err); ok {
		e.Code, e.LogStartOffset, e.LogEndOffset = OutOfRange, oor.Start, oor.End
	}
	if re, ok := errors.AsType[*node.ReplicationError](err); ok {
		e.Code, e.Offset = Replication, re.Offset
	}
	if d, ok := errors.AsType[*controller.DivergenceError](err); ok {
		e.Code, e.Offset = Diverged, d.Offset
	}
	if d, ok := errors.AsType[*node.ReplicaDivergenceError](err); ok {
		e.Code, e.Offset = Diverged, d.Offset
	}
	return e
}

// AsError returns what a caller is told of any error that an engine's package returns; nil
// stays nil.
func (s *Service) AsError(err error) *Error {
	e, _ := errors.AsType[*Error](s.fail(err))
	return e
}

func codeOf(err error) Code {
	switch {
	case is[*replica.NotEnoughReplicasError](err):
		return NotEnough
	case is[*topic.UnknownError](err), errors.Is(err, node.ErrRemoved):
		return UnknownTopic
	case is[*topic.PartitionError](err), is[*controller.UnknownPartitionError](err):
		return UnknownPartition
	case is[*topic.ExistsError](err):
		return TopicExists
	case is[*commitlog.TooLargeError](err):
		return TooLarge
	case is[*topic.NameError](err), is[*topic.CountError](err), is[*topic.PartitionerError](err), is[*topic.FewerError](err), is[*topic.SettingError](err), is[*record.FrameError](err), is[*controller.BrokerError](err),
		is[*consumer.NegativeOffsetError](err), is[*consumer.CommitBeyondEndError](err), is[*group.AssignorMismatchError](err), is[*group.UnknownAssignorError](err),
		is[*group.TimeoutError](err), errors.Is(err, group.ErrFull), errors.Is(err, group.ErrTooMany), is[*group.NotOwnerError](err), errors.Is(err, commitlog.ErrEmptyAppend), errors.Is(err, controller.ErrNoCommands),
		errors.Is(err, ErrOtherProtocol), is[*controller.UnknownUserError](err), is[*controller.UsersError](err), is[*metadata.MechanismError](err), is[*metadata.IterationsError](err),
		is[*controller.ReassignmentError](err), is[*controller.MemberError](err), errors.Is(err, controller.ErrNoMembers), errors.Is(err, controller.ErrNotMoving), errors.Is(err, controller.ErrNoReassignment):
		return BadRequest
	case is[*commitlog.CorruptionError](err), is[*node.CorruptReplicaError](err), is[*node.MissingReplicaError](err), is[*metadata.DamageError](err):
		return Damaged
	case is[*consumer.OffsetRegressionError](err):
		return Regression
	case errors.Is(err, group.ErrUnknownMember):
		return UnknownMember
	case errors.Is(err, group.ErrFencedInstance):
		return Fenced
	case errors.Is(err, group.ErrRebalanceInProgress), is[*group.StaleGenerationError](err):
		return Rejoin
	case is[*controller.LeaderStillAvailableError](err):
		return LeaderAvailable
	case is[*controller.NoEligibleReplicaError](err):
		return NoEligible
	case errors.Is(err, ErrClosed), errors.Is(err, node.ErrClosed), errors.Is(err, node.ErrOpening), errors.Is(err, node.ErrAbandoned), is[*controller.BusyError](err), is[*controller.NoControllerError](err), is[*controller.UnsureError](err), errors.Is(err, replica.ErrLeadershipLost), errors.Is(err, replica.ErrSuperseded),
		errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), is[*commitlog.PoisonedError](err), is[*metadata.UnsettledError](err),
		is[*replica.UnreachableError](err), is[*controller.UnreachableError](err), is[*replica.RefusedError](err), is[*node.OffsetNotAvailableError](err),
		is[*node.OpenReplicaError](err):
		return Unavailable
	}
	return Internal
}

// ErrClosed: the service was closed.
var ErrClosed = errors.New("service: closed")
