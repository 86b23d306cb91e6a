//go:build unix

package lab

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// outlive lets a process live on when the cell that starts it has ended.
func outlive(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }

// kill signals a process. The error is os.ErrProcessDone where there is none.
func kill(pid int, signal syscall.Signal) error {
	err := syscall.Kill(pid, signal)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}
