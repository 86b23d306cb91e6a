package group_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"logbook/engine/group"
)

// counts is what there is to read.
type counts map[string]int

func (c *counts) Names() []string        { return slices.Sorted(maps.Keys(*c)) }
func (c *counts) Count(topic string) int { return (*c)[topic] }

// peer is a member as KIP-848 has it: it does what it is told.
type peer struct {
	beat  group.ConsumerBeat
	owned []group.Partition
	told  bool // it has something new to say
}

// consumers drives a Consumer with members.
type consumers struct {
	t      testing.TB
	g      *group.Consumer
	now    time.Time
	topics *counts
	peers  map[string]*peer
}

func newConsumers(t testing.TB, topics counts) *consumers {
	return &consumers{t: t, g: group.NewConsumer(group.ConsumerOptions{}), now: time.Unix(1_000_000, 0), topics: &topics, peers: map[string]*peer{}}
}

func (w *consumers) join(id string, edit func(*group.ConsumerBeat)) *peer {
	p := &peer{beat: group.ConsumerBeat{Member: id, Patience: 30 * time.Second, Topics: []string{"t"}}}
	if edit != nil {
		edit(&p.beat)
	}
	w.peers[id] = p
	w.heartbeat(p)
	return p
}

// heartbeat has a member say what it must, and take in the reply.
func (w *consumers) heartbeat(p *peer) group.ConsumerReply {
	q := p.beat
	if q.Epoch > 0 {
		q.Topics, q.Pattern, q.Assignor, q.Patience = nil, nil, nil, 0
		if p.told {
			q.Owned = append([]group.Partition{}, p.owned...)
		}
	}
	p.told = false
	r, err := w.g.Beat(w.now, w.topics, q)
	require.NoError(w.t, err)
	p.beat.Epoch = r.Epoch
	if r.Assigned != nil {
		p.owned, p.told = r.Assigned, true
	}
	w.check()
	return r
}

// check: no partition is held by two.
func (w *consumers) check() {
	held := map[group.Partition]string{}
	for _, m := range w.g.Members() {
		for _, p := range m.Assigned {
			require.Empty(w.t, held[p], "%v is held by %s and by %s", p, held[p], m.ID)
			held[p] = m.ID
		}
	}
	owned := map[group.Partition]string{}
	for id, peer := range w.peers {
		for _, p := range peer.owned {
			require.Empty(w.t, owned[p], "%v is read by %s and by %s", p, owned[p], id)
			owned[p] = id
		}
	}
}

// settle lets everybody speak until nothing changes.
func (w *consumers) settle() {
	for range 20 {
		for _, id := range slices.Sorted(maps.Keys(w.peers)) {
			w.heartbeat(w.peers[id])
		}
		if w.g.State() == group.Stable {
			return
		}
	}
	require.Equal(w.t, group.Stable, w.g.State())
}

func (w *consumers) owned() map[string]int {
	out := map[string]int{}
	for id, p := range w.peers {
		out[id] = len(p.owned)
	}
	return out
}

// One reads all; a second gets its half only when the first has given it up; nobody else stops.
func TestConsumerMembersShare(t *testing.T) {
	w := newConsumers(t, counts{"t": 6})
	a := w.join("a", nil)
	assert.Len(t, a.owned, 6)
	b := w.join("b", nil)
	assert.Empty(t, b.owned, "a still has everything")
	w.heartbeat(a)
	assert.Len(t, a.owned, 3, "it is told to give up")
	w.heartbeat(b)
	assert.Empty(t, b.owned, "a has not said that it did")
	w.heartbeat(a)
	r := w.heartbeat(b)
	assert.Len(t, b.owned, 3)
	assert.Equal(t, 5*time.Second, r.Interval)
	w.settle()
	assert.Equal(t, a.beat.Epoch, b.beat.Epoch)

	// A commit counts in the member's epoch alone.
	assert.NoError(t, w.g.CheckEpoch("a", a.beat.Epoch))
	assert.ErrorIs(t, w.g.CheckEpoch("a", a.beat.Epoch-1), group.ErrStaleEpoch)
	assert.NoError(t, w.g.CheckEpoch("a", a.beat.Epoch-1, a.owned...), "it had them before")
	assert.ErrorIs(t, w.g.CheckEpoch("a", a.beat.Epoch-1, b.owned[0]), group.ErrStaleEpoch)
	assert.ErrorIs(t, w.g.CheckEpoch("b", b.beat.Epoch-1, b.owned...), group.ErrStaleEpoch, "it was given them since")
	assert.ErrorIs(t, w.g.CheckEpoch("z", 1), group.ErrUnknownMember)
	assert.ErrorIs(t, w.g.CheckEpoch("", -1), group.ErrUnknownMember)

	// Who leaves is replaced at once.
	_, err := w.g.Beat(w.now, w.topics, group.ConsumerBeat{Member: "a", Epoch: -1})
	require.NoError(t, err)
	delete(w.peers, "a")
	w.settle()
	assert.Equal(t, map[string]int{"b": 6}, w.owned())
	_, err = w.g.Beat(w.now, w.topics, group.ConsumerBeat{Member: "b", Epoch: -1})
	require.NoError(t, err)
	assert.Equal(t, group.Empty, w.g.State())
	assert.NoError(t, w.g.CheckEpoch("", -1))
}

