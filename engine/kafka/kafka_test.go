package kafka_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"logbook/engine/commitlog"
	"logbook/engine/group"
	"logbook/engine/kafka"
	"logbook/engine/service"
	"logbook/engine/vfs"
)

// broker is one broker on a disk in memory, with Kafka's clients at a port.
type broker struct {
	t       *testing.T
	disk    *vfs.Mem
	edit    func(*kafka.Config)
	svc     *service.Service
	front   *kafka.Front
	ln      net.Listener
	address string
	quit    chan struct{}
	clock   *service.Clock
}

func start(t *testing.T, edit func(*kafka.Config)) *broker {
	b := &broker{t: t, disk: vfs.NewMem(), edit: edit}
	b.open("127.0.0.1:0")
	t.Cleanup(b.close)
	return b
}

func (b *broker) open(address string) {
	var err error
	b.clock, b.quit = service.NewClock(), make(chan struct{})
	b.svc, err = service.Open(service.Config{
		ID: 1, Dir: "data", Log: commitlog.Options{FS: b.disk, SegmentBytes: 1 << 20}, GroupPartitions: 1, Wake: b.clock.Wake,
		Consumers: group.ConsumerOptions{Interval: 200 * time.Millisecond},
	})
	require.NoError(b.t, err)
	cfg := kafka.Config{Service: b.svc, AutoCreate: true, Partitions: 2}
	if b.edit != nil {
		b.edit(&cfg)
	}
	b.front = kafka.New(cfg)
	for range 100 {
		if b.ln, err = net.Listen("tcp", address); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	require.NoError(b.t, err)
	b.address = b.ln.Addr().String()
	b.svc.SetEndpoint(kafka.EndpointName, b.address)
	go b.clock.Run(b.svc, b.quit)
	b.svc.Start()
	go b.front.Serve(b.ln)
}

func (b *broker) close() {
	b.ln.Close()
	_ = b.svc.Close()
	b.front.Close()
	close(b.quit)
}

// restart kills the broker and starts it again at the same address.
func (b *broker) restart() {
	b.close()
	b.disk = b.disk.Kill()
	b.open(b.address)
}

func (b *broker) client(opts ...kgo.Opt) *kgo.Client {
	b.t.Helper()
	c, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(b.address), kgo.AllowAutoTopicCreation(), kgo.RetryBackoffFn(func(int) time.Duration { return 10 * time.Millisecond }),
		kgo.MetadataMinAge(20 * time.Millisecond),
	}, opts...)...)
	require.NoError(b.t, err)
	b.t.Cleanup(c.Close)
	return c
}

func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// read reads n values.
func read(t *testing.T, c *kgo.Client, n int) (out []string) {
	t.Helper()
	ctx := soon(t)
	for len(out) < n {
		f := c.PollFetches(ctx)
		require.NoError(t, f.Err())
		f.EachRecord(func(r *kgo.Record) { out = append(out, string(r.Value)) })
	}
	return out
}

// What a client of Kafka's sends comes back as it was: key, value, headers, time, with every
// compression, and over a restart.
func TestRecordsComeBackAsTheyWere(t *testing.T) {
	b := start(t, nil)
	at := time.UnixMilli(1_700_000_000_123)
	var want []string
	for i, codec := range []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()} {
		c := b.client(kgo.ProducerBatchCompression(codec))
		v := fmt.Sprint("value ", i)
		want = append(want, v)
		r := &kgo.Record{Topic: "flights", Key: []byte("k"), Value: []byte(v), Timestamp: at, Headers: []kgo.RecordHeader{{Key: "h", Value: []byte("1")}, {Key: "h", Value: nil}}}
		require.NoError(t, c.ProduceSync(soon(t), r).FirstErr())
		assert.Equal(t, int64(i), r.Offset)
	}
	b.restart()
	c := b.client(kgo.ConsumeTopics("flights"))
	ctx := soon(t)
	var got []string
	for len(got) < len(want) {
		f := c.PollFetches(ctx)
		require.NoError(t, f.Err())
		f.EachRecord(func(r *kgo.Record) {
			got = append(got, string(r.Value))
			assert.Equal(t, "k", string(r.Key))
			assert.True(t, at.Equal(r.Timestamp))
			assert.Len(t, r.Headers, 2)
			assert.Nil(t, r.Headers[1].Value)
		})
	}
	assert.Equal(t, want, got)
}

