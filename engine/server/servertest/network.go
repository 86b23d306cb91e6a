// Package brokertest runs a cluster of brokers in one process, on real sockets of
// loopback, whose network can be cut: for tests and lessons.
package servertest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"logbook/engine/commitlog"
	"logbook/engine/replica"
	"logbook/engine/server"
	"logbook/engine/wire"
)

// Network is a cluster of brokers 1 to n.
type Network struct {
	dir       string
	configure func(*server.Config)
	addresses map[wire.BrokerID]string

	mu      sync.Mutex
	running map[wire.BrokerID]func() error
	servers map[wire.BrokerID]*server.Server
	part    map[wire.BrokerID]int // brokers in different parts cannot reach each other
	conns   map[net.Conn][2]wire.BrokerID
}

// Start starts brokers 1 to n, each with a directory of its own in dir. configure, if not
// nil, may change each one's configuration, which is set for short pauses.
func Start(dir string, n int, configure func(*server.Config)) (*Network, error) {
	w := &Network{
		dir: dir, configure: configure, addresses: map[wire.BrokerID]string{}, running: map[wire.BrokerID]func() error{},
		servers: map[wire.BrokerID]*server.Server{},
		part:    map[wire.BrokerID]int{}, conns: map[net.Conn][2]wire.BrokerID{},
	}
	listeners := map[wire.BrokerID]net.Listener{}
	for id := wire.BrokerID(1); id <= wire.BrokerID(n); id++ {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		listeners[id], w.addresses[id] = ln, ln.Addr().String()
	}
	for id, ln := range listeners {
		if err := w.serve(id, ln); err != nil {
			return nil, errors.Join(err, w.Close())
		}
	}
	return w, nil
}

// Address returns a broker's address.
func (w *Network) Address(id wire.BrokerID) string { return w.addresses[id] }

// Server returns a broker as it was started last.
func (w *Network) Server(id wire.BrokerID) *server.Server {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.servers[id]
}

// Addresses returns all brokers' addresses, in the order of their ids.
func (w *Network) Addresses() []string {
	var out []string
	for _, id := range slices.Sorted(maps.Keys(w.addresses)) {
		out = append(out, w.addresses[id])
	}
	return out
}

func (w *Network) serve(id wire.BrokerID, ln net.Listener) error {
	cfg := server.Config{
		ID: replica.BrokerID(id), Data: filepath.Join(w.dir, fmt.Sprint("broker-", id)), Peers: map[replica.BrokerID]string{},
		HealthEvery: 50 * time.Millisecond, FailAfter: 8, LagTimeout: 2 * time.Second, Log: commitlog.Options{SegmentBytes: 1 << 20},
		Dial: func(ctx context.Context, _, address string) (net.Conn, error) { return w.dial(ctx, id, address) },
	}
	for other, address := range w.addresses {
		if other != id {
			cfg.Peers[replica.BrokerID(other)] = address
		}
	}
	if w.configure != nil {
		w.configure(&cfg)
	}
	b, err := server.Open(cfg)
	if err != nil {
		ln.Close()
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.Serve(ctx, ln) }()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.servers[id] = b
	w.running[id] = func() error {
		stop()
		return <-done
	}
	return nil
}

// Stop stops a broker, which answers what it accepted first.
func (w *Network) Stop(id wire.BrokerID) error {
	w.mu.Lock()
	stop := w.running[id]
	delete(w.running, id)
	w.mu.Unlock()
	if stop == nil {
		return fmt.Errorf("brokertest: broker %d is not running", id)
	}
	return stop()
}

// Restart starts a broker that was stopped, at the same address.
func (w *Network) Restart(id wire.BrokerID) error {
	var ln net.Listener
	var err error
	for range 1000 { // the system may take a moment to give the address back
		if ln, err = net.Listen("tcp", w.addresses[id]); err == nil {
			return w.serve(id, ln)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return err
}

// Close stops every broker.
func (w *Network) Close() error {
	w.mu.Lock()
	ids := slices.Collect(maps.Keys(w.running))
	w.mu.Unlock()
	var problems []error
	for _, id := range ids {
		problems = append(problems, w.Stop(id))
	}
	return errors.Join(problems...)
}

// Cut cuts brokers off from the others. Among themselves they still talk, and clients
// still reach everybody.
func (w *Network) Cut(ids ...wire.BrokerID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range ids {
		w.part[id] = 1
	}
	for c, ends := range w.conns {
		if w.part[ends[0]] != w.part[ends[1]] {
			c.Close()
			delete(w.conns, c)
		}
	}
}

// Heal lets everybody reach everybody again.
func (w *Network) Heal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.part)
}

// dial connects a broker to another, unless they are cut off from each other.
func (w *Network) dial(ctx context.Context, from wire.BrokerID, address string) (net.Conn, error) {
	for to, a := range w.addresses {
		if a != address {
			continue
		}
		w.mu.Lock()
		apart := w.part[from] != w.part[to]
		w.mu.Unlock()
		if apart {
			return nil, fmt.Errorf("brokertest: brokers %d and %d are cut off from each other", from, to)
		}
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err == nil {
			w.mu.Lock()
			w.conns[c] = [2]wire.BrokerID{from, to}
			w.mu.Unlock()
		}
		return c, err
	}
	return nil, fmt.Errorf("brokertest: nobody is at %s", address)
}
