package server

import (
	"bytes"
	"context"
	"crypto/subtle"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"logbook/engine/peer"
	"logbook/engine/replica"
	"logbook/engine/wire"
)

// session is a client's or a peer's connection. One goroutine reads requests and begins
// them, in their order; another writes the replies as they come.
type session struct {
	b             *Server
	net           net.Conn
	ctx           context.Context // ends when the session is closed
	stop          context.CancelFunc
	drainCtx      context.Context // ends when the broker drains: long waits end early
	cancelWaits   context.CancelFunc
	peer          replica.BrokerID // set by a peer's hello
	authenticated bool             // hello was said with the token, or need not be
	slots         chan struct{}    // requests under way
	work          sync.WaitGroup   // requests under way, and what is to be written
	closing       sync.Once
	ended         chan struct{} // everything is answered, and the connection closed

	mu     sync.Mutex
	outbox [][]byte
	posted chan struct{}
	quiet  chan struct{} // closed when nothing more is to be written
}

// maxPipelined is how many requests of a session may be under way; the next is not read
// before one of them is answered.
const maxPipelined = 256

// welcome starts a session, or says why not.
func (b *Server) welcome(nc net.Conn) {
	if b.cfg.ServerTLS != nil {
		nc = tls.Server(nc, b.cfg.ServerTLS)
	}
	s := &session{
		b: b, net: nc, slots: make(chan struct{}, maxPipelined), ended: make(chan struct{}), posted: make(chan struct{}, 1), quiet: make(chan struct{}),
		authenticated: b.cfg.Token == "",
	}
	s.ctx, s.stop = context.WithCancel(b.ctx)
	s.drainCtx, s.cancelWaits = context.WithCancel(s.ctx)
	b.mu.Lock()
	refuse := ""
	switch {
	case b.draining:
		refuse = "the broker is shutting down"
	case len(b.sessions) >= b.cfg.MaxConnections:
		refuse = fmt.Sprintf("there are %d connections, the limit; close some, or raise it", b.cfg.MaxConnections)
	default:
		b.sessions[s] = true
		b.tasks.Add(1)
	}
	b.mu.Unlock()
	if refuse != "" {
		b.counters.count(func(c *Counters) { c.Refused++ })
		go func() {
			_ = nc.SetWriteDeadline(time.Now().Add(b.cfg.RequestTimeout))
			_ = wire.Write(nc, 0, "error", &wire.Error{Code: wire.Unavailable, Message: refuse}) // it may be gone
			nc.Close()
		}()
		return
	}
	b.counters.count(func(c *Counters) { c.Connections++ })
	go s.live()
}

// live serves the session to its end.
func (s *session) live() {
	b := s.b
	defer b.tasks.Done()
	var writer sync.WaitGroup
	writer.Go(s.write)
	err := s.serve()
	if errors.Is(err, io.EOF) {
		s.cancelWaits() // half-closed: replies can still be sent
	} else if s.drainCtx.Err() == nil { // it is gone; when the broker drains, it is not
		s.stop()
	}
	s.work.Wait()
	s.close()
	close(s.quiet)
	writer.Wait()
	close(s.ended)
	b.mu.Lock()
	delete(b.sessions, s)
	b.mu.Unlock()
	b.counters.count(func(c *Counters) { c.Connections-- })
	if err != nil && !errors.Is(err, io.EOF) && s.ctx.Err() == nil {
		b.cfg.Logger.Debug("a connection ended", "remote", s.net.RemoteAddr().String(), "error", err)
	}
}

func (s *session) close() {
	s.closing.Do(func() {
		s.stop()
		s.net.Close()
	})
}

// finish lets the requests under way be answered, at most until the deadline, and closes.
func (s *session) finish(deadline time.Time) {
	s.cancelWaits()
	_ = s.net.SetReadDeadline(time.Unix(1, 0)) // nothing more is read
	select {
	case <-s.ended:
	case <-time.After(time.Until(deadline)):
		s.close()
	}
}

