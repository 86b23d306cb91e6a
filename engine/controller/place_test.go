package controller_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"logbook/engine/controller"
	"logbook/engine/replica"
)

// The replicas of a partition are in as many racks as they can be, and every broker leads as much
// as any other, as far as that goes.
func TestPlaceInRacks(t *testing.T) {
	for name, c := range map[string]struct {
		racks       []string // of brokers 1, 2, ...
		replication int
		apart       int // racks that the replicas of each partition are in
	}{
		"no racks":              {[]string{"", "", ""}, 2, 1},
		"one each":              {[]string{"a", "b", "c"}, 3, 3},
		"two in each":           {[]string{"a", "a", "b", "b", "c", "c"}, 3, 3},
		"fewer than replicas":   {[]string{"a", "a", "b", "b"}, 3, 2},
		"of different sizes":    {[]string{"a", "a", "a", "b", "c"}, 3, 3},
		"two, in one each side": {[]string{"a", "a", "a", "b"}, 2, 2},
	} {
		rack := func(id replica.BrokerID) string { return c.racks[id-1] }
		var ids []replica.BrokerID
		for i := range c.racks {
			ids = append(ids, replica.BrokerID(i+1))
		}
		placed, err := controller.PlaceInRacks(ids, 12*len(ids), c.replication, rack)
		require.NoError(t, err, name)
		leads := map[replica.BrokerID]int{}
		for _, a := range placed {
			require.NoError(t, a.Validate(), name)
			require.Len(t, a.Replicas, c.replication, name)
			in := map[string]bool{}
			for _, id := range a.Replicas {
				in[rack(id)] = true
			}
			assert.Len(t, in, c.apart, "%s: %v", name, a.Replicas)
			leads[a.Leader]++
		}
		for _, id := range ids {
			assert.Equal(t, 12, leads[id], "%s: broker %d", name, id)
		}
	}
}
