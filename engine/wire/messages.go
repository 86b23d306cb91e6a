package wire

import (
	"logbook/engine/controller"
	"logbook/engine/replica"
)

// Message describes a kind of message: what it is for, and the types of its request and
// its reply. The doc tags of their fields, and these entries, make PROTOCOL.md.
type Message struct {
	Type    string
	Doc     string
	Request any
	Reply   any  // nil: there is none
	Peer    bool // between brokers only
}

// Messages lists every kind of message.
var Messages = []Message{
	{"hello", "Says who is speaking, and proves it where the broker has a token.", Hello{}, HelloReply{}, false},
	{"metadata", "Says which brokers and topics there are, and who leads what.", Metadata{}, MetadataReply{}, false},
	{"create_topic", "Makes a topic.", CreateTopic{}, CreateTopicReply{}, false},
	{"produce", "Stores records in a partition, through its leader.", Produce{}, ProduceReply{}, false},
	{"fetch", "Reads records from a partition, up to its high watermark; waits for some if asked to.", Fetch{}, FetchReply{}, false},
	{"list_offsets", "Finds an offset: the first, the one behind the last, or the first at or after a time.", ListOffsets{}, ListOffsetsReply{}, false},
	{"find_coordinator", "Says which broker coordinates a group.", FindCoordinator{}, FindCoordinatorReply{}, false},
	{"join_group", "Becomes a member of a group's next generation. The reply comes when that begins.", JoinGroup{}, JoinGroupReply{}, false},
	{"sync_group", "Fetches the member's partitions.", MemberRequest{}, SyncGroupReply{}, false},
	{"heartbeat", "Keeps the member's session alive.", MemberRequest{}, HeartbeatReply{}, false},
	{"leave_group", "Leaves the group.", MemberRequest{}, Empty{}, false},
	{"commit_offsets", "Stores the offsets from which the group is to go on.", CommitOffsets{}, Empty{}, false},
	{"fetch_offsets", "Reads committed offsets.", FetchOffsets{}, FetchOffsetsReply{}, false},
	{"list_groups", "Lists the groups that this broker coordinates.", Empty{}, ListGroupsReply{}, false},
	{"describe_group", "Describes a group.", DescribeGroup{}, DescribeGroupReply{}, false},
	{"status", "Describes a partition, replica by replica.", PartitionRequest{}, StatusReply{}, false},
	{"failover", "Gives a partition whose leader is gone a new one. Ask the controller's broker.", PartitionRequest{}, FailoverReply{}, false},
	{"catch_up", "Makes a replica on this broker copy what it lacks.", PartitionRequest{}, Empty{}, false},
	{"recover", "Makes a replica on this broker what its leader's is, and active again.", PartitionRequest{}, Empty{}, false},
	{"ping", "Shows that a broker lives, what it leads and which topics it knows.", Ping{}, PingReply{}, true},
	{"replica", "Carries a message between two replicas of a partition.", Replica{}, nil, true},
	{"create_replicas", "Makes a new topic's replicas on a broker.", CreateTopic{}, Empty{}, true},
	{"register", "Tells the manual controller that a broker starts.", Register{}, AssignmentsReply{}, true},
	{"propose", "Asks the manual controller for a change of the active replicas.", Propose{}, Empty{}, true},
	{"assignments", "Fetches the manual controller's decisions.", Empty{}, AssignmentsReply{}, true},
	{"report", "Asks a replica about its log, to choose a leader.", PartitionRequest{}, ReportReply{}, true},
	{"sums", "Asks a replica for the hashes of its frames, to compare candidates.", SumsRequest{}, SumsReply{}, true},
}

// Empty is a payload without fields.
type Empty struct{}

// Hello introduces a connection.
type Hello struct {
	Client string           `json:"client" doc:"name and version of the program, for logs"`
	Token  string           `json:"token,omitempty" doc:"the broker's shared token, where it has one"`
	Broker replica.BrokerID `json:"broker,omitempty" doc:"set by a peer: its broker id"`
}

// HelloReply says who answers.
type HelloReply struct {
	Broker  replica.BrokerID `json:"broker" doc:"the broker's id"`
	Version int              `json:"version" doc:"of the protocol"`
}

// Metadata asks about topics.
type Metadata struct {
	Topics []string `json:"topics,omitempty" doc:"names; none asks for all"`
}

