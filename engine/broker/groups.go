package broker

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"sync"
	"time"

	"logbook/engine/cluster"
	"logbook/engine/commitlog"
	"logbook/engine/consumer"
	"logbook/engine/controller"
	"logbook/engine/coordinator"
	"logbook/engine/group"
	"logbook/engine/record"
	"logbook/engine/replica"
	"logbook/engine/topic"
	"logbook/engine/wire"
)

// groupsTopic holds the groups' states and committed offsets, as Kafka's
// __consumer_offsets does. A group belongs to a partition by its name, and is coordinated
// by that partition's leader: where the leader goes, its groups go.
const (
	groupsTopic      = "__groups"
	groupsPartitions = 8
)

func groupsTopicFor(brokers int) wire.CreateTopic {
	return wire.CreateTopic{Name: groupsTopic, Partitions: groupsPartitions, Replication: min(3, brokers), Router: topic.Murmur2.Name()}
}

func groupPartition(name string) controller.Partition {
	h := fnv.New32a()
	h.Write([]byte(name))
	return partition(groupsTopic, int(h.Sum32()%groupsPartitions))
}

// groups coordinates the groups whose partitions this broker leads.
type groups struct {
	b *Broker

	mu    sync.Mutex
	terms map[controller.Partition]*term
	done  bool
}

// term is the coordination of a partition's groups for one leader epoch.
type term struct {
	b         *Broker
	p         controller.Partition
	epoch     int32
	coord     *coordinator.Coordinator
	loaded    chan struct{} // closed when err is set and the rest can be used
	err       error
	compactMu sync.Mutex

	mu      sync.Mutex
	offsets map[string]map[group.Partition]int64
}

func newGroups(b *Broker) *groups {
	return &groups{b: b, terms: map[controller.Partition]*term{}}
}

// entry is a record of the groups' topic: its key names the group, and the partition if
// it is a committed offset.
type entry struct {
	Group     string `json:"group"`
	Topic     string `json:"topic,omitempty"`
	Partition int    `json:"partition,omitempty"`
}

// assigned ends a term that is over, so that members go to the next coordinator.
func (g *groups) assigned(p controller.Partition, a replica.Assignment) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if t := g.terms[p]; t != nil && (a.Leader != g.b.cfg.ID || a.Epoch != t.epoch) {
		delete(g.terms, p)
		go t.close()
	}
}

func (t *term) close() {
	<-t.loaded
	if t.coord != nil {
		t.coord.Close()
	}
}

func (g *groups) close() {
	g.mu.Lock()
	g.done = true
	terms := g.terms
	g.terms = map[controller.Partition]*term{}
	g.mu.Unlock()
	for _, t := range terms {
		t.close()
	}
}

// term returns the coordination of a group, which this broker must be the coordinator of.
func (g *groups) term(ctx context.Context, name string) (*term, error) {
	if err := topic.CheckName("group", name); err != nil {
		return nil, err
	}
	return g.termOf(ctx, groupPartition(name))
}

