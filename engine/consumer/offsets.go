package consumer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"

	"logbook/engine/topic"
	"logbook/engine/vfs"
)

// Progress names whose committed offset in which partition.
type OffsetKey struct {
	Consumer  string // a consumer's id or a group's name
	Topic     string
	Partition int
}

func (p OffsetKey) String() string {
	return fmt.Sprintf("%s in %s/%d", p.Consumer, p.Topic, p.Partition)
}

func (p OffsetKey) validate() error {
	if err := topic.CheckName("consumer", p.Consumer); err != nil {
		return err
	}
	if err := topic.CheckName("topic", p.Topic); err != nil {
		return err
	}
	if p.Partition < 0 || p.Partition >= topic.MaxPartitions {
		return &topic.PartitionError{Topic: p.Topic, Partition: p.Partition, Count: topic.MaxPartitions}
	}
	return nil
}

// OffsetStore keeps committed offsets: the next offset to fetch after a restart. It is
// safe for concurrent use.
type OffsetStore interface {
	// Committed returns the committed offset; ok is false where none ever was, which is
	// not the same as 0. Error: *OffsetCorruptionError.
	Committed(p OffsetKey) (offset int64, ok bool, err error)
	// Commit stores an offset durably: after a crash the old one or the new one is there.
	// It never goes back. Errors: *OffsetRegressionError, *OffsetCorruptionError (the
	// stored offset is damaged and stays as it is), *topic.NameError.
	Commit(p OffsetKey, offset int64) error
	Close() error
}

// OffsetRegressionError: a commit below the committed offset.
type OffsetRegressionError struct {
	Key               OffsetKey
	Committed, Wanted int64
}

func (e *OffsetRegressionError) Error() string {
	return fmt.Sprintf("consumer: cannot commit offset %d for %s: %d is committed and progress never goes back; seek to replay without committing", e.Wanted, e.Key, e.Committed)
}

// NegativeOffsetError: a commit of, or a seek to, an offset below 0.
type NegativeOffsetError struct {
	Key    OffsetKey
	Offset int64
}

func (e *NegativeOffsetError) Error() string {
	return fmt.Sprintf("consumer: offset %d for %s is negative; offsets count from 0", e.Offset, e.Key)
}

// OffsetCorruptionError: a stored offset is not what was written.
type OffsetCorruptionError struct {
	File   string
	Reason string
	Err    error
}

func (e *OffsetCorruptionError) Error() string {
	s := "consumer: committed offset in " + e.File + " is damaged: " + e.Reason
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s + "; nothing was changed: restore the file, or remove it to start over"
}

func (e *OffsetCorruptionError) Unwrap() error { return e.Err }

// FileStore keeps one small JSON file for each progress (PyStream's layout):
//
//	root/analytics-worker/orders/partition-000000.offset   {"version":1,"offset":123}
//
// A commit replaces the file atomically.
type FileStore struct {
	fs   vfs.FS
	root string
	mu   sync.Mutex // one commit at a time: the check and the write belong together
	seen sync.Map   // files whose names are known to be durable
}

// NewFileStore returns a store below root, which is made by the first commit. A nil
// file system is the operating system's.
func NewFileStore(fsys vfs.FS, root string) *FileStore {
	if fsys == nil {
		fsys = vfs.OS
	}
	return &FileStore{fs: fsys, root: root}
}

func (s *FileStore) file(p OffsetKey) string {
	return filepath.Join(s.root, p.Consumer, p.Topic, fmt.Sprintf("partition-%06d.offset", p.Partition))
}

// Committed implements OffsetStore.
func (s *FileStore) Committed(p OffsetKey) (int64, bool, error) {
	if err := p.validate(); err != nil {
		return 0, false, err
	}
	file := s.file(p)
	data, err := vfs.ReadFile(s.fs, file, 1000)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, &OffsetCorruptionError{File: file, Reason: "it cannot be read", Err: err}
	}
	offset, err := decodeOffset(data)
	if err != nil {
		return 0, false, &OffsetCorruptionError{File: file, Reason: "it is not what was written", Err: err}
	}
	// A process before this one may have failed between renaming the file and making the
	// name durable. What is reported as committed must not go back with a power failure.
	if _, ok := s.seen.Load(file); !ok {
		if err := s.fs.SyncDir(filepath.Dir(file)); err != nil {
			return 0, false, fmt.Errorf("consumer: reading the committed offset of %s: %w", p, err)
		}
		s.seen.Store(file, true)
	}
	return offset, true, nil
}

// Commit implements OffsetStore.
func (s *FileStore) Commit(p OffsetKey, offset int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, ok, err := s.Committed(p)
	if err != nil {
		return err
	}
	if err := checkCommit(p, old, ok, offset); err != nil {
		return err
	}
	file := s.file(p)
	if err := s.fs.MkdirAll(filepath.Dir(file)); err != nil {
		return fmt.Errorf("consumer: committing %s: %w", p, err)
	}
	if err := vfs.WriteFileAtomic(s.fs, file, encodeOffset(offset)); err != nil {
		s.seen.Delete(file)
		return fmt.Errorf("consumer: committing %s: %w", p, err)
	}
	return nil
}

// Close implements OffsetStore; there is nothing to close.
func (s *FileStore) Close() error { return nil }

func checkCommit(p OffsetKey, old int64, ok bool, offset int64) error {
	if offset < 0 {
		return &NegativeOffsetError{Key: p, Offset: offset}
	}
	if ok && offset < old {
		return &OffsetRegressionError{Key: p, Committed: old, Wanted: offset}
	}
	return nil
}

func encodeOffset(offset int64) []byte {
	return fmt.Appendf(nil, "{\"version\":1,\"offset\":%d}\n", offset)
}

func decodeOffset(data []byte) (int64, error) {
	var raw struct {
		Version *int   `json:"version"`
		Offset  *int64 `json:"offset"`
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&raw); err != nil {
		return 0, err
	}
	switch {
	case d.More():
		return 0, errors.New("something stands after the JSON")
	case raw.Version == nil || raw.Offset == nil:
		return 0, errors.New("a field is missing")
	case *raw.Version != 1:
		return 0, fmt.Errorf("version %d, this program reads 1", *raw.Version)
	case *raw.Offset < 0:
		return 0, fmt.Errorf("offset %d is negative", *raw.Offset)
	}
	return *raw.Offset, nil
}
