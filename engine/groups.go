package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"logbook/engine/commitlog"
	"logbook/engine/consumer"
	"logbook/engine/coordinator"
	"logbook/engine/group"
	"logbook/engine/record"
)

// groupStorage keeps the groups' states as records in a compacted log, and their committed
// offsets in the engine's offset store.
type groupStorage struct {
	engine *Engine
	log    *commitlog.Log

	mu    sync.Mutex
	saves int
}

func openGroups(e *Engine, dir string) (*coordinator.Coordinator, *groupStorage, error) {
	l, err := commitlog.Open(dir, e.logOptions(commitlog.Options{SegmentBytes: 4 << 20}))
	if err != nil {
		return nil, nil, err
	}
	s := &groupStorage{engine: e, log: l}
	c := coordinator.New(coordinator.Config{Storage: s, Counts: e.counts, Check: e.checkOffsets, Now: e.opt.Now})
	latest := map[string][]byte{}
	for rec, err := range l.Records(l.StartOffset()) {
		if err != nil {
			return nil, nil, errors.Join(err, l.Close())
		}
		latest[string(rec.Key)] = append([]byte(nil), rec.Value...)
	}
	for name, data := range latest {
		if err := c.Restore(name, data); err != nil {
			return nil, nil, errors.Join(fmt.Errorf("engine: %s: %w", dir, err), l.Close())
		}
	}
	return c, s, nil
}

// compactGroupsEvery is how many saves pass between compactions of the groups' log.
const compactGroupsEvery = 10_000

// Save implements coordinator.Storage.
func (s *groupStorage) Save(name string, snapshot []byte) error {
	if _, err := s.log.Append(record.Record{Key: []byte(name), Value: snapshot}); err != nil {
		return err
	}
	s.mu.Lock()
	s.saves++
	due := s.saves%compactGroupsEvery == 0
	s.mu.Unlock()
	if due {
		_, err := s.log.Compact(0)
		return err
	}
	return nil
}

// Commit implements coordinator.Storage.
func (s *groupStorage) Commit(name string, offsets map[group.Partition]int64) error {
	for p, offset := range offsets {
		if err := s.engine.offsets.Commit(consumer.Progress{Consumer: name, Topic: p.Topic, Partition: p.ID}, offset); err != nil {
			return err
		}
	}
	return nil
}

// checkOffsets holds a commit to what its partitions hold.
func (e *Engine) checkOffsets(name string, offsets map[group.Partition]int64) error {
	for p, offset := range offsets {
		t, err := e.Topic(p.Topic)
		if err != nil {
			return err
		}
		l, err := t.Partition(p.ID)
		if err != nil {
			return err
		}
		progress := consumer.Progress{Consumer: name, Topic: p.Topic, Partition: p.ID}
		if err := consumer.CheckCommit(progress, offset, l.EndOffset()); err != nil {
			return err
		}
	}
	return nil
}

// counts looks up the partition counts of topics.
func (e *Engine) counts(topics []string) (map[string]int, error) {
	counts := map[string]int{}
	for _, name := range topics {
		t, err := e.Topic(name)
		if err != nil {
			return nil, err
		}
		counts[name] = t.Partitions()
	}
	return counts, nil
}

// callGroup sends a request to a group and waits for its reply.
func (e *Engine) callGroup(ctx context.Context, name string, r group.Request) (group.Reply, error) {
	reply, err := e.groups.Call(ctx, name, r)
	if errors.Is(err, coordinator.ErrClosed) {
		err = ErrClosed
	}
	return reply, err
}
