package topic

import "fmt"

// NameError: a topic (or consumer, or group) cannot have this name.
type NameError struct {
	What   string // "topic", "consumer", "group", "member"
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

// CountError: a topic cannot have so many partitions.
type CountError struct {
	Topic string
	Count int
}

func (e *CountError) Error() string {
	return fmt.Sprintf("topic %q: a partition count of %d; it must be from 1 to %d", e.Topic, e.Count, MaxPartitions)
}

// PartitionerError: there is no partitioner of that name.
type PartitionerError struct{ Name string }

func (e *PartitionerError) Error() string {
	return fmt.Sprintf("no partitioner %q: there are %q, %q and %q", e.Name, Murmur2.Name(), SHA256.Name(), FNV1a.Name())
}

// FewerError: a topic cannot have fewer partitions than it has: their records would be lost.
type FewerError struct {
	Name          string
	Count, Wanted int
}

func (e *FewerError) Error() string {
	return fmt.Sprintf("topic %q has %d partitions, and can get more, not %d", e.Name, e.Count, e.Wanted)
}
