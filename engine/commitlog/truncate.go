package commitlog

import (
	"fmt"
	"io"
	"slices"
)

// Truncate removes the records from an offset on, and returns the new log end offset:
// the offset itself or, in format 2, the base offset of the batch that holds it, for a
// batch is never cut in two. Those offsets will be given out again, so it is for a
// replica whose tail the leader does not have, and for nothing else.
//
// It survives a crash at any moment: the intention is written down before the first byte
// goes, and Open finishes what was begun. Readers that stand in the removed part get
// *OffsetOutOfRangeError; appends wait.
//
// Errors: *OffsetOutOfRangeError, ErrClosed, *PoisonedError. A failure on the way
// poisons the log.
func (l *Log) Truncate(offset int64) (int64, error) {
	l.round.Lock()
	defer l.round.Unlock()
	if err := l.Usable(); err != nil {
		return 0, err
	}
	if offset < l.start || offset > l.active.end {
		return 0, &OffsetOutOfRangeError{Offset: offset, Start: l.start, End: l.active.end}
	}
	if offset == l.active.end {
		return offset, nil
	}
	to, err := l.frameEdge(offset)
	if err != nil {
		return 0, err
	}
	if to < l.start {
		return 0, fmt.Errorf("commitlog: cannot truncate to %d: its batch begins at %d, below the log start offset %d", offset, to, l.start)
	}
	if err := l.truncate(to); err != nil {
		l.poison(err)
		return 0, &PoisonedError{Dir: l.dir, Cause: err}
	}
	return to, nil
}

// Usable says why the log takes no appends or other changes, if it does not: ErrClosed or
// *PoisonedError.
func (l *Log) Usable() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.refusal()
}

// frameEdge returns the base offset of the frame that holds an offset.
func (l *Log) frameEdge(offset int64) (int64, error) {
	r := Reader{log: l, next: offset}
	f, err := r.Next()
	if err == io.EOF {
		return l.active.end, nil
	}
	if err != nil {
		return 0, err
	}
	// Where compaction removed the record, the frame begins after the offset.
	return min(offset, f.BaseOffset), nil
}

func (l *Log) truncate(to int64) error {
	keep := l.segmentsBelow(to)
	last := l.segments[keep]
	shrunk, err := l.shrink(last, to)
	if err != nil {
		return err
	}
	if err := l.writeCheckpoint(&to); err != nil {
		shrunk.file.Close()
		return err
	}
	// Readers lose sight of the tail before it goes. The last segment that stays has a
	// new object, so that a reader with old bytes in its buffer notices.
	dropped := l.segments[keep:]
	l.segments = append(l.segments[:keep:keep], shrunk)
	l.active = shrunk
	l.cuts++
	l.publish()
	for _, s := range dropped {
		s.file.Close()
	}
	if err := l.cutFiles(to); err != nil {
		return err
	}
	shrunk.allocated = shrunk.size
	l.checkpointed = 0
	l.dropEpochs(to)
	return l.writeCheckpoint(nil)
}

// shrink returns a segment as it will be when its file is cut at an offset.
func (l *Log) shrink(old *segment, to int64) (*segment, error) {
	s := &segment{base: old.base, path: old.path, index: l.newIndex(old.base)}
	var err error
	if s.file, err = l.fs.Open(s.path); err != nil {
		return nil, err
	}
	if s.size, err = l.positionOf(s, to); err == nil {
		_, err = l.extendIndex(s, s.index, s.size)
	}
	if err != nil {
		s.file.Close()
		return nil, err
	}
	s.end = to
	s.index.next = to // after the last frame, where compaction left a gap
	return s, nil
}

// segmentsBelow returns the index of the last segment whose base is at or below an offset.
func (l *Log) segmentsBelow(offset int64) int {
	i := len(l.segments) - 1
	for l.segments[i].base > offset {
		i--
	}
	return i
}

