//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package objstore

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// hold locks a new temporary file for as long as f is open; the kernel drops
// the lock when the process dies. It fails with fs.ErrNotExist if the file was
// removed as abandoned in the instant between its creation and the lock.
func hold(f *os.File) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		// A file system without locks is fine: tryHold fails there as well, so
		// that nothing counts as abandoned.
		if err == nil {
			break
		}
		return nil
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Nlink == 0 {
		return &fs.PathError{Op: "create", Path: f.Name(), Err: fs.ErrNotExist}
	}
	return nil
}

// tryHold locks f unless another open file holds the lock.
func tryHold(f *os.File) bool {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}
