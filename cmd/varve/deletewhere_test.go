package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/varve-io/varve/schemas/dv"
	"github.com/varve-io/varve/statestore"
)

// deleted is what varve delete --where shows.
type deleted struct {
	Offset      int64
	Settled     bool
	Rows        int64 `json:"rows"`
	RowsDeleted int64 `json:"rows_deleted"`
	Files       int64
	RowsRead    int64 `json:"rows_read"`
}

func deleteWhere(t *testing.T, args ...string) (d deleted) {
	t.Helper()
	text := run(t, append([]string{"delete", "--output", "json"}, args...)...)
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return d
}

// TestDeleteWhere: rows go by a condition (C8, C10), on a stopped folder and by a
// running node, in tables with and without a key, before and after a compaction;
// iceberg-go reads what is left.
func TestDeleteWhere(t *testing.T) {
	for _, how := range []string{"--key", "--append-only"} {
		t.Run(how, func(t *testing.T) {
			data := t.TempDir()
			load := func(from, to int, name string) {
				var b strings.Builder
				for i := from; i < to; i++ {
					note := fmt.Sprintf(`"%s %d"`, name, i)
					if i%5 == 0 {
						note = "null"
					}
					fmt.Fprintf(&b, `{"id":%d,"n":%d,"note":%s}`+"\n", i, i%10, note)
				}
				args := []string{"load", "--data", data, "--table", "t", "--format", "rows-json", writeFile(t, fmt.Sprintf("%d.jsonl", from), b.String())}
				switch {
				case from > 0:
				case how == "--key":
					args = append(args, how, "id")
				default:
					args = append(args, how)
				}
				run(t, args...)
			}
			ids := func(want func(i int) bool, n int) {
				t.Helper()
				var b strings.Builder
				for i := range n {
					if want(i) {
						fmt.Fprintf(&b, "{\"id\":%d}\n", i)
					}
				}
				if got := run(t, "scan", "t", "--data", data, "--columns", "id", "--output", "jsonl"); sortedLines(got) != sortedLines(b.String()) {
					t.Errorf("rows are\n%swant\n%s", got, b.String())
				}
			}
			load(0, 40, "first")
			if d := deleteWhere(t, "t", "--data", data, "--where", "n < 3 AND note IS NOT NULL", "--dry-run"); d.Rows != 8 || d.Files != 1 || d.RowsRead != 40 {
				t.Errorf("%+v", d)
			}
			ids(func(int) bool { return true }, 40)
			if d := deleteWhere(t, "t", "--data", data, "--where", "n < 3 AND note IS NOT NULL"); d.RowsDeleted != 8 || d.Files != 1 || !d.Settled {
				t.Errorf("%+v", d)
			}
			first := func(i int) bool { return i%10 >= 3 || i%5 == 0 }
			ids(first, 40)
			load(40, 60, "second")
			run(t, "compact", "t", "--data", data, "--strategy", "full", "--wait")

			n := startNode(t, "--data", data, "--catalog-listen", "off", "--log-level", "info")
			// What is dead is not counted again; a null is neither like nor unlike.
			if d := deleteWhere(t, "t", "--data", data, "--where", "note != 'secret 7' AND id IN (41, 1, 45, 57) OR id = 3", "--dry-run"); d.Rows != 3 {
				t.Errorf("%+v", d)
			}
			if d := deleteWhere(t, "t", "--data", data, "--where", "note != 'secret 7' AND id IN (41, 1, 45, 57) OR id = 3"); d.RowsDeleted != 3 {
				t.Errorf("%+v", d)
			}
			left := func(i int) bool {
				return i != 3 && i != 41 && i != 57 && (i >= 40 || first(i))
			}
			ids(left, 60)
			for _, c := range []struct {
				code int
				want string
				args []string
			}{
				{exitUsage, "character 6: column id is a long and takes a number, not a text", []string{"--where", "id = 'secret 7'"}},
				{exitUsage, "character 6: column id is a long and takes a number, not a text", []string{"--where", "id = 'secret 7'", "--dry-run"}},
				{exitUsage, "--where goes with no --key", []string{"--where", "id = 7", "--key", "id=7"}},
				{exitUsage, "--dry-run goes with --where", []string{"--key", "id=7", "--dry-run"}},
			} {
				code, _, errs := varve(t, append([]string{"delete", "t", "--data", data}, c.args...)...)
				if code != c.code || !strings.Contains(errs, c.want) || strings.Contains(errs, "secret") {
					t.Errorf("%v: exit code %d: %s", c.args, code, errs)
				}
			}
			if d := deleteWhere(t, "t", "--data", data, "--where", "id = 44", "--no-wait"); d.Settled || d.Offset == 0 {
				t.Errorf("%+v", d)
			}
			eventually(t, func() error {
				if got := run(t, "scan", "t", "--data", data, "--where", "id = 44", "--output", "jsonl"); got != "" {
					return fmt.Errorf("it is still there: %s", got)
				}
				return nil
			})
			wantLines(t, run(t, "transaction", "list", "t", "--data", data), "DeleteWhere", "RowsFound", "rows of which a predicate holds")
			n.end(t)
			if log := n.err.String(); strings.Contains(log, "secret") {
				t.Errorf("the node's log shows the condition:\n%s", log)
			}
			if how == "--key" {
				// An upsert of a row that is gone is a row; the index knows that it is gone.
				load(1, 2, "third")
				left = func(i int) bool { return i == 1 || i != 3 && i != 41 && i != 44 && i != 57 && (i >= 40 || first(i)) }
				ids(left, 60)
				run(t, "verify", "t", "--data", data, "--deep")
			}
			run(t, "replay", "--data", data, "--into", filepath.Join(t.TempDir(), "again"), "--compare")
		})
	}
}

