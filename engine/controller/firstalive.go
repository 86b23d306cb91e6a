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

// FirstAliveConfig configures a FirstAlive.
type FirstAliveConfig struct {
	ID      replica.BrokerID
	Brokers []replica.BrokerID // all of them

	HealthEvery    time.Duration // between heartbeats
	FailAfter      int           // unanswered heartbeats that make a broker dead; 0 is 3
	RequestTimeout time.Duration // for the others to hear of a new topic

	// Standing says how far this broker's log of a partition has come; ok is false where it
	// has none that can be used.
	Standing func(Partition) (s Standing, ok bool)
}

// FirstAlive is kafka-lite's controller: there is none. It tells the other brokers what this
// one leads, hears what they do, and lets a Reckoning make sense of it. Topics are made
// wherever somebody asks; the others hear of them with the next heartbeat.
type FirstAlive struct {
	cfg    FirstAliveConfig
	image  *metadata.Image
	now    time.Time
	out    []Effect
	mind   *Reckoning
	health Health

	state    State // what the others are told
	told     map[replica.BrokerID]uint64
	heardGen map[replica.BrokerID]uint64 // of the last state that came from each
	topics   []*newTopic                 // being made, one at a time
	spread   []*newTopic                 // made, until the others have heard
	lastID   uint64
	warned   map[string]bool
	leaving  bool
}

// newTopic is a topic that is being made on this broker.
type newTopic struct {
	id       uint64 // of the command; 0: another broker made it
	making   uint64 // of the MakeReplicas under way
	record   metadata.TopicRecord
	records  []metadata.Record
	gen      uint64 // of the state that tells of it
	deadline time.Time
}

// NewFirstAlive returns the controller of one broker. image is what was stored.
//
// Error: *BrokerError.
func NewFirstAlive(cfg FirstAliveConfig, image *metadata.Image) (*FirstAlive, error) {
	mind, err := NewReckoning(cfg.ID, cfg.Brokers, ReckoningOptions{FailAfter: cfg.FailAfter})
	if err != nil {
		return nil, err
	}
	c := &FirstAlive{
		cfg: cfg, image: image, mind: mind, told: map[replica.BrokerID]uint64{}, heardGen: map[replica.BrokerID]uint64{}, warned: map[string]bool{},
		health: NewHealth(cfg.ID, cfg.Brokers, cfg.HealthEvery, mind.opt.FailAfter),
	}
	return c, nil
}

// Name implements Machine.
func (c *FirstAlive) Name() string { return "first-alive" }

// Image implements Machine.
func (c *FirstAlive) Image() *metadata.Image { return c.image }

// ControllerID implements Machine: any broker takes commands.
func (c *FirstAlive) ControllerID() replica.BrokerID { return replica.None }

// Applied implements Machine: each broker reckons for itself.
func (c *FirstAlive) Applied() uint64 { return 0 }

// Alive implements Machine.
func (c *FirstAlive) Alive(id replica.BrokerID) bool { return c.mind.alive[id] }

func (c *FirstAlive) begin(now time.Time) { c.now, c.out = now, nil }

func (c *FirstAlive) emit(e Effect) { c.out = append(c.out, e) }

// effects ends every input: what was reckoned is decided, and told to the others at once.
func (c *FirstAlive) effects() []Effect {
	c.check()
	for changes := c.mind.Changes(); len(changes) > 0; changes = c.mind.Changes() {
		for _, d := range changes {
			if slices.Contains(d.Assignment.Replicas, c.cfg.ID) {
				c.emit(d)
			}
		}
		c.image = c.image.Reckoned(func(yield func(Partition, replica.Assignment) bool) {
			for _, d := range changes {
				if !yield(d.Partition, d.Assignment) {
					return
				}
			}
		})
		c.refresh()
	}
	c.check()
	c.spreadOn()
	out := c.out
	c.out = nil
	return out
}

// Start implements Machine.
func (c *FirstAlive) Start(now time.Time) []Effect {
	c.begin(now)
	c.state.Generation = uint64(max(1, now.UnixNano())) // above those of an earlier life
	for _, name := range c.image.Topics() {
		c.know(c.image.Topic(name))
	}
	c.refresh()
	return c.effects()
}

// know makes the mind reckon with a topic.
func (c *FirstAlive) know(t *metadata.Topic) {
	epochs := map[int]int32{}
	for i := range t.Partitions {
		if s, ok := c.cfg.Standing(Partition{Topic: t.Name, ID: i}); ok {
			epochs[i] = max(0, s.LastEpoch)
		}
	}
	c.mind.Stands(c.cfg.ID, c.standings())
	c.mind.AddTopic(t.Name, len(t.Partitions), t.Replication, epochs)
}

