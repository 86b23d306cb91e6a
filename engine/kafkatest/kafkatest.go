// Package kafkatest runs Logbook brokers inside a test of any program that speaks Kafka's
// protocol: real brokers with real connections on loopback, and disks in memory that crash,
// fill and fail when the test says so.
//
//	c := kafkatest.Start(t, kafkatest.Options{Brokers: 3})
//	client, err := kgo.NewClient(kgo.SeedBrokers(c.Addrs()...))
//	…
//	c.Crash(1) // as kill -9 and a power failure would
//	c.Restart(1)
package kafkatest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"logbook/engine/commitlog"
	"logbook/engine/replica"
	"logbook/engine/server"
	"logbook/engine/vfs"
)

// Options say what to start. The zero value is one broker.
type Options struct {
	Brokers    int    // 0 is 1
	Controller string // empty is the usual one for so many brokers
	// Partitions of topics that clients ask for without making them; 0 is 1.
	Partitions int
	// NoAutoCreate refuses to make such topics.
	NoAutoCreate bool
	// Token, if set, is the password that clients must give by SASL PLAIN.
	Token string
	// Logger, if set, gets what the brokers log.
	Logger *slog.Logger
	// Configure, if set, changes a broker's configuration.
	Configure func(id int, c *server.Config)
}

// Cluster is brokers with the ids from 1 on. Its methods are safe for concurrent use.
type Cluster struct {
	t   testing.TB
	opt Options

	mu      sync.Mutex
	brokers []*broker
	cut     map[[2]int]bool
	delay   time.Duration
	conns   map[*link]bool
}

type broker struct {
	id          int
	disk        *vfs.Mem
	peer, kafka string // addresses, which stay
	server      *server.Server
	stop        context.CancelFunc
	done        chan error
}

// Start starts brokers. They end with the test.
func Start(t testing.TB, opt Options) *Cluster {
	t.Helper()
	opt.Brokers = cmp.Or(opt.Brokers, 1)
	c := &Cluster{t: t, opt: opt, cut: map[[2]int]bool{}, conns: map[*link]bool{}}
	var listeners [][2]net.Listener
	for i := range opt.Brokers {
		peer, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		kafka, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		listeners = append(listeners, [2]net.Listener{peer, kafka})
		c.brokers = append(c.brokers, &broker{id: i + 1, disk: vfs.NewMem(), peer: peer.Addr().String(), kafka: kafka.Addr().String()})
	}
	for i, b := range c.brokers {
		if err := c.start(b, listeners[i][0], listeners[i][1]); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, b := range c.brokers {
			c.end(b, nil)
		}
	})
	return c
}

func (c *Cluster) start(b *broker, peer, kafka net.Listener) error {
	cfg := server.Config{
		ID: replica.BrokerID(b.id), Data: "data", Peers: map[replica.BrokerID]string{}, Controller: c.opt.Controller,
		Acks: replica.Quorum, HealthEvery: 100 * time.Millisecond, FailAfter: 5, LagTimeout: 2 * time.Second, UnreachableTimeout: 100 * time.Millisecond,
		AutoCreate: !c.opt.NoAutoCreate, Partitions: c.opt.Partitions, Token: c.opt.Token, Logger: c.opt.Logger,
		Log:  commitlog.Options{FS: b.disk, SegmentBytes: 1 << 20},
		Dial: func(ctx context.Context, _, address string) (net.Conn, error) { return c.dial(ctx, b.id, address) },
	}
	for _, o := range c.brokers {
		if o.id != b.id {
			cfg.Peers[replica.BrokerID(o.id)] = o.peer
		}
	}
	if c.opt.Configure != nil {
		c.opt.Configure(b.id, &cfg)
	}
	s, err := server.Open(cfg)
	if err != nil {
		return fmt.Errorf("kafkatest: broker %d: %w", b.id, err)
	}
	s.ServeKafka(kafka)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	c.mu.Lock()
	b.server, b.stop, b.done = s, stop, done
	c.mu.Unlock()
	go func() { done <- s.Serve(ctx, peer) }()
	return nil
}

// end ends a broker, by how, or in good order.
func (c *Cluster) end(b *broker, how func(*server.Server)) {
	c.mu.Lock()
	s, stop, done := b.server, b.stop, b.done
	b.server = nil
	c.mu.Unlock()
	if s == nil {
		return
	}
	if how != nil {
		how(s)
	}
	stop()
	if err := <-done; err != nil && c.opt.Logger != nil {
		c.opt.Logger.Warn("a broker ended", "broker", b.id, "error", err)
	}
}

func (c *Cluster) broker(id int) *broker {
	c.t.Helper()
	if id < 1 || id > len(c.brokers) {
		c.t.Fatalf("kafkatest: there are brokers 1 to %d, no %d", len(c.brokers), id)
	}
	return c.brokers[id-1]
}

// Addrs are the brokers' addresses, for a client to begin with.
func (c *Cluster) Addrs() []string {
	var out []string
	for _, b := range c.brokers {
		out = append(out, b.kafka)
	}
	return out
}