// TestDeleteWhereBesideUpserts: a find job, compactions and upserts meet (C8, C10,
// P2). Whatever comes first, rows of the old kind are gone, those of the new kind
// are there: an upsert either took its row's old version away, or came later.
func TestDeleteWhereBesideUpserts(t *testing.T) {
	const n = 300
	data := t.TempDir()
	events := func(name string, gen int, is func(i int) bool) string {
		var b strings.Builder
		for i := range n {
			if is(i) {
				fmt.Fprintf(&b, `{"id":%d,"gen":%d}`+"\n", i, gen)
			}
		}
		return writeFile(t, name, b.String())
	}
	for part := range 3 {
		args := []string{"load", "--data", data, "--table", "t", "--format", "rows-json", events(fmt.Sprintf("old-%d.jsonl", part), 0, func(i int) bool { return i%3 == part })}
		if part == 0 {
			args = append(args, "--key", "id")
		}
		run(t, args...)
	}
	node := startNode(t, "--data", data, "--catalog-listen", "off", "--log-level", "warn")
	produced := make(chan string, 1)
	go func() {
		for part := range 6 {
			file := events(fmt.Sprintf("new-%d.jsonl", part), 1, func(i int) bool { return i%2 == 0 && i/50 == part })
			if code, _, errs := varve(t, "produce", "--data", data, "--table", "t", "--format", "rows-json", file); code != exitDone {
				produced <- errs
				return
			}
		}
		produced <- ""
	}()
	run(t, "compact", "t", "--data", data, "--strategy", "full")
	d := deleteWhere(t, "t", "--data", data, "--where", "gen = 0 AND NOT id >= 200")
	if d.RowsDeleted < 100 || d.RowsDeleted > 200 {
		t.Errorf("%+v: 100 odd ids below 200 have no other version", d)
	}
	run(t, "compact", "t", "--data", data, "--strategy", "full", "--wait")
	if errs := <-produced; errs != "" {
		t.Fatal(errs)
	}
	var want strings.Builder
	for i := range n {
		if i%2 == 0 || i >= 200 {
			fmt.Fprintf(&want, `{"id":%d,"gen":%d}`+"\n", i, 1-i%2)
		}
	}
	eventually(t, func() error {
		if got := run(t, "scan", "t", "--data", data, "--output", "jsonl"); sortedLines(got) != sortedLines(want.String()) {
			return fmt.Errorf("rows are\n%s", got)
		}
		return nil
	})
	if d := deleteWhere(t, "t", "--data", data, "--where", "gen = 1"); d.RowsDeleted != n/2 {
		t.Errorf("%+v, want %d rows", d, n/2)
	}
	node.end(t)
	run(t, "verify", "t", "--data", data, "--deep")
	run(t, "replay", "--data", data, "--into", filepath.Join(t.TempDir(), "again"), "--compare")
}

