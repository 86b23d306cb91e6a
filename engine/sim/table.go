package sim

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"

	"logbook/engine/controller"
)

// Promise is a cell of the guarantee table: what is promised under a fault, or not.
type Promise struct {
	Controller, Acks string
	Fault            Fault
	Promised         bool
	Why              string // where nothing is promised: what may happen
}

// Promises is the guarantee table: each acknowledgement level, each controller, each fault.
// What is promised is always the same: that no acknowledged record is lost, that reads are
// consistent and true, that replicas agree, that a group's partitions have one owner and its
// committed offsets never go back, and that all goes on when all is well again.
func Promises() []Promise {
	var out []Promise
	for _, c := range controller.Kinds() {
		for _, acks := range []string{"leader", "all", "quorum"} {
			for _, f := range EveryFault {
				p := Promise{Controller: c.Name, Acks: acks, Fault: f, Promised: true}
				switch {
				case f == Rot && !c.Mends:
					p.Promised, p.Why = false, "what rotted is refused, never served, and somebody has to copy it anew"
				case f == LostDisk && c.ByCommand:
					p.Promised, p.Why = false, "the broker that keeps the decisions may lose them, and nobody copies a replica anew by themselves"
				case f == LostDisk && acks != "leader": // it knows that it has nothing, and those lead that have
				case f == Silence || f == Drift: // a stale member is fenced, whoever coordinates; and nobody compares clocks
				case c.ByCommand && f == Pause: // a person sees that it lives
				case f == DiskError && (c.Agrees || acks != "leader"): // who cannot store does not acknowledge; a leader that cannot gives up
				case c.ByCommand && (f == Lossy || f == Slow): // a person asks again before they give a leader up
				case acks == "leader":
					p.Promised, p.Why = false, "a failover may lose what only the leader held"
				case !c.Agrees:
					p.Promised, p.Why = false, "nobody agrees on who is in sync, and who is alone still serves reads"
				}
				out = append(out, p)
			}
		}
	}
	return out
}

// Config is the simulation of a cell.
func (p Promise) Config(seed uint64) Config {
	return Config{Seed: seed, Controller: p.Controller, Acks: p.Acks, Faults: []Fault{p.Fault}}
}

// Cell is what a cell of the table came to.
type Cell struct {
	Promise
	Seeds      int
	Violated   int
	First      uint64   // the first seed with a violation
	Violations []string // its
}

// Progress is told of each seed that was run.
type Progress func()

// Table runs seeds first to first+n-1 for each cell, on as many cores as there are. Where
// nothing is promised and none of them shows why, it goes on, to at most limit seeds.
func Table(first uint64, n, limit int, done Progress) ([]Cell, error) {
	cells := make([]Cell, len(Promises()))
	for i, p := range Promises() {
		cells[i] = Cell{Promise: p}
		var results []Result
		for round := 0; round == 0 || !p.Promised && len(results) == 0 && (round+1)*n <= limit; round++ {
			more, err := Seeds(func(seed uint64) Config { return p.Config(seed) }, first+uint64(round*n), n, done)
			if err != nil {
				return nil, err
			}
			results = append(results, more...)
			cells[i].Seeds += n
		}
		for _, r := range results {
			if cells[i].Violated++; cells[i].Violated == 1 {
				cells[i].First, cells[i].Violations = r.Schedule.Config.Seed, r.Violations
			}
		}
	}
	return cells, nil
}

// Seeds runs many seeds, on as many cores as there are, and returns the results of those
// with violations, in order.
func Seeds(config func(seed uint64) Config, first uint64, n int, done Progress) ([]Result, error) {
	var mu sync.Mutex
	var bad []Result
	var failed error
	next := first
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for {
				mu.Lock()
				seed := next
				next++
				stop := seed >= first+uint64(n) || failed != nil
				mu.Unlock()
				if stop {
					return
				}
				r, err := Run(Plan(config(seed)))
				mu.Lock()
				if err != nil && failed == nil {
					failed = err
				}
				if len(r.Violations) > 0 {
					bad = append(bad, r)
				}
				if done != nil {
					done()
				}
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	slices.SortFunc(bad, func(a, b Result) int { return int(a.Schedule.Config.Seed) - int(b.Schedule.Config.Seed) })
	return bad, failed
}

// Markdown writes cells as a table.
func Markdown(cells []Cell) string {
	var b strings.Builder
	b.WriteString("| controller | acks | fault | promised | seeds | violated |\n| --- | --- | --- | --- | --- | --- |\n")
	for _, c := range cells {
		promised := "yes"
		if !c.Promised {
			promised = "no: " + c.Why
		}
		violated := fmt.Sprint(c.Violated)
		if c.Violated > 0 {
			kind, _, _ := strings.Cut(c.Violations[0], ":")
			violated += fmt.Sprintf(", seed %d: %s", c.First, kind)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %d | %s |\n", c.Controller, c.Acks, c.Fault, promised, c.Seeds, violated)
	}
	return b.String()
}

// Shrink cuts a schedule that leads to a violation down to the steps without which it does
// not, of the same kind as the first.
func Shrink(s Schedule) (Result, error) { return ShrinkDesign(s, Design{}) }

// ShrinkDesign is Shrink for a design of the caller's.
func ShrinkDesign(s Schedule, d Design) (Result, error) {
	best, err := RunDesign(s, d)
	if err != nil {
		return best, err
	}
	if len(best.Violations) == 0 {
		return best, fmt.Errorf("sim: the schedule of seed %d leads to no violation", s.Config.Seed)
	}
	kind, _, _ := strings.Cut(best.Violations[0], ":")
	for _, v := range best.Violations {
		if strings.HasPrefix(v, "lost:") {
			kind = "lost" // the one that matters most
		}
	}
	fails := func(steps []Step) (Result, bool) {
		r, err := RunDesign(Schedule{best.Schedule.Config, steps}, d)
		return r, err == nil && slices.ContainsFunc(r.Violations, func(v string) bool { return strings.HasPrefix(v, kind) })
	}
	for changed := true; changed; {
		changed = false
		for size := max(len(best.Schedule.Steps)/2, 1); size > 0; size /= 2 {
			for at := 0; at+size <= len(best.Schedule.Steps); {
				steps := slices.Concat(best.Schedule.Steps[:at], best.Schedule.Steps[at+size:])
				if r, bad := fails(steps); bad {
					best, changed = r, true
				} else {
					at += size
				}
			}
		}
	}
	// The one that was asked about comes first.
	var asked, others []string
	for _, v := range best.Violations {
		if strings.HasPrefix(v, kind) {
			asked = append(asked, v)
		} else {
			others = append(others, v)
		}
	}
	best.Violations = append(asked, others...)
	return best, nil
}
