package commitlog

import (
	"fmt"
	"math"
	"sync"
	"time"

	"logbook/engine/record"
)

// Batch is encoded frames that are ready to be appended: every record in them was encoded
// here, or decoded once, and checked against limits. Making one is the part of an append
// that needs no lock and no disk, and its checksum is computed, or verified, once.
type Batch struct {
	format    record.Format
	buf       []byte
	frames    []frameRef // base and next count from 0 until the log assigns offsets
	records   int64      // offsets covered
	timestamp time.Time  // of the first record
	producer  ProducerBatch
	keyless   bool // a record of it has no key
	stamped   bool
	it        record.Iterator
}

// Keyless reports whether some record of a parsed batch has no key.
func (b *Batch) Keyless() bool { return b.keyless }

// Stamped reports whether Stamp was called.
func (b *Batch) Stamped() bool { return b.stamped }

// Stamp gives a batch of format 2 the time of its append, in place of its records' own
// times (attribute bit 3).
func (b *Batch) Stamp(at time.Time) {
	record.StampBatches(b.buf, at)
	b.timestamp, b.stamped = at, true
	for i := range b.frames {
		b.frames[i].timestamp = at.UnixMilli() * int64(time.Millisecond)
	}
}

// ProducerBatch is what an idempotent producer's batch says of itself (KIP-98).
type ProducerBatch struct {
	ID          int64
	Epoch       int16
	First, Last int32 // sequence numbers of its first and last record
}

// producerBatch reads it from a frame; ok is false where there is no such producer.
func producerBatch(f record.Frame) (b ProducerBatch, ok bool) {
	if f.Version != 2 || f.ProducerID < 0 || f.Attributes.Control() {
		return ProducerBatch{ID: -1}, false
	}
	last := int64(f.BaseSequence) + f.LastOffset - f.BaseOffset
	if last > math.MaxInt32 { // they begin again from 0
		last -= math.MaxInt32 + 1
	}
	return ProducerBatch{ID: f.ProducerID, Epoch: f.ProducerEpoch, First: f.BaseSequence, Last: int32(last)}, true
}

// ParseBatch takes frames that somebody else encoded, which are the batch's from then on.
// Every record in them is decoded once.
//
// Errors: *TooLargeError, *record.FrameError, ErrEmptyAppend.
func ParseBatch(format record.Format, frames []byte, limits Limits) (*Batch, error) {
	b := &Batch{buf: frames}
	return b, b.parse(format, limits.withDefaults())
}

// Producer is the idempotent producer whose batch it is; ok is false where there is none.
func (b *Batch) Producer() (p ProducerBatch, ok bool) { return b.producer, b.producer.ID >= 0 }

// Limits bound what a batch may hold. A zero limit is the default of Options.
type Limits struct {
	MaxRecordBytes int // a record's key, value and headers together
	MaxKeyBytes    int
	MaxBatchBytes  int // what one append may take, encoded
}

func (l Limits) withDefaults() Limits {
	setDefault(&l.MaxRecordBytes, 1<<20)
	setDefault(&l.MaxKeyBytes, 64<<10)
	setDefault(&l.MaxBatchBytes, 32<<20)
	return l
}

func (l *Log) limits() Limits {
	return Limits{MaxRecordBytes: l.opt.MaxRecordBytes, MaxKeyBytes: l.opt.MaxKeyBytes, MaxBatchBytes: l.opt.MaxBatchBytes}
}

var batches = sync.Pool{New: func() any { return new(Batch) }}

// NewBatch encodes records. Those without a timestamp get that of enc.
//
// Errors: *TooLargeError, *record.FrameError, ErrEmptyAppend.
func NewBatch(format record.Format, records []record.Record, enc record.Encoding, limits Limits) (*Batch, error) {
	b := new(Batch)
	return b, b.encode(format, records, enc, limits.withDefaults())
}

// Records is how many offsets the batch takes.
func (b *Batch) Records() int64 { return b.records }

// Size is its size in bytes.
func (b *Batch) Size() int { return len(b.buf) }

// Timestamp is the first record's, as stored.
func (b *Batch) Timestamp() time.Time { return b.timestamp }

