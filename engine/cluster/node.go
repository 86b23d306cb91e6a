package cluster

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"logbook/engine/commitlog"
	"logbook/engine/controller"
	"logbook/engine/replica"
	"logbook/engine/topic"
	"logbook/engine/vfs"
)

// Partition names a partition of a topic.
type Partition = controller.Partition

// BrokerID names a broker.
type BrokerID = replica.BrokerID

// Transport carries messages between nodes. It must not wait for the other node.
type Transport interface {
	// Send delivers a message to Node.Deliver of the node that m.To names. An error says
	// that it surely will not arrive.
	Send(p Partition, m replica.Message) error
}

// NodeOptions configure a node. ID, Dir, Transport and Controller must be set.
type NodeOptions struct {
	ID         BrokerID
	Dir        string // the broker's own
	Transport  Transport
	Controller controller.Controller
	// Replica configures each replica; its ID and FirstSeq are the node's to set.
	Replica replica.Config
	// Log configures each replica's log. Without a committer each has its own, so that a
	// sync that hangs holds up one partition only.
	Log commitlog.Options
	// Machine makes a replica's state machine; nil is replica.New.
	Machine func(cfg replica.Config, log replica.Log, highWatermark int64) replica.Machine
	// Propose, if set, takes the place of Controller.Propose: it calls done, once, when the
	// answer is there, which may be later.
	Propose func(p Partition, a replica.Assignment, done func(error))
	// Go runs a replica's work; nil starts a goroutine. A simulator puts it in its queue.
	Go func(func())
	// Pump, if set, does what Go was given, on the goroutine that calls it: who waits for an
	// outcome calls it first.
	Pump func()
	// Observe, if set, is told what happens. It must not use the node.
	Observe func(Event)
	// TickEvery is how often time is looked at; 0: Tick is called by the owner, or never.
	TickEvery time.Duration
}

// Node is one broker's replicas. It is safe for concurrent use.
type Node struct {
	opt    NodeOptions
	fs     vfs.FS
	now    func() time.Time
	logger *slog.Logger

	marksMu sync.Mutex
	marks   map[string]int64 // high watermarks of the last life, lowered where a log was cut

	mu     sync.RWMutex
	hosts  map[Partition]*host
	closed bool
	work   sync.WaitGroup
	stop   chan struct{}
}

// OpenNode opens a broker's directory. Its replicas are opened by Open and Create.
func OpenNode(opt NodeOptions) (*Node, error) {
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
		return nil, fmt.Errorf("cluster: a broker cannot have the id %d; ids are positive", opt.ID)
	}
	if opt.Transport == nil || opt.Controller == nil {
		return nil, errors.New("cluster: a node needs a Transport and a Controller")
	}
	if err := opt.Log.FS.MkdirAll(filepath.Join(opt.Dir, topicsDir)); err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	opt.Replica.ID = opt.ID
	if opt.Machine == nil {
		opt.Machine = func(cfg replica.Config, log replica.Log, hw int64) replica.Machine { return replica.New(cfg, log, hw) }
	}
	n := &Node{opt: opt, fs: opt.Log.FS, now: opt.Log.Now, logger: opt.Log.Logger, hosts: map[Partition]*host{}, stop: make(chan struct{})}
	n.marks = n.loadMarks()
	if opt.TickEvery > 0 {
		n.work.Go(n.tickAlways)
	}
	return n, nil
}

const topicsDir = "topics"

// ID is the broker's id.
func (n *Node) ID() BrokerID { return n.opt.ID }

// Dir returns where a partition's log is.
func (n *Node) Dir(p Partition) string {
	return topic.PartitionDir(filepath.Join(n.opt.Dir, topicsDir, p.Topic), p.ID)
}

// Open opens a replica that exists. One whose log is missing or damaged is opened all the
// same: it answers nothing, and Log and Status tell why.
func (n *Node) Open(p Partition) { n.host(p, false) }

