package kafkaclient

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"logbook/engine/failure"
	"logbook/engine/group"
	"logbook/engine/stream"
	"logbook/engine/topic"
)

// A group of Kafka's classic protocol: the broker gathers the members, and one of them, the
// leader, decides who reads what. Join asks to be gathered, and remembers what Sync has to
// know: who the others are, where this member leads.

// memberKey names a member of a group.
type memberKey struct{ group, member string }

// joined is what a member was told when it joined.
type joined struct {
	// c is the member's own: a broker answers the requests of a connection one after another,
	// and a join waits for the other members, who may be of this transport too.
	c        *kgo.Client
	protocol string
	leads    bool
	members  []group.Subscriber // where it leads
	owned    []stream.Partition
	again    bool // it gave partitions up, and must join again so that others get them
}

const protocolType = "consumer"

func (t *transport) Join(ctx context.Context, name string, q stream.Join) (stream.Joined, error) {
	assignor, err := group.AssignorByName(q.Assignor)
	if err != nil {
		return stream.Joined{}, badRequest(err.Error())
	}
	if _, err := t.Topics(ctx, q.Topics...); err != nil {
		return stream.Joined{}, err
	}
	meta := kmsg.NewConsumerMemberMetadata()
	meta.Version, meta.Generation = 1, -1
	meta.Topics = slices.Sorted(slices.Values(q.Topics))
	for name, ids := range byTopic(q.Owned) {
		o := kmsg.NewConsumerMemberMetadataOwnedPartition()
		o.Topic, o.Partitions = name, ids
		meta.OwnedPartitions = append(meta.OwnedPartitions, o)
	}
	c := t.member(name, q.Member)
	if q.Member == "" {
		if c, err = t.connect(); err != nil {
			return stream.Joined{}, err
		}
	}
	j, err := t.join(ctx, c, name, q, assignor, meta)
	if err != nil && q.Member == "" {
		c.Close()
	}
	return j, err
}

// member is the client of a member that has joined.
func (t *transport) member(name, id string) *kgo.Client {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.joins[memberKey{name, id}].c; c != nil {
		return c
	}
	return t.c
}

// gone closes the client of a member that is none any more.
func (t *transport) gone(name, id string) {
	t.mu.Lock()
	c := t.joins[memberKey{name, id}].c
	delete(t.joins, memberKey{name, id})
	t.mu.Unlock()
	if c != nil {
		c.Close()
	}
}

func (t *transport) join(ctx context.Context, c *kgo.Client, name string, q stream.Join, assignor group.Assignor, meta kmsg.ConsumerMemberMetadata) (stream.Joined, error) {
	req := kmsg.NewPtrJoinGroupRequest()
	req.Group, req.MemberID, req.ProtocolType = name, q.Member, protocolType
	req.SessionTimeoutMillis = int32(q.SessionTimeout.Milliseconds())
	req.RebalanceTimeoutMillis = int32(cmp.Or(q.RebalanceTimeout, q.SessionTimeout).Milliseconds())
	if q.Instance != "" {
		req.InstanceID = kmsg.StringPtr(q.Instance)
	}
	p := kmsg.NewJoinGroupRequestProtocol()
	p.Name, p.Metadata = assignor.Name(), meta.AppendTo(nil)
	req.Protocols = append(req.Protocols, p)
	r, err := req.RequestWith(ctx, c)
	if err == nil && errors.Is(kerr.ErrorForCode(r.ErrorCode), kerr.MemberIDRequired) {
		req.MemberID = r.MemberID // KIP-394: it comes back with the id that it was given
		r, err = req.RequestWith(ctx, c)
	}
	if err == nil {
		err = kerr.ErrorForCode(r.ErrorCode)
	}
	if err != nil {
		if ctx.Err() != nil && q.Member == "" && q.Instance == "" && req.MemberID != "" {
			t.leaveBehind(name, req.MemberID)
		}
		return stream.Joined{}, failed(err)
	}
	j := joined{c: c, protocol: assignor.Name(), leads: r.LeaderID == r.MemberID && r.LeaderID != "", owned: q.Owned}
	for _, m := range r.Members {
		var meta kmsg.ConsumerMemberMetadata
		if err := meta.ReadFrom(m.ProtocolMetadata); err != nil {
			return stream.Joined{}, badRequest(fmt.Sprintf("what member %s of group %q says of itself cannot be read: %v", m.MemberID, name, err))
		}
		s := group.Subscriber{Member: m.MemberID, Topics: meta.Topics}
		for _, o := range meta.OwnedPartitions {
			for _, id := range o.Partitions {
				s.Owned = append(s.Owned, stream.Partition{Topic: o.Topic, ID: int(id)})
			}
		}
		j.members = append(j.members, s)
	}
	slices.SortFunc(j.members, func(a, b group.Subscriber) int { return cmp.Compare(a.Member, b.Member) })
	t.mu.Lock()
	t.joins[memberKey{name, r.MemberID}] = j
	t.mu.Unlock()
	return stream.Joined{Member: r.MemberID, Generation: r.Generation}, nil
}

