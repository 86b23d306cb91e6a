package broker

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

	"logbook/engine/replica"
	"logbook/engine/wire"
)

// session is a client's or a peer's connection. One goroutine reads requests; each is
// answered by another, but appends, which have one for each partition, so that their
// order stays.
type session struct {
	b    *Broker
	net  net.Conn
	ctx  context.Context // ends when the session is closed
	stop context.CancelFunc
	soon context.Context // ends when the broker drains: long waits end early
	hush context.CancelFunc

	peer   replica.BrokerID // set by a hello with the token
	said   bool             // hello was said, or need not be
	slots  chan struct{}    // requests under way
	work   sync.WaitGroup
	lanes  map[string]*lane
	laneMu sync.Mutex

	writing sync.Mutex
	closing sync.Once
	ended   chan struct{} // everything is answered, and the connection closed
}

// maxPipelined is how many requests of a session may be under way; the next is not read
// before one of them is answered.
const maxPipelined = 256

// welcome starts a session, or says why not.
func (b *Broker) welcome(nc net.Conn) {
	if b.cfg.ServerTLS != nil {
		nc = tls.Server(nc, b.cfg.ServerTLS)
	}
	s := &session{b: b, net: nc, slots: make(chan struct{}, maxPipelined), lanes: map[string]*lane{}, ended: make(chan struct{}), said: b.cfg.Token == ""}
	s.ctx, s.stop = context.WithCancel(b.ctx)
	s.soon, s.hush = context.WithCancel(s.ctx)
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
			s.error(0, &wire.Error{Code: wire.Unavailable, Message: refuse})
			s.close()
		}()
		return
	}
	b.counters.count(func(c *Counters) { c.Connections++ })
	go func() {
		defer b.tasks.Done()
		err := s.serve()
		if errors.Is(err, io.EOF) {
			s.hush() // it asks no more, and may still listen
		} else if s.soon.Err() == nil { // it is gone; when the broker drains, it is not
			s.stop()
		}
		s.work.Wait()
		s.close()
		close(s.ended)
		b.mu.Lock()
		delete(b.sessions, s)
		b.mu.Unlock()
		b.counters.count(func(c *Counters) { c.Connections-- })
		if err != nil && !errors.Is(err, io.EOF) && s.ctx.Err() == nil {
			b.cfg.Logger.Debug("a connection ended", "remote", nc.RemoteAddr().String(), "error", err)
		}
	}()
}

func (s *session) close() {
	s.closing.Do(func() {
		s.stop()
		s.net.Close()
	})
}

// finish lets the requests under way be answered, at most until the deadline, and closes.
func (s *session) finish(deadline time.Time) {
	s.hush()
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

// next reads one request and begins to answer it.
func (s *session) next() (err error) {
	begun := false
	defer func() {
		if !begun {
			<-s.slots
		}
	}()
	if s.soon.Err() != nil {
		return io.EOF // the broker drains
	}
	_ = s.net.SetReadDeadline(time.Now().Add(s.b.cfg.IdleTimeout))
	limit := s.b.cfg.MaxFrame
	if s.peer != replica.None {
		limit *= 2 // a peer's frames hold batches in base64
	}
	if !s.said {
		limit = 4096
	}
	n, err := wire.ReadLength(s.net, limit)
	if err != nil {
		return s.explain(err)
	}
	// The memory is taken from what all connections share. Who has to wait for it does so
	// before it sends.
	if err := s.b.memory.take(s.soon, int64(n)); err != nil {
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
	if !s.said && e.Type != "hello" {
		return s.explain(&wire.Error{Code: wire.Unauthorized, Message: "say hello with the token first"})
	}
	begun = true
	finished := func() {
		release()
		<-s.slots
		s.work.Done()
	}
	s.work.Add(1)
	s.b.counters.request(e.Type)
	switch e.Type {
	case "hello":
		defer finished()
		return s.hello(e)
	case "replica":
		defer finished()
		return s.replica(e)
	case "produce":
		s.produce(e, finished)
		return nil
	}
	go func() {
		defer finished()
		s.answer(e)
	}()
	return nil
}

// explain tells the other side why the connection ends, as far as it may still listen.
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
	if token := s.b.cfg.Token; token != "" && subtle.ConstantTimeCompare([]byte(h.Token), []byte(token)) != 1 {
		we := &wire.Error{Code: wire.Unauthorized, Message: "the token is not the broker's"}
		s.error(e.ID, we)
		return we
	}
	s.said = true
	if _, known := s.b.links[h.Broker]; known {
		s.peer = h.Broker
	}
	s.reply(e.ID, e.Type, wire.HelloReply{Broker: s.b.cfg.ID, Version: wire.Version})
	return nil
}

// replica hands a peer's message to its replica.
func (s *session) replica(e wire.Envelope) error {
	var m wire.Replica
	if err := json.Unmarshal(e.Payload, &m); err != nil {
		return s.explain(&wire.FrameError{Reason: "a replica's message that cannot be read", Err: err})
	}
	if s.peer == replica.None || m.Message.From != s.peer || m.Message.To != s.b.cfg.ID {
		return s.explain(&wire.Error{Code: wire.Unauthorized, Message: "replicas' messages are for the cluster's brokers"})
	}
	s.b.node.Deliver(partition(m.Topic, m.Partition), m.Message)
	return nil
}

// answer carries a request out.
func (s *session) answer(e wire.Envelope) {
	h, ok := handlers[e.Type]
	switch {
	case !ok:
		s.error(e.ID, &wire.Error{Code: wire.BadRequest, Message: fmt.Sprintf("there is no request %q in version %d", e.Type, wire.Version)})
		return
	case h.peer && s.peer == replica.None:
		s.error(e.ID, &wire.Error{Code: wire.Unauthorized, Message: fmt.Sprintf("%q is for the cluster's brokers", e.Type)})
		return
	}
	out, err := h.do(s, e.Payload)
	if err != nil {
		s.error(e.ID, s.b.WireError(err))
		return
	}
	s.reply(e.ID, e.Type, out)
}

func (s *session) reply(id uint64, kind string, payload any) {
	s.writing.Lock()
	defer s.writing.Unlock()
	_ = s.net.SetWriteDeadline(time.Now().Add(s.b.cfg.RequestTimeout))
	if err := wire.Write(s.net, id, kind, payload); err != nil {
		s.close() // half a reply may be out, or the client does not read
	}
}

func (s *session) error(id uint64, we *wire.Error) {
	s.b.counters.count(func(c *Counters) { c.Errors[string(we.Code)]++ })
	s.reply(id, "error", we)
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
