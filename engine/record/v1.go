package record

import (
	"encoding/binary"
	"math"
	"time"
)

// v1 is kafka-lite's frame: see the package comment for the layout.
type v1 struct{}

const v1Header = 20 // offset, timestamp and key length

func (v1) Version() Version { return 1 }

func (v1) AppendFrames(dst []byte, records []Record, enc Encoding) ([]byte, error) {
	if err := enc.checkOffsets(records, 1); err != nil {
		return dst, err
	}
	out := dst
	for i := range records {
		r := &records[i]
		if len(r.Headers) > 0 {
			return dst, frameError(1, "headers", 0, ErrUnsupported, "record %d has headers; use format 2", i)
		}
		if len(r.Key) > math.MaxInt32-v1Header-4-len(r.Value) {
			return dst, frameError(1, "value_length", 0, ErrTooLarge, "record %d has %d bytes", i, r.Size())
		}
		ts, err := enc.timestampNanos(r, 1)
		if err != nil {
			return dst, err
		}
		if ts <= 0 {
			// The field is unsigned, and a zero timestamp on an empty record at offset 0
			// would be 24 zero bytes: the same as space that was never written.
			return dst, frameError(1, "timestamp_ns", 8, ErrUnsupported, "%s is not after 1970", time.Unix(0, ts).UTC())
		}
		out = binary.BigEndian.AppendUint64(out, uint64(enc.offset(records, i)))
		out = binary.BigEndian.AppendUint64(out, uint64(ts))
		out = binary.BigEndian.AppendUint32(out, uint32(len(r.Key)))
		out = append(out, r.Key...)
		out = binary.BigEndian.AppendUint32(out, uint32(len(r.Value)))
		out = append(out, r.Value...)
	}
	return out, nil
}

func (v1) FrameSize(head []byte) (int, error) {
	if len(head) < v1Header {
		return v1Header, ErrIncomplete
	}
	k := int64(binary.BigEndian.Uint32(head[16:]))
	need := v1Header + k + 4
	if need > math.MaxInt32 {
		return 0, frameError(1, "key_length", 16, ErrTooLarge, "%d bytes", k)
	}
	if int64(len(head)) < need {
		return int(need), ErrIncomplete
	}
	v := int64(binary.BigEndian.Uint32(head[need-4:]))
	if need+v > math.MaxInt32 {
		return 0, frameError(1, "value_length", int(need-4), ErrTooLarge, "%d bytes", v)
	}
	return int(need + v), nil
}

// Describe implements Format: there is no checksum.
func (f v1) Describe(data []byte) (Frame, error) { return f.Parse(data) }

func (f v1) Parse(data []byte) (Frame, error) {
	size, err := f.FrameSize(data)
	if err != nil {
		if err == ErrIncomplete {
			err = frameError(1, "key", len(data), ErrIncomplete, "frame has at least %d bytes, %d are there", size, len(data))
		}
		return Frame{}, err
	}
	if size > len(data) {
		return Frame{}, frameError(1, "value", len(data), ErrIncomplete, "frame has %d bytes, %d are there", size, len(data))
	}
	offset, ts := binary.BigEndian.Uint64(data), binary.BigEndian.Uint64(data[8:])
	if offset > math.MaxInt64 {
		return Frame{}, frameError(1, "offset", 0, ErrMalformed, "%d is over 2^63-1", offset)
	}
	if ts == 0 || ts > math.MaxInt64 {
		return Frame{}, frameError(1, "timestamp_ns", 8, ErrMalformed, "%d is not between 1 and 2^63-1", ts)
	}
	return singleFrame(1, data[:size], int64(offset), time.Unix(0, int64(ts))), nil
}

func (f v1) Assign(frames []byte, base int64, _ int32) int64 {
	for len(frames) > 0 {
		binary.BigEndian.PutUint64(frames, uint64(base))
		k := v1Header + int(binary.BigEndian.Uint32(frames[16:]))
		frames = frames[k+4+int(binary.BigEndian.Uint32(frames[k:])):]
		base++
	}
	return base
}

func (f v1) Annotate(data []byte) []Field {
	a := annotator{data: data}
	a.uint("offset", 8)
	a.timeNanos("timestamp_ns")
	k := a.uint("key_length", 4)
	a.bytes("key", k)
	if k <= uint64(len(data)) {
		a.bytes("value", a.uint("value_length", 4))
	}
	return a.fields
}