// serve reads requests until the connection ends or is not worth keeping.
func (s *session) serve() error {
	for {
		if s.peer != replica.None {
			return s.hear()
		}
		select {
		case s.slots <- struct{}{}:
		case <-s.ctx.Done():
			return nil
		}
		if err := s.next(); err != nil {
			return err
		}
	}
}

// hear takes a peer's messages.
func (s *session) hear() error {
	for {
		_ = s.net.SetReadDeadline(time.Now().Add(s.b.cfg.IdleTimeout))
		messages, err := peer.Read(s.net, peer.MaxFrame)
		if err != nil {
			if fe, ok := errors.AsType[*peer.FrameError](err); ok {
				s.b.counters.count(func(c *Counters) { c.BadFrames++ })
				s.b.cfg.Logger.Warn("a peer said what cannot be read", "peer", s.peer, "error", fe)
			}
			return err
		}
		s.b.counters.peer(len(messages))
		for _, m := range messages {
			s.b.service.Deliver(s.peer, m)
		}
	}
}

// next reads one request and begins it.
func (s *session) next() (err error) {
	begun := false
	defer func() {
		if !begun {
			<-s.slots
		}
	}()
	if s.drainCtx.Err() != nil {
		return io.EOF // the broker drains
	}
	_ = s.net.SetReadDeadline(time.Now().Add(s.b.cfg.IdleTimeout))
	limit := s.b.cfg.MaxFrame
	if !s.authenticated {
		limit = 4096
	}
	n, err := wire.ReadLength(s.net, limit)
	if err != nil {
		return s.explain(err)
	}
	// The memory is taken from what all connections share. Who has to wait for it does so
	// before it sends.
	if err := s.b.memory.take(s.drainCtx, int64(n)); err != nil {
		return err
	}
	release := sync.OnceFunc(func() { s.b.memory.give(int64(n)) })
	defer func() {
		if !begun {
			release()
		}
	}()
	_ = s.net.SetReadDeadline(time.Now().Add(s.b.cfg.RequestTimeout))
	var body bytes.Buffer
	if err := wire.ReadBody(s.net, n, &body); err != nil {
		return err
	}
	e, err := wire.Parse(body.Bytes())
	if err != nil {
		return s.explain(err)
	}
	if !s.authenticated && e.Type != "hello" {
		return s.explain(&wire.Error{Code: wire.Unauthorized, Message: "say hello with the token first"})
	}
	begun = true
	s.work.Add(1)
	s.b.counters.request(e.Type)
	finished := func() {
		release()
		<-s.slots
		s.work.Done()
	}
	if e.Type == "hello" {
		defer finished()
		return s.hello(e)
	}
	s.begin(e, finished)
	return nil
}

// begin begins a request. Its reply is written when it comes.
func (s *session) begin(e wire.Envelope, finished func()) {
	h, ok := handlers[e.Type]
	if !ok {
		s.error(e.ID, &wire.Error{Code: wire.BadRequest, Message: fmt.Sprintf("there is no request %q in version %d", e.Type, wire.Version)})
		finished()
		return
	}
	h(s, e.Payload, func(reply any, err error) {
		if err != nil {
			s.error(e.ID, s.b.wireError(err))
		} else {
			s.reply(e.ID, e.Type, reply)
		}
		finished()
	})
}

// explain tells the other side why the connection ends, if replies can still be sent.
func (s *session) explain(err error) error {
	we, ok := errors.AsType[*wire.Error](err)
	if tl, is := errors.AsType[*wire.FrameTooLargeError](err); is {
		we, ok = &wire.Error{Code: wire.TooLarge, Message: tl.Error()}, true
	}
	if fe, is := errors.AsType[*wire.FrameError](err); is {
		we, ok = &wire.Error{Code: wire.BadRequest, Message: fe.Error()}, true
	}
	if ok {
		s.b.counters.count(func(c *Counters) { c.BadFrames++ })
		s.error(0, we)
	}
	return err
}

