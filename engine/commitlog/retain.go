package commitlog

import (
	"fmt"
	"time"
)

// Retention says what may be deleted from the front of a log. A zero limit is none.
type Retention struct {
	// Age lets a segment go when its newest record is older. Segments go from the front,
	// and the first that is too young stops it: a record that a clock which was behind
	// stamped too early goes no earlier than the ones before it. A timestamp ahead of the
	// log's clock counts as the time when the record was written.
	Age time.Duration
	// Bytes lets the oldest segments go as long as at least this much stays.
	Bytes int64
	// Below keeps what is at or above an offset, whatever the other limits say; 0 is no
	// limit. A replica must not forget what is not yet known to be safe.
	Below int64
}

// Retain deletes whole closed segments from the front, as r allows, and returns how
// many. The active segment always stays, so the log never forgets which offset is next.
// Readers that stand in a deleted segment get *OffsetOutOfRangeError.
//
// Errors: ErrClosed, *PoisonedError, *CorruptionError (a segment's age is asked for, its
// index had to be rebuilt, and the segment is damaged: it stays, with those after it).
func (l *Log) Retain(r Retention) (int, error) {
	if r.Age < 0 || r.Bytes < 0 {
		return 0, fmt.Errorf("commitlog: retention %+v is negative; leave a limit 0 for none", r)
	}
	l.round.Lock()
	defer l.round.Unlock()
	if err := l.Usable(); err != nil {
		return 0, err
	}
	n, err := l.expired(r)
	if n == 0 {
		return 0, err
	}
	if aerr := l.advance(max(l.start, l.segments[n].base)); aerr != nil {
		return 0, aerr
	}
	return n, err
}

// AdvanceLogStart makes an offset the first that can be read, and deletes the segments
// that lie wholly below it. It never moves the start back.
//
// Errors: *OffsetOutOfRangeError beyond the log end, ErrClosed, *PoisonedError.
func (l *Log) AdvanceLogStart(offset int64) error {
	l.round.Lock()
	defer l.round.Unlock()
	if err := l.Usable(); err != nil {
		return err
	}
	if offset > l.active.end {
		return &OffsetOutOfRangeError{Offset: offset, Start: l.start, End: l.active.end}
	}
	if offset <= l.start {
		return nil
	}
	return l.advance(offset)
}

// expired counts the segments at the front that may go.
func (l *Log) expired(r Retention) (int, error) {
	total := int64(0)
	for _, s := range l.segments {
		total += s.size
	}
	deadline := l.opt.Now().Add(-r.Age).UnixNano()
	n := 0
	for ; n < len(l.segments)-1; n++ {
		s := l.segments[n]
		if r.Below > 0 && s.end > r.Below {
			break
		}
		big := r.Bytes > 0 && total-s.size >= r.Bytes // asks for no index, so damage does not stop it
		if !big {
			old, err := l.older(s, r.Age, deadline)
			if err != nil {
				return n, err
			}
			if !old {
				break
			}
		}
		total -= s.size
	}
	return n, nil
}

// older reports whether a segment's newest record is older than an age allows. A record
// from the future counts as written when its segment was indexed, or it would hold its
// segment, and all after it, until its time has come.
func (l *Log) older(s *segment, age time.Duration, deadline int64) (bool, error) {
	if age == 0 {
		return false, nil
	}
	newest := int64(0)
	err := s.withIndex(l, s.size, func(x *index) { newest = x.newestPast })
	return newest < deadline, err
}

// advance moves the log start. The checkpoint is written first: a crash before the
// files are gone leaves leftovers that Open removes.
func (l *Log) advance(start int64) error {
	n := 0
	for n < len(l.segments)-1 && l.segments[n].end <= start {
		n++
	}
	dropped := l.segments[:n]
	old, oldStart := l.segments, l.start
	l.segments, l.start = l.segments[n:], start
	if err := l.writeCheckpoint(nil); err != nil {
		l.segments, l.start = old, oldStart
		l.poison(err)
		return &PoisonedError{Dir: l.dir, Cause: err}
	}
	l.first = start
	l.publish()
	if l.findFirst(); l.first != start {
		l.publish()
	}
	for _, s := range dropped {
		s.file.Close()
		if err := removeSegment(l.fs, s.path); err != nil {
			l.poison(err)
			return &PoisonedError{Dir: l.dir, Cause: err}
		}
	}
	if len(dropped) == 0 {
		return nil
	}
	if err := l.fs.SyncDir(l.dir); err != nil {
		l.poison(err)
		return &PoisonedError{Dir: l.dir, Cause: err}
	}
	return nil
}
