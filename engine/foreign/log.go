package foreign

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"time"

	"logbook/engine/record"
)

// log is one partition: files with frames, one after another.
type log struct {
	format record.Format
	files  []*file
	end    int64 // the offset after the last record
	tail   *Tail
}

// file is one of a log's files, with an index of where some of its records are.
type file struct {
	*os.File
	name  string
	size  int64 // of whole frames
	first int64 // offset of its first record
	index []place
}

// place is where a record is.
type place struct{ offset, position int64 }

// indexEvery is how many bytes lie between two entries of an index.
const indexEvery = 64 << 10

// openLog reads the files of a log through. It checks that every frame is whole and its
// offset the next.
func openLog(version record.Version, names []string) (*log, error) {
	format, err := record.ByVersion(version)
	if err != nil {
		return nil, err
	}
	l := &log{format: format}
	for i, name := range names {
		f, err := os.Open(name)
		if err != nil {
			return nil, errors.Join(&LayoutError{Path: name, Reason: err.Error()}, l.close())
		}
		l.files = append(l.files, &file{File: f, name: name, first: l.end})
		if err := l.scan(l.files[i], i == len(names)-1); err != nil {
			return nil, errors.Join(err, l.close())
		}
	}
	return l, nil
}

func (l *log) close() error {
	var problems []error
	for _, f := range l.files {
		problems = append(problems, f.Close())
	}
	return errors.Join(problems...)
}

func (l *log) size() int64 {
	n := int64(0)
	for _, f := range l.files {
		n += f.size
	}
	return n
}

// scan reads a file through.
func (l *log) scan(f *file, last bool) error {
	if number, ok := strings.CutSuffix(filepath.Base(f.name), ".log"); ok && l.format.Version() == 1 {
		first, err := strconv.ParseInt(number, 10, 64)
		switch {
		case err != nil || len(l.files) > 1 && first != l.end:
			return &DamagedError{File: f.name, Offset: l.end, Err: fmt.Errorf("the segment before it ends at offset %d", l.end)}
		case len(l.files) == 1:
			l.end, f.first = first, first // retention may have removed what came before
		}
	}
	info, err := f.Stat()
	if err != nil {
		return &LayoutError{Path: f.name, Reason: err.Error()}
	}
	frames := frameReader{format: l.format, in: f, size: info.Size()}
	indexed := int64(-indexEvery)
	for {
		at := frames.at
		frame, err := frames.next()
		switch {
		case err == io.EOF:
			f.size = at
			return nil
		case errors.Is(err, record.ErrIncomplete) && last && l.format.Version() == 1:
			if later, err := frames.find(l.end + 1); err != nil || later >= 0 {
				return &DamagedError{File: f.name, Position: at, Offset: l.end, Err: errors.Join(fmt.Errorf("the next record stands at position %d", later), err)}
			}
			f.size = at
			l.tail = &Tail{File: f.name, Position: at, Bytes: info.Size() - at}
			return nil
		case err == nil && frame.BaseOffset != l.end:
			err = fmt.Errorf("it has offset %d", frame.BaseOffset)
		}
		if err != nil {
			return &DamagedError{File: f.name, Position: at, Offset: l.end, Err: err}
		}
		if at-indexed >= indexEvery {
			f.index = append(f.index, place{l.end, at})
			indexed = at
		}
		l.end++
	}
}

// start is the first offset.
func (l *log) start() int64 { return l.files[0].first }

// read returns records from an offset on, at least one where there is one.
func (l *log) read(offset int64, maxBytes int) ([]record.Record, error) {
	i := sort.Search(len(l.files), func(i int) bool { return l.files[i].first > offset }) - 1
	var out []record.Record
	for left := maxBytes; i < len(l.files); i++ {
		f := l.files[i]
		frames := frameReader{format: l.format, in: f, size: f.size}
		if j := sort.Search(len(f.index), func(j int) bool { return f.index[j].offset > offset }) - 1; j >= 0 {
			frames.at = f.index[j].position
		}
		for {
			at := frames.at
			frame, err := frames.next()
			if err == io.EOF {
				break
			}
			if err != nil {
				return nil, &DamagedError{File: f.name, Position: at, Offset: offset, Err: err}
			}
			if frame.BaseOffset < offset {
				continue
			}
			if len(out) > 0 && len(frame.Bytes) > left {
				return out, nil
			}
			left -= len(frame.Bytes)
			records, err := frame.Records()
			if err != nil {
				return nil, &DamagedError{File: f.name, Position: at, Offset: offset, Err: err}
			}
			out = append(out, records...)
		}
	}
	return out, nil
}

