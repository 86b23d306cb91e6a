// Package node is one broker's replicas: it owns the broker's directory, and drives the
// state machine of each replica (package replica), which leaves out the disk, the waiting
// and the messages.
//
//	<dir>/high-watermarks                            a hint, written now and then, and on close
//	<dir>/topics/flights/partition-000000/           a log, see package commitlog
//
// A log does not leave its driver: what others may do with it are the methods here.
//
// # Locks and goroutines
//
// Nothing here waits. Each replica has an inbox, and a queue of appends. Whoever puts
// something into an empty one has it worked on (Options.Go, a goroutine) until it is empty
// again; nothing runs while nothing happens. A replica's work, a full disk or a slow
// follower holds up no other replica.
//
// Appends to a partition keep the order in which they were asked for, and those that wait
// share a sync: what comes while others are written joins them, and counts for the next sync
// of the disk. A change of role waits for the appends under way, and holds back those that
// come.
//
// Time is a heap of deadlines: Tick looks only at the replicas whose time has come.
package node
