package replica

import (
	"slices"
	"time"
)

// leadership is a leader's state, for one epoch.
type leadership struct {
	followers map[BrokerID]*progress
	writes    []*Write // not done yet, by offset
	proposed  *Assignment
	maybe     []BrokerID // in the ISR by now, perhaps: nobody can say
	retryAt   time.Time  // no proposal before
	start     int64      // log end when the epoch began
	broken    error      // the log did not begin the epoch
}

// progress is what the leader knows of one follower.
type progress struct {
	end       int64
	known     bool     // the follower has fetched in this epoch, and its log matched
	seq       uint64   // of its last request
	parked    *Message // its fetch, unanswered
	deadline  time.Time
	failed    string
	missed    bool      // explicit: it lacks a record that it was meant to have, until it is caught up
	verified  bool      // compared with this log, by command
	caughtUp  time.Time // last at the leader's end
	lastEnd   int64     // leader's end at its last fetch
	lastFetch time.Time
	lost      time.Time // when contact was lost; zero: it was not
	rejected  string    // why it could not be added to the ISR, to be told
}

func newLeadership(r *Replica) *leadership {
	l := &leadership{followers: map[BrokerID]*progress{}}
	for _, id := range r.at.Replicas {
		if id != r.cfg.ID {
			l.followers[id] = &progress{caughtUp: r.now}
		}
	}
	return l
}

// started: the epoch is in the log, and the leader may lead.
func (r *Replica) started() {
	r.role, r.lead.start = Leader, r.log.LogEndOffset
	for _, id := range r.at.Replicas {
		if id != r.cfg.ID {
			r.emit(Send{Message{Kind: Lead, From: r.cfg.ID, To: id, LeaderEpoch: r.at.LeaderEpoch}})
		}
	}
	r.settle()
}

// request handles what a follower asks.
func (r *Replica) request(m Message) {
	var p *progress
	if r.role == Leader {
		p = r.lead.followers[m.From]
	}
	switch {
	case r.role != Leader || m.LeaderEpoch != r.at.LeaderEpoch:
		r.refuse(m, NotLeading, "")
		return
	case p == nil:
		r.refuse(m, NotReplica, "")
		return
	case m.Seq <= p.seq:
		// A message that was repeated or overtaken says nothing about the present: the
		// follower's log may be shorter by now. One that started counting anew learns
		// from where.
		r.emit(Send{Message{Kind: Refused, From: r.cfg.ID, To: m.From, LeaderEpoch: r.at.LeaderEpoch, Seq: m.Seq, Offset: int64(p.seq), Reason: OldRequest}})
		return
	}
	p.seq, p.parked, p.lost = m.Seq, nil, time.Time{}
	if m.Kind == AskDigests {
		r.emit(SendDigests{Message{
			Kind: Digests, From: r.cfg.ID, To: m.From, LeaderEpoch: r.at.LeaderEpoch, Seq: m.Seq, Offset: max(m.Offset, r.log.LogStartOffset), LogStartOffset: r.log.LogStartOffset, LogEndOffset: r.log.LogEndOffset,
		}, r.cfg.MaxDigests})
		return
	}
	r.fetched(p, m)
	r.settle()
}

func (r *Replica) refuse(m Message, reason Reason, detail string) {
	r.emit(Send{Message{
		Kind: Refused, From: r.cfg.ID, To: m.From, LeaderEpoch: m.LeaderEpoch, Seq: m.Seq, Reason: reason, Detail: detail,
		Offset: r.log.FirstOffset, LogStartOffset: r.log.LogStartOffset, LogEndOffset: r.log.LogEndOffset,
	}})
}

