package node

import (
	"context"
	"errors"
	"time"

	"logbook/engine/commitlog"
	"logbook/engine/replica"
)

// DeleteRecords removes the records below an offset from a partition that this node leads,
// as far as consumers may read; the followers' logs follow. Where the offset lies within a
// batch the rest of it goes too, but to readers the log starts at the offset. It returns the
// log start offset.
//
// Errors: those of Look, and of commitlog.Log.AdvanceLogStart.
func (n *Node) DeleteRecords(p Partition, below int64) (int64, error) {
	return n.trim(p, func(l *commitlog.Log, hw int64) error { return l.AdvanceLogStart(min(below, hw)) })
}

// Retain applies retention to a partition that this node leads, as far as consumers may
// read; the followers' logs follow.
func (n *Node) Retain(p Partition, r commitlog.Retention) error {
	_, err := n.trim(p, func(l *commitlog.Log, hw int64) error {
		if hw == 0 {
			return nil // nothing is safe yet; and to Retain, 0 is no limit
		}
		r.Below = hw
		_, err := l.Retain(r)
		return err
	})
	return err
}

// Roll closes the active segment of a replica, leader or not, where all in it is older than an age.
//
// Errors: *NoReplicaError and what keeps the log from being used.
func (n *Node) Roll(p Partition, age time.Duration) error {
	d, err := n.opened(p)
	if err == nil {
		_, err = d.log.Roll(age)
	}
	return err
}

// Compact compacts the closed segments of a replica, leader or not, that are wholly safe and
// hold nothing younger than an age. Each replica compacts for itself, as in Kafka.
//
// Errors: those of Roll, and of commitlog.Log.Compact.
func (n *Node) Compact(p Partition, tombstoneAge, age time.Duration) error {
	d, err := n.opened(p)
	if err == nil {
		_, err = d.log.CompactRipe(tombstoneAge, age, d.hw.Load())
	}
	return err
}

// SetSegmentBytes changes the size at which a replica's segments are closed.
func (n *Node) SetSegmentBytes(p Partition, size int64) {
	if d, err := n.opened(p); err == nil {
		d.log.SetSegmentBytes(size)
	}
}

func (n *Node) trim(p Partition, cut func(l *commitlog.Log, hw int64) error) (start int64, err error) {
	d, look, err := n.look(p, false)
	if err != nil {
		return 0, err
	}
	err = cut(d.log, look.HighWatermark)
	start, first := d.log.StartOffset(), d.log.FirstOffset()
	d.perform(d.step(func(r replica.Machine) []replica.Effect { return r.Trimmed(n.now(), start, first) }))
	return start, err
}

// CatchUp makes a follower's replica catch up with its leader; see replica.CatchUp. done is
// called, once, with the outcome.
//
// Errors: those of replica.CatchUp, *NoReplicaError, *MissingReplicaError, *CorruptReplicaError, ErrClosed.
func (n *Node) CatchUp(p Partition, done func(error)) { n.command(p, replica.Machine.CatchUp, done) }

// Recover makes a follower's replica what its leader's is, and in sync again; see
// replica.Recover. One whose directory is gone is copied anew.
func (n *Node) Recover(p Partition, done func(error)) {
	d, err := n.lookup(p)
	if err != nil {
		done(err)
		return
	}
	d.mu.Lock()
	_, missing := errors.AsType[*MissingReplicaError](d.broken)
	d.mu.Unlock()
	if a := d.assigned.Load(); missing && a != nil {
		if err := n.Create(p); err != nil {
			done(err)
			return
		}
		n.Assign(p, *a)
	}
	n.command(p, replica.Machine.Recover, done)
}

func (n *Node) command(p Partition, start func(replica.Machine, time.Time, uint64) []replica.Effect, done func(error)) {
	d, err := n.lookup(p)
	if err != nil {
		done(err)
		return
	}
	d.mu.Lock()
	switch {
	case d.machine == nil:
		err = d.broken
	case d.stopped != nil:
		err = d.stopped
	}
	if err != nil {
		d.mu.Unlock()
		done(err)
		return
	}
	id := d.wait(func(err error) { done(n.wrap(p, err)) })
	d.mu.Unlock()
	d.post(func() []replica.Effect {
		d.observe(Command, Event{})
		return d.step(func(r replica.Machine) []replica.Effect { return start(r, n.now(), id) })
	})
}

// CommandAndWait calls CatchUp or Recover and waits for the outcome.
func (n *Node) CommandAndWait(ctx context.Context, p Partition, command func(*Node, Partition, func(error))) error {
	result := make(chan error, 1)
	command(n, p, func(err error) { result <- err })
	n.pump()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
