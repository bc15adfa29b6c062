package adopt

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/iceberg"
	"github.com/varve-io/varve/schemas/rows"
)

func column(id int32, name string, kind schemas.Kind) schemas.Field {
	return schemas.Field{ID: id, Name: name, Type: schemas.Of(kind)}
}

// ours is a keyed table: by default by bucket of the key, once not partitioned.
func ours(fields ...schemas.Field) *schemas.Definition {
	if fields == nil {
		fields = []schemas.Field{column(1, "id", schemas.Long), column(2, "name", schemas.String), column(3, "n", schemas.Long)}
	}
	fields[0].Required = true
	return &schemas.Definition{
		Name: "t", LastColumnID: 9, Schemas: []schemas.Schema{{Fields: fields, Identifier: []int32{1}}}, Key: []int32{1},
		Specs: []schemas.Spec{{}, {ID: 1, Fields: []schemas.PartitionField{{SourceID: 1, FieldID: 1000, Name: "b", Transform: schemas.Bucket, N: 4}}}}, DefaultSpec: 1,
	}
}

// parquet puts a data file of two rows, of these columns, into the table.
func (w *world) parquet(name string, spec int32, tuple []byte, extra rows.Extra, fields ...schemas.Field) *File {
	w.t.Helper()
	s := &schemas.Schema{Fields: fields}
	b := rows.NewBatch(s)
	for i := range 2 {
		for j := range fields {
			switch rows.StorageOf(fields[j].Type) {
			case rows.Ints:
				b.Cols[j].AppendInt(int64(i + 1))
			case rows.Floats:
				b.Cols[j].AppendFloat(float64(i))
			default:
				b.Cols[j].AppendBytes([]byte{'a' + byte(i)})
			}
		}
		b.AppendEvent(rows.Upsert, 0, 0, false)
	}
	var out bytes.Buffer
	if _, err := rows.Write(&out, rows.WriteOptions{Schema: s}, b, nil, extra); err != nil {
		w.t.Fatal(err)
	}
	w.table.Files = append(w.table.Files, File{DataFile: iceberg.DataFile{
		Path: w.put(name, out.Bytes()), Format: "parquet", Records: 2, Bytes: int64(out.Len()), SpecID: spec, Partition: tuple,
		ColumnSizes: []iceberg.IDCount{{ID: 1, Count: 9}, {ID: 3, Count: 9}, {ID: 9, Count: 9}},
		ValueCounts: []iceberg.IDCount{{ID: 1, Count: 2}, {ID: 3, Count: 2}, {ID: 9, Count: 2}},
		NullCounts:  []iceberg.IDCount{{ID: 1, Count: 0}, {ID: 3, Count: 0}, {ID: 9, Count: 0}},
		Lower:       []iceberg.IDBytes{{ID: 1, Value: []byte{1, 0, 0, 0, 0, 0, 0, 0}}, {ID: 3, Value: []byte{255, 255, 255, 255}}},
	}, Dead: roaring.New()})
	return &w.table.Files[len(w.table.Files)-1]
}

// nulls puts a data file of two rows into the table, the key of one of them null. Its
// manifest counts no nulls.
func (w *world) nulls(name string, row int) {
	w.t.Helper()
	s := &schemas.Schema{Fields: []schemas.Field{column(1, "id", schemas.Long)}}
	b := rows.NewBatch(s)
	for i := range 2 {
		if i == row {
			b.Cols[0].AppendNull()
		} else {
			b.Cols[0].AppendInt(int64(i))
		}
		b.AppendEvent(rows.Upsert, 0, 0, false)
	}
	var out bytes.Buffer
	if _, err := rows.Write(&out, rows.WriteOptions{Schema: s}, b, nil, rows.Extra{}); err != nil {
		w.t.Fatal(err)
	}
	w.table.Files = append(w.table.Files, File{DataFile: iceberg.DataFile{Path: w.put(name, out.Bytes()), Format: "parquet", Records: 2, Bytes: int64(out.Len())}, Dead: roaring.New()})
}

// damaged puts a data file into the table of which only the footer is whole.
func (w *world) damaged(name string, fields ...schemas.Field) {
	w.t.Helper()
	f := w.parquet("whole", 0, nil, rows.Extra{}, fields...)
	key, _ := w.store.Key(f.Path)
	b, err := w.store.ReadAll(w.t.Context(), key, f.Bytes)
	if err != nil {
		w.t.Fatal(err)
	}
	b = bytes.Clone(b)
	footer := len(b) - 8 - int(binary.LittleEndian.Uint32(b[len(b)-8:]))
	for i := 4; i < footer; i++ {
		b[i] ^= 0x5a
	}
	f.Path = w.put(name, b)
}