// A batch that an idempotent producer sends twice is stored once, and answered with its
// first offset; over a restart too. A gap, and an old epoch, are refused.
func TestIdempotentProducer(t *testing.T) {
	b := start(t, nil)
	c := b.client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, c.ProduceSync(soon(t), &kgo.Record{Topic: "t", Partition: 0}).FirstErr()) // it makes the topic
	init := kmsg.NewPtrInitProducerIDRequest()
	r, err := init.RequestWith(soon(t), c)
	require.NoError(t, err)
	require.Zero(t, r.ErrorCode)
	var produce func(sequence int32, epoch int16, values ...string) (int64, int16)
	produce = func(sequence int32, epoch int16, values ...string) (int64, int16) {
		q := kmsg.NewPtrProduceRequest()
		q.Version, q.Acks, q.TimeoutMillis = 9, -1, 5000
		topic := kmsg.NewProduceRequestTopic()
		topic.Topic = "t"
		p := kmsg.NewProduceRequestTopicPartition()
		p.Partition, p.Records = 1, batch(t, r.ProducerID, epoch, sequence, values...)
		topic.Partitions = append(topic.Partitions, p)
		q.Topics = append(q.Topics, topic)
		resp, err := c.Broker(1).Request(soon(t), q)
		require.NoError(t, err)
		rp := resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0]
		if rp.ErrorCode == kerr.NotLeaderForPartition.Code || rp.ErrorCode == kerr.LeaderNotAvailable.Code { // it has just started
			time.Sleep(10 * time.Millisecond)
			return produce(sequence, epoch, values...)
		}
		return rp.BaseOffset, rp.ErrorCode
	}
	check := func(wantOffset int64, wantCode int16, sequence int32, epoch int16, values ...string) {
		t.Helper()
		offset, code := produce(sequence, epoch, values...)
		assert.Equal(t, []any{wantOffset, wantCode}, []any{offset, code})
	}
	check(0, 0, 0, 0, "a", "b")
	check(2, 0, 2, 0, "c")
	check(0, 0, 0, 0, "a", "b")
	check(2, 0, 2, 0, "c")
	check(-1, kerr.OutOfOrderSequenceNumber.Code, 4, 0, "e")
	b.restart()
	c = b.client()
	check(2, 0, 2, 0, "c")
	check(3, 0, 3, 0, "d")
	check(4, 0, 0, 1, "e") // the next epoch begins anew
	check(-1, kerr.InvalidProducerEpoch.Code, 4, 0, "x")
	for i := range 7 {
		check(int64(5+i), 0, int32(1+i), 1, fmt.Sprint(i))
	}
	check(-1, kerr.OutOfOrderSequenceNumber.Code, 1, 1, "0") // only the last five are remembered
	reader := b.client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"t": {1: kgo.NewOffset().AtStart()}}))
	assert.Equal(t, []string{"a", "b", "c", "d", "e", "0", "1", "2", "3", "4", "5", "6"}, read(t, reader, 12))
}

