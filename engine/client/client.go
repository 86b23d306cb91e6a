// Package client speaks to a cluster of networked brokers: it finds leaders and
// coordinators, follows redirects, connects again with growing pauses, and tries again
// what may succeed later. Dial returns producers, consumers and members over it, the same
// as over a directory; a Client is the protocol's requests, one method each.
//
// A write whose connection broke may or may not have been stored; it is tried again, so
// records are stored at least once.
package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"logbook/engine/topic"
	"logbook/engine/wire"
)

// ErrClosed: the client, or what was made from it, was closed.
var ErrClosed = errors.New("client: closed")

// Options configure a client. Brokers must be set.
type Options struct {
	Brokers []string // host:port of some brokers; the others are found
	Name    string   // for the brokers' logs
	User    string   // whose password Token is; empty: nobody's
	Token   string
	TLS     *tls.Config
	// Timeout is the longest that one attempt may take, beyond what it asks to wait; 0 is 10 s.
	Timeout time.Duration
	// Patience is how long to try again what may succeed later; 0 is 30 s. A context that
	// ends earlier counts too.
	Patience time.Duration
	// Dial, if set, takes the place of net.Dialer.DialContext.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Client is a client of a cluster. It is safe for concurrent use, and keeps one connection
// to each broker that it has to do with.
//
// Every request may fail with ErrClosed, with the context's error, with a net.Error where no
// broker could be reached for as long as Options.Patience, and with a *wire.Error, of which
// each method lists the codes. Unavailable, NotLeader and NotCoordinator mean that it was so
// for that long; Unauthorized that Options.Token is not the brokers'.
type Client struct {
	opt Options
	ctx context.Context
	end context.CancelFunc

	mu      sync.Mutex
	conns   map[string]*wire.Conn
	dialing map[string]chan struct{}
	brokers []string // where to ask
	first   int      // of these, modulo their number: who answered last
	leaders map[wire.TopicPartition]string
	topics  map[string]wire.Topic
	coords  map[string]string
	epochs  map[wire.TopicPartition]int32 // the highest leader epochs heard of
	turns   topic.Turns
}

// New returns a client. It connects when it has something to ask.
//
// Errors: what is wrong with the options.
func New(opt Options) (*Client, error) {
	if len(opt.Brokers) == 0 {
		return nil, errors.New("client: no broker to connect to; give host:port of one at least")
	}
	opt.Brokers = slices.Clone(opt.Brokers)
	for i, b := range opt.Brokers {
		b = strings.TrimSpace(b) // as in "a:9400, b:9400"
		host, port, err := net.SplitHostPort(b)
		if n, perr := strconv.ParseUint(port, 10, 16); err != nil || perr != nil || n == 0 || host == "" {
			return nil, fmt.Errorf("client: broker %q is not host:port", b)
		}
		opt.Brokers[i] = b
	}
	if opt.Timeout == 0 {
		opt.Timeout = 10 * time.Second
	}
	if opt.Patience == 0 {
		opt.Patience = 30 * time.Second
	}
	if opt.Name == "" {
		opt.Name = "logbook go client"
	}
	c := &Client{
		opt: opt, conns: map[string]*wire.Conn{}, dialing: map[string]chan struct{}{}, brokers: slices.Clone(opt.Brokers),
		leaders: map[wire.TopicPartition]string{}, topics: map[string]wire.Topic{}, coords: map[string]string{}, epochs: map[wire.TopicPartition]int32{},
	}
	c.ctx, c.end = context.WithCancel(context.Background())
	return c, nil
}

// Close closes every connection. Calls under way fail with ErrClosed. It returns no error.
func (c *Client) Close() error {
	c.end()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		conn.Close()
	}
	return nil
}

