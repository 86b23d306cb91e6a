package vfs

import (
	"errors"
	"os"
	"syscall"
)

// syncData flushes bytes and the size, but not the modification time: one journal
// commit less when the file did not grow. (Elsewhere os.File.Sync does, with F_FULLFSYNC
// on macOS.)
func syncData(f *os.File) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var serr error
	err = conn.Control(func(fd uintptr) {
		for {
			if serr = syscall.Fdatasync(int(fd)); serr != syscall.EINTR {
				return
			}
		}
	})
	if err == nil && serr != nil {
		err = &os.PathError{Op: "fdatasync", Path: f.Name(), Err: serr}
	}
	return err
}

// seekData is SEEK_DATA of lseek(2).
const seekData = 3

// nextData asks the file system where its next block is. ReadAt and WriteAt have positions
// of their own, so that moving the file's does no harm.
func nextData(f osFile, from int64) (int64, error) {
	at, err := f.Seek(from, seekData)
	switch {
	case err == nil:
		return at, nil
	case errors.Is(err, syscall.ENXIO): // nothing more, or from is at the end
		return f.Size()
	}
	return from, nil // it does not know
}
