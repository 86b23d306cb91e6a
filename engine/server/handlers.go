package server

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"logbook/engine/controller"
	"logbook/engine/group"
	"logbook/engine/metadata"
	"logbook/engine/node"
	"logbook/engine/record"
	"logbook/engine/replica"
	"logbook/engine/service"
	"logbook/engine/wire"
)

// handler begins a request, and sees to it that reply is called, once.
type handler func(s *session, payload json.RawMessage, reply func(any, error))

// on makes a handler of a function that begins a request.
func on[Q any](f func(s *session, q Q, reply func(any, error))) handler {
	return func(s *session, payload json.RawMessage, reply func(any, error)) {
		var q Q
		if err := wire.Unmarshal(payload, &q); err != nil {
			reply(nil, badRequest("a request that cannot be read: %v", err))
			return
		}
		f(s, q, reply)
	}
}

func badRequest(format string, args ...any) error {
	return &service.Error{Code: service.BadRequest, Message: fmt.Sprintf(format, args...)}
}

// done passes an outcome without a reply of its own on.
func done(reply func(any, error)) func(error) {
	return func(err error) { reply(wire.Empty{}, err) }
}

// handlers are all requests but hello, which a session handles itself.
var handlers = map[string]handler{
	"vouch": on(func(s *session, q wire.Vouch, reply func(any, error)) {
		l := s.b.link(replica.BrokerID(q.Broker))
		reply(wire.VouchReply{Broker: wire.BrokerID(s.b.cfg.ID), Mine: l != nil && l.vouch(q.Nonce)}, nil)
	}),
	"metadata": on(func(s *session, q wire.Metadata, reply func(any, error)) { reply(s.b.Metadata(q.Topics...)) }),
	"create_topic": on(func(s *session, q wire.CreateTopic, reply func(any, error)) {
		s.b.CreateTopic(q, func(t wire.Topic, err error) { reply(wire.CreateTopicReply{Topic: t}, err) })
	}),
	"alter_topic": on(func(s *session, q wire.AlterTopic, reply func(any, error)) {
		s.b.service.ChangeTopic(service.TopicChange{Name: q.Name, Partitions: q.Partitions, Settings: q.Settings}, done(reply))
	}),
	"delete_topic": on(func(s *session, q wire.DeleteTopic, reply func(any, error)) {
		s.b.service.ChangeTopic(service.TopicChange{Name: q.Name, Delete: true}, done(reply))
	}),
	"delete_group": on(func(s *session, q wire.DescribeGroup, reply func(any, error)) {
		s.b.service.DeleteGroup(q.Group, func(err error) {
			if errors.Is(err, service.ErrNoGroup) || errors.Is(err, service.ErrGroupNotEmpty) {
				err = badRequest("group %q: %v", q.Group, err)
			}
			reply(wire.Empty{}, err)
		})
	}),
	"produce":      on(produce),
	"fetch":        on(fetch),
	"list_offsets": on(listOffsets),
	"delete_records": on(func(s *session, q wire.DeleteRecords, reply func(any, error)) {
		s.b.service.DeleteRecords(service.Partition{Topic: q.Topic, ID: q.Partition}, q.Below, func(start int64, err error) {
			reply(wire.DeleteRecordsReply{LogStartOffset: start}, err)
		})
	}),

	"find_coordinator": on(func(s *session, q wire.FindCoordinator, reply func(any, error)) {
		s.b.service.FindCoordinator(q.Group, func(id replica.BrokerID, err error) {
			reply(wire.FindCoordinatorReply{Broker: wire.Broker{ID: wire.BrokerID(id), Address: s.b.AddressOf(id), Alive: true}}, err)
		})
	}),
	"join_group": on(joinGroup),
	"sync_group": on(func(s *session, q wire.MemberRequest, reply func(any, error)) {
		s.b.service.Group(q.Group, memberRequest(group.Sync, q), func(r service.GroupReply, err error) {
			reply(wire.SyncGroupReply{Partitions: toWirePartitions(r.Partitions)}, err)
		})
	}),
	"heartbeat": on(func(s *session, q wire.MemberRequest, reply func(any, error)) {
		s.b.service.Group(q.Group, memberRequest(group.Heartbeat, q), func(r service.GroupReply, err error) {
			reply(wire.HeartbeatReply{Generation: r.Generation, CoordinatorEpoch: r.Epoch}, err)
		})
	}),
	"leave_group": on(func(s *session, q wire.MemberRequest, reply func(any, error)) {
		s.b.service.Group(q.Group, memberRequest(group.Leave, q), func(_ service.GroupReply, err error) { reply(wire.Empty{}, err) })
	}),
	"commit_offsets": on(commitOffsets),
	"fetch_offsets": on(func(s *session, q wire.FetchOffsets, reply func(any, error)) {
		s.b.service.Committed(q.Group, q.CoordinatorEpoch, func(all map[service.Partition]int64, err error) {
			reply(wire.FetchOffsetsReply{Offsets: toWireOffsets(all, q.Partitions)}, err)
		})
	}),
	"list_groups": on(func(s *session, _ wire.Empty, reply func(any, error)) {
		s.b.service.LocalGroups(func(names []string) { reply(wire.ListGroupsReply{Groups: nonNil(names)}, nil) })
	}),
	"describe_group": on(func(s *session, q wire.DescribeGroup, reply func(any, error)) {
		s.b.DescribeGroup(q.Group, func(d wire.DescribeGroupReply, err error) { reply(d, err) })
	}),

	"status": on(func(s *session, q wire.PartitionRequest, reply func(any, error)) {
		s.b.Status(partition(q), func(r wire.StatusReply, err error) { reply(r, err) })
	}),
	"describe_cluster": on(func(s *session, _ wire.Empty, reply func(any, error)) {
		s.b.Cluster(func(r wire.ClusterReply) { reply(r, nil) })
	}),
	"reassign": on(func(s *session, q wire.Reassign, reply func(any, error)) {
		var to []service.BrokerID
		for _, id := range q.Replicas {
			to = append(to, service.BrokerID(id))
		}
		s.b.service.Reassign(service.Partition{Topic: q.Topic, ID: q.Partition}, to, done(reply))
	}),
	"change_member": on(func(s *session, q wire.ChangeMember, reply func(any, error)) {
		kinds := map[string]controller.MemberChangeKind{"add": controller.AddBroker, "give_vote": controller.GiveVote, "take_vote": controller.TakeVote, "remove": controller.RemoveBroker}
		kind, ok := kinds[q.Change]
		if !ok {
			reply(nil, badRequest("there is no change %q of a broker; it is add, give_vote, take_vote or remove", q.Change))
			return
		}
		if kind == controller.AddBroker && !isAddress(q.Address) {
			reply(nil, badRequest("%q is no address at which the others find broker %d; it must be host:port", q.Address, q.Broker))
			return
		}
		s.b.service.ChangeMember(service.MemberChange{Broker: service.BrokerID(q.Broker), Kind: kind, Address: q.Address}, done(reply))
	}),
	"list_users": on(func(s *session, _ wire.Empty, reply func(any, error)) {
		image := s.b.service.Image()
		r := wire.ListUsersReply{Users: []wire.User{}}
		for _, name := range image.Users() {
			u := wire.User{Name: name}
			for _, m := range metadata.Mechanisms {
				if _, ok := image.User(name)[m]; ok {
					u.Mechanisms = append(u.Mechanisms, string(m))
				}
			}
			r.Users = append(r.Users, u)
		}
		reply(r, nil)
	}),
	"set_password": on(setPassword),
	"delete_user": on(func(s *session, q wire.DeleteUser, reply func(any, error)) {
		change := service.UserChange{Name: q.Name, Credentials: map[metadata.Mechanism]*metadata.Credential{}}
		for m := range s.b.service.Image().User(q.Name) {
			change.Credentials[m] = nil
		}
		if len(change.Credentials) == 0 {
			reply(nil, badRequest("there is no user %q", q.Name))
			return
		}
		s.b.service.ChangeUser(change, done(reply))
	}),
	"failover": on(func(s *session, q wire.PartitionRequest, reply func(any, error)) {
		s.b.service.Failover(partition(q), func(f controller.FailoverResult, err error) {
			reply(wire.FailoverReply{Old: wire.BrokerID(f.Old), New: wire.BrokerID(f.New), LeaderEpoch: f.LeaderEpoch, LogEndOffset: f.LogEndOffset, ISR: toWireIDs(f.ISR)}, err)
		})
	}),
	"catch_up": on(func(s *session, q wire.PartitionRequest, reply func(any, error)) {
		s.b.service.CatchUp(partition(q), done(reply))
	}),
	"recover": on(func(s *session, q wire.PartitionRequest, reply func(any, error)) {
		s.b.service.Recover(partition(q), done(reply))
	}),
}

