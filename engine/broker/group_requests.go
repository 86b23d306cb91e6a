package broker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"logbook/engine/consumer"
	"logbook/engine/group"
	"logbook/engine/replica"
	"logbook/engine/topic"
	"logbook/engine/wire"
)

// What members and others ask of groups.

// find says who coordinates a group, and makes the groups' topic if there is none yet.
func (g *groups) find(ctx context.Context, name string) (wire.FindCoordinatorReply, error) {
	if err := topic.CheckName("group", name); err != nil {
		return wire.FindCoordinatorReply{}, err
	}
	if _, ok := g.b.dir.topic(groupsTopic); !ok {
		if d := g.b.dir.decider(); d != replica.None && d != g.b.cfg.ID {
			return wire.FindCoordinatorReply{}, g.b.elsewhere(d, "the groups' topic has to be made first, by the broker that keeps the decisions")
		}
		err := g.b.makeTopic(ctx, groupsTopicFor(len(g.b.cfg.all())))
		if _, exists := errors.AsType[*topic.ExistsError](err); err != nil && !exists {
			return wire.FindCoordinatorReply{}, &wire.Error{Code: wire.Unavailable, Message: fmt.Sprintf("the groups' topic cannot be made yet: %v", err)}
		}
	}
	a, ok := g.b.dir.Assignment(groupPartition(name))
	if !ok || a.Leader == replica.None {
		return wire.FindCoordinatorReply{}, &wire.Error{Code: wire.Unavailable, Message: "nobody coordinates the group at the moment"}
	}
	return wire.FindCoordinatorReply{Broker: wire.Broker{ID: a.Leader, Address: g.b.addressOf(a.Leader), Alive: true}}, nil
}

// call sends a request to a group's state machine.
func (g *groups) call(ctx context.Context, name string, r group.Request) (reply group.Reply, epoch int32, err error) {
	t, err := g.term(ctx, name)
	if err != nil {
		return reply, 0, err
	}
	reply, err = t.coord.Call(ctx, name, r)
	return reply, t.epoch, err
}

func (g *groups) join(ctx context.Context, q wire.JoinGroup) (wire.JoinGroupReply, error) {
	r := group.Request{
		Kind: group.Join, Member: q.Member, Instance: q.Instance, Topics: q.Topics, Assignor: q.Assignor,
		SessionTimeout: time.Duration(q.SessionTimeoutMS) * time.Millisecond, RebalanceTimeout: time.Duration(q.RebalanceTimeoutMS) * time.Millisecond,
	}
	if r.SessionTimeout == 0 {
		r.SessionTimeout = group.DefaultSessionTimeout
	}
	for _, p := range q.Owned {
		r.Owned = append(r.Owned, group.Partition{Topic: p.Topic, ID: p.Partition})
	}
	if len(q.Topics) == 0 {
		return wire.JoinGroupReply{}, badRequest("a member needs a topic")
	}
	if r.Member == "" {
		r.NewMember = q.Group + "-" + rand.Text()[:12]
	}
	reply, epoch, err := g.call(ctx, q.Group, r)
	return wire.JoinGroupReply{Member: reply.Member, Generation: reply.Generation, Epoch: epoch}, err
}

func memberRequest(kind group.Kind, q wire.MemberRequest) group.Request {
	return group.Request{Kind: kind, Member: q.Member, Instance: q.Instance, Generation: q.Generation}
}

func (g *groups) sync(ctx context.Context, q wire.MemberRequest) (wire.SyncGroupReply, error) {
	reply, _, err := g.call(ctx, q.Group, memberRequest(group.Sync, q))
	out := wire.SyncGroupReply{Partitions: []wire.TopicPartition{}}
	for _, p := range reply.Partitions {
		out.Partitions = append(out.Partitions, wire.TopicPartition{Topic: p.Topic, Partition: p.ID})
	}
	return out, err
}

func (g *groups) heartbeat(ctx context.Context, q wire.MemberRequest) (wire.HeartbeatReply, error) {
	reply, epoch, err := g.call(ctx, q.Group, memberRequest(group.Heartbeat, q))
	return wire.HeartbeatReply{Generation: reply.Generation, Epoch: epoch}, err
}

func (g *groups) leave(ctx context.Context, q wire.MemberRequest) error {
	_, _, err := g.call(ctx, q.Group, memberRequest(group.Leave, q))
	return err
}

