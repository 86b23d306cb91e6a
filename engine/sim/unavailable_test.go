package sim_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"logbook/engine/sim"
)

var acknowledged = regexp.MustCompile(`^\s*(\S+)  v\d+ is acknowledged at \d+ of (\S+) by`)

// gap is the longest time, between two times, in which no write to some partition was acknowledged.
func gap(trace string, from, to time.Duration) (longest time.Duration) {
	last := map[string]time.Duration{"flights/0": from, "flights/1": from, "routes/0": from}
	for line := range strings.Lines(trace) {
		m := acknowledged.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		at, err := time.ParseDuration(m[1])
		if err != nil || at < from || at > to {
			continue
		}
		longest = max(longest, at-last[m[2]])
		last[m[2]] = at
	}
	for _, at := range last {
		longest = max(longest, to-at)
	}
	return longest
}

// While one broker is in trouble, whichever it is, writes go on when a session is over and
// another leader is chosen, however it was: a session here is 600 ms, an election by the quorum
// takes up to another, and clients ask again after up to 250 ms. One that is cut off or paused
// has to be found out by more than a broken connection.
func TestUnavailabilityWithOneInTrouble(t *testing.T) {
	if testing.Short() {
		t.Skip("a long enumeration")
	}
	const begin, strikes, well = time.Second, 3 * time.Second, 7 * time.Second
	const setUp = 2 * time.Second // before the first step
	for trouble, end := range map[string]string{"crash": "restart", "pause": "resume", "cut": "heal"} {
		t.Run(trouble, func(t *testing.T) {
			t.Parallel()
			var gaps []time.Duration
			for seed := uint64(1); seed <= 2; seed++ {
				for broker := 1; broker <= 3; broker++ {
					s := sim.Schedule{Config: sim.Config{Seed: seed, Controller: "quorum", Acks: "quorum"}}
					for at := begin; at < well; at += 20 * time.Millisecond {
						s.Steps = append(s.Steps, sim.Step{At: at, What: "produce", A: 1 + len(s.Steps)%3})
					}
					s.Steps = append(s.Steps, sim.Step{At: strikes, What: trouble, A: broker}, sim.Step{At: well, What: end, A: broker})
					r, err := sim.Run(s)
					require.NoError(t, err)
					require.Empty(t, r.Violations)
					gaps = append(gaps, gap(r.Trace, setUp+begin+time.Second, setUp+well-time.Second))
				}
			}
			slices.Sort(gaps)
			t.Logf("no writes to some partition for %v (median), %v (longest) of virtual time", gaps[len(gaps)/2], gaps[len(gaps)-1])
			assert.Less(t, gaps[len(gaps)-1], 1600*time.Millisecond)
		})
	}
}
