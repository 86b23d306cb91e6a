package controller

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"logbook/engine/replica"
	"logbook/engine/topic"
	"logbook/engine/vfs"
)

// Manual is the controller of a person who decides: failover and recovery are calls. It
// detects nothing and promotes nobody by itself. It is safe for concurrent use.
type Manual struct {
	fs     vfs.FS
	file   string
	choose Choice

	meta      atomic.Pointer[Meta] // never changed in place: asking waits for no disk
	mu        sync.Mutex           // one change at a time
	unsettled bool                 // the file may hold what meta does not say
	watchers  []func(Partition, replica.Assignment)
}

// OpenManual reads the decisions kept in a directory, or starts without any. choose picks
// leaders; nil is Longest. fsys nil is the operating system's.
//
// Errors: *MetadataError.
func OpenManual(fsys vfs.FS, dir string, choose Choice) (*Manual, error) {
	if fsys == nil {
		fsys = vfs.OS
	}
	if choose == nil {
		choose = Longest
	}
	file := filepath.Join(dir, MetaName)
	m, err := readMeta(fsys, file)
	if err != nil {
		return nil, err
	}
	if err := fsys.MkdirAll(dir); err != nil {
		return nil, fmt.Errorf("controller: %w", err)
	}
	c := &Manual{fs: fsys, file: file, choose: choose}
	c.meta.Store(&m)
	return c, nil
}

// Meta returns all that was decided, as a copy.
func (m *Manual) Meta() Meta { return m.meta.Load().clone() }

// Assignment implements Controller.
func (m *Manual) Assignment(p Partition) (replica.Assignment, bool) {
	t, ok := m.meta.Load().Topics[p.Topic]
	if !ok || p.ID < 0 || p.ID >= len(t.Partitions) {
		return replica.Assignment{}, false
	}
	return t.Partitions[p.ID].Clone(), true
}

// Topic returns what was decided about a topic. It must not be changed.
func (m *Manual) Topic(name string) (Topic, bool) {
	t, ok := m.meta.Load().Topics[name]
	return t, ok
}

// Watch implements Controller.
func (m *Manual) Watch(f func(Partition, replica.Assignment)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.watchers = append(m.watchers, f)
}

// change makes a change count: it is written, then believed, then told. m.mu is held.
//
// Where the write fails, the old content is put back, since either may be there. Only
// where that fails too is the outcome unknown.
func (m *Manual) change(next Meta, changed ...Partition) error {
	if err := next.validate(); err != nil {
		return fmt.Errorf("controller: a change that must not be: %w", err)
	}
	if err := writeMeta(m.fs, m.file, next); err != nil {
		if back := writeMeta(m.fs, m.file, *m.meta.Load()); back != nil {
			m.unsettled = true
			return &UnsettledError{File: m.file, Err: err}
		}
		m.unsettled = false
		return fmt.Errorf("controller: the change does not count, %s could not be written: %w", m.file, err)
	}
	m.meta.Store(&next)
	m.unsettled = false
	for _, p := range changed {
		for _, f := range m.watchers {
			f(p, next.Topics[p.Topic].Partitions[p.ID].Clone())
		}
	}
	return nil
}

// Propose implements Controller.
func (m *Manual) Propose(p Partition, a replica.Assignment) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	old, ok := m.Assignment(p)
	if !ok {
		return &UnknownPartitionError{p}
	}
	if a.Version != old.Version+1 || a.Epoch != old.Epoch || a.Leader != old.Leader || !slices.Equal(a.Replicas, old.Replicas) {
		return &StaleError{Partition: p, Proposed: a, Present: old}
	}
	next := m.meta.Load().clone()
	next.Topics[p.Topic].Partitions[p.ID] = a.Clone()
	return m.change(next, p)
}

// AddTopic records a new topic, placed over the known brokers.
//
// Errors: *topic.NameError, *topic.ExistsError, *BrokerError, and what kept it from being
// written.
func (m *Manual) AddTopic(name string, partitions, replication int, router topic.Router) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.CheckTopic(name, partitions); err != nil {
		return err
	}
	placed, err := Place(m.meta.Load().Brokers, partitions, replication)
	if err != nil {
		return err
	}
	next := m.meta.Load().clone()
	next.Topics[name] = Topic{Router: router.Name(), Replication: replication, Partitions: placed}
	var changed []Partition
	for i := range placed {
		changed = append(changed, Partition{name, i})
	}
	return m.change(next, changed...)
}

