package readers

import (
	"bytes"
	"fmt"
	"sort"
	"strings"
	"testing"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/iceberg"
	"github.com/varve-io/varve/schemas/rows"
)

// textBatch is rows given as text, one value a column in the schema's order, ∅
// for null.
func textBatch(t *testing.T, s *schemas.Schema, lines ...[]string) *rows.Batch {
	t.Helper()
	b := rows.NewBatch(s)
	for _, line := range lines {
		for i, v := range line {
			if v == "∅" {
				b.Cols[i].AppendNull()
				continue
			}
			single, err := schemas.ParseText(s.Fields[i].Type, v)
			if err != nil {
				t.Fatalf("column %s, %q: %v", s.Fields[i].Name, v, err)
			}
			if err := b.Cols[i].AppendSingle(single); err != nil {
				t.Fatal(err)
			}
		}
		b.AppendEvent(rows.Upsert, 0, 77, true)
	}
	return b
}

// dataFile writes rows with varve's own writer and makes the manifest entry's
// file from what it says about them.
func (h *hand) dataFile(spec *schemas.Spec, b *rows.Batch, sel []uint32, extra rows.Extra) iceberg.DataFile {
	h.t.Helper()
	var buf bytes.Buffer
	info, err := rows.Write(&buf, rows.WriteOptions{Schema: h.def.Schema(), Order: true}, b, sel, extra)
	if err != nil {
		h.t.Fatal(err)
	}
	encoder, err := rows.NewTupleEncoder(h.def.Schema(), spec)
	if err != nil {
		h.t.Fatal(err)
	}
	tuple, err := encoder.Append(nil, b, int(sel[0]))
	if err != nil {
		h.t.Fatal(err)
	}
	h.n++
	name := fmt.Sprintf("data/f%d.parquet", h.n)
	h.write(name, buf.Bytes())
	f := iceberg.DataFile{
		Path: h.uri(name), Format: iceberg.FormatParquet, SpecID: spec.ID, Partition: tuple,
		Records: info.Rows, Bytes: info.Bytes, SplitOffsets: info.SplitOffsets,
		ColumnSizes: []iceberg.IDCount{}, ValueCounts: []iceberg.IDCount{}, NullCounts: []iceberg.IDCount{}, NaNCounts: []iceberg.IDCount{},
		Lower: []iceberg.IDBytes{}, Upper: []iceberg.IDBytes{},
	}
	for _, c := range info.Columns {
		f.ColumnSizes = append(f.ColumnSizes, iceberg.IDCount{ID: c.FieldID, Count: c.Size})
		f.ValueCounts = append(f.ValueCounts, iceberg.IDCount{ID: c.FieldID, Count: c.Values})
		f.NullCounts = append(f.NullCounts, iceberg.IDCount{ID: c.FieldID, Count: c.Nulls})
		if c.Floats {
			f.NaNCounts = append(f.NaNCounts, iceberg.IDCount{ID: c.FieldID, Count: c.NaNs})
		}
		if c.Lower != nil {
			f.Lower = append(f.Lower, iceberg.IDBytes{ID: c.FieldID, Value: c.Lower})
		}
		if c.Upper != nil {
			f.Upper = append(f.Upper, iceberg.IDBytes{ID: c.FieldID, Value: c.Upper})
		}
	}
	return f
}

var ownFields = []schemas.Field{
	{ID: 1, Name: "id", Type: schemas.Of(schemas.Long), Required: true},
	{ID: 2, Name: "s", Type: schemas.Of(schemas.String)},
	{ID: 3, Name: "i", Type: schemas.Of(schemas.Int)},
	{ID: 4, Name: "b", Type: schemas.Of(schemas.Boolean)},
	{ID: 5, Name: "f", Type: schemas.Of(schemas.Float)},
	{ID: 6, Name: "d", Type: schemas.Of(schemas.Double)},
	{ID: 7, Name: "dec9", Type: schemas.DecimalOf(9, 2)},
	{ID: 8, Name: "dec18", Type: schemas.DecimalOf(18, 4)},
	{ID: 9, Name: "dec38", Type: schemas.DecimalOf(38, 10)},
	{ID: 10, Name: "dt", Type: schemas.Of(schemas.Date)},
	{ID: 11, Name: "ts", Type: schemas.Of(schemas.Timestamp)},
	{ID: 12, Name: "tz", Type: schemas.Of(schemas.TimestampTz)},
	{ID: 13, Name: "u", Type: schemas.Of(schemas.UUID)},
	{ID: 14, Name: "fx", Type: schemas.FixedOf(4)},
	{ID: 15, Name: "bin", Type: schemas.Of(schemas.Binary)},
}

