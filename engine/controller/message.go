package controller

import (
	"logbook/engine/commitlog"
	"logbook/engine/metadata"
	"logbook/engine/replica"
	"logbook/engine/topic"
)

// Message goes from one broker's controller to another's. AskReport and AskDigests are
// answered by the broker that gets them, from its replica's log.
type Message interface{ message() }

type (
	// Heartbeat shows that a broker lives. HeartbeatAck repeats its Seq.
	Heartbeat struct {
		Seq     uint64 `json:"seq"`
		Version int64  `json:"version,omitempty"` // manual: what is decided, on the broker that keeps the decisions
		State   *State `json:"state,omitempty"`   // first-alive: if the other has not acknowledged it yet
	}
	// HeartbeatAck answers a heartbeat.
	HeartbeatAck struct {
		Seq        uint64 `json:"seq"`
		Version    int64  `json:"version,omitempty"`
		Generation uint64 `json:"generation,omitempty"` // first-alive: of the last State that arrived
	}

	// FetchDecisions asks the manual controller's broker for what was decided since a version.
	FetchDecisions struct {
		ID       uint64 `json:"id"`
		Since    int64  `json:"since"`
		Register bool   `json:"register,omitempty"` // the broker starts
	}
	// Decisions answers it.
	Decisions struct {
		ID      uint64            `json:"id"`
		Version int64             `json:"version"`
		Whole   bool              `json:"whole,omitempty"` // the records make the whole image
		Records []metadata.Record `json:"records,omitempty"`
		Err     string            `json:"error,omitempty"`
	}
	// ProposeChange carries a proposal to the manual controller's broker.
	ProposeChange struct {
		ID         uint64             `json:"id"`
		Partition  Partition          `json:"of"`
		Assignment replica.Assignment `json:"assignment"`
	}
	// ChangeProposed answers it.
	ChangeProposed struct {
		ID  uint64 `json:"id"`
		Err string `json:"error,omitempty"`
	}
	// CreateReplicas asks a broker to make its replicas of a topic that is about to be.
	CreateReplicas struct {
		ID         uint64 `json:"id"`
		Topic      string `json:"topic"`
		Partitions []int  `json:"partitions"`
	}
	// ReplicasCreated answers it.
	ReplicasCreated struct {
		ID  uint64 `json:"id"`
		Err string `json:"error,omitempty"`
	}
	// Meet is what brokers of the quorum controller say to each other until there is a cluster,
	// and a broker that is new to it.
	Meet struct {
		Cluster topic.ID `json:"cluster,omitzero"` // the sender's; zero: it belongs to none yet
		Member  uint64   `json:"member"`           // the sender's name in the quorum, drawn for its data directory
		// Role is the sender's.
		Role metadata.Role `json:"role,omitempty"`
	}
	// Form tells a broker that has none what cluster it belongs to.
	Form struct {
		Cluster topic.ID `json:"cluster"`
		Voters  []uint64 `json:"voters"` // those with which it began
		// Learners are the members that it began with and that have no vote.
		Learners []uint64 `json:"learners,omitempty"`
	}
	// Recall is what a member of the quorum asks the others when it starts: have they heard more from
	// it than its journal knows?
	Recall struct {
		Cluster topic.ID `json:"cluster"`
		Member  uint64   `json:"member"` // the sender's
		Life    uint64   `json:"life"`   // the sender's: what it has said in others is asked for
	}
	// Recalled answers it: the latest term in which the member has said something in other lives, and the
	// index of the last entry that it has said, in that term, to have. Zero: nothing was heard.
	Recalled struct {
		Cluster topic.ID `json:"cluster"`
		Member  uint64   `json:"member"`
		Term    uint64   `json:"term"`
		Last    uint64   `json:"last"`
	}
	// RaftMessage goes from one member of the quorum to another.
	RaftMessage struct {
		Cluster topic.ID `json:"cluster"`
		Life    uint64   `json:"life"` // the sender's
		Data    []byte   `json:"data"` // as raftpb encodes it
	}
	// BrokerHeartbeat shows the active controller that a broker lives.
	BrokerHeartbeat struct {
		Cluster  topic.ID    `json:"cluster"`
		Seq      uint64      `json:"seq"`
		Life     uint64      `json:"life"`
		Applied  uint64      `json:"applied"`            // index of the last decision that the broker follows
		Fenced   bool        `json:"fenced,omitempty"`   // the broker has seen itself registered, and fenced
		Leaving  bool        `json:"leaving,omitempty"`  // it is about to stop
		Unusable []Partition `json:"unusable,omitempty"` // its replicas that can neither lead nor follow
		// Role and Rack are the broker's, and registered with its life.
		Role metadata.Role `json:"role,omitempty"`
		Rack string        `json:"rack,omitempty"`
	}
	// BrokerHeartbeatAck: when the heartbeat came, the sender was the active controller, as most
	// members of the quorum have confirmed since.
	BrokerHeartbeatAck struct {
		Seq  uint64 `json:"seq"`
		Life uint64 `json:"life"`
	}
	// AskReport asks a broker about its replica.
	AskReport struct {
		ID        uint64    `json:"id"`
		Partition Partition `json:"of"`
	}
	// ReportReply answers it.
	ReportReply struct {
		ID             uint64 `json:"id"`
		LogStartOffset int64  `json:"log_start"`
		LogEndOffset   int64  `json:"log_end"`
		LastEpoch      int32  `json:"last_epoch"`
		Err            string `json:"error,omitempty"`
	}
	// AskDigests asks a broker for the digests of its replica's frames.
	AskDigests struct {
		ID        uint64    `json:"id"`
		Partition Partition `json:"of"`
		From      int64     `json:"from"`
		Max       int       `json:"max"`
	}
	// DigestsReply answers it.
	DigestsReply struct {
		ID      uint64                  `json:"id"`
		Digests []commitlog.FrameDigest `json:"digests,omitempty"`
		Err     string                  `json:"error,omitempty"`
	}
)

