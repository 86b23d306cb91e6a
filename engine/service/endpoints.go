package service

import (
	"iter"
	"maps"
	"sync"
	"time"

	"logbook/engine/controller"
	"logbook/engine/node"
	"logbook/engine/record"
)

// What fronts ask that no client's request of the JSON protocol is.

// These are package controller's, for fronts.
type (
	TopicSpec         = controller.TopicSpec
	TopicChange       = controller.TopicChange
	MemberChange      = controller.MemberChange
	BrokerError       = controller.BrokerError
	ReassignmentError = controller.ReassignmentError
)

// ErrNotMoving is package controller's: a partition that is not being moved cannot be taken back.
var ErrNotMoving = controller.ErrNotMoving

// endpoints are where clients of other protocols find brokers. Brokers tell each other when
// they meet.
type endpoints struct {
	mu sync.Mutex
	of map[BrokerID]map[string]string // name of the protocol: host:port
}

// SetEndpoint says where this broker's clients of a protocol find it.
func (s *Service) SetEndpoint(name, address string) {
	s.learnEndpoints(s.cfg.ID, map[string]string{name: address})
}

// Endpoint is where clients of a protocol find a broker; empty where that is not known.
func (s *Service) Endpoint(id BrokerID, name string) string {
	s.endpoints.mu.Lock()
	defer s.endpoints.mu.Unlock()
	return s.endpoints.of[id][name]
}

// Introduction is what a broker says to another when they meet.
func (s *Service) Introduction() PeerMessage {
	s.endpoints.mu.Lock()
	defer s.endpoints.mu.Unlock()
	return Introduce{Endpoints: maps.Clone(s.endpoints.of[s.cfg.ID])}
}

func (s *Service) learnEndpoints(id BrokerID, all map[string]string) {
	s.endpoints.mu.Lock()
	defer s.endpoints.mu.Unlock()
	if s.endpoints.of == nil {
		s.endpoints.of = map[BrokerID]map[string]string{}
	}
	if s.endpoints.of[id] == nil {
		s.endpoints.of[id] = map[string]string{}
	}
	maps.Copy(s.endpoints.of[id], all)
}

// Dir is the broker's data directory.
func (s *Service) Dir() string { return s.cfg.Dir }

// MinInSync is how many replicas must be in sync for a write that more than the leader acknowledges.
func (s *Service) MinInSync() int { return s.cfg.MinInSync }

// Sizes iterates over this broker's replicas and the bytes of their logs, in order.
func (s *Service) Sizes() iter.Seq2[Partition, int64] {
	return func(yield func(Partition, int64) bool) {
		for _, p := range s.node.Partitions() {
			if !yield(p, s.node.Size(p)) {
				return
			}
		}
	}
}

// Look looks at a partition that this broker leads, at one moment.
//
// Errors: UnknownTopic, UnknownPartition, NotLeader, Unavailable, Damaged.
func (s *Service) Look(p Partition) (node.Look, error) {
	if err := s.Image().Check(p); err != nil {
		return node.Look{}, s.fail(err)
	}
	look, err := s.node.Look(p)
	if err == nil {
		err = s.leased(p)
	}
	return look, s.fail(err)
}

// Newest finds the record with the latest timestamp of a partition, as far as consumers may
// read; offset -1: there is none. It reads all of it.
//
// Errors: those of Look.
func (s *Service) Newest(p Partition) (offset int64, at time.Time, err error) {
	offset = -1
	look, err := s.Look(p)
	if err != nil {
		return offset, at, err
	}
	for r, err := range s.node.Records(p, look.LogStartOffset) {
		if err != nil {
			return -1, at, s.fail(err)
		}
		if offset < 0 || record.Nanos(r.Timestamp) > record.Nanos(at) {
			offset, at = r.Offset, r.Timestamp
		}
	}
	return offset, at, nil
}

// CheckTopic says whether a topic could be made.
//
// Errors: those of CreateTopic.
func (s *Service) CheckTopic(spec TopicSpec) error {
	return s.fail(controller.CheckTopic(s.Image(), spec))
}

// Elect is Failover for who wants no account of it.
func (s *Service) Elect(p Partition, done func(error)) {
	s.Failover(p, func(_ controller.FailoverResult, err error) { done(err) })
}