func (s *session) hello(e wire.Envelope) error {
	var h wire.Hello
	if err := json.Unmarshal(e.Payload, &h); err != nil {
		return s.explain(&wire.FrameError{Reason: "a hello that cannot be read", Err: err})
	}
	token, whose := s.b.cfg.Token, "broker's"
	_, known := s.b.links[replica.BrokerID(h.Broker)]
	if h.Broker != 0 {
		if !known {
			we := &wire.Error{Code: wire.Unauthorized, Message: fmt.Sprintf("broker %d is not one of broker %d's peers; check the lists of peers", h.Broker, s.b.cfg.ID)}
			s.error(e.ID, we)
			return we
		}
		token, whose = s.b.cfg.PeerToken, "brokers' own"
	}
	if token != "" && subtle.ConstantTimeCompare([]byte(h.Token), []byte(token)) != 1 {
		we := &wire.Error{Code: wire.Unauthorized, Message: "the token is not the " + whose}
		s.error(e.ID, we)
		return we
	}
	s.authenticated = true
	s.reply(e.ID, e.Type, wire.HelloReply{Broker: wire.BrokerID(s.b.cfg.ID), Version: wire.Version})
	if known {
		s.b.mu.Lock()
		s.peer = replica.BrokerID(h.Broker) // from here on it speaks the brokers' protocol
		s.b.mu.Unlock()
	}
	return nil
}

// reply has a reply written.
func (s *session) reply(id uint64, kind string, payload any) {
	frame, err := wire.Append(nil, id, kind, payload)
	if err != nil {
		frame, _ = wire.Append(nil, id, "error", &wire.Error{Code: wire.Internal, Message: err.Error()}) // it has nothing that cannot be encoded
	}
	s.work.Add(1)
	s.mu.Lock()
	s.outbox = append(s.outbox, frame)
	s.mu.Unlock()
	select {
	case s.posted <- struct{}{}:
	default:
	}
}

func (s *session) error(id uint64, we *wire.Error) {
	s.b.counters.count(func(c *Counters) { c.Errors[string(we.Code)]++ })
	s.reply(id, "error", we)
}

// write writes replies until the session is closed.
func (s *session) write() {
	for {
		s.mu.Lock()
		frames := s.outbox
		s.outbox = nil
		s.mu.Unlock()
		if len(frames) == 0 {
			select {
			case <-s.posted:
				continue
			case <-s.ctx.Done():
				s.discard()
				return
			case <-s.quiet:
				return
			}
		}
		_ = s.net.SetWriteDeadline(time.Now().Add(s.b.cfg.RequestTimeout))
		buffers := net.Buffers(frames)
		n := len(frames)
		_, err := buffers.WriteTo(s.net)
		for range n {
			s.work.Done()
		}
		if err != nil {
			s.close() // half a reply may be out, or the client does not read
		}
	}
}

// discard gives up what was not written, now and later.
func (s *session) discard() {
	for {
		s.mu.Lock()
		n := len(s.outbox)
		s.outbox = nil
		s.mu.Unlock()
		for range n {
			s.work.Done()
		}
		select {
		case <-s.posted:
		case <-s.quiet:
			return
		}
	}
}

// budget is memory that many share.
type budget struct {
	mu      sync.Mutex
	free    int64
	changed chan struct{}
}

func newBudget(n int64) *budget { return &budget{free: n, changed: make(chan struct{})} }

// take waits until n bytes are free.
func (m *budget) take(ctx context.Context, n int64) error {
	for {
		m.mu.Lock()
		if m.free >= n {
			m.free -= n
			m.mu.Unlock()
			return nil
		}
		changed := m.changed
		m.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (m *budget) give(n int64) {
	m.mu.Lock()
	m.free += n
	close(m.changed)
	m.changed = make(chan struct{})
	m.mu.Unlock()
}
