package node

import "logbook/engine/replica"

// EventKind is a kind of thing that happens in a node.
type EventKind string

const (
	Up          EventKind = "up"           // the node started
	Down        EventKind = "down"         // the node stopped
	Leads       EventKind = "leads"        // its replica begins an epoch as leader
	Stored      EventKind = "stored"       // records are durable in its log
	StoreFailed EventKind = "store failed" // or not
	Cut         EventKind = "cut"          // its log was cut to End
	Sent        EventKind = "sent"
	Received    EventKind = "received"
	Command     EventKind = "command" // a catch-up or recovery begins
	Outcome     EventKind = "outcome" // a write, at Offset, is acknowledged or not
)

// Event is something that happened in a node, for people to look at.
type Event struct {
	Kind         EventKind
	Broker       BrokerID
	Partition    Partition
	LogEndOffset int64 // of the replica's log, afterwards
	Offset       int64
	LeaderEpoch  int32
	Message      replica.Message
	Err          error
}
