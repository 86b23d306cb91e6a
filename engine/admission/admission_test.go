package admission_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"logbook/engine/admission"
)

func TestMemoryIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := admission.NewMemory(100)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.NoError(t, m.Take(ctx, 60, 0))
		assert.Equal(t, int64(40), m.TryTake(70), "as much as there is")
		assert.Zero(t, m.TryTake(1))
		took := make(chan error, 2)
		go func() { took <- m.Take(ctx, 50, 0) }()
		synctest.Wait()
		m.Give(40)
		synctest.Wait()
		assert.Empty(t, took, "not enough yet")
		m.Give(60)
		require.NoError(t, <-took)
		m.Use(80)
		assert.Equal(t, int64(-30), m.Free())
		require.ErrorIs(t, m.Take(ctx, 1, 0), context.DeadlineExceeded)
		began := time.Now()
		require.ErrorIs(t, m.Take(t.Context(), 1, 3*time.Second), admission.ErrBusy)
		assert.Equal(t, 3*time.Second, time.Since(began))
		var much *admission.TooMuchError
		require.ErrorAs(t, m.Take(ctx, 101, 0), &much, "it would wait for ever")
		m.Give(130)
		assert.Equal(t, int64(100), m.Free())
	})
}

func TestMemoryForBytesThatCostSeveral(t *testing.T) {
	m := admission.NewMemory(100)
	reserve, release := m.Reserver(3)
	assert.Equal(t, int64(10), reserve(10))
	assert.Equal(t, int64(23), reserve(50), "as many as there is memory for")
	assert.Equal(t, int64(1), m.Free())
	assert.Zero(t, reserve(1))
	release(-2)
	release(35)
	assert.Equal(t, int64(100), m.Free())
}

// What is announced and never sent takes a step, and not what was announced.
func TestMemoryIsTakenForBytesThatCome(t *testing.T) {
	m := admission.NewMemory(64 << 20)
	want := bytes.Repeat([]byte("0123456789abcdef"), 200<<10)
	body, held, err := m.Read(t.Context(), iotest.HalfReader(bytes.NewReader(want)), int64(len(want)), 0)
	require.NoError(t, err)
	assert.True(t, bytes.Equal(want, body))
	assert.Equal(t, int64(len(want)), held)
	m.Give(held)
	for _, sent := range []int{0, 1, 64<<10 - 1} {
		_, held, err = m.Read(t.Context(), bytes.NewReader(want[:sent]), 32<<20, 0)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		assert.Equal(t, int64(64<<10), held, "%d bytes came", sent)
		m.Give(held)
	}
	_, held, err = m.Read(t.Context(), bytes.NewReader(want), 65<<20, 0)
	var much *admission.TooMuchError
	require.ErrorAs(t, err, &much)
	assert.Zero(t, held)
	assert.Equal(t, int64(64<<20), m.Free())
	_, held, err = m.Read(t.Context(), iotest.ErrReader(errors.New("reset")), 10, 0)
	require.ErrorContains(t, err, "reset")
	m.Give(held)
}

func TestWhoMakesRoom(t *testing.T) {
	now := time.Unix(0, 0)
	p := admission.NewPlaces(6, func() time.Time { now = now.Add(time.Second); return now })
	var out []string
	enter := func(address, name string) *admission.Place {
		return p.Enter(address, func() { out = append(out, name) })
	}
	peer := enter("10.0.0.9", "peer")
	peer.Keep()
	first := enter("10.0.0.1", "first")
	enter("10.0.0.2", "other")
	for i := range 3 {
		enter("10.0.0.1", fmt.Sprint("more ", i))
	}
	first.Begin()
	require.NotNil(t, enter("10.0.0.3", "newcomer"))
	assert.Equal(t, []string{"more 0"}, out, "of the address with the most places, the quietest that has nothing under way")
	first.End()
	require.NotNil(t, enter("10.0.0.4", "next"))
	assert.Equal(t, []string{"more 0", "more 1"}, out, "the first was busy more lately")
	assert.Equal(t, 6, p.Taken())
	first.Leave()
	first.Leave()
	assert.Equal(t, 5, p.Taken())

	full := admission.NewPlaces(4, time.Now)
	for _, address := range []string{"a", "b", "a", "b"} {
		full.Enter(address, nil).Begin()
	}
	assert.Nil(t, full.Enter("c", nil), "all have something under way, and nobody has more than half")
	greedy := admission.NewPlaces(4, time.Now)
	evicted := 0
	for range 3 {
		greedy.Enter("a", func() { evicted++ }).Begin()
	}
	greedy.Enter("b", func() { t.Error("b has one place") }).Begin()
	require.NotNil(t, greedy.Enter("c", nil))
	assert.Equal(t, 1, evicted, "one of those who hold more than half, though busy")
}

