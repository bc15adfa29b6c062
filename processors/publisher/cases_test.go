package publisher_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/varve-io/varve/schemas/iceberg"
	"github.com/varve-io/varve/statestore/objstore"
)

func span(from, to uint32) (out []uint32) {
	for p := from; p < to; p++ {
		out = append(out, p)
	}
	return out
}

// current is the newest snapshot and what it lists.
func (w *world) current() (*iceberg.Snapshot, *listed) {
	w.t.Helper()
	m, _, _ := w.metadata()
	s := m.Current()
	return s, w.list(s)
}

// TestTimeTravel: 100 rows, delete < 50, delete >= 80: the snapshots have 100,
// 50 and 30 rows (case 12).
func TestTimeTravel(t *testing.T) {
	w := newWorld(t, objstore.NewMem(), definition())
	w.cut()
	ids := w.append([]newFile{{rows: 100}}, nil)
	w.cut()
	w.append(nil, map[uint64][]uint32{ids[0]: span(0, 50)})
	w.cut()
	w.append(nil, map[uint64][]uint32{ids[0]: span(80, 100)})
	w.cut()
	w.check()
	m, _, _ := w.metadata()
	var rows []int64
	var ops []string
	for i := range m.Snapshots {
		l := w.list(&m.Snapshots[i])
		n := l.data[w.path(ids[0])].File.Records
		if v, ok := l.vectors[w.path(ids[0])]; ok {
			n -= v.File.Records
		}
		rows = append(rows, n)
		ops = append(ops, m.Snapshots[i].Operation)
	}
	if !slices.Equal(rows, []int64{100, 50, 30}) || !slices.Equal(ops, []string{"append", "delete", "delete"}) {
		t.Fatalf("rows %v, operations %v", rows, ops)
	}
	if got := m.Snapshots[2].ParentID; got == nil || *got != m.Snapshots[1].ID || len(m.SnapshotLog) != 3 {
		t.Fatalf("parents and log: %+v", m.SnapshotLog)
	}
}

// TestSecondDelete: the new vector is the union, and the old entry leaves in
// the same snapshot (case 11); a third does not bring back rows of the first
// (case 15); the last covers the file, and file and vector leave (V7).
func TestSecondDelete(t *testing.T) {
	w := newWorld(t, objstore.NewMem(), definition())
	w.cut()
	ids := w.append([]newFile{{rows: 10}, {rows: 10}}, nil)
	w.cut()
	var last string
	for i, kill := range [][]uint32{{1, 5}, {2}, {7, 8, 9}} {
		w.append(nil, map[uint64][]uint32{ids[0]: kill})
		w.cut()
		w.check()
		s, l := w.current()
		v := l.vectors[w.path(ids[0])]
		if want := []int64{2, 3, 6}[i]; v.File.Records != want || *v.Sequence != s.Sequence {
			t.Fatalf("vector %d: %+v", i, v)
		}
		left := 0
		for _, line := range l.lines {
			for _, e := range l.entries[line.Path] {
				if e.Status == iceberg.Deleted {
					left++
					if e.File.Path != last || *e.SnapshotID != s.ID || *e.Sequence != s.Sequence-1 {
						t.Fatalf("the old vector's entry: %+v", e)
					}
				}
			}
		}
		if (left == 1) != (i > 0) {
			t.Fatalf("delete %d: %d entries leave", i, left)
		}
		last = v.File.Path
	}
	w.append(nil, map[uint64][]uint32{ids[0]: {0, 3, 4, 6}})
	r := w.cut().Committed
	w.check()
	_, l := w.current()
	if len(l.data) != 1 || len(l.vectors) != 0 || r.Operation != "delete" || len(r.Puffins) != 0 || len(r.Manifests) != 2 {
		t.Fatalf("after the last row: %d files, %d vectors, %+v", len(l.data), len(l.vectors), r)
	}
	// The next snapshot does not list the manifest of the removed vector (M2).
	w.append([]newFile{{rows: 1}}, nil)
	w.cut()
	if _, l := w.current(); len(l.lines) != 2 {
		t.Fatalf("%d manifests, want 2: %+v", len(l.lines), l.lines)
	}
	w.check()
}

