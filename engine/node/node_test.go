package node_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"logbook/engine/commitlog"
	"logbook/engine/node"
	"logbook/engine/record"
	"logbook/engine/replica"
	"logbook/engine/topic"
	"logbook/engine/vfs"
)

var p = topic.Partition{Topic: "flights"}

// pair is two nodes with a replica each, in one goroutine.
type pair struct {
	t     *testing.T
	disks [3]*vfs.Mem
	nodes [3]*node.Node
	queue []func()
	cut   bool // messages get lost
	at    replica.Assignment

	passed    time.Duration
	heartbeat time.Duration // of leaders; 0: none
	rate      int64
	maxBytes  int // of a message
}

func newPair(t *testing.T) *pair { return openPair(&pair{t: t}) }

// openPair is newPair with something set.
func openPair(w *pair) *pair {
	w.at = replica.Assignment{Replicas: []replica.BrokerID{1, 2}}
	for id := 1; id <= 2; id++ {
		w.disks[id] = vfs.NewMem()
		w.open(id)
		require.NoError(w.t, w.nodes[id].Create(p))
	}
	return w
}

func (w *pair) open(id int) {
	n, err := node.Open(node.Options{
		ID: replica.BrokerID(id), Dir: "data", Log: commitlog.Options{FS: w.disks[id], SegmentBytes: 4 << 10, Now: func() time.Time { return time.Unix(1e9, 0).Add(w.passed) }},
		Propose: func(p topic.Partition, a replica.Assignment) {
			w.queue = append(w.queue, func() { w.nodes[id].Reject(p, a.Version, "not now", false) })
		},
		Replica: replica.Config{Retry: time.Hour, Heartbeat: w.heartbeat, MaxBytes: w.maxBytes}, CatchUpRate: w.rate,
		Go:   func(f func()) { w.queue = append(w.queue, f) },
		Pump: w.run,
		Send: func(p topic.Partition, m replica.Message) error {
			if w.cut || w.nodes[m.To] == nil {
				return errors.New("there is no way")
			}
			w.queue = append(w.queue, func() {
				if n := w.nodes[m.To]; n != nil {
					n.Deliver(p, m)
				}
			})
			return nil
		},
	})
	require.NoError(w.t, err)
	w.nodes[id] = n
	n.OpenReplicas(p)
}

func (w *pair) run() {
	for len(w.queue) > 0 {
		next := w.queue[0]
		w.queue = w.queue[1:]
		next()
	}
}

// assign makes a decision, and tells it whoever is there.
func (w *pair) assign(leader replica.BrokerID, epoch int32, isr ...replica.BrokerID) {
	w.at.Version++
	w.at.Leader, w.at.LeaderEpoch, w.at.ISR = leader, epoch, isr
	for _, n := range w.nodes {
		if n != nil {
			n.Assign(p, w.at.Clone())
		}
	}
	w.run()
}

func (w *pair) append(id int, values ...string) error {
	var err error
	for _, v := range values {
		b, berr := commitlog.NewBatch(record.V2, []record.Record{{Value: []byte(v)}}, record.Encoding{Timestamp: time.Unix(1e9, 0)}, commitlog.Limits{})
		require.NoError(w.t, berr)
		w.nodes[id].Append(p, replica.AllInSync, 0, b, func(_ commitlog.Appended, e error) { err = errors.Join(err, e) })
		w.run()
	}
	return err
}

func (w *pair) own(id int) string {
	out := ""
	for r, err := range w.nodes[id].Own(p) {
		require.NoError(w.t, err)
		out += string(r.Value)
	}
	return out
}

func TestReadsAreOneLook(t *testing.T) {
	w := newPair(t)
	w.assign(1, 1, 1, 2)
	require.NoError(t, w.append(1, "a", "b", "c"))
	assert.Equal(t, "abc", w.own(2))
	look, chunk, err := w.nodes[1].Read(p, 1, 1<<20, 0, false)
	require.NoError(t, err)
	assert.Equal(t, node.Look{LeaderEpoch: 1, HighWatermark: 3, LogEndOffset: 3, Settled: true, ISR: 2, Format: record.V2}, look)
	assert.EqualValues(t, 3, chunk.Next)

	var elsewhere *node.NotLeaderError
	_, err = w.nodes[2].Look(p)
	require.ErrorAs(t, err, &elsewhere)
	assert.EqualValues(t, 1, elsewhere.Leader)
	require.ErrorAs(t, w.append(2, "x"), &elsewhere)
	_, _, err = w.nodes[1].Read(p, 0, 1, 7, false)
	var stale *node.StaleLeaderError
	require.ErrorAs(t, err, &stale, "the reader has heard of a later leader")
	_, err = w.nodes[1].Look(topic.Partition{Topic: "trains"})
	var none *node.NoReplicaError
	require.ErrorAs(t, err, &none)
}

