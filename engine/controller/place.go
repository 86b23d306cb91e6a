package controller

import (
	"fmt"
	"slices"

	"logbook/engine/replica"
)

// checkReplication says why there cannot be so many replicas.
func checkReplication(replication int, brokers []replica.BrokerID) error {
	if replication < 1 || replication > len(brokers) {
		return &BrokerError{fmt.Sprintf("a replication factor of %d with %d brokers; it must be from 1 to the number of brokers", replication, len(brokers))}
	}
	return nil
}

// Place spreads partitions over brokers: partition p is led by the broker at p, counted
// round and round in ascending order, and followed by the next ones. With 3 brokers, 3
// partitions and 2 replicas: 1 and 2, 2 and 3, 3 and 1. It is worked out once, when a
// topic is made, and kept.
func Place(brokers []replica.BrokerID, partitions, replication int) ([]replica.Assignment, error) {
	if err := checkReplication(replication, brokers); err != nil {
		return nil, err
	}
	sorted := slices.Sorted(slices.Values(brokers))
	out := make([]replica.Assignment, partitions)
	for p := range out {
		ids := make([]replica.BrokerID, replication)
		for i := range ids {
			ids[i] = sorted[(p+i)%len(sorted)]
		}
		isr := slices.Clone(ids)
		slices.Sort(isr)
		out[p] = replica.Assignment{Version: 1, Leader: ids[0], LeaderEpoch: 1, Replicas: ids, ISR: isr}
	}
	return out, nil
}
