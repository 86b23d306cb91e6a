package group_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"logbook/engine/group"
)

// world drives a group with random requests and keeps a plain model beside it: what each
// client believes, and which offsets were accepted.
type world struct {
	t        *testing.T
	rng      *rand.Rand
	g        *group.Group
	now      time.Time
	counts   map[string]int
	assignor string
	saved    []byte
	clients  map[string]*client // by member id
	next     uint64
	requests map[uint64]group.Request
	owners   map[int32]map[group.Partition]string // of each generation
}

// client is what a member believes.
type client struct {
	id         string
	topics     []string
	generation int32
	partitions []group.Partition
	dead       bool
}

func (w *world) step(r group.Request) {
	w.next++
	r.ID = w.next
	w.requests[r.ID] = r
	w.take(w.g.Step(w.now, r))
}

// take handles an output as a driver must, and checks what must always hold.
func (w *world) take(out group.Output) {
	if out.Save {
		w.saved = w.g.Snapshot()
	}
	for _, reply := range out.Replies {
		r, ok := w.requests[reply.ID]
		require.True(w.t, ok, "a reply to nothing")
		delete(w.requests, reply.ID)
		id := r.Member
		if id == "" {
			id = r.NewMember
		}
		w.learn(w.clients[id], r, reply)
	}
	w.check()
}

func (w *world) learn(c *client, r group.Request, reply group.Reply) {
	var stale *group.StaleGenerationError
	switch {
	case reply.Err == nil && r.Kind == group.Join:
		require.GreaterOrEqual(w.t, reply.Generation, c.generation, "generations never go back")
		c.generation = reply.Generation
	case reply.Err == nil && r.Kind == group.Sync:
		require.Equal(w.t, r.Generation, w.g.Generation())
		c.partitions = reply.Partitions
	case reply.Err == nil && r.Kind == group.Commit:
		require.Equal(w.t, r.Generation, w.g.Generation(), "a stale generation's commit was accepted")
		require.Contains(w.t, w.g.Assignment(), c.id, "an unknown member's commit was accepted")
		for p := range r.Offsets {
			require.Contains(w.t, w.g.Assignment()[c.id], p, "a commit for another's partition was accepted")
		}
	case errors.Is(reply.Err, group.ErrUnknownMember):
		c.dead = true
	case errors.As(reply.Err, &stale):
		require.Equal(w.t, w.g.Generation(), stale.Current)
	}
}

func (w *world) check() {
	owner := map[group.Partition]string{}
	for id, list := range w.g.Assignment() {
		for _, p := range list {
			require.Empty(w.t, owner[p], "%s has two owners in generation %d", p, w.g.Generation())
			owner[p] = id
		}
	}
	if w.g.State() == group.Stable {
		if w.owners[w.g.Generation()] == nil {
			w.owners[w.g.Generation()] = owner
		}
	}
}

func (w *world) spawn() {
	id := fmt.Sprintf("m%03d", len(w.clients))
	topics := []string{"a"}
	if w.rng.IntN(2) == 0 {
		topics = []string{"a", "b"}
	}
	w.clients[id] = &client{id: id, topics: topics}
	w.step(w.joinOf(w.clients[id], true))
}

func (w *world) joinOf(c *client, first bool) group.Request {
	r := group.Request{
		Kind: group.Join, Member: c.id, Topics: c.topics, Assignor: w.assignor, Owned: c.partitions,
		SessionTimeout: 10 * time.Second, RebalanceTimeout: 4 * time.Second,
	}
	if first {
		r.Member, r.NewMember = "", c.id
	}
	return r
}

func (w *world) live() []*client {
	var out []*client
	for _, c := range w.clients {
		if !c.dead {
			out = append(out, c)
		}
	}
	slices.SortFunc(out, func(a, b *client) int { return len(a.id) - len(b.id) + map[bool]int{true: -1, false: 1}[a.id < b.id] })
	return out
}

func (w *world) random() {
	live := w.live()
	if len(live) == 0 || len(live) < 6 && w.rng.IntN(12) == 0 {
		w.spawn()
		return
	}
	c := live[w.rng.IntN(len(live))]
	generation := c.generation
	if w.rng.IntN(6) == 0 {
		generation -= int32(w.rng.IntN(3))
	}
	switch w.rng.IntN(12) {
	case 0, 1, 2:
		w.step(group.Request{Kind: group.Heartbeat, Member: c.id, Generation: generation})
	case 3, 4:
		w.step(w.joinOf(c, false))
	case 5, 6:
		w.step(group.Request{Kind: group.Sync, Member: c.id, Generation: generation})
	case 7, 8:
		offsets := map[group.Partition]int64{{Topic: "a", ID: w.rng.IntN(4)}: int64(w.next)}
		w.step(group.Request{Kind: group.Commit, Member: c.id, Generation: generation, Offsets: offsets})
	case 9:
		if w.rng.IntN(4) == 0 {
			c.dead = true
			w.step(group.Request{Kind: group.Leave, Member: c.id})
			return
		}
		c.dead = w.rng.IntN(4) == 0 // it hangs: nothing more is heard of it
	case 10:
		w.pass(time.Duration(w.rng.IntN(3000)) * time.Millisecond)
	case 11:
		if w.rng.IntN(5) == 0 && w.saved != nil { // the coordinator restarts
			g, err := group.Restore(w.saved, w.counts, w.now)
			require.NoError(w.t, err)
			require.GreaterOrEqual(w.t, g.Generation(), w.g.Generation(), "a restart loses no generation")
			w.g = g
			clear(w.requests)
			w.check()
		}
	}
}

