package node

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"logbook/engine/commitlog"
	"logbook/engine/replica"
	"logbook/engine/topic"
	"logbook/engine/vfs"
)

// Partition names a partition of a topic.
type Partition = topic.Partition

// BrokerID names a broker.
type BrokerID = replica.BrokerID

// Options configure a node. ID, Dir, Send and Propose must be set.
type Options struct {
	ID  BrokerID
	Dir string // the broker's own
	// Send delivers a message to Node.Deliver of the node that m.To names, without waiting
	// for it. An error says that it surely will not arrive.
	Send func(p Partition, m replica.Message) error
	// Propose asks the controller for a change of the in-sync replicas, without waiting. It
	// is answered by Assign or Reject.
	Propose func(p Partition, a replica.Assignment)
	// Replica configures each replica; its ID and FirstSeq are the node's to set.
	Replica replica.Config
	// CatchUpRate is how many bytes a second the replicas copy that are not in sync, all together;
	// 0: as many as they can.
	CatchUpRate int64
	// Log configures each replica's log.
	Log commitlog.Options
	// Machine makes a replica's state machine; nil is replica.New.
	Machine func(cfg replica.Config, log replica.Log, highWatermark int64) replica.Machine
	// Go runs a replica's work; nil starts a goroutine. A simulator puts it in its queue.
	Go func(func())
	// Pump, if set, does what Go was given, on the goroutine that calls it: who waits for an
	// outcome calls it first.
	Pump func()
	// Wake, if set, is told that NextTick is earlier than it was. It must not use the node.
	Wake func()
	// Observe, if set, is told what happens. It must not use the node.
	Observe func(Event)
}

// Node is one broker's replicas. It is safe for concurrent use.
type Node struct {
	opt       Options
	fs        vfs.FS
	now       func() time.Time
	logger    *slog.Logger
	deadlines deadlines
	marks     *highWatermarkCheckpoint

	mu      sync.RWMutex
	drivers map[Partition]*replicaDriver
	closed  bool
	work    sync.WaitGroup
	saveAt  atomic.Int64 // when the high watermarks are due to be saved, in ns; 0: they are
	mendAt  atomic.Int64 // when logs that cannot be used are looked at again, in ns; 0: there are none
}

// Open opens a broker's directory. Its replicas are opened by OpenReplicas and Create.
func Open(opt Options) (*Node, error) {
	if opt.Log.FS == nil {
		opt.Log.FS = vfs.OS
	}
	if opt.Log.Now == nil {
		opt.Log.Now = time.Now
	}
	if opt.Log.Logger == nil {
		opt.Log.Logger = slog.New(slog.DiscardHandler)
	}
	if opt.ID <= replica.None {
		return nil, fmt.Errorf("node: a broker cannot have the id %d; ids are positive", opt.ID)
	}
	if opt.Send == nil || opt.Propose == nil {
		return nil, errors.New("node: Send and Propose must be set")
	}
	if err := opt.Log.FS.MkdirAll(filepath.Join(opt.Dir, TopicsDir)); err != nil {
		return nil, fmt.Errorf("node: %w", err)
	}
	opt.Replica.ID = opt.ID
	if opt.CatchUpRate > 0 {
		opt.Replica.Pace = (&pace{rate: opt.CatchUpRate}).after
	}
	if opt.Machine == nil {
		opt.Machine = func(cfg replica.Config, log replica.Log, hw int64) replica.Machine { return replica.New(cfg, log, hw) }
	}
	n := &Node{opt: opt, fs: opt.Log.FS, now: opt.Log.Now, logger: opt.Log.Logger, drivers: map[Partition]*replicaDriver{}}
	n.deadlines.wake = opt.Wake
	n.marks = loadCheckpoint(n.fs, opt.Dir, func(err error) {
		n.logger.Warn("the hint of high watermarks cannot be read: they are found out again", "broker", opt.ID, "error", err)
	})
	return n, nil
}

// TopicsDir is the directory, below Options.Dir, in which the partitions are.
const TopicsDir = "topics"

// ID is the broker's id.
func (n *Node) ID() BrokerID { return n.opt.ID }

// Dir returns where a partition's log is.
func (n *Node) Dir(p Partition) string {
	return topic.PartitionDir(filepath.Join(n.opt.Dir, TopicsDir, p.Topic), p.ID)
}

// openAtOnce is how many logs are opened at the same time: recovery reads.
const openAtOnce = 8

