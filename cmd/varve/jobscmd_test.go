package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
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

// TestCompactGivenUp: an input that cannot be read ends in exit code 1 once the
// job is given up, and the rows are as they were; verify names the file, once.
func TestCompactGivenUp(t *testing.T) {
	data := t.TempDir()
	for i, from := range []int{0, 1000, 2000} {
		var b strings.Builder
		for id := from; id < from+1000; id++ {
			fmt.Fprintf(&b, `{"id":%d,"v":"a secret of %d"}`+"\n", id, id)
		}
		args := []string{"load", "--data", data, "--table", "t", "--format", "rows-json", writeFile(t, "events.jsonl", b.String())}
		if i == 0 {
			args = append(args, "--key", "id")
		}
		run(t, args...)
	}
	damaged := filesUnder(t, filepath.Join(data, "lake", "default"), ".parquet")[1]
	rewrite(t, damaged, func(b []byte) []byte {
		for i := 100; i < 200; i++ {
			b[i] ^= 0x55
		}
		return b
	})
	code, _, errs := varve(t, "compact", "t", "--data", data, "--strategy", "full", "--wait")
	if code != exitFailed || !strings.Contains(errs, "1 of 1 jobs were given up") || strings.Contains(errs, "a secret of") {
		t.Errorf("exit code %d: %s", code, errs)
	}
	code, out, errs := varve(t, "verify", "t", "--data", data, "--deep", "--source", "--output", "jsonl")
	if code != exitDiffers || strings.Count(out, "\n") != 1 || !strings.Contains(out, filepath.Base(damaged)) {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
}
