package client

import (
	"context"
	"time"

	"logbook/engine/topic"
	"logbook/engine/wire"
)

// AnyPartition lets the key decide, or the turn.
const AnyPartition = -1

// CreateTopic makes a topic.
//
// Errors: wire.TopicExists, BadRequest (the name, the counts or the partitioner), Unavailable
// (not enough brokers, or no controller), and those of every request.
func (c *Client) CreateTopic(ctx context.Context, t wire.CreateTopic) (wire.Topic, error) {
	r, err := retry[wire.CreateTopicReply](ctx, c, c.anyBroker(), "create_topic", t, 0)
	return r.Topic, err
}

// AlterTopic gives a topic more partitions, or changes its settings.
//
// Errors: wire.UnknownTopic, BadRequest (fewer partitions, or a setting that cannot be),
// Unavailable, and those of every request.
func (c *Client) AlterTopic(ctx context.Context, q wire.AlterTopic) error {
	_, err := retry[wire.Empty](ctx, c, c.anyBroker(), "alter_topic", q, 0)
	c.forgetTopic(q.Name)
	return err
}

// DeleteTopic deletes a topic, with all its records.
//
// Errors: wire.UnknownTopic, BadRequest (it is the brokers' own), Unavailable, and those of
// every request.
func (c *Client) DeleteTopic(ctx context.Context, name string) error {
	_, err := retry[wire.Empty](ctx, c, c.anyBroker(), "delete_topic", wire.DeleteTopic{Name: name}, 0)
	c.forgetTopic(name)
	return err
}

// DeleteGroup deletes a group that has no members, with its committed offsets.
//
// Errors: wire.BadRequest (there is no such group, or it has members), NotCoordinator,
// Unavailable, and those of every request.
func (c *Client) DeleteGroup(ctx context.Context, name string) error {
	_, err := retry[wire.Empty](ctx, c, c.coordinator(name), "delete_group", wire.DescribeGroup{Group: name}, 0)
	return err
}

// forgetTopic has the next request ask anew what the topic is like.
func (c *Client) forgetTopic(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.topics, name)
}

// Produced says where records landed.
type Produced struct {
	Topic     string
	Partition int
	Offset    int64 // of the first
	Timestamp time.Time
}

// Produce stores records in a partition as one batch, and returns when acks ("leader",
// "all", "quorum", or "" for the broker's default) is satisfied. With AnyPartition the
// first record's key decides, by the topic's rule; without a key, partitions take turns.
//
// Errors: wire.UnknownTopic, UnknownPartition, BadRequest, TooLarge, Replication (stored on
// the leader, not on all of its in-sync replicas), NotEnough, Damaged, NotLeader, Unavailable,
// and those of every request. After a broken connection the batch is sent again, so it may be
// stored twice.
func (c *Client) Produce(ctx context.Context, name string, partition int, acks string, records ...wire.Record) (Produced, error) {
	if partition == AnyPartition {
		var key []byte
		if len(records) > 0 {
			key = records[0].Key
		}
		var err error
		if partition, err = c.route(ctx, name, key); err != nil {
			return Produced{}, err
		}
	}
	r, err := retry[wire.ProduceReply](ctx, c, c.leader(name, partition), "produce",
		wire.Produce{Topic: name, Partition: partition, Acks: acks, Records: records}, 0)
	return Produced{Topic: name, Partition: r.Partition, Offset: r.Offset, Timestamp: time.UnixMilli(r.Timestamp)}, err
}

// route finds the partition for a key.
func (c *Client) route(ctx context.Context, name string, key []byte) (int, error) {
	t, err := c.Topic(ctx, name)
	if err != nil {
		return 0, err
	}
	if key != nil {
		router, err := topic.PartitionerByName(t.Partitioner)
		if err != nil {
			return 0, err
		}
		return router.Partition(key, len(t.Partitions)), nil
	}
	return c.turns.Take(name, len(t.Partitions)), nil
}

// Topic describes a topic, as it was when it was first asked for.
//
// Errors: wire.UnknownTopic, and those of every request.
func (c *Client) Topic(ctx context.Context, name string) (wire.Topic, error) {
	c.mu.Lock()
	t, ok := c.topics[name]
	c.mu.Unlock()
	if ok {
		return t, nil
	}
	m, err := c.Metadata(ctx, name)
	if err != nil {
		return wire.Topic{}, err
	}
	return m.Topics[0], nil
}

