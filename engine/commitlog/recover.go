package commitlog

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"logbook/engine/record"
	"logbook/engine/vfs"
)

const (
	metaName       = "log.meta"
	lockName       = "lock"
	checkpointName = "checkpoint"
	markName       = "mark"
)

// Recovery reports what Open found and did.
type Recovery struct {
	Clean        bool   // the log was closed cleanly: nothing was scanned
	ScannedBytes int64  // bytes of frames read to find the log end
	CutFile      string // the log file whose tail was cut, if one was
	CutAt        int64  // the position at which it was cut
	CutBytes     int64  // bytes that stood there, up to the last that was not zero
	CutBatches   int    // format 2: intact batches among them, none of them acknowledged
	MarkDamage   string // what is wrong with the mark's other slot, if anything
	Leftovers    int    // files of a crashed roll, retention or truncation that were removed
}

// Recovery returns what Open found and did.
func (l *Log) Recovery() Recovery { return l.recovery }

// open takes the lock and reads the log's state. On failure the caller releases what was taken.
func (l *Log) open() error {
	if err := l.openDir(); err != nil {
		return err
	}
	var c checkpoint
	err := readSealed(l.fs, l.path(checkpointName), &c)
	if errors.Is(err, fs.ErrNotExist) {
		return l.create()
	}
	if err != nil {
		return err
	}
	if err := c.validate(); err != nil {
		return &CorruptionError{File: l.path(checkpointName), Position: -1, Offset: -1, Reason: "its contents contradict each other", Remedy: remedyReplica, Err: err}
	}
	l.start = c.Start
	l.epochs.Store(&c.Epochs)
	l.compacted.Store(c.Compacted)
	m, err := l.openMark()
	if err != nil {
		return err
	}
	if c.Truncate != nil {
		if m, err = l.finishTruncation(&c); err != nil {
			return err
		}
	}
	tail, err := l.openSegments(&c, m)
	if err != nil {
		return err
	}
	if err := l.openTail(tail, m); err != nil {
		return err
	}
	if l.opt.Verify {
		return l.verify(l.segments, l.active.size)
	}
	return nil
}

// openDir makes sure that the directory is a log, or makes it one, and locks it.
func (l *Log) openDir() error {
	names, err := l.fs.ReadDir(l.dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := l.fs.MkdirAll(l.dir); err != nil {
			return fmt.Errorf("commitlog: making the log's directory: %w", err)
		}
	case err != nil:
		return &NotALogError{Dir: l.dir, Reason: err.Error()}
	}
	var m meta
	err = readSealed(l.fs, l.path(metaName), &m)
	isNew := errors.Is(err, fs.ErrNotExist)
	if isNew {
		for _, name := range names {
			if name != lockName && !strings.HasSuffix(name, vfs.TempSuffix) {
				return &NotALogError{Dir: l.dir, Reason: fmt.Sprintf("it holds %s and no %s", name, metaName)}
			}
		}
		m = meta{Version: 1, Format: 2, ID: l.makeID()}
		if l.opt.Format != nil {
			m.Format = l.opt.Format.Version()
		}
	} else if err != nil {
		return err
	}
	if m.Version != 1 {
		return &NotALogError{Dir: l.dir, Reason: fmt.Sprintf("its %s has version %d, this program reads 1", metaName, m.Version)}
	}
	if l.format, err = record.ByVersion(m.Format); err != nil {
		return &NotALogError{Dir: l.dir, Reason: err.Error()}
	}
	if l.id, err = strconv.ParseUint(m.ID, 16, 64); err != nil {
		return &NotALogError{Dir: l.dir, Reason: fmt.Sprintf("its %s has the id %q", metaName, m.ID)}
	}
	if l.opt.Format != nil && l.opt.Format != l.format {
		return &FormatMismatchError{Dir: l.dir, Stored: int(m.Format), Wanted: int(l.opt.Format.Version())}
	}
	if err := l.takeLock(names); err != nil {
		return err
	}
	if isNew {
		if err := writeSealed(l.fs, l.path(metaName), m); err != nil {
			return fmt.Errorf("commitlog: making a log: %w", err)
		}
	}
	return nil
}

