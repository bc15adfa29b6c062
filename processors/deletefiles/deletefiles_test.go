package deletefiles

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/iceberg"
	"github.com/varve-io/varve/schemas/rows"
	"github.com/varve-io/varve/statestore/objstore"
)

// world is a table of a long, a string and a double: a, b, c.
type world struct {
	t       *testing.T
	store   *objstore.Mem
	f       Finder
	data    []Data
	deletes []*iceberg.Entry
	specs   map[int32]*schemas.Spec
}

var table = &schemas.Schema{Fields: []schemas.Field{
	{ID: 1, Name: "a", Type: schemas.Of(schemas.Long), Required: true}, {ID: 2, Name: "b", Type: schemas.Of(schemas.String)}, {ID: 3, Name: "c", Type: schemas.Of(schemas.Double)},
	{ID: 4, Name: "since", Type: schemas.Of(schemas.Long), InitialDefault: []byte("7")},
}}

func newWorld(t *testing.T) *world {
	w := &world{t: t, store: objstore.NewMem(), specs: map[int32]*schemas.Spec{0: {}}}
	w.f = Finder{
		Open: func(ctx context.Context, path string) (objstore.Object, error) {
			key, ok := w.store.Key(path)
			if !ok {
				t.Fatal(path)
			}
			return w.store.Open(ctx, key)
		},
		Schema: table, Spec: func(id int32) *schemas.Spec { return w.specs[id] },
	}
	return w
}

// ints is the table before its first column was widened.
var ints = &schemas.Schema{Fields: []schemas.Field{{ID: 1, Name: "a", Type: schemas.Of(schemas.Int)}}}

type value struct {
	a any // int64
	b any // string
	c any // float64
}

// put writes a file of columns a, b, c; a is an int where narrow says so.
func (w *world) put(name string, narrow bool, values ...value) (string, int64) {
	w.t.Helper()
	s := &schemas.Schema{Fields: slices.Clone(table.Fields[:3])}
	s.Fields[0].Required = false
	if narrow {
		s.Fields[0].Type = schemas.Of(schemas.Int)
	}
	b := rows.NewBatch(s)
	for _, v := range values {
		if v.a == nil {
			b.Cols[0].AppendNull()
		} else {
			b.Cols[0].AppendInt(int64(v.a.(int)))
		}
		if v.b == nil {
			b.Cols[1].AppendNull()
		} else {
			b.Cols[1].AppendBytes([]byte(v.b.(string)))
		}
		if v.c == nil {
			b.Cols[2].AppendNull()
		} else {
			b.Cols[2].AppendFloat(v.c.(float64))
		}
		b.AppendEvent(rows.Upsert, 0, 0, false)
	}
	var out bytes.Buffer
	if _, err := rows.Write(&out, rows.WriteOptions{Schema: s}, b, nil, rows.Extra{}); err != nil {
		w.t.Fatal(err)
	}
	if err := w.store.Create(w.t.Context(), name, out.Bytes()); err != nil {
		w.t.Fatal(err)
	}
	return w.store.Location(name), int64(len(values))
}

func (w *world) file(name string, sequence int64, spec int32, tuple string, narrow bool, values ...value) {
	w.t.Helper()
	path, n := w.put(name, narrow, values...)
	w.data = append(w.data, Data{
		File: &iceberg.DataFile{Path: path, Format: "PARQUET", Records: n, SpecID: spec, Partition: []byte(tuple)}, Sequence: sequence, Dead: roaring.New(),
	})
}

func (w *world) equal(name string, sequence int64, spec int32, tuple string, ids []int32, values ...value) {
	w.t.Helper()
	path, n := w.put(name, true, values...)
	w.deletes = append(w.deletes, &iceberg.Entry{Status: iceberg.Added, Sequence: &sequence, File: iceberg.DataFile{
		Content: iceberg.EqualityDeletes, Path: path, Format: "parquet", Records: n, SpecID: spec, Partition: []byte(tuple), EqualityIDs: ids,
	}})
}