func (Meet) message()               {}
func (Form) message()               {}
func (Recall) message()             {}
func (Recalled) message()           {}
func (RaftMessage) message()        {}
func (BrokerHeartbeat) message()    {}
func (BrokerHeartbeatAck) message() {}
func (Heartbeat) message()          {}
func (HeartbeatAck) message()       {}
func (FetchDecisions) message()     {}
func (Decisions) message()          {}
func (ProposeChange) message()      {}
func (ChangeProposed) message()     {}
func (CreateReplicas) message()     {}
func (ReplicasCreated) message()    {}
func (AskReport) message()          {}
func (ReportReply) message()        {}
func (AskDigests) message()         {}
func (DigestsReply) message()       {}

// State is what a broker with the first-alive controller tells the others.
type State struct {
	Generation uint64                 `json:"generation"` // grows when something changes
	Claims     []LeadershipClaim      `json:"claims,omitempty"`
	Standings  []Standing             `json:"standings,omitempty"`
	Topics     []metadata.TopicRecord `json:"topics,omitempty"`
	Leaving    bool                   `json:"leaving,omitempty"` // the broker is about to stop
}

// LeadershipClaim says that a broker leads a partition, in an epoch.
type LeadershipClaim struct {
	Partition   Partition          `json:"of"`
	LeaderEpoch int32              `json:"epoch"`
	ISR         []replica.BrokerID `json:"isr"` // the replicas that it takes for in-sync
}

// Standing is what a replica's log shows of its past.
type Standing struct {
	Partition    Partition `json:"of"`
	LastEpoch    int32     `json:"last_epoch"`         // of its last record, -1: it has none
	LogEndOffset int64     `json:"log_end"`            // when there was last no leader
	Unusable     bool      `json:"unusable,omitempty"` // it can neither lead nor follow
	Passing      bool      `json:"passing,omitempty"`  // unusable, but its records are there, and it may be usable again
}