func (g *groups) termOf(ctx context.Context, p controller.Partition) (*term, error) {
	s, err := g.b.node.Status(p)
	if err != nil || s.Role != replica.Leader {
		return nil, g.notCoordinator(p, err)
	}
	g.mu.Lock()
	if g.done {
		g.mu.Unlock()
		return nil, coordinator.ErrClosed
	}
	t := g.terms[p]
	if t != nil && t.epoch != s.Assignment.Epoch {
		go t.close()
		t = nil
	}
	if t == nil {
		t = &term{b: g.b, p: p, epoch: s.Assignment.Epoch, loaded: make(chan struct{}), offsets: map[string]map[group.Partition]int64{}}
		g.terms[p] = t
		go t.load()
	}
	g.mu.Unlock()
	select {
	case <-t.loaded:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if t.err != nil {
		g.mu.Lock()
		if g.terms[p] == t {
			delete(g.terms, p) // the next one tries again
		}
		g.mu.Unlock()
	}
	return t, t.err
}

func (g *groups) notCoordinator(p controller.Partition, err error) error {
	a, ok := g.b.dir.Assignment(p)
	if !ok {
		return &wire.Error{Code: wire.Unavailable, Message: "groups are not ready yet; ask for the coordinator again"}
	}
	if a.Leader == g.b.cfg.ID || a.Leader == replica.None {
		reason := "it is about to take over"
		if err != nil {
			reason = err.Error()
		}
		return &wire.Error{Code: wire.Unavailable, Message: "the group's coordinator is not ready: " + reason}
	}
	return g.b.elsewhere(a.Leader, "another broker coordinates the group")
}

// load reads the groups back from the partition's log.
func (t *term) load() {
	defer close(t.loaded)
	l, err := t.b.node.Log(t.p)
	if err != nil {
		t.err = err
		return
	}
	states := map[string][]byte{}
	for r, err := range l.Records(l.StartOffset()) {
		var e entry
		if err == nil {
			err = json.Unmarshal(r.Key, &e)
		}
		if err != nil {
			t.err = fmt.Errorf("broker: reading the groups in %s: %w", t.p, err)
			return
		}
		if e.Topic == "" {
			states[e.Group] = append([]byte(nil), r.Value...)
			continue
		}
		var offset int64
		if err := json.Unmarshal(r.Value, &offset); err != nil {
			t.err = fmt.Errorf("broker: reading a committed offset in %s: %w", t.p, err)
			return
		}
		t.note(e.Group, group.Partition{Topic: e.Topic, ID: e.Partition}, offset)
	}
	t.coord = coordinator.New(coordinator.Config{Storage: t, Counts: t.b.counts, Check: t.check, Now: t.b.cfg.Now})
	for name, data := range states {
		if err := t.coord.Restore(name, data); err != nil {
			t.err = err
			return
		}
	}
	t.b.cfg.Logger.Info("coordinating groups", "broker", t.b.cfg.ID, "partition", t.p, "epoch", t.epoch, "groups", len(states))
}

func (t *term) note(name string, p group.Partition, offset int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.offsets[name] == nil {
		t.offsets[name] = map[group.Partition]int64{}
	}
	t.offsets[name][p] = offset
}

func (t *term) committed(name string) map[group.Partition]int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.offsets[name])
}

func stateRecord(name string, snapshot []byte) record.Record {
	key, _ := json.Marshal(entry{Group: name}) // strings and numbers cannot fail
	return record.Record{Key: key, Value: snapshot}
}

func offsetRecord(name string, p group.Partition, offset int64) record.Record {
	key, _ := json.Marshal(entry{Group: name, Topic: p.Topic, Partition: p.ID})
	value, _ := json.Marshal(offset)
	return record.Record{Key: key, Value: value}
}

// write stores records in the partition, on all in-sync replicas, in this term only.
func (t *term) write(records ...record.Record) error {
	if s, err := t.b.node.Status(t.p); err != nil || s.Assignment.Epoch != t.epoch {
		return coordinator.ErrClosed
	}
	ctx, cancel := context.WithTimeout(t.b.ctx, t.b.cfg.WriteTimeout)
	defer cancel()
	_, err := t.b.node.Append(ctx, t.p, replica.Quorum, cluster.Records(records...))
	return err
}

// Save implements coordinator.Storage.
func (t *term) Save(name string, snapshot []byte) error {
	return t.write(stateRecord(name, snapshot))
}

// Commit implements coordinator.Storage.
func (t *term) Commit(name string, offsets map[group.Partition]int64) error {
	var records []record.Record
	for p, offset := range offsets {
		records = append(records, offsetRecord(name, p, offset))
	}
	if err := t.write(records...); err != nil {
		return err
	}
	for p, offset := range offsets {
		t.note(name, p, offset)
	}
	go t.compact()
	return nil
}

// compactAbove is how many records a partition of groups may have before it is written
// anew: all that counts goes to the end, and the log start behind what was there.
const compactAbove = 20_000

func (t *term) compact() {
	l, err := t.b.node.Log(t.p)
	if err != nil || l.EndOffset()-l.StartOffset() < compactAbove || !t.compactMu.TryLock() {
		return
	}
	defer t.compactMu.Unlock()
	from := l.EndOffset()
	err = t.coord.Snapshots(func(name string, data []byte) error { return t.write(stateRecord(name, data)) })
	t.mu.Lock()
	var all []record.Record
	for name, offsets := range t.offsets {
		for p, offset := range offsets {
			all = append(all, offsetRecord(name, p, offset))
		}
	}
	t.mu.Unlock()
	for chunk := range slices.Chunk(all, 500) {
		if err == nil {
			err = t.write(chunk...)
		}
	}
	if err == nil {
		err = t.b.node.Trim(t.p, func(l *commitlog.Log) error { return l.AdvanceLogStart(from) })
	}
	if err != nil {
		t.b.cfg.Logger.Warn("the groups' log could not be made shorter", "partition", t.p, "error", err)
	}
}