// fetched takes in what a follower's fetch says, and answers it or keeps it.
func (r *Replica) fetched(p *progress, m Message) {
	if m.Failed != "" {
		p.failed = m.Failed
		return
	}
	if p.rejected != "" {
		r.refuse(m, NotActive, p.rejected)
		p.rejected, p.verified = "", false
		return
	}
	if epoch, end, ok := r.match(m); !ok {
		p.known = false
		p.failed = "its log parts from the leader's"
		if m.Offset < r.log.FirstOffset || m.LastEpoch < 0 || end < r.log.LogStartOffset {
			p.failed = "its log does not reach the leader's"
			r.refuse(m, OutOfRange, "")
			return
		}
		r.emit(Send{Message{Kind: Diverging, From: r.cfg.ID, To: m.From, LeaderEpoch: r.at.LeaderEpoch, Seq: m.Seq, LastEpoch: epoch, EpochEnd: end, LogStartOffset: r.log.LogStartOffset, LogEndOffset: r.log.LogEndOffset}})
		return
	}
	first := !p.known
	p.end, p.known = m.Offset, true
	p.verified = m.Verified
	if r.cfg.Explicit && !m.CatchUp && !m.Verified && m.Offset < r.log.LogEndOffset && (p.missed || first && m.Offset < r.lead.start) {
		p.missed = true
		p.failed = "behind, to be caught up"
		r.refuse(m, Behind, "")
		return
	}
	// From a fetch on command on, the follower goes on by itself: what comes now waits for it.
	p.failed, p.missed = "", p.missed && !m.CatchUp && !m.Verified && m.Offset < r.log.LogEndOffset
	switch {
	case m.Offset >= r.log.LogEndOffset:
		p.caughtUp = r.now
	case m.Offset >= p.lastEnd && !p.lastFetch.IsZero():
		p.caughtUp = p.lastFetch // it is never at the end of a log that always grows
	}
	p.lastEnd, p.lastFetch = r.log.LogEndOffset, r.now
	p.parked = &m
	if p.deadline = (time.Time{}); r.cfg.Heartbeat > 0 {
		p.deadline = r.now.Add(r.cfg.Heartbeat)
	}
	if m.CatchUp && m.Offset >= r.log.LogEndOffset {
		r.answer(p, r.log.LogEndOffset) // so that it knows
	}
}

// match reports whether a follower's log is a prefix of the leader's, as far as epochs
// can tell, and if not, where the leader's latest epoch up to the follower's last ends.
func (r *Replica) match(m Message) (epoch int32, end int64, ok bool) {
	if m.Offset < r.log.FirstOffset {
		return 0, 0, false
	}
	if m.LastEpoch < 0 {
		return -1, r.log.LogEndOffset, m.Offset <= r.log.LogEndOffset
	}
	epoch, end = r.log.EpochEnd(m.LastEpoch)
	return epoch, end, epoch == m.LastEpoch && end >= m.Offset
}

// settle does what follows from new knowledge: it moves the high watermark, ends writes,
// answers fetches and proposes changes of the in-sync replicas.
func (r *Replica) settle() {
	if r.role != Leader {
		return
	}
	lowest := r.log.LogEndOffset
	for _, id := range r.counting() {
		if p := r.lead.followers[id]; p != nil {
			if !p.known {
				lowest = 0
			}
			lowest = min(lowest, p.end)
		}
	}
	if len(r.at.Eligible) == 0 { // else one of them may lead next, and must have what counts as safe
		r.raise(lowest)
	}
	r.resolve(lowest)
	for _, id := range r.at.Replicas {
		if p := r.lead.followers[id]; p != nil && p.parked != nil && (p.parked.Offset < r.log.LogEndOffset || p.parked.Readers && p.parked.HighWatermark < r.hw) {
			r.answer(p, r.log.LogEndOffset)
		}
	}
	r.proposeActive()
}

