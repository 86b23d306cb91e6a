package replica

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// phase is what a follower is doing.
type phase string

const (
	paused    phase = "paused"
	fetching  phase = "fetching"
	comparing phase = "comparing"
	storing   phase = "storing" // the disk has not answered yet
	pacing    phase = "pacing"  // it has copied enough for now
)

// following is a follower's state, for one leader's epoch.
type following struct {
	phase    phase
	asked    bool      // a request is under way, with the replica's seq
	deadline time.Time // when to ask again
	why      error     // why it is paused
	job      *job
	verified bool    // compared with the leader, by command, and in step since
	after    func()  // storing: what follows when the disk has answered
	compared Message // comparing: the sums under way
}

// job is a command under way.
type job struct {
	id      uint64
	recover bool
	from    int64 // what lies below is known to be the leader's, by content
	second  bool  // recover: comparing what was copied
	waiting bool  // recover: verified, for the controller to add it to the ISR
	rounds  int   // truncations, which must end
}

// follow begins, or begins again, to be in step with the leader. An explicit replica that
// is not in sync waits for a command.
func (r *Replica) follow() {
	f := r.foll
	if f.job != nil {
		r.resume()
		return
	}
	if r.cfg.Explicit && !slices.Contains(r.at.ISR, r.cfg.ID) {
		r.pause(errors.New("replica: not in sync; recover it"))
		return
	}
	r.fetch()
}

func (r *Replica) fetch() {
	f := r.foll
	f.phase, f.why = fetching, nil
	m := Message{Kind: Fetch, Offset: r.log.LogEndOffset, LastEpoch: r.log.LastEpoch(), CatchUp: f.job != nil && !f.job.waiting, Verified: f.verified}
	if r.hasReaders() {
		m.Readers, m.HighWatermark = true, r.hw
	}
	r.ask(m)
}

// readersStay is for how many heartbeats a follower takes it that consumers who have read from it
// will do so again.
const readersStay = 20

func (r *Replica) hasReaders() bool {
	return !r.readAt.IsZero() && r.now.Sub(r.readAt) < readersStay*r.cfg.Heartbeat
}

// Readers tells a follower that a consumer waits for its high watermark. Without that the leader
// tells it with the next records or heartbeat.
func (r *Replica) Readers(now time.Time) []Effect {
	r.begin(now)
	had := r.hasReaders()
	r.readAt = now
	if f := r.foll; !had && f != nil && f.phase == fetching && f.job == nil {
		r.fetch() // the one under way does not say it
	}
	return r.effects()
}

func (r *Replica) ask(m Message) {
	f := r.foll
	r.seq++
	m.From, m.To, m.LeaderEpoch, m.Seq = r.cfg.ID, r.at.Leader, r.at.LeaderEpoch, r.seq
	f.asked = true
	f.deadline = time.Time{}
	if r.cfg.Retry > 0 {
		f.deadline = r.now.Add(r.cfg.Heartbeat + r.cfg.Retry)
	}
	r.emit(Send{m})
}

// pause stops the follower: until it is told to go on, or for a while.
func (r *Replica) pause(why error) {
	f := r.foll
	f.phase, f.why, f.verified = paused, why, false
	f.deadline = time.Time{}
	if !r.cfg.Explicit && r.cfg.Retry > 0 {
		f.deadline = r.now.Add(r.cfg.Retry)
	}
	r.finish(why)
}

// finish ends the command under way.
func (r *Replica) finish(err error) {
	if f := r.foll; f.job != nil {
		r.emit(Finished{f.job.id, err})
		f.job = nil
	}
}

func (r *Replica) tickFollower() {
	f := r.foll
	if f.phase == storing || f.deadline.IsZero() || r.now.Before(f.deadline) {
		return
	}
	r.follow()
}

// reassigned: the controller changed something, but not the leader.
func (r *Replica) reassigned() {
	f := r.foll
	if !slices.Contains(r.at.ISR, r.cfg.ID) {
		return
	}
	if f.job != nil && f.job.waiting {
		r.finish(nil)
	}
	if f.phase == paused {
		r.follow()
	}
}

// answered handles the leader's reply to the request under way.
func (r *Replica) answered(m Message) {
	r.foll.asked = false
	switch m.Kind {
	case Frames:
		r.frames(m)
	case Diverging:
		r.diverging(m)
	case Refused:
		r.refused(m)
	case Digests:
		r.sums(m)
	}
}

func (r *Replica) frames(m Message) {
	if len(m.Frames) == 0 {
		r.raise(m.HighWatermark)
		r.advance(m)
		return
	}
	if m.Offset != r.log.LogEndOffset {
		r.fetch() // an answer to a question that is no longer ours
		return
	}
	r.foll.phase = storing
	r.emit(Copy{Frames: m.Frames, Epoch: m.FrameEpoch})
	r.foll.after = func() {
		r.raise(m.HighWatermark)
		r.advance(m)
	}
}

