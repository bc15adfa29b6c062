package rows

import (
	"bytes"
	"slices"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/varve-io/varve/schemas"
)

// T3: columns of another writer's file, which has no field ids, are found by
// their names; what no field has the name of is told.
func TestMapNames(t *testing.T) {
	type inner struct {
		ID int64 `parquet:"id"`
	}
	type row struct {
		ID    int64  `parquet:"id"`
		Name  string `parquet:"name"`
		More  int64  `parquet:"more"`
		Inner inner  `parquet:"inner"`
	}
	var out bytes.Buffer
	w := parquet.NewGenericWriter[row](&out)
	if _, err := w.Write([]row{{7, "a", 1, inner{70}}, {8, "b", 2, inner{80}}}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := Open(bytes.NewReader(out.Bytes()), int64(out.Len()))
	if err != nil {
		t.Fatal(err)
	}
	fields := []schemas.Field{{ID: 5, Name: "name", Type: schemas.Of(schemas.String)}, {ID: 3, Name: "id", Type: schemas.Of(schemas.Long)}}
	unknown := f.MapNames(fields)
	slices.Sort(unknown)
	if !slices.Equal(unknown, []string{"id", "more"}) {
		t.Errorf("unknown columns %q", unknown)
	}
	cols, err := f.Read(fields)
	if err != nil {
		t.Fatal(err)
	}
	if string(cols[0].BytesAt(1)) != "b" || !slices.Equal(cols[1].Ints, []int64{7, 8}) {
		t.Errorf("read %q, %v", cols[0].BytesAt(1), cols[1].Ints)
	}
	if f.MapNames(fields) != nil || len(f.Columns()) != 2 {
		t.Errorf("columns %+v", f.Columns())
	}
}
