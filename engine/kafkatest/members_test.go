package kafkatest_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"logbook/engine/kafkatest"
	"logbook/engine/metadata"
	"logbook/engine/server"
)

// divided is a cluster in which broker 1 stores, and 2, 3 and 4 decide, and a client that knows
// of broker 1 alone.
func divided(t *testing.T) (*kafkatest.Cluster, *kgo.Client) {
	c := kafkatest.Start(t, kafkatest.Options{Brokers: 4, Configure: func(id int, c *server.Config) {
		c.Role = metadata.DecidesOnly
		if id == 1 {
			c.Role = metadata.StoresOnly
		}
	}})
	require.Eventually(t, func() bool {
		image := c.Server(1).Service().Image()
		return image.Usable(1) && image.Usable(2) && image.Usable(3) && image.Usable(4)
	}, 20*time.Second, 5*time.Millisecond)
	return c, client(t, c, kgo.SeedBrokers(c.Addrs()[0]))
}

// Whoever decides, any broker takes what is asked for, and says what was wrong with it as the one
// that decides would have.
func TestCommandsArePassedOn(t *testing.T) {
	_, k := divided(t)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	admin := kadm.NewClient(k)
	_, err := admin.CreateTopic(ctx, 3, 1, nil, "flights")
	require.NoError(t, err)
	topics, err := admin.ListTopics(ctx, "flights")
	require.NoError(t, err)
	assert.Len(t, topics["flights"].Partitions, 3, "what was made is there at once, where it was asked for")
	require.NoError(t, k.ProduceSync(ctx, &kgo.Record{Topic: "flights", Value: []byte("a")}).FirstErr())

	_, err = admin.CreateTopic(ctx, 3, 1, nil, "flights")
	assert.ErrorIs(t, err, kerr.TopicAlreadyExists)
	_, err = admin.CreateTopic(ctx, 3, 2, nil, "wide")
	assert.ErrorIs(t, err, kerr.InvalidReplicationFactor)
	soon := "soon"
	_, err = admin.CreateTopic(ctx, 1, 1, map[string]*string{"retention.ms": &soon}, "odd")
	assert.ErrorIs(t, err, kerr.InvalidConfig)
	_, err = admin.CreateTopic(ctx, 1, 1, nil, "a b")
	assert.ErrorIs(t, err, kerr.InvalidTopicException)
	fewer, err := admin.UpdatePartitions(ctx, 2, "flights")
	require.NoError(t, err)
	assert.ErrorIs(t, fewer["flights"].Err, kerr.InvalidPartitions)
	more, err := admin.UpdatePartitions(ctx, 5, "flights")
	require.NoError(t, err)
	require.NoError(t, more["flights"].Err)
	users, err := admin.AlterUserSCRAMs(ctx, []kadm.DeleteSCRAM{{User: "nobody", Mechanism: kadm.ScramSha256}}, nil)
	require.NoError(t, err)
	assert.ErrorIs(t, users["nobody"].Err, kerr.ResourceNotFound)
	gone, err := admin.DeleteTopics(ctx, "flights")
	require.NoError(t, err)
	require.NoError(t, gone["flights"].Err)
	topics, err = admin.ListTopics(ctx)
	require.NoError(t, err)
	assert.Empty(t, topics.Names())

	m, err := admin.BrokerMetadata(ctx)
	require.NoError(t, err)
	assert.Equal(t, []int32{1}, m.Brokers.NodeIDs(), "clients have nothing to do with brokers that only decide")
	assert.EqualValues(t, 1, m.Controller)
}

// Kafka's requests show the quorum, and change it.
func TestKafkasRequestsAboutTheQuorum(t *testing.T) {
	c, k := divided(t)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	describe := func() kmsg.DescribeQuorumResponseTopicPartition {
		q := kmsg.NewPtrDescribeQuorumRequest()
		rt := kmsg.NewDescribeQuorumRequestTopic()
		rt.Topic, rt.Partitions = "__cluster_metadata", []kmsg.DescribeQuorumRequestTopicPartition{{}}
		q.Topics = append(q.Topics, rt)
		r, err := q.RequestWith(ctx, k)
		require.NoError(t, err)
		require.Zero(t, r.ErrorCode)
		require.Len(t, r.Nodes, len(c.Server(1).Service().Processes()))
		return r.Topics[0].Partitions[0]
	}
	ids := func(all []kmsg.DescribeQuorumResponseTopicPartitionReplicaState) (out []int32) {
		for _, s := range all {
			out = append(out, s.ReplicaID)
		}
		return out
	}
	q := describe()
	assert.Equal(t, []int32{2, 3, 4}, ids(q.CurrentVoters))
	assert.Equal(t, []int32{1}, ids(q.Observers))
	for _, s := range q.CurrentVoters {
		assert.GreaterOrEqual(t, s.LogEndOffset, int64(0), "the active controller was asked")
	}
	remove := func(id int32) int16 {
		q := kmsg.NewPtrRemoveRaftVoterRequest()
		q.VoterID = id
		r, err := q.RequestWith(ctx, k)
		require.NoError(t, err)
		return r.ErrorCode
	}
	add := func(id int32) int16 {
		q := kmsg.NewPtrAddRaftVoterRequest()
		q.VoterID = id
		r, err := q.RequestWith(ctx, k)
		require.NoError(t, err)
		return r.ErrorCode
	}
	assert.Equal(t, kerr.DuplicateVoter.Code, add(3))
	assert.Equal(t, kerr.VoterNotFound.Code, remove(1))
	assert.Equal(t, kerr.InvalidRequest.Code, add(1), "its role is to store")
	victim := int32(3)
	if q.LeaderID == 3 {
		victim = 4
	}
	assert.Zero(t, remove(victim))
	assert.Equal(t, []int32{1, victim}, ids(describe().Observers))
	assert.Zero(t, add(victim))
	assert.Len(t, describe().CurrentVoters, 3)

	unregister := func(id int32) int16 {
		q := kmsg.NewPtrUnregisterBrokerRequest()
		q.BrokerID = id
		r, err := q.RequestWith(ctx, k)
		require.NoError(t, err)
		return r.ErrorCode
	}
	assert.Equal(t, kerr.BrokerIDNotRegistered.Code, unregister(9))
	assert.Zero(t, unregister(victim))
	require.Eventually(t, func() bool { return len(describe().CurrentVoters) == 2 }, 20*time.Second, 20*time.Millisecond)
}
