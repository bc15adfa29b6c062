package rows

import "github.com/varve-io/varve/schemas"

// MapNames gives the columns of a file without field ids those of the fields of
// their names (T3): another writer's file is read by names then. unknown are
// columns of the file that no field has the name of, or that hold what no field
// of ours can: nested columns are read by field ids alone.
func (f *File) MapNames(fields []schemas.Field) (unknown []string) {
	if f.HasFieldIDs() {
		return nil
	}
	ids := make(map[string]int32, len(fields))
	for i := range fields {
		if !fields[i].Type.IsNested() {
			ids[fields[i].Name] = fields[i].ID
		}
	}
	for i := range f.leaves {
		l := &f.leaves[i]
		id, ok := ids[l.name]
		if _, twice := f.byID[id]; !ok || l.why != "" || twice {
			unknown = append(unknown, l.name)
			continue
		}
		l.id, l.hasID = id, true
		f.byID[id] = i
	}
	return unknown
}

// Columns are the names and field ids of the file's flat columns that have one.
func (f *File) Columns() []schemas.Field {
	var out []schemas.Field
	for i := range f.leaves {
		if l := &f.leaves[i]; l.hasID {
			out = append(out, schemas.Field{ID: l.id, Name: l.name, Type: l.typ})
		}
	}
	return out
}
