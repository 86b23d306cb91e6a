// Package engine is Logbook: a Kafka-style event log that can be read like a book and
// run like a broker.
//
// The packages below it, from the bytes up. A package imports only packages above it in
// this list, and a test holds that:
//
//	record       records and batches, and their three frame formats; pure, no I/O
//	record/compression  the codecs that are not in the standard library
//	topic        names: of topics, of partitions, and the rule by which a key finds its own
//	failure      what can go wrong with a request: one set of codes and fields
//	vfs          the file system a log writes through: the OS's, and one in memory that crashes and fails
//	commitlog    one partition's segmented log: append, read, recover, retain, compact, truncate
//	consumer     committed offsets, and a store for them
//	group        the coordinator of a consumer group, as a state machine
//	replica      replication of one partition, as a state machine: leader, follower, high watermark, truncation
//	metadata     what a cluster has decided: an immutable image, the records that change it, a log of them
//	controller   who leads a partition, as a state machine: manual, first-alive
//	controller/quorum  a controller that several brokers are part of: a majority agrees, by Raft
//	node         one broker's replicas: what drives their state machines
//	service      the broker without sockets and clock: every request, group coordination, peers' messages
//	spacetime    diagrams of what happened: a line for each process, messages as arrows
//	cluster      brokers tied together in one process, with the controller beside them
//	wire         the JSON protocol: frames and messages
//	peer         what brokers say to each other, in binary
//	admission    what strangers may take of a broker: memory and connections
//	kafka        the Kafka protocol, a front for unmodified clients
//	stream       producers, consumers, members of groups, over a transport
//	(this one)   the embedded front door: Open, and from there everything above
//	client       brokers as a transport: finds leaders and coordinators, follows redirects, tries again
//	kafkaclient  a Kafka cluster as a transport
//	foreign      directories that other programs laid out, read as they are
//	server       the networked broker: sessions, links, limits, TLS, an orderly end
//	opener       opens a log wherever it is: a directory, Logbook's brokers, a Kafka cluster
//	mirror       copies topics and committed offsets from one log to another
//	web          its HTTP side: page, API, documentation, metrics
//	sim          whole clusters under faults, over virtual time, from a seed
//	lab          what notebooks show and where they work; only lessons import it
//	lab/measure  clocks, loads, charts and flame graphs, for the lesson on speed
//	lab/stage    whole brokers in one goroutine over virtual time, for lessons
//	cmd/logbook  the command
//
// Beside them are test suites for implementations of your own, in the style of
// testing/fstest: record/recordtest, commitlog/logtest, topic/topictest,
// consumer/offsettest, group/grouptest, controller/controllertest,
// replica/replicatest and streamtest. server/servertest runs several brokers whose network can be cut, and
// kafkatest is that for tests of programs that use Kafka. chaos kills and pauses brokers that
// are processes; mutate plants bugs and shows that the tests and the simulator catch them; transcript tests
// by files that read as a story.
//
// All of it but record/compression, controller/quorum, kafka, kafkaclient, opener, sim, transcript, web, lab, chaos and the command
// uses the standard library alone: a notebook cell that imports them compiles in a fraction of a
// second, and the core stays easy to read.
package engine