// makeID names a new log: nothing depends on it being unguessable, only on two logs
// hardly ever having the same.
func (l *Log) makeID() string {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s %d", l.dir, l.opt.Now().UnixNano())
	return fmt.Sprintf("%016x", h.Sum64())
}

func (l *Log) takeLock(names []string) error {
	if !slices.Contains(names, lockName) {
		f, err := l.fs.Create(l.path(lockName))
		if err == nil {
			err = f.Close()
		}
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("commitlog: making the lock file: %w", err)
		}
	}
	lock, err := l.fs.Lock(l.path(lockName))
	if errors.Is(err, vfs.ErrLocked) {
		return &LockedError{Dir: l.dir, Err: err}
	}
	if err != nil {
		return fmt.Errorf("commitlog: locking: %w", err)
	}
	l.lock = lock
	return nil
}

// create lays out a new log. The checkpoint comes last: as long as there is none, no
// append can have been acknowledged and a crash leaves nothing worth keeping.
func (l *Log) create() error {
	names, err := l.fs.ReadDir(l.dir)
	if err != nil {
		return err
	}
	first := SegmentName(0) + logSuffix
	for _, name := range names {
		switch {
		case name == lockName, name == metaName, name == markName, name == first, strings.HasSuffix(name, vfs.TempSuffix):
		default:
			return &CorruptionError{File: l.path(checkpointName), Position: -1, Offset: -1, Reason: "it is missing, and " + name + " shows that the log is not new", Remedy: remedyReplica}
		}
	}
	l.epochs.Store(&[]epochStart{})
	s, err := l.createSegment(0)
	if err != nil {
		return wrapCreate(err)
	}
	l.segments, l.active = []*segment{s}, s
	if slices.Contains(names, markName) {
		if err := l.fs.Remove(l.path(markName)); err != nil {
			return wrapCreate(err)
		}
	}
	if l.mark, err = createMarkFile(l.fs, l.path(markName), mark{loose: l.loose()}); err != nil {
		return wrapCreate(err)
	}
	if err := l.fs.SyncDir(l.dir); err != nil {
		return wrapCreate(err)
	}
	l.recovery.Clean = true
	return wrapCreate(l.writeCheckpoint(nil))
}

func wrapCreate(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("commitlog: making a log: %w", err)
}

func (l *Log) openMark() (mark, error) {
	name := l.path(markName)
	m, damage, err := readMark(l.fs, name)
	if err != nil {
		return m, &CorruptionError{File: name, Position: -1, Offset: -1, Reason: "the durable mark cannot be read, so a lost tail would go unseen", Remedy: remedyReplica, Err: err}
	}
	if damage != nil {
		l.recovery.MarkDamage = damage.Error()
		l.opt.Logger.Warn("one slot of the mark is damaged: torn by a crash, or changed", "file", name, "error", damage)
	}
	f, err := l.fs.Open(name)
	if err != nil {
		return m, fmt.Errorf("commitlog: opening the mark: %w", err)
	}
	l.mark = &markFile{file: f, last: m}
	return m, nil
}

// tail is what openSegments leaves to openTail: the last log file, and how much of it is
// known to be durable.
type tail struct {
	durable int64 // bytes
	next    int64 // offset at that position
	relist  bool  // closed segments are missing in the checkpoint
	stale   bool  // the index file is not to be believed
}

