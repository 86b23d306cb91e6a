package group

import (
	"maps"
	"slices"
	"time"
)

// rebalance begins to gather the members of the next generation.
func (g *Classic) rebalance(now time.Time) {
	if g.state == Preparing {
		g.deadline = later(g.deadline, now.Add(g.patience()))
		return
	}
	for _, id := range slices.Sorted(maps.Keys(g.members)) {
		m := g.members[id]
		m.Assignment = nil
		if m.sync != 0 {
			g.reply(ClassicReply{ID: m.sync, Err: ErrRebalanceInProgress, Generation: g.generation, Member: m.ID})
			m.sync, m.expires = 0, now.Add(m.session) // it was there all the time
		}
	}
	g.state, g.deadline = Preparing, now.Add(g.patience())
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// patience is the longest that a member may take to join again.
func (g *Classic) patience() time.Duration {
	longest := time.Duration(0)
	for _, m := range g.members {
		longest = max(longest, m.rebalance)
	}
	return longest
}

// proceed ends the gathering if everybody is there, or nobody is left.
func (g *Classic) proceed(now time.Time) {
	if g.state != Preparing {
		return
	}
	if len(g.members) == 0 {
		g.state, g.leader, g.protocol, g.deadline = Empty, "", "", time.Time{}
		g.generation++
		return
	}
	for _, m := range g.members {
		if m.join == 0 {
			return
		}
	}
	if len(g.pending) > 0 && now.Before(g.deadline) {
		return
	}
	g.complete(now)
}

// complete begins a generation.
func (g *Classic) complete(now time.Time) {
	g.generation++
	g.state, g.deadline = Completing, now.Add(g.patience())
	g.protocol = g.vote()
	if g.members[g.leader] == nil {
		first := slices.MinFunc(slices.Collect(maps.Values(g.members)), func(a, b *classicMember) int { return a.order - b.order })
		g.leader = first.ID
	}
	for _, id := range slices.Sorted(maps.Keys(g.members)) {
		m := g.members[id]
		m.expires = now.Add(m.session)
		if m.join != 0 {
			g.reply(g.present(m))
			m.join = 0
		}
	}
}

// vote picks the protocol that most members like best, of those that all of them know.
func (g *Classic) vote() string {
	votes := map[string]int{}
	ids := slices.Sorted(maps.Keys(g.members))
	for _, id := range ids {
		for _, p := range g.members[id].protocols {
			if !slices.ContainsFunc(ids, func(o string) bool { return !g.members[o].knows(p.Name) }) {
				votes[p.Name]++
				break
			}
		}
	}
	best := ""
	for _, name := range slices.Sorted(maps.Keys(votes)) {
		if best == "" || votes[name] > votes[best] {
			best = name
		}
	}
	return best
}

// Tick lets time pass: who was not heard of for too long is a member no more, and a
// rebalance goes on without who does not come.
func (g *Classic) Tick(now time.Time) []ClassicReply {
	maps.DeleteFunc(g.pending, func(_ string, until time.Time) bool { return !now.Before(until) })
	for _, id := range slices.Sorted(maps.Keys(g.members)) {
		m := g.members[id]
		waits := m.join != 0 || m.sync != 0 // it is there, and it is we who keep it waiting
		if !waits && !now.Before(m.expires) {
			g.remove(now, m)
		}
	}
	if !g.deadline.IsZero() && !now.Before(g.deadline) {
		switch g.state {
		case Preparing:
			clear(g.pending)
			for _, id := range slices.Sorted(maps.Keys(g.members)) {
				if m := g.members[id]; m.join == 0 && m.Instance == "" {
					g.remove(now, m)
				}
			}
			if g.state == Preparing && len(g.members) > 0 && g.anybodyJoined() {
				g.complete(now) // static members that are away keep their place
			}
		case Completing: // the leader, or others, did not sync
			for _, id := range slices.Sorted(maps.Keys(g.members)) {
				if m := g.members[id]; m.sync == 0 {
					g.remove(now, m)
				}
			}
			g.rebalance(now)
		}
	}
	g.proceed(now)
	return g.replies()
}

func (g *Classic) anybodyJoined() bool {
	for _, m := range g.members {
		if m.join != 0 {
			return true
		}
	}
	return false
}

// Next is when Tick is due; zero if nothing waits for time to pass.
func (g *Classic) Next() time.Time {
	next := time.Time{}
	if g.state == Preparing || g.state == Completing {
		next = g.deadline
	}
	sooner := func(t time.Time) {
		if next.IsZero() || t.Before(next) {
			next = t
		}
	}
	for _, until := range g.pending {
		sooner(until)
	}
	for _, m := range g.members {
		if m.join == 0 && m.sync == 0 {
			sooner(m.expires)
		}
	}
	return next
}

// End answers all who wait with an error: the coordinator coordinates no more.
func (g *Classic) End(err error) []ClassicReply {
	for _, id := range slices.Sorted(maps.Keys(g.members)) {
		m := g.members[id]
		for _, q := range []uint64{m.join, m.sync} {
			if q != 0 {
				g.reply(ClassicReply{ID: q, Err: err, Generation: -1})
			}
		}
		m.join, m.sync = 0, 0
	}
	return g.replies()
}
