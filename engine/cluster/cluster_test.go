package cluster_test

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"logbook/engine/cluster"
	"logbook/engine/commitlog"
	"logbook/engine/controller"
	"logbook/engine/node"
	"logbook/engine/record"
	"logbook/engine/replica"
	"logbook/engine/topic"
	"logbook/engine/vfs"
)

var flights0 = cluster.Partition{Topic: "flights", ID: 0}

// world is a cluster on a disk in memory.
type world struct {
	t    *testing.T
	disk *vfs.Mem
	opt  cluster.Options
	*cluster.Cluster
}

// newWorld starts brokers 1 to n and makes the topic flights, one partition on all of them.
func newWorld(t *testing.T, n int, opt cluster.Options) *world {
	t.Helper()
	w := &world{t: t, disk: vfs.NewMem(), opt: opt}
	w.open()
	for id := 1; id <= n; id++ {
		w.start(id)
	}
	require.NoError(t, w.CreateTopic("flights", 1, n))
	t.Cleanup(func() { _ = w.Close() })
	return w
}

func (w *world) open() {
	w.t.Helper()
	w.opt.Log.FS = w.disk
	w.opt.Log.SegmentBytes = 16 << 10 // preallocated, in memory
	if w.opt.Log.Now == nil {
		w.opt.Log.Now = time.Now
	}
	c, err := cluster.Open("root", w.opt)
	require.NoError(w.t, err)
	w.Cluster = c
}

func (w *world) start(ids ...int) {
	w.t.Helper()
	for _, id := range ids {
		require.NoError(w.t, w.Start(replica.BrokerID(id)))
	}
}

func (w *world) stop(ids ...int) {
	w.t.Helper()
	for _, id := range ids {
		require.NoError(w.t, w.Stop(replica.BrokerID(id)))
	}
}

func (w *world) send(value string) error {
	_, err := w.Append(w.t.Context(), flights0, record.Record{Value: []byte(value)})
	return err
}

func (w *world) mustSend(values ...string) {
	w.t.Helper()
	for _, v := range values {
		require.NoError(w.t, w.send(v), v)
	}
}

func (w *world) failover() controller.FailoverResult {
	w.t.Helper()
	f, err := w.Failover(w.t.Context(), flights0)
	require.NoError(w.t, err)
	return f
}

func (w *world) recover(id int) {
	w.t.Helper()
	require.NoError(w.t, w.Recover(w.t.Context(), flights0, replica.BrokerID(id)))
}

// values returns what a broker's log of flights/0 holds.
func (w *world) values(id int) []string {
	w.t.Helper()
	n, err := w.Node(replica.BrokerID(id))
	require.NoError(w.t, err)
	out := []string{}
	for r, err := range n.Own(flights0) {
		require.NoError(w.t, err)
		out = append(out, string(r.Value))
	}
	return out
}

// diverge stores records in a stopped broker's log behind the cluster's back: what a
// leader that failed had taken and nobody else has.
func (w *world) diverge(id int, epoch int32, values ...string) {
	w.t.Helper()
	l, err := commitlog.Open(fmt.Sprintf("root/broker-%06d/topics/flights/partition-000000", id), w.opt.Log)
	require.NoError(w.t, err)
	if epoch > 0 {
		require.NoError(w.t, l.StartEpoch(epoch))
	}
	for _, v := range values {
		_, err := l.Append(record.Record{Value: []byte(v)})
		require.NoError(w.t, err)
	}
	require.NoError(w.t, l.Close())
}

func (w *world) isr() []replica.BrokerID {
	w.t.Helper()
	a, err := w.Assignment(flights0)
	require.NoError(w.t, err)
	return a.ISR
}

func TestPlacementIsTheSeeds(t *testing.T) {
	placed, err := controller.Place([]replica.BrokerID{3, 1, 2}, 3, 2)
	require.NoError(t, err)
	var got [][]replica.BrokerID
	for _, a := range placed {
		assert.Equal(t, a.Leader, a.Replicas[0])
		got = append(got, a.Replicas)
	}
	assert.Equal(t, [][]replica.BrokerID{{1, 2}, {2, 3}, {3, 1}}, got)
	var be *controller.BrokerError
	_, err = controller.Place([]replica.BrokerID{1}, 3, 2)
	require.ErrorAs(t, err, &be)
}

