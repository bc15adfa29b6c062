package adopt

import (
	"errors"
	"fmt"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/rows"
)

// fitsKeys reads what every shard will have to read of a file, a row group at a time:
// the key's columns and the ordering value. A file of which they cannot be read, or
// that has a row without a key, dead or not, would stop the shards; manifests need not
// count nulls, and footers do not tell of damaged pages.
func fitsKeys(d *schemas.Definition, file *rows.File) error {
	if !d.Keyed() {
		return nil
	}
	schema := d.Schema()
	var want []schemas.Field
	for _, id := range d.Key {
		x := schema.Fields[schema.ByID(id)]
		x.Required = false // to count what is missing
		want = append(want, x)
	}
	if d.Order.Kind == schemas.OrderByColumn {
		want = append(want, schema.Fields[schema.ByID(d.Order.Column)])
	}
	without := make([]int64, len(d.Key))
	for g := range file.NumRowGroups() {
		cols, err := file.ReadGroup(g, want)
		if errors.Is(err, rows.ErrBadFile) || errors.Is(err, rows.ErrUnsupported) {
			return refuse("its key or ordering value cannot be read: %w", err)
		}
		if err != nil {
			return fmt.Errorf("its key: %w", err)
		}
		for i := range without {
			for row := range cols[i].Len() {
				if cols[i].IsNull(row) {
					without[i]++
				}
			}
		}
	}
	for i, n := range without {
		if n > 0 {
			return refuse("%d of its rows have no %q, which is of the key of table %s", n, want[i].Name, d.Name)
		}
	}
	return nil
}