// Who is not heard of, or does not give up what it must, is a member no more.
func TestConsumerMembersExpire(t *testing.T) {
	w := newConsumers(t, counts{"t": 4})
	w.join("a", nil)
	b := w.join("b", nil)
	w.heartbeat(w.peers["a"]) // told to give two up, and never says that it did
	delete(w.peers, "a")
	assert.Equal(t, w.now.Add(30*time.Second), w.g.Next())
	w.now = w.now.Add(29 * time.Second)
	w.g.Tick(w.now, w.topics)
	w.heartbeat(b)
	assert.Empty(t, b.owned[:0])
	w.now = w.now.Add(time.Second)
	w.g.Tick(w.now, w.topics)
	w.settle()
	assert.Equal(t, map[string]int{"b": 4}, w.owned())
	w.now = w.now.Add(45 * time.Second)
	w.g.Tick(w.now, w.topics)
	assert.True(t, w.g.Idle())
	_, err := w.g.Beat(w.now, w.topics, group.ConsumerBeat{Member: "b", Epoch: b.beat.Epoch})
	assert.ErrorIs(t, err, group.ErrUnknownMember)
}

// Epochs fence: an old one is refused, but for the one before, whose reply may have been lost.
func TestConsumerEpochsFence(t *testing.T) {
	w := newConsumers(t, counts{"t": 4})
	a := w.join("a", nil)
	before := a.beat.Epoch
	w.join("b", nil)
	w.settle()
	after := a.beat.Epoch
	require.Greater(t, after, before)
	try := func(q group.ConsumerBeat) error {
		_, err := w.g.Beat(w.now, w.topics, q)
		return err
	}
	assert.NoError(t, try(group.ConsumerBeat{Member: "a", Epoch: before, Owned: a.owned}))
	assert.ErrorIs(t, try(group.ConsumerBeat{Member: "a", Epoch: before}), group.ErrFencedEpoch)
	assert.ErrorIs(t, try(group.ConsumerBeat{Member: "a", Epoch: before, Owned: []group.Partition{{Topic: "t", ID: 0}, {Topic: "t", ID: 1}, {Topic: "t", ID: 2}, {Topic: "t", ID: 3}}}), group.ErrFencedEpoch)
	assert.ErrorIs(t, try(group.ConsumerBeat{Member: "a", Epoch: after + 1}), group.ErrFencedEpoch)
	// It comes back with nothing, and is given what it had.
	a.beat.Epoch, a.owned = 0, nil
	w.heartbeat(a)
	assert.Len(t, a.owned, 2)

	for name, q := range map[string]group.ConsumerBeat{
		"no subscription": {Member: "c", Patience: time.Second},
		"no patience":     {Member: "c", Topics: []string{"t"}},
		"no name":         {Topics: []string{"t"}, Patience: time.Second},
		"with partitions": {Member: "c", Topics: []string{"t"}, Patience: time.Second, Owned: a.owned},
		"a strange epoch": {Member: "c", Epoch: -7, Topics: []string{"t"}},
	} {
		assert.ErrorIs(t, try(q), group.ErrInvalidBeat, name)
	}
	bad, unknown := "(", "fancy"
	var pe *group.PatternError
	assert.ErrorAs(t, try(group.ConsumerBeat{Member: "c", Pattern: &bad, Patience: time.Second}), &pe)
	var ae *group.UnknownAssignorError
	assert.ErrorAs(t, try(group.ConsumerBeat{Member: "c", Topics: []string{"t"}, Assignor: &unknown, Patience: time.Second}), &ae)
}

