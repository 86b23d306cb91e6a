package quorum_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/raft/v3/raftpb"

	"logbook/engine/controller"
	"logbook/engine/replica"
)

// A cluster is formed when all brokers have started, and not before; each knows of each decision.
func TestAClusterForms(t *testing.T) {
	w := newTown(t, 3)
	w.start(1)
	w.start(3)
	w.pass(3 * session)
	for _, id := range []replica.BrokerID{1, 3} {
		assert.False(t, w.all[id].machine.Quorum().Formed)
	}
	assert.Contains(t, w.all[1].warnings[0], "waiting for broker 2")
	w.start(2)
	w.until("all count", func() bool { return w.usable(1, 2, 3) })
	cluster := w.all[1].machine.Quorum().Cluster
	for _, b := range w.all {
		assert.Equal(t, cluster, b.machine.Quorum().Cluster)
		assert.Equal(t, []replica.BrokerID{1, 2, 3}, b.machine.Quorum().Voters)
	}
	require.NoError(t, w.create("flights"))
	w.until("everybody follows it", func() bool {
		return !slices.ContainsFunc(w.ids, func(id replica.BrokerID) bool { return w.all[id].decided[flights].Leader != 1 })
	})
}

// What leaves a broker says that something is stored only after it is.
func TestNothingIsSaidBeforeItIsStored(t *testing.T) {
	w := formed(t, 3)
	b := w.all[2]
	b.failing = true
	w.kill(1)
	w.until("a vote was asked for", func() bool { return b.storing })
	b.sent = nil
	w.pass(2 * session)
	for _, m := range b.sent {
		assert.NotContains(t, []string{"controller.BrokerHeartbeatAck"}, m)
	}
	assert.Nil(t, w.active(), "with one broker dead and another that stores nothing there is no majority")
	b.failing = false
	w.until("one is elected once it can be stored", func() bool { return w.active() != nil })
	assert.NotEmpty(t, b.warnings, "a person is told")
}

// A leader that is cut off is replaced, and its lease is over before another is told to lead.
func TestTheLeaseEndsFirst(t *testing.T) {
	for _, victim := range []replica.BrokerID{1, 2} {
		w := formed(t, 3)
		require.NoError(t, w.create("flights"))
		w.until("it is led", func() bool { return w.all[1].decided[flights].Leader == 1 && w.now.Before(w.all[1].lease) })
		if victim != 1 {
			w.kill(1)
			w.until("another leads", func() bool { a := w.assignment(flights); return a.Leader > 1 && w.usable(a.Leader) })
			w.start(1)
			w.until("it is back", func() bool { return w.usable(1) })
			victim = w.assignment(flights).Leader
			w.until("all are in sync", func() bool { return w.join(flights) })
		}
		w.isolate(victim, true)
		began, old := w.now, w.all[victim]
		w.until("another leads", func() bool {
			for _, id := range w.ids {
				if a := w.all[id].decided[flights]; id != victim && a.Leader == id {
					return true
				}
			}
			return false
		})
		assert.False(t, w.now.Before(old.lease), "the old leader may still serve, until %v, at %v", old.lease, w.now)
		assert.False(t, old.lease.After(began.Add(session*3/4)), "nobody gives a lease without a majority, not even to itself")
		w.isolate(victim, false)
		w.until("it is back", func() bool { return w.usable(victim) && old.decided[flights].Leader != victim })
	}
}

// join has the leader propose all replicas that count as in sync, and says whether they are.
func (w *town) join(p controller.Partition) bool {
	a := w.assignment(p)
	if len(a.ISR) == len(a.Replicas) {
		return true
	}
	if a.Leader != replica.None && w.usable(a.Replicas...) {
		next := a.Clone()
		next.Version++
		next.ISR = slices.Sorted(slices.Values(a.Replicas))
		b := w.all[a.Leader]
		w.perform(b, b.machine.Propose(w.now, p, next))
	}
	return false
}

