package service_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"logbook/engine/controller"
	"logbook/engine/metadata"
	"logbook/engine/replica"
	"logbook/engine/service"
)

// Who waits for a write at a leader that has lost its controller is sent on when its lease is over,
// and not when the write has waited as long as any may: another broker may lead by then.
func TestNobodyWaitsForALeaderWithoutAController(t *testing.T) {
	b := start(t, 3, func(c *service.Config) { c.Controller = "quorum" })
	b.until("the brokers count", func() bool {
		return b.all[1].Image().Usable(1) && b.all[1].Image().Usable(2) && b.all[1].Image().Usable(3)
	})
	spec := controller.TopicSpec{Name: "flights", Partitions: 1, Replication: 3}
	_, err := await(b, "a topic", func(done func(*metadata.Topic, error)) { b.all[1].CreateTopic(spec, done) })
	require.NoError(t, err)
	leader := b.all[1].Image().Topic("flights").Partitions[0].Leader
	b.until("it is led", func() bool { _, err := b.all[leader].Look(flights); return err == nil })
	_, err = b.produce(leader, flights, "a")
	require.NoError(t, err)

	b.mute = true
	began := b.now
	_, err = b.produce(leader, flights, "b")
	require.ErrorIs(t, err, replica.ErrLeadershipLost)
	const session = 2 * 200 * time.Millisecond
	assert.LessOrEqual(t, b.now.Sub(began), session+session/10, "a lease is over before a session is, and then there is another quarter")
	_, err = b.produce(leader, flights, "c")
	assert.Equal(t, service.Unavailable, code(t, err).Code, "and nothing new is taken")
	_, err = b.all[leader].Look(flights)
	assert.Equal(t, service.Unavailable, code(t, err).Code, "nor does it say that it leads")

	b.mute = false
	b.until("one leads", func() bool {
		for _, s := range b.all {
			if _, err := s.Look(flights); err == nil {
				return true
			}
		}
		return false
	})
}
