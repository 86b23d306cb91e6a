package commitlog

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"

	"logbook/engine/record"
)

// What a replica of another log needs: frames as they stand there.

// Chunk is a run of whole frames of one leader epoch.
type Chunk struct {
	Base, Next int64  // offsets [Base, Next)
	Epoch      int32  // leader epoch that they were appended in
	Frames     []byte // as stored; empty at the log end
}

// ReadChunk reads whole frames from the one that holds an offset on: at most max bytes but
// at least one frame, and none of another leader epoch or from limit on. It may stop earlier,
// where a segment ends. At the log end, or at limit, the chunk is empty. Its bytes are the
// caller's. It may be asked for what lies between FirstOffset and the log start: a replica
// copies whole frames.
//
// Errors: those of Reader.Next.
func (l *Log) ReadChunk(from, limit int64, max int) (Chunk, error) {
	return l.readChunk(from, limit, max, true)
}

// ReadFrames is ReadChunk for consumers: the frames may be of several leader epochs, and
// Chunk.Epoch is the first one's.
func (l *Log) ReadFrames(from, limit int64, max int) (Chunk, error) {
	return l.readChunk(from, limit, max, false)
}

// readChunk reads once, into the bytes that it returns, and checks the frames there.
func (l *Log) readChunk(from, limit int64, max int, oneEpoch bool) (Chunk, error) {
	c := Chunk{Base: from, Next: from, Epoch: l.epochAt(from)}
	v := l.view.Load()
	lowest := v.start
	if oneEpoch {
		lowest = v.first
	}
	if from < lowest || from > v.end {
		return c, &OffsetOutOfRangeError{Offset: from, Start: v.start, End: v.end}
	}
	if from >= limit {
		return c, nil
	}
	// The index knows the place but for the distance of its entries.
	r := Reader{log: l, next: from, whole: oneEpoch, scan: scanner{window: max + int(l.opt.IndexBytes)}}
	f, err := r.Next()
	if err == io.EOF || err == nil && f.NextOffset() > limit {
		return c, nil
	}
	if err != nil {
		return c, err
	}
	c.Base, c.Epoch, c.Next = f.BaseOffset, l.epochAt(f.BaseOffset), f.NextOffset()
	first := r.scan.lo - len(f.Bytes)
	last := r.scan.lo
	for c.Next < limit && r.scan.holds() {
		f, err := r.scan.next()
		if err != nil || f.NextOffset() > limit || f.NextOffset() > r.bound || r.scan.lo-first > max || oneEpoch && l.epochAt(f.BaseOffset) != c.Epoch {
			break // damage is told to who begins there
		}
		if f.BaseOffset != c.Next && (f.BaseOffset < c.Next || !l.compacted.Load()) {
			break
		}
		c.Next, last = f.NextOffset(), r.scan.lo
	}
	c.Frames = r.scan.buf[first:last:last]
	return c, nil
}

// AppendReplica stores frames exactly as another log stored them: their offsets must
// follow this log's end, and epoch is the leader epoch that they were appended in there.
// It returns the new log end offset when they are durable, as Options.Sync defines it.
//
// Errors: *SequenceError (they do not follow the log end, or have another epoch),
// *EpochError, *record.FrameError, ErrEmptyAppend, ErrClosed, *PoisonedError. After any
// but the last, nothing was stored.
func (l *Log) AppendReplica(frames []byte, epoch int32) (int64, error) {
	if len(frames) == 0 {
		return 0, ErrEmptyAppend
	}
	l.round.Lock()
	if err := l.Usable(); err != nil {
		l.round.Unlock()
		return 0, err
	}
	co, err := l.describeReplica(frames, epoch)
	if err == nil {
		err = l.enterEpoch(epoch)
	}
	if err == nil && co.gaps && !l.compacted.Load() {
		err = l.allowGaps()
	}
	if err != nil {
		l.round.Unlock()
		return 0, err
	}
	next := co.frames[len(co.frames)-1].next
	co.err = l.writeFrames(co)
	l.endRound(co, false)
	return next, co.err
}

