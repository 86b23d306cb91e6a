package group

import (
	"encoding/json"
	"fmt"
	"maps"
	"time"
)

// snapshot is what a coordinator's restart must not lose.
type snapshot struct {
	Version    int              `json:"version"`
	Name       string           `json:"name"`
	Generation int32            `json:"generation"`
	Assignor   string           `json:"assignor,omitempty"`
	Partitions map[string]int   `json:"partition_counts,omitempty"` // of the subscribed topics
	Members    []memberSnapshot `json:"members"`
}

type memberSnapshot struct {
	ID               string        `json:"id"`
	Instance         string        `json:"instance,omitempty"`
	Topics           []string      `json:"topics"`
	SessionTimeout   time.Duration `json:"session_timeout_ns"`
	RebalanceTimeout time.Duration `json:"rebalance_timeout_ns"`
	Partitions       []Partition   `json:"partitions"`
}

// Snapshot returns the state to store when Output.Save is set.
func (g *Group) Snapshot() []byte {
	s := snapshot{Version: 1, Name: g.name, Generation: g.generation, Partitions: g.counts, Members: []memberSnapshot{}}
	if g.assignor != nil {
		s.Assignor = g.assignor.Name()
	}
	for _, m := range g.sortedMembers() {
		s.Members = append(s.Members, memberSnapshot{m.id, m.instance, m.topics, m.session, m.patient, m.partitions})
	}
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // strings and numbers always marshal
	}
	return b
}

// maxPartitions is the most that a topic can have; a snapshot that claims more is no snapshot.
const maxPartitions = 10_000

// Restore returns the group of a snapshot, as after a restart of its coordinator: the
// same generation, members and partitions. Each member's session begins anew. Nil counts
// are those of the snapshot.
func Restore(data []byte, counts map[string]int, now time.Time) (*Group, error) {
	var s snapshot
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf("group: snapshot is not what was stored: %w", err)
	}
	if s.Version != 1 || s.Name == "" || s.Generation < 0 {
		return nil, fmt.Errorf("group: snapshot of version %d, name %q, generation %d is not what was stored", s.Version, s.Name, s.Generation)
	}
	if counts == nil {
		counts = s.Partitions
	}
	for name, n := range counts {
		if n < 0 || n > maxPartitions {
			return nil, fmt.Errorf("group: snapshot of %q: topic %q has %d partitions, at most %d are possible", s.Name, name, n, maxPartitions)
		}
	}
	g := New(s.Name, counts)
	g.generation = s.Generation
	if len(s.Members) == 0 {
		return g, nil
	}
	assignor, err := AssignorByName(s.Assignor)
	if err != nil {
		return nil, fmt.Errorf("group: snapshot of %q: %w", s.Name, err)
	}
	g.assignor, g.state = assignor, Stable
	owner := map[Partition]string{}
	for _, ms := range s.Members {
		if ms.ID == "" || g.members[ms.ID] != nil || ms.SessionTimeout <= 0 {
			return nil, fmt.Errorf("group: snapshot of %q: member %q is impossible", s.Name, ms.ID)
		}
		for _, p := range ms.Partitions {
			if other, taken := owner[p]; taken {
				return nil, fmt.Errorf("group: snapshot of %q: %s belongs to %q and to %q", s.Name, p, other, ms.ID)
			}
			owner[p] = ms.ID
		}
		g.members[ms.ID] = &member{
			id: ms.ID, instance: ms.Instance, topics: ms.Topics, session: ms.SessionTimeout, patient: ms.RebalanceTimeout,
			expires: now.Add(ms.SessionTimeout), partitions: ms.Partitions, synced: true, joined: true,
		}
	}
	// What was withheld, or has changed meanwhile, is settled by a rebalance.
	if !g.covered() {
		g.prepare(now)
	}
	return g, nil
}

// covered reports whether every partition of every subscribed topic has an owner.
func (g *Group) covered() bool {
	want, have := map[Partition]bool{}, map[Partition]bool{}
	for _, m := range g.members {
		for _, t := range m.topics {
			for p := range g.counts[t] {
				want[Partition{Topic: t, ID: p}] = true
			}
		}
		for _, p := range m.partitions {
			have[p] = true
		}
	}
	return maps.Equal(want, have)
}
