package vectorbench

import (
	"slices"
	"time"
)

// Result is one comparison: medians of one call each.
type Result struct {
	Ours, Plain time.Duration
}

// Ratio is ours ÷ plain: below 1 ours is faster.
func (r Result) Ratio() float64 { return float64(r.Ours) / float64(r.Plain) }

// Compare times c for rounds rounds with the caller's clock. Both sides run in every
// round and take turns in running first, so that a busy machine, a warm cache and a
// trained branch predictor favour neither; the medians leave interruptions out.
func Compare(c Case, rounds int, now func() time.Time) (Result, error) {
	ours, plain := make([]time.Duration, 0, rounds), make([]time.Duration, 0, rounds)
	timed := func(f func() error, into *[]time.Duration) error {
		start := now()
		err := f()
		*into = append(*into, now().Sub(start))
		return err
	}
	for i := range max(rounds, 1) {
		first, second := func() error { return timed(c.Ours, &ours) }, func() error { return timed(c.Plain, &plain) }
		if i%2 == 1 {
			first, second = second, first
		}
		if err := first(); err != nil {
			return Result{}, err
		}
		if err := second(); err != nil {
			return Result{}, err
		}
	}
	return Result{median(ours), median(plain)}, nil
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}
