package controller

import (
	"context"
	"fmt"
	"slices"

	"logbook/engine/replica"
)

// A Choice picks the next leader of a partition whose leader is gone. reports has an entry
// for each other replica, active or not, reachable or not, by ascending id. None: nobody
// can lead.
type Choice func(a replica.Assignment, reports []Report) replica.BrokerID

// Longest picks the active replica with the longest log among those that can be reached,
// and of equals the lowest id.
//
// Only an active replica will do, however long another's log is: an acknowledged record
// is on every active one, and on the others only by chance. Among the active ones the
// longest log keeps most of what was never acknowledged too.
func Longest(a replica.Assignment, reports []Report) replica.BrokerID {
	best, end := replica.None, int64(-1)
	for _, r := range reports {
		if r.Err == nil && r.End > end && slices.Contains(a.Active, r.Broker) {
			best, end = r.Broker, r.End
		}
	}
	return best
}

// Candidates returns the replicas that may lead, and why each of the others may not.
func Candidates(a replica.Assignment, reports []Report) (ids []replica.BrokerID, reasons map[replica.BrokerID]string) {
	reasons = map[replica.BrokerID]string{}
	for _, r := range reports {
		switch {
		case !slices.Contains(a.Active, r.Broker):
			reasons[r.Broker] = "not active: it may lack acknowledged records"
		case r.Err != nil:
			reasons[r.Broker] = r.Err.Error()
		default:
			ids = append(ids, r.Broker)
		}
	}
	return ids, reasons
}

// compareCandidates makes sure that every candidate's log is the same as the chosen one's
// as far as both go.
func compareCandidates(ctx context.Context, probe Prober, p Partition, chosen Report, others []Report) error {
	for _, o := range others {
		if o.Broker == chosen.Broker {
			continue
		}
		at, err := firstDifference(ctx, probe, p, chosen, o)
		if err != nil {
			return err
		}
		if at >= 0 {
			first, second := min(chosen.Broker, o.Broker), max(chosen.Broker, o.Broker)
			return &DivergenceError{Partition: p, First: first, Second: second, Offset: at}
		}
	}
	return nil
}

// firstDifference returns the first offset at which two logs differ where both have
// records; -1: nowhere.
func firstDifference(ctx context.Context, probe Prober, p Partition, a, b Report) (int64, error) {
	const n = 4096
	end := min(a.End, b.End)
	for at := max(a.Start, b.Start); at < end; {
		sa, err := probe.Sums(ctx, p, a.Broker, at, n)
		if err != nil {
			return 0, fmt.Errorf("controller: comparing brokers %d and %d: %w", a.Broker, b.Broker, err)
		}
		sb, err := probe.Sums(ctx, p, b.Broker, at, n)
		if err != nil {
			return 0, fmt.Errorf("controller: comparing brokers %d and %d: %w", a.Broker, b.Broker, err)
		}
		same := min(len(sa), len(sb))
		for i := range same {
			if sa[i] != sb[i] {
				return max(at, min(sa[i].Base, sb[i].Base)), nil
			}
		}
		if same == 0 {
			return at, nil
		}
		at = sa[same-1].Next
	}
	return -1, nil
}