// leaveBehind takes a member out whose caller has given up: nobody would be it.
func (t *transport) leaveBehind(name, member string) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_ = t.Leave(ctx, name, stream.Membership{Member: member}) // else its session ends by itself
}

// byTopic groups partitions as Kafka's messages do: by topic, in order.
func byTopic(ps []stream.Partition) iter.Seq2[string, []int32] {
	ids := map[string][]int32{}
	for _, p := range ps {
		ids[p.Topic] = append(ids[p.Topic], int32(p.ID))
	}
	return func(yield func(string, []int32) bool) {
		for _, name := range slices.Sorted(maps.Keys(ids)) {
			if !yield(name, ids[name]) {
				return
			}
		}
	}
}

func (t *transport) Sync(ctx context.Context, name string, m stream.Membership) ([]stream.Partition, error) {
	key := memberKey{name, m.Member}
	t.mu.Lock()
	j := t.joins[key]
	t.mu.Unlock()
	req := kmsg.NewPtrSyncGroupRequest()
	req.Group, req.MemberID, req.Generation = name, m.Member, m.Generation
	req.ProtocolType, req.Protocol = kmsg.StringPtr(protocolType), kmsg.StringPtr(j.protocol)
	if m.Instance != "" {
		req.InstanceID = kmsg.StringPtr(m.Instance)
	}
	if j.leads {
		assignments, err := t.assign(ctx, j)
		if err != nil {
			return nil, err
		}
		req.GroupAssignment = assignments
	}
	r, err := req.RequestWith(ctx, t.member(name, m.Member))
	if err == nil {
		err = kerr.ErrorForCode(r.ErrorCode)
	}
	if err != nil {
		return nil, failed(err)
	}
	var out []stream.Partition
	if len(r.MemberAssignment) > 0 {
		var a kmsg.ConsumerMemberAssignment
		if err := a.ReadFrom(r.MemberAssignment); err != nil {
			return nil, badRequest(fmt.Sprintf("what group %q assigns to member %s cannot be read: %v", name, m.Member, err))
		}
		for _, at := range a.Topics {
			for _, id := range at.Partitions {
				out = append(out, stream.Partition{Topic: at.Topic, ID: int(id)})
			}
		}
	}
	slices.SortFunc(out, stream.Partition.Compare)
	// KIP-429: what was withheld goes to its new owner once who had it has joined without it.
	j.again = j.protocol == group.CooperativeSticky.Name() && slices.ContainsFunc(j.owned, func(p stream.Partition) bool { return !slices.Contains(out, p) })
	j.members = nil
	t.mu.Lock()
	t.joins[key] = j
	t.mu.Unlock()
	return out, nil
}

// assign decides who reads what.
func (t *transport) assign(ctx context.Context, j joined) ([]kmsg.SyncGroupRequestGroupAssignment, error) {
	assignor, err := group.AssignorByName(j.protocol)
	if err != nil {
		return nil, badRequest(err.Error())
	}
	var names []string
	for _, m := range j.members {
		names = append(names, m.Topics...)
	}
	slices.Sort(names)
	counts := map[string]int{}
	topics, err := t.Topics(ctx, slices.Compact(names)...)
	if err != nil {
		return nil, err
	}
	for _, d := range topics {
		counts[d.Name] = d.Partitions
	}
	plan := assignor.Assign(j.members, counts)
	if assignor == group.CooperativeSticky {
		withhold(plan, j.members)
	}
	var out []kmsg.SyncGroupRequestGroupAssignment
	for _, m := range j.members {
		a := kmsg.NewConsumerMemberAssignment()
		for name, ids := range byTopic(plan[m.Member]) {
			at := kmsg.NewConsumerMemberAssignmentTopic()
			at.Topic, at.Partitions = name, ids
			a.Topics = append(a.Topics, at)
		}
		g := kmsg.NewSyncGroupRequestGroupAssignment()
		g.MemberID, g.MemberAssignment = m.Member, a.AppendTo(nil)
		out = append(out, g)
	}
	return out, nil
}