func (g *groups) commit(ctx context.Context, q wire.CommitOffsets) error {
	offsets := map[group.Partition]int64{}
	for _, o := range q.Offsets {
		offsets[group.Partition{Topic: o.Topic, ID: o.Partition}] = o.Offset
	}
	if len(offsets) == 0 {
		return badRequest("a commit without offsets")
	}
	if q.Member != "" {
		_, _, err := g.call(ctx, q.Group, group.Request{Kind: group.Commit, Member: q.Member, Instance: q.Instance, Generation: q.Generation, Offsets: offsets})
		return err
	}
	t, err := g.term(ctx, q.Group)
	if err != nil {
		return err
	}
	if d, ok := t.coord.Describe(q.Group); ok && len(d.Members) > 0 {
		return badRequest("group %q has %d members, who commit for themselves; stop them first", q.Group, len(d.Members))
	}
	err = t.check(q.Group, offsets)
	if _, back := errors.AsType[*consumer.OffsetRegressionError](err); err != nil && !(back && q.Reset) {
		return err
	}
	return t.Commit(q.Group, offsets)
}

func (g *groups) offsets(ctx context.Context, q wire.FetchOffsets) (wire.FetchOffsetsReply, error) {
	t, err := g.term(ctx, q.Group)
	if err != nil {
		return wire.FetchOffsetsReply{}, err
	}
	if q.Epoch > t.epoch {
		return wire.FetchOffsetsReply{}, &wire.Error{Code: wire.NotCoordinator, Message: fmt.Sprintf("broker %d coordinated the group in epoch %d, and has yet to hear of the one who does in epoch %d", g.b.cfg.ID, t.epoch, q.Epoch)}
	}
	out := wire.FetchOffsetsReply{Offsets: []wire.CommitOffset{}}
	wanted := func(p group.Partition) bool {
		return len(q.Partitions) == 0 || slices.Contains(q.Partitions, wire.TopicPartition{Topic: p.Topic, Partition: p.ID})
	}
	all := t.committed(q.Group)
	for _, p := range slices.SortedFunc(maps.Keys(all), group.Partition.Compare) {
		if wanted(p) {
			out.Offsets = append(out.Offsets, wire.CommitOffset{Topic: p.Topic, Partition: p.ID, Offset: all[p]})
		}
	}
	return out, nil
}

// names lists the groups that this broker coordinates.
func (g *groups) names() []string {
	out := []string{}
	for _, p := range g.b.node.Partitions() {
		if p.Topic != groupsTopic {
			continue
		}
		if s, err := g.b.node.Status(p); err != nil || s.Role != replica.Leader {
			continue
		}
		ctx, cancel := context.WithTimeout(g.b.ctx, g.b.cfg.RequestTimeout)
		if t, err := g.termOf(ctx, p); err == nil {
			out = append(out, t.names()...)
		}
		cancel()
	}
	slices.Sort(out)
	return out
}

func (t *term) names() []string {
	all := map[string]bool{}
	for _, name := range t.coord.Groups() {
		all[name] = true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for name := range t.offsets {
		all[name] = true
	}
	return slices.Collect(maps.Keys(all))
}

func (g *groups) describe(ctx context.Context, name string) (wire.DescribeGroupReply, error) {
	t, err := g.term(ctx, name)
	if err != nil {
		return wire.DescribeGroupReply{}, err
	}
	out := wire.DescribeGroupReply{Group: name, State: string(group.Empty), Members: []wire.GroupMember{}, Offsets: []wire.GroupOffset{}}
	if d, ok := t.coord.Describe(name); ok {
		out.State, out.Generation = string(d.State), d.Generation
		for _, id := range slices.Sorted(maps.Keys(d.Members)) {
			m := wire.GroupMember{Member: id, Partitions: []wire.TopicPartition{}}
			for _, p := range d.Members[id] {
				m.Partitions = append(m.Partitions, wire.TopicPartition{Topic: p.Topic, Partition: p.ID})
			}
			out.Members = append(out.Members, m)
		}
	}
	all := t.committed(name)
	for _, p := range slices.SortedFunc(maps.Keys(all), group.Partition.Compare) {
		o := wire.GroupOffset{Topic: p.Topic, Partition: p.ID, Offset: all[p], End: -1, Lag: -1}
		if a, ok := g.b.dir.Assignment(partition(p.Topic, p.ID)); ok && a.Leader != replica.None {
			if r, err := g.b.report(ctx, partition(p.Topic, p.ID), a.Leader); err == nil {
				o.End, o.Lag = r.HighWatermark, max(0, r.HighWatermark-o.Offset)
			}
		}
		out.Offsets = append(out.Offsets, o)
	}
	return out, nil
}