func TestWatchFiresOnce(t *testing.T) {
	w := newPair(t)
	w.assign(1, 1, 1, 2)
	fired := 0
	w.nodes[1].Watch(p, 1, false, func() { fired++ })
	cancel := w.nodes[1].Watch(p, 1, false, func() { fired += 100 })
	cancel()
	require.NoError(t, w.append(1, "a"))
	assert.Zero(t, fired, "nothing beyond offset 1 can be read yet")
	require.NoError(t, w.append(1, "b", "c"))
	assert.Equal(t, 1, fired)
}

// A follower in sync serves, where copies will do, what it knows to be safe, and nothing else.
func TestReadsOfACopy(t *testing.T) {
	w := newPair(t)
	w.assign(1, 1, 1, 2)
	require.NoError(t, w.append(1, "a", "b", "c"))
	// Without readers, the follower hears that a record is safe with the next one.
	look, chunk, err := w.nodes[2].Read(p, 0, 1<<20, 1, true)
	require.NoError(t, err)
	assert.Equal(t, node.Look{LeaderEpoch: 1, HighWatermark: 2, LogEndOffset: 3, ISR: 2, Copy: true, Format: record.V2}, look)
	assert.EqualValues(t, 2, chunk.Next, "what is not known to be safe is not served")
	_, chunk, err = w.nodes[2].Read(p, 2, 1<<20, 1, true)
	require.NoError(t, err, "the end, as far as it knows")
	assert.Empty(t, chunk.Frames)
	var later *node.OffsetNotAvailableError
	_, _, err = w.nodes[2].Read(p, 3, 1<<20, 1, true)
	require.ErrorAs(t, err, &later, "a reader that has been to the leader is ahead")
	var outside *commitlog.OffsetOutOfRangeError
	_, _, err = w.nodes[2].Read(p, 4, 1<<20, 1, true)
	require.ErrorAs(t, err, &outside)
	var stale *node.StaleLeaderError
	_, _, err = w.nodes[2].Read(p, 0, 1<<20, 2, true)
	require.ErrorAs(t, err, &stale)

	var elsewhere *node.NotLeaderError
	w.assign(1, 1, 1)
	_, _, err = w.nodes[2].Read(p, 0, 1<<20, 1, true)
	require.ErrorAs(t, err, &elsewhere, "it is not in sync")
	w.assign(1, 1, 1, 2)
	_, _, err = w.nodes[2].Read(p, 0, 1<<20, 1, true)
	require.NoError(t, err)
	w.nodes[2].Unreachable(1, "the connection ended")
	w.run()
	_, _, err = w.nodes[2].Read(p, 0, 1<<20, 1, true)
	require.ErrorAs(t, err, &elsewhere, "it has lost its leader")
}

// A replica that is not in sync copies no faster than it may; one that is copies at once.
func TestCatchingUpLeavesRoomForOthers(t *testing.T) {
	for _, inSync := range []bool{false, true} {
		w := openPair(&pair{t: t, rate: 1000, maxBytes: 300})
		w.cut = true
		w.assign(1, 1, 1)
		for range 50 {
			require.NoError(t, w.append(1, strings.Repeat("x", 40)))
		}
		bytes := w.nodes[1].Size(p)
		w.cut = false
		if inSync {
			w.assign(1, 2, 1, 2)
		} else {
			w.assign(1, 2, 1)
		}
		for w.nodes[2].Report(p).LogEndOffset < 50 {
			next := w.nodes[2].NextTick()
			require.False(t, next.IsZero(), "it waits for nothing")
			w.passed = max(w.passed, next.Sub(time.Unix(1e9, 0)))
			w.nodes[2].Tick()
			w.run()
		}
		if inSync {
			assert.Zero(t, w.passed)
			continue
		}
		want := time.Duration(bytes) * time.Second / 1000
		assert.InDelta(t, want.Seconds(), w.passed.Seconds(), 0.5, "%d bytes at 1000 a second", bytes)
	}
}

