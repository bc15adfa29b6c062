package publisher

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/varve-io/varve/schemas/iceberg"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
)

// dataPath is a data file's location.
func dataPath(f *statestore.FrozenCut, x *statestore.FrozenFile) string {
	return x.At(f.Definition.Location, f.TableID)
}

// addedFiles makes the manifest entries' files of all added files. Their
// column metrics are in the bodies of their records, each read once.
func (p *Publisher) addedFiles(ctx context.Context, f *statestore.FrozenCut) (map[uint64]iceberg.DataFile, error) {
	byBody := map[string]map[uint64]*statestore.FrozenFile{}
	var order []record.Ref
	for i := range f.Files {
		x := &f.Files[i]
		if !x.Added {
			continue
		}
		if byBody[x.Body.Path] == nil {
			byBody[x.Body.Path] = map[uint64]*statestore.FrozenFile{}
			order = append(order, x.Body)
		}
		byBody[x.Body.Path][x.MetricsID()] = x
	}
	out := make(map[uint64]iceberg.DataFile, len(f.Files))
	for i := range order {
		path := order[i].Path
		text, err := p.cfg.Bodies.Get(ctx, &order[i])
		if err != nil {
			return nil, err
		}
		var body record.RowsBody
		if err := record.DecodeRowsBody(text, &body); err != nil {
			return nil, fmt.Errorf("%w: body %s: %w", ErrInconsistent, path, err)
		}
		missing := byBody[path]
		for j := range body.Files {
			m := &body.Files[j]
			if x := missing[m.ID]; x != nil {
				out[x.ID] = dataFile(f, x, m)
				delete(missing, m.ID)
			}
		}
		if len(missing) > 0 {
			return nil, fmt.Errorf("%w: body %s has no metrics of file %d", ErrInconsistent, path, slices.Sorted(maps.Keys(missing))[0])
		}
	}
	return out, nil
}

// dataFile is the manifest's line of an added file.
func dataFile(f *statestore.FrozenCut, x *statestore.FrozenFile, m *record.FileMetrics) iceberg.DataFile {
	d := iceberg.DataFile{
		Content: iceberg.Data, Path: dataPath(f, x), Format: iceberg.FormatParquet, SpecID: x.SpecID, Partition: x.Partition,
		Records: x.Rows, Bytes: x.Bytes,
	}
	if len(m.SplitOffsets) > 0 {
		d.SplitOffsets = m.SplitOffsets
	}
	for i := range m.Columns {
		c := &m.Columns[i]
		d.ColumnSizes = append(d.ColumnSizes, iceberg.IDCount{ID: c.FieldID, Count: c.Bytes})
		d.ValueCounts = append(d.ValueCounts, iceberg.IDCount{ID: c.FieldID, Count: c.Values})
		d.NullCounts = append(d.NullCounts, iceberg.IDCount{ID: c.FieldID, Count: c.Nulls})
		if c.NaNs >= 0 {
			d.NaNCounts = append(d.NaNCounts, iceberg.IDCount{ID: c.FieldID, Count: c.NaNs})
		}
		// Cloned: the entry outlives the body, which may be large.
		if c.HasLower {
			d.Lower = append(d.Lower, iceberg.IDBytes{ID: c.FieldID, Value: bytes.Clone(c.Lower)})
		}
		if c.HasUpper {
			d.Upper = append(d.Upper, iceberg.IDBytes{ID: c.FieldID, Value: bytes.Clone(c.Upper)})
		}
	}
	return d
}
