// Package consumer reads a partition and remembers how far it got.
//
// Two numbers are kept apart. The position is in memory: the next offset that Fetch
// returns; fetching and seeking move it. The committed offset is on disk: the next offset
// to fetch after a restart; only Commit moves it, and never back. The intended cycle is
// fetch, process, commit: a crash before the commit sees the records again, which is what
// makes delivery at-least-once.
//
// A consumer has no goroutines. It borrows its topic and its offset store and closes
// neither. It is not safe for concurrent use.
package consumer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"logbook/engine/commitlog"
	"logbook/engine/record"
	"logbook/engine/topic"
)

// ErrClosed: the consumer or the store was closed.
var ErrClosed = errors.New("consumer: closed")

// Reset says what a consumer does when its position is below the log start offset,
// because retention has deleted what it has not read.
type Reset int

const (
	// ResetError reports it as a *commitlog.OffsetOutOfRangeError. Seek to go on.
	ResetError Reset = iota
	// ResetToStart goes on at the log start offset: the lost records are skipped.
	ResetToStart
	// ResetToEnd goes on at the log end offset.
	ResetToEnd
)

// Config configures a consumer.
type Config struct {
	ID        string // durable identity: whose progress is committed. Not a group.
	Topic     *topic.Topic
	Partition int
	Store     OffsetStore
	Reset     Reset
}

// Consumer reads one partition.
type Consumer struct {
	cfg       Config
	progress  Progress
	log       *commitlog.Log
	position  int64
	committed int64
	hasCommit bool
	reader    *commitlog.Reader
	it        record.Iterator
	inFrame   bool // it has records left
	closed    bool
}

// CommitBeyondEndError: a commit of an offset that the partition does not have yet.
type CommitBeyondEndError struct {
	Progress    Progress
	Wanted, End int64
}

func (e *CommitBeyondEndError) Error() string {
	return fmt.Sprintf("consumer: cannot commit offset %d for %s: the log end offset is %d", e.Wanted, e.Progress, e.End)
}

// New returns a consumer at its committed offset, or at the log start offset where
// nothing is committed.
//
// Errors: *topic.NameError, *topic.PartitionError, *OffsetCorruptionError.
func New(cfg Config) (*Consumer, error) {
	if cfg.Topic == nil || cfg.Store == nil {
		return nil, errors.New("consumer: a topic and an offset store are needed")
	}
	l, err := cfg.Topic.Partition(cfg.Partition)
	if err != nil {
		return nil, err
	}
	c := &Consumer{cfg: cfg, log: l, progress: Progress{cfg.ID, cfg.Topic.Name(), cfg.Partition}}
	if c.committed, c.hasCommit, err = cfg.Store.Committed(c.progress); err != nil {
		return nil, err
	}
	if c.position = l.StartOffset(); c.hasCommit {
		c.position = c.committed
	}
	return c, nil
}

// Position is the next offset to fetch.
func (c *Consumer) Position() int64 { return c.position }

// Committed returns the committed offset as this consumer knows it; ok is false before
// the first commit ever.
func (c *Consumer) Committed() (offset int64, ok bool) { return c.committed, c.hasCommit }

// Lag is how many offsets the position trails the log end offset.
func (c *Consumer) Lag() int64 { return max(0, c.log.EndOffset()-c.position) }

// Fetch returns up to max records from the position on, as copies, and moves the
// position behind them. It does not wait: at the log end it returns none.
//
// Errors: *commitlog.OffsetOutOfRangeError (see Reset), *commitlog.CorruptionError,
// ErrClosed. Records fetched before an error are returned by the call before.
func (c *Consumer) Fetch(max int) ([]record.Record, error) {
	var out []record.Record
	for len(out) < max {
		rec, err := c.next()
		if err == io.EOF {
			break
		}
		if err != nil {
			if len(out) > 0 {
				break // the next call meets it again
			}
			return nil, err
		}
		out = append(out, rec.Clone())
	}
	return out, nil
}

// FetchWait is Fetch, but waits until there is a record or ctx ends.
func (c *Consumer) FetchWait(ctx context.Context, max int) ([]record.Record, error) {
	for {
		out, err := c.Fetch(max)
		if err != nil || len(out) > 0 {
			return out, err
		}
		if err := c.wait(ctx); err != nil {
			return nil, err
		}
	}
}

// Records iterates over records from the position on, and waits at the log end until ctx
// ends, which ends the iteration without an error. A record is borrowed until the next
// one; the position is behind the record that the loop is at.
func (c *Consumer) Records(ctx context.Context) iter.Seq2[record.Record, error] {
	return func(yield func(record.Record, error) bool) {
		for ctx.Err() == nil {
			rec, err := c.next()
			if err == io.EOF {
				if err = c.wait(ctx); err == nil {
					continue
				}
				if ctx.Err() != nil {
					return
				}
			}
			if !yield(rec, err) || err != nil {
				return
			}
		}
	}
}

