package service

import (
	"maps"
	"slices"
	"sync"
	"time"

	"logbook/engine/controller"
	"logbook/engine/replica"
)

// PeerMessage is what brokers say to each other. Package peer encodes it.
type PeerMessage interface{ peerMessage() }

type (
	// ReplicaMessage goes from one replica of a partition to another.
	ReplicaMessage struct {
		Partition Partition
		Message   replica.Message
	}
	// ControllerMessage goes from one broker's controller to another's.
	ControllerMessage struct{ Message controller.Message }

	// Introduce says where the sender's clients find it.
	Introduce struct {
		Endpoints map[string]string `json:"endpoints"` // name of the protocol: host:port
	}
	// Leaving says that a broker is about to stop: nobody need wait for it.
	Leaving struct{}

	// CommandRequest asks the broker that decides to do something.
	CommandRequest struct {
		ID      uint64  `json:"id"`
		Command Command `json:"command"`
	}
	// CommandResponse says what became of it.
	CommandResponse struct {
		ID       uint64                    `json:"id"`
		Failover controller.FailoverResult `json:"failover,omitzero"`
		Applied  uint64                    `json:"applied"` // how far the decisions had come then
		Code     Code                      `json:"code,omitempty"`
		Err      string                    `json:"error,omitempty"`
		Kind     string                    `json:"kind,omitempty"` // of error, where its code does not tell
		Leader   int32                     `json:"leader,omitempty"`
		Offset   int64                     `json:"offset,omitempty"`
	}
	// QuorumRequest asks the active controller how far the members of the quorum are.
	QuorumRequest struct {
		ID uint64 `json:"id"`
	}
	// QuorumResponse says how many entries each lacks.
	QuorumResponse struct {
		ID  uint64              `json:"id"`
		Lag map[BrokerID]uint64 `json:"lag,omitempty"`
	}
	// ReportRequest asks a broker about its replicas; ReportResponse answers it.
	ReportRequest struct {
		ID         uint64      `json:"id"`
		Partitions []Partition `json:"partitions"`
	}
	// ReportResponse has a report for each partition that was asked about, in that order.
	ReportResponse struct {
		ID      uint64          `json:"id"`
		Reports []ReplicaReport `json:"reports"`
	}
	// GroupsRequest asks a broker for the groups that it coordinates.
	GroupsRequest struct {
		ID uint64 `json:"id"`
	}
	// GroupsResponse has their names.
	GroupsResponse struct {
		ID    uint64   `json:"id"`
		Names []string `json:"names"`
	}
	// GroupRequest asks a broker to describe a group that it coordinates.
	GroupRequest struct {
		ID   uint64 `json:"id"`
		Name string `json:"name"`
	}
	// GroupResponse describes it, or says why not.
	GroupResponse struct {
		ID    uint64           `json:"id"`
		Group GroupDescription `json:"group"`
		Code  Code             `json:"code,omitempty"`
		Err   string           `json:"error,omitempty"`
	}
)

func (ReplicaMessage) peerMessage()    {}
func (ControllerMessage) peerMessage() {}
func (Introduce) peerMessage()         {}
func (Leaving) peerMessage()           {}
func (CommandRequest) peerMessage()    {}
func (CommandResponse) peerMessage()   {}
func (QuorumRequest) peerMessage()     {}
func (QuorumResponse) peerMessage()    {}
func (ReportRequest) peerMessage()     {}
func (ReportResponse) peerMessage()    {}
func (GroupsRequest) peerMessage()     {}
func (GroupsResponse) peerMessage()    {}
func (GroupRequest) peerMessage()      {}
func (GroupResponse) peerMessage()     {}

// Deliver takes a message from another broker.
func (s *Service) Deliver(from BrokerID, m PeerMessage) {
	switch m := m.(type) {
	case ReplicaMessage:
		if m.Message.From == from && m.Message.To == s.cfg.ID {
			s.node.Deliver(m.Partition, m.Message)
		}
	case ControllerMessage:
		s.receive(from, m.Message)
	case Introduce:
		s.learnEndpoints(from, m.Endpoints)
	case Leaving:
		s.node.Gone(from)
	case CommandRequest:
		s.commanded(from, m)
	case CommandResponse:
		s.calls.answer(from, m.ID, m)
	case QuorumRequest:
		s.ownQuorum(func(q *controller.QuorumStatus) {
			if q != nil {
				s.reply(from, QuorumResponse{ID: m.ID, Lag: q.Lag})
			}
		})
	case QuorumResponse:
		s.calls.answer(from, m.ID, m)
	case ReportRequest:
		r := ReportResponse{ID: m.ID}
		for _, p := range m.Partitions {
			r.Reports = append(r.Reports, s.report(p))
		}
		s.reply(from, r)
	case ReportResponse:
		s.calls.answer(from, m.ID, m)
	case GroupsRequest:
		s.groups.names(func(names []string) { s.reply(from, GroupsResponse{ID: m.ID, Names: names}) })
	case GroupsResponse:
		s.calls.answer(from, m.ID, m)
	case GroupRequest:
		s.groups.describe(m.Name, func(d GroupDescription, err error) {
			r := GroupResponse{ID: m.ID, Group: d}
			if err != nil {
				e := s.AsError(err)
				r.Code, r.Err = e.Code, e.Message
			}
			s.reply(from, r)
		})
	case GroupResponse:
		s.calls.answer(from, m.ID, m)
	}
}

// reply sends an answer; if it is lost, the other side asks again or gives up.
func (s *Service) reply(to BrokerID, m PeerMessage) { _ = s.cfg.Send(to, m) }

