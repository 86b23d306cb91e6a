// Package engine is Logbook: a Kafka-style event log that can be read like a book and
// run like a broker.
//
// The packages below it, from the bytes up. A package imports only packages above it in
// this list, and a test holds that:
//
//	record       records and batches, and their three frame formats; pure, no I/O
//	record/compression  the codecs that are not in the standard library
//	vfs          the file system a log writes through: the OS's, and one in memory that crashes and fails
//	commitlog    one partition's segmented log: append, read, recover, retain, compact, truncate
//	topic        topics, partitions, routing, topic metadata
//	consumer     committed offsets, and the cycle of fetch, process, commit
//	producer     batches, linger and a bounded buffer
//	group        the coordinator of a consumer group, as a state machine
//	replica      replication of one partition, as a state machine: leader, follower, high watermark, truncation
//	controller   who leads a partition; here, the manual one
//	cluster      brokers tied together: placement, leader writes, status, failover, recovery
//	spacetime    diagrams of what happened: a line for each process, messages as arrows
//	(this one)   the embedded front door: Open, and from there everything above
//	broker       the process: settings, logging, HTTP
//	lab          what notebooks show and where they work; only lessons import it
//	cmd/logbook  the command
//
// record/recordtest, commitlog/logtest, topic/topictest, consumer/offsettest,
// group/grouptest and controller/controllertest are exported test suites for implementations
// of your own, in the style of testing/fstest. commitlog/mutate plants bugs in the log and
// shows that its tests catch them.
//
// All of it but record/compression, broker, lab and the command uses the standard library alone: a notebook cell that imports
// them compiles in a fraction of a second, and the core stays easy to read.
package engine
