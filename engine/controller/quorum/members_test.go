package quorum_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"logbook/engine/controller"
	"logbook/engine/controller/quorum"
	"logbook/engine/metadata"
	"logbook/engine/replica"
)

// divided is a cluster in which brokers 1 and 2 store, and 3, 4 and 5 decide.
func divided(t *testing.T) *town {
	w := newTown(t, 5)
	w.roles = map[replica.BrokerID]metadata.Role{1: metadata.StoresOnly, 2: metadata.StoresOnly, 3: metadata.DecidesOnly, 4: metadata.DecidesOnly, 5: metadata.DecidesOnly}
	for _, id := range w.ids {
		w.start(id)
	}
	w.until("all brokers count", func() bool { return w.usable(w.ids...) })
	return w
}

// refused checks that a change of the members is refused, for a reason.
func refused(t *testing.T, err error, reason string) {
	t.Helper()
	var e *controller.MemberError
	require.ErrorAs(t, err, &e)
	assert.Contains(t, e.Reason, reason)
}

// Where some brokers decide and others store, those who decide elect, and those who store have the
// replicas; either lives on without one of its own.
func TestSomeDecideAndOthersStore(t *testing.T) {
	w := divided(t)
	for _, b := range w.all {
		q := b.machine.Quorum()
		assert.Equal(t, []replica.BrokerID{3, 4, 5}, q.Voters)
		assert.Equal(t, []replica.BrokerID{1, 2}, q.Learners)
	}
	require.NoError(t, w.createOn("flights", 6, 2))
	for p, a := range w.active().machine.Image().Assignments() {
		assert.ElementsMatch(t, []replica.BrokerID{1, 2}, a.Replicas, "%s", p)
	}
	var e *controller.BrokerError
	require.ErrorAs(t, w.createOn("many", 1, 3), &e, "two brokers have no room for three replicas")
	assert.Error(t, w.command(func(m *quorum.Controller, id uint64) []controller.Effect {
		return m.Reassign(w.now, id, flights, []replica.BrokerID{1, 3})
	}), "who decides stores nothing")

	was := w.active().id
	w.kill(was)
	w.until("another controller is active", func() bool { return w.active() != nil && w.active().id != was })
	assert.Contains(t, []replica.BrokerID{3, 4, 5}, w.active().id)
	w.kill(2)
	w.until("broker 1 leads, and has heard of it", func() bool {
		return w.assignment(flights).Leader == 1 && w.all[1].decided[flights].Leader == 1 && !w.usable(2)
	})
	for _, id := range w.ids {
		if b := w.all[id]; b.up {
			require.Less(t, b.machine.Applied(), b.machine.Quorum().Committed+1)
		}
	}
}

// Those who decide go on when all who only store are gone, and a majority of those who decide is
// needed whatever the others do.
func TestLearnersDoNotCount(t *testing.T) {
	w := divided(t)
	w.kill(1)
	w.kill(2)
	w.pass(2 * session)
	assert.NotNil(t, w.active())
	w.start(1)
	w.start(2)
	w.until("they are back", func() bool { return w.usable(1, 2) })
	w.kill(3)
	w.kill(4)
	w.pass(4 * session)
	assert.Nil(t, w.active(), "one of three voters and two without a vote are no majority")
	w.start(4)
	w.until("a controller is active", func() bool { return w.active() != nil })
}

// Nobody decides where nobody is to.
func TestNobodyIsToDecide(t *testing.T) {
	w := newTown(t, 2)
	w.roles = map[replica.BrokerID]metadata.Role{1: metadata.StoresOnly, 2: metadata.StoresOnly}
	w.start(1)
	w.start(2)
	w.pass(3 * session)
	assert.Nil(t, w.active())
	assert.Contains(t, w.all[1].warnings[len(w.all[1].warnings)-1], "not one of the brokers [1 2] is to decide")
}

