package kafka_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Members that leave assigning to the coordinator share a topic, take over from who leaves, and
// go on where they were after the coordinator was started again.
func TestGroupThatTheCoordinatorAssigns(t *testing.T) {
	b := start(t, nil)
	p := b.client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	sent := 0
	send := func(n int) {
		for range n {
			require.NoError(t, p.ProduceSync(soon(t), &kgo.Record{Topic: "flights", Partition: int32(sent % 2), Value: fmt.Append(nil, sent)}).FirstErr())
			sent++
		}
	}
	send(10)
	member := func() *kgo.Client {
		return b.client(kgo.ConsumerGroup("g"), kgo.ConsumeRegex(), kgo.ConsumeTopics("flig.*"), kgo.Balancers(kgo.CooperativeStickyBalancer(), kgo.StickyBalancer()), kgo.ServerSideBalancer(),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit())
	}
	one := member()
	assert.Len(t, read(t, one, 10), 10)
	require.NoError(t, one.CommitUncommittedOffsets(soon(t)))

	describe := func() kmsg.ConsumerGroupDescribeResponseGroup {
		q := kmsg.NewPtrConsumerGroupDescribeRequest()
		q.Groups = []string{"g"}
		r, err := q.RequestWith(soon(t), p)
		require.NoError(t, err)
		return r.Groups[0]
	}
	d := describe()
	require.Zero(t, d.ErrorCode)
	assert.Equal(t, "uniform", d.AssignorName)
	require.Len(t, d.Members, 1)
	assert.Equal(t, []int32{0, 1}, d.Members[0].Assignment.TopicPartitions[0].Partitions)

	two := member()
	got := map[string]bool{}
	both := func() bool { // both have read what was sent since
		mine := [2]int{}
		send(2)
		for until := time.Now().Add(3 * time.Second); time.Now().Before(until) && mine[0]+mine[1] < 2; {
			for k, c := range []*kgo.Client{one, two} {
				ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				c.PollFetches(ctx).EachRecord(func(r *kgo.Record) { mine[k]++; got[string(r.Value)] = true })
				cancel()
			}
		}
		return mine == [2]int{1, 1}
	}
	require.Eventually(t, both, 30*time.Second, 50*time.Millisecond, "they share")
	require.NoError(t, one.CommitUncommittedOffsets(soon(t)))
	require.NoError(t, two.CommitUncommittedOffsets(soon(t)))

	// Tools see it as what it is.
	groups, err := kadm.NewClient(p).ListGroups(soon(t))
	require.NoError(t, err)
	assert.Equal(t, "Stable", groups["g"].State)
	old := kmsg.NewPtrDescribeGroupsRequest()
	old.Groups = []string{"g"}
	r, err := old.RequestWith(soon(t), p)
	require.NoError(t, err)
	assert.Equal(t, kerr.GroupIDNotFound.Code, r.Groups[0].ErrorCode)

	// A member of the other protocol is refused.
	classic := b.client(kgo.ConsumerGroup("g"), kgo.ConsumeTopics("flights"))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	f := classic.PollFetches(ctx)
	cancel()
	assert.ErrorIs(t, f.Err(), kerr.InconsistentGroupProtocol)
	classic.Close()

	two.Close()
	send(4)
	for until := time.Now().Add(20 * time.Second); !got[fmt.Sprint(sent-1)] || !got[fmt.Sprint(sent-2)]; { // the other's partition is taken over
		require.True(t, time.Now().Before(until))
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		one.PollFetches(ctx).EachRecord(func(r *kgo.Record) { got[string(r.Value)] = true })
		cancel()
	}
	require.NoError(t, one.CommitUncommittedOffsets(soon(t)))
	b.restart()
	send2 := b.client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, send2.ProduceSync(soon(t), &kgo.Record{Topic: "flights", Partition: 0, Value: []byte("after")}).FirstErr())
	// The new coordinator knows nobody: the member joins again with its next heartbeat, and goes on
	// where it had committed.
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		one.PollFetches(ctx)
		_ = one.CommitUncommittedOffsets(soon(t)) // refused before it has joined
		offsets, err := kadm.NewClient(send2).FetchOffsets(soon(t), "g")
		total := int64(0)
		offsets.Each(func(o kadm.OffsetResponse) { total += o.At })
		return err == nil && total == int64(sent+1)
	}, 20*time.Second, 20*time.Millisecond)
	one.Close()
}

