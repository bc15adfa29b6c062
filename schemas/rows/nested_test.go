package rows

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/varve-io/varve/schemas"
)

// randomType is a type of at most so many levels; next gives ids.
func randomType(r *rand.Rand, levels int, next func() int32) schemas.Type {
	simple := []schemas.Type{
		schemas.Of(schemas.Boolean), schemas.Of(schemas.Int), schemas.Of(schemas.Long), schemas.Of(schemas.Float),
		schemas.Of(schemas.Double), schemas.DecimalOf(9, 2), schemas.DecimalOf(18, 3), schemas.DecimalOf(30, 4),
		schemas.Of(schemas.Date), schemas.Of(schemas.TimestampTz), schemas.Of(schemas.String), schemas.Of(schemas.UUID),
		schemas.FixedOf(3), schemas.Of(schemas.Binary),
	}
	if levels == 0 {
		return simple[r.IntN(len(simple))]
	}
	inner := func() schemas.Type {
		if r.IntN(3) == 0 {
			return randomType(r, 0, next)
		}
		return randomType(r, r.IntN(levels), next)
	}
	switch r.IntN(3) {
	case 0:
		fields := make([]schemas.Field, 1+r.IntN(4))
		for i := range fields {
			fields[i] = schemas.Field{ID: next(), Name: fmt.Sprintf("f%d", i), Type: inner(), Required: r.IntN(4) == 0}
		}
		return schemas.StructOf(fields)
	case 1:
		return schemas.ListOf(next(), inner(), r.IntN(4) == 0)
	}
	return schemas.MapOf(next(), simple[r.IntN(len(simple))], next(), inner(), r.IntN(4) == 0)
}

// randomNested appends a value of n's type.
func randomNested(r *rand.Rand, dst []byte, n *nest) []byte {
	part := func(dst []byte, c *nest) []byte {
		if !c.required && r.IntN(4) == 0 {
			return append(dst, 0)
		}
		return randomNested(r, append(dst, 1), c)
	}
	switch n.kind {
	case schemas.Struct:
		for _, c := range n.children {
			dst = part(dst, c)
		}
		return dst
	case schemas.List, schemas.Map:
		count := r.IntN(4)
		if r.IntN(50) == 0 {
			count = r.IntN(200)
		}
		dst = binary.AppendUvarint(dst, uint64(count))
		for range count {
			if n.kind == schemas.Map {
				dst = randomNested(r, dst, n.children[0])
			}
			dst = part(dst, n.children[len(n.children)-1])
		}
		return dst
	}
	c := NewColumn(n.typ)
	switch {
	case c.Storage == Ints:
		lo, hi := n.typ.IntRange()
		switch r.IntN(4) {
		case 0:
			c.AppendInt(lo)
		case 1:
			c.AppendInt(hi)
		default:
			c.AppendInt(min(max(int64(r.IntN(100)), lo), hi))
		}
	case n.kind == schemas.Float:
		c.AppendFloat(float64([]float32{0, float32(math.Copysign(0, -1)), 1.5, float32(math.NaN()), float32(math.Inf(1))}[r.IntN(5)]))
	case c.Storage == Floats:
		c.AppendFloat([]float64{0, math.Copysign(0, -1), 0.1, math.NaN(), math.Inf(-1), r.Float64()}[r.IntN(6)])
	case n.kind == schemas.Decimal:
		c.AppendBytes(schemas.AppendDecimal16(nil, r.Int64()-r.Int64()))
	case n.kind == schemas.UUID:
		b := make([]byte, 16)
		binary.LittleEndian.PutUint64(b, r.Uint64())
		c.AppendBytes(b)
	case n.kind == schemas.Fixed:
		c.AppendBytes([]byte{byte(r.IntN(3)), 7, 255})
	default:
		c.AppendBytes([]byte([]string{"", "a", "ä\x00z", "a longer text than the others"}[r.IntN(4)]))
	}
	return AppendNested(dst, &c, 0)
}

// nestedBatch is a batch with a key and some nested columns.
func nestedBatch(r *rand.Rand, rows int) *Batch {
	s := &schemas.Schema{Fields: []schemas.Field{{ID: 1, Name: "id", Type: schemas.Of(schemas.Long), Required: true}}, Identifier: []int32{1}}
	last := int32(100)
	next := func() int32 { last++; return last }
	for i := range 1 + r.IntN(3) {
		t := randomType(r, 1+r.IntN(4), next)
		s.Fields = append(s.Fields, schemas.Field{ID: int32(2 + i), Name: fmt.Sprintf("n%d", i), Type: t})
	}
	b := NewBatch(s)
	for i := range rows {
		b.Cols[0].AppendInt(int64(i))
		for c := 1; c < len(b.Cols); c++ {
			if r.IntN(5) == 0 {
				b.Cols[c].AppendNull()
				continue
			}
			b.Cols[c].AppendBytes(randomNested(r, nil, nestOf(&s.Fields[c])))
		}
		b.AppendEvent(Upsert, int64(i), 0, false)
	}
	return b
}

