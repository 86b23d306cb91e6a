// Package quorum is the controller that agrees: a majority of the brokers has each decision on
// its disk before it counts, by the Raft algorithm, as with Kafka's KRaft. Importing the package
// registers it with package controller under the name "quorum".
//
// Each broker runs a Controller: a state machine like the others of package controller, without
// I/O, clock or goroutine, around a member of the quorum (go.etcd.io/raft/v3). It has three parts:
//
//	member      votes, and copies the log of decisions; what it wrote is in the journal before it says so
//	broker      follows the decisions, and shows the active controller that it lives
//	office      only on the member that the others elected: the active controller, which decides
//
// # What is decided
//
// A decision is an entry of the log: records of package metadata, which make the next image of
// the one before. The active controller reckons with the image that its own decisions will have
// led to when they count, so that it need not wait for each. What it decides, and why, are the
// functions of controller/decisions.go.
//
// # Lives, fencing and leases
//
// A broker that starts begins a life, with a number above all of its earlier ones, and shows it
// with heartbeats. The active controller registers the life, fenced; the broker counts when it has
// seen itself registered, and so knows all that was decided before. One that is not heard of for a
// session is fenced: others lead what it led.
//
// A heartbeat that the active controller acknowledges is a lease: for three quarters of a session
// from when it was sent, the broker may serve what it leads. The acknowledgement goes out only
// when a majority has confirmed, after the heartbeat came, that the controller is still the active
// one. A new one gives every broker its time before it fences it. So a leader that lost its
// controller stops serving before another can lead, as long as clocks run alike to a quarter.
//
// # Roles and votes
//
// A broker stores records and votes, unless its role is to do one of the two. Who only stores is a
// learner: it copies the log of decisions without a vote. Votes are given and taken by entries of
// the log, one at a time (members.go); a vote is not taken where those left that are heard of would
// be no majority. A broker without replicas can be removed: it votes on until it is let go, since
// there may be no majority without it, and only an empty disk brings it back. A broker that is
// added is a decision first: it has the address at which the others find it, and lets its member in.
//
// # Names of members
//
// A member's name is drawn when a data directory is first used, and kept in it. A broker whose disk
// was lost is so a new member, and cannot vote a second time where it voted before. When brokers
// start for the first time and all of them are new, they form a cluster, with an id that keeps
// others out; a new one that meets a cluster takes the place of the member that its broker had.
package quorum