// TestUntouchedManifests: what did not change is listed with the same line and
// not read again (M3).
func TestUntouchedManifests(t *testing.T) {
	w := newWorld(t, objstore.NewMem(), definition())
	w.cut()
	a := w.append([]newFile{{rows: 10}, {rows: 10}}, nil)
	w.cut()
	w.append(nil, map[uint64][]uint32{a[0]: {1}})
	w.cut()
	b := w.append([]newFile{{rows: 10}}, nil)
	w.cut()
	w.append(nil, map[uint64][]uint32{b[0]: {1}})
	_, before := w.current()
	r := w.cut().Committed
	_, after := w.current()
	for i := range before.lines {
		if !slices.ContainsFunc(after.lines, func(l iceberg.ManifestFile) bool {
			return l.Path == before.lines[i].Path && l.AddedSnapshotID == before.lines[i].AddedSnapshotID && l.Sequence == before.lines[i].Sequence
		}) {
			t.Fatalf("%s is no longer listed", before.lines[i].Path)
		}
	}
	if len(r.Manifests) != 1 || len(after.lines) != 4 || r.Operation != "delete" {
		t.Fatalf("%d new of %d manifests", len(r.Manifests), len(after.lines))
	}
	// Vectors of a and b change: one manifest of new vectors, one of what left;
	// the vector of a second file of a stays in the latter.
	w.append([]newFile{{rows: 4}}, map[uint64][]uint32{a[1]: {3}, b[0]: {4}})
	w.cut()
	w.append(nil, map[uint64][]uint32{b[0]: {5}})
	r = w.cut().Committed
	_, after = w.current()
	if left := after.entries[r.Manifests[1].Path]; len(r.Manifests) != 2 || len(left) != 2 || left[0].Status == left[1].Status {
		t.Fatalf("manifests: %+v", r.Manifests)
	}
	w.check()
}

// TestSteadyStateReads: a publisher that stays reads nothing but the next
// version's absence and the bodies.
func TestSteadyStateReads(t *testing.T) {
	s := objstore.NewMem()
	w := newWorld(t, s, definition())
	w.cut()
	ids := w.append([]newFile{{rows: 50}, {rows: 50}}, nil)
	w.cut()
	for i := range uint32(10) {
		w.append([]newFile{{rows: 5}}, map[uint64][]uint32{ids[0]: {i}, ids[1]: {i + 20}})
		f := w.freeze()
		var reads []string
		s.SetHook(func(c objstore.Call) error {
			if c.Op == "ReadAll" && !c.After && strings.HasPrefix(c.Key, tableKey) {
				reads = append(reads, c.Key)
			}
			return nil
		})
		r, err := w.pub.Publish(ctx, f)
		s.SetHook(nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range reads {
			if !strings.HasSuffix(key, ".metadata.json") {
				t.Fatalf("round %d reads %v", i, reads)
			}
		}
		w.confirm(f, r)
	}
	w.check()
}

// TestOperations: S5.
func TestOperations(t *testing.T) {
	w := newWorld(t, objstore.NewMem(), definition())
	w.cut()
	ids := w.append([]newFile{{rows: 5}, {rows: 5}}, nil)
	var got []string
	cut := func() { got = append(got, w.cut().Committed.Operation) }
	cut()
	w.append(nil, map[uint64][]uint32{ids[0]: {1}})
	cut()
	w.append([]newFile{{rows: 2}}, map[uint64][]uint32{ids[0]: {2}})
	cut()
	more := w.append([]newFile{{rows: 3}}, nil)
	w.append(nil, map[uint64][]uint32{more[0]: {2}}) // a file added with its vector
	cut()
	w.append(nil, map[uint64][]uint32{ids[1]: span(0, 5)})
	cut()
	w.append([]newFile{{rows: 2}}, nil)
	cut()
	if want := []string{"append", "delete", "overwrite", "overwrite", "delete", "append"}; !slices.Equal(got, want) {
		t.Fatalf("operations %v, want %v", got, want)
	}
	w.check()
}
