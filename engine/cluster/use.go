package cluster

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"logbook/engine/commitlog"
	"logbook/engine/controller"
	"logbook/engine/record"
	"logbook/engine/replica"
)

// What a node's users ask of it: writes, reads, status, commands.

// A Store appends to a leader's log: commitlog.Log.Append, or AppendBatch, with what there
// is to append.
type Store func(*commitlog.Log) (commitlog.Appended, error)

// Records stores records as one append.
func Records(rs ...record.Record) Store {
	return func(l *commitlog.Log) (commitlog.Appended, error) { return l.Append(rs...) }
}

// Batch stores frames that somebody else encoded.
func Batch(frames []byte) Store {
	return func(l *commitlog.Log) (commitlog.Appended, error) { return l.AppendBatch(frames) }
}

// Append appends through the leader, which this node must be, and returns when acks is
// satisfied. When ctx ends first, the write stays in the leader's log, and the error
// names the replicas that lack it.
//
// Errors: *NotLeaderError, *ReplicationError, *replica.NotEnoughReplicasError,
// replica.ErrLeadershipLost, *NoReplicaError, *MissingReplicaError, *CorruptReplicaError,
// ErrClosed, and those of commitlog.Log.Append.
func (n *Node) Append(ctx context.Context, p Partition, acks replica.Acks, store Store) (commitlog.Appended, error) {
	result := make(chan error, 1)
	at, cancel, err := n.AppendAsync(p, acks, store, func(err error) { result <- err })
	if err != nil {
		return at, err
	}
	n.pump()
	select {
	case err = <-result:
		return at, err
	case <-ctx.Done():
	}
	cancel()
	if err = <-result; err != nil {
		err = fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	return at, err
}

// AppendAsync is Append without the wait for others: it returns when the leader's log
// holds the write, and calls done, once, with the outcome, perhaps before it returns.
// After an error done is not called. cancel ends the wait: done is called then, if it was
// not.
func (n *Node) AppendAsync(p Partition, acks replica.Acks, store Store, done func(error)) (at commitlog.Appended, cancel func(), err error) {
	h, err := n.lookup(p)
	if err != nil {
		return at, nil, err
	}
	at, id, err := h.append(acks, store, func(err error) { done(n.wrap(p, err)) })
	return at, func() { h.abandon(id) }, n.wrap(p, err)
}

// append appends to the leader's log and registers the write.
func (h *host) append(acks replica.Acks, store Store, done func(error)) (commitlog.Appended, uint64, error) {
	h.role.RLock()
	h.mu.Lock()
	err := h.checkWrite(acks)
	h.mu.Unlock()
	if err != nil {
		h.role.RUnlock()
		return commitlog.Appended{}, 0, err
	}
	at, err := store(h.log)
	if err != nil {
		h.role.RUnlock()
		return at, 0, err
	}
	h.mu.Lock()
	if h.stopped {
		h.mu.Unlock()
		h.role.RUnlock()
		return at, 0, ErrClosed
	}
	id := h.wait(func(err error) {
		h.observe(Outcome, Event{Offset: at.BaseOffset, Err: err})
		done(err)
	})
	h.observe(Stored, Event{Offset: at.BaseOffset})
	out := h.machine.Appended(h.node.now(), replica.Write{ID: id, Acks: acks, Base: at.BaseOffset, Next: at.LastOffset + 1})
	h.advance()
	h.mu.Unlock()
	h.role.RUnlock()
	h.perform(out)
	return at, id, nil
}

// checkWrite says why no write can be taken. h.mu is held.
func (h *host) checkWrite(acks replica.Acks) error {
	switch {
	case h.stopped:
		return ErrClosed
	case h.machine == nil:
		return h.broken
	}
	return h.machine.CheckWrite(acks)
}

func (h *host) abandon(id uint64) {
	h.perform(h.step(func(r replica.Machine) []replica.Effect { return r.Abandon(h.node.now(), id) }))
}

// wrap says of which partition an error of the state machine is.
func (n *Node) wrap(p Partition, err error) error {
	if re, ok := errors.AsType[*replica.ReplicationError](err); ok {
		return &ReplicationError{Partition: p, Leader: n.opt.ID, Offset: re.Offset, Failed: re.Failed, Err: err}
	}
	if nl, ok := errors.AsType[*replica.NotLeaderError](err); ok {
		return &NotLeaderError{Partition: p, Broker: n.opt.ID, Leader: nl.Leader, Epoch: nl.Epoch}
	}
	if d, ok := errors.AsType[*replica.DivergenceError](err); ok {
		return &ReplicaDivergenceError{Partition: p, Leader: d.Leader, Follower: d.Follower, Offset: d.Offset, Err: err}
	}
	return err
}

// Trim cuts the front of a partition's log that this node leads, by retention or any other
// rule that cut follows; the followers' logs follow.
func (n *Node) Trim(p Partition, cut func(*commitlog.Log) error) error {
	h, err := n.leading(p)
	if err != nil {
		return err
	}
	err = cut(h.log)
	h.perform(h.step(func(r replica.Machine) []replica.Effect { return r.Trimmed(n.now(), h.log.StartOffset()) }))
	return err
}

// Log returns a replica's log, which the node owns, for looking at: consumers read
// through Read, which stops at the high watermark.
func (n *Node) Log(p Partition) (*commitlog.Log, error) {
	h, err := n.lookup(p)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.log == nil {
		return nil, h.broken
	}
	return h.log, nil
}

// Status returns what a replica is and knows.
func (n *Node) Status(p Partition) (replica.Status, error) {
	h, err := n.lookup(p)
	if err != nil {
		return replica.Status{}, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.machine == nil {
		return replica.Status{}, h.broken
	}
	s := h.machine.Status()
	s.Problem = n.wrap(p, s.Problem)
	return s, nil
}

// Report describes a replica for the choice of a leader.
func (n *Node) Report(p Partition) controller.Report {
	r := controller.Report{Broker: n.opt.ID}
	l, err := n.Log(p)
	if err == nil {
		err = l.Usable()
	}
	if r.Err = err; err != nil {
		return r
	}
	r.Start, r.End, r.LastEpoch = l.StartOffset(), l.EndOffset(), replica.Log{Start: l.StartOffset(), End: l.EndOffset(), Epochs: l.Epochs()}.LastEpoch()
	return r
}

// CatchUp makes a follower's replica catch up with its leader; see replica.CatchUp.
func (n *Node) CatchUp(ctx context.Context, p Partition) error {
	return n.command(ctx, p, replica.Machine.CatchUp)
}

// Recover makes a follower's replica what its leader's is, and active again; see
// replica.Recover. One whose directory is gone is copied anew.
func (n *Node) Recover(ctx context.Context, p Partition) error {
	h, err := n.lookup(p)
	if err != nil {
		return err
	}
	h.mu.Lock()
	_, missing := errors.AsType[*MissingReplicaError](h.broken)
	h.mu.Unlock()
	if a, ok := n.opt.Controller.Assignment(p); missing && ok {
		if err := n.Create(p); err != nil {
			return err
		}
		n.Assign(p, a)
	}
	return n.command(ctx, p, replica.Machine.Recover)
}

func (n *Node) command(ctx context.Context, p Partition, start func(replica.Machine, time.Time, uint64) []replica.Effect) error {
	h, err := n.lookup(p)
	if err != nil {
		return err
	}
	result := make(chan error, 1)
	h.mu.Lock()
	if h.machine == nil {
		defer h.mu.Unlock()
		return h.broken
	}
	if h.stopped {
		defer h.mu.Unlock()
		return ErrClosed
	}
	id := h.wait(func(err error) { result <- err })
	h.mu.Unlock()
	h.post(func() []replica.Effect {
		h.observe(Command, Event{})
		return h.step(func(r replica.Machine) []replica.Effect { return start(r, n.now(), id) })
	})
	n.pump()
	select {
	case err := <-result:
		return n.wrap(p, err)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// HighWatermark is the offset below which consumers may read.
func (n *Node) HighWatermark(p Partition) (int64, error) {
	h, err := n.lookup(p)
	if err != nil {
		return 0, err
	}
	return h.hw.Load(), nil
}

// Read reads whole frames from an offset on, for a consumer: at most max bytes or one
// frame, and none at or above the high watermark. This node must be the leader.
//
// Errors: *NotLeaderError, *commitlog.OffsetOutOfRangeError, *NotSettledError, and those
// of Append.
func (n *Node) Read(p Partition, from int64, max int) (commitlog.Chunk, error) {
	h, err := n.leading(p)
	if err != nil {
		return commitlog.Chunk{}, err
	}
	hw := h.hw.Load()
	if from < hw || from > h.log.EndOffset() {
		return h.log.ReadFrames(nil, from, hw, max)
	}
	return commitlog.Chunk{Base: from, Next: from}, n.Settled(p)
}

// LeaderEpoch is the epoch in which this node leads a partition. A reader that has heard of
// a higher one must not believe what this node says is the end (KIP-320).
func (n *Node) LeaderEpoch(p Partition) (int32, error) {
	h, err := n.leading(p)
	if err != nil {
		return 0, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.machine.Status().Assignment.Epoch, nil
}

// Settled returns a *NotSettledError while this node leads a partition and has yet to find
// out how far it can be read. Until then there is no telling where the end is.
func (n *Node) Settled(p Partition) error {
	h, err := n.leading(p)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.machine.Settled() {
		return &NotSettledError{Partition: p, Broker: n.opt.ID, HighWatermark: h.machine.HighWatermark()}
	}
	return nil
}

// leading returns the host of a partition that this node leads.
func (n *Node) leading(p Partition) (*host, error) {
	h, err := n.lookup(p)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h, n.wrap(p, h.checkWrite(replica.OnLeader))
}

// Wait blocks until a consumer may read the record at an offset, or there is something
// else to say: this node leads no more, or is closed.
func (n *Node) Wait(ctx context.Context, p Partition, offset int64) error {
	for {
		h, err := n.leading(p)
		if err != nil {
			return err
		}
		h.wakeMu.Lock()
		if h.wake == nil {
			h.wake = make(chan struct{})
		}
		wake := h.wake
		h.wakeMu.Unlock()
		if offset < h.hw.Load() {
			return nil
		}
		if _, err := n.leading(p); err != nil { // the role changed before wake was made
			return err
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Records iterates over the records from an offset up to the high watermark, as it is when
// the iteration gets there. A record is borrowed until the next one. See Read for errors.
func (n *Node) Records(p Partition, from int64) iter.Seq2[record.Record, error] {
	return func(yield func(record.Record, error) bool) {
		h, err := n.leading(p)
		if err != nil {
			yield(record.Record{}, err)
			return
		}
		for r, err := range h.log.Records(from) {
			if err == nil && r.Offset >= h.hw.Load() || !yield(r, err) {
				return
			}
		}
	}
}