// Bootstrap is Addrs as one string.
func (c *Cluster) Bootstrap() string { return strings.Join(c.Addrs(), ",") }

// Server is a broker, for a look inside; nil while it is down.
func (c *Cluster) Server(id int) *server.Server {
	b := c.broker(id)
	c.mu.Lock()
	defer c.mu.Unlock()
	return b.server
}

// Leader is the broker that leads a partition, as the living ones know; 0: nobody.
func (c *Cluster) Leader(topic string, partition int) int {
	var latest replica.Assignment // some brokers may not have heard of it yet
	for _, b := range c.brokers {
		if s := c.Server(b.id); s != nil {
			if t := s.Service().Image().Topic(topic); t != nil && partition < len(t.Partitions) && t.Partitions[partition].LeaderEpoch >= latest.LeaderEpoch {
				latest = t.Partitions[partition]
			}
		}
	}
	return int(latest.Leader)
}

// Crash ends a broker as a power failure does: nothing that it had not synced is left on its
// disk, and its connections break.
func (c *Cluster) Crash(id int) {
	b := c.broker(id)
	c.end(b, func(s *server.Server) {
		c.mu.Lock()
		b.disk.Inject(func(vfs.Op) error { return errOff }) // from here on it says nothing is stored
		for crash := range b.disk.Crashes(1, nil) {
			b.disk = crash.FS
			break
		}
		c.mu.Unlock()
		_ = s.Close()
	})
}

// errOff: the power is off.
var errOff = errors.New("kafkatest: the power is off")

// Stop ends a broker in good order.
func (c *Cluster) Stop(id int) { c.end(c.broker(id), nil) }

// Restart starts a broker again that was crashed or stopped, with its disk and its addresses.
func (c *Cluster) Restart(id int) {
	c.t.Helper()
	b := c.broker(id)
	if c.Server(id) != nil {
		c.t.Fatalf("kafkatest: broker %d runs", id)
	}
	peer, err := listen(b.peer)
	if err != nil {
		c.t.Fatal(err)
	}
	kafka, err := listen(b.kafka)
	if err != nil {
		c.t.Fatal(err)
	}
	if err := c.start(b, peer, kafka); err != nil {
		c.t.Fatal(err)
	}
}

// listen waits until the system gives an address back.
func listen(address string) (ln net.Listener, err error) {
	for range 500 {
		if ln, err = net.Listen("tcp", address); err == nil {
			return ln, nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return nil, err
}

// Cut breaks the connection between two brokers, until Heal. Clients reach both.
func (c *Cluster) Cut(a, b int) {
	c.mu.Lock()
	c.cut[[2]int{min(a, b), max(a, b)}] = true
	var broken []*link
	for l := range c.conns {
		if c.isCut(l.a, l.b) {
			broken = append(broken, l)
		}
	}
	c.mu.Unlock()
	for _, l := range broken {
		l.Close()
	}
}

// Heal ends every cut, and what Slow did.
func (c *Cluster) Heal() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.cut)
	c.delay = 0
}

// Slow delays what brokers say to each other.
func (c *Cluster) Slow(delay time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.delay = delay
}

// FailDisk makes every write to a broker's disk fail with an error, such as syscall.ENOSPC;
// nil makes the disk well again.
func (c *Cluster) FailDisk(id int, err error) {
	b := c.broker(id)
	c.mu.Lock()
	disk := b.disk
	c.mu.Unlock()
	disk.Inject(func(op vfs.Op) error {
		if slices.Contains([]vfs.OpKind{vfs.OpWrite, vfs.OpCreate, vfs.OpSync}, op.Kind) {
			return err
		}
		return nil
	})
}

// isCut: c.mu is held.
func (c *Cluster) isCut(a, b int) bool { return c.cut[[2]int{min(a, b), max(a, b)}] }

func (c *Cluster) dial(ctx context.Context, from int, address string) (net.Conn, error) {
	to := 0
	for _, b := range c.brokers {
		if b.peer == address {
			to = b.id
		}
	}
	c.mu.Lock()
	cut := c.isCut(from, to)
	c.mu.Unlock()
	if cut {
		return nil, fmt.Errorf("kafkatest: the connection from broker %d to %d is cut", from, to)
	}
	var d net.Dialer
	nc, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	l := &link{Conn: nc, c: c, a: from, b: to}
	c.mu.Lock()
	c.conns[l] = true
	c.mu.Unlock()
	return l, nil
}

// link is a connection between brokers that can be cut and slowed.
type link struct {
	net.Conn
	c    *Cluster
	a, b int
}

func (l *link) Write(p []byte) (int, error) {
	l.c.mu.Lock()
	delay := l.c.delay
	l.c.mu.Unlock()
	if delay > 0 {
		time.Sleep(delay)
	}
	return l.Conn.Write(p)
}

func (l *link) Close() error {
	l.c.mu.Lock()
	delete(l.c.conns, l)
	l.c.mu.Unlock()
	return l.Conn.Close()
}