func (w *world) dead(want map[string][]uint32) {
	w.t.Helper()
	for i := range w.data {
		d := &w.data[i]
		name := d.File.Path[strings.LastIndexByte(d.File.Path, '/')+1:]
		if got := d.Dead.ToArray(); !slices.Equal(got, want[name]) {
			w.t.Errorf("of %s the rows %v are dead, want %v", name, got, want[name])
		}
	}
}

// TestEquality (H15): an equality delete ends rows of earlier sequence numbers, of its
// partition or of any; a null is equal to a null, an int to a long, and a column that a
// file lacks has its default.
func TestEquality(t *testing.T) {
	for name, atOnce := range map[string]int{"at once": 0, "one by one": 1, "three at once": 3} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.f.atOnce = atOnce
			w.file("old", 1, 0, "", false, value{1, "x", 1.5}, value{2, nil, 1.5}, value{3, "x", nil}, value{1, "y", 2.5}, value{4, "", 0.0})
			w.file("narrow", 2, 0, "", true, value{2, "z", nil}, value{9, "x", nil})
			w.file("same", 5, 0, "", false, value{1, "x", 1.5})
			w.file("newer", 6, 0, "", false, value{1, "x", 1.5})
			w.file("part-p", 1, 1, "p", false, value{1, "x", 1.5}, value{5, "q", nil}, value{6, "q", nil})
			w.file("part-r", 1, 1, "r", false, value{5, "q", nil}, value{6, "r", nil})
			w.equal("by-a", 5, 0, "", []int32{1}, value{1, nil, nil}, value{77, nil, nil}, value{78, nil, nil}, value{79, nil, nil})
			w.equal("by-b", 3, 0, "", []int32{2}, value{0, nil, nil})
			w.equal("by-b-and-a", 3, 0, "", []int32{2, 1}, value{9, "x", nil}, value{3, "y", nil}, value{2, "z", nil})
			w.equal("by-a-earlier", 2, 0, "", []int32{1}, value{2, nil, nil})
			w.equal("in-p", 5, 1, "p", []int32{1}, value{5, nil, nil})
			w.equal("empty-string", 5, 0, "", []int32{2}, value{8, "", nil})
			if err := w.f.Find(t.Context(), w.deletes, w.data); err != nil {
				t.Fatal(err)
			}
			w.dead(map[string][]uint32{"old": {0, 1, 3, 4}, "narrow": {0, 1}, "part-p": {0, 1}})
		})
	}
}

// TestEqualityDefault: the data files lack the column, the delete file has it.
func TestEqualityDefault(t *testing.T) {
	for want, since := range map[bool]int64{true: 7, false: 8} {
		w := newWorld(t)
		w.file("old", 1, 0, "", false, value{1, "x", nil}, value{2, "x", nil})
		s := &schemas.Schema{Fields: table.Fields[3:]}
		b := rows.NewBatch(s)
		b.Cols[0].AppendInt(since)
		b.AppendEvent(rows.Upsert, 0, 0, false)
		var out bytes.Buffer
		if _, err := rows.Write(&out, rows.WriteOptions{Schema: s}, b, nil, rows.Extra{}); err != nil {
			t.Fatal(err)
		}
		if err := w.store.Create(t.Context(), "d", out.Bytes()); err != nil {
			t.Fatal(err)
		}
		two := int64(2)
		w.deletes = append(w.deletes, &iceberg.Entry{Sequence: &two, File: iceberg.DataFile{
			Content: iceberg.EqualityDeletes, Path: w.store.Location("d"), Format: "PARQUET", Records: 1, EqualityIDs: []int32{4},
		}})
		if err := w.f.Find(t.Context(), w.deletes, w.data); err != nil {
			t.Fatal(err)
		}
		if got := w.data[0].Dead.GetCardinality() == 2; got != want {
			t.Errorf("since %d: %d rows are dead", since, w.data[0].Dead.GetCardinality())
		}
	}
}

