package service

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"logbook/engine/controller"
	"logbook/engine/group"
	"logbook/engine/metadata"
	"logbook/engine/node"
	"logbook/engine/replica"
	"logbook/engine/topic"
)

// GroupsTopic holds the groups' states and committed offsets, as Kafka's
// __consumer_offsets does. A group belongs to a partition by its name, and is coordinated
// by that partition's leader: where the leader goes, its groups go.
const GroupsTopic = "__groups"

// groupPartition is the partition that a group belongs to.
func (s *Service) groupPartition(name string) Partition {
	n := s.cfg.GroupPartitions
	if t := s.Image().Topic(GroupsTopic); t != nil {
		n = len(t.Partitions)
	}
	h := fnv.New32a()
	h.Write([]byte(name))
	return Partition{Topic: GroupsTopic, ID: int(h.Sum32() % uint32(n))}
}

// maxGroupName is the length that a group's name may have, in bytes.
const maxGroupName = 249

// checkGroup says what is wrong with a group's name. It is no file's, so that more will do
// than for a topic's.
func checkGroup(name string) error {
	if name == "" || len(name) > maxGroupName || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
		return badRequest("a group cannot be called %q: its name must be text, from 1 to %d bytes", name, maxGroupName)
	}
	return nil
}

// coordinator coordinates the groups whose partitions this broker leads.
type coordinator struct {
	s *Service

	mu     sync.Mutex
	shards map[Partition]*shard
}

func newCoordinator(s *Service) *coordinator {
	return &coordinator{s: s, shards: map[Partition]*shard{}}
}

// assigned ends a shard that is over, so that members go to the next coordinator.
func (c *coordinator) assigned(p Partition, a replica.Assignment) {
	c.mu.Lock()
	sh := c.shards[p]
	over := sh != nil && (a.Leader != c.s.cfg.ID || a.LeaderEpoch != sh.epoch)
	if over {
		delete(c.shards, p)
	}
	c.mu.Unlock()
	if over {
		sh.loop.do(func() { sh.end(c.notCoordinator(p, nil)) })
	}
}

func (c *coordinator) close() {
	c.mu.Lock()
	shards := c.shards
	c.shards = map[Partition]*shard{}
	c.mu.Unlock()
	for _, sh := range shards {
		sh.loop.do(func() { sh.end(ErrClosed) })
	}
}

// forget takes a shard that has ended out of the map: the next request loads what is stored.
func (c *coordinator) forget(sh *shard) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.shards[sh.p] == sh {
		delete(c.shards, sh.p)
	}
}

// with calls f on the loop of the shard that a group belongs to, when it is loaded; this
// broker must be its coordinator.
func (c *coordinator) with(name string, f func(*shard, error)) {
	if err := topic.CheckName("group", name); err != nil {
		f(nil, c.s.fail(err))
		return
	}
	c.withAny(name, f)
}

// withAny is with for names as Kafka's clients give them.
func (c *coordinator) withAny(name string, f func(*shard, error)) {
	if err := checkGroup(name); err != nil {
		f(nil, c.s.fail(err))
		return
	}
	c.withShard(c.s.groupPartition(name), f)
}

func (c *coordinator) withShard(p Partition, f func(*shard, error)) {
	look, err := c.s.node.Look(p)
	if err != nil {
		f(nil, c.notCoordinator(p, err))
		return
	}
	c.mu.Lock()
	sh, old := c.shards[p], (*shard)(nil)
	if sh != nil && sh.epoch != look.LeaderEpoch {
		sh, old = nil, sh
	}
	fresh := sh == nil
	if fresh {
		sh = newShard(c.s, p, look.LeaderEpoch)
		c.shards[p] = sh
	}
	c.mu.Unlock()
	if fresh {
		sh.load(look.LogStartOffset, look.LogEndOffset)
	}
	if old != nil {
		old.loop.do(func() { old.end(c.notCoordinator(p, nil)) })
	}
	sh.loop.do(func() { sh.whenLoaded(f) })
}