// Fetch reads records of a partition from an offset on. It waits up to wait for the first.
//
// Errors: wire.OutOfRange, with what there is; UnknownTopic, UnknownPartition, Damaged,
// NotLeader, Unavailable, and those of every request.
func (c *Client) Fetch(ctx context.Context, name string, partition int, offset int64, maxBytes int, wait time.Duration) (wire.FetchReply, error) {
	r, err := retry[wire.FetchReply](ctx, c, c.leader(name, partition), "fetch",
		wire.Fetch{Topic: name, Partition: partition, Offset: offset, MaxBytes: maxBytes, WaitMS: wait.Milliseconds(), LeaderEpoch: c.epoch(name, partition, 0)}, wait)
	c.epoch(name, partition, r.LeaderEpoch)
	return r, err
}

// Earliest is the first offset of a partition that can be read.
//
// Errors: wire.UnknownTopic, UnknownPartition, Damaged, NotLeader, Unavailable, and those of
// every request.
func (c *Client) Earliest(ctx context.Context, name string, partition int) (int64, error) {
	return c.listOffsets(ctx, wire.ListOffsets{Topic: name, Partition: partition, At: "earliest"})
}

// Latest is the offset after the last record that can be read.
//
// Errors: those of Earliest.
func (c *Client) Latest(ctx context.Context, name string, partition int) (int64, error) {
	return c.listOffsets(ctx, wire.ListOffsets{Topic: name, Partition: partition, At: "latest"})
}

// OffsetAt is the offset of the first record at or after a time; where there is none, the
// offset after the last record.
//
// Errors: those of Earliest.
func (c *Client) OffsetAt(ctx context.Context, name string, partition int, at time.Time) (int64, error) {
	return c.listOffsets(ctx, wire.ListOffsets{Topic: name, Partition: partition, At: "time", Timestamp: at.UnixMilli()})
}

func (c *Client) listOffsets(ctx context.Context, q wire.ListOffsets) (int64, error) {
	r, err := retry[wire.ListOffsetsReply](ctx, c, c.leader(q.Topic, q.Partition), "list_offsets", q, 0)
	return r.Offset, err
}

// DeleteRecords makes an offset the first that can be read of a partition, as far as that is
// safe. It returns the first that can be read.
//
// Errors: those of Earliest.
func (c *Client) DeleteRecords(ctx context.Context, name string, partition int, below int64) (int64, error) {
	r, err := retry[wire.DeleteRecordsReply](ctx, c, c.leader(name, partition), "delete_records", wire.DeleteRecords{Topic: name, Partition: partition, Below: below}, 0)
	return r.LogStartOffset, err
}

// Status describes a partition, replica by replica. What a broker that cannot be asked holds
// is missing from it, not an error.
//
// Errors: wire.UnknownTopic, UnknownPartition, and those of every request.
func (c *Client) Status(ctx context.Context, name string, partition int) (wire.StatusReply, error) {
	return retry[wire.StatusReply](ctx, c, c.anyBroker(), "status", wire.PartitionRequest{Topic: name, Partition: partition}, 5*time.Second)
}

// Cluster describes the cluster at a glance.
//
// Errors: those of every request.
func (c *Client) Cluster(ctx context.Context) (wire.ClusterReply, error) {
	return retry[wire.ClusterReply](ctx, c, c.anyBroker(), "describe_cluster", wire.Empty{}, 0)
}

// Reassign moves a partition to brokers, the preferred leader first, and returns when that has
// begun; Cluster shows when it is over. Without brokers it takes back a move that is under way.
//
// Errors: wire.BadRequest (what is wrong with the brokers, or nothing is under way), UnknownTopic,
// UnknownPartition, Unavailable, and those of every request.
func (c *Client) Reassign(ctx context.Context, name string, partition int, to ...wire.BrokerID) error {
	_, err := retry[wire.Empty](ctx, c, c.anyBroker(), "reassign", wire.Reassign{Topic: name, Partition: partition, Replicas: to}, 30*time.Second)
	return err
}

// ChangeMember adds a broker ("add"), which the others find at an address; gives it a vote
// ("give_vote"); takes that ("take_vote"); or removes the broker ("remove"), for which it must have
// no replicas.
//
// Errors: wire.BadRequest (why that cannot be), Unavailable, and those of every request.
func (c *Client) ChangeMember(ctx context.Context, id wire.BrokerID, change, address string) error {
	_, err := retry[wire.Empty](ctx, c, c.anyBroker(), "change_member", wire.ChangeMember{Broker: id, Change: change, Address: address}, 30*time.Second)
	return err
}

// Users lists those who have a password.
func (c *Client) Users(ctx context.Context) ([]wire.User, error) {
	r, err := retry[wire.ListUsersReply](ctx, c, c.anyBroker(), "list_users", wire.Empty{}, 0)
	return r.Users, err
}

