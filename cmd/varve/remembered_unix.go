//go:build unix

package main

import (
	"os"
	"path/filepath"
	"syscall"
)

// untrusted says why a data folder's node.json may be of another user than this
// one or the system's; "": it is not.
func untrusted(dir string) string {
	st, err := os.Stat(filepath.Join(dir, "node.json"))
	if err != nil {
		return err.Error()
	}
	if st.Mode().Perm()&0o002 != 0 {
		return "everyone may write its node.json"
	}
	if s, ok := st.Sys().(*syscall.Stat_t); ok && s.Uid != 0 && int(s.Uid) != os.Geteuid() {
		return "its node.json belongs to another user"
	}
	return ""
}
