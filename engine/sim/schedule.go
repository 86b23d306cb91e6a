package sim

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"logbook/engine/controller"
	"logbook/engine/replica"
)

// Fault is a kind of fault.
type Fault string

const (
	Crash     Fault = "crash"      // a broker dies, and with it what was not synced
	Cut       Fault = "cut"        // messages between two brokers are lost, in one direction or both
	Lossy     Fault = "lossy"      // every message may be lost, repeated, delayed
	DiskError Fault = "disk error" // a broker's disk fails some operations
	Slow      Fault = "slow"       // messages to and from a broker take long
	Silence   Fault = "silence"    // a member of the group hangs, and goes on where it was
	Pause     Fault = "pause"      // a broker's process stands still, and goes on where it was
	Drift     Fault = "drift"      // a broker's clock goes up to a tenth too fast or too slow
	Rot       Fault = "rot"        // a bit flips on the disk of one broker
	Move      Fault = "move"       // no fault: a partition is moved to other brokers, or a move taken back
	Vote      Fault = "vote"       // no fault: a broker is given a vote, or loses it; with the quorum controller
	OldDisk   Fault = "old disk"   // a broker dies, and comes back with its disk as it was a while before; always the same one
	LostDisk  Fault = "lost disk"  // a broker dies, and comes back with an empty disk; always the same one
)

// AllFaults are the kinds of faults that come together. The others come alone: with a second fault,
// a record may be left on no disk at all.
var AllFaults = []Fault{Crash, Cut, Lossy, Slow, DiskError, Silence, Pause, Drift}

// EveryFault are all of them.
var EveryFault = append(slices.Clone(AllFaults), Rot, LostDisk)

// Config says what is simulated.
type Config struct {
	Seed       uint64        `json:"seed"`
	Brokers    int           `json:"brokers"`
	Deciding   int           `json:"deciding,omitempty"` // so many of them, the last, only decide, and the others only store; 0: all do both
	Controller string        `json:"controller"`         // manual, first-alive or quorum
	Acks       string        `json:"acks"`               // leader, all or quorum
	MinInSync  int           `json:"min_in_sync"`
	Faults     []Fault       `json:"faults"`
	Length     time.Duration `json:"length"` // how long faults go on
}

func (c Config) withDefaults() (Config, replica.Acks, error) {
	if c.Brokers == 0 {
		c.Brokers = 3
	}
	if c.Controller == "" {
		c.Controller = "manual"
	}
	if c.Acks == "" {
		c.Acks = "quorum"
	}
	if c.MinInSync == 0 {
		c.MinInSync = 2
	}
	if c.Length == 0 {
		c.Length = 20 * time.Second
	}
	acks, err := replica.ParseAcks(c.Acks)
	if err == nil {
		_, err = controller.KindByName(c.Controller, c.Brokers)
	}
	if err == nil && (c.Brokers < 1 || c.Brokers > 9) {
		err = fmt.Errorf("sim: %d brokers; there must be from 1 to 9", c.Brokers)
	}
	if err == nil && (c.Deciding < 0 || c.Deciding >= c.Brokers || c.Deciding > 0 && c.Controller != "quorum") {
		err = fmt.Errorf("sim: %d of %d brokers only decide, with the controller %s; some must store, and the controller must be quorum", c.Deciding, c.Brokers, c.Controller)
	}
	return c, acks, err
}

// Step is something that a schedule makes happen.
type Step struct {
	At   time.Duration `json:"at"`
	What string        `json:"what"` // produce, crash, restart, cut, heal, lossy, calm, slow, fast, silence, speak, move, vote, pause, resume, drift, lose disk, copy disk, old disk, rot, disk error, disk well
	A    int           `json:"a,omitempty"`
	B    int           `json:"b,omitempty"` // cut: to; 0: both directions
	N    int           `json:"n,omitempty"`
}

func (s Step) String() string { return fmt.Sprintf("%8v %s", s.At, s.what()) }

func (s Step) what() string {
	out := s.What
	if s.A > 0 {
		out += fmt.Sprintf(" %d", s.A)
	}
	if s.B > 0 {
		out += fmt.Sprintf(" -> %d", s.B)
	}
	return out
}

