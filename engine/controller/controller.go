// Package controller decides who leads a partition.
//
// A controller is a state machine like those of packages replica and group: what happens
// goes in (messages, ticks, proposals, commands, results), and effects come out
// (messages, decisions, things to store), in an order that counts. It has no clock, disk,
// network or goroutine. Each broker has one, and they talk to each other.
//
// A decision is an assignment: leader, leader epoch, replicas, and the in-sync ones among
// them. Each is newer than the one before (its Version grows), and a leader's term has an
// epoch of its own. A leader may propose a change of the in-sync replicas; nothing counts
// before the controller has taken it.
//
// There are three. With Manual, PyStream's, failover is a command, and one broker keeps the
// decisions. With FirstAlive, kafka-lite's, each broker reckons for itself. With the one of
// package quorum, Kafka's, a majority of the brokers agrees on each decision.
package controller

import (
	"context"
	"time"

	"logbook/engine/commitlog"
	"logbook/engine/metadata"
	"logbook/engine/record"
	"logbook/engine/replica"
	"logbook/engine/topic"
)

// Partition names a partition of a topic.
type Partition = topic.Partition

// Machine is what a broker drives. Its methods are called one at a time, with a time that never
// goes back.
type Machine interface {
	// Name is what settings call this kind of controller.
	Name() string

	// Start tells that the broker can be reached.
	Start(now time.Time) []Effect
	// Step handles a message from another broker's controller, or an answer to one of its own.
	Step(now time.Time, from replica.BrokerID, m Message) []Effect
	// Unreachable tells that contact with a broker was lost.
	Unreachable(now time.Time, peer replica.BrokerID, why string) []Effect
	// Tick lets time pass; Next is when it is due, zero if nothing waits for time to pass.
	Tick(now time.Time) []Effect
	Next() time.Time

	// Propose asks for a change of the in-sync replicas, for a replica that leads here. It
	// is answered by Decide, or by Reject.
	Propose(now time.Time, p Partition, a replica.Assignment) []Effect
	// CreateTopic, ChangeTopic and Failover are commands, answered by Done with their id.
	CreateTopic(now time.Time, id uint64, spec TopicSpec) []Effect
	ChangeTopic(now time.Time, id uint64, change TopicChange) []Effect
	Failover(now time.Time, id uint64, p Partition) []Effect
	// ChangeUser gives a user credentials, or takes some away.
	ChangeUser(now time.Time, id uint64, change UserChange) []Effect
	// Reassign moves a partition to other brokers; without any it goes back to where it was, if
	// it is being moved. Done when it has begun.
	Reassign(now time.Time, id uint64, p Partition, replicas []replica.BrokerID) []Effect
	// ChangeMember changes who belongs to the cluster, or votes in it. Done when it counts.
	ChangeMember(now time.Time, id uint64, change MemberChange) []Effect

	// Leave tells that this broker is about to stop, and has it hand over what it leads, where
	// that takes no command. Left reports whether those who are alive know.
	Leave(now time.Time) []Effect
	Left() bool

	// Results of effects.
	Persisted(now time.Time, err error) []Effect
	ReplicasMade(now time.Time, id uint64, err error) []Effect

	// Image is what is decided, as far as this broker knows.
	Image() *metadata.Image
	// ControllerID is the broker that takes commands; None: any of them.
	ControllerID() replica.BrokerID
	// Applied is how far this broker follows the decisions, counted alike on all of them; 0 where
	// they are not counted.
	Applied() uint64
	// Alive reports whether a broker is taken to be alive.
	Alive(id replica.BrokerID) bool
}

// TopicSpec is a topic to be made.
type TopicSpec struct {
	Name        string
	ID          topic.ID
	Partitions  int
	Replication int
	Partitioner string
	Settings    topic.Settings
}

// Effect is something that the driver has to do.
type Effect interface{ effect() }

