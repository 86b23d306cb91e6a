package metadata_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"logbook/engine/commitlog"
	"logbook/engine/metadata"
	"logbook/engine/record"
	"logbook/engine/replica"
	"logbook/engine/topic"
	"logbook/engine/vfs"
)

func broker(id replica.BrokerID) metadata.Record {
	return metadata.Record{Broker: &metadata.BrokerRecord{ID: id}}
}

func partition(version int64, leader replica.BrokerID) metadata.Record {
	return metadata.Record{Partition: &metadata.PartitionRecord{Topic: "t", Assignment: replica.Assignment{
		Version: version, Leader: leader, LeaderEpoch: 1, Replicas: []replica.BrokerID{1, 2}, ISR: []replica.BrokerID{1, 2},
	}}}
}

var made = []metadata.Record{
	broker(2), broker(1),
	{Topic: &metadata.TopicRecord{Name: "t", ID: topic.ID{1}, Partitions: 1, Replication: 2, Partitioner: "murmur2"}},
	partition(1, 1),
}

func TestAnImageNeverChanges(t *testing.T) {
	old, err := new(metadata.Image).Apply(made...)
	require.NoError(t, err)
	next, err := old.Apply(partition(2, 2))
	require.NoError(t, err)
	p := topic.Partition{Topic: "t"}
	was, _ := old.Assignment(p)
	is, _ := next.Assignment(p)
	assert.Equal(t, []replica.BrokerID{1, 2}, []replica.BrokerID{was.Leader, is.Leader})
	changed := partition(2, 2)
	changed.Partition.TopicID = next.Topic("t").ID
	assert.Equal(t, []metadata.Record{changed}, old.Diff(next))
	again, err := new(metadata.Image).Apply(next.Records()...)
	require.NoError(t, err)
	assert.Equal(t, next, again)
}

func TestContradictionsAreRefusedWhole(t *testing.T) {
	image, err := new(metadata.Image).Apply(made...)
	require.NoError(t, err)
	for name, bad := range map[string][]metadata.Record{
		"nothing":             {{}},
		"no such partition":   {{Partition: &metadata.PartitionRecord{Topic: "t", Partition: 1}}},
		"no such topic":       {{Partition: &metadata.PartitionRecord{Topic: "x"}}},
		"an unknown broker":   {broker(3), partition(2, 4)},
		"another of its name": {{Topic: &metadata.TopicRecord{Name: "t", ID: topic.ID{2}, Partitions: 1, Replication: 2, Partitioner: "murmur2"}}},
		"no assignment":       {{Topic: &metadata.TopicRecord{Name: "x", Partitions: 1, Replication: 1, Partitioner: "murmur2"}}},
		"no broker zero":      {broker(0)},
	} {
		_, err := image.Apply(bad...)
		assert.Error(t, err, name)
	}
	assert.Equal(t, []replica.BrokerID{1, 2}, image.Brokers())
}

func TestTopicIDs(t *testing.T) {
	id := topic.ID{1, 2, 3, 0xff}
	again, err := topic.ParseID(id.String())
	require.NoError(t, err)
	assert.Equal(t, id, again)
	_, err = topic.ParseID("too short")
	assert.Error(t, err)
}

// FuzzApply applies arbitrary decisions: an image that holds together, or an error.
func FuzzApply(f *testing.F) {
	seed, err := json.Marshal(made)
	require.NoError(f, err)
	f.Add(seed)
	f.Fuzz(func(t *testing.T, data []byte) {
		var records []metadata.Record
		if json.Unmarshal(data, &records) != nil || len(data) > 1<<16 {
			return
		}
		image, err := new(metadata.Image).Apply(records...)
		if err != nil {
			return
		}
		again, err := new(metadata.Image).Apply(image.Records()...)
		require.NoError(t, err)
		require.Equal(t, image.Records(), again.Records())
	})
}

// A store that was compacted holds what it held.
func TestStoreIsCompacted(t *testing.T) {
	disk := vfs.NewMem()
	opt := commitlog.Options{FS: disk, SegmentBytes: 64 << 10}
	s, image, err := metadata.OpenStore("d", opt)
	require.NoError(t, err)
	image, err = image.Apply(made...)
	require.NoError(t, err)
	require.NoError(t, s.Append(made))
	for v := int64(2); v < 400; v++ {
		var batch []metadata.Record
		for range 100 {
			batch = append(batch, partition(v, 1))
		}
		require.NoError(t, s.Append(batch))
		image, err = image.Apply(batch...)
		require.NoError(t, err)
	}
	require.NoError(t, s.Close())
	_, got, err := metadata.OpenStore("d", opt)
	require.NoError(t, err)
	assert.Equal(t, image.Records(), got.Records())
	names, err := disk.ReadDir("d")
	require.NoError(t, err)
	total := int64(0)
	for _, name := range names {
		f, err := disk.OpenRead("d/" + name)
		require.NoError(t, err)
		size, err := f.Size()
		require.NoError(t, err)
		total += size
	}
	assert.Less(t, total, int64(5<<20), "of the 10 MB that were written")
}

// A log of decisions is not read as another controller's: neither would make sense of it.
func TestOtherControllersLogs(t *testing.T) {
	opt := commitlog.Options{FS: vfs.NewMem()}
	s, _, err := metadata.OpenStore("keyed", opt)
	require.NoError(t, err)
	require.NoError(t, s.Append(made))
	require.NoError(t, s.Close())
	_, _, err = metadata.OpenJournal("keyed", opt)
	require.ErrorIs(t, err, metadata.ErrOtherController)
	require.ErrorContains(t, err, "LOGBOOK_CONTROLLER")
	j, _, err := metadata.OpenJournal("journal", opt)
	require.NoError(t, err)
	require.NoError(t, j.WriteJournal([]record.Record{{Key: []byte("state"), Value: []byte("{}")}}, false))
	require.NoError(t, j.WriteJournal([]record.Record{{Key: []byte("snapshot"), Value: []byte("1")}, {Key: []byte("state"), Value: []byte("2")}}, true))
	require.NoError(t, j.Close())
	_, _, err = metadata.OpenStore("journal", opt)
	require.ErrorIs(t, err, metadata.ErrOtherController)
	_, all, err := metadata.OpenJournal("journal", opt)
	require.NoError(t, err)
	require.Equal(t, "2", string(all[len(all)-1].Value))
}
