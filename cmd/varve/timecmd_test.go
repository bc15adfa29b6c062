package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// loadRows makes a table of id and v, a snapshot a call.
func loadRows(t *testing.T, data, table string, events ...string) int64 {
	t.Helper()
	r, _ := load(t, strings.Join(events, "\n")+"\n", "--data", data, "--table", table, "--format", "rows-json", "--key", "id", "-")
	if r.Snapshot == nil {
		t.Fatalf("load made no snapshot: %+v", r)
	}
	return *r.Snapshot
}

func rowsJSON(t *testing.T, args ...string) (out []map[string]any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(run(t, append(args, "--output", "json")...)))
	d.UseNumber()
	if err := d.Decode(&out); err != nil {
		t.Fatal(err)
	}
	return out
}

func snapshotIDs(t *testing.T, data, table string) (ids []string) {
	t.Helper()
	for _, r := range rowsJSON(t, "snapshots", table, "--data", data) {
		ids = append(ids, fmt.Sprint(r["snapshot_id"]))
	}
	return ids
}

// Branches and tags go through the log into the metadata, and keep what they
// name when everything else is expired (S6, S15, G10).
func TestRefsAndExpiry(t *testing.T) {
	data := t.TempDir()
	first := loadRows(t, data, "t", `{"id":1,"v":"a"}`, `{"id":2,"v":"b"}`)
	second := loadRows(t, data, "t", `{"id":1,"v":"a2"}`)
	third := loadRows(t, data, "t", `{"id":2,"v":"b2"}`)
	at := []string{"--data", data}

	run(t, append([]string{"table", "tag", "t", "v1", "--snapshot", fmt.Sprint(first)}, at...)...)
	run(t, append([]string{"table", "branch", "t", "work"}, at...)...)
	refs := rowsJSON(t, "table", "refs", "t", "--data", data)
	got := ""
	for _, r := range refs {
		got += fmt.Sprintf("%s %s %s\n", r["name"], r["type"], r["snapshot_id"])
	}
	if want := fmt.Sprintf("main branch %d\nv1 tag %d\nwork branch %d\n", third, first, third); got != want {
		t.Errorf("refs:\n%swant\n%s", got, want)
	}
	for _, c := range []struct {
		want string
		args []string
	}{
		{"is not retained", []string{"table", "tag", "t", "x", "--snapshot", "7"}},
		{"v1 is a tag", []string{"table", "branch", "t", "v1"}},
		{"has no tag none", []string{"table", "tag", "t", "none", "--drop"}},
		{"main is a branch", []string{"table", "tag", "t", "main"}},
		{"a branch or tag names it", []string{"expire", "t", "--snapshot", fmt.Sprint(first)}},
		{"say which", []string{"expire", "t"}},
		{"at least 1", []string{"expire", "t", "--keep", "0"}},
	} {
		code, _, errs := varve(t, append(c.args, at...)...)
		if code != exitUsage || !strings.Contains(errs, c.want) {
			t.Errorf("%v: exit code %d, %s; want %q", c.args, code, errs, c.want)
		}
	}

	dry := run(t, append([]string{"expire", "t", "--keep", "1", "--dry-run", "--output", "json"}, at...)...)
	if !strings.Contains(dry, fmt.Sprint(second)) || strings.Contains(dry, fmt.Sprint(first)) || len(snapshotIDs(t, data, "t")) != 3 {
		t.Errorf("a dry run: %s", dry)
	}
	run(t, append([]string{"expire", "t", "--keep", "1"}, at...)...)
	if ids, want := snapshotIDs(t, data, "t"), []string{fmt.Sprint(first), fmt.Sprint(third)}; !slices.Equal(ids, want) {
		t.Errorf("snapshots after expiry: %v, want %v", ids, want)
	}
	wantRows(t, scanned(t, data, "t", "--snapshot", fmt.Sprint(first)), "1,a", "2,b")

	run(t, append([]string{"table", "tag", "t", "v1", "--drop"}, at...)...)
	run(t, append([]string{"expire", "t", "--older-than", "0s"}, at...)...)
	if ids, want := snapshotIDs(t, data, "t"), []string{fmt.Sprint(third)}; !slices.Equal(ids, want) {
		t.Errorf("snapshots after the tag went: %v, want %v", ids, want)
	}
	wantRows(t, scanned(t, data, "t"), "1,a2", "2,b2")
	loadRows(t, data, "t", `{"id":3,"v":"c"}`)
	wantRows(t, scanned(t, data, "t"), "1,a2", "2,b2", "3,c")
	// The log alone makes the same metadata, refs and all.
	run(t, "replay", "--data", data, "--into", t.TempDir()+"/again", "--compare")
}

