package kafka_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"logbook/engine/kafka"
)

// sessions is a client that keeps a fetch session by hand, on one connection.
type sessions struct {
	t *testing.T
	c *kgo.Client
}

func (s sessions) fetch(id, epoch int32, forgotten []int32, offsets map[int32]int64) *kmsg.FetchResponse {
	s.t.Helper()
	q := kmsg.NewPtrFetchRequest()
	q.Version, q.MaxWaitMillis, q.MinBytes, q.MaxBytes, q.SessionID, q.SessionEpoch = 12, 50, 1, 1<<20, id, epoch
	topic := kmsg.NewFetchRequestTopic()
	topic.Topic = "t"
	for p := range int32(8) {
		if offset, asked := offsets[p]; asked {
			x := kmsg.NewFetchRequestTopicPartition()
			x.Partition, x.FetchOffset, x.PartitionMaxBytes, x.CurrentLeaderEpoch = p, offset, 1<<20, -1
			topic.Partitions = append(topic.Partitions, x)
		}
	}
	if len(topic.Partitions) > 0 {
		q.Topics = append(q.Topics, topic)
	}
	if forgotten != nil {
		x := kmsg.NewFetchRequestForgottenTopic()
		x.Topic, x.Partitions = "t", forgotten
		q.ForgottenTopics = append(q.ForgottenTopics, x)
	}
	resp, err := s.c.Broker(1).Request(soon(s.t), q)
	require.NoError(s.t, err)
	return resp.(*kmsg.FetchResponse)
}

// told lists the partitions of a reply, and those that had records.
func told(r *kmsg.FetchResponse) (all, full []int32) {
	for _, t := range r.Topics {
		for _, p := range t.Partitions {
			all = append(all, p.Partition)
			if len(p.RecordBatches) > 0 {
				full = append(full, p.Partition)
			}
		}
	}
	return all, full
}

func TestFetchSessions(t *testing.T) {
	b := start(t, func(c *kafka.Config) { c.Partitions = 3 })
	p := b.client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	send := func(partition int32) {
		require.NoError(t, p.ProduceSync(soon(t), &kgo.Record{Topic: "t", Partition: partition, Value: []byte("x")}).FirstErr())
	}
	send(0)
	s := sessions{t, b.client(kgo.MaxVersions(kversion.V3_0_0()))} // which names topics
	r := s.fetch(0, 0, nil, map[int32]int64{0: 0, 1: 0, 2: 0})
	require.NotZero(t, r.SessionID)
	all, full := told(r)
	assert.Equal(t, []int32{0, 1, 2}, all, "the first reply tells everything")
	assert.Equal(t, []int32{0}, full)
	id := r.SessionID

	r = s.fetch(id, 1, nil, map[int32]int64{0: 1})
	all, _ = told(r)
	assert.Empty(t, all, "nothing has changed")
	assert.Equal(t, id, r.SessionID)

	send(1)
	r = s.fetch(id, 2, nil, nil)
	all, full = told(r)
	assert.Equal(t, []int32{1}, all, "what was asked for stays asked for")
	assert.Equal(t, all, full)

	r = s.fetch(id, 3, nil, nil)
	_, full = told(r)
	assert.Equal(t, []int32{1}, full, "its offset is where it was")
	r = s.fetch(id, 4, []int32{1}, nil)
	all, _ = told(r)
	assert.Empty(t, all, "it is forgotten")

	r = s.fetch(id, 5, nil, map[int32]int64{1: 1, 7: 0})
	all, _ = told(r)
	assert.ElementsMatch(t, []int32{1, 7}, all, "new ones are told, errors too")
	r = s.fetch(id, 6, nil, nil)
	all, _ = told(r)
	assert.Equal(t, []int32{7}, all, "an error is told again and again")

	assert.Equal(t, kerr.InvalidFetchSessionEpoch.Code, s.fetch(id, 6, nil, nil).ErrorCode)
	assert.Equal(t, kerr.FetchSessionIDNotFound.Code, s.fetch(id+1, 7, nil, nil).ErrorCode)
	r = s.fetch(id, -1, nil, map[int32]int64{0: 0}) // it ends the session with a full fetch
	all, _ = told(r)
	assert.Equal(t, []int32{0}, all)
	assert.Zero(t, r.SessionID)
	assert.Equal(t, kerr.FetchSessionIDNotFound.Code, s.fetch(id, 7, nil, nil).ErrorCode)
}
