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
	"logbook/engine/topic"
)

// checks hold what happens to what was promised.
type checks struct {
	w       *world
	found   []string
	seen    map[string]bool
	written map[string]*write // every value ever sent
	places  map[string]int64  // by value: where it was served
	parts   map[topic.Partition]*history

	generation int32                                // the newest that a member was told of
	owners     map[int32]map[topic.Partition]string // by generation
	committed  map[topic.Partition]int64            // acknowledged
	latestMark time.Time                            // of the last commit
}

// history is what happened to a partition.
type history struct {
	acknowledged map[int64]string // by offset
	served       map[int64]string // by offset, to anybody
	leaders      map[int32]int    // by epoch
	operations   []porcupine.Operation
	unsure       []*write  // whose outcome nobody was told
	latest       time.Time // of the last acknowledgement
}

func newChecks(w *world) *checks {
	c := &checks{
		w: w, seen: map[string]bool{}, written: map[string]*write{}, places: map[string]int64{}, parts: map[topic.Partition]*history{},
		owners: map[int32]map[topic.Partition]string{}, committed: map[topic.Partition]int64{},
	}
	for _, p := range parts {
		c.parts[p] = &history{acknowledged: map[int64]string{}, served: map[int64]string{}, leaders: map[int32]int{}}
	}
	return c
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
func (c *checks) leads(p topic.Partition, broker int, epoch int32) {
	h := c.parts[p]
	if other, ok := h.leaders[epoch]; ok && other != broker {
		c.violation("two leaders in one epoch: brokers %d and %d in %d of %s", other, broker, epoch, p)
	}
	h.leaders[epoch] = broker
}

func (c *checks) called(x *write) { c.written[x.value] = x }

// acknowledgements is how many records were acknowledged.
func (c *checks) acknowledgements() int {
	n := 0
	for _, h := range c.parts {
		n += len(h.acknowledged)
	}
	return n
}

// operation is an append or a read, for the linearizability check.
type operation struct {
	value  string
	offset int64
	read   bool
}

func (c *checks) nanos(t time.Time) int64 { return int64(t.Sub(c.w.zero)) }

func (c *checks) acknowledge(x *write, offset int64) {
	h := c.parts[x.p]
	if old, ok := h.acknowledged[offset]; ok {
		c.violation("offset given twice: %d of %s to %s and to %s, both acknowledged", offset, x.p, old, x.value)
	}
	h.acknowledged[offset] = x.value
	h.latest = c.w.now
	h.operations = append(h.operations, porcupine.Operation{ClientId: x.producer, Input: operation{value: x.value, offset: offset}, Call: c.nanos(x.call), Return: c.nanos(c.w.now)})
}

// unknown: the write may have happened, may yet, or never.
func (c *checks) unknown(x *write) { c.parts[x.p].unsure = append(c.parts[x.p].unsure, x) }

func (c *checks) read(reader, broker int, p topic.Partition, offset int64, value string, call time.Time) {
	h := c.parts[p]
	if x := c.written[value]; x == nil || x.p != p {
		c.violation("never written: broker %d serves %q at %d of %s", broker, value, offset, p)
	}
	if old, ok := h.served[offset]; ok && old != value {
		c.violation("read differently: offset %d of %s was %s, and is %s", offset, p, old, value)
	}
	if old, ok := c.places[value]; ok && old != offset {
		c.violation("read twice: %s at %d and at %d of %s", value, old, offset, p)
	}
	if _, ok := h.served[offset]; !ok {
		h.operations = append(h.operations, porcupine.Operation{ClientId: 10 + reader, Input: operation{value: value, offset: offset, read: true}, Call: c.nanos(call), Return: c.nanos(c.w.now)})
	}
	h.served[offset], c.places[value] = value, offset
}

// told: a member was told that a generation has begun.
func (c *checks) told(generation int32) { c.generation = max(c.generation, generation) }

// owns: a partition has one owner in a generation.
func (c *checks) owns(generation int32, p topic.Partition, member string) {
	if c.owners[generation] == nil {
		c.owners[generation] = map[topic.Partition]string{}
	}
	if other, ok := c.owners[generation][p]; ok && other != member {
		c.violation("two owners: %s and %s have %s in generation %d", other, member, p, generation)
	}
	c.owners[generation][p] = member
}

// resumes: who takes a partition over begins where the last commit was, or after it.
func (c *checks) resumes(p topic.Partition, offset int64) {
	if offset < c.committed[p] {
		c.violation("commit lost: %s is resumed at %d, and %d was committed", p, offset, c.committed[p])
	}
}

// commits: a commit was accepted. newest is the generation that some member had been told
// of before it was sent.
func (c *checks) commits(generation, newest int32, offsets map[topic.Partition]int64) {
	if generation < newest {
		c.violation("stale commit: one of generation %d was accepted after %d had begun", generation, newest)
	}
	for _, p := range parts {
		offset, ok := offsets[p]
		if !ok {
			continue
		}
		if offset < c.committed[p] {
			c.violation("commit went back: %s from %d to %d", p, c.committed[p], offset)
		}
		c.committed[p] = max(c.committed[p], offset)
	}
	c.latestMark = c.w.now
}

// final checks what must hold when all has been well for a while.
func (c *checks) final() {
	if c.w.now.Sub(c.latestMark) > 10*time.Second {
		c.violation("group stuck: its last commit was %v before the end, though all was well", c.w.now.Sub(c.latestMark))
	}
	for _, p := range parts {
		c.finalPartition(p, c.parts[p])
	}
}

func (c *checks) finalPartition(p topic.Partition, h *history) {
	w := c.w
	if w.now.Sub(h.latest) > 10*time.Second {
		c.violation("stuck: the last write to %s was acknowledged %v before the end, though all was well", p, w.now.Sub(h.latest))
	}
	var leader *broker
	epoch := int32(-1)
	for _, b := range w.brokers {
		if !b.up {
			continue
		}
		for q, s := range b.service.Replicas() {
			if q == p && s.Role == "leader" && s.Assignment.LeaderEpoch > epoch {
				leader, epoch = b, s.Assignment.LeaderEpoch
			}
		}
	}
	if leader == nil {
		c.violation("stuck: nobody leads %s at the end", p)
		return
	}
	held := map[int64]string{}
	for r, err := range leader.service.Own(p) {
		if err != nil {
			c.violation("damaged: the leader's log of %s: %v", p, err)
			return
		}
		held[r.Offset] = string(r.Value)
	}
	for _, offset := range slices.Sorted(maps.Keys(h.acknowledged)) {
		if held[offset] != h.acknowledged[offset] {
			c.violation("lost: %s was acknowledged at %d of %s, where %q is now", h.acknowledged[offset], offset, p, held[offset])
		}
	}
	c.compareReplicas(leader, p)
	c.linearize(p, h, held)
}

// compareReplicas: the in-sync replicas agree below the high watermark.
func (c *checks) compareReplicas(leader *broker, p topic.Partition) {
	digests := func(b *broker) (out []commitlog.FrameDigest, ok bool) {
		out, err := b.service.FrameDigests(p, 0, math.MaxInt32)
		if err != nil {
			c.violation("damaged: in-sync replica of %s on broker %d: %v", p, b.id, err)
		}
		return out, err == nil
	}
	for q, s := range leader.service.Replicas() {
		if q != p {
			continue
		}
		want, ok := digests(leader)
		if !ok {
			return
		}
		for _, id := range s.Assignment.ISR {
			b := c.w.brokers[id-1]
			if !b.up {
				continue
			}
			got, ok := digests(b)
			n := int(min(s.HighWatermark, int64(len(want))))
			if ok && (len(got) < n || !slices.Equal(got[:n], want[:n])) {
				c.violation("replicas differ: broker %d's log of %s is not broker %d's below %d", id, p, leader.id, n)
			}
		}
	}
}

// linearize looks for an order of all appends and reads of a partition, each between its
// call and its return, that one list could have shown. A search that takes too long has not
// passed.
//
// A write whose outcome nobody was told took place where it was seen, some time after its
// call; if it never was, nobody can tell that it did.
func (c *checks) linearize(p topic.Partition, h *history, held map[int64]string) {
	places := map[string]int64{}
	for offset, value := range h.served {
		places[value] = offset
	}
	for offset, value := range held {
		places[value] = offset
	}
	for _, x := range h.unsure {
		if offset, ok := places[x.value]; ok {
			h.operations = append(h.operations, porcupine.Operation{ClientId: x.producer, Input: operation{value: x.value, offset: offset}, Call: c.nanos(x.call), Return: math.MaxInt64})
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
	switch porcupine.CheckOperationsTimeout(model, h.operations, 5*time.Second) {
	case porcupine.Illegal:
		c.violation("not linearizable: %d appends and reads of %s fit no order", len(h.operations), p)
	case porcupine.Unknown:
		c.violation("undecided: whether %d appends and reads of %s fit an order was not found out in time", len(h.operations), p)
	}
}
