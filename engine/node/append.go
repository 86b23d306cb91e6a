package node

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"logbook/engine/commitlog"
	"logbook/engine/replica"
)

// pendingAppend is an append that was asked for.
type pendingAppend struct {
	acks  replica.Acks
	epoch int32 // in which it must be appended; 0: any
	batch *commitlog.Batch
	done  func(commitlog.Appended, error)

	pending   commitlog.Pending
	stored    commitlog.Appended
	refused   error // why it is not stored
	abandoned bool  // nobody waits any more
	id        uint64

	numbered  bool // it is of an idempotent producer
	producer  commitlog.ProducerBatch
	duplicate bool           // of an idempotent producer: it is stored already, or is about to be
	original  *pendingAppend // under way, in the second case
}

// appendAtOnce is how many bytes go to the log together.
const appendAtOnce = 4 << 20

// Append appends a batch through the leader, which this node must be. It returns at once,
// and calls done, once, when acks is satisfied, or cannot be. done must not wait.
//
// epoch, unless it is 0, is the leader epoch in which the batch must be appended: who knows
// what an epoch's leader knew must not write in a later one.
//
// Batches get their places in the order of the calls. cancel ends the wait: a batch that was
// not given to the log yet will not be, and for one that is stored, done says which replicas
// lack it.
//
// Errors: *NotLeaderError, *ReplicationError, *replica.NotEnoughReplicasError,
// replica.ErrLeadershipLost, *NoReplicaError, *MissingReplicaError, *CorruptReplicaError,
// ErrAbandoned (nothing was stored), ErrClosed, and those of commitlog.Log.Begin and Wait.
func (n *Node) Append(p Partition, acks replica.Acks, epoch int32, b *commitlog.Batch, done func(commitlog.Appended, error)) (cancel func()) {
	d, err := n.lookup(p)
	if err != nil {
		done(commitlog.Appended{}, err)
		return func() {}
	}
	a := &pendingAppend{acks: acks, epoch: epoch, batch: b, done: done}
	a.producer, a.numbered = b.Producer() // the batch is the log's once it is begun
	d.mu.Lock()
	if err := d.checkAppend(a); err != nil {
		d.mu.Unlock()
		done(commitlog.Appended{}, n.wrap(p, err))
		return func() {}
	}
	if d.joinable && d.changing.Load() == 0 && len(d.appends) == 0 && (!a.numbered || d.producers != nil) {
		d.begin(a)
	} else {
		d.appends = append(d.appends, a)
	}
	if !d.appending {
		d.appending = true
		n.run(d.appendAll)
	}
	d.mu.Unlock()
	return func() { d.abandon(a) }
}

// ErrAbandoned: whoever asked for a write gave up before anything was stored.
var ErrAbandoned = errors.New("node: the write was given up before it was stored")

// AppendAndWait is Append for who may wait. When ctx ends first, the error names the
// replicas that lack the write.
func (n *Node) AppendAndWait(ctx context.Context, p Partition, acks replica.Acks, b *commitlog.Batch) (commitlog.Appended, error) {
	type outcome struct {
		at  commitlog.Appended
		err error
	}
	result := make(chan outcome, 1)
	cancel := n.Append(p, acks, 0, b, func(at commitlog.Appended, err error) { result <- outcome{at, err} })
	n.pump()
	select {
	case o := <-result:
		return o.at, o.err
	case <-ctx.Done():
	}
	cancel()
	o := <-result
	if o.err != nil {
		o.err = fmt.Errorf("%w: %w", ctx.Err(), o.err)
	}
	return o.at, o.err
}

// appendAll appends until the queue is empty.
func (d *replicaDriver) appendAll() {
	for {
		d.mu.Lock()
		n, size := 0, 0
		for n < len(d.appends) && (n == 0 || size+d.appends[n].batch.Size() <= appendAtOnce) {
			size += d.appends[n].batch.Size()
			n++
		}
		if n == 0 || d.stopped != nil {
			d.appending = false
			d.mu.Unlock()
			return
		}
		together := d.appends[:n:n]
		d.appends = d.appends[n:]
		d.mu.Unlock()
		d.appendTogether(together)
	}
}

// appendTogether stores batches with as few syncs as the log can, and registers them. While
// it is at it, batches that come join: they are begun at once, and so are part of whatever
// sync comes next. It ends when there are none left, or the role is about to change.
func (d *replicaDriver) appendTogether(together []*pendingAppend) {
	d.role.RLock()
	d.mu.Lock()
	if d.producers == nil && d.checkLeads() == nil && slices.ContainsFunc(together, func(a *pendingAppend) bool { return a.numbered }) {
		d.mu.Unlock()
		if err := d.loadProducers(); err != nil {
			d.node.logger.Error("cannot read what producers have written", "broker", d.node.opt.ID, "partition", d.partition, "error", err)
		}
		d.mu.Lock()
	}
	for _, a := range together {
		d.begin(a)
	}
	d.joinable = true
	for len(d.begun) > 0 {
		first := d.begun[0]
		d.mu.Unlock()
		if first.refused == nil && !first.duplicate {
			_, _ = first.pending.Wait() // register takes the outcome
		}
		d.mu.Lock()
		n := 1 // those of the same sync are done too
		for n < len(d.begun) && (d.begun[n].refused != nil || d.begun[n].duplicate || d.begun[n].pending.Ready()) {
			n++
		}
		done := d.begun[:n:n]
		d.begun = d.begun[n:]
		d.mu.Unlock()
		d.register(done)
		d.mu.Lock()
	}
	d.joinable = false
	d.mu.Unlock()
	d.role.RUnlock()
}

