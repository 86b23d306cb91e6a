package commitlog

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"path/filepath"
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
		to := *c.Truncate
		if m, err = l.finishTruncation(&c); err != nil && !isDamage(err) {
			return l.openUnfinished(&c, to, err)
		}
		if err != nil {
			return err
		}
	}
	if c.Reset != nil {
		if m, err = l.finishReset(&c); err != nil {
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
	if err := l.openEpochs(); err != nil {
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
			if name != lockName && !strings.HasSuffix(name, vfs.TempSuffix) && !putAside(name) {
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
		case name == lockName, name == metaName, name == markName, name == first, strings.HasSuffix(name, vfs.TempSuffix), putAside(name):
		default:
			return &CorruptionError{File: l.path(checkpointName), Position: -1, Offset: -1, Reason: "it is missing, and " + name + " shows that the log is not new", Remedy: remedyReplica}
		}
	}
	if slices.Contains(names, markName) {
		if err := l.provesNothing(); err != nil {
			return err
		}
	}
	l.epochs.Store(&[]EpochStart{})
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
	if err := l.syncNames(); err != nil {
		return wrapCreate(err)
	}
	l.recovery.Clean = true
	return wrapCreate(l.writeCheckpoint(nil))
}

// syncNames makes the names in the log's directory durable, and the directory's own:
// whoever made it may have been killed before it was.
func (l *Log) syncNames() error {
	parent := filepath.Dir(l.dir)
	if err := l.fs.MkdirAll(parent); err != nil {
		return err
	}
	if err := l.fs.SyncDir(parent); err != nil {
		return err
	}
	return l.fs.SyncDir(l.dir)
}

// provesNothing makes sure that a mark without a checkpoint is the leaving of a log that
// never took an append. The first note is number 1, and every later one was made by a log
// that was open.
func (l *Log) provesNothing() error {
	m, _, err := readMark(l.fs, l.path(markName))
	if err != nil || m.seq <= 1 && m.next == 0 {
		return nil // torn while the log was made: an intact one has two intact slots
	}
	return &CorruptionError{File: l.path(checkpointName), Position: -1, Offset: m.next, Remedy: remedyReplica,
		Reason: fmt.Sprintf("it is missing, and the mark says that records below offset %d were acknowledged", m.next)}
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

	unlisted int   // index of the first segment that the checkpoint does not list
	marked   int64 // base offset of the segment that the mark is in, and
	position int64 // its position there
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

// openUnlisted opens the segments after the ones that the checkpoint lists: the active
// one, and before it those that were closed just before a crash.
func (l *Log) openUnlisted(bases []int64, end int64, m mark) (tail, error) {
	t := tail{next: bases[0], relist: len(bases) > 1, unlisted: len(l.segments), marked: m.segment, position: m.position}
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