func (c *Consumer) wait(ctx context.Context) error {
	err := c.log.Wait(ctx, c.position)
	if errors.Is(err, commitlog.ErrClosed) {
		return ErrClosed
	}
	return err
}

// next returns the record at the position and moves behind it; io.EOF at the log end. It
// keeps its place inside a batch, so that a batch is decoded once.
func (c *Consumer) next() (record.Record, error) {
	if c.closed {
		return record.Record{}, ErrClosed
	}
	for {
		for c.inFrame && c.it.Next() {
			if rec := c.it.Record(); rec.Offset >= c.position {
				c.position = rec.Offset + 1
				return rec, nil
			}
		}
		if c.inFrame {
			c.inFrame = false
			if err := c.it.Err(); err != nil {
				c.reader = nil // the next call meets it again
				return record.Record{}, err
			}
			c.position = max(c.position, c.reader.NextOffset()) // compaction removed the batch's last records
		}
		if err := c.nextFrame(); err != nil {
			return record.Record{}, err
		}
	}
}

func (c *Consumer) nextFrame() error {
	if c.position > c.log.EndOffset() {
		return io.EOF // a seek beyond the end waits for the log to get there
	}
	var oor *commitlog.OffsetOutOfRangeError
	if c.reader == nil {
		r, err := c.log.NewReader(c.position)
		if errors.As(err, &oor) {
			return c.reset(oor)
		}
		if err != nil {
			return err
		}
		c.reader = r
	}
	f, err := c.reader.Next()
	if errors.As(err, &oor) {
		c.reader = nil
		return c.reset(oor)
	}
	if errors.Is(err, commitlog.ErrClosed) {
		return ErrClosed
	}
	if err != nil {
		return err
	}
	c.it.Reset(f)
	c.inFrame = true
	return nil
}

// reset applies the reset policy to a position that is out of range.
func (c *Consumer) reset(oor *commitlog.OffsetOutOfRangeError) error {
	switch {
	case oor.Offset > oor.End:
		return io.EOF
	case c.cfg.Reset == ResetToStart:
		c.moveTo(oor.Start)
	case c.cfg.Reset == ResetToEnd:
		c.moveTo(oor.End)
	default:
		return oor
	}
	return nil
}

func (c *Consumer) moveTo(offset int64) {
	c.position, c.reader, c.inFrame = offset, nil, false
}

// SeekTo moves the position, and nothing else: the committed offset stays. Beyond the log
// end, fetches return nothing until the log gets there.
func (c *Consumer) SeekTo(offset int64) error {
	if c.closed {
		return ErrClosed
	}
	if offset < 0 {
		return &NegativeOffsetError{Progress: c.progress, Offset: offset}
	}
	c.moveTo(offset)
	return nil
}

// SeekToStart moves the position to the log start offset.
func (c *Consumer) SeekToStart() error { return c.SeekTo(c.log.StartOffset()) }

// SeekToEnd moves the position to the log end offset.
func (c *Consumer) SeekToEnd() error { return c.SeekTo(c.log.EndOffset()) }

// SeekToTime moves the position to the first record stamped at t or later, or to the log
// end offset where there is none.
func (c *Consumer) SeekToTime(t time.Time) error {
	offset, err := c.log.OffsetForTime(t.UnixNano())
	if err != nil {
		return err
	}
	return c.SeekTo(offset)
}

// Commit stores the position as the committed offset, durably. Nothing is committed
// otherwise.
//
// Errors: *OffsetRegressionError, *CommitBeyondEndError, *OffsetCorruptionError, ErrClosed.
func (c *Consumer) Commit() error {
	if c.closed {
		return ErrClosed
	}
	if end := c.log.EndOffset(); c.position > end {
		return CheckCommit(c.progress, c.position, end)
	}
	if err := c.cfg.Store.Commit(c.progress, c.position); err != nil {
		return err
	}
	c.committed, c.hasCommit = c.position, true
	return nil
}

// Close ends the consumer. It commits nothing.
func (c *Consumer) Close() error {
	if c.closed {
		return ErrClosed
	}
	c.closed = true
	return nil
}

// CheckCommit holds an offset that is to be committed to what the partition holds: from 0
// to its log end offset.
//
// Errors: *NegativeOffsetError, *CommitBeyondEndError.
func CheckCommit(p Progress, offset, end int64) error {
	switch {
	case offset < 0:
		return &NegativeOffsetError{Progress: p, Offset: offset}
	case offset > end:
		return &CommitBeyondEndError{Progress: p, Wanted: offset, End: end}
	}
	return nil
}
