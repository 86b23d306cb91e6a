package sim_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"logbook/engine/sim"
)

var (
	seeds = flag.Uint64("seeds", 8, "seeds for each promise")
	first = flag.Uint64("first", 1, "the first of them")
)

// The same seed gives the same trace, byte for byte, on every machine: its hash is kept. It
// changes when the code that is simulated does something else; run with -update then.
func TestSameSeedSameTrace(t *testing.T) {
	const file = examples + "/trace.hash"
	var hashes strings.Builder
	for _, c := range []sim.Config{{Seed: 7, Faults: sim.AllFaults}, {Seed: 8, Controller: "first-alive", Acks: "all", Faults: sim.AllFaults}, {Seed: 9, Controller: "quorum", Faults: sim.AllFaults}} {
		r, err := sim.Run(sim.Plan(c))
		require.NoError(t, err)
		fmt.Fprintf(&hashes, "%s %s seed %d: %016x\n", r.Schedule.Config.Controller, r.Schedule.Config.Acks, c.Seed, r.Hash)
	}
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(hashes.String()), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), hashes.String())
}

// Everything at once, and nothing that is promised is broken.
func TestPromises(t *testing.T) {
	if testing.Short() {
		t.Skip("a long enumeration")
	}
	const together = 10
	for s := *first; s < *first+*seeds; s += together {
		for _, acks := range []string{"all", "quorum"} {
			for _, ctl := range []string{"manual", "quorum"} {
				config := func(seed uint64) sim.Config {
					return sim.Config{Seed: seed, Controller: ctl, Acks: acks, Faults: sim.AllFaults}
				}
				bad, err := sim.Seeds(config, s, int(min(together, *first+*seeds-s)), nil)
				require.NoError(t, err)
				if len(bad) > 0 {
					seed := bad[0].Schedule.Config.Seed
					t.Fatalf("controller %s, acks %s, seed %d: %v\nlogbook sim shrink --controller %s --acks %s --first %d", ctl, acks, seed, bad[0].Violations[0], ctl, acks, seed)
				}
			}
		}
	}
}

// noneViolated runs so many seeds, in which no promise may be broken.
func noneViolated(t *testing.T, config func(seed uint64) sim.Config, n int) {
	t.Helper()
	bad, err := sim.Seeds(config, *first, n, nil)
	require.NoError(t, err)
	for _, r := range bad {
		c := r.Schedule.Config
		require.Empty(t, r.Violations, "seed %d, acks %s, %d of %d brokers only decide", c.Seed, c.Acks, c.Deciding, c.Brokers)
	}
}

// Partitions move between five brokers under every fault, and nothing that is promised is broken.
func TestMoves(t *testing.T) {
	if testing.Short() {
		t.Skip("a long enumeration")
	}
	config := func(seed uint64) sim.Config {
		return sim.Config{Seed: seed, Brokers: 5, Controller: "quorum", Acks: "quorum", Faults: append([]sim.Fault{sim.Move, sim.Move}, sim.AllFaults...)}
	}
	r, err := sim.Run(sim.Plan(config(*first)))
	require.NoError(t, err)
	require.Contains(t, r.Trace, "is to be on", "nothing moves")
	noneViolated(t, config, max(1, int(*seeds)/2))
}

// Votes are given and taken under every fault, also where some brokers decide and others store, and
// nothing that is promised is broken.
func TestVotes(t *testing.T) {
	if testing.Short() {
		t.Skip("a long enumeration")
	}
	for _, deciding := range []int{0, 4} {
		config := func(seed uint64) sim.Config {
			return sim.Config{Seed: seed, Brokers: 4 + deciding, Deciding: deciding, Controller: "quorum", Acks: "quorum", Faults: append([]sim.Fault{sim.Vote, sim.Vote, sim.Move}, sim.AllFaults...)}
		}
		alone := config(*first)
		alone.Faults = []sim.Fault{sim.Vote}
		r, err := sim.Run(sim.Plan(alone))
		require.NoError(t, err)
		require.Contains(t, r.Trace, "take vote", "no vote moves")
		noneViolated(t, config, max(1, int(*seeds)/4))
	}
}

// A broker comes back with its disk as it was a while before, as from a copy. What it told the others
// since then it does not know, and nothing that is promised is broken.
func TestOldDisks(t *testing.T) {
	if testing.Short() {
		t.Skip("a long enumeration")
	}
	for _, acks := range []string{"all", "quorum"} {
		config := func(seed uint64) sim.Config {
			return sim.Config{Seed: seed, Controller: "quorum", Acks: acks, Faults: []sim.Fault{sim.OldDisk}}
		}
		noneViolated(t, config, max(1, int(*seeds)/4))
	}
}

func TestTable(t *testing.T) {
	if testing.Short() {
		t.Skip("a long enumeration")
	}
	for _, p := range sim.Promises() {
		if !p.Promised || p.Acks == "quorum" && *seeds < 20 {
			continue // TestCounterexamples has those, and lesson 17 the rows of quorum
		}
		t.Run(fmt.Sprint(p.Controller, " ", p.Acks, " ", p.Fault), func(t *testing.T) {
			t.Parallel()
			for seed := *first; seed < *first+max(1, *seeds/20); seed++ {
				r, err := sim.Run(sim.Plan(p.Config(seed)))
				require.NoError(t, err)
				require.Empty(t, r.Violations, "seed %d", seed)
			}
		})
	}
}