// Metadata describes the cluster as this broker sees it; names restricts it to some topics.
//
// Errors: service.UnknownTopic.
func (b *Server) Metadata(names ...string) (wire.MetadataReply, error) {
	m := wire.MetadataReply{Controller: b.service.Controller(), ControllerID: wire.BrokerID(b.service.ControllerID()), Brokers: b.Brokers(), Topics: []wire.Topic{}}
	topics, err := b.service.Topics(names...)
	for _, t := range topics {
		m.Topics = append(m.Topics, toWireTopic(t))
	}
	return m, err
}

// Brokers lists the brokers, as this one sees them.
func (b *Server) Brokers() []wire.Broker {
	var out []wire.Broker
	for _, s := range b.service.Brokers() {
		out = append(out, wire.Broker{ID: wire.BrokerID(s.ID), Address: b.AddressOf(s.ID), Alive: s.Alive})
	}
	return out
}

// CreateTopic makes a topic; see service.Service.CreateTopic for the errors.
func (b *Server) CreateTopic(q wire.CreateTopic, done func(wire.Topic, error)) {
	spec := controller.TopicSpec{Name: q.Name, Partitions: q.Partitions, Replication: q.Replication, Partitioner: q.Partitioner, Settings: q.Settings}
	b.service.CreateTopic(spec, func(t *metadata.Topic, err error) {
		if err != nil {
			done(wire.Topic{}, err)
			return
		}
		done(toWireTopic(t), nil)
	})
}