// cutFiles shortens the log's files so that they end at an offset, which must be the edge
// of a frame. It lowers the mark first: from then on what lies above is a tail that
// nobody was promised. It can be stopped anywhere and run again.
func (l *Log) cutFiles(to int64) error {
	bases, err := l.listSegments()
	if err != nil {
		return err
	}
	last := -1
	for i, base := range bases {
		if base <= to {
			last = i
		}
	}
	if last < 0 {
		return l.missing(to, "a truncation to it was begun")
	}
	s := &segment{base: bases[last], path: segmentPath(l.dir, bases[last])}
	if s.file, err = l.fs.Open(s.path); err != nil {
		return err
	}
	defer s.file.Close()
	position, err := l.positionOf(s, to)
	if err != nil {
		return err
	}
	if err := l.mark.note(mark{segment: s.base, position: position, next: to, loose: l.loose()}, true); err != nil {
		return err
	}
	if err := l.dropIndex(s); err != nil {
		return err
	}
	for _, base := range slices.Backward(bases[last+1:]) {
		if err := removeSegment(l.fs, segmentPath(l.dir, base)); err != nil {
			return err
		}
	}
	if err := l.fs.SyncDir(l.dir); err != nil {
		return err
	}
	if err := s.file.Truncate(position); err != nil {
		return err
	}
	return s.file.Sync()
}

// positionOf returns where in a segment the frames up to an offset end.
func (l *Log) positionOf(s *segment, to int64) (int64, error) {
	size, err := s.file.Size()
	if err != nil {
		return 0, err
	}
	var sc scanner
	sc.reset(s.file, l.format, 0, size)
	for next := s.base; next < to; {
		at := sc.pos
		f, err := sc.next()
		if err == io.EOF {
			if l.compacted.Load() {
				return at, nil
			}
			err = io.ErrUnexpectedEOF
		}
		if err == nil {
			err = l.checkFrame(&f, next)
		}
		if err != nil {
			return 0, l.damage(s.path, at, next, err)
		}
		if f.BaseOffset >= to {
			return at, nil
		}
		next = f.NextOffset()
	}
	return sc.pos, nil
}

// openUnfinished opens a log whose truncation cannot be finished, because the disk takes
// no writes: as it will be when it is, for reading alone.
func (l *Log) openUnfinished(c *checkpoint, to int64, cause error) error {
	bases, err := l.listSegments()
	if err != nil {
		return err
	}
	for i, base := range bases {
		if base < c.First || base > to {
			continue
		}
		s, err := l.openSegment(base)
		if err != nil {
			return err
		}
		s.size, s.end = s.allocated, to
		if i+1 < len(bases) {
			s.end = min(bases[i+1], to)
		}
	}
	if len(l.segments) == 0 {
		return l.missing(to, "a truncation to it was begun")
	}
	s := l.segments[len(l.segments)-1]
	s.index = l.newIndex(s.base)
	if s.size, err = l.positionOf(s, to); err != nil {
		return err
	}
	if _, err := l.extendIndex(s, s.index, s.size); err != nil {
		return err
	}
	s.end, l.active = to, s
	l.dropEpochs(to)
	l.poison(fmt.Errorf("finishing a truncation to offset %d that was interrupted: %w", to, cause))
	return nil
}

// finishTruncation completes a truncation that a crash interrupted, and changes the
// checkpoint to what is there now.
func (l *Log) finishTruncation(c *checkpoint) (mark, error) {
	to := *c.Truncate
	if err := l.cutFiles(to); err != nil {
		return mark{}, err
	}
	c.Truncate = nil
	for len(c.Segments) > 0 && c.Segments[len(c.Segments)-1].Base >= l.mark.last.segment {
		c.Segments = c.Segments[:len(c.Segments)-1]
	}
	l.dropEpochs(to)
	c.Epochs = *l.epochs.Load()
	l.opt.Logger.Warn("finished a truncation that was interrupted", "dir", l.dir, "log end offset", to)
	return l.mark.last, writeSealed(l.fs, l.path(checkpointName), *c)
}
