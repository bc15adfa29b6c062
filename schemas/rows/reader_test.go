package rows

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress"
	"github.com/parquet-go/parquet-go/encoding"

	"github.com/varve-io/varve/schemas"
)

func written(t testing.TB, o WriteOptions, b *Batch) []byte {
	t.Helper()
	o.Schema = b.Schema
	var out bytes.Buffer
	if _, err := Write(&out, o, b, nil, Extra{}); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func opened(t testing.TB, b []byte) *File {
	t.Helper()
	f, err := Open(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// T1: a file of an older schema read in the current one.
func TestReadInAnotherSchema(t *testing.T) {
	of := schemas.Of
	s := &schemas.Schema{Fields: []schemas.Field{
		{ID: 1, Name: "id", Type: of(schemas.Int), Required: true},
		{ID: 2, Name: "price", Type: schemas.DecimalOf(9, 2)},
		{ID: 3, Name: "ratio", Type: of(schemas.Float)},
		{ID: 4, Name: "dropped", Type: of(schemas.String)},
		{ID: 5, Name: "wide", Type: schemas.DecimalOf(20, 1)},
	}}
	b := NewBatch(s)
	for i, texts := range [][]string{{"-1", "-14.20", "1.5", "x", "1.5"}, {"7", "", "", "", ""}, {"2147483647", "9999999.99", "-0", "", "-1.5"}} {
		for c, text := range texts {
			if text == "" {
				b.Cols[c].AppendNull()
			} else if err := ParseKeyText(&b.Cols[c], text); err != nil {
				t.Fatal(err)
			}
		}
		b.AppendEvent(Upsert, int64(i), 0, false)
	}
	f := opened(t, written(t, WriteOptions{RowGroupRows: 2}, b))
	want := []schemas.Field{
		{ID: 9, Name: "added", Type: of(schemas.String)},
		{ID: 5, Name: "wide", Type: schemas.DecimalOf(38, 1)},
		{ID: 3, Name: "ratio", Type: of(schemas.Double)},
		{ID: 2, Name: "renamed", Type: schemas.DecimalOf(19, 2)},
		{ID: 1, Name: "id", Type: of(schemas.Long), Required: true},
		{ID: 10, Name: "country", Type: of(schemas.String), Required: true, InitialDefault: json.RawMessage(`"ö"`)},
		{ID: 11, Name: "since", Type: of(schemas.Date), InitialDefault: json.RawMessage(`"1969-12-31"`)},
	}
	check := func(cols []Column, from, to int) {
		t.Helper()
		expected := [][]string{
			{"null", "null", "null"}, {"1.5", "null", "-1.5"}, {"1.5", "null", "-0"}, {"-14.20", "null", "9999999.99"},
			{"-1", "7", "2147483647"}, {"ö", "ö", "ö"}, {"1969-12-31", "1969-12-31", "1969-12-31"},
		}
		for i := range want {
			if cols[i].Type != want[i].Type || cols[i].Storage != StorageOf(want[i].Type) || cols[i].Len() != to-from {
				t.Fatalf("%s: %d values of %s", want[i].Name, cols[i].Len(), cols[i].Type)
			}
			for row := from; row < to; row++ {
				got := "null"
				if !cols[i].IsNull(row - from) {
					single, err := cols[i].SingleAt(nil, row-from)
					if err != nil {
						t.Fatal(err)
					}
					text, err := schemas.AppendText(nil, cols[i].Type, single)
					if err != nil {
						t.Fatal(err)
					}
					got = string(text)
				}
				if got != expected[i][row] {
					t.Errorf("%s row %d: %s, want %s", want[i].Name, row, got, expected[i][row])
				}
			}
		}
	}
	cols, err := f.Read(want)
	if err != nil {
		t.Fatal(err)
	}
	check(cols, 0, 3)
	for g, span := range [][2]int{{0, 2}, {2, 3}} {
		if cols, err = f.ReadGroup(g, want); err != nil {
			t.Fatal(err)
		}
		check(cols, span[0], span[1])
	}

	for name, field := range map[string]schemas.Field{
		"required without default": {ID: 12, Name: "c", Type: of(schemas.Int), Required: true},
		"default of another type":  {ID: 12, Name: "c", Type: of(schemas.Int), InitialDefault: json.RawMessage(`"x"`)},
		"narrower":                 {ID: 5, Name: "c", Type: schemas.DecimalOf(19, 1)},
		"another scale":            {ID: 2, Name: "c", Type: schemas.DecimalOf(9, 3)},
		"another kind":             {ID: 1, Name: "c", Type: of(schemas.String)},
		"null where required":      {ID: 3, Name: "c", Type: of(schemas.Float), Required: true},
	} {
		if _, err := f.Read([]schemas.Field{field}); err == nil || !strings.Contains(err.Error(), `"c"`) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := f.ReadColumns([]int32{99}); err == nil {
		t.Error("a column that is not there was read")
	}
	fields := f.Fields()
	if len(fields) != 5 || !fields[0].Required || fields[1].Required || fields[4].Type != schemas.DecimalOf(20, 1) || !f.HasFieldIDs() || f.Has(9) || !f.Has(4) {
		t.Errorf("fields %+v", fields)
	}
}

func TestEmptyFile(t *testing.T) {
	b := NewBatch(allTypes())
	f := opened(t, written(t, WriteOptions{}, b))
	cols, err := f.ReadColumns([]int32{1, 17})
	if err != nil || f.NumRows() != 0 || cols[0].Len() != 0 || cols[1].Len() != 0 {
		t.Errorf("%d rows, %v", f.NumRows(), err)
	}
}

// parquet-go, as a reader that shares no code with the writer, sees the same
// rows, row groups, bounds and page index.
func TestParquetGoReadsOurFiles(t *testing.T) {
	b := randomBatch(allTypes(), 3000, 5)
	for _, o := range []WriteOptions{{}, {PageRows: 64, RowGroupRows: 1000, PageBytes: 500}, {DeltaIntegers: true, NoDictionary: true}} {
		o.Schema = b.Schema
		var out bytes.Buffer
		info, err := Write(&out, o, b, nil, Extra{})
		if err != nil {
			t.Fatal(err)
		}
		f, err := parquet.OpenFile(bytes.NewReader(out.Bytes()), int64(out.Len()))
		if err != nil {
			t.Fatal(err)
		}
		if got := len(f.RowGroups()); got != len(info.SplitOffsets) {
			t.Fatalf("%d row groups, %d split offsets", got, len(info.SplitOffsets))
		}
		row := 0
		for g, rg := range f.RowGroups() {
			if at := f.Metadata().RowGroups[g].FileOffset; at != info.SplitOffsets[g] {
				t.Errorf("row group %d starts at %d, its split offset is %d", g, at, info.SplitOffsets[g])
			}
			for i, chunk := range rg.ColumnChunks() {
				checkPageIndex(t, &b.Cols[i], chunk, row)
				pages := chunk.Pages()
				at := row
				for {
					p, err := pages.ReadPage()
					if err == io.EOF {
						break
					}
					if err != nil {
						t.Fatalf("%s: %v", b.Schema.Fields[i].Name, err)
					}
					values := make([]parquet.Value, p.NumValues())
					if n, err := p.Values().ReadValues(values); n != len(values) || err != nil && err != io.EOF {
						t.Fatalf("%d of %d values: %v", n, len(values), err)
					}
					for _, v := range values {
						if !sameValue(&b.Cols[i], at, v) {
							t.Fatalf("%s row %d: another value", b.Schema.Fields[i].Name, at)
						}
						at++
					}
				}
				if err := pages.Close(); err != nil {
					t.Fatal(err)
				}
				if at-row != int(rg.NumRows()) {
					t.Fatalf("%s: %d values for %d rows", b.Schema.Fields[i].Name, at-row, rg.NumRows())
				}
			}
			row += int(rg.NumRows())
		}
	}
}

func sameValue(c *Column, row int, v parquet.Value) bool {
	if c.IsNull(row) || v.IsNull() {
		return c.IsNull(row) == v.IsNull()
	}
	switch v.Kind() {
	case parquet.Boolean:
		return v.Boolean() == (c.Ints[row] == 1)
	case parquet.Int32:
		return int64(v.Int32()) == c.Ints[row]
	case parquet.Int64:
		return v.Int64() == c.Ints[row]
	case parquet.Float:
		return v.Float() == float32(c.Floats[row]) || c.Floats[row] != c.Floats[row]
	case parquet.Double:
		return v.Double() == c.Floats[row] || c.Floats[row] != c.Floats[row]
	}
	if c.Type.Kind == schemas.Decimal {
		return bytes.Equal(widen(v.ByteArray()), c.BytesAt(row))
	}
	return bytes.Equal(v.ByteArray(), c.BytesAt(row))
}

// checkPageIndex compares each page's bounds with its rows.
func checkPageIndex(t *testing.T, c *Column, chunk parquet.ColumnChunk, row int) {
	t.Helper()
	index, err := chunk.ColumnIndex()
	if errors.Is(err, parquet.ErrMissingColumnIndex) || index == nil {
		if c.Storage == Floats || c.Type.Kind == schemas.Binary || c.Type.Kind == schemas.Fixed || c.Type.Kind == schemas.String ||
			c.Type.Kind == schemas.UUID {
			return // a NaN, a value without a short upper bound, a type without bounds
		}
		t.Fatalf("%s: no column index", c.Type)
	}
	if err != nil {
		t.Fatal(err)
	}
	offsets, err := chunk.OffsetIndex()
	if err != nil {
		t.Fatal(err)
	}
	end := int(chunk.(*parquet.FileColumnChunk).NumValues())
	for p := range index.NumPages() {
		from, to := int(offsets.FirstRowIndex(p)), end
		if p+1 < index.NumPages() {
			to = int(offsets.FirstRowIndex(p + 1))
		}
		nulls := int64(0)
		for i := row + from; i < row+to; i++ {
			if c.IsNull(i) {
				nulls++
				continue
			}
			lo, hi := index.MinValue(p), index.MaxValue(p)
			ok := true
			switch {
			case lo.Kind() == parquet.Int32:
				ok = int64(lo.Int32()) <= c.Ints[i] && c.Ints[i] <= int64(hi.Int32())
			case lo.Kind() == parquet.Int64:
				ok = lo.Int64() <= c.Ints[i] && c.Ints[i] <= hi.Int64()
			case c.Storage == Bytes && c.Type.Kind != schemas.Decimal:
				ok = bytes.Compare(lo.ByteArray(), c.BytesAt(i)) <= 0 && bytes.Compare(c.BytesAt(i), hi.ByteArray()) <= 0
			}
			if !ok {
				t.Fatalf("%s: row %d lies outside of the bounds of its page", c.Type, i)
			}
		}
		if index.NullCount(p) != nulls || index.NullPage(p) != (nulls == int64(to-from)) {
			t.Fatalf("%s: page %d has %d nulls, its index says %d", c.Type, p, nulls, index.NullCount(p))
		}
	}
}

// Files of another writer: page versions, codecs and encodings that varve does
// not write itself.
func TestReadForeignFiles(t *testing.T) {
	id := func(n int, node parquet.Node) parquet.Node { return parquet.FieldID(node, n) }
	enc := func(e encoding.Encoding, n parquet.Node) parquet.Node { return parquet.Encoded(n, e) }
	group := parquet.Group{
		"a_delta":    id(1, enc(&parquet.DeltaBinaryPacked, parquet.Required(parquet.Leaf(parquet.Int64Type)))),
		"b_delta32":  id(2, enc(&parquet.DeltaBinaryPacked, parquet.Optional(parquet.Leaf(parquet.Int32Type)))),
		"c_lengths":  id(3, enc(&parquet.DeltaLengthByteArray, parquet.Optional(parquet.String()))),
		"d_prefixes": id(4, enc(&parquet.DeltaByteArray, parquet.Optional(parquet.String()))),
		"e_dict":     id(5, enc(&parquet.RLEDictionary, parquet.Optional(parquet.String()))),
		"f_split":    id(6, enc(&parquet.ByteStreamSplit, parquet.Optional(parquet.Leaf(parquet.DoubleType)))),
		"g_rle":      id(7, enc(&parquet.RLE, parquet.Optional(parquet.Leaf(parquet.BooleanType)))),
		"h_decimal":  id(8, parquet.Optional(parquet.Decimal(2, 12, parquet.FixedLenByteArrayType(6)))),
		"i_millis":   id(9, parquet.Optional(parquet.Timestamp(parquet.Millisecond))),
		"j_nested":   id(10, parquet.Optional(parquet.Group{"x": id(11, parquet.Optional(parquet.Leaf(parquet.Int32Type)))})),
		"k_list":     id(12, parquet.Repeated(parquet.Leaf(parquet.Int32Type))),
		"l_last":     id(13, parquet.Optional(parquet.Leaf(parquet.FloatType))),
	}
	schema := parquet.NewSchema("foreign", group)
	const n = 3000
	rng := rand.New(rand.NewPCG(42, 8))
	var list []parquet.Row
	for i := range n {
		null := func(col int, v parquet.Value) parquet.Value {
			if rng.IntN(5) == 0 {
				return parquet.NullValue().Level(0, 0, col)
			}
			return v.Level(0, 1, col)
		}
		text := strings.Repeat("prefix", rng.IntN(3)) + fmt.Sprint(rng.IntN(50))
		unscaled := []byte{0xff, 0xff, 0xff, 0xff, byte(i >> 8), byte(i)}
		list = append(list, parquet.Row{
			parquet.Int64Value(rng.Int64()-rng.Int64()).Level(0, 0, 0),
			null(1, parquet.Int32Value(int32(rng.Uint32()))),
			null(2, parquet.ByteArrayValue([]byte(text))),
			null(3, parquet.ByteArrayValue([]byte(text))),
			null(4, parquet.ByteArrayValue([]byte(text))),
			null(5, parquet.DoubleValue(rng.NormFloat64())),
			null(6, parquet.BooleanValue(i%3 == 0)),
			null(7, parquet.FixedLenByteArrayValue(unscaled)),
			null(8, parquet.Int64Value(int64(i))),
			parquet.Int32Value(1).Level(0, 2, 9),
			parquet.NullValue().Level(0, 0, 10),
			null(11, parquet.FloatValue(float32(i)/2)),
		})
	}
	for _, codec := range []compress.Codec{&parquet.Uncompressed, &parquet.Snappy, &parquet.Gzip, &parquet.Brotli, &parquet.Lz4Raw, &parquet.Zstd} {
		for version := 1; version <= 2; version++ {
			t.Run(fmt.Sprintf("%s v%d", codec, version), func(t *testing.T) {
				var out bytes.Buffer
				w := parquet.NewWriter(&out, schema, parquet.Compression(codec), parquet.DataPageVersion(version), parquet.PageBufferSize(2000), parquet.MaxRowsPerRowGroup(1100))
				if _, err := w.WriteRows(list); err != nil {
					t.Fatal(err)
				}
				if err := w.Close(); err != nil {
					t.Fatal(err)
				}
				f := opened(t, out.Bytes())
				fields := f.Fields()
				checkScan(t, f, fields, rng)
				cols, err := f.ReadColumns([]int32{1, 2, 3, 4, 5, 6, 7, 8, 9, 13})
				if err != nil {
					t.Fatal(err)
				}
				if cols[7].Type != schemas.DecimalOf(12, 2) {
					t.Errorf("a decimal is a %s", cols[7].Type)
				}
				if cols[8].Type != schemas.Of(schemas.TimestampTz) {
					t.Errorf("a timestamp is a %s", cols[8].Type)
				}
				for c, at := range []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 11} {
					if cols[c].Len() != n {
						t.Fatalf("%d values of column %d", cols[c].Len(), c)
					}
					for row := range list {
						v := list[row][at]
						same := false
						switch {
						case c == 7 && !v.IsNull():
							same = !cols[c].IsNull(row) && cols[c].Ints[row] == int64(row)-1<<16
						case c == 8 && !v.IsNull():
							same = !cols[c].IsNull(row) && cols[c].Ints[row] == 1000*int64(row)
						default:
							same = sameValue(&cols[c], row, v)
						}
						if !same {
							t.Fatalf("column %d row %d: another value", c, row)
						}
					}
				}
				for _, id := range []int32{11, 12} {
					if f.Has(id) {
						t.Errorf("field %d, of a struct or of a repeated column without a list, is offered", id)
					}
				}
				nested, err := f.ReadColumns([]int32{10})
				if err != nil {
					t.Fatal(err)
				}
				for row := range n {
					if text, err := NewNestedText(nested[0].Type).Append(nil, nested[0].BytesAt(row)); err != nil || string(text) != `{"x":1}` {
						t.Fatalf("row %d of a struct is %s, %v", row, text, err)
					}
				}
			})
		}
	}
}

// readAll reads every column that the file offers.
func readAll(b []byte) error {
	f, err := Open(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return err
	}
	if f.NumRows() > 1<<20 {
		return ErrUnsupported // more than the test means to hold in memory
	}
	for _, field := range f.Fields() {
		if _, err := f.Read([]schemas.Field{field}); err != nil {
			return err
		}
		n := f.NumRows()
		if _, err := scanned(f, []schemas.Field{field}, n/3, n-n/3, 7, 0); err != nil {
			return err
		}
	}
	return copyAll(f)
}

// copyAll copies every row group that may be.
func copyAll(f *File) error {
	w, err := NewWriter(io.Discard, WriteOptions{Schema: &schemas.Schema{Fields: f.Fields()}})
	if err != nil {
		return err
	}
	for g := range f.NumRowGroups() {
		c, err := w.CopyOf(f, g, 0, 1)
		if errors.Is(err, ErrCannotCopy) {
			continue
		}
		if err != nil {
			return err
		}
		if err := w.Copy(c); err != nil {
			return err
		}
	}
	_, err = w.Close()
	return err
}

// A damaged file is an error of ours, never a panic; damage to a page is
// always seen, for pages carry checksums.
func TestDamagedFiles(t *testing.T) {
	b := randomBatch(allTypes(), 40, 3)
	for _, o := range []WriteOptions{{PageRows: 16}, {DeltaIntegers: true, NoDictionary: true, Uncompressed: true}} {
		good := written(t, o, b)
		if err := readAll(good); err != nil {
			t.Fatal(err)
		}
		ours := func(at string, err error) {
			t.Helper()
			if err != nil && !errors.Is(err, ErrBadFile) && !errors.Is(err, ErrUnsupported) {
				t.Fatalf("%s: %v", at, err)
			}
		}
		for cut := 0; cut < len(good); cut += 13 {
			err := readAll(good[:cut])
			ours(fmt.Sprintf("cut at %d", cut), err)
			if err == nil {
				t.Fatalf("a file cut at %d was read", cut)
			}
		}
		seen := 0
		for at := 0; at < len(good); at += 3 {
			bad := bytes.Clone(good)
			bad[at] ^= 0x55
			err := readAll(bad)
			ours(fmt.Sprintf("byte %d", at), err)
			if err != nil {
				seen++
			}
		}
		if seen < len(good)/9 {
			t.Errorf("of %d flipped bytes only %d were seen", len(good)/3, seen)
		}
	}
	for _, name := range []string{"", "PAR1", "PAR1PAR1", "PAR1\x00\x00\x00\x00PAR1", "PAR1\x00\xff\xff\xff\xffPAR1"} {
		if err := readAll([]byte(name)); !errors.Is(err, ErrBadFile) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func FuzzOpen(f *testing.F) {
	// Small seeds, a column each: run with -fuzzminimizetime 1x, or most of the
	// time goes into making them smaller.
	for _, field := range allTypes().Fields {
		b := randomBatch(&schemas.Schema{Fields: []schemas.Field{{ID: 100, Name: "k", Type: schemas.Of(schemas.Int)}, field}}, 0, 3)
		rng := rand.New(rand.NewPCG(9, 9))
		for row := range 12 {
			b.Cols[0].AppendNull()
			if row%4 == 1 && !field.Required {
				b.Cols[1].AppendNull()
			} else {
				randomValue(&b.Cols[1], rng, 2)
			}
			b.AppendEvent(Upsert, int64(row), 0, false)
		}
		f.Add(written(f, WriteOptions{PageRows: 8}, b))
		f.Add(written(f, WriteOptions{DeltaIntegers: true, NoDictionary: true, Uncompressed: true}, b))
	}
	for _, name := range []string{"int96-plain", "int96-dict", "millis-delta"} {
		f.Add(foreignTimes(f, name+".parquet"))
	}
	f.Add([]byte("PAR1PAR1PAR1"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := readAll(b); err != nil && !errors.Is(err, ErrBadFile) && !errors.Is(err, ErrUnsupported) {
			t.Fatal(err)
		}
	})
}
