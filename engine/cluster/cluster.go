package cluster

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"path/filepath"
	"sync"
	"time"

	"logbook/engine/commitlog"
	"logbook/engine/controller"
	"logbook/engine/metadata"
	"logbook/engine/node"
	"logbook/engine/record"
	"logbook/engine/replica"
	"logbook/engine/topic"
)

// Partition names a partition of a topic.
type Partition = topic.Partition

// BrokerID names a broker.
type BrokerID = replica.BrokerID

// Options configure a cluster. The zero value is PyStream's: every in-sync replica holds a
// record before it is acknowledged, and nothing happens that was not asked for.
type Options struct {
	// Acks is what Append and Send wait for.
	Acks replica.Acks
	// MinInSync is how many in-sync replicas replica.Quorum demands; 0 is 1.
	MinInSync int
	// LagTimeout, if not 0, makes replicas look after themselves as Kafka's do: they catch
	// up and cut diverging tails unasked, are dropped from the in-sync ones when they lag
	// for so long, and become in sync again when they have caught up.
	LagTimeout time.Duration
	// Router for topics made without one; nil is topic.SHA256, PyStream's.
	Partitioner topic.Partitioner
	// Choose picks leaders; nil is controller.Longest.
	Choose controller.Choice
	// Sequential makes everything happen on the goroutine that calls, in one order, so that
	// the same calls lead to the same events. The cluster is for one goroutine then.
	Sequential bool
	// Observe, if set, is told what happens. It must not use the cluster.
	Observe func(node.Event)
	// Log configures the logs.
	Log commitlog.Options
}

// Cluster is several brokers in one process, each with a directory of its own. It is safe
// for concurrent use.
type Cluster struct {
	dir        string
	opt        Options
	controller *controller.Ledger
	network    *network
	queue      []func() // Sequential: what is to be done

	mu     sync.Mutex // starting and stopping, one at a time
	closed bool
}

// Open reads the cluster's decisions from a directory, or begins a new cluster. Its
// brokers are down until Start.
//
// Errors: *metadata.DamageError, *commitlog.LockedError.
func Open(dir string, opt Options) (*Cluster, error) {
	if opt.Partitioner == nil {
		opt.Partitioner = topic.SHA256
	}
	l, err := controller.OpenLedger(filepath.Join(dir, metadata.LogName), opt.Log, opt.Choose)
	if err != nil {
		return nil, err
	}
	c := &Cluster{dir: dir, opt: opt, controller: l, network: &network{nodes: map[BrokerID]*node.Node{}, running: map[BrokerID]func(){}}}
	l.Watch(c.assigned)
	return c, nil
}

// assigned passes a decision on to the brokers that it concerns. Followers hear of it
// first, so that they are ready when the leader calls.
func (c *Cluster) assigned(p Partition, a replica.Assignment) {
	for _, id := range a.Replicas {
		if n := c.network.node(id); n != nil && id != a.Leader {
			n.Assign(p, a)
		}
	}
	if n := c.network.node(a.Leader); n != nil {
		n.Assign(p, a)
	}
}

// Start starts a broker: its replicas are opened and recovered. The partitions that it
// leads begin a new leader epoch. Damage to a replica does not keep the others from work:
// Status and the calls that need it tell.
func (c *Cluster) Start(id BrokerID) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	if c.network.node(id) != nil {
		return fmt.Errorf("cluster: broker %d is running already; stop it first", id)
	}
	cfg := replica.Config{Explicit: c.opt.LagTimeout == 0, MinInSync: c.opt.MinInSync, LagTimeout: c.opt.LagTimeout}
	opt := node.Options{ID: id, Dir: c.brokerDir(id), Send: c.network.Send, Log: c.opt.Log, Observe: c.opt.Observe}
	var n *node.Node
	opt.Propose = func(p Partition, a replica.Assignment) {
		c.run(func() { // beside the replica's work: the controller writes to its disk
			if err := c.controller.Propose(p, a); err != nil {
				_, unsure := errors.AsType[*metadata.UnsettledError](err)
				n.Reject(p, a.Version, err.Error(), unsure)
			}
		})
	}
	wake := make(chan struct{}, 1)
	if c.opt.Sequential {
		opt.Go = func(f func()) { c.queue = append(c.queue, f) }
		opt.Pump = c.pump
	}
	if !cfg.Explicit {
		cfg.Heartbeat, cfg.Retry = c.opt.LagTimeout/4, c.opt.LagTimeout/10
		opt.Wake = func() {
			select {
			case wake <- struct{}{}:
			default:
			}
		}
	}
	opt.Replica = cfg
	n, err := node.Open(opt)
	if err != nil {
		return err
	}
	mine := c.controller.Image().ReplicasOn(id)
	n.OpenReplicas(mine...)
	stop := func() {}
	if opt.Wake != nil {
		stop = tickAlways(n, wake)
	}
	c.network.join(n, stop)
	c.observe(id, node.Up)
	if err := c.controller.Register(id); err != nil {
		c.network.leave(id)
		return errors.Join(err, n.Close())
	}
	for _, p := range mine {
		if a, ok := c.controller.Image().Assignment(p); ok {
			n.Assign(p, a)
			c.network.settle(p, a)
		}
	}
	return nil
}

// run does something beside everything else, or, in a sequential cluster, in its turn.
func (c *Cluster) run(f func()) {
	if c.opt.Sequential {
		c.queue = append(c.queue, f)
		return
	}
	go f()
}