// Votes are taken and given while the cluster runs, as long as a majority of those left is heard of.
func TestVotesMove(t *testing.T) {
	w := formed(t, 5)
	refused(t, w.change(9, controller.TakeVote), "not one of the cluster's")
	require.NoError(t, w.change(4, controller.TakeVote))
	require.NoError(t, w.change(4, controller.TakeVote), "it has none already")
	require.NoError(t, w.change(5, controller.TakeVote))
	w.until("everybody knows", func() bool {
		return !slices.ContainsFunc(w.ids, func(id replica.BrokerID) bool { return len(w.all[id].machine.Quorum().Voters) != 3 })
	})
	w.kill(2)
	w.until("broker 2 is fenced", func() bool { return w.active() != nil && !w.usable(2) })
	refused(t, w.change(3, controller.TakeVote), "no majority")
	require.NoError(t, w.change(2, controller.TakeVote), "a dead one's vote can be spared")
	require.NoError(t, w.change(5, controller.GiveVote))
	w.kill(4)
	w.until("broker 4 is fenced", func() bool { return w.active() != nil && !w.usable(4) })
	w.all[4].disk = nil
	w.start(4)
	w.until("it is back", func() bool { return w.usable(4) })
	assert.Contains(t, w.active().machine.Quorum().Learners, replica.BrokerID(4), "nor does one that comes back without its disk")
	w.start(2)
	w.until("it is back", func() bool { return w.usable(2) })
	assert.Equal(t, []replica.BrokerID{1, 3, 5}, w.active().machine.Quorum().Voters, "who comes back gets no vote by that")
	require.NoError(t, w.change(2, controller.GiveVote))
	require.NoError(t, w.change(4, controller.GiveVote))
	w.kill(1)
	w.kill(3)
	w.until("three of five decide", func() bool { return w.active() != nil && !w.usable(1) && !w.usable(3) })
	require.NoError(t, w.createOn("flights", 1, 3))
}

// The active controller's own vote can be taken: another takes over.
func TestTheActiveControllersVote(t *testing.T) {
	w := formed(t, 3)
	was := w.active().id
	require.NoError(t, w.change(was, controller.TakeVote))
	w.until("another is active", func() bool { return w.active() != nil && w.active().id != was })
	w.until("all count", func() bool { return w.usable(1, 2, 3) })
	assert.NotContains(t, w.active().machine.Quorum().Voters, was)
	assert.Contains(t, w.active().machine.Quorum().Learners, was)
}

// The active controller itself can be removed.
func TestTheActiveControllerIsRemoved(t *testing.T) {
	w := formed(t, 3)
	was := w.active().id
	require.NoError(t, w.change(was, controller.RemoveBroker))
	w.until("another is active, and there are two members", func() bool {
		b := w.active()
		return b != nil && b.id != was && len(b.machine.Quorum().Voters) == 2
	})
	assert.NotContains(t, w.active().machine.Image().Brokers(), was)
	require.NoError(t, w.createOn("flights", 1, 2))
}

// A broker that starts with the role to store only gives its vote back.
func TestARoleThatChanges(t *testing.T) {
	w := formed(t, 4)
	w.roles = map[replica.BrokerID]metadata.Role{4: metadata.StoresOnly}
	w.kill(4)
	w.until("it is fenced", func() bool { return w.active() != nil && !w.usable(4) })
	w.start(4)
	w.until("it has no vote", func() bool {
		return w.usable(4) && !slices.Contains(w.active().machine.Quorum().Voters, 4) && slices.Contains(w.active().machine.Quorum().Learners, 4)
	})
	refused(t, w.change(4, controller.GiveVote), "its role is to store only")
}

