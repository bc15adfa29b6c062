package compactor

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/parquet-go/parquet-go"
	"pgregory.net/rapid"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/dv"
	"github.com/varve-io/varve/schemas/forward"
	"github.com/varve-io/varve/schemas/rows"
)

// memory is a Sink that keeps the bytes.
type memory struct {
	bytes.Buffer
	committed, aborted bool
}

func (m *memory) Commit() error { m.committed = true; return nil }
func (m *memory) Abort() error  { m.aborted = true; return nil }

// outputs opens sinks in memory.
type outputs []*memory

func (o *outputs) open(_ context.Context, n int) (Sink, error) {
	if n != len(*o) {
		return nil, fmt.Errorf("output %d opened after %d", n, len(*o))
	}
	*o = append(*o, &memory{})
	return (*o)[n], nil
}

// modelRow is a live row as the model has it: cells are texts, "null" for nulls.
type modelRow struct {
	key           []byte
	cells         []string
	rowID, seq    int64
	order         int64
	hasOrder      bool
	input         int
	pos           uint32
	output, place uint32
}

type tableShape struct {
	name     string
	old, now *schemas.Schema
	key      []int32
}

// nestedParts is a list of structs with a list.
var nestedParts = schemas.ListOf(10, schemas.StructOf([]schemas.Field{
	{ID: 11, Name: "n", Type: schemas.Of(schemas.Int)},
	{ID: 12, Name: "tags", Type: schemas.ListOf(13, schemas.Of(schemas.String), false)},
}), false)

func shapes() []tableShape {
	of := schemas.Of
	// The current schema: id, price and ratio were widened, one was renamed, two came,
	// one was dropped.
	columns := func(keyed ...int32) (old, now *schemas.Schema) {
		required := func(id int32) bool { return slices.Contains(keyed, id) }
		old = &schemas.Schema{ID: 0, Identifier: keyed, Fields: []schemas.Field{
			{ID: 1, Name: "id", Type: of(schemas.Int), Required: required(1)},
			{ID: 2, Name: "name", Type: of(schemas.String), Required: required(2)},
			{ID: 3, Name: "price", Type: schemas.DecimalOf(9, 2), Required: required(3)},
			{ID: 4, Name: "ratio", Type: of(schemas.Float)},
			{ID: 5, Name: "gone", Type: of(schemas.Long)},
			{ID: 6, Name: "tag", Type: schemas.FixedOf(3)},
			{ID: 9, Name: "parts", Type: nestedParts},
		}}
		now = &schemas.Schema{ID: 1, Identifier: keyed, Fields: []schemas.Field{
			{ID: 7, Name: "country", Type: of(schemas.String), InitialDefault: []byte(`"xx"`)},
			{ID: 1, Name: "id", Type: of(schemas.Long), Required: required(1)},
			{ID: 3, Name: "price", Type: schemas.DecimalOf(20, 2), Required: required(3)},
			{ID: 2, Name: "name", Type: of(schemas.String), Required: required(2)},
			{ID: 8, Name: "flag", Type: of(schemas.Boolean)},
			{ID: 4, Name: "rate", Type: of(schemas.Double)},
			{ID: 6, Name: "tag", Type: schemas.FixedOf(3)},
			{ID: 9, Name: "parts", Type: nestedParts},
		}}
		return old, now
	}
	var out []tableShape
	for name, key := range map[string][]int32{"none": nil, "narrow": {1}, "string": {2}, "wide": {1, 2, 3}} {
		old, now := columns(key...)
		if name == "narrow" || name == "string" {
			// Row groups with a nested column are never copied as they are.
			old.Fields, now.Fields = old.Fields[:len(old.Fields)-1], now.Fields[:len(now.Fields)-1]
		}
		out = append(out, tableShape{name, old, now, key})
	}
	slices.SortFunc(out, func(a, b tableShape) int { return bytes.Compare([]byte(a.name), []byte(b.name)) })
	return out
}

