package grouptest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"logbook/engine/group"
	"logbook/engine/group/grouptest"
	"logbook/engine/sim"
)

// trusting is a group that takes every commit, whoever it comes from.
type trusting struct{ *group.Group }

func (g trusting) Step(now time.Time, r group.Request) group.Output {
	out := g.Group.Step(now, r)
	if r.Kind == group.Commit && len(out.Replies) == 1 && out.Replies[0].Err != nil {
		return group.Output{Save: out.Save, Commits: r.Offsets, Replies: []group.Reply{{ID: r.ID}}}
	}
	return out
}

func TestCoordinators(t *testing.T) {
	if testing.Short() {
		t.Skip("a long enumeration")
	}
	require.NoError(t, grouptest.TestCoordinator(sim.Design{}, 4))
	err := grouptest.TestCoordinator(sim.Design{
		NewGroup: func(name string, counts map[string]int) group.Machine { return trusting{group.New(name, counts)} },
		RestoreGroup: func(data []byte, counts map[string]int, now time.Time) (group.Machine, error) {
			g, err := group.Restore(data, counts, now)
			return trusting{g}, err
		},
	}, 100)
	assert.ErrorContains(t, err, "stale commit")
}