// Expressions match whole names, of topics that come later too; range gives neighbours.
func TestConsumerPatternsAndAssignors(t *testing.T) {
	w := newConsumers(t, counts{"flights": 2, "flights.old": 2, "other": 2})
	pattern, byRange := "flights(\\..*)?", "range"
	a := w.join("a", func(q *group.ConsumerBeat) { q.Topics, q.Pattern = nil, &pattern })
	assert.Len(t, a.owned, 4)
	grown := counts{"flights": 2, "flights.old": 2, "flights.new": 3, "other": 2, "myflights": 1}
	w.topics = &grown
	w.settle()
	assert.Len(t, a.owned, 7)
	assert.True(t, w.g.Reads("flights.new"))
	assert.False(t, w.g.Reads("myflights"))

	w = newConsumers(t, counts{"t": 4, "u": 4})
	both := func(q *group.ConsumerBeat) { q.Topics, q.Assignor = []string{"t", "u"}, &byRange }
	a = w.join("a", both)
	w.join("b", both)
	w.settle()
	assert.Equal(t, "range", w.g.Assignor())
	assert.Equal(t, []group.Partition{{Topic: "t", ID: 0}, {Topic: "t", ID: 1}, {Topic: "u", ID: 0}, {Topic: "u", ID: 1}}, a.owned)
}

// A static member that leaves for a while comes back to what it had; two of one name cannot be.
func TestConsumerStaticMembers(t *testing.T) {
	w := newConsumers(t, counts{"t": 4})
	named := func(q *group.ConsumerBeat) { q.Instance = "one" }
	a := w.join("a", named)
	w.join("b", nil)
	w.settle()
	had, epoch := a.owned, w.g.Epoch()
	_, err := w.g.Beat(w.now, w.topics, group.ConsumerBeat{Member: "a2", Instance: "one", Topics: []string{"t"}, Patience: time.Second})
	assert.ErrorIs(t, err, group.ErrUnreleasedInstance)
	_, err = w.g.Beat(w.now, w.topics, group.ConsumerBeat{Member: "a", Instance: "one", Epoch: group.Away})
	require.NoError(t, err)
	delete(w.peers, "a")
	w.settle()
	assert.Equal(t, map[string]int{"b": 2}, w.owned())
	a2 := w.join("a2", named)
	assert.Equal(t, had, a2.owned)
	assert.Equal(t, epoch, w.g.Epoch(), "nothing had to be worked out anew")
	_, err = w.g.Beat(w.now, w.topics, group.ConsumerBeat{Member: "a", Instance: "one", Epoch: epoch})
	assert.ErrorIs(t, err, group.ErrFencedInstance)
}

// Members come, go, vanish, lose replies and start anew, and topics grow: no partition is ever
// read by two, and in the end all are read.
func TestConsumerRandomHistories(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 848))
		w := newConsumers(t, counts{"t": 1 + r.IntN(8), "u": r.IntN(4)})
		next := 0
		for range 120 {
			ids := slices.Sorted(maps.Keys(w.peers))
			switch n := r.IntN(12); {
			case n < 2 && len(ids) < 6:
				next++
				w.join(fmt.Sprint("m", next), func(q *group.ConsumerBeat) { q.Topics = [][]string{{"t"}, {"u"}, {"t", "u"}}[r.IntN(3)] })
			case n == 2 && len(ids) > 0: // it leaves
				id := ids[r.IntN(len(ids))]
				_, err := w.g.Beat(w.now, w.topics, group.ConsumerBeat{Member: id, Epoch: -1})
				require.NoError(t, err)
				delete(w.peers, id)
			case n == 3 && len(ids) > 0: // it starts anew under its name
				p := w.peers[ids[r.IntN(len(ids))]]
				p.beat.Epoch, p.owned = 0, nil
				w.heartbeat(p)
			case n == 4: // it vanishes, and its session ends
				if len(ids) > 0 {
					delete(w.peers, ids[r.IntN(len(ids))])
				}
				w.now = w.now.Add(44 * time.Second)
				for _, id := range slices.Sorted(maps.Keys(w.peers)) {
					w.heartbeat(w.peers[id])
				}
				w.now = w.now.Add(time.Second)
				w.g.Tick(w.now, w.topics)
			case n == 5:
				grown := maps.Clone(*w.topics)
				grown["t"] += r.IntN(2)
				w.topics = &grown
			case len(ids) > 0:
				w.now = w.now.Add(time.Duration(r.IntN(300)) * time.Millisecond)
				w.heartbeat(w.peers[ids[r.IntN(len(ids))]])
			}
			w.check()
		}
		w.now = w.now.Add(44 * time.Second)
		for _, id := range slices.Sorted(maps.Keys(w.peers)) {
			w.heartbeat(w.peers[id])
		}
		w.now = w.now.Add(time.Second)
		w.g.Tick(w.now, w.topics)
		if len(w.peers) == 0 {
			continue
		}
		w.settle()
		total := 0
		for topic, n := range *w.topics {
			if w.g.Reads(topic) {
				total += n
			}
		}
		all := 0
		for _, p := range w.peers {
			all += len(p.owned)
		}
		require.Equal(t, total, all, "seed %d", seed)
	}
}