// notCoordinator says whom to ask about the groups of a partition.
func (c *coordinator) notCoordinator(p Partition, err error) error {
	a, ok := c.s.Image().Assignment(p)
	if !ok {
		return unavailable("groups are not ready yet; ask for the coordinator again")
	}
	if a.Leader == c.s.cfg.ID || a.Leader == replica.None {
		reason := "it is about to take over"
		if err != nil {
			reason = err.Error()
		}
		return unavailable("the group's coordinator is not ready: %s", reason)
	}
	return &Error{Code: NotCoordinator, Leader: int32(a.Leader), LeaderEpoch: a.LeaderEpoch, Message: "another broker coordinates the group"}
}

// find says who coordinates a group, and makes the groups' topic if there is none yet.
func (c *coordinator) find(name string, check func(string) error, done func(BrokerID, error)) {
	if err := check(name); err != nil {
		done(replica.None, c.s.fail(err))
		return
	}
	found := func() {
		a, ok := c.s.Image().Assignment(c.s.groupPartition(name))
		if !ok || a.Leader == replica.None {
			done(replica.None, unavailable("nobody coordinates the group at the moment"))
			return
		}
		done(a.Leader, nil)
	}
	if c.s.Image().Topic(GroupsTopic) != nil {
		found()
		return
	}
	spec := controller.TopicSpec{Name: GroupsTopic, ID: foundID(GroupsTopic), Partitions: c.s.cfg.GroupPartitions}
	c.s.makeTopic(spec, func(_ *metadata.Topic, err error) {
		switch {
		case err == nil || is[*topic.ExistsError](err):
			found()
		case is[*Error](err) && err.(*Error).Code == NotCoordinator:
			done(replica.None, err)
		default:
			done(replica.None, unavailable("the groups' topic cannot be made yet: %v", err))
		}
	})
}

// led returns the groups' partitions that this broker leads.
func (c *coordinator) led() []Partition {
	var out []Partition
	t := c.s.Image().Topic(GroupsTopic)
	if t == nil {
		return nil
	}
	for i := range t.Partitions {
		p := Partition{Topic: GroupsTopic, ID: i}
		if _, err := c.s.node.Look(p); err == nil {
			out = append(out, p)
		}
	}
	return out
}

// names lists the groups that this broker coordinates, sorted.
func (c *coordinator) names(done func([]string)) {
	led := c.led()
	if len(led) == 0 {
		done(nil)
		return
	}
	g := newGathering(len(led))
	lists := make([][]string, len(led))
	for i, p := range led {
		c.withShard(p, func(sh *shard, err error) {
			if err == nil {
				lists[i] = slices.Collect(maps.Keys(sh.groups))
			}
			g.arrived(func() { done(slices.Sorted(slices.Values(slices.Concat(lists...)))) })
		})
	}
}

// shard is the coordination of a partition's groups for one leader epoch. Everything in it
// happens on its loop.
type shard struct {
	s     *Service
	p     Partition
	epoch int32
	loop  serial

	loaded     bool
	over       error // why it has ended
	waiting    []func(*shard, error)
	limit      *timer
	groups     map[string]*hosted
	compacting bool
}

func newShard(s *Service, p Partition, epoch int32) *shard {
	sh := &shard{s: s, p: p, epoch: epoch, groups: map[string]*hosted{}}
	sh.loop.run = s.run
	return sh
}

func (sh *shard) whenLoaded(f func(*shard, error)) {
	switch {
	case sh.over != nil:
		f(nil, sh.over)
	case !sh.loaded:
		sh.waiting = append(sh.waiting, f)
	default:
		f(sh, nil)
	}
}

