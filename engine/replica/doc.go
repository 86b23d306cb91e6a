// Package replica is the replication of one partition on one broker: who leads, who
// follows, what is acknowledged, and what a replica that fell behind or went astray must
// do before it counts again.
//
// It is a state machine without I/O, clock, goroutine or lock. Messages, results of the
// disk, the controller's decisions and the time go in; effects come out. A cluster in one
// process, a broker on the network and a simulator drive the same code.
//
//	            Assign (the controller)
//	               │
//	Appended ──────▼──────┐                ┌───────────────┐
//	 (a write)  ┌─leader──┴─┐  Fetch       │   follower    │── Copy, Truncate ──> log
//	Done <──────│ progress  │<─────────────│ fetching,     │<─ Logged ───────────
//	            │ of each   │─────────────>│ comparing, or │
//	            │ follower  │ Frames,      │ paused        │── Finished (a command)
//	            └───────────┘ Diverging    └───────────────┘
//
// # What a leader knows
//
// A follower fetches from its log end, and says which leader epoch its last record is of.
// That tells the leader three things: that the follower holds everything below, durably;
// whether the two logs part somewhere before (KIP-101, KIP-279: the leader compares the
// epoch's end with its own, and answers where they do); and what to send next. The high
// watermark is the smallest log end of the in-sync replicas: below it no record can be
// lost while one of them lives. A write is done when what its Acks ask for is true.
//
// # What a follower may do
//
// It stores the leader's frames byte for byte, at the leader's offsets, and nothing else.
// There are two ways to deal with one whose log parts from its leader's:
//
//   - Explicit (PyStream's rules): it stops, and says so. CatchUp compares the whole
//     common part by content and copies what is missing, or reports where the two differ.
//     Recover also cuts what the leader does not have, copies, compares once more what it
//     copied, and only then lets the leader propose the replica for the ISR.
//   - otherwise (Kafka's rules) it cuts to where the epochs agree and goes on, and the
//     leader proposes it as in sync when it has caught up, and without it when it lags.
//
// # Duties of the driver
//
//  1. Call one method at a time, with a time that never goes back.
//  2. Carry the effects out in order, those of one call before the next call. Copy,
//     Truncate, Reset and StartEpoch are done when they are durable, and are answered by
//     Logged before the next effect; Compare is answered by Compared.
//  3. Writes run beside this: ask CheckWrite, append to the log, then call Appended.
//     Between the two, Assign must not be called.
//  4. Deliver messages, at best once and in order; losing, repeating and reordering them
//     is survived. Tell Unreachable when contact with a broker is lost.
//  5. Call Tick at or after Next.
package replica