// While others may lead next that are not in sync, nothing more counts as safe: not for those who
// write, and not for those who read.
func TestNothingIsSafeThatTheEligibleLack(t *testing.T) {
	w := newPair(t)
	w.assign(1, 1, 1, 2)
	require.NoError(t, w.append(1, "a"))
	w.at.Eligible = []replica.BrokerID{2}
	w.assign(1, 1, 1)
	var few *replica.NotEnoughReplicasError
	require.ErrorAs(t, w.append(1, "b"), &few)
	b, err := commitlog.NewBatch(record.V2, []record.Record{{Value: []byte("c")}}, record.Encoding{Timestamp: time.Unix(1e9, 0)}, commitlog.Limits{})
	require.NoError(t, err)
	stored := errors.New("no answer")
	w.nodes[1].Append(p, replica.OnLeader, 0, b, func(_ commitlog.Appended, e error) { stored = e })
	w.run()
	require.NoError(t, stored, "the leader alone may acknowledge, and lose it")
	look, err := w.nodes[1].Look(p)
	require.NoError(t, err)
	assert.EqualValues(t, 1, look.HighWatermark)
	assert.EqualValues(t, 2, look.LogEndOffset)

	w.at.Eligible = nil
	w.assign(1, 1, 1, 2)
	look, err = w.nodes[1].Look(p)
	require.NoError(t, err)
	assert.EqualValues(t, 2, look.HighWatermark, "when enough are in sync it is safe")
}

// Whoever waits at a follower hears of a record as soon as it is safe.
func TestWatchOfACopy(t *testing.T) {
	w := openPair(&pair{t: t, heartbeat: time.Hour})
	w.assign(1, 1, 1, 2)
	require.NoError(t, w.append(1, "a"))
	fired := 0
	w.nodes[2].Watch(p, 0, true, func() { fired++ })
	w.run()
	assert.Equal(t, 1, fired, "the leader is asked at once what is safe by now")
	w.nodes[2].Watch(p, 1, true, func() { fired += 10 })
	w.run()
	require.NoError(t, w.append(1, "b"))
	assert.Equal(t, 11, fired, "and says so when that grows")
	w.nodes[2].Watch(p, 2, false, func() { fired += 100 })
	assert.Equal(t, 111, fired, "where copies will not do there is something else to say")
}

// What an earlier life took for safe does not count for records that came in its place.
func TestHighWatermarkIsLoweredBeforeACut(t *testing.T) {
	w := newPair(t)
	w.assign(1, 1, 1, 2)
	require.NoError(t, w.append(1, "a", "b"))
	w.cut = true
	w.assign(1, 1, 1)
	require.NoError(t, w.append(1, "c", "d", "e"))
	require.NoError(t, w.nodes[1].Close()) // it saves that 5 are safe
	w.nodes[1] = nil

	// An unclean election: 2 lacks c, d and e, and leads.
	w.assign(2, 2, 2)
	require.NoError(t, w.append(2, "x", "y", "z"))
	w.cut = false
	w.open(1)
	w.assign(2, 3, 2)
	require.Equal(t, "abxyz", w.own(1))

	// 1 dies before it has saved anything else, and leads with 2 in sync.
	for crash := range w.disks[1].Crashes(1, rand.New(rand.NewPCG(1, 1))) {
		w.disks[1] = crash.FS
		break
	}
	w.cut, w.nodes[1] = true, nil
	w.open(1)
	w.assign(1, 4, 1, 2)
	look, err := w.nodes[1].Look(p)
	require.NoError(t, err)
	assert.Equal(t, []int64{2, 5}, []int64{look.HighWatermark, look.LogEndOffset}, "2 has not said that it holds x, y and z")
}

