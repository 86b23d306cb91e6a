package service

import (
	"errors"
	"maps"
	"slices"

	"logbook/engine/group"
	"logbook/engine/record"
)

// What members of groups ask whose protocol is Kafka's classic one: the members assign.
// The coordinator, its partitions and the committed offsets are the same as for the others.

// ErrOtherProtocol: a group has members of one protocol, and somebody came with the other.
var ErrOtherProtocol = errors.New("service: the group has members that speak another protocol")

// CommitNote is what a member stores beside an offset.
type CommitNote struct {
	LeaderEpoch int32  `json:"leader_epoch"` // of the record before, -1: unknown
	Metadata    string `json:"metadata,omitempty"`
}

// NotedOffset is a committed offset with its note.
type NotedOffset struct {
	Offset int64
	Note   CommitNote
}

// classic calls f on the loop of a group's shard. fresh begins the group if there is none.
func (s *Service) classic(name string, fresh bool, f func(h *hosted, err error)) {
	s.groups.withAny(name, func(sh *shard, err error) {
		if err != nil {
			f(nil, err)
			return
		}
		h := sh.groups[name]
		if h == nil && fresh {
			if h, err = sh.hostFor(name); err != nil {
				f(nil, err)
				return
			}
		}
		if h == nil {
			f(nil, group.ErrUnknownMember)
			return
		}
		f(h, nil)
		sh.drop(h)
	})
}

// answerClassic hands out the replies of a step, and sets the timer for the next.
func (h *hosted) answerClassic(replies []group.ClassicReply) {
	for _, r := range replies {
		if f := h.classicReplies[r.ID]; f != nil {
			delete(h.classicReplies, r.ID)
			f(r)
		}
	}
	h.sh.s.timers.stop(h.classicTimer)
	h.classicTimer = nil
	next := h.classic.Next()
	if next.IsZero() || h.sh.over != nil {
		return
	}
	h.classicTimer = h.sh.s.timers.set(next, func() {
		h.sh.loop.do(func() {
			if h.sh.over == nil {
				h.answerClassic(h.classic.Tick(h.sh.s.now()))
				h.sh.drop(h)
			}
		})
	})
}

// beginClassic gives a request its number.
func (h *hosted) beginClassic(done func(group.ClassicReply)) uint64 {
	h.nextID++
	h.classicReplies[h.nextID] = done
	return h.nextID
}

// FindClassic is FindCoordinator for names as Kafka's clients give them.
func (s *Service) FindClassic(name string, done func(BrokerID, error)) {
	s.groups.find(name, checkGroup, done)
}

// JoinClassic becomes a member of the next generation; the reply comes when that begins.
//
// Errors, in the reply: those of group.Classic.Join, and NotCoordinator, BadRequest, Unavailable.
func (s *Service) JoinClassic(name string, q group.ClassicJoin, done func(group.ClassicReply)) {
	if q.Member == "" {
		id, err := randomText(s.cfg.Random)
		if err != nil {
			done(group.ClassicReply{Err: s.fail(err), Generation: -1})
			return
		}
		q.NewMember = id
		if prefix := q.Instance; prefix != "" {
			q.NewMember = prefix + "-" + id
		} else if q.ClientID != "" {
			q.NewMember = q.ClientID + "-" + id
		}
	}
	s.classic(name, q.Member == "", func(h *hosted, err error) {
		if err == nil && (len(h.members()) > 0 || !h.consumer.Idle()) {
			err = ErrOtherProtocol
		}
		if err != nil {
			done(group.ClassicReply{Err: err, Member: q.Member, Generation: -1})
			return
		}
		q.ID = h.beginClassic(done)
		h.answerClassic(h.classic.Join(s.now(), q))
	})
}

// SyncClassic asks for a member's assignment.
//
// Errors, in the reply: those of group.Classic.Sync, and NotCoordinator, BadRequest, Unavailable.
func (s *Service) SyncClassic(name string, q group.ClassicRequest, done func(group.ClassicReply)) {
	s.classic(name, false, func(h *hosted, err error) {
		if err != nil {
			done(group.ClassicReply{Err: err})
			return
		}
		q.ID = h.beginClassic(done)
		h.answerClassic(h.classic.Sync(s.now(), q))
	})
}

// HeartbeatClassic keeps a member's session alive.
//
// Errors: those of group.Classic.Heartbeat, and NotCoordinator, BadRequest, Unavailable.
func (s *Service) HeartbeatClassic(name string, q group.ClassicRequest, done func(error)) {
	s.classic(name, false, func(h *hosted, err error) {
		if err == nil {
			err = h.classic.Heartbeat(s.now(), q)
			h.answerClassic(nil)
		}
		done(err)
	})
}

