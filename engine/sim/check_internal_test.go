package sim

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"logbook/engine/topic"
)

// Each checker is shown what it is there for. One that is switched off says nothing, and its
// test fails. What needs whole brokers is in the counterexamples: records that were lost, logs
// that are damaged, readers that are taken back.
func TestCheckersSeeIt(t *testing.T) {
	p := parts[0]
	for name, c := range map[string]struct {
		want string
		do   func(w *world, c *checks)
	}{
		"two leaders": {"two leaders in one epoch: brokers 1 and 2 in 5", func(_ *world, c *checks) {
			c.leads(p, 1, 5)
			c.leads(p, 1, 5)
			c.leads(p, 2, 5)
		}},
		"an offset for two": {"offset given twice: 0 of", func(_ *world, c *checks) {
			c.acknowledge(&write{value: "a", p: p}, 0)
			c.acknowledge(&write{value: "b", p: p}, 0)
		}},
		"out of nothing": {"never written: broker 1 serves", func(w *world, c *checks) {
			c.read(0, 1, p, 0, "ghost", w.now)
		}},
		"of another partition": {"never written: broker 1 serves", func(w *world, c *checks) {
			c.called(&write{value: "a", p: parts[1]})
			c.read(0, 1, p, 0, "a", w.now)
		}},
		"not what it was": {"read differently: offset 0 of", func(w *world, c *checks) {
			c.called(&write{value: "a", p: p})
			c.called(&write{value: "b", p: p})
			c.read(0, 1, p, 0, "a", w.now)
			c.read(1, 2, p, 0, "b", w.now)
		}},
		"in two places": {"read twice: a at 0 and at 1", func(w *world, c *checks) {
			c.called(&write{value: "a", p: p})
			c.read(0, 1, p, 0, "a", w.now)
			c.read(0, 1, p, 1, "a", w.now)
		}},
		"two owners": {"two owners: m1 and m2", func(_ *world, c *checks) {
			c.owns(3, p, "m1")
			c.owns(4, p, "m2")
			c.owns(3, p, "m2")
		}},
		"a commit forgotten": {"commit lost: ", func(_ *world, c *checks) {
			c.commits(1, 1, map[topic.Partition]int64{p: 5})
			c.resumes(p, 6)
			c.resumes(p, 4)
		}},
		"a zombie's commit": {"stale commit: one of generation 1", func(_ *world, c *checks) {
			c.commits(1, 2, map[topic.Partition]int64{p: 5})
		}},
		"a commit that goes back": {"commit went back: ", func(_ *world, c *checks) {
			c.commits(1, 1, map[topic.Partition]int64{p: 5})
			c.commits(1, 1, map[topic.Partition]int64{p: 4})
		}},
		"a group that stands still": {"group stuck: ", func(w *world, c *checks) {
			c.latestMark = w.now
			for _, h := range c.parts {
				h.latest = w.now.Add(time.Minute)
			}
			w.now = w.now.Add(time.Minute)
			c.final()
		}},
		"a partition that stands still": {"stuck: the last write to", func(w *world, c *checks) {
			c.latestMark = w.now.Add(time.Minute)
			w.now = w.now.Add(time.Minute)
			for q, h := range c.parts {
				if h.latest = w.now; q == p {
					h.latest = w.zero
				}
			}
			c.final()
		}},
		"no order fits": {"not linearizable: ", func(w *world, c *checks) {
			c.called(&write{value: "a", p: p})
			c.called(&write{value: "b", p: p})
			w.now = w.now.Add(time.Second)
			c.acknowledge(&write{value: "b", p: p, call: w.zero}, 1) // and 0 is only written after that
			began := w.now.Add(time.Second)
			w.now = began.Add(time.Second)
			c.acknowledge(&write{value: "a", p: p, call: began}, 0)
			c.linearize(p, c.parts[p], map[int64]string{0: "a", 1: "b"})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{zero: time.Unix(0, 0), now: time.Unix(0, 0)}
			w.draw = newDrawing(w)
			checks := newChecks(w)
			c.do(w, checks)
			require.NotEmpty(t, checks.found, "the checker says nothing")
			assert.Contains(t, checks.found[0], c.want)
		})
	}
}

// And what is right is no violation.
func TestCheckersLetPass(t *testing.T) {
	p := parts[0]
	w := &world{zero: time.Unix(0, 0), now: time.Unix(0, 0)}
	w.draw = newDrawing(w)
	c := newChecks(w)
	for i, value := range []string{"a", "b", "c"} {
		x := &write{value: value, p: p, call: w.now}
		c.called(x)
		w.now = w.now.Add(time.Second)
		c.acknowledge(x, int64(i))
		c.read(0, 1, p, int64(i), value, w.now)
	}
	c.leads(p, 1, 1)
	c.leads(p, 2, 2)
	c.told(2)
	c.owns(2, p, "m")
	c.commits(2, 2, map[topic.Partition]int64{p: 3})
	c.resumes(p, 3)
	c.linearize(p, c.parts[p], map[int64]string{0: "a", 1: "b", 2: "c"})
	assert.Empty(t, c.found)
}