func drawValue(t *rapid.T, c *rows.Column, few bool) {
	n := 1 << 30
	if few {
		n = 5
	}
	v := rapid.IntRange(-n, n).Draw(t, "value")
	switch c.Type.Kind {
	case schemas.Decimal:
		u := int64(v) % 999_999_999
		if c.Storage == rows.Bytes {
			c.AppendBytes(schemas.AppendDecimal16(nil, u))
			return
		}
		c.AppendInt(u)
	case schemas.Boolean:
		c.AppendInt(int64(v & 1))
	case schemas.Int, schemas.Long:
		if v == n {
			c.AppendInt(1<<31 - 1)
			return
		}
		c.AppendInt(int64(v))
	case schemas.Float, schemas.Double:
		c.AppendFloat(float64(float32(v) / 4))
	case schemas.Fixed:
		c.AppendBytes([]byte{byte(v >> 16), byte(v >> 8), byte(v)})
	case schemas.List:
		list := []byte{byte(v & 3)}
		for i := range v & 3 {
			if i == 1 {
				list = append(list, 0)
				continue
			}
			list = append(list, 1, 1, byte(v)&0x7E, 1, 2, 1, 1, byte('a'+v&7), 0)
		}
		c.AppendBytes(list)
	default:
		text := fmt.Sprintf("%d", v)
		if v%3 == 0 {
			text = "same prefix of eight\x00" + text
		}
		if v == 0 {
			text = ""
		}
		c.AppendBytes([]byte(text))
	}
}