// Cluster describes the cluster at a glance.
func (b *Server) Cluster(done func(wire.ClusterReply)) {
	b.service.Cluster(func(c service.ClusterStatus) {
		r := wire.ClusterReply{
			Controller: c.Controller, ControllerID: wire.BrokerID(c.Active), Broker: wire.BrokerID(b.cfg.ID), Brokers: []wire.ClusterBroker{},
			Leaderless: toWirePartitions(c.Leaderless), UnderReplicated: toWirePartitions(c.UnderReplicated), UnderMinISR: toWirePartitions(c.UnderMinISR), Moving: []wire.Move{},
		}
		if q := c.Quorum; q != nil && q.Formed {
			r.Cluster, r.Term, r.Committed, r.Applied, r.Unclean = q.Cluster.String(), int64(q.Term), int64(q.Committed), int64(q.Applied), int64(q.UncleanElections)
		}
		for _, m := range c.Moving {
			r.Moving = append(r.Moving, wire.Move{Topic: m.Partition.Topic, Partition: m.Partition.ID, From: toWireIDs(m.From), To: toWireIDs(m.To), Done: toWireIDs(m.Done)})
		}
		for _, o := range c.Brokers {
			lag := int64(-1)
			if o.HasLag {
				lag = o.Lag
			}
			r.Brokers = append(r.Brokers, wire.ClusterBroker{
				ID: wire.BrokerID(o.ID), Address: b.AddressOf(o.ID), Alive: o.Alive, Fenced: o.Fenced, Role: o.Role.String(), Rack: o.Rack, Voter: o.Voter, Learner: o.Learner, Lag: lag, Leads: o.Leads, Replicas: o.Replicas,
			})
		}
		done(r)
	})
}

// Status describes a partition, asking each of its replicas.
//
// Errors: service.UnknownTopic, service.UnknownPartition.
func (b *Server) Status(p service.Partition, done func(wire.StatusReply, error)) {
	b.service.PartitionStatus(p, func(st service.PartitionStatus, err error) { done(toWireStatus(st), err) })
}

