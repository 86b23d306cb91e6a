package kafka_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// What Kafka's tools ask for, and fall over where it is not as Kafka has it.
func TestWhatToolsAsk(t *testing.T) {
	b := start(t, nil)
	c := b.client()
	require.NoError(t, c.ProduceSync(soon(t), &kgo.Record{Topic: "t", Value: []byte("x")}).FirstErr())

	topics := kmsg.NewPtrDescribeTopicPartitionsRequest()
	topics.ResponsePartitionLimit = 100
	topic := kmsg.NewDescribeTopicPartitionsRequestTopic()
	topic.Topic = "t"
	topics.Topics = append(topics.Topics, topic)
	described, err := topics.RequestWith(soon(t), c)
	require.NoError(t, err)
	require.Len(t, described.Topics[0].Partitions, 2)
	for _, p := range described.Topics[0].Partitions {
		assert.NotNil(t, p.EligibleLeaderReplicas, "null is allowed, and Java's client takes it for a list")
		assert.NotNil(t, p.LastKnownELR)
	}

	list := kmsg.NewPtrListConfigResourcesRequest()
	all, err := list.RequestWith(soon(t), c)
	require.NoError(t, err)
	got := map[string]int8{}
	for _, r := range all.ConfigResources {
		got[r.Name] = r.Type
	}
	delete(got, "__consumer_offsets") // it may be there by now
	assert.Equal(t, map[string]int8{"t": int8(kmsg.ConfigResourceTypeTopic), "1": int8(kmsg.ConfigResourceTypeBroker)}, got)
	list.ResourceTypes = []int8{int8(kmsg.ConfigResourceTypeBroker)}
	all, err = list.RequestWith(soon(t), c)
	require.NoError(t, err)
	assert.Len(t, all.ConfigResources, 1)

	quotas, err := kmsg.NewPtrDescribeClientQuotasRequest().RequestWith(soon(t), c)
	require.NoError(t, err)
	assert.Zero(t, quotas.ErrorCode)
	assert.NotNil(t, quotas.Entries, "there are none, and that is known")
}
