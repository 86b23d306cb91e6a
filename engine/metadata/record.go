package metadata

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"logbook/engine/record"
	"logbook/engine/replica"
	"logbook/engine/topic"
)

// Record is a decision. One of its fields is set.
type Record struct {
	Broker    *BrokerRecord    `json:"broker,omitempty"`
	Topic     *TopicRecord     `json:"topic,omitempty"`
	Partition *PartitionRecord `json:"partition,omitempty"`
	User      *UserRecord      `json:"user,omitempty"`
}

// BrokerRecord says that a broker belongs to the cluster.
type BrokerRecord struct {
	ID replica.BrokerID `json:"id"`
	// Life tells a broker that has started anew from the one before; it only grows. 0 where the
	// controller does not register lives.
	Life uint64 `json:"life,omitempty"`
	// Fenced: it leads nothing, and counts for nothing, until it has shown that it is alive and
	// knows what is decided.
	Fenced bool `json:"fenced,omitempty"`
	// Role is what the process does, as it said when its life began.
	Role Role `json:"role,omitempty"`
	// Rack is where it is, as it said when its life began; empty: it did not say.
	Rack string `json:"rack,omitempty"`
	// Address is the host:port at which the others find it, where it was added while they ran.
	Address string `json:"address,omitempty"`
	// Removed: it belonged to the cluster once. What is started in its name with an empty disk
	// begins as a new one.
	Removed bool `json:"removed,omitempty"`
}

// Role is what a process of a cluster does, as with Kafka's process.roles. The zero value is both.
type Role string

// The roles of a process that does one thing only.
const (
	StoresOnly  Role = "broker"     // it stores records, and follows the decisions without a vote
	DecidesOnly Role = "controller" // it votes, and stores no records
)

// ParseRole reads a list of roles, with commas: broker, controller, or both.
func ParseRole(s string) (Role, bool) {
	var stores, decides bool
	for name := range strings.SplitSeq(s, ",") {
		switch Role(strings.TrimSpace(name)) {
		case StoresOnly:
			stores = true
		case DecidesOnly:
			decides = true
		default:
			return "", false
		}
	}
	switch {
	case !stores:
		return DecidesOnly, true
	case !decides:
		return StoresOnly, true
	}
	return "", true
}

// Decides reports whether the process is to vote.
func (r Role) Decides() bool { return r != StoresOnly }

// Stores reports whether it is to have replicas.
func (r Role) Stores() bool { return r != DecidesOnly }

// String is the list that ParseRole reads.
func (r Role) String() string {
	if r == "" {
		return string(StoresOnly + "," + DecidesOnly)
	}
	return string(r)
}

// TopicRecord says that there is a topic, or, where Deleted, that there was. The assignments
// of partitions that are new come with it.
type TopicRecord struct {
	Name        string         `json:"name"`
	ID          topic.ID       `json:"id"`
	Partitions  int            `json:"partitions"`
	Replication int            `json:"replication"`
	Partitioner string         `json:"partitioner"`
	Settings    topic.Settings `json:"settings,omitempty"`
	// Version grows with each change of the topic, its deletion and its making anew too.
	Version int64 `json:"version,omitempty"`
	Deleted bool  `json:"deleted,omitempty"`
}

// PartitionRecord is a partition's present assignment.
type PartitionRecord struct {
	Topic      string             `json:"topic"`
	TopicID    topic.ID           `json:"topic_id,omitzero"` // tells it from one of that name that was deleted
	Partition  int                `json:"partition"`
	Assignment replica.Assignment `json:"assignment"`
}

// key is what a record is about: a later one with the same key takes its place.
func (r Record) key() string {
	switch {
	case r.Broker != nil:
		return "broker/" + strconv.Itoa(int(r.Broker.ID))
	case r.Topic != nil:
		return "topic/" + r.Topic.Name
	case r.User != nil:
		return "user/" + r.User.Name
	case r.Partition != nil:
		return "partition/" + r.Partition.Topic + "/" + strconv.Itoa(r.Partition.Partition)
	}
	return ""
}

// encode makes a log's record of a decision.
func (r Record) encode() (record.Record, error) {
	if r.key() == "" {
		return record.Record{}, fmt.Errorf("metadata: an empty decision")
	}
	value, err := json.Marshal(r)
	return record.Record{Key: []byte(r.key()), Value: value}, err
}

// decode is the inverse of encode.
func decode(in record.Record) (Record, error) {
	var r Record
	if err := json.Unmarshal(in.Value, &r); err != nil {
		return r, err
	}
	if r.key() == "" || r.key() != string(in.Key) {
		return r, fmt.Errorf("the decision under the key %q is about %q", in.Key, r.key())
	}
	return r, nil
}
