package quorum

import (
	"fmt"
	"slices"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"logbook/engine/controller"
	"logbook/engine/metadata"
	"logbook/engine/replica"
)

// Who votes changes by an entry of the log, one at a time, as Raft has it: it counts when a
// majority of those who vote after it has stored it.

// members is what the active controller has to do about them.
type members struct {
	change  *memberChange                  // under way; nil: none is
	tryAt   time.Time                      // when to look again at who should not be one
	removed map[replica.BrokerID]time.Time // when a removed broker's member is let go
}

// memberChange is a change that waits until it counts.
type memberChange struct {
	counts func() bool
	until  time.Time
	done   func(error)
}

// end ends the change that is under way, if there is one.
func (m *members) end(err error) {
	if w := m.change; w != nil {
		m.change = nil
		w.done(err)
	}
}

// brokers are those of the list that this one was started with, and those that were added while it
// ran, without those that were removed.
func (c *Controller) brokers() []replica.BrokerID { return c.image.Members(c.cfg.Brokers) }

// changeConf takes in that the members are others now.
func (c *Controller) changeConf(cc raftpb.ConfChangeI) {
	c.conf, c.changed = *c.node.ApplyConfChange(cc), true
	if c.office != nil && c.office.members.change != nil && c.office.members.change.counts() {
		c.office.members.end(nil)
	}
}

// ChangeMember implements controller.Machine.
func (c *Controller) ChangeMember(now time.Time, id uint64, change controller.MemberChange) []controller.Effect {
	c.begin(now)
	c.changeMember(change, c.commandDone(id))
	return c.effects()
}

func (c *Controller) changeMember(change controller.MemberChange, done func(error)) {
	if c.office == nil {
		done(&controller.NoControllerError{Known: c.ControllerID()})
		return
	}
	id := change.Broker
	refuse := func(format string, args ...any) {
		done(&controller.MemberError{Broker: id, Reason: fmt.Sprintf(format, args...)})
	}
	r, known := c.office.ahead.Broker(id)
	member, votes := memberOf(id, c.members()), memberOf(id, c.voters()) != 0
	if change.Kind == controller.AddBroker {
		if id <= replica.None || change.Address == "" {
			refuse("it needs a positive id, and the address at which the others find it")
			return
		}
		c.change(func(image *metadata.Image) ([]metadata.Record, error) {
			return controller.Add(image, id, change.Address)
		}, done)
		return
	}
	if !known {
		refuse("it is not one of the cluster's")
		return
	}
	if change.Kind != controller.GiveVote && votes {
		if err := c.canSpare(id); err != nil {
			done(err)
			return
		}
	}
	switch change.Kind {
	case controller.GiveVote:
		switch {
		case member == 0 || r.Fenced:
			refuse("it is not heard of; start it first")
		case !r.Role.Decides():
			refuse("its role is to store only (LOGBOOK_ROLES=%s); start it with another first", r.Role)
		case votes:
			done(nil)
		default:
			c.propose(raftpb.ConfChangeAddNode, member, func() bool { return memberOf(id, c.voters()) != 0 }, done)
		}
	case controller.TakeVote:
		if !votes {
			done(nil)
			return
		}
		c.propose(raftpb.ConfChangeAddLearnerNode, member, func() bool { return memberOf(id, c.voters()) == 0 }, done)
	case controller.RemoveBroker:
		c.change(func(image *metadata.Image) ([]metadata.Record, error) { return controller.Remove(image, id) }, done)
	default:
		refuse("there is no change %q", change.Kind)
	}
}

// canSpare says why a broker's vote cannot be spared: without it the voters that are heard of
// would be no majority of those that are left, and nothing could be decided.
func (c *Controller) canSpare(id replica.BrokerID) error {
	left, heard := 0, 0
	for _, m := range c.voters() {
		b := brokerOf(m)
		if b == id {
			continue
		}
		left++
		if c.office.ahead.Usable(b) {
			heard++
		}
	}
	if heard <= left/2 {
		return &controller.MemberError{Broker: id, Reason: fmt.Sprintf("without its vote %d of the %d voters left would be heard of, and that is no majority; give others a vote, or bring them back, first", heard, left)}
	}
	return nil
}

// propose changes one member, and calls done when that counts.
func (c *Controller) propose(kind raftpb.ConfChangeType, member uint64, counts func() bool, done func(error)) {
	m := &c.office.members
	if m.change != nil {
		done(&controller.MemberError{Broker: brokerOf(member), Reason: "another change of the voters is under way; try again"})
		return
	}
	m.change = &memberChange{counts: counts, until: c.now.Add(c.session()), done: done}
	if err := c.node.ProposeConfChange(raftpb.ConfChangeV2{Changes: []raftpb.ConfChangeSingle{{Type: kind, NodeID: member}}}); err != nil {
		m.end(fmt.Errorf("%w: %w", &controller.NoControllerError{}, err))
	}
}

// tickMembers ends a change that takes too long, and lets go of members that should be none: those
// of brokers that were removed, a session later, so that they hear of it; and it takes the vote of
// brokers that have started with the role to store only.
func (c *Controller) tickMembers() {
	m := &c.office.members
	if m.change != nil && !c.now.Before(m.change.until) {
		m.end(&controller.UnsureError{})
	}
	if m.change != nil || c.now.Before(m.tryAt) {
		return
	}
	m.tryAt = c.now.Add(c.session() / 2)
	for _, member := range c.members() {
		id := brokerOf(member)
		_, removed := c.office.ahead.Removed(id)
		if !removed {
			delete(m.removed, id)
		}
		r, _ := c.office.ahead.Broker(id)
		switch {
		case removed && m.removed[id].IsZero():
			m.removed[id] = c.now.Add(c.session())
		case removed && !c.now.Before(m.removed[id]):
			c.propose(raftpb.ConfChangeRemoveNode, member, func() bool { return !slices.Contains(c.members(), member) }, func(error) {})
			return
		case !removed && r.Life > 0 && !r.Role.Decides() && slices.Contains(c.voters(), member) && c.canSpare(id) == nil:
			c.propose(raftpb.ConfChangeAddLearnerNode, member, func() bool { return !slices.Contains(c.voters(), member) }, func(error) {})
			return
		}
	}
}

// checkRemoved tells a person that this broker was removed from the cluster. Its member votes on
// until it is let go: without it there may be no majority that could do that.
func (c *Controller) checkRemoved() {
	if r, removed := c.image.Removed(c.cfg.ID); removed && c.self.Life <= r.Life {
		c.warn("broker %d was removed from the cluster: stop it; it may join again as a new broker, with an empty data directory", c.cfg.ID)
	}
}