// conn returns the connection to an address, making it if need be; who comes while it is
// made waits for it.
func (c *Client) conn(ctx context.Context, address string) (*wire.Conn, error) {
	for {
		c.mu.Lock()
		if c.ctx.Err() != nil {
			c.mu.Unlock()
			return nil, ErrClosed
		}
		if conn := c.conns[address]; conn != nil && conn.Err() == nil {
			c.mu.Unlock()
			return conn, nil
		}
		busy := c.dialing[address]
		if busy == nil {
			busy = make(chan struct{})
			c.dialing[address] = busy
			c.mu.Unlock()
			return c.dial(ctx, address, busy)
		}
		c.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (c *Client) dial(ctx context.Context, address string, busy chan struct{}) (*wire.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, min(c.opt.Timeout, helloTimeout))
	defer cancel()
	d := wire.Dialer{Hello: wire.Hello{Client: c.opt.Name, User: c.opt.User, Token: c.opt.Token}, TLS: c.opt.TLS, Dial: c.opt.Dial}
	conn, err := d.Connect(ctx, address)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.dialing, address)
	close(busy)
	if err != nil {
		if dns, ok := errors.AsType[*net.DNSError](err); ok && !slices.Contains(c.opt.Brokers, address) {
			return nil, fmt.Errorf("%s is what a broker gives as its own address, and %q is not known here; set its LOGBOOK_ADVERTISE to a name that is: %w", address, dns.Name, err)
		}
		return nil, err
	}
	if c.ctx.Err() != nil {
		conn.Close()
		return nil, ErrClosed
	}
	c.conns[address] = conn
	return conn, nil
}

// helloTimeout is how long a broker may take to answer the hello: the socket of one that hangs
// takes connections.
const helloTimeout = 2 * time.Second

// questionTimeout is how long any broker may take to say where things are.
const questionTimeout = 3 * time.Second

// at calls a broker. extra is what the request itself may wait.
func at[R any](ctx context.Context, c *Client, address, kind string, request any, extra time.Duration) (R, error) {
	var reply R // a fresh one for each attempt: nothing of an earlier one can show through
	conn, err := c.conn(ctx, address)
	if err != nil {
		return reply, err
	}
	timeout := c.opt.Timeout
	if kind == "metadata" || kind == "find_coordinator" {
		timeout = min(timeout, questionTimeout)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout+extra)
	defer cancel()
	err = conn.Call(ctx, kind, request, &reply)
	return reply, err
}

// attempt is one try of a call: where to send it, and what to learn from a failure.
type attempt struct {
	address func(ctx context.Context) (string, error)
	moved   func(address string) // the error names who to ask; "": it names nobody
}

// retry calls until it succeeds, fails for good, or patience or ctx end.
func retry[R any](ctx context.Context, c *Client, a attempt, kind string, request any, extra time.Duration) (R, error) {
	began := time.Now()
	deadline := began.Add(c.opt.Patience)
	redirects := 0
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		address, err := a.address(ctx)
		if err == nil {
			var reply R
			if reply, err = at[R](ctx, c, address, kind, request, extra); err == nil {
				return reply, nil
			}
		}
		var none R
		again, redirected := c.judge(err, a, began)
		switch {
		case c.ctx.Err() != nil:
			return none, ErrClosed
		case ctx.Err() != nil:
			return none, fmt.Errorf("%s: %w (the last attempt: %w)", kind, ctx.Err(), err)
		case !again:
			return none, err
		case time.Now().Add(pause).After(deadline):
			return none, fmt.Errorf("%s: no success in %v, the last attempt: %w", kind, c.opt.Patience, err)
		}
		if redirected {
			if redirects++; redirects == 1 {
				continue // to somebody else, at once; two that name each other are not asked so often
			}
		} else {
			redirects = 0
		}
		select { // not all at the same moment
		case <-time.After(pause/2 + rand.N(pause)):
		case <-ctx.Done():
		case <-c.ctx.Done():
		}
	}
}

// newTopicDelay is how long the news of a topic may take to come around.
const newTopicDelay = time.Second

// judge says whether an error may pass, and whether it named another broker to ask.
func (c *Client) judge(err error, a attempt, began time.Time) (again, redirected bool) {
	we, ok := errors.AsType[*wire.Error](err)
	switch {
	case errors.Is(err, ErrClosed):
		return false, false
	case !ok: // the network
		a.moved("")
		if _, ok := errors.AsType[*wire.StrangerError](err); ok {
			c.mu.Lock()
			defer c.mu.Unlock()
			return len(c.brokers) > 1, false // another may be one
		}
		return true, false
	case we.Code == wire.NotLeader || we.Code == wire.NotCoordinator:
		a.moved(we.Address)
		return true, we.Address != ""
	case we.Code == wire.UnknownTopic:
		// A topic that was just made may not have come around to all brokers.
		a.moved("")
		return time.Since(began) < newTopicDelay, false
	}
	if we.Temporary() {
		a.moved("")
	}
	return we.Temporary(), false
}

