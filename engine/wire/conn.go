package wire

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// ErrConnClosed: the connection ended before the reply came. Whether the request was
// carried out is not known.
var ErrConnClosed = errors.New("wire: the connection ended")

// Dialer says how to connect to a broker. The zero value is usable.
type Dialer struct {
	Hello Hello
	TLS   *tls.Config // nil: no TLS
	// Silent says no hello: the requests that need none can be sent.
	Silent bool
	// MaxFrame limits replies; 0 is twice DefaultMaxFrame.
	MaxFrame int
	// Dial, if set, takes the place of net.Dialer.DialContext.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Conn is a client's connection to a broker. Any number of calls may be under way at the
// same time. A goroutine reads replies until the connection ends.
type Conn struct {
	net      net.Conn
	maxFrame int
	Server   HelloReply // who answered the hello

	writing sync.Mutex // one frame at a time

	mu      sync.Mutex
	next    uint64
	waiting map[uint64]chan Envelope
	failed  error
	done    chan struct{}
}

// Connect connects and says hello. ctx bounds both.
func (d Dialer) Connect(ctx context.Context, address string) (*Conn, error) {
	dial := d.Dial
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	nc, err := dial(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	if d.TLS != nil {
		cfg := d.TLS.Clone()
		if cfg.ServerName == "" {
			cfg.ServerName, _, _ = net.SplitHostPort(address)
		}
		tc := tls.Client(nc, cfg)
		if err := tc.HandshakeContext(ctx); err != nil {
			nc.Close()
			if s := stranger(address, err); s != nil {
				return nil, s
			}
			return nil, fmt.Errorf("wire: TLS with %s: %w", address, err)
		}
		nc = tc
	}
	c := &Conn{net: nc, maxFrame: d.MaxFrame, waiting: map[uint64]chan Envelope{}, done: make(chan struct{})}
	if c.maxFrame == 0 {
		c.maxFrame = 2 * DefaultMaxFrame
	}
	go c.read()
	if d.Silent {
		return c, nil
	}
	if err := c.call(ctx, "hello", d.Hello, &c.Server, '\n'); err != nil {
		c.Close()
		if s := stranger(address, err); s != nil {
			return nil, s
		}
		if errors.Is(err, ErrConnClosed) && d.TLS == nil {
			err = fmt.Errorf("%w (does it want TLS?)", err)
		}
		return nil, fmt.Errorf("wire: hello to %s: %w", address, err)
	}
	return c, nil
}

func (c *Conn) read() {
	for {
		e, err := Read(c.net, c.maxFrame)
		if err != nil {
			c.fail(fmt.Errorf("%w: %w", ErrConnClosed, err))
			return
		}
		c.mu.Lock()
		answer := c.waiting[e.ID]
		delete(c.waiting, e.ID)
		c.mu.Unlock()
		if answer != nil {
			answer <- e
		} else if e.ID == 0 && e.Type == "error" { // the broker says why it hangs up
			var we Error
			if json.Unmarshal(e.Payload, &we) == nil {
				c.fail(&we)
			}
		}
	}
}

func (c *Conn) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed != nil {
		return
	}
	c.failed = err
	close(c.done)
	c.net.Close()
}

// Done is closed when the connection has ended.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err says why the connection ended; nil while it lives.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failed
}

// Close ends the connection; calls under way get ErrConnClosed.
func (c *Conn) Close() error {
	c.fail(ErrConnClosed)
	return nil
}

// Call sends a request and waits for its reply, which it decodes into reply unless that
// is nil. An error reply is an *Error.
func (c *Conn) Call(ctx context.Context, kind string, request, reply any) error {
	return c.call(ctx, kind, request, reply)
}

// call is Call with something after the JSON: the line that an HTTP server waits for would
// not end, and nobody would learn that it is one.
func (c *Conn) call(ctx context.Context, kind string, request, reply any, after ...byte) error {
	answer := make(chan Envelope, 1)
	c.mu.Lock()
	if c.failed != nil {
		c.mu.Unlock()
		return c.failed
	}
	c.next++
	id := c.next
	c.waiting[id] = answer
	c.mu.Unlock()
	if err := c.write(ctx, id, kind, request, after); err != nil {
		return err
	}
	select {
	case e := <-answer:
		return decode(e, kind, reply)
	case <-ctx.Done():
		c.mu.Lock()
		delete(c.waiting, id)
		c.mu.Unlock()
		return ctx.Err()
	case <-c.done:
		select {
		case e := <-answer: // it came before the connection ended
			return decode(e, kind, reply)
		default:
			return c.Err()
		}
	}
}

func (c *Conn) write(ctx context.Context, id uint64, kind string, payload any, after []byte) error {
	frame, err := Append(nil, id, kind, payload)
	if err != nil {
		return err
	}
	frame = append(frame, after...)
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Time{}
	}
	return c.WriteRaw(frame, deadline)
}

// WriteRaw writes bytes of another protocol, once the hello has been said and the other
// side knows that they come. A zero deadline is none.
func (c *Conn) WriteRaw(frame []byte, deadline time.Time) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	_ = c.net.SetWriteDeadline(deadline) // fails only where the write will
	if _, err := c.net.Write(frame); err != nil {
		c.fail(fmt.Errorf("%w: %w", ErrConnClosed, err)) // half a frame may be out
		return c.Err()
	}
	return nil
}

func decode(e Envelope, kind string, reply any) error {
	switch {
	case e.Type == "error":
		we := &Error{}
		if err := json.Unmarshal(e.Payload, we); err != nil {
			return &FrameError{Reason: "an error reply that cannot be read", Err: err}
		}
		return we
	case e.Type != kind:
		return &FrameError{Reason: fmt.Sprintf("a reply of type %q to a %q", e.Type, kind)}
	case reply == nil:
		return nil
	}
	if err := Unmarshal(e.Payload, reply); err != nil {
		return &FrameError{Reason: "a reply to " + kind + " that cannot be read", Err: err}
	}
	return nil
}
