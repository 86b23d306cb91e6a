package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"logbook/engine/cluster"
	"logbook/engine/commitlog"
	"logbook/engine/controller"
	"logbook/engine/replica"
	"logbook/engine/wire"
)

// Broker is one broker: a data directory, replicas in it, connections to the other
// brokers, and clients. Open it, then Serve.
type Broker struct {
	cfg      Config
	node     *cluster.Node
	dir      directory
	links    map[replica.BrokerID]*link
	groups   *groups
	turns    turns
	counters *counters

	ctx   context.Context // ends when the broker closes
	stop  context.CancelFunc
	tasks sync.WaitGroup

	mu       sync.Mutex
	address  string
	sessions map[*session]bool
	draining bool
	memory   *budget
}

// directory knows the topics and who leads what. There is one for each kind of controller.
type directory interface {
	controller.Controller
	topics() map[string]controller.Topic
	topic(name string) (controller.Topic, bool)
	alive() map[replica.BrokerID]bool
	// decider is the broker that topics are made and failovers called on; None: any.
	decider() replica.BrokerID
	createTopic(ctx context.Context, r wire.CreateTopic) error
	// started is called once the broker listens.
	started()
	ping() wire.Ping
	pinged(peer replica.BrokerID, p wire.Ping) wire.PingReply
	answered(peer replica.BrokerID, r wire.PingReply)
	silent(peer replica.BrokerID) // a check failed
}

// Open opens a broker's data and recovers its replicas. It does not listen yet.
func Open(cfg Config) (*Broker, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	b := &Broker{cfg: cfg, links: map[replica.BrokerID]*link{}, sessions: map[*session]bool{}, address: cfg.Advertise, memory: newBudget(cfg.MaxMemory), counters: newCounters()}
	b.ctx, b.stop = context.WithCancel(context.Background())
	for id, address := range cfg.Peers {
		b.links[id] = newLink(b, id, address)
	}
	if cfg.Controller == "first-alive" {
		b.dir, err = newFirstAlive(b)
	} else {
		b.dir, err = newManual(b)
	}
	if err != nil {
		return nil, err
	}
	b.node, err = cluster.OpenNode(cluster.NodeOptions{
		ID: cfg.ID, Dir: cfg.Data, Transport: b, Controller: b.dir, Log: cfg.Log, TickEvery: 50 * time.Millisecond,
		Replica: replica.Config{
			MinInSync: cfg.MinInSync, LagTimeout: cfg.LagTimeout, WriteTimeout: cfg.WriteTimeout,
			Heartbeat: cfg.HealthEvery, Retry: cfg.HealthEvery / 2,
		},
	})
	if err != nil {
		return nil, err
	}
	b.groups = newGroups(b)
	b.dir.Watch(b.assigned)
	return b, nil
}

// Node gives access to the broker's replicas.
func (b *Broker) Node() *cluster.Node { return b.node }

// Address is what clients and peers are told.
func (b *Broker) Address() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.address
}

// assigned hands a decision to the replica that it concerns.
func (b *Broker) assigned(p controller.Partition, a replica.Assignment) {
	b.node.Assign(p, a)
	if p.Topic == groupsTopic {
		b.groups.assigned(p, a)
	}
}

// Send implements cluster.Transport.
func (b *Broker) Send(p controller.Partition, m replica.Message) error {
	l := b.links[m.To]
	if l == nil {
		return fmt.Errorf("broker %d is not one of the peers", m.To)
	}
	return l.send(p, m)
}

// Serve accepts clients and peers on ln until ctx ends; then it answers what it accepted,
// closes everything and returns. It may be called once.
func (b *Broker) Serve(ctx context.Context, ln net.Listener) error {
	b.mu.Lock()
	if b.address == "" {
		b.address = ln.Addr().String()
	}
	b.mu.Unlock()
	b.dir.started()
	for _, l := range b.links {
		b.tasks.Go(l.run)
	}
	b.tasks.Go(b.retain)
	b.cfg.Logger.Info("broker is serving", "broker", b.cfg.ID, "address", ln.Addr().String(), "controller", b.cfg.Controller, "peers", len(b.links))
	accepted := make(chan error, 1)
	go func() { accepted <- b.accept(ln) }()
	var err error
	select {
	case err = <-accepted:
	case <-ctx.Done():
	}
	ln.Close()
	return errors.Join(err, b.shutdown())
}

// background runs f beside everything else, unless the broker is closing.
func (b *Broker) background(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ctx.Err() == nil {
		b.tasks.Go(f)
	}
}

func (b *Broker) accept(ln net.Listener) error {
	for {
		nc, err := ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			// Out of file descriptors, most likely: those who are here are served on.
			b.cfg.Logger.Error("cannot accept a connection", "error", err)
			select {
			case <-time.After(50 * time.Millisecond):
				continue
			case <-b.ctx.Done():
				return nil
			}
		}
		b.welcome(nc)
	}
}

// shutdownGrace is how long requests that were accepted may take to finish.
const shutdownGrace = 10 * time.Second

// shutdown answers what was accepted, and closes.
func (b *Broker) shutdown() error {
	b.mu.Lock()
	b.draining = true
	var open []*session
	for s := range b.sessions {
		open = append(open, s)
	}
	b.mu.Unlock()
	b.cfg.Logger.Info("broker is shutting down", "broker", b.cfg.ID, "connections", len(open))
	deadline := time.Now().Add(shutdownGrace)
	var finishing sync.WaitGroup
	for _, s := range open {
		finishing.Go(func() { s.finish(deadline) })
	}
	finishing.Wait()
	return b.Close()
}

// Close ends everything at once and returns when no goroutine of the broker's is left.
func (b *Broker) Close() error {
	b.mu.Lock()
	b.stop() // under the lock: no task begins after it
	var open []*session
	for s := range b.sessions {
		open = append(open, s)
	}
	b.draining = true
	b.mu.Unlock()
	for _, s := range open {
		s.close()
	}
	b.groups.close()
	b.tasks.Wait()
	err := b.node.Close()
	if errors.Is(err, cluster.ErrClosed) {
		return nil
	}
	return err
}

// retainEvery is how often retention is looked at.
const retainEvery = 30 * time.Second

// retain applies retention to what this broker leads.
func (b *Broker) retain() {
	if b.cfg.Retention == (commitlog.Retention{}) {
		return
	}
	t := time.NewTicker(retainEvery)
	defer t.Stop()
	for {
		select {
		case <-b.ctx.Done():
			return
		case <-t.C:
		}
		for _, p := range b.node.Partitions() {
			if p.Topic == groupsTopic {
				continue
			}
			err := b.node.Trim(p, func(l *commitlog.Log) error { _, err := l.Retain(b.cfg.Retention); return err })
			if _, elsewhere := errors.AsType[*cluster.NotLeaderError](err); err != nil && !elsewhere {
				b.cfg.Logger.Error("retention failed", "partition", p, "error", err)
			}
		}
	}
}
