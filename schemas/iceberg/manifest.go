package iceberg

import (
	"bytes"
	"fmt"
	"sort"
	"strconv"

	"github.com/varve-io/varve/schemas"
)

// Status is what a manifest says about an entry (field 0).
type Status int32

// The statuses (M2).
const (
	Existing Status = 0
	Added    Status = 1
	Deleted  Status = 2
)

// Content is what a file holds (fields 134 and 517).
type Content int32

// The contents of files. A manifest's content is Data or Deletes: Deletes
// stands for PositionDeletes and EqualityDeletes files.
const (
	Data            Content = 0
	PositionDeletes Content = 1 // also deletion vectors
	EqualityDeletes Content = 2

	Deletes Content = 1 // of a manifest
)

// File formats as every reader takes them: upper case (V4).
const (
	FormatParquet = "PARQUET"
	FormatPuffin  = "PUFFIN"
)

// IDCount is a count for one column, IDBytes a bound of one column.
type (
	IDCount struct {
		ID    int32
		Count int64
	}
	IDBytes struct {
		ID    int32
		Value []byte
	}
)

// DataFile is one file of a manifest (field 2). Lists by field id ascend; a
// nil list or pointer is null.
type DataFile struct {
	Content   Content
	Path      string
	Format    string // FormatParquet, FormatPuffin, or what a foreign writer gave
	SpecID    int32  // the manifest's; not in the file
	Partition []byte // canonical tuple
	Records   int64  // of a vector: its cardinality
	Bytes     int64  // of the whole file (M5: exact)

	ColumnSizes []IDCount
	ValueCounts []IDCount // nulls and NaN counted
	NullCounts  []IDCount
	NaNCounts   []IDCount
	Lower       []IDBytes
	Upper       []IDBytes

	KeyMetadata        []byte
	SplitOffsets       []int64
	EqualityIDs        []int32
	SortOrderID        *int32
	FirstRowID         *int64
	ReferencedDataFile *string
	ContentOffset      *int64
	ContentSize        *int64
}

// Entry is one line of a manifest.
type Entry struct {
	Status       Status
	SnapshotID   *int64 // null: the manifest's (only read, never written)
	Sequence     *int64 // data sequence number; null: the manifest's
	FileSequence *int64
	File         DataFile
}

// ManifestOptions is what a manifest says about itself.
type ManifestOptions struct {
	SchemaJSON     []byte // the schema as table metadata holds it
	SchemaID       int32
	Spec           *schemas.Spec
	PartitionTypes []schemas.Type // one a spec field; see PartitionTypes
	Content        Content        // Data or Deletes
	SnapshotID     int64          // the snapshot that writes it
	Sequence       int64          // and its sequence number
}

// ManifestStats is what the manifest list needs to know about a manifest.
type ManifestStats struct {
	// File is the list's line, complete but for Path and FirstRowID.
	File ManifestFile
	// NewRowIDs is how many row ids the manifest consumes: the records of live
	// data entries without a first row id of their own (M4).
	NewRowIDs int64
}

// WriteManifest makes a manifest from entries in the order given. It refuses
// entries that M2 and V4 forbid.
func WriteManifest(o ManifestOptions, entries []Entry) ([]byte, ManifestStats, error) {
	if err := checkPartitionTypes(o.Spec, o.PartitionTypes); err != nil {
		return nil, ManifestStats{}, err
	}
	content := "data"
	if o.Content != Data {
		content = "deletes"
	}
	w := newOCF(manifestSchema(o.Spec, o.PartitionTypes), []headerKey{
		{"schema", string(o.SchemaJSON)},
		{"schema-id", strconv.Itoa(int(o.SchemaID))},
		{"partition-spec", string(appendSpecFields(nil, o.Spec))},
		{"partition-spec-id", strconv.Itoa(int(o.Spec.ID))},
		{"format-version", "3"},
		{"content", content},
	})
	stats := ManifestStats{File: ManifestFile{
		SpecID: o.Spec.ID, Content: o.Content, Sequence: o.Sequence, AddedSnapshotID: o.SnapshotID,
	}}
	f := &stats.File
	sum := newSummarizer(o.PartitionTypes)
	minSeq := int64(-1)
	for i := range entries {
		e := &entries[i]
		if err := checkEntry(&o, e); err != nil {
			return nil, ManifestStats{}, fmt.Errorf("manifest entry %d, file %s: %w", i, e.File.Path, err)
		}
		values, err := schemas.DecodeTuple(e.File.Partition, len(o.Spec.Fields))
		if err != nil {
			return nil, ManifestStats{}, fmt.Errorf("manifest entry %d, file %s: %w", i, e.File.Path, err)
		}
		if w.block, err = appendEntry(w.block, e, values, o.PartitionTypes); err != nil {
			return nil, ManifestStats{}, fmt.Errorf("manifest entry %d, file %s: %w", i, e.File.Path, err)
		}
		w.endRecord()
		sum.add(values)

		n := e.File.Records
		switch e.Status {
		case Added:
			f.AddedFiles, f.AddedRows = f.AddedFiles+1, f.AddedRows+n
		case Existing:
			f.ExistingFiles, f.ExistingRows = f.ExistingFiles+1, f.ExistingRows+n
		case Deleted:
			f.DeletedFiles, f.DeletedRows = f.DeletedFiles+1, f.DeletedRows+n
		}
		if e.Status == Deleted {
			continue
		}
		seq := o.Sequence
		if e.Sequence != nil {
			seq = *e.Sequence
		}
		if minSeq < 0 || seq < minSeq {
			minSeq = seq
		}
		if o.Content == Data && e.File.FirstRowID == nil {
			stats.NewRowIDs += n
		}
	}
	if minSeq < 0 {
		minSeq = o.Sequence
	}
	f.MinSequence = minSeq
	f.Partitions = sum.summaries()
	out := w.finish()
	f.Length = int64(len(out))
	return out, stats, nil
}

