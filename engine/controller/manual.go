package controller

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"logbook/engine/metadata"
	"logbook/engine/replica"
	"logbook/engine/topic"
)

// ManualConfig configures a Manual. Zero durations never run out.
type ManualConfig struct {
	ID      replica.BrokerID // this broker's; None: a controller beside the brokers
	At      replica.BrokerID // the broker that keeps the decisions; this one, if equal to ID
	Brokers []replica.BrokerID
	Choose  Choice // picks leaders; nil is Longest

	HealthEvery    time.Duration // between heartbeats
	FailAfter      int           // unanswered heartbeats that make a broker dead; 0 is 3
	RequestTimeout time.Duration // for another broker's controller to answer
	ProbeTimeout   time.Duration // for a replica to report, before it counts as gone
	FirstVersion   int64         // where versions are counted from: a wall clock will do
}

// Manual is the controller of a person who decides: failover and recovery are commands. It
// promotes nobody by itself. One broker keeps the decisions, and the others follow them:
// while it is away all goes on as it was decided, and nothing can be decided.
type Manual struct {
	cfg    ManualConfig
	image  *metadata.Image
	stored *metadata.Image // what is on this broker's disk for sure
	now    time.Time
	out    []Effect

	health  Health
	calls   Calls
	changes []*change
	storing bool // the first of them is being stored
	made    map[uint64]func(error)

	// On the broker that keeps the decisions.
	version int64
	tail    []metadata.Record // the latest decisions, up to version
	retryAt time.Time         // to register again; zero: no need

	// Elsewhere.
	followed   int64 // version of the image
	registered bool
	fetching   bool
}

// change is a change of the image that waits to be stored, or is being stored.
type change struct {
	make    func(*metadata.Image) ([]metadata.Record, error)
	records []metadata.Record
	next    *metadata.Image
	done    func(error)
	copied  bool // decided elsewhere: it counts even if it cannot be stored here
}

// NewManual returns the controller of one broker. image is what was stored.
func NewManual(cfg ManualConfig, image *metadata.Image) *Manual {
	if cfg.Choose == nil {
		cfg.Choose = Longest
	}
	if cfg.FailAfter == 0 {
		cfg.FailAfter = 3
	}
	return &Manual{
		cfg: cfg, image: image, stored: image, version: cfg.FirstVersion, made: map[uint64]func(error){},
		health: NewHealth(cfg.ID, cfg.Brokers, cfg.HealthEvery, cfg.FailAfter),
	}
}

// Name implements Machine.
func (m *Manual) Name() string { return "manual" }

// Image implements Machine.
func (m *Manual) Image() *metadata.Image { return m.image }

// ControllerID implements Machine.
func (m *Manual) ControllerID() replica.BrokerID { return m.cfg.At }

// Applied implements Machine.
func (m *Manual) Applied() uint64 {
	if m.keeps() {
		return uint64(m.version)
	}
	return uint64(m.followed)
}

// Alive implements Machine.
func (m *Manual) Alive(id replica.BrokerID) bool { return m.health.Alive(id) }

func (m *Manual) keeps() bool { return m.cfg.ID == m.cfg.At }

func (m *Manual) begin(now time.Time) { m.now, m.out = now, nil }

func (m *Manual) emit(e Effect) { m.out = append(m.out, e) }

func (m *Manual) effects() []Effect {
	out := m.out
	m.out = nil
	return out
}

// Start implements Machine. The broker that keeps the decisions begins new epochs for what
// it leads; the others do so when they have reached it.
func (m *Manual) Start(now time.Time) []Effect {
	m.begin(now)
	if m.keeps() && m.cfg.ID != replica.None {
		m.registerSelf()
		m.decideAll(func(a replica.Assignment) bool { return a.Leader != m.cfg.ID })
	}
	m.beat()
	return m.effects()
}

// registerSelf begins new epochs for what the keeper of the decisions leads; again later, if
// its disk will not have it.
func (m *Manual) registerSelf() {
	m.retryAt = time.Time{}
	m.register(m.cfg.ID, func(err error) {
		if err != nil {
			m.emit(Warn{fmt.Sprintf("cannot begin new epochs yet: what this broker leads takes no writes: %v", err)})
			m.retryAt = m.now.Add(registerRetry)
		}
	})
}