func cell(t interface{ Fatal(...any) }, c *rows.Column, i int) string {
	if c.IsNull(i) {
		return "null"
	}
	if c.Type.IsNested() {
		text, err := rows.NewNestedText(c.Type).Append(nil, c.BytesAt(i))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	single, err := c.SingleAt(nil, i)
	if err != nil {
		t.Fatal(err)
	}
	text, err := schemas.AppendText(nil, c.Type, single)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// drawInput makes a file and adds its live rows to the model.
func drawInput(t *rapid.T, shape *tableShape, n int, model *[]modelRow) Input {
	schema := shape.old
	if rapid.Bool().Draw(t, "current schema") {
		schema = shape.now
	}
	b := rows.NewBatch(schema)
	count := rapid.IntRange(0, 60).Draw(t, "rows")
	few := rapid.Bool().Draw(t, "few values")
	nulls := rapid.Bool().Draw(t, "nulls")
	for range count {
		for i := range b.Cols {
			if nulls && !schema.Fields[i].Required && rapid.IntRange(0, 3).Draw(t, "null") == 0 {
				b.Cols[i].AppendNull()
			} else {
				drawValue(t, &b.Cols[i], few)
			}
		}
		b.AppendEvent(rows.Upsert, 0, rapid.Int64Range(-9, 9).Draw(t, "order"), rapid.Bool().Draw(t, "has order"))
	}
	sel := make([]uint32, count)
	for i := range sel {
		sel[i] = uint32(i)
	}
	if shape.key != nil {
		e, err := rows.NewKeyEncoder(schema, shape.key)
		if err != nil {
			t.Fatal(err)
		}
		keys := make([][]byte, count)
		for i := range keys {
			if keys[i], err = e.Append(nil, b, i); err != nil {
				t.Fatal(err)
			}
		}
		slices.SortStableFunc(sel, func(x, y uint32) int { return bytes.Compare(keys[x], keys[y]) })
	}
	o := rows.WriteOptions{
		Schema: schema, Order: rapid.Bool().Draw(t, "order column"), PageRows: 8 * rapid.IntRange(1, 4).Draw(t, "page"),
		RowGroupRows: rapid.IntRange(5, 40).Draw(t, "group"), PageBytes: 1 << rapid.IntRange(4, 10).Draw(t, "page bytes"),
		Uncompressed: rapid.Bool().Draw(t, "uncompressed"), NoDictionary: rapid.Bool().Draw(t, "no dictionary"),
		RowID: rapid.Bool().Draw(t, "row id column"), LastSeq: rapid.Bool().Draw(t, "sequence column"),
	}
	x := rows.Extra{RowID: make([]int64, count), LastSeq: make([]int64, count)}
	for i := range count {
		x.RowID[i] = max(-1, rapid.Int64Range(-3, 50).Draw(t, "row id"))
		x.LastSeq[i] = max(-1, rapid.Int64Range(-3, 50).Draw(t, "sequence"))
	}
	var out bytes.Buffer
	w, err := rows.NewWriter(&out, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Append(b, sel, x); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Close(); err != nil {
		t.Fatal(err)
	}
	in := Input{
		File: uint64(n)<<40 | 7, Name: fmt.Sprintf("file-%d", n), R: bytes.NewReader(out.Bytes()), Size: int64(out.Len()), Rows: int64(count),
		FirstRowID: rapid.Int64Range(-1, 1000).Draw(t, "first row id"), DataSequence: rapid.Int64Range(-1, 9).Draw(t, "data sequence"),
	}
	lo := rapid.IntRange(0, count).Draw(t, "lo")
	hi := rapid.IntRange(lo, count).Draw(t, "hi")
	if rapid.Bool().Draw(t, "whole file") {
		lo, hi = 0, count
	}
	in.Lo, in.Hi = uint32(lo), uint32(hi)
	dead := roaring.New()
	for p := lo; p < hi; p++ {
		if rapid.IntRange(0, 4).Draw(t, "dead") == 0 {
			dead.Add(uint32(p))
		}
	}
	if !dead.IsEmpty() {
		if in.Dead, err = dv.AppendBitmap(nil, dead); err != nil {
			t.Fatal(err)
		}
	}
	addToModel(t, shape, &in, n, dead, o, b, sel, x, model)
	return in
}

func addToModel(t *rapid.T, shape *tableShape, in *Input, n int, dead *roaring.Bitmap, o rows.WriteOptions, b *rows.Batch, sel []uint32, x rows.Extra, model *[]modelRow) {
	f, err := rows.Open(in.R, in.Size)
	if err != nil {
		t.Fatal(err)
	}
	cols, err := f.Read(shape.now.Fields)
	if err != nil {
		t.Fatal(err)
	}
	var e *rows.KeyEncoder
	var keyCols []rows.Column
	if shape.key != nil {
		if e, err = rows.NewKeyEncoder(shape.now, shape.key); err != nil {
			t.Fatal(err)
		}
		for _, id := range e.Fields() {
			keyCols = append(keyCols, cols[shape.now.ByID(id)])
		}
	}
	for p := in.Lo; p < in.Hi; p++ {
		if dead.Contains(p) {
			continue
		}
		r := modelRow{input: n, pos: p, rowID: -1, seq: in.DataSequence}
		if e != nil {
			if r.key, err = e.AppendFrom(nil, keyCols, int(p)); err != nil {
				t.Fatal(err)
			}
		}
		for c := range cols {
			r.cells = append(r.cells, cell(t, &cols[c], int(p)))
		}
		if in.FirstRowID >= 0 {
			r.rowID = in.FirstRowID + int64(p)
		}
		row := sel[p]
		if o.RowID && x.RowID[row] >= 0 {
			r.rowID = x.RowID[row]
		}
		if o.LastSeq && x.LastSeq[row] >= 0 {
			r.seq = x.LastSeq[row]
		}
		if o.Order {
			r.order, r.hasOrder = b.Order[row], b.HasOrder[row] == 1
		}
		*model = append(*model, r)
	}
}

// The outputs hold the live rows in order, with their lineage, and the map says
// where each is (F2, F3, C6, K3, T1).
func TestMergeIsTheModel(t *testing.T) {
	for _, shape := range shapes() {
		t.Run(shape.name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) { checkMerge(t, &shape) })
		})
	}
}

