package statestore

import (
	"slices"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/record"
)

// maxGivenSchemas bounds how many ids one record takes out of use.
const maxGivenSchemas = 100

// catalogSchemas: T9. Copies of the current
// one stand for them, so that the next one of the table has an id that is free.
func (s *Store) catalogSchemas(r *Record, t *table, c *record.CatalogSchemas, msg *record.OutcomeMessage) (outcomeOf, error) {
	h := &t.head
	if h.Build < 0 || h.MetadataVersion != 0 || c.Snapshot != h.SnapshotID {
		return reject(record.NoChange, 1, h.SnapshotID), nil
	}
	d := *t.def
	n := int64(c.NextSchema) - int64(len(d.Schemas))
	if t.defChange > t.defFrozen || n <= 0 && c.LastColumnID <= d.LastColumnID {
		return reject(record.NoChange, 3), nil // what waits for its cut has its ids already
	}
	if n > maxGivenSchemas {
		return reject(record.BadAlter, 4), nil
	}
	cur := d.Schema()
	d.Schemas = slices.Clone(d.Schemas)
	for ; n > 0; n-- {
		d.Schemas = append(d.Schemas, schemas.Schema{ID: int32(len(d.Schemas)), Fields: cur.Fields, Identifier: cur.Identifier})
	}
	d.LastColumnID = max(d.LastColumnID, c.LastColumnID)
	if !checkDefinition(&d) {
		return reject(record.BadAlter, 4), nil
	}
	t.def, t.defChange, t.defFrozen = &d, r.Offset, r.Offset // the catalog has it already
	t.dirty, t.defDirty = true, true
	msg.Definition = t.def
	s.effect('e', t.id, int64(d.CurrentSchema), int64(len(d.Schemas)), int64(d.LastColumnID))
	return accepted(false, int64(len(d.Schemas))), nil
}
