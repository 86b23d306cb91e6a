//go:build unix

package vfs

import (
	"os"
	"syscall"
)

// lockFile takes an flock, which belongs to the open file: a second open in the same
// process is refused too, and the kernel releases it when the process dies.
func lockFile(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == syscall.EWOULDBLOCK {
		return &os.PathError{Op: "lock", Path: f.Name(), Err: ErrLocked}
	}
	if err != nil {
		return &os.PathError{Op: "lock", Path: f.Name(), Err: err}
	}
	return nil
}
