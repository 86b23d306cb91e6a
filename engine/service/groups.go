package service

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"logbook/engine/consumer"
	"logbook/engine/group"
	"logbook/engine/record"
	"logbook/engine/replica"
	"logbook/engine/topic"
)

// What members and others ask of groups.

type (
	groupMachine = group.Machine
	groupOutcome = group.Reply
	groupReply   = func(group.Reply)
)

// GroupReply answers a member.
type GroupReply struct {
	Member     string
	Generation int32
	Partitions []Partition // of a sync
	// Epoch is the coordinator's. One that answers with a lower epoch than a member has
	// heard of was replaced, and may not know what was committed since.
	Epoch int32
}

// FindCoordinator says which broker coordinates a group.
//
// Errors: BadRequest, NotCoordinator (ask the broker that is named), Unavailable.
func (s *Service) FindCoordinator(name string, done func(BrokerID, error)) {
	s.groups.find(name, func(name string) error { return topic.CheckName("group", name) }, done)
}

// Join becomes a member of the next generation; the reply comes when that begins. cancel
// gives up waiting: a new member is taken out again.
//
// Errors: those of Group.
func (s *Service) Join(name string, r group.Request, done func(GroupReply, error)) (cancel func()) {
	r.Kind = group.Join
	if r.SessionTimeout == 0 {
		r.SessionTimeout = group.DefaultSessionTimeout
	}
	fresh := r.Member == ""
	if !fresh {
		r.NewMember = ""
	} else if r.NewMember == "" {
		id, err := randomText(s.cfg.Random)
		if err != nil {
			done(GroupReply{}, s.fail(err))
			return func() {}
		}
		r.NewMember = name + "-" + id
	} else if err := topic.CheckName("member", r.NewMember); err != nil {
		done(GroupReply{}, s.fail(err))
		return func() {}
	}
	if len(r.Topics) == 0 {
		done(GroupReply{}, badRequest("a member needs a topic"))
		return func() {}
	}
	var given once
	s.Group(name, r, func(reply GroupReply, err error) {
		if given.set() {
			done(reply, err)
			return
		}
		if err == nil && fresh && r.Instance == "" { // whoever asked for it is gone
			s.Group(name, group.Request{Kind: group.Leave, Member: reply.Member, Generation: reply.Generation}, func(GroupReply, error) {})
		}
	})
	return func() {
		if given.set() {
			done(GroupReply{}, unavailable("the join was given up"))
		}
	}
}

// Group sends a member's request to its group: Sync, Heartbeat, Leave or Commit. Requests
// to a group are carried out in the order in which they come.
//
// Errors: NotCoordinator, UnknownMember, Rejoin, Fenced, Regression, BadRequest,
// UnknownTopic, Unavailable.
func (s *Service) Group(name string, r group.Request, done func(GroupReply, error)) {
	s.groups.with(name, func(sh *shard, err error) {
		if err != nil {
			done(GroupReply{}, err)
			return
		}
		if sh.groups[name] == nil && r.Kind != group.Join {
			done(GroupReply{}, s.fail(group.ErrUnknownMember)) // and nothing is begun for it
			return
		}
		h, err := sh.hostFor(name)
		if err == nil && r.Kind == group.Join && h.isKafkas() {
			err = s.fail(ErrOtherProtocol)
		}
		if err != nil {
			done(GroupReply{}, err)
			return
		}
		reply := func(out group.Reply) {
			done(GroupReply{Member: out.Member, Generation: out.Generation, Partitions: out.Partitions, Epoch: sh.epoch}, s.fail(out.Err))
		}
		h.do(groupOp{run: func() { h.ask(r, reply) }, fail: func(err error) { reply(group.Reply{Err: err}) }})
		sh.drop(h)
	})
}

// ask hands a request to the state machine.
func (h *hosted) ask(r group.Request, reply groupReply) {
	if len(r.Topics) > 0 {
		counts, err := h.sh.s.counts(r.Topics)
		if err != nil {
			reply(group.Reply{Err: err})
			return
		}
		if g, ok := h.machine.(interface{ Counts() map[string]int }); ok {
			all := g.Counts()
			maps.Copy(all, counts)
			counts = all
		}
		h.deliver(h.machine.SetCounts(h.sh.s.now(), counts))
		if h.busy { // it led to something: the request comes after it
			h.queue = slices.Insert(h.queue, 0, groupOp{run: func() { h.step(r, reply) }, fail: func(err error) { reply(group.Reply{Err: err}) }})
			return
		}
	}
	h.step(r, reply)
}

