package grouptest_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"logbook/engine/group"
	"logbook/engine/group/grouptest"
)

func TestTheEnginesAssignorsPass(t *testing.T) {
	for _, a := range []group.Assignor{group.RoundRobin, group.Range, group.CooperativeSticky} {
		assert.NoError(t, grouptest.TestAssignor(a))
	}
	assert.NoError(t, grouptest.TestSticky(group.CooperativeSticky))
	assert.Error(t, grouptest.TestSticky(group.RoundRobin), "it starts over every time")
}

type assignor func(members []group.Subscriber, counts map[string]int) map[string][]group.Partition

func (a assignor) Name() string { return "mine" }
func (a assignor) Assign(m []group.Subscriber, c map[string]int) map[string][]group.Partition {
	return a(m, c)
}

func TestWrongAssignorsAreCaught(t *testing.T) {
	toAll := assignor(func(members []group.Subscriber, counts map[string]int) map[string][]group.Partition {
		out := map[string][]group.Partition{}
		for _, m := range members {
			for _, topic := range m.Topics {
				for id := range counts[topic] {
					out[m.Member] = append(out[m.Member], group.Partition{Topic: topic, ID: id})
				}
			}
		}
		return out
	})
	assert.ErrorContains(t, grouptest.TestAssignor(toAll), "goes to both")
	toNobody := assignor(func([]group.Subscriber, map[string]int) map[string][]group.Partition { return nil })
	assert.ErrorContains(t, grouptest.TestAssignor(toNobody), "has no owner")
	toFirst := assignor(func(members []group.Subscriber, counts map[string]int) map[string][]group.Partition {
		out := map[string][]group.Partition{}
		seen := map[string]bool{}
		for _, m := range members {
			for _, topic := range m.Topics {
				for id := range counts[topic] {
					if !seen[topic] {
						out[m.Member] = append(out[m.Member], group.Partition{Topic: topic, ID: id})
					}
				}
				seen[topic] = true
			}
		}
		return out
	})
	assert.ErrorContains(t, grouptest.TestAssignor(toFirst), "unevenly")
}
