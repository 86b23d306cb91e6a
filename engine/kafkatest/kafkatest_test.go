package kafkatest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"logbook/engine/kafkatest"
)

func client(t *testing.T, c *kafkatest.Cluster, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	k, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(c.Addrs()...), kgo.AllowAutoTopicCreation(), kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }),
		kgo.MetadataMinAge(20 * time.Millisecond), kgo.UnknownTopicRetries(-1),
	}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(k.Close)
	return k
}

func readAll(t *testing.T, k *kgo.Client, n int) map[int32][]string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	out := map[int32][]string{}
	for got := 0; got < n; {
		f := k.PollFetches(ctx)
		require.NoError(t, ctx.Err(), "%d of %d records came", got, n)
		f.EachRecord(func(r *kgo.Record) {
			got++
			out[r.Partition] = append(out[r.Partition], string(r.Value))
		})
	}
	return out
}

// A client of Kafka's writes while one broker after another crashes. What was acknowledged
// is there once, in each producer's order.
func TestEachRecordOnceThroughCrashes(t *testing.T) {
	c := kafkatest.Start(t, kafkatest.Options{Brokers: 3, Partitions: 2})
	p := client(t, c, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0))
	var mu sync.Mutex
	acknowledged := map[int32][]string{}
	stop := make(chan struct{})
	var writers sync.WaitGroup
	for partition := range int32(2) {
		writers.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				v := fmt.Sprint(i)
				r := p.ProduceSync(t.Context(), &kgo.Record{Topic: "flights", Partition: partition, Value: []byte(v)})
				if !assert.NoError(t, r.FirstErr()) {
					return
				}
				mu.Lock()
				acknowledged[partition] = append(acknowledged[partition], v)
				mu.Unlock()
			}
		})
	}
	written := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(acknowledged[0]) + len(acknowledged[1])
	}
	for _, id := range []int{1, 2, 3} {
		before := written()
		require.Eventually(t, func() bool { return written() > before+50 }, 30*time.Second, 5*time.Millisecond)
		c.Crash(id)
		before = written()
		require.Eventually(t, func() bool { return written() > before+50 }, 30*time.Second, 5*time.Millisecond, "writes go on without broker %d", id)
		c.Restart(id)
		require.Eventually(t, func() bool {
			for _, o := range []int{1, 2, 3} {
				topic := c.Server(o).Service().Image().Topic("flights")
				if topic == nil || len(topic.Partitions[0].ISR) < 3 || len(topic.Partitions[1].ISR) < 3 {
					return false
				}
			}
			return true
		}, 30*time.Second, 10*time.Millisecond, "broker %d is in sync again", id)
	}
	close(stop)
	writers.Wait()
	got := readAll(t, client(t, c, kgo.ConsumeTopics("flights")), written())
	assert.Equal(t, acknowledged, got)
}

// A full disk is an error that clients recover from, once there is room or another leads.
func TestAFullDisk(t *testing.T) {
	c := kafkatest.Start(t, kafkatest.Options{Brokers: 3})
	p := client(t, c)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	require.NoError(t, p.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: []byte("a")}).FirstErr())
	leader := c.Leader("t", 0)
	c.FailDisk(leader, syscall.ENOSPC)
	require.NoError(t, p.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: []byte("b")}).FirstErr(), "another broker leads")
	assert.NotEqual(t, leader, c.Leader("t", 0))
	c.FailDisk(leader, nil)
	assert.Equal(t, []string{"a", "b"}, readAll(t, client(t, c, kgo.ConsumeTopics("t")), 2)[0])
}

// A leader that is cut off from the others acknowledges nothing that they do not have.
func TestACutLeader(t *testing.T) {
	c := kafkatest.Start(t, kafkatest.Options{Brokers: 3})
	p := client(t, c)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	require.NoError(t, p.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: []byte("a")}).FirstErr())
	leader := c.Leader("t", 0)
	for id := 1; id <= 3; id++ {
		if id != leader {
			c.Cut(leader, id)
		}
	}
	acknowledged := []string{"a"}
	for i := range 20 {
		short, stop := context.WithTimeout(ctx, 300*time.Millisecond)
		v := fmt.Sprint(i)
		if err := p.ProduceSync(short, &kgo.Record{Topic: "t", Value: []byte(v)}).FirstErr(); err == nil {
			acknowledged = append(acknowledged, v)
		} else {
			require.True(t, errors.Is(err, context.DeadlineExceeded) || kerr.IsRetriable(err), err)
		}
		stop()
	}
	c.Heal()
	require.NoError(t, p.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: []byte("end")}).FirstErr())
	seen := map[string]bool{}
	reader := client(t, c, kgo.ConsumeTopics("t"))
	for !seen["end"] {
		f := reader.PollFetches(ctx)
		require.NoError(t, ctx.Err())
		f.EachRecord(func(r *kgo.Record) { seen[string(r.Value)] = true })
	}
	for _, v := range acknowledged {
		assert.True(t, seen[v], "%s was acknowledged", v)
	}
}

// Brokers are up at once, so that a test of somebody else's can afford them.
func TestBrokersAreUpAtOnce(t *testing.T) {
	began := time.Now()
	c := kafkatest.Start(t, kafkatest.Options{})
	require.NoError(t, client(t, c).Ping(t.Context()))
	t.Logf("one broker was up and answered after %s", time.Since(began))
}

// Batches are taken however a client has compressed them, in a program that imports nothing for it.
func TestEveryCodec(t *testing.T) {
	c := kafkatest.Start(t, kafkatest.Options{})
	value := []byte(strings.Repeat("a value that gets smaller ", 100))
	for i, codec := range []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()} {
		topic := fmt.Sprint("t", i)
		p := client(t, c, kgo.ProducerBatchCompression(codec), kgo.ConsumeTopics(topic))
		require.NoError(t, p.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: value}).FirstErr())
		assert.Equal(t, []string{string(value)}, readAll(t, p, 1)[0])
	}
}

// Kafka's own requests move a partition to other brokers while records are written to it.
func TestReassignment(t *testing.T) {
	c := kafkatest.Start(t, kafkatest.Options{Brokers: 4})
	p := client(t, c)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	require.NoError(t, p.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: []byte("a")}).FirstErr())
	before := c.Server(1).Service().Image().Topic("t").Partitions[0].Replicas
	var to []int32
	for id := int32(4); len(to) < 3; id-- { // the one that has no replica first
		to = append(to, id)
	}
	req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	rt := kmsg.NewAlterPartitionAssignmentsRequestTopic()
	rt.Topic = "t"
	rp := kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
	rp.Replicas = to
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(ctx, p)
	require.NoError(t, err)
	require.Zero(t, resp.Topics[0].Partitions[0].ErrorCode, "from %v", before)
	for i := range 20 {
		require.NoError(t, p.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: fmt.Append(nil, i)}).FirstErr())
	}
	require.Eventually(t, func() bool {
		moving, err := kmsg.NewPtrListPartitionReassignmentsRequest().RequestWith(ctx, p)
		return err == nil && len(moving.Topics) == 0 && c.Leader("t", 0) == 4
	}, 20*time.Second, 20*time.Millisecond)
	assert.Len(t, readAll(t, client(t, c, kgo.ConsumeTopics("t")), 21)[0], 21)
	rt.Partitions[0].Replicas = nil
	resp, err = req.RequestWith(ctx, p)
	require.NoError(t, err)
	assert.Equal(t, kerr.NoReassignmentInProgress.Code, resp.Topics[0].Partitions[0].ErrorCode)
}
