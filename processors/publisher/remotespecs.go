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
// definition lacks, or another default one; a *SpecsTaken when they have ids of ours.
// One that varve cannot write stops the table while it is the default (S11).
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
		if ours := d.Spec(int32(id)); ours != nil {
			theirs, err := meta.Spec(id)
			switch {
			case err == nil && sameSpec(ours, theirs):
			case standsFor(&d, ours, meta, id) && id == meta.DefaultSpec:
				return stop(id, unwritable(&d, meta, id))
			case standsFor(&d, ours, meta, id):
			case f.Known.Ahead && id > 0:
				return takenSpecs(f, meta, ids[slices.Index(ids, id):])
			default:
				return stop(id, errors.New("it is another one than ours of that id"))
			}
			continue
		}
		next, err := nextSpec(&d, meta, id)
		if err != nil && id == meta.DefaultSpec {
			return stop(id, err)
		}
		if err != nil {
			continue
		}
		r.Specs = append(r.Specs, *next)
		addSpec(&d, next)
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
	ours := d.Specs[:ids[0]]
	d.Specs, d.LastPartitionID = nil, 999
	for i := range ours {
		addSpec(&d, &ours[i])
	}
	for _, id := range ids {
		next, err := nextSpec(&d, meta, id)
		if err != nil {
			return fmt.Errorf("%w: another writer gave the table the partition spec %d, which varve cannot write: %w; ours, which waits to be published, has its id or one above: "+
				"make another spec the default one again, and where that does not help remove this one from the catalog's table (no file of a snapshot may need it)", ErrForeign, id, err)
		}
		r.Specs = append(r.Specs, *next)
		addSpec(&d, next)
	}
	return &SpecsTaken{Record: r}
}

// nextSpec is how a spec of the catalog's comes next into a definition: as it is, or, as
// long as it is not the default one, with void fields where varve cannot write it. So
// what comes behind it keeps its id.
func nextSpec(d *schemas.Definition, meta *iceberg.Metadata, id int64) (*schemas.Spec, error) {
	err := unwritable(d, meta, id)
	if err == nil {
		return meta.Spec(id)
	}
	if id != meta.DefaultSpec {
		for _, x := range standIns(d, meta, id) {
			if d.CheckNextSpec(x) == nil {
				return x, nil
			}
		}
	}
	return nil, err
}

// standIns are what can stand for a spec that varve cannot write: only the fields void
// that it does not know, or that would show a key (E3), or else all of them.
func standIns(d *schemas.Definition, meta *iceberg.Metadata, id int64) []*schemas.Spec {
	some, err := meta.KnownSpec(id)
	if err != nil || len(some.Fields) == 0 {
		return nil
	}
	all := &schemas.Spec{ID: some.ID, Fields: slices.Clone(some.Fields)}
	for i := range some.Fields {
		f := &some.Fields[i]
		if f.Shows() && slices.Contains(d.Key, f.SourceID) {
			f.Transform, f.N = schemas.Void, 0
		}
		all.Fields[i].Transform, all.Fields[i].N = schemas.Void, 0
	}
	return []*schemas.Spec{some, all}
}

// unwritable is why varve cannot write a spec of the catalog's, nil: it can.
func unwritable(d *schemas.Definition, meta *iceberg.Metadata, id int64) error {
	theirs, err := meta.Spec(id)
	if err != nil {
		return err
	}
	before := *d
	before.Specs = d.Specs[:min(int(id), len(d.Specs))]
	return before.CheckNextSpec(theirs)
}

// standsFor says whether a spec of the definition stands for one of the catalog's that
// varve cannot write.
func standsFor(d *schemas.Definition, ours *schemas.Spec, meta *iceberg.Metadata, id int64) bool {
	return slices.ContainsFunc(standIns(d, meta, id), func(x *schemas.Spec) bool { return sameSpec(ours, x) })
}

func addSpec(d *schemas.Definition, next *schemas.Spec) {
	d.Specs = append(slices.Clone(d.Specs), *next)
	for i := range next.Fields {
		d.LastPartitionID = max(d.LastPartitionID, next.Fields[i].FieldID)
	}
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
