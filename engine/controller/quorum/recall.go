package quorum

import (
	"fmt"
	"slices"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"logbook/engine/controller"
	"logbook/engine/replica"
)

// A member that comes back with an older journal than it had, as from a copy of its disk, may have
// voted and not know, and may have said that it holds entries that it does not hold. Raft stands on
// neither ever happening. The others remember what they have heard from it. So a member that starts
// asks them, and neither votes nor is elected before they have answered, or had a session to.

// said is what was heard from a member: entries up to last, in its latest term.
type said struct{ term, last uint64 }

// or is the more of two.
func (s said) or(o said) said {
	if o.term > s.term || o.term == s.term && o.last > s.last {
		return o
	}
	return s
}

// heard is what was heard from a member, in its latest life, and in all before.
type heard struct {
	life        uint64
	now, before said
}

// recalling is a member's that asks what it has said.
type recalling struct {
	known   said // what its journal knows
	waiting map[replica.BrokerID]bool
	until   time.Time
}

// votes reports whether a message asks for a vote, or has the member elected at once.
func votes(kind raftpb.MessageType) bool {
	return kind == raftpb.MsgVote || kind == raftpb.MsgPreVote || kind == raftpb.MsgTimeoutNow
}

// remember notes what a member's message says of it. What a candidate asks before it stands says
// nothing: it is in a term that may never be.
func (c *Controller) remember(m raftpb.Message, life uint64) {
	if !slices.Contains(c.members(), m.From) {
		return
	}
	s := said{term: m.Term}
	switch m.Type {
	case raftpb.MsgPreVote, raftpb.MsgPreVoteResp:
		return
	case raftpb.MsgApp:
		s.last = m.Index + uint64(len(m.Entries))
	case raftpb.MsgAppResp:
		if !m.Reject {
			s.last = m.Index
		}
	}
	h := c.heard[m.From]
	switch {
	case life > h.life:
		h.life, h.now, h.before = life, s, h.before.or(h.now)
	case life == h.life:
		h.now = h.now.or(s)
	default: // it comes late
		h.before = h.before.or(s)
	}
	c.heard[m.From] = h
}

// beginRecalling asks the others, if there are any.
func (c *Controller) beginRecalling() {
	if c.node == nil {
		return
	}
	r := &recalling{waiting: map[replica.BrokerID]bool{}, until: c.now.Add(c.session())}
	state, _, _ := c.mem.InitialState()
	r.known.term = state.Term
	r.known.last, _ = c.mem.LastIndex()
	for _, m := range c.members() {
		if m != c.self.Member {
			r.waiting[brokerOf(m)] = true
		}
	}
	if len(r.waiting) > 0 {
		c.recalling = r
		c.recall()
	}
}

// recall asks those who have not answered, as long as they have time.
func (c *Controller) recall() {
	r := c.recalling
	if r == nil {
		return
	}
	if !c.now.Before(r.until) {
		c.recalling = nil
		return
	}
	for _, m := range c.members() {
		if id := brokerOf(m); r.waiting[id] {
			c.emit(controller.Send{To: id, Message: controller.Recall{Cluster: c.self.Cluster, Member: c.self.Member, Life: c.self.Life}})
		}
	}
}

func (c *Controller) askedToRecall(from replica.BrokerID, q controller.Recall) {
	if q.Cluster == c.self.Cluster && brokerOf(q.Member) == from {
		h := c.heard[q.Member]
		s := h.before
		if h.life != q.Life {
			s = s.or(h.now)
		}
		c.emit(controller.Send{To: from, Message: controller.Recalled{Cluster: q.Cluster, Member: q.Member, Term: s.term, Last: s.last}})
	}
}

// recalled takes in what another member has heard from this one.
func (c *Controller) recalled(from replica.BrokerID, q controller.Recalled) {
	r := c.recalling
	if r == nil || c.broken != nil || q.Cluster != c.self.Cluster || q.Member != c.self.Member {
		return
	}
	if s := (said{q.Term, q.Last}); r.known.or(s) != r.known {
		c.breakDown(fmt.Errorf("quorum: broker %d has heard from this one that it holds entry %d in term %d, and its journal ends with entry %d in term %d: its disk is an old one, and it takes no part in decisions; remove the broker's data directory, and it joins anew and copies what it had", from, q.Last, q.Term, r.known.last, r.known.term))
		return
	}
	delete(r.waiting, from)
	if len(r.waiting) == 0 {
		c.recalling = nil
	}
}