func (h *hosted) step(r group.Request, reply groupReply) {
	h.withEnds(r.Offsets, func(ends map[Partition]int64) { h.stepAt(r, ends, reply) })
}

// withEnds calls f with the log ends of partitions that a commit would take back, as far as
// their leaders tell: what was committed beyond the end of a log is of records that are gone,
// and a commit below it is no step back.
func (h *hosted) withEnds(offsets map[Partition]int64, f func(ends map[Partition]int64)) {
	leaders := map[BrokerID][]Partition{}
	for p, offset := range offsets {
		if was, ok := h.committed[p]; ok && offset < was {
			if a, ok := h.sh.s.Image().Assignment(p); ok && a.Leader != replica.None && a.Leader != h.sh.s.cfg.ID {
				leaders[a.Leader] = append(leaders[a.Leader], p)
			}
		}
	}
	ends := map[Partition]int64{}
	if len(leaders) == 0 {
		f(ends)
		return
	}
	h.busy = true // the requests after this one wait for it
	g := newGathering(len(leaders))
	var mu sync.Mutex
	for _, id := range slices.Sorted(maps.Keys(leaders)) {
		ps := leaders[id]
		slices.SortFunc(ps, Partition.Compare)
		h.sh.s.reports(id, ps, func(reports []ReplicaReport, err error) {
			mu.Lock()
			for i, r := range reports {
				if err == nil && r.Role == replica.Leader {
					ends[ps[i]] = r.LogEndOffset
				}
			}
			mu.Unlock()
			g.arrived(func() {
				h.sh.loop.do(func() {
					h.busy = false
					f(ends)
					h.work()
				})
			})
		})
	}
}

func (h *hosted) stepAt(r group.Request, ends map[Partition]int64, reply groupReply) {
	if h.sh.over != nil {
		reply(group.Reply{Err: h.sh.over})
		return
	}
	if err := h.check(r.Offsets, ends, false); err != nil {
		reply(group.Reply{Err: err})
		return
	}
	h.nextID++
	r.ID = h.nextID
	h.replies[r.ID] = reply
	h.deliver(h.machine.Step(h.sh.s.now(), r))
}

// deliver does what a step leads to, in the order that package group demands.
func (h *hosted) deliver(out group.Output) {
	var records []record.Record
	if out.Save {
		records = append(records, stateRecord(h.name, h.machine.Snapshot()))
	}
	records = append(records, offsetRecords(h.name, out.Commits, nil)...)
	if len(records) == 0 {
		h.delivered(out)
		return
	}
	h.busy, h.storing = true, out.Commits
	h.sh.append(records, func(_ int64, err error) {
		h.busy, h.storing = false, nil
		switch {
		case h.sh.over != nil: // whoever waited has been told
		case err != nil:
			// The group has gone on in memory, and nobody must hear of that: not those who
			// wait behind this request either.
			h.sh.end(unavailable("the group's state could not be stored: %v", err))
		default:
			h.stored = true
			h.delivered(out)
			h.sh.compact()
			h.work()
		}
	})
}

func (h *hosted) delivered(out group.Output) {
	for p, offset := range out.Commits {
		h.committed[p] = offset
		delete(h.notes, p)
	}
	for _, r := range out.Replies {
		h.reply(r)
	}
	h.schedule()
}

func (h *hosted) reply(r group.Reply) {
	if f := h.replies[r.ID]; f != nil {
		delete(h.replies, r.ID)
		f(r)
	}
}

