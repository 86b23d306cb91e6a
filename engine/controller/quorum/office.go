package quorum

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.etcd.io/raft/v3"

	"logbook/engine/controller"
	"logbook/engine/metadata"
	"logbook/engine/replica"
)

// office is the active controller's: the member that the others elected, once it knows all that
// was decided before.
type office struct {
	term     uint64
	ahead    *metadata.Image // when all counts that is being agreed on
	pending  map[uint64]func(error)
	sessions map[replica.BrokerID]time.Time              // when each is over
	moved    map[replica.BrokerID]uint64                 // index of the last decision that had others lead what a broker led
	unusable map[replica.BrokerID][]controller.Partition // replicas that a broker cannot use, as it said last
	balance  time.Time                                   // when to look at the preferred leaders
	electAt  time.Time                                   // when to look at partitions that nobody leads
	moving   bool                                        // some partition may be on its way to other brokers
	began    time.Time
	waiting  []func() // commands, until the brokers have had time to show that they live
	members  members
}

// decision is an entry's data.
type decision struct {
	Member  uint64            `json:"member"` // whose it is
	ID      uint64            `json:"id"`     // among that member's
	Records []metadata.Record `json:"records"`
}

// decodeDecision reads an entry; nil where it decides nothing, as the first of a term.
func decodeDecision(data []byte) (*decision, error) {
	if len(data) == 0 {
		return nil, nil
	}
	d := &decision{}
	return d, json.Unmarshal(data, d)
}

// takeOffice begins to decide, when an entry of the member's own term counts: then all that
// earlier terms decided does.
func (c *Controller) takeOffice(term uint64) {
	s := c.node.BasicStatus()
	if c.office != nil || s.RaftState != raft.StateLeader || s.Term != term {
		return
	}
	o := &office{
		term: term, began: c.now, ahead: c.image, pending: map[uint64]func(error){}, sessions: map[replica.BrokerID]time.Time{}, moved: map[replica.BrokerID]uint64{}, unusable: map[replica.BrokerID][]controller.Partition{},
		balance: c.now.Add(balanceSessions * c.session()), moving: true, members: members{removed: map[replica.BrokerID]time.Time{}},
	}
	c.office = o
	// Whoever was told by an earlier controller that it may serve has its time. That was confirmed
	// by a majority, and one of them has voted since, which it does only when it has not heard of
	// that controller for as long as an election takes to come: so much of the time is over. Where
	// that controller handed over, they have voted at once.
	rest := c.session()
	if !c.handed {
		rest -= electionTicks * c.tick()
	}
	for _, id := range c.image.Brokers() {
		o.sessions[id] = c.now.Add(rest)
		o.moved[id] = c.applied
	}
	c.change(func(image *metadata.Image) (out []metadata.Record, err error) {
		for _, id := range c.cfg.Brokers {
			_, known := image.Broker(id)
			if _, removed := image.Removed(id); !known && !removed {
				out = append(out, metadata.Record{Broker: &metadata.BrokerRecord{ID: id, Fenced: true}})
			}
		}
		return out, nil
	}, func(error) {})
	c.broker.beatAt = c.now
}

// loseOffice: another member is being elected. What was not agreed on may still come to count.
func (c *Controller) loseOffice() {
	o := c.office
	c.office = nil
	for _, do := range o.waiting {
		do()
	}
	o.members.end(&controller.UnsureError{}) // it may count all the same
	for _, id := range slices.Sorted(maps.Keys(o.pending)) {
		o.pending[id](&controller.UnsureError{})
	}
}

// change decides something: make says what, of the image to come. done is called when it counts,
// surely does not, or another controller took over (*UnsureError).
func (c *Controller) change(make func(*metadata.Image) ([]metadata.Record, error), done func(error)) {
	o := c.office
	if o == nil {
		done(&controller.NoControllerError{Known: c.ControllerID()})
		return
	}
	records, err := make(o.ahead)
	if err == nil && len(records) == 0 {
		done(nil)
		return
	}
	next := o.ahead
	if err == nil {
		next, err = o.ahead.Apply(records...)
	}
	if err != nil {
		done(err)
		return
	}
	c.nextID++
	id := c.nextID
	data, err := json.Marshal(decision{c.self.Member, id, records})
	if err == nil {
		err = c.node.Propose(data)
	}
	if err != nil {
		done(fmt.Errorf("%w: %w", &controller.NoControllerError{}, err))
		return
	}
	o.ahead, o.pending[id] = next, done
	o.moving = o.moving || slices.ContainsFunc(records, func(r metadata.Record) bool { return r.Partition != nil && r.Partition.Assignment.Target != nil })
}

