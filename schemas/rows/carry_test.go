package rows

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/varve-io/varve/schemas"
)

// Replace is what building the column anew gives.
func TestReplace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom([]schemas.Kind{schemas.Long, schemas.Double, schemas.String}).Draw(t, "kind")
		add := func(c *Column, v int) {
			switch {
			case v == 0:
				c.AppendNull()
			case c.Storage == Ints:
				c.AppendInt(int64(v))
			case c.Storage == Floats:
				c.AppendFloat(float64(v))
			default:
				c.AppendBytes([]byte(fmt.Sprintf("%0*d", v, v)))
			}
		}
		have := rapid.SliceOfN(rapid.IntRange(0, 9), 1, 30).Draw(t, "have")
		given := rapid.SliceOfN(rapid.IntRange(0, 9), 1, 5).Draw(t, "given")
		c, values, want := NewColumn(schemas.Of(kind)), NewColumn(schemas.Of(kind)), NewColumn(schemas.Of(kind))
		for _, v := range have {
			add(&c, v)
		}
		for _, v := range given {
			add(&values, v)
		}
		var at, from []int
		for i, v := range have {
			if rapid.Bool().Draw(t, "replaced") {
				f := rapid.IntRange(0, len(given)-1).Draw(t, "from")
				at, from = append(at, i), append(from, f)
				v = given[f]
			}
			add(&want, v)
		}
		c.Replace(at, &values, from)
		if fmt.Sprint(c.Valid, c.Ints, c.Floats, c.Ends, c.Data) != fmt.Sprint(want.Valid, want.Ints, want.Floats, want.Ends, want.Data) {
			t.Fatalf("got %+v, want %+v", c, want)
		}
	})
}

// What is carried over goes with its row.
func TestCarriesFollowRows(t *testing.T) {
	s := &schemas.Schema{Fields: []schemas.Field{{ID: 1, Name: "id", Type: schemas.Of(schemas.Long)}, {ID: 2, Name: "v", Type: schemas.Of(schemas.Long)}}}
	b := NewBatch(s)
	for i := range 5 {
		b.Cols[0].AppendInt(int64(i))
		if i%2 == 0 {
			b.Cols[1].AppendNull()
			image := NewColumn(s.Fields[0].Type)
			image.AppendInt(int64(100 + i))
			b.Carry(Carried{Row: i, Col: 1, From: b.WasKey([]int{0}, []Column{image})})
		}
		b.AppendEvent(Upsert, int64(i), 0, false)
	}
	b.Remove([]int{1, 2})
	if got := fmt.Sprint(b.Carries, b.Offsets); got != "[{0 1 0} {2 1 2}] [0 3 4]" || b.Was.Cols[0].Ints[b.Carries[1].From] != 104 {
		t.Fatal(got)
	}
	b.Truncate(2)
	if got := fmt.Sprint(b.Carries, b.Was.Len()); got != "[{0 1 0}] 1" {
		t.Fatal(got)
	}
	b.Reset()
	if len(b.Carries) != 0 || b.Was.Len() != 0 {
		t.Fatal("values are carried into no row")
	}
}
