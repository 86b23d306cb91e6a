package replica

import (
	"fmt"
	"slices"
	"time"
)

// Assignment is the controller's decision about a partition.
type Assignment struct {
	Version     int64      `json:"version"` // grows with each decision
	Leader      BrokerID   `json:"leader"`  // None while nobody can lead
	LeaderEpoch int32      `json:"epoch"`   // leader epoch; grows with each term of a leader
	Replicas    []BrokerID `json:"replicas"`
	ISR         []BrokerID `json:"isr"` // the in-sync replicas: those that count for the high watermark
	// Eligible are replicas that left ISR when that became smaller than it should be, and that may
	// lead all the same: while there are any, the high watermark stays, so that they have all
	// that is below it (KIP-966).
	Eligible []BrokerID `json:"eligible,omitempty"`
	// While the partition moves: what Replicas is to be, and what it was. Replicas has both.
	Target []BrokerID `json:"target,omitempty"`
	Origin []BrokerID `json:"origin,omitempty"`
}

// Clone returns a copy that shares nothing.
func (a Assignment) Clone() Assignment {
	a.Replicas, a.ISR, a.Target, a.Origin, a.Eligible = slices.Clone(a.Replicas), slices.Clone(a.ISR), slices.Clone(a.Target), slices.Clone(a.Origin), slices.Clone(a.Eligible)
	return a
}

// Validate says what is impossible about an assignment.
func (a Assignment) Validate() error {
	seen := map[BrokerID]bool{}
	for _, id := range a.Replicas {
		if id <= None || seen[id] {
			return fmt.Errorf("replicas %v: each must be a broker, once", a.Replicas)
		}
		seen[id] = true
	}
	active := map[BrokerID]bool{}
	for _, id := range a.ISR {
		if !seen[id] || active[id] {
			return fmt.Errorf("in-sync replicas %v: each must be one of %v, once", a.ISR, a.Replicas)
		}
		active[id] = true
	}
	for _, id := range a.Eligible {
		if !seen[id] || active[id] {
			return fmt.Errorf("eligible leaders %v: each must be one of %v, and not in sync", a.Eligible, a.Replicas)
		}
	}
	switch {
	case a.Version < 0 || a.LeaderEpoch < 0:
		return fmt.Errorf("version %d or epoch %d is negative", a.Version, a.LeaderEpoch)
	case len(a.Replicas) == 0 || len(a.ISR) == 0:
		return fmt.Errorf("there is no replica, or no in-sync one")
	case a.Leader != None && !active[a.Leader]:
		return fmt.Errorf("leader %d is not one of the in-sync replicas %v", a.Leader, a.ISR)
	}
	return nil
}

// Config says how a replica behaves. Zero durations never run out.
type Config struct {
	ID BrokerID
	// Explicit: replicas catch up and become in sync by command only, and what diverges is
	// reported, not cut. See the package comment.
	Explicit bool
	// MinInSync is how many in-sync replicas Quorum and AllInSync demand, or all replicas
	// where there are fewer; 0 is 1.
	MinInSync int
	// LagTimeout: an in-sync follower that was not at the leader's end for so long is
	// proposed to be in sync no more. Not used when Explicit.
	LagTimeout time.Duration
	// UnreachableTimeout: likewise one with which contact was lost, and that has not fetched
	// for so long. Who is known to be gone need not be waited for as who merely lags. 0: as
	// LagTimeout.
	UnreachableTimeout time.Duration
	// WriteTimeout is the longest that a write waits for its followers.
	WriteTimeout time.Duration
	// Heartbeat is the longest that a leader leaves a fetch unanswered.
	Heartbeat time.Duration
	// Retry is how long a follower waits for an answer, and after a refusal.
	Retry time.Duration
	// MaxBytes bounds the frames in a message; 0 is 1 MiB.
	MaxBytes int
	// MaxSums bounds the sums in a message; 0 is 4096.
	MaxDigests int
	// Pace, if set, is told how many bytes a follower that is not in sync has copied, and says when
	// it may ask for more: so that it leaves room for others.
	Pace func(now time.Time, bytes int) time.Time
	// FirstSeq is where the replica's requests are counted from. It must be above those of
	// its earlier life, which old messages may still carry: a wall clock will do.
	FirstSeq uint64
}

// Role is what a replica is.
type Role string

