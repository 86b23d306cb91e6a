// Package foreign reads logs that other programs have laid out on disk: the two systems
// that Logbook's frame formats 0 and 1 come from. Nothing is written, locked or repaired.
// A directory is a stream.Transport, so what copies between logs (package mirror) copies
// out of it.
//
// PyStream keeps one file a partition, and committed offsets in a folder of their own:
//
//	data/events/topic.meta                        {"version":1,"name":"events","partition_count":3}
//	data/events/partition-000000/log.bin          frames of format 0
//	offsets/analytics-worker/events/partition-000000.offset
//	                                              {"version":1,"offset":123}
//
// Its cluster keeps the same log files for each broker. All replicas of a partition must be
// beginnings of the longest one, which is read; where two differ, nothing is:
//
//	cluster-data/cluster.meta
//	cluster-data/broker-000001/topics/events/partition-000000/log.bin
//
// kafka-lite keeps segments named by their first offset, with frames of format 1:
//
//	data/events/0/00000000000000000000.log        or events/partition-0, or events-0
//	data/events/0/00000000000000000047.log
//
// A log that ends in part of a frame is damaged in PyStream, which never cuts anything off.
// kafka-lite cuts it off when it starts; here such a tail of the last segment is left where
// it is, not read, and reported by Tails.
package foreign