// A change of the in-sync replicas counts only in the leader's own epoch, on the decision that it
// is based on, and without brokers that are fenced.
func TestProposals(t *testing.T) {
	w := formed(t, 3)
	require.NoError(t, w.create("flights"))
	leader := w.all[1]
	w.until("it is led", func() bool { return leader.decided[flights].Leader == 1 })
	good := leader.decided[flights].Clone()
	good.Version++
	good.ISR = []replica.BrokerID{1, 2}
	for name, spoil := range map[string]func(*replica.Assignment){
		"an old version":    func(a *replica.Assignment) { a.Version-- },
		"another's epoch":   func(a *replica.Assignment) { a.LeaderEpoch++ },
		"another's name":    func(a *replica.Assignment) { a.Leader = 2 },
		"other replicas":    func(a *replica.Assignment) { a.Replicas = []replica.BrokerID{1, 2} },
		"a later version":   func(a *replica.Assignment) { a.Version += 5 },
		"not even a leader": func(a *replica.Assignment) { a.ISR = []replica.BrokerID{2} },
	} {
		bad := good.Clone()
		spoil(&bad)
		n := len(leader.rejected)
		w.perform(leader, leader.machine.Propose(w.now, flights, bad))
		w.until(name, func() bool { return len(leader.rejected) > n })
		assert.True(t, leader.rejected[n].Unsure, name)
	}
	w.perform(leader, leader.machine.Propose(w.now, flights, good))
	w.until("it counts", func() bool { return slices.Equal(leader.decided[flights].ISR, []replica.BrokerID{1, 2}) })
	w.kill(3)
	w.until("broker 3 is fenced", func() bool { return !w.usable(3) })
	next := leader.decided[flights].Clone()
	next.Version++
	next.ISR = []replica.BrokerID{1, 2, 3}
	n := len(leader.rejected)
	w.perform(leader, leader.machine.Propose(w.now, flights, next))
	w.until("it is refused", func() bool { return len(leader.rejected) > n })
	assert.Contains(t, leader.rejected[n].Why, "fenced")
	w.perform(leader, leader.machine.Propose(w.now, flights, func() replica.Assignment { next.ISR = []replica.BrokerID{1, 3}; return next }()))
	w.until("what is left of a proposal counts", func() bool { return slices.Equal(leader.decided[flights].ISR, []replica.BrokerID{1}) })
}

// lastInSyncDead is three brokers, of which the one died that alone was in sync.
func lastInSyncDead(t *testing.T) *town {
	w := formed(t, 3)
	require.NoError(t, w.create("flights"))
	w.until("it is led", func() bool { return w.all[1].decided[flights].Leader == 1 })
	alone := w.all[1].decided[flights].Clone()
	alone.Version++
	alone.ISR = []replica.BrokerID{1}
	w.perform(w.all[1], w.all[1].machine.Propose(w.now, flights, alone))
	w.until("it counts", func() bool { return len(w.assignment(flights).ISR) == 1 })
	w.kill(1)
	w.until("nobody leads", func() bool { return w.active() != nil && w.assignment(flights).Leader == replica.None })
	return w
}

// The last in-sync replica stays the one to wait for.
func TestTheLastInSyncReplicaIsWaitedFor(t *testing.T) {
	w := lastInSyncDead(t)
	w.pass(5 * session)
	assert.Equal(t, []any{replica.None, []replica.BrokerID{1}}, []any{w.assignment(flights).Leader, w.assignment(flights).ISR})
	b := w.active()
	w.perform(b, b.machine.Failover(w.now, 1, flights))
	none := &controller.NoEligibleReplicaError{}
	require.ErrorAs(t, b.done[1].Err, &none)
	assert.Contains(t, none.Reasons[1], "not heard of")
	epoch := w.assignment(flights).LeaderEpoch
	w.start(1)
	w.until("it leads again", func() bool { return w.assignment(flights).Leader == 1 })
	assert.Greater(t, w.assignment(flights).LeaderEpoch, epoch)
	w.until("it knows", func() bool { return w.all[1].decided[flights].Leader == 1 })
	assert.Greater(t, w.all[1].decided[flights].LeaderEpoch, epoch, "never in its old epoch")
}

// A broker that is back before anybody has missed it has begun a new life all the same: it leads
// in no old epoch, and others are not said to be sure of it.
func TestAQuickRestart(t *testing.T) {
	w := formed(t, 3)
	require.NoError(t, w.create("flights"))
	w.until("it is led", func() bool { return w.all[1].decided[flights].Leader == 1 })
	before := w.assignment(flights)
	w.kill(1)
	w.start(1)
	w.until("its new life is known", func() bool { a := w.assignment(flights); return a.LeaderEpoch > before.LeaderEpoch })
	assert.NotContains(t, w.assignment(flights).ISR, replica.BrokerID(1))
	assert.NotEqual(t, replica.BrokerID(1), w.assignment(flights).Leader)
	w.until("it counts", func() bool { return w.usable(1) })
	assert.NotEqual(t, before.LeaderEpoch, w.all[1].decided[flights].LeaderEpoch)
}

// A broker counts when it has seen what was decided while it was away, and not before.
func TestWhoHasNotCaughtUpDoesNotCount(t *testing.T) {
	w := formed(t, 3)
	require.NoError(t, w.create("flights"))
	w.kill(3)
	w.drop = func(to replica.BrokerID, m controller.Message) bool {
		r, ok := m.(controller.RaftMessage)
		var q raftpb.Message
		return ok && to == 3 && q.Unmarshal(r.Data) == nil && q.Type == raftpb.MsgApp
	}
	w.start(3)
	w.until("its new life is registered", func() bool {
		r, _ := w.active().machine.Image().Broker(3)
		return r.Fenced
	})
	w.pass(3 * session)
	assert.False(t, w.usable(3))
	w.drop = nil
	w.until("it has caught up", func() bool { return w.usable(3) })
}