// Who knows what an epoch's leader knew does not write in a later one.
func TestAppendInAnEpoch(t *testing.T) {
	w := newPair(t)
	w.assign(1, 1, 1, 2)
	try := func(epoch int32) (err error) {
		b, berr := commitlog.NewBatch(record.V2, []record.Record{{Value: []byte("x")}}, record.Encoding{Timestamp: time.Unix(1e9, 0)}, commitlog.Limits{})
		require.NoError(t, berr)
		w.nodes[1].Append(p, replica.AllInSync, epoch, b, func(_ commitlog.Appended, e error) { err = e })
		w.run()
		return err
	}
	require.NoError(t, try(1))
	w.assign(1, 2, 1, 2)
	require.ErrorIs(t, try(1), replica.ErrLeadershipLost)
	require.NoError(t, try(2))
	assert.Equal(t, "xx", w.own(1))
}

// Damage in one replica is its own: the others open, and it says what is wrong.
func TestDamagedReplicaIsReported(t *testing.T) {
	w := newPair(t)
	other := topic.Partition{Topic: "flights", ID: 1}
	require.NoError(t, w.nodes[1].Create(other))
	w.assign(1, 1, 1)
	require.NoError(t, w.append(1, "a", "b"))
	require.NoError(t, w.nodes[1].Close())
	w.disks[1].Edit(w.nodes[1].Dir(p)+"/log.meta", func(data []byte) []byte { data[len(data)/2] ^= 1; return data })
	w.open(1)
	w.nodes[1].OpenReplicas(other)
	_, err := w.nodes[1].Status(other)
	require.NoError(t, err)
	var corrupt *node.CorruptReplicaError
	_, err = w.nodes[1].Status(p)
	require.ErrorAs(t, err, &corrupt)
	var where *commitlog.CorruptionError
	require.ErrorAs(t, err, &where, "it says where")
}

// Appends of many goroutines beside changes of the role: nobody hangs, no offset is given
// twice, and what is acknowledged is where it was said to be.
func TestAppendsBesideRoleChanges(t *testing.T) {
	n, err := node.Open(node.Options{
		ID: 1, Dir: "data", Log: commitlog.Options{FS: vfs.NewMem(), SegmentBytes: 16 << 10},
		Propose: func(topic.Partition, replica.Assignment) {},
		Send:    func(topic.Partition, replica.Message) error { return errors.New("there is nobody else") },
	})
	require.NoError(t, err)
	require.NoError(t, n.Create(p))
	assign := func(version int64) {
		n.Assign(p, replica.Assignment{Version: version, Leader: 1, LeaderEpoch: int32(version), Replicas: []replica.BrokerID{1}, ISR: []replica.BrokerID{1}})
	}
	assign(1)
	n.Flush(p)
	var writers sync.WaitGroup
	var mu sync.Mutex
	at := map[int64]string{}
	for w := range 8 {
		writers.Go(func() {
			for i, acknowledged := 0, 0; acknowledged < 20; i++ {
				v := fmt.Sprintf("%d/%d", w, i)
				b, err := commitlog.NewBatch(record.V2, []record.Record{{Value: []byte(v)}}, record.Encoding{Timestamp: time.Unix(1e9, 0)}, commitlog.Limits{})
				if !assert.NoError(t, err) {
					return
				}
				got, err := n.AppendAndWait(t.Context(), p, replica.Quorum, b)
				if err != nil {
					continue // the leadership changed
				}
				mu.Lock()
				assert.NotContains(t, at, got.BaseOffset)
				at[got.BaseOffset] = v
				mu.Unlock()
				acknowledged++
			}
		})
	}
	for version := int64(2); version < 60; version++ {
		assign(version)
		n.Flush(p)
	}
	writers.Wait()
	assert.NotEmpty(t, at)
	for r, err := range n.Own(p) {
		require.NoError(t, err)
		if v, ok := at[r.Offset]; ok {
			require.Equal(t, v, string(r.Value))
			delete(at, r.Offset)
		}
	}
	assert.Empty(t, at, "acknowledged, and not in the log")
	require.NoError(t, n.Close())
}

// Whoever asks about a replica while its log is being opened is told so.
func TestAskedWhileOpening(t *testing.T) {
	n := alone(t, vfs.NewMem())
	defer n.Close()
	for i := range 200 {
		p := topic.Partition{Topic: "t", ID: i}
		ready, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			close(ready)
			for !n.Usable(p) {
				n.Report(p)
				_, _ = n.Status(p)
			}
		}()
		<-ready
		require.NoError(t, n.Create(p))
		<-done
	}
}