func checkEntry(o *ManifestOptions, e *Entry) error {
	d := &e.File
	if d.SpecID != o.Spec.ID {
		return fmt.Errorf("the file has partition spec %d, the manifest %d (M3)", d.SpecID, o.Spec.ID)
	}
	if (d.Content == Data) != (o.Content == Data) {
		return fmt.Errorf("content %d does not belong into a manifest of content %d (M3)", d.Content, o.Content)
	}
	if d.Path == "" || d.Records < 0 || d.Bytes < 0 {
		return fmt.Errorf("path, record count or size is missing or negative")
	}
	if e.SnapshotID == nil {
		return fmt.Errorf("no snapshot id (M2)")
	}
	switch e.Status {
	case Added:
		if *e.SnapshotID != o.SnapshotID {
			return fmt.Errorf("added by snapshot %d in a manifest of snapshot %d (M2)", *e.SnapshotID, o.SnapshotID)
		}
		if e.FileSequence != nil {
			return fmt.Errorf("an added entry with a file sequence number (M2)")
		}
		if e.Sequence != nil && (*e.Sequence < 0 || *e.Sequence > o.Sequence) {
			return fmt.Errorf("data sequence number %d is not in 0..%d (S3)", *e.Sequence, o.Sequence)
		}
	case Existing, Deleted:
		if e.Sequence == nil || e.FileSequence == nil {
			return fmt.Errorf("an existing or deleted entry without its sequence numbers (M2)")
		}
		if e.Status == Deleted && *e.SnapshotID != o.SnapshotID {
			return fmt.Errorf("deleted by snapshot %d in a manifest of snapshot %d (M2)", *e.SnapshotID, o.SnapshotID)
		}
	default:
		return fmt.Errorf("status %d", e.Status)
	}
	vector := d.ContentOffset != nil || d.ContentSize != nil || d.Format == FormatPuffin
	if !vector {
		return nil
	}
	switch {
	case d.Content != PositionDeletes || d.Format != FormatPuffin:
		return fmt.Errorf("a vector has content 1 and format PUFFIN (V4)")
	case d.ReferencedDataFile == nil || d.ContentOffset == nil || d.ContentSize == nil:
		return fmt.Errorf("a vector names its data file, offset and size (V4)")
	case *d.ContentOffset < 0 || *d.ContentSize < 0 || *d.ContentOffset > d.Bytes-*d.ContentSize:
		return fmt.Errorf("a vector lies inside its Puffin file (V4)")
	case d.FirstRowID != nil || d.SortOrderID != nil || d.ColumnSizes != nil || d.ValueCounts != nil || d.NullCounts != nil ||
		d.NaNCounts != nil || d.Lower != nil || d.Upper != nil:
		return fmt.Errorf("a vector has no metrics, sort order or first row id (V4)")
	case d.Records == 0 && e.Status == Added:
		return fmt.Errorf("an empty vector is never published (V1)")
	}
	return nil
}

// manifestSchema is the Avro schema of a v3 manifest of a spec.
func manifestSchema(spec *schemas.Spec, types []schemas.Type) string {
	dst := append([]byte(nil), manifestSchemaHead...)
	dst = appendPartitionSchema(dst, spec, types)
	return string(append(dst, manifestSchemaTail...))
}

