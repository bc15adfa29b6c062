//go:build linux || darwin || freebsd

package topology

import "syscall"

// freeBytes is what a user without privileges may still write to a folder's disk.
func freeBytes(dir string) (uint64, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, err
	}
	return uint64(s.Bavail) * uint64(s.Bsize), nil
}
