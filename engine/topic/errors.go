package topic

import (
	"errors"
	"fmt"
)

// ErrClosed: the topic was closed.
var ErrClosed = errors.New("topic: closed; open it again")

// NameError: a topic (or consumer, or group) cannot have this name.
type NameError struct {
	What   string // "topic", "consumer", "group"
	Name   string
	Reason string
}

func (e *NameError) Error() string {
	return fmt.Sprintf("%s name %q %s; use letters, digits, '.', '_' and '-', at most %d of them", e.What, e.Name, e.Reason, MaxNameLength)
}

// UnknownError: there is no topic of that name.
type UnknownError struct{ Name string }

func (e *UnknownError) Error() string {
	return fmt.Sprintf("topic %q does not exist; create it first", e.Name)
}

// ExistsError: there is a topic of that name already.
type ExistsError struct{ Name string }

func (e *ExistsError) Error() string {
	return fmt.Sprintf("topic %q exists already; open it", e.Name)
}

// PartitionError: a partition number outside the topic.
type PartitionError struct {
	Topic     string
	Partition int
	Count     int
}

func (e *PartitionError) Error() string {
	return fmt.Sprintf("topic %q has no partition %d: it has partitions 0 to %d", e.Topic, e.Partition, e.Count-1)
}

// MismatchError: a topic was made with another partition count or router than asked for.
type MismatchError struct {
	Topic          string
	What           string // "partition count" or "router"
	Stored, Wanted string
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("topic %q was made with %s %s, not %s: it cannot be changed, since keys would move; ask for what is stored, or for nothing", e.Topic, e.What, e.Stored, e.Wanted)
}

// MetadataError: topic.meta is damaged, or contradicts what is beside it.
type MetadataError struct {
	File   string
	Reason string
	Err    error
}

func (e *MetadataError) Error() string {
	s := "topic metadata " + e.File + " " + e.Reason
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s + "; nothing was changed: restore it from a backup or a replica"
}

func (e *MetadataError) Unwrap() error { return e.Err }
