// Package controllertest tests a controller.Choice of your own, in the style of
// testing/fstest: hand it yours and it returns what is wrong with it.
package controllertest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"logbook/engine/controller"
	"logbook/engine/replica"
)

// TestChoice lives through many partitions' lives with a choice of leaders. In each life
// records are written and acknowledged when every in-sync replica holds them, brokers
// stop and come back, some keep a tail that nobody was promised, and whenever the leader
// is gone the choice is asked. It must
//
//   - never lose an acknowledged record,
//   - never name a replica that cannot be reached, or none while an in-sync one can be,
//   - of the in-sync ones take the longest log, and of equals the lowest id: the same
//     answer every time.
func TestChoice(choose controller.Choice) error {
	for seed := uint64(1); seed <= 200; seed++ {
		l := newLife(seed)
		for range 60 {
			if err := l.step(choose); err != nil {
				return fmt.Errorf("life %d: %w", seed, err)
			}
		}
	}
	return nil
}

// life is a partition's, played with lists instead of logs.
type life struct {
	rng          *rand.Rand
	at           replica.Assignment
	logs         map[replica.BrokerID][]int // records, by number; -1 and below: never acknowledged
	up           map[replica.BrokerID]bool
	acknowledged []int // by offset
	written      int
}

func newLife(seed uint64) *life {
	l := &life{rng: rand.New(rand.NewPCG(seed, 7)), logs: map[replica.BrokerID][]int{}, up: map[replica.BrokerID]bool{}}
	for id := replica.BrokerID(1); id <= replica.BrokerID(3+seed%3); id++ {
		l.at.Replicas = append(l.at.Replicas, id)
		l.up[id] = true
	}
	l.at.ISR, l.at.Leader, l.at.LeaderEpoch = slices.Clone(l.at.Replicas), 1, 1
	return l
}

func (l *life) step(choose controller.Choice) error {
	id := l.at.Replicas[l.rng.IntN(len(l.at.Replicas))]
	switch l.rng.IntN(8) {
	case 0, 1, 2:
		l.write()
	case 3, 4:
		l.up[id] = false
	case 5:
		l.up[id] = true
	case 6:
		l.recover(id)
	}
	if !l.up[l.at.Leader] {
		return l.failover(choose)
	}
	return nil
}

// write appends to the leader, and to each in-sync follower that is up.
func (l *life) write() {
	if !l.up[l.at.Leader] {
		return
	}
	l.written++
	end := len(l.logs[l.at.Leader])
	all := true
	for _, id := range l.at.ISR {
		if l.up[id] && len(l.logs[id]) == end && l.rng.IntN(5) > 0 || id == l.at.Leader {
			l.logs[id] = append(l.logs[id], l.written)
		} else {
			all = false
		}
	}
	if all {
		// What is below was copied before, so it is acknowledged with it.
		l.acknowledged = slices.Clone(l.logs[l.at.Leader])
	}
}

// recover copies the leader's log and adds it to the ISR.
func (l *life) recover(id replica.BrokerID) {
	if l.up[id] && l.up[l.at.Leader] {
		l.logs[id] = slices.Clone(l.logs[l.at.Leader])
		if !slices.Contains(l.at.ISR, id) {
			l.at.ISR = append(l.at.ISR, id)
			slices.Sort(l.at.ISR)
		}
	}
}

func (l *life) failover(choose controller.Choice) error {
	var reports []controller.Report
	for _, id := range l.at.Replicas {
		if id == l.at.Leader {
			continue
		}
		r := controller.Report{Broker: id, LogEndOffset: int64(len(l.logs[id])), LastEpoch: l.at.LeaderEpoch}
		if !l.up[id] {
			r = controller.Report{Broker: id, Err: errors.New("down")}
		}
		reports = append(reports, r)
	}
	asked := l.at.Clone()
	chosen := choose(asked, slices.Clone(reports))
	describe := fmt.Sprintf("of %+v, with in-sync replicas %v, it chose broker %d", reports, l.at.ISR, chosen)
	if again := choose(l.at.Clone(), slices.Clone(reports)); again != chosen {
		return fmt.Errorf("%s, and asked again, broker %d", describe, again)
	}
	want := controller.Longest(l.at.Clone(), slices.Clone(reports))
	i := slices.IndexFunc(reports, func(r controller.Report) bool { return r.Broker == chosen })
	switch {
	case chosen == replica.None && want == replica.None:
		return nil
	case chosen == replica.None:
		return fmt.Errorf("%s: nobody leads, though broker %d could", describe, want)
	case i < 0:
		return fmt.Errorf("%s, which is not one of those reported", describe)
	case reports[i].Err != nil:
		return fmt.Errorf("%s, which cannot be reached", describe)
	}
	if log := l.logs[chosen]; len(log) < len(l.acknowledged) || !slices.Equal(log[:len(l.acknowledged)], l.acknowledged) {
		return fmt.Errorf("%s: acknowledged records are lost: the first %d were promised to be %v, its log is %v", describe, len(l.acknowledged), l.acknowledged, log)
	}
	if chosen != want {
		return fmt.Errorf("%s: broker %d is in sync too, and its log is longer, or as long and its id lower", describe, want)
	}
	l.at.Leader = chosen
	l.at.LeaderEpoch++
	l.at.ISR = slices.DeleteFunc(l.at.ISR, func(id replica.BrokerID) bool { return !l.up[id] })
	// The others follow: they are cut to the new leader's log.
	for _, id := range l.at.ISR {
		if n := len(l.logs[chosen]); len(l.logs[id]) > n {
			l.logs[id] = l.logs[id][:n]
		}
	}
	return nil
}
