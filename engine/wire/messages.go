package wire

// BrokerID names a broker. They are positive; 0 is nobody.
type BrokerID int32

// Message describes a kind of message: what it is for, and the types of its request and
// its reply. The doc tags of their fields, and these entries, make PROTOCOL.md.
type Message struct {
	Type    string
	Doc     string
	Request any
	Reply   any // nil: there is none
}

// Messages lists every kind of message.
var Messages = []Message{
	{"hello", "Says who is speaking, and proves it where the broker has a token.", Hello{}, HelloReply{}},
	{"vouch", "Says whether a connection to another broker is this broker's own.", Vouch{}, VouchReply{}},
	{"metadata", "Says which brokers and topics there are, and who leads what.", Metadata{}, MetadataReply{}},
	{"create_topic", "Makes a topic.", CreateTopic{}, CreateTopicReply{}},
	{"alter_topic", "Gives a topic more partitions, or changes its settings.", AlterTopic{}, Empty{}},
	{"delete_topic", "Deletes a topic, with all its records.", DeleteTopic{}, Empty{}},
	{"produce", "Stores records in a partition, through its leader.", Produce{}, ProduceReply{}},
	{"fetch", "Reads records from a partition, up to its high watermark; waits for some if asked to.", Fetch{}, FetchReply{}},
	{"list_offsets", "Finds an offset: the first, the one after the last, or the first at or after a time.", ListOffsets{}, ListOffsetsReply{}},
	{"delete_records", "Makes an offset the first that can be read of a partition, as far as that is safe: what lies below is gone.", DeleteRecords{}, DeleteRecordsReply{}},
	{"find_coordinator", "Says which broker coordinates a group.", FindCoordinator{}, FindCoordinatorReply{}},
	{"join_group", "Becomes a member of a group's next generation. The reply comes when that begins.", JoinGroup{}, JoinGroupReply{}},
	{"sync_group", "Fetches the member's partitions.", MemberRequest{}, SyncGroupReply{}},
	{"heartbeat", "Keeps the member's session alive.", MemberRequest{}, HeartbeatReply{}},
	{"leave_group", "Leaves the group.", MemberRequest{}, Empty{}},
	{"commit_offsets", "Stores the offsets from which the group is to go on.", CommitOffsets{}, Empty{}},
	{"fetch_offsets", "Reads committed offsets.", FetchOffsets{}, FetchOffsetsReply{}},
	{"list_groups", "Lists the groups that this broker coordinates.", Empty{}, ListGroupsReply{}},
	{"describe_group", "Describes a group.", DescribeGroup{}, DescribeGroupReply{}},
	{"delete_group", "Deletes a group that has no members, with its committed offsets.", DescribeGroup{}, Empty{}},
	{"status", "Describes a partition, replica by replica.", PartitionRequest{}, StatusReply{}},
	{"describe_cluster", "Describes the cluster at a glance: who decides, who is there, and what is not well.", Empty{}, ClusterReply{}},
	{"reassign", "Moves a partition to other brokers, or takes a move back.", Reassign{}, Empty{}},
	{"change_member", "Adds a broker to the cluster, gives it a vote, takes that, or removes the broker.", ChangeMember{}, Empty{}},
	{"list_users", "Lists those who have a password.", Empty{}, ListUsersReply{}},
	{"set_password", "Gives a user a password, and makes the user first if need be. Ask over TLS.", SetPassword{}, Empty{}},
	{"delete_user", "Takes a user's passwords away.", DeleteUser{}, Empty{}},
	{"failover", "Gives a partition whose leader is gone a new one.", PartitionRequest{}, FailoverReply{}},
	{"catch_up", "Makes a replica on this broker copy what it lacks.", PartitionRequest{}, Empty{}},
	{"recover", "Makes a replica on this broker what its leader's is, and in sync again.", PartitionRequest{}, Empty{}},
}

// Empty is a payload without fields.
type Empty struct{}

// Hello introduces a connection.
type Hello struct {
	Client string   `json:"client" doc:"name and version of the program, for logs"`
	User   string   `json:"user,omitempty" doc:"a user's name, whose password is the token"`
	Token  string   `json:"token,omitempty" doc:"the broker's shared token, where it has one, or the user's password"`
	Broker BrokerID `json:"broker,omitempty" doc:"set by another broker of the cluster: its id; what follows the reply is the brokers' own protocol"`
	Nonce  string   `json:"nonce,omitempty" doc:"of another broker: what it will vouch for, where brokers have no token of their own"`
}

// HelloReply says who answers.
type HelloReply struct {
	Broker  BrokerID `json:"broker" doc:"the broker's id"`
	Version int      `json:"version" doc:"of the protocol"`
}

// Vouch asks whether a connection is the broker's own. Where brokers have no token of their
// own, whoever says that it is a broker is asked back, at the address it is known by.
type Vouch struct {
	Broker BrokerID `json:"broker" doc:"who asks: the one that was called"`
	Nonce  string   `json:"nonce" doc:"what the caller said in its hello"`
}

