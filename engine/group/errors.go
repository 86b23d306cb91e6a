package group

import (
	"errors"
	"fmt"
	"time"
)

var (
	// ErrUnknownMember: the group has no such member; it left, or its session expired. Join anew.
	ErrUnknownMember = errors.New("group: unknown member; join again as a new one")
	// ErrRebalanceInProgress: join again to be part of the next generation.
	ErrRebalanceInProgress = errors.New("group: a rebalance is in progress; join again")
	// ErrFencedInstance: another member has joined with the same instance id since.
	ErrFencedInstance = errors.New("group: another member has taken this instance id over; stop")
	// ErrFencedEpoch: the member's epoch is not the one it was given. Give everything up, and join again.
	ErrFencedEpoch = errors.New("group: the member's epoch is over; give up what is assigned, and join again")
	// ErrStaleEpoch: a commit, or a question, in an epoch that is not the member's any more.
	ErrStaleEpoch = errors.New("group: the member is in another epoch by now; take the one of the last heartbeat")
	// ErrUnreleasedInstance: a static member's place is still taken.
	ErrUnreleasedInstance = errors.New("group: another member has this instance id; it must leave first, or its session end")
	// ErrInvalidBeat: a heartbeat that lacks what it must say.
	ErrInvalidBeat = errors.New("group: a heartbeat must name a member, and the first one a subscription, a rebalance timeout, and no partitions")
	// ErrFull: the group has as many members as it may have.
	ErrFull = fmt.Errorf("group: it has %d members, the limit; use several groups", MaxMembers)
	// ErrTooMany: a coordinator has as many groups as it may have.
	ErrTooMany = errors.New("group: there are too many groups; delete some that are not used")
)

// MaxMembers is how many members a group may have.
const MaxMembers = 10_000

// StaleGenerationError: a request of a generation that is over.
type StaleGenerationError struct {
	Member       string
	Got, Current int32
}

func (e *StaleGenerationError) Error() string {
	return fmt.Sprintf("group: member %s is in generation %d, the group in %d; join again", e.Member, e.Got, e.Current)
}

// NotOwnerError: a commit for a partition that is not the member's.
type NotOwnerError struct {
	Member    string
	Partition Partition
}

func (e *NotOwnerError) Error() string {
	return fmt.Sprintf("group: %s is not assigned to member %s in this generation", e.Partition, e.Member)
}

// AssignorMismatchError: a member asks for another assignor than the others use.
type AssignorMismatchError struct{ Wanted, Used string }

func (e *AssignorMismatchError) Error() string {
	return fmt.Sprintf("group: the members use assignor %q, not %q; all must use one", e.Used, e.Wanted)
}

// UnknownAssignorError: there is no assignor of that name.
type UnknownAssignorError struct{ Name string }

func (e *UnknownAssignorError) Error() string {
	return fmt.Sprintf("group: no assignor %q: there are %q, %q and %q", e.Name, RoundRobin.Name(), Range.Name(), CooperativeSticky.Name())
}

// PatternError: a subscription's regular expression is none.
type PatternError struct {
	Pattern string
	Err     error
}

func (e *PatternError) Error() string {
	return fmt.Sprintf("group: %q is no regular expression: %v", e.Pattern, e.Err)
}

// TimeoutError: a member asks for a timeout that is out of bounds.
type TimeoutError struct {
	What     string // "session" or "rebalance"
	Wanted   time.Duration
	Min, Max time.Duration
}

func (e *TimeoutError) Error() string {
	return fmt.Sprintf("group: %s timeout %s is not between %s and %s", e.What, e.Wanted, e.Min, e.Max)
}

// What a Classic answers besides.
var (
	ErrIllegalGeneration    = errors.New("group: the generation is over; join again")
	ErrInconsistentProtocol = errors.New("group: the members of the group have no protocol of this type in common with the new one")
	ErrMemberIDRequired     = errors.New("group: join again with the id that was given")
	ErrInvalidSession       = errors.New("group: a session timeout must be from 6 seconds to 30 minutes")
)
