package kafka

import (
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"logbook/engine/group"
	"logbook/engine/replica"
	"logbook/engine/service"
)

func (c *conn) findCoordinator(q *kmsg.FindCoordinatorRequest) *kmsg.FindCoordinatorResponse {
	r := q.ResponseKind().(*kmsg.FindCoordinatorResponse)
	find := func(key string) kmsg.FindCoordinatorResponseCoordinator {
		o := kmsg.NewFindCoordinatorResponseCoordinator()
		o.Key, o.NodeID, o.Port = key, -1, -1
		if q.CoordinatorType != 0 {
			o.ErrorCode, o.ErrorMessage = number(errTransactions), text(errTransactions)
			return o
		}
		id, err := awaitErr(func(done func(replica.BrokerID, error)) { c.f.svc.FindClassic(key, done) })
		if err != nil {
			if o.ErrorCode = coordinatorNumber(err); o.ErrorCode == kerr.NotCoordinator.Code {
				o.ErrorCode = kerr.CoordinatorNotAvailable.Code // of the groups' topic, that is yet to be made
			}
			o.ErrorMessage = text(err)
			return o
		}
		host, port, ok := c.endpoint(id)
		if !ok {
			o.ErrorCode = kerr.CoordinatorNotAvailable.Code
			return o
		}
		o.NodeID, o.Host, o.Port = int32(id), host, port
		return o
	}
	if q.Version >= 4 {
		for _, key := range q.CoordinatorKeys {
			r.Coordinators = append(r.Coordinators, find(key))
		}
		return r
	}
	o := find(q.CoordinatorKey)
	r.ErrorCode, r.ErrorMessage, r.NodeID, r.Host, r.Port = o.ErrorCode, o.ErrorMessage, o.NodeID, o.Host, o.Port
	return r
}

