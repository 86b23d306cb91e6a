package sim

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"logbook/engine/commitlog"
	"logbook/engine/group"
)

// checks hold what happens to what was promised.
type checks struct {
	w            *world
	found        []string
	seen         map[string]bool
	written      map[string]*write // every value ever sent
	acknowledged map[int64]string
	served       map[int64]string // by offset, to anybody
	places       map[string]int64 // by value: where it was served
	leaders      map[int32]int    // by epoch
	history      []porcupine.Operation
	unsure       []*write  // whose outcome nobody was told
	latest       time.Time // of the last acknowledgement

	generation int32                    // the newest that a member was told of
	owners     map[int32]map[int]string // by generation and partition
	committed  map[int]int64            // acknowledged, by partition
	latestMark time.Time                // of the last commit
}

func newChecks(w *world) *checks {
	return &checks{
		w: w, seen: map[string]bool{}, written: map[string]*write{}, acknowledged: map[int64]string{},
		served: map[int64]string{}, places: map[string]int64{}, leaders: map[int32]int{},
		owners: map[int32]map[int]string{}, committed: map[int]int64{},
	}
}

func (c *checks) violation(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if kind, _, _ := strings.Cut(format, ":"); c.seen[kind] {
		return // one of a kind is enough
	} else {
		c.seen[kind] = true
	}
	c.found = append(c.found, text)
	c.w.note("VIOLATION: %s", text)
	c.w.draw.violation(text)
}

// leads: an epoch has one leader.
func (c *checks) leads(broker int, epoch int32) {
	if other, ok := c.leaders[epoch]; ok && other != broker {
		c.violation("two leaders in one epoch: brokers %d and %d in %d", other, broker, epoch)
	}
	c.leaders[epoch] = broker
}

func (c *checks) called(x *write) { c.written[x.value] = x }

// operation is an append or a read, for the linearizability check.
type operation struct {
	value  string
	offset int64
	read   bool
}

func (c *checks) nanos(t time.Time) int64 { return int64(t.Sub(c.w.zero)) }

func (c *checks) acknowledge(x *write, offset int64) {
	if old, ok := c.acknowledged[offset]; ok {
		c.violation("offset given twice: %d to %s and to %s, both acknowledged", offset, old, x.value)
	}
	c.acknowledged[offset] = x.value
	c.latest = c.w.now
	c.history = append(c.history, porcupine.Operation{ClientId: x.producer, Input: operation{value: x.value, offset: offset}, Call: c.nanos(x.call), Return: c.nanos(c.w.now)})
}

// unknown: the write may have happened, may yet, or never.
func (c *checks) unknown(x *write) { c.unsure = append(c.unsure, x) }

func (c *checks) read(reader, broker int, offset int64, value string, call time.Time) {
	if c.written[value] == nil {
		c.violation("never written: broker %d serves %q at %d", broker, value, offset)
	}
	if old, ok := c.served[offset]; ok && old != value {
		c.violation("read differently: offset %d was %s, and is %s", offset, old, value)
	}
	if old, ok := c.places[value]; ok && old != offset {
		c.violation("read twice: %s at %d and at %d", value, old, offset)
	}
	if _, ok := c.served[offset]; !ok {
		c.history = append(c.history, porcupine.Operation{ClientId: 10 + reader, Input: operation{value: value, offset: offset, read: true}, Call: c.nanos(call), Return: c.nanos(c.w.now)})
	}
	c.served[offset], c.places[value] = value, offset
}

// told: a member was told that a generation has begun.
func (c *checks) told(generation int32) { c.generation = max(c.generation, generation) }

// owns: a partition has one owner in a generation.
func (c *checks) owns(generation int32, p int, member string) {
	if c.owners[generation] == nil {
		c.owners[generation] = map[int]string{}
	}
	if other, ok := c.owners[generation][p]; ok && other != member {
		c.violation("two owners: %s and %s have partition %d in generation %d", other, member, p, generation)
	}
	c.owners[generation][p] = member
}

// resumes: who takes a partition over begins where the last commit was, or behind.
func (c *checks) resumes(p int, offset int64) {
	if offset < c.committed[p] {
		c.violation("commit lost: partition %d is resumed at %d, and %d was committed", p, offset, c.committed[p])
	}
}

// commits: a commit was accepted. newest is the generation that some member had been told
// of before it was sent.
func (c *checks) commits(generation, newest int32, offsets map[group.Partition]int64) {
	if generation < newest {
		c.violation("stale commit: one of generation %d was accepted after %d had begun", generation, newest)
	}
	for p := range groupPartitions {
		offset, ok := offsets[group.Partition{Topic: groupTopic, ID: p}]
		if !ok {
			continue
		}
		if offset < c.committed[p] {
			c.violation("commit went back: partition %d from %d to %d", p, c.committed[p], offset)
		}
		c.committed[p] = max(c.committed[p], offset)
	}
	c.latestMark = c.w.now
}

