package iceberg

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/linkedin/goavro/v2"
)

var testListOptions = ListOptions{SnapshotID: 900, ParentID: ptr(int64(800)), Sequence: 12, FirstRowID: 500}

func testLines() []ManifestFile {
	return []ManifestFile{
		{Path: "file:///t/metadata/a.avro", Length: 4000, SpecID: 0, Content: Data, Sequence: 12, MinSequence: 9, AddedSnapshotID: 900,
			AddedFiles: 2, ExistingFiles: 1, DeletedFiles: 1, AddedRows: 15, ExistingRows: 10, DeletedRows: 10,
			Partitions: []FieldSummary{{ContainsNull: true, ContainsNaN: ptr(false), Lower: []byte{1}, Upper: []byte{}}, {}}, FirstRowID: ptr(int64(500))},
		{Path: "file:///t/metadata/b.avro", Length: 1, SpecID: 3, Content: Data, Sequence: 2, MinSequence: 2, AddedSnapshotID: 100,
			ExistingFiles: 1, Partitions: []FieldSummary{}, KeyMetadata: []byte{7}, FirstRowID: ptr(int64(0))},
		{Path: "file:///t/metadata/c.avro", Length: 1 << 33, SpecID: 3, Content: Deletes, Sequence: 12, MinSequence: 12, AddedSnapshotID: 900,
			AddedFiles: 1, AddedRows: 1 << 40},
	}
}

func TestManifestListRoundTrip(t *testing.T) {
	b, err := WriteManifestList(testListOptions, testLines())
	if err != nil {
		t.Fatal(err)
	}
	got, err := ReadManifestList(b)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, testLines()) {
		t.Errorf("read\n%+v\nwant\n%+v", got, testLines())
	}
	wantAvro(t, b, 3)
	f, err := openOCF(b)
	if err != nil {
		t.Fatal(err)
	}
	want := []headerKey{{"format-version", "3"}, {"snapshot-id", "900"}, {"parent-snapshot-id", "800"}, {"sequence-number", "12"}, {"first-row-id", "500"}}
	if !reflect.DeepEqual(f.keys[2:], want) {
		t.Errorf("header %v, want %v", f.keys[2:], want)
	}
	if empty, err := WriteManifestList(ListOptions{SnapshotID: 1, Sequence: 1}, nil); err != nil {
		t.Error(err)
	} else if got, err := ReadManifestList(empty); err != nil || len(got) != 0 {
		t.Errorf("an empty list: %v, %v", got, err)
	}
}

// M2, M4, S1: lines that readers would take wrongly are refused.
func TestManifestListRefusals(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(lines []ManifestFile)
		want   string
	}{
		{"data without first row id", func(l []ManifestFile) { l[1].FirstRowID = nil }, "M4"},
		{"deletes with first row id", func(l []ManifestFile) { l[2].FirstRowID = ptr(int64(1)) }, "M4"},
		{"a manifest of the future", func(l []ManifestFile) { l[0].Sequence = 13 }, "S1"},
		{"lowest above its own", func(l []ManifestFile) { l[1].MinSequence = 3 }, "S1"},
		{"dead manifest listed again", func(l []ManifestFile) { l[1].ExistingFiles = 0 }, "M2"},
		{"no length", func(l []ManifestFile) { l[0].Length = 0 }, "length"},
	} {
		lines := testLines()
		c.change(lines)
		if _, err := WriteManifestList(testListOptions, lines); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one that names %s", c.name, err, c.want)
		}
	}
}