// counting returns the replicas that must hold a record before it is safe: the in-sync
// ones, and those that are about to be. A replica that the controller may already have
// added to the ISR must not be passed over (KIP-497).
func (r *Replica) counting() []BrokerID {
	ids := slices.Concat(r.at.ISR, r.lead.maybe)
	if r.lead.proposed != nil {
		ids = append(ids, r.lead.proposed.ISR...)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// answer serves a parked fetch, with frames or, at the log end, with news only.
func (r *Replica) answer(p *progress, end int64) {
	m := p.parked
	p.parked = nil
	reply := Message{
		Kind: Frames, From: r.cfg.ID, To: m.From, LeaderEpoch: r.at.LeaderEpoch, Seq: m.Seq, Offset: m.Offset, NextOffset: m.Offset,
		HighWatermark: r.hw, LogStartOffset: r.log.LogStartOffset, LogEndOffset: end,
	}
	if m.Offset >= end {
		r.emit(Send{reply})
		return
	}
	r.emit(SendFrames{reply, r.cfg.MaxBytes})
}

// proposeActive asks the controller to add a follower to the ISR that deserves it, or to
// drop one that lags.
func (r *Replica) proposeActive() {
	if r.lead.proposed != nil || r.now.Before(r.lead.retryAt) {
		return
	}
	next := r.at.Clone()
	for _, id := range r.at.Replicas {
		p := r.lead.followers[id]
		if p == nil {
			continue
		}
		inSync := slices.Contains(next.ISR, id)
		if !inSync && r.deserves(p) {
			next.ISR = append(next.ISR, id)
		}
		if inSync && r.lags(p) {
			next.ISR = slices.DeleteFunc(next.ISR, func(a BrokerID) bool { return a == id })
		}
	}
	same := len(next.ISR) == len(r.at.ISR) && !slices.ContainsFunc(next.ISR, func(id BrokerID) bool { return !slices.Contains(r.at.ISR, id) })
	if same && !r.mustSettle() {
		return
	}
	slices.Sort(next.ISR)
	next.Version++
	r.lead.proposed = &next
	r.emit(Propose{next.Clone()})
}

// mustSettle reports whether a proposal was made of which nobody knows what became. The
// next decision, be it the same again, makes all earlier proposals void.
func (r *Replica) mustSettle() bool { return len(r.lead.maybe) > 0 && !r.cfg.Explicit }

// deserves reports whether an inactive follower holds all that is safe, and all that this
// leader began with.
func (r *Replica) deserves(p *progress) bool {
	return p.known && p.failed == "" && p.end >= r.hw && p.end >= r.lead.start && (p.verified || !r.cfg.Explicit) && !r.lags(p)
}

// lags reports whether a follower has not been at the leader's end for too long.
func (r *Replica) lags(p *progress) bool {
	if r.cfg.Explicit || r.cfg.LagTimeout == 0 {
		return false
	}
	if p.parked != nil && p.parked.Offset >= r.log.LogEndOffset {
		p.caughtUp = r.now // it is there now, and waits
	}
	return r.now.Sub(p.caughtUp) > r.cfg.LagTimeout || r.gone(p)
}

// gone reports whether contact with a follower was lost, and not found again in time.
func (r *Replica) gone(p *progress) bool {
	return r.cfg.UnreachableTimeout > 0 && !p.lost.IsZero() && r.now.Sub(p.lost) > r.cfg.UnreachableTimeout
}

// Rejected tells that the controller did not take a proposal, nor any before it; why is for
// those who wait. unsure says that nobody can tell: the answer was lost, an earlier proposal
// may still be on its way, or the controller's disk failed and it does not know what it will
// read when it starts again. The old decision and the proposed one must then both be heeded.
func (r *Replica) Rejected(now time.Time, version int64, why string, unsure bool) []Effect {
	r.begin(now)
	if r.lead == nil || r.lead.proposed == nil || r.lead.proposed.Version != version {
		return nil
	}
	for _, id := range r.lead.proposed.ISR {
		p := r.lead.followers[id]
		if p == nil || slices.Contains(r.at.ISR, id) {
			continue
		}
		p.verified = false
		if p.parked != nil {
			r.refuse(*p.parked, NotActive, why)
			p.parked = nil
		} else {
			p.rejected = why
		}
	}
	if unsure {
		r.lead.maybe = append(r.lead.maybe, r.lead.proposed.ISR...)
		slices.Sort(r.lead.maybe)
		r.lead.maybe = slices.Compact(r.lead.maybe)
	} else {
		r.lead.maybe = nil // all is known again
	}
	r.lead.proposed = nil
	r.lead.retryAt = now.Add(r.cfg.Retry)
	r.settle()
	return r.effects()
}

func (r *Replica) tickLeader() {
	r.expireWrites()
	for _, id := range r.at.Replicas {
		p := r.lead.followers[id]
		if p != nil && p.parked != nil && !p.deadline.IsZero() && !r.now.Before(p.deadline) {
			r.answer(p, r.log.LogEndOffset)
		}
	}
	r.settle()
}

func (r *Replica) nextLeader() time.Time {
	var next time.Time
	sooner := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	for id, p := range r.lead.followers {
		if p.parked != nil {
			sooner(p.deadline)
		}
		if !r.cfg.Explicit && r.cfg.LagTimeout > 0 && slices.Contains(r.at.ISR, id) && r.lead.proposed == nil {
			sooner(p.caughtUp.Add(r.cfg.LagTimeout + 1))
			if r.cfg.UnreachableTimeout > 0 && !p.lost.IsZero() {
				sooner(p.lost.Add(r.cfg.UnreachableTimeout + 1))
			}
		}
	}
	for _, w := range r.lead.writes {
		sooner(w.deadline)
	}
	if r.lead.proposed == nil && r.mustSettle() {
		sooner(r.lead.retryAt)
	}
	if next.Before(r.lead.retryAt) && !next.IsZero() {
		next = r.lead.retryAt // nothing was agreed to before then
	}
	return next
}
