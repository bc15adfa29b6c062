package iceberg

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"sort"
	"strconv"

	"github.com/varve-io/varve/schemas"
)

// Manifest is a manifest as read. Entries have null where the writer left the
// manifest list to say it (M2); Inherit fills it in.
type Manifest struct {
	FormatVersion int32
	Content       Content
	SchemaJSON    json.RawMessage // as in the header, may be empty
	SpecID        int32
	SpecJSON      json.RawMessage // the spec's fields as in the header, may be empty
	Entries       []Entry
}

// ReadManifest reads any writer's manifest (format versions 1 to 3): fields
// are found by their ids, unknown ones are passed over. Partition tuples have
// the fields of the header's spec in their order, by field id. The entries own
// their bytes.
func ReadManifest(b []byte) (*Manifest, error) {
	f, err := openOCF(b)
	if err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	m := &Manifest{FormatVersion: 1}
	if err := m.readHeader(f); err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	order := m.partitionOrder(f.schema)
	err = f.records(func(r *avroReader) error {
		e, err := readEntry(r, f.schema, order)
		if err != nil {
			return err
		}
		e.File.SpecID = m.SpecID
		m.Entries = append(m.Entries, e)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("manifest: entry %d: %w", len(m.Entries), err)
	}
	return m, nil
}

func (m *Manifest) readHeader(f *ocfFile) error {
	number := func(key string, into *int32) error {
		v, ok := f.key(key)
		if !ok {
			return nil
		}
		n, err := strconv.ParseInt(v, 10, 32)
		if err != nil {
			return corrupt("header %s %.20q is no number", key, v)
		}
		*into = int32(n)
		return nil
	}
	if err := number("format-version", &m.FormatVersion); err != nil {
		return err
	}
	if m.FormatVersion < 1 || m.FormatVersion > 3 {
		return fmt.Errorf("format version %d is none of 1 to 3", m.FormatVersion)
	}
	if err := number("partition-spec-id", &m.SpecID); err != nil {
		return err
	}
	if v, _ := f.key("content"); v == "deletes" {
		m.Content = Deletes
	} else if v != "" && v != "data" {
		return corrupt("header content %.20q is neither data nor deletes", v)
	}
	if v, ok := f.key("schema"); ok {
		m.SchemaJSON = json.RawMessage(v)
	}
	if v, ok := f.key("partition-spec"); ok {
		m.SpecJSON = json.RawMessage(v)
	}
	return nil
}

// partitionOrder is the field ids of the tuple. A header without a usable spec
// leaves the order of the file's own record.
func (m *Manifest) partitionOrder(schema *avroType) []int32 {
	var fields []struct {
		ID *int32 `json:"field-id"`
	}
	if json.Unmarshal(m.SpecJSON, &fields) == nil && len(fields) > 0 {
		ids := make([]int32, len(fields))
		for i, f := range fields {
			ids[i] = int32(1000 + i) // version 1 specs may leave the ids out
			if f.ID != nil {
				ids[i] = *f.ID
			}
		}
		return ids
	}
	var ids []int32
	for i := range schema.fields {
		if !schema.fields[i].is(2, "data_file") {
			continue
		}
		df := schema.fields[i].typ
		for j := range df.fields {
			if df.fields[j].is(102, "partition") {
				for _, p := range df.fields[j].typ.fields {
					ids = append(ids, p.id)
				}
			}
		}
	}
	return ids
}

func readEntry(r *avroReader, t *avroType, order []int32) (Entry, error) {
	var e Entry
	var seen bool
	for i := range t.fields {
		f := &t.fields[i]
		var err error
		switch {
		case f.is(0, "status"):
			var v int64
			v, _, err = r.integer(f.typ)
			if err == nil && (v < 0 || v > 2) {
				err = corrupt("status %d", v)
			}
			e.Status = Status(v)
		case f.is(1, "snapshot_id"):
			e.SnapshotID, err = r.optInteger(f.typ)
		case f.is(3, "sequence_number"):
			e.Sequence, err = r.optInteger(f.typ)
		case f.is(4, "file_sequence_number"):
			e.FileSequence, err = r.optInteger(f.typ)
		case f.is(2, "data_file"):
			seen = true
			err = readDataFile(r, f.typ, order, &e.File)
		default:
			err = r.skip(f.typ)
		}
		if err != nil {
			return e, fmt.Errorf("field %.40q: %w", f.name, err)
		}
	}
	if !seen || e.File.Path == "" {
		return e, corrupt("an entry without a file")
	}
	return e, nil
}

func readDataFile(r *avroReader, t *avroType, order []int32, d *DataFile) error {
	t, err := r.resolve(t)
	if err != nil {
		return err
	}
	if t.kind != avroRecord {
		return corrupt("data_file is a %s", t.kind)
	}
	for i := range t.fields {
		f := &t.fields[i]
		var err error
		switch {
		case f.is(134, "content"):
			var v int64
			v, _, err = r.integer(f.typ)
			if err == nil && (v < 0 || v > 2) {
				err = corrupt("content %d", v)
			}
			d.Content = Content(v)
		case f.is(100, "file_path"):
			d.Path, err = r.text(f.typ)
		case f.is(101, "file_format"):
			d.Format, err = r.text(f.typ)
			d.Format = knownFormat(d.Format)
		case f.is(102, "partition"):
			d.Partition, err = readPartition(r, f.typ, order)
		case f.is(103, "record_count"):
			d.Records, err = r.count(f.typ)
		case f.is(104, "file_size_in_bytes"):
			d.Bytes, err = r.count(f.typ)
		case f.is(108, "column_sizes"):
			d.ColumnSizes, err = readCounts(r, f.typ)
		case f.is(109, "value_counts"):
			d.ValueCounts, err = readCounts(r, f.typ)
		case f.is(110, "null_value_counts"):
			d.NullCounts, err = readCounts(r, f.typ)
		case f.is(137, "nan_value_counts"):
			d.NaNCounts, err = readCounts(r, f.typ)
		case f.is(125, "lower_bounds"):
			d.Lower, err = readBounds(r, f.typ)
		case f.is(128, "upper_bounds"):
			d.Upper, err = readBounds(r, f.typ)
		case f.is(131, "key_metadata"):
			var v []byte
			v, err = r.binary(f.typ)
			d.KeyMetadata = bytes.Clone(v)
		case f.is(132, "split_offsets"):
			d.SplitOffsets, err = readLongs(r, f.typ)
		case f.is(135, "equality_ids"):
			var ids []int64
			ids, err = readLongs(r, f.typ)
			for _, id := range ids {
				if id != int64(int32(id)) {
					return corrupt("equality id %d", id)
				}
				d.EqualityIDs = append(d.EqualityIDs, int32(id))
			}
		case f.is(140, "sort_order_id"):
			var v *int64
			v, err = r.optInteger(f.typ)
			if v != nil {
				if *v != int64(int32(*v)) {
					return corrupt("sort order id %d", *v)
				}
				id := int32(*v)
				d.SortOrderID = &id
			}
		case f.is(142, "first_row_id"):
			d.FirstRowID, err = r.optInteger(f.typ)
		case f.is(143, "referenced_data_file"):
			var v []byte
			v, err = r.binary(f.typ)
			if v != nil {
				s := string(v)
				d.ReferencedDataFile = &s
			}
		case f.is(144, "content_offset"):
			d.ContentOffset, err = r.optInteger(f.typ)
		case f.is(145, "content_size_in_bytes"):
			d.ContentSize, err = r.optInteger(f.typ)
		default:
			err = r.skip(f.typ)
		}
		if err != nil {
			return fmt.Errorf("field %.40q: %w", f.name, err)
		}
	}
	return nil
}

// knownFormat is one string for all files of a format.
func knownFormat(s string) string {
	switch s {
	case FormatParquet:
		return FormatParquet
	case FormatPuffin:
		return FormatPuffin
	}
	return s
}

func (r *avroReader) text(t *avroType) (string, error) {
	v, err := r.binary(t)
	return string(v), err
}

// count reads a number that cannot be negative.
func (r *avroReader) count(t *avroType) (int64, error) {
	v, _, err := r.integer(t)
	if err == nil && v < 0 {
		err = corrupt("the negative count %d", v)
	}
	return v, err
}

func readPartition(r *avroReader, t *avroType, order []int32) ([]byte, error) {
	t, err := r.resolve(t)
	if err != nil {
		return nil, err
	}
	if t.kind == avroNullKind {
		return schemas.EncodeTuple(make([][]byte, len(order))), nil
	}
	if t.kind != avroRecord {
		return nil, corrupt("partition is a %s", t.kind)
	}
	values := make([][]byte, len(order))
	for i := range t.fields {
		v, err := r.single(t.fields[i].typ)
		if err != nil {
			return nil, fmt.Errorf("partition field %.40q: %w", t.fields[i].name, err)
		}
		for j, id := range order {
			if t.fields[i].id == id {
				values[j] = v
			}
		}
	}
	return schemas.EncodeTuple(values), nil
}

// entries reads Iceberg's map with whole-number keys: an array of records of
// key and value.
func (r *avroReader) entries(t *avroType, value func(id int32, t *avroType) error) (present bool, err error) {
	if t, err = r.resolve(t); err != nil {
		return false, err
	}
	switch t.kind {
	case avroNullKind:
		return false, nil
	case avroArray:
	default:
		return false, corrupt("a %s where a map of metrics belongs", t.kind)
	}
	kv := t.items
	if kv.kind != avroRecord || len(kv.fields) != 2 || kv.fields[0].name != "key" || kv.fields[1].name != "value" {
		return false, corrupt("a map of metrics whose items are not key and value")
	}
	return true, r.blocks(func() error {
		id, ok, err := r.integer(kv.fields[0].typ)
		if err != nil {
			return err
		}
		if !ok || id < math.MinInt32 || id > math.MaxInt32 {
			return corrupt("metrics of field id %d", id)
		}
		return value(int32(id), kv.fields[1].typ)
	})
}

func readCounts(r *avroReader, t *avroType) ([]IDCount, error) {
	out := []IDCount{}
	present, err := r.entries(t, func(id int32, vt *avroType) error {
		v, ok, err := r.integer(vt)
		if ok {
			out = append(out, IDCount{id, v})
		}
		return err
	})
	if err != nil || !present {
		return nil, err
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i].ID < out[j].ID })
	for i := 1; i < len(out); i++ {
		if out[i].ID == out[i-1].ID {
			return nil, corrupt("metrics of field id %d stand twice", out[i].ID)
		}
	}
	return out, nil
}

