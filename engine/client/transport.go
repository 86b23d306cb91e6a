package client

import (
	"context"
	"errors"
	"time"

	"logbook/engine/failure"
	"logbook/engine/record"
	"logbook/engine/stream"
	"logbook/engine/wire"
)

// Dial returns a client of a cluster of brokers, as engine.Open does of a directory. It
// connects when it has something to ask. Close it with its Close.
//
// Errors: what is wrong with the options.
func Dial(opt Options) (*Stream, error) {
	c, err := New(opt)
	if err != nil {
		return nil, err
	}
	return &Stream{Client: c.Stream(), c: c}, nil
}

// Stream is a stream.Client over brokers, which it closes.
type Stream struct {
	*stream.Client
	c *Client
}

// Close makes members leave, sends what producers hold, and closes every connection.
func (s *Stream) Close() error { return errors.Join(s.Client.Close(), s.c.Close()) }

// Stream returns producers, consumers and members over this client, which stays open when
// they are closed.
func (c *Client) Stream() *stream.Client { return stream.New(&transport{c}) }

// transport is the JSON protocol as a stream.Transport.
type transport struct{ c *Client }

// failed turns what a broker said into the error that every transport returns.
func failed(err error) error {
	if errors.Is(err, ErrClosed) {
		return stream.ErrClosed
	}
	we, ok := errors.AsType[*wire.Error](err)
	if !ok {
		return err
	}
	return &failure.Error{
		Code: failure.Code(we.Code), Message: err.Error(), Leader: int32(we.Leader), LeaderEpoch: we.LeaderEpoch, Offset: we.Offset,
		LogStartOffset: we.LogStartOffset, LogEndOffset: we.LogEndOffset, Err: err,
	}
}

func fromTopic(t wire.Topic) stream.Topic {
	return stream.Topic{Name: t.Name, Partitions: len(t.Partitions), Replication: t.Replication, Partitioner: t.Partitioner}
}

func (t *transport) Topics(ctx context.Context, names ...string) ([]stream.Topic, error) {
	m, err := t.c.Metadata(ctx, names...)
	var out []stream.Topic
	for _, topic := range m.Topics {
		if len(names) > 0 || !topic.Internal {
			out = append(out, fromTopic(topic))
		}
	}
	return out, failed(err)
}

func (t *transport) CreateTopic(ctx context.Context, q stream.Topic) (stream.Topic, error) {
	made, err := t.c.CreateTopic(ctx, wire.CreateTopic{Name: q.Name, Partitions: q.Partitions, Replication: q.Replication, Partitioner: q.Partitioner})
	return fromTopic(made), failed(err)
}

func (t *transport) Produce(ctx context.Context, p stream.Partition, acks stream.Acks, records []record.Record) (stream.Appended, error) {
	out := make([]wire.Record, len(records))
	for i, r := range records {
		out[i] = wire.Record{Key: r.Key, Value: r.Value}
		if !r.Timestamp.IsZero() {
			out[i].Timestamp = new(r.Timestamp.UnixMilli())
		}
		for _, h := range r.Headers {
			out[i].Headers = append(out[i].Headers, wire.Header{Key: h.Key, Value: h.Value})
		}
	}
	at, err := t.c.Produce(ctx, p.Topic, p.ID, string(acks), out...)
	return stream.Appended{Topic: p.Topic, Partition: at.Partition, Offset: at.Offset, Timestamp: at.Timestamp}, failed(err)
}

func (t *transport) Fetch(ctx context.Context, q stream.Fetch) (stream.Fetched, error) {
	t.c.epoch(q.Partition.Topic, q.Partition.ID, q.LeaderEpoch)
	r, err := t.c.Fetch(ctx, q.Partition.Topic, q.Partition.ID, q.Offset, q.MaxBytes, q.MaxWait)
	out := stream.Fetched{NextOffset: r.NextOffset, HighWatermark: r.HighWatermark, LogStartOffset: r.LogStartOffset, LeaderEpoch: r.LeaderEpoch}
	for _, rec := range r.Records {
		out.Records = append(out.Records, fromRecord(rec))
	}
	return out, failed(err)
}

func fromRecord(r wire.Record) record.Record {
	out := record.Record{Offset: r.Offset, Key: r.Key, Value: r.Value}
	if r.Timestamp != nil {
		out.Timestamp = time.UnixMilli(*r.Timestamp)
	}
	for _, h := range r.Headers {
		out.Headers = append(out.Headers, record.Header{Key: h.Key, Value: h.Value})
	}
	return out
}

func (t *transport) Offset(ctx context.Context, p stream.Partition, where stream.Where, at time.Time) (int64, error) {
	q := wire.ListOffsets{Topic: p.Topic, Partition: p.ID, At: string(where)}
	if where == stream.AtTime {
		q.Timestamp = at.UnixMilli()
	}
	offset, err := t.c.listOffsets(ctx, q)
	return offset, failed(err)
}