const (
	manifestSchemaHead = `{"type":"record","name":"manifest_entry","fields":[` +
		`{"name":"status","type":"int","field-id":0},` +
		`{"name":"snapshot_id","type":["null","long"],"default":null,"field-id":1},` +
		`{"name":"sequence_number","type":["null","long"],"default":null,"field-id":3},` +
		`{"name":"file_sequence_number","type":["null","long"],"default":null,"field-id":4},` +
		`{"name":"data_file","type":{"type":"record","name":"r2","fields":[` +
		`{"name":"content","type":"int","doc":"Contents of the file: 0=data, 1=position deletes, 2=equality deletes","field-id":134},` +
		`{"name":"file_path","type":"string","doc":"Location URI with FS scheme","field-id":100},` +
		`{"name":"file_format","type":"string","doc":"File format name: avro, orc, parquet, or puffin","field-id":101},` +
		`{"name":"partition","type":`

	manifestSchemaTail = `,"doc":"Partition data tuple, schema based on the partition spec","field-id":102},` +
		`{"name":"record_count","type":"long","doc":"Number of records in the file","field-id":103},` +
		`{"name":"file_size_in_bytes","type":"long","doc":"Total file size in bytes","field-id":104},` +
		`{"name":"column_sizes","type":["null",{"type":"array","items":{"type":"record","name":"k117_v118","fields":[` +
		`{"name":"key","type":"int","field-id":117},{"name":"value","type":"long","field-id":118}]},"logicalType":"map"}],"doc":"Map of column id to total size on disk","default":null,"field-id":108},` +
		`{"name":"value_counts","type":["null",{"type":"array","items":{"type":"record","name":"k119_v120","fields":[` +
		`{"name":"key","type":"int","field-id":119},{"name":"value","type":"long","field-id":120}]},"logicalType":"map"}],"doc":"Map of column id to total count, including null and NaN","default":null,"field-id":109},` +
		`{"name":"null_value_counts","type":["null",{"type":"array","items":{"type":"record","name":"k121_v122","fields":[` +
		`{"name":"key","type":"int","field-id":121},{"name":"value","type":"long","field-id":122}]},"logicalType":"map"}],"doc":"Map of column id to null value count","default":null,"field-id":110},` +
		`{"name":"nan_value_counts","type":["null",{"type":"array","items":{"type":"record","name":"k138_v139","fields":[` +
		`{"name":"key","type":"int","field-id":138},{"name":"value","type":"long","field-id":139}]},"logicalType":"map"}],"doc":"Map of column id to number of NaN values in the column","default":null,"field-id":137},` +
		`{"name":"lower_bounds","type":["null",{"type":"array","items":{"type":"record","name":"k126_v127","fields":[` +
		`{"name":"key","type":"int","field-id":126},{"name":"value","type":"bytes","field-id":127}]},"logicalType":"map"}],"doc":"Map of column id to lower bound","default":null,"field-id":125},` +
		`{"name":"upper_bounds","type":["null",{"type":"array","items":{"type":"record","name":"k129_v130","fields":[` +
		`{"name":"key","type":"int","field-id":129},{"name":"value","type":"bytes","field-id":130}]},"logicalType":"map"}],"doc":"Map of column id to upper bound","default":null,"field-id":128},` +
		`{"name":"key_metadata","type":["null","bytes"],"doc":"Encryption key metadata blob","default":null,"field-id":131},` +
		`{"name":"split_offsets","type":["null",{"type":"array","items":"long","element-id":133}],"doc":"Splittable offsets","default":null,"field-id":132},` +
		`{"name":"equality_ids","type":["null",{"type":"array","items":"int","element-id":136}],"doc":"Equality comparison field IDs","default":null,"field-id":135},` +
		`{"name":"sort_order_id","type":["null","int"],"doc":"Sort order ID","default":null,"field-id":140},` +
		`{"name":"first_row_id","type":["null","long"],"doc":"Starting row ID to assign to new rows","default":null,"field-id":142},` +
		`{"name":"referenced_data_file","type":["null","string"],"doc":"Fully qualified location (URI with FS scheme) of a data file that all deletes reference","default":null,"field-id":143},` +
		`{"name":"content_offset","type":["null","long"],"doc":"The offset in the file where the content starts","default":null,"field-id":144},` +
		`{"name":"content_size_in_bytes","type":["null","long"],"doc":"The length of referenced content stored in the file","default":null,"field-id":145}` +
		`]},"field-id":2}]}`
)

