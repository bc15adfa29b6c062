package sim

import (
	"math/rand"
	"testing"
)

// TestSameRowsAnyway: the rows that a table ends with do not depend on how large
// buffers and batches are, how many partitions a source has, what is compacted,
// when a state is kept, or who crashes.
func TestSameRowsAnyway(t *testing.T) {
	const keys = 9
	for _, ordered := range []bool{false, true} {
		for script := range int64(2) {
			r := rand.New(rand.NewSource(script))
			var events []event
			for i := range 150 {
				events = append(events, event{
					key: r.Intn(keys), del: r.Intn(4) == 0, value: int64(i + 1), order: 1 + int64(r.Intn(12)), hasOrd: r.Intn(5) > 0,
				})
			}
			var first map[int]row
			for i, opt := range []Options{
				{Shards: 1, Steps: 400},
				{Shards: 1, Steps: 400, FlushEvery: 1},
				{Shards: 1, Steps: 50, FlushEvery: 1000},
				{Shards: 3, Steps: 600, FlushEvery: 3},
				{Shards: 2, Steps: 800, FlushEvery: 5, Crashes: true, TwoOwners: true, Twice: true},
				{Shards: 2, Steps: 800, Away: true, Crashes: true, Disks: true},
				{Shards: 1, Steps: 1000, FlushEvery: 4, Jobs: true},
				{Shards: 3, Steps: 1000, FlushEvery: 2, Jobs: true, Crashes: true, Partitioned: true},
				{Shards: 2, Steps: 1200, FlushEvery: 6, Jobs: true, Tree: true},
				{Shards: 2, Steps: 1200, FlushEvery: 4, Jobs: true, Tree: true, Crashes: true, Disks: true, Garbage: true},
				{Shards: 2, Steps: 1200, FlushEvery: 3, Jobs: true, Garbage: true, Disks: true, Crashes: true},
			} {
				opt.Seed, opt.Keys, opt.Ordered = 100*script+int64(i), keys, ordered
				w, err := NewWorld(opt)
				if err != nil {
					t.Fatal(err)
				}
				w.scripted, w.script = true, events
				if err := w.Run(); err != nil {
					t.Fatalf("script %d, ordered %t, %+v: %v", script, ordered, opt, err)
				}
				last := int64(-1)
				for build := range w.snapshots {
					last = max(last, build)
				}
				if last < 0 {
					t.Fatalf("script %d: no snapshot", script)
				}
				rows := w.snapshots[last].rows
				if err := w.Close(); err != nil {
					t.Fatal(err)
				}
				if first == nil {
					first = rows
				}
				if d := differ(first, rows); d != "equal" {
					t.Errorf("script %d, ordered %t, %+v: %s", script, ordered, opt, d)
				}
			}
			if len(first) == 0 {
				t.Errorf("script %d, ordered %t: no row is left", script, ordered)
			}
		}
	}
}
