package topic

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"logbook/engine/commitlog"
	"logbook/engine/record"
	"logbook/engine/vfs"
)

// Options configure a topic. The zero value opens what is there; to create a topic,
// Partitions must be set.
type Options struct {
	// Partitions is the count for a new topic, from 1 to MaxPartitions. For an existing
	// one, 0 takes what is stored and anything else must match it.
	Partitions int
	// Router for a new topic; nil is Murmur2. For an existing one, nil takes what is
	// stored and anything else must match it.
	Router Router
	// Log configures each partition's log. Its committer, if any, is shared by all; if
	// none is given the topic's partitions share one.
	Log commitlog.Options
}

// Topic is an open topic. It is safe for concurrent use.
type Topic struct {
	name   string
	dir    string
	router Router
	logs   []*commitlog.Log
	cursor atomic.Uint64 // round robin over the partitions, in memory only
	closed atomic.Bool
}

// Appended says where a record landed.
type Appended struct {
	Topic     string
	Partition int
	Offset    int64 // within the partition
	Timestamp time.Time
}

// Create makes a topic in the directory root/name and opens it.
//
// Errors: *NameError, *ExistsError, *MetadataError (there are partitions with records
// and no metadata), and those of commitlog.Open.
func Create(root, name string, opt Options) (*Topic, error) {
	if err := CheckName("topic", name); err != nil {
		return nil, err
	}
	if opt.Partitions < 1 || opt.Partitions > MaxPartitions {
		return nil, fmt.Errorf("topic %q: a partition count of %d; it must be from 1 to %d", name, opt.Partitions, MaxPartitions)
	}
	if opt.Router == nil {
		opt.Router = Murmur2
	}
	t := newTopic(root, name, &opt)
	fsys := opt.Log.FS
	if _, _, err := readMeta(fsys, t.dir, name); err == nil {
		return nil, &ExistsError{Name: name}
	} else if _, unknown := errors.AsType[*UnknownError](err); !unknown {
		return nil, err
	}
	// The metadata is written last: until then there is no topic, and a crash leaves
	// empty partitions that the next Create takes over.
	if err := t.openLogs(opt.Partitions, opt.Log); err != nil {
		return nil, err
	}
	for i, l := range t.logs {
		if l.EndOffset() > 0 {
			t.Close()
			return nil, &MetadataError{File: filepath.Join(t.dir, metaName), Reason: fmt.Sprintf("is missing, and partition %d holds records", i)}
		}
	}
	t.router = opt.Router
	if err := writeMeta(fsys, t.dir, meta{1, name, opt.Partitions, opt.Router.Name()}); err != nil {
		t.Close()
		return nil, fmt.Errorf("topic %q: writing its metadata: %w", name, err)
	}
	return t, nil
}

// Open opens a topic that exists.
//
// Errors: *NameError, *UnknownError, *MismatchError, *MetadataError, and those of
// commitlog.Open.
func Open(root, name string, opt Options) (*Topic, error) {
	if err := CheckName("topic", name); err != nil {
		return nil, err
	}
	t := newTopic(root, name, &opt)
	m, router, err := readMeta(opt.Log.FS, t.dir, name)
	if err != nil {
		return nil, err
	}
	if opt.Partitions != 0 && opt.Partitions != m.Partitions {
		return nil, &MismatchError{Topic: name, What: "partition count", Stored: fmt.Sprint(m.Partitions), Wanted: fmt.Sprint(opt.Partitions)}
	}
	if opt.Router != nil && opt.Router.Name() != m.Router {
		return nil, &MismatchError{Topic: name, What: "router", Stored: m.Router, Wanted: opt.Router.Name()}
	}
	// A Create before this may have failed between renaming the metadata and making its
	// name durable; records must not be stored in a topic that a power failure takes away.
	if err := opt.Log.FS.SyncDir(t.dir); err != nil {
		return nil, fmt.Errorf("topic %q: %w", name, err)
	}
	// A partition that is gone must not come back empty.
	names, err := opt.Log.FS.ReadDir(t.dir)
	if err != nil {
		return nil, fmt.Errorf("topic %q: %w", name, err)
	}
	for i := range m.Partitions {
		if !slices.Contains(names, filepath.Base(PartitionDir(t.dir, i))) {
			return nil, &MetadataError{File: filepath.Join(t.dir, metaName), Reason: fmt.Sprintf("has %d partitions, and partition %d is missing", m.Partitions, i)}
		}
	}
	t.router = router
	if err := t.openLogs(m.Partitions, opt.Log); err != nil {
		return nil, err
	}
	return t, nil
}

func newTopic(root, name string, opt *Options) *Topic {
	if opt.Log.FS == nil {
		opt.Log.FS = vfs.OS
	}
	if opt.Log.Committer == nil {
		opt.Log.Committer = commitlog.NewCommitter()
	}
	return &Topic{name: name, dir: filepath.Join(root, name)}
}

func (t *Topic) openLogs(n int, opt commitlog.Options) error {
	for i := range n {
		l, err := commitlog.Open(PartitionDir(t.dir, i), opt)
		if err != nil {
			t.Close()
			return fmt.Errorf("topic %q, partition %d: %w", t.name, i, err)
		}
		t.logs = append(t.logs, l)
	}
	return nil
}

// Name is the topic's name.
func (t *Topic) Name() string { return t.name }

// Partitions is the partition count.
func (t *Topic) Partitions() int { return len(t.logs) }

// Router is the rule that keyed records follow.
func (t *Topic) Router() Router { return t.router }

// Partition returns a partition's log, which the topic owns and closes.
func (t *Topic) Partition(i int) (*commitlog.Log, error) {
	switch {
	case t.closed.Load():
		return nil, ErrClosed
	case i < 0 || i >= len(t.logs):
		return nil, &PartitionError{Topic: t.name, Partition: i, Count: len(t.logs)}
	}
	return t.logs[i], nil
}

// Route returns the partition for a key. Records without a key (nil) take turns, from
// partition 0 on; the turn is not remembered across restarts.
func (t *Topic) Route(key []byte) int {
	if key == nil {
		return int((t.cursor.Add(1) - 1) % uint64(len(t.logs)))
	}
	return t.router.Partition(key, len(t.logs))
}

// Append routes a record and stores it durably.
func (t *Topic) Append(r record.Record) (Appended, error) {
	return t.AppendTo(t.Route(r.Key), r)
}

// AppendTo stores records in a partition of the caller's choice, and says where the
// first of them landed.
func (t *Topic) AppendTo(partition int, records ...record.Record) (Appended, error) {
	l, err := t.Partition(partition)
	if err != nil {
		return Appended{}, err
	}
	at, err := l.Append(records...)
	if err != nil {
		return Appended{}, err
	}
	return Appended{Topic: t.name, Partition: partition, Offset: at.BaseOffset, Timestamp: at.Timestamp}, nil
}

// Close closes every partition. Calls after the first return ErrClosed.
func (t *Topic) Close() error {
	if t.closed.Swap(true) {
		return ErrClosed
	}
	var problems []error
	for _, l := range t.logs {
		problems = append(problems, l.Close())
	}
	return errors.Join(problems...)
}
