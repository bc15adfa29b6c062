package topology

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/varve-io/varve/schemas"
)

// Files with INT96, milliseconds and bytes without an annotation fit the columns that
// can be read from them, and no others.
func TestCheckImportOfForeignTimes(t *testing.T) {
	check := func(name string, local schemas.Kind) error {
		of := func(id int32, name string, k schemas.Kind) schemas.Field {
			return schemas.Field{ID: id, Name: name, Type: schemas.Of(k)}
		}
		nest := schemas.Field{ID: 5, Name: "nest", Type: schemas.NestedOf(schemas.Struct, []schemas.Field{of(6, "at", schemas.Timestamp)})}
		d := &schemas.Definition{Name: "t", LastColumnID: 8, Schemas: []schemas.Schema{{Fields: []schemas.Field{
			of(1, "id", schemas.Long), of(2, "local", local), of(3, "zoned", schemas.TimestampTz), of(4, "clock", schemas.Time), nest,
			of(7, "bytes", schemas.String), of(8, "sixteen", schemas.UUID),
		}}}}
		raw, err := os.ReadFile(filepath.Join("..", "schemas", "rows", "testdata", "foreigntimes", name))
		if err != nil {
			t.Fatal(err)
		}
		_, err = CheckImport(d, &ImportFile{Name: name, Size: int64(len(raw)), ReaderAt: bytes.NewReader(raw)})
		return err
	}
	for _, c := range []struct {
		name string
		kind schemas.Kind
		ok   bool
	}{
		{"int96-plain.parquet", schemas.Timestamp, true}, {"int96-plain.parquet", schemas.TimestampTz, true}, {"int96-plain.parquet", schemas.Long, false},
		{"millis-dict.parquet", schemas.Timestamp, true}, {"millis-dict.parquet", schemas.TimestampTz, false}, {"millis-dict.parquet", schemas.Long, false},
	} {
		err := check(c.name, c.kind)
		if (err == nil) != c.ok || !c.ok && !strings.Contains(err.Error(), "can hold") {
			t.Errorf("%s as %s: %v", c.name, schemas.Of(c.kind), err)
		}
	}
}
