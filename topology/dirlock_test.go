package topology

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// TestLockDir: one holder at a time; a lock file that a dead process left locks nothing.
func TestLockDir(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "folder")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, lockFileName), []byte("99999999 left by a process that died"), 0o644); err != nil {
		t.Fatal(err)
	}
	l, err := LockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	_, err = LockDir(dir)
	wantError(t, err, ErrInUse, dir, "process "+strconv.Itoa(os.Getpid())+";")
	if err := l.Unlock(); err != nil {
		t.Fatal(err)
	}
	if l, err = LockDir(dir); err != nil {
		t.Fatal(err)
	}
	if err := l.Unlock(); err != nil {
		t.Fatal(err)
	}
}
