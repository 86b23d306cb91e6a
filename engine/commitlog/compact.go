package commitlog

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"time"

	"logbook/engine/record"
	"logbook/engine/vfs"
)

// Compacted says what a compaction did.
type Compacted struct {
	Segments      int   // rewritten
	Removed       int   // records
	Before, After int64 // bytes of the closed segments
}

// Compact removes, from the closed segments, every record for whose key they hold a
// later one. Offsets stay as they are; records without a key stay; so does the active
// segment, whatever its keys. A tombstone (nil value) that is the last record of its key
// stays until it is older than tombstoneAge, so that readers who are behind hear of the
// deletion, and is then removed too.
//
// In format 2 every offset stays covered by a batch, an empty one if need be. Format 1
// has no batches: there offsets get gaps, which a log notes in its checkpoint, and no nil
// values, so no tombstones. Format 0 has no keys.
//
// Segments are rewritten one by one, from the front, each beside the old one and then
// renamed over it: a crash leaves the old or the new. Appends wait meanwhile, reads go on.
//
// Errors: record.ErrUnsupported, ErrClosed, *PoisonedError, *CorruptionError.
func (l *Log) Compact(tombstoneAge time.Duration) (Compacted, error) {
	if l.format == record.V0 {
		return Compacted{}, fmt.Errorf("commitlog: cannot compact %s: %w: format 0 has no keys", l.dir, record.ErrUnsupported)
	}
	l.round.Lock()
	defer l.round.Unlock()
	if err := l.Usable(); err != nil {
		return Compacted{}, err
	}
	return l.compact(l.segments[:len(l.segments)-1], tombstoneAge)
}

// CompactRipe compacts the closed segments that lie below an offset and hold nothing younger
// than an age. It does nothing where it has compacted all of these before.
//
// Errors: those of Compact.
func (l *Log) CompactRipe(tombstoneAge, age time.Duration, below int64) (Compacted, error) {
	if l.format == record.V0 {
		return l.Compact(tombstoneAge) // it says why not
	}
	l.round.Lock()
	defer l.round.Unlock()
	if err := l.Usable(); err != nil {
		return Compacted{}, err
	}
	n, deadline := 0, l.opt.Now().Add(-age).UnixNano()
	for ; n < len(l.segments)-1 && l.segments[n].end <= below; n++ {
		if age > 0 {
			if old, err := l.older(l.segments[n], age, deadline); err != nil || !old {
				break
			}
		}
	}
	if n == 0 || l.segments[n-1].end <= l.compactedTo {
		return Compacted{}, nil
	}
	done, err := l.compact(l.segments[:n], tombstoneAge)
	if err == nil {
		l.compactedTo = l.segments[n-1].end
	}
	return done, err
}

// compact compacts the first segments of the log. The round lock is held.
func (l *Log) compact(closed []*segment, tombstoneAge time.Duration) (Compacted, error) {
	c := compaction{log: l, latest: map[string]int64{}, deadline: l.opt.Now().Add(-tombstoneAge)}
	for _, s := range closed {
		if err := c.collect(s); err != nil {
			return Compacted{}, err
		}
	}
	for i, s := range closed {
		c.done.Before += s.size
		if err := c.rewrite(i, s); err != nil {
			return c.done, err
		}
		c.done.After += l.segments[i].size
	}
	return c.done, nil
}

type compaction struct {
	log      *Log
	latest   map[string]int64 // offset of each key's last record in the closed segments
	deadline time.Time
	done     Compacted
	it       record.Iterator
}

// frames calls visit with each frame of a closed segment.
func (c *compaction) frames(s *segment, visit func(record.Frame) error) error {
	_, _, err := c.log.walk(s, 0, s.size, s.base, visit)
	return err
}

func (c *compaction) collect(s *segment) error {
	return c.frames(s, func(f record.Frame) error {
		for c.it.Reset(f); c.it.Next(); {
			if r := c.it.Record(); r.Key != nil {
				c.latest[string(r.Key)] = r.Offset
			}
		}
		return c.it.Err()
	})
}

func (c *compaction) keeps(r record.Record) bool {
	if r.Key == nil {
		return true
	}
	if c.latest[string(r.Key)] != r.Offset {
		return false
	}
	return r.Value != nil || !r.Timestamp.Before(c.deadline)
}

// rewrite compacts the i-th segment, if it holds anything to remove.
func (c *compaction) rewrite(i int, s *segment) error {
	l := c.log
	w := rewriter{compaction: c, index: l.newIndex(s.base)}
	if err := c.frames(s, w.frame); err != nil {
		return err
	}
	if w.removed == 0 {
		return nil
	}
	if err := w.flushEmpty(); err != nil {
		return err
	}
	if err := c.replace(i, s, &w); err != nil {
		l.poison(err)
		return &PoisonedError{Dir: l.dir, Cause: err}
	}
	c.done.Segments++
	c.done.Removed += w.removed
	return nil
}

