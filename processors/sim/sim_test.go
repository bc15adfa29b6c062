package sim

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

var (
	seedFlag  = flag.Int64("seed", -1, "run this one seed and print its trace")
	seedsFlag = flag.Int("seeds", 20, "number of seeds of each shape")
	onFlag    = flag.Bool("on", false, "run every shape by one seed after the other, from -seed or 0 on, until one fails or somebody stops it")
)

// shapes are the worlds that every seed runs through.
var shapes = []struct {
	name string
	opt  Options
}{
	{"plain", Options{Shards: 1, Keys: 6, Steps: 300}},
	{"ordered", Options{Shards: 1, Keys: 5, Steps: 300, Ordered: true, Requests: true, Twice: true}},
	{"crashes", Options{Shards: 2, Keys: 8, Steps: 500, Ordered: true, Crashes: true, Requests: true, Twice: true, Operators: true}},
	{"two-owners", Options{Shards: 1, Keys: 5, Steps: 500, Ordered: true, Crashes: true, TwoOwners: true, Requests: true, Twice: true, FlushEvery: 3}},
	{"hashed", Options{Shards: 2, Keys: 8, Steps: 400, Strings: true, Crashes: true, TwoOwners: true, Requests: true, Columns: true}},
	{"bad-events", Options{Shards: 2, Keys: 6, Steps: 400, Crashes: true, BadEvents: true, Columns: true, Partitioned: true, Requests: true}},
	{"partial", Options{Shards: 1, Keys: 5, Steps: 500, Ordered: true, Partial: true, Requests: true, BadEvents: true, Partitioned: true}},
	{"partial-crashes", Options{Shards: 2, Keys: 8, Steps: 700, Strings: true, Partial: true, Crashes: true, TwoOwners: true, Requests: true, Jobs: true, Away: true, FlushEvery: 4}},
	{"tombstones", Options{Shards: 1, Keys: 6, Steps: 500, Ordered: true, Crashes: true, Requests: true, TTL: 300, Clock: true, TwoOwners: true}},
	{"away", Options{Shards: 2, Keys: 8, Steps: 500, Ordered: true, Requests: true, BadEvents: true, Columns: true, Away: true}},
	{"away-crashes", Options{Shards: 2, Keys: 8, Steps: 500, Ordered: true, Crashes: true, TwoOwners: true, Requests: true, Away: true, FlushEvery: 3}},
	{"disks", Options{Shards: 2, Keys: 8, Steps: 700, Ordered: true, Crashes: true, Disks: true, TwoOwners: true, Requests: true, Away: true}},
	{"jobs", Options{Shards: 2, Keys: 12, Steps: 1200, Ordered: true, Jobs: true, FlushEvery: 4}},
	{"jobs-crashes", Options{Shards: 2, Keys: 10, Steps: 1000, Ordered: true, Crashes: true, Requests: true, Jobs: true, TTL: 3000, FlushEvery: 3}},
	{"jobs-faults", Options{Shards: 2, Keys: 9, Steps: 1000, Strings: true, Crashes: true, Disks: true, TwoOwners: true, Requests: true, Jobs: true, Away: true, Columns: true, Partitioned: true, FlushEvery: 3}},
	{"imports", Options{Shards: 1, Keys: 6, Steps: 500, Imports: true}},
	{"imports-ordered", Options{Shards: 2, Keys: 7, Steps: 700, Ordered: true, Requests: true, Twice: true, Imports: true, TTL: 3000, FlushEvery: 4}},
	{"imports-requests", Options{Shards: 1, Keys: 5, Steps: 600, Ordered: true, Requests: true, Crashes: true, Jobs: true, Imports: true, FlushEvery: 4}},
	{"imports-jobs", Options{Shards: 2, Keys: 9, Steps: 1000, Requests: true, Jobs: true, Imports: true, FlushEvery: 4}},
	{"imports-many", Options{Shards: 2, Keys: 24, Steps: 3000, Ordered: true, Requests: true, Crashes: true, Jobs: true, Imports: true, FlushEvery: 8}},
	{"imports-crashes", Options{Shards: 2, Keys: 8, Steps: 1000, Ordered: true, Strings: true, Crashes: true, Disks: true, TwoOwners: true, Requests: true, Jobs: true, Imports: true, Away: true, Partitioned: true, FlushEvery: 3}},
	{"adopts", Options{Shards: 2, Keys: 8, Steps: 1000, Ordered: true, Strings: true, Crashes: true, Disks: true, TwoOwners: true, Requests: true, Jobs: true, Imports: true, Adopt: true, Away: true, Partitioned: true, FlushEvery: 3}},
	{"imports-append-only", Options{Shards: 1, Keys: 6, Steps: 400, NoKey: true, Jobs: true, Crashes: true, Imports: true}},
	{"garbage", Options{Shards: 2, Keys: 10, Steps: 1500, Ordered: true, Requests: true, Jobs: true, Garbage: true, FlushEvery: 3}},
	{"garbage-crashes", Options{Shards: 2, Keys: 9, Steps: 1500, Strings: true, Crashes: true, Disks: true, TwoOwners: true, Requests: true, Jobs: true, Garbage: true, Away: true, Partitioned: true, FlushEvery: 3}},
	{"garbage-append-only", Options{Shards: 1, Keys: 6, Steps: 600, NoKey: true, Jobs: true, Crashes: true, Garbage: true}},
	{"where", Options{Shards: 2, Keys: 14, Steps: 1500, Ordered: true, Requests: true, Jobs: true, Where: true, FlushEvery: 4}},
	{"where-faults", Options{Shards: 2, Keys: 12, Steps: 1500, Strings: true, Crashes: true, Disks: true, TwoOwners: true, Requests: true, Jobs: true, Where: true, Garbage: true, Away: true, Clock: true, Partitioned: true, FlushEvery: 3}},
	{"where-append-only", Options{Shards: 1, Keys: 6, Steps: 800, NoKey: true, Jobs: true, Where: true, Crashes: true, Garbage: true}},
	{"tree", Options{Shards: 2, Keys: 24, Steps: 3000, Ordered: true, Jobs: true, Tree: true, FlushEvery: 8}},
	{"tree-crashes", Options{Shards: 2, Keys: 24, Steps: 3000, Ordered: true, Crashes: true, TwoOwners: true, Requests: true, Jobs: true, Tree: true, TTL: 3000, FlushEvery: 4}},
	{"tree-faults", Options{Shards: 2, Keys: 24, Steps: 3000, Strings: true, Crashes: true, Disks: true, TwoOwners: true, Requests: true, Jobs: true, Tree: true, Where: true, Away: true, Columns: true, Partitioned: true, FlushEvery: 4}},
	{"tree-imports", Options{Shards: 2, Keys: 9, Steps: 1000, Ordered: true, Requests: true, Jobs: true, Tree: true, Imports: true, FlushEvery: 4}},
	{"tree-garbage", Options{Shards: 2, Keys: 24, Steps: 3000, Crashes: true, Requests: true, Jobs: true, Tree: true, Where: true, Garbage: true, FlushEvery: 8}},
	{"tree-time", Options{Shards: 2, Keys: 9, Steps: 1200, Strings: true, Crashes: true, TwoOwners: true, Jobs: true, Tree: true, Time: true, FlushEvery: 8}},
	{"time", Options{Shards: 1, Keys: 6, Steps: 700, Ordered: true, Time: true, FlushEvery: 4}},
	{"time-crashes", Options{Shards: 2, Keys: 8, Steps: 900, Ordered: true, Crashes: true, TwoOwners: true, Away: true, Time: true, FlushEvery: 3}},
	{"time-jobs", Options{Shards: 2, Keys: 9, Steps: 1200, Strings: true, Crashes: true, TwoOwners: true, Jobs: true, Partitioned: true, Time: true, FlushEvery: 3}},
	{"time-many", Options{Shards: 2, Keys: 24, Steps: 3000, Strings: true, Crashes: true, TwoOwners: true, Jobs: true, Partitioned: true, Time: true, FlushEvery: 3}},
	{"time-garbage", Options{Shards: 2, Keys: 9, Steps: 1500, Crashes: true, TwoOwners: true, Jobs: true, Time: true, Garbage: true, FlushEvery: 3}},
	{"time-where", Options{Shards: 2, Keys: 12, Steps: 1500, Crashes: true, Jobs: true, Time: true, Where: true, FlushEvery: 4}},
	{"time-ordered", Options{Shards: 1, Keys: 7, Steps: 1200, Ordered: true, Requests: true, Crashes: true, TwoOwners: true, Jobs: true, Time: true, Undo: true, FlushEvery: 3}},
	{"time-strikes", Options{Shards: 2, Keys: 12, Steps: 1500, Ordered: true, Crashes: true, Jobs: true, Time: true, Undo: true, FlushEvery: 4}},
	{"where-imports", Options{Shards: 1, Keys: 7, Steps: 1200, Ordered: true, Crashes: true, TwoOwners: true, Requests: true, Jobs: true, Where: true, Imports: true, FlushEvery: 4}},
	{"specs", Options{Shards: 2, Keys: 9, Steps: 1200, Jobs: true, Respec: true, Time: true, FlushEvery: 4}},
	{"specs-faults", Options{Shards: 2, Keys: 9, Steps: 1200, Ordered: true, Strings: true, Crashes: true, Disks: true, TwoOwners: true, Away: true, Columns: true, Requests: true, Jobs: true, Imports: true, Partitioned: true, Respec: true, FlushEvery: 3}},
	{"foreign", Options{Shards: 1, Keys: 16, Steps: 1200, Ordered: true, Requests: true, Jobs: true, Foreign: true, FlushEvery: 4}},
	{"foreign-crashes", Options{Shards: 2, Keys: 16, Steps: 1200, Ordered: true, Crashes: true, TwoOwners: true, Away: true, Jobs: true, Foreign: true, FlushEvery: 3}},
	{"foreign-faults", Options{Shards: 2, Keys: 16, Steps: 1200, Strings: true, Crashes: true, Disks: true, TwoOwners: true, Requests: true, Away: true, Jobs: true, Foreign: true, FlushEvery: 3}},
	{"foreign-jobs", Options{Shards: 1, Keys: 12, Steps: 700, Ordered: true, Requests: true, Jobs: true, Settled: true, Foreign: true, FlushEvery: 3}},
	{"foreign-jobs-crashes", Options{Shards: 2, Keys: 12, Steps: 1000, Ordered: true, Strings: true, Crashes: true, Disks: true, TwoOwners: true, Away: true, Jobs: true, Settled: true, Foreign: true, FlushEvery: 3}},
	{"adopts-jobs", Options{Shards: 2, Keys: 8, Steps: 700, Ordered: true, Crashes: true, Jobs: true, Settled: true, Garbage: true, Imports: true, Adopt: true, FlushEvery: 3}},
	{"foreign-requests", Options{Shards: 2, Keys: 16, Steps: 1000, Ordered: true, Requests: true, Jobs: true, Foreign: true, Partitioned: true, FlushEvery: 3}},
	{"foreign-where", Options{Shards: 1, Keys: 16, Steps: 1000, Ordered: true, Jobs: true, Foreign: true, Where: true, FlushEvery: 4}},
	{"foreign-garbage", Options{Shards: 2, Keys: 16, Steps: 1000, Crashes: true, TwoOwners: true, Requests: true, Jobs: true, Foreign: true, Where: true, Garbage: true, FlushEvery: 3}},
	{"where-imports-shards", Options{Shards: 2, Keys: 9, Steps: 1000, Ordered: true, Crashes: true, Requests: true, Jobs: true, Where: true, Imports: true, FlushEvery: 4}},
	{"append-only", Options{Shards: 2, Keys: 6, Steps: 300, NoKey: true, Jobs: true, Crashes: true, TwoOwners: true, BadEvents: true, Columns: true, Twice: true}},
}

