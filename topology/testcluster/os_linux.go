package testcluster

import (
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
)

// endWithParent lets the system end the child when the test process dies without its cleanup, as by a timeout.
func endWithParent(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
}

// runAs lets a command run as a user of the system.
func runAs(name string, cmd *exec.Cmd) {
	uid, gid, err := idsOf(name)
	if err != nil {
		cmd.Err = err
		return
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
}

// giveTo makes a folder a user's.
func giveTo(name, dir string) error {
	uid, gid, err := idsOf(name)
	if err != nil {
		return err
	}
	return os.Chown(dir, uid, gid)
}

func idsOf(name string) (uid, gid int, err error) {
	u, err := user.Lookup(name)
	if err != nil {
		return 0, 0, err
	}
	if uid, err = strconv.Atoi(u.Uid); err == nil {
		gid, err = strconv.Atoi(u.Gid)
	}
	return uid, gid, err
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
