package quorum

import (
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"logbook/engine/controller"
	"logbook/engine/metadata"
	"logbook/engine/record"
	"logbook/engine/replica"
)

// Name is what settings call this kind of controller.
const Name = "quorum"

func init() {
	controller.Register(controller.Kind{Name: Name, Agrees: true, Mends: true, Journal: true, Roles: true, Open: func(cfg controller.Config, s controller.Stored) (controller.Machine, error) {
		return New(cfg, s.Journal)
	}})
}

// Times, as parts of a session: how long a broker may be silent before it is fenced.
const (
	ticksOfSession   = 20 // the quorum's clock: a tick is a twentieth of a session
	heartbeatTicks   = 2  // between heartbeats, of the active controller and of brokers
	electionTicks    = 6  // without a sign of the active controller, at least, until an election; at most twice that
	leaseTicks       = 15 // that an acknowledged heartbeat lets a broker serve
	balanceSessions  = 20 // between looks at the preferred leaders
	defaultSnapshots = 1000
)

// Controller is one broker's part of the quorum. It implements controller.Machine.
type Controller struct {
	cfg controller.Config
	now time.Time
	out []controller.Effect
	rng *rand.Rand

	// The journal. Writes wait their turn; one that fails is tried again, since nothing may be
	// said before it is stored.
	self    identity
	writes  []*write
	storing bool
	retryAt time.Time // zero: none has failed

	// The member of the quorum; node is nil until there is a cluster.
	node    *raft.RawNode
	mem     *storage
	conf    raftpb.ConfState
	busy    bool // a raft.Ready is being stored
	image   *metadata.Image
	applied uint64
	snapped uint64               // index of the last snapshot
	changed bool                 // the members have changed since
	sending map[uint64]time.Time // snapshots on their way, by member: when it is to be asked for again
	seen    raft.BasicStatus
	tickAt  time.Time
	electAt time.Time
	handed  bool  // the member was asked to be elected at once, whatever the others have heard
	broken  error // why the member takes no part any more

	heard     map[uint64]heard // what other members have said, as far as this life has heard
	recalling *recalling       // it finds out what it has said itself; nil: it has

	met map[replica.BrokerID]controller.Meet // on the founder, before there is a cluster

	health controller.Health
	calls  controller.Calls
	made   map[uint64]func(error)
	nextID uint64

	began  time.Time // when the broker started
	broker broker
	office *office
	leave  bool

	uncleanElections int // since the broker started
	warned           map[string]bool
}

// write is something that waits to be in the journal.
type write struct {
	make    func() (records []record.Record, whole bool) // called when its turn has come
	records []record.Record
	whole   bool
	done    func()
}

