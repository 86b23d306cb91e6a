package cluster

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"logbook/engine/commitlog"
	"logbook/engine/controller"
	"logbook/engine/record"
	"logbook/engine/replica"
	"logbook/engine/topic"
)

// Options configure a cluster. The zero value is PyStream's: every active replica holds a
// record before it is acknowledged, and nothing happens that was not asked for.
type Options struct {
	// Acks is what Append and Send wait for.
	Acks replica.Acks
	// MinInSync is how many active replicas replica.Quorum demands; 0 is 1.
	MinInSync int
	// LagTimeout, if not 0, makes replicas look after themselves as Kafka's do: they catch
	// up and cut diverging tails unasked, are dropped from the active ones when they lag
	// for so long, and become active again when they have caught up.
	LagTimeout time.Duration
	// Router for topics made without one; nil is topic.SHA256, PyStream's.
	Router topic.Router
	// Choose picks leaders; nil is controller.Longest.
	Choose controller.Choice
	// Sequential makes everything happen on the goroutine that calls, in one order, so that
	// the same calls lead to the same events. The cluster is for one goroutine then.
	Sequential bool
	// Observe, if set, is told what happens. It must not use the cluster.
	Observe func(Event)
	// Log configures the logs.
	Log commitlog.Options
}

// Cluster is several brokers in one process, each with a directory of its own. It is safe
// for concurrent use.
type Cluster struct {
	dir        string
	opt        Options
	controller *controller.Manual
	network    *network
	queue      []func() // Sequential: what is to be done

	mu      sync.Mutex // starting and stopping, one at a time
	closed  bool
	cursors sync.Map // topic name -> *atomic.Uint64, for records without a key
}