var ownRows = [][]string{
	{"1", "plain", "-2147483648", "true", "1.5", "-0.25", "-9999999.99", "-99999999999999.9999", "-9999999999999999999999999999.9999999999",
		"1969-12-31", "1969-12-31T23:59:59.999999", "1969-12-31T23:59:59.999999+00:00", "f79c3e09-677c-4bbd-a479-3f349cb785e7", "ff00ff00", "00ff"},
	{"2", "", "2147483647", "false", "NaN", "NaN", "9999999.99", "99999999999999.9999", "9999999999999999999999999999.9999999999",
		"2024-02-29", "2024-02-29T00:00:00.000000", "2024-02-29T12:00:00.123456+00:00", "00000000-0000-0000-0000-000000000000", "00000000", ""},
	{"-3", "Größe 日本語 😀 longer than sixteen code points", "0", "true", "-Inf", "+Inf", "0.00", "0.0001", "0.0000000001",
		"1582-10-04", "9999-12-31T23:59:59.999999", "0001-01-01T00:00:00.000000+00:00", "ffffffff-ffff-ffff-ffff-ffffffffffff", "7fffffff", strings.Repeat("ab", 40)},
	{"9223372036854775807", "∅", "∅", "∅", "∅", "∅", "∅", "∅", "∅", "∅", "∅", "∅", "∅", "∅", "∅"},
	{"-9223372036854775808", "it's \"quoted\"", "1", "false", "-0", "-0", "1.10", "1.1000", "1.1000000000",
		"1970-01-01", "1970-01-01T00:00:00.000000", "1970-01-01T00:00:00.000000+00:00", "00000000-0000-0000-0000-000000000001", "00000001", "01"},
}

func expect(fields []schemas.Field, lines ...[]string) []string {
	var t Table
	for i := range fields {
		t.Columns = append(t.Columns, fields[i].Name)
	}
	for _, line := range lines {
		row := make([]*string, len(line))
		for i := range line {
			if line[i] != "∅" {
				row[i] = &line[i]
			}
		}
		t.Rows = append(t.Rows, row)
	}
	return t.Sorted()
}

// Data files of varve's writer with their bounds: every value comes back as it
// went in, and no engine prunes a row away that a filter asks for. The hidden
// order column stays hidden.
func TestDataFilesAndBounds(t *testing.T) {
	spec := schemas.Spec{Fields: []schemas.PartitionField{
		{SourceID: 1, FieldID: 1000, Name: "id_bucket", Transform: schemas.Bucket, N: 4},
		{SourceID: 10, FieldID: 1001, Name: "dt_month", Transform: schemas.Month},
		{SourceID: 2, FieldID: 1002, Name: "s_trunc", Transform: schemas.Truncate, N: 3},
	}}
	for _, partitioned := range []bool{false, true} {
		name := "unpartitioned"
		h := (*hand)(nil)
		if partitioned {
			name = "partitioned"
		}
		t.Run(name, func(t *testing.T) {
			used := schemas.Spec{}
			if partitioned {
				used = spec
			}
			h = newHand(t, ownFields, used)
			b := textBatch(t, h.def.Schema(), ownRows...)
			var files []iceberg.DataFile
			if partitioned {
				for i := range ownRows {
					files = append(files, h.dataFile(&used, b, []uint32{uint32(i)}, rows.Extra{}))
				}
			} else {
				files = append(files, h.dataFile(&used, b, []uint32{0, 1, 2, 3, 4}, rows.Extra{}))
			}
			h.commit(cut{op: "append", data: [][]iceberg.Entry{h.added(files...)}})
			for _, e := range All {
				t.Run(string(e), func(t *testing.T) {
					Need(t, e)
					got := read(t, e, h.metadataPath(), Options{}).Sorted()
					if want := expect(ownFields, ownRows...); fmt.Sprint(got) != fmt.Sprint(want) {
						t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
					}
					if e == IcebergGo {
						return
					}
					for c := range ownFields {
						checkFilters(t, e, h.metadataPath(), c)
					}
				})
			}
		})
	}
}

