package quorum

import (
	"errors"
	"fmt"
	"io"
	"log"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	raftracker "go.etcd.io/raft/v3/tracker"

	"logbook/engine/controller"
	"logbook/engine/metadata"
	"logbook/engine/record"
	"logbook/engine/replica"
)

type tracker = raftracker.Progress

// brokerOf is the broker whose member has a name: its lower half.
func brokerOf(member uint64) replica.BrokerID { return replica.BrokerID(uint32(member)) }

// newMember draws a member's name.
func newMember(id replica.BrokerID, rng interface{ Uint32() uint32 }) uint64 {
	return uint64(max(1, rng.Uint32()))<<32 | uint64(uint32(id))
}

// voters are the members that vote at present.
func (c *Controller) voters() []uint64 { return union(c.conf.Voters, c.conf.VotersOutgoing) }

// members are the voters, and those who copy the log of decisions without a vote.
func (c *Controller) members() []uint64 {
	return union(c.voters(), c.conf.Learners, c.conf.LearnersNext)
}

func union(lists ...[]uint64) []uint64 {
	all := slices.Concat(lists...)
	slices.Sort(all)
	return slices.Compact(all)
}

// memberOf is a broker's member among some; 0: it has none there.
func memberOf(id replica.BrokerID, among []uint64) uint64 {
	for _, m := range among {
		if brokerOf(m) == id {
			return m
		}
	}
	return 0
}

// quiet keeps the library from the standard log. What is fatal to it is a panic, and caught.
var quiet = &raft.DefaultLogger{Logger: log.New(io.Discard, "", 0)}

// join makes the broker a member, with what its journal says.
func (c *Controller) join(s *stored) (err error) {
	defer c.caught(&err)
	if c.mem, err = newStorage(s); err != nil {
		return fmt.Errorf("quorum: what the journal says does not fit together: %w", err)
	}
	c.snapped = s.snapshot.Metadata.Index
	if c.snapped > 0 {
		if c.image, err = decodeImage(s.snapshot.Data); err != nil {
			return err
		}
	}
	c.applied = c.snapped
	_, c.conf, _ = c.mem.InitialState()
	c.node, err = raft.NewRawNode(&raft.Config{
		ID: c.self.Member, ElectionTick: electionTicks, HeartbeatTick: heartbeatTicks, Storage: c.mem, Applied: c.applied,
		MaxSizePerMsg: 1 << 20, MaxInflightMsgs: 64, CheckQuorum: true, PreVote: true, DisableProposalForwarding: true, StepDownOnRemoval: true, Logger: quiet,
	})
	if err != nil {
		return fmt.Errorf("quorum: %w", err)
	}
	// What counts already is followed without a word: it was acted on before.
	for c.node.HasReady() {
		rd := c.node.Ready()
		for _, e := range rd.CommittedEntries {
			c.apply(e)
		}
		c.node.Advance(rd)
	}
	c.seen = c.node.BasicStatus()
	return nil
}

// caught turns a panic of the library's into an error: it says that the journal is not what this
// member has told others.
func (c *Controller) caught(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("quorum: the journal contradicts what this broker told the others, so it must be older than that: %v; remove the broker's data directory, and it joins anew and copies what it had", p)
	}
}

// tickMember lets the quorum's time pass. When an election is due is drawn here, and not by the
// library, so that a simulation can be repeated.
func (c *Controller) tickMember() {
	if c.node == nil || c.broken != nil {
		return
	}
	c.recall()
	switch c.seen.RaftState {
	case raft.StateLeader:
		c.node.Tick()
		for _, id := range c.members() {
			if at, ok := c.sending[id]; ok && !c.now.Before(at) {
				delete(c.sending, id)
				c.node.ReportSnapshot(id, raft.SnapshotFailure) // unless its answer came: that is heeded first
			}
		}
	default:
		c.node.TickQuiesced() // the one way to let time pass without the library's own dice
		if c.recalling != nil {
			c.putOffElection()
		}
		if !c.now.Before(c.electAt) {
			c.putOffElection()
			c.handed = false
			_ = c.node.Campaign() // it may not be one that can be elected, as without a vote
		}
	}
}