func sameRows(t *testing.T, what string, got, want *Column, from int) {
	t.Helper()
	for i := range got.Len() {
		if got.IsNull(i) != want.IsNull(from+i) || !got.IsNull(i) && !bytes.Equal(got.BytesAt(i), want.BytesAt(from+i)) {
			t.Fatalf("%s: row %d: %v %x, want %v %x", what, from+i, got.IsNull(i), got.BytesAt(i), want.IsNull(from+i), want.BytesAt(from+i))
		}
	}
}

// Any value of any nested type comes back from a data file as it was, whole and
// in pieces, also out of a file that another writer made of it.
func TestNestedRoundTrip(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 7))
		b := nestedBatch(r, 1+r.IntN(400))
		if err := b.Schema.Validate(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		opts := WriteOptions{Schema: b.Schema, PageRows: 8 + r.IntN(100), RowGroupRows: 50 + r.IntN(500), PageBytes: 200 + r.IntN(2000)}
		var file bytes.Buffer
		info, err := Write(&file, opts, b, nil, Extra{})
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for _, m := range info.Columns {
			if m.FieldID != 1 && (m.Lower != nil || m.Upper != nil || m.Values < m.Nulls) {
				t.Errorf("seed %d: metrics of nested field %d: %+v", seed, m.FieldID, m)
			}
		}
		check := func(what string, data []byte) {
			t.Helper()
			f, err := Open(bytes.NewReader(data), int64(len(data)))
			if err != nil {
				t.Fatalf("seed %d, %s: %v", seed, what, err)
			}
			for _, field := range f.Fields() {
				if at := b.Schema.ByID(field.ID); at < 0 || b.Schema.Fields[at].Type != field.Type {
					t.Fatalf("seed %d, %s: the file has field %d as %s", seed, what, field.ID, field.Type)
				}
			}
			cols, err := f.Read(b.Schema.Fields)
			if err != nil {
				t.Fatalf("seed %d, %s: %v", seed, what, err)
			}
			for c := 1; c < len(cols); c++ {
				if cols[c].Len() != b.Len() {
					t.Fatalf("seed %d, %s: %d rows", seed, what, cols[c].Len())
				}
				sameRows(t, fmt.Sprintf("seed %d, %s, column %d", seed, what, c), &cols[c], &b.Cols[c], 0)
			}
			lo := r.IntN(b.Len() + 1)
			hi := lo + r.IntN(b.Len()+1-lo)
			scan, err := f.Scan(b.Schema.Fields, int64(lo), int64(hi), 1)
			if err != nil {
				t.Fatalf("seed %d, %s: rows %d to %d: %v", seed, what, lo, hi, err)
			}
			at := lo
			for {
				n, err := scan.Next(1 + r.IntN(50))
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatalf("seed %d, %s: rows %d to %d: %v", seed, what, lo, hi, err)
				}
				for c := 1; c < len(cols); c++ {
					got := NewColumn(b.Schema.Fields[c].Type)
					scan.Part(c).AppendTo(&got)
					sameRows(t, fmt.Sprintf("seed %d, %s, scan of column %d", seed, what, c), &got, &b.Cols[c], at)
				}
				at += n
				if _, whole := scan.NextGroup(); whole && r.IntN(3) == 0 {
					g, _ := scan.NextGroup()
					if err := scan.SkipGroup(); err != nil {
						t.Fatal(err)
					}
					at += int(f.GroupRows(g))
				}
			}
			if at != hi {
				t.Fatalf("seed %d, %s: the scan ends at row %d of %d", seed, what, at, hi)
			}
		}
		check("own file", file.Bytes())
		check("copied by parquet-go", rewritten(t, file.Bytes(), 1+int(seed%2)))

		// Picked rows are the same file as appended ones.
		var picked bytes.Buffer
		w, err := NewWriter(&picked, opts)
		if err != nil {
			t.Fatal(err)
		}
		parts := make([][]*Part, len(b.Cols))
		for c := range b.Cols {
			p := &Part{}
			p.ofColumn(&b.Cols[c], false, nil)
			parts[c] = []*Part{p}
		}
		picks := make([]uint32, b.Len())
		for i := range picks {
			picks[i] = Pick(0, i)
		}
		if err := w.AppendPicks(parts, picks, Extra{}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(picked.Bytes(), file.Bytes()) {
			t.Fatalf("seed %d: picked rows make another file", seed)
		}
	}
}

