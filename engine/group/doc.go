// Package group is the coordinator of a consumer group: who is a member, who owns which
// partition, and whose word counts.
//
// It is a state machine without I/O, clock or goroutine. Step takes a request and the
// time, Tick the time alone, and both return an Output: replies to requests, now or
// earlier ones, and what must be stored before the replies go out. The embedded engine,
// a broker and a simulator drive the same code.
//
//	Empty ── join ──> Preparing ── everybody has joined, or time is up ──> Stable
//	                     ^                                                   │
//	                     └── join, leave, expiry, change of partitions ──────┘
//
// A rebalance ends with a new generation. Members learn of a rebalance from their
// heartbeats and join again; the reply to a join comes when the rebalance is complete,
// and a sync then fetches the member's partitions. Every request carries the member's id
// and generation, and one that is behind is refused ("fenced"): a member that was away
// cannot commit for partitions that are another's now.
//
// The duties of whoever drives a Group, in order:
//
//  1. Call Step or Tick from one goroutine at a time, with a time that never goes back.
//  2. If Output.Save is set, store Snapshot durably before anything else.
//  3. Store Output.Commits durably.
//  4. Deliver Output.Replies; if storing failed, an error in their place.
//  5. Call Tick at or after Next.
//
// Assignment is the coordinator's work (kafka-lite's way, and Kafka's since KIP-848),
// by one of three assignors that members agree on. With the cooperative one a partition
// that changes hands is first taken from its owner, in one generation, and given to the
// new one in the next, so members keep reading what stays theirs.
package group
