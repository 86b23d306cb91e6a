// Package topic is a named set of partitions, each a log of its own, and the rule by
// which a record finds its partition.
//
// A topic owns a directory:
//
//	events/
//	  topic.meta          JSON: version, name, partition count, router; written last, atomically
//	  partition-000000/   a commitlog
//	  partition-000001/
//
// Offsets are partition-local and order is kept within a partition only. The partition
// count and the router are fixed when the topic is made, and recorded: a key's partition
// survives restarts and never changes by accident.
//
// Metadata is validated whenever a topic is opened. Damage is reported and never
// repaired or overwritten: a wrong partition count would send keys elsewhere silently.
package topic
