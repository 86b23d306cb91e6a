package commitlog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"sync"

	"logbook/engine/record"
	"logbook/engine/vfs"
)

// segment is one log file and its index. The fields size, end and allocated belong to
// whoever holds the log's round lock; a closed segment's do not change any more.
type segment struct {
	base      int64
	path      string // of the log file
	file      vfs.File
	size      int64 // bytes of frames
	end       int64 // offset after the last one
	allocated int64 // bytes the file has, zeros after size

	mu    sync.RWMutex
	index *index // nil until somebody needs a closed segment's
}

const (
	logSuffix   = ".log"
	indexSuffix = ".index"
)

// SegmentName is the file name of the segment that starts at an offset, without suffix.
func SegmentName(base int64) string { return fmt.Sprintf("%020d", base) }

func segmentPath(dir string, base int64) string {
	return filepath.Join(dir, SegmentName(base)+logSuffix)
}

func (s *segment) indexPath() string {
	return s.path[:len(s.path)-len(logSuffix)] + indexSuffix
}

// createSegment makes an empty log file whose name is durable when it returns. A file
// of that name that holds nothing but zeros is the leaving of a crash and is replaced.
func (l *Log) createSegment(base int64) (*segment, error) {
	s := &segment{base: base, end: base, path: segmentPath(l.dir, base), index: l.newIndex(base)}
	f, err := l.fs.Create(s.path)
	if errors.Is(err, fs.ErrExist) {
		if f, err = reuseEmpty(l.fs, s.path); err != nil {
			return nil, err
		}
	}
	if err != nil {
		return nil, err
	}
	s.file = f
	if err := l.fs.SyncDir(l.dir); err != nil {
		f.Close()
		return nil, err
	}
	return s, nil
}

func (l *Log) newIndex(base int64) *index { return newIndex(l.id, base, l.opt.IndexBytes, l.opt.Now) }

func (l *Log) loadIndex(s *segment, size int64) (*index, error) {
	return loadIndex(l.fs, s.indexPath(), l.id, s.base, size, l.opt.IndexBytes, l.opt.Now)
}

