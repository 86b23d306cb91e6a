package node_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"logbook/engine/commitlog"
	"logbook/engine/record"
	"logbook/engine/replica"
)

// batch appends values as one batch.
func (w *pair) batch(id int, acks replica.Acks, values ...string) {
	w.t.Helper()
	var rs []record.Record
	for _, v := range values {
		rs = append(rs, record.Record{Value: []byte(v)})
	}
	b, err := commitlog.NewBatch(record.V2, rs, record.Encoding{Timestamp: time.Unix(1e9, 0)}, commitlog.Limits{})
	require.NoError(w.t, err)
	w.nodes[id].Append(p, acks, 0, b, func(_ commitlog.Appended, e error) { err = e })
	w.run()
	require.NoError(w.t, err)
}

func (w *pair) inOrder(id int) {
	w.t.Helper()
	s, err := w.nodes[id].Status(p)
	require.NoError(w.t, err)
	require.LessOrEqual(w.t, s.LogStartOffset, s.HighWatermark, "broker %d", id)
	require.LessOrEqual(w.t, s.HighWatermark, s.LogEndOffset, "broker %d", id)
}

// What only the leader has is not safe, so it stays, however old and large it is.
func TestRetentionStaysBelowTheHighWatermark(t *testing.T) {
	for _, safe := range []int{0, 5} {
		t.Run(fmt.Sprint(safe, " are safe"), func(t *testing.T) {
			w := newPair(t)
			w.assign(1, 1, 1, 2)
			for i := range safe {
				require.NoError(t, w.append(1, fmt.Sprint(i)))
			}
			w.cut = true
			for i := safe; i < 200; i++ { // several segments
				w.batch(1, replica.OnLeader, fmt.Sprint(i))
			}
			require.NoError(t, w.nodes[1].Retain(p, commitlog.Retention{Bytes: 1}))
			w.inOrder(1)
			s, err := w.nodes[1].Status(p)
			require.NoError(t, err)
			require.LessOrEqual(t, s.LogStartOffset, int64(safe))
			_, err = w.nodes[1].DeleteRecords(p, 100)
			require.NoError(t, err)
			w.inOrder(1)
		})
	}
}

// A leader's log may start inside a batch. A follower that has nothing copies the whole
// batch, and then forgets what its leader has forgotten.
func TestFollowerOfALogThatStartsInsideABatch(t *testing.T) {
	w := newPair(t)
	w.assign(1, 1, 1)
	w.batch(1, replica.OnLeader, "0", "1", "2", "3")
	w.batch(1, replica.OnLeader, "4", "5", "6", "7")
	w.cut = true
	w.assign(1, 2, 1)
	start, err := w.nodes[1].DeleteRecords(p, 6)
	require.NoError(t, err)
	require.Equal(t, int64(6), start)

	w.cut = false
	w.assign(1, 3, 1)
	s, err := w.nodes[2].Status(p)
	require.NoError(t, err)
	require.Equal(t, int64(8), s.LogEndOffset)
	require.Equal(t, int64(6), s.LogStartOffset)
	w.inOrder(2)
	require.Equal(t, "67", w.own(2))

	// And it can do for another what the leader did for it.
	require.NoError(t, w.nodes[1].Close())
	w.nodes[1] = nil
	w.disks[1] = w.disks[1].Kill()
	for _, f := range w.disks[1].Files("data") {
		require.NoError(t, w.disks[1].Remove(f))
	}
	w.open(1)
	w.assign(2, 4, 2)
	w.nodes[1].Recover(p, func(error) {}) // that nobody takes it into the ISR here is not the point
	w.run()
	require.Equal(t, "67", w.own(1))
	w.inOrder(1)
}

// A follower whose log ended below the leader's start begins anew there, and its high
// watermark with it.
func TestFollowerThatRetentionOvertook(t *testing.T) {
	w := newPair(t)
	w.assign(1, 1, 1, 2)
	require.NoError(t, w.append(1, "a"))
	w.cut = true
	w.assign(1, 2, 1)
	w.batch(1, replica.OnLeader, "b", "c", "d")
	_, err := w.nodes[1].DeleteRecords(p, 3)
	require.NoError(t, err)
	w.cut = false
	w.assign(1, 3, 1)
	w.inOrder(2)
	require.Equal(t, "d", w.own(2))
}

// What a follower cuts because its leader does not have it is kept beside the log: another
// broker's word is all that says that it does not count.
func TestWhatIsCutIsKeptAside(t *testing.T) {
	w := newPair(t)
	w.assign(1, 1, 1, 2)
	require.NoError(t, w.append(1, "a"))
	w.cut = true
	w.batch(1, replica.OnLeader, "b")
	w.batch(1, replica.OnLeader, "c")
	w.cut = false
	w.assign(2, 2, 2)
	require.Equal(t, "a", w.own(1), "cut")
	kept, err := commitlog.Asides(w.disks[1], w.nodes[1].Dir(p), record.V2)
	require.NoError(t, err)
	require.Len(t, kept, 1)
	require.NoError(t, kept[0].Damage)
	values := ""
	for _, f := range kept[0].Frames {
		rs, err := f.Records()
		require.NoError(t, err)
		for _, r := range rs {
			values += fmt.Sprintf("%d:%s ", r.Offset, r.Value)
		}
	}
	require.Equal(t, "1:b 2:c ", values)
}
