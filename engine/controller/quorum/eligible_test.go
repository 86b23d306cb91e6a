package quorum_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"logbook/engine/controller"
	"logbook/engine/controller/quorum"
	"logbook/engine/metadata"
	"logbook/engine/replica"
)

// three is a cluster of three brokers, of whose replicas two should be in sync, and two brokers
// that only decide, with a partition on the three.
func three(t *testing.T) *town {
	w := newTown(t, 5)
	w.least = 2
	w.roles = map[replica.BrokerID]metadata.Role{4: metadata.DecidesOnly, 5: metadata.DecidesOnly}
	for _, id := range w.ids {
		w.start(id)
	}
	w.until("all brokers count", func() bool { return w.usable(w.ids...) })
	require.NoError(t, w.createOn("flights", 1, 3))
	return w
}

// gone kills a broker, and waits until it counts no more.
func (w *town) gone(id replica.BrokerID) {
	w.kill(id)
	w.until("it is fenced", func() bool { return w.active() != nil && !w.usable(id) })
}

func (w *town) back(id replica.BrokerID) {
	w.start(id)
	w.until("it counts", func() bool { return w.usable(id) })
}

// Who left the in-sync replicas when they became too few may lead; who left before may not.
func TestEligibleLeaders(t *testing.T) {
	w := three(t)
	w.gone(3)
	a := w.assignment(flights)
	assert.Equal(t, []replica.BrokerID{1, 2}, a.ISR)
	assert.Empty(t, a.Eligible, "two in sync are enough: records go on without it")
	w.gone(2)
	a = w.assignment(flights)
	assert.Equal(t, []replica.BrokerID{1}, a.ISR)
	assert.Equal(t, []replica.BrokerID{2}, a.Eligible)

	w.back(3) // three of five voters: else nothing is decided when broker 1 dies
	w.gone(1)
	a = w.assignment(flights)
	assert.Equal(t, replica.None, a.Leader, "what broker 3 lacks is not known")
	assert.Equal(t, []replica.BrokerID{1}, a.ISR)
	assert.Equal(t, []replica.BrokerID{2}, a.Eligible)
	w.pass(2 * session)
	assert.Equal(t, replica.None, w.assignment(flights).Leader)

	w.back(2)
	w.until("it leads", func() bool { return w.assignment(flights).Leader == 2 })
	a = w.assignment(flights)
	assert.Equal(t, []replica.BrokerID{2}, a.ISR)
	assert.Equal(t, []replica.BrokerID{1}, a.Eligible, "it has all that is safe, too")
	w.gone(2)
	w.back(1)
	w.until("broker 1 leads", func() bool { return w.assignment(flights).Leader == 1 })
	assert.Equal(t, []replica.BrokerID{2}, w.assignment(flights).Eligible)
	w.back(2)
	w.until("all are in sync", func() bool { return w.join(flights) })
	assert.Empty(t, w.assignment(flights).Eligible, "enough are in sync: records go on without the others")
}

// An eligible replica that its broker cannot use does not lead, before it is told so or after, until
// it can be used.
func TestADamagedReplicaIsNotEligible(t *testing.T) {
	w := three(t)
	w.gone(3)
	w.gone(2)
	w.unusable[2] = []controller.Partition{flights}
	w.hopeless = true
	w.back(3)
	w.gone(1)
	w.back(2)
	w.until("it has said so", func() bool { return len(w.assignment(flights).Eligible) == 0 })
	w.pass(2 * session)
	assert.Equal(t, replica.None, w.assignment(flights).Leader)
	w.back(1)
	w.until("broker 1 leads", func() bool { return w.assignment(flights).Leader == 1 })
}

// How many should be in sync is a topic's setting: with fewer to be, those who are in sync are enough,
// and nobody else is eligible.
func TestTheSettingEndsEligibility(t *testing.T) {
	w := three(t)
	w.gone(3)
	w.gone(2)
	require.Equal(t, []replica.BrokerID{2}, w.assignment(flights).Eligible)
	one := "1"
	require.NoError(t, w.command(func(m *quorum.Controller, id uint64) []controller.Effect {
		return m.ChangeTopic(w.now, id, controller.TopicChange{Name: "flights", Settings: map[string]*string{"min.insync.replicas": &one}})
	}))
	assert.Empty(t, w.assignment(flights).Eligible)
	w.back(3)
	w.gone(1)
	w.back(2)
	w.pass(2 * session)
	assert.Equal(t, replica.None, w.assignment(flights).Leader, "broker 1 may have gone on alone")
}