func checkMerge(t *rapid.T, shape *tableShape) {
	var model []modelRow
	var outs outputs
	var fwd bytes.Buffer
	job := &Job{
		Schema: shape.now, Open: outs.open, Map: &fwd, TargetBytes: int64(rapid.IntRange(1, 6000).Draw(t, "target")), ReadAheadBytes: 1, copyRows: int64(rapid.IntRange(1, 30).Draw(t, "copied from")),
		Layout: rows.WriteOptions{PageRows: 16, RowGroupRows: rapid.IntRange(1, 60).Draw(t, "output group"), PageBytes: 128, NoDictionary: rapid.Bool().Draw(t, "plain output")},
	}
	job.PlainIntegers = rapid.Bool().Draw(t, "plain integers")
	for n := range rapid.IntRange(1, 6).Draw(t, "inputs") {
		job.Inputs = append(job.Inputs, drawInput(t, shape, n, &model))
	}
	if shape.key != nil {
		var err error
		if job.Keys, err = rows.NewKeyEncoder(shape.now, shape.key); err != nil {
			t.Fatal(err)
		}
		slices.SortStableFunc(model, func(a, b modelRow) int { return bytes.Compare(a.key, b.key) })
	}
	r, err := Merge(context.Background(), job)
	if err != nil {
		t.Fatal(err)
	}
	same := int64(0)
	for i := range model {
		if i > 0 && shape.key != nil && bytes.Equal(model[i].key, model[i-1].key) {
			same++
		}
	}
	// Pairs inside a copied row group are not counted again.
	if r.Rows != int64(len(model)) || r.SameKey > same || r.SameKey != same && r.Copied == 0 || len(r.Outputs) != len(outs) {
		t.Fatalf("%d rows, %d of a key before, %d outputs; want %d, %d, %d", r.Rows, r.SameKey, len(r.Outputs), len(model), same, len(outs))
	}
	compareOutputs(t, shape, job, r, outs, model)
	compareMap(t, job, r, fwd.Bytes(), model)
}

