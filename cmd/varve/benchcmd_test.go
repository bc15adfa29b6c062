package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
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

// TestBenchNodeAnswersAtOnce: the node's process says that it is ready before
// it is told to stop.
func TestBenchNodeAnswersAtOnce(t *testing.T) {
	in, task := io.Pipe()
	answers, out := io.Pipe()
	var errs bytes.Buffer
	code := make(chan int, 1)
	go func() {
		code <- execute(t.Context(), streams{in: in, out: out, err: &errs}, []string{"bench-node", "--quiet"})
		out.Close()
	}()
	fmt.Fprintf(task, `{"Data":%q,"Deployment":"b","Partitions":1,"Roles":["state"]}`, t.TempDir())
	d := json.NewDecoder(answers)
	var ready, end map[string]any
	if err := d.Decode(&ready); err != nil {
		t.Fatalf("%v; %s", err, errs.String())
	}
	fmt.Fprintln(task, `"stop"`)
	if err := d.Decode(&end); err != nil || end["CPU"].(float64) <= 0 {
		t.Fatalf("%v: %v; %s", end, err, errs.String())
	}
	if c := <-code; c != exitDone {
		t.Errorf("exit code %d: %s", c, errs.String())
	}
}
