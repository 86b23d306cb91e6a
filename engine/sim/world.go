package sim

import (
	"container/heap"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"time"

	"logbook/engine/replica"
	"logbook/engine/service"
)

// world is a simulation under way. Everything happens in events, one after another.
type world struct {
	cfg      Config
	acks     replica.Acks
	design   Design
	pcg      *rand.PCG
	rng      *rand.Rand        // over pcg; see dice
	rolled   map[uint64]uint64 // dice asked for in this instant, by what for
	rolledAt time.Time
	zero     time.Time
	now      time.Time

	events eventHeap
	seq    uint64

	brokers []*broker // by id - 1
	links   map[[2]int]bool
	lossy   int // percent
	slow    map[int]bool

	clients *clients
	checks  *checks
	trace   strings.Builder
	draw    *drawing
	stopped bool
}

type event struct {
	at  time.Time
	seq uint64
	do  func()
}

type eventHeap []event

func (h eventHeap) Len() int { return len(h) }
func (h eventHeap) Less(i, j int) bool {
	return h[i].at.Before(h[j].at) || h[i].at.Equal(h[j].at) && h[i].seq < h[j].seq
}
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *eventHeap) Push(x any)   { *h = append(*h, x.(event)) }
func (h *eventHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

// after lets something happen later.
func (w *world) after(d time.Duration, do func()) {
	w.seq++
	heap.Push(&w.events, event{w.now.Add(d), w.seq, do})
}

// every repeats something until the end.
func (w *world) every(d time.Duration, do func()) {
	var again func()
	again = func() {
		if w.stopped {
			return
		}
		do()
		w.after(d, again)
	}
	w.after(d, again)
}

// run lets events happen until a time.
func (w *world) run(until time.Duration) {
	end := w.zero.Add(until)
	for len(w.events) > 0 && !w.events[0].at.After(end) {
		e := heap.Pop(&w.events).(event)
		w.now = e.at
		e.do()
	}
	w.now = end
}

// note writes a line of the trace.
func (w *world) note(format string, args ...any) {
	fmt.Fprintf(&w.trace, "%9v  %s\n", w.now.Sub(w.zero), fmt.Sprintf(format, args...))
}

// dice returns the randomness for something that happens now. It depends on the seed, the
// time and what it is for, and not on what was drawn before: a schedule from which a step
// is left out meets the same chances everywhere else, and so can be cut down.
func (w *world) dice(what uint64) *rand.Rand {
	if !w.now.Equal(w.rolledAt) {
		clear(w.rolled)
		w.rolledAt = w.now
	}
	w.rolled[what]++
	w.pcg.Seed(w.cfg.Seed^uint64(w.now.Sub(w.zero))*0x9e3779b97f4a7c15, what<<20|w.rolled[what])
	w.rng.Uint64() // the first of a fresh seed is not mixed yet
	return w.rng
}

// What dice are for.
const (
	forLink   = 0 // plus 16*from + to
	forDisk   = 1 << 10
	forClient = 2 << 10
	forCrash  = 3 << 10
)

// between draws a time.
func between(rng *rand.Rand, low, high time.Duration) time.Duration {
	return low + time.Duration(rng.Int64N(int64(high-low)+1))
}

// travel carries something from one process to another, if the network lets it. Brokers
// are 1 and up, the controller is 0, clients are reached by everybody.
func (w *world) travel(from, to int, arrive func()) (sent bool) {
	if w.links[[2]int{from, to}] {
		return false
	}
	dice := w.dice(forLink + uint64(16*from+to))
	if w.lossy > 0 && dice.IntN(100) < w.lossy {
		return false
	}
	delay := between(dice, time.Millisecond, 4*time.Millisecond)
	if w.lossy > 0 && dice.IntN(4) == 0 {
		delay = between(dice, time.Millisecond, 300*time.Millisecond) // and so is overtaken
	}
	if w.slow[from] || w.slow[to] {
		delay += between(dice, 100*time.Millisecond, 900*time.Millisecond)
	}
	w.after(delay, arrive)
	if w.lossy > 0 && dice.IntN(100) < w.lossy {
		w.after(between(dice, time.Millisecond, 300*time.Millisecond), arrive) // twice
	}
	return true
}

// Result is what a run came to.
type Result struct {
	Schedule   Schedule
	Violations []string
	Trace      string
	Hash       uint64 // of the trace
	Virtual    time.Duration
	Written    int // records acknowledged
	Diagram    string
}

// Run runs a schedule to its end: the faults, then a time in which everything is well, and
// the checks.
func Run(s Schedule) (Result, error) { return RunDesign(s, Design{}) }

// Design is what is put to the test. The zero value is the engine's own.
type Design = service.Design

// RunDesign is Run for a design of the caller's.
func RunDesign(s Schedule, d Design) (Result, error) {
	cfg, acks, err := s.Config.withDefaults()
	if err != nil {
		return Result{}, err
	}
	w := &world{cfg: cfg, acks: acks, design: d, pcg: rand.NewPCG(0, 0), rolled: map[uint64]uint64{}, zero: time.Unix(1_000_000_000, 0), links: map[[2]int]bool{}, slow: map[int]bool{}}
	w.now = w.zero
	w.rng = rand.New(w.pcg)
	w.checks = newChecks(w)
	w.draw = newDrawing(w)
	const begin = 2 * time.Second // for everybody to start, and for the topics to be made
	if err := w.build(); err != nil {
		return Result{}, err
	}
	w.clients = newClients(w)
	if cfg.Controller == "manual" {
		w.every(900*time.Millisecond, w.person)
	}
	for _, step := range s.Steps {
		w.after(step.At, func() { w.step(step) })
	}
	w.run(begin + cfg.Length)
	w.calm()
	w.run(begin + cfg.Length + 3*time.Second)
	w.draw.quiet = true
	w.clients.probe = true
	w.run(begin + cfg.Length + recovery)
	w.checks.final()
	w.stopped = true
	h := fnv.New64a()
	h.Write([]byte(w.trace.String()))
	return Result{
		Schedule: Schedule{cfg, s.Steps}, Violations: w.checks.found, Trace: w.trace.String(), Hash: h.Sum64(),
		Virtual: begin + cfg.Length + recovery, Written: w.checks.acknowledgements(), Diagram: w.draw.svg(),
	}, nil
}

// recovery is how long after the faults everything must be well again.
const recovery = 40 * time.Second

// step makes a step of the schedule happen.
func (w *world) step(s Step) {
	if s.What != "produce" {
		w.note("%s", s.what())
	}
	switch s.What {
	case "cut", "heal", "lossy", "calm", "slow", "fast", "rot", "disk error", "disk well":
		w.draw.step(s)
	}
	switch s.What {
	case "produce":
		w.clients.produce(s.A)
	case "crash":
		w.brokers[s.A-1].crash()
	case "restart":
		w.brokers[s.A-1].start()
	case "cut":
		w.cut(s.A, s.B)
	case "heal":
		clear(w.links)
	case "lossy":
		w.lossy = s.N
	case "calm":
		w.lossy = 0
	case "slow":
		w.slow[s.A] = true
	case "fast":
		delete(w.slow, s.A)
	case "silence":
		w.clients.members[s.A-1].silent = true
	case "speak":
		w.clients.members[s.A-1].silent = false
	case "rot":
		w.brokers[s.A-1].rot()
	case "disk error":
		w.brokers[s.A-1].failing = true
	case "disk well":
		w.brokers[s.A-1].failing = false
	}
}

func (w *world) cut(a, b int) {
	if b > 0 {
		w.links[[2]int{a, b}] = true
		return
	}
	for other := 0; other <= len(w.brokers); other++ {
		if other != a {
			w.links[[2]int{a, other}], w.links[[2]int{other, a}] = true, true
		}
	}
}

// calm ends every fault. A broker whose disk failed is restarted, as somebody would.
func (w *world) calm() {
	clear(w.links)
	clear(w.slow)
	w.lossy = 0
	for _, m := range w.clients.members {
		m.silent = false
	}
	for _, b := range w.brokers {
		b.failing = false
		if b.up && len(b.service.Unusable()) > 0 {
			b.crash()
		}
		b.start()
	}
	w.note("all is well")
}
