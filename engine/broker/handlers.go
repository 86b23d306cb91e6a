package broker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"logbook/engine/cluster"
	"logbook/engine/commitlog"
	"logbook/engine/controller"
	"logbook/engine/record"
	"logbook/engine/replica"
	"logbook/engine/topic"
	"logbook/engine/wire"
)

// handler answers a kind of request.
type handler struct {
	peer bool // for peers only
	do   func(s *session, payload json.RawMessage) (any, error)
}

// on makes a handler of a function from request to reply.
func on[Q, R any](f func(s *session, q Q) (R, error)) handler {
	return handler{do: func(s *session, payload json.RawMessage) (any, error) {
		var q Q
		if err := json.Unmarshal(payload, &q); err != nil {
			return nil, badRequest("a request that cannot be read: %v", err)
		}
		return f(s, q)
	}}
}

func onPeer[Q, R any](f func(s *session, q Q) (R, error)) handler {
	h := on(f)
	h.peer = true
	return h
}

// handlers are all requests but hello, produce and replica, which a session handles itself.
var handlers map[string]handler

func init() {
	handlers = map[string]handler{
		"metadata":     on(func(s *session, q wire.Metadata) (wire.MetadataReply, error) { return s.b.Metadata(q.Topics) }),
		"create_topic": on(func(s *session, q wire.CreateTopic) (wire.CreateTopicReply, error) { return s.b.CreateTopic(s.ctx, q) }),
		"fetch":        on(fetch),
		"list_offsets": on(func(s *session, q wire.ListOffsets) (wire.ListOffsetsReply, error) { return s.b.listOffsets(q) }),

		"find_coordinator": on(func(s *session, q wire.FindCoordinator) (wire.FindCoordinatorReply, error) {
			return s.b.groups.find(s.ctx, q.Group)
		}),
		"join_group": on(func(s *session, q wire.JoinGroup) (wire.JoinGroupReply, error) { return s.b.groups.join(s.soon, q) }),
		"sync_group": on(func(s *session, q wire.MemberRequest) (wire.SyncGroupReply, error) { return s.b.groups.sync(s.ctx, q) }),
		"heartbeat": on(func(s *session, q wire.MemberRequest) (wire.HeartbeatReply, error) {
			return s.b.groups.heartbeat(s.ctx, q)
		}),
		"leave_group": on(func(s *session, q wire.MemberRequest) (wire.Empty, error) {
			return wire.Empty{}, s.b.groups.leave(s.ctx, q)
		}),
		"commit_offsets": on(func(s *session, q wire.CommitOffsets) (wire.Empty, error) {
			return wire.Empty{}, s.b.groups.commit(s.ctx, q)
		}),
		"fetch_offsets": on(func(s *session, q wire.FetchOffsets) (wire.FetchOffsetsReply, error) {
			return s.b.groups.offsets(s.ctx, q)
		}),
		"list_groups": on(func(s *session, _ wire.Empty) (wire.ListGroupsReply, error) {
			return wire.ListGroupsReply{Groups: s.b.groups.names()}, nil
		}),
		"describe_group": on(func(s *session, q wire.DescribeGroup) (wire.DescribeGroupReply, error) {
			return s.b.groups.describe(s.ctx, q.Group)
		}),

		"status": on(func(s *session, q wire.PartitionRequest) (wire.StatusReply, error) {
			return s.b.Status(s.ctx, partition(q.Topic, q.Partition))
		}),
		"failover": on(func(s *session, q wire.PartitionRequest) (wire.FailoverReply, error) {
			return s.b.failover(s.ctx, partition(q.Topic, q.Partition))
		}),
		"catch_up": on(func(s *session, q wire.PartitionRequest) (wire.Empty, error) {
			return wire.Empty{}, s.b.node.CatchUp(s.ctx, partition(q.Topic, q.Partition))
		}),
		"recover": on(func(s *session, q wire.PartitionRequest) (wire.Empty, error) {
			return wire.Empty{}, s.b.node.Recover(s.ctx, partition(q.Topic, q.Partition))
		}),

		"ping":            onPeer(func(s *session, q wire.Ping) (wire.PingReply, error) { return s.b.dir.pinged(s.peer, q), nil }),
		"create_replicas": onPeer(func(s *session, q wire.CreateTopic) (wire.Empty, error) { return wire.Empty{}, s.b.createReplicas(q) }),
		"register":        onPeer(func(s *session, q wire.Register) (wire.AssignmentsReply, error) { return s.b.register(s.peer) }),
		"assignments":     onPeer(func(s *session, _ wire.Empty) (wire.AssignmentsReply, error) { return s.b.assignments() }),
		"propose":         onPeer(func(s *session, q wire.Propose) (wire.Empty, error) { return wire.Empty{}, s.b.propose(q) }),
		"report": onPeer(func(s *session, q wire.PartitionRequest) (wire.ReportReply, error) {
			return s.b.localReport(partition(q.Topic, q.Partition)), nil
		}),
		"sums": onPeer(func(s *session, q wire.SumsRequest) (wire.SumsReply, error) {
			sums, err := prober{s.b}.Sums(s.ctx, partition(q.Topic, q.Partition), s.b.cfg.ID, q.Offset, min(q.Max, 4096))
			return wire.SumsReply{Sums: sums}, err
		}),
	}
}

