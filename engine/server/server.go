package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"logbook/engine/admission"
	_ "logbook/engine/controller/quorum" // the usual controller of several brokers
	"logbook/engine/kafka"
	"logbook/engine/replica"
	"logbook/engine/service"
)

// Server is one broker on the network: a service (package service), connections to the
// other brokers, and clients. Open it, then Serve.
type Server struct {
	cfg      Config
	service  *service.Service
	links    map[replica.BrokerID]*link
	counters *counters
	memory   *admission.Memory // for the requests and replies of all clients
	places   *admission.Places
	vouching chan struct{} // connections that are asked about
	clock    *service.Clock

	kafka     *kafka.Front
	listeners []net.Listener // beside the one that is served: for Kafka's clients, and external ones

	ctx   context.Context // ends when the broker closes
	stop  context.CancelFunc
	tasks sync.WaitGroup

	linksMu sync.RWMutex // links, and what follows
	linked  bool         // they run

	mu       sync.Mutex
	address  string
	sessions map[*session]bool
	draining bool
}

// Open opens a broker's data and recovers its replicas. It does not listen yet.
func Open(cfg Config) (*Server, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	b := &Server{
		cfg: cfg, links: map[replica.BrokerID]*link{}, sessions: map[*session]bool{}, address: cfg.Advertise,
		memory: admission.NewMemory(cfg.MaxMemory), places: admission.NewPlaces(cfg.MaxConnections, time.Now), counters: newCounters(), vouching: make(chan struct{}, vouching), clock: service.NewClock(),
	}
	b.ctx, b.stop = context.WithCancel(context.Background())
	for id, address := range cfg.Peers {
		b.links[id] = newLink(b, id, address)
	}
	b.places.Reserve(2*len(cfg.Peers) + 1) // each has a connection, and asks back by another
	b.service, err = service.Open(service.Config{
		ID: cfg.ID, Dir: cfg.Data, Brokers: cfg.all(), Controller: cfg.Controller, Role: cfg.Role, Rack: cfg.Rack, Acks: cfg.Acks, MinInSync: cfg.MinInSync, Retention: cfg.Retention, MaintainEvery: cfg.MaintainEvery,
		HealthEvery: cfg.HealthEvery, FailAfter: cfg.FailAfter, LagTimeout: cfg.LagTimeout, CatchUpRate: cfg.CatchUpRate, UnreachableTimeout: cfg.UnreachableTimeout, WriteTimeout: cfg.WriteTimeout, RequestTimeout: cfg.RequestTimeout,
		Log: cfg.Log, Send: b.send, Wake: b.clock.Wake, Meet: b.meet,
	})
	if err != nil {
		b.stop()
		return nil, err
	}
	b.memory.Relief(func() {
		if !b.places.Relieve() {
			b.kafka.Relieve()
		}
	})
	b.kafka = kafka.New(kafka.Config{
		Service: b.service, Logger: cfg.Logger, Token: cfg.Token, Authenticate: cfg.Authenticate, ExternalAuthenticate: cfg.ExternalAuthenticate, TLS: cfg.ServerTLS, AutoCreate: cfg.AutoCreate, Partitions: cfg.Partitions,
		MaxConnections: cfg.MaxConnections, Memory: b.memory, IdleTimeout: cfg.IdleTimeout, RequestTimeout: cfg.RequestTimeout,
	})
	return b, nil
}

// ServeKafka serves Kafka's clients on a listener, until the broker ends, and tells the other
// brokers where. It is called before Serve.
func (b *Server) ServeKafka(ln net.Listener) {
	b.advertise(kafka.EndpointName, ln, b.cfg.KafkaAdvertise)
	b.tasks.Go(func() { _ = b.kafka.Serve(ln) })
}

// ServeKafkaExternal serves Kafka's clients on a further listener, whose clients are told
// what the brokers advertise for theirs. It is called before Serve.
func (b *Server) ServeKafkaExternal(ln net.Listener, advertise string) {
	b.advertise(kafka.ExternalEndpointName, ln, advertise)
	b.tasks.Go(func() { _ = b.kafka.ServeAs(ln, kafka.ExternalEndpointName) })
}

// externalEndpoint is what brokers call their external listener for the JSON protocol.
const externalEndpoint = "logbook, external"

// ServeExternal serves clients on a further listener, whose clients are told what the
// brokers advertise for theirs. It is called before Serve.
func (b *Server) ServeExternal(ln net.Listener, advertise string) {
	b.advertise(externalEndpoint, ln, advertise)
	b.tasks.Go(func() { _ = b.accept(ln, externalEndpoint) })
}

// advertise tells the other brokers where a listener is.
func (b *Server) advertise(name string, ln net.Listener, address string) {
	if address == "" {
		address = ln.Addr().String()
	}
	b.service.SetEndpoint(name, address)
	b.listeners = append(b.listeners, ln)
	b.cfg.Logger.Info("a further listener", "broker", b.cfg.ID, "clients", name, "address", ln.Addr().String(), "advertised", address)
}