// allowGaps notes, before the first is stored, that offsets may have gaps.
func (l *Log) allowGaps() error {
	l.compacted.Store(true)
	if err := l.writeCheckpoint(nil); err != nil {
		l.poison(err)
		return &PoisonedError{Dir: l.dir, Cause: err}
	}
	return nil
}

// describeReplica checks frames that are to be stored as they are.
func (l *Log) describeReplica(frames []byte, epoch int32) (*cohort, error) {
	co := &cohort{borrowed: true, base: l.active.end, done: make(chan struct{})}
	next := l.active.end
	for at := 0; at < len(frames); {
		f, err := l.format.Parse(frames[at:])
		if err != nil {
			return nil, err
		}
		if gap := f.Version != 2 && f.BaseOffset > next; gap {
			co.gaps = true // compaction left them in the log that the frames come from
		} else if f.BaseOffset != next {
			return nil, &SequenceError{Dir: l.dir, What: fmt.Sprintf("offset %d came where %d is due", f.BaseOffset, next)}
		}
		if f.Version == 2 && f.LeaderEpoch != epoch {
			return nil, &SequenceError{Dir: l.dir, What: fmt.Sprintf("the batch at offset %d is of leader epoch %d, not %d", f.BaseOffset, f.LeaderEpoch, epoch)}
		}
		next = f.NextOffset()
		co.frames = append(co.frames, frameRef{base: f.BaseOffset, next: next, size: len(f.Bytes), timestamp: record.Nanos(f.MaxTimestamp)})
		at += len(f.Bytes)
	}
	co.parts = []part{{buf: frames, frames: len(co.frames)}}
	return co, nil
}

// SequenceError: frames of a replica cannot stand where they would have to.
type SequenceError struct {
	Dir  string
	What string
}

func (e *SequenceError) Error() string {
	return fmt.Sprintf("commitlog: cannot store a replica's frames in %s: %s; fetch again from the log end", e.Dir, e.What)
}

// FrameDigest identifies a frame by its content, so that two logs can be compared without
// sending either.
type FrameDigest struct {
	BaseOffset  int64  `json:"base_offset"`
	NextOffset  int64  `json:"next_offset"` // the frame holds offsets [BaseOffset, NextOffset)
	LeaderEpoch int32  `json:"leader_epoch"`
	Hash        uint64 `json:"hash"` // the first 8 bytes of SHA-256 over the frame
}

// FrameDigests returns the digests of the frames from an offset on, at most n of them, ending at the
// log end.
//
// Errors: those of Reader.Next.
func (l *Log) FrameDigests(from int64, n int) ([]FrameDigest, error) {
	var digests []FrameDigest
	err := l.eachFrame(from, func(f record.Frame) bool {
		h := sha256.Sum256(f.Bytes)
		digests = append(digests, FrameDigest{
			BaseOffset: f.BaseOffset, NextOffset: f.NextOffset(), LeaderEpoch: l.epochAt(f.BaseOffset), Hash: binary.BigEndian.Uint64(h[:]),
		})
		return len(digests) < n
	})
	return digests, err
}

// ProducerBatches calls visit with each batch of an idempotent producer, in order.
//
// Errors: those of Reader.Next.
func (l *Log) ProducerBatches(visit func(b ProducerBatch, at Appended)) error {
	if l.format != record.V2 {
		return nil
	}
	return l.eachFrame(l.StartOffset(), func(f record.Frame) bool {
		if b, ok := producerBatch(f); ok {
			visit(b, Appended{BaseOffset: f.BaseOffset, LastOffset: f.LastOffset, Timestamp: f.BaseTimestamp})
		}
		return true
	})
}

func (l *Log) eachFrame(from int64, visit func(record.Frame) bool) error {
	r, err := l.NewReader(from)
	if err != nil {
		return err
	}
	for {
		f, err := r.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil || !visit(f) {
			return err
		}
	}
}
