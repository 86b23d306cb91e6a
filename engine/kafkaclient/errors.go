package kafkaclient

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"logbook/engine/failure"
	"logbook/engine/stream"
)

// codes are what Kafka's error numbers mean to every transport.
var codes = map[*kerr.Error]failure.Code{
	kerr.UnknownTopicOrPartition: failure.UnknownTopic, kerr.UnknownTopicID: failure.UnknownTopic,
	kerr.TopicAlreadyExists: failure.TopicExists,
	kerr.OffsetOutOfRange:   failure.OutOfRange,
	kerr.MessageTooLarge:    failure.TooLarge, kerr.RecordListTooLarge: failure.TooLarge,
	kerr.NotEnoughReplicas: failure.NotEnough, kerr.NotEnoughReplicasAfterAppend: failure.Replication,
	kerr.CorruptMessage:      failure.Damaged,
	kerr.RebalanceInProgress: failure.Rejoin, kerr.IllegalGeneration: failure.Rejoin,
	kerr.UnknownMemberID: failure.UnknownMember, kerr.FencedInstanceID: failure.Fenced,
	kerr.TopicAuthorizationFailed: failure.Unauthorized, kerr.GroupAuthorizationFailed: failure.Unauthorized,
	kerr.ClusterAuthorizationFailed: failure.Unauthorized, kerr.SaslAuthenticationFailed: failure.Unauthorized,
	kerr.InvalidTopicException: failure.BadRequest, kerr.InvalidPartitions: failure.BadRequest, kerr.InvalidReplicationFactor: failure.BadRequest,
	kerr.InvalidConfig: failure.BadRequest, kerr.InvalidRequest: failure.BadRequest, kerr.InvalidRecord: failure.BadRequest,
	kerr.InvalidGroupID: failure.BadRequest, kerr.InvalidSessionTimeout: failure.BadRequest, kerr.InconsistentGroupProtocol: failure.BadRequest,
	kerr.PolicyViolation: failure.BadRequest, kerr.UnsupportedVersion: failure.BadRequest, kerr.GroupMaxSizeReached: failure.BadRequest,
}

// failed turns what Kafka or franz-go said into the error that every transport returns.
func failed(err error) error {
	switch {
	case err == nil, errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, stream.ErrClosed):
		return err
	case errors.Is(err, kgo.ErrClientClosed):
		return stream.ErrClosed
	}
	if _, ok := errors.AsType[*failure.Error](err); ok {
		return err
	}
	ke, ok := errors.AsType[*kerr.Error](err)
	if !ok {
		return err // no broker could be reached, most likely
	}
	code, known := codes[ke]
	if !known && ke.Retriable {
		code, known = failure.Unavailable, true
	}
	if !known {
		code = failure.Internal
	}
	return &failure.Error{Code: code, Message: "kafka: " + ke.Message + ": " + ke.Description, Err: err}
}

func badRequest(message string) error {
	return &failure.Error{Code: failure.BadRequest, Message: message}
}
