package topology

import (
	"testing"
	"time"

	"github.com/varve-io/varve/schemas/record"
)

// The inputs of a job that was given up are left alone, longer each time, and no longer
// than a day; those of one that was completed are not.
func TestFailedInputs(t *testing.T) {
	start := time.Unix(1_000_000, 0)
	bad, good := record.JobID{Plan: 7}, record.JobID{Plan: 7, Item: 1}
	f := failedInputs{now: start}
	for i, wait := range []time.Duration{time.Hour, 2 * time.Hour, 4 * time.Hour, 8 * time.Hour, 16 * time.Hour, 24 * time.Hour, 24 * time.Hour} {
		f.jobs = map[record.JobID][]uint64{bad: {1, 2}, good: {3}}
		f.over(bad, true)
		f.over(good, false)
		if len(f.jobs) != 0 {
			t.Fatalf("%d jobs are remembered that are over", len(f.jobs))
		}
		if f.now = f.now.Add(wait - time.Second); !f.leave(1) || !f.leave(2) || f.leave(3) {
			t.Fatalf("failure %d: %v before the time is up: %v %v %v", i+1, wait, f.leave(1), f.leave(2), f.leave(3))
		}
		if f.now = f.now.Add(time.Second); f.leave(1) {
			t.Fatalf("failure %d: left alone for more than %v", i+1, wait)
		}
	}
	f.jobs = map[record.JobID][]uint64{bad: {1}}
	if f.over(bad, false); len(f.files) != 1 {
		t.Fatalf("%d files are left alone, not the one", len(f.files))
	}
}
