package controllertest

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"logbook/engine/replica"
)

// Ballot is what a voter knows when it is asked for its vote.
type Ballot struct {
	Term      int              // the highest that it has heard of
	VotedFor  replica.BrokerID // in that term; None: nobody yet
	LastTerm  int              // of the last entry of its log; 0: it has none
	LastIndex int

	Candidate                             replica.BrokerID
	CandidateTerm                         int // in which the candidate wants to be elected
	CandidateLastTerm, CandidateLastIndex int
}

// TestVote lives through many clusters' lives with a rule by which votes are granted. In each
// life members become candidates, some are not heard, leaders copy entries to some of the others,
// and an entry of the leader's own term counts when a majority has it. The rule must
//
//   - elect at most one leader in a term,
//   - elect nobody who lacks an entry that counts,
//   - elect who can be: a candidate of a new term that everybody hears, and that lacks nothing.
func TestVote(grant func(Ballot) bool) error {
	for seed := uint64(1); seed <= 300; seed++ {
		p := newParliament(seed, grant)
		for range 80 {
			if err := p.step(); err != nil {
				return fmt.Errorf("life %d: %w", seed, err)
			}
		}
		if err := p.elects(); err != nil {
			return fmt.Errorf("life %d: %w", seed, err)
		}
	}
	return nil
}

// parliament is a quorum, played with lists instead of logs.
type parliament struct {
	rng     *rand.Rand
	grant   func(Ballot) bool
	members []*seat
	elected map[int]replica.BrokerID // by term
	counts  []int                    // terms of the entries that count
	story   []string
}

type seat struct {
	id   replica.BrokerID
	term int
	vote replica.BrokerID
	log  []int // the term of each entry
}

func newParliament(seed uint64, grant func(Ballot) bool) *parliament {
	p := &parliament{rng: rand.New(rand.NewPCG(seed, 9)), grant: grant, elected: map[int]replica.BrokerID{}}
	for id := range replica.BrokerID(3 + 2*(seed%2)) {
		p.members = append(p.members, &seat{id: id + 1})
	}
	return p
}

func (p *parliament) step() error {
	m := p.members[p.rng.IntN(len(p.members))]
	if p.elected[m.term] == m.id && m.vote == m.id && p.rng.IntN(3) > 0 {
		p.copies(m)
		return nil
	}
	_, err := p.campaign(m, func(*seat) bool { return p.rng.IntN(3) > 0 })
	return err
}

func (m *seat) lastTerm() int {
	if len(m.log) == 0 {
		return 0
	}
	return m.log[len(m.log)-1]
}

// campaign lets a member ask those who hear it for their votes.
func (p *parliament) campaign(c *seat, hears func(*seat) bool) (won bool, err error) {
	c.term++
	c.vote = c.id
	votes := []replica.BrokerID{c.id}
	for _, m := range p.members {
		if m == c || !hears(m) {
			continue
		}
		b := Ballot{
			Term: m.term, VotedFor: m.vote, LastTerm: m.lastTerm(), LastIndex: len(m.log),
			Candidate: c.id, CandidateTerm: c.term, CandidateLastTerm: c.lastTerm(), CandidateLastIndex: len(c.log),
		}
		granted := p.grant(b)
		if c.term > m.term {
			m.term, m.vote = c.term, replica.None
		}
		if granted {
			m.vote = c.id
			votes = append(votes, m.id)
		}
	}
	p.tell("in term %d, %d gets the votes of %v", c.term, c.id, votes)
	if len(votes) <= len(p.members)/2 {
		return false, nil
	}
	if other, ok := p.elected[c.term]; ok && other != c.id {
		return true, fmt.Errorf("%d and %d were both elected in term %d:\n%s", other, c.id, c.term, p.last())
	}
	p.elected[c.term] = c.id
	if n := len(p.counts); len(c.log) < n || !slices.Equal(c.log[:n], p.counts) {
		return true, fmt.Errorf("%d was elected in term %d without an entry that counts: its entries are of the terms %v, those that count of %v:\n%s", c.id, c.term, c.log, p.counts, p.last())
	}
	return true, nil
}

// copies lets a leader append an entry, and some of the others copy its log.
func (p *parliament) copies(l *seat) {
	l.log = append(l.log, l.term)
	have := []replica.BrokerID{l.id}
	for _, m := range p.members {
		if m != l && m.term <= l.term && p.rng.IntN(3) > 0 {
			if m.term < l.term {
				m.term, m.vote = l.term, replica.None
			}
			m.log = slices.Clone(l.log)
			have = append(have, m.id)
		}
	}
	p.tell("%d appends entry %d of term %d, and %v have it", l.id, len(l.log), l.term, have)
	if len(have) > len(p.members)/2 {
		p.counts = slices.Clone(l.log)
	}
}

// elects: when everybody hears everybody, somebody is elected.
func (p *parliament) elects() error {
	best := slices.MaxFunc(p.members, func(a, b *seat) int {
		if a.lastTerm() != b.lastTerm() {
			return a.lastTerm() - b.lastTerm()
		}
		return len(a.log) - len(b.log)
	})
	for _, m := range p.members {
		best.term = max(best.term, m.term)
	}
	won, err := p.campaign(best, func(*seat) bool { return true })
	if err == nil && !won {
		err = fmt.Errorf("nobody can be elected: %d lacks nothing, and everybody hears it:\n%s", best.id, p.last())
	}
	return err
}

func (p *parliament) tell(format string, args ...any) {
	p.story = append(p.story, "  "+fmt.Sprintf(format, args...))
}

// last is how it came to this.
func (p *parliament) last() string {
	out := ""
	for _, line := range p.story[max(0, len(p.story)-6):] {
		out += line + "\n"
	}
	return out
}