// openSegments opens every log file and checks that they cover the offsets from the
// log start to the mark without a gap.
func (l *Log) openSegments(c *checkpoint, m mark) (tail, error) {
	bases, err := l.listSegments()
	if err != nil {
		return tail{}, err
	}
	end := c.First
	if n := len(c.Segments); n > 0 {
		end = c.Segments[n-1].End
	}
	if bases, err = l.dropLeftovers(bases, c.First); err != nil {
		return tail{}, err
	}
	for _, s := range c.Segments {
		i := slices.Index(bases, s.Base)
		if i < 0 {
			return tail{}, l.missing(s.Base, "the checkpoint lists it")
		}
		bases = slices.Delete(bases, i, i+1)
		seg, err := l.openSegment(s.Base)
		if err != nil {
			return tail{}, err
		}
		if s.Compacted != nil && seg.allocated == *s.Compacted {
			s.Bytes = seg.allocated // the crash came after the rename
		}
		if seg.allocated != s.Bytes {
			return tail{}, &CorruptionError{File: seg.path, Position: min(seg.allocated, s.Bytes), Offset: -1, Remedy: remedyReplica,
				Reason: fmt.Sprintf("the closed segment has %d bytes, %d were written", seg.allocated, s.Bytes)}
		}
		seg.size, seg.end = s.Bytes, s.End
	}
	if len(bases) == 0 {
		return tail{}, l.missing(max(end, m.segment), "no active segment is there")
	}
	return l.openUnlisted(bases, end, m)
}

// openUnlisted opens the segments behind the ones that the checkpoint lists: the active
// one, and before it those that were closed just before a crash.
func (l *Log) openUnlisted(bases []int64, end int64, m mark) (tail, error) {
	t := tail{next: bases[0], relist: len(bases) > 1}
	if bases[0] != end {
		if bases[0] < end {
			return t, &CorruptionError{File: segmentPath(l.dir, bases[0]), Position: -1, Offset: -1, Remedy: remedyReplica,
				Reason: fmt.Sprintf("the segment overlaps the one that ends at offset %d", end)}
		}
		return t, l.missing(end, fmt.Sprintf("the next one starts at %d", bases[0]))
	}
	if last := bases[len(bases)-1]; m.segment > last {
		return t, l.missing(m.segment, "the mark names it")
	}
	for i, base := range bases {
		seg, err := l.openSegment(base)
		if err != nil {
			return t, err
		}
		if i == len(bases)-1 {
			t.next = base
			if m.segment == base {
				t.durable, t.next = m.position, m.next
			}
			break
		}
		// A segment is synced and cut to its size before the next one is made: this one
		// must hold whole frames up to the next one's base and nothing else.
		seg.index = l.newIndex(base)
		if _, err := l.extendIndex(seg, seg.index, seg.allocated); err != nil {
			return t, err
		}
		if seg.index.next != bases[i+1] {
			return t, l.missing(seg.index.next, fmt.Sprintf("the next one starts at %d", bases[i+1]))
		}
		seg.size, seg.end = seg.allocated, seg.index.next
	}
	l.active = l.segments[len(l.segments)-1]
	return t, nil
}

func (l *Log) missing(base int64, why string) error {
	return &CorruptionError{File: segmentPath(l.dir, base), Position: -1, Offset: base, Remedy: remedyReplica,
		Reason: "the segment is missing: " + why, Err: fs.ErrNotExist}
}

func (l *Log) openSegment(base int64) (*segment, error) {
	s := &segment{base: base, end: base, path: segmentPath(l.dir, base)}
	f, err := l.fs.Open(s.path)
	if err != nil {
		return nil, fmt.Errorf("commitlog: opening a segment: %w", err)
	}
	s.file = f
	l.segments = append(l.segments, s)
	s.allocated, err = f.Size()
	return s, err
}

// listSegments returns the base offsets of all log files, in order.
func (l *Log) listSegments() ([]int64, error) {
	names, err := l.fs.ReadDir(l.dir)
	if err != nil {
		return nil, err
	}
	var bases []int64
	for _, name := range names {
		number, ok := strings.CutSuffix(name, logSuffix)
		if !ok {
			continue
		}
		base, err := strconv.ParseInt(number, 10, 64)
		if err != nil || SegmentName(base) != number {
			return nil, &CorruptionError{File: l.path(name), Position: -1, Offset: -1,
				Reason: "it is not named like a segment (twenty digits)", Remedy: "move it out of the log's directory"}
		}
		bases = append(bases, base)
	}
	return bases, nil
}

