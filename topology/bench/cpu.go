package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/pprof"
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

// startProfile writes a profile of this process to a file, where one is named,
// until it is told to stop.
func startProfile(path string) (stop func() error, err error) {
	if path == "" {
		return func() error { return nil }, nil
	}
	f, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("write the profile: %w", err)
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(fmt.Errorf("write the profile: %w", err), f.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return f.Close()
	}, nil
}

// profiled runs fn under startProfile.
func profiled(path string, fn func() error) error {
	stop, err := startProfile(path)
	if err != nil {
		return err
	}
	return errors.Join(fn(), stop())
}