// CheckTopic says why a topic cannot be added, as far as name and count tell.
func (m *Manual) CheckTopic(name string, partitions int) error {
	if err := topic.CheckName("topic", name); err != nil {
		return err
	}
	if _, ok := m.Topic(name); ok {
		return &topic.ExistsError{Name: name}
	}
	if partitions < 1 || partitions > topic.MaxPartitions {
		return fmt.Errorf("topic %q: a partition count of %d; it must be from 1 to %d", name, partitions, topic.MaxPartitions)
	}
	return nil
}

// Register records a broker that starts, and begins a new epoch for each partition that
// it leads. A leader that was away may have lost records that were never synced, and
// gives their offsets out again: the epoch tells the new ones from the old (KIP-101).
func (m *Manual) Register(id replica.BrokerID) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if id <= replica.None {
		return &BrokerError{fmt.Sprintf("a broker cannot have the id %d; ids are positive", id)}
	}
	next := m.meta.Load().clone()
	if i, found := slices.BinarySearch(next.Brokers, id); !found {
		next.Brokers = slices.Insert(next.Brokers, i, id)
	}
	var changed []Partition
	for name, t := range next.Topics {
		for i := range t.Partitions {
			if a := &t.Partitions[i]; a.Leader == id {
				a.Version++
				a.Epoch++
				changed = append(changed, Partition{name, i})
			}
		}
	}
	if len(changed) == 0 && len(next.Brokers) == len(m.meta.Load().Brokers) && !m.unsettled {
		return nil
	}
	return m.change(next, changed...)
}

// Failover is the outcome of a failover.
type Failover struct {
	Partition Partition
	Old, New  replica.BrokerID
	Epoch     int32
	End       int64 // the new leader's log end: the offset that the next record gets
	Active    []replica.BrokerID
}

// Failover gives a partition whose leader is gone a new one: the one that the Choice
// picks of the active replicas that can be reached. All of these must agree, record for
// record, as far as they go. The active replicas that cannot be reached are active no
// more: they come back by recovery.
//
// Errors: *UnknownPartitionError, *LeaderStillAvailableError, *NoEligibleReplicaError,
// *DivergenceError, and what kept the change from being written. After each of them but
// *UnsettledError the recorded leader is the old one.
func (m *Manual) Failover(ctx context.Context, p Partition, probe Prober) (Failover, error) {
	old, ok := m.Assignment(p)
	if !ok {
		return Failover{}, &UnknownPartitionError{p}
	}
	if r := probe.Report(ctx, p, old.Leader); r.Err == nil {
		return Failover{}, &LeaderStillAvailableError{Partition: p, Leader: old.Leader}
	}
	var reports []Report
	for _, id := range slices.Sorted(slices.Values(old.Replicas)) {
		if id != old.Leader {
			reports = append(reports, probe.Report(ctx, p, id))
		}
	}
	candidates, reasons := Candidates(old, reports)
	chosen := m.choose(old, reports)
	if chosen == replica.None {
		return Failover{}, &NoEligibleReplicaError{Partition: p, Leader: old.Leader, Reasons: reasons}
	}
	i := slices.IndexFunc(reports, func(r Report) bool { return r.Broker == chosen })
	if i < 0 || !slices.Contains(candidates, chosen) {
		return Failover{}, fmt.Errorf("controller: the choice fell on broker %d, which cannot lead: %s", chosen, reasons[chosen])
	}
	others := slices.DeleteFunc(slices.Clone(reports), func(r Report) bool { return !slices.Contains(candidates, r.Broker) })
	if err := compareCandidates(ctx, probe, p, reports[i], others); err != nil {
		return Failover{}, err
	}
	next := old.Clone()
	next.Version++
	next.Epoch++
	next.Leader, next.Active = chosen, candidates
	m.mu.Lock()
	defer m.mu.Unlock()
	if now, _ := m.Assignment(p); now.Version != old.Version {
		return Failover{}, &StaleError{Partition: p, Proposed: next, Present: now}
	}
	meta := m.meta.Load().clone()
	meta.Topics[p.Topic].Partitions[p.ID] = next
	if err := m.change(meta, p); err != nil {
		return Failover{}, err
	}
	return Failover{Partition: p, Old: old.Leader, New: chosen, Epoch: next.Epoch, End: reports[i].End, Active: candidates}, nil
}
