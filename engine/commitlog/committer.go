package commitlog

import (
	"runtime"
	"sync"
	"time"
)

// Committer makes appends durable, many at a time. It works in rounds: a round takes
// what is queued in each of its logs, writes it, syncs, and answers all of it. Between
// rounds it waits for nobody, but lets the writers that it just answered come back with
// their next append, so that one sync serves all of them and not every second one.
//
// The round runs on the goroutine of a caller that finds the committer idle: a single
// writer pays for no hand-over. When others queued meanwhile, a goroutine takes over
// and runs rounds until the queue is empty.
//
// Logs given the same Committer share its rounds: their files are written one after
// another, and made durable together where the file system can (see vfs.Flusher).
type Committer struct {
	// patience is how long a round waits for a log's sync before it goes on without it; 0:
	// for as long as it takes.
	patience time.Duration

	flush flush

	mu       sync.Mutex
	running  bool
	dirty    []*Log // logs with something queued
	queued   int    // appends in them
	answered int    // appends that the last round served
}

// NewCommitter returns a committer for the logs of one engine.
func NewCommitter() *Committer { return &Committer{} }

// NewPatientCommitter returns a committer for the logs of one disk. A log whose sync takes
// longer than patience is left behind, and goes on when its sync returns: the others do
// not wait for it, nor for a write of its own that comes later.
func NewPatientCommitter(patience time.Duration) *Committer { return &Committer{patience: patience} }

// enlist has the next round take what is queued in l. Somebody must call commit: it is what
// begins a round where none is under way.
func (c *Committer) enlist(l *Log) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queued++
	if !l.enlisted {
		l.enlisted = true
		c.dirty = append(c.dirty, l)
	}
}

// commit makes sure that what is queued in l, and enlisted, gets committed, and waits until
// co is.
func (c *Committer) commit(co *cohort) error {
	c.mu.Lock()
	if len(c.dirty) == 0 && !c.running { // a round has taken it
		c.mu.Unlock()
		<-co.done
		return co.err
	}
	if c.running {
		c.mu.Unlock()
		<-co.done
		return co.err
	}
	c.running = true
	c.mu.Unlock()
	c.round()
	c.mu.Lock()
	if len(c.dirty) > 0 {
		go c.run()
	} else {
		c.running = false
	}
	c.mu.Unlock()
	<-co.done // the round above has closed it
	return co.err
}

func (c *Committer) run() {
	for {
		c.round()
		c.mu.Lock()
		if len(c.dirty) == 0 {
			c.running = false
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
	}
}

// yields is how many times in a row gather yields without anybody arriving.
const yields = 16

// gather yields the processor until as many appends are queued as the last round
// answered, or no more arrive. It never sleeps: with one writer it returns at once.
func (c *Committer) gather() {
	idle, last := 0, 0
	for {
		c.mu.Lock()
		queued, answered := c.queued, c.answered
		c.mu.Unlock()
		if queued >= answered {
			return
		}
		if queued > last {
			idle, last = 0, queued
		} else if idle++; idle > yields {
			return
		}
		runtime.Gosched()
	}
}

func (c *Committer) round() {
	c.gather()
	c.mu.Lock()
	logs := c.dirty
	c.dirty, c.answered, c.queued = nil, c.queued, 0
	for _, l := range logs {
		l.enlisted = false
	}
	c.mu.Unlock()
	// One after another the files are written, then made durable together, or synced at the
	// same time. A log that is busy, being compacted, say, is served when it is free; the
	// others do not wait for it.
	if len(logs) == 1 && c.patience == 0 {
		l := logs[0]
		if l.round.TryLock() {
			l.endRound(l.beginRound(), false)
		} else {
			go l.commitQueued()
		}
		return
	}
	together := c.flush.prepare(logs)
	var begun []begunRound
	for _, l := range logs {
		if !l.round.TryLock() {
			go l.commitQueued()
			continue
		}
		begun = append(begun, begunRound{log: l, cohort: l.beginRound()})
	}
	if c.patience == 0 {
		c.flush.end(begun, together)
		return
	}
	all := make(chan struct{})
	go func() { c.flush.end(begun, together); close(all) }()
	enough := time.NewTimer(c.patience)
	defer enough.Stop()
	select {
	case <-all:
	case <-enough.C: // the rest hold their logs' round locks: nobody is kept waiting but their own writers
	}
}