// putOffElection draws when to hold an election unless there is a sign of an active controller.
func (c *Controller) putOffElection() {
	least := electionTicks * c.tick()
	c.electAt = c.now.Add(least + time.Duration(c.rng.Int64N(int64(least)+1)))
}

// stepMember takes a message of another member.
func (c *Controller) stepMember(from replica.BrokerID, q controller.RaftMessage) {
	if c.node == nil || c.broken != nil {
		return
	}
	if q.Cluster != c.self.Cluster {
		c.stranger(from, q.Cluster)
		return
	}
	var m raftpb.Message
	if err := m.Unmarshal(q.Data); err != nil || brokerOf(m.From) != from || m.To != c.self.Member || raft.IsLocalMsg(m.Type) {
		return // for an earlier member of this broker's, or not a message
	}
	if c.recalling != nil && votes(m.Type) {
		return // it may have voted otherwise, and not know
	}
	c.remember(m, q.Life)
	term := c.node.BasicStatus().Term
	if err := c.stepNode(m); err != nil {
		c.breakDown(err)
		return
	}
	switch m.Type {
	case raftpb.MsgTimeoutNow:
		c.handed = true
	case raftpb.MsgApp, raftpb.MsgHeartbeat, raftpb.MsgSnap:
		if m.Term >= term {
			c.putOffElection()
		}
	}
}

// stepNode gives a message to the library; what it does not heed is not for this member.
//
// Errors: that the journal contradicts what this member has told others.
func (c *Controller) stepNode(m raftpb.Message) (err error) {
	defer c.caught(&err)
	_ = c.node.Step(m)
	return nil
}

// breakDown ends the member's part in decisions, and with it the broker's: others lead what it led.
func (c *Controller) breakDown(err error) {
	c.broken = err
	c.warn("%v", err)
	c.emit(controller.Lease{Until: c.now})
}

// settle lets the member do what it has to, as far as it can before something is stored.
func (c *Controller) settle() {
	for c.node != nil && c.broken == nil && !c.busy && c.node.HasReady() {
		c.ready()
	}
	if c.node == nil {
		return
	}
	was := c.seen
	c.seen = c.node.BasicStatus()
	if c.seen.Vote != was.Vote || c.seen.Term != was.Term {
		c.putOffElection() // somebody else is being elected
	}
	if c.seen.Lead != was.Lead {
		c.broker.beatAt = c.now // whoever it is hears of this broker at once
	}
	if o := c.office; o != nil && (c.seen.RaftState != raft.StateLeader || c.seen.Term != o.term) {
		c.loseOffice()
	}
}

// ready carries out what the library wants done: first what is to be stored, then the messages,
// which say that it is, and then what counts by now.
func (c *Controller) ready() {
	rd := c.node.Ready()
	var journal []record.Record
	whole := !raft.IsEmptySnap(rd.Snapshot)
	if whole {
		journal = append(journal, encode(keyIdentity, c.self), encodeSnapshot(rd.Snapshot))
	}
	for _, e := range rd.Entries {
		journal = append(journal, encodeEntry(e))
	}
	switch {
	case !raft.IsEmptyHardState(rd.HardState):
		// How far entries count is stored before they are acted on: after a restart nothing is acted on twice.
		journal = append(journal, encodeState(rd.HardState))
	case whole:
		state, _, _ := c.mem.InitialState()
		journal = append(journal, encodeState(state))
	}
	if len(journal) == 0 {
		c.carryOut(rd)
		return
	}
	c.busy = true
	c.store(func() ([]record.Record, bool) { return journal, whole }, func() {
		c.busy = false
		c.carryOut(rd)
	})
}

