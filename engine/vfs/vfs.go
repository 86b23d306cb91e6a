// Package vfs is the file system that a log writes through: OS is the operating
// system's, Mem one in memory that can crash and fail on purpose.
//
// The interface is as small as a log needs and says what a crash may take: bytes
// written are lost unless File.Sync returned, and a created, renamed or removed name is
// undone unless SyncDir of its directory returned. Names are slash-or-OS-separated
// paths, as package filepath makes them.
package vfs

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
)

// FS is a file system. It is safe for concurrent use.
type FS interface {
	// Create makes a new file for reading and writing. It fails with fs.ErrExist where one is.
	Create(name string) (File, error)
	// Open opens an existing file for reading and writing.
	Open(name string) (File, error)
	// OpenRead opens an existing file for reading only.
	OpenRead(name string) (File, error)
	// MkdirAll makes a directory and its parents, as far as they are not there, and makes
	// the names of all of them durable.
	MkdirAll(dir string) error
	// ReadDir returns the names in a directory, sorted.
	ReadDir(dir string) ([]string, error)
	// Rename moves a file, over an existing one if need be, atomically.
	Rename(from, to string) error
	// Remove deletes a file, or a directory that is empty.
	Remove(name string) error
	// SyncDir makes creations, renames and removals in a directory durable.
	SyncDir(dir string) error
	// Lock takes a lock on an existing file that no other process, and no other caller in
	// this one, holds. It returns ErrLocked at once where somebody does. Closing the
	// result, or the death of the process, releases it.
	Lock(name string) (io.Closer, error)
}

// File is an open file. It is safe for concurrent use as far as ranges do not overlap.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Size() (int64, error)
	// NextData returns the first position, from one on, at which something was written; all
	// before it are zeros. It is the file's size where there is none. A file system that does
	// not know answers with the position it was asked for.
	NextData(from int64) (int64, error)
	// Truncate cuts the file or extends it with zeros.
	Truncate(size int64) error
	// Sync makes the file's bytes and size durable. After an error nothing is known of
	// the bytes written since the last success: the kernel may have dropped them.
	Sync() error
}

// ErrRemoved: a file was removed while it was open, so what is synced to it is lost.
var ErrRemoved = errors.New("the file was removed while it was open")

// ErrLocked: somebody else holds the lock.
var ErrLocked = errors.New("locked by another owner")

// ReadFile returns a whole file of at most limit bytes.
func ReadFile(fsys FS, name string, limit int64) ([]byte, error) {
	f, err := fsys.OpenRead(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if size > limit {
		return nil, fmt.Errorf("%s has %d bytes, more than the %d it may have", name, size, limit)
	}
	data := make([]byte, size)
	n, err := f.ReadAt(data, 0)
	if err == io.EOF && int64(n) == size {
		err = nil
	}
	return data[:n], err
}

// WriteFileAtomic replaces a file so that a crash leaves the old content or the new,
// never a mixture: it writes name+".tmp", syncs, renames and syncs the directory. After
// an error either content may be there.
func WriteFileAtomic(fsys FS, name string, data []byte) error {
	tmp := name + TempSuffix
	if err := WriteNew(fsys, tmp, data); err != nil {
		_ = fsys.Remove(tmp) // best effort: a left-over is ignored and overwritten
		return err
	}
	if err := fsys.Rename(tmp, name); err != nil {
		_ = fsys.Remove(tmp)
		return err
	}
	return fsys.SyncDir(filepath.Dir(name))
}

// TempSuffix ends the names of files being written by WriteFileAtomic. After a crash
// such a file means nothing and may be removed.
const TempSuffix = ".tmp"

// WriteNew writes and syncs a file, over one that is there. Its name is not durable yet.
func WriteNew(fsys FS, name string, data []byte) error {
	f, err := fsys.Create(name)
	if errors.Is(err, errExist) {
		if err = fsys.Remove(name); err == nil {
			f, err = fsys.Create(name)
		}
	}
	if err != nil {
		return err
	}
	if _, err := f.WriteAt(data, 0); err != nil {
		f.Close()
		return err
	}
	if err := f.Sync(); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}