// Case 25 in small, through the command line: back past an update, a delete and a
// compaction; what comes later changes the table as it then is (G1, G12, S8).
func TestRollbackCommand(t *testing.T) {
	data := t.TempDir()
	at := []string{"--data", data}
	first := loadRows(t, data, "t", `{"id":1,"v":"a"}`, `{"id":2,"v":"b"}`, `{"id":3,"v":"c"}`)
	loadRows(t, data, "t", `{"id":1,"v":"a2"}`, `{"id":4,"v":"d"}`)
	run(t, append([]string{"delete", "t", "--key", "id=3"}, at...)...)
	run(t, append([]string{"compact", "t", "--strategy", "full", "--wait"}, at...)...)
	last := loadRows(t, data, "t", `{"id":2,"v":"b2"}`, `{"id":5,"v":"e"}`)
	wantRows(t, scanned(t, data, "t"), "1,a2", "2,b2", "4,d", "5,e")

	back := append([]string{"rollback", "t", "--snapshot", fmt.Sprint(first), "--output", "json"}, at...)
	dry := run(t, append(back, "--dry-run")...)
	if !strings.Contains(dry, `"rows": 3`) && !strings.Contains(dry, `"rows":3`) || len(rowsJSON(t, append([]string{"scan", "t"}, at...)...)) != 4 {
		t.Errorf("a drill: %s", dry)
	}
	out := run(t, back...)
	t.Log(out)
	wantRows(t, scanned(t, data, "t"), "1,a", "2,b", "3,c")
	wantRows(t, scanned(t, data, "t", "--snapshot", fmt.Sprint(last)), "1,a2", "2,b2", "4,d", "5,e")
	// Ingest goes on: an update and a delete of rows that live again, a key that only
	// the undone part knew, a new one.
	loadRows(t, data, "t", `{"id":1,"v":"a3"}`, `{"id":4,"v":"d4"}`, `{"id":6,"v":"f"}`)
	run(t, append([]string{"delete", "t", "--key", "id=2"}, at...)...)
	wantRows(t, scanned(t, data, "t"), "1,a3", "3,c", "4,d4", "6,f")
	run(t, append([]string{"compact", "t", "--strategy", "full", "--wait"}, at...)...)
	wantRows(t, scanned(t, data, "t"), "1,a3", "3,c", "4,d4", "6,f")
	run(t, append([]string{"verify", "t", "--deep"}, at...)...)
	run(t, "replay", "--data", data, "--into", t.TempDir()+"/again", "--compare")
	// And to the branch that was left.
	run(t, append([]string{"rollback", "t", "--snapshot", fmt.Sprint(last)}, at...)...)
	wantRows(t, scanned(t, data, "t"), "1,a2", "2,b2", "4,d", "5,e")
	loadRows(t, data, "t", `{"id":4,"v":"d9"}`, `{"id":1,"v":"a9"}`)
	wantRows(t, scanned(t, data, "t"), "1,a9", "2,b2", "4,d9", "5,e")
	run(t, append([]string{"verify", "t", "--deep"}, at...)...)
}

