package commitlog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"slices"
	"sort"
	"sync"

	"logbook/engine/record"
)

// Reader reads frames in order, each whole and as stored. It allocates nothing per
// frame and reads ahead in large pieces. It is not safe for concurrent use; a log can
// have any number of them, and none holds up an append.
type Reader struct {
	log     *Log
	next    int64 // offset of the next record wanted
	segment *segment
	bound   int64 // the segment's offsets lie below
	cuts    int64 // view.cuts when the segment was located
	whole   bool  // a replica's: also the frame that holds the log start, from its base on
	scan    scanner
}

// NewReader returns a reader whose first frame holds the record at offset from. It may
// stand at the log end offset, where records will come.
//
// Error: *OffsetOutOfRangeError.
func (l *Log) NewReader(from int64) (*Reader, error) {
	v := l.view.Load()
	if from < v.start || from > v.end {
		return nil, &OffsetOutOfRangeError{Offset: from, Start: v.start, End: v.end}
	}
	return &Reader{log: l, next: from}, nil
}

// NextOffset is the offset after the last frame that Next returned.
func (r *Reader) NextOffset() int64 { return r.next }

// Next returns the next frame. Its bytes are the reader's and good until the next call.
// The first frame of format 2 may begin below the offset that was asked for.
//
// At the log end it returns io.EOF; when more has been appended, it goes on. Other
// errors: *OffsetOutOfRangeError when retention or truncation took the place where the
// reader stands, *CorruptionError, ErrClosed.
func (r *Reader) Next() (record.Frame, error) {
	for {
		v := r.log.view.Load()
		if r.next < r.lowest(v) {
			return record.Frame{}, r.outOfRange(v)
		}
		if v.cuts != r.cuts {
			r.segment = nil // what was read ahead may be of the part that was cut
		}
		if r.segment == nil || r.scan.pos >= r.scan.limit {
			if err := r.locate(); err != nil {
				return record.Frame{}, err
			}
		}
		at := r.scan.pos
		frame, err := r.scan.next()
		if err == io.EOF || err == nil && frame.NextOffset() <= r.next {
			continue // an empty segment, or before the one we were asked for
		}
		if err == nil && frame.BaseOffset > r.next && !r.log.compacted.Load() {
			err = &sequenceError{"it begins after the offset that is due"}
		}
		if err == nil && frame.NextOffset() > r.bound {
			err = &sequenceError{fmt.Sprintf("it reaches to offset %d, its segment only to %d", frame.LastOffset, r.bound-1)}
		}
		if err != nil {
			if r.replaced() {
				r.segment = nil // truncation or compaction took the file away: find the place again
				continue
			}
			return frame, r.explain(at, err)
		}
		r.next = frame.NextOffset()
		return frame, nil
	}
}

// replaced reports whether the reader's segment is no longer part of the log.
func (r *Reader) replaced() bool {
	return !slices.Contains(r.log.view.Load().segments, r.segment)
}

// lowest is the offset from which the reader can read.
func (r *Reader) lowest(v *view) int64 {
	if r.whole {
		return v.first
	}
	return v.start
}

func (r *Reader) outOfRange(v *view) error {
	r.segment = nil
	return &OffsetOutOfRangeError{Offset: r.next, Start: v.start, End: v.end}
}

// locate points the scanner at the frame that holds r.next, in the present view.
func (r *Reader) locate() error {
	v := r.log.view.Load()
	if r.next < r.lowest(v) || r.next > v.end {
		return r.outOfRange(v)
	}
	if r.next == v.end {
		return io.EOF
	}
	i := sort.Search(len(v.segments), func(i int) bool { return v.segments[i].base > r.next }) - 1
	s := v.segments[i]
	size, bound := v.size, v.end
	if i < len(v.segments)-1 {
		size, bound = s.size, v.segments[i+1].base
	}
	pos := int64(0)
	if s == r.segment {
		switch {
		case r.scan.pos < size:
			r.scan.limit, r.bound = size, bound // the segment grew: go on where we are
			return nil
		case r.log.compacted.Load():
			r.next, r.segment = bound, nil // compaction removed the last records of this one
			return r.locate()
		default:
			return r.explain(r.scan.pos, io.ErrUnexpectedEOF)
		}
	}
	if r.next > s.base {
		if err := s.withIndex(r.log, size, func(x *index) { pos = x.find(r.next) }); err != nil {
			return r.explain(0, err)
		}
	}
	r.segment, r.bound, r.cuts = s, bound, v.cuts
	r.scan.reset(s.file, r.log.format, pos, size)
	return nil
}

// explain turns a failed read into what it means: files are closed under a reader when
// the log is.
func (r *Reader) explain(at int64, err error) error {
	if errors.Is(err, fs.ErrClosed) {
		r.segment = nil
		return ErrClosed
	}
	if r.segment == nil {
		return err
	}
	return r.log.damage(r.segment.path, at, r.next, err)
}