// A replica that its broker has said it cannot use is not taken for in sync.
func TestAnUnusableReplicaIsNotInSync(t *testing.T) {
	w := formed(t, 3)
	require.NoError(t, w.create("flights"))
	w.until("it is led", func() bool { return w.all[1].decided[flights].Leader == 1 })
	w.unusable[3], w.hopeless = []controller.Partition{flights}, true
	w.until("it is given up", func() bool { return !slices.Contains(w.assignment(flights).ISR, 3) })
	next := w.assignment(flights).Clone()
	next.Version++
	next.ISR = []replica.BrokerID{1, 2, 3}
	n := len(w.all[1].rejected)
	w.perform(w.all[1], w.all[1].machine.Propose(w.now, flights, next))
	w.until("it is refused", func() bool { return len(w.all[1].rejected) > n })
	assert.Contains(t, w.all[1].rejected[n].Why, "cannot use it")
}

// Where a topic's settings prefer it, a replica that was not in sync leads when no other is left:
// it is counted, and a person is told.
func TestUncleanElection(t *testing.T) {
	w := lastInSyncDead(t)
	b, yes := w.active(), "true"
	w.perform(b, b.machine.ChangeTopic(w.now, 5, controller.TopicChange{Name: "flights", Settings: map[string]*string{"unclean.leader.election.enable": &yes}}))
	w.until("another leads", func() bool { return w.assignment(flights).Leader > 1 })
	assert.Equal(t, []replica.BrokerID{w.assignment(flights).Leader}, w.assignment(flights).ISR)
	assert.Equal(t, 1, b.machine.Quorum().UncleanElections)
	assert.True(t, slices.ContainsFunc(b.warnings, func(s string) bool { return strings.Contains(s, "may be lost") }))
	second := w.assignment(flights).Leader
	w.start(1)
	w.until("it is back", func() bool { return w.usable(1) })
	w.kill(second)
	w.until("the third leads at once", func() bool { l := w.assignment(flights).Leader; return l != replica.None && l != second })
}

// A broker whose disk is gone is a new member: the old one's votes are not given twice.
func TestALostDiskIsANewMember(t *testing.T) {
	w := formed(t, 3)
	require.NoError(t, w.create("flights"))
	w.kill(3)
	w.all[3].disk = nil
	w.start(3)
	w.pass(session / 4)
	assert.False(t, w.all[3].machine.Quorum().Formed, "it waits until it is sure that nobody has its place")
	w.until("it takes the place", func() bool { return w.usable(3) })
	w.until("it knows all", func() bool { return w.all[3].decided[flights].Version > 0 })
	assert.Equal(t, []replica.BrokerID{1, 2, 3}, w.all[3].machine.Quorum().Voters)
	w.kill(1) // the others are a majority, with the new one
	w.until("they elect one", func() bool { b := w.active(); return b != nil && b.id != 1 && !w.usable(1) })
}

// A majority that lost its disks does not form a second cluster beside the first.
func TestNoSecondCluster(t *testing.T) {
	w := formed(t, 3)
	cluster := w.all[3].machine.Quorum().Cluster
	for _, id := range []replica.BrokerID{1, 2} {
		w.kill(id)
		w.all[id].disk = nil
	}
	w.start(1)
	w.start(2)
	w.pass(10 * session)
	for _, id := range []replica.BrokerID{1, 2} {
		assert.False(t, w.all[id].machine.Quorum().Formed)
	}
	assert.Equal(t, cluster, w.all[3].machine.Quorum().Cluster)
}

// A broker of another cluster is not heeded, and both are told.
func TestStrangers(t *testing.T) {
	w, other := formed(t, 3), formed(t, 3)
	_ = other
	w.kill(3)
	w.all[3].disk = other.all[3].disk
	require.NotEmpty(t, w.all[3].disk)
	w.lives += 10
	w2 := newTown(t, 3)
	w2.lives = 100 // other dice: another cluster
	for _, id := range w2.ids {
		w2.start(id)
	}
	w2.until("all count", func() bool { return w2.usable(1, 2, 3) })
	w.all[3].disk = w2.all[3].disk
	w.start(3)
	w.pass(5 * session)
	assert.False(t, w.usable(3))
	assert.True(t, slices.ContainsFunc(append(w.all[3].warnings, w.active().warnings...), func(s string) bool { return len(s) > 0 }), "somebody is told")
	assert.True(t, w.usable(1, 2), "the cluster goes on")
}

