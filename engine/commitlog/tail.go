package commitlog

import (
	"errors"
	"fmt"
	"io"

	"logbook/engine/record"
)

// openTail finds the log end in the active segment.
func (l *Log) openTail(t tail, m mark) error {
	s := l.active
	x, err := l.loadIndex(s, s.allocated)
	if err != nil || t.durable < x.covered {
		x, t.stale = l.newIndex(s.base), true
	}
	if m.clean && m.segment == s.base && m.position == s.allocated && x.covered == m.position {
		if x.next != m.next {
			return l.damage(s.path, m.position, m.next, &sequenceError{fmt.Sprintf("the mark ends at offset %d, the index at %d", m.next, x.next)})
		}
		s.index, s.size, s.end = x, x.covered, x.next
		l.recovery.Clean = true
		if l.loose() && !m.loose {
			return l.note(true, true) // from now on the tail is loose
		}
		return nil
	}
	from := x.covered
	limit := s.allocated
	if l.format != record.V2 && !m.loose {
		limit = min(limit, t.durable) // what lies above was never acknowledged and cannot be checked
	}
	if l.format != record.V2 && m.loose {
		if limit, err = l.written(s, t, limit); err != nil {
			return err
		}
	}
	end, tornErr := l.extendIndex(s, x, limit)
	l.recovery.ScannedBytes = end - from
	if end == t.durable && l.compacted.Load() {
		x.next = max(x.next, t.next) // a truncation ended in a gap that compaction had left
	}
	if tornErr != nil && !isDamage(tornErr) {
		return tornErr // the disk failed: nothing is known
	}
	if err := l.checkDurable(s, x, t, end, tornErr); err != nil {
		return err
	}
	if err := l.repairTail(s, x, t, end, tornErr); err != nil {
		if isDamage(err) {
			return err
		}
		// The disk does not take what recovery has to write; it may be full. What was
		// acknowledged can be read all the same.
		s.index, s.size, s.end = x, t.durable, t.next
		l.poison(err)
	}
	return nil
}

// repairTail cuts what is torn and makes the rest durable.
func (l *Log) repairTail(s *segment, x *index, t tail, end int64, tornErr error) error {
	if tornErr == nil && end < s.allocated {
		tornErr = &CorruptionError{File: s.path, Position: end, Offset: x.next, Remedy: remedyReplica,
			Reason: "frames without a checksum above the mark"}
	}
	if tornErr != nil {
		if err := l.cutTail(s, x, end, tornErr); err != nil {
			return err
		}
	}
	s.index, s.size, s.end = x, end, x.next
	return l.settle(s, t)
}

// touch makes a segment durable from a position on, whatever happened to it before. A
// sync alone would not: after one that failed, Linux counts the pages as clean, and a
// later sync has nothing to write, though the bytes are only in memory. So they are
// written once more.
func touch(s *segment, from int64) error {
	buf := make([]byte, min(scanWindow, max(s.size-from, 0)))
	for at := from; at < s.size; {
		n, err := s.file.ReadAt(buf[:min(int64(len(buf)), s.size-at)], at)
		if n == 0 {
			return err
		}
		if _, err := s.file.WriteAt(buf[:n], at); err != nil {
			return err
		}
		at += int64(n)
	}
	if s.allocated == s.size {
		if err := s.file.Truncate(s.size); err != nil { // its size likewise; and this cuts a torn tail
			return err
		}
	}
	return s.file.Sync()
}

// dropIndex removes a segment's index file, durably.
func (l *Log) dropIndex(s *segment) error {
	err := l.fs.Remove(s.indexPath())
	if isNotExist(err) {
		return nil
	}
	if err == nil {
		err = l.fs.SyncDir(l.dir)
	}
	if err != nil {
		return fmt.Errorf("commitlog: removing a stale index: %w", err)
	}
	return nil
}

func isDamage(err error) bool {
	_, ok := errors.AsType[*CorruptionError](err)
	return ok
}

// checkDurable makes sure that the scan reached the mark, and met it at a frame's edge.
func (l *Log) checkDurable(s *segment, x *index, t tail, end int64, tornErr error) error {
	if end < t.durable {
		if tornErr != nil {
			return tornErr
		}
		return &CorruptionError{File: s.path, Position: end, Offset: x.next, Remedy: remedyReplica,
			Reason: fmt.Sprintf("the file ends at byte %d, %d bytes up to offset %d were synced", end, t.durable, t.next)}
	}
	var sc scanner
	sc.reset(s.file, l.format, x.findPosition(t.durable), end)
	offset := int64(-1)
	for sc.pos < t.durable {
		f, err := sc.next()
		if err != nil {
			return l.damage(s.path, sc.pos, t.next, err)
		}
		offset = f.NextOffset()
	}
	inGap := l.compacted.Load() && offset < t.next
	if sc.pos != t.durable || offset >= 0 && offset != t.next && !inGap {
		return &CorruptionError{File: s.path, Position: t.durable, Offset: t.next, Remedy: remedyReplica,
			Reason: fmt.Sprintf("the mark (byte %d, offset %d) is not at the edge of a frame", t.durable, t.next)}
	}
	return nil
}