const (
	Idle     Role = "idle"     // not told yet, or no leader
	Starting Role = "starting" // to be leader, once its log has begun the epoch
	Leader   Role = "leader"
	Follower Role = "follower"
)

// Replica is one partition's replica on one broker.
type Replica struct {
	cfg  Config
	log  Log
	hw   int64
	role Role
	at   Assignment
	lead *leadership
	foll *following
	seq  uint64
	out  []Effect
	now  time.Time
	// readAt is when a consumer waited here last for what a follower knows; zero: none has.
	readAt time.Time
}

// New returns a replica whose log is as given. highWatermark is the last one known, or 0:
// the offset below which records were safe once, and are.
func New(cfg Config, log Log, highWatermark int64) *Replica {
	if cfg.MinInSync == 0 {
		cfg.MinInSync = 1
	}
	if cfg.MaxBytes == 0 {
		cfg.MaxBytes = 1 << 20
	}
	if cfg.MaxDigests == 0 {
		cfg.MaxDigests = 4096
	}
	r := &Replica{cfg: cfg, log: log, role: Idle, seq: cfg.FirstSeq}
	r.raise(max(highWatermark, log.LogStartOffset))
	return r
}

// begin and effects frame every input.
func (r *Replica) begin(now time.Time) { r.now, r.out = now, nil }

func (r *Replica) effects() []Effect {
	out := r.out
	r.out = nil
	return out
}

func (r *Replica) emit(e Effect) { r.out = append(r.out, e) }

// raise moves the high watermark up, never down and never beyond the log.
func (r *Replica) raise(to int64) { r.hw = max(r.hw, min(to, r.log.LogEndOffset)) }

// Assign hands over the controller's decision. One that is not newer is ignored.
func (r *Replica) Assign(now time.Time, a Assignment) []Effect {
	r.begin(now)
	if a.Version <= r.at.Version {
		return nil
	}
	old := r.at
	r.at = a.Clone()
	same := a.Leader == old.Leader && a.LeaderEpoch == old.LeaderEpoch
	switch {
	case same && r.lead != nil:
		r.lead.proposed, r.lead.maybe = nil, nil
		r.settle()
	case same && r.foll != nil:
		r.reassigned()
	default:
		r.leave()
		r.enter()
	}
	return r.effects()
}

// leave ends the present role.
func (r *Replica) leave() {
	if r.lead != nil {
		for _, w := range r.lead.writes {
			r.emit(Done{w.ID, ErrLeadershipLost})
		}
	}
	if r.foll != nil {
		r.finish(ErrSuperseded)
	}
	r.lead, r.foll, r.role = nil, nil, Idle
}

func (r *Replica) enter() {
	switch {
	case r.at.Leader == None || !slices.Contains(r.at.Replicas, r.cfg.ID):
		r.role = Idle
	case r.at.Leader == r.cfg.ID:
		r.role = Starting
		r.lead = newLeadership(r)
		r.emit(StartEpoch{r.at.LeaderEpoch})
	default:
		r.role = Follower
		r.foll = &following{}
		r.follow()
	}
}

// Logged is the result of a storage effect: the log as it is now, or why it failed.
func (r *Replica) Logged(now time.Time, log Log, err error) []Effect {
	r.begin(now)
	r.log = log
	r.raise(log.LogStartOffset) // what retention removed was safe
	switch {
	case r.role == Starting && err == nil:
		r.started()
	case r.role == Starting:
		r.lead.broken = err
	case r.foll != nil:
		r.stored(err)
	}
	return r.effects()
}

// Trimmed tells a leader that its log was cut at the front, by retention.
// first is where the frame begins that holds the new start.
func (r *Replica) Trimmed(now time.Time, start, first int64) []Effect {
	r.begin(now)
	r.log.LogStartOffset = max(r.log.LogStartOffset, start)
	r.log.FirstOffset = max(r.log.FirstOffset, first)
	r.raise(r.log.LogStartOffset)
	return r.effects()
}

// Step handles a message from another replica.
func (r *Replica) Step(now time.Time, m Message) []Effect {
	r.begin(now)
	switch m.Kind {
	case Fetch, AskDigests:
		r.request(m)
	case Lead:
		if r.foll != nil && m.From == r.at.Leader && m.LeaderEpoch == r.at.LeaderEpoch && r.foll.phase != storing && r.foll.phase != pacing {
			r.follow()
		}
	default:
		if r.foll != nil && m.From == r.at.Leader && m.LeaderEpoch == r.at.LeaderEpoch && m.Seq == r.seq && r.foll.asked {
			r.answered(m)
		}
	}
	return r.effects()
}