// VouchReply answers a Vouch.
type VouchReply struct {
	Broker BrokerID `json:"broker" doc:"who answers"`
	Mine   bool     `json:"mine" doc:"this broker is connecting to the one that asks, with that nonce"`
}

// Metadata asks about topics.
type Metadata struct {
	Topics []string `json:"topics,omitempty" doc:"names; none asks for all"`
}

// MetadataReply describes the cluster as this broker sees it.
type MetadataReply struct {
	Controller   string   `json:"controller" doc:"who decides about leaders: quorum, manual or first-alive"`
	ControllerID BrokerID `json:"decider,omitempty" doc:"the broker that takes commands: the active controller, or with manual the one that keeps the decisions; none: any does, or none is active"`
	Brokers      []Broker `json:"brokers"`
	Topics       []Topic  `json:"topics"`
}

// Broker is a broker of the cluster.
type Broker struct {
	ID      BrokerID `json:"id"`
	Address string   `json:"address" doc:"host:port"`
	Alive   bool     `json:"alive" doc:"as far as the answering broker knows"`
}

// Topic is a topic with its partitions.
type Topic struct {
	Name        string      `json:"name"`
	Partitioner string      `json:"router" doc:"the rule that keys follow: murmur2, sha256 or fnv1a"`
	Replication int         `json:"replication"`
	Internal    bool        `json:"internal,omitempty" doc:"the broker's own; not for clients to write to"`
	Partitions  []Partition `json:"partitions" doc:"partition i is the i-th"`

	Settings map[string]string `json:"settings,omitempty" doc:"what was set, with Kafka's names"`
}

// Partition says who leads a partition, and who else has it.
type Partition struct {
	Leader      BrokerID   `json:"leader" doc:"0: nobody, or unknown"`
	LeaderEpoch int32      `json:"epoch" doc:"leader epoch"`
	Replicas    []BrokerID `json:"replicas"`
	ISR         []BrokerID `json:"active" doc:"the in-sync replicas, which count for the high watermark"`
}

// CreateTopic makes a topic.
type CreateTopic struct {
	Name        string            `json:"name" doc:"letters, digits, '.', '_', '-'; at most 249"`
	Partitions  int               `json:"partitions"`
	Replication int               `json:"replication,omitempty" doc:"replicas of each partition; 0: as many as there are brokers, at most 3"`
	Partitioner string            `json:"router,omitempty" doc:"murmur2 (Kafka's, and the default), sha256 or fnv1a"`
	Settings    map[string]string `json:"settings,omitempty" doc:"with Kafka's names: retention.ms, segment.bytes, ..."`
}

// AlterTopic changes a topic.
type AlterTopic struct {
	Name       string             `json:"name"`
	Partitions int                `json:"partitions,omitempty" doc:"how many there are to be; only more than there are"`
	Settings   map[string]*string `json:"settings,omitempty" doc:"what to set; null takes one back to its default"`
}

// DeleteTopic deletes a topic.
type DeleteTopic struct {
	Name string `json:"name"`
}

// CreateTopicReply says what was made.
type CreateTopicReply struct {
	Topic Topic `json:"topic"`
}

