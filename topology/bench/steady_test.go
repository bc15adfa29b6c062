package bench

import (
	"errors"
	"testing"
	"time"
)

// TestJudgeSteady: growth of memory or files beyond chance misses the goal; what
// comes in the first quarter, or is little, does not.
func TestJudgeSteady(t *testing.T) {
	run := func(rss, files func(i int) int64) []steadySample {
		var out []steadySample
		for i := range steadySamples {
			out = append(out, steadySample{at: time.Duration(i) * time.Second, nodeReport: nodeReport{RSS: rss(i), Files: files(i)}})
		}
		return out
	}
	flat := func(n int64) func(int) int64 { return func(int) int64 { return n } }
	for name, c := range map[string]struct {
		samples []steadySample
		missed  bool
	}{
		"flat":                {run(flat(300<<20), flat(20)), false},
		"filling caches":      {run(func(i int) int64 { return min(int64(i)*20, 400) << 20 }, flat(20)), false},
		"a little":            {run(func(i int) int64 { return 100<<20 + int64(i)<<17 }, func(i int) int64 { return int64(10 + i/30) }), false},
		"a leak":              {run(func(i int) int64 { return 300<<20 + int64(i)<<20 }, flat(20)), true},
		"files that pile up":  {run(flat(300<<20), func(i int) int64 { return int64(i) }), true},
		"a saw of compaction": {run(flat(300<<20), func(i int) int64 { return int64(10 + i%12) }), false},
	} {
		out, err := judgeSteady(c.samples, true)
		if errors.Is(err, ErrMissed) != c.missed || len(out) != 2 {
			t.Errorf("%s: %v, %+v", name, err, out)
		}
	}
}
