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
// Errors: *topic.NameError, *topic.ExistsError, *topic.CountError, *topic.PartitionerError.
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
	parts := map[replica.BrokerID][]int{}
	var brokers []replica.BrokerID
	for i, a := range placed {
		for _, b := range a.Replicas {
			if parts[b] == nil {
				brokers = append(brokers, b)
			}
			parts[b] = append(parts[b], i)
		}
	}
	slices.Sort(brokers)
	left, problem := len(brokers), error(nil)
	for _, b := range brokers {
		m.createReplicas(b, spec.Name, parts[b], func(err error) {
			if err != nil && problem == nil {
				problem = fmt.Errorf("broker %d: making its replicas of %q: %w", b, spec.Name, err)
			}
			if left--; left > 0 {
				return
			}
			if problem != nil {
				fail(problem)
				return
			}
			m.recordTopic(id, spec, placed)
		})
	}
}

func (m *Manual) recordTopic(id uint64, spec TopicSpec, placed []replica.Assignment) {
	m.change(&change{
		done: func(err error) { m.emit(Done{ID: id, Err: err}) },
		make: func(image *metadata.Image) ([]metadata.Record, error) {
			return topicRecords(image, spec, placed)
		},
	})
}

// topicRecords are the decisions that make a topic.
func topicRecords(image *metadata.Image, spec TopicSpec, placed []replica.Assignment) ([]metadata.Record, error) {
	if err := CheckTopic(image, spec); err != nil {
		return nil, err
	}
	out := []metadata.Record{{Topic: &metadata.TopicRecord{
		Name: spec.Name, ID: spec.ID, Partitions: spec.Partitions, Replication: spec.Replication, Partitioner: spec.Partitioner,
	}}}
	for i, a := range placed {
		out = append(out, assigned(Partition{Topic: spec.Name, ID: i}, a))
	}
	return out, nil
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
