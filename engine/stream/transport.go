package stream

import (
	"context"
	"time"

	"logbook/engine/record"
	"logbook/engine/topic"
)

// Partition names a partition of a topic.
type Partition = topic.Partition

// Transport is the way to a log. It finds leaders and coordinators, and tries again what
// may succeed later. It is safe for concurrent use.
type Transport interface {
	// Topics describes topics; without names, all that are not internal.
	Topics(ctx context.Context, names ...string) ([]Topic, error)
	CreateTopic(ctx context.Context, t Topic) (Topic, error)

	// Produce stores records in a partition as one batch.
	Produce(ctx context.Context, p Partition, acks Acks, records []record.Record) (Appended, error)
	// Fetch reads records of a partition, and waits for the first if it has to.
	Fetch(ctx context.Context, q Fetch) (Fetched, error)
	// Offset finds an offset of a partition; at is for AtTime.
	Offset(ctx context.Context, p Partition, where Where, at time.Time) (int64, error)
	// DeleteRecords makes an offset the first that can be read, and returns the first that is.
	DeleteRecords(ctx context.Context, p Partition, below int64) (int64, error)

	// Join, Sync, Heartbeat, Leave and Commit are what members of a group say.
	Join(ctx context.Context, group string, q Join) (Joined, error)
	Sync(ctx context.Context, group string, m Membership) ([]Partition, error)
	// Heartbeat returns the coordinator's epoch.
	Heartbeat(ctx context.Context, group string, m Membership) (epoch int32, err error)
	Leave(ctx context.Context, group string, m Membership) error
	Commit(ctx context.Context, group string, m Membership, offsets map[Partition]int64) error

	// SetOffsets stores offsets of a group without members, or of a single consumer.
	SetOffsets(ctx context.Context, group string, offsets map[Partition]int64, reset bool) error
	// Committed returns the committed offsets, as a coordinator of at least an epoch knows them.
	Committed(ctx context.Context, group string, epoch int32) (map[Partition]int64, error)
	Groups(ctx context.Context) ([]string, error)
	DescribeGroup(ctx context.Context, name string) (Group, error)
}

// Topic is a topic.
type Topic struct {
	Name        string
	Partitions  int
	Replication int    // 0 in a topic to be made: as many as there are brokers, at most 3
	Partitioner string // the rule that keys follow; "" in a topic to be made: murmur2
}

// Acks says when a write is acknowledged; "" is the broker's default.
type Acks string

// The values of Acks.
const (
	AcksDefault Acks = ""
	AcksLeader  Acks = "leader" // durable on the leader
	AcksAll     Acks = "all"    // on every in-sync replica
	AcksQuorum  Acks = "quorum" // on every in-sync replica, of which there must be enough
)

// Appended says where records landed.
type Appended struct {
	Topic     string
	Partition int
	Offset    int64 // of the first
	Timestamp time.Time
}

// Fetch says what to read.
type Fetch struct {
	Partition   Partition
	Offset      int64
	MaxBytes    int           // 0: 1 MiB
	MaxWait     time.Duration // for the first record
	LeaderEpoch int32         // the highest that was heard of
}

// Fetched is what was read.
type Fetched struct {
	Records        []record.Record // the caller's
	NextOffset     int64           // where to go on
	HighWatermark  int64
	LogStartOffset int64
	LeaderEpoch    int32
}

// Where names an offset of a partition.
type Where string

// The values of Where.
const (
	Earliest Where = "earliest" // the log start offset
	Latest   Where = "latest"   // the offset after the last record that can be read
	AtTime   Where = "time"     // of the first record at or after a time; Latest where there is none
)

// Join is a member's wish to be part of the next generation.
type Join struct {
	Member           string // "" in the first
	NewMember        string // in the first: the id that it is to get, so that it can leave whatever becomes of the reply
	Instance         string // static member: the same across restarts
	Topics           []string
	Assignor         string // "" is roundrobin
	SessionTimeout   time.Duration
	RebalanceTimeout time.Duration
	Owned            []Partition // cooperative: what it still has
}

// Joined admits a member.
type Joined struct {
	Member     string
	Generation int32
	Epoch      int32 // the coordinator's
}

// Membership is how a member identifies itself.
type Membership struct {
	Member     string
	Instance   string
	Generation int32
}

// Group describes a group.
type Group struct {
	Name       string
	State      string // Empty, Preparing or Stable
	Generation int32
	Members    map[string][]Partition
	Offsets    []GroupOffset // by partition
}

// GroupOffset is how far a group has come in a partition.
type GroupOffset struct {
	Partition     Partition
	Offset        int64 // committed
	HighWatermark int64 // -1: unknown
	Lag           int64 // -1: unknown
}