// withhold takes from a plan what another member still has.
func withhold(plan map[string][]stream.Partition, members []group.Subscriber) {
	owner := map[stream.Partition]string{}
	for _, m := range members {
		for _, p := range m.Owned {
			owner[p] = m.Member
		}
	}
	for id, ps := range plan {
		plan[id] = slices.DeleteFunc(ps, func(p stream.Partition) bool { return owner[p] != "" && owner[p] != id })
	}
}

func (t *transport) Heartbeat(ctx context.Context, name string, m stream.Membership) (int32, error) {
	key := memberKey{name, m.Member}
	t.mu.Lock()
	again := t.joins[key].again
	t.mu.Unlock()
	if again {
		return 0, &failure.Error{Code: failure.Rejoin, Message: "the member has given partitions up, and joins again so that others get them"}
	}
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.MemberID, req.Generation = name, m.Member, m.Generation
	if m.Instance != "" {
		req.InstanceID = kmsg.StringPtr(m.Instance)
	}
	r, err := req.RequestWith(ctx, t.member(name, m.Member))
	if err == nil {
		err = kerr.ErrorForCode(r.ErrorCode)
	}
	if errors.Is(err, kerr.UnknownMemberID) || errors.Is(err, kerr.FencedInstanceID) {
		t.gone(name, m.Member)
	}
	return 0, failed(err)
}

func (t *transport) Leave(ctx context.Context, name string, m stream.Membership) error {
	defer t.gone(name, m.Member)
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group, req.MemberID = name, m.Member
	lm := kmsg.NewLeaveGroupRequestMember()
	lm.MemberID = m.Member
	req.Members = append(req.Members, lm)
	r, err := req.RequestWith(ctx, t.c)
	if err == nil {
		err = kerr.ErrorForCode(r.ErrorCode)
	}
	if err == nil && len(r.Members) > 0 {
		err = kerr.ErrorForCode(r.Members[0].ErrorCode)
	}
	return failed(err)
}

func (t *transport) Commit(ctx context.Context, name string, m stream.Membership, offsets map[stream.Partition]int64) error {
	_, err := retry(ctx, t, func(ctx context.Context) (struct{}, error) { return struct{}{}, t.commit(ctx, name, m, offsets) })
	return err
}

func (t *transport) commit(ctx context.Context, name string, m stream.Membership, offsets map[stream.Partition]int64) error {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.MemberID, req.Generation = name, m.Member, m.Generation
	if m.Instance != "" {
		req.InstanceID = kmsg.StringPtr(m.Instance)
	}
	for name, ids := range byTopic(slices.SortedFunc(maps.Keys(offsets), stream.Partition.Compare)) {
		rt := kmsg.NewOffsetCommitRequestTopic()
		rt.Topic = name
		for _, id := range ids {
			p := stream.Partition{Topic: name, ID: int(id)}
			l, err := t.leader(ctx, p)
			if err != nil {
				return err
			}
			rt.TopicID = l.topic
			rp := kmsg.NewOffsetCommitRequestTopicPartition()
			rp.Partition, rp.Offset, rp.LeaderEpoch = id, offsets[p], -1
			rt.Partitions = append(rt.Partitions, rp)
		}
		req.Topics = append(req.Topics, rt)
	}
	r, err := req.RequestWith(ctx, t.c)
	if err != nil {
		return failed(err)
	}
	for _, rt := range r.Topics {
		for _, rp := range rt.Partitions {
			if err := kerr.ErrorForCode(rp.ErrorCode); err != nil {
				return failed(err)
			}
		}
	}
	return nil
}

func (t *transport) SetOffsets(ctx context.Context, name string, offsets map[stream.Partition]int64, reset bool) error {
	if err := topic.CheckName("group", name); err != nil {
		return badRequest(err.Error())
	}
	if !reset { // Kafka itself does not mind
		was, err := t.Committed(ctx, name, 0)
		if err != nil {
			return err
		}
		for p, offset := range offsets {
			if old, ok := was[p]; ok && offset < old {
				return &failure.Error{Code: failure.Regression, Message: fmt.Sprintf("offset %d of %s is below %d, which group %q has committed", offset, p, old, name)}
			}
		}
	}
	for p, offset := range offsets { // nor here, and records would be skipped
		end, err := t.Offset(ctx, p, stream.Latest, time.Time{})
		if err != nil {
			return err
		}
		if offset < 0 || offset > end {
			return badRequest(fmt.Sprintf("offset %d of %s cannot be committed for %q: the log ends at %d", offset, p, name, end))
		}
	}
	err := t.Commit(ctx, name, stream.Membership{Generation: -1}, offsets)
	if e, ok := errors.AsType[*failure.Error](err); ok && e.Code == failure.UnknownMember {
		return badRequest(fmt.Sprintf("group %q has members, who commit for themselves; stop them first", name))
	}
	return err
}

