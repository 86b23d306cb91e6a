package commitlog

import (
	"context"
	"io"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"logbook/engine/record"
	"logbook/engine/vfs"
)

// Log is one partition's log. It is safe for concurrent use.
//
// Locks, in the order they are taken: round (one write-and-sync, or one maintenance
// operation, at a time), then mu (what appends touch). Readers take neither.
type Log struct {
	dir    string
	opt    Options
	fs     vfs.FS
	format record.Format
	lock   io.Closer

	mu       sync.Mutex
	queue    *cohort
	spare    *cohort
	failed   error // what poisoned the log
	closed   bool
	enlisted bool // guarded by the committer's lock

	round        sync.Mutex
	segments     []*segment // in order; replaced, never changed in place
	active       *segment   // the last of them
	start        int64      // log start offset
	first        int64      // base offset of the frame that holds it, if that is lower
	mark         *markFile
	checkpointed int64 // size of the active segment when its index was last saved
	epoch        int32 // leader epoch that the next batch gets
	id           uint64
	unnoted      int   // rounds since the mark was written
	unsynced     bool  // written bytes wait for a sync (SyncInterval)
	cuts         int64 // truncations and resets since Open
	compactedTo  int64 // CompactRipe has compacted what lies below
	timer        *time.Timer

	segmentBytes atomic.Int64 // at which a segment is closed

	epochs    atomic.Pointer[[]EpochStart]
	compacted atomic.Bool // frames may leave gaps between offsets (format 1)

	view     atomic.Pointer[view]
	wakeMu   sync.Mutex
	wake     chan struct{} // closed when the view changes; nil while nobody waits
	stats    counters
	recovery Recovery
}

// view is what readers see: an immutable picture of the acknowledged log.
type view struct {
	segments []*segment
	start    int64
	first    int64 // see Log.FirstOffset
	end      int64 // log end offset
	size     int64 // readable bytes of the last segment; the others are readable whole
	cuts     int64 // how often the end was moved back: what a reader read ahead before is not to be believed
}

type counters struct {
	rounds, syncs, frames atomic.Int64
}

// Stats counts what a log did since it was opened.
type Stats struct {
	Frames int64 // frames appended: records in formats 0 and 1, batches in format 2
	Rounds int64 // writes that made them
	Syncs  int64
}

// Stats returns the counts since Open.
func (l *Log) Stats() Stats {
	return Stats{Frames: l.stats.frames.Load(), Rounds: l.stats.rounds.Load(), Syncs: l.stats.syncs.Load()}
}

// Open opens the log in dir, or makes one where dir is empty or does not exist. It locks
// the log, recovers it as Options.Recovery says, and returns it ready for appends.
//
// Errors: *LockedError, *NotALogError, *FormatMismatchError, *CorruptionError; after
// each of them nothing on disk has changed.
func Open(dir string, opt Options) (*Log, error) {
	opt, err := opt.withDefaults()
	if err != nil {
		return nil, err
	}
	l := &Log{dir: dir, opt: opt, fs: opt.FS}
	l.segmentBytes.Store(opt.SegmentBytes)
	if err := l.open(); err != nil {
		_ = l.release() // what went wrong first is what counts
		return nil, err
	}
	l.queue = l.newCohort()
	l.first = l.start
	l.publish()
	l.findFirst() // reads the view
	l.publish()
	return l, nil
}

// release closes every file and gives up the lock.
func (l *Log) release() error {
	var first error
	keep := func(err error) {
		if first == nil {
			first = err
		}
	}
	for _, s := range l.segments {
		keep(s.file.Close())
	}
	if l.mark != nil {
		keep(l.mark.file.Close())
	}
	if l.lock != nil {
		keep(l.lock.Close())
	}
	return first
}

// Close syncs what is written, notes that the log ends cleanly, and releases files and
// lock. Appends that wait are answered first; later calls get ErrClosed. A poisoned log
// is closed as it is.
func (l *Log) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return ErrClosed
	}
	l.closed = true
	queued := l.queue
	waiting := len(queued.frames) > 0
	l.mu.Unlock()
	if waiting {
		<-queued.done
	}
	l.round.Lock()
	defer l.round.Unlock()
	if l.timer != nil {
		l.timer.Stop()
	}
	l.mu.Lock()
	failed := l.failed
	l.mu.Unlock()
	var err error
	if failed == nil {
		err = l.finish()
	}
	l.broadcast()
	if rerr := l.release(); err == nil {
		err = rerr
	}
	return err
}