// registerRetry is the pause between attempts of the keeper to register.
const registerRetry = time.Second

// decideAll hands this broker's replicas the present decisions.
func (m *Manual) decideAll(wanted func(replica.Assignment) bool) {
	for p, a := range m.image.Assignments() {
		if wanted(a) {
			m.decide(p, a)
		}
	}
}

func (m *Manual) decide(p Partition, a replica.Assignment) {
	if m.cfg.ID == replica.None || slices.Contains(a.Replicas, m.cfg.ID) {
		m.emit(Decide{p, a})
	}
}

// Leave implements Machine: leaders change by command alone.
func (m *Manual) Leave(time.Time) []Effect { return nil }

// Left implements Machine.
func (m *Manual) Left() bool { return true }

// Tick implements Machine.
func (m *Manual) Tick(now time.Time) []Effect {
	m.begin(now)
	if !m.retryAt.IsZero() && !now.Before(m.retryAt) {
		m.registerSelf()
	}
	m.calls.Expire(now)
	m.beat()
	return m.effects()
}

// Next implements Machine.
func (m *Manual) Next() time.Time {
	return Sooner(m.retryAt, Sooner(m.health.Next(), m.calls.Next()))
}

// beat sends the heartbeats that are due.
func (m *Manual) beat() {
	send, failed := m.health.Due(m.now)
	for _, id := range failed {
		if m.health.state[id].missed == 2 {
			m.lost(id, "it does not answer")
			m.emit(Silent{id, "it does not answer"})
		}
	}
	for _, id := range send {
		m.emit(Send{id, Heartbeat{Seq: m.health.state[id].seq, Version: m.told()}})
	}
}

// told is the version that other brokers are told.
func (m *Manual) told() int64 {
	if m.keeps() {
		return m.version
	}
	return 0
}

// Unreachable implements Machine.
func (m *Manual) Unreachable(now time.Time, peer replica.BrokerID, why string) []Effect {
	m.begin(now)
	m.lost(peer, why)
	return m.effects()
}

func (m *Manual) lost(peer replica.BrokerID, why string) {
	m.calls.Lost(peer, why)
}

// Step implements Machine.
func (m *Manual) Step(now time.Time, from replica.BrokerID, msg Message) []Effect {
	m.begin(now)
	m.health.Heard(from)
	switch q := msg.(type) {
	case Heartbeat:
		m.emit(Send{from, HeartbeatAck{Seq: q.Seq, Version: m.told()}})
		m.heard(from, q.Version)
	case HeartbeatAck:
		m.heard(from, q.Version)
	case FetchDecisions:
		m.serve(from, q)
	case Decisions:
		m.calls.Answer(from, q.ID, q)
	case ProposeChange:
		m.proposedBy(from, q)
	case ChangeProposed:
		m.calls.Answer(from, q.ID, q)
	case CreateReplicas:
		m.createFor(from, q)
	case ReplicasCreated:
		m.calls.Answer(from, q.ID, q)
	case ReportReply:
		m.calls.Answer(from, q.ID, q)
	case DigestsReply:
		m.calls.Answer(from, q.ID, q)
	}
	return m.effects()
}

// ask sends a request to a broker, and calls done with its reply, or with why there is none.
func (m *Manual) ask(to replica.BrokerID, timeout time.Duration, request func(id uint64) Message, done func(reply Message, failed string)) {
	deadline := time.Time{}
	if timeout > 0 {
		deadline = m.now.Add(timeout)
	}
	id := m.calls.Begin(to, deadline, done)
	m.emit(Send{to, request(id)})
}

// change puts a change in the queue. make is called when its turn has come.
func (m *Manual) change(c *change) {
	m.changes = append(m.changes, c)
	if len(m.changes) == 1 {
		m.store()
	}
}

