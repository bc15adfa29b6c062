package publisher_test

import (
	"fmt"
	"testing"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore/objstore"
)

func property(key, value string) schemas.Property { return schemas.Property{Key: key, Value: value} }

// alter changes the definition in one of several ways.
func (w *world) alter(i int) {
	w.t.Helper()
	a := &record.AlterTable{Set: []schemas.Property{property("owner", fmt.Sprint(i))}}
	switch i % 3 {
	case 1:
		a.Add = []record.AddColumn{{Name: fmt.Sprintf("extra_%d", i), Type: schemas.Of(schemas.Double), Default: "1.5"}}
	case 2:
		a.Set, a.Remove = []schemas.Property{property("round", fmt.Sprint(i))}, []string{"owner"}
	}
	w.do(w.def.Name, w.id, a)
}

// TestDefinitionChanges: a cut without files commits metadata without a
// snapshot (S12); one with files carries the change along.
func TestDefinitionChanges(t *testing.T) {
	def := definition(byDay(0))
	def.Properties = []schemas.Property{property("a", "1"), property("b", "2")}
	w := newWorld(t, objstore.NewMem(), def)
	w.cut()
	tuple := schemas.EncodeTuple([][]byte{{7, 0, 0, 0}})
	first := w.append([]newFile{{rows: 5, partition: tuple}, {rows: 6, partition: tuple}}, nil)
	head := w.cut().Committed
	w.do(def.Name, w.id, &record.AlterTable{
		Set: []schemas.Property{property("b", "3"), property("c", "4")}, Remove: []string{"a"},
		Add: []record.AddColumn{{Name: "note", Type: schemas.Of(schemas.String), Default: `"none"`}},
	})
	r := w.cut().Committed
	m, _, n := w.metadata()
	if n != 3 || r.SnapshotID != 0 || r.Parent != head.SnapshotID || len(m.Snapshots) != 1 || *m.CurrentSnapshot != head.SnapshotID {
		t.Fatalf("version %d: %+v", n, r)
	}
	if m.CurrentSchema != 1 || len(m.Schemas) != 2 || m.LastColumnID != 4 || m.LastSequence != 1 || m.NextRowID != 11 {
		t.Fatalf("metadata: %+v", m)
	}
	if fmt.Sprint(m.Properties) != "[{b 3} {c 4} {gc.enabled false}]" {
		t.Fatalf("properties: %v", m.Properties)
	}
	if len(m.SnapshotLog) != 1 || len(m.MetadataLog) != 2 || m.LastUpdatedMs <= head.TimestampMs {
		t.Fatalf("S14, S2: %+v %+v %d", m.SnapshotLog, m.MetadataLog, m.LastUpdatedMs)
	}
	// The partition's source column becomes wider: old files keep four bytes,
	// and a manifest that is rewritten under the new schema has eight.
	w.do(def.Name, w.id, &record.AlterTable{Widen: []record.WidenColumn{{Name: "day", Type: schemas.Of(schemas.Long)}}})
	w.append([]newFile{{rows: 4, partition: schemas.EncodeTuple([][]byte{{9, 0, 0, 0, 0, 0, 0, 0}})}}, map[uint64][]uint32{first[0]: {0, 1, 2, 3, 4}, first[1]: {1}})
	r = w.cut().Committed
	wide := schemas.EncodeTuple([][]byte{{7, 0, 0, 0, 0, 0, 0, 0}})
	w.states[r.SnapshotID][first[1]] = modelFile{rows: 6, bytes: w.files[first[1]].bytes, partition: wide, dead: w.files[first[1]].dead}
	m, _, _ = w.metadata()
	if m.CurrentSchema != 2 || *m.Current().SchemaID != 2 || r.SnapshotID == 0 {
		t.Fatalf("metadata: %+v", m)
	}
	w.check()
}

// TestSpecs: files of several specs lie in manifests of their own, and a
// vector is in its file's spec for ever (V4, M3).
func TestSpecs(t *testing.T) {
	w := newWorld(t, objstore.NewMem(), definition(schemas.Spec{}, byDay(1)))
	w.cut()
	tuple := schemas.EncodeTuple([][]byte{{7, 0, 0, 0}})
	ids := w.append([]newFile{{rows: 5}, {rows: 6, spec: 1, partition: tuple}}, nil)
	if r := w.cut().Committed; len(r.Manifests) != 2 || r.Manifests[0].SpecID != 0 || r.Manifests[1].SpecID != 1 {
		t.Fatalf("manifests: %+v", r.Manifests)
	}
	w.append(nil, map[uint64][]uint32{ids[0]: {0}, ids[1]: {1}})
	r := w.cut().Committed
	if len(r.Manifests) != 2 || r.Manifests[0].Content != 1 || r.Manifests[1].Content != 1 || r.Manifests[0].SpecID == r.Manifests[1].SpecID {
		t.Fatalf("manifests: %+v", r.Manifests)
	}
	w.check()
}

// TestAlteredSpec: T7. A table's partitioning changes, there and back; what is
// frozen, published and read keeps each file's spec.
func TestAlteredSpec(t *testing.T) {
	w := newWorld(t, objstore.NewMem(), definition())
	w.cut()
	old := w.append([]newFile{{rows: 5}, {rows: 6}}, nil)
	w.cut()
	day := record.PartitionTerm{Column: "day", Transform: schemas.Identity, Name: "day"}
	w.do(w.def.Name, w.id, &record.AlterSpec{Terms: []record.PartitionTerm{day}})
	if r := w.cut().Committed; r.SnapshotID != 0 {
		t.Errorf("a snapshot without files: %+v", r)
	}
	m, _, _ := w.metadata()
	if m.DefaultSpec != 1 || len(m.Specs) != 2 || m.LastPartitionID != 1000 {
		t.Fatalf("default spec %d of %d, last field id %d", m.DefaultSpec, len(m.Specs), m.LastPartitionID)
	}
	fresh := w.append([]newFile{{rows: 4, spec: 1, partition: dayTuple}, {rows: 3}}, map[uint64][]uint32{old[0]: {0}})
	if r := w.cut().Committed; len(r.Manifests) != 3 {
		t.Errorf("manifests: %+v", r.Manifests)
	}
	w.do(w.def.Name, w.id, &record.AlterSpec{})
	w.append([]newFile{{rows: 2}}, map[uint64][]uint32{old[0]: {1}, old[1]: {0, 1, 2, 3, 4, 5}, fresh[0]: {2}, fresh[1]: {1}})
	w.cut()
	if m, _, _ = w.metadata(); m.DefaultSpec != 0 || len(m.Specs) != 2 {
		t.Fatalf("default spec %d of %d", m.DefaultSpec, len(m.Specs))
	}
	w.check()
}
