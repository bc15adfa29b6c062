package main

import (
	"encoding/json"
	"fmt"
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
