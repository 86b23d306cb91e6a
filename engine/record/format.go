package record

import (
	"fmt"
	"math"
	"time"
)

// Version numbers a frame format.
type Version uint8

// Format is one of the three frame layouts. V0, V1 and V2 are the only
// implementations; they hold no state and are safe for concurrent use.
type Format interface {
	Version() Version

	// AppendFrames encodes records onto dst: in formats 0 and 1 a frame for each, in
	// format 2 one batch. It fails, and returns dst as it was, when the format cannot
	// store a record faithfully (a key in format 0, headers in formats 0 and 1).
	AppendFrames(dst []byte, records []Record, enc Encoding) ([]byte, error)

	// FrameSize reads the size in bytes of the frame that starts at head[0]. When head
	// is too short to tell, it returns ErrIncomplete and the number of bytes that would
	// take it further. A length that no frame can have is a *FrameError.
	FrameSize(head []byte) (int, error)

	// Parse checks the frame at data[0] (lengths, and in format 2 the checksum) and
	// describes it without decoding its records. Bytes after the frame are ignored.
	Parse(data []byte) (Frame, error)

	// Describe is Parse without the checksum: for a frame that this process has just
	// encoded, or has parsed before.
	Describe(data []byte) (Frame, error)

	// Assign numbers encoded frames from the offset base on, in place, and returns the
	// offset after the last one. In format 2 it also stores the leader epoch; the
	// checksum covers neither. The frames must be whole, as AppendFrames makes them.
	Assign(frames []byte, base int64, epoch int32) int64

	// Annotate names the fields of the frame at data[0], for a person to read. It goes
	// as far as the bytes make sense and never fails.
	Annotate(data []byte) []Field
}

// The formats. V2 is the default everywhere.
var (
	V0 Format = v0{}
	V1 Format = v1{}
	V2 Format = v2{}
)

// ByVersion returns the format with the given number.
func ByVersion(v Version) (Format, error) {
	switch v {
	case 0:
		return V0, nil
	case 1:
		return V1, nil
	case 2:
		return V2, nil
	}
	return nil, fmt.Errorf("record: no format %d: the formats are 0 (PyStream), 1 (kafka-lite) and 2 (Kafka)", v)
}

// Encoding says how AppendFrames writes. The zero value numbers records from 0,
// stores timestamps as they are and does not compress.
type Encoding struct {
	BaseOffset  int64     // offset of the first record; the others follow without gaps
	KeepOffsets bool      // use each record's own Offset, ascending, instead
	LastOffset  int64     // with KeepOffsets, format 2: the last offset the batch covers, if after its last record
	Timestamp   time.Time // for records that carry none

	// Format 2 only.
	Compression   Compression
	LeaderEpoch   int32
	Producer      *Producer // nil: no idempotent producer
	LogAppendTime bool      // the timestamps are the log's, not the producer's (attribute bit 3)
}

// Producer identifies an idempotent producer's batch (KIP-98).
type Producer struct {
	ID           int64
	Epoch        int16
	BaseSequence int32
}

// Frame describes one stored frame: a record (formats 0 and 1) or a batch (format 2).
type Frame struct {
	Version Version
	Bytes   []byte // the whole frame; borrowed from the input of Parse

	BaseOffset    int64
	LastOffset    int64 // equal to BaseOffset in formats 0 and 1
	Count         int   // records stored; compaction may leave fewer than the offsets covered
	BaseTimestamp time.Time
	MaxTimestamp  time.Time

	// Format 2 only; formats 0 and 1 report -1 and no attributes.
	LeaderEpoch   int32
	ProducerID    int64
	ProducerEpoch int16
	BaseSequence  int32
	Attributes    Attributes
}

// NextOffset is the offset after the last one the frame covers.
func (f Frame) NextOffset() int64 { return f.LastOffset + 1 }

// Attributes are a batch's flags.
type Attributes int16

// Compression is the codec of the batch's records.
func (a Attributes) Compression() Compression { return Compression(a & 7) }

// LogAppendTime reports whether the timestamps were set by the log.
func (a Attributes) LogAppendTime() bool { return a&(1<<3) != 0 }

// Transactional reports whether the batch is part of a transaction.
func (a Attributes) Transactional() bool { return a&(1<<4) != 0 }

// Control reports whether the batch holds control records, which consumers skip.
func (a Attributes) Control() bool { return a&(1<<5) != 0 }

// Field is one named range of a frame's bytes.
type Field struct {
	Name       string
	Start, End int    // bytes [Start, End) of the frame
	Value      string // decoded, for reading
	Note       string // what is wrong with it, or empty
}

// timestampNanos returns the timestamp to store for r in nanoseconds. Times that do not
// fit 64 bits of nanoseconds (before 1678 or after 2262) are refused, not wrapped.
func (enc *Encoding) timestampNanos(r *Record, v Version) (int64, error) {
	t := r.Timestamp
	if t.IsZero() {
		t = enc.Timestamp
	}
	if t.IsZero() {
		return 0, frameError(v, "timestamp", 0, ErrUnsupported, "record has no timestamp and the encoding gives none")
	}
	ns := t.UnixNano()
	if !time.Unix(0, ns).Equal(t) {
		return 0, frameError(v, "timestamp", 0, ErrUnsupported, "%s does not fit 64 bits of nanoseconds", t)
	}
	return ns, nil
}

// Nanos returns a time in nanoseconds since 1970: the least or the greatest int64 for one
// that does not fit (before 1678 or after 2262). A batch can carry such times, since it
// counts milliseconds.
func Nanos(t time.Time) int64 {
	ns := t.UnixNano()
	switch {
	case time.Unix(0, ns).Equal(t):
		return ns
	case t.Unix() < 0:
		return math.MinInt64
	}
	return math.MaxInt64
}

// offset returns the offset of the i-th record.
func (enc *Encoding) offset(records []Record, i int) int64 {
	if enc.KeepOffsets {
		return records[i].Offset
	}
	return enc.BaseOffset + int64(i)
}

// checkOffsets makes sure that offsets start at 0 or above and grow.
func (enc *Encoding) checkOffsets(records []Record, v Version) error {
	if !enc.KeepOffsets {
		if enc.BaseOffset < 0 {
			return frameError(v, "offset", 0, ErrMalformed, "base offset %d is negative", enc.BaseOffset)
		}
		return nil
	}
	last := int64(-1)
	for i := range records {
		if records[i].Offset <= last {
			return frameError(v, "offset", 0, ErrMalformed, "offset %d of record %d does not grow", records[i].Offset, i)
		}
		last = records[i].Offset
	}
	return nil
}
