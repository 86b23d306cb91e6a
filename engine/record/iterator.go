package record

import (
	"encoding/binary"
	"errors"
	"time"
)

// Iterator walks the records of frames, one frame after another:
//
//	var it record.Iterator
//	for frame := range frames {
//		it.Reset(frame)
//		for it.Next() {
//			use(it.Record())
//		}
//		if err := it.Err(); err != nil { … }
//	}
//
// It allocates nothing per record (but for header keys) and reuses one buffer for
// decompression, so a Record is borrowed: it is good until the next call of Next or Reset.
// The zero value is ready to use. Not safe for concurrent use.
type Iterator struct {
	frame   Frame
	cursor  cursor
	left    int
	last    int64 // offset of the record before
	rec     Record
	headers []Header
	buf     []byte // decompressed records
	err     error
}

// Reset points the iterator before the first record of f.
func (it *Iterator) Reset(f Frame) {
	it.frame, it.left, it.err = f, f.Count, nil
	it.last = f.BaseOffset - 1
	it.rec = Record{}
	if f.Version != 2 {
		return
	}
	data := f.Bytes[v2Header:]
	if c := f.Attributes.Compression(); c != None {
		data, it.err = decompress(it.buf[:0], data, c)
		if it.err != nil {
			it.left = 0
			return
		}
		it.buf = data
	}
	it.cursor = cursor{data: data}
}

// Next advances to the next record and reports whether there is one.
func (it *Iterator) Next() bool {
	if it.err != nil {
		return false
	}
	if it.left == 0 {
		if it.frame.Version == 2 && it.cursor.pos != len(it.cursor.data) {
			it.err = frameError(2, "records", v2Header+it.cursor.pos, ErrMalformed, "%d bytes after the last record", len(it.cursor.data)-it.cursor.pos)
		}
		return false
	}
	it.left--
	switch it.frame.Version {
	case 0:
		it.rec = it.single(nil, it.frame.Bytes[v0Header:])
	case 1:
		b := it.frame.Bytes
		k := v1Header + int(binary.BigEndian.Uint32(b[16:]))
		key := b[v1Header:k:k]
		if len(key) == 0 {
			key = nil // the format has no way to say "empty"
		}
		it.rec = it.single(key, b[k+4:])
	default:
		it.nextInBatch()
	}
	return it.err == nil
}

func (it *Iterator) single(key, value []byte) Record {
	return Record{Offset: it.frame.BaseOffset, Timestamp: it.frame.BaseTimestamp, Key: key, Value: value[:len(value):len(value)]}
}

func (it *Iterator) nextInBatch() {
	at := it.cursor.pos
	r := &it.rec
	timeDelta, offsetDelta, headers := it.cursor.record(r, it.headers[:0])
	if it.cursor.bad != nil {
		it.err = frameError(2, it.cursor.field, v2Header+at, it.cursor.bad, "in record %d of %d", it.frame.Count-it.left-1, it.frame.Count)
		return
	}
	it.headers = headers
	r.Offset = it.frame.BaseOffset + offsetDelta
	if r.Offset <= it.last || r.Offset > it.frame.LastOffset {
		it.err = frameError(2, "offset_delta", v2Header+at, ErrMalformed, "offset %d is not between %d and %d", r.Offset, it.last+1, it.frame.LastOffset)
		return
	}
	it.last = r.Offset
	if it.frame.Attributes.LogAppendTime() {
		r.Timestamp = it.frame.MaxTimestamp
	} else {
		// Milliseconds are added as such: a time.Duration ends after 292 years.
		r.Timestamp = time.UnixMilli(it.frame.BaseTimestamp.UnixMilli() + timeDelta)
	}
}

// Record returns the record that Next advanced to, borrowed.
func (it *Iterator) Record() Record { return it.rec }

// Err returns the damage that ended the iteration, or nil at a frame's true end.
func (it *Iterator) Err() error { return it.err }

// Records decodes a frame into records that share no memory with it.
func (f Frame) Records() ([]Record, error) {
	var it Iterator
	it.Reset(f)
	var out []Record
	for it.Next() {
		out = append(out, it.Record().Clone())
	}
	return out, it.Err()
}

// ParseAll decodes every frame in data, in order. It returns what it could decode and
// the damage, if any, that stopped it; an incomplete last frame is ErrIncomplete.
func ParseAll(f Format, data []byte) ([]Frame, error) { return all(data, f.Parse) }

// DescribeAll is ParseAll without the checksums: for frames that a log has just read, and
// so checked.
func DescribeAll(f Format, data []byte) ([]Frame, error) { return all(data, f.Describe) }

func all(data []byte, parse func([]byte) (Frame, error)) ([]Frame, error) {
	var frames []Frame
	for at := 0; at < len(data); {
		frame, err := parse(data[at:])
		if err != nil {
			if fe, ok := errors.AsType[*FrameError](err); ok {
				fe.At += at
			}
			return frames, err
		}
		frames = append(frames, frame)
		at += len(frame.Bytes)
	}
	return frames, nil
}
