package stream_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"logbook/engine"
	"logbook/engine/commitlog"
	"logbook/engine/record"
	"logbook/engine/stream"
	"logbook/engine/vfs"
)

func inMemory(t *testing.T, disk *vfs.Mem) (*engine.Engine, *stream.TopicHandle) {
	t.Helper()
	e, err := engine.Open("data", engine.Options{FS: disk, Log: commitlog.Options{SegmentBytes: 4 << 20}})
	require.NoError(t, err)
	h, err := e.CreateTopic(t.Context(), "flights", 1, nil)
	require.NoError(t, err)
	return e, h
}

func count(t *testing.T, h *stream.TopicHandle) int {
	t.Helper()
	_, next, err := h.Offsets(t.Context(), 0)
	require.NoError(t, err)
	return int(next)
}

func TestLingerGathersABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, h := inMemory(t, vfs.NewMem())
		p, err := e.Producer(t.Context(), "flights", stream.ProducerOptions{Linger: time.Second, BatchRecords: 5})
		require.NoError(t, err)
		var pending []*stream.Pending
		for i := range 3 {
			s, err := p.SendAsync(t.Context(), record.Record{Value: fmt.Appendf(nil, "%d", i)})
			require.NoError(t, err)
			pending = append(pending, s)
		}
		synctest.Wait()
		assert.Zero(t, count(t, h), "it lingers")
		time.Sleep(2 * time.Second) // the bubble's clock
		for i, s := range pending {
			at, err := s.Wait(t.Context())
			require.NoError(t, err)
			assert.Equal(t, int64(i), at.Offset)
		}
		assert.Equal(t, int64(1), p.Stats().Batches)
		for i := range 5 { // a full batch does not linger
			_, err := p.SendAsync(t.Context(), record.Record{Value: fmt.Appendf(nil, "%d", 3+i)})
			require.NoError(t, err)
		}
		synctest.Wait()
		assert.Equal(t, 8, count(t, h))
		assert.Equal(t, int64(2), p.Stats().Batches)
		_, err = p.SendAsync(t.Context(), record.Record{Value: []byte("8")})
		require.NoError(t, err)
		require.NoError(t, p.Flush(t.Context()))
		assert.Equal(t, 9, count(t, h), "flush does not wait for the linger")
		_, err = p.SendAsync(t.Context(), record.Record{Value: []byte("9")})
		require.NoError(t, err)
		require.NoError(t, p.Close())
		assert.Equal(t, 10, count(t, h), "nor does close")
		require.NoError(t, e.Close())
	})
}

func TestABoundedBufferMakesSendersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfs.NewMem()
		e, _ := inMemory(t, disk)
		gate := make(chan struct{})
		disk.After = func(op vfs.Op) {
			if op.Kind == vfs.OpSync {
				<-gate // a disk that hangs
			}
		}
		p, err := e.Producer(t.Context(), "flights", stream.ProducerOptions{BufferBytes: 2500})
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
		require.ErrorContains(t, err, "does not fit the producer's buffer")
		close(gate)
		_, err = p.Send(t.Context(), record.Record{Value: make([]byte, 400)})
		require.NoError(t, err, "room is given back")
		require.NoError(t, e.Close())
	})
}

func TestOneBadRecordDoesNotTakeOthersWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _ := inMemory(t, vfs.NewMem())
		p, err := e.Producer(t.Context(), "flights", stream.ProducerOptions{Linger: time.Second})
		require.NoError(t, err)
		var pending []*stream.Pending
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
		var large *commitlog.TooLargeError
		require.ErrorAs(t, err, &large)
		for i, want := range map[int]int64{0: 0, 2: 1} {
			at, err := pending[i].Wait(t.Context())
			require.NoError(t, err)
			assert.Equal(t, want, at.Offset)
		}
		require.NoError(t, e.Close())
	})
}