// Metadata describes the cluster as this broker sees it; names restricts it to some topics.
func (b *Broker) Metadata(names []string) (wire.MetadataReply, error) {
	m := wire.MetadataReply{Controller: b.cfg.Controller, Decider: b.dir.decider(), Brokers: b.Brokers(), Topics: []wire.Topic{}}
	all := b.dir.topics()
	if len(names) == 0 {
		names = slices.Sorted(maps.Keys(all))
	}
	for _, name := range names {
		t, ok := all[name]
		if !ok {
			return m, &topic.UnknownError{Name: name}
		}
		m.Topics = append(m.Topics, toWireTopic(name, t))
	}
	return m, nil
}

func toWireTopic(name string, t controller.Topic) wire.Topic {
	out := wire.Topic{Name: name, Router: t.Router, Replication: t.Replication, Internal: strings.HasPrefix(name, internalPrefix)}
	for _, a := range t.Partitions {
		out.Partitions = append(out.Partitions, wire.Partition{Leader: a.Leader, Epoch: a.Epoch, Replicas: a.Replicas, Active: nonNil(a.Active)})
	}
	return out
}

func nonNil[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

// Brokers lists the brokers, as this one sees them.
func (b *Broker) Brokers() []wire.Broker {
	alive := b.dir.alive()
	var out []wire.Broker
	for _, id := range b.cfg.all() {
		out = append(out, wire.Broker{ID: id, Address: b.addressOf(id), Alive: id == b.cfg.ID || alive[id]})
	}
	return out
}

func (b *Broker) addressOf(id replica.BrokerID) string {
	if id == b.cfg.ID {
		return b.Address()
	}
	return b.cfg.Peers[id]
}

// internalPrefix begins the names of topics that are the broker's own.
const internalPrefix = "__"

// CreateTopic makes a topic.
func (b *Broker) CreateTopic(ctx context.Context, r wire.CreateTopic) (wire.CreateTopicReply, error) {
	if r.Replication == 0 {
		r.Replication = min(3, len(b.cfg.all()))
	}
	if r.Router == "" {
		r.Router = topic.Murmur2.Name()
	}
	r.Only = nil
	if _, err := topic.RouterByName(r.Router); err != nil {
		return wire.CreateTopicReply{}, badRequest("%v", err)
	}
	if strings.HasPrefix(r.Name, internalPrefix) {
		return wire.CreateTopicReply{}, badRequest("topic names that begin with %q are the broker's own", internalPrefix)
	}
	if d := b.dir.decider(); d != replica.None && d != b.cfg.ID {
		return wire.CreateTopicReply{}, b.elsewhere(d, "topics are made on the broker that keeps the decisions")
	}
	if err := b.makeTopic(ctx, r); err != nil {
		return wire.CreateTopicReply{}, err
	}
	t, _ := b.dir.topic(r.Name)
	return wire.CreateTopicReply{Topic: toWireTopic(r.Name, t)}, nil
}

// makeTopic makes a topic, and lets this broker begin to lead what it leads of it.
func (b *Broker) makeTopic(ctx context.Context, r wire.CreateTopic) error {
	if err := b.dir.createTopic(ctx, r); err != nil {
		return err
	}
	for range 2 { // the assignment, and what it leads to
		for i := range r.Partitions {
			b.node.Flush(partition(r.Name, i))
		}
	}
	return nil
}

// elsewhere sends a client to another broker.
func (b *Broker) elsewhere(id replica.BrokerID, why string) error {
	return &wire.Error{Code: wire.NotCoordinator, Message: why, Leader: id, Address: b.addressOf(id)}
}

func (b *Broker) createReplicas(r wire.CreateTopic) error {
	switch d := b.dir.(type) {
	case *firstAlive:
		d.learn(r)
		return nil
	case *manual:
		return d.createReplicas(r)
	}
	return nil
}

func (b *Broker) deciding() (*manual, error) {
	d, ok := b.dir.(*manual)
	if !ok {
		return nil, badRequest("this cluster has the controller first-alive: each broker reckons who leads, and nothing is decided by call")
	}
	if d.local == nil {
		return nil, b.elsewhere(d.at, "decisions are made on another broker")
	}
	return d, nil
}

func (b *Broker) register(id replica.BrokerID) (wire.AssignmentsReply, error) {
	d, err := b.deciding()
	if err == nil {
		err = d.local.Register(id)
	}
	if err != nil {
		return wire.AssignmentsReply{}, err
	}
	return wire.AssignmentsReply{Meta: d.local.Meta()}, nil
}

func (b *Broker) assignments() (wire.AssignmentsReply, error) {
	d, err := b.deciding()
	if err != nil {
		return wire.AssignmentsReply{}, err
	}
	return wire.AssignmentsReply{Meta: d.local.Meta()}, nil
}

func (b *Broker) propose(q wire.Propose) error {
	d, err := b.deciding()
	if err != nil {
		return err
	}
	err = d.local.Propose(q.Partition, q.Assignment)
	if _, unsure := errors.AsType[*controller.UnsettledError](err); err != nil && !unsure {
		return badRequest("%v", err) // it surely does not count
	}
	return err
}

func (b *Broker) failover(ctx context.Context, p controller.Partition) (wire.FailoverReply, error) {
	d, err := b.deciding()
	if err != nil {
		return wire.FailoverReply{}, err
	}
	f, err := d.local.Failover(ctx, p, prober{b})
	return wire.FailoverReply{Old: f.Old, New: f.New, Epoch: f.Epoch, End: f.End, Active: f.Active}, err
}

// Status describes a partition, asking each of its replicas.
func (b *Broker) Status(ctx context.Context, p controller.Partition) (wire.StatusReply, error) {
	a, ok := b.dir.Assignment(p)
	if !ok {
		return wire.StatusReply{}, &controller.UnknownPartitionError{Partition: p}
	}
	s := wire.StatusReply{Leader: a.Leader, Epoch: a.Epoch, Active: nonNil(a.Active), HighWatermark: -1}
	leaderEnd := int64(-1)
	for _, id := range a.Replicas {
		r, err := b.report(ctx, p, id)
		rs := wire.ReplicaStatus{Broker: id, Role: r.Role, Known: err == nil, Start: r.Start, End: r.End, Problem: r.Problem}
		if err != nil {
			rs.Role, rs.Problem = "unknown", err.Error()
		} else if id == a.Leader {
			// The leader knows best who is active.
			leaderEnd, s.HighWatermark, s.Active, s.Epoch = r.End, r.HighWatermark, r.Active, r.Epoch
		}
		s.Replicas = append(s.Replicas, rs)
	}
	for i := range s.Replicas {
		r := &s.Replicas[i]
		r.Active = slices.Contains(s.Active, r.Broker)
		if r.Known && leaderEnd >= 0 {
			r.Lag, r.HasLag = leaderEnd-r.End, true
		}
	}
	return s, nil
}

// maxFetchWait is the longest that a fetch may wait for records.
const maxFetchWait = time.Minute

func fetch(s *session, q wire.Fetch) (wire.FetchReply, error) {
	b := s.b
	p := partition(q.Topic, q.Partition)
	if err := b.exists(p); err != nil {
		return wire.FetchReply{}, err
	}
	epoch, err := b.node.LeaderEpoch(p)
	if err != nil {
		return wire.FetchReply{}, err
	}
	if q.LeaderEpoch > epoch {
		return wire.FetchReply{}, &wire.Error{Code: wire.NotLeader, Epoch: epoch, Message: fmt.Sprintf("broker %d led %s in epoch %d, and has yet to hear of the one who leads in epoch %d", b.cfg.ID, p, epoch, q.LeaderEpoch)}
	}
	limit := cmp.Or(max(q.MaxBytes, 0), 1<<20)
	limit = min(limit, b.cfg.MaxFrame/2) // in base64, with keys and numbers, it fits a frame
	c, err := b.node.Read(p, q.Offset, limit)
	if is[*cluster.NotSettledError](err) && q.WaitMS > 0 {
		err = nil
	}
	if wait := min(time.Duration(max(q.WaitMS, 0))*time.Millisecond, maxFetchWait); err == nil && len(c.Frames) == 0 && wait > 0 {
		ctx, cancel := context.WithTimeout(s.soon, wait)
		err = b.node.Wait(ctx, p, q.Offset)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
			err = nil
		}
		if err == nil {
			c, err = b.node.Read(p, q.Offset, limit)
		}
	}
	if err != nil {
		return wire.FetchReply{}, err
	}
	reply, err := b.fetched(p, q.Offset, limit, c)
	reply.LeaderEpoch = epoch
	return reply, err
}