func (c *Cluster) observe(id BrokerID, kind node.EventKind) {
	if c.opt.Observe != nil {
		c.opt.Observe(node.Event{Kind: kind, Broker: id})
	}
}

// tickAlways lets time pass for a node until the result is called.
func tickAlways(n *node.Node, wake <-chan struct{}) (stop func()) {
	quit := make(chan struct{})
	var ended sync.WaitGroup
	ended.Go(func() {
		for {
			timer := time.NewTimer(time.Hour)
			if next := n.NextTick(); !next.IsZero() {
				timer.Reset(max(0, time.Until(next)))
			}
			select {
			case <-quit:
				timer.Stop()
				return
			case <-wake:
			case <-timer.C:
			}
			timer.Stop()
			n.Tick()
		}
	})
	return func() { close(quit); ended.Wait() }
}

// pump does what is to be done, and what that leads to.
func (c *Cluster) pump() {
	for len(c.queue) > 0 {
		f := c.queue[0]
		c.queue = c.queue[1:]
		f()
	}
}

func (c *Cluster) brokerDir(id BrokerID) string {
	return filepath.Join(c.dir, fmt.Sprintf("broker-%06d", id))
}

// Stop stops a broker. To the others it has failed: nothing is promoted in its place.
func (c *Cluster) Stop(id BrokerID) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.network.leave(id)
	if n == nil {
		return &BrokerDownError{id}
	}
	err := n.Close()
	c.observe(id, node.Down)
	for _, p := range c.controller.Image().ReplicasOn(id) {
		if a, ok := c.controller.Image().Assignment(p); ok {
			c.network.settle(p, a)
		}
	}
	return err
}

// Close stops every broker.
func (c *Cluster) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	c.closed = true
	var problems []error
	for _, n := range c.network.all() {
		c.network.leave(n.ID())
		problems = append(problems, n.Close())
	}
	return errors.Join(append(problems, c.controller.Close())...)
}

// CreateTopic makes a topic, its replicas placed over the brokers as controller.Place
// does. All brokers must run.
//
// Errors: *topic.NameError, *topic.ExistsError, *controller.BrokerError, *BrokerDownError.
func (c *Cluster) CreateTopic(name string, partitions, replication int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	id, err := topic.NewID(rand.Reader)
	if err != nil {
		return err
	}
	spec := controller.TopicSpec{Name: name, ID: id, Partitions: partitions, Replication: replication, Partitioner: c.opt.Partitioner.Name()}
	image := c.controller.Image()
	if err := controller.CheckTopic(image, spec); err != nil {
		return err
	}
	placed, err := controller.Place(image.Brokers(), partitions, replication)
	if err != nil {
		return err
	}
	// The replicas are made first: until the topic is recorded they mean nothing.
	for i, a := range placed {
		for _, id := range a.Replicas {
			n, err := c.Node(id)
			if err == nil {
				err = n.Create(Partition{Topic: name, ID: i})
			}
			if err != nil {
				return err
			}
		}
	}
	if err := c.controller.CreateTopic(spec); err != nil {
		return err
	}
	for i, a := range placed {
		c.network.settle(Partition{Topic: name, ID: i}, a)
	}
	return nil
}

// Appended says where a record landed.
type Appended struct {
	Partition Partition
	Leader    BrokerID
	Offset    int64
	Timestamp time.Time
}

// Append appends records to a partition, through its leader, and returns when
// Options.Acks is satisfied. After an error the records may be in the leader's log.
//
// Errors: *controller.UnknownPartitionError, *BrokerDownError (the leader: fail over), and
// those of node.Node.Append.
func (c *Cluster) Append(ctx context.Context, p Partition, rs ...record.Record) (Appended, error) {
	n, err := c.leader(p)
	if err != nil {
		return Appended{}, err
	}
	now := time.Now
	if c.opt.Log.Now != nil {
		now = c.opt.Log.Now
	}
	format := c.opt.Log.Format
	if format == nil {
		format = record.V2
	}
	b, err := commitlog.NewBatch(format, rs, record.Encoding{Timestamp: now(), Compression: c.opt.Log.Compression}, commitlog.Limits{})
	if err != nil {
		return Appended{}, err
	}
	at, err := n.AppendAndWait(ctx, p, c.opt.Acks, b)
	return Appended{Partition: p, Leader: n.ID(), Offset: at.BaseOffset, Timestamp: at.Timestamp}, err
}

// leader returns the node that leads a partition.
func (c *Cluster) leader(p Partition) (*node.Node, error) {
	a, ok := c.controller.Image().Assignment(p)
	if !ok {
		return nil, &controller.UnknownPartitionError{Partition: p}
	}
	return c.Node(a.Leader)
}

// Node returns a running broker.
func (c *Cluster) Node(id BrokerID) (*node.Node, error) {
	if n := c.network.node(id); n != nil {
		return n, nil
	}
	return nil, &BrokerDownError{id}
}

// Assignment returns who leads a partition, and who is in sync.
func (c *Cluster) Assignment(p Partition) (replica.Assignment, error) {
	a, ok := c.controller.Image().Assignment(p)
	if !ok {
		return a, &controller.UnknownPartitionError{Partition: p}
	}
	return a, nil
}

// Records reads a partition through its leader, up to the high watermark; see node.Node.Records.
func (c *Cluster) Records(p Partition, from int64) iter.Seq2[record.Record, error] {
	n, err := c.leader(p)
	if err != nil {
		return func(yield func(record.Record, error) bool) { yield(record.Record{}, err) }
	}
	return n.Records(p, from)
}