// pass lets time pass, with a tick whenever one is due.
func (w *world) pass(d time.Duration) {
	target := w.now.Add(d)
	for {
		next := w.g.Next()
		if next.IsZero() || next.After(target) {
			w.now = target
			return
		}
		if next.After(w.now) {
			w.now = next
		}
		w.take(w.g.Tick(w.now))
	}
}

// settle lets every live client do as it should, and nothing else happen.
func (w *world) settle() {
	for range 60 {
		w.pass(time.Second)
		for _, c := range w.live() {
			w.step(group.Request{Kind: group.Heartbeat, Member: c.id, Generation: c.generation})
			if c.dead {
				continue // it has learnt that it is out
			}
			if w.g.State() != group.Stable || c.generation != w.g.Generation() {
				w.step(w.joinOf(c, false))
			}
		}
		for _, c := range w.live() {
			if c.generation == w.g.Generation() && w.g.State() == group.Stable {
				w.step(group.Request{Kind: group.Sync, Member: c.id, Generation: c.generation})
			}
		}
	}
	live := w.live()
	if len(live) == 0 {
		return
	}
	require.Equal(w.t, group.Stable, w.g.State(), "the group settles")
	owner := map[group.Partition]string{}
	for id, list := range w.g.Assignment() {
		for _, p := range list {
			owner[p] = id
		}
	}
	for _, c := range live {
		require.Equal(w.t, w.g.Generation(), c.generation, c.id)
		require.Equal(w.t, fmt.Sprint(w.g.Assignment()[c.id]), fmt.Sprint(c.partitions), "%s knows what is its own", c.id)
		for _, topic := range c.topics {
			for id := range w.counts[topic] {
				require.NotEmpty(w.t, owner[group.Partition{Topic: topic, ID: id}], "%s/%d has no owner", topic, id)
			}
		}
	}
}

func TestRandomOperationsAgainstAModel(t *testing.T) {
	if testing.Short() {
		t.Skip("a long enumeration")
	}
	steps := 0
	for seed := range uint64(150) {
		for _, assignor := range []string{"roundrobin", "range", "cooperative-sticky"} {
			t.Run(fmt.Sprintf("%s/seed%d", assignor, seed), func(t *testing.T) {
				counts := map[string]int{"a": 4, "b": 3}
				w := &world{
					t: t, rng: rand.New(rand.NewPCG(seed, 9)), g: group.New("g", counts), now: time.Unix(0, 0), counts: counts,
					assignor: assignor, clients: map[string]*client{}, requests: map[uint64]group.Request{},
					owners: map[int32]map[group.Partition]string{},
				}
				for range 120 {
					w.random()
					steps++
				}
				w.settle()
			})
		}
	}
	fmt.Printf("group model: %d random steps\n", steps)
}

func TestBadRequests(t *testing.T) {
	now := time.Unix(0, 0)
	g := group.New("g", map[string]int{"t": 1})
	for name, r := range map[string]group.Request{
		"an unknown kind":       {Kind: "dance"},
		"a session too short":   {Kind: group.Join, NewMember: "a", SessionTimeout: time.Nanosecond},
		"a session too long":    {Kind: group.Join, NewMember: "a", SessionTimeout: time.Hour},
		"a negative patience":   {Kind: group.Join, NewMember: "a", RebalanceTimeout: -1},
		"no id to give":         {Kind: group.Join},
		"a member nobody knows": {Kind: group.Join, Member: "ghost"},
		"a leave of a stranger": {Kind: group.Leave, Member: "ghost"},
	} {
		out := g.Step(now, r)
		require.Len(t, out.Replies, 1, name)
		require.Error(t, out.Replies[0].Err, name)
		require.Equal(t, group.Empty, g.State(), name)
	}
	for _, bad := range []string{"", "{", `{"version":2,"name":"g"}`, `{"version":1,"name":"","members":[]}`,
		`{"version":1,"name":"g","assignor":"dice","members":[{"id":"a","session_timeout_ns":1}]}`,
		`{"version":1,"name":"g","members":[{"id":"a","session_timeout_ns":1,"partitions":[{"topic":"t","partition":0}]},{"id":"b","session_timeout_ns":1,"partitions":[{"topic":"t","partition":0}]}]}`,
	} {
		_, err := group.Restore([]byte(bad), nil, now)
		require.Error(t, err, bad)
	}
}