func (t *transport) Committed(ctx context.Context, name string, _ int32) (map[stream.Partition]int64, error) {
	return retry(ctx, t, func(ctx context.Context) (map[stream.Partition]int64, error) { return t.committed(ctx, name) })
}

func (t *transport) committed(ctx context.Context, name string) (map[stream.Partition]int64, error) {
	c, err := t.offsetsClient()
	if err != nil {
		return nil, failed(err)
	}
	all, err := kadm.NewClient(c).FetchOffsets(ctx, name)
	if err != nil {
		if _, known := errors.AsType[*kerr.Error](err); !known {
			t.dropOffsetsClient(c)
		}
		if errors.Is(err, kgo.ErrClientClosed) { // another call dropped it
			return nil, &failure.Error{Code: failure.Unavailable, Message: "what is committed cannot be asked just now", Err: err}
		}
		return nil, failed(err)
	}
	out := map[stream.Partition]int64{}
	for _, ps := range all {
		for _, o := range ps {
			if o.Err != nil {
				return nil, failed(o.Err)
			}
			if o.At >= 0 {
				out[stream.Partition{Topic: o.Topic, ID: int(o.Partition)}] = o.At
			}
		}
	}
	return out, nil
}

// offsetsClient returns the client that asks what is committed. It is one of its own, since
// franz-go keeps a coordinator that cannot be reached for this request: dropOffsetsClient
// makes it forget.
func (t *transport) offsetsClient() (*kgo.Client, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, stream.ErrClosed
	}
	var err error
	if t.offsets == nil {
		t.offsets, err = t.connect()
	}
	return t.offsets, err
}

func (t *transport) dropOffsetsClient(c *kgo.Client) {
	t.mu.Lock()
	if t.offsets == c {
		t.offsets = nil
	}
	t.mu.Unlock()
	c.Close()
}

func (t *transport) Groups(ctx context.Context) ([]string, error) {
	all, err := t.admin.ListGroups(ctx)
	if err != nil {
		return nil, failed(err)
	}
	return all.Groups(), nil
}

// states are Kafka's words for a group's state, in ours.
var states = map[string]string{"PreparingRebalance": "Preparing", "CompletingRebalance": "Preparing", "Dead": "Empty", "": "Empty"}

func (t *transport) DescribeGroup(ctx context.Context, name string) (stream.Group, error) {
	g := stream.Group{Name: name, Members: map[string][]stream.Partition{}}
	described, err := t.admin.DescribeGroups(ctx, name)
	if err != nil {
		return g, failed(err)
	}
	d := described[name]
	if d.Err != nil && !errors.Is(d.Err, kerr.GroupIDNotFound) {
		return g, failed(d.Err)
	}
	g.State = cmp.Or(states[d.State], d.State, "Empty")
	for _, m := range d.Members {
		ps := []stream.Partition{}
		if a, ok := m.Assigned.AsConsumer(); ok {
			for _, at := range a.Topics {
				for _, id := range at.Partitions {
					ps = append(ps, stream.Partition{Topic: at.Topic, ID: int(id)})
				}
			}
		}
		slices.SortFunc(ps, stream.Partition.Compare)
		g.Members[m.MemberID] = ps
	}
	committed, err := t.Committed(ctx, name, 0)
	if err != nil {
		return g, err
	}
	for _, p := range slices.SortedFunc(maps.Keys(committed), stream.Partition.Compare) {
		o := stream.GroupOffset{Partition: p, Offset: committed[p], HighWatermark: -1, Lag: -1}
		if end, err := t.Offset(ctx, p, stream.Latest, time.Time{}); err == nil {
			o.HighWatermark, o.Lag = end, max(0, end-committed[p])
		}
		g.Offsets = append(g.Offsets, o)
	}
	if len(g.Members) == 0 && len(g.Offsets) == 0 && (errors.Is(d.Err, kerr.GroupIDNotFound) || d.State == "Dead" || d.State == "") {
		return g, badRequest(fmt.Sprintf("there is no group %q", name))
	}
	return g, nil
}

var _ stream.Transport = (*transport)(nil)