// cutTail handles bytes above the mark that are no frame. Zeros are space that was
// preallocated; anything else is the rest of a write that never finished.
func (l *Log) cutTail(s *segment, x *index, end int64, cause error) error {
	last, err := lastNonZero(s.file, end, s.allocated)
	if err != nil {
		return l.damage(s.path, end, x.next, err)
	}
	if last == end {
		return nil
	}
	if l.opt.Recovery == Strict {
		ce, _ := errors.AsType[*CorruptionError](cause)
		return &CorruptionError{File: s.path, Position: end, Offset: x.next, Remedy: remedyTail,
			Reason: fmt.Sprintf("%d bytes after the last whole frame are a torn tail: %s", last-end, ce.Reason), Err: ce.Err}
	}
	batches, first, err := l.intactBatches(s, end, last, x.next)
	if err != nil {
		return err
	}
	if batches > 0 {
		if torn, err := mayBeTorn(s.file, end, first); err != nil {
			return l.damage(s.path, end, x.next, err)
		} else if !torn {
			return &CorruptionError{File: s.path, Position: end, Offset: x.next, Remedy: remedyReplica, Err: cause,
				Reason: fmt.Sprintf("no crash leaves such bytes, since every sector of them was written; %d intact batches come after", batches)}
		}
	}
	r := &l.recovery
	r.CutFile, r.CutAt, r.CutBytes, r.CutBatches = s.path, end, last-end, batches
	s.allocated = end // settle cuts the file to that
	l.opt.Logger.Warn("cut a torn tail: its bytes were never acknowledged",
		"file", s.path, "at", end, "bytes", r.CutBytes, "intact batches in it", r.CutBatches, "next offset", x.next, "cause", cause)
	return nil
}

// intactBatches counts the whole batches of format 2 in a torn tail, wherever they
// start: the later blocks of a write may reach the disk before the first. It returns the
// position of the first of them too.
func (l *Log) intactBatches(s *segment, from, to, expected int64) (count int, first int64, err error) {
	const most = 8 << 20 // a longer tail is searched only so far: the count is for a person
	if l.format != record.V2 {
		return 0, 0, nil
	}
	buf := make([]byte, min(to-from, most))
	if n, err := s.file.ReadAt(buf, from); err != nil && err != io.EOF {
		return 0, 0, fmt.Errorf("commitlog: reading a torn tail: %w", err)
	} else {
		buf = buf[:n]
	}
	budget := 4 * len(buf)
	for at := 0; at < len(buf) && budget > 0; {
		size, err := l.format.FrameSize(buf[at:])
		if err != nil || size > len(buf)-at {
			at++
			continue
		}
		budget -= size // each candidate costs a checksum: bounded in all
		if f, err := l.format.Parse(buf[at:]); err == nil && f.BaseOffset >= expected {
			if count++; count == 1 {
				first = from + int64(at)
			}
			at += size
			continue
		}
		at++
	}
	return count, first, nil
}

// settle makes what recovery found durable: a process that was killed, or whose disk
// failed, leaves frames in the page cache and names in the directory that a power
// failure would still take, and readers are about to be shown what they hold.
func (l *Log) settle(s *segment, t tail) error {
	if t.stale {
		// An index that describes bytes which were cut would be believed again once others
		// have taken their place: it must be gone for good before they do.
		if err := l.dropIndex(s); err != nil {
			return err
		}
	}
	for _, open := range l.segments[t.unlisted:] {
		from := int64(0)
		if open.base == t.marked {
			from = t.position
		}
		if err := touch(open, from); err != nil {
			return fmt.Errorf("commitlog: making the recovered log durable: %w", err)
		}
	}
	if err := l.syncNames(); err != nil {
		return fmt.Errorf("commitlog: syncing the recovered log's directory: %w", err)
	}
	if t.relist {
		if err := l.writeCheckpoint(nil); err != nil {
			return fmt.Errorf("commitlog: saving the checkpoint: %w", err)
		}
	}
	if err := l.note(false, true); err != nil {
		return fmt.Errorf("commitlog: saving the mark: %w", err)
	}
	return nil
}
