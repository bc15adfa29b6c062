package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestCompactCommands: many small files become one, on a stopped folder and by a
// running node; the rows are the same, jobs are listed and refused by name.
func TestCompactCommands(t *testing.T) {
	data := t.TempDir()
	load := func(id int) {
		events := writeFile(t, fmt.Sprintf("events-%d.jsonl", id), fmt.Sprintf(`{"id":%d,"v":"a%d"}`+"\n", id, id))
		args := []string{"load", "--data", data, "--table", "t", "--format", "rows-json", events}
		if id == 1 {
			args = append(args, "--key", "id")
		}
		run(t, args...)
	}
	for id := range 4 {
		load(id + 1)
	}
	compact := func(args ...string) (jobs, files int) {
		t.Helper()
		var p struct {
			Jobs, Files, Rejected int
			Plans                 []int64
		}
		text := run(t, append([]string{"compact", "t", "--data", data, "--wait", "--output", "json"}, args...)...)
		if err := json.Unmarshal([]byte(text), &p); err != nil || p.Rejected > 0 || len(p.Plans) != min(p.Jobs, 1) {
			t.Fatalf("%v: %s", err, text)
		}
		return p.Jobs, p.Files
	}
	rows := run(t, "scan", "t", "--data", data, "--output", "jsonl")
	filesAre := func(n int) {
		t.Helper()
		if got := strings.Count(run(t, "files", "t", "--data", data, "--output", "jsonl"), "\n"); got != n {
			t.Errorf("%d files, want %d", got, n)
		}
		if now := run(t, "scan", "t", "--data", data, "--output", "jsonl"); sortedLines(now) != sortedLines(rows) {
			t.Errorf("rows are\n%sthey were\n%s", now, rows)
		}
	}
	filesAre(4)
	if jobs, files := compact(); jobs != 1 || files != 4 {
		t.Errorf("%d jobs of %d files", jobs, files)
	}
	filesAre(1)
	if jobs, _ := compact("--strategy", "full"); jobs != 0 {
		t.Errorf("a table of one file has %d jobs", jobs)
	}
	load(5)
	rows = run(t, "scan", "t", "--data", data, "--output", "jsonl")
	filesAre(2)

	n := startNode(t, "--data", data, "--catalog-listen", "off", "--log-level", "warn")
	if jobs, files := compact("--strategy", "full"); jobs != 1 || files != 2 {
		t.Errorf("%d jobs of %d files", jobs, files)
	}
	filesAre(1)
	if out := run(t, "jobs", "list", "--data", data, "--output", "jsonl"); out != "" {
		t.Errorf("open jobs: %s", out)
	}
	wantLines(t, run(t, "status", "--data", data, "--output", "json"), `"jobs_open": 0`)
	list := run(t, "transaction", "list", "t", "--data", data)
	wantLines(t, list, "1 jobs of 2 files", "1 jobs: 1 files of 5 rows")
	for _, c := range []struct {
		code int
		want string
		args []string
	}{
		{exitUsage, "no compaction strategy", []string{"compact", "t", "--strategy", "fast"}},
		{exitUsage, "no such table", []string{"compact", "u"}},
		{exitUsage, "is no job", []string{"jobs", "show", "first"}},
		{exitFailed, "no open job 3.0", []string{"jobs", "show", "3.0"}},
		{exitFailed, "has no open job 3.0", []string{"jobs", "release", "t", "3.0"}},
	} {
		if code, out, errs := varve(t, append(c.args, "--data", data)...); code != c.code || !strings.Contains(errs, c.want) {
			t.Errorf("%v: exit code %d, stdout %q, stderr %q; want %d, %q", c.args, code, out, errs, c.code, c.want)
		}
	}
	if code := n.end(t); code != exitDone {
		t.Fatal(n.err.String())
	}
}

func sortedLines(text string) string {
	lines := strings.Split(text, "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