func TestEveryActiveReplicaHoldsTheLeadersBytes(t *testing.T) {
	for _, f := range []record.Format{record.V0, record.V1, record.V2} {
		t.Run(fmt.Sprint("format", f.Version()), func(t *testing.T) {
			w := newWorld(t, 3, cluster.Options{Log: commitlog.Options{Format: f}})
			for i := range 20 {
				w.mustSend(fmt.Sprint("record ", i))
			}
			var sums [][]commitlog.FrameDigest
			for id := 1; id <= 3; id++ {
				n, err := w.Node(replica.BrokerID(id))
				require.NoError(t, err)
				s, err := n.FrameDigests(flights0, 0, 100)
				require.NoError(t, err)
				sums = append(sums, s)
			}
			assert.Len(t, sums[0], 20)
			assert.Equal(t, sums[0], sums[1])
			assert.Equal(t, sums[0], sums[2])
			s, err := w.Status(flights0)
			require.NoError(t, err)
			assert.Equal(t, int64(20), s.HighWatermark)
			for _, r := range s.Replicas {
				assert.True(t, r.Known && r.HasLag)
				assert.Zero(t, r.Lag)
			}
		})
	}
}

func TestWritesGoThroughTheLeaderAlone(t *testing.T) {
	w := newWorld(t, 2, cluster.Options{})
	n, err := w.Node(2)
	require.NoError(t, err)
	b, err := commitlog.NewBatch(record.V2, []record.Record{{Value: []byte("x")}}, record.Encoding{Timestamp: time.Unix(0, 0)}, commitlog.Limits{})
	require.NoError(t, err)
	_, err = n.AppendAndWait(t.Context(), flights0, replica.AllInSync, b)
	var nl *node.NotLeaderError
	require.ErrorAs(t, err, &nl)
	assert.Equal(t, node.NotLeaderError{Partition: flights0, Broker: 2, Leader: 1, LeaderEpoch: 1}, *nl)
}

// P4c and P4d: a follower that cannot store is named, the leader's record stays, the lag
// shows, and catching up is a call.
func TestFollowerThatCannotStore(t *testing.T) {
	w := newWorld(t, 3, cluster.Options{})
	w.mustSend("a", "b")
	full := true
	w.disk.Before = func(op vfs.Op) error {
		if full && op.Kind == vfs.OpWrite && containsBroker(op.Name, 3) {
			return syscall.ENOSPC
		}
		return nil
	}
	err := w.send("c")
	var re *node.ReplicationError
	require.ErrorAs(t, err, &re)
	assert.Equal(t, int64(2), re.Offset)
	assert.Equal(t, replica.BrokerID(1), re.Leader)
	require.Len(t, re.Failed, 1)
	assert.Contains(t, re.Failed[3], "no space left")
	assert.Equal(t, []string{"a", "b", "c"}, w.values(1))
	assert.Equal(t, []string{"a", "b", "c"}, w.values(2))
	assert.Equal(t, []string{"a", "b"}, w.values(3))
	s, err := w.Status(flights0)
	require.NoError(t, err)
	assert.Equal(t, []any{true, int64(1)}, []any{s.Replicas[2].Known, s.Replicas[2].Lag})
	assert.Equal(t, int64(2), s.HighWatermark, "consumers do not see it")

	// The disk has room again. The poisoned log wants a restart, and the replica a call.
	full = false
	w.stop(3)
	s, err = w.Status(flights0)
	require.NoError(t, err)
	assert.False(t, s.Replicas[2].Known, "unknown, not zero")
	assert.False(t, s.Replicas[2].HasLag)
	w.start(3)
	require.ErrorAs(t, w.send("d"), &re, "it lags, and nothing is copied unasked")
	assert.Equal(t, []string{"a", "b"}, w.values(3))
	require.NoError(t, w.CatchUp(t.Context(), flights0, 3))
	assert.Equal(t, []string{"a", "b", "c", "d"}, w.values(3))
	w.mustSend("e")
	assert.Equal(t, w.values(1), w.values(3))
}

