package main

import (
	"strings"
	"testing"
)

// compact on a stopped folder plans, executes and publishes before it ends; the
// rows are as before, in one file.
func TestCompactAStoppedFolder(t *testing.T) {
	data := t.TempDir()
	for _, events := range []string{`{"id":1,"v":"a"}` + "\n" + `{"id":2,"v":"b"}`, `{"id":2,"v":"c"}` + "\n" + `{"id":3,"v":"d"}`, `{"id":4,"v":"e"}`} {
		load(t, events, "--data", data, "--table", "t", "--format", "rows-json", "--key", "id", "-")
	}
	before := scanned(t, data, "t")
	out := run(t, "compact", "t", "--data", data, "--strategy", "full", "--wait")
	wantLines(t, out, "jobs      1", "files     3", "plans     [")
	wantRows(t, scanned(t, data, "t"), before...)
	files := lines(run(t, "files", "t", "--data", data, "--output", "csv"))
	if len(files) != 2 || !strings.Contains(files[1], ",4,") {
		t.Fatalf("files after the compaction:\n%s", strings.Join(files, "\n"))
	}
	wantLines(t, run(t, "compact", "t", "--data", data, "--strategy", "full"), "jobs      0", "plans     []")
	if code, _, errs := varve(t, "jobs", "show", "1.1", "--data", data); code == exitDone || !strings.Contains(errs, "no open job 1.1") {
		t.Errorf("jobs show: exit code %d, %q", code, errs)
	}
}
