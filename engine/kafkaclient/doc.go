// Package kafkaclient is a Kafka cluster as a stream.Transport: the producers, consumers and
// members that work on a directory and on Logbook's brokers work on Kafka. franz-go does the
// talking. Members use the classic protocol, in which the group's first member assigns, with
// the assignors of package group.
//
// What differs on Kafka:
//
//   - A commit may go back, and an append's batch may be split where it is large.
//   - A key finds its partition by murmur2; a topic cannot be made with another rule.
//   - A member's id is the broker's to choose.
//   - A coordinator has no epoch: members cannot find out by it that theirs was replaced, and
//     go by generations alone.
//
// Records of transactions that were aborted are not read, and neither are those of
// transactions under way.
package kafkaclient
