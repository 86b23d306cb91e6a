package service_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"logbook/engine/commitlog"
	"logbook/engine/controller"
	"logbook/engine/failure"
	"logbook/engine/metadata"
	"logbook/engine/record"
	"logbook/engine/replica"
	"logbook/engine/service"
	"logbook/engine/vfs"
)

// brokers are services in one goroutine, on disks of memory, with a clock that moves when
// nothing else is left to do.
type brokers struct {
	t     *testing.T
	now   time.Time
	all   map[service.BrokerID]*service.Service
	disks map[service.BrokerID]*vfs.Mem
	queue []func() // work and messages, in order
	down  map[service.BrokerID]bool
	edit  func(*service.Config)

	closing bool
	mute    bool // messages get lost
}

// start starts n brokers; edit, if not nil, changes their configurations.
func start(t *testing.T, n int, edit func(*service.Config)) *brokers {
	b := &brokers{t: t, now: time.Unix(1_000_000_000, 0), all: map[service.BrokerID]*service.Service{}, disks: map[service.BrokerID]*vfs.Mem{}, down: map[service.BrokerID]bool{}, edit: edit}
	for id := range n {
		b.disks[service.BrokerID(id+1)] = vfs.NewMem()
	}
	for id := range n {
		b.open(service.BrokerID(id + 1))
	}
	t.Cleanup(func() {
		for id := range b.all {
			if !b.down[id] {
				require.NoError(t, b.close(id))
			}
		}
	})
	b.until("all brokers have registered", func() bool {
		return b.all[1].Controller() != "manual" || len(b.all[1].Image().Brokers()) == n
	})
	return b
}

func (b *brokers) open(id service.BrokerID) {
	_, err := b.tryOpen(id)
	require.NoError(b.t, err)
}

func (b *brokers) tryOpen(id service.BrokerID) (*service.Service, error) {
	var ids []service.BrokerID
	for o := range len(b.disks) {
		ids = append(ids, service.BrokerID(o+1))
	}
	cfg := service.Config{
		ID: id, Dir: "data", Brokers: ids, Controller: "manual", Acks: replica.Quorum, GroupPartitions: 1, HealthEvery: 200 * time.Millisecond, RequestTimeout: time.Second,
		Log:    commitlog.Options{FS: b.disks[id], Now: func() time.Time { return b.now }, SegmentBytes: 4 << 10},
		Random: rand.NewChaCha8([32]byte{byte(id)}),
		Go: func(f func()) {
			if b.closing {
				go f() // Close waits for it
				return
			}
			b.queue = append(b.queue, f)
		},
		Send: func(to service.BrokerID, m service.PeerMessage) error {
			if b.all[to] == nil || b.down[to] {
				return fmt.Errorf("broker %d is down", to)
			}
			if b.mute {
				return nil
			}
			b.queue = append(b.queue, func() {
				if !b.down[to] {
					b.all[to].Deliver(id, m)
				}
			})
			return nil
		},
	}
	if b.edit != nil {
		b.edit(&cfg)
	}
	s, err := service.Open(cfg)
	if err == nil {
		b.all[id], b.down[id] = s, false
		s.Start()
	}
	return s, err
}

// close closes a broker when the work that it has begun is done.
func (b *brokers) close(id service.BrokerID) error {
	b.down[id] = true // it hears nothing more
	for len(b.queue) > 0 {
		next := b.queue[0]
		b.queue = b.queue[1:]
		next()
	}
	b.closing = true
	defer func() { b.closing = false }()
	return b.all[id].Close()
}

// kill closes a broker, and the others notice.
func (b *brokers) kill(id service.BrokerID) {
	require.NoError(b.t, b.close(id))
	for o, s := range b.all {
		if o != id && !b.down[o] {
			s.Lost(id, "the connection ended")
		}
	}
}

