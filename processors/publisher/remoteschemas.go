package publisher

import (
	"reflect"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/iceberg"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
)

// maxGiven is how many schema ids one record tells of: more are told by the next.
const maxGiven = 100

// SchemasGiven says that the catalog has given schema or field ids of which nothing
// is left in the current columns: the caller appends the record (H5).
type SchemasGiven struct {
	Record record.CatalogSchemas
}

func (e *SchemasGiven) Error() string {
	return "the table moved in the catalog: columns that came and went"
}

// givenSchemas is a *SchemasGiven when the catalog has given ids that the definition
// would give next: of columns that another writer added and took back, or of a change
// that was undone. While a change of ours waits it has its ids already.
func givenSchemas(f *statestore.FrozenCut, meta *iceberg.Metadata) error {
	d := f.Known.Definition
	next := int64(len(d.Schemas))
	for i := range meta.Schemas {
		next = max(next, meta.Schemas[i].ID+1)
	}
	if f.Known.Ahead || next == int64(len(d.Schemas)) && meta.LastColumnID <= d.LastColumnID {
		return nil
	}
	return &SchemasGiven{Record: record.CatalogSchemas{
		Snapshot: f.Head.SnapshotID, NextSchema: int32(min(next, int64(len(d.Schemas))+maxGiven)), LastColumnID: max(meta.LastColumnID, d.LastColumnID),
	}}
}

// tookBack is a *SchemasGiven of the schemas between ours and the current one, where that
// one follows ours and they do not lead to it: they had columns that were taken back.
func tookBack(f *statestore.FrozenCut, meta *iceberg.Metadata) error {
	d := f.Known.Definition
	r := record.CatalogSchemas{Snapshot: f.Head.SnapshotID, NextSchema: int32(min(meta.CurrentSchema, int64(len(d.Schemas))+maxGiven)), LastColumnID: d.LastColumnID}
	theirs, err := remoteSchema(meta, meta.CurrentSchema)
	if err != nil || f.Known.Ahead || int(r.NextSchema) <= len(d.Schemas) {
		return nil
	}
	for i := range meta.Schemas {
		if id := meta.Schemas[i].ID; id >= int64(len(d.Schemas)) && id < meta.CurrentSchema {
			s, err := remoteSchema(meta, id)
			if err != nil {
				return nil
			}
			r.LastColumnID = max(r.LastColumnID, s.HighestID())
		}
	}
	if d.Schema().CheckNext(theirs, r.LastColumnID) != nil {
		return nil
	}
	return &SchemasGiven{Record: r}
}

// standIn says whether a schema of the definition only keeps an id that the catalog
// gave to another writer's: it says what an older one says, which no change of a table does.
func standIn(d *schemas.Definition, i int) bool {
	for j := range i {
		if reflect.DeepEqual(d.Schemas[j].Fields, d.Schemas[i].Fields) {
			return true
		}
	}
	return false
}
