// Package topic is names: of topics, of their partitions, and the rule by which a record
// finds its partition.
//
// Offsets are partition-local and order is kept within a partition only. The rule is fixed
// when a topic is made, and recorded: a key's partition survives restarts and never changes
// by accident.
package topic
