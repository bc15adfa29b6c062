package publisher_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"slices"
	"testing"

	"github.com/varve-io/varve/schemas/iceberg"
	"github.com/varve-io/varve/statestore/objstore"
)

// TestRetention: the commit itself removes what the cut says is too old (S6,
// G2). A snapshot that a tag holds stays, and so does what other writers put
// into the metadata (S11).
func TestRetention(t *testing.T) {
	def := definition()
	def.RetentionCount, def.RetentionMs = 2, 2500
	s := objstore.NewMem()
	w := newWorld(t, s, def)
	w.cut()
	var ids []int64
	for range 4 {
		w.append([]newFile{{rows: 3}}, nil)
		ids = append(ids, w.cut().Committed.SnapshotID)
	}
	// Both limits: the third newest goes only when it is older than 2.5 s.
	m, _, n := w.metadata()
	kept := func(m *iceberg.Metadata) (out []int64) {
		for i := range m.Snapshots {
			out = append(out, m.Snapshots[i].ID)
		}
		return out
	}
	if !slices.Equal(kept(m), ids[1:]) {
		t.Fatalf("snapshots %v of %v", kept(m), ids)
	}
	w.check()

	w.timeMs += 10_000
	w.append([]newFile{{rows: 3}}, nil)
	f := w.freeze()
	if !slices.Equal(f.Expire, ids[1:3]) {
		t.Fatalf("the cut expires %v, want %v", f.Expire, ids[1:3])
	}
	if err := m.SetRef("audit", "tag", ids[1]); err != nil {
		t.Fatal(err)
	}
	m.Extra = append(m.Extra, iceberg.Member{Key: "note", Value: []byte(`{"by":"others"}`)})
	text, err := m.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Replace(ctx, fmt.Sprintf("%s/metadata/v%d.metadata.json", tableKey, n), text); err != nil {
		t.Fatal(err)
	}
	f.Head.MetadataHash = sha256.Sum256(text)
	r, err := w.newPublisher().Publish(ctx, f)
	if err != nil {
		t.Fatal(err)
	}
	m, text, _ = w.metadata()
	if want := []int64{ids[1], ids[3], r.Committed.SnapshotID}; !slices.Equal(kept(m), want) {
		t.Fatalf("snapshots %v, want %v", kept(m), want)
	}
	if ref := m.Ref("audit"); ref == nil || ref.SnapshotID != ids[1] || !bytes.Contains(text, []byte(`"note":{"by":"others"}`)) {
		t.Fatalf("the tag or the note is gone: %s", text)
	}
	if len(m.SnapshotLog) != 2 || m.SnapshotLog[1].SnapshotID != r.Committed.SnapshotID {
		t.Fatalf("S14: %+v", m.SnapshotLog)
	}
}

// TestTimes: table time that stands still or goes far back never makes a
// snapshot older than its parent (S2).
func TestTimes(t *testing.T) {
	w := newWorld(t, objstore.NewMem(), definition())
	last := w.cut().Committed.TimestampMs
	for range 3 {
		w.timeMs -= 121_000
		w.append([]newFile{{rows: 3}}, nil)
		r := w.cut().Committed
		if r.TimestampMs != last+1 {
			t.Fatalf("time %d after %d", r.TimestampMs, last)
		}
		last = r.TimestampMs
	}
}
