package controller

import (
	"errors"
	"fmt"
	"time"

	"logbook/engine/metadata"
	"logbook/engine/replica"
)

// MemberChange is a change of who belongs to a cluster, and of who votes in it.
type MemberChange struct {
	Broker  replica.BrokerID
	Kind    MemberChangeKind
	Address string // AddBroker: host:port, at which the others find it
}

// MemberChangeKind says what is to become of a broker.
type MemberChangeKind string

// What may become of a broker.
const (
	AddBroker    MemberChangeKind = "add broker"    // it is to be part of the cluster, once it starts
	GiveVote     MemberChangeKind = "give vote"     // it is to vote
	TakeVote     MemberChangeKind = "take vote"     // it is to follow the decisions without a vote
	RemoveBroker MemberChangeKind = "remove broker" // it is to be part of the cluster no more
)

// MemberError: the members cannot be changed so.
type MemberError struct {
	Broker replica.BrokerID
	Reason string
}

func (e *MemberError) Error() string {
	return fmt.Sprintf("controller: broker %d: %s", e.Broker, e.Reason)
}

// ErrNoMembers: this kind of controller has no votes to give or take.
var ErrNoMembers = errors.New("controller: who votes is changed with the quorum controller only")

// Add returns the decision that a broker may be part of the cluster: the others connect to it then,
// and let it join.
//
// Errors: *MemberError.
func Add(image *metadata.Image, id replica.BrokerID, address string) ([]metadata.Record, error) {
	r, known := image.Broker(id)
	if known && (r.Life > 0 || r.Address == "") {
		return nil, &MemberError{id, "it is one of the cluster's already"}
	}
	if removed, was := image.Removed(id); was {
		r = removed
	}
	if r.Address == address && known {
		return nil, nil
	}
	r.ID, r.Fenced, r.Removed, r.Address = id, true, false, address
	return []metadata.Record{{Broker: &r}}, nil
}

// Remove returns the decision that a broker is part of the cluster no more. It must have nothing
// that others would miss.
//
// Errors: *MemberError.
func Remove(image *metadata.Image, id replica.BrokerID) ([]metadata.Record, error) {
	r, known := image.Broker(id)
	if !known {
		return nil, &MemberError{id, "it is not one of the cluster's"}
	}
	if on := image.ReplicasOn(id); len(on) > 0 {
		return nil, &MemberError{id, fmt.Sprintf("it has replicas of %d partitions, one of %s; move them first (logbook cluster drain %d)", len(on), on[0], id)}
	}
	r.Fenced, r.Removed = true, true
	return []metadata.Record{{Broker: &r}}, nil
}

// ChangeMember implements Machine: nobody votes.
func (m *Manual) ChangeMember(now time.Time, id uint64, _ MemberChange) []Effect {
	m.begin(now)
	m.emit(Done{ID: id, Err: ErrNoMembers})
	return m.effects()
}

// ChangeMember implements Machine: nobody votes.
func (c *FirstAlive) ChangeMember(now time.Time, id uint64, _ MemberChange) []Effect {
	c.begin(now)
	c.emit(Done{ID: id, Err: ErrNoMembers})
	return c.effects()
}
