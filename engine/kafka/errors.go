package kafka

import (
	"errors"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"

	"logbook/engine/commitlog"
	"logbook/engine/controller"
	"logbook/engine/failure"
	"logbook/engine/group"
	"logbook/engine/metadata"
	"logbook/engine/node"
	"logbook/engine/record"
	"logbook/engine/replica"
	"logbook/engine/service"
	"logbook/engine/topic"
)

// number is Kafka's for an error; 0 for nil. Errors that tell more than their code come first.
func number(err error) int16 {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errTransactions):
		return kerr.UnsupportedVersion.Code // no client tries that again
	case is[*node.SequenceError](err):
		return kerr.OutOfOrderSequenceNumber.Code
	case is[*node.ProducerFencedError](err):
		return kerr.InvalidProducerEpoch.Code
	case is[*node.StaleLeaderError](err):
		return kerr.UnknownLeaderEpoch.Code
	case is[*node.OffsetNotAvailableError](err):
		return kerr.OffsetNotAvailable.Code
	case is[*commitlog.PoisonedError](err), is[*node.OpenReplicaError](err):
		return kerr.KafkaStorageError.Code
	case errors.Is(err, replica.ErrLeadershipLost), errors.Is(err, node.ErrClosed), errors.Is(err, node.ErrOpening), errors.Is(err, service.ErrClosed):
		return kerr.NotLeaderForPartition.Code
	case is[*service.ReassignmentError](err):
		return kerr.InvalidReplicaAssignment.Code
	case is[*controller.MemberError](err), errors.Is(err, controller.ErrNoMembers):
		return kerr.InvalidRequest.Code
	case is[*controller.UnknownUserError](err):
		return kerr.ResourceNotFound.Code
	case is[*controller.UsersError](err):
		return kerr.UnsupportedVersion.Code
	case is[*metadata.MechanismError](err):
		return kerr.UnsupportedSaslMechanism.Code
	case is[*metadata.IterationsError](err):
		return kerr.UnacceptableCredential.Code
	case errors.Is(err, service.ErrNotMoving):
		return kerr.NoReassignmentInProgress.Code
	case is[*topic.NameError](err):
		return kerr.InvalidTopicException.Code
	case is[*topic.CountError](err), is[*topic.FewerError](err):
		return kerr.InvalidPartitions.Code
	case is[*topic.SettingError](err):
		return kerr.InvalidConfig.Code
	case errors.Is(err, record.ErrChecksum), errors.Is(err, record.ErrIncomplete):
		return kerr.CorruptMessage.Code
	case is[*record.FrameError](err), errors.Is(err, commitlog.ErrEmptyAppend):
		return kerr.InvalidRecord.Code
	case errors.Is(err, group.ErrUnknownMember):
		return kerr.UnknownMemberID.Code
	case errors.Is(err, group.ErrFull), errors.Is(err, group.ErrTooMany):
		return kerr.GroupMaxSizeReached.Code
	case errors.Is(err, group.ErrIllegalGeneration):
		return kerr.IllegalGeneration.Code
	case errors.Is(err, group.ErrRebalanceInProgress):
		return kerr.RebalanceInProgress.Code
	case errors.Is(err, group.ErrFencedInstance):
		return kerr.FencedInstanceID.Code
	case errors.Is(err, group.ErrFencedEpoch):
		return kerr.FencedMemberEpoch.Code
	case errors.Is(err, group.ErrStaleEpoch):
		return kerr.StaleMemberEpoch.Code
	case errors.Is(err, group.ErrUnreleasedInstance):
		return kerr.UnreleasedInstanceID.Code
	case errors.Is(err, group.ErrInvalidBeat):
		return kerr.InvalidRequest.Code
	case is[*group.UnknownAssignorError](err):
		return kerr.UnsupportedAssignor.Code
	case is[*group.PatternError](err):
		return kerr.InvalidRegularExpression.Code
	case errors.Is(err, group.ErrInconsistentProtocol), errors.Is(err, service.ErrOtherProtocol):
		return kerr.InconsistentGroupProtocol.Code
	case errors.Is(err, group.ErrMemberIDRequired):
		return kerr.MemberIDRequired.Code
	case errors.Is(err, group.ErrInvalidSession):
		return kerr.InvalidSessionTimeout.Code
	case errors.Is(err, service.ErrGroupNotEmpty):
		return kerr.NonEmptyGroup.Code
	case errors.Is(err, service.ErrNoGroup):
		return kerr.GroupIDNotFound.Code
	}
	e, ok := errors.AsType[*failure.Error](err)
	if !ok {
		return kerr.UnknownServerError.Code
	}
	if n, ok := errors.AsType[*replica.NotEnoughReplicasError](err); ok && n.Stored {
		return kerr.NotEnoughReplicasAfterAppend.Code
	}
	if n, ok := codes[e.Code]; ok {
		return n.Code
	}
	return kerr.UnknownServerError.Code
}

