package foreign

import "fmt"

// LayoutError: a directory is not laid out as its program does it.
type LayoutError struct {
	Path   string
	Reason string
}

func (e *LayoutError) Error() string { return fmt.Sprintf("foreign: %s: %s", e.Path, e.Reason) }

// DamagedError: a log holds something that is no record. Nothing of the directory is read.
type DamagedError struct {
	File     string
	Position int64
	Offset   int64 // that the record should have
	Err      error
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("foreign: %s is damaged at position %d, where offset %d should be: %v; nothing was changed: restore the file, or keep what is before that position with the program that wrote it", e.File, e.Position, e.Offset, e.Err)
}

func (e *DamagedError) Unwrap() error { return e.Err }