// SetPassword gives a user a password, and makes the user first if need be.
//
// Errors: wire.BadRequest, Unavailable, and those of every request.
func (c *Client) SetPassword(ctx context.Context, q wire.SetPassword) error {
	_, err := retry[wire.Empty](ctx, c, c.anyBroker(), "set_password", q, 30*time.Second)
	return err
}

// DeleteUser takes a user's passwords away. Connections that are open stay so.
//
// Errors: wire.BadRequest (there is no such user), Unavailable, and those of every request.
func (c *Client) DeleteUser(ctx context.Context, name string) error {
	_, err := retry[wire.Empty](ctx, c, c.anyBroker(), "delete_user", wire.DeleteUser{Name: name}, 30*time.Second)
	return err
}

// Failover gives a partition whose leader is gone a new one.
//
// Errors: wire.LeaderAvailable, NoEligible, BadRequest (the controller decides by itself),
// UnknownTopic, UnknownPartition, Unavailable, and those of every request.
func (c *Client) Failover(ctx context.Context, name string, partition int) (wire.FailoverReply, error) {
	return retry[wire.FailoverReply](ctx, c, c.anyBroker(), "failover", wire.PartitionRequest{Topic: name, Partition: partition}, 30*time.Second)
}

// CatchUp makes a broker's replica copy what it lacks, after comparing what it has.
//
// Errors: wire.Diverged, BadRequest (the broker leads the partition or has no replica of
// it), Damaged, UnknownTopic, UnknownPartition, Unavailable, and those of every request.
func (c *Client) CatchUp(ctx context.Context, id wire.BrokerID, name string, partition int) error {
	_, err := retry[wire.Empty](ctx, c, c.broker(id), "catch_up", wire.PartitionRequest{Topic: name, Partition: partition}, time.Hour)
	return err
}

// Recover makes a broker's replica what its leader's is, and in sync again. What the leader
// does not have is cut off.
//
// Errors: those of CatchUp.
func (c *Client) Recover(ctx context.Context, id wire.BrokerID, name string, partition int) error {
	_, err := retry[wire.Empty](ctx, c, c.broker(id), "recover", wire.PartitionRequest{Topic: name, Partition: partition}, time.Hour)
	return err
}

// Groups lists the groups of all brokers that live.
//
// Errors: those of every request.
func (c *Client) Groups(ctx context.Context) ([]string, error) {
	m, err := c.Metadata(ctx)
	if err != nil {
		return nil, err
	}
	names := []string{}
	for _, b := range m.Brokers {
		if !b.Alive {
			continue
		}
		r, err := retry[wire.ListGroupsReply](ctx, c, c.broker(b.ID), "list_groups", wire.Empty{}, 0)
		if err != nil {
			return nil, err
		}
		names = append(names, r.Groups...)
	}
	return names, nil
}

// Group describes a group: members, partitions, committed offsets and lag.
//
// Errors: wire.BadRequest (no such name), NotCoordinator, Unavailable, and those of every
// request.
func (c *Client) Group(ctx context.Context, name string) (wire.DescribeGroupReply, error) {
	return retry[wire.DescribeGroupReply](ctx, c, c.coordinator(name), "describe_group", wire.DescribeGroup{Group: name}, 5*time.Second)
}

// Committed returns a group's committed offsets; without partitions, all.
//
// Errors: those of Group.
func (c *Client) Committed(ctx context.Context, group string, partitions ...wire.TopicPartition) ([]wire.CommitOffset, error) {
	return c.committedSince(ctx, group, 0, partitions)
}

// committedSince asks a coordinator of at least an epoch: an earlier one was replaced, and
// may not know what was committed since.
func (c *Client) committedSince(ctx context.Context, group string, epoch int32, partitions []wire.TopicPartition) ([]wire.CommitOffset, error) {
	q := wire.FetchOffsets{Group: group, Partitions: partitions, CoordinatorEpoch: epoch}
	r, err := retry[wire.FetchOffsetsReply](ctx, c, c.coordinator(group), "fetch_offsets", q, 0)
	return r.Offsets, err
}

// ResetOffsets sets the committed offsets of a group that has no members.
//
// Errors: those of Group, of which wire.BadRequest also means that it has members or that an
// offset lies beyond the log's end; wire.UnknownTopic, UnknownPartition.
func (c *Client) ResetOffsets(ctx context.Context, group string, offsets ...wire.CommitOffset) error {
	_, err := retry[wire.Empty](ctx, c, c.coordinator(group), "commit_offsets", wire.CommitOffsets{Group: group, Offsets: offsets, Reset: true}, 0)
	return err
}
