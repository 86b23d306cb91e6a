package group

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"time"
)

// Classic is a group in the protocol that Kafka's clients have spoken since 0.9: the
// coordinator gathers the members of a generation and picks a leader among them, the leader
// assigns, and the coordinator hands each member its part, which it does not look into. It
// is a state machine like Group: requests and time in, replies out.
//
// What it keeps lasts as long as the coordinator: the next one knows no member, and they
// join again. Committed offsets are kept elsewhere.
type Classic struct {
	state        State
	generation   int32
	protocolType string
	protocol     string
	leader       string
	members      map[string]*classicMember
	pending      map[string]time.Time // ids that were given out, until when they are waited for
	deadline     time.Time            // Preparing: when it goes on without who has not come. Completing: likewise, for assignments
	joined       int                  // counts joins, for their order
	out          []ClassicReply
}

// Completing is the state of a Classic whose members wait for their leader's assignment.
const Completing State = "CompletingRebalance"

type classicMember struct {
	ClassicMember
	session, rebalance time.Duration
	protocols          []Protocol
	expires            time.Time
	order              int
	join, sync         uint64 // requests that wait; 0: none
}

// ClassicMember describes a member.
type ClassicMember struct {
	ID, Instance         string
	ClientID, ClientHost string
	Metadata, Assignment []byte
}

// Protocol is a way of assigning that a member knows, with what it has to say in it.
type Protocol struct {
	Name     string
	Metadata []byte
}

// ClassicJoin asks to be part of the next generation.
type ClassicJoin struct {
	ID                 uint64
	Member, Instance   string // Member "": the first join
	NewMember          string // an id for a member that has none; the driver makes it unique
	ClientID, Host     string
	Session, Rebalance time.Duration
	ProtocolType       string
	Protocols          []Protocol
	// TwoSteps: who has no id is given one, and comes back with it (KIP-394).
	TwoSteps bool
}

// ClassicRequest is what a member asks otherwise.
type ClassicRequest struct {
	ID               uint64
	Member, Instance string
	Generation       int32
	ProtocolType     string            // Sync: "" is not checked
	Protocol         string            // likewise
	Assignments      map[string][]byte // Sync, from the leader
}

// ClassicReply answers a request.
type ClassicReply struct {
	ID         uint64
	Err        error
	Generation int32
	Protocol   string
	Leader     string
	Member     string
	Members    []ClassicMember // joins: for the leader, with their metadata
	Assignment []byte          // syncs
	// SkipAssignment: the leader has joined again, and its group is as it was.
	SkipAssignment bool
}

// Limits on the sessions of Kafka's clients.
const (
	MinClassicSession = 6 * time.Second
	MaxClassicSession = 30 * time.Minute
)

// NewClassic returns an empty group.
func NewClassic() *Classic {
	return &Classic{state: Empty, members: map[string]*classicMember{}, pending: map[string]time.Time{}}
}

// State is where the group is in its life.
func (g *Classic) State() State { return g.state }

// Generation counts how often the members were gathered.
func (g *Classic) Generation() int32 { return g.generation }

// Protocol is the present protocol, and its type.
func (g *Classic) Protocol() (protocolType, protocol string) { return g.protocolType, g.protocol }

// Idle reports whether there is nobody, and nobody is waited for.
func (g *Classic) Idle() bool { return len(g.members) == 0 && len(g.pending) == 0 }

// Members describes the members, by id.
func (g *Classic) Members() []ClassicMember {
	var out []ClassicMember
	for _, id := range slices.Sorted(maps.Keys(g.members)) {
		m := g.members[id]
		d := m.ClassicMember
		d.Metadata = m.metadata(g.protocol)
		out = append(out, d)
	}
	return out
}

func (m *classicMember) metadata(protocol string) []byte {
	for _, p := range m.protocols {
		if p.Name == protocol {
			return p.Metadata
		}
	}
	return nil
}

func (g *Classic) reply(r ClassicReply) { g.out = append(g.out, r) }

func (g *Classic) replies() []ClassicReply {
	out := g.out
	g.out = nil
	return out
}

