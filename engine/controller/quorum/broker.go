package quorum

import (
	"fmt"
	"slices"
	"time"

	"logbook/engine/controller"
	"logbook/engine/metadata"
	"logbook/engine/replica"
)

// broker is what the broker does with what is decided, and shows the active controller.
type broker struct {
	begun      bool // its life is in the journal
	registered bool // it has seen its life registered
	beatAt     time.Time
	seq        uint64
	asked      map[uint64]time.Time // heartbeats that were not acknowledged, by seq: when they were sent
	remade     map[controller.Partition]time.Time
	own        []controller.Partition // those that it has a replica of, by ownOf
	ownOf      *metadata.Image
}

// replicas are the partitions that this broker has a replica of.
func (c *Controller) replicas() []controller.Partition {
	b := &c.broker
	if b.ownOf == c.image {
		return b.own
	}
	b.own, b.ownOf = c.image.ReplicasOn(c.cfg.ID), c.image
	return b.own
}

// tickBroker sends the heartbeat that is due.
func (c *Controller) tickBroker() {
	b := &c.broker
	if !b.begun || c.broken != nil || c.now.Before(b.beatAt) {
		return
	}
	b.beatAt = c.now.Add(heartbeatTicks * c.tick())
	active := c.ControllerID()
	unusable := c.unusable()
	if active == replica.None {
		return
	}
	b.seq++
	b.asked[b.seq] = c.now
	delete(b.asked, b.seq-2*ticksOfSession) // its lease would be over
	self, _ := c.image.Broker(c.cfg.ID)
	c.emit(controller.Send{To: active, Message: controller.BrokerHeartbeat{
		Cluster: c.self.Cluster, Seq: b.seq, Life: c.self.Life, Applied: c.applied, Fenced: b.registered && self.Fenced, Leaving: c.leave, Unusable: unusable, Role: c.cfg.Role, Rack: c.cfg.Rack,
	}})
}

// acknowledged is a lease.
func (c *Controller) acknowledged(from replica.BrokerID, q controller.BrokerHeartbeatAck) {
	b := &c.broker
	sent, ok := b.asked[q.Seq]
	if !ok || q.Life != c.self.Life {
		return
	}
	for seq := range b.asked {
		if seq <= q.Seq {
			delete(b.asked, seq)
		}
	}
	if b.registered && c.broken == nil {
		c.emit(controller.Lease{Until: sent.Add(leaseTicks * c.tick())})
	}
}

// unusable are this broker's replicas that can neither lead nor follow. Those that are damaged or
// missing, and that nobody needs since others have all of it, are begun anew.
func (c *Controller) unusable() (parts []controller.Partition) {
	for _, p := range c.replicas() {
		if c.cfg.Usable(p) {
			delete(c.broker.remade, p)
			continue
		}
		s, _ := c.cfg.Standing(p)
		parts = append(parts, p)
		if a, decided := c.image.Assignment(p); decided && !s.Passing {
			c.remake(p, a)
		}
	}
	return parts
}

// remake begins a replica anew, if it is surely not the last good one: others are in sync, and
// one of them leads.
func (c *Controller) remake(p controller.Partition, a replica.Assignment) {
	if !c.broker.registered || a.Leader == replica.None || a.Leader == c.cfg.ID || slices.Contains(a.ISR, c.cfg.ID) || c.now.Before(c.broker.remade[p]) {
		return
	}
	if c.broker.remade == nil {
		c.broker.remade = map[controller.Partition]time.Time{}
	}
	c.broker.remade[p] = c.now.Add(c.session())
	c.emit(controller.Remake{Partition: p, Assignment: a})
}

