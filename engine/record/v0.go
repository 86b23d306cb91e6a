package record

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"
)

// v0 is PyStream's frame: see the package comment for the layout.
type v0 struct{}

const (
	v0Fixed  = 20 // bytes that record_length counts besides the payload
	v0Header = 4 + v0Fixed
)

func (v0) Version() Version { return 0 }

func (v0) AppendFrames(dst []byte, records []Record, enc Encoding) ([]byte, error) {
	if err := enc.checkOffsets(records, 0); err != nil {
		return dst, err
	}
	out := dst
	for i := range records {
		r := &records[i]
		if r.Key != nil {
			return dst, frameError(0, "key", 0, ErrUnsupported, "record %d has a key, format 0 has none; use format 1 or 2", i)
		}
		if len(r.Headers) > 0 {
			return dst, frameError(0, "headers", 0, ErrUnsupported, "record %d has headers; use format 2", i)
		}
		if int64(len(r.Value)) > math.MaxUint32-v0Fixed {
			return dst, frameError(0, "payload_length", 0, ErrTooLarge, "record %d has %d bytes", i, len(r.Value))
		}
		ts, err := enc.timestampNanos(r, 0)
		if err != nil {
			return dst, err
		}
		out = binary.BigEndian.AppendUint32(out, uint32(v0Fixed+len(r.Value)))
		out = binary.BigEndian.AppendUint64(out, uint64(enc.offset(records, i)))
		out = binary.BigEndian.AppendUint64(out, uint64(ts))
		out = binary.BigEndian.AppendUint32(out, uint32(len(r.Value)))
		out = append(out, r.Value...)
	}
	return out, nil
}

func (v0) FrameSize(head []byte) (int, error) {
	if len(head) < 4 {
		return 4, ErrIncomplete
	}
	n := binary.BigEndian.Uint32(head)
	if n < v0Fixed {
		return 0, frameError(0, "record_length", 0, ErrMalformed, "%d is less than the %d bytes of the fixed fields", n, v0Fixed)
	}
	if int64(n)+4 > math.MaxInt32 {
		return 0, frameError(0, "record_length", 0, ErrTooLarge, "%d bytes", n)
	}
	return 4 + int(n), nil
}

// Describe implements Format: there is no checksum.
func (f v0) Describe(data []byte) (Frame, error) { return f.Parse(data) }

func (f v0) Parse(data []byte) (Frame, error) {
	size, err := f.FrameSize(data)
	if err == ErrIncomplete {
		err = frameError(0, "record_length", len(data), ErrIncomplete, "%d bytes are there", len(data))
	}
	if err != nil {
		return Frame{}, err
	}
	if len(data) >= v0Header {
		// The two lengths are checked against each other before the first is believed.
		if p := binary.BigEndian.Uint32(data[20:]); int64(p)+v0Header != int64(size) {
			return Frame{}, frameError(0, "payload_length", 20, ErrMalformed,
				"%d disagrees with record_length %d, which leaves %d", p, size-4, size-v0Header)
		}
	}
	if size > len(data) {
		return Frame{}, frameError(0, "payload", len(data), ErrIncomplete, "frame has %d bytes, %d are there", size, len(data))
	}
	offset := binary.BigEndian.Uint64(data[4:])
	if offset > math.MaxInt64 {
		return Frame{}, frameError(0, "offset", 4, ErrMalformed, "%d is over 2^63-1", offset)
	}
	ts := time.Unix(0, int64(binary.BigEndian.Uint64(data[12:])))
	return singleFrame(0, data[:size], int64(offset), ts), nil
}

func (f v0) Assign(frames []byte, base int64, _ int32) int64 {
	for len(frames) > 0 {
		binary.BigEndian.PutUint64(frames[4:], uint64(base))
		frames = frames[4+int(binary.BigEndian.Uint32(frames)):]
		base++
	}
	return base
}

func (f v0) Annotate(data []byte) []Field {
	a := annotator{data: data}
	n := a.uint("record_length", 4)
	a.uint("offset", 8)
	a.timeNanos("timestamp_ns")
	p := a.uint("payload_length", 4)
	if a.has(v0Header) && p+v0Fixed != n {
		a.note("disagrees with record_length: %d + %d is not %d", v0Fixed, p, n)
	}
	a.bytes("payload", p)
	return a.fields
}

// singleFrame describes a frame of format 0 or 1: one record.
func singleFrame(v Version, data []byte, offset int64, ts time.Time) Frame {
	return Frame{
		Version: v, Bytes: data, BaseOffset: offset, LastOffset: offset, Count: 1,
		BaseTimestamp: ts, MaxTimestamp: ts,
		LeaderEpoch: -1, ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1,
	}
}

// annotator cuts a frame into named fields, as far as the bytes go.
type annotator struct {
	data   []byte
	pos    int
	fields []Field
}

func (a *annotator) has(n int) bool { return len(a.data) >= n }

func (a *annotator) add(name string, n int, value string) {
	a.fields = append(a.fields, Field{Name: name, Start: a.pos, End: a.pos + n, Value: value})
	a.pos += n
}

func (a *annotator) note(format string, args ...any) {
	if len(a.fields) > 0 {
		a.fields[len(a.fields)-1].Note = fmt.Sprintf(format, args...)
	}
}

// cut records a field of which some bytes are missing, and ends the annotation.
func (a *annotator) cut(name string, want uint64) {
	if a.pos < len(a.data) || len(a.fields) == 0 || a.fields[len(a.fields)-1].Note == "" {
		have := len(a.data) - a.pos
		a.add(name, have, "")
		a.note("cut short: %d of %d bytes", have, want)
	}
}

func (a *annotator) uint(name string, size int) uint64 {
	if a.pos+size > len(a.data) {
		a.cut(name, uint64(size))
		return 0
	}
	var v uint64
	for _, b := range a.data[a.pos : a.pos+size] {
		v = v<<8 | uint64(b)
	}
	a.add(name, size, fmt.Sprint(v))
	return v
}

func (a *annotator) int(name string, size int) int64 {
	v := a.uint(name, size)
	shift := 64 - 8*size
	s := int64(v<<shift) >> shift
	if len(a.fields) > 0 && a.fields[len(a.fields)-1].Note == "" {
		a.fields[len(a.fields)-1].Value = fmt.Sprint(s)
	}
	return s
}

func (a *annotator) timeNanos(name string) {
	if v := a.int(name, 8); a.pos == len(a.data) || a.fields[len(a.fields)-1].Note == "" {
		a.fields[len(a.fields)-1].Value = time.Unix(0, v).UTC().Format(time.RFC3339Nano)
	}
}

func (a *annotator) bytes(name string, n uint64) {
	if n == 0 {
		return
	}
	if n > uint64(len(a.data)-a.pos) {
		a.cut(name, n)
		return
	}
	a.add(name, int(n), preview(a.data[a.pos:a.pos+int(n)]))
}

// preview shows the start of a payload as a quoted string.
func preview(b []byte) string {
	const most = 48
	if len(b) > most {
		return fmt.Sprintf("%q… (%d bytes)", b[:most], len(b))
	}
	return fmt.Sprintf("%q", b)
}
