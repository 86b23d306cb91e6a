package consumer

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"logbook/engine/commitlog"
	"logbook/engine/record"
)

// LogStore keeps committed offsets in a log, as Kafka does in __consumer_offsets: a
// commit appends a record whose key names the progress, and compaction keeps each key's
// last. Many consumers' commits share a sync, and there is one file, not thousands.
type LogStore struct {
	log *commitlog.Log

	mu      sync.Mutex
	offsets map[Progress]int64
	pending map[Progress]int64 // the highest being written
	since   int                // commits since the last compaction
}

// compactEvery is how many commits a LogStore lets pass between compactions.
const compactEvery = 10_000

// OpenLogStore opens the store in a directory, or makes it. opt is the log's; its format
// must be the default.
//
// Errors: *OffsetCorruptionError (a record is not a commit) and those of commitlog.Open.
func OpenLogStore(dir string, opt commitlog.Options) (*LogStore, error) {
	opt.Format = record.V2
	if opt.SegmentBytes == 0 {
		opt.SegmentBytes = 4 << 20
	}
	l, err := commitlog.Open(dir, opt)
	if err != nil {
		return nil, err
	}
	s := &LogStore{log: l, offsets: map[Progress]int64{}, pending: map[Progress]int64{}}
	for rec, err := range l.Records(l.StartOffset()) {
		if err != nil {
			l.Close()
			return nil, err
		}
		if err := s.load(rec); err != nil {
			l.Close()
			return nil, &OffsetCorruptionError{File: dir, Reason: fmt.Sprintf("the record at offset %d is no commit", rec.Offset), Err: err}
		}
	}
	return s, nil
}

func (s *LogStore) load(rec record.Record) error {
	var p Progress
	if err := json.Unmarshal(rec.Key, &p); err != nil {
		return err
	}
	if err := p.validate(); err != nil {
		return err
	}
	offset, err := decodeOffset(rec.Value)
	if err != nil {
		return err
	}
	s.offsets[p] = offset
	return nil
}

// Committed implements OffsetStore.
func (s *LogStore) Committed(p Progress) (int64, bool, error) {
	if err := p.validate(); err != nil {
		return 0, false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	offset, ok := s.offsets[p]
	return offset, ok, nil
}

// Commit implements OffsetStore. Commits of one progress that overlap in time are stored
// in the order of their offsets, or refused.
func (s *LogStore) Commit(p Progress, offset int64) error {
	if err := p.validate(); err != nil {
		return err
	}
	key, err := json.Marshal(p)
	if err != nil {
		return err
	}
	s.mu.Lock()
	old, ok := s.offsets[p]
	if err := checkCommit(p, old, ok, offset); err != nil {
		s.mu.Unlock()
		return err
	}
	if high, ok := s.pending[p]; ok {
		s.mu.Unlock()
		return fmt.Errorf("consumer: a commit of %d for %s is under way; commit one at a time", high, p)
	}
	s.pending[p] = offset
	s.mu.Unlock()

	_, err = s.log.Append(record.Record{Key: key, Value: encodeOffset(offset)})

	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pending, p)
	if err != nil {
		return fmt.Errorf("consumer: committing %s: %w", p, err)
	}
	s.offsets[p] = offset
	if s.since++; s.since >= compactEvery {
		s.since = 0
		if _, err := s.log.Compact(0); err != nil {
			return fmt.Errorf("consumer: %s is committed, compacting the store failed: %w", p, err)
		}
	}
	return nil
}

// Compact removes commits that later ones replaced.
func (s *LogStore) Compact() (commitlog.Compacted, error) { return s.log.Compact(0) }

// Close closes the log.
func (s *LogStore) Close() error {
	err := s.log.Close()
	if errors.Is(err, commitlog.ErrClosed) {
		return ErrClosed
	}
	return err
}
