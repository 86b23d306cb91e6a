package cluster

import (
	"context"
	"errors"
	"slices"

	"logbook/engine/commitlog"
	"logbook/engine/controller"
	"logbook/engine/node"
	"logbook/engine/replica"
)

// Status describes a partition: an observation, each replica asked in turn.
type Status struct {
	Partition  Partition
	Assignment replica.Assignment
	// HighWatermark is the leader's: consumers may read below it. -1: unknown.
	HighWatermark int64
	Replicas      []ReplicaStatus // in the order of the assignment, the preferred leader first
}

// ReplicaStatus describes one replica.
type ReplicaStatus struct {
	Broker       BrokerID
	Leader       bool
	InSync       bool
	Known        bool  // the replica can be asked; else End and Lag are unknown, not zero
	LogEndOffset int64 // of its log: the offset that its next record gets
	Lag          int64 // how far End trails the leader's; negative: it is ahead
	HasLag       bool  // Lag is known: both replicas are
	Problem      error // why it cannot be asked, or stands still
}

// Status describes a partition.
func (c *Cluster) Status(p Partition) (Status, error) {
	a, err := c.Assignment(p)
	if err != nil {
		return Status{}, err
	}
	s := Status{Partition: p, Assignment: a, HighWatermark: -1}
	leaderEnd, leaderKnown := int64(0), false
	for _, id := range a.Replicas {
		r := ReplicaStatus{Broker: id, Leader: id == a.Leader}
		r.InSync = slices.Contains(a.ISR, id)
		if rs, err := c.replicaStatus(p, id); err != nil {
			r.Problem = err
		} else {
			r.Known, r.LogEndOffset, r.Problem = true, rs.LogEndOffset, rs.Problem
			if r.Leader {
				leaderEnd, leaderKnown, s.HighWatermark = rs.LogEndOffset, true, rs.HighWatermark
			}
		}
		s.Replicas = append(s.Replicas, r)
	}
	for i := range s.Replicas {
		if r := &s.Replicas[i]; r.Known && leaderKnown {
			r.Lag, r.HasLag = leaderEnd-r.LogEndOffset, true
		}
	}
	return s, nil
}

func (c *Cluster) replicaStatus(p Partition, id BrokerID) (replica.Status, error) {
	n, err := c.Node(id)
	if err != nil {
		return replica.Status{}, err
	}
	return n.Status(p)
}

// CatchUp copies to a follower what it lacks, after comparing all that it has with the
// leader's.
//
// Errors: *node.ReplicaDivergenceError, *BrokerDownError, *NoReplicaError,
// *CorruptReplicaError, *MissingReplicaError, and what kept it from storing.
func (c *Cluster) CatchUp(ctx context.Context, p Partition, follower BrokerID) error {
	n, err := c.follower(p, follower)
	if err != nil {
		return err
	}
	return n.CommandAndWait(ctx, p, (*node.Node).CatchUp)
}

// Recover makes a replica that was dropped by a failover in sync again, as a follower: it
// is cut where it parts from the leader, copied to, compared, and only then counted.
//
// Errors: as CatchUp, but for divergence, which it repairs.
func (c *Cluster) Recover(ctx context.Context, p Partition, id BrokerID) error {
	n, err := c.follower(p, id)
	if err != nil {
		return err
	}
	return n.CommandAndWait(ctx, p, (*node.Node).Recover)
}

// follower returns a running broker, and makes sure that the partition's leader runs too.
func (c *Cluster) follower(p Partition, id BrokerID) (*node.Node, error) {
	if _, err := c.leader(p); err != nil {
		return nil, err
	}
	return c.Node(id)
}

// Failover gives a partition whose leader is down a new one; see controller.Manual.Failover.
//
// Errors: *controller.LeaderStillAvailableError, *controller.NoEligibleReplicaError,
// *node.ReplicaDivergenceError, *controller.UnknownPartitionError, and what kept the decision
// from being written. After each of them the recorded leader is the old one.
func (c *Cluster) Failover(ctx context.Context, p Partition) (controller.FailoverResult, error) {
	f, err := c.controller.Failover(ctx, p, prober{c.network})
	if d, ok := errors.AsType[*controller.DivergenceError](err); ok {
		err = &node.ReplicaDivergenceError{Partition: p, Leader: d.First, Follower: d.Second, Offset: d.Offset, Err: err}
	}
	if a, ok := c.controller.Image().Assignment(p); ok && err == nil {
		c.network.settle(p, a)
	}
	return f, err
}

// prober lets the controller look at the replicas.
type prober struct{ network *network }

func (b prober) Report(_ context.Context, p Partition, id BrokerID) controller.Report {
	n := b.network.node(id)
	if n == nil {
		return controller.Report{Broker: id, Err: &BrokerDownError{id}}
	}
	return n.Report(p)
}

func (b prober) FrameDigests(_ context.Context, p Partition, id BrokerID, from int64, max int) ([]commitlog.FrameDigest, error) {
	n := b.network.node(id)
	if n == nil {
		return nil, &BrokerDownError{id}
	}
	return n.FrameDigests(p, from, max)
}
