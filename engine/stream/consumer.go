package stream

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"logbook/engine/consumer"
	"logbook/engine/failure"
	"logbook/engine/record"
)

// Reset says what becomes of a position that the log does not reach any more: retention has
// removed what was next, or the end of the log was lost.
type Reset int

const (
	// ResetError reports it as an *OutOfRangeError, which names both offsets. Seek to go on.
	ResetError Reset = iota
	// ResetToEarliest goes on at the log start offset: the removed records are skipped.
	ResetToEarliest
	// ResetToLatest goes on at the end. It also makes whoever never committed begin there.
	ResetToLatest
)

// OutOfRangeError: a position that the log does not reach any more.
type OutOfRangeError struct {
	Partition    Partition
	Position     int64 // the next offset to read
	First, After int64 // the log has offsets [First, After)
	Err          error
}

func (e *OutOfRangeError) Error() string {
	if e.Position < e.First {
		return fmt.Sprintf("stream: offset %d of %s is gone: the log starts at %d now; seek to go on, or choose a Reset", e.Position, e.Partition, e.First)
	}
	return fmt.Sprintf("stream: offset %d of %s is not there any more: the log ends at %d; what was read after that is lost, seek to go on, or choose a Reset", e.Position, e.Partition, e.After)
}

func (e *OutOfRangeError) Unwrap() error { return e.Err }

// ConsumerOptions configure a consumer. ID and Topic must be set.
type ConsumerOptions struct {
	// ID is the identity under which committed offsets are kept. A group of the same name
	// would share them.
	ID        string
	Topic     string
	Partition int
	Reset     Reset
	// Store keeps the committed offsets; nil: the log itself does.
	Store consumer.OffsetStore
}

// Consumer reads one partition. It is not safe for concurrent use.
type Consumer struct {
	c         *Client
	opt       ConsumerOptions
	p         Partition
	position  int64
	sought    bool // the position was asked for, and may lie beyond the end
	committed int64
	hasCommit bool
	epoch     int32
	ready     []record.Record // fetched and not handed out
	after     int64           // where to go on after them
	closed    bool
}

// Consumer returns a consumer at its committed offset; where nothing is committed, at the
// log start offset, or, with ResetToLatest, at the end.
//
// Errors: failure.UnknownTopic, failure.UnknownPartition, failure.BadRequest,
// failure.Unavailable, *consumer.OffsetCorruptionError, ErrClosed.
func (c *Client) Consumer(ctx context.Context, opt ConsumerOptions) (*Consumer, error) {
	if c.ctx.Err() != nil {
		return nil, ErrClosed
	}
	r := &Consumer{c: c, opt: opt, p: Partition{Topic: opt.Topic, ID: opt.Partition}}
	first, err := c.t.Offset(ctx, r.p, Earliest, time.Time{})
	if err != nil {
		return nil, c.check(err)
	}
	if opt.Store != nil {
		r.committed, r.hasCommit, err = opt.Store.Committed(r.key())
	} else {
		r.committed, r.hasCommit, err = c.Committed(ctx, opt.ID, opt.Topic, opt.Partition)
	}
	if err != nil {
		return nil, err
	}
	switch {
	case r.hasCommit:
		r.moveTo(r.committed)
	case opt.Reset == ResetToLatest:
		return r, r.SeekToEnd(ctx)
	default:
		r.moveTo(first)
	}
	return r, nil
}

func (c *Consumer) key() consumer.OffsetKey {
	return consumer.OffsetKey{Consumer: c.opt.ID, Topic: c.p.Topic, Partition: c.p.ID}
}

// Position is the next offset to be handed out.
func (c *Consumer) Position() int64 { return c.position }

// Committed returns the committed offset as this consumer knows it; ok is false before the
// first commit ever.
func (c *Consumer) Committed() (offset int64, ok bool) { return c.committed, c.hasCommit }

// Lag is how many offsets the position trails the end.
func (c *Consumer) Lag(ctx context.Context) (int64, error) {
	end, err := c.c.t.Offset(ctx, c.p, Latest, time.Time{})
	return max(0, end-c.position), c.c.check(err)
}

// Fetch returns up to max records from the position on, and moves the position past them. It
// does not wait: at the end it returns none.
//
// Errors: *OutOfRangeError (see Reset), failure.Damaged, failure.Unavailable, ErrClosed.
func (c *Consumer) Fetch(ctx context.Context, max int) ([]record.Record, error) {
	return c.fetch(ctx, max, 0)
}

// FetchWait is Fetch, but waits until there is a record or ctx ends.
func (c *Consumer) FetchWait(ctx context.Context, max int) ([]record.Record, error) {
	ctx, cancel := c.c.within(ctx)
	defer cancel()
	for {
		out, err := c.fetch(ctx, max, maxWait)
		if err != nil || len(out) > 0 || max <= 0 {
			return out, c.c.check(err)
		}
		if err := ctx.Err(); err != nil {
			return nil, c.c.check(err)
		}
	}
}

// maxWait is how long one request waits for records.
const maxWait = 5 * time.Second

