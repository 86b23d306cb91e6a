package controller

import (
	"slices"

	"logbook/engine/replica"
)

// A Choice picks the next leader of a partition whose leader is gone. reports has an entry
// for each other replica, in sync or not, reachable or not, by ascending id. None: nobody
// can lead.
type Choice func(a replica.Assignment, reports []Report) replica.BrokerID

// Longest picks the in-sync replica with the longest log among those that can be reached,
// and of equals the lowest id.
//
// Only an in-sync replica will do, however long another's log is: an acknowledged record
// is on every in-sync one, and on the others only by chance. Among the in-sync ones the
// longest log keeps most of what was never acknowledged too.
func Longest(a replica.Assignment, reports []Report) replica.BrokerID {
	best, end := replica.None, int64(-1)
	for _, r := range reports {
		if r.Err == nil && r.LogEndOffset > end && slices.Contains(a.ISR, r.Broker) {
			best, end = r.Broker, r.LogEndOffset
		}
	}
	return best
}

// Candidates returns the replicas that may lead, and why each of the others may not.
func Candidates(a replica.Assignment, reports []Report) (ids []replica.BrokerID, reasons map[replica.BrokerID]string) {
	reasons = map[replica.BrokerID]string{}
	for _, r := range reports {
		switch {
		case !slices.Contains(a.ISR, r.Broker):
			reasons[r.Broker] = "not in sync: it may lack acknowledged records"
		case r.Err != nil:
			reasons[r.Broker] = r.Err.Error()
		default:
			ids = append(ids, r.Broker)
		}
	}
	return ids, reasons
}
