package metadata

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"logbook/engine/commitlog"
	"logbook/engine/record"
	"logbook/engine/topic"
)

// segmentBytes is the most that a segment of the log of decisions has.
const segmentBytes = 1 << 20

// LogName is the directory of a broker's, or a cluster's, log of decisions.
const LogName = "__cluster_metadata"

// Store keeps decisions in a log, or a controller's journal. Its methods are for one goroutine
// at a time.
type Store struct {
	dir     string
	opt     commitlog.Options
	journal bool
	log     *commitlog.Log
	new     int // records since the log was opened or compacted
}

// DamageError: the log of decisions holds what contradicts itself, or cannot be read.
type DamageError struct {
	Dir string
	Err error
}

func (e *DamageError) Error() string {
	s := fmt.Sprintf("metadata: the decisions in %s cannot be read: %v", e.Dir, e.Err)
	if _, told := errors.AsType[*commitlog.CorruptionError](e.Err); told {
		return s
	}
	return s + "; nothing was changed: restore the directory from a backup"
}

func (e *DamageError) Unwrap() error { return e.Err }

// UnsettledError: storing decisions failed in such a way that nobody knows whether they
// will be there after a restart. The next write finds out first.
type UnsettledError struct {
	Dir string
	Err error
}

func (e *UnsettledError) Error() string {
	return fmt.Sprintf("metadata: storing a decision in %s failed, and it is not known whether it counts: %v; repair the disk and try again", e.Dir, e.Err)
}

func (e *UnsettledError) Unwrap() error { return e.Err }

// OpenStore opens the decisions kept in a directory, or begins without any.
//
// Errors: *DamageError, *commitlog.LockedError (another process has them).
func OpenStore(dir string, opt commitlog.Options) (*Store, *Image, error) {
	s := newStore(dir, opt)
	var image *Image
	err := s.open(func(l *commitlog.Log) (err error) {
		image, err = load(l)
		return err
	})
	return s, image, err
}

// OpenJournal opens a controller's journal: records that are the controller's own to read. What
// they say is not compacted; see WriteJournal.
//
// Errors: those of OpenStore.
func OpenJournal(dir string, opt commitlog.Options) (*Store, []record.Record, error) {
	s := newStore(dir, opt)
	s.journal = true
	var all []record.Record
	err := s.open(func(l *commitlog.Log) error {
		for r, err := range l.Records(l.StartOffset()) {
			if err != nil {
				return err
			}
			if bytes.ContainsRune(r.Key, '/') {
				return fmt.Errorf("%w: it was written with the manual or the first-alive controller; set LOGBOOK_CONTROLLER to that one, or choose another data directory", ErrOtherController)
			}
			all = append(all, r.Clone())
		}
		return nil
	})
	return s, all, err
}

// ErrOtherController: a log of decisions was written by another kind of controller.
var ErrOtherController = errors.New("the log of decisions is another controller's")

func newStore(dir string, opt commitlog.Options) *Store {
	opt.Format = record.V2
	if opt.SegmentBytes == 0 || opt.SegmentBytes > segmentBytes {
		opt.SegmentBytes = segmentBytes
	}
	opt.MaxRecordBytes, opt.MaxBatchBytes = 64<<20, 128<<20 // all of a cluster's decisions
	opt.Committer = nil                                     // a decision waits for nobody else's sync
	return &Store{dir: dir, opt: opt}
}

// open opens the log, and has it read.
func (s *Store) open(read func(*commitlog.Log) error) error {
	l, err := commitlog.Open(s.dir, s.opt)
	if err != nil {
		if _, locked := errors.AsType[*commitlog.LockedError](err); locked {
			return err
		}
		return &DamageError{Dir: s.dir, Err: err}
	}
	// A log that could not be made durable shows only what was surely durable before: there
	// may be more, that somebody was told of.
	if err := l.Usable(); err != nil {
		return fmt.Errorf("metadata: the decisions in %s cannot be relied on while the disk does not take writes: %w", s.dir, errors.Join(err, l.Close()))
	}
	err = read(l)
	if errors.Is(err, ErrOtherController) {
		return fmt.Errorf("metadata: %s: %w", s.dir, errors.Join(err, l.Close()))
	}
	if err != nil {
		return &DamageError{Dir: s.dir, Err: errors.Join(err, l.Close())}
	}
	s.log = l
	return nil
}

