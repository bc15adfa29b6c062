package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// flippable is a file of a deployment by what it is.
type flippable struct{ kind, path string }

// kindOfFile tells what a file of a data folder is; "": nothing that is read for its content.
func kindOfFile(rel string) string {
	name := filepath.Base(rel)
	switch {
	case strings.Contains(rel, "/bodies/"):
		return "body"
	case strings.Contains(rel, "/maps/"):
		return "forwarding map"
	case strings.Contains(rel, "/checkpoints/"):
		return "checkpoint"
	case strings.HasPrefix(rel, "lake/") && strings.HasSuffix(name, ".parquet"):
		return "data file"
	case strings.HasSuffix(name, ".puffin"):
		return "Puffin file"
	case strings.HasSuffix(name, ".metadata.json"):
		return "metadata"
	case strings.HasPrefix(name, "snap-"):
		return "manifest list"
	case strings.HasSuffix(name, ".avro"):
		return "manifest"
	case strings.HasPrefix(rel, "state/") && strings.HasSuffix(name, ".sst"):
		return "state"
	case strings.HasPrefix(rel, "index/") && name != "side" && name != "LOCK":
		return "key index"
	case strings.HasPrefix(rel, "index/") && name == "side":
		return "side file"
	}
	return ""
}

// TestFlippedBits: one bit that flips in a file which is read back is either told,
// with the file's name, or without consequence for any row: verify, replay and a
// node that goes on with the damaged folder, with and without its local copies.
// VARVE_EVERY_BYTE=1 tries every file, else the newest of each kind.
func TestFlippedBits(t *testing.T) {
	data := threeLoads(t)
	r := rand.New(rand.NewPCG(1, 2))
	// Rows that take turns by chance: their map is too large to stand in a record (F23).
	const more = 1000
	var loads [2]strings.Builder
	for id := range 10_000 {
		fmt.Fprintf(&loads[r.IntN(2)], `{"id":%d,"v":"m"}`+"\n", more+id)
	}
	for i := range loads {
		run(t, "load", "--data", data, "--table", "t", "--format", "rows-json", writeFile(t, "more.jsonl", loads[i].String()))
	}
	run(t, "compact", "t", "--data", data, "--strategy", "full")
	run(t, "delete", "t", "--data", data, "--where", "v = 'f'")
	run(t, "load", "--data", data, "--table", "t", "--format", "rows-json", writeFile(t, "more.jsonl", `{"id":7,"v":"g"}`+"\n"+`{"id":2,"v":"b3"}`+"\n"))
	run(t, "checkpoint", "create", "--data", data)
	run(t, "load", "--data", data, "--table", "t", "--format", "rows-json", writeFile(t, "more.jsonl", `{"id":8,"v":"h"}`+"\n"))
	next := writeFile(t, "next.jsonl", `{"id":7,"v":"g2"}`+"\n"+`{"id":9,"v":"i"}`+"\n")

	var all []flippable
	for _, p := range filesUnder(t, data, "") {
		rel, err := filepath.Rel(data, p)
		if err != nil {
			t.Fatal(err)
		}
		if kind := kindOfFile(filepath.ToSlash(rel)); kind != "" {
			all = append(all, flippable{kind, rel})
		}
	}
	sound := filepath.Join(t.TempDir(), "sound") // a table's location is its folder's: the damaged one stays in its place
	if err := os.CopyFS(sound, os.DirFS(data)); err != nil {
		t.Fatal(err)
	}
	last := map[string]int{}
	for i, f := range all {
		last[f.kind] = i
	}
	if len(last) != 11 {
		t.Fatalf("kinds of files: %v", last)
	}
	told := map[string]int{}
	for i, f := range all {
		// Some bodies are read by whoever makes snapshots, some by owners of shards, some by nobody.
		if os.Getenv("VARVE_EVERY_BYTE") == "" && i != last[f.kind] && f.kind != "body" {
			continue
		}
		was, err := os.ReadFile(filepath.Join(sound, f.path))
		if err != nil {
			t.Fatal(err)
		}
		bits := []int{len(was)*4 + r.IntN(8), r.IntN(len(was)) * 8, len(was)*8 - 1 - r.IntN(min(len(was), 16)*8)}
		if f.kind == "body" {
			bits = bits[:1] // they are held against their hashes
		}
		for _, bit := range bits {
			if err := errors.Join(os.RemoveAll(data), os.CopyFS(data, os.DirFS(sound))); err != nil {
				t.Fatal(err)
			}
			bad := slices.Clone(was)
			bad[bit/8] ^= 1 << (bit % 8)
			path := filepath.Join(data, f.path)
			if err := os.WriteFile(path, bad, 0o644); err != nil {
				t.Fatal(err)
			}
			what := fmt.Sprintf("bit %d of %d of the %s %s", bit, len(was)*8, f.kind, f.path)
			heard, avro := false, strings.HasPrefix(f.kind, "manifest")
			try := func(args ...string) bool {
				t.Helper()
				code, _, errs := varve(t, args...)
				switch {
				case code == exitDone:
					return true
				case code != exitFailed && code != exitDiffers && code != exitUsage:
					t.Errorf("%s: varve %s: exit code %d: %s", what, args[0], code, errs)
				case avro && args[0] != "replay": // without a checksum: what it lists instead is told, or what reads it
				case !strings.Contains(errs, filepath.Base(f.path)) && !strings.Contains(errs, f.kind):
					t.Errorf("%s: varve %s does not name it: %s", what, args[0], errs)
				}
				heard = true
				return false
			}
			try("verify", "--data", data, "--deep")
			try("replay", "--data", data, "--into", filepath.Join(t.TempDir(), "again"), "--compare")
			for _, lost := range []bool{false, true} {
				if lost {
					for _, sub := range []string{"state", "index"} {
						if err := os.RemoveAll(filepath.Join(data, sub)); err != nil {
							t.Fatal(err)
						}
					}
				}
				if try("load", "--data", data, "--table", "t", "--format", "rows-json", next) {
					if !try("scan", "t", "--data", data) {
						continue
					}
					few := slices.DeleteFunc(scanned(t, data, "t"), func(row string) bool { return strings.HasSuffix(row, ",m") })
					wantRows(t, few, "1,aa", "2,b3", "4,d", "5,e", "7,g2", "8,h", "9,i")
				}
			}
			if heard {
				told[f.kind]++
			}
		}
	}
	// A side file and a state have checksums of their own, and are made anew without
	// a word to whoever loads; what no live row is in is not read.
	for kind := range last {
		if told[kind] == 0 && kind != "side file" && kind != "state" {
			t.Errorf("no flipped bit of a %s was told", kind)
		}
	}
}