// TestCheck: files of a partition that the table has had, or of none, are taken with
// what their manifests say of the table's columns; files without a live row are not.
func TestCheck(t *testing.T) {
	w := newWorld(t)
	fields := []schemas.Field{column(1, "id", schemas.Long), column(2, "name", schemas.String), column(3, "n", schemas.Int)}
	w.table.Schema = &schemas.Schema{Fields: fields}
	w.table.specs[0] = &schemas.Spec{}
	// Terms in another order, with one that was dropped, and of another partitioning.
	w.table.specs[7] = &schemas.Spec{ID: 7, Fields: []schemas.PartitionField{
		{SourceID: 3, FieldID: 1001, Name: "x", Transform: schemas.Void}, {SourceID: 1, FieldID: 1002, Name: "y", Transform: schemas.Bucket, N: 4}}}
	w.table.specs[8] = &schemas.Spec{ID: 8, Fields: []schemas.PartitionField{{SourceID: 2, FieldID: 1003, Name: "name", Transform: schemas.Identity}}}
	three := []byte{3, 0, 0, 0}
	w.parquet("plain", 0, nil, rows.Extra{}, fields...).Dead.Add(1)
	w.parquet("bucket", 7, schemas.EncodeTuple([][]byte{nil, three}), rows.Extra{}, fields...)
	w.parquet("name=a/other", 8, schemas.EncodeTuple([][]byte{[]byte("a")}), rows.Extra{}, fields...)
	w.parquet("dead", 0, nil, rows.Extra{}, fields...).Dead.AddMany([]uint32{0, 1})
	w.parquet("fewer", 0, nil, rows.Extra{}, fields[0], column(9, "gone", schemas.Long))
	w.data("dead and gone", 2, 1, nil)
	w.table.Files[5].Dead.AddMany([]uint32{0, 1})
	fit, err := w.table.Check(t.Context(), ours(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(fit.Refused) > 0 || len(fit.Items) != 4 || fit.Rows != 8 || fit.Dead != 1 || fit.Empty != 2 {
		t.Fatalf("got %+v", fit)
	}
	for i, want := range []struct {
		spec  int32
		tuple []byte
		dead  bool
	}{{0, nil, true}, {1, schemas.EncodeTuple([][]byte{three}), false}, {0, nil, false}, {0, nil, false}} {
		if x := &fit.Items[i]; x.SpecID != want.spec || !bytes.Equal(x.Partition, want.tuple) || (len(x.Dead) > 0) != want.dead {
			t.Errorf("%s: got %+v, want %+v", x.Path, x, want)
		}
	}
	m := fit.Metrics[0]
	if len(m.Columns) != 2 || m.Columns[0].FieldID != 1 || m.Columns[1].FieldID != 3 || !m.Columns[1].HasLower ||
		!bytes.Equal(m.Columns[1].Lower, []byte{255, 255, 255, 255, 255, 255, 255, 255}) || m.Columns[1].HasUpper || m.Columns[1].NaNs != -1 {
		t.Errorf("got metrics %+v", m)
	}
}

// TestCheckRefused: each file that cannot be read as the table's is refused, and why.
func TestCheckRefused(t *testing.T) {
	id, name := column(1, "id", schemas.Long), column(2, "name", schemas.String)
	for what, c := range map[string]struct {
		make func(w *world)
		want string
	}{
		"another type":   {func(w *world) { w.parquet("a", 0, nil, rows.Extra{}, id, column(3, "n", schemas.Double)) }, `its column "n" is a double, which no long can hold`},
		"no key":         {func(w *world) { w.parquet("a", 0, nil, rows.Extra{}, name) }, `it has no column "id"`},
		"dropped before": {func(w *world) { w.parquet("a", 0, nil, rows.Extra{}, id, column(4, "old", schemas.Long)) }, `"old" has the field id 4, which was another column`},
		"row ids":        {func(w *world) { w.parquet("a", 0, nil, rows.Extra{RowID: []int64{5, 6}, LastSeq: []int64{1, 1}}, id) }, "a column _row_id"},
		"no Parquet":     {func(w *world) { w.data("a", 2, 1, nil); w.put("a", []byte("nothing that one could read")) }, "bytes"},
		"ORC":            {func(w *world) { w.parquet("a", 0, nil, rows.Extra{}, id).Format = "ORC" }, "it is a ORC file"},
		"rows":           {func(w *world) { w.parquet("a", 0, nil, rows.Extra{}, id).Records = 3 }, "it has 2 rows, its manifest says 3"},
		"bytes":          {func(w *world) { w.parquet("a", 0, nil, rows.Extra{}, id).Bytes++ }, "its manifest says"},
		"spec":           {func(w *world) { w.parquet("a", 5, nil, rows.Extra{}, id) }, "partitioned by spec 5"},
		"keys that are null": {func(w *world) {
			w.parquet("a", 0, nil, rows.Extra{}, id).NullCounts = []iceberg.IDCount{{ID: 1, Count: 1}}
		}, `1 of its rows have no "id"`},
		"a column to come":                   {func(w *world) { w.parquet("a", 0, nil, rows.Extra{}, id, column(10, "gone", schemas.Long)) }, `"gone" has the field id 10, which a new column`},
		"a key that is null and not counted": {func(w *world) { w.nulls("a", 1) }, `1 of its rows have no "id"`},
		"a dead key that is null":            {func(w *world) { w.nulls("a", 1); w.table.Files[0].Dead.Add(1) }, `1 of its rows have no "id"`},
		"a damaged page":                     {func(w *world) { w.damaged("a", id, name) }, "its key or ordering value cannot be read"},
		"no row, it says":                    {func(w *world) { w.parquet("a", 0, nil, rows.Extra{}, id).Records = 0 }, "it has 2 rows, its manifest says 0"},
		"dead, it says": {func(w *world) {
			f := w.parquet("a", 0, nil, rows.Extra{}, id)
			f.Records = 1
			f.Dead.Add(0)
		}, "it has 2 rows, its manifest says 1"},
		"lost":      {func(w *world) { w.data("a", 2, 1, nil) }, "is not there"},
		"elsewhere": {func(w *world) { w.data("a", 2, 1, nil); w.table.Files[0].Path = "s3://elsewhere/a" }, "does not lie in the warehouse"},
		"in its partition alone": {func(w *world) {
			w.table.specs[8] = &schemas.Spec{ID: 8, Fields: []schemas.PartitionField{{SourceID: 2, FieldID: 1003, Name: "name", Transform: schemas.Identity}}}
			w.parquet("a", 8, schemas.EncodeTuple([][]byte{[]byte("a")}), rows.Extra{}, id)
		}, "stands in its partition alone"},
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t)
			w.table.Schema = &schemas.Schema{Fields: []schemas.Field{id, name, column(3, "n", schemas.Long)}}
			w.table.specs[0] = &schemas.Spec{}
			c.make(w)
			fit, err := w.table.Check(t.Context(), ours(id, name, column(3, "n", schemas.Long), column(4, "new", schemas.Long)), nil)
			if err != nil {
				t.Fatal(err)
			}
			if len(fit.Items) > 0 || len(fit.Refused) != 1 || !strings.Contains(fit.Refused[0].Why.Error(), c.want) {
				t.Errorf("got %+v, want %q", fit, c.want)
			}
		})
	}
}

