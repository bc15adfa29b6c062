package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What expired goes, what is still needed is explained, strays go by their names,
// and the rest of the folder is nobody's business (G6–G8).
func TestGC(t *testing.T) {
	data := t.TempDir()
	for _, v := range []string{"a", "b", "c"} {
		loadRows(t, data, "t", `{"id":1,"v":"`+v+`"}`, `{"id":2,"v":"`+v+`"}`)
	}
	at := []string{"--data", data}
	collect := func(args ...string) (c struct{ Taken, Rejected, Deleted, Waiting, Listed int64 }) {
		t.Helper()
		if err := json.Unmarshal([]byte(run(t, append(append([]string{"gc", "t", "--output", "json"}, args...), at...)...)), &c); err != nil {
			t.Fatal(err)
		}
		return c
	}
	if c := collect("--grace", "0s"); c.Taken != 0 || c.Deleted != 0 {
		t.Errorf("something was collected although every snapshot is retained: %+v", c)
	}
	run(t, append([]string{"expire", "t", "--keep", "1"}, at...)...)
	states := map[string]int{}
	for _, r := range rowsJSON(t, append([]string{"gc", "t", "--dry-run"}, at...)...) {
		states[r["kind"].(string)+" "+r["state"].(string)]++
		if r["kind"] == "data" && !strings.Contains(r["why"].(string), "index checkpoint of shard 0") {
			t.Errorf("a data file is kept since %v", r["why"])
		}
	}
	if states["data kept"] != 2 || states["list collectable"] != 2 || states["manifest collectable"] == 0 {
		t.Errorf("after the expiry: %v", states)
	}

	lists, err := filepath.Glob(filepath.Join(data, "lake", "default", "t", "metadata", "snap-*.avro"))
	if err != nil || len(lists) != 3 {
		t.Fatalf("%d manifest lists, %v", len(lists), err)
	}
	if c := collect(); c.Taken < 4 || c.Deleted != 0 || c.Waiting != c.Taken {
		t.Errorf("within the grace: %+v", c)
	}
	if c := collect("--grace", "0s"); c.Taken != 0 || c.Deleted < 4 || c.Waiting != 0 {
		t.Errorf("without a grace: %+v", c)
	}
	if lists, err = filepath.Glob(filepath.Join(data, "lake", "default", "t", "metadata", "snap-*.avro")); err != nil || len(lists) != 1 {
		t.Errorf("%d manifest lists are left, %v", len(lists), err)
	}

	// The first load's epoch is closed: an unknown file of it is a stray.
	files, err := filepath.Glob(filepath.Join(data, "lake", "default", "t", "data", "*-1.parquet"))
	if err != nil || len(files) != 3 {
		t.Fatalf("%v, %v", files, err)
	}
	oldest := files[0]
	for _, f := range files {
		if len(f) < len(oldest) || len(f) == len(oldest) && f < oldest {
			oldest = f
		}
	}
	stray := strings.TrimSuffix(oldest, "-1.parquet") + "-99.parquet"
	other := filepath.Join(filepath.Dir(oldest), "mine.parquet")
	for _, f := range []string{stray, other} {
		if err := os.WriteFile(f, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if c := collect("--strays", "--grace", "0s"); c.Taken != 1 || c.Deleted != 1 || c.Listed == 0 {
		t.Errorf("strays: %+v", c)
	}
	if _, err := os.Stat(stray); !os.IsNotExist(err) {
		t.Errorf("the stray is still there: %v", err)
	}
	if _, err := os.Stat(other); err != nil {
		t.Errorf("a file that is none of varve's was deleted: %v", err)
	}
	run(t, append([]string{"verify", "--deep"}, at...)...)
	if rows := rowsJSON(t, append([]string{"scan", "t"}, at...)...); len(rows) != 2 || rows[0]["v"] != "c" {
		t.Errorf("rows: %v", rows)
	}
	for _, c := range []struct {
		code int
		args []string
	}{
		{exitUsage, []string{"gc", "t", "--dry-run", "--strays"}}, {exitUsage, []string{"gc", "t", "--grace", "soon"}}, {exitUsage, []string{"gc"}},
		{exitUsage, []string{"gc", "none"}}, {exitUsage, []string{"table", "tree", "none"}},
	} {
		if code, _, errs := varve(t, append(c.args, at...)...); code != c.code {
			t.Errorf("%v: exit code %d, want %d: %s", c.args, code, c.code, errs)
		}
	}
}
