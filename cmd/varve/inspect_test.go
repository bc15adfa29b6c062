package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func wantLines(t *testing.T, got string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(got, w) {
			t.Errorf("no %q in\n%s", w, got)
		}
	}
}

func TestInspectOurOwnFiles(t *testing.T) {
	fx := newFixture(t)
	meta := filepath.Join(fx.table, "metadata", "v4.metadata.json")
	wantLines(t, run(t, "inspect", "metadata", meta),
		"format_version        3\n", "last_sequence_number  2\n", "next_row_id           7\n",
		"       1  order_id    long            true      true   null\n", "       2  customer    string          false     false  who bought\n",
		"      0      1000  created_at_day  day                4\n", "gc.enabled  false\n", "main  branch", "v3.metadata.json")
	wantLines(t, run(t, "inspect", "manifest", fx.list), "kind  manifest list\n", "m1-0.avro", "m2-1.avro", "deletes")
	wantLines(t, run(t, "inspect", "manifest", fx.manifest, "--output", "csv"),
		"added,position deletes,", ",PUFFIN,created_at_day=2026-08-01,2,", "1-1-1.parquet,4,")
	wantLines(t, run(t, "inspect", "manifest", filepath.Join(fx.table, "metadata", "m2-0.avro"), "--metrics", "--output", "csv"),
		",1,order_id,", ",2,0,,2,5\n", ",2,0,,bob,fay\n", ",2,0,,5.00,19.90\n", ",2,0,0,3,4\n")
	wantLines(t, run(t, "inspect", "puffin", fx.puffin, "--output", "csv"),
		"0,deletion-vector-v1,4,", ",[2147483645],-1,-1,", "1-1-1.parquet,2,ok,\n")
	if got, want := run(t, "inspect", "dv", fx.puffin, "--output", "csv"), "from,to,count\n1,2,2\n"; got != want {
		t.Errorf("dv: got %q, want %q", got, want)
	}
	wantLines(t, run(t, "inspect", "dv", fx.puffin), "cardinality  2\n", "highest      2\n")
	wantLines(t, run(t, "inspect", "parquet", filepath.Join(fx.table, "data", "1-1-1.parquet")),
		"rows        5\n", "row_groups\n", "order_id           1  INT64", "required", "optional")
	wantLines(t, run(t, "inspect", "parquet", filepath.Join(fx.table, "data", "1-1-1.parquet"), "--chunks", "--output", "csv"), "\n0,order_id,UNCOMPRESSED,", "\n1,score,")

	for _, args := range [][]string{{"metadata", meta}, {"manifest", fx.list}, {"manifest", fx.manifest}, {"puffin", fx.puffin}, {"dv", fx.puffin}, {"parquet", fx.dataFile}} {
		out := run(t, append([]string{"inspect", "--output", "json"}, args...)...)
		if !json.Valid([]byte(out)) {
			t.Errorf("%v: not JSON:\n%s", args, out)
		}
		if got := run(t, append([]string{"inspect", "--output", "json"}, args[0], "file://"+args[1])...); got != out {
			t.Errorf("%v: another result by its location", args)
		}
	}
}

// A damaged file is an error that names it, whatever the damage; it never
// ends the process.
func TestInspectDamagedFiles(t *testing.T) {
	fx := newFixture(t)
	for kind, path := range map[string]string{
		"metadata": filepath.Join(fx.table, "metadata", "v3.metadata.json"), "manifest": fx.manifest, "puffin": fx.puffin, "dv": fx.puffin, "parquet": fx.dataFile,
	} {
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		bad := filepath.Join(t.TempDir(), "bad")
		try := func(b []byte) (int, string) {
			if err := os.WriteFile(bad, b, 0o644); err != nil {
				t.Fatal(err)
			}
			code, _, errs := varve(t, "inspect", kind, bad)
			return code, errs
		}
		for _, n := range []int{0, 1, 3, 10, len(whole) / 2, len(whole) - 1} {
			if code, errs := try(whole[:n]); code != exitFailed || !strings.Contains(errs, bad) {
				t.Errorf("%s cut to %d bytes: exit code %d, stderr %q", kind, n, code, errs)
			}
		}
		if kind == "parquet" {
			for i := max(0, len(whole)-400); i < len(whole); i++ {
				b := append([]byte(nil), whole...)
				b[i] ^= 0xff
				if code, _ := try(b); code != exitFailed && code != exitDone {
					t.Errorf("%s with byte %d changed: exit code %d", kind, i, code)
				}
			}
		}
	}
	b, err := os.ReadFile(fx.puffin)
	if err != nil {
		t.Fatal(err)
	}
	b[20] ^= 1
	bad := writeFile(t, "flipped.puffin", string(b))
	code, out, errs := varve(t, "inspect", "puffin", bad)
	if code != exitFailed || !strings.Contains(out, "corrupt deletion vector") || !strings.Contains(errs, "1 of its vectors") {
		t.Errorf("a flipped bit in a vector: exit code %d, stdout %q, stderr %q", code, out, errs)
	}
}