type (
	// Send: deliver the message. One to this broker itself is delivered too.
	Send struct {
		To      replica.BrokerID
		Message Message
	}
	// Persist: store the decisions, all or none. Answer with Persisted; there is one at a time.
	Persist struct {
		Records []metadata.Record
		// Journal is what a controller writes for itself alone, in the place of Records, where its
		// kind keeps a journal. Whole: it says all that is to be known; see metadata.Store.
		Journal []record.Record
		Whole   bool
	}
	// Decide: hand the decision to this broker's replica of the partition, opening it first
	// if need be.
	Decide struct {
		Partition  Partition
		Assignment replica.Assignment
	}
	// Reject: tell the leader of a partition that its proposal was not taken. Unsure: it is
	// not known whether it was.
	Reject struct {
		Partition Partition
		Version   int64
		Why       string
		Unsure    bool
	}
	// MakeReplicas: make this broker's replicas of a topic that is about to be. Answer with
	// ReplicasMade.
	MakeReplicas struct {
		ID         uint64
		Topic      string
		Partitions []int
	}
	// RemoveReplicas: delete this broker's replicas of a topic that is no more, before any
	// that are to be made after it. Moved: other brokers have them now.
	RemoveReplicas struct {
		Topic      string
		Partitions []int
		Moved      bool
	}
	// Remake: this broker's replica of a partition is damaged or missing, others have all that it
	// had, and somebody leads: put what is left of it aside, begin it anew, and give it the
	// decision.
	Remake struct {
		Partition  Partition
		Assignment replica.Assignment
	}
	// Lease: serve what this broker leads only until a time. Afterwards others may have been told
	// to lead. Without any there is no limit.
	Lease struct{ Until time.Time }
	// Silent: a broker does not answer; whatever waits for it may give up.
	Silent struct {
		Peer replica.BrokerID
		Why  string
	}
	// Done: a command has its outcome.
	Done struct {
		ID       uint64
		Failover FailoverResult
		Err      error
	}
	// Warn: something for a person to read.
	Warn struct{ Text string }
)

func (Send) effect()           {}
func (Persist) effect()        {}
func (Decide) effect()         {}
func (Reject) effect()         {}
func (MakeReplicas) effect()   {}
func (RemoveReplicas) effect() {}
func (Remake) effect()         {}
func (Lease) effect()          {}
func (Silent) effect()         {}
func (Done) effect()           {}
func (Warn) effect()           {}

// FailoverResult is the outcome of a failover.
type FailoverResult struct {
	Partition    Partition
	Old, New     replica.BrokerID
	LeaderEpoch  int32
	LogEndOffset int64 // the new leader's: the offset that the next record gets
	ISR          []replica.BrokerID
}

// Report is what a replica says of itself when a leader has to be chosen.
type Report struct {
	Broker                       replica.BrokerID
	LogStartOffset, LogEndOffset int64
	LastEpoch                    int32 // leader epoch of its last record, -1: it has none
	Err                          error // why it cannot lead: it does not answer, or its log is damaged
}

// Prober asks replicas about their logs, for a Ledger: for who may wait for the answer.
type Prober interface {
	Report(ctx context.Context, p Partition, id replica.BrokerID) Report
	// FrameDigests returns the digests of at most n frames of a replica's log from an offset on.
	FrameDigests(ctx context.Context, p Partition, id replica.BrokerID, from int64, n int) ([]commitlog.FrameDigest, error)
}

// Quorate is a controller that several brokers are part of.
type Quorate interface {
	Quorum() QuorumStatus
	// Problem is why this broker takes no part in decisions any more, and leads nothing; "": it does.
	Problem() string
}

// QuorumStatus is what the quorum is like, as far as one broker knows.
type QuorumStatus struct {
	Cluster   topic.ID
	Formed    bool // this broker belongs to the cluster
	Term      uint64
	Active    replica.BrokerID // the active controller; None: none is known
	Voters    []replica.BrokerID
	Learners  []replica.BrokerID // who copy the log of decisions without a vote
	Committed uint64             // index of the last decision that counts
	Applied   uint64             // and of the last that this broker follows
	// UncleanElections is how many leaders there were, since this broker started, that had not been
	// in sync.
	UncleanElections int
	Lag              map[replica.BrokerID]uint64 // on the active controller: the entries that each voter lacks
}
