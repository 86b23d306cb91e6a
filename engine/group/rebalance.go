package group

import (
	"fmt"
	"slices"
	"time"
)

func (g *Group) join(now time.Time, r Request) {
	if err := r.checkJoin(); err != nil {
		g.refuse(r, err)
		return
	}
	assignor, err := AssignorByName(r.Assignor)
	if err != nil {
		g.refuse(r, err)
		return
	}
	if g.assignor != nil && g.assignor != assignor && g.others(r) > 0 {
		g.refuse(r, &AssignorMismatchError{Wanted: assignor.Name(), Used: g.assignor.Name()})
		return
	}
	m, known := g.enlist(r)
	if m == nil {
		return
	}
	g.assignor = assignor
	same := slices.Equal(m.topics, sortedCopy(r.Topics))
	m.topics, m.session, m.patient = sortedCopy(r.Topics), r.SessionTimeout, r.RebalanceTimeout
	g.extend(now, m)
	if m.waiting != nil { // it asks again: the first question will not be answered otherwise
		g.refuse(*m.waiting, ErrRebalanceInProgress)
		m.waiting = nil
	}
	if known && same && g.state == Stable {
		// The reply was lost, or a static member restarted: nothing has changed.
		g.reply(r, Reply{Member: m.id, Generation: g.generation})
		return
	}
	m.owned = g.credible(m, r.Owned)
	g.prepare(now)
	m.joined, m.waiting = true, &r
}

// others counts the members besides the one that joins.
func (g *Group) others(r Request) int {
	n := len(g.members)
	if holder := g.byInstance(r.Instance); g.members[r.Member] != nil || r.Instance != "" && holder != nil {
		n--
	}
	return n
}

func (r *Request) checkJoin() error {
	if r.SessionTimeout == 0 {
		r.SessionTimeout = DefaultSessionTimeout
	}
	if r.RebalanceTimeout == 0 {
		r.RebalanceTimeout = r.SessionTimeout
	}
	switch {
	case r.SessionTimeout < MinSessionTimeout || r.SessionTimeout > MaxSessionTimeout:
		return &TimeoutError{What: "session", Wanted: r.SessionTimeout, Min: MinSessionTimeout, Max: MaxSessionTimeout}
	case r.RebalanceTimeout < 0 || r.RebalanceTimeout > MaxSessionTimeout:
		return &TimeoutError{What: "rebalance", Wanted: r.RebalanceTimeout, Max: MaxSessionTimeout}
	case r.Member == "" && r.NewMember == "":
		return fmt.Errorf("group: a join without a member id needs one to give")
	}
	return nil
}

// enlist returns the member that a join speaks for, and whether the group knew it.
func (g *Group) enlist(r Request) (m *member, known bool) {
	if r.Member != "" {
		m = g.find(r)
		return m, m != nil
	}
	if g.members[r.NewMember] != nil {
		g.refuse(r, fmt.Errorf("group: member id %q is in use", r.NewMember))
		return nil, false
	}
	if r.Instance != "" {
		if old := g.byInstance(r.Instance); old != nil { // a static member came back
			if old.waiting != nil {
				g.refuse(*old.waiting, ErrFencedInstance)
				old.waiting = nil
			}
			delete(g.members, old.id)
			old.id = r.NewMember
			g.members[old.id] = old
			g.out.Save = true
			return old, true
		}
	}
	if len(g.members) >= MaxMembers {
		g.refuse(r, ErrFull)
		return nil, false
	}
	m = &member{id: r.NewMember, instance: r.Instance}
	g.members[m.id] = m
	return m, false
}

// credible keeps of a member's claims what it really had in the last generation.
func (g *Group) credible(m *member, claims []Partition) []Partition {
	var out []Partition
	for _, p := range claims {
		if slices.Contains(m.partitions, p) {
			out = append(out, p)
		}
	}
	return out
}

// prepare begins a rebalance, unless one has begun.
func (g *Group) prepare(now time.Time) {
	if g.state == Preparing {
		return
	}
	g.state, g.followUp = Preparing, false
	longest := time.Duration(0)
	for _, m := range g.members {
		m.joined = false
		longest = max(longest, m.patient)
	}
	g.deadline = now.Add(longest)
}