func fixture(t *testing.T, name string) []byte {
	t.Helper()
	dir := os.Getenv("VARVE_FIXTURES")
	if dir == "" {
		t.Skip("VARVE_FIXTURES is not set: files written by other implementations are not read")
	}
	b, err := os.ReadFile(filepath.Join(dir, "golden", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestManifestListOfDuckDB(t *testing.T) {
	got, err := ReadManifestList(fixture(t, "duckdb_v3_manifest_list.avro"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	if string(b) != wantDuckDB {
		t.Errorf("got\n%s\nwant\n%s", b, wantDuckDB)
	}
}

const wantDuckDB = `[{"Path":"s3://warehouse/wh/db/logs/metadata/d0a470ec-1c03-429b-bd84-34a66a122316-m0.avro","Length":2390,"SpecID":0,` +
	`"Content":0,"Sequence":1,"MinSequence":1,"AddedSnapshotID":5275221492656851850,"AddedFiles":1,"ExistingFiles":0,"DeletedFiles":0,` +
	`"AddedRows":100,"ExistingRows":0,"DeletedRows":0,"Partitions":null,"KeyMetadata":null,"FirstRowID":0},` +
	`{"Path":"s3://warehouse/wh/db/logs/metadata/66408406-2504-44e1-977a-ac12b4b7ccaa-m0.avro","Length":2599,"SpecID":0,` +
	`"Content":1,"Sequence":2,"MinSequence":2,"AddedSnapshotID":226306597092543916,"AddedFiles":1,"ExistingFiles":0,"DeletedFiles":0,` +
	`"AddedRows":10,"ExistingRows":0,"DeletedRows":0,"Partitions":null,"KeyMetadata":null,"FirstRowID":100}]`

// foreignListSchema has names of format version 1, other order, fewer fields.
const foreignListSchema = `{"type":"record","name":"manifest_file","fields":[
 {"name":"added_data_files_count","field-id":504,"type":["null","int"]},
 {"name":"manifest_path","field-id":500,"type":"string"},
 {"name":"manifest_length","field-id":501,"type":"long"},
 {"name":"partitions","field-id":507,"type":["null",{"type":"array","element-id":508,"items":{"type":"record","name":"r508","fields":[
   {"name":"lower_bound","field-id":510,"type":["null","bytes"]},{"name":"contains_null","field-id":509,"type":"boolean"}]}}]},
 {"name":"added_snapshot_id","field-id":503,"type":"long"},
 {"name":"first_row_id","field-id":520,"type":["null","long"]}]}`

func TestForeignManifestList(t *testing.T) {
	record := map[string]any{
		"added_data_files_count": goavro.Union("int", int32(3)), "manifest_path": "s3://b/m.avro", "manifest_length": int64(9),
		"partitions": goavro.Union("array", []any{map[string]any{"lower_bound": goavro.Union("bytes", []byte{5}), "contains_null": true},
			map[string]any{"lower_bound": nil, "contains_null": false}}),
		"added_snapshot_id": int64(-4), "first_row_id": goavro.Union("long", int64(77)),
	}
	want := []ManifestFile{{Path: "s3://b/m.avro", Length: 9, AddedSnapshotID: -4, AddedFiles: 3, FirstRowID: ptr(int64(77)),
		Partitions: []FieldSummary{{ContainsNull: true, Lower: []byte{5}}, {}}}}
	for _, codec := range []string{"null", "deflate", "snappy", "zstandard"} {
		t.Run(codec, func(t *testing.T) {
			var b []byte
			if codec == "zstandard" {
				b = zstandardContainer(t, foreignListSchema, record)
			} else {
				var buf bytes.Buffer
				w, err := goavro.NewOCFWriter(goavro.OCFConfig{W: &buf, Schema: foreignListSchema, CompressionName: codec})
				if err != nil {
					t.Fatal(err)
				}
				if err := w.Append([]any{record}); err != nil {
					t.Fatal(err)
				}
				b = buf.Bytes()
			}
			got, err := ReadManifestList(b)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got %+v\nwant %+v", got, want)
			}
		})
	}
}

// zstandardContainer is a container of one record with codec zstandard, which
// goavro does not write.
func zstandardContainer(t *testing.T, schema string, record any) []byte {
	t.Helper()
	codec, err := goavro.NewCodec(schema)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := codec.BinaryFromNative(nil, record)
	if err != nil {
		t.Fatal(err)
	}
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	b := append([]byte(nil), ocfMagic[:]...)
	b = append(b, 4) // two keys
	for _, s := range []string{"avro.schema", schema, "avro.codec", "zstandard"} {
		b = appendAvroString(b, s)
	}
	b = append(b, 0)
	b = append(b, make([]byte, 16)...)
	b = append(b, 2) // one record
	b = appendAvroBytes(b, enc.EncodeAll(raw, nil))
	return append(b, make([]byte, 16)...)
}

// Bytes that are not a list are refused with an error that can be told from a
// failing disk.
func TestDamagedManifestList(t *testing.T) {
	b, err := WriteManifestList(testListOptions, testLines())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ReadManifestList(nil); !IsCorrupt(err) {
		t.Errorf("nothing: %v", err)
	}
	header := bytes.Index(b, syncMarker[:]) + 16
	for cut := 0; cut < len(b); cut++ {
		if cut == header {
			continue // a header alone is a list without lines
		}
		if _, err := ReadManifestList(b[:cut]); !IsCorrupt(err) {
			t.Fatalf("cut at %d of %d: %v", cut, len(b), err)
		}
	}
	// A flipped bit in a block's length or sync marker is seen.
	for _, at := range []int{3, header, len(b) - 1} {
		bad := bytes.Clone(b)
		bad[at] ^= 0x10
		if _, err := ReadManifestList(bad); !IsCorrupt(err) {
			t.Errorf("bit flipped at %d: %v", at, err)
		}
	}
}

// What a small file can make a reader allocate is bounded (a count or length
// is checked against the bytes that are left).
func TestLyingLengths(t *testing.T) {
	huge := appendAvroLong(nil, 1<<60)
	record := func(schema string, body []byte) []byte {
		b := append([]byte(nil), ocfMagic[:]...)
		b = append(b, 2)
		b = appendAvroString(b, "avro.schema")
		b = appendAvroString(b, schema)
		b = append(b, 0)
		b = append(b, make([]byte, 16)...)
		b = append(b, 2)
		b = appendAvroBytes(b, body)
		return append(b, make([]byte, 16)...)
	}
	list := func(field string) string {
		return `{"type":"record","name":"m","fields":[` + field + `]}`
	}
	for name, b := range map[string][]byte{
		"string":         record(list(`{"name":"manifest_path","type":"string","field-id":500}`), huge),
		"array":          record(list(`{"name":"partitions","type":{"type":"array","items":{"type":"record","name":"r","fields":[{"name":"contains_null","type":"boolean"}]}},"field-id":507}`), huge),
		"negative count": record(list(`{"name":"partitions","type":{"type":"array","items":{"type":"record","name":"r","fields":[{"name":"contains_null","type":"boolean"}]}},"field-id":507}`), append(appendAvroLong(nil, -1<<63), 0)),
		"no bytes":       record(list(`{"name":"x","type":"null"}`), []byte{1}),
		"empty items":    record(list(`{"name":"x","type":{"type":"array","items":"null"}}`), huge),
		"large fixed":    record(list(`{"name":"x","type":{"type":"fixed","name":"f","size":99999999999}}`), huge),
		"deep":           record(strings.Repeat(`["null",`, 100)+`"int"`+strings.Repeat(`]`, 100), []byte{2}),
		"itself":         record(list(`{"name":"x","type":["null","m"]}`), []byte{0}),
	} {
		if _, err := ReadManifestList(b); !IsCorrupt(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
