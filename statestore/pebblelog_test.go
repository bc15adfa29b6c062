package statestore_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/varve-io/varve/schemas/record"
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

// TestFlippedTable: whichever byte of a table of the database is damaged, who reads
// it is told in one line that the state is damaged, and the process lives, to set
// the folder aside (§12).
func TestFlippedTable(t *testing.T) {
	dir := t.TempDir()
	st, err := statestore.Open(dir, statestore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	l := &logBuilder{t: t, st: st, timeMs: 1_700_000_000_000}
	l.genesis()
	for i := range 40 {
		def := definition(fmt.Sprint("orders", i))
		l.do(def.Name, -1, &record.CreateTable{Definition: def})
	}
	l.commit()
	if err := errors.Join(st.Flush(), st.Close()); err != nil {
		t.Fatal(err)
	}
	tables, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	if err != nil || len(tables) == 0 {
		t.Fatal(tables, err)
	}
	for _, path := range tables {
		was, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		told := 0
		for at := 0; at < len(was); at += 1 + len(was)/30 {
			bad := bytes.Clone(was)
			bad[at] ^= 4
			if err := os.WriteFile(path, bad, 0o644); err != nil {
				t.Fatal(err)
			}
			st, err := statestore.Open(dir, statestore.Options{})
			if err == nil {
				err = errors.Join(st.Dump(func(_, _ []byte) error { return nil }), st.Close())
			}
			switch {
			case err == nil: // a byte that nothing reads
			case !statestore.IsDamage(err) || strings.Contains(err.Error(), "carrier"):
				t.Errorf("byte %d of %s: %v", at, path, err)
			default:
				told++
			}
		}
		if told < 15 {
			t.Errorf("%d of about 30 damaged bytes of %s were told", told, path)
		}
		if err := os.WriteFile(path, was, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
