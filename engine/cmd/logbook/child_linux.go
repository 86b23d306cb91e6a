package main

import (
	"os/exec"
	"syscall"
)

// endWithParent has the system end a child when this process ends, however it does.
func endWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
}