// check holds a commit to what its partitions hold, and to what was committed.
func (t *term) check(name string, offsets map[group.Partition]int64) error {
	old := t.committed(name)
	for p, offset := range offsets {
		if err := t.b.exists(partition(p.Topic, p.ID)); err != nil {
			return err
		}
		progress := consumer.Progress{Consumer: name, Topic: p.Topic, Partition: p.ID}
		if offset < 0 {
			return &consumer.NegativeOffsetError{Progress: progress, Offset: offset}
		}
		// The end is known where this broker has a replica; a follower's may be behind.
		if s, err := t.b.node.Status(partition(p.Topic, p.ID)); err == nil && s.Role == replica.Leader {
			if err := consumer.CheckCommit(progress, offset, s.End); err != nil {
				return err
			}
		}
		if was, ok := old[p]; ok && offset < was {
			return &consumer.OffsetRegressionError{Progress: progress, Committed: was, Wanted: offset}
		}
	}
	return nil
}

// counts looks up topics' partition counts.
func (b *Broker) counts(topics []string) (map[string]int, error) {
	counts := map[string]int{}
	for _, name := range topics {
		t, ok := b.dir.topic(name)
		if !ok {
			return nil, &topic.UnknownError{Name: name}
		}
		counts[name] = len(t.Partitions)
	}
	return counts, nil
}

// find says who coordinates a group, and makes the groups' topic if there is none yet.
func (g *groups) find(ctx context.Context, name string) (wire.FindCoordinatorReply, error) {
	if err := topic.CheckName("group", name); err != nil {
		return wire.FindCoordinatorReply{}, err
	}
	if _, ok := g.b.dir.topic(groupsTopic); !ok {
		if d := g.b.dir.decider(); d != replica.None && d != g.b.cfg.ID {
			return wire.FindCoordinatorReply{}, g.b.elsewhere(d, "the groups' topic has to be made first, by the broker that keeps the decisions")
		}
		err := g.b.dir.createTopic(ctx, groupsTopicFor(len(g.b.cfg.all())))
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
func (g *groups) call(ctx context.Context, name string, r group.Request) (group.Reply, error) {
	t, err := g.term(ctx, name)
	if err != nil {
		return group.Reply{}, err
	}
	return t.coord.Call(ctx, name, r)
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
	reply, err := g.call(ctx, q.Group, r)
	return wire.JoinGroupReply{Member: reply.Member, Generation: reply.Generation}, err
}

func memberRequest(kind group.Kind, q wire.MemberRequest) group.Request {
	return group.Request{Kind: kind, Member: q.Member, Instance: q.Instance, Generation: q.Generation}
}

func (g *groups) sync(ctx context.Context, q wire.MemberRequest) (wire.SyncGroupReply, error) {
	reply, err := g.call(ctx, q.Group, memberRequest(group.Sync, q))
	out := wire.SyncGroupReply{Partitions: []wire.TopicPartition{}}
	for _, p := range reply.Partitions {
		out.Partitions = append(out.Partitions, wire.TopicPartition{Topic: p.Topic, Partition: p.ID})
	}
	return out, err
}

func (g *groups) heartbeat(ctx context.Context, q wire.MemberRequest) (wire.HeartbeatReply, error) {
	reply, err := g.call(ctx, q.Group, memberRequest(group.Heartbeat, q))
	return wire.HeartbeatReply{Generation: reply.Generation}, err
}

func (g *groups) leave(ctx context.Context, q wire.MemberRequest) error {
	_, err := g.call(ctx, q.Group, memberRequest(group.Leave, q))
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
		_, err := g.call(ctx, q.Group, group.Request{Kind: group.Commit, Member: q.Member, Instance: q.Instance, Generation: q.Generation, Offsets: offsets})
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
	out := wire.FetchOffsetsReply{Offsets: []wire.CommitOffset{}}
	wanted := func(p group.Partition) bool {
		return len(q.Partitions) == 0 || slices.Contains(q.Partitions, wire.TopicPartition{Topic: p.Topic, Partition: p.ID})
	}
	all := t.committed(q.Group)
	for _, p := range slices.SortedFunc(maps.Keys(all), compareGroupPartitions) {
		if wanted(p) {
			out.Offsets = append(out.Offsets, wire.CommitOffset{Topic: p.Topic, Partition: p.ID, Offset: all[p]})
		}
	}
	return out, nil
}

func compareGroupPartitions(a, b group.Partition) int {
	if c := compareStrings(a.Topic, b.Topic); c != 0 {
		return c
	}
	return a.ID - b.ID
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
	for _, p := range slices.SortedFunc(maps.Keys(all), compareGroupPartitions) {
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
