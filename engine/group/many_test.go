package group_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"logbook/engine/group"
)

// A group of ten thousand is answered, and takes no more.
func TestTenThousandMembers(t *testing.T) {
	g := group.New("g", map[string]int{"t": 100})
	now := time.Unix(1, 0)
	join := func(i int) group.Output {
		return g.Step(now, group.Request{ID: uint64(i), Kind: group.Join, NewMember: fmt.Sprint("m", i), Topics: []string{"t"}, SessionTimeout: 10 * time.Second})
	}
	for i := range group.MaxMembers {
		join(i)
	}
	out := join(group.MaxMembers)
	require.Len(t, out.Replies, 1)
	require.ErrorIs(t, out.Replies[0].Err, group.ErrFull)
	now = now.Add(10 * time.Second) // the first has been alone in its generation, and joins no more
	require.Len(t, g.Tick(now).Replies, group.MaxMembers-1, "all who waited have joined")
	generation := g.Generation()
	for range 3 {
		now = now.Add(3 * time.Second)
		for i := 1; i < group.MaxMembers; i++ {
			out := g.Step(now, group.Request{ID: uint64(i), Kind: group.Heartbeat, Member: fmt.Sprint("m", i), Generation: generation})
			require.NoError(t, out.Replies[0].Err)
		}
	}
	require.Len(t, g.Assignment(), group.MaxMembers-1)
	require.Empty(t, g.Tick(now.Add(10*time.Second)).Replies)
	assert.Empty(t, g.Assignment(), "and all of them are out when they fall silent")

	c := group.NewClassic()
	for i := range group.MaxMembers + 1 {
		out := c.Join(now, group.ClassicJoin{ID: uint64(i + 1), NewMember: fmt.Sprint("m", i), Session: 10 * time.Second, ProtocolType: "consumer", Protocols: []group.Protocol{{Name: "range"}}, TwoSteps: true})
		if i == group.MaxMembers {
			require.ErrorIs(t, out[0].Err, group.ErrFull)
		}
	}
}
