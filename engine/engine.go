package engine

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"logbook/engine/commitlog"
	"logbook/engine/consumer"
	"logbook/engine/coordinator"
	"logbook/engine/producer"
	"logbook/engine/topic"
	"logbook/engine/vfs"
)

// ErrClosed: the engine was closed.
var ErrClosed = errors.New("engine: closed; open it again")

// Options configure an engine. The zero value is usable.
type Options struct {
	FS     vfs.FS           // nil: the operating system's
	Now    func() time.Time // nil: time.Now
	Logger *slog.Logger     // nil: discards
	// Log is the template for every partition's log; FS, Now, Logger and Committer in it
	// are the engine's.
	Log commitlog.Options
}

// Engine is the embedded front door: topics, producers, consumers and groups in one
// directory.
//
//	dir/topics/NAME/   each topic
//	dir/offsets/       committed offsets, in a compacted log
//	dir/groups/        the groups' state, in another
//
// It is safe for concurrent use. One process owns a directory.
type Engine struct {
	dir       string
	opt       Options
	committer *commitlog.Committer
	offsets   *consumer.LogStore
	groups    *coordinator.Coordinator
	states    *groupStorage

	mu        sync.Mutex
	topics    map[string]*topic.Topic
	producers []*producer.Producer
	members   map[*Member]bool
	closed    bool
}

// Open opens the engine in a directory, or makes it.
//
// Errors: those of commitlog.Open; *commitlog.LockedError when another process has it.
func Open(dir string, opt Options) (*Engine, error) {
	if opt.FS == nil {
		opt.FS = vfs.OS
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	e := &Engine{
		dir: dir, opt: opt, committer: commitlog.NewCommitter(),
		topics: map[string]*topic.Topic{}, members: map[*Member]bool{},
	}
	if err := opt.FS.MkdirAll(e.topicsDir()); err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	var err error
	if e.offsets, err = consumer.OpenLogStore(filepath.Join(dir, "offsets"), e.logOptions(commitlog.Options{})); err != nil {
		return nil, err
	}
	if e.groups, e.states, err = openGroups(e, filepath.Join(dir, "groups")); err != nil {
		return nil, errors.Join(err, e.offsets.Close())
	}
	return e, nil
}

func (e *Engine) topicsDir() string { return filepath.Join(e.dir, "topics") }

// logOptions puts what is the engine's into a log's options.
func (e *Engine) logOptions(opt commitlog.Options) commitlog.Options {
	opt.FS, opt.Now, opt.Logger, opt.Committer = e.opt.FS, e.opt.Now, e.opt.Logger, e.committer
	return opt
}

func (e *Engine) topicOptions(partitions int, router topic.Router) topic.Options {
	return topic.Options{Partitions: partitions, Router: router, Log: e.logOptions(e.opt.Log)}
}

// CreateTopic makes a topic. A nil router is topic.Murmur2. The engine owns the topic and
// closes it.
//
// Errors: those of topic.Create, ErrClosed.
func (e *Engine) CreateTopic(name string, partitions int, router topic.Router) (*topic.Topic, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, ErrClosed
	}
	if e.topics[name] != nil {
		return nil, &topic.ExistsError{Name: name}
	}
	t, err := topic.Create(e.topicsDir(), name, e.topicOptions(partitions, router))
	if err != nil {
		return nil, err
	}
	e.topics[name] = t
	return t, nil
}

// Topic returns a topic that exists. The engine owns it and closes it.
//
// Errors: those of topic.Open, ErrClosed.
func (e *Engine) Topic(name string) (*topic.Topic, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, ErrClosed
	}
	if t := e.topics[name]; t != nil {
		return t, nil
	}
	t, err := topic.Open(e.topicsDir(), name, e.topicOptions(0, nil))
	if err != nil {
		return nil, err
	}
	e.topics[name] = t
	return t, nil
}

// Topics lists the topics that exist, sorted.
func (e *Engine) Topics() ([]string, error) {
	names, err := e.opt.FS.ReadDir(e.topicsDir())
	if err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	out := []string{}
	for _, name := range names {
		f, err := e.opt.FS.OpenRead(filepath.Join(e.topicsDir(), name, "topic.meta"))
		if errors.Is(err, fs.ErrNotExist) {
			continue // a creation that a crash cut short
		}
		if err != nil {
			return nil, fmt.Errorf("engine: %w", err)
		}
		f.Close()
		out = append(out, name)
	}
	return out, nil
}

// Producer returns a producer for a topic. Close it, or the engine will.
func (e *Engine) Producer(topicName string, opt producer.Options) (*producer.Producer, error) {
	t, err := e.Topic(topicName)
	if err != nil {
		return nil, err
	}
	p, err := producer.New(t, opt)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, ErrClosed
	}
	e.producers = append(e.producers, p)
	return p, nil
}

// Consumer returns a consumer of one partition, at its committed offset. id is the
// identity under which its progress is kept; a group of the same name would share it.
func (e *Engine) Consumer(id, topicName string, partition int, reset consumer.Reset) (*consumer.Consumer, error) {
	t, err := e.Topic(topicName)
	if err != nil {
		return nil, err
	}
	return consumer.New(consumer.Config{ID: id, Topic: t, Partition: partition, Store: e.offsets, Reset: reset})
}

// Committed returns the committed offset of a consumer or group in a partition; ok is
// false where none ever was.
func (e *Engine) Committed(id, topicName string, partition int) (offset int64, ok bool, err error) {
	return e.offsets.Committed(consumer.Progress{Consumer: id, Topic: topicName, Partition: partition})
}

// Close makes group members leave, closes producers, topics and stores, and returns
// when no goroutine of the engine's is left.
func (e *Engine) Close() error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return ErrClosed
	}
	e.closed = true
	members, producers := e.members, e.producers
	e.mu.Unlock()
	var problems []error
	for m := range members {
		problems = append(problems, ignore(m.Close(), ErrClosed))
	}
	for _, p := range producers {
		problems = append(problems, ignore(p.Close(), producer.ErrClosed))
	}
	e.groups.Close()
	for _, t := range e.topics {
		problems = append(problems, ignore(t.Close(), topic.ErrClosed))
	}
	problems = append(problems, e.states.log.Close(), e.offsets.Close())
	return errors.Join(problems...)
}

// ignore drops an error that says what was wanted anyway.
func ignore(err, harmless error) error {
	if errors.Is(err, harmless) {
		return nil
	}
	return err
}