// MetadataReply describes the cluster as this broker sees it.
type MetadataReply struct {
	Controller string           `json:"controller" doc:"who decides about leaders: manual or first-alive"`
	Decider    replica.BrokerID `json:"decider,omitempty" doc:"manual: the broker that keeps the decisions"`
	Brokers    []Broker         `json:"brokers"`
	Topics     []Topic          `json:"topics"`
}

// Broker is a broker of the cluster.
type Broker struct {
	ID      replica.BrokerID `json:"id"`
	Address string           `json:"address" doc:"host:port"`
	Alive   bool             `json:"alive" doc:"as far as the answering broker knows"`
}

// Topic is a topic with its partitions.
type Topic struct {
	Name        string      `json:"name"`
	Router      string      `json:"router" doc:"the rule that keys follow: murmur2, sha256 or fnv1a"`
	Replication int         `json:"replication"`
	Internal    bool        `json:"internal,omitempty" doc:"the broker's own; not for clients to write to"`
	Partitions  []Partition `json:"partitions" doc:"partition i is the i-th"`
}

// Partition says who leads a partition, and who else has it.
type Partition struct {
	Leader   replica.BrokerID   `json:"leader" doc:"0: nobody, or unknown"`
	Epoch    int32              `json:"epoch" doc:"leader epoch"`
	Replicas []replica.BrokerID `json:"replicas"`
	Active   []replica.BrokerID `json:"active" doc:"the replicas that count for the high watermark"`
}

// CreateTopic makes a topic.
type CreateTopic struct {
	Name        string `json:"name" doc:"letters, digits, '.', '_', '-'; at most 249"`
	Partitions  int    `json:"partitions"`
	Replication int    `json:"replication,omitempty" doc:"replicas of each partition; 0: as many as there are brokers, at most 3"`
	Router      string `json:"router,omitempty" doc:"murmur2 (Kafka's, and the default), sha256 or fnv1a"`
	Only        []int  `json:"only,omitempty" doc:"between brokers: the partitions of which to make a replica"`
}

// CreateTopicReply says what was made.
type CreateTopicReply struct {
	Topic Topic `json:"topic"`
}

// Record is a record as it travels.
type Record struct {
	Offset    int64    `json:"offset,omitempty" doc:"set by the broker"`
	Timestamp int64    `json:"timestamp_ms,omitempty" doc:"since 1970; 0: the broker's time"`
	Key       []byte   `json:"key" doc:"null: none"`
	Value     []byte   `json:"value" doc:"null: a tombstone"`
	Headers   []Header `json:"headers,omitempty"`
}

// Header is a named value beside a record.
type Header struct {
	Key   string `json:"key"`
	Value []byte `json:"value"`
}

// Produce stores records.
type Produce struct {
	Topic     string   `json:"topic"`
	Partition int      `json:"partition" doc:"-1: by the key of the first record, by the topic's rule; without a key, in turn"`
	Acks      string   `json:"acks,omitempty" doc:"leader, all or quorum; empty: the broker's default"`
	TimeoutMS int64    `json:"timeout_ms,omitempty" doc:"how long to wait for followers; 0: the broker's limit"`
	Records   []Record `json:"records" doc:"stored as one batch, wholly or not at all"`
}

// ProduceReply says where the records are.
type ProduceReply struct {
	Partition int   `json:"partition"`
	Offset    int64 `json:"offset" doc:"of the first record"`
	Timestamp int64 `json:"timestamp_ms" doc:"of the first record, as stored"`
}

// Fetch reads records.
type Fetch struct {
	Topic       string `json:"topic"`
	Partition   int    `json:"partition"`
	Offset      int64  `json:"offset" doc:"the first that is wanted"`
	MaxBytes    int    `json:"max_bytes,omitempty" doc:"of stored frames; at least one is returned; 0: 1 MiB"`
	WaitMS      int64  `json:"wait_ms,omitempty" doc:"how long to wait for the first record"`
	LeaderEpoch int32  `json:"leader_epoch,omitempty" doc:"the highest that the client has heard of: a broker that leads in a lower one was replaced, and does not answer"`
}

// FetchReply holds records.
type FetchReply struct {
	Records       []Record `json:"records"`
	Next          int64    `json:"next_offset" doc:"where to go on"`
	HighWatermark int64    `json:"high_watermark" doc:"records below it can be read"`
	Start         int64    `json:"log_start"`
	LeaderEpoch   int32    `json:"leader_epoch" doc:"of the broker that answers"`
}

