package server

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"logbook/engine/peer"
	"logbook/engine/replica"
	"logbook/engine/service"
	"logbook/engine/wire"
)

// link carries messages to a peer, one way: the peer has a link of its own back. It is made
// again as often as it breaks.
type link struct {
	b    *Server
	peer replica.BrokerID

	mu      sync.Mutex
	address string
	up      bool
	nonce   string // of the connection that is being made; "": none is
	queue   []service.PeerMessage
	size    int // of the frames of records in the queue
	changed chan struct{}
}

// What a link holds for a peer that does not keep up. What does not fit is lost, as on any network.
const (
	maxQueued      = 16_384
	maxQueuedBytes = 32 << 20
	// frameBytes is how much goes into a frame together.
	frameBytes = 1 << 20
)

func newLink(b *Server, peer replica.BrokerID, address string) *link {
	return &link{b: b, peer: peer, address: address, changed: make(chan struct{}, 1)}
}

func sizeOf(m service.PeerMessage) int {
	if r, ok := m.(service.ReplicaMessage); ok {
		return len(r.Message.Frames) + 100
	}
	return 1000
}

// where is the address at which the peer is looked for.
func (l *link) where() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.address
}

// move has the peer looked for at another address, the next time.
func (l *link) move(address string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.address = address
}

// send queues a message.
func (l *link) send(m service.PeerMessage) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !l.up:
		return fmt.Errorf("no connection to broker %d at %s", l.peer, l.address)
	case len(l.queue) >= maxQueued || l.size > maxQueuedBytes:
		return fmt.Errorf("broker %d does not keep up: %d messages wait for it", l.peer, len(l.queue))
	}
	l.queue = append(l.queue, m)
	l.size += sizeOf(m)
	select {
	case l.changed <- struct{}{}:
	default:
	}
	return nil
}

// take returns the messages that go into the next frame.
func (l *link) take() []service.PeerMessage {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, size := 0, 0
	for n < len(l.queue) && (n == 0 || size+sizeOf(l.queue[n]) <= frameBytes) {
		size += sizeOf(l.queue[n])
		n++
	}
	out := l.queue[:n:n]
	l.queue = l.queue[n:]
	l.size -= size
	return out
}

// set says whether there is a connection. What waited for the one before is too old to be of use.
func (l *link) set(up bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.up, l.queue, l.size = up, nil, 0
}

// run keeps the link up until the broker closes.
func (l *link) run() {
	for l.b.ctx.Err() == nil {
		c, err := l.connect()
		if err == nil {
			l.set(true)
			_ = l.send(l.b.service.Introduction())
			err = l.use(c)
			l.set(false)
			c.Close()
			l.b.service.Lost(l.peer, "the connection ended")
		}
		if l.b.ctx.Err() != nil {
			return
		}
		l.b.cfg.Logger.Debug("no contact with a peer", "peer", l.peer, "address", l.where(), "error", err)
		select {
		case <-l.b.ctx.Done():
		case <-time.After(l.b.cfg.HealthEvery / 2):
		}
	}
}

func (l *link) connect() (*wire.Conn, error) {
	ctx, cancel := context.WithTimeout(l.b.ctx, max(4*l.b.cfg.HealthEvery, 400*time.Millisecond))
	defer cancel()
	d := wire.Dialer{
		Hello: wire.Hello{Client: fmt.Sprint("logbook broker ", l.b.cfg.ID), Token: cmp.Or(l.b.cfg.PeerToken, l.b.cfg.Token), Broker: wire.BrokerID(l.b.cfg.ID), Nonce: l.begin()},
		TLS:   l.b.cfg.PeerTLS, Dial: l.b.cfg.Dial,
	}
	defer l.begun()
	address := l.where()
	c, err := d.Connect(ctx, address)
	if err != nil {
		return nil, err
	}
	if c.Server.Broker != wire.BrokerID(l.peer) {
		c.Close()
		return nil, fmt.Errorf("at %s is broker %d, not %d; check the lists of peers", address, c.Server.Broker, l.peer)
	}
	return c, nil
}

// use sends what is queued until the connection fails.
func (l *link) use(c *wire.Conn) error {
	var frame []byte
	for {
		messages := l.take()
		if len(messages) == 0 {
			select {
			case <-l.changed:
				continue
			case <-c.Done():
				return c.Err()
			case <-l.b.ctx.Done():
				return context.Cause(l.b.ctx)
			}
		}
		var err error
		if frame, err = peer.Append(frame[:0], messages...); err != nil {
			l.b.cfg.Logger.Error("a message to a peer cannot be encoded", "peer", l.peer, "error", err)
			continue
		}
		if err := c.WriteRaw(frame, time.Now().Add(l.b.cfg.RequestTimeout)); err != nil {
			return err
		}
		if cap(frame) > 4*frameBytes {
			frame = nil
		}
	}
}