// check holds a commit to what its partitions hold, and to what was committed.
func (h *hosted) check(offsets, ends map[Partition]int64, reset bool) error {
	for _, p := range slices.SortedFunc(maps.Keys(offsets), Partition.Compare) {
		offset := offsets[p]
		if err := h.sh.s.Image().Check(p); err != nil {
			return err
		}
		key := consumer.OffsetKey{Consumer: h.name, Topic: p.Topic, Partition: p.ID}
		if offset < 0 {
			return &consumer.NegativeOffsetError{Key: key, Offset: offset}
		}
		// The end is known where this broker leads; a follower's may be behind.
		if look, err := h.sh.s.node.Look(p); err == nil {
			if err := consumer.CheckCommit(key, offset, look.LogEndOffset); err != nil {
				return err
			}
			ends[p] = look.LogEndOffset
		}
		if was, ok := h.committed[p]; ok && offset < was && !reset {
			if end, known := ends[p]; known && was > end {
				continue // it is of records that are gone
			}
			return &consumer.OffsetRegressionError{Key: key, Committed: was, Wanted: offset}
		}
	}
	return nil
}

// SetOffsets stores committed offsets of a group that has no members: of a consumer that
// is not one of a group, or to begin elsewhere. reset allows them to go back.
//
// Errors: NotCoordinator, BadRequest (there are members), Regression, UnknownTopic,
// UnknownPartition, Unavailable.
func (s *Service) SetOffsets(name string, offsets map[Partition]int64, reset bool, done func(error)) {
	if len(offsets) == 0 {
		done(badRequest("a commit without offsets"))
		return
	}
	s.groups.with(name, func(sh *shard, err error) {
		if err != nil {
			done(err)
			return
		}
		h, err := sh.hostFor(name)
		if err != nil {
			done(err)
			return
		}
		h.do(groupOp{fail: done, run: func() {
			n := 0
			if h.machine.State() != group.Empty {
				n = len(h.members())
			}
			if n > 0 {
				done(badRequest("group %q has %d members, who commit for themselves; stop them first", name, n))
				return
			}
			h.withEnds(offsets, func(ends map[Partition]int64) {
				if sh.over != nil {
					done(s.fail(sh.over))
					return
				}
				if err := h.check(offsets, ends, reset); err != nil {
					done(s.fail(err))
					return
				}
				h.nextID++
				h.replies[h.nextID] = func(r group.Reply) { done(r.Err) }
				h.deliver(group.Output{Commits: maps.Clone(offsets), Replies: []group.Reply{{ID: h.nextID}}})
			})
		}})
		sh.drop(h)
	})
}

// members returns each member's partitions, as far as the machine tells.
func (h *hosted) members() map[string][]Partition {
	if g, ok := h.machine.(interface {
		Assignment() map[string][]Partition
	}); ok {
		return g.Assignment()
	}
	return nil
}

// Committed returns a group's committed offsets. known is the highest coordinator's epoch
// that the caller has heard of.
//
// Errors: NotCoordinator, BadRequest, Unavailable.
func (s *Service) Committed(name string, known int32, done func(map[Partition]int64, error)) {
	s.groups.with(name, func(sh *shard, err error) {
		if err == nil && known > sh.epoch {
			err = &Error{Code: NotCoordinator, Message: fmt.Sprintf("broker %d coordinated the group in epoch %d, and has yet to hear of the one who does in epoch %d", s.cfg.ID, sh.epoch, known)}
		}
		if err != nil {
			done(nil, err)
			return
		}
		h := sh.groups[name]
		if h == nil {
			done(map[Partition]int64{}, nil)
			return
		}
		h.do(groupOp{run: func() { done(maps.Clone(h.committed), nil) }, fail: func(err error) { done(nil, err) }})
	})
}

// GroupDescription is a group as it is at a moment.
type GroupDescription struct {
	Name       string        `json:"name"`
	State      group.State   `json:"state"`
	Generation int32         `json:"generation"`
	Members    []GroupMember `json:"members"` // by id
	Offsets    []GroupOffset `json:"offsets"` // by partition
}

// GroupMember is a member and its partitions.
type GroupMember struct {
	ID         string      `json:"id"`
	Partitions []Partition `json:"partitions"`
}

// GroupOffset is a committed offset beside how far the partition has come.
type GroupOffset struct {
	Partition     Partition `json:"of"`
	Offset        int64     `json:"offset"`
	HighWatermark int64     `json:"high_watermark"` // -1: unknown
	Lag           int64     `json:"lag"`            // -1: unknown
}