func (c *Controller) carryOut(rd raft.Ready) {
	if !raft.IsEmptyHardState(rd.HardState) {
		_ = c.mem.SetHardState(rd.HardState) // it never fails
	}
	if !raft.IsEmptySnap(rd.Snapshot) {
		c.install(rd.Snapshot)
	}
	if err := c.mem.Append(rd.Entries); err != nil {
		c.breakDown(fmt.Errorf("quorum: entries that do not follow those that are there: %w", err))
		return
	}
	for _, m := range rd.Messages {
		data, err := m.Marshal()
		if err != nil {
			c.warn("a message of the quorum that has no encoding: %v", err)
			continue
		}
		c.emit(controller.Send{To: brokerOf(m.To), Message: controller.RaftMessage{Cluster: c.self.Cluster, Life: c.self.Life, Data: data}})
		if m.Type == raftpb.MsgSnap {
			c.sending[m.To] = c.now.Add(c.session())
		}
	}
	for _, e := range rd.CommittedEntries {
		c.apply(e)
	}
	for _, r := range rd.ReadStates {
		c.confirmed(r)
	}
	c.node.Advance(rd)
	c.snapshot()
}

// install takes over all that was decided, as another member sent it.
func (c *Controller) install(s raftpb.Snapshot) {
	image, err := decodeImage(s.Data)
	if err == nil {
		err = c.mem.ApplySnapshot(s)
	}
	if errors.Is(err, raft.ErrSnapOutOfDate) {
		return
	}
	if err != nil {
		c.breakDown(err)
		return
	}
	old := c.image
	c.image, c.applied, c.snapped, c.conf = image, s.Metadata.Index, s.Metadata.Index, s.Metadata.ConfState
	c.follow(old, image)
}

// apply takes in an entry that counts.
func (c *Controller) apply(e raftpb.Entry) {
	c.applied = e.Index
	switch e.Type {
	case raftpb.EntryConfChange:
		var cc raftpb.ConfChange
		if err := cc.Unmarshal(e.Data); err == nil {
			c.changeConf(cc)
		}
	case raftpb.EntryConfChangeV2:
		var cc raftpb.ConfChangeV2
		if err := cc.Unmarshal(e.Data); err == nil {
			c.changeConf(cc)
		}
	case raftpb.EntryNormal:
		var problem error
		d, err := decodeDecision(e.Data)
		if err == nil && d != nil {
			var next *metadata.Image
			if next, problem = c.image.Apply(d.Records...); problem == nil {
				old := c.image
				c.image = next
				c.leadersMoved(old, d.Records)
				c.follow(old, next)
			}
		}
		if err != nil {
			c.warn("a decision that cannot be read was left out, by every broker alike: %v", err)
		}
		if d != nil {
			c.decided(d, problem)
		}
	}
	c.takeOffice(e.Term)
}

// snapshot begins the journal anew, when it has grown, and when the members have changed: a new one
// takes no snapshot that does not know of it.
func (c *Controller) snapshot() {
	if c.applied < c.snapped+uint64(c.cfg.SnapshotAfter) && !c.changed {
		return
	}
	c.changed = false
	snap, err := c.mem.CreateSnapshot(c.applied, &c.conf, encodeImage(c.image))
	if err != nil {
		return // there is one of that index
	}
	c.snapped = c.applied
	// Half of the entries stay in memory, for members that lag a little.
	if keep := uint64(c.cfg.SnapshotAfter) / 2; c.applied > keep {
		_ = c.mem.Compact(c.applied - keep) // it may have been done already
	}
	c.store(func() ([]record.Record, bool) {
		journal := []record.Record{encode(keyIdentity, c.self), encodeSnapshot(snap)}
		rest, _ := c.mem.rest(snap.Metadata.Index)
		for _, e := range rest {
			journal = append(journal, encodeEntry(e))
		}
		state, _, _ := c.mem.InitialState()
		return append(journal, encodeState(state)), true
	}, func() {})
}
