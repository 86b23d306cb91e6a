package main

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"logbook/engine/client"
	"logbook/engine/failure"
	"logbook/engine/record"
	"logbook/engine/stream"
)

// benchLogbook measures the JSON protocol, through the Go client's producer.
type benchLogbook struct {
	c        *client.Client
	s        *stream.Client
	acks     string
	batch    int
	topic    string
	producer *stream.Producer
}

func newBenchLogbook(o *globalFlags, acks string, batch int) (benchBroker, error) {
	c, err := o.client()
	if err != nil {
		return nil, err
	}
	return &benchLogbook{c: c, s: c.Stream(), acks: acks, batch: batch}, nil
}

func (b *benchLogbook) prepare(ctx context.Context, topic string, partitions int) (n int, made bool, err error) {
	b.topic = topic
	t, err := b.s.Topic(ctx, topic)
	if code, ok := errors.AsType[*failure.Error](err); ok && code.Code == failure.UnknownTopic {
		made = true
		t, err = b.s.CreateTopic(ctx, topic, partitions, nil)
	}
	if err != nil {
		return 0, made, err
	}
	b.producer, err = b.s.Producer(ctx, topic, stream.ProducerOptions{Acks: stream.Acks(b.acks), BatchRecords: max(1000, b.batch)})
	return t.Partitions(), made, err
}

func (b *benchLogbook) write(ctx context.Context, partition int, values [][]byte) error {
	pending := make([]*stream.Pending, len(values))
	for i, v := range values {
		var err error
		if pending[i], err = b.producer.SendTo(ctx, partition, record.Record{Value: v}); err != nil {
			return err
		}
	}
	for _, p := range pending {
		if _, err := p.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (b *benchLogbook) read(ctx context.Context, from []int64, visit func([]byte)) error {
	errs := make([]error, len(from))
	var group sync.WaitGroup
	for p, offset := range from {
		group.Go(func() {
			for ctx.Err() == nil {
				r, err := b.c.Fetch(ctx, b.topic, p, offset, 1<<20, 500*time.Millisecond)
				if err != nil {
					if ctx.Err() == nil {
						errs[p] = err
					}
					return
				}
				for i := range r.Records {
					visit(r.Records[i].Value)
				}
				offset = r.NextOffset
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

func (b *benchLogbook) ends(ctx context.Context) ([]int64, error) {
	t, err := b.c.Topic(ctx, b.topic)
	if err != nil {
		return nil, err
	}
	out := make([]int64, len(t.Partitions))
	for p := range out {
		if out[p], err = b.c.Latest(ctx, b.topic, p); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (b *benchLogbook) remove(ctx context.Context) error { return b.c.DeleteTopic(ctx, b.topic) }

func (b *benchLogbook) close() {
	_ = b.s.Close()
	_ = b.c.Close()
}

// benchKafka measures the Kafka protocol, through franz-go. Any Kafka cluster will do.
type benchKafka struct {
	opts  []kgo.Opt
	c     *kgo.Client
	topic string
}

func newBenchKafka(o *globalFlags, acks string) (benchBroker, error) {
	opts := []kgo.Opt{kgo.SeedBrokers(strings.Split(o.brokers, ",")...), kgo.ProducerLinger(0), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.RetryTimeout(o.timeout), kgo.RecordDeliveryTimeout(max(o.timeout, time.Second)), kgo.ProducerBatchMaxBytes(1 << 20), kgo.FetchMaxWait(500 * time.Millisecond), kgo.FetchMinBytes(1)}
	if acks == "leader" {
		opts = append(opts, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
	}
	if o.token != "" {
		opts = append(opts, kgo.SASL(plain.Auth{User: "logbook", Pass: o.token}.AsMechanism()))
	}
	if o.tls {
		cfg, err := o.clientTLS()
		if err != nil {
			return nil, err
		}
		opts = append(opts, kgo.DialTLSConfig(cfg.Clone()))
	}
	c, err := kgo.NewClient(opts...)
	return &benchKafka{opts: opts, c: c}, err
}

func (b *benchKafka) prepare(ctx context.Context, topic string, partitions int) (n int, made bool, err error) {
	b.topic = topic
	admin := kadm.NewClient(b.c)
	created, err := admin.CreateTopic(ctx, int32(partitions), -1, nil, topic)
	switch {
	case err == nil:
		made = true
	case !errors.Is(created.Err, kerr.TopicAlreadyExists):
		return 0, false, err
	}
	details, err := admin.ListTopics(ctx, topic)
	if err == nil {
		err = details[topic].Err
	}
	return len(details[topic].Partitions), made, err
}

func (b *benchKafka) write(ctx context.Context, partition int, values [][]byte) error {
	records := make([]*kgo.Record, len(values))
	for i, v := range values {
		records[i] = &kgo.Record{Topic: b.topic, Partition: int32(partition), Value: v}
	}
	return b.c.ProduceSync(ctx, records...).FirstErr()
}

func (b *benchKafka) read(ctx context.Context, from []int64, visit func([]byte)) error {
	offsets := map[int32]kgo.Offset{}
	for p, at := range from {
		offsets[int32(p)] = kgo.NewOffset().At(at)
	}
	c, err := kgo.NewClient(append(b.opts, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{b.topic: offsets}))...)
	if err != nil {
		return err
	}
	defer c.Close()
	for ctx.Err() == nil {
		fetches := c.PollFetches(ctx)
		if err := fetches.Err(); err != nil && ctx.Err() == nil {
			return err
		}
		fetches.EachRecord(func(r *kgo.Record) { visit(r.Value) })
	}
	return nil
}

func (b *benchKafka) ends(ctx context.Context) ([]int64, error) {
	ends, err := kadm.NewClient(b.c).ListEndOffsets(ctx, b.topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return nil, err
	}
	out := make([]int64, len(ends[b.topic]))
	for p, o := range ends[b.topic] {
		out[p] = o.Offset
	}
	return out, nil
}

func (b *benchKafka) remove(ctx context.Context) error {
	_, err := kadm.NewClient(b.c).DeleteTopics(ctx, b.topic)
	return err
}

func (b *benchKafka) close() { b.c.Close() }