// standings looks at this broker's logs.
func (c *FirstAlive) standings() []Standing {
	var out []Standing
	for _, p := range c.image.ReplicasOn(c.cfg.ID) {
		s, ok := c.cfg.Standing(p)
		if !ok || c.leaving {
			s = Standing{Partition: p, Unusable: true, Passing: s.Passing && !c.leaving}
		}
		out = append(out, s)
	}
	return out
}

// refresh makes the state what it is now, and a new generation of it if the others must hear.
func (c *FirstAlive) refresh() {
	next := State{Generation: c.state.Generation, Leaving: c.leaving, Claims: c.mind.Claims(), Standings: c.standings()}
	for _, name := range c.image.Topics() {
		next.Topics = append(next.Topics, *c.image.Topic(name).Record())
	}
	for _, name := range c.image.AllDeleted() {
		next.Topics = append(next.Topics, *c.image.Deleted(name))
	}
	if slices.EqualFunc(next.Claims, c.state.Claims, sameClaim) && slices.EqualFunc(next.Topics, c.state.Topics, sameTopic) && next.Leaving == c.state.Leaving && !c.moved(next.Standings) {
		return
	}
	c.mind.Stands(c.cfg.ID, next.Standings)
	next.Generation++
	c.state = next
	c.health.Hurry(c.now)
}

func sameTopic(a, b metadata.TopicRecord) bool {
	return a.Name == b.Name && a.ID == b.ID && max(a.Version, 1) == max(b.Version, 1) && a.Deleted == b.Deleted && a.Partitions == b.Partitions
}

func sameClaim(a, b LeadershipClaim) bool {
	return a.Partition == b.Partition && a.LeaderEpoch == b.LeaderEpoch && slices.Equal(a.ISR, b.ISR)
}

// moved reports whether the standings differ in what counts: the epoch, and the length
// where nobody leads. Under a leader the length changes all the time, and is not asked for.
func (c *FirstAlive) moved(next []Standing) bool {
	return !slices.EqualFunc(next, c.state.Standings, func(a, b Standing) bool {
		return a.Partition == b.Partition && a.Unusable == b.Unusable && a.Passing == b.Passing && a.LastEpoch == b.LastEpoch && (a.LogEndOffset == b.LogEndOffset || c.led(a.Partition))
	})
}

func (c *FirstAlive) led(p Partition) bool {
	a := c.mind.parts[p]
	return a != nil && a.Leader != replica.None && a.LeaderEpoch > 0
}

// check sends the heartbeats that are due, and counts those that were not answered.
func (c *FirstAlive) check() {
	send, failed := c.health.Due(c.now)
	for _, id := range failed {
		c.mind.Failed(id)
		if !c.mind.alive[id] {
			c.heardGen[id] = 0 // what it claimed is forgotten: it must be told anew
		}
		if c.health.state[id].missed == 2 {
			c.emit(Silent{id, "it does not answer"})
		}
	}
	for _, id := range send {
		h := Heartbeat{Seq: c.health.state[id].seq}
		if c.told[id] != c.state.Generation {
			state := c.state
			h.State = &state
		}
		c.emit(Send{id, h})
	}
}

// Leave implements Machine: a broker that stops leads nothing, as one whose logs have failed.
func (c *FirstAlive) Leave(now time.Time) []Effect {
	c.begin(now)
	c.leaving = true
	c.refresh()
	return c.effects()
}

// Left implements Machine.
func (c *FirstAlive) Left() bool {
	return c.leaving && !slices.ContainsFunc(c.health.peers, func(id replica.BrokerID) bool {
		return c.mind.alive[id] && c.told[id] < c.state.Generation
	})
}

// Tick implements Machine.
func (c *FirstAlive) Tick(now time.Time) []Effect {
	c.begin(now)
	if len(c.health.peers) > 0 {
		c.refresh()
	}
	return c.effects()
}

// Next implements Machine.
func (c *FirstAlive) Next() time.Time {
	next := c.health.Next()
	for _, t := range c.spread {
		next = Sooner(next, t.deadline)
	}
	return next
}

// Unreachable implements Machine. Only checks that fail make a broker dead.
func (c *FirstAlive) Unreachable(now time.Time, peer replica.BrokerID, _ string) []Effect {
	c.begin(now)
	delete(c.told, peer) // it may have started anew, and know nothing
	return c.effects()
}

