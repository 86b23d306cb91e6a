// Package consumer keeps how far consumers have come: the committed offset is the next
// offset to read after a restart. Only a commit moves it, and never back.
//
// A broker keeps the offsets of groups and consumers itself. An OffsetStore is for who wants
// them elsewhere; FileStore is PyStream's, a small file for each.
package consumer

import (
	"errors"
	"fmt"
)

// ErrClosed: the store was closed.
var ErrClosed = errors.New("consumer: closed")

// CommitBeyondEndError: a commit of an offset that the partition does not have yet.
type CommitBeyondEndError struct {
	Key         OffsetKey
	Wanted, End int64
}

func (e *CommitBeyondEndError) Error() string {
	return fmt.Sprintf("consumer: cannot commit offset %d for %s: the log end offset is %d", e.Wanted, e.Key, e.End)
}

// CheckCommit holds an offset that is to be committed to what the partition holds: from 0
// to its log end offset.
//
// Errors: *NegativeOffsetError, *CommitBeyondEndError.
func CheckCommit(p OffsetKey, offset, end int64) error {
	switch {
	case offset < 0:
		return &NegativeOffsetError{Key: p, Offset: offset}
	case offset > end:
		return &CommitBeyondEndError{Key: p, Wanted: offset, End: end}
	}
	return nil
}