// Join handles a join. Its reply may come with a later step.
//
// Errors: ErrInvalidSession, ErrInconsistentProtocol, ErrMemberIDRequired (with the id),
// ErrUnknownMember, ErrFencedInstance.
func (g *Classic) Join(now time.Time, q ClassicJoin) []ClassicReply {
	fail := func(err error, member string) []ClassicReply {
		g.reply(ClassicReply{ID: q.ID, Err: err, Member: member, Generation: -1})
		return g.replies()
	}
	switch {
	case q.Session < MinClassicSession || q.Session > MaxClassicSession:
		return fail(ErrInvalidSession, q.Member)
	case !g.agrees(q):
		return fail(ErrInconsistentProtocol, q.Member)
	}
	static := g.byInstance(q.Instance)
	switch {
	case q.Member == "" && static != nil:
		g.replace(now, static, q)
	case q.Member == "" && len(g.members)+len(g.pending) >= MaxMembers:
		return fail(ErrFull, "")
	case q.Member == "" && q.TwoSteps && q.Instance == "":
		g.pending[q.NewMember] = now.Add(q.Session)
		return fail(ErrMemberIDRequired, q.NewMember)
	case q.Member == "":
		g.add(now, q.NewMember, q)
	case q.Instance != "" && static != nil && static.ID != q.Member:
		return fail(ErrFencedInstance, q.Member)
	case g.members[q.Member] != nil:
		g.again(now, g.members[q.Member], q)
	case !g.pending[q.Member].IsZero():
		delete(g.pending, q.Member)
		g.add(now, q.Member, q)
	default:
		return fail(ErrUnknownMember, q.Member)
	}
	g.proceed(now)
	return g.replies()
}

// agrees reports whether some protocol of a join is known to all members.
func (g *Classic) agrees(q ClassicJoin) bool {
	if q.ProtocolType == "" || len(q.Protocols) == 0 {
		return false
	}
	others := 0
	for id := range g.members {
		if id != q.Member {
			others++
		}
	}
	if others == 0 {
		return true
	}
	return q.ProtocolType == g.protocolType && slices.ContainsFunc(q.Protocols, func(p Protocol) bool {
		for id, m := range g.members {
			if id != q.Member && (q.Instance == "" || m.Instance != q.Instance) && !m.knows(p.Name) {
				return false
			}
		}
		return true
	})
}

func (m *classicMember) knows(protocol string) bool {
	return slices.ContainsFunc(m.protocols, func(p Protocol) bool { return p.Name == protocol })
}

func (g *Classic) byInstance(instance string) *classicMember {
	if instance == "" {
		return nil
	}
	for _, m := range g.members {
		if m.Instance == instance {
			return m
		}
	}
	return nil
}

func (g *Classic) add(now time.Time, id string, q ClassicJoin) {
	m := &classicMember{ClassicMember: ClassicMember{ID: id, Instance: q.Instance}}
	g.joined++
	m.order = g.joined
	g.members[id] = m
	g.protocolType = q.ProtocolType
	g.update(now, m, q)
	g.rebalance(now)
}

func (g *Classic) update(now time.Time, m *classicMember, q ClassicJoin) {
	m.ClientID, m.ClientHost = q.ClientID, q.Host
	m.session, m.rebalance, m.protocols = q.Session, cmp.Or(q.Rebalance, q.Session), q.Protocols
	m.expires = now.Add(m.session)
	if m.join != 0 { // it has asked again, perhaps on another connection
		g.reply(ClassicReply{ID: m.join, Err: ErrRebalanceInProgress, Generation: -1, Member: m.ID})
	}
	m.join = q.ID
}

// replace gives a static member that has started anew another id: the old one is fenced.
func (g *Classic) replace(now time.Time, m *classicMember, q ClassicJoin) {
	old := m.ID
	delete(g.members, old)
	for _, id := range []uint64{m.join, m.sync} {
		if id != 0 {
			g.reply(ClassicReply{ID: id, Err: ErrFencedInstance, Generation: -1, Member: old})
		}
	}
	m.ID, m.join, m.sync = q.NewMember, 0, 0
	g.members[m.ID] = m
	led := g.leader == old
	if led {
		g.leader = m.ID
	}
	same := sameProtocols(m.protocols, q.Protocols)
	g.update(now, m, q)
	if g.state == Stable && same {
		r := g.present(m)
		if led { // it has nothing to assign
			r.SkipAssignment = true
		}
		m.join = 0
		g.reply(r)
		return
	}
	if g.state != Preparing {
		g.rebalance(now)
	}
}

// again handles the join of a member that is one.
func (g *Classic) again(now time.Time, m *classicMember, q ClassicJoin) {
	same := sameProtocols(m.protocols, q.Protocols)
	g.update(now, m, q)
	switch g.state {
	case Preparing:
	case Completing:
		if same { // the reply was lost
			g.reply(g.present(m))
			m.join = 0
			return
		}
		g.rebalance(now)
	default:
		if !same || m.ID == g.leader {
			g.rebalance(now)
			return
		}
		g.reply(g.present(m))
		m.join = 0
	}
}

func sameProtocols(a, b []Protocol) bool {
	return slices.EqualFunc(a, b, func(a, b Protocol) bool { return a.Name == b.Name && bytes.Equal(a.Metadata, b.Metadata) })
}

// present answers a member's join with the generation that there is.
func (g *Classic) present(m *classicMember) ClassicReply {
	r := ClassicReply{ID: m.join, Generation: g.generation, Protocol: g.protocol, Leader: g.leader, Member: m.ID}
	if m.ID == g.leader {
		r.Members = g.Members()
	}
	return r
}

