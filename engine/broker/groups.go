package broker

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"sync"

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

// load reads the groups back from the partition's log. Nobody hears of them before all that
// was read is safe: an earlier coordinator's last word may be on this broker alone, and the
// next leader would say something else under the same generation.
func (t *term) load() {
	defer close(t.loaded)
	l, err := t.b.node.Log(t.p)
	if err != nil {
		t.err = err
		return
	}
	if end := l.EndOffset(); end > l.StartOffset() {
		ctx, cancel := context.WithTimeout(t.b.ctx, t.b.cfg.WriteTimeout)
		defer cancel()
		if err := t.b.node.Wait(ctx, t.p, end-1); err != nil {
			t.err = &wire.Error{Code: wire.Unavailable, Message: fmt.Sprintf("the groups' state is not safe on all in-sync replicas yet: %v", err)}
			return
		}
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
	if err != nil {
		t.b.groups.abandon(t)
	}
	return err
}

// abandon ends a term that could not store something: its groups have gone on in memory,
// and nobody must hear of that. The next request loads what is stored.
func (g *groups) abandon(t *term) {
	g.mu.Lock()
	if g.terms[t.p] == t {
		delete(g.terms, t.p)
	}
	g.mu.Unlock()
	go t.close() // it waits for the group that is being stored
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
