package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"logbook/engine/admission"
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
	listener      string           // the endpoint by which it came; "": the one that peers use too
	peer          replica.BrokerID // set by a peer's hello
	authenticated bool             // hello was said with the token, or need not be
	spoken        bool             // a request came
	explained     bool             // the other side is told why the connection ends
	place         *admission.Place
	slots         chan struct{}  // requests under way
	work          sync.WaitGroup // requests under way, and what is to be written
	closing       sync.Once
	ended         chan struct{} // everything is answered, and the connection closed

	owed   atomic.Int64 // bytes of replies that are not written yet
	mu     sync.Mutex
	outbox [][]byte // replies, for which memory was taken
	posted chan struct{}
	quiet  chan struct{} // closed when nothing more is to be written
}

// maxPipelined is how many requests of a session may be under way; the next is not read
// before one of them is answered.
const maxPipelined = 256

// strangerTimeout is how long a connection may take to ask for something, and to prove who it is.
const strangerTimeout = 10 * time.Second

// growth is how much memory a request takes when it is read, beyond its bytes: an empty
// record takes three of them, and a struct.
func growth(body []byte) int64 {
	return 24*int64(bytes.Count(body, []byte{','})) + 200*int64(bytes.Count(body, []byte{'{'}))
}

// welcome starts a session, or says why not.
func (b *Server) welcome(nc net.Conn, listener string) {
	if b.cfg.ServerTLS != nil {
		nc = tls.Server(nc, b.cfg.ServerTLS)
	}
	s := &session{
		b: b, net: nc, listener: listener, slots: make(chan struct{}, maxPipelined), ended: make(chan struct{}), posted: make(chan struct{}, 1), quiet: make(chan struct{}),
		authenticated: b.cfg.Token == "" && !b.mustProve(listener),
	}
	s.ctx, s.stop = context.WithCancel(b.ctx)
	s.drainCtx, s.cancelWaits = context.WithCancel(s.ctx)
	host, _, _ := net.SplitHostPort(nc.RemoteAddr().String())
	s.place = b.places.Enter(host, s.close)
	b.mu.Lock()
	refuse := ""
	switch {
	case b.draining:
		refuse = "the broker is shutting down"
	case s.place == nil:
		refuse = b.full()
	default:
		b.sessions[s] = true
		b.tasks.Add(1)
	}
	b.mu.Unlock()
	if refuse != "" {
		if s.place != nil {
			s.place.Leave()
		}
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
	if rh, ok := errors.AsType[tls.RecordHeaderError](err); ok && rh.Conn != nil {
		s.wantTLS(rh.Conn)
	}
	if errors.Is(err, io.EOF) || s.explained {
		s.cancelWaits() // half-closed, or about to be closed: replies can still be sent
	} else if s.drainCtx.Err() == nil { // it is gone; when the broker drains, it is not
		s.stop()
	}
	s.work.Wait()
	if s.explained {
		s.linger()
	}
	s.close()
	close(s.quiet)
	writer.Wait()
	close(s.ended)
	s.place.Leave()
	b.mu.Lock()
	delete(b.sessions, s)
	b.mu.Unlock()
	b.counters.count(func(c *Counters) { c.Connections-- })
	if err != nil && !errors.Is(err, io.EOF) && s.ctx.Err() == nil {
		b.cfg.Logger.Debug("a connection ended", "remote", s.net.RemoteAddr().String(), "error", err)
	}
}

// wantTLS tells a client that does not speak TLS to do so, in the words that it understands.
func (s *session) wantTLS(plain net.Conn) {
	_ = plain.SetWriteDeadline(time.Now().Add(time.Second))
	_ = wire.Write(plain, 0, "error", &wire.Error{Code: wire.BadRequest, Message: "this broker wants TLS; connect with TLS (--tls, or tls=true in an address)"}) // it may be gone
}

// lingering is how long, and lingeringBytes how much, a session still reads of what it has
// refused. A socket that is closed while bytes come in is reset, and the reset overtakes the
// explanation.
const (
	lingering      = 2 * time.Second
	lingeringBytes = 256 << 20
)

func (s *session) linger() {
	half, ok := s.net.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	_ = s.net.SetReadDeadline(time.Now().Add(lingering))
	_, _ = io.CopyN(io.Discard, s.net, lingeringBytes)
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
	limit, patience := s.b.cfg.MaxFrame, s.b.cfg.IdleTimeout
	if !s.authenticated {
		limit = 4096
	}
	if !s.authenticated || !s.spoken {
		patience = min(patience, strangerTimeout)
	}
	_ = s.net.SetReadDeadline(time.Now().Add(patience))
	n, err := wire.ReadLength(s.net, limit)
	if err != nil {
		return s.explain(err)
	}
	_ = s.net.SetReadDeadline(time.Now().Add(s.b.cfg.RequestTimeout))
	s.place.Hold(admission.In, 1)
	body, held, err := s.b.memory.Read(s.drainCtx, s.place.Reader(s.net), int64(n), 0)
	s.place.Hold(admission.In, 0)
	release := sync.OnceFunc(func() { s.b.memory.Give(held) })
	defer func() {
		if !begun {
			release()
		}
	}()
	if err != nil {
		return err
	}
	decoded := growth(body)
	if err := s.b.memory.Take(s.drainCtx, decoded, 0); err != nil {
		return s.explain(err)
	}
	held += decoded
	e, err := wire.Parse(body)
	if err != nil {
		return s.explain(err)
	}
	if !s.authenticated && e.Type != "hello" && e.Type != "vouch" {
		return s.explain(&wire.Error{Code: wire.Unauthorized, Message: "say hello with the token first"})
	}
	if !s.spoken && !s.mayStay(e) {
		return s.explain(&wire.Error{Code: wire.Unavailable, Message: s.b.full()})
	}
	begun, s.spoken = true, true
	s.work.Add(1)
	s.place.Begin()
	s.b.counters.request(e.Type)
	finished := func() {
		release()
		<-s.slots
		s.place.End()
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
			we := s.b.wireError(err)
			if we.Leader != 0 {
				we.Address = s.addressOf(we.Leader)
			}
			s.error(e.ID, we)
		} else {
			s.reply(e.ID, e.Type, s.addressed(reply))
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
	if tm, is := errors.AsType[*admission.TooMuchError](err); is {
		we, ok = &wire.Error{Code: wire.TooLarge, Message: tm.Error() + "; send less at a time"}, true
	}
	if fe, is := errors.AsType[*wire.FrameError](err); is {
		we, ok = &wire.Error{Code: wire.BadRequest, Message: fe.Error()}, true
	}
	if ok {
		s.b.counters.count(func(c *Counters) { c.BadFrames++ })
		s.explained = true
		s.error(0, we)
	}
	return err
}

// reply has a reply written.
func (s *session) reply(id uint64, kind string, payload any) {
	frame, err := wire.Append(nil, id, kind, payload)
	if err != nil {
		frame, _ = wire.Append(nil, id, "error", &wire.Error{Code: wire.Internal, Message: err.Error()}) // it has nothing that cannot be encoded
	}
	s.work.Add(1)
	s.b.memory.Use(int64(len(frame)))
	s.owed.Add(int64(len(frame)))
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
		s.place.Hold(admission.Out, s.owed.Load())
		err := s.send(frames)
		s.place.Hold(admission.Out, 0)
		s.written(frames)
		if err != nil {
			s.close() // half a reply may be out, or the client does not read
		}
	}
}

// together is how many bytes of replies go to the system in one call.
const together = 64 << 10

// send writes frames.
func (s *session) send(frames [][]byte) (err error) {
	size := 0
	for _, f := range frames {
		size += len(f)
	}
	if size <= together {
		buffers := net.Buffers(slices.Clone(frames))
		_, err = buffers.WriteTo(s.net)
		return err
	}
	w := s.place.Writer(s.net)
	for _, f := range frames {
		if _, err = w.Write(f); err != nil {
			return err
		}
	}
	return nil
}

// written gives back what replies took.
func (s *session) written(frames [][]byte) {
	for _, f := range frames {
		s.owed.Add(-int64(len(f)))
		s.b.memory.Give(int64(len(f)))
		s.work.Done()
	}
}

// discard gives up what was not written, now and later.
func (s *session) discard() {
	for {
		s.mu.Lock()
		frames := s.outbox
		s.outbox = nil
		s.mu.Unlock()
		s.written(frames)
		select {
		case <-s.posted:
		case <-s.quiet:
			return
		}
	}
}