// The journal begins anew when it has grown, and says the same.
func TestSnapshots(t *testing.T) {
	w := newTown(t, 3)
	w.snapshot = 8
	for _, id := range w.ids {
		w.start(id)
	}
	w.until("all count", func() bool { return w.usable(1, 2, 3) })
	w.kill(3)
	w.until("it is fenced", func() bool { return !w.usable(3) })
	for i := range 40 {
		require.NoError(t, w.create(string(rune('a'+i%26))+string(rune('a'+i/26))))
	}
	assert.Less(t, len(w.all[1].disk), 60, "forty topics are as many entries, and as many notes of how far they count")
	w.start(3) // it lags by more than the others keep
	w.until("it has caught up", func() bool { return w.usable(3) && len(w.all[3].machine.Image().Topics()) == 40 })
	for _, id := range w.ids {
		w.kill(id)
	}
	for _, id := range w.ids {
		w.start(id)
		assert.GreaterOrEqual(t, len(w.all[id].machine.Image().Topics()), 40, "what counted is known at once")
	}
	w.until("all count again", func() bool { return w.usable(1, 2, 3) })
}

// A broker that leaves hands over, the active controller too, and no more than that.
func TestLeaving(t *testing.T) {
	w := formed(t, 3)
	require.NoError(t, w.create("flights"))
	leader := w.all[1]
	w.until("it is led", func() bool { return leader.decided[flights].Leader == 1 })
	assert.False(t, leader.machine.Left())
	began := w.now
	w.perform(leader, leader.machine.Leave(w.now))
	w.until("it has left", leader.machine.Left)
	assert.Less(t, w.now.Sub(began), session/2, "nothing was waited for")
	assert.NotEqual(t, replica.BrokerID(1), w.assignment(flights).Leader)
	w.kill(1)
	w.start(1)
	w.until("it counts again", func() bool { return w.usable(1) })
}

// A replica that its broker cannot use is given up where others are in sync, and begun anew; the
// last one is not.
func TestMending(t *testing.T) {
	w := formed(t, 3)
	require.NoError(t, w.create("flights"))
	w.until("it is led", func() bool { return w.all[1].decided[flights].Leader == 1 })
	w.unusable[1] = []controller.Partition{flights}
	w.until("another leads", func() bool { return w.assignment(flights).Leader > 1 })
	assert.Equal(t, []replica.BrokerID{2, 3}, w.assignment(flights).ISR)
	w.until("it is begun anew", func() bool { return slices.Contains(w.all[1].remade, flights) })

	leader := w.all[w.assignment(flights).Leader]
	alone := w.assignment(flights).Clone()
	alone.Version++
	alone.ISR = []replica.BrokerID{leader.id}
	w.perform(leader, leader.machine.Propose(w.now, flights, alone))
	w.until("it is the last", func() bool { return len(w.assignment(flights).ISR) == 1 })
	w.unusable[leader.id] = []controller.Partition{flights}
	w.pass(5 * session)
	assert.Empty(t, leader.remade, "it may be the last good copy")
	assert.Equal(t, leader.id, w.assignment(flights).Leader)
}

// A topic that was deleted and made again is not the old one, on a broker that was away too.
func TestTopicsThatAreDeletedWhileABrokerIsAway(t *testing.T) {
	w := formed(t, 3)
	require.NoError(t, w.create("flights"))
	w.until("all have it", func() bool { return w.all[3].decided[flights].Version > 0 })
	w.kill(3)
	w.until("it is fenced", func() bool { return !w.usable(3) })
	b := w.active()
	w.perform(b, b.machine.ChangeTopic(w.now, 7, controller.TopicChange{Name: "flights", Delete: true}))
	w.until("it is deleted", func() bool { _, ok := b.done[7]; return ok })
	require.NoError(t, b.done[7].Err)
	require.NoError(t, w.create("flights"))
	w.start(3)
	w.until("it counts", func() bool { return w.usable(3) })
	require.Len(t, w.all[3].removed, 1)
	assert.Equal(t, "flights", w.all[3].removed[0].Topic)
}

// A fourth broker joins a cluster of three whose brokers were started again with its name.
func TestABrokerIsAdded(t *testing.T) {
	w := formed(t, 3)
	require.NoError(t, w.create("flights"))
	w.ids = append(w.ids, 4)
	w.all[4] = &resident{id: 4}
	for _, id := range []replica.BrokerID{1, 2, 3} {
		w.kill(id)
		w.start(id)
		w.until("it is back", func() bool { return w.usable(id) })
	}
	w.start(4)
	w.until("it counts", func() bool { return w.usable(1, 2, 3, 4) })
	assert.Equal(t, []replica.BrokerID{1, 2, 3, 4}, w.active().machine.Quorum().Voters)
	w.kill(1)
	w.until("three of four elect one", func() bool { return w.active() != nil && !w.usable(1) })
}