// DescribeGroup describes a group that this broker coordinates, or another.
//
// Errors: see service.Service.DescribeGroup.
func (b *Server) DescribeGroup(name string, done func(wire.DescribeGroupReply, error)) {
	b.service.DescribeGroup(name, func(d service.GroupDescription, err error) { done(toWireGroup(name, d), err) })
}

func produce(s *session, q wire.Produce, reply func(any, error)) {
	if len(q.Records) == 0 {
		reply(nil, badRequest("a produce without records"))
		return
	}
	p := service.Produce{Topic: q.Topic, Partition: q.Partition, Key: q.Records[0].Key, Timeout: time.Duration(q.TimeoutMS) * time.Millisecond}
	if q.Acks != "" {
		acks, err := replica.ParseAcks(q.Acks)
		if err != nil {
			reply(nil, badRequest("%v", err))
			return
		}
		p.Acks = &acks
	}
	records := make([]record.Record, len(q.Records))
	for i, r := range q.Records {
		records[i] = toRecord(r)
	}
	var err error
	if p.Batch, err = s.b.service.NewBatch(records); err != nil {
		reply(nil, err)
		return
	}
	began := time.Now()
	s.b.service.Produce(p, func(at service.Produced, err error) {
		if err == nil {
			s.b.counters.produced(q.Topic, len(records), time.Since(began))
		}
		reply(wire.ProduceReply{Partition: at.Partition, Offset: at.BaseOffset, Timestamp: at.Timestamp.UnixMilli()}, err)
	})
}

func toRecord(r wire.Record) record.Record {
	out := record.Record{Key: r.Key, Value: r.Value}
	if r.Timestamp != nil {
		out.Timestamp = time.UnixMilli(*r.Timestamp)
	}
	for _, h := range r.Headers {
		out.Headers = append(out.Headers, record.Header{Key: h.Key, Value: h.Value})
	}
	return out
}

// fetchMemory is how much memory a fetched byte takes until it is in a reply: as it was read,
// in a record, and in base64.
const fetchMemory = 4

func fetch(s *session, q wire.Fetch, reply func(any, error)) {
	limit := cmp.Or(max(q.MaxBytes, 0), 1<<20)
	limit = min(limit, s.b.cfg.MaxFrame/2) // in base64, with keys and numbers, it fits a frame
	p := service.Partition{Topic: q.Topic, ID: q.Partition}
	if service.IsInternal(q.Topic) {
		reply(nil, badRequest("topic %q is the broker's own, and not read by clients; describe_group says what groups have committed", q.Topic))
		return
	}
	request := service.Fetch{
		Partitions: []service.FetchPartition{{Partition: p, Offset: q.Offset, MaxBytes: limit, LeaderEpoch: q.LeaderEpoch}},
		MaxWait:    time.Duration(max(q.WaitMS, 0)) * time.Millisecond,
	}
	request.Reserve, request.Release = s.b.memory.Reserver(fetchMemory)
	var w waiting
	cancel := s.b.service.Fetch(request, func(all []service.Fetched) {
		w.answered()
		f := all[0]
		defer request.Release(int64(len(f.Frames))) // the reply has taken its own by then
		if f.Err != nil {
			reply(nil, f.Err)
			return
		}
		r, err := fetched(q.Offset, limit, f)
		s.b.counters.fetched(q.Topic, len(r.Records))
		reply(r, err)
	})
	if request.MaxWait > 0 {
		w.cancelWith(s.drainCtx, cancel)
	}
}

// waiting is a request that waits for something to happen, and is given up when the
// session is drained.
type waiting struct {
	mu   sync.Mutex
	done bool
	stop func() bool
}

func (w *waiting) answered() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.done = true; w.stop != nil {
		w.stop()
	}
}

// cancelWith calls cancel when ctx ends, unless the answer comes first.
func (w *waiting) cancelWith(ctx context.Context, cancel func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.done {
		w.stop = context.AfterFunc(ctx, cancel)
	}
}

