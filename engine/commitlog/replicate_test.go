package commitlog_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"logbook/engine/commitlog"
	"logbook/engine/record"
	"logbook/engine/vfs"
)

func openIn(t *testing.T, disk *vfs.Mem, opt commitlog.Options) *commitlog.Log {
	t.Helper()
	opt.FS, opt.Now = disk, ticking()
	l, err := commitlog.Open("log", opt)
	require.NoError(t, err)
	return l
}

// copyAll makes follower what leader is, a chunk at a time.
func copyAll(t *testing.T, leader, follower *commitlog.Log, max int) (chunks int) {
	t.Helper()
	for follower.EndOffset() < leader.EndOffset() {
		c, err := leader.ReadChunk(follower.EndOffset(), leader.EndOffset(), max)
		require.NoError(t, err)
		next, err := follower.AppendReplica(c.Frames, c.Epoch)
		require.NoError(t, err)
		require.Equal(t, c.Next, next)
		chunks++
	}
	return chunks
}

func TestReplicaIsByteExact(t *testing.T) {
	eachFormat(t, func(t *testing.T, f record.Format) {
		disk := vfs.NewMem()
		leader := openIn(t, disk, commitlog.Options{Format: f, SegmentBytes: 300})
		follower := openIn(t, vfs.NewMem(), commitlog.Options{Format: f, SegmentBytes: 500})
		for epoch := int32(1); epoch <= 3; epoch++ {
			require.NoError(t, leader.StartEpoch(epoch))
			appendN(t, leader, 5)
		}
		assert.GreaterOrEqual(t, copyAll(t, leader, follower, 1<<20), 3, "a chunk holds one epoch")
		want, err := leader.FrameDigests(0, 100)
		require.NoError(t, err)
		got, err := follower.FrameDigests(0, 100)
		require.NoError(t, err)
		assert.Equal(t, want, got)
		assert.Equal(t, []commitlog.EpochStart{{Epoch: 1, Start: 0}, {Epoch: 2, Start: 5}, {Epoch: 3, Start: 10}}, follower.Epochs())
		assert.Equal(t, leader.Epochs(), follower.Epochs())

		leader = openIn(t, disk.Kill(), commitlog.Options{Format: f, SegmentBytes: 300})
		assert.Equal(t, follower.Epochs(), leader.Epochs(), "epochs outlive the process")
		require.NoError(t, leader.Verify())
		to, err := leader.Truncate(7)
		require.NoError(t, err)
		require.Equal(t, int64(7), to)
		assert.Equal(t, follower.Epochs()[:2], leader.Epochs())
	})
}

func TestChunks(t *testing.T) {
	leader := openIn(t, vfs.NewMem(), commitlog.Options{})
	require.NoError(t, leader.StartEpoch(1))
	appendN(t, leader, 10)
	sums, err := leader.FrameDigests(0, 100)
	require.NoError(t, err)
	require.Len(t, sums, 10)
	c, err := leader.ReadChunk(3, 100, 1)
	require.NoError(t, err)
	assert.Equal(t, []any{int64(3), int64(4)}, []any{c.Base, c.Next}, "at least one frame")
	c, err = leader.ReadChunk(3, 7, 1<<20)
	require.NoError(t, err)
	assert.Equal(t, []any{int64(3), int64(7)}, []any{c.Base, c.Next}, "nothing from the limit on")
	require.NoError(t, leader.StartEpoch(2))
	appendN(t, leader, 2)
	c, err = leader.ReadChunk(8, 100, 1<<20)
	require.NoError(t, err)
	assert.Equal(t, []any{int64(8), int64(10), int32(1)}, []any{c.Base, c.Next, c.Epoch}, "of one epoch")
	c, err = leader.ReadFrames(8, 100, 1<<20)
	require.NoError(t, err)
	assert.Equal(t, []any{int64(8), int64(12)}, []any{c.Base, c.Next}, "of all")
	_, err = leader.Truncate(10)
	require.NoError(t, err)
	c, err = leader.ReadChunk(10, 100, 1)
	require.NoError(t, err)
	assert.Equal(t, commitlog.Chunk{Base: 10, Next: 10, Epoch: 1}, c, "nothing at the log end")
	_, err = leader.ReadChunk(11, 100, 1)
	var oor *commitlog.OffsetOutOfRangeError
	require.ErrorAs(t, err, &oor)
}

