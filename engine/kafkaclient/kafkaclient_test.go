package kafkaclient_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"logbook/engine/failure"
	"logbook/engine/kafkaclient"
	"logbook/engine/kafkatest"
	"logbook/engine/record"
	"logbook/engine/stream"
)

// The behaviour that every transport has is tested in package stream, on this one too.

// Two members share a topic, whichever way partitions change hands.
func TestTwoMembers(t *testing.T) {
	for _, assignor := range []string{"roundrobin", "cooperative-sticky"} {
		t.Run(assignor, func(t *testing.T) {
			t.Parallel()
			c := kafkatest.Start(t, kafkatest.Options{Brokers: 1})
			k, err := kafkaclient.Dial(kafkaclient.Options{Brokers: c.Addrs()})
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, k.Close()) })
			h, err := k.CreateTopic(t.Context(), "flights", 4, nil)
			require.NoError(t, err)
			for p := range 4 {
				_, err := h.AppendTo(t.Context(), p, record.Record{Value: []byte("before")})
				require.NoError(t, err)
			}
			opt := stream.MemberOptions{Topics: []string{"flights"}, Assignor: assignor, SessionTimeout: 6 * time.Second, Reset: stream.ResetToEarliest}
			a, err := k.JoinGroup(t.Context(), "g", opt)
			require.NoError(t, err)
			require.Len(t, a.Assignment(), 4)
			b, err := k.JoinGroup(t.Context(), "g", opt)
			require.NoError(t, err)
			require.Eventually(t, func() bool { return len(a.Assignment()) == 2 && len(b.Assignment()) == 2 }, 60*time.Second, 10*time.Millisecond)
			assert.Len(t, slices.Compact(slices.SortedFunc(slices.Values(append(a.Assignment(), b.Assignment()...)), stream.Partition.Compare)), 4, "each partition has one owner")
			got, err := b.Fetch(t.Context(), 1)
			require.NoError(t, err)
			assert.Equal(t, "before", string(got[0].Value))
			require.NoError(t, b.Commit(t.Context()))
			require.NoError(t, b.Close())
			require.Eventually(t, func() bool { return len(a.Assignment()) == 4 }, 60*time.Second, 10*time.Millisecond)
			g, err := k.DescribeGroup(t.Context(), "g")
			require.NoError(t, err)
			assert.Len(t, g.Members[a.ID()], 4)
		})
	}
}

// Why a broker refuses a topic reaches whoever asked for it, in the broker's words.
func TestRefusedTopics(t *testing.T) {
	c := kafkatest.Start(t, kafkatest.Options{Brokers: 1})
	k, err := kafkaclient.Dial(kafkaclient.Options{Brokers: c.Addrs()})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, k.Close()) })
	_, err = k.Create(t.Context(), stream.Topic{Name: "flights", Partitions: 1, Replication: 2})
	require.ErrorContains(t, err, "a replication factor of 2; it must be from 1 to the number of brokers, 1")
	fe, ok := errors.AsType[*failure.Error](err)
	require.True(t, ok)
	assert.Equal(t, failure.BadRequest, fe.Code)
}

// Producers and consumers go on when a leader dies.
func TestALeaderDies(t *testing.T) {
	c := kafkatest.Start(t, kafkatest.Options{Brokers: 3})
	k, err := kafkaclient.Dial(kafkaclient.Options{Brokers: c.Addrs()})
	require.NoError(t, err)
	t.Cleanup(func() { k.Close() })
	h, err := k.CreateTopic(t.Context(), "flights", 1, nil)
	require.NoError(t, err)
	_, err = h.AppendTo(t.Context(), 0, record.Record{Value: []byte("one")})
	require.NoError(t, err)
	r, err := k.Consumer(t.Context(), stream.ConsumerOptions{ID: "reader", Topic: "flights"})
	require.NoError(t, err)
	got, err := r.FetchWait(t.Context(), 10)
	require.NoError(t, err)
	require.Len(t, got, 1)
	c.Crash(c.Leader("flights", 0))
	_, err = h.AppendTo(t.Context(), 0, record.Record{Value: []byte("two")})
	require.NoError(t, err)
	got, err = r.FetchWait(t.Context(), 10)
	require.NoError(t, err)
	assert.Equal(t, "two", string(got[0].Value))
	require.NoError(t, r.Commit(t.Context()))
}
