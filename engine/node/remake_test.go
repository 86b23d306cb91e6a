package node_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"logbook/engine/commitlog"
	"logbook/engine/node"
	"logbook/engine/record"
	"logbook/engine/replica"
	"logbook/engine/topic"
	"logbook/engine/vfs"
)

func alone(t *testing.T, disk *vfs.Mem) *node.Node {
	n, err := node.Open(node.Options{
		ID: 1, Dir: "data", Log: commitlog.Options{FS: disk, SegmentBytes: 4 << 10},
		Send: func(topic.Partition, replica.Message) error { return nil }, Propose: func(topic.Partition, replica.Assignment) {},
	})
	require.NoError(t, err)
	return n
}

// A replica that rotted is found by reading it, is put aside, and begins anew; nothing of it is lost.
func TestARottenReplicaBeginsAnew(t *testing.T) {
	disk := vfs.NewMem()
	n := alone(t, disk)
	require.NoError(t, n.Create(p))
	require.NoError(t, n.Close())
	l, err := commitlog.Open(n.Dir(p), commitlog.Options{FS: disk, SegmentBytes: 4 << 10})
	require.NoError(t, err)
	_, err = l.Append(record.Record{Value: []byte("a record")})
	require.NoError(t, err)
	require.NoError(t, l.Close())

	n = alone(t, disk)
	n.OpenReplicas(p)
	require.NoError(t, n.Scrub(p))
	require.NoError(t, n.Remake(p), "what can be used is left as it is")
	assert.Equal(t, int64(1), n.Report(p).LogEndOffset)
	segment := n.Dir(p) + "/" + commitlog.SegmentName(0) + ".log"
	disk.Edit(segment, func(b []byte) []byte { b[30] ^= 1; return b })
	damage := &commitlog.CorruptionError{}
	require.ErrorAs(t, n.Scrub(p), &damage)
	assert.Error(t, n.Report(p).Err, "it does not pass for a good one any more")
	assert.False(t, n.Usable(p))

	require.NoError(t, n.Remake(p))
	assert.Zero(t, n.Report(p).LogEndOffset)
	assert.NoError(t, n.Report(p).Err)
	kept, err := vfs.ReadFile(disk, segment+".damaged", 1<<20)
	require.NoError(t, err)
	assert.Contains(t, string(kept), "a record")
	require.NoError(t, n.Close())

	// Where the node is closed nothing is begun any more.
	for _, err := range []error{n.Remake(p), n.Remove(p), n.Release(p)} {
		require.ErrorIs(t, err, node.ErrClosed)
	}
}
