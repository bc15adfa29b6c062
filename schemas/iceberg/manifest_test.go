package iceberg

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/linkedin/goavro/v2"

	"github.com/varve-io/varve/schemas"
)

func ptr[T any](v T) *T { return &v }

var unpartitioned = &schemas.Spec{}

// everySpec has a field of every type that a partition can have, with names
// that Avro does not accept.
func everySpec() (*schemas.Spec, []schemas.Type, [][]byte) {
	types := []schemas.Type{
		schemas.Of(schemas.Boolean), schemas.Of(schemas.Int), schemas.Of(schemas.Long), schemas.Of(schemas.Float),
		schemas.Of(schemas.Double), schemas.DecimalOf(9, 2), schemas.Of(schemas.Date), schemas.Of(schemas.Time),
		schemas.Of(schemas.Timestamp), schemas.Of(schemas.TimestampTz), schemas.Of(schemas.TimestampNs),
		schemas.Of(schemas.TimestampTzNs), schemas.Of(schemas.String), schemas.Of(schemas.UUID), schemas.FixedOf(3),
		schemas.Of(schemas.Binary), schemas.Of(schemas.UUID), schemas.DecimalOf(9, 2), schemas.DecimalOf(38, 0),
	}
	values := [][]byte{
		{1}, le4(-5), le8(1 << 40), le4(int32(math.Float32bits(1.5))), le8(int64(math.Float64bits(-2.5))), {0xff, 0x38},
		le4(19782), le8(1), le8(-1), le8(1_709_211_845_000_001), le8(2), le8(3), []byte("Grüße"),
		bytes.Repeat([]byte{0xab}, 16), {1, 2, 3}, {}, bytes.Repeat([]byte{1}, 16), {0}, {0x80},
	}
	spec := &schemas.Spec{ID: 7}
	for i := range types {
		spec.Fields = append(spec.Fields, schemas.PartitionField{
			SourceID: int32(i + 1), FieldID: int32(1000 + i), Name: fmt.Sprintf("%d of ü-€", i), Transform: schemas.Identity})
	}
	spec.Fields[1].Name, spec.Fields[2].Name = "a b", "a_x20b" // the same once they are made Avro names
	return spec, types, values
}

func tupleOf(values ...[]byte) []byte { return schemas.EncodeTuple(values) }

func le4(v int32) []byte { return binary.LittleEndian.AppendUint32(nil, uint32(v)) }
func le8(v int64) []byte { return binary.LittleEndian.AppendUint64(nil, uint64(v)) }

func dataFile(path string, spec *schemas.Spec, tuple []byte) DataFile {
	return DataFile{
		Path: path, Format: FormatParquet, SpecID: spec.ID, Partition: tuple, Records: 10, Bytes: 4000,
		ColumnSizes: []IDCount{{1, 100}, {2, 200}}, ValueCounts: []IDCount{{1, 10}, {2, 10}},
		NullCounts: []IDCount{{1, 0}, {2, 3}}, NaNCounts: []IDCount{},
		Lower: []IDBytes{{1, le8(-1)}, {2, []byte("a")}}, Upper: []IDBytes{{1, le8(9)}, {2, []byte{}}},
		SplitOffsets: []int64{4, 2000}, SortOrderID: ptr(int32(1)),
	}
}

func vectorFile(path, of string, spec *schemas.Spec, tuple []byte) DataFile {
	return DataFile{
		Content: PositionDeletes, Path: path, Format: FormatPuffin, SpecID: spec.ID, Partition: tuple, Records: 3, Bytes: 300,
		ReferencedDataFile: ptr(of), ContentOffset: ptr(int64(4)), ContentSize: ptr(int64(50)),
	}
}

const testSchema = `{"type":"struct","schema-id":0,"fields":[{"id":1,"name":"id","required":true,"type":"long"},{"id":2,"name":"v","required":false,"type":"string"}]}`

func manifestOptions(spec *schemas.Spec, types []schemas.Type, c Content) ManifestOptions {
	return ManifestOptions{SchemaJSON: []byte(testSchema), Spec: spec, PartitionTypes: types, Content: c, SnapshotID: 900, Sequence: 12}
}

