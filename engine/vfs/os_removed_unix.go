//go:build unix

package vfs

import (
	"os"
	"syscall"
)

// removed reports whether an open file has no name any more.
func removed(f *os.File) bool {
	var st syscall.Stat_t
	return syscall.Fstat(int(f.Fd()), &st) == nil && st.Nlink == 0
}
