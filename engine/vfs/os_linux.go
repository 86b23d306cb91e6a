package vfs

import (
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