func dataEntries(spec *schemas.Spec, tuple []byte) []Entry {
	kept := dataFile("file:///t/data/kept.parquet", spec, tuple)
	kept.FirstRowID = ptr(int64(70))
	gone := dataFile("file:///t/data/gone.parquet", spec, tuple)
	gone.FirstRowID = ptr(int64(80))
	plain := DataFile{Path: "file:///t/data/plain.parquet", Format: FormatParquet, SpecID: spec.ID, Partition: tuple, Records: 5, Bytes: 77}
	return []Entry{
		{Status: Added, SnapshotID: ptr(int64(900)), File: dataFile("file:///t/data/new.parquet", spec, tuple)},
		{Status: Added, SnapshotID: ptr(int64(900)), Sequence: ptr(int64(9)), File: plain},
		{Status: Existing, SnapshotID: ptr(int64(800)), Sequence: ptr(int64(10)), FileSequence: ptr(int64(11)), File: kept},
		{Status: Deleted, SnapshotID: ptr(int64(900)), Sequence: ptr(int64(3)), FileSequence: ptr(int64(3)), File: gone},
	}
}

// What is written is read, in every partition type, and the counts of the list
// follow from the entries (M2, M4).
func TestManifestRoundTrip(t *testing.T) {
	spec, types, values := everySpec()
	for _, c := range []struct {
		name  string
		spec  *schemas.Spec
		types []schemas.Type
		tuple []byte
	}{
		{"unpartitioned", unpartitioned, nil, nil},
		{"every type", spec, types, schemas.EncodeTuple(values)},
		{"all null", spec, types, schemas.EncodeTuple(make([][]byte, len(types)))},
	} {
		t.Run(c.name, func(t *testing.T) {
			entries := dataEntries(c.spec, c.tuple)
			b, stats, err := WriteManifest(manifestOptions(c.spec, c.types, Data), entries)
			if err != nil {
				t.Fatal(err)
			}
			again, _, _ := WriteManifest(manifestOptions(c.spec, c.types, Data), entries)
			if !bytes.Equal(b, again) {
				t.Error("two writes gave different bytes")
			}
			m, err := ReadManifest(b)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(m.Entries, entries) {
				t.Errorf("read\n%+v\nwant\n%+v", m.Entries, entries)
			}
			if m.FormatVersion != 3 || m.Content != Data || m.SpecID != c.spec.ID || string(m.SchemaJSON) != testSchema {
				t.Errorf("header: version %d, content %d, spec %d, schema %s", m.FormatVersion, m.Content, m.SpecID, m.SchemaJSON)
			}
			f := stats.File
			if f.AddedFiles != 2 || f.ExistingFiles != 1 || f.DeletedFiles != 1 || f.AddedRows != 15 || f.ExistingRows != 10 || f.DeletedRows != 10 {
				t.Errorf("counts %+v", f)
			}
			if f.MinSequence != 9 { // the deleted entry's 3 does not count
				t.Errorf("lowest sequence number %d, want 9", f.MinSequence)
			}
			if stats.NewRowIDs != 15 { // both added; the kept one has its own
				t.Errorf("%d new row ids, want 15", stats.NewRowIDs)
			}
			if f.Length != int64(len(b)) || f.Sequence != 12 || f.AddedSnapshotID != 900 {
				t.Errorf("line %+v", f)
			}
			wantAvro(t, b, len(entries))
		})
	}
}

// wantAvro reads a container with a library that knows nothing of Iceberg.
func wantAvro(t *testing.T, b []byte, records int) []any {
	t.Helper()
	r, err := goavro.NewOCFReader(bytes.NewReader(b))
	if err != nil {
		t.Fatalf("goavro: %v", err)
	}
	var out []any
	for r.Scan() {
		v, err := r.Read()
		if err != nil {
			t.Fatalf("goavro: %v", err)
		}
		out = append(out, v)
	}
	if r.Err() != nil || len(out) != records {
		t.Fatalf("goavro: %d records, want %d; %v", len(out), records, r.Err())
	}
	return out
}

