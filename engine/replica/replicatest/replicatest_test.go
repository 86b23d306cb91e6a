package replicatest_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"logbook/engine/controller"
	"logbook/engine/replica"
	"logbook/engine/replica/replicatest"
	"logbook/engine/sim"
)

func TestTheEnginesDesignPasses(t *testing.T) {
	if testing.Short() {
		t.Skip("a long enumeration")
	}
	require.NoError(t, replicatest.TestDesign(sim.Design{}, 5))
}

// hasty is a replica that tells whoever waits that all is well when it appends.
type hasty struct{ *replica.Replica }

func (h hasty) Appended(now time.Time, w replica.Write) []replica.Effect {
	out := h.Replica.Appended(now, w)
	return append(out, replica.Done{ID: w.ID})
}

func TestWrongDesignsAreCaught(t *testing.T) {
	if testing.Short() {
		t.Skip("a long enumeration")
	}
	err := replicatest.TestDesign(sim.Design{Machine: func(cfg replica.Config, log replica.Log, hw int64) replica.Machine {
		return hasty{replica.New(cfg, log, hw)}
	}}, 100)
	assert.ErrorContains(t, err, "produce")

	// Who leads by lot does not lose what is safe, for a failover refuses whoever may not
	// lead; it only fails to lead now and then.
	lowest := func(a replica.Assignment, reports []controller.Report) replica.BrokerID {
		for _, r := range reports {
			if r.Err == nil && slices.Contains(a.ISR, r.Broker) {
				return r.Broker
			}
		}
		return replica.None
	}
	require.NoError(t, replicatest.TestDesign(sim.Design{Choose: lowest}, 3))
}
