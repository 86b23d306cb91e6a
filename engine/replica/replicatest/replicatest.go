// Package replicatest puts a replica.Machine, or a controller.Choice, of your own through
// the simulator, in the style of testing/fstest: hand it yours and it returns what broke.
package replicatest

import (
	"fmt"

	"logbook/engine/sim"
)

// TestDesign runs clusters of a design through crashes, cut and lossy networks, slow links
// and failing disks: seeds 1 to n, with acknowledgement by all in-sync replicas and by a
// quorum, under the manual controller. Everything that is promised there must hold: see
// sim.Promises. The error names the violation, and the steps that led to it, cut down.
func TestDesign(d sim.Design, n int) error {
	for seed := uint64(1); seed <= uint64(n); seed++ {
		for _, acks := range []string{"all", "quorum"} {
			plan := sim.Plan(sim.Config{Seed: seed, Controller: "manual", Acks: acks, Faults: sim.AllFaults})
			r, err := sim.RunDesign(plan, d)
			if err != nil {
				return err
			}
			if len(r.Violations) == 0 {
				continue
			}
			if small, err := sim.ShrinkDesign(plan, d); err == nil {
				r = small
			}
			return fmt.Errorf("seed %d, acks %s: %s, after\n%v", seed, acks, r.Violations[0], r.Schedule.Steps)
		}
	}
	return nil
}
