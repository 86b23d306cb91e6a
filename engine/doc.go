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
//	coordinator  what drives a group: clock, disk, waiting
//	replica      replication of one partition, as a state machine: leader, follower, high watermark, truncation
//	controller   who leads a partition: manual, first-alive
//	cluster      brokers tied together: placement, leader writes, status, failover, recovery
//	spacetime    diagrams of what happened: a line for each process, messages as arrows
//	(this one)   the embedded front door: Open, and from there everything above
//	wire         the protocol: frames of JSON
//	client       finds leaders and coordinators, follows redirects, tries again
//	broker       the networked broker: sessions, links, groups, controllers
//	web          its HTTP side: page, API, documentation, metrics
//	sim          whole clusters under faults, over virtual time, from a seed
//	lab          what notebooks show and where they work; only lessons import it
//	cmd/logbook  the command
//
// record/recordtest, commitlog/logtest, topic/topictest, consumer/offsettest,
// group/grouptest, controller/controllertest and replica/replicatest are exported test suites
// for implementations of your own, in the style of testing/fstest. mutate plants bugs in the log and
// in replication, and shows that the tests and the simulator catch them; transcript tests by
// files that read as a story.
//
// All of it but record/compression, sim, transcript, web, lab and the command uses the standard library alone: a notebook cell that imports
// them compiles in a fraction of a second, and the core stays easy to read.
package engine