func TestDeleteManifestRoundTrip(t *testing.T) {
	entries := []Entry{
		{Status: Added, SnapshotID: ptr(int64(900)), File: vectorFile("file:///t/metadata/a.puffin", "file:///t/data/a.parquet", unpartitioned, nil)},
		{Status: Deleted, SnapshotID: ptr(int64(900)), Sequence: ptr(int64(4)), FileSequence: ptr(int64(4)),
			File: vectorFile("file:///t/metadata/0.puffin", "file:///t/data/a.parquet", unpartitioned, nil)},
	}
	b, stats, err := WriteManifest(manifestOptions(unpartitioned, nil, Deletes), entries)
	if err != nil {
		t.Fatal(err)
	}
	m, err := ReadManifest(b)
	if err != nil {
		t.Fatal(err)
	}
	if m.Content != Deletes || !reflect.DeepEqual(m.Entries, entries) {
		t.Errorf("content %d, read\n%+v\nwant\n%+v", m.Content, m.Entries, entries)
	}
	if stats.NewRowIDs != 0 || stats.File.MinSequence != 12 {
		t.Errorf("new row ids %d, lowest sequence number %d; want 0 and 12", stats.NewRowIDs, stats.File.MinSequence)
	}
}

// The bytes are part of the contract (C7, M1): a build that changes them is not
// the same builder. Whoever means to change them says so here.
func TestManifestBytesArePinned(t *testing.T) {
	spec, types, values := everySpec()
	b, _, err := WriteManifest(manifestOptions(spec, types, Data), dataEntries(spec, schemas.EncodeTuple(values)))
	if err != nil {
		t.Fatal(err)
	}
	wantHash(t, b, pinnedManifest)
	list, err := WriteManifestList(testListOptions, testLines())
	if err != nil {
		t.Fatal(err)
	}
	wantHash(t, list, pinnedList)
}

const (
	pinnedManifest = "d497132c934de0e2eda534a589037e0a2b378c27a13138fea5095a6410ab9474"
	pinnedList     = "6d1422a9198f1964e324b9bcc34933da6e50748d55623e25864258af45fbaf45"
)

func wantHash(t *testing.T, b []byte, want string) {
	t.Helper()
	sum := sha256.Sum256(b)
	if got := hex.EncodeToString(sum[:]); got != want {
		t.Errorf("SHA-256 of %d bytes is %s, want %s", len(b), got, want)
	}
}

// Blocks close at 64 KiB, so a large manifest has several.
func TestManifestOfManyBlocks(t *testing.T) {
	var entries []Entry
	for i := 0; i < 3000; i++ {
		entries = append(entries, Entry{Status: Added, SnapshotID: ptr(int64(900)),
			File: dataFile(fmt.Sprintf("file:///t/data/%d.parquet", i), unpartitioned, nil)})
	}
	b, stats, err := WriteManifest(manifestOptions(unpartitioned, nil, Data), entries)
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(b, syncMarker[:]); n < 5 {
		t.Errorf("%d sync markers in %d bytes", n, len(b))
	}
	m, err := ReadManifest(b)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(m.Entries, entries) {
		t.Errorf("read %d entries, want the %d written", len(m.Entries), len(entries))
	}
	if stats.NewRowIDs != 30_000 {
		t.Errorf("%d new row ids", stats.NewRowIDs)
	}
}