func (t *transport) DeleteRecords(ctx context.Context, p stream.Partition, below int64) (int64, error) {
	start, err := t.c.DeleteRecords(ctx, p.Topic, p.ID, below)
	return start, failed(err)
}

func (t *transport) Join(ctx context.Context, group string, q stream.Join) (stream.Joined, error) {
	r, err := retry[wire.JoinGroupReply](ctx, t.c, t.c.coordinator(group), "join_group", wire.JoinGroup{
		Group: group, Member: q.Member, NewMember: q.NewMember, Instance: q.Instance, Topics: q.Topics, Assignor: q.Assignor,
		SessionTimeoutMS: q.SessionTimeout.Milliseconds(), RebalanceTimeoutMS: q.RebalanceTimeout.Milliseconds(), Owned: toPartitions(q.Owned),
	}, 2*max(q.SessionTimeout, q.RebalanceTimeout))
	return stream.Joined{Member: r.Member, Generation: r.Generation, Epoch: r.CoordinatorEpoch}, failed(err)
}

func toPartitions(ps []stream.Partition) []wire.TopicPartition {
	var out []wire.TopicPartition
	for _, p := range ps {
		out = append(out, wire.TopicPartition{Topic: p.Topic, Partition: p.ID})
	}
	return out
}

func fromPartitions(ps []wire.TopicPartition) []stream.Partition {
	var out []stream.Partition
	for _, p := range ps {
		out = append(out, stream.Partition{Topic: p.Topic, ID: p.Partition})
	}
	return out
}

func request(group string, m stream.Membership) wire.MemberRequest {
	return wire.MemberRequest{Group: group, Member: m.Member, Instance: m.Instance, Generation: m.Generation}
}

func (t *transport) Sync(ctx context.Context, group string, m stream.Membership) ([]stream.Partition, error) {
	r, err := retry[wire.SyncGroupReply](ctx, t.c, t.c.coordinator(group), "sync_group", request(group, m), 0)
	return fromPartitions(r.Partitions), failed(err)
}

func (t *transport) Heartbeat(ctx context.Context, group string, m stream.Membership) (int32, error) {
	r, err := retry[wire.HeartbeatReply](ctx, t.c, t.c.coordinator(group), "heartbeat", request(group, m), 0)
	return r.CoordinatorEpoch, failed(err)
}

func (t *transport) Leave(ctx context.Context, group string, m stream.Membership) error {
	_, err := retry[wire.Empty](ctx, t.c, t.c.coordinator(group), "leave_group", request(group, m), 0)
	return failed(err)
}

func toOffsets(offsets map[stream.Partition]int64) []wire.CommitOffset {
	var out []wire.CommitOffset
	for p, offset := range offsets {
		out = append(out, wire.CommitOffset{Topic: p.Topic, Partition: p.ID, Offset: offset})
	}
	return out
}

func (t *transport) Commit(ctx context.Context, group string, m stream.Membership, offsets map[stream.Partition]int64) error {
	q := wire.CommitOffsets{Group: group, Member: m.Member, Instance: m.Instance, Generation: m.Generation, Offsets: toOffsets(offsets)}
	_, err := retry[wire.Empty](ctx, t.c, t.c.coordinator(group), "commit_offsets", q, 0)
	return failed(err)
}

func (t *transport) SetOffsets(ctx context.Context, group string, offsets map[stream.Partition]int64, reset bool) error {
	q := wire.CommitOffsets{Group: group, Offsets: toOffsets(offsets), Reset: reset}
	_, err := retry[wire.Empty](ctx, t.c, t.c.coordinator(group), "commit_offsets", q, 0)
	return failed(err)
}

func (t *transport) Committed(ctx context.Context, group string, epoch int32) (map[stream.Partition]int64, error) {
	all, err := t.c.committedSince(ctx, group, epoch, nil)
	out := map[stream.Partition]int64{}
	for _, o := range all {
		out[stream.Partition{Topic: o.Topic, ID: o.Partition}] = o.Offset
	}
	return out, failed(err)
}

func (t *transport) Groups(ctx context.Context) ([]string, error) {
	names, err := t.c.Groups(ctx)
	return names, failed(err)
}

func (t *transport) DescribeGroup(ctx context.Context, name string) (stream.Group, error) {
	d, err := t.c.Group(ctx, name)
	out := stream.Group{Name: name, State: d.State, Generation: d.Generation, Members: map[string][]stream.Partition{}}
	for _, m := range d.Members {
		out.Members[m.Member] = fromPartitions(m.Partitions)
	}
	for _, o := range d.Offsets {
		out.Offsets = append(out.Offsets, stream.GroupOffset{Partition: stream.Partition{Topic: o.Topic, ID: o.Partition}, Offset: o.Offset, HighWatermark: o.HighWatermark, Lag: o.Lag})
	}
	return out, failed(err)
}
