package rows_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/rows"
)

// TestBatchRemove: the other rows stay as they were and in their order.
func TestBatchRemove(t *testing.T) {
	schema := &schemas.Schema{Fields: []schemas.Field{
		{ID: 1, Name: "a", Type: schemas.Of(schemas.Long)}, {ID: 2, Name: "b", Type: schemas.Of(schemas.String)}, {ID: 3, Name: "c", Type: schemas.Of(schemas.Double)},
	}}
	for _, gone := range [][]int{nil, {0}, {4}, {1, 2}, {0, 4}, {0, 1, 2, 3, 4}} {
		b := rows.NewBatch(schema)
		var want []string
		show := func(b *rows.Batch, i int) string {
			return fmt.Sprint(b.Ops[i], b.Offsets[i], b.Order[i], b.HasOrder[i], b.Cols[0].Ints[i], string(b.Cols[1].BytesAt(i)), b.Cols[1].IsNull(i), b.Cols[2].Floats[i])
		}
		for i := range 5 {
			b.Cols[0].AppendInt(int64(i))
			if i%2 == 0 {
				b.Cols[1].AppendBytes(fmt.Appendf(nil, "row %d", i))
			}
			b.Cols[2].AppendFloat(float64(i) / 2)
			b.AppendEvent(rows.Op(1+i%2), int64(10+i), int64(i), i%3 == 0)
			if !slices.Contains(gone, i) {
				want = append(want, show(b, i))
			}
		}
		b.Remove(gone)
		var got []string
		for i := range b.Len() {
			got = append(got, show(b, i))
		}
		if !slices.Equal(got, want) {
			t.Errorf("without %v: %v, want %v", gone, got, want)
		}
	}
}