// M2, V1, V4: entries that a reader would take wrongly are refused.
func TestManifestRefusals(t *testing.T) {
	vector := func(change func(*Entry)) Entry {
		e := Entry{Status: Added, SnapshotID: ptr(int64(900)), File: vectorFile("p", "d", unpartitioned, nil)}
		change(&e)
		return e
	}
	data := func(change func(*Entry)) Entry {
		e := Entry{Status: Added, SnapshotID: ptr(int64(900)), File: dataFile("d", unpartitioned, nil)}
		change(&e)
		return e
	}
	for _, c := range []struct {
		name  string
		entry Entry
		want  string
	}{
		{"added with a foreign snapshot", data(func(e *Entry) { e.SnapshotID = ptr(int64(1)) }), "M2"},
		{"no snapshot id", data(func(e *Entry) { e.SnapshotID = nil }), "M2"},
		{"added with a file sequence", data(func(e *Entry) { e.FileSequence = ptr(int64(1)) }), "M2"},
		{"added above the snapshot's sequence", data(func(e *Entry) { e.Sequence = ptr(int64(13)) }), "S3"},
		{"existing without sequences", data(func(e *Entry) { e.Status = Existing }), "M2"},
		{"deleted by another snapshot", data(func(e *Entry) {
			e.Status, e.SnapshotID, e.Sequence, e.FileSequence = Deleted, ptr(int64(1)), ptr(int64(1)), ptr(int64(1))
		}), "M2"},
		{"another spec", data(func(e *Entry) { e.File.SpecID = 3 }), "M3"},
		{"another tuple", data(func(e *Entry) { e.File.Partition = []byte{0} }), "partition tuple"},
		{"metrics out of order", data(func(e *Entry) { e.File.ValueCounts = []IDCount{{2, 1}, {1, 1}} }), "ascend"},
		{"a vector among data", vector(func(*Entry) {}), "M3"},
		{"lower-case puffin", vector(func(e *Entry) { e.File.Format = "puffin" }), "V4"},
		{"vector without its file", vector(func(e *Entry) { e.File.ReferencedDataFile = nil }), "V4"},
		{"vector outside its Puffin", vector(func(e *Entry) { e.File.ContentSize = ptr(int64(297)) }), "V4"},
		{"vector with metrics", vector(func(e *Entry) { e.File.Lower = []IDBytes{} }), "V4"},
		{"vector with a sort order", vector(func(e *Entry) { e.File.SortOrderID = ptr(int32(0)) }), "V4"},
		{"empty vector", vector(func(e *Entry) { e.File.Records = 0 }), "V1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			content := c.entry.File.Content
			if c.name == "a vector among data" {
				content = Data
			}
			_, _, err := WriteManifest(manifestOptions(unpartitioned, nil, content), []Entry{c.entry})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one that names %s", err, c.want)
			}
		})
	}
}

