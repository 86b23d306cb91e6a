package group

import "time"

// Machine is what a driver drives: a *Group, or another implementation of the same
// duties, which the package comment lists.
type Machine interface {
	Step(now time.Time, r Request) Output
	Tick(now time.Time) Output
	SetCounts(now time.Time, counts map[string]int) Output
	Next() time.Time
	State() State
	Generation() int32
	Snapshot() []byte
}

var _ Machine = (*Group)(nil)