func appendEntry(dst []byte, e *Entry, partition [][]byte, types []schemas.Type) ([]byte, error) {
	dst = appendAvroLong(dst, int64(e.Status))
	dst = appendAvroOptLong(dst, e.SnapshotID)
	dst = appendAvroOptLong(dst, e.Sequence)
	dst = appendAvroOptLong(dst, e.FileSequence)
	d := &e.File
	dst = appendAvroLong(dst, int64(d.Content))
	dst = appendAvroString(dst, d.Path)
	dst = appendAvroString(dst, d.Format)
	dst, err := appendPartition(dst, partition, types)
	if err != nil {
		return nil, err
	}
	dst = appendAvroLong(dst, d.Records)
	dst = appendAvroLong(dst, d.Bytes)
	for _, m := range [][]IDCount{d.ColumnSizes, d.ValueCounts, d.NullCounts, d.NaNCounts} {
		if dst, err = appendCounts(dst, m); err != nil {
			return nil, err
		}
	}
	for _, m := range [][]IDBytes{d.Lower, d.Upper} {
		if dst, err = appendBounds(dst, m); err != nil {
			return nil, err
		}
	}
	dst = appendAvroOptBytes(dst, d.KeyMetadata)
	dst = appendLongs(dst, d.SplitOffsets)
	dst = appendInts(dst, d.EqualityIDs)
	if d.SortOrderID == nil {
		dst = append(dst, avroNull)
	} else {
		dst = appendAvroLong(append(dst, avroValue), int64(*d.SortOrderID))
	}
	dst = appendAvroOptLong(dst, d.FirstRowID)
	if d.ReferencedDataFile == nil {
		dst = append(dst, avroNull)
	} else {
		dst = appendAvroString(append(dst, avroValue), *d.ReferencedDataFile)
	}
	dst = appendAvroOptLong(dst, d.ContentOffset)
	return appendAvroOptLong(dst, d.ContentSize), nil
}

var errUnsorted = fmt.Errorf("metrics whose field ids do not ascend")

func appendCounts(dst []byte, m []IDCount) ([]byte, error) {
	return appendByID(dst, m, func(c *IDCount) int32 { return c.ID }, func(dst []byte, c *IDCount) []byte {
		return appendAvroLong(dst, c.Count)
	})
}

func appendBounds(dst []byte, m []IDBytes) ([]byte, error) {
	return appendByID(dst, m, func(b *IDBytes) int32 { return b.ID }, func(dst []byte, b *IDBytes) []byte {
		return appendAvroBytes(dst, b.Value)
	})
}

// appendByID appends an optional map by field id, which Avro has as an array
// of key and value; the ids ascend.
func appendByID[T any](dst []byte, m []T, id func(*T) int32, value func([]byte, *T) []byte) ([]byte, error) {
	if m == nil {
		return append(dst, avroNull), nil
	}
	if !sort.SliceIsSorted(m, func(i, j int) bool { return id(&m[i]) < id(&m[j]) }) {
		return nil, errUnsorted
	}
	dst = append(dst, avroValue)
	if len(m) > 0 {
		dst = appendAvroLong(dst, int64(len(m)))
		for i := range m {
			dst = appendAvroLong(dst, int64(id(&m[i])))
			dst = value(dst, &m[i])
		}
	}
	return append(dst, 0), nil
}

func appendLongs(dst []byte, v []int64) []byte {
	if v == nil {
		return append(dst, avroNull)
	}
	dst = append(dst, avroValue)
	if len(v) > 0 {
		dst = appendAvroLong(dst, int64(len(v)))
		for _, x := range v {
			dst = appendAvroLong(dst, x)
		}
	}
	return append(dst, 0)
}

func appendInts(dst []byte, v []int32) []byte {
	if v == nil {
		return append(dst, avroNull)
	}
	dst = append(dst, avroValue)
	if len(v) > 0 {
		dst = appendAvroLong(dst, int64(len(v)))
		for _, x := range v {
			dst = appendAvroLong(dst, int64(x))
		}
	}
	return append(dst, 0)
}

// CheckVector says whether readers will apply a vector to its data file: it
// names the file's path letter by letter, stands under its spec and partition
// (V4, V6), covers no more rows than it has, and its sequence number is not
// below the file's (V5: otherwise rows return, or readers fail). The
// publisher asks before it writes.
func CheckVector(vector *DataFile, vectorSequence int64, file *DataFile, fileSequence int64) error {
	switch {
	case vector.ReferencedDataFile == nil || *vector.ReferencedDataFile != file.Path:
		return fmt.Errorf("the vector in %s does not name data file %s (V6)", vector.Path, file.Path)
	case vector.SpecID != file.SpecID || !bytes.Equal(vector.Partition, file.Partition):
		return fmt.Errorf("the vector of %s stands under another partition than its file (V4)", file.Path)
	case vectorSequence < fileSequence:
		return fmt.Errorf("the vector of %s has sequence number %d, below its file's %d (V5)", file.Path, vectorSequence, fileSequence)
	case vector.Records > file.Records:
		return fmt.Errorf("the vector of %s covers %d of %d rows", file.Path, vector.Records, file.Records)
	}
	return nil
}