var codes = map[failure.Code]*kerr.Error{
	failure.NotLeader:        kerr.NotLeaderForPartition,
	failure.NotCoordinator:   kerr.NotCoordinator,
	failure.UnknownTopic:     kerr.UnknownTopicOrPartition,
	failure.UnknownPartition: kerr.UnknownTopicOrPartition,
	failure.TopicExists:      kerr.TopicAlreadyExists,
	failure.BadRequest:       kerr.InvalidRequest,
	failure.TooLarge:         kerr.MessageTooLarge,
	failure.OutOfRange:       kerr.OffsetOutOfRange,
	failure.Replication:      kerr.NotEnoughReplicasAfterAppend,
	failure.NotEnough:        kerr.NotEnoughReplicas,
	failure.Unavailable:      kerr.LeaderNotAvailable,
	failure.Damaged:          kerr.KafkaStorageError,
	failure.Unauthorized:     kerr.TopicAuthorizationFailed,
	failure.Rejoin:           kerr.RebalanceInProgress,
	failure.UnknownMember:    kerr.UnknownMemberID,
	failure.Fenced:           kerr.FencedInstanceID,
	failure.LeaderAvailable:  kerr.ElectionNotNeeded,
	failure.NoEligible:       kerr.EligibleLeadersNotAvailable,
}

// fetchNumbers are what a fetch may answer: Java's consumer ends with an exception where it is
// told anything else.
var fetchNumbers = []*kerr.Error{
	kerr.OffsetOutOfRange, kerr.CorruptMessage, kerr.UnknownTopicOrPartition, kerr.NotLeaderForPartition, kerr.ReplicaNotAvailable,
	kerr.TopicAuthorizationFailed, kerr.KafkaStorageError, kerr.FencedLeaderEpoch, kerr.UnknownLeaderEpoch, kerr.OffsetNotAvailable, kerr.UnknownTopicID,
}

// fetchNumber is number for what is read. What may pass is a leader that is none yet: the client
// asks who leads, and comes again.
func fetchNumber(err error) int16 {
	n := number(err)
	switch {
	case n == 0 || slices.ContainsFunc(fetchNumbers, func(e *kerr.Error) bool { return e.Code == n }):
		return n
	case kerr.IsRetriable(kerr.ErrorForCode(n)):
		return kerr.NotLeaderForPartition.Code
	}
	return kerr.UnknownServerError.Code
}

// coordinatorNumber is number for what a group's coordinator is asked.
func coordinatorNumber(err error) int16 {
	e, ok := errors.AsType[*failure.Error](err)
	if ok && e.Code == failure.Unavailable || errors.Is(err, service.ErrClosed) || errors.Is(err, node.ErrClosed) {
		return kerr.CoordinatorNotAvailable.Code
	}
	if ok && e.Code == failure.BadRequest && e.Err == nil {
		return kerr.InvalidGroupID.Code
	}
	return number(err)
}

// text is an error's for people; nil for none.
func text(err error) *string {
	if err == nil {
		return nil
	}
	s := err.Error()
	return &s
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
