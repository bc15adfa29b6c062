package objstore_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/varve-io/varve/statestore/objstore"
)

// A second process that opens the folder must not take the temporary files of
// the first for leftovers.
func TestTemporariesOfLivingWritersStay(t *testing.T) {
	dir := t.TempDir()
	open := func(opts ...objstore.Option) objstore.Store {
		s, err := objstore.Open(ctx, dir, opts...)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if err := os.MkdirAll(filepath.Join(dir, "a/b"), 0o755); err != nil {
		t.Fatal(err)
	}
	leftover := filepath.Join(dir, "a/b/.varve-tmp-LEFTOVER")
	foreign := filepath.Join(dir, "a/b/.hidden")
	for _, name := range []string{leftover, foreign} {
		if err := os.WriteFile(name, []byte("half"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	first := open(objstore.KeepTemporaries())
	if _, err := os.Stat(leftover); err != nil {
		t.Fatalf("a store opened with KeepTemporaries: %v", err)
	}
	w, err := first.Writer(ctx, "a/b/living")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, "whole"); err != nil {
		t.Fatal(err)
	}
	open()
	if _, err := os.Stat(leftover); !os.IsNotExist(err) {
		t.Errorf("the leftover is still there: %v", err)
	}
	if _, err := os.Stat(foreign); err != nil {
		t.Errorf("somebody else's file: %v", err)
	}
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	if got := value(t, first, "a/b/living"); got != "whole" {
		t.Errorf("the living writer's object holds %q", got)
	}
}

// childEnv makes the test binary a writer that runs until it is killed.
const childEnv = "VARVE_TEST_OBJSTORE_CHILD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		writeUntilKilled(dir)
	}
	os.Exit(m.Run())
}

// killedData is the object of number i: its size walks over many writes.
func killedData(i int) []byte { return []byte(strings.Repeat(fmt.Sprintf("%06d", i), 1+i*997%20000)) }

func writeUntilKilled(dir string) {
	s, err := objstore.Open(ctx, dir)
	for i := 0; err == nil; i++ {
		data := killedData(i)
		var w objstore.Writer
		if w, err = s.Writer(ctx, fmt.Sprintf("d%d/k%d", i%3, i)); err != nil {
			break
		}
		for len(data) > 0 && err == nil {
			n := min(len(data), 4096)
			_, err = w.Write(data[:n])
			data = data[n:]
		}
		if err == nil {
			err = w.Commit()
		}
		if err == nil {
			fmt.Println(i)
		}
	}
	fmt.Println("error:", err)
	os.Exit(1)
}

// TestKilledWriter kills a real process at arbitrary moments. Every object
// that it had reported stands, no object is half, and the next start clears up.
func TestKilledWriter(t *testing.T) {
	for _, after := range []int{0, 3, 17, 40} {
		dir := t.TempDir()
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), childEnv+"="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		reported := 0
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if lines.Text() != fmt.Sprint(reported) {
				t.Errorf("the writer says %q", lines.Text())
				break
			}
			if reported++; reported > after {
				break
			}
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() { // what it reported before it died
			reported++
		}
		if err := cmd.Wait(); err == nil {
			t.Fatal("the writer was not killed")
		}

		s, err := objstore.Open(ctx, dir)
		if err != nil {
			t.Fatal(err)
		}
		for i := range reported + 2 {
			got := value(t, s, fmt.Sprintf("d%d/k%d", i%3, i))
			if got != string(killedData(i)) && (got != "" || i < reported) {
				t.Errorf("object %d of %d reported holds %d bytes, want %d", i, reported, len(got), len(killedData(i)))
			}
		}
		checkNoTemporaries(t, objstore.OSFileSystem(), dir, "killed")
	}
}
