package bench

import (
	"context"
	"time"
)

const (
	quietStep = 20 * time.Millisecond
	quietMost = 30 * time.Second
)

// cpuOf is the processor time that fn takes in this process, in seconds, with
// what it left to be done behind it: it waits until the process is still.
func cpuOf(ctx context.Context, fn func() error) (float64, error) {
	start, err := cpuSeconds()
	if err != nil {
		return 0, err
	}
	if err := fn(); err != nil {
		return 0, err
	}
	last, err := cpuSeconds()
	if err != nil {
		return 0, err
	}
	// Two quiet steps: a busy machine may give a thread none of one.
	for quiet, waited := 0, time.Duration(0); quiet < 2 && waited < quietMost; waited += quietStep {
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(quietStep):
		}
		now, err := cpuSeconds()
		if err != nil {
			return 0, err
		}
		if now-last < quietStep.Seconds()/10 {
			quiet++
		} else {
			quiet = 0
		}
		last = now
	}
	return last - start, nil
}
