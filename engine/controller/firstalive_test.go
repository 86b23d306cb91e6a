package controller_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"logbook/engine/controller"
	"logbook/engine/replica"
)

var three = []replica.BrokerID{1, 2, 3}

func firstAlive(t *testing.T, id replica.BrokerID) *controller.FirstAlive {
	c, err := controller.NewFirstAlive(id, three, controller.FirstAliveOptions{})
	require.NoError(t, err)
	c.AddTopic("flights", 1, 3, "murmur2", map[int]int32{0: 4})
	return c
}

// flights/0 has the replicas 3, 1, 2.
func TestNobodyLeadsBeforeItIsInformed(t *testing.T) {
	c := firstAlive(t, 3)
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
	assert.Equal(t, int32(6), a.Epoch, "above what the log has seen, and no other broker's")
	assert.Equal(t, []replica.BrokerID{1, 3}, a.Active)
}

func TestWhoLeadsLeadsOn(t *testing.T) {
	c := firstAlive(t, 3)
	c.Heard(1, []controller.Claim{{Partition: p0, Epoch: 7, Active: three}})
	c.Heard(2, nil)
	a, _ := c.Assignment(p0)
	assert.Equal(t, []any{replica.BrokerID(1), int32(7)}, []any{a.Leader, a.Epoch}, "though 3 is first on the list")
	assert.Equal(t, three, a.Active)
	c.Heard(2, []controller.Claim{{Partition: p0, Epoch: 8, Active: []replica.BrokerID{2}}})
	a, _ = c.Assignment(p0)
	assert.Equal(t, replica.BrokerID(1), a.Leader, "one who led nobody but itself overrules nobody")
	c.Heard(2, []controller.Claim{{Partition: p0, Epoch: 8, Active: three}})
	a, _ = c.Assignment(p0)
	assert.Equal(t, replica.BrokerID(2), a.Leader, "of equals the higher epoch counts")
}

// A leader that proposes what cannot be is told so. To take the proposal and strike out who
// is dead would make it propose the same again, at once and forever.
func TestProposalsOfTheDeadAreRefused(t *testing.T) {
	c := firstAlive(t, 3)
	c.Heard(1, nil)
	for range 3 {
		c.Failed(2)
	}
	a, _ := c.Assignment(p0)
	next := a.Clone()
	next.Version++
	next.Active = three
	var be *controller.BrokerError
	require.ErrorAs(t, c.Propose(p0, next), &be)
	c.Heard(2, nil)
	require.NoError(t, c.Propose(p0, next))
	a, _ = c.Assignment(p0)
	assert.Equal(t, three, a.Active)
	var stale *controller.StaleError
	require.ErrorAs(t, c.Propose(p0, next), &stale)
}