// load reads the decisions, and puts them together: each key's last counts, whatever came
// in between, since compaction may have taken it.
func load(l *commitlog.Log) (*Image, error) {
	last := map[string]Record{}
	var order []string
	for in, err := range l.Records(l.StartOffset()) {
		if err != nil {
			return nil, err
		}
		if !bytes.ContainsRune(in.Key, '/') {
			return nil, fmt.Errorf("%w: it was written with the quorum controller; set LOGBOOK_CONTROLLER to quorum, or choose another data directory", ErrOtherController)
		}
		r, err := decode(in)
		if err != nil {
			return nil, fmt.Errorf("the decision at offset %d: %w", in.Offset, err)
		}
		if _, known := last[r.key()]; !known {
			order = append(order, r.key())
		}
		last[r.key()] = r
	}
	var brokers, topics, rest []Record
	there := map[string]*TopicRecord{}
	for _, key := range order {
		switch r := last[key]; {
		case r.Broker != nil:
			brokers = append(brokers, r)
		case r.Topic != nil:
			topics = append(topics, r)
			there[r.Topic.Name] = r.Topic
		default:
			rest = append(rest, r)
		}
	}
	rest = slices.DeleteFunc(rest, func(r Record) bool { // of topics that were deleted, and perhaps made again
		p := r.Partition
		if p == nil {
			return false
		}
		t := there[p.Topic]
		return t != nil && (t.Deleted || p.TopicID != topic.ID{} && p.TopicID != t.ID)
	})
	return new(Image).Apply(append(append(brokers, topics...), rest...)...)
}

// Append stores decisions, all or none, and returns when they are durable.
//
// Errors: *UnsettledError; after any other, they do not count.
func (s *Store) Append(records []Record) error {
	encoded := make([]record.Record, len(records))
	for i, r := range records {
		var err error
		if encoded[i], err = r.encode(); err != nil {
			return err
		}
	}
	err := s.write(encoded)
	if err == nil {
		s.new += len(encoded)
		s.compact()
	}
	return err
}

// WriteJournal stores a journal's records, all or none, and returns when they are durable.
// whole: they say all that is to be known, and what was stored before may be forgotten.
//
// Errors: those of Append.
func (s *Store) WriteJournal(records []record.Record, whole bool) error {
	if err := s.write(records); err != nil {
		return err
	}
	if !whole {
		return nil
	}
	first := s.log.EndOffset() - int64(len(records))
	if err := s.log.AdvanceLogStart(first); err != nil && s.opt.Logger != nil {
		s.opt.Logger.Warn("what a journal holds no more need of could not be removed", "dir", s.dir, "error", err)
	}
	return nil
}

func (s *Store) write(encoded []record.Record) error {
	if len(encoded) == 0 {
		return nil
	}
	if err := s.usable(); err != nil {
		return fmt.Errorf("metadata: the disk failed before, and still does: %w", err)
	}
	end := s.log.EndOffset()
	_, err := s.log.Append(encoded...)
	if _, poisoned := errors.AsType[*commitlog.PoisonedError](err); poisoned {
		return s.findOut(end+int64(len(encoded)), err)
	}
	return err
}

// usable sees to it that the log takes appends, opening it again after a failure.
func (s *Store) usable() error {
	if s.log != nil {
		if s.log.Usable() == nil {
			return nil
		}
		_ = s.log.Close() // it is poisoned: what it says is known
		s.log = nil
	}
	return s.open(func(l *commitlog.Log) error {
		if s.journal {
			return l.Verify()
		}
		_, err := load(l)
		return err
	})
}

// findOut opens the log again after a write that failed, and looks whether it is there.
func (s *Store) findOut(end int64, failed error) error {
	if err := s.usable(); err != nil {
		return &UnsettledError{Dir: s.dir, Err: failed}
	}
	if s.log.EndOffset() >= end {
		return nil
	}
	return fmt.Errorf("metadata: the decision does not count, it could not be stored: %w", failed)
}

// compactAfter is how many records are stored between compactions.
const compactAfter = 20_000

func (s *Store) compact() {
	if s.new >= compactAfter {
		s.new = 0
		if _, err := s.log.Compact(0); err != nil && s.opt.Logger != nil {
			s.opt.Logger.Warn("the log of decisions could not be compacted", "dir", s.dir, "error", err)
		}
	}
}

// Close closes the log.
func (s *Store) Close() error {
	if s.log == nil {
		return nil
	}
	return s.log.Close()
}