// The log's beginning goes only behind a checkpoint that is whole, and only what
// nobody reads again (G5, G13); a state that is lost then starts from the checkpoint, and
// without one nothing starts and nothing is wiped.
func TestTruncate(t *testing.T) {
	data := t.TempDir()
	at := []string{"--data", data}
	for i := range 3 {
		load(t, fmt.Sprintf("{\"id\":%d,\"v\":\"a\"}\n", i), "--data", data, "--table", "log.c", "--format", "rows-json", "--append-only", "-")
	}
	made := rowsJSON(t, append([]string{"checkpoint", "create"}, at...)...)
	id := fmt.Sprint(made[0]["checkpoint"])
	load(t, `{"id":7,"v":"b"}`+"\n", "--data", data, "--table", "log.c", "-")
	for _, c := range []struct {
		want string
		args []string
	}{
		{"say --yes", []string{"--before", id}},
		{"name a checkpoint", []string{"--yes"}},
		{"cannot be shortened", []string{"--before", "9999-00", "--yes"}},
	} {
		code, _, errs := varve(t, append(append([]string{"transaction", "truncate", "log.c"}, c.args...), at...)...)
		if code != exitUsage || !strings.Contains(errs, c.want) {
			t.Errorf("%v: exit code %d, %s; want %q", c.args, code, errs, c.want)
		}
	}
	cut := func(flag string) (m map[string]any) {
		t.Helper()
		d := json.NewDecoder(strings.NewReader(run(t, append([]string{"transaction", "truncate", "log.c", "--before", id, flag, "--output", "json"}, at...)...)))
		if err := d.Decode(&m); err != nil {
			t.Fatal(err)
		}
		return m
	}
	if m := cut("--dry-run"); m["deleted"] != false || m["before"] != m["checkpoint_offset"] || m["records"] == 0.0 {
		t.Errorf("dry: %v", m)
	}
	if m := cut("--yes"); m["deleted"] != true || m["held_by"] != nil {
		t.Errorf("truncate: %v", m)
	}
	if m := cut("--dry-run"); m["records"] != 0.0 {
		t.Errorf("a second time: %v", m)
	}
	load(t, `{"id":8,"v":"b"}`+"\n", "--data", data, "--table", "log.c", "-")
	want := []string{"0,a", "1,a", "2,a", "7,b", "8,b"}
	wantRows(t, scanned(t, data, "log.c"), want...)
	run(t, append([]string{"transaction", "list", "log.c"}, at...)...)

	// The state is lost: it comes from the checkpoint.
	gone := func(parts ...string) {
		t.Helper()
		if err := os.RemoveAll(filepath.Join(append([]string{data}, parts...)...)); err != nil {
			t.Fatal(err)
		}
	}
	gone("state")
	load(t, `{"id":9,"v":"c"}`+"\n", "--data", data, "--table", "log.c", "-")
	wantRows(t, scanned(t, data, "log.c"), append(want, "9,c")...)
	// A keyed table of the same log holds what its index may be made of.
	loadRows(t, data, "k", `{"id":1,"v":"a"}`)
	loadRows(t, data, "k", `{"id":1,"v":"b"}`)
	made = rowsJSON(t, append([]string{"checkpoint", "create"}, at...)...)
	id = fmt.Sprint(made[0]["checkpoint"])
	if m := cut("--yes"); m["held_by"] == nil || m["before"].(float64) >= m["checkpoint_offset"].(float64) {
		t.Errorf("with a keyed table: %v", m)
	}
	gone("index")
	loadRows(t, data, "k", `{"id":1,"v":"c"}`, `{"id":2,"v":"c"}`)
	wantRows(t, scanned(t, data, "k"), "1,c", "2,c")
	// One whose files are damaged is no reason to delete anything.
	made = rowsJSON(t, append([]string{"checkpoint", "create"}, at...)...)
	id = fmt.Sprint(made[0]["checkpoint"])
	damaged := 0
	if err := filepath.WalkDir(filepath.Join(data, "lake", "_varve", "varve", "checkpoints"), func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, ".sst") && !strings.Contains(path, "files") {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil || len(b) == 0 {
			return err
		}
		b[len(b)/2] ^= 1
		damaged++
		return os.WriteFile(path, b, 0o644)
	}); err != nil || damaged == 0 {
		t.Fatal(damaged, err)
	}
	code, _, errs := varve(t, append([]string{"transaction", "truncate", "log.c", "--before", id, "--yes"}, at...)...)
	if code != exitUsage || !strings.Contains(errs, "cannot be shortened") {
		t.Errorf("before a damaged checkpoint: exit code %d\n%s", code, errs)
	}
	// Neither state nor checkpoint: refused, and the lake stays as it is.
	gone("state")
	gone("lake", "_varve", "varve", "checkpoints")
	code, _, errs = varveWith(t, nil, `{"id":5,"v":"x"}`+"\n", "load", "--data", data, "--table", "log.c", "-")
	if code == exitDone || !strings.Contains(errs, "still needed") {
		t.Errorf("a start without state and checkpoint: exit code %d\n%s", code, errs)
	}
	wantRows(t, scanned(t, data, "k"), "1,c", "2,c")
}