// Schedule is a configuration and what happens under it: a run, to be run again.
type Schedule struct {
	Config Config `json:"config"`
	Steps  []Step `json:"steps"`
}

// Encode writes a schedule for a file.
func (s Schedule) Encode() []byte {
	data, err := json.MarshalIndent(s, "", " ")
	if err != nil {
		panic(err) // numbers and strings
	}
	return append(data, '\n')
}

// DecodeSchedule reads it back.
func DecodeSchedule(data []byte) (Schedule, error) {
	var s Schedule
	if err := json.Unmarshal(data, &s); err != nil {
		return s, fmt.Errorf("sim: not a schedule: %w", err)
	}
	_, _, err := s.Config.withDefaults()
	return s, err
}

// Plan makes the schedule of a seed.
func Plan(c Config) Schedule {
	c, _, _ = c.withDefaults() // what is wrong shows when it is run
	rng := rand.New(rand.NewPCG(c.Seed, 1))
	s := Schedule{Config: c}
	at := func() time.Duration { return time.Duration(rng.Int64N(int64(c.Length))).Truncate(time.Millisecond) }
	broker := func() int { return 1 + rng.IntN(c.Brokers) }
	for range 30 {
		s.Steps = append(s.Steps, Step{At: at(), What: "produce", A: 1 + rng.IntN(3)})
	}
	for _, f := range c.Faults {
		of := broker
		if f == LostDisk || f == OldDisk {
			one := broker()
			of = func() int { return one }
		}
		for range 1 + rng.IntN(7) {
			s.Steps = append(s.Steps, fault(f, at(), of, rng)...)
		}
	}
	slices.SortStableFunc(s.Steps, func(a, b Step) int { return int(a.At - b.At) })
	return s
}

func fault(f Fault, at time.Duration, broker func() int, rng *rand.Rand) []Step {
	later := at + time.Duration(200+rng.IntN(6000))*time.Millisecond
	a, b := broker(), broker()
	switch f {
	case Crash:
		// A write just before is what a crash may take.
		return []Step{{At: max(0, at-time.Duration(rng.IntN(12))*time.Millisecond), What: "produce", A: 1}, {At: at, What: "crash", A: a}, {At: later, What: "restart", A: a}}
	case Cut:
		if rng.IntN(3) == 0 && a != b {
			return []Step{{At: at, What: "cut", A: a, B: b}, {At: later, What: "heal"}} // one way
		}
		return []Step{{At: at, What: "cut", A: a}, {At: later, What: "heal"}} // off from everybody
	case Lossy:
		return []Step{{At: at, What: "lossy", N: 5 + rng.IntN(90)}, {At: later, What: "calm"}}
	case Slow:
		return []Step{{At: at, What: "slow", A: a}, {At: later, What: "fast", A: a}}
	case Silence:
		m := 1 + rng.IntN(memberCount)
		return []Step{{At: at, What: "silence", A: m}, {At: later, What: "speak", A: m}}
	case Pause:
		return []Step{{At: at, What: "pause", A: a}, {At: later, What: "resume", A: a}}
	case Move:
		return []Step{{At: at, What: "move", A: 1 + rng.IntN(len(parts)), B: 1 + rng.IntN(9)}}
	case Vote:
		return []Step{{At: at, What: "vote", A: a, N: rng.IntN(3)}}
	case Drift:
		return []Step{{At: at, What: "drift", A: a, N: 900 + rng.IntN(201)}}
	case LostDisk:
		return []Step{{At: max(0, at-time.Duration(rng.IntN(12))*time.Millisecond), What: "produce", A: 1}, {At: at, What: "lose disk", A: a}, {At: later, What: "restart", A: a}}
	case OldDisk:
		copied := max(0, at-time.Duration(rng.IntN(4000))*time.Millisecond)
		return []Step{{At: copied, What: "copy disk", A: a}, {At: max(copied, at-time.Duration(rng.IntN(12))*time.Millisecond), What: "produce", A: 1}, {At: at, What: "old disk", A: a}, {At: at + time.Duration(rng.IntN(1500))*time.Millisecond, What: "restart", A: a}}
	case Rot:
		return []Step{{At: at, What: "rot", A: 1}}
	case DiskError:
		return []Step{{At: at, What: "disk error", A: a}, {At: later, What: "disk well", A: a}}
	}
	return nil
}
