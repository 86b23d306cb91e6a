package controller_test

import (
	"context"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"logbook/engine/commitlog"
	"logbook/engine/controller"
	"logbook/engine/metadata"
	"logbook/engine/replica"
	"logbook/engine/topic"
	"logbook/engine/vfs"
)

var p0 = controller.Partition{Topic: "flights", ID: 0}

func spec(name string, partitions, replication int) controller.TopicSpec {
	return controller.TopicSpec{Name: name, Partitions: partitions, Replication: replication, Partitioner: topic.SHA256.Name()}
}

func openLedger(t *testing.T, disk *vfs.Mem) *controller.Ledger {
	t.Helper()
	l, err := controller.OpenLedger("root", commitlog.Options{FS: disk}, nil)
	require.NoError(t, err)
	return l
}

func newLedger(t *testing.T, disk *vfs.Mem) *controller.Ledger {
	t.Helper()
	l := openLedger(t, disk)
	for id := replica.BrokerID(1); id <= 3; id++ {
		require.NoError(t, l.Register(id))
	}
	require.NoError(t, l.CreateTopic(spec("flights", 3, 2)))
	return l
}

func powerFailure(disk *vfs.Mem) *vfs.Mem {
	for c := range disk.Crashes(1, nil) {
		return c.FS
	}
	return nil
}

func TestDecisionsOutliveThePowerFailure(t *testing.T) {
	disk := vfs.NewMem()
	want := newLedger(t, disk).Image().Records()
	assert.Equal(t, want, openLedger(t, powerFailure(disk)).Image().Records())
}

func TestPlacementAndEpochs(t *testing.T) {
	l := newLedger(t, vfs.NewMem())
	for i, want := range [][]replica.BrokerID{{1, 2}, {2, 3}, {3, 1}} {
		a, ok := l.Image().Assignment(controller.Partition{Topic: "flights", ID: i})
		require.True(t, ok)
		assert.Equal(t, []any{want, want[0], int32(1)}, []any{a.Replicas, a.Leader, a.LeaderEpoch})
	}
	require.NoError(t, l.Register(2))
	a, _ := l.Image().Assignment(controller.Partition{Topic: "flights", ID: 1})
	assert.Equal(t, int32(2), a.LeaderEpoch, "a leader that starts begins a new epoch")
	a, _ = l.Image().Assignment(p0)
	assert.Equal(t, int32(1), a.LeaderEpoch, "of what it leads, and of nothing else")
}

func TestWhatCannotBeDecided(t *testing.T) {
	l := newLedger(t, vfs.NewMem())
	var broker *controller.BrokerError
	require.ErrorAs(t, l.Register(0), &broker)
	require.ErrorAs(t, l.CreateTopic(spec("wide", 1, 4)), &broker)
	var exists *topic.ExistsError
	require.ErrorAs(t, l.CreateTopic(spec("flights", 1, 1)), &exists)
	var name *topic.NameError
	require.ErrorAs(t, l.CreateTopic(spec("../etc", 1, 1)), &name)
	var count *topic.CountError
	require.ErrorAs(t, l.CreateTopic(spec("none", 0, 1)), &count)

	a, _ := l.Image().Assignment(p0)
	next := a.Clone()
	next.Version++
	next.ISR = []replica.BrokerID{1}
	require.NoError(t, l.Propose(p0, next))
	var stale *controller.StaleError
	require.ErrorAs(t, l.Propose(p0, next), &stale)
	var unknown *controller.UnknownPartitionError
	require.ErrorAs(t, l.Propose(controller.Partition{Topic: "flights", ID: 9}, next), &unknown)
}

// brokers answers for replicas, as far as they are there.
type brokers struct {
	reports map[replica.BrokerID]controller.Report
	digests map[replica.BrokerID][]commitlog.FrameDigest
}

func (b brokers) Report(_ context.Context, _ controller.Partition, id replica.BrokerID) controller.Report {
	r, ok := b.reports[id]
	if !ok {
		r.Err = syscall.ECONNREFUSED
	}
	r.Broker = id
	return r
}

func (b brokers) FrameDigests(_ context.Context, _ controller.Partition, id replica.BrokerID, from int64, _ int) ([]commitlog.FrameDigest, error) {
	return b.digests[id][from:], nil
}