// OpenReplicas opens replicas that exist. One whose log is missing or damaged is opened all
// the same: it answers nothing, and Status tells why.
func (n *Node) OpenReplicas(all ...Partition) { n.each(all, func(p Partition) { n.driver(p, false) }) }

// each does something for many partitions, a few at the same time, unless the work of the
// node is somebody else's to run.
func (n *Node) each(all []Partition, f func(Partition)) {
	if n.opt.Go != nil || len(all) < 2 {
		for _, p := range all {
			f(p)
		}
		return
	}
	var group sync.WaitGroup
	slots := make(chan struct{}, openAtOnce)
	for _, p := range all {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			f(p)
		})
	}
	group.Wait()
}

// Create makes replicas that must not hold records yet: of a topic that is about to be.
func (n *Node) Create(all ...Partition) error {
	errs := make([]error, len(all))
	at := map[Partition]int{}
	for i, p := range all {
		at[p] = i
	}
	n.each(all, func(p Partition) {
		d := n.driver(p, true)
		d.mu.Lock()
		defer d.mu.Unlock()
		err := d.broken
		if err == nil && (d.log.EndOffset() > 0 || d.log.StartOffset() > 0) {
			err = fmt.Errorf("node: %s holds records, and there is no such topic; move the directory away", d.log.Dir())
		}
		errs[at[p]] = err
	})
	return errors.Join(errs...)
}

// driver returns a replica's driver, and opens its log first if need be.
func (n *Node) driver(p Partition, create bool) *replicaDriver {
	n.mu.Lock()
	d := n.drivers[p]
	if d == nil {
		d = n.newDriver(p)
		n.drivers[p] = d
	}
	closed := n.closed
	n.mu.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.log != nil:
	case closed:
		d.broken = ErrClosed
	case d.broken == ErrOpening || create:
		d.open(create)
	}
	return d
}

func (n *Node) newDriver(p Partition) *replicaDriver {
	return &replicaDriver{node: n, partition: p, broken: ErrOpening, waiting: map[uint64]func(error){}, quit: make(chan struct{}), due: noDeadline}
}

// lookup returns the driver of a replica that this node has.
func (n *Node) lookup(p Partition) (*replicaDriver, error) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	if n.closed {
		return nil, ErrClosed
	}
	d := n.drivers[p]
	if d == nil {
		return nil, &NoReplicaError{Partition: p, Broker: n.opt.ID}
	}
	return d, nil
}

// Has reports whether the node has a replica of a partition, in whatever state.
func (n *Node) Has(p Partition) bool {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.drivers[p] != nil
}

// Partitions returns the partitions of which the node has a replica, in order.
func (n *Node) Partitions() []Partition {
	n.mu.RLock()
	defer n.mu.RUnlock()
	var all []Partition
	for p := range n.drivers {
		all = append(all, p)
	}
	slices.SortFunc(all, Partition.Compare)
	return all
}

// Assign hands over a decision of the controller.
func (n *Node) Assign(p Partition, a replica.Assignment) {
	for {
		d, err := n.lookup(p)
		if err != nil {
			return
		}
		d.assigned.Store(&a)
		d.post(func() []replica.Effect { return d.assign(a) })
		if now, err := n.lookup(p); err != nil || now == d {
			return
		}
		// The log was opened again meanwhile, and the decision went to the old driver.
	}
}

// Reject tells a leader that its proposal was not taken; see replica.Replica.Rejected.
func (n *Node) Reject(p Partition, version int64, why string, unsure bool) {
	if d, err := n.lookup(p); err == nil {
		d.tell(func(r replica.Machine) []replica.Effect { return r.Rejected(n.now(), version, why, unsure) })
	}
}

// Deliver takes a message from another node.
func (n *Node) Deliver(p Partition, m replica.Message) {
	d, err := n.lookup(p)
	if err != nil {
		return
	}
	d.post(func() []replica.Effect {
		d.observe(Received, Event{Message: m})
		return d.step(func(r replica.Machine) []replica.Effect { return r.Step(n.now(), m) })
	})
}

// Unreachable tells every replica that contact with a broker was lost.
func (n *Node) Unreachable(peer BrokerID, why string) {
	for _, d := range n.all() {
		if a := d.assigned.Load(); a != nil && slices.Contains(a.Replicas, peer) {
			d.unreachable(peer, why)
		}
	}
}

