//go:build unix

package main

import (
	"os"
	"syscall"
)

// pause stops a process where it is, and resume lets it go on.
func pause(p *os.Process) error  { return p.Signal(syscall.SIGSTOP) }
func resume(p *os.Process) error { return p.Signal(syscall.SIGCONT) }
