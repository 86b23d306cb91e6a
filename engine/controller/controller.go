// Package controller decides who leads a partition.
//
// A Controller hands out assignments: leader, leader epoch, replicas, and the active ones
// among them. Each is newer than the one before (its Version grows), and a leader's term
// has an epoch of its own. A leader may propose a change of the active replicas; nothing
// counts before the controller has taken it.
//
// Manual is PyStream's: failover and recovery are calls, and what was decided is a file,
// cluster.meta, that says the same after a restart.
package controller

import (
	"cmp"
	"context"
	"fmt"

	"logbook/engine/commitlog"
	"logbook/engine/replica"
)

// Partition names a partition of a topic.
type Partition struct {
	Topic string `json:"topic"`
	ID    int    `json:"partition"`
}

func (p Partition) String() string { return fmt.Sprintf("%s/%d", p.Topic, p.ID) }

// Compare orders partitions by topic, then by id.
func (p Partition) Compare(q Partition) int {
	return cmp.Or(cmp.Compare(p.Topic, q.Topic), cmp.Compare(p.ID, q.ID))
}

// Controller says who leads.
type Controller interface {
	// Assignment returns the present decision about a partition.
	Assignment(p Partition) (replica.Assignment, bool)
	// Watch calls f with each decision made from now on, in order for each partition, and
	// after it counts. f must not call the controller.
	Watch(f func(Partition, replica.Assignment))
	// Propose asks for a leader's change of the active replicas: Version must follow the
	// present one, and leader and epoch be the present ones.
	//
	// Errors: *StaleError, *UnsettledError, and what kept the change from being written;
	// after all but *UnsettledError the change does not count.
	Propose(p Partition, a replica.Assignment) error
}

// Report is what a replica says of itself when a leader has to be chosen.
type Report struct {
	Broker     replica.BrokerID
	Start, End int64 // of its log
	LastEpoch  int32 // leader epoch of its last record, -1: it has none
	Err        error // why it cannot lead: it does not answer, or its log is damaged
}

// Prober asks replicas about their logs. It is the controller's view of the brokers.
type Prober interface {
	Report(ctx context.Context, p Partition, id replica.BrokerID) Report
	// Sums returns the sums of at most n frames of a replica's log from an offset on.
	Sums(ctx context.Context, p Partition, id replica.BrokerID, from int64, n int) ([]commitlog.Sum, error)
}
