package readers

import (
	"bytes"
	"reflect"
	"testing"

	icebergo "github.com/apache/iceberg-go"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/iceberg"
)

// Manifests and lists that iceberg-go writes are read with the same meaning.
func TestManifestOfIcebergGo(t *testing.T) {
	schema := icebergo.NewSchema(0,
		icebergo.NestedField{ID: 1, Name: "id", Type: icebergo.PrimitiveTypes.Int64, Required: true},
		icebergo.NestedField{ID: 2, Name: "name", Type: icebergo.PrimitiveTypes.String},
		icebergo.NestedField{ID: 3, Name: "d", Type: icebergo.PrimitiveTypes.Date})
	spec := icebergo.NewPartitionSpecID(4,
		icebergo.PartitionField{SourceIDs: []int{2}, FieldID: 1000, Name: "name", Transform: icebergo.IdentityTransform{}},
		icebergo.PartitionField{SourceIDs: []int{3}, FieldID: 1001, Name: "d", Transform: icebergo.IdentityTransform{}})
	snapshot := int64(77)
	file, err := icebergo.NewDataFileBuilder(spec, icebergo.EntryContentData, "s3://b/x.parquet", icebergo.ParquetFile,
		map[int]any{1000: "ann", 1001: icebergo.Date(19782)}, map[int]string{1001: "date"}, nil, 5, 1000)
	if err != nil {
		t.Fatal(err)
	}
	file.ValueCounts(map[int]int64{2: 5, 1: 5}).LowerBoundValues(map[int][]byte{1: long(3)}).SplitOffsets([]int64{4, 90})
	entries := []icebergo.ManifestEntry{icebergo.NewManifestEntry(icebergo.EntryStatusADDED, &snapshot, nil, nil, file.Build())}
	var buf bytes.Buffer
	line, err := icebergo.WriteManifest("s3://b/m.avro", &buf, 3, spec, schema, snapshot, entries)
	if err != nil {
		t.Fatal(err)
	}
	m, err := iceberg.ReadManifest(buf.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	want := []iceberg.Entry{{Status: iceberg.Added, SnapshotID: &snapshot, File: iceberg.DataFile{
		Path: "s3://b/x.parquet", Format: iceberg.FormatParquet, SpecID: 4, Records: 5, Bytes: 1000,
		Partition:   schemas.EncodeTuple([][]byte{[]byte("ann"), int4(19782)}),
		ValueCounts: []iceberg.IDCount{{ID: 1, Count: 5}, {ID: 2, Count: 5}}, Lower: []iceberg.IDBytes{{ID: 1, Value: long(3)}},
		SplitOffsets: []int64{4, 90},
	}}}
	if m.FormatVersion != 3 || !reflect.DeepEqual(m.Entries, want) {
		t.Errorf("version %d, read\n%+v\nwant\n%+v", m.FormatVersion, m.Entries, want)
	}

	buf.Reset()
	sequence := int64(9)
	if err := icebergo.WriteManifestList(3, &buf, snapshot, nil, &sequence, 40, []icebergo.ManifestFile{line}); err != nil {
		t.Fatal(err)
	}
	lines, err := iceberg.ReadManifestList(buf.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	l := lines[0]
	if len(lines) != 1 || l.Path != "s3://b/m.avro" || l.AddedFiles != 1 || l.AddedRows != 5 || l.SpecID != 4 || l.Sequence != 9 ||
		l.FirstRowID == nil || *l.FirstRowID != 40 || string(l.Partitions[0].Lower) != "ann" || !bytes.Equal(l.Partitions[1].Upper, int4(19782)) {
		t.Errorf("list %+v", lines)
	}
}