// end ends the shard: its groups may know more than is stored, and nobody must hear of that.
func (sh *shard) end(err error) {
	if sh.over != nil {
		return
	}
	sh.over = err
	sh.s.groups.forget(sh)
	sh.s.timers.stop(sh.limit)
	waiting := sh.waiting
	sh.waiting = nil
	for _, f := range waiting {
		f(nil, err)
	}
	for _, name := range slices.Sorted(maps.Keys(sh.groups)) {
		sh.groups[name].end(err)
	}
}

// load reads the groups back from the partition's log. Nobody hears of them before all that
// was read is safe: an earlier coordinator's last word may be on this broker alone, and the
// next leader would say something else under the same generation.
func (sh *shard) load(start, end int64) {
	if end == start {
		sh.loop.do(func() { sh.restore(newStoredGroups()) })
		return
	}
	sh.limit = sh.s.after(sh.s.cfg.WriteTimeout, func() {
		sh.loop.do(func() {
			if !sh.loaded {
				sh.end(unavailable("the groups' state is not safe on all in-sync replicas yet"))
			}
		})
	})
	sh.s.node.Watch(sh.p, end-1, false, func() {
		sh.s.work(func() {
			look, err := sh.s.node.Look(sh.p)
			if err == nil && (look.LeaderEpoch != sh.epoch || look.HighWatermark < end) {
				err = sh.s.groups.notCoordinator(sh.p, nil)
			}
			var stored storedGroups
			if err == nil {
				stored, err = readGroups(sh.s.node.Own(sh.p))
			}
			sh.loop.do(func() {
				switch {
				case sh.over != nil:
				case err != nil:
					sh.end(sh.s.fail(fmt.Errorf("reading the groups in %s: %w", sh.p, err)))
				default:
					sh.restore(stored)
				}
			})
		})
	})
}

// restore takes over what was stored. Members' sessions begin anew.
func (sh *shard) restore(stored storedGroups) {
	for _, name := range slices.Sorted(maps.Keys(stored)) {
		g := stored[name]
		if g.state == nil && len(g.offsets) == 0 {
			continue // it was deleted
		}
		h := sh.host(name)
		h.stored, h.committed, h.notes = true, g.offsets, g.notes
		if g.state == nil {
			continue
		}
		m, err := sh.s.cfg.Design.RestoreGroup(g.state, nil, sh.s.now())
		if err != nil {
			sh.end(sh.s.fail(fmt.Errorf("the state of group %q: %w", name, err)))
			return
		}
		h.machine = m
		h.schedule()
	}
	sh.loaded = true
	sh.s.timers.stop(sh.limit)
	if len(stored) > 0 {
		sh.s.logger.Info("coordinating groups", "broker", sh.s.cfg.ID, "partition", sh.p, "epoch", sh.epoch, "groups", len(stored))
	}
	waiting := sh.waiting
	sh.waiting = nil
	for _, f := range waiting {
		f(sh, nil)
	}
}

// host returns a group, which it begins if there is none.
func (sh *shard) host(name string) *hosted {
	h := sh.groups[name]
	if h == nil {
		h = &hosted{sh: sh, name: name, machine: sh.s.cfg.Design.NewGroup(name, nil), committed: map[Partition]int64{}, replies: map[uint64]groupReply{},
			consumer: group.NewConsumer(sh.s.cfg.Consumers), classic: group.NewClassic(), classicReplies: map[uint64]func(group.ClassicReply){}, notes: map[Partition]CommitNote{}}
		sh.groups[name] = h
	}
	return h
}

// maxGroups is how many groups a partition of groups may have.
const maxGroups = 20_000

// hostFor is host for a request: there may be no room for another group.
func (sh *shard) hostFor(name string) (*hosted, error) {
	if sh.groups[name] == nil && len(sh.groups) >= maxGroups {
		sh.makeRoom()
	}
	if sh.groups[name] == nil && len(sh.groups) >= maxGroups {
		return nil, sh.s.fail(group.ErrTooMany)
	}
	return sh.host(name), nil
}