// ListOffsets finds an offset.
type ListOffsets struct {
	Topic     string `json:"topic"`
	Partition int    `json:"partition"`
	At        string `json:"at" doc:"earliest, latest, or time"`
	Timestamp int64  `json:"timestamp_ms,omitempty" doc:"with time: the first record at or after it"`
}

// ListOffsetsReply is an offset.
type ListOffsetsReply struct {
	Offset int64 `json:"offset"`
}

// FindCoordinator asks for a group's coordinator.
type FindCoordinator struct {
	Group string `json:"group"`
}

// FindCoordinatorReply names it.
type FindCoordinatorReply struct {
	Broker Broker `json:"broker"`
}

// JoinGroup joins a group.
type JoinGroup struct {
	Group              string           `json:"group"`
	Member             string           `json:"member,omitempty" doc:"empty in the first join"`
	Instance           string           `json:"instance,omitempty" doc:"makes the member static: it keeps its partitions across a restart"`
	Topics             []string         `json:"topics"`
	Assignor           string           `json:"assignor,omitempty" doc:"roundrobin (the default), range or cooperative-sticky"`
	SessionTimeoutMS   int64            `json:"session_timeout_ms,omitempty" doc:"0: 10 s"`
	RebalanceTimeoutMS int64            `json:"rebalance_timeout_ms,omitempty" doc:"0: the session timeout"`
	Owned              []TopicPartition `json:"owned,omitempty" doc:"cooperative: what the member still has"`
}

// TopicPartition names a partition.
type TopicPartition struct {
	Topic     string `json:"topic"`
	Partition int    `json:"partition"`
}

// JoinGroupReply admits a member.
type JoinGroupReply struct {
	Member     string `json:"member"`
	Generation int32  `json:"generation"`
	Epoch      int32  `json:"coordinator_epoch" doc:"of the coordinator"`
}

// MemberRequest is what a member says.
type MemberRequest struct {
	Group      string `json:"group"`
	Member     string `json:"member"`
	Instance   string `json:"instance,omitempty"`
	Generation int32  `json:"generation"`
}

// SyncGroupReply is a member's assignment.
type SyncGroupReply struct {
	Partitions []TopicPartition `json:"partitions"`
}

// HeartbeatReply answers a heartbeat.
type HeartbeatReply struct {
	Generation int32 `json:"generation"`
	Epoch      int32 `json:"coordinator_epoch" doc:"of the coordinator"`
}

// CommitOffsets stores offsets. Without a member the group must be empty: the offsets of a
// single consumer, or a reset.
type CommitOffsets struct {
	Group      string         `json:"group"`
	Member     string         `json:"member,omitempty"`
	Instance   string         `json:"instance,omitempty"`
	Generation int32          `json:"generation,omitempty"`
	Offsets    []CommitOffset `json:"offsets"`
	Reset      bool           `json:"reset,omitempty" doc:"without a member: offsets may go back"`
}

// CommitOffset is one partition's.
type CommitOffset struct {
	Topic     string `json:"topic"`
	Partition int    `json:"partition"`
	Offset    int64  `json:"offset" doc:"the next to read"`
}

// FetchOffsets asks for committed offsets.
type FetchOffsets struct {
	Group      string           `json:"group"`
	Partitions []TopicPartition `json:"partitions,omitempty" doc:"none: all that were committed"`
	Epoch      int32            `json:"coordinator_epoch,omitempty" doc:"the highest that the client has heard of: a coordinator with a lower one was replaced, and does not answer"`
}

// FetchOffsetsReply has those that were ever committed.
type FetchOffsetsReply struct {
	Offsets []CommitOffset `json:"offsets"`
}

// ListGroupsReply lists groups.
type ListGroupsReply struct {
	Groups []string `json:"groups"`
}

// DescribeGroup asks about a group.
type DescribeGroup struct {
	Group string `json:"group"`
}

// DescribeGroupReply describes it.
type DescribeGroupReply struct {
	Group      string        `json:"group"`
	State      string        `json:"state" doc:"Empty, Preparing or Stable"`
	Generation int32         `json:"generation"`
	Members    []GroupMember `json:"members"`
	Offsets    []GroupOffset `json:"offsets"`
}

