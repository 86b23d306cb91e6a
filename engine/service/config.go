package service

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	"logbook/engine/commitlog"
	"logbook/engine/controller"
	"logbook/engine/group"
	"logbook/engine/metadata"
	"logbook/engine/node"
	"logbook/engine/replica"
	"logbook/engine/vfs"
)

// Config configures a service. ID and Dir must be set; every other zero value is usable.
type Config struct {
	ID  replica.BrokerID
	Dir string // the broker's data
	// Brokers are the ids of all brokers of the cluster, this one among them; nil: this one alone.
	Brokers []replica.BrokerID
	// Controller is "quorum" (a majority of the brokers agrees on each decision; the program must
	// import package quorum), "manual" (failover is a command, and the broker with the lowest id
	// keeps the decisions) or "first-alive" (each broker reckons). Empty is manual for one broker,
	// else quorum.
	Controller string
	// Role is what this broker does, where the controller is quorum: store records, decide, or both.
	Role metadata.Role
	// Rack says where it is, for clients and replicas that look for what is near.
	Rack string
	// Acks is what a produce that does not say waits for.
	Acks replica.Acks
	// MinInSync is how many replicas must be in sync for a write that is acknowledged by more
	// than the leader; fewer where a topic has fewer. 0 is 2 for three brokers and more, else 1.
	MinInSync int
	// GroupPartitions is how many partitions the groups' topic is made with; 0 is 8.
	GroupPartitions int
	// Retention is applied to each topic's partitions, now and then.
	Retention commitlog.Retention
	// Consumers configures groups whose members speak the protocol of KIP-848.
	Consumers group.ConsumerOptions
	// MaintainEvery is how often retention and compaction are looked at; 0 is 30 s.
	MaintainEvery time.Duration

	HealthEvery time.Duration // between checks of another broker; 0 is 500 ms
	FailAfter   int           // failed checks in a row that make a broker dead; 0 is 3
	LagTimeout  time.Duration // an in-sync follower that lags so long counts no more; 0 is 10 s
	// UnreachableTimeout: one that cannot be reached counts no more after this; 0 is 500 ms.
	UnreachableTimeout time.Duration
	// CatchUpRate is how many bytes a second this broker's replicas copy that are not in sync, all
	// together; 0: as many as they can.
	CatchUpRate    int64
	WriteTimeout   time.Duration // longest that a write waits for followers; 0 is 10 s
	RequestTimeout time.Duration // for another broker to answer; 0 is 30 s
	ProbeTimeout   time.Duration // for a replica to report; 0 is 3 s
	ScrubEvery     time.Duration // between reads of whole logs, to find what rots; 0 is 24 h

	Log    commitlog.Options // of each partition; FS, Now and Logger in it are the service's too
	Random io.Reader         // ids are drawn from it; nil: crypto/rand
	// SnapshotAfter is how many decisions the quorum controller's journal holds before it begins
	// anew; 0 is 1000.
	SnapshotAfter int

	// Send hands a message to another broker's Deliver, without waiting for it; it may be
	// lost, repeated or late. An error says that it surely will not arrive. nil: there is
	// no other broker.
	Send func(to replica.BrokerID, m PeerMessage) error
	// Meet, if set, is told where a broker is found that was added while this one ran, or before it
	// started again; more than once, perhaps. It must not use the service.
	Meet func(id replica.BrokerID, address string)
	// Go runs work that may take time; nil starts a goroutine.
	Go func(func())
	// Wake, if set, is told that Next is earlier than it was. It must not use the service.
	Wake func()
	// Observe, if set, is told what happens to replicas. It must not use the service.
	Observe func(node.Event)

	Design Design

	kind controller.Kind // of Controller
}

// Design is what can be put in the place of the engine's own state machines, to try a
// design. The zero value is the engine's.
type Design struct {
	// Machine makes a replica's state machine; nil is replica.New.
	Machine func(cfg replica.Config, log replica.Log, highWatermark int64) replica.Machine
	// NewGroup and RestoreGroup make a group's; nil are group.New and group.Restore.
	NewGroup     func(name string, counts map[string]int) group.Machine
	RestoreGroup func(snapshot []byte, counts map[string]int, now time.Time) (group.Machine, error)
	// Choose picks leaders for the manual controller; nil is controller.Longest.
	Choose controller.Choice
}

func (c Config) withDefaults() (Config, error) {
	c.HealthEvery = cmp.Or(c.HealthEvery, 500*time.Millisecond)
	c.LagTimeout = cmp.Or(c.LagTimeout, 10*time.Second)
	c.UnreachableTimeout = cmp.Or(c.UnreachableTimeout, 500*time.Millisecond)
	c.WriteTimeout = cmp.Or(c.WriteTimeout, 10*time.Second)
	c.ScrubEvery = cmp.Or(c.ScrubEvery, 24*time.Hour)
	c.MaintainEvery = cmp.Or(c.MaintainEvery, 30*time.Second)
	c.ProbeTimeout = cmp.Or(c.ProbeTimeout, 3*time.Second)
	if len(c.Brokers) == 0 {
		c.Brokers = []replica.BrokerID{c.ID}
	}
	c.Brokers = slices.Sorted(slices.Values(c.Brokers))
	if c.MinInSync == 0 {
		c.MinInSync = 1
		if len(c.Brokers) >= 3 {
			c.MinInSync = 2
		}
	}
	if c.GroupPartitions == 0 {
		c.GroupPartitions = 8
	}
	var err error
	if c.kind, err = controller.KindByName(c.Controller, len(c.Brokers)); err != nil {
		return c, fmt.Errorf("service: %w", err)
	}
	c.Controller = c.kind.Name
	if c.Role != "" && !c.kind.Roles {
		return c, fmt.Errorf("service: with the %s controller every broker stores and decides: it cannot have the role %s alone", c.kind.Name, c.Role)
	}
	if c.Log.FS == nil {
		c.Log.FS = vfs.OS
	}
	if c.Log.Now == nil {
		c.Log.Now = time.Now
	}
	if c.Log.Logger == nil {
		c.Log.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Random == nil {
		c.Random = rand.Reader
	}
	if c.Send == nil {
		c.Send = func(to replica.BrokerID, _ PeerMessage) error { return fmt.Errorf("there is no way to broker %d", to) }
	}
	d := &c.Design
	if d.NewGroup == nil {
		d.NewGroup = func(name string, counts map[string]int) group.Machine { return group.New(name, counts) }
	}
	if d.RestoreGroup == nil {
		d.RestoreGroup = func(snapshot []byte, counts map[string]int, now time.Time) (group.Machine, error) {
			return group.Restore(snapshot, counts, now)
		}
	}
	switch {
	case c.ID <= replica.None:
		return c, fmt.Errorf("service: the broker's id is %d; ids are positive", c.ID)
	case c.Dir == "":
		return c, fmt.Errorf("service: no data directory is given")
	case !slices.Contains(c.Brokers, c.ID):
		return c, fmt.Errorf("service: broker %d is not among the brokers %v", c.ID, c.Brokers)
	}
	return c, nil
}