// Step implements Machine.
func (c *FirstAlive) Step(now time.Time, from replica.BrokerID, m Message) []Effect {
	c.begin(now)
	if c.health.state[from] == nil {
		return nil
	}
	c.health.Heard(from)
	switch q := m.(type) {
	case Heartbeat:
		if s := q.State; s != nil && s.Generation >= c.heardGen[from] {
			c.heardGen[from] = s.Generation
			c.hear(from, s)
		}
		c.emit(Send{from, HeartbeatAck{Seq: q.Seq, Generation: c.heardGen[from]}})
	case HeartbeatAck:
		if c.told[from] = q.Generation; q.Generation != c.state.Generation {
			c.health.state[from].next = c.now
		}
	}
	if c.heardGen[from] > 0 {
		c.mind.Answered(from)
	}
	return c.effects()
}

// hear takes in what another broker says of itself.
func (c *FirstAlive) hear(from replica.BrokerID, s *State) {
	for _, t := range s.Topics {
		c.learn(from, t)
	}
	c.mind.Leaving(from, s.Leaving)
	c.mind.Stands(from, s.Standings)
	c.mind.Heard(from, s.Claims)
}

// learn takes in what another broker says of a topic, if it is news. Two topics of one name,
// made while the brokers could not hear each other, become one: see TopicRecord.Supersedes.
func (c *FirstAlive) learn(from replica.BrokerID, t metadata.TopicRecord) {
	if slices.ContainsFunc(c.topics, func(n *newTopic) bool { return n.record.Name == t.Name }) {
		return // it comes again with the next state
	}
	old, gone := c.image.Topic(t.Name), c.image.Deleted(t.Name)
	switch {
	case old != nil:
		was := old.Record()
		if sameTopic(*was, t) || !t.Supersedes(was) {
			return
		}
		if was.ID != t.ID && was.Version == max(t.Version, 1) {
			c.emit(Warn{fmt.Sprintf("broker %d has another topic %q, with %d partitions, not %d: both were made while the brokers could not hear each other; this broker takes it over, and where the records of a partition differ, the leader's count", from, t.Name, t.Partitions, len(old.Partitions))})
		}
	case gone != nil:
		if sameTopic(*gone, t) || !t.Supersedes(gone) {
			return
		}
	}
	spec := TopicSpec{Name: t.Name, ID: t.ID, Partitions: t.Partitions, Replication: t.Replication, Partitioner: t.Partitioner, Settings: t.Settings}
	if CheckTopic(new(metadata.Image), spec) == nil && checkReplication(t.Replication, c.cfg.Brokers) == nil {
		c.makeTopic(&newTopic{record: t})
	}
}

// CreateTopic implements Machine.
func (c *FirstAlive) CreateTopic(now time.Time, id uint64, spec TopicSpec) []Effect {
	c.begin(now)
	err := CheckTopic(c.image, spec)
	if err == nil {
		err = checkReplication(spec.Replication, c.cfg.Brokers)
	}
	switch {
	case err != nil:
	case slices.ContainsFunc(c.topics, func(n *newTopic) bool { return n.record.Name == spec.Name }):
		err = &topic.ExistsError{Name: spec.Name}
	}
	if err != nil {
		c.emit(Done{ID: id, Err: err})
		return c.effects()
	}
	c.makeTopic(&newTopic{id: id, record: *spec.Record(c.image)})
	return c.effects()
}

// ChangeTopic implements Machine.
func (c *FirstAlive) ChangeTopic(now time.Time, id uint64, change TopicChange) []Effect {
	c.begin(now)
	r, err := change.Record(c.image)
	if err == nil && slices.ContainsFunc(c.topics, func(n *newTopic) bool { return n.record.Name == change.Name }) {
		err = &BusyError{Topic: change.Name}
	}
	if err != nil {
		c.emit(Done{ID: id, Err: err})
		return c.effects()
	}
	c.makeTopic(&newTopic{id: id, record: *r})
	return c.effects()
}

func (c *FirstAlive) makeTopic(t *newTopic) {
	c.topics = append(c.topics, t)
	if len(c.topics) == 1 {
		c.nextTopic()
	}
}