// wanted is what must have happened in some seed: a simulation that never
// comes to something proves nothing about it.
var wanted = []string{
	"accepted AppendRows", "accepted DeleteKeys", "accepted ShardIndex", "accepted AlterTable", "accepted SkipSource", "accepted RetireShard",
	"accepted SnapshotCommitted", "accepted SnapshotFailed", "already AppendRows", "rejected AppendRows: epoch closed",
	"rejected AppendRows: source range", "rejected ClaimShard: too old", "rejected SnapshotCommitted: no cut pending",
	"publish failed", "row id kept", "tombstone forgotten", "tombstone kept for a request", "gap", "malformed", "keyless", "keyless delete", "retired",
	"carried over", "carried over in a buffer", "nothing to carry over", "a request ends what would be carried over",
	"state lost", "state went back", "network failed", "store away", "outcome unsent", "letter unsent",
	"checkpoint shared", "state restored", "index wiped",
	"accepted PlanJobs", "accepted CompleteJob", "accepted ReleaseJob", "rejected CompleteJob: no job", "rejected PlanJobs: no file",
	"rejected PlanJobs: file taken", "rejected PlanJobs: not published", "accepted DeletePositions", "row struck", "struck after a job", "map inline", "map an object",
	"accepted CollectFiles", "accepted FilesCollected", "rejected CollectFiles: no file", "garbage of kind 1", "garbage of kind 2", "garbage of kind 3",
	"accepted DeleteWhere", "accepted RowsFound", "rejected RowsFound: no job", "rejected RowsFound: wrong attempt", "row found", "row found while held", "find job done", "find job given up",
	"accepted Rollback", "rejected Rollback: cut pending", "rejected Rollback: no change", "rows undone", "index made of a rollback",
	"accepted AlterRefs", "accepted ExpireSnapshots", "rejected ExpireSnapshots: snapshot held", "snapshot expired by hand",
	"retained snapshot read again", "rejected DeletePositions: no base", "deletion failed",
	"accepted AddFiles", "row taken", "added row loses", "added row replaces", "struck while held", "files released", "added row ended by another shard",
	"accepted SplitPartition", "accepted ExtendTree", "rejected PlanJobs: not a leaf", "rejected SplitPartition: file taken", "struck beside what moved", "part of a file moved",
	"tombstone kept for added files", "accepted AlterSpec", "accepted AdoptFiles", "remembered by a dead row", "forgotten with a compaction",
	"accepted ForeignSnapshot", "rejected ForeignSnapshot: head moved", "rejected ForeignSnapshot: too old", "row of another writer taken",
	"row left", "row ended by another writer's vector", "owed by its key", "owed by its row id", "another writer's conflict", "rows of a key in one commit",
	"row of another writer deleted by a request before it came", "catalog answer lost",
	"file of another writer compacted", "unsorted output compacted",
	"another writer's equality deletes", "another writer's position deletes",
}

