package service

import (
	"encoding/binary"
	"io"
	"iter"
	"sync"
	"time"

	"logbook/engine/commitlog"
	"logbook/engine/failure"
	"logbook/engine/node"
	"logbook/engine/record"
)

// Fetch reads partitions, up to their high watermarks.
type Fetch struct {
	Partitions []FetchPartition
	// MaxBytes is how much is returned in all; 0 is no limit but the partitions' own. Once
	// it is reached, what is left of the partitions is looked at and not read. At least one
	// frame is returned, however large.
	MaxBytes int
	// MinBytes is how much is worth an answer; 0 is one frame.
	MinBytes int
	// MaxWait is how long to wait for that, at most a minute.
	MaxWait time.Duration
	// Reserve, if set, is asked for memory before something is read: it takes at most n bytes
	// and returns how many it took. Where there are none, the fetch tries again later, until
	// RequestTimeout. What was returned in Frames is the caller's to release; what was
	// reserved and not used is given to Release, which may be less than nothing.
	Reserve func(n int64) int64
	Release func(n int64)
}

// FetchPartition says what to read of a partition.
type FetchPartition struct {
	Partition Partition
	Offset    int64
	MaxBytes  int // a frame that is larger is returned if it is the first
	// LeaderEpoch is the highest that the reader has heard of; a leader that was replaced
	// is found out by it.
	LeaderEpoch int32
	// Copies: a follower that is in sync will do as well, with what it knows to be safe.
	Copies bool
}

// Fetched is what was read of a partition: one consistent look.
type Fetched struct {
	Partition Partition
	Err       error
	Look      node.Look
	Format    record.Format
	Frames    []byte // as stored, each checked; the first may begin below the offset
	Next      int64  // where to go on
}

// Records iterates over the records from an offset on. A record is borrowed until the next one.
func (f Fetched) Records(from int64) iter.Seq2[record.Record, error] {
	return func(yield func(record.Record, error) bool) {
		frames, err := record.DescribeAll(f.Format, f.Frames)
		if err != nil {
			yield(record.Record{}, err)
			return
		}
		var it record.Iterator
		for _, frame := range frames {
			for it.Reset(frame); it.Next(); {
				if r := it.Record(); r.Offset >= from && !yield(r, nil) {
					return
				}
			}
			if err := it.Err(); err != nil {
				yield(record.Record{}, err)
				return
			}
		}
	}
}

// maxFetchWait is the longest that a fetch may wait for records.
const maxFetchWait = time.Minute

// Fetch reads, and calls done, once, with what it found in each partition, in the order
// in which they were asked for: as soon as there are MinBytes in them, or an error, or
// MaxWait is over. cancel makes it answer at once.
//
// Errors, for each partition: UnknownTopic, UnknownPartition, NotLeader, OutOfRange,
// Unavailable, Damaged.
func (s *Service) Fetch(q Fetch, done func([]Fetched)) (cancel func()) {
	f := &fetch{s: s, q: q, done: done}
	if wait := min(q.MaxWait, maxFetchWait); wait > 0 {
		f.mu.Lock() // it may expire at once
		f.patient = true
		f.timer = s.after(wait, f.expire)
		f.mu.Unlock()
	}
	s.work(f.look)
	return f.expire
}

// fetch is a fetch that may have to wait.
type fetch struct {
	s     *Service
	q     Fetch
	done  func([]Fetched)
	timer *timer

	mu      sync.Mutex
	patient bool // it may go on waiting
	looking bool
	again   bool // something has changed while it looked
	ended   bool
	cancels []func()

	// Used by who looks:
	found    []Fetched // so far
	starving time.Time // since when there is no memory to read into
}