// anyBroker asks one broker after another, the one that answered last first.
func (c *Client) anyBroker() attempt {
	to := ""
	return attempt{
		address: func(context.Context) (string, error) {
			if to != "" {
				return to, nil
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.brokers[c.first%len(c.brokers)], nil
		},
		moved: func(address string) {
			if to = address; to == "" {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.first++
			}
		},
	}
}

// Metadata describes the cluster; without names, all topics.
//
// Errors: wire.UnknownTopic, and those of every request.
func (c *Client) Metadata(ctx context.Context, topics ...string) (wire.MetadataReply, error) {
	m, err := retry[wire.MetadataReply](ctx, c, c.anyBroker(), "metadata", wire.Metadata{Topics: topics}, 0)
	if err == nil {
		c.learn(m)
	}
	return m, err
}

// learn keeps what metadata say.
func (c *Client) learn(m wire.MetadataReply) {
	c.mu.Lock()
	defer c.mu.Unlock()
	addresses := map[wire.BrokerID]string{}
	for _, b := range m.Brokers {
		addresses[b.ID] = b.Address
		if b.Address != "" && !slices.Contains(c.brokers, b.Address) {
			c.brokers = append(c.brokers, b.Address)
		}
	}
	for _, t := range m.Topics {
		c.topics[t.Name] = t
		for i, p := range t.Partitions {
			tp := wire.TopicPartition{Topic: t.Name, Partition: i}
			if address := addresses[p.Leader]; address != "" && p.LeaderEpoch >= c.epochs[tp] {
				c.leaders[tp] = address
			}
		}
	}
}

// epoch returns the highest leader epoch heard of, after hearing of one more.
func (c *Client) epoch(topic string, id int, heard int32) int32 {
	p := wire.TopicPartition{Topic: topic, Partition: id}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.epochs[p] = max(c.epochs[p], heard)
	return c.epochs[p]
}

// leader asks a partition's leader.
func (c *Client) leader(topic string, id int) attempt {
	p := wire.TopicPartition{Topic: topic, Partition: id}
	return attempt{
		address: func(ctx context.Context) (string, error) {
			c.mu.Lock()
			address := c.leaders[p]
			c.mu.Unlock()
			if address != "" {
				return address, nil
			}
			m, err := c.Metadata(ctx, topic)
			if err != nil {
				return "", err
			}
			if n := len(m.Topics[0].Partitions); id < 0 || id >= n {
				return "", &wire.Error{Code: wire.UnknownPartition, Message: fmt.Sprintf("topic %q has partitions 0 to %d, and no partition %d", topic, n-1, id)}
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			if address = c.leaders[p]; address == "" {
				return "", &wire.Error{Code: wire.Unavailable, Message: fmt.Sprintf("nobody leads %s/%d at the moment", topic, id)}
			}
			return address, nil
		},
		moved: func(address string) {
			c.mu.Lock()
			defer c.mu.Unlock()
			if address == "" {
				delete(c.leaders, p)
				return
			}
			c.leaders[p] = address
		},
	}
}

// coordinator asks a group's coordinator.
func (c *Client) coordinator(name string) attempt {
	return attempt{
		address: func(ctx context.Context) (string, error) {
			c.mu.Lock()
			address := c.coords[name]
			c.mu.Unlock()
			if address != "" {
				return address, nil
			}
			r, err := retry[wire.FindCoordinatorReply](ctx, c, c.anyBroker(), "find_coordinator", wire.FindCoordinator{Group: name}, 0)
			if err != nil {
				return "", err
			}
			c.mu.Lock()
			c.coords[name] = r.Broker.Address
			c.mu.Unlock()
			return r.Broker.Address, nil
		},
		moved: func(address string) {
			c.mu.Lock()
			defer c.mu.Unlock()
			if address == "" {
				delete(c.coords, name)
				return
			}
			c.coords[name] = address
		},
	}
}

// broker asks one broker, by its id.
func (c *Client) broker(id wire.BrokerID) attempt {
	return attempt{
		address: func(ctx context.Context) (string, error) {
			m, err := c.Metadata(ctx)
			if err != nil {
				return "", err
			}
			for _, b := range m.Brokers {
				if b.ID == id {
					return b.Address, nil
				}
			}
			return "", &wire.Error{Code: wire.BadRequest, Message: fmt.Sprintf("the cluster has no broker %d", id)}
		},
		moved: func(string) {},
	}
}