// LeaveClassic takes a member out.
//
// Errors: those of group.Classic.Leave, and NotCoordinator, BadRequest, Unavailable.
func (s *Service) LeaveClassic(name string, q group.ClassicRequest, done func(error)) {
	s.classic(name, false, func(h *hosted, err error) {
		if err != nil {
			done(err)
			return
		}
		q.ID = h.beginClassic(func(r group.ClassicReply) { done(r.Err) })
		h.answerClassic(h.classic.Leave(s.now(), q))
	})
}

// CommitClassic stores offsets, which may go back. Without a member and with generation -1
// anybody may who is not a member, as long as there are none.
//
// Errors: those of group.Classic.CheckCommit, and NotCoordinator, BadRequest, Unavailable.
func (s *Service) CommitClassic(name string, q group.ClassicRequest, offsets map[Partition]NotedOffset, done func(error)) {
	s.classic(name, q.Generation < 0, func(h *hosted, err error) {
		if err != nil {
			if errors.Is(err, group.ErrUnknownMember) && q.Member != "" {
				err = group.ErrIllegalGeneration // as Kafka says of a group that is not
			}
			done(err)
			return
		}
		h.do(groupOp{fail: done, run: func() {
			err := h.consumer.CheckEpoch(q.Member, q.Generation, slices.Collect(maps.Keys(offsets))...)
			if h.consumer.Idle() {
				err = h.classic.CheckCommit(s.now(), q)
			}
			if err == nil && len(h.members()) > 0 {
				err = ErrOtherProtocol
			}
			h.answerClassic(nil)
			if err != nil || len(offsets) == 0 {
				done(err)
				return
			}
			h.storeOffsets(offsets, done)
		}})
	})
}

// storeOffsets stores committed offsets with their notes.
func (h *hosted) storeOffsets(offsets map[Partition]NotedOffset, done func(error)) {
	var records []record.Record
	h.storing = map[Partition]int64{}
	for _, p := range slices.SortedFunc(maps.Keys(offsets), Partition.Compare) {
		o := offsets[p]
		records = append(records, offsetRecord(h.name, p, o.Offset, o.Note))
		h.storing[p] = o.Offset
	}
	h.busy, h.storingNotes = true, offsets
	h.sh.append(records, func(_ int64, err error) {
		h.busy, h.storing, h.storingNotes = false, nil, nil
		switch {
		case h.sh.over != nil:
			done(h.sh.over)
		case err != nil:
			err = unavailable("the offsets could not be stored: %v", err)
			done(err)
			h.sh.end(err)
		default:
			h.stored = true
			for p, o := range offsets {
				h.committed[p], h.notes[p] = o.Offset, o.Note
			}
			done(nil)
			h.sh.compact()
			h.work()
		}
	})
}

// CommittedNotes returns a group's committed offsets with their notes.
//
// Errors: NotCoordinator, BadRequest, Unavailable.
func (s *Service) CommittedNotes(name string, done func(map[Partition]NotedOffset, error)) {
	s.groups.withAny(name, func(sh *shard, err error) {
		if err != nil {
			done(nil, err)
			return
		}
		h := sh.groups[name]
		if h == nil {
			done(map[Partition]NotedOffset{}, nil)
			return
		}
		h.do(groupOp{fail: func(err error) { done(nil, err) }, run: func() {
			out := make(map[Partition]NotedOffset, len(h.committed))
			for p, offset := range h.committed {
				note, ok := h.notes[p]
				if !ok {
					note.LeaderEpoch = -1
				}
				out[p] = NotedOffset{Offset: offset, Note: note}
			}
			done(out, nil)
		}})
	})
}

// ClassicGroup describes a group for Kafka's tools.
type ClassicGroup struct {
	Name         string
	State        group.State
	ProtocolType string
	Protocol     string
	Members      []group.ClassicMember
	Known        bool // there is, or was, such a group
	Consumer     bool // its members speak the protocol of KIP-848; DescribeConsumer describes them
}

// DescribeClassic describes a group that this broker coordinates.
//
// Errors: NotCoordinator, BadRequest, Unavailable.
func (s *Service) DescribeClassic(name string, done func(ClassicGroup, error)) {
	s.groups.withAny(name, func(sh *shard, err error) {
		d := ClassicGroup{Name: name}
		if err == nil {
			if h := sh.groups[name]; h != nil {
				d = h.describeClassic()
			}
		}
		done(d, err)
	})
}

