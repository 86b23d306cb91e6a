package record

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"time"
)

// v2 is Kafka's record batch, magic 2: see the package comment for the layout.
type v2 struct{}

const (
	v2Header    = 61
	v2Prefix    = 12 // base offset and batch length, which the batch length does not count
	v2MinRecord = 7  // a record's seven fields at one byte each

	v2AtLength     = 8
	v2AtEpoch      = 12
	v2AtMagic      = 16
	v2AtCRC        = 17
	v2AtAttributes = 21
	v2AtLastDelta  = 23
	v2AtBaseTime   = 27
	v2AtMaxTime    = 35
	v2AtProducer   = 43
	v2AtProdEpoch  = 51
	v2AtSequence   = 53
	v2AtCount      = 57
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (v2) Version() Version { return 2 }

func (v2) AppendFrames(dst []byte, records []Record, enc Encoding) ([]byte, error) {
	if len(records) == 0 && !enc.KeepOffsets {
		return dst, nil
	}
	h, err := planBatch(records, &enc)
	if err != nil {
		return dst, err
	}
	start := len(dst)
	out := append(dst, make([]byte, v2Header)...)
	for i := range records {
		r := &records[i]
		ts, _ := enc.timestampNanos(r, 2) // planBatch has checked it
		out = appendRecord(out, r, millis(ts)-h.baseTime, enc.offset(records, i)-h.baseOffset)
	}
	if enc.Compression != None {
		if out, err = compressTail(out, start+v2Header, enc.Compression); err != nil {
			return dst, err
		}
	}
	if len(out)-start > math.MaxInt32 {
		return dst, frameError(2, "batch_length", v2AtLength, ErrTooLarge, "%d bytes", len(out)-start)
	}
	h.write(out[start:], &enc, len(records))
	return out, nil
}

// batchPlan is what a batch's header says of its records.
type batchPlan struct {
	baseOffset, lastOffset int64
	baseTime, maxTime      int64 // ms
}

// planBatch checks records against what the format can hold, before anything is written.
func planBatch(records []Record, enc *Encoding) (batchPlan, error) {
	if err := enc.checkOffsets(records, 2); err != nil {
		return batchPlan{}, err
	}
	h := batchPlan{baseOffset: enc.BaseOffset, baseTime: -1, maxTime: -1}
	if len(records) > 0 {
		h.lastOffset = enc.offset(records, len(records)-1)
		if enc.KeepOffsets && enc.BaseOffset > records[0].Offset {
			return h, frameError(2, "base_offset", 0, ErrMalformed, "base %d is after the first record's %d", enc.BaseOffset, records[0].Offset)
		}
	}
	if enc.KeepOffsets {
		h.lastOffset = max(h.lastOffset, enc.LastOffset)
	}
	if h.lastOffset-h.baseOffset > math.MaxInt32 || h.lastOffset < h.baseOffset {
		return h, frameError(2, "last_offset_delta", v2AtLastDelta, ErrMalformed, "offsets %d to %d do not fit a batch", h.baseOffset, h.lastOffset)
	}
	for i := range records {
		r := &records[i]
		if r.Size() > math.MaxInt32/2 || len(r.Headers) > math.MaxInt32/2 {
			return h, frameError(2, "record", v2Header, ErrTooLarge, "record %d has %d bytes", i, r.Size())
		}
		ns, err := enc.timestampNanos(r, 2)
		if err != nil {
			return h, err
		}
		ms := millis(ns)
		if i == 0 {
			h.baseTime, h.maxTime = ms, ms
		}
		h.maxTime = max(h.maxTime, ms)
	}
	return h, nil
}

func (h batchPlan) write(b []byte, enc *Encoding, count int) {
	attributes := int16(enc.Compression)
	if enc.LogAppendTime {
		attributes |= 1 << 3
	}
	producer := Producer{ID: -1, Epoch: -1, BaseSequence: -1}
	if enc.Producer != nil {
		producer = *enc.Producer
	}
	be := binary.BigEndian
	be.PutUint64(b, uint64(h.baseOffset))
	be.PutUint32(b[v2AtLength:], uint32(len(b)-v2Prefix))
	be.PutUint32(b[v2AtEpoch:], uint32(enc.LeaderEpoch))
	b[v2AtMagic] = 2
	be.PutUint16(b[v2AtAttributes:], uint16(attributes))
	be.PutUint32(b[v2AtLastDelta:], uint32(h.lastOffset-h.baseOffset))
	be.PutUint64(b[v2AtBaseTime:], uint64(h.baseTime))
	be.PutUint64(b[v2AtMaxTime:], uint64(h.maxTime))
	be.PutUint64(b[v2AtProducer:], uint64(producer.ID))
	be.PutUint16(b[v2AtProdEpoch:], uint16(producer.Epoch))
	be.PutUint32(b[v2AtSequence:], uint32(producer.BaseSequence))
	be.PutUint32(b[v2AtCount:], uint32(count))
	be.PutUint32(b[v2AtCRC:], crc32.Checksum(b[v2AtAttributes:], castagnoli))
}

// millis floors, so that a time before 1970 keeps its order.
func millis(ns int64) int64 {
	ms := ns / int64(time.Millisecond)
	if ns%int64(time.Millisecond) < 0 {
		ms--
	}
	return ms
}

func (v2) FrameSize(head []byte) (int, error) {
	if len(head) < v2AtMagic+1 {
		if len(head) < v2Prefix {
			return v2AtMagic + 1, ErrIncomplete
		}
	} else if head[v2AtMagic] != 2 {
		return 0, frameError(2, "magic", v2AtMagic, ErrMalformed, "%d is not 2", head[v2AtMagic])
	}
	n := int32(binary.BigEndian.Uint32(head[v2AtLength:]))
	if n < v2Header-v2Prefix {
		return 0, frameError(2, "batch_length", v2AtLength, ErrMalformed, "%d is less than a batch header's %d", n, v2Header-v2Prefix)
	}
	if n > math.MaxInt32-v2Prefix {
		return 0, frameError(2, "batch_length", v2AtLength, ErrTooLarge, "%d bytes", n)
	}
	return v2Prefix + int(n), nil
}

func (f v2) Parse(data []byte) (Frame, error) { return f.parse(data, true) }

// Describe implements Format.
func (f v2) Describe(data []byte) (Frame, error) { return f.parse(data, false) }

func (f v2) parse(data []byte, check bool) (Frame, error) {
	size, err := f.FrameSize(data)
	if err == ErrIncomplete {
		err = frameError(2, "batch header", len(data), ErrIncomplete, "%d bytes are there", len(data))
	}
	if err != nil {
		return Frame{}, err
	}
	if size > len(data) {
		return Frame{}, frameError(2, "batch", len(data), ErrIncomplete, "batch has %d bytes, %d are there", size, len(data))
	}
	b := data[:size:size]
	be := binary.BigEndian
	if check {
		if stored, sum := be.Uint32(b[v2AtCRC:]), crc32.Checksum(b[v2AtAttributes:], castagnoli); stored != sum {
			return Frame{}, frameError(2, "crc", v2AtCRC, ErrChecksum, "stored %08x, computed %08x", stored, sum)
		}
	}
	base := int64(be.Uint64(b))
	delta := int32(be.Uint32(b[v2AtLastDelta:]))
	count := int32(be.Uint32(b[v2AtCount:]))
	attributes := Attributes(be.Uint16(b[v2AtAttributes:]))
	switch {
	case base < 0 || base > math.MaxInt64-int64(math.MaxInt32)-1:
		return Frame{}, frameError(2, "base_offset", 0, ErrMalformed, "%d is out of range", base)
	case delta < 0:
		return Frame{}, frameError(2, "last_offset_delta", v2AtLastDelta, ErrMalformed, "%d is negative", delta)
	case count < 0 || int64(count) > int64(delta)+1:
		return Frame{}, frameError(2, "records_count", v2AtCount, ErrMalformed, "%d records in %d offsets", count, int64(delta)+1)
	case attributes.Compression() == None && int64(count)*v2MinRecord > int64(size-v2Header):
		return Frame{}, frameError(2, "records_count", v2AtCount, ErrMalformed, "%d records do not fit %d bytes", count, size-v2Header)
	}
	return Frame{
		Version: 2, Bytes: b,
		BaseOffset: base, LastOffset: base + int64(delta), Count: int(count),
		BaseTimestamp: time.UnixMilli(int64(be.Uint64(b[v2AtBaseTime:]))),
		MaxTimestamp:  time.UnixMilli(int64(be.Uint64(b[v2AtMaxTime:]))),
		LeaderEpoch:   int32(be.Uint32(b[v2AtEpoch:])),
		ProducerID:    int64(be.Uint64(b[v2AtProducer:])),
		ProducerEpoch: int16(be.Uint16(b[v2AtProdEpoch:])),
		BaseSequence:  int32(be.Uint32(b[v2AtSequence:])),
		Attributes:    attributes,
	}, nil
}

func (v2) Assign(frames []byte, base int64, epoch int32) int64 {
	be := binary.BigEndian
	for len(frames) > 0 {
		be.PutUint64(frames, uint64(base))
		be.PutUint32(frames[v2AtEpoch:], uint32(epoch))
		base += int64(be.Uint32(frames[v2AtLastDelta:])) + 1
		frames = frames[v2Prefix+int(be.Uint32(frames[v2AtLength:])):]
	}
	return base
}

// StampBatches marks encoded batches of format 2 as stamped by the log, in place: whoever
// reads them finds one time for all their records.
func StampBatches(frames []byte, at time.Time) {
	be := binary.BigEndian
	for len(frames) > 0 {
		b := frames[:v2Prefix+int(be.Uint32(frames[v2AtLength:]))]
		be.PutUint16(b[v2AtAttributes:], be.Uint16(b[v2AtAttributes:])|1<<3)
		be.PutUint64(b[v2AtMaxTime:], uint64(at.UnixMilli()))
		be.PutUint32(b[v2AtCRC:], crc32.Checksum(b[v2AtAttributes:], castagnoli))
		frames = frames[len(b):]
	}
}

func (v2) Annotate(data []byte) []Field {
	whole, err := V2.FrameSize(data)
	if err == nil && whole < len(data) {
		data = data[:whole]
	}
	a := annotator{data: data}
	a.int("base_offset", 8)
	a.int("batch_length", 4)
	a.int("leader_epoch", 4)
	if magic := a.int("magic", 1); magic != 2 && a.has(v2AtMagic+1) {
		a.note("not 2")
	}
	a.uint("crc", 4)
	if a.has(v2AtAttributes) {
		sum := crc32.Checksum(data[v2AtAttributes:], castagnoli)
		stored := binary.BigEndian.Uint32(data[v2AtCRC:])
		a.fields[len(a.fields)-1].Value = fmt.Sprintf("%08x", stored)
		if sum != stored && len(data) == whole {
			a.note("computed %08x", sum)
		}
	}
	at := Attributes(a.int("attributes", 2))
	if a.has(v2AtLastDelta) {
		a.fields[len(a.fields)-1].Value = describe(at)
	}
	a.int("last_offset_delta", 4)
	a.timeMillis("base_timestamp")
	a.timeMillis("max_timestamp")
	a.int("producer_id", 8)
	a.int("producer_epoch", 2)
	a.int("base_sequence", 4)
	count := a.int("records_count", 4)
	if !a.has(v2Header) {
		return a.fields
	}
	if at.Compression() != None {
		a.bytes("records ("+at.Compression().String()+")", uint64(len(data)-v2Header))
		return a.fields
	}
	annotateRecords(&a, count)
	return a.fields
}

func describe(at Attributes) string {
	s := at.Compression().String()
	if at.LogAppendTime() {
		s += ", log append time"
	}
	if at.Transactional() {
		s += ", transactional"
	}
	if at.Control() {
		s += ", control"
	}
	return s
}

func (a *annotator) timeMillis(name string) {
	if v := a.int(name, 8); a.pos == len(a.data) || a.fields[len(a.fields)-1].Note == "" {
		a.fields[len(a.fields)-1].Value = time.UnixMilli(v).UTC().Format("2006-01-02T15:04:05.000Z07:00")
	}
}