// TestAppendDeletePositions: rows go by position through varve transaction append
// (P1, P3, P4), each block by itself.
func TestAppendDeletePositions(t *testing.T) {
	data := t.TempDir()
	run(t, "load", "--data", data, "--table", "t", "--format", "rows-json", "--append-only", writeFile(t, "rows.jsonl", `{"id":1}`+"\n"+`{"id":2}`+"\n"+`{"id":3}`+"\n"))
	startNode(t, "--data", data, "--catalog-listen", "off", "--log-level", "warn")
	block := func(file uint64, positions ...uint32) string {
		b, err := dv.AppendBitmap(nil, roaring.BitmapOf(positions...))
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf(`{"file":%d,"bitmap":%q}`, file, base64.StdEncoding.EncodeToString(b))
	}
	first := statestore.FileID(1, 1)
	for _, c := range []struct {
		blocks string
		want   []string
	}{
		{block(first, 0, 2) + "," + block(first+5, 0), []string{"partly"}},
		{block(first, 3), []string{"rejected", "out of range"}},
		{block(first+5, 0), []string{"rejected", "no base"}},
	} {
		_, out, errs := varveWith(t, nil, `{"deletes":[`+c.blocks+`]}`, "transaction", "append", "t", "--type", "DeletePositions", "-", "--data", data, "--output", "json")
		for _, w := range c.want {
			if !strings.Contains(out+errs, w) {
				t.Errorf("%s: no %q in %s%s", c.blocks, w, out, errs)
			}
		}
	}
	eventually(t, func() error {
		if got := run(t, "scan", "t", "--data", data, "--output", "jsonl"); sortedLines(got) != sortedLines(`{"id":2}`+"\n") {
			return fmt.Errorf("rows are\n%s", got)
		}
		return nil
	})
}