// store begins to store the first change of the queue that there is something to store of.
func (m *Manual) store() {
	for len(m.changes) > 0 && !m.storing { // what follows a change may have begun to store the next
		c := m.changes[0]
		var err error
		if c.records, err = c.make(m.image); err == nil {
			c.next, err = m.image.Apply(c.records...)
		}
		persist := c.records
		if err == nil && c.copied {
			persist = m.stored.Diff(c.next) // and what could not be stored before
		}
		if err == nil && len(persist) > 0 {
			m.storing = true
			m.emit(Persist{Records: persist})
			return
		}
		m.changes = m.changes[1:]
		if err == nil && len(c.records) > 0 {
			m.take(c) // it is on the disk already
		}
		c.done(err)
	}
}

// Persisted implements Machine: a change counts once it is durable.
func (m *Manual) Persisted(now time.Time, err error) []Effect {
	m.begin(now)
	c := m.changes[0]
	m.changes, m.storing = m.changes[1:], false
	if err == nil {
		m.stored = c.next
	}
	if err != nil && c.copied {
		m.emit(Warn{fmt.Sprintf("a decision could not be stored on this broker, which goes on with it: %v", err)})
		err = nil
	}
	if err == nil {
		m.take(c)
	}
	c.done(err)
	m.store()
	return m.effects()
}

// take makes a change count.
func (m *Manual) take(c *change) {
	for _, r := range c.records {
		if r.Topic != nil {
			m.out = append(m.out, Removed(m.image.Topic(r.Topic.Name), r.Topic, m.cfg.ID)...)
		}
	}
	m.image = c.next
	if m.keeps() {
		m.version += int64(len(c.records))
		if m.tail = append(m.tail, c.records...); len(m.tail) > maxTail {
			m.tail = slices.Clone(m.tail[len(m.tail)-maxTail/2:])
		}
		m.health.Hurry(m.now) // the others hear of it at once
	}
	for _, r := range c.records {
		if p := r.Partition; p != nil && m.image.Topic(p.Topic) != nil {
			m.decide(Partition{Topic: p.Topic, ID: p.Partition}, p.Assignment)
		}
	}
	if m.keeps() {
		m.beat()
	}
}

// maxTail is how many of the latest decisions are kept for those who ask what is new.
const maxTail = 20_000

// heard takes in how far the decisions have come, as their keeper says.
func (m *Manual) heard(from replica.BrokerID, version int64) {
	if from != m.cfg.At || m.keeps() || m.fetching || version == 0 || version == m.followed && m.registered {
		return
	}
	m.fetching = true
	register := !m.registered
	m.ask(from, m.cfg.RequestTimeout, func(id uint64) Message {
		return FetchDecisions{ID: id, Since: m.followed, Register: register}
	}, func(reply Message, failed string) {
		d, ok := reply.(Decisions)
		if !ok || d.Err != "" {
			m.fetching = false
			m.emit(Warn{fmt.Sprintf("cannot fetch the decisions from broker %d: %s%s", from, failed, d.Err)})
			return
		}
		m.follow(d, register)
	})
}

// follow takes over what the keeper has decided.
func (m *Manual) follow(d Decisions, registered bool) {
	c := &change{copied: true}
	c.make = func(image *metadata.Image) ([]metadata.Record, error) {
		if !d.Whole {
			return d.Records, nil
		}
		next, err := new(metadata.Image).Apply(d.Records...)
		if err != nil {
			return nil, err
		}
		return image.Diff(next), nil
	}
	c.done = func(err error) {
		m.fetching = false
		if err != nil {
			m.emit(Warn{fmt.Sprintf("the decisions that broker %d sent cannot be read: %v", m.cfg.At, err)})
			m.followed = 0 // all of them, next time
			return
		}
		m.followed = d.Version
		if registered {
			m.registered = true
			m.decideAll(func(replica.Assignment) bool { return true })
		}
	}
	m.change(c)
}

// serve answers a broker that asks for decisions.
func (m *Manual) serve(from replica.BrokerID, q FetchDecisions) {
	reply := func(err error) {
		d := Decisions{ID: q.ID, Version: m.version}
		switch old := m.version - q.Since; {
		case err != nil:
			d.Err = err.Error()
		case old >= 0 && old <= int64(len(m.tail)) && q.Since > 0:
			d.Records = m.tail[int64(len(m.tail))-old:]
		default:
			d.Whole, d.Records = true, m.image.Records()
		}
		m.emit(Send{from, d})
	}
	switch {
	case !m.keeps():
		m.emit(Send{from, Decisions{ID: q.ID, Err: fmt.Sprintf("broker %d does not keep the decisions, broker %d does; check the lists of peers", m.cfg.ID, m.cfg.At)}})
	case q.Register:
		m.register(from, reply)
	default:
		reply(nil)
	}
}