func TestSeeds(t *testing.T) {
	if *onFlag {
		goOn(t)
		return
	}
	seeds := *seedsFlag
	if testing.Short() {
		seeds = min(seeds, 6) // under the race detector a seed takes ten times as long
	}
	var mu sync.Mutex
	saw, ran := map[string]int{}, 0 // shapes that -run left in
	var stop atomic.Bool            // one failure is enough to look at
	t.Cleanup(func() {
		if t.Failed() || *seedFlag >= 0 || seeds < 20 || ran < len(shapes) {
			return
		}
		for _, what := range wanted {
			if saw[what] == 0 {
				t.Errorf("never seen in any seed: %s", what)
			}
		}
		if testing.Verbose() {
			for _, what := range slices.Sorted(maps.Keys(saw)) {
				t.Logf("%7d %s", saw[what], what)
			}
		}
	})
	for _, s := range shapes {
		t.Run(s.name, func(t *testing.T) {
			ran++
			t.Parallel()
			from, to := int64(0), int64(seeds)
			if *seedFlag >= 0 {
				from, to = *seedFlag, *seedFlag+1
			}
			for seed := from; seed < to && !stop.Load(); seed++ {
				opt := s.opt
				opt.Seed = seed
				if *seedFlag >= 0 {
					opt.Trace = os.Stderr
				}
				w, err := runSeed(opt)
				if err != nil {
					stop.Store(true)
					t.Fatalf("seed %d: %v\nrepeat: go test ./processors/sim -run 'TestSeeds/%s$' -seed %d", seed, err, s.name, seed)
				}
				mu.Lock()
				for what, n := range w.saw {
					saw[what] += n
				}
				mu.Unlock()
			}
		})
	}
}