// Two members share a topic; one leaves, and the other has all of it. What was committed,
// with its note, lasts over a restart.
func TestGroupOfKafkasClients(t *testing.T) {
	b := start(t, nil)
	p := b.client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	send := func(from, to int) {
		for i := from; i < to; i++ {
			require.NoError(t, p.ProduceSync(soon(t), &kgo.Record{Topic: "flights", Partition: int32(i % 2), Value: fmt.Append(nil, i)}).FirstErr())
		}
	}
	send(0, 10)
	member := func() *kgo.Client {
		return b.client(kgo.ConsumerGroup("g"), kgo.ConsumeTopics("flights"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit())
	}
	one := member()
	assert.Len(t, read(t, one, 10), 10)
	require.NoError(t, one.CommitUncommittedOffsets(soon(t)))
	two := member()
	got := map[string]bool{}
	deadline := time.Now().Add(15 * time.Second)
	var mine [2]int
	for i := 10; mine[0] == 0 || mine[1] == 0; i += 2 {
		require.True(t, time.Now().Before(deadline), "the second member never got a partition: %v", mine)
		send(i, i+2)
		for k, c := range []*kgo.Client{one, two} {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			c.PollFetches(ctx).EachRecord(func(r *kgo.Record) { mine[k]++; got[string(r.Value)] = true })
			cancel()
		}
		if i > 10 && mine[0] > 0 && mine[1] == 0 {
			mine[0] = 0 // it had both partitions so far
		}
	}
	require.NoError(t, one.CommitUncommittedOffsets(soon(t)))
	require.NoError(t, two.CommitUncommittedOffsets(soon(t)))
	two.Close()
	require.Eventually(t, func() bool {
		q := kmsg.NewPtrDescribeGroupsRequest()
		q.Groups = []string{"g"}
		r, err := q.RequestWith(soon(t), p)
		return err == nil && r.Groups[0].State == "Stable" && len(r.Groups[0].Members) == 1
	}, 10*time.Second, 20*time.Millisecond)
	one.Close()
	b.restart()
	commits := kmsg.NewPtrOffsetFetchRequest()
	commits.Group = "g"
	c := b.client()
	require.Eventually(t, func() bool {
		r, err := commits.RequestWith(soon(t), c)
		if err != nil || r.ErrorCode != 0 || len(r.Topics) != 1 || len(r.Topics[0].Partitions) != 2 {
			return false
		}
		return r.Topics[0].Partitions[0].Offset >= 5 && r.Topics[0].Partitions[1].Offset >= 5
	}, 10*time.Second, 20*time.Millisecond)
}

// Topics are made, widened, set and deleted by Kafka's own requests, with its own numbers
// for what cannot be.
func TestTopicsByKafkasRequests(t *testing.T) {
	b := start(t, nil)
	c := b.client()
	create := func(name string, partitions int32, replication int16, config ...string) int16 {
		q := kmsg.NewPtrCreateTopicsRequest()
		topic := kmsg.NewCreateTopicsRequestTopic()
		topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, partitions, replication
		for i := 0; i+1 < len(config); i += 2 {
			x := kmsg.NewCreateTopicsRequestTopicConfig()
			x.Name, x.Value = config[i], &config[i+1]
			topic.Configs = append(topic.Configs, x)
		}
		q.Topics = append(q.Topics, topic)
		r, err := q.RequestWith(soon(t), c)
		require.NoError(t, err)
		return r.Topics[0].ErrorCode
	}
	assert.Zero(t, create("t", 3, -1, "retention.ms", "1000"))
	for name, x := range map[string][2]int16{
		"again":              {create("t", 3, 1), kerr.TopicAlreadyExists.Code},
		"bad name":           {create("a b", 3, 1), kerr.InvalidTopicException.Code},
		"no partitions":      {create("x", 0, 1), kerr.InvalidPartitions.Code},
		"too many replicas":  {create("x", 1, 2), kerr.InvalidReplicationFactor.Code},
		"a bad setting":      {create("x", 1, 1, "retention.ms", "soon"), kerr.InvalidConfig.Code},
		"an unknown setting": {create("x", 1, 1, "retention", "1"), kerr.InvalidConfig.Code},
	} {
		assert.Equal(t, x[1], x[0], name)
	}
	configs := kmsg.NewPtrDescribeConfigsRequest()
	res := kmsg.NewDescribeConfigsRequestResource()
	res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeTopic, "t"
	configs.Resources = append(configs.Resources, res)
	described, err := configs.RequestWith(soon(t), c)
	require.NoError(t, err)
	at := slices.IndexFunc(described.Resources[0].Configs, func(x kmsg.DescribeConfigsResponseResourceConfig) bool { return x.Name == "retention.ms" })
	assert.Equal(t, "1000", *described.Resources[0].Configs[at].Value)

	del := kmsg.NewPtrDeleteTopicsRequest()
	del.TopicNames = []string{"t"}
	dt := kmsg.NewDeleteTopicsRequestTopic()
	dt.Topic = kmsg.StringPtr("t")
	del.Topics = append(del.Topics, dt)
	gone, err := del.RequestWith(soon(t), c)
	require.NoError(t, err)
	assert.Zero(t, gone.Topics[0].ErrorCode)
	assert.Zero(t, create("t", 1, 1), "and made again")
}

// A client must give the token as its password, where there is one, before anything else.
func TestPasswords(t *testing.T) {
	b := start(t, func(c *kafka.Config) { c.Token = "sixteen characters" })
	good := b.client(kgo.SASL(plain("anybody", "sixteen characters")))
	require.NoError(t, good.ProduceSync(soon(t), &kgo.Record{Topic: "t", Value: []byte("x")}).FirstErr())
	bad := b.client(kgo.SASL(plain("anybody", "wrong")), kgo.RequestRetries(0))
	_, err := kmsg.NewPtrMetadataRequest().RequestWith(soon(t), bad)
	require.ErrorIs(t, err, kerr.SaslAuthenticationFailed)
	none := b.client(kgo.RequestRetries(0))
	_, err = kmsg.NewPtrMetadataRequest().RequestWith(soon(t), none)
	require.Error(t, err)
}

// Bytes that are no request end their own connection, and no other.
func TestHostileBytes(t *testing.T) {
	b := start(t, nil)
	c := b.client()
	require.NoError(t, c.Ping(soon(t)))
	frame := func(body ...byte) []byte {
		return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
	}
	for name, bytes := range map[string][]byte{
		"a huge length":         {0x7f, 0xff, 0xff, 0xff, 0, 0},
		"a negative length":     {0xff, 0xff, 0xff, 0xff},
		"HTTP":                  []byte("GET / HTTP/1.1\r\n\r\n"),
		"no header":             frame(0, 0, 0, 0, 0, 0, 0, 0),
		"an unknown key":        frame(0x70, 0, 0, 0, 0, 0, 0, 1, 0xff, 0xff),
		"a version of tomorrow": frame(0, 3, 0x70, 0, 0, 0, 0, 1, 0xff, 0xff),
		"a long client id":      frame(0, 3, 0, 1, 0, 0, 0, 1, 0x7f, 0xff),
		"an array of billions":  frame(0, 3, 0, 1, 0, 0, 0, 1, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff),
		"a large plain request": append([]byte{5, 0, 0, 0, 0, 3, 0, 1}, make([]byte, 100)...),
	} {
		nc, err := net.Dial("tcp", b.address)
		require.NoError(t, err)
		_, _ = nc.Write(bytes)
		_ = nc.SetReadDeadline(time.Now().Add(10 * time.Second))
		_, err = io.ReadAll(nc)
		assert.False(t, errors.Is(err, context.DeadlineExceeded), name)
		nc.Close()
		require.NoError(t, c.Ping(soon(t)), name)
	}
	// ApiVersions of a version that there is not is answered all the same, in the oldest form.
	nc, err := net.Dial("tcp", b.address)
	require.NoError(t, err)
	defer nc.Close()
	_, _ = nc.Write(frame(0, 18, 0x70, 0, 0, 0, 0, 7, 0xff, 0xff))
	head := make([]byte, 10)
	_, err = io.ReadFull(nc, head)
	require.NoError(t, err)
	assert.Equal(t, []byte{0, 0, 0, 7, 0, 35}, head[4:10])
}

// Every kind of request that is advertised is served, in every version.
func TestEveryVersionOfEveryRequestIsAnswered(t *testing.T) {
	b := start(t, nil)
	c := b.client()
	require.NoError(t, c.ProduceSync(soon(t), &kgo.Record{Topic: "t"}).FirstErr())
	for _, k := range kafka.Keys() {
		if kmsg.Key(k[0]) == kmsg.SASLAuthenticate || kmsg.Key(k[0]) == kmsg.SASLHandshake {
			continue // the client will not have it
		}
		for v := k[1]; v <= k[2]; v++ {
			nc, err := net.Dial("tcp", b.address)
			require.NoError(t, err)
			q := kmsg.RequestForKey(k[0])
			q.SetVersion(v)
			if p, ok := q.(*kmsg.ProduceRequest); ok {
				p.Acks = -1
			}
			_, _ = nc.Write(kmsg.NewRequestFormatter(kmsg.FormatterClientID("test")).AppendRequest(nil, q, 42))
			_ = nc.SetReadDeadline(time.Now().Add(10 * time.Second))
			size := make([]byte, 4)
			_, err = io.ReadFull(nc, size)
			require.NoError(t, err, "%s version %d", kmsg.NameForKey(k[0]), v)
			body := make([]byte, binary.BigEndian.Uint32(size))
			_, err = io.ReadFull(nc, body)
			require.NoError(t, err)
			r := q.ResponseKind()
			r.SetVersion(v)
			body = body[4:]
			if r.IsFlexible() && kmsg.Key(k[0]) != kmsg.ApiVersions {
				body = body[1:]
			}
			assert.NoError(t, r.ReadFrom(body), "%s version %d", kmsg.NameForKey(k[0]), v)
			nc.Close()
		}
	}
}
