package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestVerifyCommand: a sound deployment has no difference, stopped and running,
// and each kind of damage is told by its name.
func TestVerifyCommand(t *testing.T) {
	data := threeLoads(t)
	run(t, "checkpoint", "create", "--data", data)
	for _, args := range [][]string{{}, {"--full"}, {"t", "--deep", "--source"}} {
		code, _, errs := varve(t, append([]string{"verify", "--data", data}, args...)...)
		if code != exitDone {
			t.Fatalf("verify %v: exit code %d: %s", args, code, errs)
		}
		if len(args) == 3 {
			for _, w := range []string{"10 rows", "8 source events", "5 index entries"} {
				if !strings.Contains(errs, w) { // deep and source each read the rows
					t.Errorf("verify %v: no %q in %s", args, w, errs)
				}
			}
		}
	}
	fails(t, exitUsage, []string{"no such table", "nothing"}, "verify", "nothing", "--data", data)

	n := startNode(t, "--data", data, "--catalog-listen", "off", "--log-level", "warn")
	if code, _, errs := varve(t, "verify", "--data", data, "--deep", "--source"); code != exitDone {
		t.Errorf("beside a node: exit code %d: %s", code, errs)
	}
	if code := n.end(t); code != exitDone {
		t.Fatal(n.err.String())
	}

	lake := filepath.Join(data, "lake")
	remove := func(path string) func() {
		return func() {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}
	}
	last := func(dir, suffix string) string {
		fs := filesUnder(t, dir, suffix)
		return fs[len(fs)-1]
	}
	parquet := filesUnder(t, filepath.Join(lake, "default"), ".parquet")
	puffin := newestFile(t, filesUnder(t, lake, ".puffin"))
	for _, c := range []struct {
		name  string
		path  string
		do    func(path string) func() // nil: flip a bit
		args  []string
		words []string
	}{
		{"a data file is missing", parquet[0], remove, nil, []string{"data file", "is missing"}},
		{"a data file is shorter", parquet[0], cutter(t), nil, []string{"data file", "bytes, not"}},
		{"a footer is damaged", parquet[0], footer(t), []string{"--deep"}, []string{"data file", "cannot be read"}},
		{"a manifest list is missing", last(lake, ".avro"), remove, nil, []string{"is missing"}},
		{"a Puffin is missing", puffin, remove, nil, []string{"Puffin", "is missing"}},
		{"a vector is damaged", puffin, vectorBytes(t), []string{"--deep"}, []string{"vector of", "damaged"}},
		{"the metadata has other bytes", newestMetadata(t, lake), nil, nil, []string{"other bytes than the log confirmed"}},
		{"a checkpoint's manifest is damaged", last(filepath.Join(lake, "_varve", "varve", "checkpoints"), ".json"), nil, nil, []string{"checkpoint", "damaged"}},
		{"a checkpoint's object is missing", filesUnder(t, filepath.Join(lake, "_varve", "varve", "checkpoints", "0", "files"), "")[0], remove, nil, []string{"checkpoint", "missing"}},
		{"the key index is damaged", biggest(t, filepath.Join(data, "index")), nil, []string{"--deep"}, []string{"key index", "damaged"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			was, err := os.ReadFile(c.path)
			if err != nil {
				t.Fatal(err)
			}
			if c.do == nil {
				flip(t, c.path)
			} else {
				c.do(c.path)()
			}
			fails(t, exitDiffers, c.words, append([]string{"verify", "--data", data}, c.args...)...)
			if err := os.WriteFile(c.path, was, 0o644); err != nil {
				t.Fatal(err)
			}
		})
	}
	if code, _, errs := varve(t, "verify", "--data", data, "--deep", "--source"); code != exitDone {
		t.Errorf("all is mended: exit code %d: %s", code, errs)
	}
}

func rewrite(t *testing.T, path string, fn func([]byte) []byte) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, fn(b), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func cutter(t *testing.T) func(string) func() {
	return func(path string) func() {
		return func() { rewrite(t, path, func(b []byte) []byte { return b[:len(b)-1] }) }
	}
}

// footer damages the length of a Parquet footer, and not the file's.
func footer(t *testing.T) func(string) func() {
	return func(path string) func() {
		return func() { rewrite(t, path, func(b []byte) []byte { b[len(b)-6] ^= 0x40; return b }) }
	}
}

// vectorBytes damages the first blob of a Puffin.
func vectorBytes(t *testing.T) func(string) func() {
	return func(path string) func() {
		return func() { rewrite(t, path, func(b []byte) []byte { b[4+8] ^= 1; return b }) }
	}
}

func newestMetadata(t *testing.T, lake string) string {
	t.Helper()
	out := ""
	for _, p := range filesUnder(t, lake, ".metadata.json") {
		if len(p) > len(out) || len(p) == len(out) && p > out {
			out = p
		}
	}
	return out
}

func newestFile(t *testing.T, paths []string) (out string) {
	t.Helper()
	var at time.Time
	for _, p := range paths {
		st, err := os.Stat(p)
		if err != nil {
			t.Fatal(err)
		}
		if st.ModTime().After(at) {
			out, at = p, st.ModTime()
		}
	}
	return out
}

func biggest(t *testing.T, dir string) (out string) {
	t.Helper()
	size := int64(-1)
	for _, p := range filesUnder(t, dir, "") {
		st, err := os.Stat(p)
		if err != nil {
			t.Fatal(err)
		}
		if st.Size() > size && filepath.Base(p) != "side" {
			out, size = p, st.Size()
		}
	}
	return out
}
