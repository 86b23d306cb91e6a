package kafka

import (
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"logbook/engine/group"
	"logbook/engine/metadata"
	"logbook/engine/service"
	"logbook/engine/topic"
)

// consumerHeartbeat is how members of KIP-848 join, stay, hear what they may read, and leave.
func (c *conn) consumerHeartbeat(q *kmsg.ConsumerGroupHeartbeatRequest) *kmsg.ConsumerGroupHeartbeatResponse {
	r := q.ResponseKind().(*kmsg.ConsumerGroupHeartbeatResponse)
	r.MemberEpoch = q.MemberEpoch
	image := c.f.svc.Image()
	beat := group.ConsumerBeat{
		Member: q.MemberID, Instance: value(q.InstanceID), Rack: value(q.RackID), ClientID: c.name, Host: "/" + c.host, Epoch: q.MemberEpoch,
		Patience: time.Duration(max(0, q.RebalanceTimeoutMillis)) * time.Millisecond,
		Topics:   q.SubscribedTopicNames, Assignor: q.ServerAssignor,
	}
	if q.Version >= 1 {
		beat.Pattern = q.SubscribedTopicRegex
	}
	if q.Topics != nil {
		beat.Owned = []group.Partition{}
	}
	for _, t := range q.Topics {
		known := image.TopicByID(t.TopicID)
		if known == nil {
			continue // it was deleted, and nobody else can be given it
		}
		for _, p := range t.Partitions {
			beat.Owned = append(beat.Owned, group.Partition{Topic: shown(known.Name), ID: int(p)})
		}
	}
	o, err := awaitErr(func(done func(group.ConsumerReply, error)) { c.f.svc.HeartbeatConsumer(q.Group, beat, done) })
	if err != nil {
		r.ErrorCode, r.ErrorMessage = coordinatorNumber(err), text(err)
		return r
	}
	r.MemberID, r.MemberEpoch, r.HeartbeatIntervalMillis = &o.Member, o.Epoch, int32(o.Interval.Milliseconds())
	if o.Assigned != nil {
		r.Assignment = new(kmsg.ConsumerGroupHeartbeatResponseAssignment)
		r.Assignment.Topics = []kmsg.ConsumerGroupHeartbeatResponseAssignmentTopic{}
		for name, parts := range byTopic(o.Assigned) {
			if t := named(image, name); t != nil {
				x := kmsg.NewConsumerGroupHeartbeatResponseAssignmentTopic()
				x.TopicID, x.Partitions = t.ID, parts
				r.Assignment.Topics = append(r.Assignment.Topics, x)
			}
		}
	}
	return r
}

// byTopic groups partitions, which are sorted, by their topics.
func byTopic(ps []group.Partition) func(yield func(string, []int32) bool) {
	return func(yield func(string, []int32) bool) {
		for len(ps) > 0 {
			n := slices.IndexFunc(ps, func(p topic.Partition) bool { return p.Topic != ps[0].Topic })
			if n < 0 {
				n = len(ps)
			}
			var parts []int32
			for _, p := range ps[:n] {
				parts = append(parts, int32(p.ID))
			}
			if !yield(ps[0].Topic, parts) {
				return
			}
			ps = ps[n:]
		}
	}
}

// describeConsumers describes groups whose members speak the protocol of KIP-848.
func (c *conn) describeConsumers(q *kmsg.ConsumerGroupDescribeRequest) *kmsg.ConsumerGroupDescribeResponse {
	r := q.ResponseKind().(*kmsg.ConsumerGroupDescribeResponse)
	image := c.f.svc.Image()
	for _, name := range q.Groups {
		rg := kmsg.NewConsumerGroupDescribeResponseGroup()
		rg.Group = name
		d, err := awaitErr(func(done func(service.ConsumerGroup, error)) { c.f.svc.DescribeConsumer(name, done) })
		if err != nil {
			rg.ErrorCode, rg.ErrorMessage = coordinatorNumber(err), text(err)
			r.Groups = append(r.Groups, rg)
			continue
		}
		rg.State, rg.Epoch, rg.AssignmentEpoch, rg.AssignorName = string(d.State), d.Epoch, d.Epoch, d.Assignor
		for _, m := range d.Members {
			rm := kmsg.NewConsumerGroupDescribeResponseGroupMember()
			rm.MemberID, rm.MemberEpoch, rm.ClientID, rm.ClientHost, rm.SubscribedTopics = m.ID, m.Epoch, m.ClientID, m.ClientHost, m.Topics
			for text, to := range map[string]**string{m.Instance: &rm.InstanceID, m.Rack: &rm.RackID, m.Pattern: &rm.SubscribedTopicRegex} {
				if text != "" {
					*to = &text
				}
			}
			rm.Assignment, rm.TargetAssignment = assignment(image, m.Assigned), assignment(image, m.Target)
			if q.Version >= 1 {
				rm.MemberType = 1 // of this protocol
			}
			rg.Members = append(rg.Members, rm)
		}
		r.Groups = append(r.Groups, rg)
	}
	return r
}

func assignment(image *metadata.Image, ps []group.Partition) kmsg.Assignment {
	out := kmsg.NewAssignment()
	for name, parts := range byTopic(ps) {
		x := kmsg.NewAssignmentTopicPartition()
		x.Topic, x.Partitions = name, parts
		if t := named(image, name); t != nil {
			x.TopicID = t.ID
		}
		out.TopicPartitions = append(out.TopicPartitions, x)
	}
	return out
}

// mayFetch says whether a member may ask for what was committed, in its epoch; 0: it may.
func (c *conn) mayFetch(name, member string, epoch int32) int16 {
	if member == "" || epoch < 0 {
		return 0
	}
	err := await(func(done func(error)) { c.f.svc.CheckConsumer(name, member, epoch, done) })
	if n := coordinatorNumber(err); n == kerr.UnknownMemberID.Code || n == kerr.StaleMemberEpoch.Code {
		return n
	}
	return 0
}