// until lets everything happen until something is so, at most for a minute.
func (b *brokers) until(what string, so func() bool) {
	b.t.Helper()
	for end := b.now.Add(time.Minute); !so(); b.turn() {
		if b.now.After(end) {
			require.Fail(b.t, "it never came to that", what)
		}
	}
}

// turn lets one thing happen: what is queued, or else the next that is due.
func (b *brokers) turn() {
	if len(b.queue) > 0 {
		next := b.queue[0]
		b.queue = b.queue[1:]
		next()
		return
	}
	next := b.now.Add(time.Second)
	for id, s := range b.all {
		if at := s.Next(); !b.down[id] && !at.IsZero() && at.Before(next) {
			next = at
		}
	}
	if next.After(b.now) {
		b.now = next
	}
	for id := range len(b.disks) { // in order
		if id := service.BrokerID(id + 1); b.all[id] != nil && !b.down[id] {
			b.all[id].Tick()
		}
	}
}

// reply is what a request comes to.
type reply[T any] struct {
	value T
	err   error
	done  int // how often it was answered
}

func (r *reply[T]) set(value T, err error) { r.value, r.err, r.done = value, err, r.done+1 }

// await lets everything happen until a request is answered.
func await[T any](b *brokers, what string, begin func(done func(T, error))) (T, error) {
	b.t.Helper()
	var r reply[T]
	begin(r.set)
	b.until(what, func() bool { return r.done > 0 })
	return r.value, r.err
}

func (b *brokers) topic(name string, partitions, replication int) {
	b.t.Helper()
	spec := controller.TopicSpec{Name: name, Partitions: partitions, Replication: replication}
	_, err := await(b, "a topic", func(done func(*metadata.Topic, error)) { b.all[1].CreateTopic(spec, done) })
	require.NoError(b.t, err)
	b.until("everybody knows the topic", func() bool {
		for id, s := range b.all {
			if !b.down[id] && s.Image().Topic(name) == nil {
				return false
			}
		}
		return len(b.queue) == 0
	})
}

// leader is who leads a partition, as broker id knows.
func (b *brokers) leader(id service.BrokerID, p service.Partition) service.BrokerID {
	a, _ := b.all[id].Image().Assignment(p)
	return a.Leader
}

func (b *brokers) batch(values ...string) *commitlog.Batch {
	b.t.Helper()
	var records []record.Record
	for _, v := range values {
		records = append(records, record.Record{Value: []byte(v)})
	}
	batch, err := b.all[1].NewBatch(records)
	require.NoError(b.t, err)
	return batch
}

func (b *brokers) produce(id service.BrokerID, p service.Partition, values ...string) (service.Produced, error) {
	b.t.Helper()
	q := service.Produce{Topic: p.Topic, Partition: p.ID, Batch: b.batch(values...)}
	return await(b, "a produce", func(done func(service.Produced, error)) { b.all[id].Produce(q, done) })
}

func (b *brokers) fetch(id service.BrokerID, q service.Fetch) []service.Fetched {
	b.t.Helper()
	out, _ := await(b, "a fetch", func(done func([]service.Fetched, error)) {
		b.all[id].Fetch(q, func(f []service.Fetched) { done(f, nil) })
	})
	return out
}

// values are the records in what was fetched.
func values(t *testing.T, f service.Fetched) []string {
	t.Helper()
	require.NoError(t, f.Err)
	var out []string
	for r, err := range f.Records(0) {
		require.NoError(t, err)
		out = append(out, string(r.Value))
	}
	return out
}

// code is an error's.
func code(t *testing.T, err error) *failure.Error {
	t.Helper()
	var e *failure.Error
	require.ErrorAs(t, err, &e)
	return e
}

func (b *brokers) keyed(key, value string) *commitlog.Batch {
	b.t.Helper()
	batch, err := b.all[1].NewBatch([]record.Record{{Key: []byte(key), Value: []byte(value)}})
	require.NoError(b.t, err)
	return batch
}
