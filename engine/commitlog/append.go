package commitlog

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"logbook/engine/record"
)

// Appended says where an append landed.
type Appended struct {
	BaseOffset int64     // of its first record
	LastOffset int64     // of its last
	Timestamp  time.Time // of its first record, as stored: format 2 keeps milliseconds
}

// frameRef describes an encoded frame that waits in a cohort.
type frameRef struct {
	base, next int64
	size       int
	timestamp  int64 // newest in the frame, ns
}

// cohort is what one write and one sync will make durable.
type cohort struct {
	buf     []byte
	frames  []frameRef    // their offsets count from 0 until the round assigns base
	records int64         // offsets covered
	base    int64         // offset of the first record, once the round has begun
	done    chan struct{} // closed when err is set and the bytes are durable, or never will be
	err     error
	// borrowed: buf is somebody else's, not to be kept.
	borrowed bool
}

// Append stores records and returns when they are durable, as Options.Sync defines it.
// Offsets are assigned by the log; the Offset fields are ignored. Records without a
// timestamp get the time of the append. In format 2 the records are one batch and are
// stored wholly or not at all; in formats 0 and 1 a crash may leave the first few.
//
// It takes no context: what was handed to the disk cannot be taken back, and a caller
// that stopped waiting would not know whether its records were stored.
//
// Errors: *TooLargeError, *record.FrameError (the format cannot store a record),
// ErrEmptyAppend, ErrClosed, *PoisonedError. After any but the last, nothing was stored.
func (l *Log) Append(records ...record.Record) (Appended, error) {
	if err := l.checkLimits(records); err != nil {
		return Appended{}, err
	}
	e := encoders.Get().(*encoder)
	defer encoders.Put(e)
	var err error
	e.buf, err = l.format.AppendFrames(e.buf[:0], records, record.Encoding{
		Timestamp: l.opt.Now(), Compression: l.opt.Compression,
	})
	if err != nil {
		return Appended{}, err
	}
	if err := e.describe(l.format, nil); err != nil {
		return Appended{}, err
	}
	return l.enqueue(e)
}

// AppendBatch stores frames that somebody else encoded, as they come: only their
// offsets and leader epoch are patched, in a copy. Every record in them is decoded once,
// so that nothing unreadable is stored.
func (l *Log) AppendBatch(frames []byte) (Appended, error) {
	if len(frames) == 0 {
		return Appended{}, ErrEmptyAppend
	}
	if len(frames) > l.opt.MaxBatchBytes {
		return Appended{}, &TooLargeError{What: "batch", Size: len(frames), Limit: l.opt.MaxBatchBytes}
	}
	e := encoders.Get().(*encoder)
	defer encoders.Put(e)
	e.buf = append(e.buf[:0], frames...)
	i := 0
	if err := e.describe(l.format, func(f record.Frame) error { return e.checkFrame(l, f, &i) }); err != nil {
		return Appended{}, err
	}
	return l.enqueue(e)
}

func (l *Log) checkLimits(records []record.Record) error {
	if len(records) == 0 {
		return ErrEmptyAppend
	}
	total := 0
	for i := range records {
		r := &records[i]
		if err := l.checkSize(r, i); err != nil {
			return err
		}
		if total += r.Size() + 32; total > l.opt.MaxBatchBytes {
			return &TooLargeError{What: "batch", Index: i, Size: total, Limit: l.opt.MaxBatchBytes}
		}
	}
	return nil
}

// checkSize holds the i-th record of an append to the log's limits.
func (l *Log) checkSize(r *record.Record, i int) error {
	if len(r.Key) > l.opt.MaxKeyBytes {
		return &TooLargeError{What: "key", Index: i, Size: len(r.Key), Limit: l.opt.MaxKeyBytes}
	}
	if n := r.Size(); n > l.opt.MaxRecordBytes {
		return &TooLargeError{What: "record", Index: i, Size: n, Limit: l.opt.MaxRecordBytes}
	}
	return nil
}

// encoder is the reusable state of one append: everything that can be done before the
// log's lock is taken.
type encoder struct {
	buf       []byte
	frames    []frameRef // base and next count from 0 until the log assigns offsets
	records   int64      // offsets covered
	timestamp time.Time  // of the first record
	it        record.Iterator
}