// Leave hands over what this broker leads, as far as its controller can, and tells the
// others not to wait for its replicas. It is for a broker that has answered its clients and
// is about to stop. Left reports whether it is done.
func (s *Service) Leave() {
	s.leaving.Store(true)
	for _, id := range s.view.Load().brokers {
		if id != s.cfg.ID {
			_ = s.cfg.Send(id, Leaving{})
		}
	}
	s.step(func(now time.Time) []controller.Effect { return s.controller.Leave(now) })
}

// Left reports whether those who are alive know that this broker leaves.
func (s *Service) Left() bool { return s.view.Load().left }

// Lost tells that contact with a broker was lost: what was sent to it may not arrive.
func (s *Service) Lost(peer BrokerID, why string) {
	s.node.Unreachable(peer, why)
	s.calls.lost(peer, why)
	s.step(func(now time.Time) []controller.Effect { return s.controller.Unreachable(now, peer, why) })
}

func (s *Service) sendReplica(p Partition, m replica.Message) error {
	if m.Kind == replica.Fetch && s.view.Load().retired {
		return nil // else its leader would have it in sync again, and wait for it when it is gone
	}
	return s.cfg.Send(m.To, ReplicaMessage{p, m})
}

// sendController sends a message of the controller's, which may be for this broker itself.
// It is called on control.
func (s *Service) sendController(e controller.Send) {
	if e.To == s.cfg.ID {
		s.receive(s.cfg.ID, e.Message)
		return
	}
	err := s.cfg.Send(e.To, ControllerMessage{e.Message})
	switch e.Message.(type) {
	case controller.Heartbeat, controller.HeartbeatAck:
		return // nobody waits for these: that they fail is what they are for
	}
	if err != nil {
		s.step(func(now time.Time) []controller.Effect { return s.controller.Unreachable(now, e.To, err.Error()) })
	}
}

// receive takes a message for the controller. What asks about replicas is answered here.
func (s *Service) receive(from BrokerID, m controller.Message) {
	answer := func(m controller.Message) {
		if from == s.cfg.ID {
			s.receive(from, m)
		} else {
			s.reply(from, ControllerMessage{m})
		}
	}
	switch q := m.(type) {
	case controller.AskReport:
		r := s.node.Report(q.Partition)
		reply := controller.ReportReply{ID: q.ID, LogStartOffset: r.LogStartOffset, LogEndOffset: r.LogEndOffset, LastEpoch: r.LastEpoch}
		if r.Err != nil {
			reply.Err = r.Err.Error()
		}
		answer(reply)
	case controller.AskDigests:
		s.work(func() {
			digests, err := s.node.FrameDigests(q.Partition, q.From, min(max(q.Max, 1), maxDigests))
			reply := controller.DigestsReply{ID: q.ID, Digests: digests}
			if err != nil {
				reply.Err = err.Error()
			}
			answer(reply)
		})
	default:
		s.step(func(now time.Time) []controller.Effect { return s.controller.Step(now, from, m) })
	}
}

// maxDigests bounds an answer, whatever was asked for.
const maxDigests = 4096

// peerCalls are requests to other brokers that wait for their answers.
type peerCalls struct {
	timers *timers

	mu      sync.Mutex
	last    uint64
	waiting map[uint64]*peerCall
	closed  bool
}

type peerCall struct {
	to    BrokerID
	timer *timer
	done  func(PeerMessage, error)
}

// call sends a request to another broker, and calls done, once, with its answer.
func (s *Service) call(to BrokerID, request func(id uint64) PeerMessage, done func(PeerMessage, error)) {
	s.callWithin(s.cfg.ProbeTimeout, to, request, done)
}

// callWithin is call with a limit of its own.
func (s *Service) callWithin(limit time.Duration, to BrokerID, request func(id uint64) PeerMessage, done func(PeerMessage, error)) {
	c := &s.calls
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		done(nil, ErrClosed)
		return
	}
	c.last++
	id := c.last
	c.waiting[id] = &peerCall{to: to, done: done, timer: s.after(limit, func() {
		c.end(id, nil, unavailable("broker %d did not answer in time", to))
	})}
	c.mu.Unlock()
	if err := s.cfg.Send(to, request(id)); err != nil {
		c.end(id, nil, unavailable("broker %d cannot be reached: %v", to, err))
	}
}

// end answers a call, if it still waits.
func (c *peerCalls) end(id uint64, m PeerMessage, err error) {
	c.mu.Lock()
	w := c.waiting[id]
	delete(c.waiting, id)
	c.mu.Unlock()
	if w != nil {
		c.timers.stop(w.timer)
		w.done(m, err)
	}
}

func (c *peerCalls) answer(from BrokerID, id uint64, m PeerMessage) {
	c.mu.Lock()
	w := c.waiting[id]
	c.mu.Unlock()
	if w != nil && w.to == from {
		c.end(id, m, nil)
	}
}

// endAll ends the calls to a broker; None: all of them.
func (c *peerCalls) endAll(peer BrokerID, err error) {
	c.mu.Lock()
	ids := slices.Sorted(maps.Keys(c.waiting))
	ids = slices.DeleteFunc(ids, func(id uint64) bool { return peer != replica.None && c.waiting[id].to != peer })
	c.mu.Unlock()
	for _, id := range ids {
		c.end(id, nil, err)
	}
}

func (c *peerCalls) lost(peer BrokerID, why string) {
	c.endAll(peer, unavailable("broker %d cannot be reached: %s", peer, why))
}

func (c *peerCalls) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.endAll(replica.None, ErrClosed)
}
