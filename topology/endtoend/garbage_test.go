package endtoend

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/varve-io/varve/processors"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore/objstore"
	"github.com/varve-io/varve/topology"
	"github.com/varve-io/varve/topology/readers"
)

// folder is what lies in a table's folder, by path below it, but for its metadata
// files, of which the last hundred stay.
func folder(t *testing.T, dir string) (files map[string]int64, bytes int64) {
	t.Helper()
	files = map[string]int64{}
	if err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil || strings.HasSuffix(path, ".metadata.json") {
			return nil // deleted meanwhile, or not looked at
		}
		rel, err := filepath.Rel(dir, path)
		files[rel], bytes = info.Size(), bytes+info.Size()
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return files, bytes
}

// TestGarbage: events come in while jobs rewrite files and snapshots expire, and
// what nothing reaches is deleted at once. Every snapshot that is retained can be
// read all the while and holds what it held, the folder does not grow with the log,
// and neither verify nor a replay takes what was collected for damage (G2, G6–G8).
func TestGarbage(t *testing.T) {
	onBackends(t, func(t *testing.T, b backend) {
		ctx := longContext(t)
		w := orders("shop.orders", 60, 1500)
		w.def.RetentionCount, w.def.RetentionMs = 8, 1
		o := topology.NodeOptions{
			Data: dataDir(t), Brokers: b.brokers, Deployment: "garbage", Partitions: 1, Roles: topology.Roles(), Jobs: quickJobs,
			Garbage:     topology.GarbageOptions{Grace: -1, Every: 200 * time.Millisecond, SweepEvery: 2 * time.Second},
			Checkpoints: topology.CheckpointOptions{IndexAppends: 5, IndexEvery: 300 * time.Millisecond},
		}
		n := start(t, o)
		if err := prepare(ctx, n, w); err != nil {
			t.Fatal(err)
		}
		f := newFeed(w, seed(t))
		seen := map[int64][]string{} // rows by snapshot
		var first []string
		var sizes []int64
		read := func(metadata string, snapshot int64) []string {
			got, err := readers.Read(ctx, readers.IcebergGo, metadata, readers.Options{Snapshot: snapshot})
			if err != nil {
				t.Fatal(err)
			}
			return got.Sorted()
		}
		again := 0
		rounds := count(t, "VARVE_GARBAGE_ROUNDS", 15, 24)
		dir := ""
		for i := range rounds {
			if _, err := n.Produce(ctx, w.def.SourceTopic, w.partitions, f.take(60), nil); err != nil {
				t.Fatal(err)
			}
			if err := n.WaitLoaded(ctx, w.def.Name, nil); err != nil {
				t.Fatal(err)
			}
			info, err := n.Table(ctx, w.def.Name)
			if err != nil {
				t.Fatal(err)
			}
			if dir == "" {
				key, _ := n.Store().Key(info.Definition.Location)
				dir = filepath.Join(o.Data, "lake", filepath.FromSlash(key))
				files, _ := folder(t, dir)
				for name := range files {
					if filepath.Ext(name) == ".parquet" {
						first = append(first, name)
					}
				}
			}
			seen[info.Head.SnapshotID] = read(info.Head.MetadataPath, info.Head.SnapshotID)
			// Of the retained ones not the oldest: they may expire while they are read.
			for k := len(info.Snapshots) - 3; k < len(info.Snapshots) && i%3 == 0; k++ {
				if k < 0 || seen[info.Snapshots[k].ID] == nil {
					continue
				}
				diff(t, fmt.Sprintf("snapshot %d, once more", info.Snapshots[k].ID), read(info.Head.MetadataPath, info.Snapshots[k].ID), seen[info.Snapshots[k].ID])
				again++
			}
			_, size := folder(t, dir)
			sizes = append(sizes, size)
		}
		jobsOver(ctx, t, n, w.def.Name)
		published(ctx, t, n, w.def.Name)
		h := readHistory(ctx, t, n, w.def.Name)
		if len(h.commits) < rounds {
			t.Errorf("%d commits in %d rounds", len(h.commits), rounds)
		}
		all, m := *h, f.model()
		all.commits = nil // of most of them, files are gone
		all.check(ctx, t, m, f.key)
		if err := covered(f, h); err != nil {
			t.Fatal(err)
		}
		newest, err := readers.Read(ctx, readers.IcebergGo, h.commits[len(h.commits)-1].MetadataPath, readers.Options{})
		if err != nil {
			t.Fatal(err)
		}
		compare(t, "the last snapshot", newest, m, f.key)
		stop(t, n)

		// What is left, once nothing happens any more.
		o.Jobs.PlanEvery = time.Hour
		n = start(t, o)
		if err := prepare(ctx, n, w); err != nil {
			t.Fatal(err)
		}
		jobsOver(ctx, t, n, w.def.Name) // what was planned before the stop
		published(ctx, t, n, w.def.Name)
		collected(ctx, t, n, w.def.Name)
		info, err := n.Table(ctx, w.def.Name)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range info.Snapshots {
			rows := read(info.Head.MetadataPath, s.ID)
			if want := seen[s.ID]; want != nil {
				diff(t, fmt.Sprintf("the retained snapshot %d", s.ID), rows, want)
				again++
			}
		}
		var files map[string]int64
		var size int64
		var kept int
		// What an attempt left behind that the stop ended is found by the next sweep.
		for end := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) {
			files, size = folder(t, dir)
			data := 0
			for name := range files {
				if filepath.Ext(name) == ".parquet" {
					data++
				}
			}
			kept = 0
			waits := ""
			if err := n.Garbage(ctx, w.def.Name, func(g *topology.Garbage) error {
				if g.State != "kept" {
					waits = fmt.Sprintf("%s is %s: %s", g.Object, g.State, g.Why)
				}
				if kept++; g.Kind == "data" {
					data--
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if int64(data) == info.Files && waits == "" {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("the folder has %d data files that no older snapshot keeps, the state %d; %s", data, info.Files, waits)
			}
		}
		for _, name := range first {
			if _, ok := files[name]; ok {
				t.Errorf("%s, of the first snapshot, is still there", name)
			}
		}
		c := countCollected(ctx, t, n, w.def.Name)
		half := slices.Max(sizes[:len(sizes)/2])
		t.Logf("%d objects collected in %d records; %d files, %d bytes are left, %d of them kept; sizes %v; %d snapshots read again", c.objects, c.records, len(files), size, kept, sizes, again)
		if c.objects < rounds || c.done == 0 || again < 3 {
			t.Errorf("too little was collected, or read again: %+v, %d", c, again)
		}
		if last := sizes[len(sizes)-1]; last > half+half/2 {
			t.Errorf("the folder grows: %d bytes after all rounds, at most %d in the first half", last, half)
		}
		v, err := topology.Verify(ctx, topology.VerifyOptions{
			Brokers: n.Brokers(), Data: o.Data, Deployment: o.Deployment, Store: n.Store(), Scratch: t.TempDir(), Deep: true, Full: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range v.Findings {
			t.Errorf("verify: %s: %s", x.Check, x.What)
		}
		// All metadata is made once more; what was collected is not there to compare.
		r, err := topology.Replay(ctx, topology.ReplayOptions{
			Brokers: n.Brokers(), Deployment: o.Deployment, State: filepath.Join(t.TempDir(), "replayed"),
			Store: objstore.NewMem(objstore.WithLocation(n.Store().Location(""))), Bodies: n.Store(), Compare: n.Store(),
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("replay: %d objects are the same, %d are gone", r.Compared, r.Gone)
		if r.Compared == 0 || r.Gone == 0 {
			t.Errorf("replay: %+v", r)
		}
		stop(t, n)
	})
}

// collected waits until nothing can be collected and nothing waits to be deleted.
func collected(ctx context.Context, t *testing.T, n *topology.Node, table string) {
	t.Helper()
	for end, quiet := time.Now().Add(5*time.Minute), 0; quiet < 5; time.Sleep(200 * time.Millisecond) {
		open := 0
		var why string
		if err := n.Garbage(ctx, table, func(g *topology.Garbage) error {
			// An index checkpoint comes with time.
			if g.State != "kept" || g.Kind == "data" && !slices.Contains([]string{"", "snapshot"}, firstWord(g.Why)) {
				open, why = open+1, g.Why
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if quiet++; open > 0 {
			quiet = 0
		}
		if time.Now().After(end) {
			t.Fatalf("%d objects wait after five minutes: %s", open, why)
		}
	}
}

func firstWord(s string) string {
	for i := range s {
		if s[i] == ' ' {
			return s[:i]
		}
	}
	return s
}

type collectCounts struct{ records, objects, done int }

func countCollected(ctx context.Context, t *testing.T, n *topology.Node, table string) (c collectCounts) {
	t.Helper()
	if err := n.Transactions(ctx, table, 0, func(d *processors.Decided) error {
		o := &d.Outcome
		if o.Table != table || o.Derived || o.Outcome.Code == record.Rejected {
			return nil
		}
		switch o.Type {
		case record.TypeCollectFiles:
			c.records++
			c.objects += int(o.Outcome.Numbers[0])
		case record.TypeFilesCollected:
			c.done++
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return c
}
