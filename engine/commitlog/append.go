package commitlog

import (
	"errors"
	"fmt"
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

// cohort is what one round of writes and one sync will make durable.
type cohort struct {
	parts   []part        // what is written, one after another
	free    []byte        // an answered cohort's buffer
	frames  []frameRef    // their offsets count from 0 until the round assigns base
	records int64         // offsets covered
	base    int64         // offset of the first record, once the round has begun
	done    chan struct{} // closed when err is set and the bytes are durable, or never will be
	err     error
	// borrowed: the parts are somebody else's, not to be kept.
	borrowed bool
	gaps     bool // format 1: offsets are missing between its frames
}

// part is bytes that are written together.
type part struct {
	buf    []byte
	frames int // how many there are in it
}

// largeBatch is the size from which a batch is written as it is: with smaller ones a copy
// costs less than a system call.
const largeBatch = 32 << 10

// add takes over a batch's bytes.
func (co *cohort) add(b *Batch) {
	n := len(co.parts)
	if n > 0 && len(b.buf) < largeBatch && len(co.parts[n-1].buf) < largeBatch {
		last := &co.parts[n-1]
		last.buf = append(last.buf, b.buf...)
		last.frames += len(b.frames)
		return
	}
	co.parts = append(co.parts, part{buf: b.buf, frames: len(b.frames)}) // lent: no copy for a lone writer
	b.buf, co.free = co.free, nil
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
	b := batches.Get().(*Batch)
	defer batches.Put(b)
	if err := b.encode(l.format, records, record.Encoding{Timestamp: l.opt.Now(), Compression: l.opt.Compression}, l.limits()); err != nil {
		return Appended{}, err
	}
	return l.append(b)
}

// AppendBatch stores frames that somebody else encoded, as they come: only their
// offsets and leader epoch are patched, in a copy. Every record in them is decoded once,
// so that nothing unreadable is stored.
func (l *Log) AppendBatch(frames []byte) (Appended, error) {
	b := batches.Get().(*Batch)
	defer batches.Put(b)
	b.buf = append(b.buf[:0], frames...)
	if err := b.parse(l.format, l.limits()); err != nil {
		return Appended{}, err
	}
	return l.append(b)
}

func (l *Log) append(b *Batch) (Appended, error) {
	p, err := l.Begin(b)
	if err != nil {
		return Appended{}, err
	}
	return p.Wait()
}

// Pending is an append that has its place in the log's order, and is not durable yet.
type Pending struct {
	log       *Log
	cohort    *cohort
	before    int64 // records of the cohort ahead of it
	records   int64
	timestamp time.Time
}

// Begin gives a batch its place after all that were begun before, and returns at once. The
// batch is the log's from then on. Wait must be called: it may be what makes the batch
// durable.
//
// Errors: ErrClosed, *PoisonedError, and an error where the batch is of another format.
func (l *Log) Begin(b *Batch) (Pending, error) {
	if b.format != l.format {
		return Pending{}, fmt.Errorf("commitlog: a batch of format %d for the log in %s, which has format %d", b.format.Version(), l.dir, l.format.Version())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.refusal(); err != nil {
		return Pending{}, err
	}
	co := l.queue
	p := Pending{log: l, cohort: co, before: co.records, records: b.records, timestamp: b.timestamp}
	co.records += b.records
	co.add(b)
	for _, r := range b.frames {
		r.base += p.before
		r.next += p.before
		co.frames = append(co.frames, r)
	}
	l.opt.Committer.enlist(l)
	return p, nil
}

// Ready reports whether Wait would return at once.
func (p Pending) Ready() bool {
	select {
	case <-p.cohort.done:
		return true
	default:
		return false
	}
}

// Wait returns when the batch is durable, as Options.Sync defines it.
//
// Error: *PoisonedError: nobody knows whether it is stored.
func (p Pending) Wait() (Appended, error) {
	if !p.Ready() {
		_ = p.log.opt.Committer.commit(p.cohort) // its error is the cohort's
	}
	if p.cohort.err != nil {
		return Appended{}, p.cohort.err
	}
	base := p.cohort.base + p.before
	return Appended{BaseOffset: base, LastOffset: base + p.records - 1, Timestamp: p.timestamp}, nil
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
	l.endRound(l.beginRound(), false)
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

// endRound syncs what beginRound wrote, unless it was flushed with others, shows it to
// readers and answers the writers.
func (l *Log) endRound(co *cohort, flushed bool) {
	defer l.round.Unlock()
	if len(co.frames) == 0 { // the round before this one already took what was queued
		return
	}
	if co.err == nil {
		co.err = l.syncRound(flushed)
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
func (l *Log) syncRound(flushed bool) error {
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
	return l.syncActive(flushed)
}

// syncActive syncs the active segment, unless it was flushed with others, and notes its end
// in the mark. The round lock is held.
func (l *Log) syncActive(flushed bool) error {
	s := l.active
	if !flushed {
		if err := s.file.Sync(); err != nil {
			return err
		}
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
	if l.unnoted++; flushed && !both && l.unnoted < noteEvery && !l.strictTail() {
		return nil
	}
	if err := l.note(false, both); err != nil || !l.strictTail() {
		return err
	}
	// Formats 0 and 1 have no checksum: zeros of a preallocated file after the start of
	// a torn frame look like its payload. Nothing above the mark can be believed there,
	// so the mark must be durable before anything is acknowledged: a second sync.
	return l.mark.file.Sync()
}

// noteEvery is how many rounds may pass between two notes in the mark where many files are
// flushed together: a mark a file would double their number. What is above the mark is
// found by its checksums; it is only when the end of a file went missing, cut between two
// frames, that nothing tells.
const noteEvery = 16

// note writes how far the active segment is durable.
func (l *Log) note(clean, both bool) error {
	s := l.active
	l.unnoted = 0
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
	next := co.base
	for _, p := range co.parts {
		next = l.format.Assign(p.buf, next, l.epoch)
	}
	for i := range co.frames {
		co.frames[i].base += co.base
		co.frames[i].next += co.base
	}
	return l.writeFrames(co)
}

// writeFrames writes frames that have their offsets.
func (l *Log) writeFrames(co *cohort) error {
	frames := co.frames
	for _, p := range co.parts {
		if err := l.writePart(p.buf, frames[:p.frames]); err != nil {
			return err
		}
		frames = frames[p.frames:]
	}
	return nil
}

// writePart writes frames that stand in one buffer.
func (l *Log) writePart(buf []byte, frames []frameRef) error {
	from, first, size := 0, 0, 0
	for i, r := range frames {
		if full := l.active.size + int64(size); full > 0 && full+int64(r.size) > l.segmentBytes.Load() {
			if err := l.active.write(buf[from:from+size], frames[first:i], l.segmentBytes.Load()); err != nil {
				return err
			}
			if err := l.roll(); err != nil {
				return err
			}
			from, first, size = from+size, i, 0
		}
		size += r.size
	}
	return l.active.write(buf[from:], frames[first:], l.segmentBytes.Load())
}

// SetSegmentBytes changes the size at which a segment is closed, from the next append on.
// 0, and what is too large, leave it as it is.
func (l *Log) SetSegmentBytes(n int64) {
	if n <= 0 || n > maxSegmentBytes {
		return
	}
	l.segmentBytes.Store(n)
}

// Roll closes the active segment where all it holds is older than an age, so that retention
// and compaction can have it. It reports whether it did.
//
// Errors: ErrClosed, *PoisonedError.
func (l *Log) Roll(age time.Duration) (bool, error) {
	l.round.Lock()
	defer l.round.Unlock()
	if err := l.Usable(); err != nil {
		return false, err
	}
	s := l.active
	s.mu.RLock()
	oldest := s.index.first
	s.mu.RUnlock()
	if s.size == 0 || oldest > l.opt.Now().Add(-age).UnixNano() {
		return false, nil
	}
	if err := l.roll(); err != nil {
		l.poison(err)
		return false, &PoisonedError{Dir: l.dir, Cause: err}
	}
	l.publish()
	return true, nil
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
	return &cohort{free: co.free[:0], parts: co.parts[:0], frames: co.frames[:0], done: make(chan struct{})}
}

// maxSpare is how large a buffer may be that is kept: there may be thousands of logs.
const maxSpare = 64 << 10

// recycle keeps an answered cohort's buffers for a later one. Writers still read its
// done and err, so the cohort itself is not used again.
func (l *Log) recycle(co *cohort) {
	if co.borrowed {
		return
	}
	l.mu.Lock()
	spare := &cohort{parts: co.parts, frames: co.frames}
	for i := range co.parts {
		if b := co.parts[i].buf; cap(b) > cap(spare.free) && cap(b) <= maxSpare {
			spare.free = b
		}
		co.parts[i].buf = nil
	}
	l.spare = spare
	l.mu.Unlock()
}
