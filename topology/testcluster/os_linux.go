package testcluster

import (
	"os/exec"
	"syscall"
)

// endWithParent lets the system end the child when the test process dies without its cleanup, as by a timeout.
func endWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// memoryDir is a folder in memory with at least need bytes free, or "".
func memoryDir(need uint64) string {
	const dir = "/dev/shm"
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil || s.Bavail*uint64(s.Bsize) < need {
		return ""
	}
	return dir
}
