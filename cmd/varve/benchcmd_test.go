package main

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestBench: the JSON keys of a figure are stable, and any figure is a success.
func TestBench(t *testing.T) {
	out := run(t, "bench", "vector", "--quick", "--output", "json")
	var rs []map[string]json.RawMessage
	if err := json.Unmarshal([]byte(out), &rs); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	if len(rs) == 0 {
		t.Fatal("no figures")
	}
	for _, k := range []string{"bench", "figure", "unit", "better", "goal", "beside", "ratio", "cpu_s", "rss_peak_bytes", "setup"} {
		if _, ok := rs[0][k]; !ok {
			t.Errorf("no %s in %v", k, rs[0])
		}
	}
	code, _, errs := varve(t, "bench", "vectr")
	if code != exitUsage || !strings.Contains(errs, `did you mean "vector"`) {
		t.Errorf("exit %d: %s", code, errs)
	}
	wantLines(t, run(t, "bench", "vector", "--quick"), "vector.union/full", "seed 42")
}

func TestRounded(t *testing.T) {
	for in, want := range map[float64]float64{0: 0, 123456: 123000, 0.012345: 0.0123, -1.2351: -1.24, 9.999: 10} {
		if got := rounded(in); got != want {
			t.Errorf("rounded(%v) = %v, want %v", in, got, want)
		}
	}
}
