package broker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"logbook/engine/controller"
	"logbook/engine/replica"
	"logbook/engine/wire"
)

// link is this broker's connection to a peer: it carries replicas' messages one way, and
// calls. It is made again as often as it breaks.
type link struct {
	b       *Broker
	peer    replica.BrokerID
	address string
	queue   chan wire.Replica
	hurry   chan struct{} // check now

	mu   sync.Mutex
	conn *wire.Conn // nil while there is no contact
}

func newLink(b *Broker, peer replica.BrokerID, address string) *link {
	return &link{b: b, peer: peer, address: address, queue: make(chan wire.Replica, 4096), hurry: make(chan struct{}, 1)}
}

// send queues a message. Those that do not fit are lost, as on any network.
func (l *link) send(p controller.Partition, m replica.Message) error {
	if l.connection() == nil {
		return fmt.Errorf("no connection to broker %d at %s", l.peer, l.address)
	}
	select {
	case l.queue <- wire.Replica{Topic: p.Topic, Partition: p.ID, Message: m}:
		return nil
	default:
		return fmt.Errorf("broker %d does not keep up: %d messages wait for it", l.peer, cap(l.queue))
	}
}

func (l *link) connection() *wire.Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.conn
}

// call asks the peer something.
func (l *link) call(ctx context.Context, kind string, request, reply any) error {
	c := l.connection()
	if c == nil {
		return fmt.Errorf("no connection to broker %d at %s", l.peer, l.address)
	}
	return c.Call(ctx, kind, request, reply)
}

// soon makes the next check come at once.
func (l *link) soon() {
	select {
	case l.hurry <- struct{}{}:
	default:
	}
}

// run keeps the link up until the broker closes.
func (l *link) run() {
	for l.b.ctx.Err() == nil {
		c, err := l.connect()
		if err == nil {
			err = l.use(c)
			c.Close()
			l.mu.Lock()
			l.conn = nil
			l.mu.Unlock()
			l.b.node.Unreachable(l.peer, "the connection ended")
		}
		if l.b.ctx.Err() != nil {
			return
		}
		l.b.cfg.Logger.Debug("no contact with a peer", "peer", l.peer, "address", l.address, "error", err)
		l.b.dir.silent(l.peer)
		select {
		case <-l.b.ctx.Done():
		case <-time.After(l.b.cfg.HealthEvery):
		}
	}
}

func (l *link) connect() (*wire.Conn, error) {
	// A check must not take so long that a dead peer is found out late.
	ctx, cancel := context.WithTimeout(l.b.ctx, max(2*l.b.cfg.HealthEvery, 200*time.Millisecond))
	defer cancel()
	d := wire.Dialer{
		Hello: wire.Hello{Client: fmt.Sprint("logbook broker ", l.b.cfg.ID), Token: l.b.cfg.Token, Broker: l.b.cfg.ID},
		TLS:   l.b.cfg.PeerTLS, MaxFrame: 2 * l.b.cfg.MaxFrame, Dial: l.b.cfg.Dial,
	}
	c, err := d.Connect(ctx, l.address)
	if err != nil {
		return nil, err
	}
	if c.Server.Broker != l.peer {
		c.Close()
		return nil, fmt.Errorf("at %s is broker %d, not %d; check the lists of peers", l.address, c.Server.Broker, l.peer)
	}
	if err := l.check(c); err != nil {
		c.Close()
		return nil, err
	}
	for len(l.queue) > 0 {
		<-l.queue // of the connection before: too old to be of use
	}
	l.mu.Lock()
	l.conn = c
	l.mu.Unlock()
	return c, nil
}

// use sends what is queued, and checks the peer's health, until the connection fails.
func (l *link) use(c *wire.Conn) error {
	failed := make(chan error, 1)
	quit := make(chan struct{})
	defer close(quit)
	go func() {
		t := time.NewTicker(l.b.cfg.HealthEvery)
		defer t.Stop()
		for {
			select {
			case <-quit:
				return
			case <-t.C:
			case <-l.hurry:
			}
			if err := l.check(c); err != nil {
				failed <- err
				return
			}
		}
	}()
	for {
		select {
		case m := <-l.queue:
			ctx, cancel := context.WithTimeout(l.b.ctx, l.b.cfg.RequestTimeout)
			err := c.Send(ctx, "replica", m)
			cancel()
			if err != nil {
				return err
			}
		case err := <-failed:
			return err
		case <-c.Done():
			return c.Err()
		case <-l.b.ctx.Done():
			return context.Cause(l.b.ctx)
		}
	}
}

// check asks the peer for a sign of life.
func (l *link) check(c *wire.Conn) error {
	ctx, cancel := context.WithTimeout(l.b.ctx, max(2*l.b.cfg.HealthEvery, 200*time.Millisecond))
	defer cancel()
	var reply wire.PingReply
	if err := c.Call(ctx, "ping", l.b.dir.ping(), &reply); err != nil {
		return fmt.Errorf("health check: %w", err)
	}
	l.b.dir.answered(l.peer, reply)
	return nil
}

// everybody calls f for each peer at the same time.
func (b *Broker) everybody(f func(*link) error) error {
	var group sync.WaitGroup
	var mu sync.Mutex
	var problems []error
	for _, l := range b.links {
		group.Go(func() {
			if err := f(l); err != nil {
				mu.Lock()
				defer mu.Unlock()
				problems = append(problems, err)
			}
		})
	}
	group.Wait()
	return errors.Join(problems...)
}