// Kafka is the front for Kafka's clients.
func (b *Server) Kafka() *kafka.Front { return b.kafka }

// Service is what the broker can do.
func (b *Server) Service() *service.Service { return b.service }

// ID is the broker's id.
func (b *Server) ID() replica.BrokerID { return b.cfg.ID }

// Address is what clients and peers are told.
func (b *Server) Address() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.address
}

// AddressOf is the address of any broker of the cluster; "": there is none of that id.
func (b *Server) AddressOf(id replica.BrokerID) string {
	if id == b.cfg.ID {
		return b.Address()
	}
	if l := b.link(id); l != nil {
		return l.where()
	}
	return ""
}

// link is the one to a broker; nil: it is not one of the peers.
func (b *Server) link(id replica.BrokerID) *link {
	b.linksMu.RLock()
	defer b.linksMu.RUnlock()
	return b.links[id]
}

// meet learns of a broker that was added to the cluster while this one runs, and keeps a link to it.
// Where the list of peers names it, that is what counts.
func (b *Server) meet(id replica.BrokerID, address string) {
	if b.cfg.Peers[id] != "" {
		return
	}
	b.linksMu.Lock()
	defer b.linksMu.Unlock()
	if l := b.links[id]; l != nil {
		l.move(address)
		return
	}
	l := newLink(b, id, address)
	b.links[id] = l
	b.places.Reserve(2*len(b.links) + 1)
	if b.linked {
		b.task(l.run)
	}
}

// task begins work that ends with the broker, unless it is closed.
func (b *Server) task(do func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ctx.Err() == nil {
		b.tasks.Go(do)
	}
}

// send hands a message to the link that carries it.
func (b *Server) send(to replica.BrokerID, m service.PeerMessage) error {
	l := b.link(to)
	if l == nil {
		return fmt.Errorf("broker %d is not one of the peers", to)
	}
	return l.send(m)
}

// Serve accepts clients and peers on ln until ctx ends; then it answers what it accepted,
// closes everything and returns. It may be called once.
func (b *Server) Serve(ctx context.Context, ln net.Listener) error {
	b.mu.Lock()
	if b.address == "" {
		b.address = ln.Addr().String()
	}
	b.mu.Unlock()
	b.tasks.Go(func() { b.clock.Run(b.service, b.ctx.Done()) })
	b.linksMu.Lock()
	b.linked = true
	for _, l := range b.links {
		b.tasks.Go(l.run)
	}
	peers := len(b.links)
	b.linksMu.Unlock()
	b.service.Start()
	b.cfg.Logger.Info("broker is serving", "broker", b.cfg.ID, "address", ln.Addr().String(), "controller", b.service.Controller(), "peers", peers)
	accepted := make(chan error, 1)
	go func() { accepted <- b.accept(ln, "") }()
	var err error
	select {
	case err = <-accepted:
	case <-ctx.Done():
	}
	ln.Close()
	return errors.Join(err, b.shutdown())
}

// accept welcomes clients of a listener; name is that of its endpoints, "" for the one that
// peers use too.
func (b *Server) accept(ln net.Listener, name string) error {
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
		b.welcome(nc, name)
	}
}

// shutdownGrace is how long requests that were accepted may take to finish.
const shutdownGrace = 10 * time.Second

// shutdown hands over what this broker leads, answers what was accepted, and closes. Clients that
// come meanwhile are told who leads now. Peers are heard until the last client has its answer:
// without their word no write is acknowledged.
func (b *Server) shutdown() error {
	b.service.Leave()
	for deadline := time.Now().Add(leaveGrace); !b.service.Left() && time.Now().Before(deadline); {
		time.Sleep(5 * time.Millisecond)
	}
	b.mu.Lock()
	b.draining = true
	var open []*session
	for s := range b.sessions {
		if s.peer == replica.None {
			open = append(open, s)
		}
	}
	b.mu.Unlock()
	b.cfg.Logger.Info("broker is shutting down", "broker", b.cfg.ID, "connections", len(open))
	deadline := time.Now().Add(shutdownGrace)
	var finishing sync.WaitGroup
	for _, s := range open {
		finishing.Go(func() { s.finish(deadline) })
	}
	for _, ln := range b.listeners {
		ln.Close()
	}
	finishing.Go(func() {
		ctx, cancel := context.WithDeadline(context.Background(), deadline)
		defer cancel()
		b.kafka.Drain(ctx)
	})
	finishing.Wait()
	return b.Close()
}

// leaveGrace is how long the others may take to hear that this broker leaves.
const leaveGrace = time.Second

// Close ends everything at once and returns when no goroutine of the broker's is left.
func (b *Server) Close() error {
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
	for _, ln := range b.listeners {
		ln.Close()
	}
	err := b.service.Close() // and whoever waits is answered
	b.kafka.Close()
	b.tasks.Wait()
	if errors.Is(err, service.ErrClosed) {
		return nil
	}
	return err
}

// brokers returns the ids of all brokers, in order.
func (c *Config) all() []replica.BrokerID {
	ids := []replica.BrokerID{c.ID}
	for id := range c.Peers {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}
