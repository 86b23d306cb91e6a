// Package streamtest is what every log must do, whatever it is: a directory, brokers, a Kafka
// cluster. Each way to a log (stream.Transport) is run through it.
package streamtest

import (
	"testing"

	"logbook/engine/stream"
)

// Traits are where logs may differ, and neither is wrong: a log that cannot do something must
// refuse it, and is not asked for more.
type Traits struct {
	// Partitioners: a topic may have a rule for keys of its own. On Kafka the rule is the
	// client's, so a topic that asks for another than murmur2 is refused.
	Partitioners bool
	// ShortSessions: a member's session may be shorter than six seconds, which is the least
	// that Kafka's brokers take unless told otherwise.
	ShortSessions bool
}

// Test runs the suite. open returns a client of a log that holds nothing; it is called for
// each test.
func Test(t *testing.T, open func(t *testing.T) *stream.Client, traits Traits) {
	s := &suite{open: open, traits: traits}
	t.Run("TopicsAreTheSameEverywhere", s.topicsAreTheSameEverywhere)
	t.Run("FetchProcessCommit", s.fetchProcessCommit)
	t.Run("SeekMovesThePositionOnly", s.seekMovesThePositionOnly)
	t.Run("WaitingForRecords", s.waitingForRecords)
	t.Run("BatchesAreReadRecordByRecord", s.batchesAreReadRecordByRecord)
	t.Run("AJoinThatIsGivenUp", s.aJoinThatIsGivenUp)
	t.Run("AHandlerThatHangs", s.aHandlerThatHangs)
	t.Run("OffsetsElsewhere", s.offsetsElsewhere)
	t.Run("ManySenders", s.manySenders)
	t.Run("OrderWithinAPartitionIsTheOrderOfTheCalls", s.orderWithinAPartitionIsTheOrderOfTheCalls)
	t.Run("ResetWhenRetentionHasOvertakenThePosition", s.resetWhenRetentionHasOvertakenThePosition)
}

type suite struct {
	open   func(t *testing.T) *stream.Client
	traits Traits
}