func (b *Batch) encode(format record.Format, records []record.Record, enc record.Encoding, limits Limits) (err error) {
	if err := checkLimits(records, limits); err != nil {
		return err
	}
	b.format = format
	if b.buf, err = format.AppendFrames(b.buf[:0], records, enc); err != nil {
		return err
	}
	return b.describe(format.Describe, nil)
}

func (b *Batch) parse(format record.Format, limits Limits) error {
	if len(b.buf) == 0 {
		return ErrEmptyAppend
	}
	if len(b.buf) > limits.MaxBatchBytes {
		return &TooLargeError{What: "batch", Size: len(b.buf), Limit: limits.MaxBatchBytes}
	}
	b.format = format
	i := 0
	b.keyless, b.stamped = false, false
	return b.describe(format.Parse, func(f record.Frame) error { return b.checkFrame(f, limits, &i) })
}

func checkLimits(records []record.Record, limits Limits) error {
	if len(records) == 0 {
		return ErrEmptyAppend
	}
	total := 0
	for i := range records {
		r := &records[i]
		if err := checkSize(r, i, limits); err != nil {
			return err
		}
		if total += r.Size() + 32; total > limits.MaxBatchBytes {
			return &TooLargeError{What: "batch", Index: i, Size: total, Limit: limits.MaxBatchBytes}
		}
	}
	return nil
}

// checkSize holds the i-th record of an append to the limits.
func checkSize(r *record.Record, i int, limits Limits) error {
	if len(r.Key) > limits.MaxKeyBytes {
		return &TooLargeError{What: "key", Index: i, Size: len(r.Key), Limit: limits.MaxKeyBytes}
	}
	if n := r.Size(); n > limits.MaxRecordBytes {
		return &TooLargeError{What: "record", Index: i, Size: n, Limit: limits.MaxRecordBytes}
	}
	return nil
}

// describe fills frames from buf. check, if not nil, is asked about each.
func (b *Batch) describe(parse func([]byte) (record.Frame, error), check func(record.Frame) error) error {
	b.frames, b.records, b.producer = b.frames[:0], 0, ProducerBatch{ID: -1}
	for at := 0; at < len(b.buf); {
		f, err := parse(b.buf[at:])
		if err != nil {
			return err
		}
		if check != nil {
			if err := check(f); err != nil {
				return err
			}
		}
		if at == 0 {
			b.timestamp = f.BaseTimestamp
			b.producer, _ = producerBatch(f)
		}
		n := f.NextOffset() - f.BaseOffset
		b.frames = append(b.frames, frameRef{
			base: b.records, next: b.records + n, size: len(f.Bytes), timestamp: record.Nanos(f.MaxTimestamp),
		})
		b.records += n
		at += len(f.Bytes)
	}
	return nil
}

// checkFrame decodes every record of a frame that somebody else encoded and holds it to
// the limits. i counts the records of the append.
func (b *Batch) checkFrame(f record.Frame, limits Limits, i *int) error {
	if f.Count == 0 {
		return ErrEmptyAppend
	}
	if covered := f.NextOffset() - f.BaseOffset; int64(f.Count) != covered {
		return &record.FrameError{Version: f.Version, Field: "records_count", Err: record.ErrMalformed,
			Reason: fmt.Sprintf("%d records in %d offsets; only compaction may leave gaps", f.Count, covered)}
	}
	newest := time.Time{}
	for b.it.Reset(f); b.it.Next(); *i++ {
		r := b.it.Record()
		if err := checkSize(&r, *i, limits); err != nil {
			return err
		}
		b.keyless = b.keyless || r.Key == nil
		if newest.IsZero() || r.Timestamp.After(newest) {
			newest = r.Timestamp
		}
	}
	if err := b.it.Err(); err != nil {
		return err
	}
	if !newest.Equal(f.MaxTimestamp) { // look-ups by time and retention go by it
		return &record.FrameError{Version: f.Version, Field: "max_timestamp", Err: record.ErrMalformed,
			Reason: fmt.Sprintf("it is %s, the newest record's is %s", f.MaxTimestamp.UTC(), newest.UTC())}
	}
	return nil
}