// Read returns the record at an offset, or after it where compaction removed it, as a copy.
//
// Errors: *OffsetOutOfRangeError (also at the log end), *CorruptionError, ErrClosed.
func (l *Log) Read(offset int64) (record.Record, error) {
	v := l.view.Load()
	if offset < v.start || offset >= v.end {
		return record.Record{}, &OffsetOutOfRangeError{Offset: offset, Start: v.start, End: v.end}
	}
	p := pointReaders.Get().(*pointReader)
	defer pointReaders.Put(p)
	p.Reader = Reader{log: l, next: offset, scan: scanner{buf: p.scan.buf[:0], window: pointWindow}}
	for {
		frame, err := p.Next()
		if err == io.EOF {
			return record.Record{}, &OffsetOutOfRangeError{Offset: offset, Start: v.start, End: v.end}
		}
		if err != nil {
			return record.Record{}, err
		}
		for p.it.Reset(frame); p.it.Next(); {
			if rec := p.it.Record(); rec.Offset >= offset {
				return rec.Clone(), nil
			}
		}
		if err := p.it.Err(); err != nil {
			return record.Record{}, p.damaged(frame, err)
		}
	}
}

// pointReader is the reusable state of a Read.
type pointReader struct {
	Reader
	it record.Iterator
}

var pointReaders = sync.Pool{New: func() any { return new(pointReader) }}

// pointWindow is what a point read reads at a time: an index entry's distance and a frame.
const pointWindow = 6 << 10

// Records iterates over the records from an offset to the log end as it is when the
// iteration gets there. A record is borrowed until the next one; clone what you keep.
// An error ends the iteration; see Reader.Next for which there are.
func (l *Log) Records(from int64) iter.Seq2[record.Record, error] {
	return func(yield func(record.Record, error) bool) {
		r, err := l.NewReader(from)
		if err != nil {
			yield(record.Record{}, err)
			return
		}
		var it record.Iterator
		for {
			frame, err := r.Next()
			if err == io.EOF {
				return
			}
			if err != nil {
				yield(record.Record{}, err)
				return
			}
			for it.Reset(frame); it.Next(); {
				if rec := it.Record(); rec.Offset >= from && !yield(rec, nil) {
					return
				}
			}
			if err := it.Err(); err != nil {
				yield(record.Record{}, r.damaged(frame, err))
				return
			}
		}
	}
}

// damaged reports that the records in the frame that Next returned last are.
func (r *Reader) damaged(f record.Frame, err error) error {
	return r.log.damage(r.segment.path, r.scan.pos-int64(len(f.Bytes)), f.BaseOffset, err)
}

// OffsetForTime returns the offset of the first record whose timestamp is at or after
// nanos (ns since 1970), and the log end offset when there is none.
func (l *Log) OffsetForTime(nanos int64) (int64, error) {
	v := l.view.Load()
	for i, s := range v.segments {
		size := v.size
		if i < len(v.segments)-1 {
			size = s.size
		}
		pos, newest := int64(0), int64(0)
		err := s.withIndex(l, size, func(x *index) { pos, newest = x.findTime(nanos), x.newest })
		if err != nil {
			return 0, err
		}
		if newest < nanos {
			continue
		}
		offset, found, err := l.firstAtOrAfter(s, pos, size, v.start, nanos)
		if err != nil || found {
			return offset, err
		}
	}
	return v.end, nil
}

func (l *Log) firstAtOrAfter(s *segment, pos, size, start, nanos int64) (int64, bool, error) {
	var sc scanner
	var it record.Iterator
	sc.reset(s.file, l.format, pos, size)
	for {
		at := sc.pos
		frame, err := sc.next()
		if err == io.EOF {
			return 0, false, nil
		}
		if err != nil {
			return 0, false, l.damage(s.path, at, -1, err)
		}
		if record.Nanos(frame.MaxTimestamp) < nanos {
			continue
		}
		for it.Reset(frame); it.Next(); {
			if rec := it.Record(); rec.Offset >= start && record.Nanos(rec.Timestamp) >= nanos {
				return rec.Offset, true, nil
			}
		}
		if err := it.Err(); err != nil {
			return 0, false, l.damage(s.path, at, -1, err)
		}
	}
}

// Verify reads the whole log and checks every frame and every record in it. It returns
// the first damage as a *CorruptionError. Appends go on meanwhile.
func (l *Log) Verify() error {
	v := l.view.Load()
	return l.verify(v.segments, v.size)
}

func (l *Log) verify(segments []*segment, size int64) error {
	var it record.Iterator
	decode := func(f record.Frame) error {
		for it.Reset(f); it.Next(); {
		}
		return it.Err()
	}
	for i, s := range segments {
		last := i == len(segments)-1
		limit := size
		if !last {
			limit = s.size
		}
		at, next, err := l.walk(s, 0, limit, s.base, decode)
		if err != nil {
			return err
		}
		if last || next == segments[i+1].base || l.compacted.Load() && next < segments[i+1].base {
			continue
		}
		return l.damage(s.path, at, next, &sequenceError{fmt.Sprintf("the segment ends at offset %d, the next one begins at %d", next, segments[i+1].base)})
	}
	return nil
}