// leadersMoved notes from whom a decision took what they led.
func (c *Controller) leadersMoved(old *metadata.Image, records []metadata.Record) {
	if c.office == nil {
		return
	}
	for _, r := range records {
		if r.Partition == nil {
			continue
		}
		a, ok := old.Assignment(controller.Partition{Topic: r.Partition.Topic, ID: r.Partition.Partition})
		if ok && a.Leader != replica.None && a.Leader != r.Partition.Assignment.Leader {
			c.office.moved[a.Leader] = c.applied
		}
	}
}

// decided ends a change whose entry counts.
func (c *Controller) decided(d *decision, problem error) {
	if c.office == nil || d.Member != c.self.Member {
		return
	}
	if done := c.office.pending[d.ID]; done != nil {
		delete(c.office.pending, d.ID)
		done(problem)
	}
}

// heartbeatOf takes a broker's sign of life.
func (c *Controller) heartbeatOf(from replica.BrokerID, q controller.BrokerHeartbeat) {
	o := c.office
	if q.Cluster != c.self.Cluster {
		c.stranger(from, q.Cluster)
		return
	}
	if o == nil {
		return
	}
	r, known := o.ahead.Broker(from)
	if !known || q.Life < r.Life {
		return // of a life that is over
	}
	ignore := func(error) {} // it is looked at again with the next heartbeat
	if q.Life > r.Life {
		c.change(func(image *metadata.Image) ([]metadata.Record, error) {
			r, _ := image.Broker(from)
			r.Life, r.Role, r.Rack = q.Life, q.Role, q.Rack
			return controller.RegisterBroker(image, r, c.cfg.MinInSync)
		}, ignore)
		o.sessions[from] = c.now.Add(c.session())
		return
	}
	o.sessions[from] = c.now.Add(c.session())
	o.unusable[from] = q.Unusable
	switch {
	case q.Leaving:
		c.change(func(image *metadata.Image) ([]metadata.Record, error) {
			return controller.FenceBroker(image, from, c.cfg.MinInSync)
		}, func(error) {
			if from == c.cfg.ID {
				c.handOver()
			}
		})
	case r.Fenced && q.Fenced:
		c.change(func(image *metadata.Image) ([]metadata.Record, error) {
			return controller.UnfenceBroker(image, from, q.Unusable, c.cfg.MinInSync)
		}, ignore)
	}
	if len(q.Unusable) > 0 {
		c.change(func(image *metadata.Image) ([]metadata.Record, error) {
			return controller.GiveUpReplicas(image, from, q.Unusable, c.cfg.MinInSync)
		}, ignore)
	}
	if q.Applied < o.moved[from] {
		return // others lead what it led, and it does not know yet
	}
	// It is acknowledged when a majority has confirmed that this is still the active controller.
	c.node.ReadIndex(readContext(from, q.Seq))
}

// handOver has another member elected, before this broker stops.
func (c *Controller) handOver() {
	for _, id := range c.voters() {
		if b := brokerOf(id); b != c.cfg.ID && c.image.Usable(b) {
			c.node.TransferLeader(id)
			return
		}
	}
}

func readContext(id replica.BrokerID, seq uint64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(nil, uint32(id)), seq)
}

// confirmed acknowledges a heartbeat.
func (c *Controller) confirmed(r raft.ReadState) {
	if c.office == nil || len(r.RequestCtx) != 12 {
		return
	}
	id := replica.BrokerID(binary.BigEndian.Uint32(r.RequestCtx))
	b, _ := c.office.ahead.Broker(id)
	if b.Fenced {
		return // others may lead what it led, and it may not know yet
	}
	c.emit(controller.Send{To: id, Message: controller.BrokerHeartbeatAck{Seq: binary.BigEndian.Uint64(r.RequestCtx[4:]), Life: b.Life}})
}