// final checks what must hold when all has been well for a while.
func (c *checks) final() {
	w := c.w
	if w.now.Sub(c.latest) > 10*time.Second {
		c.violation("stuck: the last write was acknowledged %v before the end, though all was well", w.now.Sub(c.latest))
	}
	if w.now.Sub(c.latestMark) > 10*time.Second {
		c.violation("group stuck: its last commit was %v before the end, though all was well", w.now.Sub(c.latestMark))
	}
	var leader *broker
	for _, b := range w.brokers {
		if !b.up {
			continue
		}
		if s, err := b.node.Status(part); err == nil && s.Role == "leader" && (leader == nil || s.Assignment.Epoch > epochOf(leader)) {
			leader = b
		}
	}
	if leader == nil {
		c.violation("stuck: nobody leads at the end")
		return
	}
	l, err := leader.node.Log(part)
	if err != nil {
		c.violation("damaged: the leader's log cannot be read: %v", err)
		return
	}
	held, own := map[int64]string{}, map[int64]string{}
	for r, err := range l.Records(l.StartOffset()) {
		if err != nil {
			c.violation("damaged: the leader's log: %v", err)
			return
		}
		held[r.Offset] = string(r.Value)
		if r.Key != nil {
			own[r.Offset] = fmt.Sprint("group-", r.Offset)
		}
	}
	for _, offset := range slices.Sorted(maps.Keys(c.acknowledged)) {
		if held[offset] != c.acknowledged[offset] {
			c.violation("lost: %s was acknowledged at %d, where %q is now", c.acknowledged[offset], offset, held[offset])
		}
	}
	c.compareReplicas(leader, l)
	c.linearize(held, own)
}

func epochOf(b *broker) int32 {
	s, _ := b.node.Status(part)
	return s.Assignment.Epoch
}

// compareReplicas: the active replicas agree below the high watermark.
func (c *checks) compareReplicas(leader *broker, l *commitlog.Log) {
	s, err := leader.node.Status(part)
	if err != nil {
		return
	}
	want, err := l.Sums(l.StartOffset(), math.MaxInt32)
	if err != nil {
		c.violation("damaged: the leader's log: %v", err)
		return
	}
	for _, id := range s.Assignment.Active {
		b := c.w.brokers[id-1]
		if !b.up {
			continue
		}
		other, err := b.node.Log(part)
		if err != nil {
			c.violation("damaged: active replica of broker %d has no log: %v", id, err)
			continue
		}
		got, err := other.Sums(other.StartOffset(), math.MaxInt32)
		if err != nil {
			c.violation("damaged: active replica of broker %d: %v", id, err)
			continue
		}
		n := int(min(s.HighWatermark, int64(len(want))))
		if len(got) < n || !slices.Equal(got[:n], want[:n]) {
			c.violation("replicas differ: broker %d is not broker %d's below %d", id, leader.id, n)
		}
	}
}

// linearize looks for an order of all appends and reads, each between its call and its
// return, that one list could have shown. A search that takes too long has not passed.
//
// A write whose outcome nobody was told took place where it was seen, some time after its
// call; if it never was, nobody can tell that it did.
//
// own are the records of the group's, which take up offsets too.
func (c *checks) linearize(held, own map[int64]string) {
	for _, offset := range slices.Sorted(maps.Keys(own)) {
		c.history = append(c.history, porcupine.Operation{ClientId: 30, Input: operation{value: own[offset], offset: offset}, Call: 0, Return: math.MaxInt64})
	}
	places := maps.Clone(c.places)
	for offset, value := range held {
		places[value] = offset
	}
	for _, x := range c.unsure {
		if offset, ok := places[x.value]; ok {
			c.history = append(c.history, porcupine.Operation{ClientId: x.producer, Input: operation{value: x.value, offset: offset}, Call: c.nanos(x.call), Return: math.MaxInt64})
		}
	}
	model := porcupine.Model{
		Init: func() any { return "" },
		Step: func(state, input, _ any) (bool, any) {
			list, op := state.(string), input.(operation)
			n := int64(strings.Count(list, " "))
			switch {
			case op.read:
				words := strings.Fields(list)
				return op.offset < n && words[op.offset] == op.value, state
			case op.offset != n:
				return false, state
			}
			return true, list + op.value + " "
		},
		Equal: func(a, b any) bool { return a == b },
	}
	switch porcupine.CheckOperationsTimeout(model, c.history, 5*time.Second) {
	case porcupine.Illegal:
		c.violation("not linearizable: %d appends and reads fit no order", len(c.history))
	case porcupine.Unknown:
		c.violation("undecided: whether %d appends and reads fit an order was not found out in time", len(c.history))
	}
}
