package controller

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"logbook/engine/metadata"
	"logbook/engine/replica"
	"logbook/engine/topic"
)

// CheckTopic says why a topic cannot be made, as far as its description tells.
//
// Errors: *topic.NameError, *topic.ExistsError, *topic.CountError, *topic.PartitionerError,
// *topic.SettingError.
func CheckTopic(image *metadata.Image, spec TopicSpec) error {
	if err := topic.CheckName("topic", spec.Name); err != nil {
		return err
	}
	if image.Topic(spec.Name) != nil {
		return &topic.ExistsError{Name: spec.Name}
	}
	if _, err := topic.PartitionerByName(spec.Partitioner); err != nil {
		return err
	}
	if err := spec.Settings.Check(); err != nil {
		return err
	}
	return topic.CheckCount(spec.Name, spec.Partitions)
}

// CreateTopic implements Machine. The replicas are made first: until the topic is recorded
// they mean nothing.
func (m *Manual) CreateTopic(now time.Time, id uint64, spec TopicSpec) []Effect {
	m.begin(now)
	m.afterChanges(func() { m.createTopic(id, spec) })
	return m.effects()
}

// afterChanges does something when the changes that wait now are made: a command that is
// given while the broker starts finds it registered.
func (m *Manual) afterChanges(do func()) {
	m.change(&change{
		make: func(*metadata.Image) ([]metadata.Record, error) { return nil, nil },
		done: func(error) { do() },
	})
}

func (m *Manual) createTopic(id uint64, spec TopicSpec) {
	fail := func(err error) { m.emit(Done{ID: id, Err: err}) }
	if !m.keeps() {
		fail(&BrokerError{fmt.Sprintf("topics are made by broker %d, which keeps the decisions", m.cfg.At)})
		return
	}
	if err := CheckTopic(m.image, spec); err != nil {
		fail(err)
		return
	}
	placed, err := Place(m.image.Brokers(), spec.Partitions, spec.Replication)
	if err != nil {
		fail(err)
		return
	}
	m.makeAll(spec.Name, 0, placed, func(err error) {
		if err != nil {
			fail(err)
			return
		}
		m.recordTopic(id, spec, placed)
	})
}

// makeAll has each broker make its replicas of partitions that are numbered from first on.
func (m *Manual) makeAll(name string, first int, placed []replica.Assignment, done func(error)) {
	brokers, parts := ReplicasByBroker(first, placed, func(a replica.Assignment) []replica.BrokerID { return a.Replicas })
	if len(brokers) == 0 {
		done(nil)
		return
	}
	left, problem := len(brokers), error(nil)
	for _, b := range brokers {
		m.createReplicas(b, name, parts[b], func(err error) {
			if err != nil && problem == nil {
				problem = fmt.Errorf("broker %d: making its replicas of %q: %w", b, name, err)
			}
			if left--; left == 0 {
				done(problem)
			}
		})
	}
}

func (m *Manual) recordTopic(id uint64, spec TopicSpec, placed []replica.Assignment) {
	m.change(&change{
		done: func(err error) { m.emit(Done{ID: id, Err: err}) },
		make: func(image *metadata.Image) ([]metadata.Record, error) {
			return TopicRecords(image, spec, placed)
		},
	})
}

// TopicRecords are the decisions that make a topic.
func TopicRecords(image *metadata.Image, spec TopicSpec, placed []replica.Assignment) ([]metadata.Record, error) {
	if err := CheckTopic(image, spec); err != nil {
		return nil, err
	}
	out := []metadata.Record{{Topic: spec.Record(image)}}
	for i, a := range placed {
		out = append(out, Assigned(spec.ID, Partition{Topic: spec.Name, ID: i}, a))
	}
	return out, nil
}

// Record is the decision that makes the topic, in a version above that of an earlier one.
func (s TopicSpec) Record(image *metadata.Image) *metadata.TopicRecord {
	r := &metadata.TopicRecord{
		Name: s.Name, ID: s.ID, Partitions: s.Partitions, Replication: s.Replication, Partitioner: s.Partitioner, Settings: s.Settings, Version: 1,
	}
	if gone := image.Deleted(s.Name); gone != nil {
		r.Version = gone.Version + 1
	}
	return r
}

// TopicChange is a change of a topic. Zero values change nothing.
type TopicChange struct {
	Name       string
	Delete     bool               // with all its records
	Partitions int                // how many there are to be; only more than there are
	Settings   map[string]*string // nil: back to the default
}

