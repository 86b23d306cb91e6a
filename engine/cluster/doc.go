// Package cluster ties brokers together.
//
// A Node is one broker's replicas: it owns the broker's directory, drives the state
// machine of each replica (package replica), and exchanges messages with the other nodes
// through a Transport. A Cluster is several nodes in one process with a manual
// controller (PyStream's cluster): brokers start and stop, writes go through leaders, and
// failover, catch-up and recovery are calls. A networked broker has one Node and a
// Transport of sockets; a simulator has many, and one goroutine.
//
//	<root>/cluster.meta                                  who leads what, and who is active
//	<root>/broker-000001/high-watermarks                 a hint, written on close
//	<root>/broker-000001/topics/flights/partition-000000/  a log, see package commitlog
//
// # Locks and goroutines
//
// Each replica has an inbox. Whoever puts something into an empty one starts a goroutine
// that works until it is empty again; nothing else runs while nothing happens, but for a
// ticker where time matters. A replica's work, a full disk or a slow follower holds up no
// other replica.
//
// Writes do not go through the inbox: any number append to the leader's log at the same
// time and share its syncs. A change of role waits for the appends under way, and holds
// back those that come.
package cluster
