package replica

import (
	"fmt"
	"slices"
	"time"
)

// Acks says when a write is acknowledged.
type Acks int

const (
	// AllInSync: every in-sync replica holds the record, else a *ReplicationError names
	// who does not, and at least Config.MinInSync are in sync. PyStream's rule.
	AllInSync Acks = iota
	// OnLeader: the record is durable on the leader. kafka-lite's rule; a failover may lose it.
	OnLeader
	// Quorum: the high watermark is past the record, and at least Config.MinInSync
	// replicas are in sync. Kafka's acks=all: replicas that lag are dropped, not waited for.
	Quorum
)

func (a Acks) String() string {
	switch a {
	case AllInSync:
		return "all"
	case OnLeader:
		return "leader"
	case Quorum:
		return "quorum"
	}
	return fmt.Sprintf("acks(%d)", int(a))
}

// ParseAcks is the inverse of String.
func ParseAcks(s string) (Acks, error) {
	for _, a := range []Acks{AllInSync, OnLeader, Quorum} {
		if s == a.String() {
			return a, nil
		}
	}
	return 0, fmt.Errorf("acknowledgement %q: it must be all, leader or quorum", s)
}

// Write is a write that the leader's log holds, and that waits for its outcome.
type Write struct {
	ID                     uint64 // the driver's
	Acks                   Acks
	BaseOffset, NextOffset int64 // offsets [Base, Next)
	deadline               time.Time
}

// CheckWrite says why a write cannot be taken at present, before anything is stored: a
// *NotLeaderError, a *NotEnoughReplicasError, or what keeps the leader from leading.
func (r *Replica) CheckWrite(acks Acks) error {
	switch {
	case r.role == Starting && r.lead.broken != nil:
		return r.lead.broken
	case r.role != Leader:
		return &NotLeaderError{Leader: r.at.Leader, LeaderEpoch: r.at.LeaderEpoch}
	case acks != OnLeader:
		return r.enough(false)
	}
	return nil
}

// minInSync is how many in-sync replicas a write demands: no more than there are replicas.
func (r *Replica) minInSync() int { return min(r.cfg.MinInSync, len(r.at.Replicas)) }

// Appended tells the leader that a write is durable in its log. Its outcome follows as
// Done, at once or later.
func (r *Replica) Appended(now time.Time, w Write) []Effect {
	r.begin(now)
	r.log.LogEndOffset = max(r.log.LogEndOffset, w.NextOffset)
	if r.role != Leader {
		r.emit(Done{w.ID, ErrLeadershipLost})
		return r.effects()
	}
	if r.cfg.WriteTimeout > 0 {
		w.deadline = now.Add(r.cfg.WriteTimeout)
	}
	r.lead.writes = append(r.lead.writes, &w)
	r.settle()
	return r.effects()
}

// resolve ends the writes whose outcome is known. held is up to where all that count hold the log,
// whether that is safe or not.
func (r *Replica) resolve(held int64) {
	r.lead.writes = slices.DeleteFunc(r.lead.writes, func(w *Write) bool {
		done, err := r.outcome(w, held)
		if done {
			r.emit(Done{w.ID, err})
		}
		return done
	})
}

func (r *Replica) outcome(w *Write, held int64) (done bool, err error) {
	switch w.Acks {
	case OnLeader:
		return true, nil
	case Quorum:
		safe := r.hw
		if len(r.at.Eligible) > 0 {
			safe = held // nobody is told that it is safe, and nobody waits to hear that it is not
		}
		if safe < w.NextOffset {
			return false, nil
		}
		return true, r.enough(true)
	}
	lacking, waiting := r.lacking(w)
	if waiting {
		return false, nil
	}
	if err := r.replicationError(w, lacking); err != nil {
		return true, err
	}
	return true, r.enough(true)
}

// enough says that too few replicas are in sync, if that is so: for this replica, or for the
// controller, which has others eligible to lead that may lack what is written now.
func (r *Replica) enough(stored bool) error {
	least := r.minInSync()
	if len(r.at.Eligible) > 0 {
		least = max(least, len(r.at.ISR)+1)
	}
	if len(r.at.ISR) < least {
		return &NotEnoughReplicasError{ISR: slices.Clone(r.at.ISR), Min: least, Stored: stored}
	}
	return nil
}

// lacking returns the in-sync followers that do not hold a write, and whether any of them
// may still come to.
func (r *Replica) lacking(w *Write) (failed map[BrokerID]string, waiting bool) {
	failed = map[BrokerID]string{}
	for _, id := range r.counting() {
		p := r.lead.followers[id]
		switch {
		case p == nil || p.known && p.end >= w.NextOffset:
		case p.failed != "":
			failed[id] = p.failed
		default:
			failed[id] = "no answer yet"
			waiting = true
		}
	}
	return failed, waiting
}

func (r *Replica) replicationError(w *Write, failed map[BrokerID]string) error {
	if len(failed) == 0 {
		return nil
	}
	for id := range failed {
		r.lead.followers[id].missed = true
	}
	return &ReplicationError{Offset: w.BaseOffset, Failed: failed}
}

// expireWrites ends the writes that waited too long.
func (r *Replica) expireWrites() {
	r.lead.writes = slices.DeleteFunc(r.lead.writes, func(w *Write) bool {
		if w.deadline.IsZero() || r.now.Before(w.deadline) {
			return false
		}
		lacking, _ := r.lacking(w)
		err := r.replicationError(w, lacking)
		if err == nil {
			err = r.enough(true)
		}
		r.emit(Done{w.ID, err})
		return true
	})
}

// GiveUpWrites answers all who wait for a write, as if the leadership were lost: another may lead by
// now, and it may have the writes, or not.
func (r *Replica) GiveUpWrites(now time.Time) []Effect {
	r.begin(now)
	if r.lead != nil {
		for _, w := range r.lead.writes {
			r.emit(Done{w.ID, ErrLeadershipLost})
		}
		r.lead.writes = nil
	}
	return r.effects()
}

// Abandon gives up waiting for a write, whose outcome is then the followers that lack it.
func (r *Replica) Abandon(now time.Time, id uint64) []Effect {
	r.begin(now)
	if r.lead == nil {
		return nil
	}
	for _, w := range r.lead.writes {
		if w.ID == id {
			w.deadline = now
		}
	}
	r.expireWrites()
	return r.effects()
}
