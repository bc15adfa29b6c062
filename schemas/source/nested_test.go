package source

import (
	"encoding/binary"
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/rows"
)

// drawType is a nested type of a few levels, without ids.
func drawType(r *rapid.T, levels int, simple []schemas.Type) schemas.Type {
	inner := func() schemas.Type {
		if levels <= 1 || rapid.Bool().Draw(r, "simple") {
			return rapid.SampledFrom(simple).Draw(r, "type")
		}
		return drawType(r, levels-1, simple)
	}
	switch rapid.IntRange(0, 2).Draw(r, "kind") {
	case 0:
		var fields []schemas.Field
		for i := range rapid.IntRange(1, 3).Draw(r, "fields") {
			fields = append(fields, schemas.Field{Name: string(rune('a' + i)), Type: inner()})
		}
		return schemas.StructOf(fields)
	case 1:
		return schemas.ListOf(0, inner(), false)
	}
	return schemas.MapOf(0, schemas.Of(schemas.String), 0, inner(), false)
}

// drawValue appends a value of a type.
func drawValue(r *rapid.T, dst []byte, t schemas.Type) []byte {
	part := func(t schemas.Type) {
		if rapid.IntRange(0, 4).Draw(r, "null") == 0 {
			dst = append(dst, 0)
			return
		}
		dst = drawValue(r, append(dst, 1), t)
	}
	children := t.Children()
	switch t.Kind {
	case schemas.Struct:
		for i := range children {
			part(children[i].Type)
		}
		return dst
	case schemas.List:
		n := rapid.IntRange(0, 3).Draw(r, "elements")
		dst = binary.AppendUvarint(dst, uint64(n))
		for range n {
			part(children[0].Type)
		}
		return dst
	case schemas.Map:
		keys := rapid.SliceOfNDistinct(rapid.String(), 0, 3, rapid.ID).Draw(r, "keys")
		dst = binary.AppendUvarint(dst, uint64(len(keys)))
		for _, k := range keys {
			dst = append(binary.AppendUvarint(dst, uint64(len(k))), k...)
			part(children[1].Type)
		}
		return dst
	}
	c := rows.NewColumn(t)
	lo, hi := t.IntRange()
	switch t.Kind {
	case schemas.Timestamp, schemas.TimestampTz, schemas.Date:
		lo, hi = -1_000_000, 1_000_000
	}
	switch {
	case c.Storage == rows.Ints:
		c.AppendInt(rapid.Int64Range(lo, hi).Draw(r, "n"))
	case t.Kind == schemas.Float:
		c.AppendFloat(float64(rapid.Float32().Draw(r, "f")))
	case c.Storage == rows.Floats:
		c.AppendFloat(rapid.Float64().Draw(r, "f"))
	case t.Kind == schemas.UUID:
		c.AppendBytes(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(r, "uuid"))
	case t.Kind == schemas.Fixed:
		c.AppendBytes(rapid.SliceOfN(rapid.Byte(), int(t.Length), int(t.Length)).Draw(r, "fixed"))
	case t.Kind == schemas.Decimal:
		c.AppendBytes(schemas.AppendDecimal16(nil, rapid.Int64().Draw(r, "unscaled")))
	default:
		c.AppendBytes([]byte(rapid.String().Draw(r, "text")))
	}
	return rows.AppendNested(dst, &c, 0)
}

// drawTable is a table with one nested column, and a batch of one row in it.
func drawTable(t *testing.T, r *rapid.T, simple []schemas.Type) (*schemas.Definition, *rows.Batch) {
	def := table(t, "id long\nv string", "id")
	s := &def.Schemas[0]
	s.Fields[1].Type = drawType(r, 4, simple)
	def.LastColumnID = s.AssignIDs(2)
	if err := s.Validate(); err != nil {
		t.Fatal(err)
	}
	b := rows.NewBatch(s)
	b.Cols[0].AppendInt(1)
	b.Cols[1].AppendBytes(drawValue(r, nil, s.Fields[1].Type))
	b.AppendEvent(rows.Upsert, 0, 0, false)
	return def, b
}

func sameNested(t *testing.T, def *schemas.Definition, dec Decoder, value []byte, want *rows.Batch) {
	t.Helper()
	got := rows.NewBatch(def.Schema())
	if _, err := dec.Decode(got, &Record{Value: value}); err != nil {
		t.Fatalf("%s of type %s: %v", value, def.Schema().Fields[1].Type, err)
	}
	if g, w := showValue(&got.Cols[1], 0), showValue(&want.Cols[1], 0); g != w || string(got.Cols[1].BytesAt(0)) != string(want.Cols[1].BytesAt(0)) {
		t.Fatalf("type %s: %s became %s", def.Schema().Fields[1].Type, w, g)
	}
}

