package controller

import (
	"time"

	"logbook/engine/replica"
)

// health checks the other brokers: a heartbeat to each, at equal intervals, and a count
// of those that were not answered in a row.
type health struct {
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

func newHealth(self replica.BrokerID, brokers []replica.BrokerID, every time.Duration, failAfter int) health {
	h := health{every: every, failAfter: failAfter, state: map[replica.BrokerID]*peerHealth{}}
	for _, id := range brokers {
		if id != self {
			h.peers = append(h.peers, id)
			h.state[id] = &peerHealth{answered: true}
		}
	}
	return h
}

// due returns the peers whose heartbeat is due, and which of them failed a check just now.
func (h *health) due(now time.Time) (send, failed []replica.BrokerID) {
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

// heard notes a sign of life.
func (h *health) heard(peer replica.BrokerID) {
	if p := h.state[peer]; p != nil {
		p.answered, p.missed = true, 0
	}
}

// hurry makes the next heartbeats due at once.
func (h *health) hurry(now time.Time) {
	for _, p := range h.state {
		if p.answered {
			p.next = now
		}
	}
}

func (h *health) alive(id replica.BrokerID) bool {
	p := h.state[id]
	return p == nil || p.missed < h.failAfter
}

func (h *health) nextDue() time.Time {
	var next time.Time
	for _, p := range h.state {
		next = sooner(next, p.next)
	}
	return next
}
