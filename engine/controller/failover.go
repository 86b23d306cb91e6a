package controller

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"logbook/engine/commitlog"
	"logbook/engine/metadata"
	"logbook/engine/replica"
)

// failover is a failover under way.
type failover struct {
	m       *Manual
	id      uint64
	p       Partition
	old     replica.Assignment
	reports []Report // of all replicas but the leader, by ascending id
	left    int
	leader  Report
	chosen  Report
	others  []Report // the candidates that are still to be compared with the chosen one
	isr     []replica.BrokerID
}

// Failover implements Machine. It gives a partition whose leader is gone a new one: the one
// that the Choice picks of the in-sync replicas that can be reached. All of these must
// agree, record for record, as far as they go. The in-sync replicas that cannot be reached
// count no more: they come back by recovery.
//
// Errors in Done: *UnknownPartitionError, *LeaderStillAvailableError,
// *NoEligibleReplicaError, *DivergenceError, *StaleError, and what kept the change from
// being stored. After each of them but *metadata.UnsettledError the recorded leader is the
// old one.
func (m *Manual) Failover(now time.Time, id uint64, p Partition) []Effect {
	m.begin(now)
	f := &failover{m: m, id: id, p: p}
	old, ok := m.image.Assignment(p)
	switch {
	case !m.keeps():
		f.fail(&BrokerError{fmt.Sprintf("broker %d keeps the decisions: ask it", m.cfg.At)})
	case !ok:
		f.fail(&UnknownPartitionError{p})
	default:
		f.old = old
		f.ask()
	}
	return m.effects()
}

func (f *failover) fail(err error) { f.m.emit(Done{ID: f.id, Err: err}) }

// ask asks every replica about its log.
func (f *failover) ask() {
	ids := slices.Sorted(slices.Values(f.old.Replicas))
	f.left = len(ids)
	for _, id := range ids {
		if id != f.old.Leader {
			f.reports = append(f.reports, Report{Broker: id})
		}
	}
	for _, id := range ids {
		f.m.ask(id, f.m.cfg.ProbeTimeout, func(call uint64) Message { return AskReport{call, f.p} }, func(reply Message, failed string) {
			r := Report{Broker: id}
			if q, ok := reply.(ReportReply); !ok {
				r.Err = &UnreachableError{Broker: id, Why: failed}
			} else {
				r.LogStartOffset, r.LogEndOffset, r.LastEpoch = q.LogStartOffset, q.LogEndOffset, q.LastEpoch
				if q.Err != "" {
					r.Err = errors.New(q.Err)
				}
			}
			f.reported(r)
		})
	}
}

func (f *failover) reported(r Report) {
	if r.Broker == f.old.Leader {
		f.leader = r
	}
	for i := range f.reports {
		if f.reports[i].Broker == r.Broker {
			f.reports[i] = r
		}
	}
	if f.left--; f.left == 0 {
		f.choose()
	}
}

func (f *failover) choose() {
	if f.old.Leader != replica.None && f.leader.Err == nil {
		f.fail(&LeaderStillAvailableError{Partition: f.p, Leader: f.old.Leader})
		return
	}
	candidates, reasons := Candidates(f.old, f.reports)
	chosen := f.m.cfg.Choose(f.old, f.reports)
	if chosen == replica.None {
		f.fail(&NoEligibleReplicaError{Partition: f.p, Leader: f.old.Leader, Reasons: reasons})
		return
	}
	if !slices.Contains(candidates, chosen) {
		f.fail(fmt.Errorf("controller: the choice fell on broker %d, which cannot lead: %s", chosen, reasons[chosen]))
		return
	}
	f.isr = candidates
	for _, r := range f.reports {
		switch {
		case r.Broker == chosen:
			f.chosen = r
		case slices.Contains(candidates, r.Broker):
			f.others = append(f.others, r)
		}
	}
	f.compare()
}

// compare makes sure that every candidate's log is the same as the chosen one's as far as
// both go, one candidate after another.
func (f *failover) compare() {
	if len(f.others) == 0 {
		f.decide()
		return
	}
	other := f.others[0]
	f.others = f.others[1:]
	f.compareFrom(other, max(f.chosen.LogStartOffset, other.LogStartOffset), min(f.chosen.LogEndOffset, other.LogEndOffset))
}

// digestsAtATime is how many frames are compared with one question.
const digestsAtATime = 4096

func (f *failover) compareFrom(other Report, at, end int64) {
	if at >= end {
		f.compare()
		return
	}
	f.digests(f.chosen.Broker, at, func(ours []commitlog.FrameDigest) {
		f.digests(other.Broker, at, func(theirs []commitlog.FrameDigest) {
			same := min(len(ours), len(theirs))
			for i := range same {
				if ours[i] != theirs[i] {
					f.diverged(other, max(at, min(ours[i].BaseOffset, theirs[i].BaseOffset)))
					return
				}
			}
			if same == 0 {
				f.diverged(other, at)
				return
			}
			f.compareFrom(other, ours[same-1].NextOffset, end)
		})
	})
}

func (f *failover) diverged(other Report, at int64) {
	first, second := min(f.chosen.Broker, other.Broker), max(f.chosen.Broker, other.Broker)
	f.fail(&DivergenceError{Partition: f.p, First: first, Second: second, Offset: at})
}

func (f *failover) digests(id replica.BrokerID, from int64, then func([]commitlog.FrameDigest)) {
	f.m.ask(id, f.m.cfg.RequestTimeout, func(call uint64) Message { return AskDigests{call, f.p, from, digestsAtATime} }, func(reply Message, failed string) {
		r, ok := reply.(DigestsReply)
		if !ok {
			f.fail(fmt.Errorf("controller: comparing the candidates: %w", &UnreachableError{Broker: id, Why: failed}))
			return
		}
		if r.Err != "" {
			f.fail(fmt.Errorf("controller: comparing the candidates: broker %d: %s", id, r.Err))
			return
		}
		then(r.Digests)
	})
}

func (f *failover) decide() {
	next := f.old.Clone()
	f.m.change(&change{
		make: func(image *metadata.Image) ([]metadata.Record, error) {
			epoch, err := NextEpoch(f.old.LeaderEpoch)
			if err != nil {
				return nil, err
			}
			next.Version++
			next.LeaderEpoch, next.Leader, next.ISR = epoch, f.chosen.Broker, f.isr
			if now, _ := image.Assignment(f.p); now.Version != f.old.Version {
				return nil, &StaleError{Partition: f.p, Proposed: next, Present: now}
			}
			return []metadata.Record{assignedIn(image, f.p, next)}, nil
		},
		done: func(err error) {
			if err != nil {
				f.fail(err)
				return
			}
			f.m.emit(Done{ID: f.id, Failover: FailoverResult{
				Partition: f.p, Old: f.old.Leader, New: f.chosen.Broker, LeaderEpoch: next.LeaderEpoch, LogEndOffset: f.chosen.LogEndOffset, ISR: f.isr,
			}})
		},
	})
}