// check finds the member that a request is of.
func (g *Classic) check(q ClassicRequest) (*classicMember, error) {
	if s := g.byInstance(q.Instance); s != nil && s.ID != q.Member {
		return nil, ErrFencedInstance
	}
	m := g.members[q.Member]
	switch {
	case m == nil:
		return nil, ErrUnknownMember
	case q.Generation != g.generation:
		return m, ErrIllegalGeneration
	}
	return m, nil
}

// Sync asks for the member's assignment, and brings everybody's if it is the leader's.
//
// Errors: ErrUnknownMember, ErrIllegalGeneration, ErrFencedInstance, ErrInconsistentProtocol,
// ErrRebalanceInProgress.
func (g *Classic) Sync(now time.Time, q ClassicRequest) []ClassicReply {
	m, err := g.check(q)
	switch {
	case err != nil:
	case q.ProtocolType != "" && q.ProtocolType != g.protocolType, q.Protocol != "" && q.Protocol != g.protocol:
		err = ErrInconsistentProtocol
	case g.state == Preparing:
		err = ErrRebalanceInProgress
	}
	if err != nil {
		g.reply(ClassicReply{ID: q.ID, Err: err})
		return g.replies()
	}
	m.expires = now.Add(m.session)
	if g.state == Completing {
		if m.sync != 0 {
			g.reply(ClassicReply{ID: m.sync, Err: ErrRebalanceInProgress, Member: m.ID})
		}
		m.sync = q.ID
		if m.ID == g.leader {
			g.assign(now, q.Assignments)
		}
		return g.replies()
	}
	g.reply(ClassicReply{ID: q.ID, Generation: g.generation, Protocol: g.protocol, Member: m.ID, Assignment: m.Assignment})
	return g.replies()
}

// assign hands out what the leader has decided.
func (g *Classic) assign(now time.Time, assignments map[string][]byte) {
	g.state = Stable
	g.deadline = time.Time{}
	for _, id := range slices.Sorted(maps.Keys(g.members)) {
		m := g.members[id]
		m.Assignment = assignments[id]
		if m.sync != 0 {
			g.reply(ClassicReply{ID: m.sync, Generation: g.generation, Protocol: g.protocol, Member: m.ID, Assignment: m.Assignment})
			m.sync = 0
		}
		m.expires = now.Add(m.session)
	}
}

// Heartbeat keeps a member's session alive.
//
// Errors: ErrUnknownMember, ErrIllegalGeneration, ErrFencedInstance, ErrRebalanceInProgress.
func (g *Classic) Heartbeat(now time.Time, q ClassicRequest) error {
	m, err := g.check(q)
	if err != nil {
		return err
	}
	m.expires = now.Add(m.session)
	if g.state == Preparing {
		return ErrRebalanceInProgress
	}
	return nil
}

// CheckCommit says whether a member may commit now. Who is none may while there are none.
//
// Errors: ErrUnknownMember, ErrIllegalGeneration, ErrFencedInstance, ErrRebalanceInProgress.
func (g *Classic) CheckCommit(now time.Time, q ClassicRequest) error {
	if q.Generation < 0 && q.Member == "" && q.Instance == "" {
		if len(g.members) > 0 {
			return ErrUnknownMember
		}
		return nil
	}
	m, err := g.check(q)
	if err != nil {
		return err
	}
	if g.state == Completing {
		return ErrRebalanceInProgress
	}
	m.expires = now.Add(m.session)
	return nil
}

// Leave takes a member out, by its id, or a static one by its instance.
//
// Errors, in the reply: ErrUnknownMember, ErrFencedInstance.
func (g *Classic) Leave(now time.Time, q ClassicRequest) []ClassicReply {
	m := g.members[q.Member]
	if s := g.byInstance(q.Instance); q.Instance != "" {
		switch {
		case s == nil:
			m = nil
		case q.Member != "" && s.ID != q.Member:
			g.reply(ClassicReply{ID: q.ID, Err: ErrFencedInstance})
			return g.replies()
		default:
			m = s
		}
	}
	switch {
	case m != nil:
		g.remove(now, m)
		g.reply(ClassicReply{ID: q.ID, Member: m.ID})
	case !g.pending[q.Member].IsZero():
		delete(g.pending, q.Member)
		g.reply(ClassicReply{ID: q.ID, Member: q.Member})
	default:
		g.reply(ClassicReply{ID: q.ID, Err: ErrUnknownMember})
	}
	g.proceed(now)
	return g.replies()
}

func (g *Classic) remove(now time.Time, m *classicMember) {
	delete(g.members, m.ID)
	for _, id := range []uint64{m.join, m.sync} {
		if id != 0 {
			g.reply(ClassicReply{ID: id, Err: ErrUnknownMember, Generation: -1, Member: m.ID})
		}
	}
	g.rebalance(now)
}