func TestInspectWrongUsage(t *testing.T) {
	fx := newFixture(t)
	tests := []struct {
		args []string
		code int
		want string
	}{
		{[]string{"puffin", "no-such-file"}, exitFailed, "there is no file no-such-file"},
		{[]string{"puffin", fx.table}, exitFailed, "is no file"},
		{[]string{"pufin", fx.puffin}, exitUsage, `did you mean "puffin"`},
		{[]string{"dv", fx.puffin, "--blob", "3"}, exitUsage, "none of number 3"},
		{[]string{"dv", fx.puffin, "--data-file", "x"}, exitUsage, "no vector of x"},
		{[]string{"dv", fx.puffin, "--offset", "4", "--length", "999999"}, exitUsage, "do not lie in"},
		{[]string{"dv", fx.puffin, "--offset", "4", "--blob", "0"}, exitUsage, "blob"},
		{[]string{"manifest", fx.list, "--metrics"}, exitUsage, "manifest list"},
		{[]string{"puffin", "nowhere://bucket/x"}, exitFailed, "no store for scheme"},
		{[]string{"puffin", "s3://bucket"}, exitUsage, "names no object"},
	}
	for _, tc := range tests {
		code, _, errs := varve(t, append([]string{"inspect"}, tc.args...)...)
		if code != tc.code || !strings.Contains(errs, tc.want) {
			t.Errorf("%v: exit code %d, want %d; stderr %q, want %q in it", tc.args, code, tc.code, errs, tc.want)
		}
	}
	wantLines(t, run(t, "inspect", "dv", fx.puffin, "--offset", "4", "--length", "44", "--output", "csv"), "1,2,2\n")
}

// Files of other writers, where they are at hand.
func TestInspectGoldenFiles(t *testing.T) {
	dir := os.Getenv("VARVE_FIXTURES")
	if dir == "" {
		t.Skip("VARVE_FIXTURES is not set: files of other writers are not tried")
	}
	golden := func(name string) string { return filepath.Join(dir, "golden", name) }
	wantLines(t, run(t, "inspect", "puffin", golden("multi-blob-dv.puffin"), "--output", "csv"), "file-001.parquet,3,ok", "file-002.parquet,2,ok")
	wantLines(t, run(t, "inspect", "dv", golden("multi-blob-dv.puffin"), "--blob", "1", "--output", "csv"), "50,50,1\n150,150,1\n")
	wantLines(t, run(t, "inspect", "dv", golden("all-container-types-position-index.bin")), "cardinality  132561\n")
	wantLines(t, run(t, "inspect", "dv", golden("64mapspreadvals.bin")), "kind         roaring map\n", "cardinality  100\n")
	wantLines(t, run(t, "inspect", "metadata", golden("TableMetadataV3ValidMinimal.json")), "last_sequence_number  34\n")
	wantLines(t, run(t, "inspect", "manifest", golden("duckdb_v3_manifest_list.avro"), "--output", "jsonl"), `"content":"deletes"`)
	if code, _, errs := varve(t, "inspect", "dv", golden("64maphighvals.bin")); code != exitFailed || !strings.Contains(errs, "2147483646") {
		t.Errorf("keys above 2^31 - 2 are refused: exit code %d, stderr %q", code, errs)
	}
}
