package vfs

import (
	"errors"
	"io"
)

// Flusher makes files of one file system durable together. A file system that writes a
// journal, as most do, commits it once for all of them, where syncs of single files, also
// at the same time, cost a commit each.
type Flusher interface {
	// Flush makes durable what was written to files since the flusher was opened, and was
	// durable before, as File.Sync of each does. Whatever else is unsynced on the same disk
	// is written too, and waited for. After an error nothing is known of any of the files,
	// and File.Sync of each tells.
	Flush(files []File) error
	io.Closer
}

// OpenFlusher returns a flusher for the file system that a directory is in.
//
// Errors: errors.ErrUnsupported, where there is nothing of the kind.
func OpenFlusher(fsys FS, dir string) (Flusher, error) {
	if f, ok := fsys.(interface {
		openFlusher(dir string) (Flusher, error)
	}); ok {
		return f.openFlusher(dir)
	}
	return nil, errors.ErrUnsupported
}
