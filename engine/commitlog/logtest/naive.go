package logtest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"path/filepath"
	"time"

	"logbook/engine/commitlog"
	"logbook/engine/record"
	"logbook/engine/vfs"
)

// Naive is the log that everybody writes first: one file of format 2 batches and an
// offset table in memory. The zero value does what a log must; each field takes one of
// its virtues away, or lets you bring your own.
type Naive struct {
	// Recover is called with the file's bytes when the log is opened and returns how many
	// of them to keep; nil keeps the whole frames at the front.
	Recover   func(file []byte) (keep int)
	NoSync    bool // acknowledges what is only written
	NoDirSync bool // does not make the file's name durable
	NoPoison  bool // goes on after a failed write or sync
}

// TestRecovery checks a tail recovery: given the bytes of a log file of format 2 whose
// end a crash may have torn, recover returns how many bytes of it are whole frames, each
// with the offset that follows the one before, from 0 on. It runs TestLog on a Naive log
// that recovers so.
func TestRecovery(recover func(file []byte) (keep int)) error {
	return TestLog(Naive{Recover: recover}.Open, Traits{})
}

// Open opens the log in a directory. It is an Opener.
func (n Naive) Open(fsys vfs.FS, dir string) (Log, error) {
	if err := fsys.MkdirAll(dir); err != nil {
		return nil, err
	}
	name := filepath.Join(dir, "naive.log")
	f, err := fsys.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		f, err = fsys.Create(name)
	}
	if err == nil && !n.NoDirSync {
		err = fsys.SyncDir(dir)
	}
	if err != nil {
		return nil, err
	}
	l := &naiveLog{Naive: n, file: f}
	return l, l.load()
}

type naiveLog struct {
	Naive
	file   vfs.File
	size   int64
	frames []span // by offset
	failed error
}

type span struct{ at, size int64 }

func wholeFrames(file []byte) (keep int) {
	for next := int64(0); ; {
		f, err := record.V2.Parse(file[keep:])
		if err != nil || f.BaseOffset != next {
			return keep
		}
		keep += len(f.Bytes)
		next = f.NextOffset()
	}
}

// load recovers the file and reads its frames. What it keeps it writes once more: after
// a failed sync, only bytes written again are written by the next one.
func (l *naiveLog) load() error {
	size, err := l.file.Size()
	if err != nil {
		return err
	}
	data := make([]byte, size)
	if n, err := l.file.ReadAt(data, 0); err != nil && (err != io.EOF || n != len(data)) {
		return err
	}
	keep := wholeFrames(data)
	if l.Recover != nil {
		keep = l.Recover(data)
	}
	if keep < 0 || keep > len(data) {
		return fmt.Errorf("recovery keeps %d of %d bytes", keep, len(data))
	}
	frames, err := record.ParseAll(record.V2, data[:keep])
	if err != nil {
		return fmt.Errorf("what recovery keeps is not all frames: %w", err)
	}
	for _, f := range frames {
		l.note(f.NextOffset()-f.BaseOffset, len(f.Bytes))
	}
	if err := l.file.Truncate(int64(keep)); err != nil {
		return err
	}
	if _, err := l.file.WriteAt(data[:keep], 0); err != nil {
		return err
	}
	return l.file.Sync()
}

func (l *naiveLog) note(records int64, size int) {
	for range records {
		l.frames = append(l.frames, span{l.size, int64(size)})
	}
	l.size += int64(size)
}

func (l *naiveLog) Append(records ...record.Record) (commitlog.Appended, error) {
	if l.failed != nil {
		return commitlog.Appended{}, l.failed
	}
	base := l.EndOffset()
	now := time.Unix(978307200, 0)
	frame, err := record.V2.AppendFrames(nil, records, record.Encoding{BaseOffset: base, Timestamp: now})
	if err == nil {
		_, err = l.file.WriteAt(frame, l.size)
	}
	if err == nil && !l.NoSync {
		err = l.file.Sync()
	}
	if err != nil {
		if !l.NoPoison {
			l.failed = err
		}
		return commitlog.Appended{}, err
	}
	l.note(int64(len(records)), len(frame))
	return commitlog.Appended{BaseOffset: base, LastOffset: l.EndOffset() - 1, Timestamp: now}, nil
}

func (l *naiveLog) Read(offset int64) (record.Record, error) {
	if offset < 0 || offset >= l.EndOffset() {
		return record.Record{}, &commitlog.OffsetOutOfRangeError{Offset: offset, End: l.EndOffset()}
	}
	at := l.frames[offset]
	data := make([]byte, at.size)
	if _, err := l.file.ReadAt(data, at.at); err != nil && err != io.EOF {
		return record.Record{}, err
	}
	f, err := record.V2.Parse(data)
	if err != nil {
		return record.Record{}, err
	}
	records, err := f.Records()
	if err != nil {
		return record.Record{}, err
	}
	return records[offset-f.BaseOffset], nil
}

func (l *naiveLog) Records(from int64) iter.Seq2[record.Record, error] {
	return func(yield func(record.Record, error) bool) {
		for ; from < l.EndOffset(); from++ {
			if r, err := l.Read(from); !yield(r, err) || err != nil {
				return
			}
		}
	}
}

func (l *naiveLog) StartOffset() int64 { return 0 }
func (l *naiveLog) EndOffset() int64   { return int64(len(l.frames)) }
func (l *naiveLog) Close() error       { return l.file.Close() }
