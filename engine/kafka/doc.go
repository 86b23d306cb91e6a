// Package kafka is the Kafka protocol as a front of a broker: clients of Kafka, unmodified,
// produce, consume, share groups, and manage topics. It translates requests to those of
// package service, and knows nothing of logs.
//
// Messages are encoded by kmsg, which is generated from Kafka's own definitions; error
// numbers are kerr's. Batches of records are not taken apart between socket and log: a
// produced batch is checked and stored as it came, and a fetch hands out stored bytes.
//
// A connection's requests are answered in their order. Produce requests may be under way
// together, so that their syncs are shared; every other request waits for the replies to
// those before it, as in Kafka.
//
// Transactions are not there: their requests are refused. See Keys for what is served.
package kafka