// advance follows the leader's retention, and then fetches on.
func (r *Replica) advance(m Message) {
	goOn := func() {
		if r.caughtUp(m.LogEndOffset) && !r.pace(len(m.Frames)) {
			r.fetch()
		}
	}
	if m.LogStartOffset <= r.log.LogStartOffset || m.LogStartOffset > r.log.LogEndOffset {
		goOn()
		return
	}
	r.foll.phase, r.foll.after = storing, goOn
	r.emit(Advance{m.LogStartOffset})
}

// pace has a follower that is not in sync wait before it copies on, if it is to.
func (r *Replica) pace(copied int) bool {
	f := r.foll
	if r.cfg.Pace == nil || copied == 0 || f.job != nil || slices.Contains(r.at.ISR, r.cfg.ID) {
		return false
	}
	until := r.cfg.Pace(r.now, copied)
	if !until.After(r.now) {
		return false
	}
	f.phase, f.deadline = pacing, until
	return true
}

// stored handles the disk's answer.
func (r *Replica) stored(err error) {
	f := r.foll
	after := f.after
	f.after = nil
	if err != nil {
		r.seq++
		r.emit(Send{Message{Kind: Fetch, From: r.cfg.ID, To: r.at.Leader, LeaderEpoch: r.at.LeaderEpoch, Seq: r.seq, Offset: r.log.LogEndOffset, Failed: err.Error()}})
		r.pause(err)
		return
	}
	if f.phase == storing && after != nil {
		after()
	}
}

// caughtUp moves a command on when the follower has reached the leader's end. It reports
// whether to go on fetching.
func (r *Replica) caughtUp(end int64) bool {
	f := r.foll
	if f.job == nil || r.log.LogEndOffset < end {
		return true
	}
	switch {
	case !f.job.recover:
		r.finish(nil)
	case !f.job.second:
		f.job.second = true
		r.compare()
		return false
	}
	return true
}

// diverging: the epochs say that the two logs part. The follower's log can agree with the
// leader's at most up to where both end the epoch that both know.
func (r *Replica) diverging(m Message) {
	f := r.foll
	_, own := r.log.EpochEnd(m.LastEpoch)
	to := min(own, m.EpochEnd)
	if r.cfg.Explicit && (f.job == nil || !f.job.recover) || to >= r.log.LogEndOffset {
		r.pause(&DivergenceError{Leader: m.From, Follower: r.cfg.ID, Offset: to,
			Detail: fmt.Sprintf("the leader's epoch %d ends at %d, here are records up to %d of epoch %d", m.LastEpoch, m.EpochEnd, r.log.LogEndOffset, r.log.LastEpoch())})
		return
	}
	r.cut(to)
}

// cut removes what the leader does not have, and goes on from there.
func (r *Replica) cut(to int64) {
	f := r.foll
	f.phase, f.verified = storing, false
	if f.job != nil {
		if f.job.rounds++; f.job.rounds > 100 {
			r.pause(fmt.Errorf("replica: still parting from the leader after cutting %d times", f.job.rounds))
			return
		}
		f.job.from, f.job.second = min(f.job.from, to), false
	}
	r.hw = min(r.hw, max(to, r.log.LogStartOffset))
	if to < r.log.LogStartOffset {
		r.emit(Reset{r.log.LogStartOffset})
	} else {
		r.emit(Truncate{to})
	}
	f.after = func() {
		if f.job != nil {
			f.job.from = min(f.job.from, r.log.LogEndOffset) // a batch is not cut in two
		}
		r.fetch()
	}
}

func (r *Replica) refused(m Message) {
	f := r.foll
	err := &RefusedError{By: m.From, Reason: m.Reason, Detail: m.Detail}
	switch m.Reason {
	case OldRequest:
		r.seq = max(r.seq, uint64(m.Offset))
		r.follow()
	case OutOfRange:
		if r.cfg.Explicit && (f.job == nil || !f.job.recover) {
			r.pause(&DivergenceError{Leader: m.From, Follower: r.cfg.ID, Offset: r.log.LogEndOffset,
				Detail: fmt.Sprintf("the leader's log is from %d to %d, the replica's ends at %d", m.LogStartOffset, m.LogEndOffset, r.log.LogEndOffset)})
			return
		}
		r.restartAt(m.Offset)
	case InsideBatch:
		if r.log.LogStartOffset < r.log.LogEndOffset {
			r.pause(err) // its last batch is not one of the leader's
			return
		}
		r.restartAt(m.Offset)
	default:
		r.pause(err)
	}
}

// restartAt empties a log that does not touch the leader's, to go on where that begins.
func (r *Replica) restartAt(to int64) {
	f := r.foll
	f.phase, f.verified = storing, false
	if f.job != nil {
		f.job.from, f.job.second = to, false
	}
	r.hw = 0
	r.emit(Reset{to})
	f.after = func() { r.fetch() }
}