// Open reads the cluster's decisions from a directory, or begins a new cluster. Its
// brokers are down until Start.
//
// Errors: *controller.MetadataError.
func Open(dir string, opt Options) (*Cluster, error) {
	if opt.Router == nil {
		opt.Router = topic.SHA256
	}
	m, err := controller.OpenManual(opt.Log.FS, dir, opt.Choose)
	if err != nil {
		return nil, err
	}
	c := &Cluster{dir: dir, opt: opt, controller: m, network: &network{nodes: map[BrokerID]*Node{}}}
	m.Watch(c.assigned)
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
	opt := NodeOptions{ID: id, Dir: c.brokerDir(id), Transport: c.network, Controller: c.controller, Log: c.opt.Log, Observe: c.opt.Observe}
	if c.opt.Sequential {
		opt.Go = func(f func()) { c.queue = append(c.queue, f) }
		opt.Pump = c.pump
	}
	if !cfg.Explicit {
		cfg.Heartbeat, cfg.Retry = c.opt.LagTimeout/4, c.opt.LagTimeout/10
		opt.TickEvery = c.opt.LagTimeout / 20
	}
	opt.Replica = cfg
	n, err := OpenNode(opt)
	if err != nil {
		return err
	}
	mine := c.replicasOf(id)
	for _, p := range mine {
		n.Open(p)
	}
	c.network.join(n)
	n.observe(Event{Kind: Up})
	if err := c.controller.Register(id); err != nil {
		c.network.leave(id)
		return errors.Join(err, n.Close())
	}
	for _, p := range mine {
		if a, ok := c.controller.Assignment(p); ok {
			n.Assign(p, a)
			c.network.settle(p, a)
		}
	}
	return nil
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

// replicasOf returns the partitions of which a broker has a replica, in order.
func (c *Cluster) replicasOf(id BrokerID) []Partition {
	var all []Partition
	for name, t := range c.controller.Meta().Topics {
		for i, a := range t.Partitions {
			if slices.Contains(a.Replicas, id) {
				all = append(all, Partition{Topic: name, ID: i})
			}
		}
	}
	slices.SortFunc(all, Partition.Compare)
	return all
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
	n.observe(Event{Kind: Down})
	for _, p := range c.replicasOf(id) {
		if a, ok := c.controller.Assignment(p); ok {
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
	return errors.Join(problems...)
}

// Brokers returns the ids of all brokers that ever started, and which of them run.
func (c *Cluster) Brokers() (all []BrokerID, running map[BrokerID]bool) {
	running = map[BrokerID]bool{}
	for _, n := range c.network.all() {
		running[n.ID()] = true
	}
	return c.controller.Meta().Brokers, running
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
	if err := c.controller.CheckTopic(name, partitions); err != nil {
		return err
	}
	placed, err := controller.Place(c.controller.Meta().Brokers, partitions, replication)
	if err != nil {
		return err
	}
	// The replicas are made first: until the topic is recorded they mean nothing.
	for i, a := range placed {
		for _, id := range a.Replicas {
			if err := c.createReplica(Partition{Topic: name, ID: i}, id); err != nil {
				return err
			}
		}
	}
	if err := c.controller.AddTopic(name, partitions, replication, c.opt.Router); err != nil {
		return err
	}
	for i, a := range placed {
		c.network.settle(Partition{Topic: name, ID: i}, a)
	}
	return nil
}

func (c *Cluster) createReplica(p Partition, id BrokerID) error {
	n := c.network.node(id)
	if n == nil {
		return &BrokerDownError{id}
	}
	if err := n.Create(p); err != nil {
		return err
	}
	l, err := n.Log(p)
	if err == nil && (l.EndOffset() > 0 || l.StartOffset() > 0) {
		err = fmt.Errorf("cluster: %s holds records, and there is no such topic; move the directory away", l.Dir())
	}
	return err
}

// Appended says where a record landed.
type Appended struct {
	Partition Partition
	Leader    BrokerID
	Offset    int64
	Timestamp time.Time
}

// Send routes a record by its key, or in turn if that is nil, and appends it.
func (c *Cluster) Send(ctx context.Context, name string, r record.Record) (Appended, error) {
	t, ok := c.controller.Topic(name)
	if !ok {
		return Appended{}, &topic.UnknownError{Name: name}
	}
	router, err := topic.RouterByName(t.Router)
	if err != nil {
		return Appended{}, err
	}
	p := Partition{Topic: name}
	if r.Key == nil {
		cursor, _ := c.cursors.LoadOrStore(name, new(atomic.Uint64))
		p.ID = int((cursor.(*atomic.Uint64).Add(1) - 1) % uint64(len(t.Partitions)))
	} else {
		p.ID = router.Partition(r.Key, len(t.Partitions))
	}
	return c.Append(ctx, p, r)
}

// Append appends records to a partition, through its leader, and returns when
// Options.Acks is satisfied. After an error the records may be in the leader's log.
//
// Errors: *controller.UnknownPartitionError, *BrokerDownError (the leader: fail over), and
// those of Node.Append.
func (c *Cluster) Append(ctx context.Context, p Partition, rs ...record.Record) (Appended, error) {
	n, err := c.leader(p)
	if err != nil {
		return Appended{}, err
	}
	at, err := n.Append(ctx, p, c.opt.Acks, Records(rs...))
	return Appended{Partition: p, Leader: n.ID(), Offset: at.BaseOffset, Timestamp: at.Timestamp}, err
}

// leader returns the node that leads a partition.
func (c *Cluster) leader(p Partition) (*Node, error) {
	a, ok := c.controller.Assignment(p)
	if !ok {
		return nil, &controller.UnknownPartitionError{Partition: p}
	}
	return c.Node(a.Leader)
}

// Node returns a running broker.
func (c *Cluster) Node(id BrokerID) (*Node, error) {
	if n := c.network.node(id); n != nil {
		return n, nil
	}
	return nil, &BrokerDownError{id}
}

// Assignment returns who leads a partition, and who is active.
func (c *Cluster) Assignment(p Partition) (replica.Assignment, error) {
	a, ok := c.controller.Assignment(p)
	if !ok {
		return a, &controller.UnknownPartitionError{Partition: p}
	}
	return a, nil
}

// Records reads a partition through its leader, up to the high watermark; see Node.Records.
func (c *Cluster) Records(p Partition, from int64) iter.Seq2[record.Record, error] {
	n, err := c.leader(p)
	if err != nil {
		return func(yield func(record.Record, error) bool) { yield(record.Record{}, err) }
	}
	return n.Records(p, from)
}
