package controller_test

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"logbook/engine/controller"
	"logbook/engine/replica"
	"logbook/engine/topic"
	"logbook/engine/vfs"
)

var p0 = controller.Partition{Topic: "flights", ID: 0}

func newManual(t *testing.T, disk *vfs.Mem) *controller.Manual {
	t.Helper()
	m, err := controller.OpenManual(disk, "root", nil)
	require.NoError(t, err)
	for id := replica.BrokerID(1); id <= 3; id++ {
		require.NoError(t, m.Register(id))
	}
	require.NoError(t, m.AddTopic("flights", 3, 2, topic.SHA256))
	return m
}

func TestDecisionsOutliveTheProcess(t *testing.T) {
	disk := vfs.NewMem()
	m := newManual(t, disk)
	want := m.Meta()
	m, err := controller.OpenManual(powerFailure(disk), "root", nil)
	require.NoError(t, err)
	assert.Equal(t, want, m.Meta())
}

func powerFailure(disk *vfs.Mem) *vfs.Mem {
	for c := range disk.Crashes(1, nil) {
		return c.FS
	}
	return nil
}

func TestALeaderThatStartsAgainBeginsANewEpoch(t *testing.T) {
	m := newManual(t, vfs.NewMem())
	var told []string
	m.Watch(func(p controller.Partition, a replica.Assignment) { told = append(told, p.String()) })
	before, _ := m.Assignment(p0)
	require.NoError(t, m.Register(1))
	after, _ := m.Assignment(p0)
	assert.Equal(t, before.Epoch+1, after.Epoch)
	assert.Equal(t, []string{"flights/0"}, told, "broker 1 leads one of the three")
}

func TestProposals(t *testing.T) {
	m := newManual(t, vfs.NewMem())
	now, _ := m.Assignment(p0)
	next := now.Clone()
	next.Version++
	next.Active = []replica.BrokerID{1}
	var stale *controller.StaleError
	for name, change := range map[string]func(a *replica.Assignment){
		"version": func(a *replica.Assignment) { a.Version++ },
		"epoch":   func(a *replica.Assignment) { a.Epoch++ },
		"leader":  func(a *replica.Assignment) { a.Leader = 2 },
	} {
		wrong := next.Clone()
		change(&wrong)
		require.ErrorAs(t, m.Propose(p0, wrong), &stale, name)
	}
	impossible := next.Clone()
	impossible.Active = []replica.BrokerID{2}
	require.ErrorContains(t, m.Propose(p0, impossible), "leader 1 is not one of the active")
	require.NoError(t, m.Propose(p0, next))
	require.ErrorAs(t, m.Propose(p0, next), &stale, "the same once more")
	var unknown *controller.UnknownPartitionError
	require.ErrorAs(t, m.Propose(controller.Partition{Topic: "flights", ID: 3}, next), &unknown)
}

func TestDamagedMetadataIsReportedAndNeverRewritten(t *testing.T) {
	good := func(t *testing.T) *vfs.Mem { disk := vfs.NewMem(); newManual(t, disk); return disk }
	replace := func(old, new string) func(string) string {
		return func(s string) string {
			require.Contains(t, s, old)
			return strings.Replace(s, old, new, 1)
		}
	}
	for name, c := range map[string]struct {
		harm func(string) string
		want string
	}{
		"empty":                       {func(string) string { return "" }, "is not"},
		"cut":                         {func(s string) string { return s[:len(s)/2] }, "is not"},
		"no JSON":                     {func(string) string { return "hello" }, "is not"},
		"something behind":            {func(s string) string { return s + "{}" }, "behind the JSON"},
		"a version of the future":     {replace(`"version": 1`, `"version": 2`), "version 2"},
		"an unknown field":            {replace(`"brokers"`, `"extra": 1, "brokers"`), "extra"},
		"a missing epoch":             {replace(`"epoch": 1,`, ``), "epoch is missing"},
		"a missing field of a topic":  {replace(`"replication_factor": 2,`, ``), "lacks a field"},
		"a leader that is no replica": {replace(`"leader": 1`, `"leader": 3`), "leader 3 is not one of the active"},
		"a replica on no broker":      {replace(`"brokers": [ 1,`, `"brokers": [`), "is not one of"},
		"an unsafe name":              {replace(`"flights"`, `"../flights"`), "name"},
		"an unknown router":           {replace(`"sha256"`, `"dice"`), "dice"},
		"another replication factor":  {replace(`"replication_factor": 2`, `"replication_factor": 3`), "replication factor is 3"},
		"a negative epoch":            {replace(`"epoch": 1`, `"epoch": -1`), "negative"},
	} {
		t.Run(name, func(t *testing.T) {
			disk := good(t)
			var harmed string
			disk.Edit("root/cluster.meta", func(b []byte) []byte { harmed = c.harm(string(b)); return []byte(harmed) })
			_, err := controller.OpenManual(disk, "root", nil)
			var me *controller.MetadataError
			require.ErrorAs(t, err, &me)
			assert.Contains(t, err.Error(), c.want)
			after, err := vfs.ReadFile(disk, "root/cluster.meta", 1<<20)
			require.NoError(t, err)
			assert.Equal(t, harmed, string(after))
		})
	}
}

// A rename whose directory sync failed shows the new content to the next process, and a
// power failure takes it back. Whoever acts on it must have made it durable.
func TestMetadataIsDurableBeforeItIsBelieved(t *testing.T) {
	disk := vfs.NewMem()
	m := newManual(t, disk)
	disk.Before = func(op vfs.Op) error {
		if op.Kind == vfs.OpSyncDir {
			return syscall.EIO
		}
		return nil
	}
	var unsettled *controller.UnsettledError
	require.ErrorAs(t, m.Register(4), &unsettled)
	killed := disk.Kill()
	m, err := controller.OpenManual(killed, "root", nil)
	require.NoError(t, err)
	want := m.Meta()
	m, err = controller.OpenManual(powerFailure(killed), "root", nil)
	require.NoError(t, err)
	assert.Equal(t, want, m.Meta())
}

// FuzzMetadata opens arbitrary metadata: decisions that hold together, or a *MetadataError.
func FuzzMetadata(f *testing.F) {
	disk := vfs.NewMem()
	m, err := controller.OpenManual(disk, "root", nil)
	if err != nil {
		f.Fatal(err)
	}
	if err := errors.Join(m.Register(1), m.Register(2), m.AddTopic("flights", 2, 2, topic.SHA256)); err != nil {
		f.Fatal(err)
	}
	seed, err := vfs.ReadFile(disk, "root/cluster.meta", 1<<20)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Fuzz(func(t *testing.T, data []byte) {
		disk := disk.Kill()
		disk.Edit("root/cluster.meta", func([]byte) []byte { return data })
		m, err := controller.OpenManual(disk, "root", nil)
		if _, damaged := errors.AsType[*controller.MetadataError](err); err != nil && !damaged {
			t.Fatal(err)
		}
		if err == nil {
			if err := m.Register(7); err != nil {
				t.Fatalf("what was read cannot be written: %v", err)
			}
		}
	})
}
