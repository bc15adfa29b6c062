package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func lines(s string) []string { return strings.Split(strings.TrimSuffix(s, "\n"), "\n") }

func TestScanRowsOfEverySnapshot(t *testing.T) {
	fx := newFixture(t)
	tests := []struct {
		name string
		args []string
		want []string
	}{
		{"newest", nil, []string{"1,ada", "4,dan", `9007199254740993,"eve, ""x""` + "\nz\"", "2,bob", "5,fay"}},
		{"by id", []string{"--snapshot", fmt.Sprint(fx.snapshots[0])}, []string{"1,ada", "2,bob", "3,", "4,dan", `9007199254740993,"eve, ""x""` + "\nz\""}},
		{"as of the first", []string{"--as-of", "2026-08-01T00:01:59Z", "--where", "order_id = 2"}, []string{"2,bob"}},
		{"equal", []string{"--where", "customer = 'bob'"}, []string{"2,bob"}},
		{"past 2^53", []string{"--where", "order_id = 9007199254740993", "--columns", "order_id"}, []string{"9007199254740993"}},
		{"just below it", []string{"--where", "order_id >= 9007199254740992 and order_id < 9007199254740993"}, nil},
		{"and", []string{"--where", "paid = true AND amount >= 12.50"}, []string{"1,ada", "4,dan", "2,bob"}},
		{"deleted rows stay away", []string{"--where", "customer is null"}, nil},
		{"null in the first", []string{"--where", "customer IS NULL", "--snapshot", fmt.Sprint(fx.snapshots[0])}, []string{"3,"}},
		{"not null", []string{"--where", "amount is not null and order_id < 3"}, []string{"1,ada", "2,bob"}},
		{"a date for a timestamp", []string{"--where", "created_at >= 2026-08-02"}, []string{"2,bob", "5,fay"}},
		{"a timestamp", []string{"--where", "created_at > '2026-08-01 00:00:02' AND created_at < 2026-08-02T00:00:00Z"}, []string{"4,dan"}},
		{"limit", []string{"--limit", "2"}, []string{"1,ada", "4,dan"}},
		{"quoted column", []string{"--where", `"order_id" <= 1`}, []string{"1,ada"}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			args := append([]string{"scan", "shop.orders", "--data", fx.data, "--output", "csv"}, tc.args...)
			if !strings.Contains(strings.Join(tc.args, " "), "--columns") {
				args = append(args, "--columns", "order_id,customer")
			}
			out := run(t, args...)
			_, got, _ := strings.Cut(out, "\n")
			want := strings.Join(tc.want, "\n")
			if want != "" {
				want += "\n"
			}
			if got != want {
				t.Errorf("got\n%swant\n%s", got, want)
			}
		})
	}
}

func TestScanForms(t *testing.T) {
	fx := newFixture(t)
	tests := []struct{ form, want string }{
		{"table", "" +
			"order_id  customer  amount   created_at                        paid    score\n" +
			"────────  ────────  ───────  ────────────────────────────────  ────  ───────\n" +
			"       1  ada       12.50    2026-08-01T00:00:00.000000+00:00  true      0.5\n" +
			"       4  dan       1000.00  2026-08-01T00:00:03.000000+00:00  true  -1e+300\n"},
		{"json", "[\n" +
			`  {"order_id":1,"customer":"ada","amount":"12.50","created_at":"2026-08-01T00:00:00.000000+00:00","paid":true,"score":0.5},` + "\n" +
			`  {"order_id":4,"customer":"dan","amount":"1000.00","created_at":"2026-08-01T00:00:03.000000+00:00","paid":true,"score":-1e+300}` + "\n]\n"},
		{"jsonl", `{"order_id":1,"customer":"ada","amount":"12.50","created_at":"2026-08-01T00:00:00.000000+00:00","paid":true,"score":0.5}` + "\n" +
			`{"order_id":4,"customer":"dan","amount":"1000.00","created_at":"2026-08-01T00:00:03.000000+00:00","paid":true,"score":-1e+300}` + "\n"},
		{"csv", "order_id,customer,amount,created_at,paid,score\n" +
			"1,ada,12.50,2026-08-01T00:00:00.000000+00:00,true,0.5\n" +
			"4,dan,1000.00,2026-08-01T00:00:03.000000+00:00,true,-1e+300\n"},
	}
	for _, tc := range tests {
		t.Run(tc.form, func(t *testing.T) {
			if got := run(t, "scan", "shop.orders", "--data", fx.data, "--limit", "2", "--output", tc.form); got != tc.want {
				t.Errorf("got\n%s\nwant\n%s", got, tc.want)
			}
		})
	}
}

// C6: row ids come from the file's first row id and the position, also behind
// a vector's holes.
func TestScanLineage(t *testing.T) {
	fx := newFixture(t)
	out := run(t, "scan", "shop.orders", "--data", fx.data, "--lineage", "--columns", "order_id", "--output", "csv")
	want := "order_id,_row_id,_last_updated_sequence_number\n1,0,1\n4,3,1\n9007199254740993,4,1\n2,5,2\n5,6,2\n"
	if out != want {
		t.Errorf("got\n%swant\n%s", out, want)
	}
}

