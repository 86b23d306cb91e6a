package commitlog

import (
	"sync"
	"time"

	"logbook/engine/vfs"
)

// A round that wrote to several files may sync each of them, or have the file system
// flush them together. Together costs one journal commit, but waits for everything else
// that is unsynced on the disk, whoever wrote it. So both are measured, and a flush that
// took longer than syncs would have is not tried again for a while.

// togetherFrom is how many files are worth flushing together.
const togetherFrom = 3

// flush makes the files of a round durable. More than one round may be under way where one
// was left behind, hence the lock.
type flush struct {
	mu      sync.Mutex
	flusher vfs.Flusher
	opened  bool          // or tried to
	each    time.Duration // what syncs at the same time have cost lately, by file
	since   int           // rounds flushed together since syncs were last measured
	wait    int           // rounds to go until files are flushed together again
	backoff int           // how many there were the last time
}

const (
	longFlush    = 5 * time.Millisecond // what is shorter is no trouble, whatever syncs cost
	measureEvery = 1024                 // rounds, of which one is synced file by file to see what that costs
	maxBackoff   = 4096                 // rounds
)

// begunRound is a log's part in a round, written and not durable yet.
type begunRound struct {
	log    *Log
	cohort *cohort
}

// prepare returns what can flush what is about to be written to logs, or nil. It must be
// there before the writes are: only then it hears of those that fail.
func (f *flush) prepare(logs []*Log) vfs.Flusher {
	if len(logs) < togetherFrom {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.opened {
		f.opened = true
		f.flusher, _ = vfs.OpenFlusher(logs[0].fs, logs[0].dir) // without one, files are synced one by one
	}
	switch {
	case f.flusher == nil:
		return nil
	case f.wait > 0:
		f.wait--
		return nil
	case f.since >= measureEvery || f.each == 0 && f.since == 0:
		f.since = 1
		return nil
	}
	f.since++
	return f.flusher
}

// end makes a round durable and answers its writers.
func (f *flush) end(begun []begunRound, flusher vfs.Flusher) {
	began := time.Now()
	flushed := flusher != nil && flusher.Flush(activeFiles(begun)) == nil
	if flushed {
		for _, b := range begun {
			b.log.endRound(b.cohort, b.log.opt.Sync == SyncAlways)
		}
	} else {
		var wg sync.WaitGroup
		for _, b := range begun {
			wg.Go(func() { b.log.endRound(b.cohort, false) })
		}
		wg.Wait()
	}
	if len(begun) < togetherFrom {
		return
	}
	took := time.Since(began)
	f.mu.Lock()
	defer f.mu.Unlock()
	byFile := took / time.Duration(len(begun))
	switch {
	case flusher == nil && f.each == 0:
		f.each = byFile
	case flusher == nil:
		f.each = (3*f.each + byFile) / 4
	case !flushed || took > longFlush && byFile > f.each: // it failed, and the syncs said why; or it waited for others
		f.backoff = min(max(16, 2*f.backoff), maxBackoff)
		f.wait = f.backoff
	default:
		f.backoff = 0
	}
}

// activeFiles are those that a round wrote to. Files that it filled were synced when they
// were closed.
func activeFiles(begun []begunRound) []vfs.File {
	files := make([]vfs.File, len(begun))
	for i, b := range begun {
		files[i] = b.log.active.file
	}
	return files
}