// offsetAt is the offset of the first record at or after a time; the end where there is none.
func (l *log) offsetAt(t time.Time) (int64, error) {
	for offset := l.start(); offset < l.end; {
		records, err := l.read(offset, 1<<20)
		if err != nil || len(records) == 0 {
			return l.end, err
		}
		for _, r := range records {
			if !r.Timestamp.Before(t) {
				return r.Offset, nil
			}
		}
		offset = records[len(records)-1].Offset + 1
	}
	return l.end, nil
}

// beginsWith compares with a shorter log; it returns where they differ, -1 if nowhere.
func (l *log) beginsWith(short *log) (int64, error) {
	a, b := make([]byte, 64<<10), make([]byte, 64<<10)
	for at, size := int64(0), short.files[0].size; at < size; {
		n := min(int64(len(a)), size-at)
		if _, err := l.files[0].ReadAt(a[:n], at); err != nil {
			return at, err
		}
		if _, err := short.files[0].ReadAt(b[:n], at); err != nil {
			return at, err
		}
		if !bytes.Equal(a[:n], b[:n]) {
			for i := range n {
				if a[i] != b[i] {
					return at + i, nil
				}
			}
		}
		at += n
	}
	return -1, nil
}

// frameReader reads frames, one after another. A frame's bytes are good until the next.
type frameReader struct {
	format record.Format
	in     io.ReaderAt
	size   int64 // of the file
	at     int64
	buf    []byte // what was read
	from   int64  // the position of its first byte
}

// readAhead is how much is read at a time.
const readAhead = 256 << 10

// next returns the next frame, and io.EOF after the last. A frame that the file ends in is
// record.ErrIncomplete: no memory is taken for what a length only claims.
func (r *frameReader) next() (record.Frame, error) {
	if r.at >= r.size {
		return record.Frame{}, io.EOF
	}
	need := int64(4)
	for {
		if r.at+need > r.size {
			return record.Frame{}, fmt.Errorf("a frame of at least %d bytes, and %d are there: %w", need, r.size-r.at, record.ErrIncomplete)
		}
		head, err := r.bytes(need)
		if err != nil {
			return record.Frame{}, err
		}
		n, err := r.format.FrameSize(head)
		switch {
		case errors.Is(err, record.ErrIncomplete) && int64(n) > need:
			need = int64(n)
			continue
		case err != nil:
			return record.Frame{}, err
		case int64(n) > need:
			need = int64(n)
			continue
		}
		frame, err := r.format.Parse(head[:n])
		if err == nil {
			r.at += int64(n)
		}
		return frame, err
	}
}

// find looks for a whole frame of an offset after the present position; -1: there is none. A
// length that is damaged looks like the end of a log that was cut short, but for what follows.
func (r *frameReader) find(offset int64) (int64, error) {
	want := binary.BigEndian.AppendUint64(nil, uint64(offset))
	probe := frameReader{format: r.format, in: r.in, size: r.size}
	for at := r.at; at+int64(len(want)) <= r.size; {
		n := min(readAhead, r.size-at)
		r.at = at
		chunk, err := r.bytes(n)
		if err != nil {
			return -1, err
		}
		for from := 0; ; {
			i := bytes.Index(chunk[from:], want)
			if i < 0 {
				break
			}
			probe.at, probe.buf = at+int64(from+i), nil
			if f, err := probe.next(); err == nil && f.BaseOffset == offset {
				return at + int64(from+i), nil
			}
			from += i + 1
		}
		if at += n; at < r.size {
			at -= int64(len(want)) - 1
		}
	}
	return -1, nil
}

// bytes returns the next n bytes of the file, which has them.
func (r *frameReader) bytes(n int64) ([]byte, error) {
	if skip := r.at - r.from; skip >= 0 && skip+n <= int64(len(r.buf)) {
		return r.buf[skip : skip+n], nil
	}
	want := min(max(n, readAhead), r.size-r.at)
	if int64(cap(r.buf)) < want {
		r.buf = make([]byte, want)
	}
	r.buf, r.from = r.buf[:want], r.at
	if _, err := r.in.ReadAt(r.buf, r.at); err != nil {
		r.buf = r.buf[:0]
		return nil, err
	}
	return r.buf[:n], nil
}
