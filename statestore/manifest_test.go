package statestore_test

import (
	"fmt"
	"testing"

	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
)

// TestManifestNumbers: a file's manifest is found however often its entries
// moved, and what took the place of others is one live manifest, not two.
func TestManifestNumbers(t *testing.T) {
	l := newLog(t, t.TempDir())
	l.genesis()
	id := l.do("t", -1, &record.CreateTable{Definition: definition("t")}).TableID
	claim := l.do("t", id, &record.ClaimShard{Shard: shardKey(0), LogStart: 0}).Outcome.Numbers
	writer := uint32(claim[record.ClaimWriter])
	l.do("t", id, &record.Cut{})
	l.commit()
	fr, err := l.st.Frozen(id)
	if err != nil {
		t.Fatal(err)
	}
	l.do("t", id, &record.SnapshotCommitted{Cut: fr.Cut, Build: fr.Build, TimestampMs: l.timeMs, MetadataVersion: 1, MetadataPath: "v1"})

	first := statestore.FileID(writer, 1)
	round := int64(0)
	// step adds a file, kills one row of the first file and returns the cut.
	step := func() *statestore.FrozenCut {
		t.Helper()
		round++
		a := record.AppendRows{
			Shard: shardKey(0), Epoch: 2, Counter: round, SourceFrom: round - 1, SourceTo: round, RequestFrom: 2, RequestTo: 2,
			Files: []record.DataFile{{ID: statestore.FileID(writer, uint64(round)), Rows: 100, Bytes: 100}}, Changes: ref(1),
		}
		if round > 1 {
			a.Deletes = []record.DeleteBlock{{File: first, Bitmap: positions(uint32(round))}}
		}
		if out := l.do("t", id, &a); out.Outcome.Code != record.Accepted {
			t.Fatalf("append: %+v", out.Outcome)
		}
		l.do("t", id, &record.Cut{})
		l.commit()
		fr, err := l.st.Frozen(id)
		if err != nil {
			t.Fatal(err)
		}
		return fr
	}
	commit := func(fr *statestore.FrozenCut, manifests ...record.ManifestInfo) record.OutcomeMessage {
		t.Helper()
		c := record.SnapshotCommitted{
			Cut: fr.Cut, Build: fr.Build, Parent: fr.Head.SnapshotID, SnapshotID: round, Sequence: round,
			FirstRowID: fr.Head.NextRowID, AddedRows: 100, TimestampMs: l.timeMs, MetadataVersion: round + 1, MetadataPath: "v",
			Manifests: manifests, Puffins: []record.PuffinInfo{{Path: "p"}},
		}
		for _, f := range fr.Files {
			if f.Added {
				c.Files = append(c.Files, record.FileRowID{File: f.ID, FirstRowID: c.FirstRowID, Manifest: 0})
			}
			if f.Dead != nil {
				c.Vectors = append(c.Vectors, record.VectorInfo{File: f.ID, Cardinality: f.DeadCount, Manifest: 1})
			}
		}
		return l.do("t", id, &c)
	}
	accepted := func(out record.OutcomeMessage) {
		t.Helper()
		if out.Outcome.Code != record.Accepted {
			t.Fatalf("commit: %+v", out.Outcome)
		}
	}

	accepted(commit(step(), record.ManifestInfo{Path: "d1"}))
	fr = step()
	if len(fr.Manifests) != 1 || fr.Manifests[1] != "d1" || fr.Files[0].Manifest != 1 {
		t.Fatalf("after one: %+v", fr)
	}
	accepted(commit(fr, record.ManifestInfo{Path: "d2"}, record.ManifestInfo{Path: "v2", Content: 1}))
	// Each commit replaces the manifest of the first file, the last vectors and the last data manifest.
	for i := 3; i <= 50; i++ {
		fr = step()
		if fr.Files[0].ID != first || fr.Files[0].Manifest != 1 || fr.Files[0].Vector == nil || fr.Manifests[fr.Files[0].Vector.Manifest] != fmt.Sprintf("v%d", i-1) {
			t.Fatalf("round %d: %+v", i, fr.Files[0])
		}
		var data []int64
		for n, path := range fr.Manifests {
			if path[0] == 'd' {
				data = append(data, n)
			}
		}
		if len(fr.Manifests) != 2 && i > 3 || len(data) > 2 {
			t.Fatalf("round %d: %d live manifests", i, len(fr.Manifests))
		}
		accepted(commit(fr, record.ManifestInfo{Path: fmt.Sprintf("d%d", i), Replaces: data},
			record.ManifestInfo{Path: fmt.Sprintf("v%d", i), Content: 1, Replaces: []int64{fr.Files[0].Vector.Manifest}}))
	}
	fr = step()
	var vectors int64
	for n, path := range fr.Manifests {
		if path == "v50" {
			vectors = n
		}
	}
	if len(fr.Manifests) != 2 || fr.Manifests[1] != "d50" || vectors == 0 || fr.Files[0].Vector.Manifest != vectors {
		t.Fatalf("live manifests: %v", fr.Manifests)
	}
	// A manifest is replaced once, by one, and only while it is live.
	for _, m := range [][2][]int64{{{1, 1}, nil}, {{1}, {1}}, {{2}, nil}, {{99}, nil}, {{0}, nil}} {
		out := commit(fr, record.ManifestInfo{Path: "x", Replaces: m[0]}, record.ManifestInfo{Path: "y", Content: 1, Replaces: m[1]})
		if out.Outcome.Reason != record.BadCommit {
			t.Fatalf("replacing %v: %+v", m, out.Outcome)
		}
	}
	accepted(commit(fr, record.ManifestInfo{Path: "d"}, record.ManifestInfo{Path: "e", Content: 1, Replaces: []int64{vectors}}))
}