// goOn takes seeds until one fails, as many at once as there are processors:
//
//	go test ./processors/sim -run TestSeeds -timeout 0 -on
func goOn(t *testing.T) {
	var next atomic.Int64
	next.Store(max(*seedFlag, 0))
	var failed atomic.Bool
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for !failed.Load() {
				seed := next.Add(1) - 1
				for _, s := range shapes {
					opt := s.opt
					opt.Seed = seed
					if _, err := runSeed(opt); err != nil {
						failed.Store(true)
						t.Errorf("seed %d: %v\nrepeat: go test ./processors/sim -run 'TestSeeds/%s$' -seed %d", seed, err, s.name, seed)
					}
				}
				if seed%10 == 9 {
					fmt.Fprintf(os.Stderr, "seed %d: %d shapes right\n", seed, len(shapes))
				}
			}
		})
	}
	workers.Wait()
}

func runSeed(opt Options) (*World, error) {
	w, err := NewWorld(opt)
	if err != nil {
		return nil, err
	}
	defer func() {
		if r := recover(); r != nil {
			panic(fmt.Sprintf("seed %d: %v", opt.Seed, r))
		}
	}()
	if err := w.Run(); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, w.Close()
}

// TestSameSeedSameWorld: a failing seed is of use only when it fails again.
func TestSameSeedSameWorld(t *testing.T) {
	seeds := int64(2)
	if testing.Short() {
		seeds = 1
	}
	for _, s := range shapes {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			for seed := range seeds {
				var first string
				for range 2 {
					opt := s.opt
					opt.Seed = seed
					w, err := runSeed(opt)
					if err != nil {
						t.Fatalf("seed %d: %v", seed, err)
					}
					var story strings.Builder
					for i := range w.decided {
						o := &w.decided[i].Outcome
						fmt.Fprintln(&story, o.Offset, o.TimeMs, o.Type, o.Outcome.Code, o.Outcome.Reason)
					}
					if first == "" {
						first = story.String()
					} else if first != story.String() {
						t.Fatalf("seed %d went two ways", seed)
					}
				}
			}
		})
	}
}
