package cluster_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"logbook/engine/cluster"
	"logbook/engine/controller"
	"logbook/engine/metadata"
	"logbook/engine/node"
	"logbook/engine/record"
	"logbook/engine/replica"
	"logbook/engine/vfs"
)

// The schedules in which replicated logs have lost or invented records, one by one, and
// what this one makes of them. Package replica has the same at the level of messages.

// reopened puts the cluster onto another disk, with every broker down.
func (w *world) reopened(disk *vfs.Mem) *world {
	w.t.Helper()
	next := &world{t: w.t, disk: disk, opt: w.opt}
	next.open()
	w.t.Cleanup(func() { _ = next.Close() })
	return next
}

// powerFailure returns the disk as it is when nothing unsynced survives.
func powerFailure(disk *vfs.Mem) *vfs.Mem {
	for c := range disk.Crashes(1, nil) {
		return c.FS
	}
	return nil
}

func TestScheduleKIP101BothLoseWhatWasNotSynced(t *testing.T) {
	w := newWorld(t, 2, cluster.Options{})
	w.mustSend("a")
	w.stop(1, 2)
	w.diverge(1, 0, "b") // survived on 1, was lost on 2
	w.start(2)
	f := w.failover()
	assert.Equal(t, int64(1), f.LogEndOffset)
	w.mustSend("c")
	w.start(1)
	assert.Equal(t, []string{"a", "b"}, w.values(1), "as long as the leader's log, and another one")
	w.recover(1)
	assert.Equal(t, []string{"a", "c"}, w.values(1))
	assert.Equal(t, []string{"a", "c"}, w.values(2))
}

func TestScheduleKIP279TwoFailoversInARow(t *testing.T) {
	w := newWorld(t, 2, cluster.Options{})
	w.mustSend("a")
	w.stop(1)
	w.diverge(1, 0, "b", "c")
	w.failover()
	w.mustSend("d", "e")
	w.stop(2)
	w.start(1)
	// 1 has as many records, and is not in sync: it lacks d and e, which were promised.
	var none *controller.NoEligibleReplicaError
	_, err := w.Failover(t.Context(), flights0)
	require.ErrorAs(t, err, &none)
	assert.Equal(t, replica.BrokerID(2), none.Leader)
	assert.Contains(t, none.Reasons[1], "not in sync")
	w.start(2)
	w.mustSend("f")
	w.recover(1)
	w.stop(2)
	assert.Equal(t, replica.BrokerID(1), w.failover().New)
	w.mustSend("g")
	assert.Equal(t, []string{"a", "d", "e", "f", "g"}, w.values(1))
	w.start(2)
	w.recover(2)
	assert.Equal(t, w.values(1), w.values(2))
}

func TestScheduleReturningLeaderWithALongerLog(t *testing.T) {
	w := newWorld(t, 3, cluster.Options{})
	w.mustSend("a")
	w.stop(1)
	w.diverge(1, 0, "b", "c", "d", "e")
	w.failover()
	w.mustSend("f")
	w.start(1)
	s, err := w.Status(flights0)
	require.NoError(t, err)
	assert.Equal(t, int64(-3), s.Replicas[0].Lag, "ahead, and worth nothing")
	assert.False(t, s.Replicas[0].InSync)
	var d *node.ReplicaDivergenceError
	require.ErrorAs(t, w.CatchUp(t.Context(), flights0, 1), &d)
	assert.Equal(t, int64(1), d.Offset)
	w.recover(1)
	assert.Equal(t, []string{"a", "f"}, w.values(1))
}

func TestScheduleEqualLengthDifferentContent(t *testing.T) {
	w := newWorld(t, 3, cluster.Options{})
	w.mustSend("a")
	w.stop(1, 2, 3)
	w.diverge(2, 0, "x")
	w.diverge(3, 0, "y")
	w.start(2, 3)
	// Which of the two histories is real, nobody can know.
	var d *node.ReplicaDivergenceError
	_, err := w.Failover(t.Context(), flights0)
	require.ErrorAs(t, err, &d)
	assert.Equal(t, []any{replica.BrokerID(2), replica.BrokerID(3), int64(1)}, []any{d.Leader, d.Follower, d.Offset})
	a, err := w.Assignment(flights0)
	require.NoError(t, err)
	assert.Equal(t, replica.BrokerID(1), a.Leader, "the recorded leader stays")
	w.stop(3) // a person decides
	assert.Equal(t, replica.BrokerID(2), w.failover().New)
	w.start(1, 3)
	w.recover(1)
	w.recover(3)
	assert.Equal(t, []string{"a", "x"}, w.values(3))
}