// Any nested value comes through varve-avro as it is (kinds 6 and 11).
func TestNestedAvroRoundTrip(t *testing.T) {
	simple := []schemas.Type{
		schemas.Of(schemas.Boolean), schemas.Of(schemas.Int), schemas.Of(schemas.Long), schemas.Of(schemas.Float), schemas.Of(schemas.Double),
		schemas.DecimalOf(9, 2), schemas.DecimalOf(30, 5), schemas.Of(schemas.Date), schemas.Of(schemas.Time), schemas.Of(schemas.TimestampTz),
		schemas.Of(schemas.TimestampNs), schemas.Of(schemas.String), schemas.Of(schemas.UUID), schemas.FixedOf(5), schemas.Of(schemas.Binary),
	}
	rapid.Check(t, func(r *rapid.T) {
		def, b := drawTable(t, r, simple)
		value, err := NewAvroEncoder(def.Schema()).Append(nil, b, 0)
		if err != nil {
			t.Fatal(err)
		}
		sameNested(t, def, decoder(t, VarveAvro, def), value, b)
		// The event's schema is one that any Avro library reads.
		typ, err := parseWriter(WriterSchema{Type: TypeAvro, Text: string(AvroSchemaFor(def.Schema()))})
		if err != nil {
			t.Fatalf("%s: %v", AvroSchemaFor(def.Schema()), err)
		}
		if end := typ.skip(value[10:], 0, 0); end != len(value)-10 {
			t.Fatalf("by its Avro schema the event ends at %d of %d", end, len(value)-10)
		}
	})
}

// Any nested value comes through plain JSON as it is.
func TestNestedJSONRoundTrip(t *testing.T) {
	simple := []schemas.Type{
		schemas.Of(schemas.Boolean), schemas.Of(schemas.Int), schemas.Of(schemas.Long), schemas.Of(schemas.Double), schemas.DecimalOf(9, 2),
		schemas.DecimalOf(30, 5), schemas.Of(schemas.Date), schemas.Of(schemas.TimestampTz), schemas.Of(schemas.String), schemas.Of(schemas.UUID),
	}
	rapid.Check(t, func(r *rapid.T) {
		def, b := drawTable(t, r, simple)
		text, err := rows.NewNestedText(b.Cols[1].Type).Append([]byte(`{"id":1,"v":`), b.Cols[1].BytesAt(0))
		if err != nil {
			t.Fatal(err)
		}
		sameNested(t, def, decoder(t, RowsJSON, def, "decimal.handling=text"), append(text, '}'), b)
	})
}

// Events that were written before a struct had a field are read in the table's
// newer schema.
func TestNestedAvroOlderEvents(t *testing.T) {
	def := table(t, "id long\nv {\"type\":\"struct\",\"fields\":[{\"name\":\"a\",\"type\":\"int\"}]}", "id")
	old := *def.Schema()
	b := rows.NewBatch(&old)
	b.Cols[0].AppendInt(1)
	b.Cols[1].AppendBytes([]byte{1, 10})
	b.AppendEvent(rows.Upsert, 0, 0, false)
	value, err := NewAvroEncoder(&old).Append(nil, b, 0)
	if err != nil {
		t.Fatal(err)
	}
	wide, ok := old.Fields[1].Type.Merge(schemas.StructOf([]schemas.Field{{Name: "b", Type: schemas.Of(schemas.String)}, {Name: "a", Type: schemas.Of(schemas.Long)}}))
	if !ok {
		t.Fatal("no merge")
	}
	alter(def, &SchemaChange{Widen: []schemas.Field{{ID: 2, Type: wide}}})
	dec := decoder(t, VarveAvro, def)
	got := rows.NewBatch(def.Schema())
	if _, err := dec.Decode(got, &Record{Value: value}); err != nil {
		t.Fatal(err)
	}
	equal(t, show(got, 0), `upsert id=1 v={"a":5,"b":null}`)
}

