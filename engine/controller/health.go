package controller

import (
	"time"

	"logbook/engine/replica"
)

// Health checks the other brokers: a heartbeat to each, at equal intervals, and a count
// of those that were not answered in a row.
type Health struct {
	every     time.Duration
	failAfter int
	peers     []replica.BrokerID
	state     map[replica.BrokerID]*peerHealth
}

type peerHealth struct {
	seq      uint64 // of the last heartbeat
	answered bool   // since the last heartbeat was sent, something came from the peer
	missed   int
	next     time.Time
}

// NewHealth returns a check of all brokers but self: dead after failAfter failed heartbeats.
func NewHealth(self replica.BrokerID, brokers []replica.BrokerID, every time.Duration, failAfter int) Health {
	h := Health{every: every, failAfter: failAfter, state: map[replica.BrokerID]*peerHealth{}}
	for _, id := range brokers {
		if id != self {
			h.Add(id)
		}
	}
	return h
}

// Add checks a further broker, unless it is checked already.
func (h *Health) Add(id replica.BrokerID) {
	if h.state[id] == nil {
		h.peers = append(h.peers, id)
		h.state[id] = &peerHealth{answered: true}
	}
}

// Due returns the peers whose heartbeat is due, and which of them failed a check just now.
func (h *Health) Due(now time.Time) (send, failed []replica.BrokerID) {
	for _, id := range h.peers {
		p := h.state[id]
		if now.Before(p.next) {
			continue
		}
		if !p.answered {
			p.missed++
			failed = append(failed, id)
		}
		p.seq++
		p.answered, p.next = false, now.Add(h.every)
		send = append(send, id)
	}
	return send, failed
}

// Heard notes a sign of life.
func (h *Health) Heard(peer replica.BrokerID) {
	if p := h.state[peer]; p != nil {
		p.answered, p.missed = true, 0
	}
}

// Hurry makes the next heartbeats due at once.
func (h *Health) Hurry(now time.Time) {
	for _, p := range h.state {
		if p.answered {
			p.next = now
		}
	}
}

// Alive reports whether a broker answers.
func (h *Health) Alive(id replica.BrokerID) bool {
	p := h.state[id]
	return p == nil || p.missed < h.failAfter
}

// Next is when Due is due.
func (h *Health) Next() time.Time {
	var next time.Time
	for _, p := range h.state {
		next = Sooner(next, p.next)
	}
	return next
}

// Missed is how many heartbeats to a peer were not answered in a row; Seq is the last one's.
func (h *Health) Missed(id replica.BrokerID) (missed int, seq uint64) {
	if p := h.state[id]; p != nil {
		return p.missed, p.seq
	}
	return 0, 0
}