// look reads every partition, and answers or watches them.
func (f *fetch) look() {
	f.mu.Lock()
	if f.ended || f.looking {
		f.again = true
		f.mu.Unlock()
		return
	}
	f.looking = true
	for _, cancel := range f.cancels {
		cancel()
	}
	f.cancels = nil
	f.mu.Unlock()
	for {
		ready, starved := f.read()
		f.mu.Lock()
		if starved && !ready {
			if f.starves() {
				f.looking = false
				f.mu.Unlock()
				f.s.after(memoryRetry, func() { f.s.work(f.look) })
				return
			}
			ready = true
		}
		if ready || !f.patient {
			f.ended = true
			f.mu.Unlock()
			f.s.timers.stop(f.timer)
			f.done(f.found)
			return
		}
		if !f.again {
			next := f.next() // before somebody else looks
			f.looking = false
			f.mu.Unlock()
			f.watch(next)
			return
		}
		f.again = false
		f.mu.Unlock()
	}
}

// read reads what each partition has beyond what was found before: records below the high
// watermark stay what they are.
func (f *fetch) read() (ready, starved bool) {
	if f.found == nil {
		f.found = make([]Fetched, len(f.q.Partitions))
		for i, q := range f.q.Partitions {
			f.found[i] = Fetched{Partition: q.Partition, Next: q.Offset}
		}
	}
	total := 0
	for i := range f.found {
		total += len(f.found[i].Frames)
	}
	for i, q := range f.q.Partitions {
		was := &f.found[i]
		room := q.MaxBytes - len(was.Frames)
		if f.q.MaxBytes > 0 {
			room = min(room, f.q.MaxBytes-total)
		}
		if room <= 0 && total > 0 {
			room = -1
		}
		q.Offset = was.Next
		reserved := int64(max(0, room))
		if f.q.Reserve != nil && reserved > 0 {
			if reserved = f.q.Reserve(reserved); reserved == 0 {
				room, starved = -1, true
			} else {
				room = int(reserved)
			}
		}
		r := f.s.read(q, room)
		if f.q.Reserve != nil && reserved != int64(len(r.Frames)) {
			f.q.Release(reserved - int64(len(r.Frames)))
		}
		if is[*node.OffsetNotAvailableError](r.Err) && f.q.MaxWait > 0 {
			f.mu.Lock()
			if f.patient {
				r.Err = nil // it may be, soon
			}
			f.mu.Unlock()
		}
		total += len(r.Frames)
		switch {
		case r.Err != nil && len(was.Frames) > 0: // whoever comes for the rest will hear of it
			ready = true
			continue
		case r.Err != nil:
			ready = true
		case len(was.Frames) > 0:
			r.Frames = append(was.Frames, r.Frames...)
		}
		*was = r
	}
	ready = ready || total >= max(1, f.q.MinBytes) || f.q.MaxBytes > 0 && total >= f.q.MaxBytes
	return ready, starved && total == 0 && f.behind()
}

// next is where each partition is to be read on.
func (f *fetch) next() []int64 {
	next := make([]int64, len(f.found))
	for i := range f.found {
		next[i] = f.found[i].Next
	}
	return next
}

// behind reports whether some partition has what was asked for.
func (f *fetch) behind() bool {
	for i := range f.found {
		if r := &f.found[i]; r.Err == nil && r.Next < r.Look.HighWatermark {
			return true
		}
	}
	return false
}

// memoryRetry is how long a fetch waits that found no memory.
const memoryRetry = 10 * time.Millisecond

// starves reports whether the fetch should wait for memory; where it has for long, it says so
// in each partition.
func (f *fetch) starves() bool {
	now := f.s.now()
	if f.starving.IsZero() {
		f.starving = now
	}
	if now.Sub(f.starving) < f.s.cfg.RequestTimeout {
		return true
	}
	for i := range f.found {
		if f.found[i].Err == nil {
			f.found[i].Err = &failure.Error{Code: failure.Unavailable, Message: "replies that are under way take all the memory there is for them; ask again, or for less"}
		}
	}
	return false
}