// What is no heartbeat is refused by its own number.
func TestHeartbeatsThatAreNone(t *testing.T) {
	b := start(t, nil)
	p := b.client()
	require.NoError(t, p.ProduceSync(soon(t), &kgo.Record{Topic: "t", Value: []byte("x")}).FirstErr())
	try := func(edit func(*kmsg.ConsumerGroupHeartbeatRequest)) error {
		q := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		q.Group, q.MemberID, q.RebalanceTimeoutMillis, q.SubscribedTopicNames, q.Topics = "g", "me", 1000, []string{"t"}, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
		edit(q)
		var r *kmsg.ConsumerGroupHeartbeatResponse
		require.Eventually(t, func() bool {
			var err error
			r, err = q.RequestWith(soon(t), p)
			require.NoError(t, err)
			return r.ErrorCode != kerr.CoordinatorNotAvailable.Code && r.ErrorCode != kerr.NotCoordinator.Code && r.ErrorCode != kerr.CoordinatorLoadInProgress.Code
		}, 10*time.Second, 10*time.Millisecond)
		return kerr.ErrorForCode(r.ErrorCode)
	}
	assert.ErrorIs(t, try(func(q *kmsg.ConsumerGroupHeartbeatRequest) { q.MemberEpoch = 3 }), kerr.UnknownMemberID)
	assert.ErrorIs(t, try(func(q *kmsg.ConsumerGroupHeartbeatRequest) { q.SubscribedTopicNames = nil }), kerr.InvalidRequest)
	assert.ErrorIs(t, try(func(q *kmsg.ConsumerGroupHeartbeatRequest) { q.ServerAssignor = kmsg.StringPtr("fancy") }), kerr.UnsupportedAssignor)
	assert.ErrorIs(t, try(func(q *kmsg.ConsumerGroupHeartbeatRequest) { q.SubscribedTopicRegex = kmsg.StringPtr("(") }), kerr.InvalidRegularExpression)
	assert.NoError(t, try(func(*kmsg.ConsumerGroupHeartbeatRequest) {}))
	assert.ErrorIs(t, try(func(q *kmsg.ConsumerGroupHeartbeatRequest) { q.MemberEpoch = 9 }), kerr.FencedMemberEpoch)
	assert.NoError(t, try(func(q *kmsg.ConsumerGroupHeartbeatRequest) { q.MemberEpoch = -1 }))
}

// A group whose last member has left, and that has committed nothing, can be described and
// deleted, once.
func TestGroupsThatAreEmpty(t *testing.T) {
	b := start(t, nil)
	p := b.client()
	require.NoError(t, p.ProduceSync(soon(t), &kgo.Record{Topic: "t", Value: []byte("x")}).FirstErr())
	for name, opts := range map[string][]kgo.Opt{"classic": nil, "consumer": {kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer())}} {
		member := b.client(append(opts, kgo.ConsumerGroup(name), kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit())...)
		read(t, member, 1)
		member.Close()
		admin := kadm.NewClient(p)
		listed, err := admin.ListGroups(soon(t))
		require.NoError(t, err)
		assert.Equal(t, "Empty", listed[name].State, name)
		for _, want := range []error{nil, kerr.GroupIDNotFound} {
			_, err := admin.DeleteGroup(soon(t), name)
			assert.ErrorIs(t, err, want, name)
		}
	}
}