// register records a broker that starts, and begins a new epoch for each partition that
// it leads. A leader that was away may have lost records that were never synced, and
// gives their offsets out again: the epoch tells the new ones from the old (KIP-101).
func (m *Manual) register(id replica.BrokerID, done func(error)) {
	m.change(&change{done: done, make: func(image *metadata.Image) ([]metadata.Record, error) {
		if id <= replica.None {
			return nil, &BrokerError{fmt.Sprintf("a broker cannot have the id %d; ids are positive", id)}
		}
		var out []metadata.Record
		if _, known := slices.BinarySearch(image.Brokers(), id); !known {
			out = append(out, metadata.Record{Broker: &metadata.BrokerRecord{ID: id}})
		}
		for p, a := range image.Assignments() {
			if a.Leader != id {
				continue
			}
			next, err := ledBy(a, id)
			if err != nil {
				return nil, err
			}
			out = append(out, assignedIn(image, p, next))
		}
		return out, nil
	}})
}

// Assigned is the decision about a partition of the topic with an id.
func Assigned(id topic.ID, p Partition, a replica.Assignment) metadata.Record {
	return metadata.Record{Partition: &metadata.PartitionRecord{Topic: p.Topic, TopicID: id, Partition: p.ID, Assignment: a}}
}

// assignedIn is Assigned for a partition that there is.
func assignedIn(image *metadata.Image, p Partition, a replica.Assignment) metadata.Record {
	return Assigned(image.Topic(p.Topic).ID, p, a)
}

// NextEpoch counts a leader epoch up, as far as there are numbers.
func NextEpoch(epoch int32) (int32, error) {
	if epoch >= MaxEpoch {
		return 0, &EpochError{Epoch: epoch}
	}
	return epoch + 1, nil
}

// Propose implements Machine. Over a network no refusal is certain: it may be of a proposal
// that was repeated on its way and taken the first time, and one whose answer was lost may
// still arrive and be taken. The next decision settles it.
func (m *Manual) Propose(now time.Time, p Partition, a replica.Assignment) []Effect {
	m.begin(now)
	if m.keeps() {
		m.propose(p, a, func(err error) {
			if err != nil {
				_, unsure := errors.AsType[*metadata.UnsettledError](err)
				m.emit(Reject{p, a.Version, err.Error(), unsure})
			}
		})
		return m.effects()
	}
	m.ask(m.cfg.At, m.cfg.RequestTimeout, func(id uint64) Message { return ProposeChange{id, p, a} }, func(reply Message, failed string) {
		r, ok := reply.(ChangeProposed)
		switch {
		case !ok:
			m.emit(Reject{p, a.Version, fmt.Sprintf("broker %d, which keeps the decisions, has not answered: %s", m.cfg.At, failed), true})
		case r.Err != "":
			m.emit(Reject{p, a.Version, r.Err, true})
		}
	})
	return m.effects()
}

func (m *Manual) propose(p Partition, a replica.Assignment, done func(error)) {
	m.change(&change{done: done, make: func(image *metadata.Image) ([]metadata.Record, error) {
		if _, err := proposedOn(image, p, a); err != nil {
			return nil, err
		}
		return []metadata.Record{assignedIn(image, p, a)}, nil
	}})
}

func (m *Manual) proposedBy(from replica.BrokerID, q ProposeChange) {
	if !m.keeps() || q.Assignment.Leader != from {
		m.emit(Send{from, ChangeProposed{ID: q.ID, Err: fmt.Sprintf("broker %d cannot decide that for broker %d", m.cfg.ID, from)}})
		return
	}
	m.propose(q.Partition, q.Assignment, func(err error) {
		r := ChangeProposed{ID: q.ID}
		if err != nil {
			r.Err = err.Error()
		}
		m.emit(Send{from, r})
	})
}
