package group_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"logbook/engine/group"
)

// town is a Classic with members that are asked by name.
type classicTown struct {
	t   *testing.T
	g   *group.Classic
	now time.Time
	id  uint64
	got map[uint64]group.ClassicReply
}

func newClassic(t *testing.T) *classicTown {
	return &classicTown{t: t, g: group.NewClassic(), now: time.Unix(1e9, 0), got: map[uint64]group.ClassicReply{}}
}

func (w *classicTown) take(rs []group.ClassicReply) {
	for _, r := range rs {
		_, twice := w.got[r.ID]
		require.False(w.t, twice, "a request is answered once")
		w.got[r.ID] = r
	}
}

// join begins a join, and returns its number.
func (w *classicTown) join(member, instance string, protocols ...string) uint64 {
	w.id++
	q := group.ClassicJoin{ID: w.id, Member: member, Instance: instance, NewMember: "new-" + instance + string(rune('a'+w.id)), Session: 10 * time.Second, Rebalance: 20 * time.Second, ProtocolType: "consumer"}
	for _, p := range protocols {
		q.Protocols = append(q.Protocols, group.Protocol{Name: p, Metadata: []byte(p)})
	}
	w.take(w.g.Join(w.now, q))
	return w.id
}

func (w *classicTown) sync(member string, generation int32, assignments map[string][]byte) uint64 {
	w.id++
	w.take(w.g.Sync(w.now, group.ClassicRequest{ID: w.id, Member: member, Generation: generation, Assignments: assignments}))
	return w.id
}

func (w *classicTown) reply(id uint64) group.ClassicReply {
	w.t.Helper()
	r, ok := w.got[id]
	require.True(w.t, ok, "there is no answer yet")
	return r
}

func (w *classicTown) beat(member string, generation int32) error {
	return w.g.Heartbeat(w.now, group.ClassicRequest{Member: member, Generation: generation})
}

func (w *classicTown) pass(d time.Duration) {
	for end := w.now.Add(d); ; {
		next := w.g.Next()
		if next.IsZero() || next.After(end) {
			w.now = end
			return
		}
		if next.After(w.now) {
			w.now = next
		}
		w.take(w.g.Tick(w.now))
	}
}

// pair gathers two members, and has the leader assign.
func (w *classicTown) pair() (leader, other string) {
	a := w.reply(w.join("", "", "range", "sticky"))
	require.NoError(w.t, a.Err)
	w.reply(w.sync(a.Member, a.Generation, map[string][]byte{a.Member: []byte("all")}))
	j := w.join("", "", "sticky")
	require.ErrorIs(w.t, w.beat(a.Member, a.Generation), group.ErrRebalanceInProgress)
	again := w.reply(w.join(a.Member, "", "range", "sticky"))
	b := w.reply(j)
	require.Equal(w.t, a.Member, again.Leader)
	require.Equal(w.t, a.Member, b.Leader)
	require.Len(w.t, again.Members, 2, "the leader hears who there is")
	require.Empty(w.t, b.Members)
	require.Equal(w.t, "sticky", b.Protocol, "the one that both know")
	s := w.sync(b.Member, b.Generation, nil)
	_, early := w.got[s]
	require.False(w.t, early, "it waits for the leader's assignment")
	l := w.reply(w.sync(a.Member, b.Generation, map[string][]byte{a.Member: []byte("0"), b.Member: []byte("1")}))
	require.Equal(w.t, "0", string(l.Assignment))
	require.Equal(w.t, "1", string(w.reply(s).Assignment))
	require.Equal(w.t, group.Stable, w.g.State())
	return a.Member, b.Member
}

func TestClassicGeneration(t *testing.T) {
	w := newClassic(t)
	leader, other := w.pair()
	assert.NoError(t, w.beat(other, 2))
	assert.ErrorIs(t, w.beat(other, 1), group.ErrIllegalGeneration)
	assert.ErrorIs(t, w.beat("nobody", 2), group.ErrUnknownMember)
	commit := func(member string, generation int32) error {
		return w.g.CheckCommit(w.now, group.ClassicRequest{Member: member, Generation: generation})
	}
	assert.NoError(t, commit(leader, 2))
	assert.ErrorIs(t, commit(leader, 1), group.ErrIllegalGeneration)
	assert.ErrorIs(t, commit("", -1), group.ErrUnknownMember, "not while there are members")
	// Who leaves makes room.
	w.id++
	w.take(w.g.Leave(w.now, group.ClassicRequest{ID: w.id, Member: leader}))
	require.NoError(t, w.reply(w.id).Err)
	r := w.reply(w.join(other, "", "sticky"))
	assert.Equal(t, other, r.Leader)
	assert.EqualValues(t, 3, r.Generation)
}

