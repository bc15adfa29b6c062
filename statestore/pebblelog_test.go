package statestore_test

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/varve-io/varve/statestore"
)

// fullDisk refuses every write to a MANIFEST once it is full.
func fullDisk(full *atomic.Bool) vfs.FS {
	return errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if full.Load() && op.Kind.ReadOrWrite() == errorfs.OpIsWrite && strings.Contains(op.Path, "MANIFEST") {
			return syscall.ENOSPC
		}
		return nil
	}))
}

const fullDiskChild = "VARVE_STATESTORE_FULL_DISK"

// TestManifestDiskFull: a database whose list of files cannot be written ends
// the process with one clear error that names its folder, and code 1; a start
// with space again goes on (§12).
func TestManifestDiskFull(t *testing.T) {
	if dir := os.Getenv(fullDiskChild); dir != "" {
		var full atomic.Bool
		st, err := statestore.Open(dir, statestore.Options{FS: fullDisk(&full)})
		if err != nil {
			t.Fatal(err)
		}
		l := &logBuilder{t: t, st: st, timeMs: 1_700_000_000_000}
		l.genesis()
		l.commit()
		full.Store(true)
		t.Fatalf("flush: %v", st.Flush())
	}
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run=^TestManifestDiskFull$")
	cmd.Env = append(os.Environ(), fullDiskChild+"="+dir)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("the process ended with %v", err)
	}
	for _, want := range []string{dir, "MANIFEST", "no space left on device", "then start again"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
	for _, not := range []string{"panic", "goroutine", "--- FAIL"} {
		if strings.Contains(string(out), not) {
			t.Errorf("%q in\n%s", not, out)
		}
	}
	l := newLog(t, dir)
	if at := l.st.Head().Offset; at > 0 {
		t.Errorf("the state stands at %d", at)
	}
	l.next = l.st.Head().Offset + 1
	if l.next == 0 {
		l.genesis()
	}
	if err := l.st.Flush(); err != nil {
		t.Error(err)
	}
}

// TestFatalHook: who opens a database can end in its own way.
func TestFatalHook(t *testing.T) {
	var full atomic.Bool
	told := make(chan error)
	st, err := statestore.Open(t.TempDir(), statestore.Options{FS: fullDisk(&full), Fatal: func(err error) {
		told <- err
		select {} // Pebble's locks stay held: so does this store, for the rest of the test's process
	}})
	if err != nil {
		t.Fatal(err)
	}
	l := &logBuilder{t: t, st: st, timeMs: 1_700_000_000_000}
	l.genesis()
	l.commit()
	full.Store(true)
	go func() { _ = st.Flush() }() // never returns
	if err := <-told; !strings.Contains(err.Error(), "no space left on device") {
		t.Error(err)
	}
}