// After every operation on the returning broker's disk, while it is cut and copied to, the
// power fails everywhere. Whatever survives is opened, and recovery runs again.
func TestScheduleCrashDuringTruncationAndCopying(t *testing.T) {
	w := newWorld(t, 3, cluster.Options{})
	w.mustSend("a", "b")
	w.stop(1)
	w.diverge(1, 0, "lost 1", "lost 2")
	w.failover()
	w.mustSend("c", "d", "e")
	w.start(1)
	rng := rand.New(rand.NewPCG(5, 5))
	states, points := 0, 0
	var mu sync.Mutex
	w.disk.After = func(op vfs.Op) {
		if !strings.Contains(op.Name, "broker-000001") {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		points++
		for c := range w.disk.Crashes(3, rng) {
			states++
			if !checkRecovers(w, c.FS, fmt.Sprintf("after %v: %s", op, c.What)) {
				return
			}
		}
	}
	w.recover(1)
	w.disk.After = nil
	assert.Equal(t, []string{"a", "b", "c", "d", "e"}, w.values(1))
	assert.Greater(t, points, 10)
	t.Logf("%d points, %d states", points, states)
}

func checkRecovers(w *world, disk *vfs.Mem, what string) bool {
	c := w.reopened(disk)
	defer c.Close()
	want := []string{"a", "b", "c", "d", "e"}
	c.start(1, 2, 3)
	if err := c.Recover(w.t.Context(), flights0, 1); !assert.NoError(w.t, err, what) {
		return false
	}
	return assert.Equal(w.t, want, c.values(1), what) && assert.Equal(w.t, want, c.values(2), what) && assert.NoError(w.t, c.send("f"), what)
}

func TestScheduleFollowerDamagedOnDisk(t *testing.T) {
	w := newWorld(t, 3, cluster.Options{})
	w.mustSend("a", "b", "c")
	dir := filepath.Join("root", "broker-000002", "topics", "flights", "partition-000000")
	w.stop(2)
	w.disk.Edit(filepath.Join(dir, "00000000000000000000.log"), func(b []byte) []byte { b[70] ^= 1; return b })
	// The log was closed cleanly: the damage shows when it is read.
	w.start(2)
	w.mustSend("d")
	var d *node.ReplicaDivergenceError
	err := w.CatchUp(t.Context(), flights0, 2)
	require.Error(t, err)
	assert.False(t, errors.As(err, &d), "damage is not divergence")
	assert.Contains(t, err.Error(), "is damaged")

	// As leader it cannot be: comparing the candidates reads all of them.
	w.stop(1)
	_, err = w.Failover(t.Context(), flights0)
	require.ErrorContains(t, err, "is damaged")
	w.start(1)

	// A person takes the damaged directory away, and the replica is copied anew.
	w.stop(2)
	names, err := w.disk.ReadDir(dir)
	require.NoError(t, err)
	for _, name := range names {
		require.NoError(t, w.disk.Remove(filepath.Join(dir, name)))
	}
	w.start(2)
	s, err := w.Status(flights0)
	require.NoError(t, err)
	var missing *node.MissingReplicaError
	require.ErrorAs(t, s.Replicas[1].Problem, &missing, "it does not come back empty and in sync")
	w.stop(1, 3)
	var none *controller.NoEligibleReplicaError
	_, err = w.Failover(t.Context(), flights0)
	require.ErrorAs(t, err, &none)
	w.start(1, 3)
	w.recover(2)
	assert.Equal(t, []string{"a", "b", "c", "d"}, w.values(2))
	w.mustSend("e")
}

func TestScheduleUncleanDamageKeepsAReplicaOffline(t *testing.T) {
	w := newWorld(t, 2, cluster.Options{})
	w.mustSend("a", "b", "c")
	killed := w.disk.Kill()
	killed.Edit(filepath.Join("root", "broker-000002", "topics", "flights", "partition-000000", "00000000000000000000.log"), func(b []byte) []byte { b[70] ^= 1; return b })
	w = w.reopened(killed)
	w.start(1, 2)
	s, err := w.Status(flights0)
	require.NoError(t, err)
	var corrupt *node.CorruptReplicaError
	require.ErrorAs(t, s.Replicas[1].Problem, &corrupt)
	assert.False(t, s.Replicas[1].Known)
	require.ErrorAs(t, w.Recover(t.Context(), flights0, 2), &corrupt, "a damaged log is not rebuilt from a guess")
}

func TestScheduleMetadataWrittenAndLeaderDeadBeforeItsFirstWrite(t *testing.T) {
	w := newWorld(t, 3, cluster.Options{})
	w.mustSend("a")
	w.stop(1)
	assert.Equal(t, replica.BrokerID(2), w.failover().New)
	w.stop(2)
	f := w.failover()
	assert.Equal(t, []any{replica.BrokerID(3), int32(3), int64(1)}, []any{f.New, f.LeaderEpoch, f.LogEndOffset})
	w.mustSend("b")
	w.start(2, 1)
	w.recover(2)
	w.recover(1)
	assert.Equal(t, []string{"a", "b"}, w.values(1))
	assert.Equal(t, []string{"a", "b"}, w.values(2))
}

func isMeta(op vfs.Op) bool {
	return strings.Contains(op.Name, metadata.LogName)
}

// The k-th operation on the log of decisions fails, and the next ones too or not. The failover
// does not count, in memory and after a restart, or the restart finds all of it.
func TestScheduleMetadataWriteFailsMidway(t *testing.T) {
	for _, repaired := range []bool{true, false} {
		for k := 1; ; k++ {
			w := newWorld(t, 3, cluster.Options{})
			w.mustSend("a")
			w.stop(1)
			n, failing := 0, true
			w.disk.Before = func(op vfs.Op) error {
				if !failing || !isMeta(op) {
					return nil
				}
				if n++; n == k || n > k && !repaired {
					return syscall.EIO
				}
				return nil
			}
			_, err := w.Failover(t.Context(), flights0)
			if n < k {
				require.NoError(t, err)
				require.Greater(t, k, 3, "write, sync, and the mark's write")
				break
			}
			counts := err == nil // the log was opened again, and the decision is in it
			if !counts {
				require.ErrorIs(t, err, syscall.EIO, "k=%d", k)
			}
			now, err := w.Assignment(flights0)
			require.NoError(t, err)
			assert.Equal(t, counts, now.Leader == 2, "k=%d", k)
			if !counts {
				var down *cluster.BrokerDownError
				require.ErrorAs(t, w.send("x"), &down)
			}
			for _, disk := range []*vfs.Mem{w.disk.Kill(), powerFailure(w.disk)} {
				r := w.reopened(disk)
				a, err := r.Assignment(flights0)
				require.NoError(t, err, "k=%d", k)
				if repaired || counts {
					assert.Equal(t, now.Leader, a.Leader, "k=%d: a restart finds what was said", k)
				}
				r.start(1, 2, 3)
				if a.Leader == 2 {
					r.recover(1)
				}
				r.mustSend("b")
				assert.Equal(t, []string{"a", "b"}, r.values(1))
			}
			failing = false
			if !counts {
				w.failover()
			}
			w.mustSend("b")
		}
	}
}

// A replica is added to the ISR, and the write of that fails in such a way that a restart may
// find either. From then on it must not miss a record: it could be all that is left.
func TestScheduleActivationNobodyIsSureOf(t *testing.T) {
	w := newWorld(t, 3, cluster.Options{})
	w.mustSend("a")
	w.stop(1)
	w.failover()
	w.mustSend("b")
	w.start(1)
	written := false
	w.disk.Before = func(op vfs.Op) error {
		if op.Kind == vfs.OpWrite && isMeta(op) && !written {
			written = true
			return nil
		}
		if written && isMeta(op) {
			return syscall.EIO
		}
		return nil
	}
	err := w.Recover(t.Context(), flights0, 1)
	require.ErrorContains(t, err, "could not be added to the ISR")
	w.stop(1)
	var re *node.ReplicationError
	require.ErrorAs(t, w.send("c"), &re)
	assert.Contains(t, re.Failed, replica.BrokerID(1))
	w.disk.Before = nil
	w.start(1)
	w.recover(1)
	w.mustSend("d")
	assert.Equal(t, []string{"a", "b", "c", "d"}, w.values(1))
}

func TestScheduleLastActiveReplicaLost(t *testing.T) {
	w := newWorld(t, 2, cluster.Options{})
	w.mustSend("a")
	w.stop(2)
	var re *node.ReplicationError
	require.ErrorAs(t, w.send("b"), &re)
	w.stop(1)
	w.start(2)
	w.failover() // 2 is in sync, and lacks only what was never acknowledged
	w.mustSend("c")
	w.stop(2)
	w.start(1)
	var none *controller.NoEligibleReplicaError
	_, err := w.Failover(t.Context(), flights0)
	require.ErrorAs(t, err, &none)
	var down *cluster.BrokerDownError
	require.ErrorAs(t, w.send("d"), &down, "no leader rather than a wrong one")
	require.ErrorAs(t, w.Recover(t.Context(), flights0, 1), &down)
	w.start(2)
	w.recover(1)
	assert.Equal(t, []string{"a", "c"}, w.values(1))
}

func TestScheduleRecoveryWhileWritesGoOn(t *testing.T) {
	w := newWorld(t, 3, cluster.Options{})
	w.mustSend("a")
	w.stop(1)
	w.diverge(1, 0, "lost")
	w.failover()
	w.start(1)
	stop := make(chan struct{})
	var writers sync.WaitGroup
	var mu sync.Mutex
	acknowledged := map[int64]string{}
	for i := range 4 {
		writers.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				value := fmt.Sprintf("%d-%d", i, n)
				at, err := w.Append(t.Context(), flights0, record.Record{Value: []byte(value)})
				if !assert.NoError(t, err) {
					return
				}
				mu.Lock()
				acknowledged[at.Offset] = value
				mu.Unlock()
			}
		})
	}
	w.recover(1)
	close(stop)
	writers.Wait()
	w.mustSend("last")
	for id := 1; id <= 3; id++ {
		got := w.values(id)
		for offset, value := range acknowledged {
			require.Equal(t, value, got[offset], "broker %d, offset %d", id, offset)
		}
		assert.Equal(t, w.values(2), got)
	}
}