// New returns the controller of one broker, with what its journal says.
//
// Errors: what is wrong with the journal.
func New(cfg controller.Config, journal []record.Record) (*Controller, error) {
	if cfg.FailAfter == 0 {
		cfg.FailAfter = 3
	}
	if cfg.SnapshotAfter == 0 {
		cfg.SnapshotAfter = defaultSnapshots
	}
	if cfg.Usable == nil {
		cfg.Usable = func(p controller.Partition) bool { _, ok := cfg.Standing(p); return ok }
	}
	s, err := read(journal)
	if err != nil {
		return nil, err
	}
	c := &Controller{
		cfg: cfg, self: s.identity, image: new(metadata.Image), made: map[uint64]func(error){}, heard: map[uint64]heard{}, met: map[replica.BrokerID]controller.Meet{}, sending: map[uint64]time.Time{}, warned: map[string]bool{},
		health: controller.NewHealth(cfg.ID, cfg.Brokers, cfg.HealthEvery, cfg.FailAfter),
	}
	var seed [8]byte
	if _, err := io.ReadFull(cfg.Random, seed[:]); err != nil {
		return nil, fmt.Errorf("quorum: drawing random bytes: %w", err)
	}
	c.rng = rand.New(rand.NewPCG(binary.BigEndian.Uint64(seed[:]), uint64(cfg.ID)))
	c.broker.asked = map[uint64]time.Time{}
	if c.self.formed() {
		if err := c.join(s); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// Name implements controller.Machine.
func (c *Controller) Name() string { return Name }

// Image implements controller.Machine.
func (c *Controller) Image() *metadata.Image { return c.image }

// ControllerID implements controller.Machine: the active controller, as far as this broker knows.
func (c *Controller) ControllerID() replica.BrokerID { return brokerOf(c.seen.Lead) }

// Applied implements controller.Machine.
func (c *Controller) Applied() uint64 { return c.applied }

// Alive implements controller.Machine.
func (c *Controller) Alive(id replica.BrokerID) bool { return c.image.Usable(id) }

// session is how long a broker may be silent: the least time in which so many checks fail.
func (c *Controller) session() time.Duration {
	return time.Duration(max(1, c.cfg.FailAfter-1)) * c.cfg.HealthEvery
}

func (c *Controller) tick() time.Duration { return c.session() / ticksOfSession }

func (c *Controller) emit(e controller.Effect) { c.out = append(c.out, e) }

func (c *Controller) begin(now time.Time) { c.now, c.out = now, nil }

// effects ends every input: what follows from it happens.
func (c *Controller) effects() []controller.Effect {
	c.settle()
	out := c.out
	c.out = nil
	return out
}

// Start implements controller.Machine.
func (c *Controller) Start(now time.Time) []controller.Effect {
	c.begin(now)
	c.checkRemoved() // while its life is still the one that was removed
	if c.self.Member == 0 {
		c.self.Member = newMember(c.cfg.ID, c.rng)
	}
	c.self.Life = max(c.self.Life+1, uint64(max(1, now.UnixNano())))
	c.tickAt, c.began = now, now
	c.putOffElection()
	c.emit(controller.Lease{Until: now}) // none yet
	c.beginRecalling()
	c.decideAll()
	c.store(func() ([]record.Record, bool) { return []record.Record{encode(keyIdentity, c.self)}, false }, func() {
		c.broker.begun = true
		c.meet()
	})
	return c.effects()
}

// Tick implements controller.Machine.
func (c *Controller) Tick(now time.Time) []controller.Effect {
	c.begin(now)
	c.calls.Expire(now)
	if !c.retryAt.IsZero() && !now.Before(c.retryAt) {
		c.retryAt = time.Time{}
		c.emit(controller.Persist{Journal: c.writes[0].records, Whole: c.writes[0].whole})
	}
	if !now.Before(c.tickAt) {
		c.tickAt = now.Add(c.tick())
		c.tickMember()
		c.meet()
	}
	c.beat()
	c.tickBroker()
	c.tickOffice()
	return c.effects()
}

// Next implements controller.Machine.
func (c *Controller) Next() time.Time {
	next := controller.Sooner(c.tickAt, c.retryAt)
	next = controller.Sooner(next, c.calls.Next())
	next = controller.Sooner(next, c.health.Next())
	if c.broker.begun && c.broken == nil {
		next = controller.Sooner(next, c.broker.beatAt)
	}
	return next
}

// beat sends the heartbeats that show brokers that they reach each other: whoever waits for one
// that is not reached need not wait for a session.
func (c *Controller) beat() {
	send, failed := c.health.Due(c.now)
	for _, id := range failed {
		if missed, _ := c.health.Missed(id); missed == 2 {
			c.emit(controller.Silent{Peer: id, Why: "it does not answer"})
		}
	}
	for _, id := range send {
		_, seq := c.health.Missed(id)
		c.emit(controller.Send{To: id, Message: controller.Heartbeat{Seq: seq}})
	}
}

// Step implements controller.Machine.
func (c *Controller) Step(now time.Time, from replica.BrokerID, m controller.Message) []controller.Effect {
	c.begin(now)
	c.health.Heard(from)
	switch q := m.(type) {
	case controller.Heartbeat:
		c.emit(controller.Send{To: from, Message: controller.HeartbeatAck{Seq: q.Seq}})
	case controller.Meet:
		c.metBy(from, q)
	case controller.Form:
		c.formedBy(from, q)
	case controller.Recall:
		c.askedToRecall(from, q)
	case controller.Recalled:
		c.recalled(from, q)
	case controller.RaftMessage:
		c.stepMember(from, q)
	case controller.BrokerHeartbeat:
		c.heartbeatOf(from, q)
	case controller.BrokerHeartbeatAck:
		c.acknowledged(from, q)
	case controller.ProposeChange:
		c.proposedBy(from, q)
	case controller.ChangeProposed:
		c.calls.Answer(from, q.ID, q)
	case controller.CreateReplicas:
		c.createFor(from, q)
	case controller.ReplicasCreated:
		c.calls.Answer(from, q.ID, q)
	}
	return c.effects()
}

// Unreachable implements controller.Machine.
func (c *Controller) Unreachable(now time.Time, peer replica.BrokerID, why string) []controller.Effect {
	c.begin(now)
	c.calls.Lost(peer, why)
	for _, id := range c.members() {
		if c.node != nil && brokerOf(id) == peer {
			c.node.ReportUnreachable(id)
		}
	}
	return c.effects()
}

// ask sends a request to a broker, and calls done with its reply, or with why there is none.
func (c *Controller) ask(to replica.BrokerID, timeout time.Duration, request func(id uint64) controller.Message, done func(reply controller.Message, failed string)) {
	id := c.calls.Begin(to, c.now.Add(timeout), done)
	c.emit(controller.Send{To: to, Message: request(id)})
}

// warn tells a person something, once.
func (c *Controller) warn(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !c.warned[text] {
		c.warned[text] = true
		c.emit(controller.Warn{Text: text})
	}
}

// store puts a write into the queue.
func (c *Controller) store(make func() ([]record.Record, bool), done func()) {
	c.writes = append(c.writes, &write{make: make, done: done})
	c.storeNext()
}

func (c *Controller) storeNext() {
	if c.storing || len(c.writes) == 0 {
		return
	}
	w := c.writes[0]
	w.records, w.whole = w.make()
	c.storing = true
	c.emit(controller.Persist{Journal: w.records, Whole: w.whole})
}

// Persisted implements controller.Machine. A write that failed may be on the disk all the same:
// it is written again, which says the same twice.
func (c *Controller) Persisted(now time.Time, err error) []controller.Effect {
	c.begin(now)
	if err != nil {
		c.warn("the quorum's journal cannot be written, and this broker takes no part in decisions until it can: %v", err)
		c.retryAt = now.Add(c.session())
		return c.effects()
	}
	w := c.writes[0]
	c.writes, c.storing = c.writes[1:], false
	w.done()
	c.storeNext()
	return c.effects()
}

// Problem implements controller.Quorate.
func (c *Controller) Problem() string {
	if c.broken == nil {
		return ""
	}
	return c.broken.Error()
}

// Status is what the quorum is like, as far as this broker knows.
type Status = controller.QuorumStatus

// Quorum implements controller.Quorate.
func (c *Controller) Quorum() Status {
	s := Status{Cluster: c.self.Cluster, Term: c.seen.Term, Active: c.ControllerID(), Applied: c.applied, Committed: c.seen.Commit, Formed: c.self.formed(), UncleanElections: c.uncleanElections}
	voters := c.voters()
	for _, id := range c.members() {
		if slices.Contains(voters, id) {
			s.Voters = append(s.Voters, brokerOf(id))
		} else {
			s.Learners = append(s.Learners, brokerOf(id))
		}
	}
	slices.Sort(s.Voters)
	slices.Sort(s.Learners)
	if c.node != nil && c.office != nil {
		s.Lag = map[replica.BrokerID]uint64{}
		last, _ := c.mem.LastIndex()
		c.node.WithProgress(func(id uint64, _ raft.ProgressType, p tracker) { s.Lag[brokerOf(id)] = last - min(last, p.Match) })
	}
	return s
}