var encoders = sync.Pool{New: func() any { return new(encoder) }}

// describe fills frames from buf. check, if not nil, is asked about each.
func (e *encoder) describe(format record.Format, check func(record.Frame) error) error {
	e.frames, e.records = e.frames[:0], 0
	for at := 0; at < len(e.buf); {
		f, err := format.Parse(e.buf[at:])
		if err != nil {
			return err
		}
		if check != nil {
			if err := check(f); err != nil {
				return err
			}
		}
		if at == 0 {
			e.timestamp = f.BaseTimestamp
		}
		n := f.NextOffset() - f.BaseOffset
		e.frames = append(e.frames, frameRef{
			base: e.records, next: e.records + n, size: len(f.Bytes), timestamp: f.MaxTimestamp.UnixNano(),
		})
		e.records += n
		at += len(f.Bytes)
	}
	return nil
}

// checkFrame decodes every record of a frame that somebody else encoded and holds it to
// the log's limits. i counts the records of the append.
func (e *encoder) checkFrame(l *Log, f record.Frame, i *int) error {
	if f.Count == 0 {
		return ErrEmptyAppend
	}
	if covered := f.NextOffset() - f.BaseOffset; int64(f.Count) != covered {
		return &record.FrameError{Version: f.Version, Field: "records_count", Err: record.ErrMalformed,
			Reason: fmt.Sprintf("%d records in %d offsets; only compaction may leave gaps", f.Count, covered)}
	}
	for e.it.Reset(f); e.it.Next(); *i++ {
		r := e.it.Record()
		if err := l.checkSize(&r, *i); err != nil {
			return err
		}
	}
	return e.it.Err()
}

// enqueue adds the frames to the cohort that commits next and waits.
func (l *Log) enqueue(e *encoder) (Appended, error) {
	l.mu.Lock()
	if err := l.refusal(); err != nil {
		l.mu.Unlock()
		return Appended{}, err
	}
	co := l.queue
	before := co.records
	co.records += e.records
	if len(co.buf) == 0 {
		co.buf, e.buf = e.buf, co.buf // the first one lends its buffer: no copy for a lone writer
	} else {
		co.buf = append(co.buf, e.buf...)
	}
	for _, r := range e.frames {
		r.base += before
		r.next += before
		co.frames = append(co.frames, r)
	}
	l.mu.Unlock()
	if err := l.opt.Committer.commit(l, co); err != nil {
		return Appended{}, err
	}
	base := co.base + before
	return Appended{BaseOffset: base, LastOffset: base + e.records - 1, Timestamp: e.timestamp}, nil
}

// refusal says why the log takes no appends, if it does not. l.mu is held.
func (l *Log) refusal() error {
	switch {
	case l.closed:
		return ErrClosed
	case l.failed != nil:
		return &PoisonedError{Dir: l.dir, Cause: l.failed}
	}
	return nil
}

// commitQueued is a whole round for one log, when its round lock is free.
func (l *Log) commitQueued() {
	l.round.Lock()
	l.endRound(l.beginRound())
}

// beginRound takes what is queued and writes it. The round lock is held, and stays so
// for endRound to release.
func (l *Log) beginRound() *cohort {
	l.mu.Lock()
	co := l.queue
	l.queue = l.newCohort()
	err := l.failed
	l.mu.Unlock()
	if err == nil && len(co.frames) > 0 {
		err = l.writeCohort(co)
	}
	co.err = err
	return co
}

// endRound syncs what beginRound wrote, shows it to readers and answers the writers.
func (l *Log) endRound(co *cohort) {
	defer l.round.Unlock()
	if len(co.frames) == 0 { // the round before this one already took what was queued
		return
	}
	if co.err == nil {
		co.err = l.syncRound()
	}
	if co.err != nil {
		l.poison(co.err)
		co.err = &PoisonedError{Dir: l.dir, Cause: co.err}
		close(co.done)
		return
	}
	l.stats.rounds.Add(1)
	l.stats.frames.Add(int64(len(co.frames)))
	l.publish()
	close(co.done)
	l.recycle(co)
}

