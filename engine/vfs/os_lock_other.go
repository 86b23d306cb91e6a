//go:build !unix

package vfs

import (
	"errors"
	"os"
)

func lockFile(f *os.File) error {
	return &os.PathError{Op: "lock", Path: f.Name(), Err: errors.ErrUnsupported}
}
