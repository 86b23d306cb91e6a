package quorum

import (
	"io"
	"slices"

	"go.etcd.io/raft/v3/raftpb"

	"logbook/engine/controller"
	"logbook/engine/metadata"
	"logbook/engine/record"
	"logbook/engine/replica"
	"logbook/engine/topic"
)

// Brokers that start for the first time form a cluster. The first of them, the founder, waits
// until it has met all the others and knows that none belongs to a cluster; then it draws the
// cluster's id and tells them who the voters are: those whose role it is to decide. Until it knows
// that all have stored that, it goes on telling, and does not vote.

func (c *Controller) founder() bool { return c.cfg.Brokers[0] == c.cfg.ID }

// meet says what is to be said while there is no cluster, or not everybody knows of it.
func (c *Controller) meet() {
	switch {
	case !c.broker.begun || c.self.formed():
		return
	case c.self.Forming:
		c.tellVoters()
	default:
		c.greet(c.cfg.Brokers...)
		c.found()
	}
}

// greet tells other brokers who this one is.
func (c *Controller) greet(to ...replica.BrokerID) {
	cluster := c.self.Cluster
	if c.self.Forming {
		cluster = topic.ID{}
	}
	for _, id := range to {
		if id != c.cfg.ID {
			c.emit(controller.Send{To: id, Message: controller.Meet{Cluster: cluster, Member: c.self.Member, Role: c.cfg.Role}})
		}
	}
}

// found forms the cluster, if all are there and new.
func (c *Controller) found() {
	if !c.founder() {
		return
	}
	var voters, learners []uint64
	count := func(member uint64, role metadata.Role) {
		if role.Decides() {
			voters = append(voters, member)
		} else {
			learners = append(learners, member)
		}
	}
	count(c.self.Member, c.cfg.Role)
	for _, id := range c.cfg.Brokers[1:] {
		m, ok := c.met[id]
		if !ok || m.Cluster != (topic.ID{}) {
			if c.now.After(c.began.Add(2 * c.session())) {
				c.warn("waiting for broker %d, to form a cluster: it is formed when all brokers have started for the first time", id)
			}
			return
		}
		count(m.Member, m.Role)
	}
	if len(voters) == 0 {
		c.warn("no cluster can be formed: not one of the brokers %v is to decide; give some of them the role %s (LOGBOOK_ROLES)", c.cfg.Brokers, metadata.DecidesOnly)
		return
	}
	var cluster topic.ID
	if _, err := io.ReadFull(c.cfg.Random, cluster[:]); err != nil {
		c.warn("the cluster's id cannot be drawn: %v", err)
		return
	}
	c.self.Cluster, c.self.Voters, c.self.Learners, c.self.Forming = cluster, voters, learners, true
	clear(c.met)
	c.keepIdentity(c.tellVoters)
}

// keepIdentity stores who the member is.
func (c *Controller) keepIdentity(done func()) {
	c.store(func() ([]record.Record, bool) { return []record.Record{encode(keyIdentity, c.self)}, false }, done)
}

// tellVoters goes on with forming the cluster until all know.
func (c *Controller) tellVoters() {
	if c.storing {
		return // that it is being formed is not stored yet
	}
	all := true
	for _, member := range slices.Concat(c.self.Voters, c.self.Learners) {
		id := brokerOf(member)
		if m, ok := c.met[id]; id != c.cfg.ID && (!ok || m.Cluster != c.self.Cluster) {
			all = false
			c.emit(controller.Send{To: id, Message: c.form()})
		}
	}
	if all {
		c.self.Forming = false
		c.keepIdentity(c.enter)
	}
}

// form tells another broker what cluster this is.
func (c *Controller) form() controller.Form {
	return controller.Form{Cluster: c.self.Cluster, Voters: c.self.Voters, Learners: c.self.Learners}
}

// enter makes the broker a member of its cluster.
func (c *Controller) enter() {
	if err := c.join(&stored{identity: c.self}); err != nil {
		c.breakDown(err)
	}
	c.putOffElection()
	if c.founder() {
		c.electAt = c.now // all the others wait for that
		c.tickMember()
	}
}

// metBy takes in who another broker is.
func (c *Controller) metBy(from replica.BrokerID, q controller.Meet) {
	_, known := c.image.Broker(from)
	switch {
	case !slices.Contains(c.cfg.Brokers, from) && !known || brokerOf(q.Member) != from:
	case !c.self.formed():
		if q.Cluster != (topic.ID{}) && c.self.Forming && q.Cluster != c.self.Cluster {
			c.stranger(from, q.Cluster)
		}
		_, again := c.met[from]
		c.met[from] = q
		if !again || c.self.Forming {
			c.meet() // at once: it may be the last that was waited for
		}
	case q.Cluster == (topic.ID{}):
		c.welcome(from, q)
	case q.Cluster != c.self.Cluster:
		c.stranger(from, q.Cluster)
	}
}

// formedBy takes in what cluster this broker belongs to.
func (c *Controller) formedBy(from replica.BrokerID, q controller.Form) {
	switch {
	case !c.broker.begun || c.self.Forming || q.Cluster == (topic.ID{}) || !slices.Contains(c.cfg.Brokers, from):
	case c.self.formed():
		if q.Cluster != c.self.Cluster {
			c.stranger(from, q.Cluster)
			return
		}
		c.greet(from)
	case len(c.writes) == 0:
		c.self.Cluster, c.self.Voters, c.self.Learners = q.Cluster, q.Voters, q.Learners
		c.keepIdentity(func() {
			c.enter()
			c.greet(from)
		})
	}
}

// stranger tells of a broker of another cluster, with which nothing is shared.
func (c *Controller) stranger(id replica.BrokerID, cluster topic.ID) {
	c.warn("broker %d belongs to cluster %s, and this one to %s: it is not heeded; check the lists of peers, or that its data directory is the right one", id, cluster, c.self.Cluster)
}

// welcome lets a new member take the place of the one that its broker had before, whose disk is
// gone, or join. It is for the active controller. A broker that is heard of keeps its member:
// another process may have been started in its name by mistake. Who had no vote gets none.
func (c *Controller) welcome(from replica.BrokerID, q controller.Meet) {
	if slices.Contains(c.members(), q.Member) {
		c.emit(controller.Send{To: from, Message: c.form()})
		return
	}
	if c.office == nil || c.office.ahead.Usable(from) {
		return
	}
	if r, removed := c.office.ahead.Removed(from); removed {
		r.Removed = false
		c.change(func(*metadata.Image) ([]metadata.Record, error) { return []metadata.Record{{Broker: &r}}, nil }, func(error) {})
		return // it asks again
	}
	join := raftpb.ConfChangeSingle{Type: raftpb.ConfChangeAddNode, NodeID: q.Member}
	if !q.Role.Decides() || memberOf(from, c.conf.Learners) != 0 {
		join.Type = raftpb.ConfChangeAddLearnerNode
	}
	change := raftpb.ConfChangeV2{Changes: []raftpb.ConfChangeSingle{join}}
	for _, old := range c.members() {
		if brokerOf(old) == from {
			change.Changes = append(change.Changes, raftpb.ConfChangeSingle{Type: raftpb.ConfChangeRemoveNode, NodeID: old})
		}
	}
	_ = c.node.ProposeConfChange(change) // where another is under way, the broker asks again
}