func (h *hosted) describeClassic() ClassicGroup {
	d := ClassicGroup{Name: h.name, Known: true, State: h.classic.State(), Members: h.classic.Members()}
	d.ProtocolType, d.Protocol = h.classic.Protocol()
	if h.consumer.Epoch() > 0 && h.classic.Idle() { // also when the last has left
		d.State, d.ProtocolType, d.Protocol, d.Consumer = h.consumer.State(), "consumer", h.consumer.Assignor(), true
	}
	if own := h.members(); len(own) > 0 { // members that speak the JSON protocol
		d.State, d.ProtocolType = h.machine.State(), "logbook"
		for _, id := range slices.Sorted(maps.Keys(own)) {
			d.Members = append(d.Members, group.ClassicMember{ID: group.Shown(id)})
		}
	}
	return d
}

// ClassicGroups describes all groups that this broker coordinates, without their members.
func (s *Service) ClassicGroups(done func([]ClassicGroup)) {
	led := s.groups.led()
	if len(led) == 0 {
		done(nil)
		return
	}
	g := newGathering(len(led))
	lists := make([][]ClassicGroup, len(led))
	for i, p := range led {
		s.groups.withShard(p, func(sh *shard, err error) {
			if err == nil {
				for _, name := range slices.Sorted(maps.Keys(sh.groups)) {
					lists[i] = append(lists[i], sh.groups[name].describeClassic())
				}
			}
			g.arrived(func() { done(slices.Concat(lists...)) })
		})
	}
}

// ErrGroupNotEmpty: a group that has members is not deleted, nor are offsets of theirs.
var ErrGroupNotEmpty = errors.New("service: the group has members; stop them first")

// ErrNoGroup: there is no group of that name.
var ErrNoGroup = errors.New("service: there is no such group")

// DeleteGroup deletes a group without members, and its committed offsets.
//
// Errors: ErrNoGroup, ErrGroupNotEmpty, NotCoordinator, BadRequest, Unavailable.
func (s *Service) DeleteGroup(name string, done func(error)) {
	s.inTurn(name, done, func(h *hosted) {
		if h.isKafkas() || len(h.members()) > 0 {
			done(ErrGroupNotEmpty)
			return
		}
		records := []record.Record{stateRecord(name, nil)}
		for _, p := range slices.SortedFunc(maps.Keys(h.committed), Partition.Compare) {
			records = append(records, offsetTombstone(name, p))
		}
		h.erase(records, done, func() {
			h.stopTimers()
			delete(h.sh.groups, name)
			queue := h.queue
			h.queue = nil
			for _, op := range queue { // they come too late
				op.fail(group.ErrUnknownMember)
			}
		})
	})
}

// DeleteOffsets forgets committed offsets of a group. used reports whether a member reads a
// topic: such offsets stay.
//
// Errors: ErrNoGroup, ErrGroupNotEmpty (the group's members do not say what they read),
// NotCoordinator, BadRequest, Unavailable.
func (s *Service) DeleteOffsets(name string, partitions []Partition, used func(members []group.ClassicMember, topic string) bool, done func(map[Partition]error, error)) {
	s.inTurn(name, func(err error) { done(nil, err) }, func(h *hosted) {
		out := map[Partition]error{}
		var records []record.Record
		members := h.classic.Members()
		for _, p := range partitions {
			switch {
			case len(members) > 0 && used(members, p.Topic) || h.consumer.Reads(p.Topic) || len(h.members()) > 0:
				out[p] = ErrGroupNotEmpty
			default:
				out[p] = nil
				records = append(records, offsetTombstone(name, p))
			}
		}
		if len(records) == 0 {
			done(out, nil)
			return
		}
		h.erase(records, func(err error) { done(out, err) }, func() {
			for p, err := range out {
				if err == nil {
					delete(h.committed, p)
					delete(h.notes, p)
				}
			}
		})
	})
}

// inTurn calls f with a group that exists, when what was asked of it before is done.
func (s *Service) inTurn(name string, fail func(error), f func(h *hosted)) {
	s.groups.withAny(name, func(sh *shard, err error) {
		h := (*hosted)(nil)
		if err == nil {
			if h = sh.groups[name]; h == nil {
				err = ErrNoGroup
			}
		}
		if err != nil {
			fail(err)
			return
		}
		h.do(groupOp{fail: fail, run: func() { f(h) }})
	})
}

// erase stores tombstones, and then forgets.
func (h *hosted) erase(records []record.Record, done func(error), forget func()) {
	h.busy = true
	forget() // first: a snapshot that comes after the tombstones must not have it
	h.sh.append(records, func(_ int64, err error) {
		h.busy = false
		switch {
		case h.sh.over != nil:
			done(h.sh.over)
		case err != nil:
			err = unavailable("the deletion could not be stored: %v", err)
			done(err)
			h.sh.end(err)
		default:
			done(nil)
			h.work()
		}
	})
}
