package service

import (
	"bytes"
	"crypto/sha256"
	"slices"
	"strings"

	"logbook/engine/controller"
	"logbook/engine/metadata"
	"logbook/engine/topic"
)

// internalPrefix begins the names of topics that are the broker's own.
const internalPrefix = "__"

// IsInternal reports whether a topic is the broker's own, and not for clients to write to.
func IsInternal(name string) bool { return strings.HasPrefix(name, internalPrefix) }

// BrokerStatus is a broker of the cluster, as this one sees it.
type BrokerStatus struct {
	ID    BrokerID
	Alive bool
	Role  metadata.Role
	Rack  string // empty: it did not say
}

// Brokers lists the brokers of the cluster that store records, by ascending id: those that clients
// have to do with.
func (s *Service) Brokers() []BrokerStatus {
	return slices.DeleteFunc(s.Processes(), func(b BrokerStatus) bool { return !b.Role.Stores() })
}

// Processes lists the brokers of the cluster, by ascending id, those too that only decide.
func (s *Service) Processes() []BrokerStatus {
	v := s.view.Load()
	out := make([]BrokerStatus, 0, len(v.brokers))
	for _, id := range v.brokers {
		r, _ := v.image.Broker(id)
		if r.Life == 0 && id == s.cfg.ID {
			r.Role, r.Rack = s.cfg.Role, s.cfg.Rack
		}
		out = append(out, BrokerStatus{ID: id, Alive: v.alive[id], Role: r.Role, Rack: r.Rack})
	}
	return out
}

// Topics returns topics by their names, all of them without names, sorted. They must not
// be changed.
//
// Errors: UnknownTopic.
func (s *Service) Topics(names ...string) ([]*metadata.Topic, error) {
	image := s.Image()
	if len(names) == 0 {
		names = image.Topics()
	}
	out := make([]*metadata.Topic, 0, len(names))
	for _, name := range names {
		t := image.Topic(name)
		if t == nil {
			return nil, s.fail(&topic.UnknownError{Name: name})
		}
		out = append(out, t)
	}
	return out, nil
}

// CreateTopic makes a topic, on whichever broker decides. Zero values of Replication and
// Partitioner are defaults: as many replicas as there are brokers, at most 3, and topic.Murmur2.
// ID is drawn.
//
// Errors: TopicExists, BadRequest, Unavailable.
func (s *Service) CreateTopic(spec controller.TopicSpec, done func(*metadata.Topic, error)) {
	if IsInternal(spec.Name) {
		done(nil, badRequest("topic names that begin with %q are the broker's own", internalPrefix))
		return
	}
	var err error
	if spec.ID, err = topic.NewID(s.cfg.Random); err != nil {
		done(nil, s.fail(err))
		return
	}
	s.makeTopic(spec, done)
}

// AutoCreateTopic makes a topic because a client wrote to it. Clients do that on several
// brokers at once; where no single broker makes topics, the id is one that each of them finds,
// so that they make the same topic and not two of one name.
//
// Errors: those of CreateTopic.
func (s *Service) AutoCreateTopic(name string, partitions int, done func(error)) {
	if IsInternal(name) {
		done(badRequest("topic names that begin with %q are the broker's own", internalPrefix))
		return
	}
	s.autoCreate(name, partitions, func(_ *metadata.Topic, err error) { done(err) })
}

func (s *Service) autoCreate(name string, partitions int, done func(*metadata.Topic, error)) {
	seed := name
	if gone := s.Image().Deleted(name); gone != nil {
		seed = string(gone.ID[:]) + name // a new topic: who remembers the old one can tell
	}
	s.makeTopic(controller.TopicSpec{Name: name, ID: foundID(seed), Partitions: partitions}, done)
}

// makeTopic makes a topic, internal ones too, and lets this broker begin to lead what it
// leads of it before it says so.
func (s *Service) makeTopic(spec controller.TopicSpec, done func(*metadata.Topic, error)) {
	if spec.Replication == 0 {
		spec.Replication = min(3, len(s.Brokers()))
	}
	if spec.Partitioner == "" {
		spec.Partitioner = topic.Murmur2.Name()
	}
	s.order(Command{CreateTopic: &spec}, func(_ controller.FailoverResult, err error) {
		t := s.Image().Topic(spec.Name)
		if err == nil && t == nil {
			err = unavailable("topic %q is made, and broker %d has not heard of it yet; try again", spec.Name, s.cfg.ID)
		}
		if err != nil {
			done(nil, err)
			return
		}
		g := newGathering(len(t.Partitions))
		for i := range t.Partitions {
			s.node.Settle(Partition{Topic: spec.Name, ID: i}, func() { g.arrived(func() { done(t, nil) }) })
		}
	})
}

// ChangeTopic deletes a topic, adds partitions, or changes its settings.
//
// Errors: UnknownTopic, BadRequest, Unavailable.
func (s *Service) ChangeTopic(change controller.TopicChange, done func(error)) {
	if IsInternal(change.Name) {
		done(badRequest("topic %q is the broker's own", change.Name))
		return
	}
	s.order(Command{ChangeTopic: &change}, func(_ controller.FailoverResult, err error) { done(err) })
}

// foundID is an id that every broker finds for the same seed, whichever makes the topic. The
// seed of a topic of the broker's own is its name.
func foundID(seed string) topic.ID {
	sum := sha256.Sum256([]byte(seed))
	id, _ := topic.NewID(bytes.NewReader(sum[:])) // there are bytes enough
	return id
}

// counts looks up topics' partition counts.
func (s *Service) counts(topics []string) (map[string]int, error) {
	image := s.Image()
	counts := map[string]int{}
	for _, name := range topics {
		t := image.Topic(name)
		if t == nil {
			return nil, &topic.UnknownError{Name: name}
		}
		counts[name] = len(t.Partitions)
	}
	return counts, nil
}

// Partitioner chooses partitions for a topic's records.
//
// Errors: UnknownTopic.
func (s *Service) Partitioner(name string) (p topic.Partitioner, partitions int, err error) {
	t := s.Image().Topic(name)
	if t == nil {
		return nil, 0, s.fail(&topic.UnknownError{Name: name})
	}
	p, err = topic.PartitionerByName(t.Partitioner)
	return p, len(t.Partitions), s.fail(err)
}