// rewritten is the file as parquet-go writes its rows, in data pages of a version.
func rewritten(t *testing.T, file []byte, version int) []byte {
	t.Helper()
	in, err := parquet.OpenFile(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w := parquet.NewWriter(&out, in.Schema(), parquet.DataPageVersion(version), parquet.PageBufferSize(512))
	for _, g := range in.RowGroups() {
		rows := g.Rows()
		if _, err := parquet.CopyRows(w, rows); err != nil {
			t.Fatal(err)
		}
		if err := rows.Close(); err != nil {
			t.Fatal(err)
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// A file of an older version of a nested type is read as the newer one: what is
// new is null or its initial default, what was widened is converted.
func TestNestedEvolution(t *testing.T) {
	old := schemas.StructOf([]schemas.Field{
		{ID: 10, Name: "a", Type: schemas.Of(schemas.Int)},
		{ID: 11, Name: "p", Type: schemas.DecimalOf(18, 2)},
		{ID: 12, Name: "l", Type: schemas.ListOf(13, schemas.StructOf([]schemas.Field{{ID: 14, Name: "x", Type: schemas.Of(schemas.Float)}}), false)},
		{ID: 15, Name: "s", Type: schemas.StructOf([]schemas.Field{{ID: 16, Name: "tags", Type: schemas.ListOf(17, schemas.Of(schemas.String), false)}})},
	})
	// The same with a new field in each struct; of s the new field only is read.
	next := schemas.StructOf([]schemas.Field{
		{ID: 20, Name: "new", Type: schemas.Of(schemas.String), InitialDefault: json.RawMessage(`"was not there"`)},
		{ID: 12, Name: "l", Type: schemas.ListOf(13, schemas.StructOf([]schemas.Field{
			{ID: 14, Name: "x", Type: schemas.Of(schemas.Double)}, {ID: 21, Name: "y", Type: schemas.Of(schemas.Long)}}), false)},
		{ID: 10, Name: "a", Type: schemas.Of(schemas.Long)},
		{ID: 11, Name: "p", Type: schemas.DecimalOf(20, 2)},
		{ID: 15, Name: "s", Type: schemas.StructOf([]schemas.Field{{ID: 16, Name: "tags", Type: schemas.ListOf(17, schemas.Of(schemas.String), false)},
			{ID: 22, Name: "n", Type: schemas.Of(schemas.Int)}})},
	})
	if !old.CanWiden(next) || next.CanWiden(old) || !next.Holds(old) {
		t.Fatal("the newer type takes every value of the older one, and not the reverse")
	}
	s := &schemas.Schema{Fields: []schemas.Field{{ID: 1, Name: "v", Type: old}}}
	b := NewBatch(s)
	scratch := func(t schemas.Type, f func(c *Column)) []byte {
		c := NewColumn(t)
		f(&c)
		return AppendNested([]byte{1}, &c, 0)
	}
	v := scratch(schemas.Of(schemas.Int), func(c *Column) { c.AppendInt(-5) })
	v = append(v, scratch(schemas.DecimalOf(18, 2), func(c *Column) { c.AppendInt(-123) })...)
	v = append(v, 1, 2, 1)
	v = append(v, scratch(schemas.Of(schemas.Float), func(c *Column) { c.AppendFloat(0.5) })...)
	v = append(v, 0)
	v = append(v, 1, 1, 2, 1, 1, 'q', 0) // s is there, its tags too: "q" and null
	b.Cols[0].AppendBytes(v)
	b.AppendEvent(Upsert, 0, 0, false)
	b.AppendEvent(Upsert, 1, 0, false)
	v = []byte{0, 0, 0, 0}
	b.Cols[0].AppendBytes(v)
	b.AppendEvent(Upsert, 2, 0, false)

	const want0 = `{"new":"was not there","l":[{"x":0.5,"y":null},null],"a":-5,"p":"-1.23","s":{"tags":["q",null],"n":null}}`
	const want2 = `{"new":"was not there","l":null,"a":null,"p":null,"s":null}`
	text := func(typ schemas.Type, v []byte) string {
		out, err := NewNestedText(typ).Append(nil, v)
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	var file bytes.Buffer
	if _, err := Write(&file, WriteOptions{Schema: s}, b, nil, Extra{}); err != nil {
		t.Fatal(err)
	}
	f, err := Open(bytes.NewReader(file.Bytes()), int64(file.Len()))
	if err != nil {
		t.Fatal(err)
	}
	cols, err := f.Read([]schemas.Field{{ID: 1, Name: "v", Type: next}})
	if err != nil {
		t.Fatal(err)
	}
	if got := text(next, cols[0].BytesAt(0)); got != want0 {
		t.Errorf("row 0 is %s, want %s", got, want0)
	}
	if !cols[0].IsNull(1) {
		t.Error("row 1 is not null")
	}
	if got := text(next, cols[0].BytesAt(2)); got != want2 {
		t.Errorf("row 2 is %s, want %s", got, want2)
	}
	// What is in memory changes in the same way.
	change, err := NewNestedChange(old, next)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range map[int]string{0: want0, 2: want2} {
		v, err := change.Append(nil, b.Cols[0].BytesAt(i))
		if err != nil {
			t.Fatal(err)
		}
		if got := text(next, v); got != want {
			t.Errorf("changed row %d is %s, want %s", i, got, want)
		}
	}
	// A version of which nothing but a new field is wanted.
	only := schemas.StructOf([]schemas.Field{{ID: 22, Name: "n", Type: schemas.Of(schemas.Int)}})
	a, err := f.assemble(&schemas.Field{ID: 1, Name: "v", Type: only}, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	c := NewColumn(only)
	for range 3 {
		if err := a.appendRow(&c); err != nil {
			t.Fatal(err)
		}
	}
	if string(c.Valid) != "\x01\x00\x01" || string(c.Data) != "\x00\x00" {
		t.Errorf("a struct of new fields only: %v %v", c.Valid, c.Data)
	}
	// Another type is refused.
	bad := schemas.StructOf([]schemas.Field{{ID: 10, Name: "a", Type: schemas.Of(schemas.String)}})
	if _, err := f.Read([]schemas.Field{{ID: 1, Name: "v", Type: bad}}); err == nil {
		t.Error("an int is read as a string")
	}
	if _, err := f.Read([]schemas.Field{{ID: 1, Name: "v", Type: schemas.Of(schemas.String)}}); !errors.Is(err, ErrUnsupported) {
		t.Errorf("a struct is read as a string: %v", err)
	}
}

// Bytes that are no value of their type are refused by the writer.
func TestNestedIllFormed(t *testing.T) {
	typ := schemas.ListOf(2, schemas.StructOf([]schemas.Field{{ID: 3, Name: "a", Type: schemas.Of(schemas.Int), Required: true}}), false)
	s := &schemas.Schema{Fields: []schemas.Field{{ID: 1, Name: "v", Type: typ}}}
	for name, v := range map[string]string{
		"empty": "", "cut": "\x02\x01\x01\x02", "too long": "\x00\x00", "no presence": "\x01\x02", "required": "\x01\x01\x00",
		"count beyond the bytes": "\xff\xff\xff\xff\x0f", "out of range": "\x01\x01\x01\xff\xff\xff\xff\xff\x01",
	} {
		b := NewBatch(s)
		b.Cols[0].AppendBytes([]byte(v))
		b.AppendEvent(Upsert, 0, 0, false)
		var file bytes.Buffer
		if _, err := Write(&file, WriteOptions{Schema: s}, b, nil, Extra{}); err == nil {
			t.Errorf("%s: it was written", name)
		}
	}
}

// FuzzNestedFile reads damaged files with nested columns: an error or values of
// their type, never a panic.
func FuzzNestedFile(f *testing.F) {
	for seed := range uint64(6) {
		r := rand.New(rand.NewPCG(seed, 3))
		b := nestedBatch(r, 20)
		var file bytes.Buffer
		if _, err := Write(&file, WriteOptions{Schema: b.Schema, PageRows: 8, RowGroupRows: 12, Uncompressed: true}, b, nil, Extra{}); err != nil {
			f.Fatal(err)
		}
		f.Add(file.Bytes())
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := Open(bytes.NewReader(data), int64(len(data)))
		if err != nil || file.NumRows() > 1000 {
			return
		}
		fields := file.Fields()
		for i := range fields {
			cols, err := file.Read(fields[i : i+1])
			if err != nil || !fields[i].Type.IsNested() {
				continue
			}
			n := nestOf(&fields[i])
			for row := range cols[0].Len() {
				if cols[0].IsNull(row) {
					continue
				}
				w := walker{b: cols[0].BytesAt(row)}
				_ = n.check(&w)
				if w.bad || len(w.b) > 0 {
					t.Fatalf("column %q, row %d: the bytes are no value of %s", fields[i].Name, row, fields[i].Type)
				}
			}
		}
	})
}
