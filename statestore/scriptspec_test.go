package statestore_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
)

// specFrom reads lines such as "bucket[4] name as part".
func specFrom(a *args) *record.AlterSpec {
	x := &record.AlterSpec{}
	for _, l := range a.lines {
		w := strings.Fields(l)
		if len(w) != 4 || w[2] != "as" {
			a.t.Fatalf("%q: write it as transform column as name", l)
		}
		k, n, err := schemas.ParseTransformName(w[0])
		if err != nil {
			a.t.Fatal(err)
		}
		x.Terms = append(x.Terms, record.PartitionTerm{Column: w[1], Transform: k, N: n, Name: w[3]})
	}
	return x
}

// foreignSpecsFrom reads lines "spec 1", and of each spec its fields, "1001 day of 3 as day".
func (s *script) foreignSpecsFrom(t *testing.T, a *args) *record.CatalogSpecs {
	x := &record.CatalogSpecs{}
	if i := s.info(t, a.table()); i != nil {
		x.Snapshot, x.DefaultSpec, x.LastPartitionID = i.Head.SnapshotID, i.Definition.DefaultSpec, i.Definition.LastPartitionID
	}
	x.Snapshot = a.num("snapshot", x.Snapshot)
	x.DefaultSpec, x.LastPartitionID = int32(a.num("default", int64(x.DefaultSpec))), int32(a.num("last", int64(x.LastPartitionID)))
	for _, l := range a.lines {
		w := strings.Fields(l)
		if w[0] == "spec" {
			x.Specs = append(x.Specs, schemas.Spec{ID: int32(number(t, w[1]))})
			continue
		}
		k, n, err := schemas.ParseTransformName(w[1])
		if err != nil || len(w) != 6 {
			t.Fatalf("%q: %v", l, err)
		}
		f := &x.Specs[len(x.Specs)-1].Fields
		*f = append(*f, schemas.PartitionField{FieldID: int32(number(t, w[0])), Transform: k, N: n, SourceID: int32(number(t, w[3])), Name: w[5]})
	}
	return x
}

// specs shows a table's specs, and the spec and tuple of each file.
func (s *script) specs(t *testing.T, i *statestore.TableInfo) string {
	var b strings.Builder
	d := i.Definition
	for j := range d.Specs {
		fmt.Fprintf(&b, "spec %d:", d.Specs[j].ID)
		for _, f := range d.Specs[j].Fields {
			fmt.Fprintf(&b, " %d:%s %s of %d", f.FieldID, f.Name, schemas.TransformName(f.Transform, f.N), f.SourceID)
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "default %d, last field id %d\n", d.DefaultSpec, d.LastPartitionID)
	if err := s.st.Files(i.ID, func(f *statestore.FileInfo) error {
		fmt.Fprintf(&b, "%s spec %d (%x)", fileName(f.ID), f.SpecID, f.Partition)
		if f.Gone {
			b.WriteString(", gone")
		}
		b.WriteByte('\n')
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