func TestFailover(t *testing.T) {
	one := []commitlog.FrameDigest{{NextOffset: 1, Hash: 1}, {BaseOffset: 1, NextOffset: 2, Hash: 2}}
	other := []commitlog.FrameDigest{{NextOffset: 1, Hash: 1}, {BaseOffset: 1, NextOffset: 2, Hash: 3}}
	at := func(end int64) controller.Report { return controller.Report{LogEndOffset: end, LastEpoch: 1} }
	fail := func(b brokers) (controller.FailoverResult, error) {
		l := openLedger(t, vfs.NewMem())
		for id := replica.BrokerID(1); id <= 3; id++ {
			require.NoError(t, l.Register(id))
		}
		require.NoError(t, l.CreateTopic(spec("flights", 1, 3)))
		return l.Failover(t.Context(), p0, b)
	}
	f, err := fail(brokers{map[replica.BrokerID]controller.Report{2: at(1), 3: at(2)}, map[replica.BrokerID][]commitlog.FrameDigest{2: one[:1], 3: one}})
	require.NoError(t, err)
	assert.Equal(t, controller.FailoverResult{Partition: p0, Old: 1, New: 3, LeaderEpoch: 2, LogEndOffset: 2, ISR: []replica.BrokerID{2, 3}}, f)

	_, err = fail(brokers{reports: map[replica.BrokerID]controller.Report{1: at(1), 2: at(1)}})
	var alive *controller.LeaderStillAvailableError
	require.ErrorAs(t, err, &alive)
	_, err = fail(brokers{})
	var nobody *controller.NoEligibleReplicaError
	require.ErrorAs(t, err, &nobody)
	_, err = fail(brokers{map[replica.BrokerID]controller.Report{2: at(2), 3: at(2)}, map[replica.BrokerID][]commitlog.FrameDigest{2: one, 3: other}})
	var diverged *controller.DivergenceError
	require.ErrorAs(t, err, &diverged)
	assert.Equal(t, int64(1), diverged.Offset)
}

// Each operation on the disk fails once: the change counts or does not, as was said, also
// after a power failure; and later changes go on from there.
func TestEveryDiskErrorIsToldTheTruthAbout(t *testing.T) {
	for k := 1; ; k++ {
		disk := vfs.NewMem()
		l := newLedger(t, disk)
		n := 0
		disk.Before = func(vfs.Op) error {
			if n++; n == k {
				return syscall.EIO
			}
			return nil
		}
		err := l.Register(4)
		disk.Before = nil
		if n < k {
			require.NoError(t, err)
			return
		}
		counts := len(l.Image().Brokers()) == 4
		assert.Equal(t, err == nil, counts, "k=%d: %v", k, err)
		for _, d := range []*vfs.Mem{disk.Kill(), powerFailure(disk)} {
			assert.Equal(t, counts, len(openLedger(t, d).Image().Brokers()) == 4, "k=%d", k)
		}
		require.NoError(t, l.Register(5))
		assert.Contains(t, openLedger(t, powerFailure(disk)).Image().Brokers(), replica.BrokerID(5))
	}
}

// Every bit of the decisions is under a checksum.
func TestNoFlippedBitIsBelieved(t *testing.T) {
	disk := vfs.NewMem()
	l := newLedger(t, disk)
	want := l.Image().Records()
	require.NoError(t, l.Close())
	names, err := disk.ReadDir("root")
	require.NoError(t, err)
	flips := 0
	for _, name := range names {
		data, err := vfs.ReadFile(disk, "root/"+name, 16<<20)
		require.NoError(t, err)
		for i := range data {
			if len(data) > 8192 && i > 4096 {
				break // space that was preallocated
			}
			d := disk.Kill()
			d.Edit("root/"+name, func(data []byte) []byte { data[i] ^= 1 << (i % 8); return data })
			l, err := controller.OpenLedger("root", commitlog.Options{FS: d}, nil)
			flips++
			if err != nil {
				var damage *metadata.DamageError
				require.ErrorAs(t, err, &damage, "%s, byte %d", name, i)
				continue
			}
			require.Equal(t, want, l.Image().Records(), "%s, byte %d", name, i)
		}
	}
	require.Greater(t, flips, 1000)
}