// follow does on this broker what was decided.
func (c *Controller) follow(old, next *metadata.Image) {
	if old == next {
		return
	}
	for _, r := range old.Diff(next) {
		switch {
		case r.Topic != nil:
			for _, e := range controller.Removed(old.Topic(r.Topic.Name), r.Topic, c.cfg.ID) {
				c.emit(e)
			}
		case r.Partition != nil:
			p, a := controller.Partition{Topic: r.Partition.Topic, ID: r.Partition.Partition}, r.Partition.Assignment
			if was, ok := old.Assignment(p); ok && a.Leader != replica.None && len(was.ISR) > 0 && !slices.Contains(was.ISR, a.Leader) {
				c.uncleanElections++
				c.emit(controller.Warn{Text: fmt.Sprintf("%s is led by broker %d, which was not in sync, as its topic's settings allow: acknowledged records may be lost", p, a.Leader)})
			}
			if was, ok := old.Assignment(p); ok && slices.Contains(was.Replicas, c.cfg.ID) && !slices.Contains(a.Replicas, c.cfg.ID) {
				c.emit(controller.RemoveReplicas{Topic: p.Topic, Partitions: []int{p.ID}, Moved: true})
			}
			c.decide(p, a)
		case r.Broker != nil && r.Broker.ID != c.cfg.ID:
			if !r.Broker.Removed {
				c.health.Add(r.Broker.ID)
			}
			if was, known := old.Broker(r.Broker.ID); known && !was.Fenced && r.Broker.Fenced {
				c.emit(controller.Silent{Peer: r.Broker.ID, Why: "the controller does not hear of it"})
			}
		}
	}
	if c.broker.begun {
		c.checkRemoved()
	}
	if self, _ := next.Broker(c.cfg.ID); !c.broker.registered && c.broker.begun && self.Life == c.self.Life {
		c.broker.registered, c.broker.beatAt = true, c.now
		c.decideAll()
	}
}

// decideAll hands this broker's replicas the present decisions.
func (c *Controller) decideAll() {
	for p, a := range c.image.Assignments() {
		c.decide(p, a)
	}
}

// decide hands a replica its decision. What an earlier life was to lead, this one does not lead.
func (c *Controller) decide(p controller.Partition, a replica.Assignment) {
	if slices.Contains(a.Replicas, c.cfg.ID) && (c.broker.registered || a.Leader != c.cfg.ID) {
		c.emit(controller.Decide{Partition: p, Assignment: a})
	}
}

// Propose implements controller.Machine. No refusal is certain: a proposal may have been repeated
// on its way, and taken the first time. The next decision settles it.
func (c *Controller) Propose(now time.Time, p controller.Partition, a replica.Assignment) []controller.Effect {
	c.begin(now)
	reject := func(why string) {
		c.emit(controller.Reject{Partition: p, Version: a.Version, Why: why, Unsure: true})
	}
	active := c.ControllerID()
	switch {
	case c.office != nil:
		c.proposeISR(c.cfg.ID, p, a, func(err error) {
			if err != nil {
				reject(err.Error())
			}
		})
	case active == replica.None || active == c.cfg.ID:
		reject((&controller.NoControllerError{}).Error())
	default:
		c.ask(active, c.session(), func(id uint64) controller.Message {
			return controller.ProposeChange{ID: id, Partition: p, Assignment: a}
		}, func(reply controller.Message, failed string) {
			if r, ok := reply.(controller.ChangeProposed); !ok {
				reject("the active controller has not answered: " + failed)
			} else if r.Err != "" {
				reject(r.Err)
			}
		})
	}
	return c.effects()
}

// ReplicasMade implements controller.Machine.
func (c *Controller) ReplicasMade(now time.Time, id uint64, err error) []controller.Effect {
	c.begin(now)
	if done := c.made[id]; done != nil {
		delete(c.made, id)
		done(err)
	}
	return c.effects()
}

// makeReplicas makes this broker's own replicas of a topic that is about to be.
func (c *Controller) makeReplicas(name string, parts []int, done func(error)) {
	c.nextID++
	c.made[c.nextID] = done
	c.emit(controller.MakeReplicas{ID: c.nextID, Topic: name, Partitions: parts})
}

func (c *Controller) createFor(from replica.BrokerID, q controller.CreateReplicas) {
	if from != c.ControllerID() {
		return
	}
	c.makeReplicas(q.Topic, q.Partitions, func(err error) {
		r := controller.ReplicasCreated{ID: q.ID}
		if err != nil {
			r.Err = err.Error()
		}
		c.emit(controller.Send{To: from, Message: r})
	})
}

// Leave implements controller.Machine: the active controller has others lead what this broker
// leads; if it is this broker itself, another is elected then.
func (c *Controller) Leave(now time.Time) []controller.Effect {
	c.begin(now)
	c.leave = true
	c.broker.beatAt = now
	c.tickBroker()
	return c.effects()
}

// Left implements controller.Machine.
func (c *Controller) Left() bool {
	if !c.leave {
		return false
	}
	if c.self.formed() && c.image.Usable(c.cfg.ID) {
		return false
	}
	others := slices.ContainsFunc(c.image.Brokers(), func(id replica.BrokerID) bool { return id != c.cfg.ID && c.image.Usable(id) })
	return c.office == nil || !others
}
