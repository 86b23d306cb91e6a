package group_test

import (
	"testing"
	"time"

	"logbook/engine/group"
)

// FuzzRestore restores arbitrary snapshots. What is accepted must work.
func FuzzRestore(f *testing.F) {
	g := group.New("g", map[string]int{"t": 3})
	f.Add(g.Snapshot())
	g.Step(time.Unix(0, 0), group.Request{Kind: group.Join, NewMember: "a", Topics: []string{"t"}, Instance: "box"})
	f.Add(g.Snapshot())
	f.Fuzz(func(t *testing.T, data []byte) {
		g, err := group.Restore(data, nil, time.Unix(0, 0))
		if err != nil {
			return
		}
		for i, kind := range []group.Kind{group.Join, group.Heartbeat, group.Sync, group.Commit, group.Leave} {
			g.Step(time.Unix(int64(i), 0), group.Request{Kind: kind, Member: "a", NewMember: "b", Topics: []string{"t"}, Generation: g.Generation()})
		}
		g.Tick(time.Unix(1<<40, 0))
		if _, err := group.Restore(g.Snapshot(), nil, time.Unix(1<<40, 0)); err != nil {
			t.Fatalf("a group's own snapshot is refused: %v", err)
		}
	})
}