// Record returns the decision that a change makes of a topic.
//
// Errors: *topic.UnknownError, *topic.CountError, *topic.FewerError, *topic.SettingError.
func (c TopicChange) Record(image *metadata.Image) (*metadata.TopicRecord, error) {
	t := image.Topic(c.Name)
	if t == nil {
		return nil, &topic.UnknownError{Name: c.Name}
	}
	r := t.Record()
	r.Version = max(r.Version, 1) + 1
	r.Deleted = c.Delete
	if c.Partitions != 0 {
		if err := topic.CheckCount(c.Name, c.Partitions); err != nil {
			return nil, err
		}
		if c.Partitions <= len(t.Partitions) {
			return nil, &topic.FewerError{Name: c.Name, Count: len(t.Partitions), Wanted: c.Partitions}
		}
		r.Partitions = c.Partitions
	}
	r.Settings = r.Settings.With(c.Settings)
	return r, r.Settings.Check()
}

// Removed are the effects of a topic's record on the replicas that a broker has of an
// earlier one of its name.
func Removed(old *metadata.Topic, next *metadata.TopicRecord, id replica.BrokerID) []Effect {
	if old == nil || !next.Deleted && next.ID == old.ID {
		return nil
	}
	var parts []int
	for i, a := range old.Partitions {
		if id == replica.None || slices.Contains(a.Replicas, id) {
			parts = append(parts, i)
		}
	}
	return []Effect{RemoveReplicas{Topic: old.Name, Partitions: parts}}
}

// ChangeTopic implements Machine.
func (m *Manual) ChangeTopic(now time.Time, id uint64, c TopicChange) []Effect {
	m.begin(now)
	m.afterChanges(func() { m.changeTopic(id, c) })
	return m.effects()
}

func (m *Manual) changeTopic(id uint64, c TopicChange) {
	done := func(err error) { m.emit(Done{ID: id, Err: err}) }
	if !m.keeps() {
		done(&BrokerError{fmt.Sprintf("topics are changed by broker %d, which keeps the decisions", m.cfg.At)})
		return
	}
	r, err := c.Record(m.image)
	if err != nil {
		done(err)
		return
	}
	old := m.image.Topic(c.Name)
	var placed []replica.Assignment // of the new partitions
	if n := len(old.Partitions); r.Partitions > n {
		all, err := Place(m.image.Brokers(), r.Partitions, r.Replication)
		if err != nil {
			done(err)
			return
		}
		placed = all[n:]
	}
	m.makeAll(c.Name, len(old.Partitions), placed, func(err error) {
		if err != nil {
			done(err)
			return
		}
		m.change(&change{done: done, make: func(image *metadata.Image) ([]metadata.Record, error) {
			now, err := c.Record(image) // it may have changed meanwhile
			if err != nil {
				return nil, err
			}
			out := []metadata.Record{{Topic: now}}
			for i, a := range placed {
				out = append(out, Assigned(now.ID, Partition{Topic: c.Name, ID: len(old.Partitions) + i}, a))
			}
			return out, nil
		}})
	})
}

// createReplicas makes a broker's replicas of a topic.
func (m *Manual) createReplicas(b replica.BrokerID, name string, parts []int, done func(error)) {
	if b == m.cfg.ID {
		m.makeReplicas(name, parts, done)
		return
	}
	if m.health.state[b] == nil && m.cfg.ID != replica.None {
		done(&BrokerError{"it was here once and is not one of the peers"})
		return
	}
	m.ask(b, m.cfg.RequestTimeout, func(id uint64) Message { return CreateReplicas{id, name, parts} }, func(reply Message, failed string) {
		r, ok := reply.(ReplicasCreated)
		switch {
		case !ok:
			done(&UnreachableError{Broker: b, Why: failed})
		case r.Err != "":
			done(errors.New(r.Err))
		default:
			done(nil)
		}
	})
}

// makeReplicas makes this broker's own.
func (m *Manual) makeReplicas(name string, parts []int, done func(error)) {
	m.calls.last++
	m.made[m.calls.last] = done
	m.emit(MakeReplicas{m.calls.last, name, parts})
}

// ReplicasMade implements Machine.
func (m *Manual) ReplicasMade(now time.Time, id uint64, err error) []Effect {
	m.begin(now)
	if done := m.made[id]; done != nil {
		delete(m.made, id)
		done(err)
	}
	return m.effects()
}

func (m *Manual) createFor(from replica.BrokerID, q CreateReplicas) {
	if from != m.cfg.At {
		return
	}
	m.makeReplicas(q.Topic, q.Partitions, func(err error) {
		r := ReplicasCreated{ID: q.ID}
		if err != nil {
			r.Err = err.Error()
		}
		m.emit(Send{from, r})
	})
}