// fetched turns stored frames into a reply, which holds records from the offset on.
func (b *Broker) fetched(p controller.Partition, from int64, limit int, c commitlog.Chunk) (wire.FetchReply, error) {
	l, err := b.node.Log(p)
	if err != nil {
		return wire.FetchReply{}, err
	}
	hw, err := b.node.HighWatermark(p)
	if err != nil {
		return wire.FetchReply{}, err
	}
	reply := wire.FetchReply{Records: []wire.Record{}, Next: max(from, c.Next), HighWatermark: hw, Start: l.StartOffset()}
	frames, err := record.ParseAll(l.Format(), c.Frames)
	if err != nil {
		return reply, err
	}
	var it record.Iterator
	size := 0
	for _, f := range frames {
		for it.Reset(f); it.Next(); {
			r := it.Record()
			if r.Offset < from {
				continue
			}
			// A batch may be small on disk and large in memory: what does not fit is for the
			// next fetch, and a batch can be left in its middle.
			if size += r.Size(); size > limit && len(reply.Records) > 0 {
				reply.Next = r.Offset
				b.counters.fetched(p, len(reply.Records))
				return reply, nil
			}
			reply.Records = append(reply.Records, fromRecord(r.Clone()))
		}
		if err := it.Err(); err != nil {
			return reply, err
		}
	}
	b.counters.fetched(p, len(reply.Records))
	return reply, nil
}

