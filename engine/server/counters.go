package server

import (
	"maps"
	"sync"
	"time"

	"logbook/engine/wire"
)

// Counters count what a broker does, since it was opened.
type Counters struct {
	Connections  int64 // open now
	Refused      int64 // because of the limit, or a shutdown
	BadFrames    int64 // connections ended because of what they sent
	PeerMessages int64 // of other brokers
	Requests     map[string]int64
	Errors       map[string]int64 // error replies by code
	RecordsIn    map[string]int64 // acknowledged, by topic
	RecordsOut   map[string]int64 // fetched, by topic
	// Produce counts how long appends took to be acknowledged: Produce[i] took at most
	// ProduceBuckets[i], and longer than the bucket before. The last count is of longer ones.
	Produce    []int64
	ProduceSum time.Duration
}

// ProduceBuckets are the bounds that Counters.Produce is counted by.
var ProduceBuckets = func() []time.Duration {
	var out []time.Duration
	for d := 100 * time.Microsecond; d < 4*time.Second; d *= 2 {
		out = append(out, d)
	}
	return out
}()

// counters are Counters being counted.
type counters struct {
	mu sync.Mutex
	c  Counters
}

func newCounters() *counters {
	return &counters{c: Counters{
		Requests: map[string]int64{}, Errors: map[string]int64{}, RecordsIn: map[string]int64{}, RecordsOut: map[string]int64{},
		Produce: make([]int64, len(ProduceBuckets)+1),
	}}
}

// Counters returns what was counted so far.
func (b *Server) Counters() Counters {
	b.counters.mu.Lock()
	defer b.counters.mu.Unlock()
	c := b.counters.c
	c.Requests, c.Errors, c.RecordsIn, c.RecordsOut = maps.Clone(c.Requests), maps.Clone(c.Errors), maps.Clone(c.RecordsIn), maps.Clone(c.RecordsOut)
	c.Produce = append([]int64(nil), c.Produce...)
	return c
}

func (c *counters) count(f func(*Counters)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(&c.c)
}

func (c *counters) produced(topic string, n int, took time.Duration) {
	i := 0
	for i < len(ProduceBuckets) && took > ProduceBuckets[i] {
		i++
	}
	c.count(func(c *Counters) {
		c.RecordsIn[topic] += int64(n)
		c.Produce[i]++
		c.ProduceSum += took
	})
}

func (c *counters) fetched(topic string, n int) {
	c.count(func(c *Counters) { c.RecordsOut[topic] += int64(n) })
}

// peer counts messages of other brokers.
func (c *counters) peer(n int) {
	c.count(func(c *Counters) { c.PeerMessages += int64(n) })
}

// request counts a request. What strangers make up is one kind.
func (c *counters) request(kind string) {
	if !kinds[kind] {
		kind = "unknown"
	}
	c.count(func(c *Counters) { c.Requests[kind]++ })
}

var kinds = func() map[string]bool {
	all := map[string]bool{}
	for _, m := range wire.Messages {
		all[m.Type] = true
	}
	return all
}()
