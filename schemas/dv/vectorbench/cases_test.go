package vectorbench

import (
	"errors"
	"testing"
	"time"
)

// TestCases: every pair agrees (Cases verifies it), and each operation is there.
func TestCases(t *testing.T) {
	cases, err := Cases(DefaultSeed)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, c := range cases {
		seen[c.Operation]++
	}
	for _, op := range []string{"union", "minus", "encode", "encode-set", "decode", "contains"} {
		if seen[op] != len(shapes) {
			t.Errorf("%s: %d shapes, want %d", op, seen[op], len(shapes))
		}
	}
}

// TestCompare runs on a clock that only the functions move.
func TestCompare(t *testing.T) {
	clock := time.Unix(0, 0)
	took := func(durations ...time.Duration) func() error {
		i := 0
		return func() error {
			clock = clock.Add(durations[i%len(durations)])
			i++
			return nil
		}
	}
	r, err := Compare(Case{Ours: took(3, 3, 300), Plain: took(2, 2, 1)}, 9, func() time.Time { return clock })
	if err != nil || r.Ours != 3 || r.Plain != 2 || r.Ratio() != 1.5 {
		t.Errorf("got %+v, %v, want 3 and 2", r, err)
	}
	broken := errors.New("broken")
	if _, err := Compare(Case{Ours: took(1), Plain: func() error { return broken }}, 1, time.Now); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

// BenchmarkVector reports medians of ours and of plain, and ours ÷ plain as ratio;
// the goal is at most 1.2.
func BenchmarkVector(b *testing.B) {
	cases, err := Cases(DefaultSeed)
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range cases {
		b.Run(c.Name(), func(b *testing.B) {
			r, err := Compare(c, b.N, time.Now)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(r.Ours), "ours-ns")
			b.ReportMetric(float64(r.Plain), "plain-ns")
			b.ReportMetric(r.Ratio(), "ratio")
			b.ReportMetric(0, "ns/op")
		})
	}
}