// TestAppendEveryPublicType: the records that other programs send are taken as JSON,
// each item with an outcome of its own (L12), and what a job asked for that way
// comes to is in the table.
func TestAppendEveryPublicType(t *testing.T) {
	data := t.TempDir()
	for i, lines := range []string{`{"id":1}` + "\n" + `{"id":3}`, `{"id":2}`, `{"id":4}`} {
		args := []string{"load", "--data", data, "--table", "t", "--format", "rows-json"}
		if i == 0 {
			args = append(args, "--key", "id", "--property", "varve.compaction.paused=true")
		}
		run(t, append(args, writeFile(t, "rows.jsonl", lines+"\n"))...)
	}
	startNode(t, "--data", data, "--catalog-listen", "off", "--log-level", "warn")
	// Each load claimed the shard anew, as the next writer.
	file := func(n uint32) uint64 { return statestore.FileID(n, 1) }
	input := func(n uint32, rows int) string {
		return fmt.Sprintf(`{"file":%d,"lo":0,"hi":%d}`, file(n), rows)
	}
	const ref = `{"path":"_varve/varve/maps/x","length":1,"hash":"0101010101010101010101010101010101010101010101010101010101010101"}`
	body := `{"path":"_varve/varve/bodies/` + strings.Repeat("02", 32) + `","length":1,"hash":"` + strings.Repeat("02", 32) + `"}`
	job := `{"plan":1,"item":0,"attempt":1}`
	for _, c := range []struct {
		kind, record string
		code         int
		want         []string
	}{
		{"PlanJobs", `{"items":[{"inputs":[` + input(1, 2) + `,` + input(2, 1) + `],"target_bytes":0,"strategy":"mine"},{"inputs":[` + input(2, 1) + `],"target_bytes":0},{"inputs":[` + input(9, 1) + `],"target_bytes":0}]}`,
			exitDone, []string{"partly", `"item": 1`, "file taken", `"item": 2`, "no file"}},
		{"PlanJobs", `{"items":[{"inputs":[` + input(3, 7) + `],"target_bytes":0}]}`, exitFailed, []string{"rejected", "bad range"}},
		{"CompleteJob", `{"items":[{"job":` + job + `,"schema_id":0,"sorted":true,"outputs":[],"map":` + ref + `}]}`, exitFailed, []string{"rejected", "no job"}},
		{"ReleaseJob", `{"items":[{"job":` + job + `,"again":false}]}`, exitFailed, []string{"rejected", "no job"}},
		{"SplitPartition", `{"items":[{"node":77,"children":2,"refs":[]}],"separators":` + body + `}`, exitFailed, []string{"rejected", "no node"}},
		{"ExtendTree", `{"first":5,"children":2,"place":0,"separators":` + body + `}`, exitFailed, []string{"rejected"}},
		{"AddFiles", `{"items":[{"name":"` + strings.Repeat("03", 16) + `","rows":0,"bytes":10,"spec_id":0,"partition":"","schema_id":0}],"metrics":` + body + `}`, exitFailed, []string{"rejected", "bad file"}},
		{"DeleteKeys", `{}`, exitUsage, []string{"keys is missing"}},
		{"PlanJobs", `{"items":[{"inputs":"all"}]}`, exitUsage, []string{"inputs"}},
	} {
		code, out, errs := varveWith(t, nil, c.record, "transaction", "append", "t", "--type", c.kind, "-", "--data", data, "--output", "json")
		if code != c.code {
			t.Errorf("%s %s: exit code %d", c.kind, c.record, code)
		}
		for _, w := range c.want {
			if !strings.Contains(out+errs, w) {
				t.Errorf("%s %s: no %q in %s%s", c.kind, c.record, w, out, errs)
			}
		}
	}
	eventually(t, func() error {
		if n := len(strings.Split(strings.TrimSpace(run(t, "files", "t", "--data", data, "--output", "jsonl")), "\n")); n != 2 {
			return fmt.Errorf("there are %d files", n)
		}
		return nil
	})
	if got, want := run(t, "scan", "t", "--data", data, "--output", "jsonl"), `{"id":1}`+"\n"+`{"id":2}`+"\n"+`{"id":3}`+"\n"+`{"id":4}`+"\n"; sortedLines(got) != sortedLines(want) {
		t.Errorf("rows are\n%s", got)
	}
}

// TestVerifySourceAfterWhere: rows that a condition deleted are not told as lost ones, but
// that they were not compared.
func TestVerifySourceAfterWhere(t *testing.T) {
	data := t.TempDir()
	run(t, "load", "--data", data, "--table", "t", "--format", "rows-json", "--key", "id", writeFile(t, "rows.jsonl", `{"id":1,"n":5}`+"\n"+`{"id":2,"n":6}`+"\n"+`{"id":3,"n":7}`+"\n"))
	run(t, "delete", "t", "--where", "n >= 6", "--data", data)
	code, out, errs := varve(t, "verify", "t", "--source", "--data", data)
	if code != exitDone || !strings.Contains(out+errs, "the source has 2 rows that the table has not; rows were deleted by a condition") {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
}