// V4–V6: what must hold between a vector and its file.
func TestCheckVector(t *testing.T) {
	file := dataFile("d", unpartitioned, nil)
	vector := vectorFile("p", "d", unpartitioned, nil)
	if err := CheckVector(&vector, 5, &file, 5); err != nil {
		t.Error(err)
	}
	other, moved, wide := vector, vector, vector
	other.ReferencedDataFile = ptr("D")
	moved.SpecID = 1
	wide.Records = 11
	for name, err := range map[string]error{
		"sequence":  CheckVector(&vector, 4, &file, 5),
		"path":      CheckVector(&other, 5, &file, 5),
		"partition": CheckVector(&moved, 5, &file, 5),
		"rows":      CheckVector(&wide, 5, &file, 5),
	} {
		if err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// A promoted column leaves short values in old tuples; they are widened.
func TestPromotedPartitionValues(t *testing.T) {
	spec := &schemas.Spec{Fields: []schemas.PartitionField{
		{SourceID: 1, FieldID: 1000, Name: "l", Transform: schemas.Identity},
		{SourceID: 2, FieldID: 1001, Name: "d", Transform: schemas.Identity},
		{SourceID: 3, FieldID: 1002, Name: "p", Transform: schemas.Identity},
	}}
	types := []schemas.Type{schemas.Of(schemas.Long), schemas.Of(schemas.Double), schemas.DecimalOf(20, 2)}
	tuple := tupleOf(le4(-7), le4(int32(math.Float32bits(0.5))), []byte{0xff})
	b, stats, err := WriteManifest(manifestOptions(spec, types, Data), []Entry{
		{Status: Added, SnapshotID: ptr(int64(900)), File: dataFile("d", spec, tuple)}})
	if err != nil {
		t.Fatal(err)
	}
	m, err := ReadManifest(b)
	if err != nil {
		t.Fatal(err)
	}
	want := tupleOf(le8(-7), le8(int64(math.Float64bits(0.5))), []byte{0xff})
	if !bytes.Equal(m.Entries[0].File.Partition, want) {
		t.Errorf("tuple %x, want %x", m.Entries[0].File.Partition, want)
	}
	if got := stats.File.Partitions[0].Lower; !bytes.Equal(got, le8(-7)) {
		t.Errorf("lower bound %x", got)
	}
}

func TestSummaries(t *testing.T) {
	types := []schemas.Type{schemas.Of(schemas.Double), schemas.DecimalOf(9, 0), schemas.Of(schemas.Int)}
	f8 := func(v float64) []byte { return le8(int64(math.Float64bits(v))) }
	s := newSummarizer(types)
	s.add([][]byte{f8(0), {0xff, 0}, nil})
	s.add([][]byte{f8(math.NaN()), {0x80}, nil})
	s.add([][]byte{f8(-3), {1, 0}, nil})
	got := s.summaries()
	want := []FieldSummary{
		{ContainsNaN: ptr(true), Lower: f8(-3), Upper: f8(0)},
		{ContainsNaN: ptr(false), Lower: []byte{0xff, 0}, Upper: []byte{1, 0}},
		{ContainsNull: true, ContainsNaN: ptr(false)},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("summaries\n%+v\nwant\n%+v", got, want)
	}

	s = newSummarizer(types[:1])
	s.add([][]byte{f8(0)})
	if got := s.summaries()[0]; !bytes.Equal(got.Lower, f8(math.Copysign(0, -1))) || !bytes.Equal(got.Upper, f8(0)) {
		t.Errorf("bounds of zero: %x, %x; want -0.0 and +0.0 (M5)", got.Lower, got.Upper)
	}

	// Engines order UUIDs differently, and take a missing bound for "all null".
	uuids := newSummarizer([]schemas.Type{schemas.Of(schemas.UUID)})
	uuids.add([][]byte{bytes.Repeat([]byte{1}, 16)})
	if got := uuids.summaries(); len(got) != 1 || got[0].Lower == nil {
		t.Errorf("one UUID: %+v", got)
	}
	uuids.add([][]byte{bytes.Repeat([]byte{0xf1}, 16)})
	if got := uuids.summaries(); got != nil {
		t.Errorf("two UUIDs: %+v, want none", got)
	}
}

func TestAvroNames(t *testing.T) {
	for name, want := range map[string]string{
		"plain_1": "plain_1", "9lives": "_9lives", "a b": "a_x20b", "é": "_xE9", "😀": "_xD83D_xDE00", "": "_", "a.b": "a_x2Eb",
	} {
		if got := sanitizeAvroName(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

// Inheritance of snapshot id, sequence numbers and row ids (M2, M4).
func TestInherit(t *testing.T) {
	entries := dataEntries(unpartitioned, nil)
	entries[0].SnapshotID = nil
	m := &Manifest{Entries: entries}
	if err := m.Inherit(&ManifestFile{AddedSnapshotID: 900, Sequence: 12, FirstRowID: ptr(int64(1000))}); err != nil {
		t.Fatal(err)
	}
	type row struct{ id, seq, fileSeq, first int64 }
	var got []row
	for _, e := range m.Entries {
		got = append(got, row{*e.SnapshotID, *e.Sequence, *e.FileSequence, *e.File.FirstRowID})
	}
	want := []row{{900, 12, 12, 1000}, {900, 9, 12, 1010}, {800, 10, 11, 70}, {900, 3, 3, 80}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	bad := &Manifest{Entries: []Entry{{Status: Existing, File: dataFile("d", unpartitioned, nil)}}}
	if err := bad.Inherit(&ManifestFile{Sequence: 3}); !errors.Is(err, ErrCorrupt) {
		t.Errorf("existing entry without sequence number: %v", err)
	}
}

// foreignManifestSchema is how another writer may do it: other order, other
// names, fields of its own, ids only.
const foreignManifestSchema = `{"type":"record","name":"e","fields":[
 {"name":"df","field-id":2,"type":{"type":"record","name":"d","fields":[
  {"name":"mystery","field-id":9999,"type":["null",{"type":"map","values":{"type":"array","items":"double"}}]},
  {"name":"size","field-id":104,"type":"long"},
  {"name":"path","field-id":100,"type":"string"},
  {"name":"fmt","field-id":101,"type":"string"},
  {"name":"part","field-id":102,"type":{"type":"record","name":"p","fields":[
    {"name":"second","field-id":1001,"type":["null",{"type":"bytes","logicalType":"decimal","precision":9,"scale":2}]},
    {"name":"first","field-id":1000,"type":["int","null"]}]}},
  {"name":"block_size_in_bytes","field-id":105,"type":"long"},
  {"name":"n","field-id":103,"type":"long"},
  {"name":"lo","field-id":125,"type":["null",{"type":"array","logicalType":"map","items":{"type":"record","name":"kv","fields":[
    {"name":"key","field-id":126,"type":"int"},{"name":"value","field-id":127,"type":"bytes"}]}}]}]}},
 {"name":"st","field-id":0,"type":"int"},
 {"name":"status","type":"int"},
 {"name":"sid","field-id":1,"type":["null","long"]}]}`

func TestForeignManifest(t *testing.T) {
	for _, codec := range []string{"null", "deflate", "snappy"} {
		t.Run(codec, func(t *testing.T) {
			var buf bytes.Buffer
			w, err := goavro.NewOCFWriter(goavro.OCFConfig{W: &buf, Schema: foreignManifestSchema, CompressionName: codec,
				MetaData: map[string][]byte{
					"format-version": []byte("2"), "content": []byte("data"), "partition-spec-id": []byte("4"),
					"partition-spec": []byte(`[{"name":"first","transform":"identity","source-id":1,"field-id":1000},{"name":"second","transform":"identity","source-id":2,"field-id":1001},{"name":"gone","transform":"void","source-id":3,"field-id":1002}]`),
				}})
			if err != nil {
				t.Fatal(err)
			}
			record := map[string]any{
				"df": map[string]any{
					"mystery": goavro.Union("map", map[string]any{"x": []any{1.5, 2.5}}), "size": int64(55), "path": "s3://b/d.parquet", "fmt": "parquet",
					"part":                map[string]any{"second": nil, "first": goavro.Union("int", int32(-2))},
					"block_size_in_bytes": int64(0), "n": int64(6),
					"lo": goavro.Union("array", []any{map[string]any{"key": int32(8), "value": []byte("z")}, map[string]any{"key": int32(3), "value": []byte("a")}}),
				},
				"st": int32(2), "status": int32(1), "sid": nil,
			}
			if err := w.Append([]any{record, record}); err != nil {
				t.Fatal(err)
			}
			m, err := ReadManifest(buf.Bytes())
			if err != nil {
				t.Fatal(err)
			}
			want := Entry{Status: Added, File: DataFile{
				Path: "s3://b/d.parquet", Format: "parquet", SpecID: 4, Records: 6, Bytes: 55,
				Partition: tupleOf(le4(-2), nil, nil), Lower: []IDBytes{{3, []byte("a")}, {8, []byte("z")}},
			}}
			if m.FormatVersion != 2 || !reflect.DeepEqual(m.Entries, []Entry{want, want}) {
				t.Errorf("version %d\n got %+v\nwant %+v twice", m.FormatVersion, m.Entries, want)
			}
		})
	}
}

// A header says what a schema-reading engine needs: names mended for Avro keep
// the original beside them.
func TestManifestHeader(t *testing.T) {
	spec, types, values := everySpec()
	b, _, err := WriteManifest(manifestOptions(spec, types, Data), dataEntries(spec, schemas.EncodeTuple(values)))
	if err != nil {
		t.Fatal(err)
	}
	f, err := openOCF(b)
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, k := range f.keys {
		keys = append(keys, k.key)
	}
	want := "avro.schema avro.codec schema schema-id partition-spec partition-spec-id format-version content"
	if got := strings.Join(keys, " "); got != want {
		t.Errorf("header keys %s, want %s", got, want)
	}
	text, _ := f.key("avro.schema")
	if !json.Valid([]byte(text)) || !strings.Contains(text, `"name":"a_x20b","type":["null","int"],"default":null,"field-id":1001,"iceberg-field-name":"a b"}`) ||
		!strings.Contains(text, `"name":"a_x20b_1002"`) {
		t.Errorf("schema %s", text)
	}
}