// compactAbove is how many records a partition of groups may have, at least, before it is
// written anew; and it must have twice as many as will be left.
const compactAbove = 20_000

// compact writes all that counts to the end of the log, and moves the log start after what
// was there. The groups stay as they are meanwhile, and so does the order: what is written
// here is what was given its place before, and later changes come after it.
func (sh *shard) compact() {
	look, err := sh.s.node.Look(sh.p)
	if err != nil || sh.compacting {
		return
	}
	left := 0
	for _, h := range sh.groups {
		left += 1 + len(h.committed)
	}
	if n := look.LogEndOffset - look.LogStartOffset; n < compactAbove || n < 2*int64(left) {
		return
	}
	sh.compacting = true
	var first int64 = -1
	chunks := sh.snapshot()
	g := newGathering(len(chunks))
	var failed error
	for i, records := range chunks {
		sh.append(records, func(base int64, err error) {
			if i == 0 {
				first = base
			}
			if err != nil {
				failed = err
			}
			g.arrived(func() { sh.compacted(first, failed) })
		})
	}
}

// compacted moves the log start once all of it is stored.
func (sh *shard) compacted(first int64, err error) {
	sh.compacting = false
	switch {
	case sh.over != nil:
	case err != nil:
		sh.end(unavailable("the groups' state could not be stored: %v", err))
	default:
		sh.s.run(func() {
			if _, err := sh.s.node.DeleteRecords(sh.p, first); err != nil && !is[*node.NotLeaderError](err) {
				sh.s.logger.Warn("the groups' log could not be made shorter", "partition", sh.p, "error", err)
			}
		})
	}
}

// hosted is a group, and those who wait for its replies.
type hosted struct {
	sh        *shard
	name      string
	machine   groupMachine
	committed map[Partition]int64 // durable
	storing   map[Partition]int64 // on their way
	stored    bool                // something of it is in the log

	queue   []groupOp
	busy    bool // something is being stored: nobody hears of what comes after it
	nextID  uint64
	replies map[uint64]groupReply

	classic        *group.Classic // for members that speak Kafka's classic protocol
	classicReplies map[uint64]func(group.ClassicReply)
	classicTimer   *timer
	consumer       *group.Consumer // for members that speak KIP-848's
	consumerTimer  *timer
	emptyTimer     *timer                   // until when it is known although there is nobody
	notes          map[Partition]CommitNote // beside committed, where there are any
	storingNotes   map[Partition]NotedOffset
	timer          *timer
	due            time.Time
}

// groupOp is what waits for its turn.
type groupOp struct {
	run  func()
	fail func(error)
}

// do runs something when all before it is stored.
func (h *hosted) do(op groupOp) {
	h.queue = append(h.queue, op)
	h.work()
}

func (h *hosted) work() {
	for len(h.queue) > 0 && !h.busy && h.sh.over == nil {
		op := h.queue[0]
		h.queue = h.queue[1:]
		op.run()
	}
}

// end answers whoever waits.
func (h *hosted) end(err error) {
	for _, id := range slices.Sorted(maps.Keys(h.replies)) {
		h.reply(groupOutcome{ID: id, Err: err})
	}
	queue := h.queue
	h.queue = nil
	for _, op := range queue {
		op.fail(err)
	}
	h.answerClassic(h.classic.End(err))
	h.stopTimers()
}

// schedule sets the timer for the group's next tick.
func (h *hosted) schedule() {
	next := h.machine.Next()
	if next.Equal(h.due) && h.timer != nil {
		return
	}
	h.sh.s.timers.stop(h.timer)
	h.timer, h.due = nil, next
	if next.IsZero() || h.sh.over != nil {
		return
	}
	h.timer = h.sh.s.timers.set(next, func() {
		h.sh.loop.do(func() {
			h.timer = nil
			h.do(groupOp{run: func() { h.deliver(h.machine.Tick(h.sh.s.now())) }, fail: func(error) {}})
		})
	})
}
