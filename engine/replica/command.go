package replica

import (
	"fmt"
	"slices"
	"time"
)

// CatchUp makes a follower compare its whole log with the leader's and copy what it
// lacks. It ends, as Finished, when the follower is at the leader's end; with a
// *DivergenceError where the two differ, and nothing was changed then.
func (r *Replica) CatchUp(now time.Time, id uint64) []Effect { return r.command(now, &job{id: id}) }

// Recover makes a follower what the leader is: it compares the logs, cuts the follower's
// where they part, copies what is missing, and compares what it copied. It ends when the
// controller has added the replica to the ISR.
func (r *Replica) Recover(now time.Time, id uint64) []Effect {
	return r.command(now, &job{id: id, recover: true})
}

func (r *Replica) command(now time.Time, j *job) []Effect {
	r.begin(now)
	switch {
	case r.foll == nil && r.at.Leader == r.cfg.ID:
		r.emit(Finished{j.id, fmt.Errorf("replica: broker %d leads in epoch %d; the others follow it", r.cfg.ID, r.at.LeaderEpoch)})
	case r.foll == nil:
		r.emit(Finished{j.id, &NotLeaderError{Leader: r.at.Leader, LeaderEpoch: r.at.LeaderEpoch}})
	default:
		r.finish(ErrSuperseded)
		j.from = r.log.LogStartOffset
		r.foll.job, r.foll.verified = j, false
		r.resume()
	}
	return r.effects()
}

// resume takes a command up where it stands, as far as that is known for sure.
func (r *Replica) resume() {
	j := r.foll.job
	if j.waiting {
		r.fetch()
		return
	}
	j.second = false
	r.compare()
}

// compare asks for the leader's sums from where the logs are known to be the same.
func (r *Replica) compare() {
	r.foll.phase, r.foll.why = comparing, nil
	r.ask(Message{Kind: AskDigests, Offset: r.foll.job.from})
}

func (r *Replica) sums(m Message) {
	f := r.foll
	if f.job == nil {
		return
	}
	if m.Offset > f.job.from { // the leader's log starts higher: what lies below cannot be compared
		if m.Offset > r.log.LogEndOffset {
			r.parts(r.log.LogEndOffset, fmt.Sprintf("the leader's log starts at %d, the replica's ends at %d", m.LogStartOffset, r.log.LogEndOffset), m)
			return
		}
		f.job.from = m.Offset
	}
	f.phase = storing
	r.emit(Compare{From: f.job.from, Digests: m.Digests})
	f.compared = m
}

// Compared is the result of Compare: the offset up to which this log's frames are the
// leader's, and whether the first that is not was met before either log ended.
func (r *Replica) Compared(now time.Time, same int64, differs bool, err error) []Effect {
	r.begin(now)
	if r.foll == nil || r.foll.job == nil {
		return nil
	}
	f, m := r.foll, r.foll.compared
	f.compared = Message{}
	switch {
	case err != nil:
		r.pause(err)
	case differs:
		r.parts(same, "the records there are not the leader's", m)
	case same < r.log.LogEndOffset && same >= m.LogEndOffset:
		r.parts(same, fmt.Sprintf("the leader's log ends at %d, the replica's at %d", m.LogEndOffset, r.log.LogEndOffset), m)
	case same < r.log.LogEndOffset && len(m.Digests) > 0:
		f.job.from = same
		r.compare()
	case same < r.log.LogEndOffset:
		r.pause(fmt.Errorf("replica: the leader sent no sums from offset %d on, its log ends at %d", same, m.LogEndOffset))
	default:
		r.matched(same)
	}
	return r.effects()
}

// matched: all of this log is the leader's.
func (r *Replica) matched(same int64) {
	f := r.foll
	f.job.from = same
	if f.job.second {
		f.job.waiting, f.verified = true, true
		if slices.Contains(r.at.ISR, r.cfg.ID) {
			r.finish(nil) // it was in sync all the time
		}
	}
	r.fetch()
}

// parts: from an offset on this log is not the leader's.
func (r *Replica) parts(at int64, detail string, m Message) {
	f := r.foll
	if !f.job.recover || f.job.second {
		if f.job.second {
			detail = "what was copied reads otherwise: " + detail
		}
		r.pause(&DivergenceError{Leader: m.From, Follower: r.cfg.ID, Offset: at, Detail: detail})
		return
	}
	if m.Offset > r.log.LogEndOffset {
		r.restartAt(m.LogStartOffset)
		return
	}
	f.job.from = at
	r.cut(at)
}