// TestRefused: what cannot be taken is said, with the file.
func TestRefused(t *testing.T) {
	for name, c := range map[string]struct {
		make func(w *world)
		want string
	}{
		"no columns":       {func(w *world) { w.equal("d", 2, 0, "", nil, value{1, nil, nil}) }, "/d deletes by equality, and its manifest does not say of which columns"},
		"an old column":    {func(w *world) { w.equal("d", 2, 0, "", []int32{9}, value{1, nil, nil}) }, "column with field id 9"},
		"a missing column": {func(w *world) { w.equal("d", 2, 0, "", []int32{4}, value{1, nil, nil}) }, `/d has no column "since"`},
		"other rows": {func(w *world) {
			w.equal("d", 2, 0, "", []int32{1}, value{1, nil, nil})
			w.deletes[0].File.Records = 2
		}, "/d has 1 rows, its manifest says 2"},
		"other rows of data": {func(w *world) {
			w.equal("d", 2, 0, "", []int32{1}, value{1, nil, nil})
			w.data[0].File.Records = 2
		}, "/a has 1 rows, its manifest says 2"},
		"another type": {func(w *world) { w.equal("d", 2, 0, "", []int32{1}, value{1, nil, nil}); w.f.Schema = ints }, `/a: it has the column "a" as long, which no int can hold`},
		"damaged": {func(w *world) {
			w.equal("d", 2, 0, "", []int32{1}, value{1, nil, nil})
			w.damage(w.deletes[0].File.Path)
		}, "/d: "},
		"damaged positions": {func(w *world) {
			w.at("d", 2, 0, "", "a", 0)
			w.damage(w.deletes[0].File.Path)
		}, "/d: "},
		"damaged data": {func(w *world) {
			w.equal("d", 2, 0, "", []int32{1}, value{1, nil, nil})
			w.damage(w.data[0].File.Path)
		}, "/a: "},
		"Avro": {func(w *world) {
			w.equal("d", 2, 0, "", []int32{1}, value{1, nil, nil})
			w.deletes[0].File.Format = "avro"
		}, "in the format avro"},
		"encrypted": {func(w *world) {
			w.equal("d", 2, 0, "", []int32{1}, value{1, nil, nil})
			w.deletes[0].File.KeyMetadata = []byte{1}
		}, "/d is encrypted"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.file("a", 1, 0, "", false, value{1, "x", nil})
			c.make(w)
			if err := w.f.Find(t.Context(), w.deletes, w.data); !errors.Is(err, ErrDeletes) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// TestScope (H15): a delete file from after a column was widened applies to the files
// of its partition from before; a partition spec whose fields were all dropped is none,
// and one that is not known is one.
func TestScope(t *testing.T) {
	w := newWorld(t)
	by := func(id, column, transform int) *schemas.Spec {
		return &schemas.Spec{ID: int32(id), Fields: []schemas.PartitionField{
			{SourceID: 2, FieldID: 1000, Transform: schemas.Identity}, {SourceID: int32(column), FieldID: int32(1000 + id), Transform: schemas.TransformKind(transform)},
		}}
	}
	w.specs[1], w.specs[2], w.specs[3] = by(1, 1, int(schemas.Identity)), by(2, 3, int(schemas.Identity)), &schemas.Spec{ID: 3, Fields: []schemas.PartitionField{
		{SourceID: 2, FieldID: 1000, Transform: schemas.Void}, {SourceID: 1, FieldID: 1001, Transform: schemas.Void},
	}}
	tuple := func(values ...[]byte) string { return string(schemas.EncodeTuple(values)) }
	minus, wide := []byte{0xfe, 0xff, 0xff, 0xff}, []byte{0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	half, double := []byte{0, 0, 0, 0x3f}, []byte{0, 0, 0, 0, 0, 0, 0xe0, 0x3f}
	name := []byte("four") // of a string, which stays as it is
	v := []value{{-2, "four", 0.5}, {1, "four", 0.5}}
	w.file("narrow", 1, 1, tuple(name, minus), true, v...)
	w.file("wide", 1, 1, tuple(name, wide), false, v...)
	w.file("other", 1, 1, tuple(name, []byte{1, 0, 0, 0}), false, v...)
	w.file("null", 1, 1, tuple(name, nil), false, v...)
	w.file("half", 1, 2, tuple(name, half), false, v...)
	w.file("by-position", 1, 2, tuple(nil, half), false, v...)
	w.file("unknown", 1, 9, "x", false, v...)
	w.file("newest", 8, 3, tuple(nil, nil), false, v...)
	w.equal("d-long", 5, 1, tuple(name, wide), []int32{1}, value{-2, nil, nil})
	w.equal("d-null", 5, 1, tuple(name, nil), []int32{1}, value{1, nil, nil})
	w.equal("d-double", 5, 2, tuple(name, double), []int32{1}, value{1, nil, nil})
	w.equal("d-unknown", 5, 9, "x", []int32{1}, value{1, nil, nil})
	w.at("d-position", 5, 2, tuple(nil, double), "by-position", 0)
	find := func(want map[string][]uint32) {
		t.Helper()
		if err := w.f.Find(t.Context(), w.deletes, w.data); err != nil {
			t.Fatal(err)
		}
		w.dead(want)
	}
	find(map[string][]uint32{"narrow": {0}, "wide": {0}, "null": {1}, "half": {1}, "by-position": {0}, "unknown": {1}})
	w.equal("d-void", 6, 3, tuple(nil, nil), []int32{1}, value{1, nil, nil})
	all := []uint32{0, 1}
	find(map[string][]uint32{"narrow": all, "wide": all, "other": {1}, "null": {1}, "half": {1}, "by-position": all, "unknown": {1}})
}

// at adds a position-delete file of one row of a file.
func (w *world) at(name string, sequence int64, spec int32, tuple, of string, pos int64) {
	w.t.Helper()
	s := &schemas.Schema{Fields: []schemas.Field{Path, Position}}
	b := rows.NewBatch(s)
	b.Cols[0].AppendBytes([]byte(w.store.Location(of)))
	b.Cols[1].AppendInt(pos)
	b.AppendEvent(rows.Upsert, 0, 0, false)
	var out bytes.Buffer
	if _, err := rows.Write(&out, rows.WriteOptions{Schema: s}, b, nil, rows.Extra{}); err != nil {
		w.t.Fatal(err)
	}
	if err := w.store.Create(w.t.Context(), name, out.Bytes()); err != nil {
		w.t.Fatal(err)
	}
	w.deletes = append(w.deletes, &iceberg.Entry{Status: iceberg.Added, Sequence: &sequence, File: iceberg.DataFile{
		Content: iceberg.PositionDeletes, Path: w.store.Location(name), Format: "parquet", Records: 1, SpecID: spec, Partition: []byte(tuple),
	}})
}

// damage spoils the pages of a file, whose footer stays as it is.
func (w *world) damage(path string) {
	w.t.Helper()
	key, _ := w.store.Key(path)
	object, err := w.store.Open(w.t.Context(), key)
	if err != nil {
		w.t.Fatal(err)
	}
	text := make([]byte, object.Size())
	if _, err := object.ReadAt(text, 0); err != nil {
		w.t.Fatal(err)
	}
	for i := 4; i < 24; i++ {
		text[i] ^= 0xff
	}
	if err := w.store.Delete(w.t.Context(), key); err != nil {
		w.t.Fatal(err)
	}
	if err := w.store.Create(w.t.Context(), key, text); err != nil {
		w.t.Fatal(err)
	}
}