// tickOffice fences the brokers that are not heard of, and gives partitions back to their
// preferred leaders now and then.
func (c *Controller) tickOffice() {
	o := c.office
	if o == nil {
		return
	}
	for _, id := range o.ahead.Brokers() {
		if c.office == o && o.ahead.Usable(id) && c.now.After(o.sessions[id]) {
			c.change(func(image *metadata.Image) ([]metadata.Record, error) {
				return controller.FenceBroker(image, id, c.cfg.MinInSync)
			}, func(error) {})
		}
	}
	c.runWaiting()
	c.tickMembers()
	if o.moving {
		c.change(controller.FinishReassignments, func(error) {})
		o.moving = controller.Moving(o.ahead)
	}
	if !c.now.Before(o.electAt) {
		o.electAt = c.now.Add(c.session() / 2)
		c.change(func(image *metadata.Image) ([]metadata.Record, error) {
			return controller.ElectEligible(image, c.unfit, c.cfg.MinInSync)
		}, func(error) {})
	}
	if c.office == o && !c.now.Before(o.balance) {
		o.balance = c.now.Add(balanceSessions * c.session())
		c.change(controller.Balance, func(error) {})
	}
}

// unfit reports whether a broker has said that it cannot use a replica.
func (c *Controller) unfit(id replica.BrokerID, p controller.Partition) bool {
	return slices.Contains(c.office.unusable[id], p)
}

func (c *Controller) proposeISR(from replica.BrokerID, p controller.Partition, a replica.Assignment, done func(error)) {
	c.change(func(image *metadata.Image) ([]metadata.Record, error) {
		return controller.ChangeISR(image, from, p, a, func(id replica.BrokerID) bool { return c.unfit(id, p) }, c.cfg.MinInSync)
	}, done)
}

func (c *Controller) proposedBy(from replica.BrokerID, q controller.ProposeChange) {
	c.proposeISR(from, q.Partition, q.Assignment, func(err error) {
		r := controller.ChangeProposed{ID: q.ID}
		if err != nil {
			r.Err = err.Error()
		}
		c.emit(controller.Send{To: from, Message: r})
	})
}

// Reassign implements controller.Machine.
func (c *Controller) Reassign(now time.Time, id uint64, p controller.Partition, replicas []replica.BrokerID) []controller.Effect {
	c.begin(now)
	c.change(func(image *metadata.Image) ([]metadata.Record, error) {
		return controller.ReassignPartition(image, p, replicas)
	}, c.commandDone(id))
	return c.effects()
}

// ChangeUser implements controller.Machine.
func (c *Controller) ChangeUser(now time.Time, id uint64, change controller.UserChange) []controller.Effect {
	c.begin(now)
	c.change(change.Records, c.commandDone(id))
	return c.effects()
}

// Failover implements controller.Machine: a leader that is gone is replaced without a command, so
// all that is left to say is why nobody leads.
func (c *Controller) Failover(now time.Time, id uint64, p controller.Partition) []controller.Effect {
	c.begin(now)
	d := controller.Done{ID: id}
	a, ok := c.image.Assignment(p)
	switch {
	case c.office == nil:
		d.Err = &controller.NoControllerError{Known: c.ControllerID()}
	case !ok:
		d.Err = &controller.UnknownPartitionError{Partition: p}
	case a.Leader != replica.None:
		d.Err = &controller.LeaderStillAvailableError{Partition: p, Leader: a.Leader}
	default:
		reasons := map[replica.BrokerID]string{}
		for _, r := range a.Replicas {
			reasons[r] = "not in sync: it may lack acknowledged records"
			if slices.Contains(a.ISR, r) {
				reasons[r] = "it is in sync, and not heard of"
			}
		}
		d.Err = &controller.NoEligibleReplicaError{Partition: p, Leader: a.Leader, Reasons: reasons}
	}
	c.emit(d)
	return c.effects()
}