func TestScanRefuses(t *testing.T) {
	fx := newFixture(t)
	tests := []struct {
		name string
		args []string
		want string
	}{
		{"no such table", []string{"shop.order"}, `did you mean "shop.orders"`},
		{"bad name", []string{"shop..orders"}, "starts with a letter"},
		{"no such column", []string{"shop.orders", "--columns", "custmer"}, `did you mean "customer"`},
		{"no such column in where", []string{"shop.orders", "--where", "amout = 1"}, `did you mean "amount"`},
		{"value of another type", []string{"shop.orders", "--where", "order_id = 'x1'"}, "column order_id"},
		{"inexact decimal", []string{"shop.orders", "--where", "amount = 12.505"}, "column amount"},
		{"no operator", []string{"shop.orders", "--where", "order_id 5"}, "condition 1"},
		{"or", []string{"shop.orders", "--where", "paid = true OR paid = false"}, "not followed by AND"},
		{"dangling and", []string{"shop.orders", "--where", "paid = true and"}, "condition 2"},
		{"open quote", []string{"shop.orders", "--where", "customer = 'ada"}, "not closed"},
		{"equal to null", []string{"shop.orders", "--where", "customer = null"}, "IS NULL"},
		{"unknown snapshot", []string{"shop.orders", "--snapshot", "77"}, "no snapshot 77"},
		{"before the first", []string{"shop.orders", "--as-of", "2025-01-01"}, "keeps no snapshot of 2025-01-01"},
		{"no time", []string{"shop.orders", "--as-of", "yesterday"}, "no time"},
		{"both", []string{"shop.orders", "--as-of", "2026-08-02", "--snapshot", "1"}, "exclude"},
		{"limit", []string{"shop.orders", "--limit", "-1"}, "limit"},
		{"no table named", nil, "usage: varve scan TABLE"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			code, out, errs := varve(t, append([]string{"scan", "--data", fx.data}, tc.args...)...)
			if code != exitUsage || out != "" || !strings.Contains(errs, tc.want) {
				t.Errorf("exit code %d, want %d; stdout %q; stderr %q, want %q in it", code, exitUsage, out, errs, tc.want)
			}
			if strings.Contains(errs, "x1") || strings.Contains(errs, "12.505") {
				t.Errorf("the error repeats a value: %q", errs)
			}
		})
	}
}

func TestScanNoLake(t *testing.T) {
	dir := t.TempDir()
	code, _, errs := varve(t, "scan", "t", "--data", dir)
	if code != exitUsage || !strings.Contains(errs, "there is no lake at") {
		t.Errorf("exit code %d, stderr %q", code, errs)
	}
}

// TestScanWithoutMetadata: a table whose metadata files are gone is not one that never
// was, and no name for it is proposed.
func TestScanWithoutMetadata(t *testing.T) {
	fx := newFixture(t)
	all, err := filepath.Glob(filepath.Join(fx.table, "metadata", "*.metadata.json"))
	if err != nil || len(all) == 0 {
		t.Fatalf("%d metadata files, %v", len(all), err)
	}
	for _, f := range all {
		if err := os.Remove(f); err != nil {
			t.Fatal(err)
		}
	}
	code, _, errs := varve(t, "scan", "shop.orders", "--data", fx.data)
	if code != exitFailed || !strings.Contains(errs, "has no metadata file any more in ") || strings.Contains(errs, "did you mean") {
		t.Errorf("exit code %d, stderr %q", code, errs)
	}
	if code, _, errs := varve(t, "scan", "shop.order", "--data", fx.data); code != exitUsage || strings.Contains(errs, "shop.orders") {
		t.Errorf("exit code %d, stderr %q", code, errs)
	}
}

func TestSnapshotsAndFiles(t *testing.T) {
	fx := newFixture(t)
	out := run(t, "snapshots", "shop.orders", "--data", fx.data, "--output", "csv")
	want := "sequence,snapshot_id,parent_id,committed,operation,added_files,removed_files,added_rows,added_vectors,removed_vectors,added_deletes,files,rows,bytes,offset,refs\n" +
		fmt.Sprintf("1,%d,,2026-08-01T00:01:00.000Z,append,1,0,0,0,0,0,,5,2048,10,\"\"\n", fx.snapshots[0]) +
		fmt.Sprintf("2,%d,%d,2026-08-01T00:02:00.000Z,overwrite,1,0,0,1,0,0,,5,2048,20,main\n", fx.snapshots[1], fx.snapshots[0])
	if out != want {
		t.Errorf("snapshots: got\n%swant\n%s", out, want)
	}

	out = run(t, "files", "shop.orders", "--data", fx.data, "--output", "csv")
	got := lines(out)
	if len(got) != 3 {
		t.Fatalf("files: got %d lines\n%s", len(got), out)
	}
	for i, want := range []string{
		"file,content,partition,rows,records,deleted,bytes,sequence,first_row_id,vector,vector_offset,vector_bytes,vector_sequence",
		"data/1-1-1.parquet,data,created_at_day=2026-08-01,3,5,2,",
		"data/1-1-2.parquet,data,created_at_day=2026-08-02,2,2,0,",
	} {
		if !strings.HasPrefix(got[i], want) {
			t.Errorf("files, line %d: got %q, want it to begin with %q", i, got[i], want)
		}
	}
	if !strings.Contains(got[1], ",1,0,metadata/v.puffin,4,") || !strings.HasSuffix(got[1], ",2") || !strings.HasSuffix(got[2], ",2,5,,,,") {
		t.Errorf("files: sequences, row ids or vector are wrong:\n%s", out)
	}

	out = run(t, "files", "shop.orders", "--data", fx.data, "--snapshot", fmt.Sprint(fx.snapshots[0]), "--output", "csv")
	if got := lines(out); len(got) != 2 || !strings.Contains(got[1], ",5,5,0,") {
		t.Errorf("files of the first snapshot: got\n%s", out)
	}
}