// begin gives an append its place in the log, if it can be taken. d.mu is held, and d.role
// shared.
func (d *replicaDriver) begin(a *pendingAppend) {
	if a.refused = d.checkAppend(a); a.refused == nil {
		a.refused = d.checkProducer(a)
	}
	if a.refused == nil && !a.duplicate {
		if a.pending, a.refused = d.log.Begin(a.batch); a.refused != nil {
			d.producers = nil // it is not as they remember
		}
	}
	d.begun = append(d.begun, a)
}

// register tells the state machine of appends that are stored, and answers those that are
// not. d.role is shared.
func (d *replicaDriver) register(appends []*pendingAppend) {
	for _, a := range appends {
		switch {
		case a.refused != nil:
		case a.original != nil: // it comes before this one, and is done
			a.stored, a.refused = a.original.stored, a.original.refused
		case !a.duplicate:
			if a.stored, a.refused = a.pending.Wait(); a.refused != nil {
				d.node.troubled()
			}
		}
	}
	var out []replica.Effect
	d.mu.Lock()
	for _, a := range appends {
		d.remembered(a)
		switch {
		case a.refused != nil:
			continue
		case d.stopped != nil:
			a.refused = d.stopped
			continue
		}
		a.id = d.wait(func(err error) {
			err = d.node.wrap(d.partition, err)
			d.observe(Outcome, Event{Offset: a.stored.BaseOffset, Err: err})
			a.done(a.stored, err)
		})
		d.observe(Stored, Event{Offset: a.stored.BaseOffset})
		out = append(out, d.machine.Appended(d.node.now(), replica.Write{ID: a.id, Acks: a.acks, BaseOffset: a.stored.BaseOffset, NextOffset: a.stored.LastOffset + 1})...)
		if a.abandoned {
			out = append(out, d.machine.Abandon(d.node.now(), a.id)...)
		}
	}
	wake := d.advance()
	d.mu.Unlock()
	wakeAll(wake)
	d.perform(out)
	for _, a := range appends {
		if a.refused != nil {
			a.done(commitlog.Appended{}, d.node.wrap(d.partition, a.refused))
		}
	}
}

// remembered notes where a producer's batch was stored. d.mu is held.
func (d *replicaDriver) remembered(a *pendingAppend) {
	b, numbered := a.producer, a.numbered
	switch {
	case !numbered || a.duplicate || d.producers == nil:
	case a.refused != nil:
		d.producers = nil // they are read again
	default:
		if st := d.producers.byID[b.ID]; st != nil {
			for _, old := range st.batches {
				if old.append == a {
					old.at, old.append = a.stored, nil
				}
			}
		}
	}
}

// abandon gives up waiting for an append.
func (d *replicaDriver) abandon(a *pendingAppend) {
	d.mu.Lock()
	a.abandoned = true
	id := a.id
	d.mu.Unlock()
	if id != 0 {
		d.perform(d.step(func(r replica.Machine) []replica.Effect { return r.Abandon(d.node.now(), id) }))
	}
}

// checkWrite says why no write can be taken. d.mu is held.
func (d *replicaDriver) checkWrite(acks replica.Acks) error {
	switch {
	case d.stopped != nil:
		return d.stopped
	case d.machine == nil:
		return d.broken
	}
	return d.machine.CheckWrite(acks)
}

// checkAppend says why an append cannot be taken. d.mu is held.
func (d *replicaDriver) checkAppend(a *pendingAppend) error {
	if err := d.checkWrite(a.acks); err != nil {
		return err
	}
	switch {
	case a.abandoned:
		return ErrAbandoned
	case a.epoch != 0 && a.epoch != d.machine.LeaderEpoch():
		return replica.ErrLeadershipLost
	}
	return nil
}

// checkLeads says why this replica does not lead, if it does not. d.mu is held.
func (d *replicaDriver) checkLeads() error { return d.checkWrite(replica.OnLeader) }

// wrap says of which partition an error of the state machine is.
func (n *Node) wrap(p Partition, err error) error {
	if re, ok := errors.AsType[*replica.ReplicationError](err); ok {
		return &ReplicationError{Partition: p, Leader: n.opt.ID, Offset: re.Offset, Failed: re.Failed, Err: err}
	}
	if nl, ok := errors.AsType[*replica.NotLeaderError](err); ok {
		return &NotLeaderError{Partition: p, Broker: n.opt.ID, Leader: nl.Leader, LeaderEpoch: nl.LeaderEpoch}
	}
	if d, ok := errors.AsType[*replica.DivergenceError](err); ok {
		return &ReplicaDivergenceError{Partition: p, Leader: d.Leader, Follower: d.Follower, Offset: d.Offset, Err: err}
	}
	return err
}