// Create makes a replica, or opens one that is there.
func (n *Node) Create(p Partition) error {
	h := n.host(p, true)
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.broken
}

// host returns a replica's host, and opens its log first if need be.
func (n *Node) host(p Partition, create bool) *host {
	n.mu.Lock()
	defer n.mu.Unlock()
	h := n.hosts[p]
	if h != nil && (h.log != nil || !create) {
		return h
	}
	if h == nil {
		h = &host{node: n, partition: p, waiting: map[uint64]func(error){}, quit: make(chan struct{})}
		n.hosts[p] = h
	}
	if n.closed {
		h.broken = ErrClosed
		return h
	}
	h.open(create)
	return h
}

// lookup returns the host of a replica that this node has.
func (n *Node) lookup(p Partition) (*host, error) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	if n.closed {
		return nil, ErrClosed
	}
	h := n.hosts[p]
	if h == nil {
		return nil, &NoReplicaError{Partition: p, Broker: n.opt.ID}
	}
	return h, nil
}

// Partitions returns the partitions of which the node has a replica, in order.
func (n *Node) Partitions() []Partition {
	n.mu.RLock()
	defer n.mu.RUnlock()
	var all []Partition
	for p := range n.hosts {
		all = append(all, p)
	}
	slices.SortFunc(all, Partition.Compare)
	return all
}

// Assign hands over a decision of the controller.
func (n *Node) Assign(p Partition, a replica.Assignment) {
	if h, err := n.lookup(p); err == nil {
		h.post(func() []replica.Effect { return h.assign(a) })
	}
}

// Deliver takes a message from another node.
func (n *Node) Deliver(p Partition, m replica.Message) {
	h, err := n.lookup(p)
	if err != nil {
		return
	}
	h.post(func() []replica.Effect {
		h.observe(Received, Event{Message: m})
		return h.step(func(r replica.Machine) []replica.Effect { return r.Step(n.now(), m) })
	})
}

// Unreachable tells every replica that contact with a broker was lost.
func (n *Node) Unreachable(peer BrokerID, why string) {
	for _, h := range n.all() {
		h.unreachable(peer, why)
	}
}

// Tick lets time pass for every replica whose time has come.
func (n *Node) Tick() {
	for _, h := range n.all() {
		h.tick()
	}
}

// NextTick is when Tick is due; zero if nothing waits for time to pass.
func (n *Node) NextTick() time.Time {
	var next time.Time
	for _, h := range n.all() {
		if t := h.next(); !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	return next
}

func (n *Node) tickAlways() {
	t := time.NewTicker(n.opt.TickEvery)
	defer t.Stop()
	hint := time.NewTicker(hintEvery)
	defer hint.Stop()
	for {
		select {
		case <-n.stop:
			return
		case <-t.C:
			n.Tick()
		case <-hint.C:
			if err := n.saveMarks(n.all()); err != nil {
				n.logger.Warn("cannot save the hint of high watermarks", "broker", n.opt.ID, "error", err)
			}
		}
	}
}

// hintEvery is how often the high watermarks are saved.
const hintEvery = 5 * time.Second

// all returns the hosts, in order: what is done to all of them is the same every time.
func (n *Node) all() []*host {
	var hosts []*host
	for _, p := range n.Partitions() {
		if h, err := n.lookup(p); err == nil {
			hosts = append(hosts, h)
		}
	}
	return hosts
}

// Flush waits until a replica has done what it was given so far.
func (n *Node) Flush(p Partition) {
	if h, err := n.lookup(p); err == nil {
		h.flush()
	}
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
	hosts := n.all()
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return ErrClosed
	}
	n.closed = true
	n.mu.Unlock()
	close(n.stop)
	for _, h := range hosts {
		h.stop()
	}
	n.work.Wait()
	problems := []error{n.saveMarks(hosts)}
	for _, h := range hosts {
		problems = append(problems, h.close())
	}
	return errors.Join(problems...)
}
