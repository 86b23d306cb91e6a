package commitlog

import (
	"errors"
	"io"
	"io/fs"
	"strconv"
	"time"

	"logbook/engine/record"
	"logbook/engine/vfs"
)

// Inspection is what Inspect found in a log's directory.
type Inspection struct {
	Dir        string
	Format     record.Format
	Start      int64 // log start offset
	End        int64 // offset after the last readable frame
	Clean      bool  // closed cleanly
	MarkAt     int64 // position in segment MarkOf up to which the log is known to be durable
	MarkOf     int64 // base offset of that segment
	MarkNext   int64 // offset there
	Segments   []SegmentInfo
	MarkDamage string
}

// SegmentInfo describes one segment file.
type SegmentInfo struct {
	Base, Next    int64 // offsets [Base, Next)
	File          string
	Bytes         int64 // size of the file
	Used          int64 // bytes of whole frames from its start on
	Frames        int
	Records       int
	Oldest        time.Time // timestamps of its records
	Newest        time.Time
	IndexEntries  int    // 0: the index file is missing or not to be believed
	IndexProblem  string // why not
	Damage        error  // what stands after the whole frames, if it is neither the end nor zeros
	UnusedZeros   int64  // preallocated bytes after the frames
	Closed, Known bool   // closed: later segments follow; known: the checkpoint lists it
}

// Inspect reads a log's files without locking, recovering or changing anything, so it
// also works on a damaged log and beside a running broker (whose last append it may
// then see half-written). It fails only where the directory is no log at all; damage to
// segments is in the result.
func Inspect(fsys vfs.FS, dir string) (*Inspection, error) {
	if fsys == nil {
		fsys = vfs.OS
	}
	l := &Log{dir: dir, fs: fsys}
	var err error
	if l.opt, err = (Options{FS: fsys}).withDefaults(); err != nil {
		return nil, err
	}
	var m meta
	if err := readSealed(fsys, l.path(metaName), &m); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = &NotALogError{Dir: dir, Reason: "it holds no " + metaName}
		}
		return nil, err
	}
	if l.format, err = record.ByVersion(m.Format); err != nil {
		return nil, &NotALogError{Dir: dir, Reason: err.Error()}
	}
	l.id, _ = strconv.ParseUint(m.ID, 16, 64)
	out := &Inspection{Dir: dir, Format: l.format}
	var c checkpoint
	if err := readSealed(fsys, l.path(checkpointName), &c); err != nil {
		return nil, err
	}
	l.epochs.Store(&c.Epochs)
	l.compacted.Store(c.Compacted)
	out.Start = c.Start
	mk, damage, err := readMark(fsys, l.path(markName))
	if err != nil {
		out.MarkDamage = err.Error()
	} else if damage != nil {
		out.MarkDamage = damage.Error()
	}
	out.Clean, out.MarkOf, out.MarkAt, out.MarkNext = mk.clean, mk.segment, mk.position, mk.next
	bases, err := l.listSegments()
	if err != nil {
		return nil, err
	}
	for i, base := range bases {
		info, err := l.inspectSegment(base)
		if err != nil {
			return nil, err
		}
		info.Closed = i < len(bases)-1
		for _, s := range c.Segments {
			info.Known = info.Known || s.Base == base
		}
		out.Segments = append(out.Segments, info)
		out.End = info.Next
	}
	return out, nil
}

func (l *Log) inspectSegment(base int64) (SegmentInfo, error) {
	s := &segment{base: base, path: segmentPath(l.dir, base)}
	info := SegmentInfo{Base: base, Next: base, File: s.path}
	f, err := l.fs.OpenRead(s.path)
	if err != nil {
		return info, err
	}
	defer f.Close()
	if info.Bytes, err = f.Size(); err != nil {
		return info, err
	}
	if x, err := l.loadIndex(s, info.Bytes); err != nil {
		info.IndexProblem = err.Error()
	} else {
		info.IndexEntries = len(x.entries)
	}
	var sc scanner
	sc.reset(f, l.format, 0, info.Bytes)
	for {
		info.Used = sc.pos
		frame, err := sc.next()
		if err == nil {
			err = l.checkFrame(&frame, info.Next)
		}
		if err == io.EOF {
			return info, nil
		}
		if err != nil {
			last, zerr := lastNonZero(f, info.Used, info.Bytes)
			if zerr != nil {
				return info, zerr
			}
			if info.UnusedZeros = info.Bytes - last; last > info.Used {
				info.Damage = l.damage(s.path, info.Used, info.Next, err)
			}
			return info, nil
		}
		if info.Frames == 0 || frame.BaseTimestamp.Before(info.Oldest) {
			info.Oldest = frame.BaseTimestamp
		}
		if info.Frames == 0 || frame.MaxTimestamp.After(info.Newest) {
			info.Newest = frame.MaxTimestamp
		}
		info.Frames++
		info.Records += frame.Count
		info.Next = frame.NextOffset()
	}
}

// FrameAt is a frame and where it stands in its file.
type FrameAt struct {
	Position int64
	Frame    record.Frame
}

// InspectFrames calls visit with each whole frame of a segment file, in order, until
// visit returns false. The frame's bytes are borrowed until visit returns. What ends
// the frames early is the error: a *CorruptionError, or nil at the end or before zeros.
func InspectFrames(fsys vfs.FS, info SegmentInfo, format record.Format, visit func(FrameAt) bool) error {
	if fsys == nil {
		fsys = vfs.OS
	}
	f, err := fsys.OpenRead(info.File)
	if err != nil {
		return err
	}
	defer f.Close()
	var sc scanner
	sc.reset(f, format, 0, info.Used)
	for {
		at := sc.pos
		frame, err := sc.next()
		if err == io.EOF {
			return info.Damage
		}
		if err != nil {
			return (&Log{}).damage(info.File, at, -1, err)
		}
		if !visit(FrameAt{Position: at, Frame: frame}) {
			return nil
		}
	}
}
