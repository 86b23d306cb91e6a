package controller_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"logbook/engine/controller"
	"logbook/engine/metadata"
	"logbook/engine/replica"
	"logbook/engine/topic"
)

var moved = controller.Partition{Topic: "flights", ID: 0}

// fourBrokers is a cluster of four, with a partition on three of them.
func fourBrokers(t *testing.T, isr ...replica.BrokerID) *metadata.Image {
	var records []metadata.Record
	for id := replica.BrokerID(1); id <= 4; id++ {
		records = append(records, metadata.Record{Broker: &metadata.BrokerRecord{ID: id}})
	}
	id := topic.ID{1}
	records = append(records, metadata.Record{Topic: &metadata.TopicRecord{Name: "flights", ID: id, Partitions: 1, Replication: 3, Partitioner: "murmur2"}},
		controller.Assigned(id, moved, replica.Assignment{Version: 1, Leader: 1, LeaderEpoch: 1, Replicas: []replica.BrokerID{1, 2, 3}, ISR: isr}))
	image, err := new(metadata.Image).Apply(records...)
	require.NoError(t, err)
	return image
}

// then applies decisions, and returns what the partition's is.
func then(t *testing.T, image *metadata.Image, records []metadata.Record, err error) (*metadata.Image, replica.Assignment) {
	require.NoError(t, err)
	next, err := image.Apply(records...)
	require.NoError(t, err)
	a, _ := next.Assignment(moved)
	return next, a
}

func with(image *metadata.Image, t *testing.T, isr ...replica.BrokerID) *metadata.Image {
	a, _ := image.Assignment(moved)
	next := a.Clone()
	next.Version++
	next.ISR = isr
	records, err := controller.ChangeISR(image, a.Leader, moved, next, func(replica.BrokerID) bool { return false }, 1)
	image, _ = then(t, image, records, err)
	return image
}

// A partition has the replicas of before and those to come, until all that stay are in sync.
func TestAPartitionMoves(t *testing.T) {
	image := fourBrokers(t, 1, 2, 3)
	records, err := controller.ReassignPartition(image, moved, []replica.BrokerID{4, 3, 2})
	image, a := then(t, image, records, err)
	assert.Equal(t, []replica.BrokerID{4, 3, 2, 1}, a.Replicas)
	assert.Equal(t, []any{replica.BrokerID(1), int32(2)}, []any{a.Leader, a.LeaderEpoch}, "who leads leads on, in an epoch that counts with the new ones")

	records, err = controller.FinishReassignments(image)
	require.NoError(t, err)
	require.Empty(t, records, "broker 4 has not caught up")

	image = with(image, t, 1, 2, 3, 4)
	records, err = controller.FinishReassignments(image)
	_, a = then(t, image, records, err)
	assert.Equal(t, replica.Assignment{Version: 4, Leader: 4, LeaderEpoch: 3, Replicas: []replica.BrokerID{4, 3, 2}, ISR: []replica.BrokerID{2, 3, 4}}, a, "the preferred one leads, since who led is gone")
}

func TestAMoveIsTakenBack(t *testing.T) {
	image := fourBrokers(t, 1, 2)
	_, err := controller.ReassignPartition(image, moved, nil)
	require.ErrorIs(t, err, controller.ErrNotMoving)
	records, err := controller.ReassignPartition(image, moved, []replica.BrokerID{4, 3, 2})
	image, _ = then(t, image, records, err)
	image = with(image, t, 1, 2, 4)
	records, err = controller.ReassignPartition(image, moved, nil)
	_, a := then(t, image, records, err)
	assert.Equal(t, replica.Assignment{Version: 4, Leader: 1, LeaderEpoch: 3, Replicas: []replica.BrokerID{1, 2, 3}, ISR: []replica.BrokerID{1, 2}}, a)

	// Not where nobody is left who has everything.
	image = with(image, t, 1, 4)
	fenced, err := controller.FenceBroker(image, 1, 1)
	image, a = then(t, image, fenced, err)
	require.Equal(t, replica.BrokerID(4), a.Leader)
	_, err = controller.ReassignPartition(image, moved, nil)
	bad := &controller.ReassignmentError{}
	require.ErrorAs(t, err, &bad)
}

// A move can be given another end; where it began stays what it is.
func TestAMoveGoesElsewhere(t *testing.T) {
	image := fourBrokers(t, 1, 2, 3)
	records, err := controller.ReassignPartition(image, moved, []replica.BrokerID{4, 3, 2})
	image, _ = then(t, image, records, err)
	records, err = controller.ReassignPartition(image, moved, []replica.BrokerID{2, 1, 3})
	image, a := then(t, image, records, err)
	assert.Equal(t, []replica.BrokerID{1, 2, 3}, a.Origin)
	assert.Equal(t, []replica.BrokerID{2, 1, 3}, a.Replicas, "broker 4 is not needed any more")
	records, err = controller.FinishReassignments(image)
	_, a = then(t, image, records, err)
	assert.Nil(t, a.Target)
	assert.Equal(t, []replica.BrokerID{2, 1, 3}, a.Replicas)
}

func TestMovesThatCannotBe(t *testing.T) {
	image := fourBrokers(t, 1, 2, 3)
	for name, to := range map[string][]replica.BrokerID{
		"too few": {1, 2}, "too many": {1, 2, 3, 4}, "twice the same": {1, 2, 2}, "unknown": {1, 2, 9},
	} {
		_, err := controller.ReassignPartition(image, moved, to)
		bad := &controller.ReassignmentError{}
		require.ErrorAs(t, err, &bad, name)
	}
	_, err := controller.ReassignPartition(image, controller.Partition{Topic: "x"}, []replica.BrokerID{1, 2, 3})
	unknown := &controller.UnknownPartitionError{}
	require.ErrorAs(t, err, &unknown)
}
