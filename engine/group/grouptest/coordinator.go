package grouptest

import (
	"fmt"

	"logbook/engine/sim"
)

// TestCoordinator puts a group.Machine of your own through the simulator: seeds 1 to n of
// clusters in which members join, hang and commit while brokers crash and the network is
// cut. Each partition must have one owner in a generation, stale members must be refused,
// and committed offsets must never go back. d.NewGroup and d.RestoreGroup make the machine.
func TestCoordinator(d sim.Design, n int) error {
	for seed := uint64(1); seed <= uint64(n); seed++ {
		plan := sim.Plan(sim.Config{Seed: seed, Controller: "manual", Acks: "quorum", Faults: []sim.Fault{sim.Crash, sim.Cut, sim.Silence, sim.Silence}})
		r, err := sim.RunDesign(plan, d)
		if err != nil {
			return err
		}
		if len(r.Violations) > 0 {
			if small, err := sim.ShrinkDesign(plan, d); err == nil {
				r = small
			}
			return fmt.Errorf("seed %d: %s, after\n%v", seed, r.Violations[0], r.Schedule.Steps)
		}
	}
	return nil
}