func (c *Consumer) fetch(ctx context.Context, max int, wait time.Duration) ([]record.Record, error) {
	var out []record.Record
	for !c.closed && len(out) < max {
		if len(c.ready) == 0 {
			more, err := c.fill(ctx, wait)
			if err != nil && len(out) == 0 {
				return nil, err
			}
			if err != nil || !more {
				break // the next call meets the error again
			}
			continue
		}
		n := min(max-len(out), len(c.ready))
		out = append(out, c.ready[:n]...)
		c.ready = c.ready[n:]
		c.position, c.sought = out[len(out)-1].Offset+1, false
		if len(c.ready) == 0 {
			c.position = c.after
		}
		wait = 0
	}
	if c.closed {
		return nil, ErrClosed
	}
	return out, nil
}

// fill fetches the next records; false: there are none yet.
func (c *Consumer) fill(ctx context.Context, wait time.Duration) (bool, error) {
	f, err := c.c.t.Fetch(ctx, Fetch{Partition: c.p, Offset: c.position, MaxWait: wait, LeaderEpoch: c.epoch})
	if e, ok := errors.AsType[*failure.Error](err); ok && e.Code == failure.OutOfRange {
		return c.reset(ctx, e, wait)
	}
	if err != nil {
		return false, c.c.check(err)
	}
	c.epoch = max(c.epoch, f.LeaderEpoch)
	c.ready, c.after = f.Records, f.NextOffset
	if len(f.Records) == 0 && f.NextOffset > c.position {
		c.position = f.NextOffset // compaction has removed what was here
		return true, nil
	}
	return len(f.Records) > 0, nil
}

// reset applies the reset policy to a position that is out of range.
func (c *Consumer) reset(ctx context.Context, e *failure.Error, wait time.Duration) (bool, error) {
	switch {
	case c.position > e.LogEndOffset && c.sought:
		return false, pause(ctx, wait) // until the log gets there
	case c.opt.Reset == ResetToEarliest:
		c.moveTo(e.LogStartOffset)
	case c.opt.Reset == ResetToLatest:
		c.moveTo(e.LogEndOffset)
	default:
		return false, &OutOfRangeError{Partition: c.p, Position: c.position, First: e.LogStartOffset, After: e.LogEndOffset, Err: e}
	}
	return true, nil
}

// pause waits, where nothing tells when there will be something.
func pause(ctx context.Context, most time.Duration) error {
	if most == 0 {
		return nil
	}
	select {
	case <-time.After(min(most, 50*time.Millisecond)):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Records iterates over records from the position on, and waits at the end until ctx ends,
// which ends the iteration without an error. The position is after the record that the
// loop is at.
func (c *Consumer) Records(ctx context.Context) iter.Seq2[record.Record, error] {
	return func(yield func(record.Record, error) bool) {
		for ctx.Err() == nil {
			rs, err := c.FetchWait(ctx, 1)
			if ctx.Err() != nil && err != nil {
				return
			}
			if err != nil {
				yield(record.Record{}, err)
				return
			}
			if !yield(rs[0], nil) {
				return
			}
		}
	}
}

func (c *Consumer) moveTo(offset int64) {
	c.position, c.ready, c.sought = offset, nil, false
}

// SeekTo moves the position, and nothing else: the committed offset stays. Beyond the end,
// fetches return nothing until the log gets there.
//
// Errors: *consumer.NegativeOffsetError, ErrClosed.
func (c *Consumer) SeekTo(offset int64) error {
	if c.closed {
		return ErrClosed
	}
	if offset < 0 {
		return &consumer.NegativeOffsetError{Key: c.key(), Offset: offset}
	}
	c.moveTo(offset)
	c.sought = true
	return nil
}

// SeekToStart moves the position to the log start offset.
func (c *Consumer) SeekToStart(ctx context.Context) error {
	return c.seek(ctx, Earliest, time.Time{})
}

// SeekToEnd moves the position to the end.
func (c *Consumer) SeekToEnd(ctx context.Context) error { return c.seek(ctx, Latest, time.Time{}) }

// SeekToTime moves the position to the first record stamped at t or later, or to the end
// where there is none.
func (c *Consumer) SeekToTime(ctx context.Context, t time.Time) error { return c.seek(ctx, AtTime, t) }

func (c *Consumer) seek(ctx context.Context, where Where, t time.Time) error {
	offset, err := c.c.t.Offset(ctx, c.p, where, t)
	if err != nil {
		return c.c.check(err)
	}
	return c.SeekTo(offset)
}

// Commit stores the position as the committed offset, durably. Nothing is committed
// otherwise.
//
// Errors: failure.Regression and *consumer.OffsetRegressionError (it never goes back),
// failure.BadRequest and *consumer.CommitBeyondEndError, *consumer.OffsetCorruptionError,
// failure.Unavailable, ErrClosed.
func (c *Consumer) Commit(ctx context.Context) error {
	if c.closed {
		return ErrClosed
	}
	var err error
	if c.opt.Store == nil {
		err = c.c.check(c.c.t.SetOffsets(ctx, c.opt.ID, map[Partition]int64{c.p: c.position}, false))
	} else {
		var end int64
		if end, err = c.c.t.Offset(ctx, c.p, Latest, time.Time{}); err == nil {
			err = consumer.CheckCommit(c.key(), c.position, end)
		}
		if err == nil {
			err = c.opt.Store.Commit(c.key(), c.position)
		}
	}
	if err == nil {
		c.committed, c.hasCommit = c.position, true
	}
	return err
}

// Close ends the consumer. It commits nothing.
func (c *Consumer) Close() error {
	if c.closed {
		return ErrClosed
	}
	c.closed = true
	return nil
}
