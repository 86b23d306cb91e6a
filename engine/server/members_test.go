package server_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"logbook/engine/server"
	"logbook/engine/wire"
)

// A broker joins a cluster whose brokers have never heard of it, once they are told where it is. They
// know it when they are started again as they were, and it lives on without those who were there before.
func TestABrokerJoinsWhileTheOthersRun(t *testing.T) {
	w := newNetwork(t, 4, func(c *server.Config) {
		c.Controller = "quorum"
		if c.ID != 4 {
			delete(c.Peers, 4)
		}
	})
	c := w.client(1, 2, 3)
	alive := func(n int) func() bool {
		return func() bool {
			r, err := c.Cluster(t.Context())
			if err != nil || len(r.Brokers) != n {
				return false
			}
			for _, b := range r.Brokers {
				if b.Fenced || !b.Voter {
					return false
				}
			}
			return true
		}
	}
	w.eventually("three count", alive(3))
	require.Error(t, c.ChangeMember(t.Context(), 4, "add", "no address"))
	require.NoError(t, c.ChangeMember(t.Context(), 4, "add", w.Address(4)))
	w.eventually("four count", alive(4))
	_, err := c.CreateTopic(t.Context(), wire.CreateTopic{Name: "flights", Partitions: 4, Replication: 3})
	require.NoError(t, err)
	for p := range 4 {
		_, err := c.Produce(t.Context(), "flights", p, "quorum", value("a"))
		require.NoError(t, err)
	}
	for id := wire.BrokerID(1); id <= 3; id++ {
		w.stop(id)
		w.start(id)
		w.eventually("all count", alive(4))
	}
	require.Equal(t, w.Address(4), w.Server(1).AddressOf(4))

	refused := c.ChangeMember(t.Context(), 4, "remove", "")
	assert.ErrorContains(t, refused, "it has replicas of 3 partitions")
	assert.ErrorContains(t, c.ChangeMember(t.Context(), 3, "promote", ""), "there is no change")
	w.stop(1)
	far := w.client(4)
	require.Eventually(t, func() bool {
		_, err := far.Produce(t.Context(), "flights", 3, "quorum", value("b"))
		return err == nil
	}, 20*time.Second, 10*time.Millisecond)
}
