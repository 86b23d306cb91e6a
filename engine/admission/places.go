package admission

import (
	"sync"
	"time"
)

// Places are what connections take. They are safe for concurrent use.
type Places struct {
	limit int
	now   func() time.Time

	mu       sync.Mutex
	spare    int    // places beyond the limit
	operator *Place // who has the one that is kept for whoever is to see what is going on
	all      map[*Place]bool
	of       map[string]int // places, by address
}

// NewPlaces returns so many places. now is a clock.
func NewPlaces(limit int, now func() time.Time) *Places {
	return &Places{limit: limit, now: now, all: map[*Place]bool{}, of: map[string]int{}}
}

// Reserve keeps so many places beyond the limit: for other brokers, and for one operator. Enter
// gives them out when there are no others, and Spare tells. Whoever has one and is neither must
// leave at once.
func (p *Places) Reserve(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.spare = n
}

// Place is a connection's.
type Place struct {
	places  *Places
	address string
	evict   func()
	kept    bool
	under   int // way: requests
	spoken  bool
	quiet   time.Time
	gone    bool
	spare   bool
	flows   [2]flow // by direction
}

// Enter takes a place for a connection from an address. Where all are taken, the connection
// that has had nothing under way for the longest makes room, of those that come from the
// address with the most places, and one that has never asked for anything before one that
// has: its evict is called, and must end it without waiting. Where
// each has something under way, an address that holds more than half of the places loses one
// all the same. Enter returns nil where nobody makes room.
func (p *Places) Enter(address string, evict func()) *Place {
	p.mu.Lock()
	var victim *Place
	if len(p.all) >= p.limit {
		if victim = p.victim(); victim == nil && len(p.all) >= p.limit+p.spare {
			p.mu.Unlock()
			return nil
		}
		if victim != nil {
			p.leave(victim)
		}
	}
	place := &Place{places: p, address: address, evict: evict, quiet: p.now(), spare: len(p.all) >= p.limit}
	p.all[place] = true
	p.of[address]++
	p.mu.Unlock()
	if victim != nil {
		victim.evict()
	}
	return place
}

func (p *Places) victim() (v *Place) {
	for q := range p.all {
		switch {
		case q.kept || q == p.operator || q.under > 0 && 2*p.of[q.address] <= p.limit:
		case v != nil && (q.under > 0) != (v.under > 0):
			if v.under > 0 {
				v = q
			}
		case v == nil, p.of[q.address] > p.of[v.address]:
			v = q
		case p.of[q.address] < p.of[v.address]:
		case q.spoken != v.spoken:
			if v.spoken {
				v = q
			}
		case q.quiet.Before(v.quiet):
			v = q
		}
	}
	return v
}

func (p *Places) leave(q *Place) {
	if q.gone {
		return
	}
	q.gone = true
	if p.operator == q {
		p.operator = nil
	}
	delete(p.all, q)
	if p.of[q.address]--; p.of[q.address] == 0 {
		delete(p.of, q.address)
	}
}

// Taken is how many are.
func (p *Places) Taken() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.all)
}

// Spare reports whether the place is one of those that are kept, and there are no others yet.
func (q *Place) Spare() bool {
	q.places.mu.Lock()
	defer q.places.mu.Unlock()
	q.spare = q.spare && len(q.places.all) > q.places.limit
	return q.spare
}

// Operate takes the place that is kept for an operator, if nobody has it.
func (q *Place) Operate() bool {
	q.places.mu.Lock()
	defer q.places.mu.Unlock()
	if q.places.operator == nil {
		q.places.operator = q
	}
	return q.places.operator == q
}

// Keep says that the connection makes room for nobody: it is another broker's.
func (q *Place) Keep() {
	q.places.mu.Lock()
	defer q.places.mu.Unlock()
	q.kept = true
}

// Begin says that a request is under way, and End that it no longer is.
func (q *Place) Begin() {
	q.places.mu.Lock()
	defer q.places.mu.Unlock()
	q.under++
	q.spoken = true
}

// End is what ends Begin.
func (q *Place) End() {
	q.places.mu.Lock()
	defer q.places.mu.Unlock()
	q.under--
	q.quiet = q.places.now()
}

// Leave gives the place up.
func (q *Place) Leave() {
	q.places.mu.Lock()
	defer q.places.mu.Unlock()
	q.places.leave(q)
}