// TestColumnsRefused: a field id means one column.
func TestColumnsRefused(t *testing.T) {
	id := column(1, "id", schemas.Long)
	with := column(2, "name", schemas.String)
	with.InitialDefault = []byte(`"x"`)
	for _, c := range []struct {
		theirs []schemas.Field
		want   string
	}{
		{[]schemas.Field{id, column(2, "other", schemas.String)}, `its column "other" has the field id 2`},
		{[]schemas.Field{id, column(9, "name", schemas.String)}, `its column "name" has the field id 9`},
		{[]schemas.Field{column(1, "id", schemas.String)}, "is a string, which no long can hold"},
		{[]schemas.Field{id, with}, "another initial default"},
		{[]schemas.Field{column(2, "name", schemas.String)}, `it has no column "id", which table t requires`},
	} {
		w := newWorld(t)
		w.table.Schema = &schemas.Schema{Fields: c.theirs}
		if _, err := w.table.Check(t.Context(), ours(), nil); !errors.Is(err, ErrTable) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
}

// TestMetadataOf: the newest metadata file of a folder is found, whoever named it.
func TestMetadataOf(t *testing.T) {
	w := newWorld(t)
	find := func(location string) (string, error) { return metadataOf(t.Context(), w.store, location) }
	if _, err := find(w.store.Location("t")); !errors.Is(err, ErrTable) {
		t.Errorf("an empty folder: %v", err)
	}
	for _, name := range []string{"t/metadata/00009-a.metadata.json", "t/metadata/00010-b.metadata.json", "t/metadata/snap-99.avro", "t/metadata/x.metadata.json", "tt/metadata/v99.metadata.json"} {
		w.put(name, []byte(name))
	}
	if got, err := find(w.store.Location("t") + "/"); err != nil || got != w.store.Location("t/metadata/00010-b.metadata.json") {
		t.Errorf("got %s, %v", got, err)
	}
	w.put("t/metadata/v10.metadata.json", []byte("{}"))
	if _, err := find(w.store.Location("t")); !errors.Is(err, ErrTable) || !strings.Contains(err.Error(), "several") {
		t.Errorf("two of one version: %v", err)
	}
	// Packed ones, named in the two ways that there are, and by a catalog in a folder.
	for _, name := range []string{"z/metadata/00001-a.metadata.json", "z/metadata/00002-b.gz.metadata.json"} {
		w.put(name, nil)
	}
	for _, name := range []string{"z/metadata/00002-b.gz.metadata.json", "z/metadata/v3.gz.metadata.json", "z/metadata/00004-c.metadata.json.gz"} {
		if name != "z/metadata/00002-b.gz.metadata.json" {
			w.put(name, nil)
		}
		if got, err := find(w.store.Location("z")); err != nil || got != w.store.Location(name) {
			t.Errorf("got %s, %v, want %s", got, err, name)
		}
		if got, err := find(w.store.Location(name)); err != nil || got != w.store.Location(name) {
			t.Errorf("got %s, %v, want %s", got, err, name)
		}
	}
	if _, err := find("s3://elsewhere/t"); !errors.Is(err, ErrTable) {
		t.Errorf("elsewhere: %v", err)
	}
	if _, err := Read(t.Context(), w.store, What{Location: w.store.Location("lost.metadata.json")}); !errors.Is(err, ErrTable) {
		t.Errorf("a lost one: %v", err)
	}
}

// TestPackedMetadata: a metadata file may be packed, and what it holds is bounded.
func TestPackedMetadata(t *testing.T) {
	packed := func(b []byte) []byte {
		var out bytes.Buffer
		z := gzip.NewWriter(&out)
		if _, err := z.Write(b); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	w := newWorld(t)
	at := w.put("t/metadata/v1.gz.metadata.json", packed([]byte(`{"format-version":2,"table-uuid":"u","location":"file:///t","last-sequence-number":0,"last-updated-ms":5,"last-column-id":1,
 "schemas":[{"schema-id":0,"type":"struct","fields":[{"id":1,"name":"id","type":"long","required":true}]}],"current-schema-id":0,"partition-specs":[{"spec-id":0,"fields":[]}],"default-spec-id":0}`)))
	if got, err := Read(t.Context(), w.store, What{Location: w.store.Location("t")}); err != nil || got.Metadata != at || got.UUID != "u" || len(got.Schema.Fields) != 1 {
		t.Errorf("got %+v, %v", got, err)
	}
	b := packed(make([]byte, 1000))
	if got, err := unzipped(b, 1000); err != nil || len(got) != 1000 {
		t.Errorf("got %d bytes, %v", len(got), err)
	}
	for what, b := range map[string][]byte{"more than is read": packed(make([]byte, 1001)), "cut short": b[:len(b)-9], "no gzip": {0x1f, 0x8b}} {
		if got, err := unzipped(b, 1000); err == nil {
			t.Errorf("%s: got %d bytes", what, len(got))
		}
	}
}

// TestChoose: which snapshot is meant, and by which schema it is read.
func TestChoose(t *testing.T) {
	meta, err := iceberg.ParseOldMetadata([]byte(`{"format-version":2,"table-uuid":"u","location":"file:///t","last-sequence-number":3,"last-updated-ms":5,"last-column-id":2,
 "schemas":[{"schema-id":0,"type":"struct","fields":[]},{"schema-id":1,"type":"struct","fields":[]}],"current-schema-id":1,"partition-specs":[{"spec-id":0,"fields":[]}],"default-spec-id":0,
 "current-snapshot-id":13,"refs":{"main":{"snapshot-id":13,"type":"branch"},"side":{"snapshot-id":12,"type":"branch"},"tag":{"snapshot-id":11,"type":"tag"}},
 "snapshots":[{"snapshot-id":11,"sequence-number":1,"timestamp-ms":1,"schema-id":0,"manifest-list":"l"},{"snapshot-id":12,"sequence-number":2,"timestamp-ms":2,"schema-id":0,"manifest-list":"l"},
  {"snapshot-id":13,"sequence-number":3,"timestamp-ms":3,"manifest-list":"l"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what         What
		id, schemaID int64
	}{
		{What{}, 13, 1}, {What{Ref: "main"}, 13, 1}, {What{Ref: "side"}, 12, 1}, {What{Ref: "tag"}, 11, 0}, {What{Snapshot: 12}, 12, 0}, {What{Snapshot: 13}, 13, 1},
	} {
		s, schemaID, err := choose(meta, c.what)
		if err != nil || s.ID != c.id || schemaID != c.schemaID {
			t.Errorf("%+v: %+v, %d, %v", c.what, s, schemaID, err)
		}
	}
	for _, what := range []What{{Ref: "gone"}, {Snapshot: 9}} {
		if _, _, err := choose(meta, what); err == nil {
			t.Errorf("%+v is found", what)
		}
	}
	meta.CurrentSnapshot, meta.Refs = nil, nil
	if s, schemaID, err := choose(meta, What{}); s != nil || schemaID != 1 || err != nil {
		t.Errorf("an empty table: %+v, %d, %v", s, schemaID, err)
	}
}

// TestCheckConverted: files whose instants are INT96 or milliseconds are taken, but not
// the bounds of these, which writers have taken from the numbers as they are stored.
func TestCheckConverted(t *testing.T) {
	w := newWorld(t)
	fields := []schemas.Field{
		column(1, "id", schemas.Long), column(2, "local", schemas.Timestamp), column(3, "zoned", schemas.TimestampTz), column(4, "clock", schemas.Time),
		column(7, "bytes", schemas.String), column(8, "sixteen", schemas.UUID),
	}
	w.table.Schema, w.table.specs[0] = &schemas.Schema{Fields: fields}, &schemas.Spec{}
	for _, name := range []string{"int96-dict.parquet", "millis-dict.parquet"} {
		raw, err := os.ReadFile(filepath.Join("..", "..", "schemas", "rows", "testdata", "foreigntimes", name))
		if err != nil {
			t.Fatal(err)
		}
		counts := func(n int64) []iceberg.IDCount {
			return []iceberg.IDCount{{ID: 1, Count: n}, {ID: 2, Count: n}, {ID: 3, Count: n}}
		}
		eight := []byte{1, 0, 0, 0, 0, 0, 0, 0}
		bounds := func() []iceberg.IDBytes {
			return []iceberg.IDBytes{{ID: 1, Value: eight}, {ID: 2, Value: eight}, {ID: 3, Value: eight}}
		}
		w.table.Files = append(w.table.Files, File{DataFile: iceberg.DataFile{
			Path: w.put(name, raw), Format: "parquet", Records: 10, Bytes: int64(len(raw)),
			ColumnSizes: counts(9), ValueCounts: counts(10), NullCounts: counts(0), Lower: bounds(), Upper: bounds(),
		}, Dead: roaring.New()})
	}
	d := ours(fields...)
	fit, err := w.table.Check(t.Context(), d, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(fit.Refused) > 0 || len(fit.Items) != 2 {
		t.Fatalf("got %+v", fit)
	}
	for _, m := range fit.Metrics {
		if len(m.Columns) != 3 {
			t.Fatalf("got metrics %+v", m)
		}
		for _, c := range m.Columns {
			if own := c.FieldID == 1; c.HasLower != own || c.HasUpper != own || c.Values != 10 {
				t.Errorf("got metrics %+v", c)
			}
		}
	}
	// A date is none of them.
	d.Schemas[0].Fields[1].Type, w.table.Schema.Fields[1].Type = schemas.Of(schemas.Date), schemas.Of(schemas.Date)
	if fit, err = w.table.Check(t.Context(), d, nil); err != nil || len(fit.Refused) != 2 || !strings.Contains(fit.Refused[0].Why.Error(), "which no date can hold") {
		t.Errorf("got %+v, %v", fit, err)
	}
}