func compareOutputs(t *rapid.T, shape *tableShape, job *Job, r *Result, outs outputs, model []modelRow) {
	at := 0
	for n, out := range outs {
		info := &r.Outputs[n]
		if !out.committed || out.aborted || int64(out.Len()) != info.Bytes || info.Sorted != (shape.key != nil) || info.Rows == 0 {
			t.Fatalf("output %d: %+v, committed %v", n, info, out.committed)
		}
		f, err := rows.Open(bytes.NewReader(out.Bytes()), int64(out.Len()))
		if err != nil {
			t.Fatal(err)
		}
		cols, err := f.Read(shape.now.Fields)
		if err != nil {
			t.Fatal(err)
		}
		long := schemas.Of(schemas.Long)
		lineage, err := f.Read([]schemas.Field{{ID: schemas.RowIDField, Name: "i", Type: long}, {ID: schemas.LastSeqField, Name: "s", Type: long}, {ID: schemas.OrderField, Name: "o", Type: long}})
		if err != nil {
			t.Fatal(err)
		}
		nulls := make([]int64, len(cols))
		for row := range int(f.NumRows()) {
			if at == len(model) {
				t.Fatalf("output %d has rows beyond the model's", n)
			}
			m := &model[at]
			m.output, m.place = uint32(n), uint32(row)
			for c := range cols {
				got := cell(t, &cols[c], row)
				if got != m.cells[c] {
					t.Fatalf("output %d row %d, %s: %q, want %q of input %d position %d", n, row, shape.now.Fields[c].Name, got, m.cells[c], m.input, m.pos)
				}
				if got == "null" {
					nulls[c]++
				}
			}
			for i, want := range []int64{m.rowID, m.seq} {
				if lineage[i].IsNull(row) != (want < 0) || want >= 0 && lineage[i].Ints[row] != want {
					t.Fatalf("output %d row %d: lineage %d is %d, want %d", n, row, i, lineage[i].Ints[row], want)
				}
			}
			if lineage[2].IsNull(row) == m.hasOrder || m.hasOrder && lineage[2].Ints[row] != m.order {
				t.Fatalf("output %d row %d: order %d", n, row, lineage[2].Ints[row])
			}
			at++
		}
		for c := range cols {
			metrics := info.Metrics(shape.now.Fields[c].ID)
			if cols[c].Type.IsNested() {
				if metrics != nil {
					t.Fatal("a nested column has metrics of its own")
				}
				continue
			}
			if metrics.Values != info.Rows || metrics.Nulls != nulls[c] {
				t.Fatalf("output %d, %s: %d values, %d nulls; want %d, %d", n, shape.now.Fields[c].Name, metrics.Values, metrics.Nulls, info.Rows, nulls[c])
			}
		}
		sameMetrics(t, shape, &info.FileInfo, cols)
		foreign, err := parquet.OpenFile(bytes.NewReader(out.Bytes()), int64(out.Len()))
		if err != nil {
			t.Fatal(err)
		}
		if foreign.NumRows() != info.Rows || len(foreign.RowGroups()) != len(info.SplitOffsets) {
			t.Fatalf("parquet-go sees %d rows in %d groups", foreign.NumRows(), len(foreign.RowGroups()))
		}
		list := make([]parquet.Row, info.Rows)
		reader := parquet.NewReader(foreign)
		if k, err := reader.ReadRows(list); int64(k) != info.Rows || err != nil && !errors.Is(err, io.EOF) {
			t.Fatalf("parquet-go reads %d of %d rows: %v", k, info.Rows, err)
		}
		for row := range list {
			if v := list[row][1]; v.IsNull() != cols[1].IsNull(row) || !v.IsNull() && v.Int64() != cols[1].Ints[row] {
				t.Fatalf("parquet-go sees %s in row %d", v, row)
			}
		}
	}
	if at != len(model) {
		t.Fatalf("%d of %d rows are in the outputs", at, len(model))
	}
}

// sameMetrics: metrics are those of the values, also where they came with the
// bytes of a row group (M5).
func sameMetrics(t *rapid.T, shape *tableShape, info *rows.FileInfo, cols []rows.Column) {
	b := rows.NewBatch(shape.now)
	b.Cols = cols
	n := cols[0].Len()
	b.Ops, b.Offsets, b.Order, b.HasOrder = make([]rows.Op, n), make([]int64, n), make([]int64, n), make([]uint8, n)
	want, err := rows.Write(io.Discard, rows.WriteOptions{Schema: shape.now}, b, nil, rows.Extra{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range want.Columns {
		got, want := info.Columns[i], want.Columns[i]
		got.Size, want.Size = 0, 0
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("metrics of field %d: %+v, want %+v", want.FieldID, got, want)
		}
	}
}

func compareMap(t *rapid.T, job *Job, r *Result, raw []byte, model []modelRow) {
	if r.MapBytes != int64(len(raw)) || r.MapSHA256 != sha256.Sum256(raw) {
		t.Fatalf("the map has %d bytes, the result says %d", len(raw), r.MapBytes)
	}
	m, err := forward.Open(bytes.NewReader(raw), int64(len(raw)))
	if err != nil {
		t.Fatal(err)
	}
	for i := range job.Inputs {
		in := &job.Inputs[i]
		var want []forward.Image
		var positions []uint32
		byPos := map[uint32]*modelRow{}
		for k := range model {
			if model[k].input == i {
				byPos[model[k].pos] = &model[k]
			}
		}
		for p := range uint32(in.Rows) {
			positions = append(positions, p)
			if row := byPos[p]; row != nil {
				want = append(want, forward.Image{Output: row.output, Position: row.place})
			}
		}
		got, err := m.Rebase(nil, i, positions)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("input %d: images %v, want %v", i, got, want)
		}
	}
}