// remove takes a member out of the group.
func (g *Group) remove(now time.Time, m *member) {
	if m.waiting != nil {
		g.refuse(*m.waiting, ErrUnknownMember)
	}
	delete(g.members, m.id)
	g.prepare(now)
}

// expire removes members whose session has ended. One that waits for the reply to its
// join does not send heartbeats; the rebalance's own deadline covers it.
func (g *Group) expire(now time.Time) {
	if now.Before(g.soonest) {
		return // most of the time: a group may have thousands of members
	}
	var over []string
	for id, m := range g.members {
		if m.waiting == nil && !m.expires.After(now) {
			over = append(over, id)
		}
	}
	slices.Sort(over)
	for _, id := range over {
		if m := g.members[id]; m != nil {
			g.remove(now, m)
		}
	}
	g.soonest = now.Add(MaxSessionTimeout)
	for _, m := range g.members {
		g.soonest = earlier(g.soonest, m.expires)
	}
}

// extend gives a member a whole session from now on.
func (g *Group) extend(now time.Time, m *member) {
	m.expires = now.Add(m.session)
	g.soonest = earlier(g.soonest, m.expires)
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// finish completes what can be completed, and returns the output of the step.
func (g *Group) finish(now time.Time) Output {
	if g.state == Preparing && (g.allJoined() || !g.deadline.After(now)) {
		g.complete(now)
	}
	if g.state == Stable && g.followUp && (g.allSynced() || !g.deadline.After(now)) {
		g.prepare(now)
	}
	out := *g.out
	g.out = nil
	return out
}

func (g *Group) allJoined() bool {
	for _, m := range g.members {
		if !m.joined {
			return false
		}
	}
	return true
}

func (g *Group) allSynced() bool {
	for _, m := range g.members {
		if !m.synced {
			return false
		}
	}
	return true
}

// complete ends a rebalance: whoever has not joined is out, but for static members, who
// keep their place until their session ends.
func (g *Group) complete(now time.Time) {
	for _, m := range g.sortedMembers() {
		if !m.joined && m.instance == "" {
			delete(g.members, m.id)
		}
	}
	g.generation++
	g.out.Save = true
	if len(g.members) == 0 {
		g.state, g.assignor = Empty, nil
		return
	}
	g.state = Stable
	g.assign()
	for _, m := range g.sortedMembers() {
		m.synced = false
		if m.waiting == nil {
			continue
		}
		g.extend(now, m)
		g.reply(*m.waiting, Reply{Member: m.id, Generation: g.generation})
		m.waiting = nil
	}
	if g.followUp {
		g.deadline = now.Add(g.patience())
	}
}

func (g *Group) patience() time.Duration {
	longest := time.Duration(0)
	for _, m := range g.members {
		longest = max(longest, m.patient)
	}
	return longest
}

// assign decides the generation's partitions.
func (g *Group) assign() {
	var subs []Subscriber
	for _, m := range g.sortedMembers() {
		owned := m.owned
		if !m.joined {
			owned = m.partitions // a static member that is away
		}
		subs = append(subs, Subscriber{Member: m.id, Topics: m.topics, Owned: owned})
	}
	target := g.assignor.Assign(subs, g.counts)
	if g.assignor == CooperativeSticky {
		g.withhold(subs, target)
	}
	for id, m := range g.members {
		m.partitions = target[id]
		slices.SortFunc(m.partitions, Partition.Compare)
	}
}

// withhold takes out of the target what somebody else still has: it is revoked in this
// generation and assigned in the next.
func (g *Group) withhold(subs []Subscriber, target map[string][]Partition) {
	owner := map[Partition]string{}
	for _, s := range subs {
		for _, p := range s.Owned {
			owner[p] = s.Member
		}
	}
	g.followUp = false
	for id, list := range target {
		kept := list[:0:0]
		for _, p := range list {
			if o, owned := owner[p]; owned && o != id {
				g.followUp = true
				continue
			}
			kept = append(kept, p)
		}
		target[id] = kept
	}
}

func sortedCopy(topics []string) []string {
	out := slices.Clone(topics)
	slices.Sort(out)
	return slices.Compact(out)
}
