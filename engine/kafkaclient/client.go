package kafkaclient

import (
	"context"
	"crypto/tls"
	"errors"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"

	"logbook/engine/failure"
	_ "logbook/engine/record/compression" // whatever a producer has chosen can be read
	"logbook/engine/stream"
)

// Options configure a client. Brokers must be set.
type Options struct {
	Brokers []string // host:port of some brokers; the others are found
	Name    string   // the client's id
	TLS     *tls.Config
	SASL    sasl.Mechanism
	// Patience is how long to try again what may succeed later; 0 is 30 s.
	Patience time.Duration
}

// Client is a stream.Client over a Kafka cluster, which it closes.
type Client struct {
	*stream.Client
	t *transport
}

// Dial returns a client of a Kafka cluster. It connects when it has something to ask.
//
// Errors: what is wrong with the options.
func Dial(opt Options) (*Client, error) {
	if len(opt.Brokers) == 0 {
		return nil, errors.New("kafkaclient: no broker to connect to; give host:port of one at least")
	}
	if opt.Patience == 0 {
		opt.Patience = 30 * time.Second
	}
	if opt.Name == "" {
		opt.Name = "logbook"
	}
	t := &transport{opt: opt, producers: map[stream.Acks]*kgo.Client{}, joins: map[memberKey]joined{}}
	var err error
	if t.c, err = t.connect(); err != nil {
		return nil, err
	}
	t.admin = kadm.NewClient(t.c)
	return &Client{Client: stream.New(t), t: t}, nil
}

// Close makes members leave, sends what producers hold, and closes every connection.
func (c *Client) Close() error {
	err := c.Client.Close()
	c.t.close()
	return err
}

// transport is Kafka's protocol as a stream.Transport.
type transport struct {
	opt   Options
	c     *kgo.Client // for everything but producing
	admin *kadm.Client

	mu        sync.Mutex
	closed    bool
	producers map[stream.Acks]*kgo.Client
	joins     map[memberKey]joined
	offsets   *kgo.Client // for asking what is committed; nil: yet to be made
	leaders   leaders
}

// connect makes one of franz-go's clients.
func (t *transport) connect(more ...kgo.Opt) (*kgo.Client, error) {
	opts := []kgo.Opt{
		kgo.SeedBrokers(t.opt.Brokers...), kgo.ClientID(t.opt.Name), kgo.RetryTimeout(t.opt.Patience),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0),
		kgo.MetadataMinAge(50 * time.Millisecond), kgo.UnknownTopicRetries(-1), // whether it is there is asked before
	}
	if t.opt.TLS != nil {
		opts = append(opts, kgo.DialTLSConfig(t.opt.TLS.Clone()))
	}
	if t.opt.SASL != nil {
		opts = append(opts, kgo.SASL(t.opt.SASL))
	}
	return kgo.NewClient(append(opts, more...)...)
}

// producer returns the client that produces with some acks.
func (t *transport) producer(acks stream.Acks) (*kgo.Client, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, stream.ErrClosed
	}
	if c := t.producers[acks]; c != nil {
		return c, nil
	}
	var opts []kgo.Opt
	if acks == stream.AcksLeader {
		opts = append(opts, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
	}
	c, err := t.connect(opts...)
	if err == nil {
		t.producers[acks] = c
	}
	return c, err
}

func (t *transport) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	t.closed = true
	for _, c := range t.producers {
		c.Close()
	}
	if t.offsets != nil {
		t.offsets.Close()
	}
	for _, j := range t.joins {
		if j.c != nil {
			j.c.Close()
		}
	}
	t.c.Close()
}

// within bounds a call by the transport's patience.
func (t *transport) within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, t.opt.Patience)
}

// retry calls until it succeeds, fails for good, or patience or ctx end: leaders and
// coordinators change, and not every broker has heard of it at once.
func retry[T any](ctx context.Context, t *transport, call func(ctx context.Context) (T, error)) (T, error) {
	ctx, cancel := t.within(ctx)
	defer cancel()
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		v, err := call(ctx)
		e, ok := errors.AsType[*failure.Error](err)
		if err == nil || ok && !e.Retriable() || errors.Is(err, stream.ErrClosed) {
			return v, err
		}
		select {
		case <-ctx.Done():
			return v, err
		case <-time.After(pause):
		}
	}
}