func fromRecord(r record.Record) wire.Record {
	out := wire.Record{Offset: r.Offset, Timestamp: r.Timestamp.UnixMilli(), Key: r.Key, Value: r.Value}
	for _, h := range r.Headers {
		out.Headers = append(out.Headers, wire.Header{Key: h.Key, Value: h.Value})
	}
	return out
}

// exists says what is wrong with a partition that there is not.
func (b *Broker) exists(p controller.Partition) error {
	t, ok := b.dir.topic(p.Topic)
	switch {
	case !ok:
		return &topic.UnknownError{Name: p.Topic}
	case p.ID < 0 || p.ID >= len(t.Partitions):
		return &topic.PartitionError{Topic: p.Topic, Partition: p.ID, Count: len(t.Partitions)}
	}
	return nil
}

func (b *Broker) listOffsets(q wire.ListOffsets) (wire.ListOffsetsReply, error) {
	p := partition(q.Topic, q.Partition)
	if err := b.exists(p); err != nil {
		return wire.ListOffsetsReply{}, err
	}
	if _, err := b.node.Read(p, -1, 1); err != nil { // who does not lead does not know
		if _, out := errors.AsType[*commitlog.OffsetOutOfRangeError](err); !out {
			return wire.ListOffsetsReply{}, err
		}
	}
	l, err := b.node.Log(p)
	if err != nil {
		return wire.ListOffsetsReply{}, err
	}
	hw, err := b.node.HighWatermark(p)
	if err != nil {
		return wire.ListOffsetsReply{}, err
	}
	if err := b.node.Settled(p); err != nil && q.At != "earliest" {
		return wire.ListOffsetsReply{}, err
	}
	switch q.At {
	case "earliest":
		return wire.ListOffsetsReply{Offset: l.StartOffset()}, nil
	case "latest":
		return wire.ListOffsetsReply{Offset: max(hw, l.StartOffset())}, nil
	case "time":
		at, err := l.OffsetForTime(time.UnixMilli(q.Timestamp).UnixNano())
		return wire.ListOffsetsReply{Offset: min(at, max(hw, l.StartOffset()))}, err
	}
	return wire.ListOffsetsReply{}, badRequest("at is %q; it must be earliest, latest or time", q.At)
}