// When memory is waited for, whoever holds the most of it for nothing makes room; not who moves,
// not who is kept, and nobody before half a second.
func TestMemoryIsNotKeptForNothing(t *testing.T) {
	now := time.Unix(0, 0)
	places := admission.NewPlaces(10, func() time.Time { return now })
	var ended []string
	enter := func(name string) *admission.Place {
		return places.Enter(name, func() { ended = append(ended, name) })
	}
	idle, small, large, moving, peer := enter("idle"), enter("small"), enter("large"), enter("moving"), enter("peer")
	_ = idle
	peer.Keep()
	peer.Hold(admission.Out, 1<<40)
	small.Hold(admission.In, 10)
	large.Hold(admission.Out, 1000)
	moving.Hold(admission.Out, 1<<30)
	now = now.Add(499 * time.Millisecond)
	assert.False(t, places.Relieve())
	_, err := moving.Writer(io.Discard).Write(make([]byte, 1<<20))
	require.NoError(t, err)
	now = now.Add(time.Millisecond)
	assert.True(t, places.Relieve())
	assert.True(t, places.Relieve())
	assert.False(t, places.Relieve())
	assert.Equal(t, []string{"large", "small"}, ended)

	// What came in counts, and a connection that waits for nobody holds nothing.
	moving.Hold(admission.Out, 0)
	slow, fast := enter("slow"), enter("fast")
	slow.Hold(admission.In, 1)
	fast.Hold(admission.In, 1)
	_, err = io.Copy(io.Discard, slow.Reader(strings.NewReader(strings.Repeat("x", 5000))))
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, fast.Reader(strings.NewReader("x")))
	require.NoError(t, err)
	now = now.Add(time.Second)
	assert.True(t, places.Relieve())
	fast.Hold(admission.In, 0)
	assert.False(t, places.Relieve())
	assert.Equal(t, []string{"large", "small", "slow"}, ended)

	// A pool asks for relief while somebody waits.
	pool := admission.NewMemory(100)
	pool.Relief(func() { pool.Give(60) })
	require.NoError(t, pool.Take(t.Context(), 60, 0))
	require.NoError(t, pool.Take(t.Context(), 60, time.Minute))
}

// When all places are taken by those who have something under way, other brokers and one
// operator are let in all the same.
func TestPlacesAreKept(t *testing.T) {
	places := admission.NewPlaces(4, time.Now)
	places.Reserve(2)
	for i := range 4 {
		places.Enter(fmt.Sprint("client ", i), func() { t.Error("busy, and sent away") }).Begin()
	}
	peer := places.Enter("a broker", nil)
	require.NotNil(t, peer)
	assert.True(t, peer.Spare(), "it must prove that it is one")
	peer.Keep()
	operator := places.Enter("localhost", nil)
	require.NotNil(t, operator)
	assert.True(t, operator.Spare())
	assert.True(t, operator.Operate())
	assert.Nil(t, places.Enter("anybody", nil))
	peer.Leave()
	another := places.Enter("localhost", nil)
	require.NotNil(t, another)
	assert.False(t, another.Operate(), "there is one")
	operator.Leave()
	assert.True(t, another.Operate())
	assert.True(t, another.Spare())
}

// A place is an ordinary one as soon as there is one.
func TestASparePlaceBecomesOrdinary(t *testing.T) {
	places := admission.NewPlaces(2, time.Now)
	places.Reserve(1)
	first := places.Enter("a", nil)
	first.Begin()
	places.Enter("b", nil).Begin()
	third := places.Enter("c", nil)
	assert.True(t, third.Spare())
	first.Leave()
	assert.False(t, third.Spare())
}