// Unreachable tells that contact with a broker was lost: what was sent to it may not
// arrive, and no answer may come.
func (r *Replica) Unreachable(now time.Time, peer BrokerID, why string) []Effect {
	r.begin(now)
	if r.lead != nil {
		if p := r.lead.followers[peer]; p != nil {
			p.failed, p.parked = "unreachable: "+why, nil
			if p.lost.IsZero() {
				p.lost = now
			}
			r.settle()
		}
	}
	if r.foll != nil && peer == r.at.Leader {
		r.foll.asked = false
		r.pause(&UnreachableError{peer, why})
	}
	return r.effects()
}

// Gone tells that a broker has said that it stops: nobody need wait to see whether it comes back.
func (r *Replica) Gone(now time.Time, peer BrokerID) []Effect {
	r.begin(now)
	if r.lead != nil {
		if p := r.lead.followers[peer]; p != nil {
			p.failed, p.parked = "it is shutting down", nil
			p.lost = now.Add(-r.cfg.UnreachableTimeout - 1)
			r.settle()
		}
	}
	return r.effects()
}

// Tick lets time pass.
func (r *Replica) Tick(now time.Time) []Effect {
	r.begin(now)
	if r.lead != nil && r.role == Leader {
		r.tickLeader()
	}
	if r.foll != nil {
		r.tickFollower()
	}
	return r.effects()
}

// Next is when Tick is due; zero if nothing waits for time to pass.
func (r *Replica) Next() time.Time {
	switch {
	case r.role == Leader:
		return r.nextLeader()
	case r.foll != nil:
		return r.foll.deadline
	}
	return time.Time{}
}

// HighWatermark is the offset below which every in-sync replica holds every record.
func (r *Replica) HighWatermark() int64 { return r.hw }

// Settled reports whether a leader knows the high watermark that its predecessor, or its
// own earlier life, may have shown to readers: it has found it out again when it is past
// what the log held when the leadership began (KIP-207).
func (r *Replica) Settled() bool { return r.role == Leader && r.hw >= r.lead.start }

// Follows reports whether consumers may read from a follower: it is in sync, and not known to
// have lost its leader. What lies below its high watermark is what the leader has there, and may
// be less than the leader shows (KIP-392).
func (r *Replica) Follows() bool {
	return r.foll != nil && r.foll.phase != paused && slices.Contains(r.at.ISR, r.cfg.ID)
}

// LeaderEpoch is the leader epoch of the present assignment.
func (r *Replica) LeaderEpoch() int32 { return r.at.LeaderEpoch }

// InSync is how many replicas are in sync.
func (r *Replica) InSync() int { return len(r.at.ISR) }

// Status describes a replica.
type Status struct {
	Role                         Role
	Assignment                   Assignment
	LogStartOffset, LogEndOffset int64 // of its log
	HighWatermark                int64
	// Problem is why a follower stands still, or a leader cannot lead; nil if it does not.
	Problem error
	// Followers, on a leader: what it knows of each.
	Followers map[BrokerID]Progress
	// Counting, on a leader: the replicas that must hold a record before it is safe, the in-sync
	// ones and those that are about to be.
	Counting []BrokerID
}

// Progress is what a leader knows of a follower.
type Progress struct {
	LogEndOffset int64 // its log end; meaningful if Known
	Known        bool
	Failed       string // why it cannot go on; "" if it can
}

// Status returns the replica's present state.
func (r *Replica) Status() Status {
	s := Status{Role: r.role, Assignment: r.at.Clone(), LogStartOffset: r.log.LogStartOffset, LogEndOffset: r.log.LogEndOffset, HighWatermark: r.hw}
	if r.foll != nil {
		s.Problem = r.foll.why
	}
	if r.lead != nil {
		s.Problem = r.lead.broken
		s.Counting = r.counting()
		s.Followers = map[BrokerID]Progress{}
		for id, p := range r.lead.followers {
			s.Followers[id] = Progress{LogEndOffset: p.end, Known: p.known, Failed: p.failed}
		}
	}
	return s
}
