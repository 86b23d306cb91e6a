package group

import (
	"maps"
	"slices"

	"logbook/engine/topic"
)

// Partition names a partition of a topic.
type Partition = topic.Partition

// Subscriber is a member as an assignor sees it.
type Subscriber struct {
	Member string
	Topics []string
	Owned  []Partition // what it had before; only sticky assignors care
}

// Assignor distributes partitions over members. It must be deterministic, give each
// partition of a subscribed topic to exactly one member that subscribes to it, and
// nothing else.
type Assignor interface {
	Name() string
	// Assign gets the members in order of their ids and the partition count of each topic.
	Assign(members []Subscriber, counts map[string]int) map[string][]Partition
}

// The assignors.
var (
	// RoundRobin is kafka-lite's: partition p of each topic goes to member p mod n, in
	// order of their ids.
	RoundRobin Assignor = roundRobin{}
	// Range gives each member a run of neighbouring partitions of each topic.
	Range Assignor = rangeAssignor{}
	// CooperativeSticky moves as few partitions as balance allows; a Group that uses it
	// takes a partition away in one generation and gives it to its new owner in the next
	// (KIP-429).
	CooperativeSticky Assignor = sticky{}
)

// AssignorByName returns the assignor that a member asks for; "" is RoundRobin.
func AssignorByName(name string) (Assignor, error) {
	if name == "" {
		return RoundRobin, nil
	}
	for _, a := range []Assignor{RoundRobin, Range, CooperativeSticky} {
		if a.Name() == name {
			return a, nil
		}
	}
	return nil, &UnknownAssignorError{Name: name}
}

// subscribers returns the ids of the members that subscribe to a topic, in order.
func subscribers(members []Subscriber, topic string) []string {
	var out []string
	for _, m := range members {
		if slices.Contains(m.Topics, topic) {
			out = append(out, m.Member)
		}
	}
	return out
}

func sortedTopics(counts map[string]int) []string {
	return slices.Sorted(maps.Keys(counts))
}

type roundRobin struct{}

func (roundRobin) Name() string { return "roundrobin" }

func (roundRobin) Assign(members []Subscriber, counts map[string]int) map[string][]Partition {
	out := map[string][]Partition{}
	for _, topic := range sortedTopics(counts) {
		subs := subscribers(members, topic)
		for p := range counts[topic] {
			if len(subs) > 0 {
				m := subs[p%len(subs)]
				out[m] = append(out[m], Partition{Topic: topic, ID: p})
			}
		}
	}
	return out
}

type rangeAssignor struct{}

func (rangeAssignor) Name() string { return "range" }

func (rangeAssignor) Assign(members []Subscriber, counts map[string]int) map[string][]Partition {
	out := map[string][]Partition{}
	for _, topic := range sortedTopics(counts) {
		subs := subscribers(members, topic)
		next := 0
		for i, m := range subs {
			run := counts[topic] / len(subs)
			if i < counts[topic]%len(subs) {
				run++
			}
			for range run {
				out[m] = append(out[m], Partition{Topic: topic, ID: next})
				next++
			}
		}
	}
	return out
}

type sticky struct{}

func (sticky) Name() string { return "cooperative-sticky" }

func (sticky) Assign(members []Subscriber, counts map[string]int) map[string][]Partition {
	out := map[string][]Partition{}
	owner := map[Partition]string{}
	for _, m := range members { // keep what is owned
		for _, p := range m.Owned {
			if _, taken := owner[p]; !taken && p.ID >= 0 && p.ID < counts[p.Topic] && slices.Contains(m.Topics, p.Topic) {
				owner[p] = m.Member
				out[m.Member] = append(out[m.Member], p)
			}
		}
	}
	for _, topic := range sortedTopics(counts) { // give the rest to whoever has least
		subs := subscribers(members, topic)
		for id := range counts[topic] {
			p := Partition{Topic: topic, ID: id}
			if _, taken := owner[p]; taken || len(subs) == 0 {
				continue
			}
			m := slices.MinFunc(subs, func(a, b string) int { return len(out[a]) - len(out[b]) })
			owner[p] = m
			out[m] = append(out[m], p)
		}
	}
	for balance(members, out) {
	}
	for _, list := range out {
		slices.SortFunc(list, Partition.Compare)
	}
	return out
}

// balance moves one partition from a member to one that has at least two fewer and may
// have it, and reports whether there was such a pair. Taking from whoever has most and
// giving to whoever has least moves no more than it must. Each move lowers the sum of
// the squared loads, so it ends.
func balance(members []Subscriber, out map[string][]Partition) bool {
	byLoad := func(a, b Subscriber) int { return len(out[a.Member]) - len(out[b.Member]) }
	takers := slices.SortedStableFunc(slices.Values(members), byLoad)
	givers := slices.SortedStableFunc(slices.Values(members), func(a, b Subscriber) int { return byLoad(b, a) })
	for _, from := range givers {
		for i := len(out[from.Member]) - 1; i >= 0; i-- {
			p := out[from.Member][i]
			for _, to := range takers {
				if len(out[from.Member])-len(out[to.Member]) >= 2 && slices.Contains(to.Topics, p.Topic) {
					out[from.Member] = slices.Delete(out[from.Member], i, i+1)
					out[to.Member] = append(out[to.Member], p)
					return true
				}
			}
		}
	}
	return false
}