// dropLeftovers removes log files below the first segment: retention updates the
// checkpoint first and then removes them, and was stopped in between.
func (l *Log) dropLeftovers(bases []int64, first int64) ([]int64, error) {
	for len(bases) > 0 && bases[0] < first {
		l.recovery.Leftovers++
		if l.opt.Recovery != Strict {
			if err := removeSegment(l.fs, segmentPath(l.dir, bases[0])); err != nil {
				return nil, fmt.Errorf("commitlog: removing a leftover of retention: %w", err)
			}
		}
		bases = bases[1:]
	}
	return bases, nil
}

func removeSegment(fsys vfs.FS, path string) error {
	s := segment{path: path}
	if err := fsys.Remove(s.indexPath()); err != nil && !isNotExist(err) {
		return err
	}
	return fsys.Remove(path)
}

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
	end, tornErr := l.extendIndex(s, x, limit)
	l.recovery.ScannedBytes = end - from
	if tornErr != nil && !isDamage(tornErr) {
		return tornErr // the disk failed: nothing is known
	}
	if err := l.checkDurable(s, x, t, end, tornErr); err != nil {
		return err
	}
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
	if sc.pos != t.durable || offset >= 0 && offset != t.next {
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
			Reason: fmt.Sprintf("%d bytes behind the last whole frame are a torn tail: %s", last-end, ce.Reason), Err: ce.Err}
	}
	r := &l.recovery
	r.CutFile, r.CutAt, r.CutBytes = s.path, end, last-end
	if r.CutBatches, err = l.intactBatches(s, end, last, x.next); err != nil {
		return err
	}
	if err := s.file.Truncate(end); err != nil {
		return fmt.Errorf("commitlog: cutting a torn tail: %w", err)
	}
	s.allocated = end
	l.opt.Logger.Warn("cut a torn tail: its bytes were never acknowledged",
		"file", s.path, "at", end, "bytes", r.CutBytes, "intact batches in it", r.CutBatches, "next offset", x.next, "cause", cause)
	return nil
}

// intactBatches counts the whole batches of format 2 in a torn tail, wherever they
// start: the later blocks of a write may reach the disk before the first.
func (l *Log) intactBatches(s *segment, from, to, expected int64) (int, error) {
	const most = 8 << 20 // a longer tail is searched only so far: the count is for a person
	if l.format != record.V2 {
		return 0, nil
	}
	buf := make([]byte, min(to-from, most))
	if n, err := s.file.ReadAt(buf, from); err != nil && err != io.EOF {
		return 0, fmt.Errorf("commitlog: reading a torn tail: %w", err)
	} else {
		buf = buf[:n]
	}
	count, budget := 0, 4*len(buf)
	for at := 0; at < len(buf) && budget > 0; {
		size, err := l.format.FrameSize(buf[at:])
		if err != nil || size > len(buf)-at {
			at++
			continue
		}
		budget -= size // each candidate costs a checksum: bounded in all
		if f, err := l.format.Parse(buf[at:]); err == nil && f.BaseOffset >= expected {
			count++
			at += size
			continue
		}
		at++
	}
	return count, nil
}

// settle makes what recovery found durable: a process that was killed leaves frames in
// the page cache, which readers are about to be shown as acknowledged.
func (l *Log) settle(s *segment, t tail) error {
	if t.stale {
		// An index that describes bytes which were cut would be believed again once others
		// have taken their place: it must be gone for good before they do.
		if err := l.dropIndex(s); err != nil {
			return err
		}
	}
	if err := s.file.Sync(); err != nil {
		return fmt.Errorf("commitlog: syncing the recovered log: %w", err)
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
