package publisher_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/varve-io/varve/schemas/iceberg"
	"github.com/varve-io/varve/statestore/objstore"
)

// TestManyCommits: a table with hundreds of commits stays small (M3, S6), and
// the metadata files that fell out of the log go after the grace time.
func TestManyCommits(t *testing.T) {
	store := objstore.NewMem()
	clock := time.UnixMilli(1_700_000_000_000)
	store.SetClock(func() time.Time { return clock })
	def := definition(byDay(0), byDay(1))
	def.RetentionCount = 20
	w := newWorld(t, store, def)
	rng := rand.New(rand.NewPCG(9, 6))
	w.cut()
	const commits = 330
	merges, most := 0, 0
	for i := range commits {
		clock = clock.Add(time.Second)
		tuple := func() []byte { return []byte{1, 4, 0, 0, 0, byte(rng.IntN(3)), 0, 0, 0} }
		files := []newFile{{rows: 20, spec: 0, partition: tuple()}, {rows: 20, spec: 1, partition: tuple()}}
		kills := map[uint64][]uint32{}
		if ids := sortedIDs(w.files); i%3 > 0 {
			// Mostly young files, so that old vectors are cold.
			for range 2 {
				id := ids[len(ids)-1-rng.IntN(min(len(ids), 8))]
				kills[id] = w.alive(rng, id, 1+rng.IntN(30))
			}
		}
		w.append(files, kills)
		r := w.cut().Committed
		for _, m := range r.Manifests {
			if len(m.Replaces) > 50 {
				merges++
			}
		}
		s, l := w.current()
		counts := map[string]int{}
		for _, line := range l.lines {
			key := fmt.Sprint(line.SpecID, line.Content)
			counts[key]++
			most = max(most, counts[key])
			if counts[key] > 101 {
				t.Fatalf("M3: commit %d: %v manifests", i, counts)
			}
		}
		if len(w.read(s.ManifestList)) > 64<<10 {
			t.Fatalf("the list has %d bytes", len(w.read(s.ManifestList)))
		}
		if i%50 == 49 || i == commits-1 {
			w.check()
		}
	}
	if merges < 4 || most < 90 {
		t.Fatalf("%d merges, at most %d manifests of a kind: the test does not reach M3", merges, most)
	}
	m, text, n := w.metadata()
	if len(m.Snapshots) != 20 || len(m.SnapshotLog) != 20 || len(m.MetadataLog) != iceberg.MetadataLogLimit || len(text) > 100<<10 {
		t.Fatalf("S6: %d snapshots, logs of %d and %d, %d bytes", len(m.Snapshots), len(m.SnapshotLog), len(m.MetadataLog), len(text))
	}

	versions := func() int {
		count := 0
		for key := range objects(t, store, tableKey+"/metadata/v") {
			if strings.HasSuffix(key, ".metadata.json") {
				count++
			}
		}
		return count
	}
	collect := func(now time.Time) int {
		t.Helper()
		deleted, err := w.pub.CollectMetadata(ctx, now)
		if err != nil {
			t.Fatal(err)
		}
		return deleted
	}
	if got := collect(clock.Add(30 * time.Minute)); got != 0 || versions() != n {
		t.Fatalf("%d deleted before the grace time", got)
	}
	// An hour and a bit after version 102 was made, version 1 has been out of the log for an hour.
	// 51 seconds later so were those up to 52.
	madeAt := func(version int) time.Time {
		return time.UnixMilli(1_700_000_000_000).Add(time.Duration(version-1) * time.Second)
	}
	if got := collect(madeAt(102).Add(time.Hour)); got != 0 {
		t.Fatalf("%d deleted too early", got)
	}
	if got := collect(madeAt(102).Add(time.Hour + time.Millisecond)); got != 1 {
		t.Fatalf("%d deleted, want 1", got)
	}
	if got := collect(madeAt(153).Add(time.Hour + time.Millisecond)); got != 51 {
		t.Fatalf("%d deleted, want 51", got)
	}
	if collect(clock.Add(100 * time.Hour)); versions() != iceberg.MetadataLogLimit+1 {
		t.Fatalf("%d versions are left, want the newest and its log", versions())
	}
	for _, e := range m.MetadataLog {
		w.read(e.File)
	}
	w.append([]newFile{{rows: 1, partition: []byte{0}}}, nil)
	w.cut()
	w.check()
}
