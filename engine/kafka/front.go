package kafka

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"logbook/engine/admission"
	_ "logbook/engine/record/compression" // whatever a client has chosen can be checked
	"logbook/engine/service"
)

// EndpointName is what brokers call their Kafka listener when they tell each other where it is.
const EndpointName = "kafka"

// ExternalEndpointName is what they call a second one, for clients to which brokers have other addresses.
const ExternalEndpointName = "kafka, external"

// Config configures a Front. Service must be set; every other zero value is usable.
type Config struct {
	Service *service.Service
	Logger  *slog.Logger
	// Token, if set, is the password that clients must give by SASL PLAIN.
	Token string
	// Authenticate asks all clients to prove who they are, as a user or with Token. It is so
	// where there is a Token.
	Authenticate bool
	// ExternalAuthenticate is that for clients of the external listener.
	ExternalAuthenticate bool
	TLS                  *tls.Config // nil: no TLS

	// AutoCreate makes topics that clients ask for, with so many partitions; 0 is 1.
	AutoCreate bool
	Partitions int

	MaxConnections int               // 0 is 4096
	MaxRequest     int64             // bytes; 0 is 100 MiB
	Memory         *admission.Memory // for requests and replies under way; nil is 256 MiB
	IdleTimeout    time.Duration     // 0 is 10 min
	RequestTimeout time.Duration     // to send a request's bytes, or take a reply's; 0 is 30 s
}

// Front serves Kafka clients.
type Front struct {
	cfg    Config
	svc    *service.Service
	places *admission.Places
	ctx    context.Context // ends when the front is closed
	stop   context.CancelFunc
	drain  context.Context // ends when it drains: what waits is answered with what there is
	hurry  context.CancelFunc
	counts [128]atomic.Int64 // requests, by key

	sessions fetchSessions

	mu     sync.Mutex
	conns  map[*conn]bool
	closed bool
	work   sync.WaitGroup
}

// New returns a front of a service.
func New(cfg Config) *Front {
	cfg.Partitions = cmp.Or(cfg.Partitions, 1)
	cfg.MaxConnections = cmp.Or(cfg.MaxConnections, 4096)
	cfg.MaxRequest = cmp.Or(cfg.MaxRequest, 100<<20)
	if cfg.Memory == nil {
		cfg.Memory = admission.NewMemory(256 << 20)
	}
	cfg.IdleTimeout = cmp.Or(cfg.IdleTimeout, 10*time.Minute)
	cfg.RequestTimeout = cmp.Or(cfg.RequestTimeout, 30*time.Second)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	f := &Front{cfg: cfg, svc: cfg.Service, places: admission.NewPlaces(cfg.MaxConnections, time.Now), conns: map[*conn]bool{}}
	f.ctx, f.stop = context.WithCancel(context.Background())
	f.drain, f.hurry = context.WithCancel(f.ctx)
	return f
}

// mustProve reports whether clients of a listener are asked who they are, also without a token.
func (f *Front) mustProve(listener string) bool {
	return f.cfg.Authenticate || listener == ExternalEndpointName && f.cfg.ExternalAuthenticate
}

// Relieve ends a connection that holds memory for nothing; see admission.Places.
func (f *Front) Relieve() bool { return f.places.Relieve() }

// Serve serves the connections that a listener accepts until it is closed.
func (f *Front) Serve(ln net.Listener) error { return f.ServeAs(ln, EndpointName) }

// ServeAs is Serve on a listener of another name: its clients are told where the brokers'
// listeners of that name are.
func (f *Front) ServeAs(ln net.Listener, name string) error {
	for {
		nc, err := ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil { // out of descriptors, most likely: those who are here are served on
			f.cfg.Logger.Error("cannot accept a Kafka connection", "error", err)
			time.Sleep(50 * time.Millisecond)
			continue
		}
		f.welcome(nc, name)
	}
}

func (f *Front) welcome(nc net.Conn, name string) {
	host, _, _ := net.SplitHostPort(nc.RemoteAddr().String())
	if f.cfg.TLS != nil {
		nc = tls.Server(nc, f.cfg.TLS)
	}
	c := &conn{f: f, net: nc, listener: name, in: bufio.NewReaderSize(nc, 64<<10), out: make(chan *slot, maxPipelined), trusted: f.cfg.Token == "" && !f.mustProve(name), host: host}
	if c.place = f.places.Enter(host, func() { nc.Close() }); c.place == nil {
		nc.Close()
		return
	}
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		c.place.Leave()
		nc.Close()
		return
	}
	f.conns[c] = true
	f.work.Add(1)
	f.mu.Unlock()
	go func() {
		defer f.work.Done()
		err := c.serve()
		c.endSession()
		nc.Close()
		c.place.Leave()
		f.mu.Lock()
		delete(f.conns, c)
		f.mu.Unlock()
		if err != nil && !errors.Is(err, errHandled) {
			f.cfg.Logger.Debug("a Kafka connection ended", "remote", nc.RemoteAddr().String(), "client", c.name, "error", err)
		}
	}()
}

// patience is how long a connection may say nothing: one that has to prove who it is, not long.
func (f *Front) patience(c *conn) time.Duration {
	if c.trusted && c.spoken {
		return f.cfg.IdleTimeout
	}
	return min(f.cfg.IdleTimeout, 10*time.Second)
}

func (f *Front) count(key int16) {
	if key >= 0 && int(key) < len(f.counts) {
		f.counts[key].Add(1)
	}
}

// Requests counts the requests that came, by name.
func (f *Front) Requests() map[string]int64 {
	out := map[string]int64{}
	for i := range f.counts {
		if n := f.counts[i].Load(); n > 0 {
			out[kmsg.NameForKey(int16(i))] = n
		}
	}
	return out
}

// Connections counts those that are open.
func (f *Front) Connections() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.conns)
}

// Drain reads no more requests, and returns when those under way are answered, or ctx ends.
func (f *Front) Drain(ctx context.Context) {
	f.hurry()
	f.mu.Lock()
	f.closed = true
	for c := range f.conns {
		_ = c.net.SetReadDeadline(time.Unix(1, 0))
	}
	f.mu.Unlock()
	done := make(chan struct{})
	go func() { f.work.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// Close ends every connection.
func (f *Front) Close() {
	f.stop()
	f.mu.Lock()
	f.closed = true
	for c := range f.conns {
		c.net.Close()
	}
	f.mu.Unlock()
	f.work.Wait()
}

// await turns a request with a callback into a call.
func await[T any](begin func(done func(T))) T {
	result := make(chan T, 1)
	begin(func(v T) { result <- v })
	return <-result
}

// outcome is a value or an error.
type outcome[T any] struct {
	value T
	err   error
}

func awaitErr[T any](begin func(done func(T, error))) (T, error) {
	o := await(func(done func(outcome[T])) { begin(func(v T, err error) { done(outcome[T]{v, err}) }) })
	return o.value, o.err
}