// Connect's and other writers' nested Avro, by name.
func TestRegistryNested(t *testing.T) {
	writer := `{"type":"record","name":"R","fields":[{"name":"id","type":"long"},
		{"name":"s","type":["null",{"type":"record","name":"S","fields":[
			{"name":"b","type":["null","string"]},{"name":"a","type":"int"},
			{"name":"d","type":{"type":"bytes","logicalType":"decimal","precision":9,"scale":2}}]}]},
		{"name":"l","type":{"type":"array","items":["null","long"]}},
		{"name":"m","type":{"type":"map","values":{"type":"array","items":"string"}}}]}`
	value := m{"id": int64(1), "s": m{"S": m{"b": nil, "a": int32(-3), "d": big.NewRat(1234, 100)}},
		"l": []any{nil, m{"long": int64(5)}}, "m": m{"k": []any{"x", ""}}}
	if got := avroCase(t, RowsAvro, "id long", writer, value, ""); got != "add s struct<b: string, a: int, d: decimal(9, 2)>\nadd l list<long>\nadd m map<string, list<string>>\n" {
		t.Error(got)
	}
	columns := `id long
s {"type":"struct","fields":[{"name":"a","type":"long"},{"name":"b","type":"string"},{"name":"d","type":"decimal(9, 2)"}]}
l {"type":"list","element":"long"}
m {"type":"map","key":"string","value":{"type":"list","element":"string"}}`
	equal(t, avroCase(t, RowsAvro, columns, writer, value, ""), `upsert id=1 s={"a":-3,"b":null,"d":"12.34"} l=[null,5] m={"k":["x",""]}`)
	value["s"] = nil
	equal(t, avroCase(t, RowsAvro, columns, writer, value, ""), `upsert id=1 s=null l=[null,5] m={"k":["x",""]}`)
	// A record that holds itself without end is refused by name.
	tree := `{"type":"record","name":"R","fields":[{"name":"id","type":"long"},{"name":"t","type":{"type":"record","name":"T","fields":[{"name":"next","type":["null","T"]}]}}]}`
	equal(t, avroCase(t, RowsAvro, "id long", tree, m{"id": int64(1), "t": m{"next": nil}}, ""),
		`reject nested kind=upsert: column "t": an object or array where the table has a single value, or one of parts that no table has; list the column in columns.exclude to leave it out`)
}

// NaN and the infinities have no JSON of their own and are told as text.
func TestNestedTextOfFloats(t *testing.T) {
	typ := schemas.ListOf(1, schemas.Of(schemas.Double), false)
	c := rows.NewColumn(schemas.Of(schemas.Double))
	v := []byte{3}
	for _, f := range []float64{math.NaN(), math.Inf(-1), 0.5} {
		c.Truncate(0)
		c.AppendFloat(f)
		v = rows.AppendNested(append(v, 1), &c, 0)
	}
	text, err := rows.NewNestedText(typ).Append(nil, v)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, string(text), `["NaN","-Inf",0.5]`)
}

// FuzzNested decodes any bytes into nested columns: what is taken is a value of
// its type, to its last byte.
func FuzzNested(f *testing.F) {
	const columns = `id long
s struct<a: int, b: string, c: struct<d: timestamptz>>
l list<list<long>>
m map<string, struct<x: double>>
k map<int, boolean>
v list<decimal(30, 5)>`
	def := table(f, columns, "id")
	formats := []struct {
		format  string
		options []string
	}{{RowsJSON, []string{"decimal.handling=text"}}, {VarveAvro, []string{"framing=none"}}, {DebeziumJSON, nil}}
	f.Add(uint8(0), []byte(`{"id":1,"s":{"a":1,"b":"x","c":{"d":"2024-01-01T00:00:00Z"}},"l":[[1,null],[],null],"m":{"k":{"x":0.5},"":null},"k":{"-1":true},"v":["1.5"]}`))
	f.Add(uint8(0), []byte(`{"id":1,"k":[[1,true],[2,null]],"l":[[95]],"s":{"new":{"deep":[{}]}}}`))
	f.Add(uint8(2), []byte(`{"op":"c","after":{"id":1,"m":{"a":{"x":1,"y":2}},"l":["__debezium_unavailable_value"]}}`))
	b := rows.NewBatch(def.Schema())
	b.Cols[0].AppendInt(1)
	b.Cols[1].AppendBytes([]byte{1, 4, 1, 1, 'x', 0})
	b.Cols[2].AppendBytes([]byte{2, 1, 1, 1, 6, 0})
	b.AppendEvent(rows.Upsert, 0, 0, false)
	event, err := NewAvroEncoder(def.Schema()).Append(nil, b, 0)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(uint8(1), event[10:])
	f.Fuzz(func(t *testing.T, which uint8, value []byte) {
		x := formats[int(which)%len(formats)]
		b := rows.NewBatch(def.Schema())
		if _, err := decoder(t, x.format, def, x.options...).Decode(b, &Record{Value: value}); err != nil {
			_ = showError(t, err)
			if b.Len() != 0 {
				t.Fatal("events stay appended after an error")
			}
			return
		}
		for i := range b.Len() {
			for c := range b.Cols {
				col := &b.Cols[c]
				if !col.Type.IsNested() || col.IsNull(i) {
					continue
				}
				if _, err := rows.NewNestedText(col.Type).Append(nil, col.BytesAt(i)); err != nil {
					t.Fatalf("column %d holds no value of its type: %v", c, err)
				}
			}
		}
	})
}