func TestReplicaRefusesWhatDoesNotFollow(t *testing.T) {
	leader := openIn(t, vfs.NewMem(), commitlog.Options{})
	require.NoError(t, leader.StartEpoch(4))
	appendN(t, leader, 3)
	c, err := leader.ReadChunk(0, 3, 1<<20)
	require.NoError(t, err)
	tail, err := leader.ReadChunk(1, 3, 1<<20)
	require.NoError(t, err)

	follower := openIn(t, vfs.NewMem(), commitlog.Options{})
	var seq *commitlog.SequenceError
	_, err = follower.AppendReplica(tail.Frames, 4)
	assert.ErrorAs(t, err, &seq, "a gap")
	_, err = follower.AppendReplica(c.Frames, 5)
	assert.ErrorAs(t, err, &seq, "another epoch than the frames have")
	_, err = follower.AppendReplica(c.Frames[:len(c.Frames)-1], 4)
	var fe *record.FrameError
	assert.ErrorAs(t, err, &fe)
	_, err = follower.AppendReplica(nil, 4)
	assert.ErrorIs(t, err, commitlog.ErrEmptyAppend)
	assert.Zero(t, follower.EndOffset())
	_, err = follower.AppendReplica(c.Frames, 4)
	require.NoError(t, err)
	_, err = follower.AppendReplica(c.Frames, 4)
	assert.ErrorAs(t, err, &seq, "the same once more")

	var behind *commitlog.EpochError
	require.ErrorAs(t, follower.StartEpoch(3), &behind)
	require.NoError(t, follower.StartEpoch(4), "the epoch it is in")
	require.NoError(t, follower.StartEpoch(6))
	require.NoError(t, follower.StartEpoch(8), "an epoch without records leaves no trace")
	assert.Equal(t, []commitlog.EpochStart{{Epoch: 4, Start: 0}, {Epoch: 8, Start: 3}}, follower.Epochs())
}

// Without a sync on every append, a power failure may take an epoch's records and leave
// the note of it. Records that take their place belong to the epoch they are appended in.
func TestEpochsOfLostRecords(t *testing.T) {
	disk := vfs.NewMem()
	l := openIn(t, disk, commitlog.Options{Sync: commitlog.SyncOS})
	require.NoError(t, l.StartEpoch(1))
	appendN(t, l, 5)
	require.NoError(t, l.StartEpoch(2))
	appendN(t, l, 2)
	disk = lastState(disk)
	l = openIn(t, disk, commitlog.Options{})
	require.Zero(t, l.EndOffset())
	assert.Equal(t, []commitlog.EpochStart{{Epoch: 1, Start: 0}}, l.Epochs())
	appendN(t, l, 8)
	l = openIn(t, lastState(disk), commitlog.Options{})
	require.Equal(t, int64(8), l.EndOffset())
	require.NoError(t, l.Verify())
}

func TestReset(t *testing.T) {
	eachFormat(t, func(t *testing.T, f record.Format) {
		disk := vfs.NewMem()
		l := openIn(t, disk, commitlog.Options{Format: f, SegmentBytes: 300})
		require.NoError(t, l.StartEpoch(1))
		appendN(t, l, 20)
		r, err := l.NewReader(3)
		require.NoError(t, err)
		_, err = r.Next()
		require.NoError(t, err)
		require.NoError(t, l.Reset(10)) // a base that a segment had before
		_, err = r.Next()
		var oor *commitlog.OffsetOutOfRangeError
		require.ErrorAs(t, err, &oor)
		assert.Equal(t, []int64{10, 10}, []int64{l.StartOffset(), l.EndOffset()})
		assert.Empty(t, l.Epochs())
		appendN(t, l, 3)
		require.ErrorAs(t, l.Reset(-1), &oor)
		require.NoError(t, l.Close())
		l = openIn(t, disk, commitlog.Options{Format: f})
		assert.Equal(t, []int64{10, 13}, []int64{l.StartOffset(), l.EndOffset()})
		require.NoError(t, l.Verify())
	})
}

// Compaction leaves gaps between offsets in format 1. A replica copies them, and knows
// them for gaps when it is opened again.
func TestReplicaCopiesTheGapsOfCompaction(t *testing.T) {
	opt := commitlog.Options{FS: vfs.NewMem(), Format: record.V1, SegmentBytes: 120}
	leader, err := commitlog.Open("leader", opt)
	require.NoError(t, err)
	for _, k := range []string{"a", "b", "b", "b", "c", "d", "e"} {
		_, err := leader.Append(record.Record{Key: []byte(k), Value: []byte("value")})
		require.NoError(t, err)
	}
	_, err = leader.Compact(0)
	require.NoError(t, err)
	for _, kill := range []bool{false, true} {
		m := vfs.NewMem()
		opt.FS = m
		follower, err := commitlog.Open("follower", opt)
		require.NoError(t, err)
		for follower.EndOffset() < leader.EndOffset() {
			c, err := leader.ReadChunk(follower.EndOffset(), leader.EndOffset(), 50)
			require.NoError(t, err)
			_, err = follower.AppendReplica(c.Frames, c.Epoch)
			require.NoError(t, err)
		}
		if kill {
			opt.FS = m.Kill()
		} else {
			require.NoError(t, follower.Close())
		}
		follower, err = commitlog.Open("follower", opt)
		require.NoError(t, err)
		require.NoError(t, follower.Verify())
		require.Equal(t, offsets(t, leader), offsets(t, follower))
	}
}

func offsets(t *testing.T, l *commitlog.Log) (all []int64) {
	for r, err := range l.Records(l.StartOffset()) {
		require.NoError(t, err)
		all = append(all, r.Offset)
	}
	return all
}
