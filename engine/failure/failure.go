// Package failure is what can go wrong with a request to a broker: one set of codes and
// fields, which the broker's own code, its protocols and its clients share.
package failure

// Code says what went wrong, for programs. Both protocols translate it.
type Code string

// The codes. Those that Error.Retriable holds true for may pass.
const (
	NotLeader        Code = "not_leader"          // ask the broker that Leader names
	NotCoordinator   Code = "not_coordinator"     // likewise
	UnknownTopic     Code = "unknown_topic"       // create it
	UnknownPartition Code = "unknown_partition"   // the topic has fewer
	TopicExists      Code = "topic_exists"        //
	BadRequest       Code = "bad_request"         // will not get better by repeating it
	TooLarge         Code = "too_large"           // send less at a time
	OutOfRange       Code = "offset_out_of_range" // LogStartOffset and LogEndOffset say what there is
	Replication      Code = "replication"         // stored on the leader, not on all in-sync replicas; may be lost
	NotEnough        Code = "not_enough_replicas" // too few are in sync
	Unavailable      Code = "unavailable"         // not now; try again
	Damaged          Code = "damaged"             // the log is; a person must look
	Unauthorized     Code = "unauthorized"        // say who you are first
	Rejoin           Code = "rejoin"              // group: a rebalance is in progress, or the generation is stale
	UnknownMember    Code = "unknown_member"      // group: join as a new member
	Fenced           Code = "fenced"              // group: another process has taken the static member's place
	Regression       Code = "offset_regression"   // group: the offset is below the committed one
	LeaderAvailable  Code = "leader_available"    // failover: the leader can lead
	NoEligible       Code = "no_eligible_replica" // failover: nobody can without losing records
	Diverged         Code = "diverged"            // two replicas hold different records
	Internal         Code = "internal"            //
)

// Error is what went wrong with a request.
type Error struct {
	Code    Code
	Message string // for people, with what to do

	Leader         int32 // NotLeader, NotCoordinator: the broker to ask; 0: nobody knows
	LeaderEpoch    int32 // NotLeader
	Offset         int64 // Replication: of the first record, which stays on the leader. Diverged: the first that differs
	LogStartOffset int64 // OutOfRange: the first offset there is
	LogEndOffset   int64 // OutOfRange: the offset after the last

	Err error // what lies beneath; nil if nothing does
}

func (e *Error) Error() string { return e.Message }

func (e *Error) Unwrap() error { return e.Err }

// Retriable reports whether the same request may succeed later, or elsewhere.
func (e *Error) Retriable() bool { return e.Code.Retriable() }

// Retriable reports whether what failed with the code may succeed later, or elsewhere.
func (c Code) Retriable() bool {
	switch c {
	case NotLeader, NotCoordinator, Unavailable, NotEnough:
		return true
	}
	return false
}
