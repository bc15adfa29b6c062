package statestore

import (
	"slices"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/record"
)

// Limits of a table's partitioning: the definition travels with each claim.
const (
	maxSpecs      = 1000
	maxSpecFields = 100
)

// alterSpec: T7. A spec that the table had before becomes the default one again,
// under its id; any other is a new one. Nothing happens to files.
func (s *Store) alterSpec(r *Record, t *table, a *record.AlterSpec, msg *record.OutcomeMessage) (outcomeOf, error) {
	d := *t.def
	fields, last, part := nextSpec(&d, a.Terms)
	if part != 0 {
		return reject(record.BadAlter, part), nil
	}
	if i := slices.IndexFunc(d.Specs, func(x schemas.Spec) bool { return slices.Equal(x.Fields, fields) }); i >= 0 {
		d.DefaultSpec = d.Specs[i].ID
	} else {
		next := schemas.Spec{ID: int32(len(d.Specs)), Fields: fields}
		d.Specs = append(slices.Clone(d.Specs), next)
		d.DefaultSpec, d.LastPartitionID = next.ID, last
	}
	if len(d.Specs) > maxSpecs || !checkDefinition(&d) {
		return reject(record.BadAlter, 4), nil
	}
	changed := d.DefaultSpec != t.def.DefaultSpec
	if changed {
		t.def = &d
		t.defChange, t.lastChange = r.Offset, r.Offset
		t.dirty, t.defDirty = true, true
	}
	msg.Definition = t.def
	s.effect('q', t.id, int64(t.def.DefaultSpec), int64(t.def.LastPartitionID))
	return accepted(changed, int64(t.def.DefaultSpec)), nil
}

// nextSpec is the fields of a partitioning, and the highest field id given with
// it. A field that some spec has with the same column, transform and name keeps
// its id: engines take fields of one id for one. part is which part of a change
// is refused, 0: none.
func nextSpec(d *schemas.Definition, terms []record.PartitionTerm) (fields []schemas.PartitionField, last int32, part int64) {
	cur := d.Schema()
	last = d.LastPartitionID
	if len(terms) > maxSpecFields {
		return nil, 0, 9
	}
	for i := range terms {
		x := &terms[i]
		c := cur.ByName(x.Column)
		if c < 0 {
			return nil, 0, 7
		}
		f := schemas.PartitionField{SourceID: cur.Fields[c].ID, Name: x.Name, Transform: x.Transform, N: x.N}
		if slices.ContainsFunc(fields, func(g schemas.PartitionField) bool { return f.SameTerm(&g) }) {
			return nil, 0, 9
		}
		// Engines show the fields of all specs in one struct, beside the columns.
		if j := cur.ByName(x.Name); j >= 0 && (j != c || x.Transform != schemas.Identity) {
			return nil, 0, 8
		}
		for k := range d.Specs {
			for j := range d.Specs[k].Fields {
				g := &d.Specs[k].Fields[j]
				if g.Name != f.Name {
					continue
				}
				if !f.SameTerm(g) {
					return nil, 0, 8
				}
				f.FieldID = g.FieldID
			}
		}
		if f.FieldID == 0 {
			last++
			f.FieldID = last
		}
		fields = append(fields, f)
	}
	return fields, last, 0
}

// catalogSpecs: H5, of partition specs. They stand in no byte of a build that is
// under way, which keeps its build offset: its files have specs of ours.
func (s *Store) catalogSpecs(r *Record, t *table, c *record.CatalogSpecs, msg *record.OutcomeMessage) (outcomeOf, error) {
	h := &t.head
	if h.Build < 0 || h.MetadataVersion != 0 || c.Snapshot != h.SnapshotID {
		return reject(record.NoChange, 1, h.SnapshotID), nil
	}
	d := *t.def
	for i := range c.Specs {
		next := &c.Specs[i]
		if d.CheckNextSpec(next) != nil {
			return reject(record.BadAlter, 10), nil
		}
		d.Specs = append(slices.Clone(d.Specs), *next)
		for j := range next.Fields {
			d.LastPartitionID = max(d.LastPartitionID, next.Fields[j].FieldID)
		}
	}
	d.LastPartitionID = max(d.LastPartitionID, c.LastPartitionID)
	// An AlterTable or AlterSpec that is not published yet is the later word.
	if t.defChange <= t.defFrozen {
		d.DefaultSpec = c.DefaultSpec
	}
	if len(c.Specs) == 0 && d.DefaultSpec == t.def.DefaultSpec && d.LastPartitionID == t.def.LastPartitionID {
		return reject(record.NoChange, 3), nil
	}
	if len(d.Specs) > maxSpecs || !checkDefinition(&d) {
		return reject(record.BadAlter, 4), nil
	}
	if t.defChange <= t.defFrozen { // the catalog has it already
		t.defFrozen = r.Offset
	}
	t.def, t.defChange = &d, r.Offset
	t.dirty, t.defDirty = true, true
	msg.Definition = t.def
	s.effect('q', t.id, int64(d.DefaultSpec), int64(d.LastPartitionID))
	return accepted(false, int64(d.DefaultSpec)), nil
}
