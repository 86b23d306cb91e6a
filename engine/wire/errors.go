package wire

import (
	"fmt"

	"logbook/engine/failure"
)

// Code says what went wrong, for programs.
type Code string

const (
	NotLeader        Code = "not_leader"          // ask the broker that leader and address name
	NotCoordinator   Code = "not_coordinator"     // likewise
	UnknownTopic     Code = "unknown_topic"       // create it
	UnknownPartition Code = "unknown_partition"   // the topic has fewer
	TopicExists      Code = "topic_exists"        //
	BadRequest       Code = "bad_request"         // will not get better by repeating it
	TooLarge         Code = "too_large"           // send less at a time
	OutOfRange       Code = "offset_out_of_range" // start and end say what there is
	Replication      Code = "replication"         // stored on the leader, not on all in-sync replicas; may be lost
	NotEnough        Code = "not_enough_replicas" // too few are in sync
	Unavailable      Code = "unavailable"         // not now; try again
	Damaged          Code = "damaged"             // the log is; a person must look
	Unauthorized     Code = "unauthorized"        // say hello with the token
	Rejoin           Code = "rejoin"              // group: a rebalance is in progress, or the generation is stale
	UnknownMember    Code = "unknown_member"      // group: join as a new member
	Fenced           Code = "fenced"              // group: another process has taken the static member's place
	Regression       Code = "offset_regression"   // group: the offset is below the committed one
	LeaderAvailable  Code = "leader_available"    // failover: the leader can lead
	NoEligible       Code = "no_eligible_replica" // failover: nobody can without losing records
	Diverged         Code = "diverged"            // two replicas hold different records
	Internal         Code = "internal"            //
)

// Error is the payload of an error reply. It is an error itself.
type Error struct {
	Code           Code     `json:"code" doc:"what went wrong, for programs"`
	Message        string   `json:"message" doc:"the same for people, with what to do"`
	Leader         BrokerID `json:"leader,omitempty" doc:"not_leader, not_coordinator: whom to ask; 0: nobody knows"`
	Address        string   `json:"address,omitempty" doc:"its host:port"`
	LeaderEpoch    int32    `json:"epoch,omitempty" doc:"not_leader: the leader's epoch"`
	Offset         int64    `json:"offset,omitempty" doc:"replication: of the first record, which stays on the leader; diverged: the first that differs"`
	LogStartOffset int64    `json:"log_start,omitempty" doc:"offset_out_of_range: the first offset there is"`
	LogEndOffset   int64    `json:"log_end,omitempty" doc:"offset_out_of_range: the offset after the last"`
}

func (e *Error) Error() string { return fmt.Sprintf("%s (%s)", e.Message, e.Code) }

// Temporary reports whether the same request may succeed later, or elsewhere.
func (e *Error) Temporary() bool { return failure.Code(e.Code).Retriable() }
