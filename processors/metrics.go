package processors

import (
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/schemas/rows"
)

// FileMetrics are a written file's metrics as an erasable body names them (E1).
func FileMetrics(id uint64, info *rows.FileInfo) record.FileMetrics {
	fm := record.FileMetrics{ID: id, SplitOffsets: info.SplitOffsets}
	for i := range info.Columns {
		c := &info.Columns[i]
		m := record.ColumnMetrics{
			FieldID: c.FieldID, Bytes: c.Size, Values: c.Values, Nulls: c.Nulls, NaNs: -1,
			HasLower: c.Lower != nil, Lower: c.Lower, HasUpper: c.Upper != nil, Upper: c.Upper,
		}
		if c.Floats {
			m.NaNs = c.NaNs
		}
		fm.Columns = append(fm.Columns, m)
	}
	return fm
}
