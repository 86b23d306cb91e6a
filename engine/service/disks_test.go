package service_test

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"logbook/engine/replica"
	"logbook/engine/service"
	"logbook/engine/vfs"
)

func firstAlive(c *service.Config) { c.Controller, c.MinInSync = "first-alive", 2 }

// full makes writes below a directory fail, as on a full disk.
func full(dir string) func(vfs.Op) error {
	return func(op vfs.Op) error {
		if strings.HasPrefix(op.Name, dir) && (op.Kind == vfs.OpWrite || op.Kind == vfs.OpCreate) {
			return syscall.ENOSPC
		}
		return nil
	}
}

const flightsDir = "data/topics/flights"

// leads waits for somebody to lead, as all who are up agree, and for who is in sync.
func (b *brokers) leads(p service.Partition, isr ...service.BrokerID) service.BrokerID {
	b.t.Helper()
	var leader service.BrokerID
	b.until(fmt.Sprint("a leader with ", isr, " in sync"), func() bool {
		leader = replica.None
		for id, s := range b.all {
			if b.down[id] {
				continue
			}
			a, _ := s.Image().Assignment(p)
			if leader == replica.None {
				leader = a.Leader
			}
			if a.Leader == replica.None || a.Leader != leader {
				return false
			}
		}
		st, _ := b.all[leader].Image().Assignment(p)
		return slices.Equal(st.ISR, isr)
	})
	return leader
}

// pass lets time pass.
func (b *brokers) pass(d time.Duration) {
	for end := b.now.Add(d); b.now.Before(end); {
		b.turn()
	}
}

// write produces a value once a broker has heard that it leads, perhaps more than once.
func (b *brokers) write(id service.BrokerID, p service.Partition, value string) {
	b.t.Helper()
	b.until("broker leads", func() bool { _, err := b.produce(id, p, value); return err == nil })
}

// read reads everything from a partition's leader.
func (b *brokers) read(p service.Partition) (out []string) {
	b.t.Helper()
	leader := b.leader(1, p)
	for from := int64(0); ; {
		f := b.fetch(leader, service.Fetch{Partitions: []service.FetchPartition{{Partition: p, Offset: from, MaxBytes: 1 << 20}}})[0]
		if f.Next == from {
			return out
		}
		out, from = append(out, values(b.t, f)...), f.Next
	}
}

// A leader whose disk fills gives up what it led to those who hold it all. When there is
// room again it opens its log by itself, and follows.
func TestALeaderWithAFullDiskLetsAnotherLead(t *testing.T) {
	b := start(t, 3, firstAlive)
	b.topic("flights", 1, 3)
	old := b.leads(flights, 1, 2, 3)
	_, err := b.produce(old, flights, "a")
	require.NoError(t, err)

	b.disks[old].Before = full(flightsDir)
	_, err = b.produce(old, flights, "b")
	assert.Equal(t, service.Unavailable, code(t, err).Code)
	began := b.now
	rest := slices.DeleteFunc([]service.BrokerID{1, 2, 3}, func(id service.BrokerID) bool { return id == old })
	next := b.leads(flights, rest...)
	require.NotEqual(t, old, next)
	assert.Less(t, b.now.Sub(began), 5*time.Second)
	b.write(next, flights, "c")
	assert.Equal(t, []service.Partition{flights}, b.all[old].Unusable())

	b.disks[old].Before = nil
	b.leads(flights, 1, 2, 3)
	assert.Empty(t, b.all[old].Unusable())
	assert.Equal(t, []string{"a", "c"}, slices.Compact(b.read(flights)), "the record that was refused is nowhere")
}

// With the manual controller nobody else is promoted; the same broker goes on once there
// is room, without a restart.
func TestAFullDiskIsNoReasonToRestart(t *testing.T) {
	b := start(t, 1, nil)
	b.topic("flights", 1, 1)
	_, err := b.produce(1, flights, "a")
	require.NoError(t, err)
	b.disks[1].Before = full(flightsDir)
	for range 3 {
		_, err = b.produce(1, flights, "b")
		assert.Equal(t, service.Unavailable, code(t, err).Code)
	}
	b.pass(20 * time.Second)
	_, err = b.produce(1, flights, "b")
	assert.Equal(t, service.Unavailable, code(t, err).Code, "there is still no room")
	assert.Equal(t, []string{"a"}, b.read(flights), "and all that was acknowledged can be read")

	b.disks[1].Before = nil
	b.until("the log is open again", func() bool { return len(b.all[1].Unusable()) == 0 })
	b.write(1, flights, "c")
	assert.Equal(t, []string{"a", "c"}, slices.Compact(b.read(flights)))
}

// A replica that could not be opened is opened when it can be.
func TestAReplicaThatCouldNotBeOpenedIsTriedAgain(t *testing.T) {
	b := start(t, 1, nil)
	b.topic("flights", 3, 1)
	_, err := b.produce(1, flights, "a")
	require.NoError(t, err)
	require.NoError(t, b.close(1))
	b.disks[1] = b.disks[1].Kill()
	holder, err := b.disks[1].Lock(flightsDir + "/partition-000000/lock") // stands for whatever keeps a log from being opened
	require.NoError(t, err)
	b.open(1)
	assert.Equal(t, []service.Partition{flights}, b.all[1].Unusable())
	require.NoError(t, holder.Close())
	b.until("the log is open", func() bool { return len(b.all[1].Unusable()) == 0 })
	b.write(1, flights, "b")
	assert.Equal(t, []string{"a", "b"}, b.read(flights))
}

// Files that are deleted under a running broker take no record more.
func TestADeletedDirectoryIsNoticed(t *testing.T) {
	b := start(t, 3, firstAlive)
	b.topic("flights", 1, 3)
	old := b.leads(flights, 1, 2, 3)
	_, err := b.produce(old, flights, "a")
	require.NoError(t, err)
	for _, f := range b.disks[old].Files(flightsDir) {
		require.NoError(t, b.disks[old].Remove(f))
	}
	_, err = b.produce(old, flights, "b")
	assert.Equal(t, service.Unavailable, code(t, err).Code, "not acknowledged into files without a name")
	rest := slices.DeleteFunc([]service.BrokerID{1, 2, 3}, func(id service.BrokerID) bool { return id == old })
	next := b.leads(flights, rest...)
	b.write(next, flights, "c")
	b.pass(10 * time.Second)
	st, err := await(b, "a status", func(done func(service.PartitionStatus, error)) { b.all[next].PartitionStatus(flights, done) })
	require.NoError(t, err)
	for _, r := range st.Replicas {
		if r.Broker == old {
			assert.Contains(t, r.Report.Problem, "is missing")
		}
	}
	_, err = await(b, "a recovery", func(done func(int, error)) { b.all[old].Recover(flights, func(err error) { done(0, err) }) })
	require.NoError(t, err)
	b.leads(flights, 1, 2, 3)
	assert.Equal(t, []string{"a", "c"}, slices.Compact(b.read(flights)))
}
