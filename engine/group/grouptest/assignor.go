// Package grouptest tests implementations of parts of a consumer group, in the style of
// testing/fstest: hand it yours and it returns what is wrong with it.
package grouptest

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"

	"logbook/engine/group"
)

// TestAssignor checks an assignor's promises on hundreds of groups: each partition of a
// subscribed topic has exactly one owner, who subscribes to it; nothing else is assigned;
// the same question gets the same answer; and where all members subscribe to one topic,
// no member has two partitions more than another.
func TestAssignor(a group.Assignor) error {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 500 {
		members, counts := randomGroup(rng)
		got := a.Assign(clone(members), counts)
		if err := check(members, counts, got); err != nil {
			return fmt.Errorf("%s with members %+v and partitions %v: %w", a.Name(), members, counts, err)
		}
		if again := a.Assign(clone(members), counts); !reflect.DeepEqual(normal(got), normal(again)) {
			return fmt.Errorf("%s answers once %v and once %v", a.Name(), got, again)
		}
	}
	for n := 1; n <= 7; n++ { // one topic, all subscribe
		var members []group.Subscriber
		for i := range n {
			members = append(members, group.Subscriber{Member: fmt.Sprintf("m%d", i), Topics: []string{"t"}})
		}
		for count := range 12 {
			got := a.Assign(clone(members), map[string]int{"t": count})
			low, high := count, 0
			for _, m := range members {
				low, high = min(low, len(got[m.Member])), max(high, len(got[m.Member]))
			}
			if high-low > 1 {
				return fmt.Errorf("%s gives %d partitions to %d members unevenly: %v", a.Name(), count, n, got)
			}
		}
	}
	return nil
}

// TestSticky checks that an assignor moves no more than it must: when a member joins or
// leaves a balanced group of one topic, members that stay keep what they had, but for
// what the newcomer's fair share takes.
func TestSticky(a group.Assignor) error {
	for n := 1; n <= 6; n++ {
		for count := n; count < 14; count++ {
			var members []group.Subscriber
			for i := range n {
				members = append(members, group.Subscriber{Member: fmt.Sprintf("m%d", i), Topics: []string{"t"}})
			}
			counts := map[string]int{"t": count}
			before := a.Assign(clone(members), counts)
			for i := range members {
				members[i].Owned = before[members[i].Member]
			}
			joined := append(slices.Clone(members), group.Subscriber{Member: "new", Topics: []string{"t"}})
			after := a.Assign(clone(joined), counts)
			if moved, fair := movedFrom(before, after), count/(n+1); moved > fair {
				return fmt.Errorf("%s moves %d of %d partitions when the %dth member joins, %d would do", a.Name(), moved, count, n+1, fair)
			}
			if n > 1 {
				left := members[1:]
				after := a.Assign(clone(left), counts)
				delete(before, members[0].Member)
				if moved := movedFrom(before, after); moved > 0 {
					return fmt.Errorf("%s takes %d partitions from members that stay when one leaves", a.Name(), moved)
				}
			}
		}
	}
	return nil
}

// movedFrom counts the partitions that members had before and have no longer.
func movedFrom(before, after map[string][]group.Partition) int {
	n := 0
	for m, list := range before {
		for _, p := range list {
			if !slices.Contains(after[m], p) {
				n++
			}
		}
	}
	return n
}

func randomGroup(rng *rand.Rand) ([]group.Subscriber, map[string]int) {
	counts := map[string]int{}
	var topics []string
	for i := range 1 + rng.IntN(3) {
		topic := fmt.Sprintf("t%d", i)
		topics = append(topics, topic)
		counts[topic] = rng.IntN(6)
	}
	var members []group.Subscriber
	for i := range rng.IntN(6) {
		m := group.Subscriber{Member: fmt.Sprintf("m%d", i)}
		for _, t := range topics {
			if rng.IntN(3) > 0 {
				m.Topics = append(m.Topics, t)
			}
		}
		for range rng.IntN(3) { // claims, sensible or not
			m.Owned = append(m.Owned, group.Partition{Topic: topics[rng.IntN(len(topics))], ID: rng.IntN(6)})
		}
		members = append(members, m)
	}
	return members, counts
}

func check(members []group.Subscriber, counts map[string]int, got map[string][]group.Partition) error {
	owner := map[group.Partition]string{}
	topics := map[string][]string{}
	for _, m := range members {
		topics[m.Member] = m.Topics
	}
	for m, list := range got {
		subscribed, known := topics[m]
		for _, p := range list {
			switch {
			case !known:
				return fmt.Errorf("%s goes to %q, who is no member", p, m)
			case p.ID < 0 || p.ID >= counts[p.Topic]:
				return fmt.Errorf("%s is assigned and does not exist", p)
			case !slices.Contains(subscribed, p.Topic):
				return fmt.Errorf("%s goes to %s, who does not subscribe to it", p, m)
			case owner[p] != "":
				return fmt.Errorf("%s goes to both %s and %s", p, owner[p], m)
			}
			owner[p] = m
		}
	}
	for topic, n := range counts {
		wanted := slices.ContainsFunc(members, func(m group.Subscriber) bool { return slices.Contains(m.Topics, topic) })
		for id := range n {
			if p := (group.Partition{Topic: topic, ID: id}); wanted && owner[p] == "" {
				return fmt.Errorf("%s has no owner", p)
			}
		}
	}
	return nil
}

func clone(members []group.Subscriber) []group.Subscriber {
	out := slices.Clone(members)
	for i := range out {
		out[i].Topics, out[i].Owned = slices.Clone(out[i].Topics), slices.Clone(out[i].Owned)
	}
	return out
}

// normal leaves out members without partitions, and order.
func normal(a map[string][]group.Partition) map[string][]group.Partition {
	out := map[string][]group.Partition{}
	for m, list := range a {
		if len(list) > 0 {
			out[m] = slices.SortedFunc(slices.Values(list), func(a, b group.Partition) int {
				if a.Topic != b.Topic {
					return map[bool]int{true: -1, false: 1}[a.Topic < b.Topic]
				}
				return a.ID - b.ID
			})
		}
	}
	return out
}
