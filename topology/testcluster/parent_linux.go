package testcluster

import (
	"os/exec"
	"syscall"
)

// endWithParent lets the system end the child when the test process dies without its cleanup, as by a timeout.
func endWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