// checkFilters asks for each value of a column, and for null.
func checkFilters(t *testing.T, e Engine, metadata string, c int) {
	t.Helper()
	f := &ownFields[c]
	for i, row := range ownRows {
		v := row[c]
		cond := f.Name + " = " + v
		switch f.Type.Kind {
		case schemas.String, schemas.Date, schemas.Timestamp, schemas.TimestampTz, schemas.UUID:
			cond = f.Name + " = '" + strings.ReplaceAll(v, "'", "''") + "'"
		case schemas.Binary, schemas.Fixed:
			continue
		}
		if v == "∅" {
			cond = f.Name + " is null"
		}
		if !askable(e, f, v) {
			continue
		}
		want := []string{row[0]}
		for j := range ownRows {
			if j != i && ownRows[j][c] == v {
				want = append(want, ownRows[j][0])
			}
		}
		got, err := Read(t.Context(), e, metadata, Options{Filter: cond, Columns: []string{"id"}})
		if err != nil {
			t.Errorf("%s: %v", cond, err)
			continue
		}
		have := got.Column("id")
		sort.Strings(have)
		sort.Strings(want)
		if fmt.Sprint(have) != fmt.Sprint(want) {
			t.Errorf("%s: got ids %v, want %v", cond, have, want)
		}
	}
}

// askable says whether an engine's filter language has a word for the value.
func askable(e Engine, f *schemas.Field, v string) bool {
	switch {
	case strings.Contains(v, "NaN"), strings.Contains(v, "Inf"), v == "-0":
		return false
	}
	return true
}

// A compaction output carries row ids and sequence numbers, and stands under
// an explicit data sequence number (S3, C6): rows keep both, and a vector
// published later still applies.
func TestCompactionOutputKeepsLineage(t *testing.T) {
	fields := ownFields[:2]
	h := newHand(t, fields, schemas.Spec{})
	spec := &h.def.Specs[0]
	first := textBatch(t, h.def.Schema(), []string{"1", "a"}, []string{"2", "b"})
	second := textBatch(t, h.def.Schema(), []string{"3", "c"})
	a := h.dataFile(spec, first, []uint32{0, 1}, rows.Extra{})
	s1 := h.commit(cut{op: "append", data: [][]iceberg.Entry{h.added(a)}})
	b := h.dataFile(spec, second, []uint32{0}, rows.Extra{})
	s2 := h.commit(cut{op: "append", keep: h.live(s1, iceberg.Data), data: [][]iceberg.Entry{h.added(b)}})

	zero, two := int64(0), int64(2)
	a.FirstRowID, b.FirstRowID = &zero, &two
	merged := textBatch(t, h.def.Schema(), []string{"1", "a"}, []string{"2", "b"}, []string{"3", "c"})
	out := h.dataFile(spec, merged, []uint32{2, 1, 0}, rows.Extra{RowID: []int64{0, 1, 2}, LastSeq: []int64{1, 1, 2}})
	added := h.added(out)
	planned := int64(2)
	added[0].Sequence = &planned
	s3 := h.commit(cut{op: "replace", data: [][]iceberg.Entry{append(added,
		h.carried(iceberg.Deleted, s1, 1, a), h.carried(iceberg.Deleted, s2, 2, b))}})

	dead := h.vectors([]iceberg.DataFile{out}, [][]uint32{{1}}) // id 2
	h.commit(cut{op: "delete", keep: h.live(s3, iceberg.Data), deletes: [][]iceberg.Entry{h.added(dead...)}})

	for _, e := range All {
		t.Run(string(e), func(t *testing.T) {
			Need(t, e)
			wantColumn(t, read(t, e, h.metadataPath(), Options{Snapshot: s3}), "id", "1", "2", "3")
			wantColumn(t, read(t, e, h.metadataPath(), Options{}), "id", "1", "3")
			if e == PyIceberg {
				return
			}
			for snapshot, want := range map[int64][]string{s3: {"1/0/1", "2/1/1", "3/2/2"}, 0: {"1/0/1", "3/2/2"}} {
				got := read(t, e, h.metadataPath(), Options{Snapshot: snapshot, Lineage: true})
				var have []string
				for i, id := range got.Column("id") {
					have = append(have, id+"/"+got.Column("_row_id")[i]+"/"+got.Column("_last_updated_sequence_number")[i])
				}
				sort.Strings(have)
				if fmt.Sprint(have) != fmt.Sprint(want) {
					t.Errorf("snapshot %d: got %v, want %v", snapshot, have, want)
				}
			}
		})
	}
}