// fetched turns stored frames into a reply, which holds records from the offset on.
func fetched(from int64, limit int, f service.Fetched) (wire.FetchReply, error) {
	reply := wire.FetchReply{
		Records: []wire.Record{}, NextOffset: f.Next, HighWatermark: f.Look.HighWatermark, LogStartOffset: f.Look.LogStartOffset, LeaderEpoch: f.Look.LeaderEpoch,
	}
	size := 0
	for r, err := range f.Records(from) {
		if err != nil {
			return reply, err
		}
		// A batch may be small on disk and large in memory: what does not fit is for the
		// next fetch, and a batch can be left in its middle.
		if size += r.Size(); size > limit && len(reply.Records) > 0 {
			reply.NextOffset = r.Offset
			return reply, nil
		}
		reply.Records = append(reply.Records, fromRecord(r.Clone()))
	}
	return reply, nil
}

func fromRecord(r record.Record) wire.Record {
	out := wire.Record{Offset: r.Offset, Timestamp: new(r.Timestamp.UnixMilli()), Key: r.Key, Value: r.Value}
	for _, h := range r.Headers {
		out.Headers = append(out.Headers, wire.Header{Key: h.Key, Value: h.Value})
	}
	return out
}

func listOffsets(s *session, q wire.ListOffsets, reply func(any, error)) {
	p := service.Partition{Topic: q.Topic, ID: q.Partition}
	s.b.service.ListOffset(p, service.Where(q.At), time.UnixMilli(q.Timestamp), func(offset int64, _ node.Look, err error) {
		reply(wire.ListOffsetsReply{Offset: offset}, err)
	})
}

func joinGroup(s *session, q wire.JoinGroup, reply func(any, error)) {
	r := group.Request{
		Member: q.Member, NewMember: q.NewMember, Instance: q.Instance, Topics: q.Topics, Assignor: q.Assignor,
		SessionTimeout: time.Duration(q.SessionTimeoutMS) * time.Millisecond, RebalanceTimeout: time.Duration(q.RebalanceTimeoutMS) * time.Millisecond,
	}
	for _, p := range q.Owned {
		r.Owned = append(r.Owned, service.Partition{Topic: p.Topic, ID: p.Partition})
	}
	var w waiting
	cancel := s.b.service.Join(q.Group, r, func(g service.GroupReply, err error) {
		w.answered()
		reply(wire.JoinGroupReply{Member: g.Member, Generation: g.Generation, CoordinatorEpoch: g.Epoch}, err)
	})
	w.cancelWith(s.drainCtx, cancel)
}

func memberRequest(kind group.Kind, q wire.MemberRequest) group.Request {
	return group.Request{Kind: kind, Member: q.Member, Instance: q.Instance, Generation: q.Generation}
}

func commitOffsets(s *session, q wire.CommitOffsets, reply func(any, error)) {
	offsets := map[service.Partition]int64{}
	for _, o := range q.Offsets {
		offsets[service.Partition{Topic: o.Topic, ID: o.Partition}] = o.Offset
	}
	if q.Member == "" {
		s.b.service.SetOffsets(q.Group, offsets, q.Reset, done(reply))
		return
	}
	if len(offsets) == 0 {
		reply(nil, badRequest("a commit without offsets"))
		return
	}
	r := group.Request{Kind: group.Commit, Member: q.Member, Instance: q.Instance, Generation: q.Generation, Offsets: offsets}
	s.b.service.Group(q.Group, r, func(_ service.GroupReply, err error) { reply(wire.Empty{}, err) })
}

// iterations is how often a password is hashed; it is what Kafka's tools take.
const iterations = 8192

// setPassword keeps what proves a password, for each mechanism that is asked for.
func setPassword(s *session, q wire.SetPassword, reply func(any, error)) {
	change := service.UserChange{Name: q.Name, Credentials: map[metadata.Mechanism]*metadata.Credential{}}
	wanted := metadata.Mechanisms
	if len(q.Mechanisms) > 0 {
		wanted = nil
		for _, m := range q.Mechanisms {
			wanted = append(wanted, metadata.Mechanism(m))
		}
	}
	for _, m := range wanted {
		salt := make([]byte, 24)
		_, _ = rand.Read(salt) // it never fails
		credential, err := metadata.NewCredential(m, q.Password, salt, iterations)
		if err != nil {
			reply(nil, badRequest("%v", err))
			return
		}
		change.Credentials[m] = &credential
	}
	s.b.service.ChangeUser(change, done(reply))
}