// replace puts the rewritten segment in the place of the old one.
func (c *compaction) replace(i int, s *segment, w *rewriter) error {
	l := c.log
	tmp := s.path + vfs.TempSuffix
	if err := vfs.WriteNew(l.fs, tmp, w.out); err != nil {
		return err
	}
	// From here on either size is right, until the rename is durable and noted.
	cp := l.checkpoint()
	size := int64(len(w.out))
	cp.Compacted = cp.Compacted || l.format != record.V2
	cp.Segments[i].Compacted = &size
	if err := writeSealed(l.fs, l.path(checkpointName), cp); err != nil {
		return err
	}
	l.compacted.Store(cp.Compacted)
	if err := l.dropIndex(s); err != nil {
		return err
	}
	if err := l.fs.Rename(tmp, s.path); err != nil {
		return err
	}
	if err := l.fs.SyncDir(l.dir); err != nil {
		return err
	}
	f, err := l.fs.Open(s.path)
	if err != nil {
		return err
	}
	fresh := &segment{base: s.base, end: s.end, path: s.path, file: f, size: size, allocated: size, index: w.index}
	l.segments = append([]*segment(nil), l.segments...)
	l.segments[i] = fresh
	l.publish()
	s.file.Close()
	if err := saveIndex(l.fs, fresh.indexPath(), fresh.index); err != nil {
		return err
	}
	return l.writeCheckpoint(nil)
}

// rewriter builds a compacted segment.
type rewriter struct {
	*compaction
	out     []byte
	index   *index
	kept    []record.Record
	removed int

	empty      bool // offsets emptyFrom to emptyTo are covered by no frame yet
	emptyFrom  int64
	emptyTo    int64
	emptyEpoch int32
}

func (w *rewriter) frame(f record.Frame) error {
	if f.Attributes.Control() || f.Attributes.Transactional() {
		return w.copy(f) // whether such records count is not for us to say
	}
	w.kept = w.kept[:0]
	for w.it.Reset(f); w.it.Next(); {
		if r := w.it.Record(); w.keeps(r) {
			w.kept = append(w.kept, r.Clone())
		}
	}
	if err := w.it.Err(); err != nil {
		return err
	}
	w.removed += f.Count - len(w.kept)
	switch {
	case len(w.kept) == f.Count && f.Count > 0:
		return w.copy(f)
	case len(w.kept) == 0 && f.Version == 2:
		return w.cover(f)
	case len(w.kept) == 0:
		return nil
	}
	return w.encode(f)
}

func (w *rewriter) copy(f record.Frame) error {
	if err := w.flushEmpty(); err != nil {
		return err
	}
	w.add(f.Bytes, f)
	return nil
}

func (w *rewriter) add(frame []byte, f record.Frame) {
	w.index.add(f.BaseOffset, f.NextOffset(), len(frame), record.Nanos(f.MaxTimestamp))
	w.out = append(w.out, frame...)
}

// encode writes what is left of a batch, under the same offsets, producer and flags.
func (w *rewriter) encode(f record.Frame) error {
	if err := w.flushEmpty(); err != nil {
		return err
	}
	enc := record.Encoding{
		KeepOffsets: true, BaseOffset: f.BaseOffset, LastOffset: f.LastOffset,
		Compression: f.Attributes.Compression(), LeaderEpoch: f.LeaderEpoch, LogAppendTime: f.Attributes.LogAppendTime(),
	}
	if f.ProducerID >= 0 {
		enc.Producer = &record.Producer{ID: f.ProducerID, Epoch: f.ProducerEpoch, BaseSequence: f.BaseSequence}
	}
	return w.append(w.kept, enc)
}

func (w *rewriter) append(records []record.Record, enc record.Encoding) error {
	frame, err := w.log.format.AppendFrames(nil, records, enc)
	if err != nil {
		return err
	}
	f, err := w.log.format.Parse(frame)
	if err != nil {
		return err
	}
	w.add(frame, f)
	return nil
}

// cover notes that a batch became empty; neighbouring ones are merged into one.
func (w *rewriter) cover(f record.Frame) error {
	if w.empty && (w.emptyEpoch != f.LeaderEpoch || f.LastOffset-w.emptyFrom > math.MaxInt32) {
		if err := w.flushEmpty(); err != nil {
			return err
		}
	}
	if !w.empty {
		w.empty, w.emptyFrom, w.emptyEpoch = true, f.BaseOffset, f.LeaderEpoch
	}
	w.emptyTo = f.LastOffset
	return nil
}

func (w *rewriter) flushEmpty() error {
	if !w.empty {
		return nil
	}
	w.empty = false
	return w.append(nil, record.Encoding{KeepOffsets: true, BaseOffset: w.emptyFrom, LastOffset: w.emptyTo, LeaderEpoch: w.emptyEpoch})
}

func isNotExist(err error) bool { return errors.Is(err, fs.ErrNotExist) }