func value(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func (c *conn) joinGroup(q *kmsg.JoinGroupRequest) *kmsg.JoinGroupResponse {
	r := q.ResponseKind().(*kmsg.JoinGroupResponse)
	join := group.ClassicJoin{
		Member: q.MemberID, Instance: value(q.InstanceID), ClientID: c.name, Host: "/" + c.host,
		Session: time.Duration(q.SessionTimeoutMillis) * time.Millisecond, Rebalance: time.Duration(max(0, q.RebalanceTimeoutMillis)) * time.Millisecond,
		ProtocolType: q.ProtocolType, TwoSteps: q.Version >= 4,
	}
	for _, p := range q.Protocols {
		join.Protocols = append(join.Protocols, group.Protocol{Name: p.Name, Metadata: p.Metadata})
	}
	o := await(func(done func(group.ClassicReply)) { c.f.svc.JoinClassic(q.Group, join, done) })
	r.ErrorCode = coordinatorNumber(o.Err)
	r.Generation, r.LeaderID, r.MemberID, r.SkipAssignment = o.Generation, o.Leader, o.Member, o.SkipAssignment
	if o.SkipAssignment && q.Version < 9 { // an older client is not told that it leads, lest it assigns
		r.LeaderID, o.Members = "", nil
	}
	r.Protocol = &o.Protocol
	if o.Err == nil {
		r.ProtocolType = &q.ProtocolType
	}
	for _, m := range o.Members {
		rm := kmsg.NewJoinGroupResponseMember()
		rm.MemberID, rm.ProtocolMetadata = m.ID, m.Metadata
		if m.Instance != "" {
			rm.InstanceID = &m.Instance
		}
		r.Members = append(r.Members, rm)
	}
	return r
}

func (c *conn) syncGroup(q *kmsg.SyncGroupRequest) *kmsg.SyncGroupResponse {
	r := q.ResponseKind().(*kmsg.SyncGroupResponse)
	sync := group.ClassicRequest{
		Member: q.MemberID, Instance: value(q.InstanceID), Generation: q.Generation,
		ProtocolType: value(q.ProtocolType), Protocol: value(q.Protocol), Assignments: map[string][]byte{},
	}
	for _, a := range q.GroupAssignment {
		sync.Assignments[a.MemberID] = a.MemberAssignment
	}
	o := await(func(done func(group.ClassicReply)) { c.f.svc.SyncClassic(q.Group, sync, done) })
	r.ErrorCode = coordinatorNumber(o.Err)
	r.MemberAssignment = o.Assignment
	if r.MemberAssignment == nil {
		r.MemberAssignment = []byte{}
	}
	r.ProtocolType, r.Protocol = q.ProtocolType, &o.Protocol
	return r
}

func (c *conn) heartbeat(q *kmsg.HeartbeatRequest) *kmsg.HeartbeatResponse {
	r := q.ResponseKind().(*kmsg.HeartbeatResponse)
	beat := group.ClassicRequest{Member: q.MemberID, Instance: value(q.InstanceID), Generation: q.Generation}
	r.ErrorCode = coordinatorNumber(await(func(done func(error)) { c.f.svc.HeartbeatClassic(q.Group, beat, done) }))
	return r
}

func (c *conn) leaveGroup(q *kmsg.LeaveGroupRequest) *kmsg.LeaveGroupResponse {
	r := q.ResponseKind().(*kmsg.LeaveGroupResponse)
	leave := func(member, instance string) int16 {
		return coordinatorNumber(await(func(done func(error)) {
			c.f.svc.LeaveClassic(q.Group, group.ClassicRequest{Member: member, Instance: instance}, done)
		}))
	}
	if q.Version < 3 {
		r.ErrorCode = leave(q.MemberID, "")
		return r
	}
	for _, m := range q.Members {
		rm := kmsg.NewLeaveGroupResponseMember()
		rm.MemberID, rm.InstanceID = m.MemberID, m.InstanceID
		rm.ErrorCode = leave(m.MemberID, value(m.InstanceID))
		if n := rm.ErrorCode; n == kerr.NotCoordinator.Code || n == kerr.CoordinatorNotAvailable.Code {
			r.ErrorCode = n
		}
		r.Members = append(r.Members, rm)
	}
	return r
}

// maxNote bounds what is stored beside an offset, as in Kafka.
const maxNote = 4096

func (c *conn) offsetCommit(q *kmsg.OffsetCommitRequest) *kmsg.OffsetCommitResponse {
	r := q.ResponseKind().(*kmsg.OffsetCommitResponse)
	offsets := map[service.Partition]service.NotedOffset{}
	image := c.f.svc.Image()
	for _, t := range q.Topics {
		rt := kmsg.NewOffsetCommitResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewOffsetCommitResponseTopicPartition()
			rp.Partition = p.Partition
			of := service.Partition{Topic: t.Topic, ID: int(p.Partition)}
			switch {
			case image.Check(of) != nil:
				rp.ErrorCode = kerr.UnknownTopicOrPartition.Code
			case len(value(p.Metadata)) > maxNote:
				rp.ErrorCode = kerr.OffsetMetadataTooLarge.Code
			default:
				note := service.CommitNote{LeaderEpoch: -1, Metadata: value(p.Metadata)}
				if q.Version >= 6 {
					note.LeaderEpoch = p.LeaderEpoch
				}
				offsets[of] = service.NotedOffset{Offset: p.Offset, Note: note}
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		r.Topics = append(r.Topics, rt)
	}
	who := group.ClassicRequest{Member: q.MemberID, Instance: value(q.InstanceID), Generation: q.Generation}
	if err := await(func(done func(error)) { c.f.svc.CommitClassic(q.Group, who, offsets, done) }); err != nil {
		for i := range r.Topics {
			for k := range r.Topics[i].Partitions {
				if p := &r.Topics[i].Partitions[k]; p.ErrorCode == 0 {
					p.ErrorCode = coordinatorNumber(err)
				}
			}
		}
	}
	return r
}

func (c *conn) offsetFetch(q *kmsg.OffsetFetchRequest) *kmsg.OffsetFetchResponse {
	r := q.ResponseKind().(*kmsg.OffsetFetchResponse)
	if q.Version >= 8 {
		for _, g := range q.Groups {
			var wanted []service.Partition
			for _, t := range g.Topics {
				for _, p := range t.Partitions {
					wanted = append(wanted, service.Partition{Topic: t.Topic, ID: int(p)})
				}
			}
			rg := kmsg.NewOffsetFetchResponseGroup()
			rg.Group = g.Group
			var found []committed
			if q.Version >= 9 && g.MemberID != nil {
				rg.ErrorCode = c.mayFetch(g.Group, *g.MemberID, g.MemberEpoch)
			}
			if rg.ErrorCode == 0 {
				found, rg.ErrorCode = c.committed(g.Group, wanted, g.Topics == nil)
			}
			for _, x := range found {
				if n := len(rg.Topics); n == 0 || rg.Topics[n-1].Topic != x.p.Topic {
					t := kmsg.NewOffsetFetchResponseGroupTopic()
					t.Topic = x.p.Topic
					rg.Topics = append(rg.Topics, t)
				}
				t := &rg.Topics[len(rg.Topics)-1]
				p := kmsg.NewOffsetFetchResponseGroupTopicPartition()
				p.Partition, p.Offset, p.LeaderEpoch, p.Metadata = int32(x.p.ID), x.at.Offset, x.at.Note.LeaderEpoch, &x.at.Note.Metadata
				t.Partitions = append(t.Partitions, p)
			}
			r.Groups = append(r.Groups, rg)
		}
		return r
	}
	var wanted []service.Partition
	for _, t := range q.Topics {
		for _, p := range t.Partitions {
			wanted = append(wanted, service.Partition{Topic: t.Topic, ID: int(p)})
		}
	}
	found, code := c.committed(q.Group, wanted, q.Topics == nil)
	r.ErrorCode = code
	for _, x := range found {
		if n := len(r.Topics); n == 0 || r.Topics[n-1].Topic != x.p.Topic {
			t := kmsg.NewOffsetFetchResponseTopic()
			t.Topic = x.p.Topic
			r.Topics = append(r.Topics, t)
		}
		t := &r.Topics[len(r.Topics)-1]
		p := kmsg.NewOffsetFetchResponseTopicPartition()
		p.Partition, p.Offset, p.LeaderEpoch, p.Metadata, p.ErrorCode = int32(x.p.ID), x.at.Offset, x.at.Note.LeaderEpoch, &x.at.Note.Metadata, 0
		if q.Version < 2 {
			p.ErrorCode = code // there is no other place for it
		}
		t.Partitions = append(t.Partitions, p)
	}
	return r
}

type committed struct {
	p  service.Partition
	at service.NotedOffset
}

// committed returns the offsets of a group: of the partitions that are wanted, or all. One
// that was never committed is -1.
func (c *conn) committed(name string, wanted []service.Partition, all bool) ([]committed, int16) {
	offsets, err := awaitErr(func(done func(map[service.Partition]service.NotedOffset, error)) { c.f.svc.CommittedNotes(name, done) })
	if all {
		for p := range offsets {
			wanted = append(wanted, p)
		}
		slices.SortFunc(wanted, service.Partition.Compare)
	}
	var out []committed
	for _, p := range wanted {
		at, ok := offsets[p]
		if !ok {
			at = service.NotedOffset{Offset: -1, Note: service.CommitNote{LeaderEpoch: -1}}
		}
		out = append(out, committed{p, at})
	}
	return out, coordinatorNumber(err)
}

// stateNames are what Kafka calls a group's states.
func stateName(g service.ClassicGroup) string {
	if !g.Known {
		return "Dead"
	}
	if g.State == group.Preparing {
		return "PreparingRebalance"
	}
	return string(g.State)
}

func (c *conn) describeGroups(q *kmsg.DescribeGroupsRequest) *kmsg.DescribeGroupsResponse {
	r := q.ResponseKind().(*kmsg.DescribeGroupsResponse)
	for _, name := range q.Groups {
		rg := kmsg.NewDescribeGroupsResponseGroup()
		rg.Group = name
		d, err := awaitErr(func(done func(service.ClassicGroup, error)) { c.f.svc.DescribeClassic(name, done) })
		if err == nil && d.Consumer {
			err = service.ErrNoGroup // of this protocol
		}
		if rg.ErrorCode = coordinatorNumber(err); err == nil {
			rg.State, rg.ProtocolType, rg.Protocol = stateName(d), d.ProtocolType, d.Protocol
			if d.Known && d.ProtocolType == "" {
				rg.ProtocolType = "consumer" // it has offsets alone
			}
		}
		for _, m := range d.Members {
			rm := kmsg.NewDescribeGroupsResponseGroupMember()
			rm.MemberID, rm.ClientID, rm.ClientHost = m.ID, m.ClientID, m.ClientHost
			rm.ProtocolMetadata, rm.MemberAssignment = m.Metadata, m.Assignment
			if m.Instance != "" {
				rm.InstanceID = &m.Instance
			}
			rg.Members = append(rg.Members, rm)
		}
		r.Groups = append(r.Groups, rg)
	}
	return r
}

func (c *conn) listGroups(q *kmsg.ListGroupsRequest) *kmsg.ListGroupsResponse {
	r := q.ResponseKind().(*kmsg.ListGroupsResponse)
	if c.f.svc.GroupsReady() != nil {
		r.ErrorCode = kerr.CoordinatorLoadInProgress.Code
		return r
	}
	for _, g := range await(func(done func([]service.ClassicGroup)) { c.f.svc.ClassicGroups(done) }) {
		state := stateName(g)
		if len(q.StatesFilter) > 0 && !slices.ContainsFunc(q.StatesFilter, func(s string) bool { return strings.EqualFold(s, state) }) {
			continue
		}
		kind := "classic"
		if g.Consumer {
			kind = "consumer"
		}
		if len(q.TypesFilter) > 0 && !slices.ContainsFunc(q.TypesFilter, func(s string) bool { return strings.EqualFold(s, kind) }) {
			continue
		}
		rg := kmsg.NewListGroupsResponseGroup()
		rg.GroupType = kind
		rg.Group, rg.ProtocolType, rg.GroupState = g.Name, g.ProtocolType, state
		if rg.ProtocolType == "" {
			rg.ProtocolType = "consumer"
		}
		r.Groups = append(r.Groups, rg)
	}
	return r
}

func (c *conn) deleteGroups(q *kmsg.DeleteGroupsRequest) *kmsg.DeleteGroupsResponse {
	r := q.ResponseKind().(*kmsg.DeleteGroupsResponse)
	for _, name := range q.Groups {
		rg := kmsg.NewDeleteGroupsResponseGroup()
		rg.Group = name
		rg.ErrorCode = coordinatorNumber(await(func(done func(error)) { c.f.svc.DeleteGroup(name, done) }))
		r.Groups = append(r.Groups, rg)
	}
	return r
}

func (c *conn) offsetDelete(q *kmsg.OffsetDeleteRequest) *kmsg.OffsetDeleteResponse {
	r := q.ResponseKind().(*kmsg.OffsetDeleteResponse)
	var wanted []service.Partition
	for _, t := range q.Topics {
		for _, p := range t.Partitions {
			wanted = append(wanted, service.Partition{Topic: t.Topic, ID: int(p.Partition)})
		}
	}
	results, err := awaitErr(func(done func(map[service.Partition]error, error)) {
		c.f.svc.DeleteOffsets(q.Group, wanted, subscribes, done)
	})
	r.ErrorCode = coordinatorNumber(err)
	for _, t := range q.Topics {
		rt := kmsg.NewOffsetDeleteResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewOffsetDeleteResponseTopicPartition()
			rp.Partition = p.Partition
			if results[service.Partition{Topic: t.Topic, ID: int(p.Partition)}] != nil {
				rp.ErrorCode = kerr.GroupSubscribedToTopic.Code
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		r.Topics = append(r.Topics, rt)
	}
	return r
}

// subscribes reports whether members say that they read a topic.
func subscribes(members []group.ClassicMember, name string) bool {
	for _, m := range members {
		var d kmsg.ConsumerMemberMetadata
		if d.ReadFrom(m.Metadata) != nil || slices.Contains(d.Topics, name) {
			return true
		}
	}
	return false
}
