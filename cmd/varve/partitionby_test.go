package main

import (
	"strings"
	"testing"
)

// How a table is partitioned changes, and changes back (T7).
func TestAlterPartitioning(t *testing.T) {
	data := t.TempDir()
	load(t, "{\"id\":1,\"n\":5}\n{\"id\":2,\"n\":5}\n", "--data", data, "--table", "t", "--format", "rows-json", "--key", "id", "-")
	quiet := func(args ...string) string {
		t.Helper()
		return run(t, append(args, "--data", data, "--log-level", "warn", "--output", "json")...)
	}
	wantLines(t, quiet("table", "alter", "t", "--add", "region string", "--partition-by", "bucket(4, id), region"),
		`"changed": true`, `"name": "region"`, `"spec_id": 1`, `"partition_by": "bucket(4, id), region"`)
	load(t, "{\"id\":3,\"region\":\"x\"}\n", "--data", data, "--table", "t", "--partition-by", "bucket(4, id), region", "-")
	wantLines(t, quiet("table", "alter", "t", "--partition-by", "bucket(8, id)", "--partition-by", "truncate(2, region)"), `"changed": true`, `"spec_id": 2`)
	load(t, "{\"id\":1,\"n\":6,\"region\":\"yyy\"}\n", "--data", data, "--table", "t", "-")
	wantLines(t, quiet("table", "show", "t"), `"field": "id_bucket_8"`, `"transform": "truncate[2]"`)
	wantLines(t, quiet("files", "t"), `"partition":"id_bucket=`, `"partition":"id_bucket_8=`)
	wantLines(t, quiet("table", "alter", "t", "--unpartitioned"), `"changed": true`, `"spec_id": 0`, `"partition_by": ""`)
	wantLines(t, quiet("table", "alter", "t", "--unpartitioned"), `"changed": false`)
	wantRows(t, scanned(t, data, "t"), "1,6,yyy", "2,5,", "3,,x")
	for _, tc := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"table", "alter", "t", "--partition-by", "day(n)"}, exitUsage, "cannot take a long"},
		{[]string{"table", "alter", "t", "--partition-by", "id"}, exitUsage, "would show values of the key"},
		{[]string{"table", "alter", "t", "--partition-by", "n, bucket(2, n), n"}, exitUsage, "is there twice"},
		{[]string{"table", "alter", "t", "--partition-by", "nn"}, exitUsage, `did you mean "n"`},
		{[]string{"table", "alter", "t", "--partition-by", "n", "--unpartitioned"}, exitUsage, "--unpartitioned alone"},
		{[]string{"table", "alter", "t", "--partition-by", ""}, exitUsage, "--unpartitioned alone"},
	} {
		code, out, errs := varve(t, append(tc.args, "--data", data, "--log-level", "error")...)
		if code != tc.code || out != "" || !strings.Contains(errs, tc.want) {
			t.Errorf("%v: exit code %d, want %d; stdout %q; stderr %q, want %q in it", tc.args, code, tc.code, out, errs, tc.want)
		}
	}
}