// syncRound makes the active segment durable, if the policy says so, and notes it.
func (l *Log) syncRound() error {
	switch l.opt.Sync {
	case SyncOS:
		return nil
	case SyncInterval:
		l.unsynced = true
		if l.timer == nil {
			l.timer = time.AfterFunc(l.opt.SyncEvery, func() { _ = l.Sync() })
		}
		return nil
	}
	return l.syncActive()
}

// syncActive syncs the active segment and notes its end in the mark. The round lock is held.
func (l *Log) syncActive() error {
	s := l.active
	if err := s.file.Sync(); err != nil {
		return err
	}
	l.stats.syncs.Add(1)
	l.unsynced = false
	both := false
	if s.size-l.checkpointed >= l.opt.CheckpointBytes {
		if err := saveIndex(l.fs, s.indexPath(), s.index); err != nil {
			return err
		}
		l.checkpointed, both = s.size, true
	}
	if err := l.note(false, both); err != nil || !l.strictTail() {
		return err
	}
	// Formats 0 and 1 have no checksum: zeros of a preallocated file behind the start of
	// a torn frame look like its payload. Nothing above the mark can be believed there,
	// so the mark must be durable before anything is acknowledged: a second sync.
	return l.mark.file.Sync()
}

// note writes how far the active segment is durable.
func (l *Log) note(clean, both bool) error {
	s := l.active
	return l.mark.note(mark{segment: s.base, position: s.size, next: s.end, clean: clean, loose: l.loose()}, both)
}

// loose reports whether recovery must keep whole frames above the mark in a format
// without a checksum: they may have been acknowledged without a sync.
func (l *Log) loose() bool { return l.format != record.V2 && l.opt.Sync != SyncAlways }

// strictTail reports whether recovery will drop everything above the mark.
func (l *Log) strictTail() bool { return l.format != record.V2 && l.opt.Sync == SyncAlways }

// writeCohort gives the frames their offsets and writes them to the active segment, or
// to a new one where that is full.
func (l *Log) writeCohort(co *cohort) error {
	co.base = l.active.end
	l.format.Assign(co.buf, co.base, l.epoch)
	for i := range co.frames {
		co.frames[i].base += co.base
		co.frames[i].next += co.base
	}
	return l.writeFrames(co)
}

// writeFrames writes frames that have their offsets.
func (l *Log) writeFrames(co *cohort) error {
	from, first, size := 0, 0, 0
	for i, r := range co.frames {
		if full := l.active.size + int64(size); full > 0 && full+int64(r.size) > l.opt.SegmentBytes {
			if err := l.active.write(co.buf[from:from+size], co.frames[first:i], l.opt.SegmentBytes); err != nil {
				return err
			}
			if err := l.roll(); err != nil {
				return err
			}
			from, first, size = from+size, i, 0
		}
		size += r.size
	}
	return l.active.write(co.buf[from:], co.frames[first:], l.opt.SegmentBytes)
}

// roll closes the active segment and starts the next. The old one is durable and cut to
// its size before the new one exists, and the new one's name before anything is in it.
func (l *Log) roll() error {
	old := l.active
	if err := old.seal(l.fs); err != nil {
		return err
	}
	next, err := l.createSegment(old.end)
	if err != nil {
		return err
	}
	l.segments = append(l.segments[:len(l.segments):len(l.segments)], next)
	l.active = next
	l.checkpointed = 0
	return l.writeCheckpoint(nil)
}

func (l *Log) poison(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var p *PoisonedError
	if l.failed == nil && !errors.As(err, &p) {
		l.failed = err
		l.opt.Logger.Error("log is poisoned: appends are refused until it is reopened", "dir", l.dir, "error", err)
	}
}

// newCohort returns an empty cohort, with the buffers of an answered one if there are any.
func (l *Log) newCohort() *cohort {
	co := l.spare
	l.spare = nil
	if co == nil {
		co = &cohort{}
	}
	return &cohort{buf: co.buf[:0], frames: co.frames[:0], done: make(chan struct{})}
}

// recycle keeps an answered cohort's buffers for a later one. Writers still read its
// done and err, so the cohort itself is not used again.
func (l *Log) recycle(co *cohort) {
	if co.borrowed {
		return
	}
	l.mu.Lock()
	l.spare = &cohort{buf: co.buf, frames: co.frames}
	l.mu.Unlock()
}