func reuseEmpty(fsys vfs.FS, path string) (vfs.File, error) {
	f, err := fsys.Open(path)
	if err != nil {
		return nil, err
	}
	size, err := f.Size()
	if err == nil {
		var used int64
		if used, err = lastNonZero(f, 0, size); err == nil && used > 0 {
			err = &CorruptionError{File: path, Position: 0, Offset: -1, Reason: "the file holds data where a new segment belongs", Remedy: remedyReplica}
		}
	}
	if err == nil {
		err = f.Truncate(0)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// write appends frames that stand in data to the segment and tells the index of them.
func (s *segment) write(data []byte, frames []frameRef, preallocate int64) error {
	if need := s.size + int64(len(data)); need > s.allocated {
		// Appends into a file that already has its size need not log a new size with
		// every sync, which makes a sync a third cheaper. The zeros after the data are
		// a hole: they take no space.
		if err := s.file.Truncate(max(need, preallocate)); err != nil {
			return err
		}
		s.allocated = max(need, preallocate)
	}
	if _, err := s.file.WriteAt(data, s.size); err != nil {
		return err
	}
	s.size += int64(len(data))
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range frames {
		s.index.add(r.base, r.next, r.size, r.timestamp)
	}
	s.end = s.index.next
	return nil
}

// seal ends appending: the file is cut to its frames and synced, its index saved.
func (s *segment) seal(fsys vfs.FS) error {
	if s.allocated != s.size {
		if err := s.file.Truncate(s.size); err != nil {
			return err
		}
		s.allocated = s.size
	}
	if err := s.file.Sync(); err != nil {
		return err
	}
	return saveIndex(fsys, s.indexPath(), s.index)
}

// withIndex calls use with the segment's index, which it loads or rebuilds first if
// need be. size is how much of the log file is readable.
func (s *segment) withIndex(l *Log, size int64, use func(*index)) error {
	s.mu.RLock()
	if s.index != nil {
		use(s.index)
		s.mu.RUnlock()
		return nil
	}
	s.mu.RUnlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.index == nil {
		x, err := l.loadIndex(s, size)
		if err != nil || x.covered != size {
			l.opt.Logger.Info("rebuilding index", "segment", s.path, "reason", err)
			x = l.newIndex(s.base)
			if _, err := l.extendIndex(s, x, size); err != nil {
				return err
			}
			if err := saveIndex(l.fs, s.indexPath(), x); err != nil {
				l.opt.Logger.Warn("cannot save index", "segment", s.path, "error", err) // it is a cache
			}
		}
		s.index = x
	}
	use(s.index)
	return nil
}

// walk calls visit with each frame of a segment from a position to another, where next is
// the offset that is due first. It checks that each follows the one before. It returns the
// position and the offset at which it stopped, and as error the damage that stopped it,
// which may be visit's word.
func (l *Log) walk(s *segment, from, to, next int64, visit func(record.Frame) error) (at, due int64, err error) {
	var sc scanner
	sc.reset(s.file, l.format, from, to)
	for {
		at := sc.pos
		frame, err := sc.next()
		if err == io.EOF {
			return at, next, nil
		}
		if err == nil {
			err = l.checkFrame(&frame, next)
		}
		if err == nil {
			err = visit(frame)
		}
		if err != nil {
			return at, next, l.damage(s.path, at, next, err)
		}
		next = frame.NextOffset()
	}
}

// extendIndex scans the segment from where x ends to size and adds what it finds. It
// returns the position at which it stopped, and as error the damage that stopped it.
func (l *Log) extendIndex(s *segment, x *index, size int64) (int64, error) {
	at, _, err := l.walk(s, x.covered, size, x.next, func(f record.Frame) error {
		x.add(f.BaseOffset, f.NextOffset(), len(f.Bytes), record.Nanos(f.MaxTimestamp))
		return nil
	})
	return at, err
}

// damage turns what a scanner met into a CorruptionError, unless reading itself failed.
func (l *Log) damage(path string, at, offset int64, err error) error {
	var ce *CorruptionError
	if errors.As(err, &ce) {
		return err
	}
	reason := "bytes that are no frame"
	if _, ok := errors.AsType[*record.FrameError](err); !ok {
		if _, ok := errors.AsType[*sequenceError](err); ok {
			reason = "a frame that does not follow the one before"
		} else if errors.Is(err, io.ErrUnexpectedEOF) {
			reason = "the file is shorter than it was"
		} else {
			return fmt.Errorf("commitlog: reading %s at byte %d: %w", path, at, err)
		}
	}
	return &CorruptionError{File: path, Position: at, Offset: offset, Reason: reason, Remedy: remedyReplica, Err: err}
}

// sequenceError: a frame is whole but cannot stand where it stands.
type sequenceError struct{ what string }

func (e *sequenceError) Error() string { return e.what }

// checkFrame checks what a frame's own bytes cannot tell: that its offset follows the
// one before and its leader epoch is the one that the log was in.
//
// In format 2 every offset is covered by a batch, compacted or not. In formats 0 and 1
// compaction leaves gaps, so offsets only need to grow where it has run.
func (l *Log) checkFrame(f *record.Frame, expected int64) error {
	if f.BaseOffset != expected {
		if f.BaseOffset < expected || f.Version == 2 || !l.compacted.Load() {
			return &sequenceError{fmt.Sprintf("it has offset %d where %d is due", f.BaseOffset, expected)}
		}
	}
	if f.Version == 2 {
		if want := l.epochAt(f.BaseOffset); f.LeaderEpoch != want {
			return &sequenceError{fmt.Sprintf("it has leader epoch %d where the log was in %d", f.LeaderEpoch, want)}
		}
	}
	return nil
}

// lastNonZero returns the position after the last byte in [from, to) that is not zero, or
// from. What was never written, as most of a preallocated segment, is not read.
func lastNonZero(f vfs.File, from, to int64) (int64, error) {
	var buf []byte
	last := from
	for at := from; at < to; {
		written, err := f.NextData(at)
		if err != nil {
			return last, err
		}
		if at = max(at, written); at >= to {
			break
		}
		if buf == nil {
			buf = make([]byte, min(scanWindow, to-at))
		}
		n, err := f.ReadAt(buf[:min(int64(len(buf)), to-at)], at)
		if n == 0 && err != nil {
			if err == io.EOF {
				break
			}
			return last, err
		}
		if end := trimZeros(buf[:n]); end > 0 {
			last = at + int64(end)
		}
		at += int64(n)
	}
	return last, nil
}

// trimZeros returns the length of b without the zeros at its end. It compares with a
// block of zeros, since a preallocated segment's tail is many megabytes of them.
func trimZeros(b []byte) int {
	n := len(b)
	for n >= len(zeros) && string(b[n-len(zeros):n]) == zeros {
		n -= len(zeros)
	}
	for n > 0 && b[n-1] == 0 {
		n--
	}
	return n
}

var zeros = string(make([]byte, 1024))
