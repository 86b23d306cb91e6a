package replica

import "time"

// Machine is what a driver drives: a *Replica, or another implementation of the same
// duties. See the package comment for these, and Replica's methods for what each is told.
// Package replicatest puts one through the simulator.
type Machine interface {
	// What happens.
	Assign(now time.Time, a Assignment) []Effect
	Step(now time.Time, m Message) []Effect
	Unreachable(now time.Time, peer BrokerID, why string) []Effect
	Gone(now time.Time, peer BrokerID) []Effect
	Tick(now time.Time) []Effect
	Next() time.Time

	// Results of effects.
	Logged(now time.Time, log Log, err error) []Effect
	Compared(now time.Time, same int64, differs bool, err error) []Effect
	Rejected(now time.Time, version int64, why string, unsure bool) []Effect

	// Writes, and the log's front.
	CheckWrite(acks Acks) error
	Appended(now time.Time, w Write) []Effect
	Abandon(now time.Time, id uint64) []Effect
	Trimmed(now time.Time, start, first int64) []Effect
	GiveUpWrites(now time.Time) []Effect

	// Consumers that read from a follower.
	Readers(now time.Time) []Effect

	// Commands.
	CatchUp(now time.Time, id uint64) []Effect
	Recover(now time.Time, id uint64) []Effect

	// What is known.
	HighWatermark() int64
	Settled() bool
	Follows() bool
	LeaderEpoch() int32
	InSync() int
	Status() Status
}

var _ Machine = (*Replica)(nil)
