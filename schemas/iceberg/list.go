package iceberg

import (
	"bytes"
	"fmt"
	"strconv"
)

// ManifestFile is one line of a manifest list.
type ManifestFile struct {
	Path            string
	Length          int64
	SpecID          int32
	Content         Content // Data or Deletes
	Sequence        int64   // of the snapshot that added the manifest
	MinSequence     int64   // lowest data sequence number of its live entries (516)
	AddedSnapshotID int64
	AddedFiles      int32
	ExistingFiles   int32
	DeletedFiles    int32
	AddedRows       int64
	ExistingRows    int64
	DeletedRows     int64
	Partitions      []FieldSummary // nil: not known
	KeyMetadata     []byte
	FirstRowID      *int64 // 520; null on delete manifests (M4)
}

// Live is the number of entries that are not deleted.
func (f *ManifestFile) Live() int64 { return int64(f.AddedFiles) + int64(f.ExistingFiles) }

// ListOptions is what a manifest list says about itself.
type ListOptions struct {
	SnapshotID int64
	ParentID   *int64
	Sequence   int64
	FirstRowID int64
}

const listSchema = `{"type":"record","name":"manifest_file","fields":[` +
	`{"name":"manifest_path","type":"string","doc":"Location URI with FS scheme","field-id":500},` +
	`{"name":"manifest_length","type":"long","doc":"Total file size in bytes","field-id":501},` +
	`{"name":"partition_spec_id","type":"int","doc":"Spec ID used to write","field-id":502},` +
	`{"name":"content","type":"int","doc":"Contents of the manifest: 0=data, 1=deletes","field-id":517},` +
	`{"name":"sequence_number","type":"long","doc":"Sequence number when the manifest was added","field-id":515},` +
	`{"name":"min_sequence_number","type":"long","doc":"Lowest sequence number in the manifest","field-id":516},` +
	`{"name":"added_snapshot_id","type":"long","doc":"Snapshot ID that added the manifest","field-id":503},` +
	`{"name":"added_files_count","type":"int","doc":"Added entry count","field-id":504},` +
	`{"name":"existing_files_count","type":"int","doc":"Existing entry count","field-id":505},` +
	`{"name":"deleted_files_count","type":"int","doc":"Deleted entry count","field-id":506},` +
	`{"name":"added_rows_count","type":"long","doc":"Added rows count","field-id":512},` +
	`{"name":"existing_rows_count","type":"long","doc":"Existing rows count","field-id":513},` +
	`{"name":"deleted_rows_count","type":"long","doc":"Deleted rows count","field-id":514},` +
	`{"name":"partitions","type":["null",{"type":"array","items":{"type":"record","name":"r508","fields":[` +
	`{"name":"contains_null","type":"boolean","doc":"True if any file has a null partition value","field-id":509},` +
	`{"name":"contains_nan","type":["null","boolean"],"doc":"True if any file has a nan partition value","default":null,"field-id":518},` +
	`{"name":"lower_bound","type":["null","bytes"],"doc":"Partition lower bound for all files","default":null,"field-id":510},` +
	`{"name":"upper_bound","type":["null","bytes"],"doc":"Partition upper bound for all files","default":null,"field-id":511}` +
	`]},"element-id":508}],"doc":"Summary for each partition","default":null,"field-id":507},` +
	`{"name":"key_metadata","type":["null","bytes"],"doc":"Encryption key metadata blob","default":null,"field-id":519},` +
	`{"name":"first_row_id","type":["null","long"],"doc":"Starting row ID to assign to new rows in ADDED data files","default":null,"field-id":520}` +
	`]}`

// WriteManifestList makes a snapshot's manifest list from lines in the order
// given. Every data manifest must have its first row id, no delete manifest
// may have one (M4).
func WriteManifestList(o ListOptions, files []ManifestFile) ([]byte, error) {
	parent := "null"
	if o.ParentID != nil {
		parent = strconv.FormatInt(*o.ParentID, 10)
	}
	w := newOCF(listSchema, []headerKey{
		{"format-version", "3"},
		{"snapshot-id", strconv.FormatInt(o.SnapshotID, 10)},
		{"parent-snapshot-id", parent},
		{"sequence-number", strconv.FormatInt(o.Sequence, 10)},
		{"first-row-id", strconv.FormatInt(o.FirstRowID, 10)},
	})
	for i := range files {
		f := &files[i]
		if err := checkLine(&o, f); err != nil {
			return nil, fmt.Errorf("manifest list line %d, %s: %w", i, f.Path, err)
		}
		b := appendAvroString(w.block, f.Path)
		for _, v := range [...]int64{f.Length, int64(f.SpecID), int64(f.Content), f.Sequence, f.MinSequence, f.AddedSnapshotID,
			int64(f.AddedFiles), int64(f.ExistingFiles), int64(f.DeletedFiles), f.AddedRows, f.ExistingRows, f.DeletedRows} {
			b = appendAvroLong(b, v)
		}
		b = appendSummaries(b, f.Partitions)
		b = appendAvroOptBytes(b, f.KeyMetadata)
		w.block = appendAvroOptLong(b, f.FirstRowID)
		w.endRecord()
	}
	return w.finish(), nil
}

