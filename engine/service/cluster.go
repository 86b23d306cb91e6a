package service

import (
	"slices"

	"logbook/engine/controller"
	"logbook/engine/metadata"
	"logbook/engine/replica"
)

// ClusterStatus is the cluster at a glance, as one broker sees it.
type ClusterStatus struct {
	Controller string                   // the kind
	Active     BrokerID                 // that takes commands; None: any, or none is known
	Quorum     *controller.QuorumStatus // nil where no majority decides
	Brokers    []ClusterBroker          // by ascending id
	// Of all partitions, the broker's own too: those without a leader, those with fewer replicas
	// in sync than they have, and those with fewer than quorum and all demand.
	Leaderless, UnderReplicated, UnderMinISR []Partition
	Moving                                   []Move
}

// Move is a partition that is being moved.
type Move struct {
	Partition Partition
	From, To  []BrokerID
	Done      []BrokerID // of those in To, who has all of it
}

// ClusterBroker is a broker of the cluster.
type ClusterBroker struct {
	ID              BrokerID
	Alive, Fenced   bool
	Voter           bool
	Learner         bool // it copies the log of decisions without a vote
	Role            metadata.Role
	Rack            string
	Lag             int64 // entries of the log of decisions that it lacks; meaningful if HasLag
	HasLag          bool
	Leads, Replicas int // partitions
}

// Quorum calls done with what the quorum is like, as far as this broker knows, and how far its
// members lag, which the active controller is asked; nil where no majority decides.
func (s *Service) Quorum(done func(*controller.QuorumStatus)) {
	at := s.ControllerID()
	s.ownQuorum(func(q *controller.QuorumStatus) {
		if q == nil || at == replica.None || at == s.cfg.ID {
			done(q)
			return
		}
		s.call(at, func(id uint64) PeerMessage { return QuorumRequest{id} }, func(m PeerMessage, err error) {
			if r, ok := m.(QuorumResponse); ok && err == nil {
				q.Lag = r.Lag
			}
			done(q)
		})
	})
}

func (s *Service) ownQuorum(done func(*controller.QuorumStatus)) {
	q, ok := s.controller.(controller.Quorate)
	if !ok {
		done(nil)
		return
	}
	s.control.do(func() {
		status := q.Quorum()
		done(&status)
	})
}

// Cluster calls done with the cluster at a glance.
func (s *Service) Cluster(done func(ClusterStatus)) {
	s.Quorum(func(q *controller.QuorumStatus) { done(s.cluster(q)) })
}

func (s *Service) cluster(q *controller.QuorumStatus) ClusterStatus {
	image := s.Image()
	c := ClusterStatus{Controller: s.Controller(), Active: s.ControllerID(), Quorum: q}
	at := map[BrokerID]int{}
	for i, b := range s.Processes() {
		at[b.ID] = i
		r, _ := image.Broker(b.ID)
		cb := ClusterBroker{ID: b.ID, Alive: b.Alive, Fenced: r.Fenced, Role: b.Role, Rack: b.Rack}
		if q != nil {
			cb.Voter, cb.Learner = slices.Contains(q.Voters, b.ID), slices.Contains(q.Learners, b.ID)
			lag, known := q.Lag[b.ID]
			cb.Lag, cb.HasLag = int64(lag), known
		}
		c.Brokers = append(c.Brokers, cb)
	}
	for _, name := range image.Topics() {
		t := image.Topic(name)
		for i, a := range t.Partitions {
			p := Partition{Topic: name, ID: i}
			for _, id := range a.Replicas {
				if n, ok := at[id]; ok {
					c.Brokers[n].Replicas++
					if a.Leader == id {
						c.Brokers[n].Leads++
					}
				}
			}
			least := int64(min(s.cfg.MinInSync, len(a.Replicas)))
			if n, ok := t.Settings.Number("min.insync.replicas"); ok {
				least = n
			}
			if a.Target != nil {
				c.Moving = append(c.Moving, Move{Partition: p, From: a.Origin, To: a.Target, Done: slices.DeleteFunc(slices.Clone(a.Target), func(id BrokerID) bool { return !slices.Contains(a.ISR, id) })})
			}
			if a.Leader == replica.None {
				c.Leaderless = append(c.Leaderless, p)
			}
			if len(a.ISR) < len(a.Replicas) {
				c.UnderReplicated = append(c.UnderReplicated, p)
			}
			if int64(len(a.ISR)) < least {
				c.UnderMinISR = append(c.UnderMinISR, p)
			}
		}
	}
	return c
}
