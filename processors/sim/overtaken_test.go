package sim

import "testing"

// K4, G7: an owner that does not know of its shard's newest checkpoint folds the log
// from below its horizon, and an added file without a live row was collected since:
// what its keys remembered is in the checkpoint alone, so the owner begins again.
// (It would take late events for those keys.) Schedules hardly ever meet that.
func TestOvertakenAtTheClaim(t *testing.T) {
	w, err := runSeed(Options{
		Shards: 2, Keys: 8, Steps: 700, Ordered: true, Crashes: true, Jobs: true, Settled: true, Garbage: true, Imports: true, Adopt: true, FlushEvery: 3, Seed: 105,
	})
	if err != nil {
		t.Fatal(err)
	}
	if w.saw["overtaken at the claim"] == 0 {
		t.Error("no owner was overtaken: take another seed, of those that fail where a missing file without live rows is folded for nothing")
	}
}