// Record is a record as it travels.
type Record struct {
	Offset    int64    `json:"offset,omitempty" doc:"set by the broker"`
	Timestamp *int64   `json:"timestamp_ms,omitempty" doc:"since 1970, before it where negative; none: the broker's time"`
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
	Records        []Record `json:"records"`
	NextOffset     int64    `json:"next_offset" doc:"where to go on"`
	HighWatermark  int64    `json:"high_watermark" doc:"records below it can be read"`
	LogStartOffset int64    `json:"log_start"`
	LeaderEpoch    int32    `json:"leader_epoch" doc:"of the broker that answers"`
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

// DeleteRecords removes records from the front of a partition.
type DeleteRecords struct {
	Topic     string `json:"topic"`
	Partition int    `json:"partition"`
	Below     int64  `json:"below" doc:"the first offset that stays"`
}

// DeleteRecordsReply says what is left.
type DeleteRecordsReply struct {
	LogStartOffset int64 `json:"log_start" doc:"the first offset that can be read"`
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
	NewMember          string           `json:"new_member,omitempty" doc:"in the first join: the id that the member is to get; empty: the broker makes one. Who chooses it can leave, also when no reply came"`
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
	Member           string `json:"member"`
	Generation       int32  `json:"generation"`
	CoordinatorEpoch int32  `json:"coordinator_epoch" doc:"of the coordinator"`
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
	Generation       int32 `json:"generation"`
	CoordinatorEpoch int32 `json:"coordinator_epoch" doc:"of the coordinator"`
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
	Group            string           `json:"group"`
	Partitions       []TopicPartition `json:"partitions,omitempty" doc:"none: all that were committed"`
	CoordinatorEpoch int32            `json:"coordinator_epoch,omitempty" doc:"the highest that the client has heard of: a coordinator with a lower one was replaced, and does not answer"`
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
	Member     string           `json:"member" doc:"the beginning of its id: all of it is what the member proves itself with"`
	Partitions []TopicPartition `json:"partitions"`
}

// GroupOffset is how far a group has come in a partition.
type GroupOffset struct {
	Topic         string `json:"topic"`
	Partition     int    `json:"partition"`
	Offset        int64  `json:"offset" doc:"committed"`
	HighWatermark int64  `json:"end" doc:"the partition's high watermark; -1: unknown"`
	Lag           int64  `json:"lag" doc:"records to come; -1: unknown"`
}

// PartitionRequest names a partition.
type PartitionRequest struct {
	Topic     string `json:"topic"`
	Partition int    `json:"partition"`
}

// StatusReply describes a partition.
type StatusReply struct {
	Leader        BrokerID        `json:"leader"`
	LeaderEpoch   int32           `json:"epoch"`
	ISR           []BrokerID      `json:"active"`
	HighWatermark int64           `json:"high_watermark" doc:"-1: unknown"`
	Replicas      []ReplicaStatus `json:"replicas"`
}

// ReplicaStatus describes a replica.
type ReplicaStatus struct {
	Broker         BrokerID `json:"broker"`
	Role           string   `json:"role" doc:"leader, follower, starting, idle, or unknown"`
	InSync         bool     `json:"active"`
	Known          bool     `json:"known" doc:"the broker could be asked"`
	LogStartOffset int64    `json:"log_start"`
	LogEndOffset   int64    `json:"log_end"`
	Lag            int64    `json:"lag" doc:"behind the leader's end; negative: ahead; meaningful if has_lag"`
	HasLag         bool     `json:"has_lag"`
	Problem        string   `json:"problem,omitempty"`
}

// ClusterReply describes the cluster, as one broker sees it.
type ClusterReply struct {
	Controller      string           `json:"controller" doc:"quorum, manual or first-alive"`
	ControllerID    BrokerID         `json:"decider" doc:"that takes commands; 0: any, or none is known"`
	Broker          BrokerID         `json:"broker" doc:"the one that answers"`
	Cluster         string           `json:"cluster,omitempty" doc:"quorum: the cluster's id"`
	Term            int64            `json:"term,omitempty" doc:"quorum: how many elections there were, at most"`
	Committed       int64            `json:"committed,omitempty" doc:"quorum: index of the last decision that counts"`
	Applied         int64            `json:"applied,omitempty" doc:"quorum: and of the last that this broker follows"`
	Unclean         int64            `json:"unclean_elections,omitempty" doc:"quorum: leaders that had not been in sync, since this broker started"`
	Brokers         []ClusterBroker  `json:"brokers"`
	Leaderless      []TopicPartition `json:"leaderless" doc:"partitions that nobody leads"`
	UnderReplicated []TopicPartition `json:"under_replicated" doc:"partitions with a replica that is not in sync"`
	UnderMinISR     []TopicPartition `json:"under_min_isr" doc:"partitions that take no writes for quorum and all"`
	Moving          []Move           `json:"moving" doc:"partitions that are being moved"`
}

// ClusterBroker describes a broker of the cluster.
type ClusterBroker struct {
	ID       BrokerID `json:"id"`
	Address  string   `json:"address" doc:"host:port"`
	Alive    bool     `json:"alive" doc:"as far as the answering broker knows"`
	Fenced   bool     `json:"fenced" doc:"quorum: it was not heard of, or has just started, and counts for nothing"`
	Role     string   `json:"role" doc:"broker, controller, or both"`
	Rack     string   `json:"rack,omitempty" doc:"where it is"`
	Voter    bool     `json:"voter" doc:"quorum: it has a vote"`
	Learner  bool     `json:"learner" doc:"quorum: it follows the decisions without a vote"`
	Lag      int64    `json:"lag" doc:"decisions that it lacks; -1: unknown, ask the active controller"`
	Leads    int      `json:"leads" doc:"partitions that it leads"`
	Replicas int      `json:"replicas" doc:"partitions that it has a replica of"`
}

// Reassign moves a partition.
type Reassign struct {
	Topic     string     `json:"topic"`
	Partition int        `json:"partition"`
	Replicas  []BrokerID `json:"replicas" doc:"the brokers, the preferred leader first; none: a move that is under way is taken back"`
}

// ChangeMember changes who belongs to the cluster, and who votes in it.
type ChangeMember struct {
	Broker BrokerID `json:"broker"`
	Change string   `json:"change" doc:"add, give_vote, take_vote or remove"`
	// Address is for add.
	Address string `json:"address,omitempty" doc:"add: host:port, at which the others find it"`
}

// Move is a partition that is being moved.
type Move struct {
	Topic     string     `json:"topic"`
	Partition int        `json:"partition"`
	From      []BrokerID `json:"from"`
	To        []BrokerID `json:"to"`
	Done      []BrokerID `json:"done" doc:"of those in to, who has all of it"`
}

// FailoverReply is a failover's outcome.
type FailoverReply struct {
	Old          BrokerID   `json:"old"`
	New          BrokerID   `json:"new"`
	LeaderEpoch  int32      `json:"epoch"`
	LogEndOffset int64      `json:"log_end" doc:"the offset that the next record gets"`
	ISR          []BrokerID `json:"active"`
}