// Gone tells every replica that a broker has said that it stops.
func (n *Node) Gone(peer BrokerID) {
	for _, d := range n.all() {
		if a := d.assigned.Load(); a != nil && slices.Contains(a.Replicas, peer) {
			d.tell(func(r replica.Machine) []replica.Effect { return r.Gone(n.now(), peer) })
		}
	}
}

// GiveUpWrites answers all who wait for writes that this node leads, with replica.ErrLeadershipLost:
// whoever let it lead has not been heard of, and another may lead by now.
func (n *Node) GiveUpWrites() {
	for _, d := range n.all() {
		d.tell(func(r replica.Machine) []replica.Effect { return r.GiveUpWrites(n.now()) })
	}
}

// Tick lets time pass for every replica whose time has come.
func (n *Node) Tick() {
	now := n.now()
	for _, d := range n.deadlines.pop(now) {
		d.tell(func(r replica.Machine) []replica.Effect {
			if next := r.Next(); next.IsZero() || now.Before(next) {
				return nil // it was put off meanwhile
			}
			return r.Tick(now)
		})
	}
	if due(&n.saveAt, now) {
		n.run(func() {
			if err := n.saveMarks(n.all()); err != nil {
				n.logger.Warn("cannot save the hint of high watermarks", "broker", n.opt.ID, "error", err)
			}
		})
	}
	if due(&n.mendAt, now) {
		n.run(n.mend)
	}
}

// due reports whether a time, in ns, has come, and forgets it if so.
func due(at *atomic.Int64, now time.Time) bool {
	t := at.Load()
	return t != 0 && now.UnixNano() >= t && at.CompareAndSwap(t, 0)
}

// NextTick is when Tick is due; zero if nothing waits for time to pass.
func (n *Node) NextTick() time.Time {
	next := n.deadlines.next()
	for _, at := range []int64{n.saveAt.Load(), n.mendAt.Load()} {
		if at != 0 && (next.IsZero() || next.UnixNano() > at) {
			next = time.Unix(0, at)
		}
	}
	return next
}

// all returns the drivers, in order: what is done to all of them is the same every time.
func (n *Node) all() []*replicaDriver {
	n.mu.RLock()
	defer n.mu.RUnlock()
	drivers := make([]*replicaDriver, 0, len(n.drivers))
	for _, d := range n.drivers {
		drivers = append(drivers, d)
	}
	slices.SortFunc(drivers, func(a, b *replicaDriver) int { return a.partition.Compare(b.partition) })
	return drivers
}

// Flush waits until a replica has done what it was given so far.
func (n *Node) Flush(p Partition) {
	if d, err := n.lookup(p); err == nil {
		d.flush()
	}
}

// Settle calls done when a replica has done what it was given so far. done must not wait.
func (n *Node) Settle(p Partition, done func()) {
	d, err := n.lookup(p)
	if err != nil {
		done()
		return
	}
	d.mu.Lock()
	idle := d.machine == nil || d.stopped != nil
	d.mu.Unlock()
	if idle {
		done()
		return
	}
	d.post(func() []replica.Effect { done(); return nil })
}

// pump does what is to be done before waiting for it.
func (n *Node) pump() {
	if n.opt.Pump != nil {
		n.opt.Pump()
	}
}

func (n *Node) observe(e Event) {
	if n.opt.Observe != nil {
		e.Broker = n.opt.ID
		n.opt.Observe(e)
	}
}

// run starts a replica's work.
func (n *Node) run(f func()) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	switch {
	case n.closed:
	case n.opt.Go != nil:
		n.opt.Go(f)
	default:
		n.work.Go(f)
	}
}

// Close ends all work and closes the logs. Writes and commands that wait get ErrClosed.
func (n *Node) Close() error {
	drivers := n.all()
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return ErrClosed
	}
	n.closed = true
	n.mu.Unlock()
	for _, d := range drivers {
		d.stop(ErrClosed)
	}
	n.work.Wait()
	problems := []error{n.saveMarks(drivers)}
	var mu sync.Mutex
	all := make([]Partition, len(drivers))
	of := map[Partition]*replicaDriver{}
	for i, d := range drivers {
		all[i], of[d.partition] = d.partition, d
	}
	n.each(all, func(p Partition) {
		if err := of[p].close(); err != nil {
			mu.Lock()
			defer mu.Unlock()
			problems = append(problems, err)
		}
	})
	return errors.Join(problems...)
}