func TestClassicSessions(t *testing.T) {
	w := newClassic(t)
	leader, other := w.pair()
	w.pass(9 * time.Second)
	require.NoError(t, w.beat(leader, 2))
	w.pass(2 * time.Second)
	assert.ErrorIs(t, w.beat(other, 2), group.ErrUnknownMember, "it was silent for eleven seconds")
	assert.ErrorIs(t, w.beat(leader, 2), group.ErrRebalanceInProgress)
	w.pass(30 * time.Second)
	assert.Equal(t, group.Empty, w.g.State())
	assert.NoError(t, w.g.CheckCommit(w.now, group.ClassicRequest{Generation: -1}))
}

// A leader that gathers the members and then says nothing is not waited for without end.
func TestClassicLeaderThatNeverAssigns(t *testing.T) {
	w := newClassic(t)
	a := w.reply(w.join("", "", "range"))
	j := w.join("", "", "range")
	w.join(a.Member, "", "range")
	b := w.reply(j)
	s := w.sync(b.Member, b.Generation, nil)
	w.pass(12 * time.Second) // the leader says nothing at all, and its session ends
	require.ErrorIs(t, w.reply(s).Err, group.ErrRebalanceInProgress)
	r := w.reply(w.join(b.Member, "", "range"))
	assert.Equal(t, b.Member, r.Leader)
}

// A static member that starts anew takes its place back, and nothing is rebalanced.
func TestClassicStaticMember(t *testing.T) {
	w := newClassic(t)
	a := w.reply(w.join("", "i1", "range"))
	w.reply(w.sync(a.Member, 1, map[string][]byte{a.Member: []byte("mine")}))
	b := w.reply(w.join("", "i1", "range"))
	require.NoError(t, b.Err)
	assert.NotEqual(t, a.Member, b.Member)
	assert.EqualValues(t, 1, b.Generation)
	assert.True(t, b.SkipAssignment)
	assert.Equal(t, "mine", string(w.reply(w.sync(b.Member, 1, nil)).Assignment))
	assert.ErrorIs(t, w.g.Heartbeat(w.now, group.ClassicRequest{Member: a.Member, Instance: "i1", Generation: 1}), group.ErrFencedInstance)
}

func TestClassicRefusals(t *testing.T) {
	w := newClassic(t)
	w.pair()
	assert.ErrorIs(t, w.reply(w.join("", "", "range")).Err, group.ErrInconsistentProtocol)
	assert.ErrorIs(t, w.reply(w.join("nobody", "", "sticky")).Err, group.ErrUnknownMember)
	rs := w.g.Join(w.now, group.ClassicJoin{ID: 99, Session: time.Second, ProtocolType: "consumer", Protocols: []group.Protocol{{Name: "sticky"}}})
	assert.ErrorIs(t, rs[0].Err, group.ErrInvalidSession)
	two := group.ClassicJoin{ID: 100, NewMember: "given", TwoSteps: true, Session: 10 * time.Second, ProtocolType: "consumer", Protocols: []group.Protocol{{Name: "sticky"}}}
	rs = w.g.Join(w.now, two)
	assert.ErrorIs(t, rs[0].Err, group.ErrMemberIDRequired)
	assert.Equal(t, "given", rs[0].Member)
	two.ID, two.Member = 101, "given"
	assert.Empty(t, w.g.Join(w.now, two), "now it waits for the others")
}

// Whatever members do, in whatever order: each request is answered once at most, nobody waits
// for ever, and members of one generation agree on who leads.
func TestClassicAtRandom(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 0))
		w := newClassic(t)
		var members []string
		leaders := map[int32]string{}
		for range 120 {
			pick := func() string {
				if len(members) == 0 || rng.IntN(10) == 0 {
					return "nobody"
				}
				return members[rng.IntN(len(members))]
			}
			switch rng.IntN(7) {
			case 0, 1:
				w.join("", "", "range")
			case 2:
				w.join(pick(), "", "range")
			case 3:
				m := pick()
				w.sync(m, w.g.Generation()-int32(rng.IntN(2)), map[string][]byte{m: []byte("x")})
			case 4:
				_ = w.beat(pick(), w.g.Generation())
			case 5:
				w.id++
				w.take(w.g.Leave(w.now, group.ClassicRequest{ID: w.id, Member: pick()}))
			default:
				w.pass(time.Duration(rng.IntN(15)) * time.Second)
			}
			for _, r := range w.got {
				if r.Err == nil && r.Leader != "" {
					if old := leaders[r.Generation]; old != "" && !r.SkipAssignment {
						require.Equal(t, old, r.Leader, "seed %d, generation %d", seed, r.Generation)
					}
					leaders[r.Generation] = r.Leader
				}
				if r.Err == nil && r.Member != "" {
					members = append(members, r.Member)
				}
			}
			if len(members) > 20 {
				members = members[len(members)-20:]
			}
		}
		w.pass(5 * time.Minute)
		require.Equal(t, int(w.id), len(w.got), "seed %d: somebody waits for ever", seed)
		require.Equal(t, group.Empty, w.g.State(), "seed %d", seed)
	}
}