// read reads a partition: at most room bytes or one frame, or nothing where room is negative.
func (s *Service) read(q FetchPartition, room int) Fetched {
	r := Fetched{Partition: q.Partition, Next: q.Offset}
	var c commitlog.Chunk
	err := s.Image().Check(q.Partition)
	switch {
	case err != nil:
	case room < 0:
		r.Look, err = s.node.LookHere(q.Partition, q.Copies)
	default:
		r.Look, c, err = s.node.Read(q.Partition, q.Offset, room, q.LeaderEpoch, q.Copies)
	}
	if err == nil {
		err = s.leased(q.Partition) // it was when the partition was read
	}
	if err != nil {
		r.Err = s.fail(err)
		return r
	}
	r.Format, r.Frames, r.Next = r.Look.Format, c.Frames, max(q.Offset, c.Next)
	return r
}

// watch looks again when a partition has something at next or after it.
func (f *fetch) watch(next []int64) {
	for i, q := range f.q.Partitions {
		cancel := f.s.node.Watch(q.Partition, next[i], q.Copies, func() { f.s.work(f.look) })
		f.mu.Lock()
		if f.ended || f.looking {
			f.mu.Unlock()
			cancel()
			return
		}
		f.cancels = append(f.cancels, cancel)
		f.mu.Unlock()
	}
}

// expire makes the fetch answer with what there is.
func (f *fetch) expire() {
	f.mu.Lock()
	if f.ended || !f.patient {
		f.mu.Unlock()
		return
	}
	f.patient = false
	f.mu.Unlock()
	f.s.work(f.look)
}

// Where names an offset of a partition.
type Where string

const (
	Earliest Where = "earliest" // the log start offset
	Latest   Where = "latest"   // the high watermark: the offset after the last that can be read
	AtTime   Where = "time"     // of the first record at or after a time; Latest where there is none
)

// ListOffset finds an offset of a partition.
//
// Errors: UnknownTopic, UnknownPartition, NotLeader, BadRequest, Unavailable, Damaged.
func (s *Service) ListOffset(p Partition, where Where, at time.Time, done func(offset int64, look node.Look, err error)) {
	err := s.Image().Check(p)
	var look node.Look
	if err == nil {
		look, err = s.node.Look(p)
	}
	if err == nil {
		err = s.leased(p)
	}
	if err == nil && !look.Settled && where != Earliest {
		err = &node.OffsetNotAvailableError{Partition: p, Broker: s.cfg.ID, HighWatermark: look.HighWatermark}
	}
	switch {
	case err != nil:
		done(0, look, s.fail(err))
	case where == Earliest:
		done(look.LogStartOffset, look, nil)
	case where == Latest:
		done(look.HighWatermark, look, nil)
	case where == AtTime:
		s.work(func() {
			offset, err := s.offsetAt(p, at)
			done(offset, look, s.fail(err))
		})
	default:
		done(0, look, badRequest("an offset of kind %q; it must be %s, %s or %s", where, Earliest, Latest, AtTime))
	}
}

// offsetAt looks a time up.
func (s *Service) offsetAt(p Partition, at time.Time) (int64, error) {
	return s.node.OffsetForTime(p, record.Nanos(at))
}

// EpochEnd says where a leader epoch ends; see node.Node.EpochEnd.
//
// Errors: UnknownTopic, UnknownPartition, NotLeader, Unavailable, Damaged.
func (s *Service) EpochEnd(p Partition, epoch int32) (int32, int64, error) {
	if err := s.Image().Check(p); err != nil {
		return -1, -1, s.fail(err)
	}
	e, end, err := s.node.EpochEnd(p, epoch)
	return e, end, s.fail(err)
}

// Producers describes the idempotent producers that have written to a partition.
//
// Errors: those of EpochEnd.
func (s *Service) Producers(p Partition) ([]commitlog.ProducerBatch, error) {
	if err := s.Image().Check(p); err != nil {
		return nil, s.fail(err)
	}
	all, err := s.node.Producers(p)
	return all, s.fail(err)
}

// NewProducerID draws an id for an idempotent producer.
//
// Errors: Internal (there are no random bytes).
func (s *Service) NewProducerID() (int64, error) {
	var b [8]byte
	if _, err := io.ReadFull(s.cfg.Random, b[:]); err != nil {
		return 0, s.fail(err)
	}
	return int64(binary.BigEndian.Uint64(b[:]) >> 1), nil
}