func checkLine(o *ListOptions, f *ManifestFile) error {
	switch {
	case f.Path == "" || f.Length <= 0:
		return fmt.Errorf("no path or no length")
	case f.Content == Data && f.FirstRowID == nil:
		return fmt.Errorf("a data manifest without a first row id (M4)")
	case f.Content != Data && f.FirstRowID != nil:
		return fmt.Errorf("a delete manifest with a first row id (M4)")
	case f.Sequence > o.Sequence || f.MinSequence > f.Sequence || f.MinSequence < 0:
		return fmt.Errorf("sequence numbers %d (lowest %d) do not fit a snapshot of sequence number %d (S1)",
			f.Sequence, f.MinSequence, o.Sequence)
	case f.Live() == 0 && f.AddedSnapshotID != o.SnapshotID:
		return fmt.Errorf("a manifest without live entries is listed again (M2)")
	}
	return nil
}

func appendSummaries(dst []byte, s []FieldSummary) []byte {
	if s == nil {
		return append(dst, avroNull)
	}
	dst = append(dst, avroValue)
	if len(s) > 0 {
		dst = appendAvroLong(dst, int64(len(s)))
		for i := range s {
			dst = appendAvroBool(dst, s[i].ContainsNull)
			if s[i].ContainsNaN == nil {
				dst = append(dst, avroNull)
			} else {
				dst = appendAvroBool(append(dst, avroValue), *s[i].ContainsNaN)
			}
			dst = appendAvroOptBytes(dst, s[i].Lower)
			dst = appendAvroOptBytes(dst, s[i].Upper)
		}
	}
	return append(dst, 0)
}

// ReadManifestList reads any writer's manifest list (format versions 1 to 3).
// The lines own their bytes.
func ReadManifestList(b []byte) ([]ManifestFile, error) {
	f, err := openOCF(b)
	if err != nil {
		return nil, fmt.Errorf("manifest list: %w", err)
	}
	var out []ManifestFile
	err = f.records(func(r *avroReader) error {
		line, err := readLine(r, f.schema)
		if err != nil {
			return err
		}
		out = append(out, line)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("manifest list: line %d: %w", len(out), err)
	}
	return out, nil
}

func readLine(r *avroReader, t *avroType) (ManifestFile, error) {
	var m ManifestFile
	for i := range t.fields {
		f := &t.fields[i]
		var err error
		small := func(into *int32) {
			var v int64
			v, _, err = r.integer(f.typ)
			if err == nil && (v < 0 || v != int64(int32(v))) {
				err = corrupt("the number %d", v)
			}
			*into = int32(v)
		}
		big := func(into *int64) { *into, err = r.count(f.typ) }
		switch {
		case f.is(500, "manifest_path"):
			m.Path, err = r.text(f.typ)
		case f.is(501, "manifest_length"):
			big(&m.Length)
		case f.is(502, "partition_spec_id"):
			small(&m.SpecID)
		case f.is(517, "content"):
			var v int32
			small(&v)
			if err == nil && v > 1 {
				err = corrupt("content %d", v)
			}
			m.Content = Content(v)
		case f.is(515, "sequence_number"):
			big(&m.Sequence)
		case f.is(516, "min_sequence_number"):
			big(&m.MinSequence)
		case f.is(503, "added_snapshot_id"):
			m.AddedSnapshotID, _, err = r.integer(f.typ)
		case f.is(504, "added_files_count"), f.is(504, "added_data_files_count"):
			small(&m.AddedFiles)
		case f.is(505, "existing_files_count"), f.is(505, "existing_data_files_count"):
			small(&m.ExistingFiles)
		case f.is(506, "deleted_files_count"), f.is(506, "deleted_data_files_count"):
			small(&m.DeletedFiles)
		case f.is(512, "added_rows_count"):
			big(&m.AddedRows)
		case f.is(513, "existing_rows_count"):
			big(&m.ExistingRows)
		case f.is(514, "deleted_rows_count"):
			big(&m.DeletedRows)
		case f.is(507, "partitions"):
			m.Partitions, err = readSummaries(r, f.typ)
		case f.is(519, "key_metadata"):
			var v []byte
			v, err = r.binary(f.typ)
			m.KeyMetadata = bytes.Clone(v)
		case f.is(520, "first_row_id"):
			m.FirstRowID, err = r.optInteger(f.typ)
		default:
			err = r.skip(f.typ)
		}
		if err != nil {
			return m, fmt.Errorf("field %.40q: %w", f.name, err)
		}
	}
	if m.Path == "" {
		return m, corrupt("a line without a path")
	}
	return m, nil
}

func readSummaries(r *avroReader, t *avroType) ([]FieldSummary, error) {
	t, err := r.resolve(t)
	if err != nil {
		return nil, err
	}
	if t.kind == avroNullKind {
		return nil, nil
	}
	if t.kind != avroArray || t.items.kind != avroRecord {
		return nil, corrupt("partitions is no list of records")
	}
	out := []FieldSummary{}
	err = r.blocks(func() error {
		var s FieldSummary
		for i := range t.items.fields {
			f := &t.items.fields[i]
			var err error
			switch {
			case f.is(509, "contains_null"):
				s.ContainsNull, _, err = r.boolean(f.typ)
			case f.is(518, "contains_nan"):
				var v, ok bool
				v, ok, err = r.boolean(f.typ)
				if ok {
					s.ContainsNaN = &v
				}
			case f.is(510, "lower_bound"):
				var v []byte
				v, err = r.binary(f.typ)
				s.Lower = bytes.Clone(v)
			case f.is(511, "upper_bound"):
				var v []byte
				v, err = r.binary(f.typ)
				s.Upper = bytes.Clone(v)
			default:
				err = r.skip(f.typ)
			}
			if err != nil {
				return err
			}
		}
		out = append(out, s)
		return nil
	})
	return out, err
}
