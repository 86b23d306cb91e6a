package controller_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"logbook/engine/controller"
	"logbook/engine/replica"
)

var three = []replica.BrokerID{1, 2, 3}

func reckoning(t *testing.T, id replica.BrokerID) *controller.Reckoning {
	c, err := controller.NewReckoning(id, three, controller.ReckoningOptions{})
	require.NoError(t, err)
	c.AddTopic("flights", 1, 3, map[int]int32{0: 4})
	return c
}

// flights/0 has the replicas 3, 1, 2.
func TestNobodyLeadsBeforeItIsInformed(t *testing.T) {
	c := reckoning(t, 3)
	a, _ := c.Assignment(p0)
	assert.Equal(t, replica.None, a.Leader)
	c.Heard(1, nil)
	a, _ = c.Assignment(p0)
	assert.Equal(t, replica.None, a.Leader, "broker 2 may lead")
	for range 3 {
		c.Failed(2)
	}
	a, _ = c.Assignment(p0)
	assert.Equal(t, replica.BrokerID(3), a.Leader)
	assert.Equal(t, int32(6), a.LeaderEpoch, "above what the log has seen, and no other broker's")
	assert.Equal(t, []replica.BrokerID{1, 3}, a.ISR)
}

func TestWhoLeadsLeadsOn(t *testing.T) {
	c := reckoning(t, 3)
	c.Heard(1, []controller.LeadershipClaim{{Partition: p0, LeaderEpoch: 7, ISR: three}})
	c.Heard(2, nil)
	a, _ := c.Assignment(p0)
	assert.Equal(t, []any{replica.BrokerID(1), int32(7)}, []any{a.Leader, a.LeaderEpoch}, "though 3 is first on the list")
	assert.Equal(t, three, a.ISR)
	c.Heard(2, []controller.LeadershipClaim{{Partition: p0, LeaderEpoch: 8, ISR: []replica.BrokerID{2}}})
	a, _ = c.Assignment(p0)
	assert.Equal(t, replica.BrokerID(1), a.Leader, "one who led nobody but itself overrules nobody")
	c.Heard(2, []controller.LeadershipClaim{{Partition: p0, LeaderEpoch: 8, ISR: three}})
	a, _ = c.Assignment(p0)
	assert.Equal(t, replica.BrokerID(2), a.Leader, "of equals the higher epoch counts")
}

// A leader that proposes what cannot be is told so. To take the proposal and strike out who
// is dead would make it propose the same again, at once and forever.
func TestProposalsOfTheDeadAreRefused(t *testing.T) {
	c := reckoning(t, 3)
	c.Heard(1, nil)
	for range 3 {
		c.Failed(2)
	}
	a, _ := c.Assignment(p0)
	next := a.Clone()
	next.Version++
	next.ISR = three
	var be *controller.BrokerError
	require.ErrorAs(t, c.Propose(p0, next), &be)
	c.Heard(2, nil)
	require.NoError(t, c.Propose(p0, next))
	a, _ = c.Assignment(p0)
	assert.Equal(t, three, a.ISR)
	var stale *controller.StaleError
	require.ErrorAs(t, c.Propose(p0, next), &stale)
}

// A leader that was paused claims the in-sync set that it had. The others have gone on
// without it: their logs say so, and its claim is worth what their support of it is.
func TestAPausedLeaderOverrulesNobody(t *testing.T) {
	for _, id := range three {
		c := reckoning(t, id)
		standing := func(epoch int32) []controller.Standing {
			return []controller.Standing{{Partition: p0, LastEpoch: epoch, LogEndOffset: 100}}
		}
		c.Stands(1, standing(1))
		c.Stands(2, standing(5))
		c.Stands(3, standing(5))
		paused := []controller.LeadershipClaim{{Partition: p0, LeaderEpoch: 4, ISR: three}}
		if id != 1 {
			c.Heard(1, paused)
		}
		if id != 2 {
			c.Heard(2, []controller.LeadershipClaim{{Partition: p0, LeaderEpoch: 5, ISR: []replica.BrokerID{2, 3}}})
		}
		if id != 3 {
			c.Heard(3, nil)
		}
		a, _ := c.Assignment(p0)
		if id == 2 {
			continue // its own claim comes by itself
		}
		assert.Equal(t, replica.BrokerID(2), a.Leader, "as broker %d reckons", id)
	}
}

// Where nobody leads, the newest log does, whoever is first on the list: it has what was
// acknowledged while the others were away.
func TestTheNewestLogLeads(t *testing.T) {
	c := reckoning(t, 3) // first on the list
	c.Stands(3, []controller.Standing{{Partition: p0, LastEpoch: 1, LogEndOffset: 300}})
	c.Stands(1, []controller.Standing{{Partition: p0, LastEpoch: 2, LogEndOffset: 200}})
	c.Stands(2, []controller.Standing{{Partition: p0, LastEpoch: 2, LogEndOffset: 600}})
	c.Heard(1, nil)
	c.Heard(2, nil)
	a, _ := c.Assignment(p0)
	assert.Equal(t, replica.BrokerID(2), a.Leader)
}

// No number that comes from outside makes the epochs run over, or the broker stand still.
func TestEpochsEndSomewhere(t *testing.T) {
	c := reckoning(t, 3)
	c.Heard(2, []controller.LeadershipClaim{{Partition: p0, LeaderEpoch: 1<<31 - 1, ISR: three}})
	a, _ := c.Assignment(p0)
	assert.NotEqual(t, int32(1<<31-1), a.LeaderEpoch, "nobody counted so far")
	c.Heard(2, []controller.LeadershipClaim{{Partition: p0, LeaderEpoch: controller.MaxEpoch, ISR: three}})
	c.Heard(1, nil)
	c.Heard(2, nil)
	a, _ = c.Assignment(p0)
	assert.Equal(t, replica.None, a.Leader, "there is no epoch left in which to lead")
}
