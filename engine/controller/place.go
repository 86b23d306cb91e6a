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
	return PlaceInRacks(brokers, partitions, replication, func(replica.BrokerID) string { return "" })
}

// PlaceInRacks is Place for brokers that are in racks, of which some may be lost together: the
// replicas of a partition are in as many racks as they can be. Leaders go round the racks, too.
// A broker whose rack is not known is taken to be in one of its own.
func PlaceInRacks(brokers []replica.BrokerID, partitions, replication int, rack func(replica.BrokerID) string) ([]replica.Assignment, error) {
	if err := checkReplication(replication, brokers); err != nil {
		return nil, err
	}
	order := alternate(brokers, rack)
	out := make([]replica.Assignment, partitions)
	for p := range out {
		ids := fromRacks(order, p, replication, rack)
		isr := slices.Clone(ids)
		slices.Sort(isr)
		out[p] = replica.Assignment{Version: 1, Leader: ids[0], LeaderEpoch: 1, Replicas: ids, ISR: isr}
	}
	return out, nil
}

// alternate puts brokers into an order in which neighbours are in different racks, as far as there
// are any: the first of each rack, the second of each, and so on.
func alternate(brokers []replica.BrokerID, rack func(replica.BrokerID) string) []replica.BrokerID {
	sorted := slices.Sorted(slices.Values(brokers))
	nth := map[replica.BrokerID]int{} // of its rack
	seen := map[string]int{}
	for _, id := range sorted {
		if r := rack(id); r != "" {
			nth[id] = seen[r]
			seen[r]++
		}
	}
	slices.SortStableFunc(sorted, func(a, b replica.BrokerID) int { return nth[a] - nth[b] })
	return sorted
}

// fromRacks takes brokers from an order, from a place in it on, round and round: first those in
// racks that none was taken of.
func fromRacks(order []replica.BrokerID, at, n int, rack func(replica.BrokerID) string) []replica.BrokerID {
	var ids []replica.BrokerID
	used := map[string]bool{}
	for again := range 2 {
		for i := range order {
			id := order[(at+i)%len(order)]
			r := rack(id)
			if len(ids) < n && !slices.Contains(ids, id) && (r == "" || !used[r] || again == 1) {
				ids = append(ids, id)
				used[r] = true
			}
		}
	}
	return ids
}