// finish leaves the files as a clean reopen wants them: cut to size, indexed, marked.
func (l *Log) finish() error {
	if err := l.active.seal(l.fs); err != nil {
		return err
	}
	return l.note(true, true)
}

// Sync makes everything acknowledged so far durable. Under SyncAlways it already is.
func (l *Log) Sync() error {
	l.round.Lock()
	defer l.round.Unlock()
	l.timer = nil
	l.mu.Lock()
	err := l.refusal()
	l.mu.Unlock()
	if err != nil {
		return err
	}
	if l.opt.Sync == SyncInterval && !l.unsynced {
		return nil
	}
	if err := l.syncActive(false); err != nil {
		l.poison(err)
		return &PoisonedError{Dir: l.dir, Cause: err}
	}
	return nil
}

// Dir is the directory that the log owns.
func (l *Log) Dir() string { return l.dir }

// Format is the frame format that the log was made with.
func (l *Log) Format() record.Format { return l.format }

// StartOffset is the log start offset: the first that can be read.
func (l *Log) StartOffset() int64 { return l.view.Load().start }

// Bytes is the size of all frames.
func (l *Log) Bytes() int64 {
	v := l.view.Load()
	n := v.size
	for _, s := range v.segments[:len(v.segments)-1] {
		n += s.size
	}
	return n
}

// FirstOffset is the offset from which whole frames can be read: the log start offset, or
// the base offset of the batch that it lies in.
func (l *Log) FirstOffset() int64 { return l.view.Load().first }

// findFirst finds out where the frame begins that holds the log start. It reads only
// where the start is not where a segment begins.
func (l *Log) findFirst() {
	l.first = l.start
	if s := l.segments[l.segmentsBelow(l.start)]; s.base == l.start || l.start >= l.active.end {
		return
	}
	if edge, err := l.frameEdge(l.start); err == nil { // damage is for readers to report
		l.first = edge
	}
}

// EndOffset is the log end offset: what the next acknowledged record gets.
func (l *Log) EndOffset() int64 { return l.view.Load().end }

// publish shows readers what is acknowledged now. The round lock is held, or the log is not shared yet.
func (l *Log) publish() {
	l.view.Store(&view{segments: l.segments, start: l.start, first: min(l.first, l.start), end: l.active.end, size: l.active.size, cuts: l.cuts})
	l.broadcast()
}

func (l *Log) broadcast() {
	l.wakeMu.Lock()
	if l.wake != nil {
		close(l.wake)
		l.wake = nil
	}
	l.wakeMu.Unlock()
}

// Wait blocks until a record with the given offset is acknowledged. It returns the
// context's error when that ends first, and ErrClosed when the log is closed.
func (l *Log) Wait(ctx context.Context, offset int64) error {
	for {
		l.wakeMu.Lock()
		if l.wake == nil {
			l.wake = make(chan struct{})
		}
		wake := l.wake
		l.wakeMu.Unlock()
		if offset < l.EndOffset() {
			return nil
		}
		l.mu.Lock()
		closed := l.closed
		l.mu.Unlock()
		if closed {
			return ErrClosed
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (l *Log) path(name string) string { return filepath.Join(l.dir, name) }

// writeCheckpoint replaces the checkpoint by the log's present state. truncateTo is set
// while a truncation is under way.
func (l *Log) writeCheckpoint(truncateTo *int64) error {
	c := l.checkpoint()
	c.Truncate = truncateTo
	return writeSealed(l.fs, l.path(checkpointName), c)
}

// checkpoint describes the log's present state.
func (l *Log) checkpoint() checkpoint {
	c := checkpoint{Version: 1, Start: l.start, First: l.segments[0].base, Epochs: *l.epochs.Load(), Compacted: l.compacted.Load()}
	for _, s := range l.segments {
		if s != l.active {
			c.Segments = append(c.Segments, closedSegment{Base: s.base, End: s.end, Bytes: s.size})
		}
	}
	return c
}