func TestScheduleEveryBrokerRestartedAtOnce(t *testing.T) {
	for _, how := range []struct {
		name string
		disk func(*vfs.Mem) *vfs.Mem
	}{{"killed", (*vfs.Mem).Kill}, {"power failure", powerFailure}} {
		t.Run(how.name, func(t *testing.T) {
			w := newWorld(t, 3, cluster.Options{})
			w.mustSend("a", "b", "c")
			w = w.reopened(how.disk(w.disk))
			w.start(3, 1, 2)
			w.mustSend("d")
			for id := 1; id <= 3; id++ {
				assert.Equal(t, []string{"a", "b", "c", "d"}, w.values(id))
			}
			a, err := w.Assignment(flights0)
			require.NoError(t, err)
			assert.Equal(t, int32(2), a.LeaderEpoch, "the leader's new life is a new epoch")
		})
	}
}

// A partition whose disk hangs holds up no other.
func TestWritesToOnePartitionDoNotWaitForAnother(t *testing.T) {
	w := newWorld(t, 2, cluster.Options{})
	require.NoError(t, w.CreateTopic("other", 2, 2))
	release, entered := make(chan struct{}), make(chan struct{})
	var once sync.Once
	w.disk.After = func(op vfs.Op) {
		if strings.Contains(op.Name, "flights") && op.Kind == vfs.OpSync {
			once.Do(func() { close(entered) })
			<-release
		}
	}
	stuck := make(chan error)
	go func() { stuck <- w.send("slow") }()
	<-entered
	for id := range 2 {
		_, err := w.Append(t.Context(), cluster.Partition{Topic: "other", ID: id}, record.Record{Value: []byte("fast")})
		require.NoError(t, err)
	}
	close(release)
	require.NoError(t, <-stuck)
}
