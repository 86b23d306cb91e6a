package producer_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"logbook/engine/commitlog"
	"logbook/engine/producer"
	"logbook/engine/record"
	"logbook/engine/topic"
	"logbook/engine/vfs"
)

func memTopic(t testing.TB, disk *vfs.Mem, partitions int) *topic.Topic {
	t.Helper()
	tp, err := topic.Create("data", "events", topic.Options{Partitions: partitions, Log: commitlog.Options{FS: disk, SegmentBytes: 1 << 20}})
	require.NoError(t, err)
	return tp
}

func contents(t testing.TB, tp *topic.Topic, partition int) (values []string, frames int) {
	t.Helper()
	l, err := tp.Partition(partition)
	require.NoError(t, err)
	for rec, err := range l.Records(0) {
		require.NoError(t, err)
		values = append(values, string(rec.Value))
	}
	return values, int(l.Stats().Frames)
}

func TestSendSaysWhereTheRecordLanded(t *testing.T) {
	tp := memTopic(t, vfs.NewMem(), 3)
	p, err := producer.New(tp, producer.Options{})
	require.NoError(t, err)
	for i := range 6 {
		at, err := p.Send(t.Context(), record.Record{Value: fmt.Appendf(nil, "%d", i)})
		require.NoError(t, err)
		assert.Equal(t, "events", at.Topic)
		assert.Equal(t, i%3, at.Partition)
		assert.Equal(t, int64(i/3), at.Offset)
		assert.False(t, at.Timestamp.IsZero())
	}
	require.NoError(t, p.Close())
	_, err = p.Send(t.Context(), record.Record{})
	require.ErrorIs(t, err, producer.ErrClosed)
	require.ErrorIs(t, p.Close(), producer.ErrClosed)
	_, err = tp.Append(record.Record{})
	require.NoError(t, err, "a producer borrows its topic")
}

func TestLingerGathersABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tp := memTopic(t, vfs.NewMem(), 1)
		p, err := producer.New(tp, producer.Options{Linger: time.Second, BatchRecords: 5})
		require.NoError(t, err)
		var pending []*producer.Pending
		for i := range 3 {
			s, err := p.SendAsync(t.Context(), record.Record{Value: fmt.Appendf(nil, "%d", i)})
			require.NoError(t, err)
			pending = append(pending, s)
		}
		synctest.Wait()
		values, _ := contents(t, tp, 0)
		assert.Empty(t, values, "it lingers")
		time.Sleep(2 * time.Second) // the bubble's clock
		for i, s := range pending {
			at, err := s.Wait(t.Context())
			require.NoError(t, err)
			assert.Equal(t, int64(i), at.Offset)
		}
		values, frames := contents(t, tp, 0)
		assert.Equal(t, []string{"0", "1", "2"}, values)
		assert.Equal(t, 1, frames, "one batch")
		for i := range 5 { // a full batch does not linger
			_, err := p.SendAsync(t.Context(), record.Record{Value: fmt.Appendf(nil, "%d", 3+i)})
			require.NoError(t, err)
		}
		synctest.Wait()
		values, frames = contents(t, tp, 0)
		assert.Len(t, values, 8)
		assert.Equal(t, 2, frames)
		_, err = p.SendAsync(t.Context(), record.Record{Value: []byte("8")})
		require.NoError(t, err)
		require.NoError(t, p.Flush(t.Context()))
		values, _ = contents(t, tp, 0)
		assert.Len(t, values, 9, "flush does not wait for the linger")
		_, err = p.SendAsync(t.Context(), record.Record{Value: []byte("9")})
		require.NoError(t, err)
		require.NoError(t, p.Close())
		values, _ = contents(t, tp, 0)
		assert.Len(t, values, 10, "nor does close")
		require.NoError(t, tp.Close())
	})
}

func TestOrderWithinAPartitionIsTheOrderOfTheCalls(t *testing.T) {
	tp := memTopic(t, vfs.NewMem(), 2)
	p, err := producer.New(tp, producer.Options{Linger: time.Millisecond, BatchRecords: 7})
	require.NoError(t, err)
	for i := range 500 {
		_, err := p.SendAsync(t.Context(), record.Record{Key: []byte("k"), Value: fmt.Appendf(nil, "%d", i)})
		require.NoError(t, err)
	}
	require.NoError(t, p.Close())
	values, _ := contents(t, tp, tp.Router().Partition([]byte("k"), 2))
	require.Len(t, values, 500)
	for i, v := range values {
		require.Equal(t, fmt.Sprint(i), v)
	}
}

func TestABoundedBufferMakesSendersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfs.NewMem()
		tp := memTopic(t, disk, 1)
		gate := make(chan struct{})
		disk.After = func(op vfs.Op) {
			if op.Kind == vfs.OpSync {
				<-gate // a disk that hangs
			}
		}
		p, err := producer.New(tp, producer.Options{BufferBytes: 2500})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		sent := 0
		for ; ; sent++ {
			if _, err = p.SendAsync(ctx, record.Record{Value: make([]byte, 400)}); err != nil {
				break
			}
		}
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, 5, sent)
		_, err = p.SendAsync(t.Context(), record.Record{Value: make([]byte, 3000)})
		require.ErrorContains(t, err, "does not fit the buffer")
		close(gate)
		_, err = p.Send(t.Context(), record.Record{Value: make([]byte, 400)})
		require.NoError(t, err, "room is given back")
		require.NoError(t, p.Close())
		require.NoError(t, tp.Close())
	})
}

func TestOneBadRecordDoesNotTakeOthersWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tp := memTopic(t, vfs.NewMem(), 1)
		p, err := producer.New(tp, producer.Options{Linger: time.Second})
		require.NoError(t, err)
		var pending []*producer.Pending
		for i := range 3 {
			value := make([]byte, 10)
			if i == 1 {
				value = make([]byte, 2<<20)
			}
			s, err := p.SendAsync(t.Context(), record.Record{Value: value})
			require.NoError(t, err)
			pending = append(pending, s)
		}
		require.NoError(t, p.Close())
		_, err = pending[1].Wait(t.Context())
		var tle *commitlog.TooLargeError
		require.ErrorAs(t, err, &tle)
		for i, want := range map[int]int64{0: 0, 2: 1} {
			at, err := pending[i].Wait(t.Context())
			require.NoError(t, err)
			assert.Equal(t, want, at.Offset)
		}
		require.NoError(t, tp.Close())
	})
}

func TestManySenders(t *testing.T) {
	tp := memTopic(t, vfs.NewMem(), 4)
	p, err := producer.New(tp, producer.Options{BufferBytes: 20_000})
	require.NoError(t, err)
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 100 {
				at, err := p.Send(t.Context(), record.Record{Key: fmt.Appendf(nil, "%d", w), Value: fmt.Appendf(nil, "%d/%d", w, i)})
				if !assert.NoError(t, err) {
					return
				}
				l, err := tp.Partition(at.Partition)
				assert.NoError(t, err)
				rec, err := l.Read(at.Offset)
				assert.NoError(t, err)
				assert.Equal(t, fmt.Sprintf("%d/%d", w, i), string(rec.Value))
			}
		})
	}
	wg.Wait()
	require.NoError(t, p.Close())
}