// GroupMember is a member and its partitions.
type GroupMember struct {
	Member     string           `json:"member"`
	Partitions []TopicPartition `json:"partitions"`
}

// GroupOffset is how far a group has come in a partition.
type GroupOffset struct {
	Topic     string `json:"topic"`
	Partition int    `json:"partition"`
	Offset    int64  `json:"offset" doc:"committed"`
	End       int64  `json:"end" doc:"the partition's high watermark; -1: unknown"`
	Lag       int64  `json:"lag" doc:"records to come; -1: unknown"`
}

// PartitionRequest names a partition.
type PartitionRequest struct {
	Topic     string `json:"topic"`
	Partition int    `json:"partition"`
}

// StatusReply describes a partition.
type StatusReply struct {
	Leader        replica.BrokerID   `json:"leader"`
	Epoch         int32              `json:"epoch"`
	Active        []replica.BrokerID `json:"active"`
	HighWatermark int64              `json:"high_watermark" doc:"-1: unknown"`
	Replicas      []ReplicaStatus    `json:"replicas"`
}

// ReplicaStatus describes a replica.
type ReplicaStatus struct {
	Broker  replica.BrokerID `json:"broker"`
	Role    string           `json:"role" doc:"leader, follower, starting, idle, or unknown"`
	Active  bool             `json:"active"`
	Known   bool             `json:"known" doc:"the broker could be asked"`
	Start   int64            `json:"log_start"`
	End     int64            `json:"log_end"`
	Lag     int64            `json:"lag" doc:"behind the leader's end; negative: ahead; meaningful if has_lag"`
	HasLag  bool             `json:"has_lag"`
	Problem string           `json:"problem,omitempty"`
}

// FailoverReply is a failover's outcome.
type FailoverReply struct {
	Old    replica.BrokerID   `json:"old"`
	New    replica.BrokerID   `json:"new"`
	Epoch  int32              `json:"epoch"`
	End    int64              `json:"log_end" doc:"the offset that the next record gets"`
	Active []replica.BrokerID `json:"active"`
}

// Claim says that the sender leads a partition.
type Claim struct {
	Topic     string             `json:"topic"`
	Partition int                `json:"partition"`
	Epoch     int32              `json:"epoch"`
	Active    []replica.BrokerID `json:"active,omitempty" doc:"the replicas that it takes for in-sync"`
}

// Ping is a sign of life.
type Ping struct {
	Claims    []Claim `json:"claims,omitempty" doc:"first-alive: what the sender leads"`
	Decisions int64   `json:"decisions,omitempty" doc:"manual: from the broker that keeps the decisions; another number means that some were made since"`
}

// PingReply is another.
type PingReply struct {
	Claims    []Claim       `json:"claims,omitempty" doc:"first-alive: what the answering broker leads"`
	Topics    []CreateTopic `json:"topics,omitempty" doc:"first-alive: the topics that it knows"`
	Decisions int64         `json:"decisions,omitempty" doc:"manual: another number means that decisions were made since"`
}

// Replica carries a message between replicas.
type Replica struct {
	Topic     string          `json:"topic"`
	Partition int             `json:"partition"`
	Message   replica.Message `json:"message"`
}

// Register announces a broker.
type Register struct {
	Broker replica.BrokerID `json:"broker"`
}

// Propose proposes a change.
type Propose struct {
	Partition  controller.Partition `json:"of"`
	Assignment replica.Assignment   `json:"assignment"`
}

// AssignmentsReply is all that the manual controller decided.
type AssignmentsReply struct {
	Meta controller.Meta `json:"meta"`
}

// ReportReply describes a replica's log.
type ReportReply struct {
	Start         int64              `json:"log_start"`
	End           int64              `json:"log_end"`
	LastEpoch     int32              `json:"last_epoch"`
	HighWatermark int64              `json:"high_watermark"`
	Role          string             `json:"role"`
	Problem       string             `json:"problem,omitempty" doc:"why it cannot lead, or stands still"`
	Usable        bool               `json:"usable" doc:"it could lead"`
	Epoch         int32              `json:"epoch" doc:"of the assignment that the replica has"`
	Active        []replica.BrokerID `json:"active" doc:"likewise"`
}

// SumsRequest asks for sums.
type SumsRequest struct {
	Topic     string `json:"topic"`
	Partition int    `json:"partition"`
	Offset    int64  `json:"offset"`
	Max       int    `json:"max"`
}
