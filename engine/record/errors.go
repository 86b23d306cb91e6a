package record

import (
	"errors"
	"fmt"
)

// Reasons for which bytes are not a frame. A *FrameError wraps one of them.
var (
	// ErrIncomplete: the bytes end before the frame does.
	ErrIncomplete = errors.New("frame is cut short")
	// ErrMalformed: a field holds a value that no encoder writes.
	ErrMalformed = errors.New("frame is malformed")
	// ErrChecksum: the stored CRC-32C is not that of the bytes (format 2).
	ErrChecksum = errors.New("checksum does not match")
	// ErrUnsupported: the format cannot store the record, or no codec is registered for its compression.
	ErrUnsupported = errors.New("not supported by the format")
	// ErrTooLarge: a length or a decompressed batch is over its limit.
	ErrTooLarge = errors.New("too large")
)

// FrameError says which field of a frame is wrong, where, and why.
type FrameError struct {
	Version Version
	Field   string // the layout's name for the field
	At      int    // byte position in the frame
	Reason  string
	Err     error // one of the sentinels above
}

func (e *FrameError) Error() string {
	return fmt.Sprintf("format %d: %s at byte %d: %s: %v", e.Version, e.Field, e.At, e.Reason, e.Err)
}

func (e *FrameError) Unwrap() error { return e.Err }

func frameError(v Version, field string, at int, err error, reason string, args ...any) error {
	return &FrameError{Version: v, Field: field, At: at, Reason: fmt.Sprintf(reason, args...), Err: err}
}
