package sim

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"time"

	"logbook/engine/controller"
	_ "logbook/engine/controller/quorum" // one of the kinds
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
	soon   []event // those that happen now
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

// event is something that happens. Of those at one time, the one that was asked for first
// comes first.
type event struct {
	at  int64 // ns since the beginning
	seq uint64
	do  func()
}

func (e event) before(o event) bool { return e.at < o.at || e.at == o.at && e.seq < o.seq }

// eventHeap has the next event first. It is container/heap's, without its boxes: most of a
// simulation's time goes through here.
type eventHeap []event

func (h *eventHeap) push(e event) {
	*h = append(*h, e)
	s := *h
	for i := len(s) - 1; i > 0; {
		parent := (i - 1) / 2
		if !s[i].before(s[parent]) {
			return
		}
		s[i], s[parent] = s[parent], s[i]
		i = parent
	}
}

func (h *eventHeap) pop() event {
	s := *h
	first, last := s[0], len(s)-1
	s[0], s[last] = s[last], event{}
	s = s[:last]
	*h = s
	for i := 0; ; {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < last; child++ {
			if s[child].before(s[least]) {
				least = child
			}
		}
		if least == i {
			return first
		}
		s[i], s[least] = s[least], s[i]
		i = least
	}
}

// after lets something happen later.
func (w *world) after(d time.Duration, do func()) {
	w.seq++
	e := event{int64(w.now.Sub(w.zero) + d), w.seq, do}
	if d == 0 {
		w.soon = append(w.soon, e) // in order by itself
		return
	}
	w.events.push(e)
}

// next takes out the next event that is due, if there is one.
func (w *world) next(until int64) (event, bool) {
	if len(w.soon) > 0 && (len(w.events) == 0 || w.soon[0].before(w.events[0])) {
		e := w.soon[0]
		w.soon = w.soon[1:]
		return e, true
	}
	if len(w.events) == 0 || w.events[0].at > until {
		return event{}, false
	}
	return w.events.pop(), true
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
	for {
		e, ok := w.next(int64(until))
		if !ok {
			w.now = w.zero.Add(until)
			return
		}
		w.now = w.zero.Add(time.Duration(e.at))
		e.do()
	}
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
	if kind, _ := controller.KindByName(cfg.Controller, cfg.Brokers); kind.ByCommand {
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
const recovery = 25 * time.Second

// step makes a step of the schedule happen.
func (w *world) step(s Step) {
	if s.What != "produce" {
		w.note("%s", s.what())
	}
	switch s.What {
	case "cut", "heal", "lossy", "calm", "slow", "fast", "rot", "disk error", "disk well", "pause", "resume", "drift", "lose disk", "old disk":
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
	case "move":
		w.move(parts[s.A-1], s.B)
	case "vote":
		w.vote(s.A, []controller.MemberChangeKind{controller.GiveVote, controller.TakeVote, controller.TakeVote}[s.N%3])
	case "pause":
		w.brokers[s.A-1].paused = w.brokers[s.A-1].up
	case "resume":
		w.brokers[s.A-1].resume()
	case "drift":
		w.brokers[s.A-1].drift(int64(s.N))
	case "lose disk":
		w.brokers[s.A-1].loseDisk()
	case "copy disk":
		w.brokers[s.A-1].copyDisk()
	case "old disk":
		w.brokers[s.A-1].oldDisk()
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

// calm ends every fault. Nobody mends anything by hand: a broker whose disk failed opens
// its logs again by itself.
func (w *world) calm() {
	clear(w.links)
	clear(w.slow)
	w.lossy = 0
	for _, m := range w.clients.members {
		m.silent = false
	}
	for _, b := range w.brokers {
		b.failing = false
		if b.paused {
			b.resume()
		}
		b.start()
	}
	w.note("all is well")
	w.after(2*time.Second, w.lookAfter)
}

// lookAfter does what a person does who is told that a broker's disk is an old one.
func (w *world) lookAfter() {
	for _, b := range w.brokers {
		if !b.up {
			continue
		}
		if problem := b.service.QuorumProblem(); problem != "" {
			w.note("broker %d gets an empty disk: %s", b.id, problem)
			b.loseDisk()
			b.start()
		}
	}
}