// nextTopic begins to make the first topic of the queue: its replicas on this broker.
func (c *FirstAlive) nextTopic() {
	if len(c.topics) == 0 {
		return
	}
	t := c.topics[0]
	old := c.image.Topic(t.record.Name)
	if old != nil && (t.record.Deleted || old.ID != t.record.ID && t.record.Version > old.Version) {
		c.out = append(c.out, Removed(old, &t.record, c.cfg.ID)...)
		c.mind.RemoveTopic(old.Name)
		old = nil
	}
	var mine []int
	for i := range t.record.Partitions {
		if t.record.Deleted || old != nil && i < len(old.Partitions) && slices.Contains(old.Partitions[i].Replicas, c.cfg.ID) {
			continue // there is nothing to make, or it has them
		}
		if slices.Contains(AssignReplicas(t.record.Name, i, t.record.Replication, c.cfg.Brokers), c.cfg.ID) {
			mine = append(mine, i)
		}
	}
	c.lastID++
	t.making = c.lastID
	c.emit(MakeReplicas{t.making, t.record.Name, mine})
}

// ReplicasMade implements Machine: the topic is recorded durably after its replicas were made.
func (c *FirstAlive) ReplicasMade(now time.Time, id uint64, err error) []Effect {
	c.begin(now)
	if len(c.topics) == 0 || c.topics[0].making != id {
		return c.effects()
	}
	t := c.topics[0]
	if err != nil {
		c.made(t, err)
		return c.effects()
	}
	for _, b := range c.cfg.Brokers {
		t.records = append(t.records, metadata.Record{Broker: &metadata.BrokerRecord{ID: b}})
	}
	t.records = append(t.records, metadata.Record{Topic: &t.record})
	old := c.image.Topic(t.record.Name)
	for i := range t.record.Partitions {
		if t.record.Deleted || old != nil && old.ID == t.record.ID && i < len(old.Partitions) {
			continue
		}
		replicas := AssignReplicas(t.record.Name, i, t.record.Replication, c.cfg.Brokers)
		t.records = append(t.records, Assigned(t.record.ID, Partition{Topic: t.record.Name, ID: i}, replica.Assignment{Version: 1, Replicas: replicas, ISR: slices.Sorted(slices.Values(replicas))}))
	}
	c.emit(Persist{Records: t.records})
	return c.effects()
}

// Persisted implements Machine.
func (c *FirstAlive) Persisted(now time.Time, err error) []Effect {
	c.begin(now)
	t := c.topics[0]
	next := c.image
	if err == nil {
		next, err = c.image.Apply(t.records...)
	}
	if err == nil {
		c.image = next
		if made := c.image.Topic(t.record.Name); made != nil {
			c.know(made)
		}
		c.refresh()
	}
	c.made(t, err)
	return c.effects()
}

// made ends the making of a topic here. The command is done once the others have heard.
func (c *FirstAlive) made(t *newTopic, err error) {
	c.topics = c.topics[1:]
	switch {
	case err != nil && t.id == 0:
		c.emit(Warn{fmt.Sprintf("cannot make the replicas of topic %q, which another broker made: %v", t.record.Name, err)})
	case err != nil:
		c.emit(Done{ID: t.id, Err: err})
	case t.id != 0:
		t.gen, t.deadline = c.state.Generation, c.now.Add(c.cfg.RequestTimeout)
		c.spread = append(c.spread, t)
	}
	c.nextTopic()
}

// spreadOn ends the commands whose topics all living brokers know. Those who are away hear
// of it when they come back.
func (c *FirstAlive) spreadOn() {
	c.spread = slices.DeleteFunc(c.spread, func(t *newTopic) bool {
		for _, id := range c.health.peers {
			if c.mind.alive[id] && c.told[id] < t.gen && c.now.Before(t.deadline) {
				return false
			}
		}
		c.emit(Done{ID: t.id})
		return true
	})
}

// Propose implements Machine.
func (c *FirstAlive) Propose(now time.Time, p Partition, a replica.Assignment) []Effect {
	c.begin(now)
	if err := c.mind.Propose(p, a); err != nil {
		c.emit(Reject{Partition: p, Version: a.Version, Why: err.Error()})
	}
	return c.effects()
}

// Failover implements Machine: there is nothing to decide by command.
func (c *FirstAlive) Failover(now time.Time, id uint64, p Partition) []Effect {
	c.begin(now)
	c.emit(Done{ID: id, Err: ErrNoCommands})
	return c.effects()
}

// ErrNoCommands: this kind of controller takes no decision by command.
var ErrNoCommands = errors.New("controller: with first-alive each broker reckons who leads, and nothing is decided by command; choose the manual controller for that")
