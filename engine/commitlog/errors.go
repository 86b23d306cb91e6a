package commitlog

import (
	"errors"
	"fmt"
)

var (
	// ErrClosed: the log was closed.
	ErrClosed = errors.New("commitlog: log is closed; open it again")
	// ErrEmptyAppend: an append held no records.
	ErrEmptyAppend = errors.New("commitlog: nothing to append")
)

// CorruptionError reports damage: bytes that are not what the log wrote. Nothing on
// disk has been changed.
type CorruptionError struct {
	File     string // path of the damaged file
	Position int64  // byte in the file at which the damage was noticed; -1: the file as a whole
	Offset   int64  // the record offset expected there; -1 where none applies
	Reason   string
	Remedy   string
	Err      error // cause, if there is one: a *record.FrameError, fs.ErrNotExist, …
}

func (e *CorruptionError) Error() string {
	s := "commitlog: " + e.File
	if e.Position >= 0 {
		s += fmt.Sprintf(" at byte %d", e.Position)
	}
	if e.Offset >= 0 {
		s += fmt.Sprintf(" (offset %d)", e.Offset)
	}
	s += " is damaged: " + e.Reason
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s + "; " + e.Remedy
}

func (e *CorruptionError) Unwrap() error { return e.Err }

const (
	remedyReplica = "nothing was changed: restore the file from a replica or a backup, or see what logbook repair would keep"
	remedyTail    = "nothing was changed: if these bytes were never acknowledged, open with TruncateTail to cut them"
)

// OffsetOutOfRangeError: a read or truncation names an offset outside the log.
type OffsetOutOfRangeError struct {
	Offset     int64
	Start, End int64 // the log holds offsets Start to End-1
}

func (e *OffsetOutOfRangeError) Error() string {
	switch {
	case e.Offset < e.Start:
		return fmt.Sprintf("commitlog: offset %d is below the log start offset %d (the log end offset is %d)", e.Offset, e.Start, e.End)
	default:
		return fmt.Sprintf("commitlog: offset %d is not there: the log holds offsets from %d up to its log end offset %d, exclusive", e.Offset, e.Start, e.End)
	}
}

// NotALogError: a directory exists and is not a log, and Open will not make it one.
type NotALogError struct {
	Dir    string
	Reason string
}

func (e *NotALogError) Error() string {
	return fmt.Sprintf("commitlog: %s is not a log: %s; name a log's directory, or an empty or new one", e.Dir, e.Reason)
}

// FormatMismatchError: a log was made with another frame format than the one asked for.
type FormatMismatchError struct {
	Dir            string
	Stored, Wanted int
}

func (e *FormatMismatchError) Error() string {
	return fmt.Sprintf("commitlog: the log in %s has format %d, not %d; open it without asking for a format, or copy its records to a new log", e.Dir, e.Stored, e.Wanted)
}

// LockedError: another process, or another Log in this one, has the log open.
type LockedError struct {
	Dir string
	Err error
}

func (e *LockedError) Error() string {
	return fmt.Sprintf("commitlog: the log in %s is open elsewhere; close it there first (inspecting needs no lock)", e.Dir)
}

func (e *LockedError) Unwrap() error { return e.Err }

// TooLargeError: a record or batch is over one of the log's limits.
type TooLargeError struct {
	What  string // "key", "record" or "batch"
	Index int    // which record of the append
	Size  int    // bytes
	Limit int
}

func (e *TooLargeError) Error() string {
	what := fmt.Sprintf("the %s of record %d", e.What, e.Index)
	switch e.What {
	case "record":
		what = fmt.Sprintf("record %d", e.Index)
	case "batch":
		what = "the batch"
	}
	return fmt.Sprintf("commitlog: %s has %d bytes, the limit is %d; split it, or raise the limit: max.message.bytes of the topic, or commitlog.Options", what, e.Size, e.Limit)
}

// PoisonedError: an earlier write or sync failed, so nothing is known of what reached
// the disk. Reads of acknowledged records go on; appends are refused until the log is
// closed and opened again.
type PoisonedError struct {
	Dir   string
	Cause error
}

func (e *PoisonedError) Error() string {
	return fmt.Sprintf("commitlog: the log in %s refuses appends since a write failed: %v; close and reopen it", e.Dir, e.Cause)
}

func (e *PoisonedError) Unwrap() error { return e.Cause }