// describe describes a group that this broker coordinates.
func (c *coordinator) describe(name string, done func(GroupDescription, error)) {
	c.with(name, func(sh *shard, err error) {
		if err != nil {
			done(GroupDescription{}, err)
			return
		}
		d := GroupDescription{Name: name, State: group.Empty}
		h := sh.groups[name]
		if h == nil {
			done(d, nil)
			return
		}
		d.State, d.Generation = h.machine.State(), h.machine.Generation()
		members := h.members()
		for _, id := range slices.Sorted(maps.Keys(members)) {
			d.Members = append(d.Members, GroupMember{ID: id, Partitions: members[id]})
		}
		for _, p := range slices.SortedFunc(maps.Keys(h.committed), Partition.Compare) {
			d.Offsets = append(d.Offsets, GroupOffset{Partition: p, Offset: h.committed[p], HighWatermark: -1, Lag: -1})
		}
		c.s.addLag(d, done)
	})
}

// addLag asks the leaders of a group's partitions how far these have come.
func (s *Service) addLag(d GroupDescription, done func(GroupDescription, error)) {
	at := map[BrokerID][]int{} // by leader: places in d.Offsets
	for i, o := range d.Offsets {
		if a, ok := s.Image().Assignment(o.Partition); ok && a.Leader != replica.None {
			at[a.Leader] = append(at[a.Leader], i)
		}
	}
	leaders := slices.Sorted(maps.Keys(at))
	g := newGathering(len(leaders) + 1)
	finish := func() { done(d, nil) }
	for _, id := range leaders {
		var ps []Partition
		for _, i := range at[id] {
			ps = append(ps, d.Offsets[i].Partition)
		}
		s.reports(id, ps, func(r []ReplicaReport, err error) {
			for k, i := range at[id] {
				if o := &d.Offsets[i]; err == nil && r[k].Role == replica.Leader {
					o.HighWatermark = r[k].HighWatermark
					o.Lag = max(0, o.HighWatermark-o.Offset)
				}
			}
			g.arrived(finish)
		})
	}
	g.arrived(finish)
}

// DescribeGroup describes a group, asking its coordinator.
//
// Errors: BadRequest, NotCoordinator, Unavailable.
func (s *Service) DescribeGroup(name string, done func(GroupDescription, error)) {
	s.groups.describe(name, func(d GroupDescription, err error) {
		e := s.AsError(err)
		if e == nil || e.Code != NotCoordinator || e.Leader == 0 || BrokerID(e.Leader) == s.cfg.ID {
			done(d, err)
			return
		}
		s.call(BrokerID(e.Leader), func(id uint64) PeerMessage { return GroupRequest{id, name} }, func(m PeerMessage, err error) {
			r, _ := m.(GroupResponse)
			if err == nil && r.Code != "" {
				err = &Error{Code: r.Code, Message: r.Err}
			}
			done(r.Group, err)
		})
	})
}

// GroupsReady says why this broker cannot list its groups yet: it is to lead a partition of
// them, and does not, as just after a start.
//
// Errors: NotLeader, Unavailable.
func (s *Service) GroupsReady() error {
	image := s.Image()
	t := image.Topic(GroupsTopic)
	if t == nil {
		return nil
	}
	for i := range t.Partitions {
		p := Partition{Topic: GroupsTopic, ID: i}
		if a, ok := image.Assignment(p); !ok || len(s.view.Load().brokers) > 1 && a.Leader != s.cfg.ID {
			continue
		}
		if _, err := s.node.Look(p); err != nil {
			return s.fail(err)
		}
	}
	return nil
}

// LocalGroups lists the groups that this broker coordinates, sorted.
func (s *Service) LocalGroups(done func([]string)) { s.groups.names(done) }

// Groups lists the groups of all brokers that answer, sorted.
func (s *Service) Groups(done func([]string)) {
	brokers := s.view.Load().brokers
	lists := make([][]string, len(brokers))
	g := newGathering(len(lists))
	finish := func() { done(slices.Compact(slices.Sorted(slices.Values(slices.Concat(lists...))))) }
	for i, id := range brokers {
		if id == s.cfg.ID {
			s.groups.names(func(names []string) { lists[i] = names; g.arrived(finish) })
			continue
		}
		s.call(id, func(call uint64) PeerMessage { return GroupsRequest{call} }, func(m PeerMessage, _ error) {
			if r, ok := m.(GroupsResponse); ok {
				lists[i] = r.Names
			}
			g.arrived(finish)
		})
	}
}