func readBounds(r *avroReader, t *avroType) ([]IDBytes, error) {
	out := []IDBytes{}
	present, err := r.entries(t, func(id int32, vt *avroType) error {
		v, err := r.binary(vt)
		if v != nil {
			out = append(out, IDBytes{id, append([]byte{}, v...)})
		}
		return err
	})
	if err != nil || !present {
		return nil, err
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i].ID < out[j].ID })
	for i := 1; i < len(out); i++ {
		if out[i].ID == out[i-1].ID {
			return nil, corrupt("bounds of field id %d stand twice", out[i].ID)
		}
	}
	return out, nil
}

func readLongs(r *avroReader, t *avroType) ([]int64, error) {
	t, err := r.resolve(t)
	if err != nil {
		return nil, err
	}
	switch t.kind {
	case avroNullKind:
		return nil, nil
	case avroArray:
	default:
		return nil, corrupt("a %s where a list of numbers belongs", t.kind)
	}
	out := []int64{}
	err = r.blocks(func() error {
		v, ok, err := r.integer(t.items)
		if ok {
			out = append(out, v)
		}
		return err
	})
	return out, err
}

// Inherit fills in what the entries leave to the manifest's line in the list
// (M2, M4): snapshot id, sequence numbers of added entries, first row ids of
// live data files in their order.
func (m *Manifest) Inherit(line *ManifestFile) error {
	var next int64
	if line.FirstRowID != nil {
		next = *line.FirstRowID
	}
	for i := range m.Entries {
		e := &m.Entries[i]
		if e.SnapshotID == nil {
			id := line.AddedSnapshotID
			e.SnapshotID = &id
		}
		for _, seq := range []**int64{&e.Sequence, &e.FileSequence} {
			if *seq != nil {
				continue
			}
			if e.Status != Added && line.Sequence != 0 {
				return corrupt("manifest %s: entry %d is not new, but has no sequence number", line.Path, i)
			}
			v := line.Sequence
			*seq = &v
		}
		if line.FirstRowID != nil && e.Status != Deleted && e.File.Content == Data && e.File.FirstRowID == nil {
			v := next
			e.File.FirstRowID = &v
			if next > math.MaxInt64-e.File.Records {
				return corrupt("manifest %s: row ids overflow", line.Path)
			}
			next += e.File.Records
		}
	}
	return nil
}
