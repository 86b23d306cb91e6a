package sim_test

import (
	"flag"
	"testing"

	"github.com/stretchr/testify/require"

	"logbook/engine/sim"
)

var (
	seeds = flag.Uint64("seeds", 30, "seeds for each promise")
	first = flag.Uint64("first", 1, "the first of them")
)

func TestSameSeedSameTrace(t *testing.T) {
	c := sim.Config{Seed: 7, Faults: sim.AllFaults}
	a, err := sim.Run(sim.Plan(c))
	require.NoError(t, err)
	b, err := sim.Run(sim.Plan(c))
	require.NoError(t, err)
	require.Equal(t, a.Trace, b.Trace)
}

func TestPromises(t *testing.T) {
	for _, acks := range []string{"all", "quorum"} {
		for s := *first; s < *first+*seeds; s++ {
			r, err := sim.Run(sim.Plan(sim.Config{Seed: s, Controller: "manual", Acks: acks, Faults: sim.AllFaults}))
			require.NoError(t, err)
			if len(r.Violations) > 0 {
				t.Fatalf("acks %s, seed %d: %v\n%s", acks, s, r.Violations, r.Trace)
			}
		}
	}
}

func TestTable(t *testing.T) {
	cells, err := sim.Table(1, int(*seeds), nil)
	require.NoError(t, err)
	t.Log("\n" + sim.Markdown(cells))
	for _, c := range cells {
		if c.Promised {
			require.Zero(t, c.Violated, "%+v", c)
		}
	}
}