// A broker that has nothing any more can be removed: it has no vote then, nothing is put on it,
// and it hears of it. It comes back with an empty disk alone.
func TestABrokerIsRemoved(t *testing.T) {
	w := formed(t, 4)
	require.NoError(t, w.createOn("flights", 4, 3))
	refused(t, w.change(4, controller.RemoveBroker), "it has replicas of 3 partitions")
	for p, a := range w.active().machine.Image().Assignments() {
		if !slices.Contains(a.Replicas, 4) {
			continue
		}
		require.NoError(t, w.command(func(m *quorum.Controller, id uint64) []controller.Effect {
			return m.Reassign(w.now, id, p, []replica.BrokerID{1, 2, 3})
		}))
		w.until("it has moved", func() bool { w.join(p); return w.assignment(p).Target == nil })
	}
	removed := w.all[4]
	require.NoError(t, w.change(4, controller.RemoveBroker))
	refused(t, w.change(4, controller.RemoveBroker), "not one of the cluster's")
	w.until("it is no member", func() bool {
		q := w.active().machine.Quorum()
		return slices.Equal(q.Voters, []replica.BrokerID{1, 2, 3}) && len(q.Learners) == 0
	})
	assert.Contains(t, removed.warnings[len(removed.warnings)-1], "was removed from the cluster")
	require.NoError(t, w.createOn("trains", 4, 3))
	for p, a := range w.active().machine.Image().Assignments() {
		assert.NotContains(t, a.Replicas, replica.BrokerID(4), "%s", p)
	}

	w.kill(4)
	w.start(4)
	w.pass(4 * session)
	_, known := w.active().machine.Image().Broker(4)
	assert.False(t, known, "what it was once it is not again")
	assert.Contains(t, w.all[4].warnings[0], "was removed from the cluster")

	w.kill(4)
	w.all[4].disk = nil
	w.start(4)
	w.until("it has joined anew", func() bool { return w.usable(4) })
	w.until("and votes", func() bool { return slices.Contains(w.active().machine.Quorum().Voters, 4) })
	w.pass(4 * session)
	assert.Contains(t, w.active().machine.Quorum().Voters, replica.BrokerID(4), "what was let go before is forgotten")
}

// Of two voters one can be removed: it takes part until it is let go.
func TestOneOfTwoVotersIsRemoved(t *testing.T) {
	for _, kind := range []controller.MemberChangeKind{controller.TakeVote, controller.RemoveBroker} {
		w := formed(t, 2)
		was := w.active().id
		require.NoError(t, w.change(3-was, kind))
		w.until("the other decides alone", func() bool {
			return w.active() != nil && slices.Equal(w.active().machine.Quorum().Voters, []replica.BrokerID{was})
		})
		w.kill(3 - was)
		w.pass(2 * session)
		require.NoError(t, w.createOn("flights", 1, 1), kind)
		refused(t, w.change(was, controller.TakeVote), "no majority")
	}
}

// A broker that is added while the others run joins, votes, and gets partitions; and again after all
// have started anew with the lists that they had.
func TestABrokerIsAddedWhileTheOthersRun(t *testing.T) {
	w := newTown(t, 4)
	old := w.ids[:3]
	w.lists = map[replica.BrokerID][]replica.BrokerID{1: old, 2: old, 3: old}
	for _, id := range old {
		w.start(id)
	}
	w.until("all brokers count", func() bool { return w.usable(old...) })
	add := func(id replica.BrokerID, address string) error {
		return w.command(func(m *quorum.Controller, command uint64) []controller.Effect {
			return m.ChangeMember(w.now, command, controller.MemberChange{Broker: id, Kind: controller.AddBroker, Address: address})
		})
	}
	w.start(4)
	w.pass(4 * session)
	_, known := w.active().machine.Image().Broker(4)
	assert.False(t, known, "nobody has let it in")
	refused(t, add(4, ""), "the address")
	refused(t, add(3, "x:1"), "already")
	require.NoError(t, add(4, "wrong:1"))
	require.NoError(t, add(4, "host:9400"), "as long as it has not come, its address can be set right")
	r, _ := w.active().machine.Image().Broker(4)
	assert.Equal(t, "host:9400", r.Address)
	w.until("it has joined", func() bool { return w.usable(4) })
	w.until("and votes", func() bool { return slices.Contains(w.active().machine.Quorum().Voters, 4) })
	refused(t, add(4, "other:1"), "already")
	r, _ = w.active().machine.Image().Broker(4)
	assert.Equal(t, "host:9400", r.Address, "what it says of itself does not take that away")
	require.NoError(t, w.createOn("flights", 4, 3))
	on := 0
	for _, a := range w.active().machine.Image().Assignments() {
		if slices.Contains(a.Replicas, 4) {
			on++
		}
	}
	assert.Equal(t, 3, on)

	for _, id := range w.ids {
		w.kill(id)
	}
	for _, id := range w.ids {
		w.start(id)
	}
	w.until("all count again", func() bool { return w.usable(w.ids...) })
	w.kill(1)
	w.kill(2)
	w.pass(4 * session)
	assert.Nil(t, w.active(), "two of four are no majority")
	w.start(2)
	w.until("three are", func() bool { return w.active() != nil })
}
