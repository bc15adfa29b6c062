package statestore_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
)

func shardKey(p int32) record.ShardKey {
	return record.ShardKey{TopicID: [16]byte{9}, Topic: "t", Partition: p}
}

func ref(n byte) *record.Ref {
	return &record.Ref{Path: fmt.Sprintf("body-%d", n), Length: 1, Hash: record.Hash{n}}
}

// TestOneTable follows one table from genesis to a second snapshot.
func TestOneTable(t *testing.T) {
	l := newLog(t, t.TempDir())
	l.genesis()
	created := l.do("t", -1, &record.CreateTable{Definition: definition("t")})
	id := created.TableID
	if created.Outcome.Code != record.Accepted || id != 1 {
		t.Fatalf("create: %+v", created)
	}
	claim := l.do("t", id, &record.ClaimShard{Shard: shardKey(0), LogStart: 5})
	n := claim.Outcome.Numbers
	if claim.Outcome.Code != record.Accepted || n[record.ClaimSourceEnd] != 5 || n[record.ClaimRequestEnd] != 2 {
		t.Fatalf("claim: %+v", claim.Outcome)
	}
	writer := uint32(n[record.ClaimWriter])
	f1, f2 := statestore.FileID(writer, 1), statestore.FileID(writer, 2)
	a := record.AppendRows{
		Shard: shardKey(0), Epoch: 2, Counter: 1, SourceFrom: 5, SourceTo: 10, RequestFrom: 2, RequestTo: 2,
		Files: []record.DataFile{{ID: f1, Rows: 4, Bytes: 100}}, Changes: ref(1),
	}
	if out := l.do("t", id, &a); out.Outcome.Code != record.Accepted || !out.Outcome.Changed {
		t.Fatalf("append: %+v", out.Outcome)
	}
	// The first cut publishes the empty table.
	if out := l.do("t", id, &record.Cut{}); out.Outcome.Code != record.Accepted {
		t.Fatalf("cut: %+v", out.Outcome)
	}
	if o := l.commit(); len(o.Cuts) != 1 || len(o.Outcomes) != 5 {
		t.Fatalf("outbox: %d cuts, %d outcomes", len(o.Cuts), len(o.Outcomes))
	}
	fr, err := l.st.Frozen(id)
	if err != nil || fr == nil || len(fr.Files) != 0 || !fr.DefChanged {
		t.Fatalf("frozen: %+v %v", fr, err)
	}
	if out := l.do("t", id, &record.SnapshotCommitted{Cut: fr.Cut, Build: fr.Build, TimestampMs: l.timeMs, MetadataVersion: 1, MetadataPath: "v1"}); out.Outcome.Code != record.Accepted {
		t.Fatalf("first commit: %+v", out.Outcome)
	}
	a = record.AppendRows{
		Shard: shardKey(0), Epoch: 2, Counter: 2, SourceFrom: 10, SourceTo: 20, RequestFrom: 2, RequestTo: 2,
		Files: []record.DataFile{{ID: f2, Rows: 2, Bytes: 50}}, Changes: ref(2),
		Deletes: []record.DeleteBlock{{File: f1, Bitmap: positions(1, 3)}},
	}
	if out := l.do("t", id, &a); out.Outcome.Code != record.Accepted {
		t.Fatalf("append: %+v", out.Outcome)
	}
	cut := l.do("t", id, &record.Cut{})
	l.commit()
	fr, err = l.st.Frozen(id)
	if err != nil || len(fr.Files) != 2 {
		t.Fatalf("frozen: %+v %v", fr, err)
	}
	if g := fr.Files[0]; g.ID != f1 || !g.Added || !bytes.Equal(g.Dead, positions(1, 3)) || g.Epoch != 2 || g.Body != *ref(1) {
		t.Fatalf("frozen file: %+v", g)
	}
	done := record.SnapshotCommitted{
		Cut: cut.Offset, Build: cut.Offset, SnapshotID: 77, Sequence: 1, FirstRowID: 0, AddedRows: 6, TimestampMs: l.timeMs + 1,
		MetadataVersion: 2, MetadataPath: "v2",
		Manifests: []record.ManifestInfo{{Path: "m1"}, {Path: "m2", Content: 1}},
		Files:     []record.FileRowID{{File: f1, FirstRowID: 0}, {File: f2, FirstRowID: 4}},
		Vectors:   []record.VectorInfo{{File: f1, Offset: 4, Length: 40, Cardinality: 2, Manifest: 1}},
		Puffins:   []record.PuffinInfo{{Path: "p1", Bytes: 100}},
	}
	if out := l.do("t", id, &done); out.Outcome.Code != record.Accepted {
		t.Fatalf("commit: %+v", out.Outcome)
	}
	// A third delete covers the rest of f1: file and vector leave (V7), case 15.
	a = record.AppendRows{
		Shard: shardKey(0), Epoch: 2, Counter: 3, SourceFrom: 20, SourceTo: 21, RequestFrom: 2, RequestTo: 2,
		Deletes: []record.DeleteBlock{{File: f1, Bitmap: positions(0, 2)}, {File: f2, Bitmap: positions(1)}}, Changes: ref(3),
	}
	if out := l.do("t", id, &a); out.Outcome.Code != record.Accepted {
		t.Fatalf("append: %+v", out.Outcome)
	}
	l.do("t", id, &record.Cut{})
	l.commit()
	fr, err = l.st.Frozen(id)
	if err != nil || len(fr.Files) != 2 || !fr.Files[0].Removed || fr.Files[0].Vector == nil || fr.Files[0].Vector.Puffin != "p1" ||
		fr.Files[1].DeadCount != 1 || fr.Manifests[1] != "m1" || fr.Manifests[2] != "m2" {
		t.Fatalf("frozen: %+v %v", fr, err)
	}
	info, err := l.st.Table("t")
	if err != nil || info.Files != 1 || info.Rows != 2 || info.Dead != 1 {
		t.Fatalf("info: %+v %v", info, err)
	}
}
