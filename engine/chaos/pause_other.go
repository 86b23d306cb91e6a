//go:build !unix

package main

import (
	"errors"
	"os"
)

// Processes cannot be paused here.
func pause(*os.Process) error  { return errors.ErrUnsupported }
func resume(*os.Process) error { return nil }
