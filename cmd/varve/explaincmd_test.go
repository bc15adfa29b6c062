package main

import (
	"strings"
	"testing"
)

// TestExplain: what befell a key, from its first version to its end.
func TestExplain(t *testing.T) {
	data := threeLoads(t)
	wantLines(t, run(t, "explain", "t", "1", "--data", data, "--output", "csv"), "written", "a version died", "t/0 [0, 5)")
	wantLines(t, run(t, "explain", "t", "id=3", "--data", data, "--output", "csv"), "written", "a request asked to delete it", "a version died")
	if out := run(t, "explain", "t", "77", "--data", data, "--output", "json"); out != "[]\n" {
		t.Errorf("of a key that never was: %s", out)
	}
	fails(t, exitUsage, []string{"key column"}, "explain", "t", "v=1", "--data", data)
	if _, _, errs := varve(t, "explain", "t", "id=x", "--data", data); strings.Contains(errs, "--key") {
		t.Errorf("explain has no flag --key: %s", errs)
	}
	wantLines(t, run(t, "transaction", "list", "t", "--since", "1h", "--data", data), "AppendRows")
	fails(t, exitUsage, []string{"--since"}, "transaction", "list", "t", "--since", "soon", "--data", data)
}
