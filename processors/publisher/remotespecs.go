package publisher

import (
	"errors"
	"fmt"
	"slices"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/iceberg"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/schemas/restcat"
	"github.com/varve-io/varve/statestore"
)

// SpecsMoved says that another writer partitioned the table otherwise in the
// catalog: the caller appends the record (H5).
type SpecsMoved struct {
	Record record.CatalogSpecs
}

func (e *SpecsMoved) Error() string {
	return "the table moved in the catalog: its partition specs"
}

// SpecsTaken says that the catalog gave ids of specs of ours, which wait to be
// published, to another writer's: the caller appends the record, and publishes what
// the state then has frozen (T8).
type SpecsTaken struct {
	Record record.RenumberSpecs
}

func (e *SpecsTaken) Error() string {
	return "the table moved in the catalog: its partition specs, which have ids of ours"
}

// foreignSpecs is a *SpecsMoved when the catalog has partition specs that the
// definition lacks, or another default one. One that varve cannot write stops the
// table while it is the default (S11), and so does one that took the id of ours.
// Specs of ours that the catalog no longer has are no matter: no file of a
// snapshot there needs them.
func foreignSpecs(f *statestore.FrozenCut, meta *iceberg.Metadata) error {
	d := *f.Known.Definition
	stop := func(id int64, err error) error {
		return fmt.Errorf("%w: another writer partitioned the table by spec %d, which varve cannot write: %w; undo that change, so that spec %d is the default one again", ErrForeign, id, err, d.DefaultSpec)
	}
	r := record.CatalogSpecs{Snapshot: f.Head.SnapshotID, DefaultSpec: d.DefaultSpec, LastPartitionID: max(d.LastPartitionID, meta.LastPartitionID)}
	ids := make([]int64, len(meta.Specs))
	for i := range meta.Specs {
		ids[i] = meta.Specs[i].ID
	}
	slices.Sort(ids)
	for _, id := range ids {
		theirs, err := meta.Spec(id)
		ours := d.Spec(int32(id))
		switch {
		case ours == nil && err == nil:
			err = d.CheckNextSpec(theirs)
		case ours != nil && (err != nil || !sameSpec(ours, theirs)):
			if f.Known.Ahead && id > 0 {
				return takenSpecs(f, meta, ids[slices.Index(ids, id):])
			}
			return stop(id, errors.New("it is another one than ours of that id"))
		}
		if err != nil && id == meta.DefaultSpec {
			return stop(id, err)
		}
		if ours != nil || err != nil {
			continue
		}
		r.Specs = append(r.Specs, *theirs)
		d.Specs = append(slices.Clone(d.Specs), *theirs)
		for j := range theirs.Fields {
			d.LastPartitionID = max(d.LastPartitionID, theirs.Fields[j].FieldID)
		}
	}
	if !f.Known.Ahead { // else ours is the later word, and its commit is yet to come
		r.DefaultSpec = int32(meta.DefaultSpec)
	}
	if len(r.Specs) == 0 && r.DefaultSpec == d.DefaultSpec {
		return nil
	}
	return &SpecsMoved{Record: r}
}

// takenSpecs is a *SpecsTaken of the catalog's specs of these ids, the first of which
// is that of another one of ours, that was not published yet.
func takenSpecs(f *statestore.FrozenCut, meta *iceberg.Metadata, ids []int64) error {
	d := *f.Known.Definition
	r := record.RenumberSpecs{Snapshot: f.Head.SnapshotID, LastPartitionID: meta.LastPartitionID}
	d.Specs, d.LastPartitionID = slices.Clone(d.Specs[:ids[0]]), 999
	last := func(x *schemas.Spec) {
		for i := range x.Fields {
			d.LastPartitionID = max(d.LastPartitionID, x.Fields[i].FieldID)
		}
	}
	for i := range d.Specs {
		last(&d.Specs[i])
	}
	for _, id := range ids {
		theirs, err := meta.Spec(id)
		if err == nil {
			err = d.CheckNextSpec(theirs)
		}
		if err != nil {
			return fmt.Errorf("%w: another writer gave the table the partition spec %d, which varve cannot write: %w; ours, which waits to be published, has its id or one above: "+
				"remove that spec from the catalog's table (no file of a snapshot may need it)", ErrForeign, id, err)
		}
		r.Specs = append(r.Specs, *theirs)
		d.Specs = append(d.Specs, *theirs)
		last(theirs)
	}
	return &SpecsTaken{Record: r}
}

// sameSpec: others may give a field another name, which changes no value.
func sameSpec(a, b *schemas.Spec) bool {
	return slices.EqualFunc(a.Fields, b.Fields, func(x, y schemas.PartitionField) bool { return x.FieldID == y.FieldID && x.SameTerm(&y) })
}

// specUpdates bring the definition's partition specs to the catalog, as far as
// they are not there.
func specUpdates(f *statestore.FrozenCut, meta *iceberg.Metadata) ([]restcat.Update, error) {
	d := f.Definition
	highest := int64(-1)
	for i := range meta.Specs {
		highest = max(highest, meta.Specs[i].ID)
	}
	out, err := added("partition spec", highest, d.Specs, func(s *schemas.Spec) int32 { return s.ID }, restcat.AddSpec)
	if err != nil {
		return nil, err
	}
	// Where the state has another default by now, another writer may have set it.
	if meta.DefaultSpec != int64(d.DefaultSpec) && d.DefaultSpec == f.Known.Definition.DefaultSpec {
		out = append(out, restcat.SetDefaultSpec(d.DefaultSpec))
	}
	return out, nil
}