func containsBroker(name string, id int) bool {
	return len(name) > 18 && name[5:18] == fmt.Sprintf("broker-%06d", id)
}

func TestDivergenceIsReportedAndNothingChanges(t *testing.T) {
	for _, c := range []struct {
		name   string
		harm   func(w *world)
		offset int64
	}{
		{"ahead", func(w *world) { w.diverge(2, 0, "extra") }, 3},
		{"equal length, other content", func(w *world) {
			w.diverge(2, 0, "x")
			w.diverge(1, 0, "y")
		}, 3},
		{"of another epoch", func(w *world) { w.diverge(2, 9, "extra") }, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, 2, cluster.Options{})
			w.mustSend("a", "b", "c")
			w.stop(1, 2)
			c.harm(w)
			w.start(1, 2)
			before := w.values(2)
			err := w.CatchUp(t.Context(), flights0, 2)
			var d *node.ReplicaDivergenceError
			require.ErrorAs(t, err, &d)
			assert.Equal(t, []any{replica.BrokerID(1), replica.BrokerID(2), c.offset}, []any{d.Leader, d.Follower, d.Offset})
			assert.Equal(t, before, w.values(2))
		})
	}
}

// P5a to P5c, the seed's own example: offset 3 was never acknowledged, and is used again.
func TestFailoverAndRecovery(t *testing.T) {
	w := newWorld(t, 3, cluster.Options{})
	w.mustSend("0", "1", "2")
	var still *controller.LeaderStillAvailableError
	_, err := w.Failover(t.Context(), flights0)
	require.ErrorAs(t, err, &still)

	w.stop(1)
	w.diverge(1, 0, "3 nobody was promised")
	var down *cluster.BrokerDownError
	require.ErrorAs(t, w.send("x"), &down, "nobody is promoted unasked")
	f := w.failover()
	assert.Equal(t, controller.FailoverResult{Partition: flights0, Old: 1, New: 2, LeaderEpoch: 2, LogEndOffset: 3, ISR: []replica.BrokerID{2, 3}}, f)
	w.mustSend("3 again")
	assert.Equal(t, []string{"0", "1", "2", "3 again"}, w.values(2))
	assert.Equal(t, w.values(2), w.values(3))

	w.start(1)
	assert.Equal(t, []string{"0", "1", "2", "3 nobody was promised"}, w.values(1), "nothing is cut unasked")
	w.mustSend("4")
	w.recover(1)
	assert.Equal(t, []string{"0", "1", "2", "3 again", "4"}, w.values(1))
	assert.Equal(t, []replica.BrokerID{1, 2, 3}, w.isr())
	w.mustSend("5")
	assert.Equal(t, w.values(2), w.values(1))

	// It never leads again by itself, restarted or not.
	require.NoError(t, w.Close())
	w.open()
	w.start(1, 2, 3)
	a, err := w.Assignment(flights0)
	require.NoError(t, err)
	assert.Equal(t, replica.BrokerID(2), a.Leader)
	w.mustSend("6")
}

func TestCreateTopicErrors(t *testing.T) {
	w := newWorld(t, 2, cluster.Options{})
	var exists *topic.ExistsError
	require.ErrorAs(t, w.CreateTopic("flights", 1, 1), &exists)
	var name *topic.NameError
	require.ErrorAs(t, w.CreateTopic("../x", 1, 1), &name)
	var be *controller.BrokerError
	require.ErrorAs(t, w.CreateTopic("more", 1, 3), &be)
	w.stop(2)
	var down *cluster.BrokerDownError
	require.ErrorAs(t, w.CreateTopic("more", 2, 2), &down)
	w.start(2)
	require.NoError(t, w.CreateTopic("more", 2, 2), "what was left behind is taken over")
	_, err := w.Append(context.Background(), cluster.Partition{Topic: "more", ID: 5})
	var unknown *controller.UnknownPartitionError
	require.ErrorAs(t, err, &unknown)
}
