package source

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/linkedin/goavro/v2"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/rows"
)

// exampleSchema is the table that varve-event.avsc shows.
func exampleSchema(t testing.TB) *schemas.Definition {
	d := table(t, `order_id long
		customer string
		total decimal(10, 2)
		placed timestamptz
		day date
		paid boolean
		note-text string`, "order_id")
	d.Schemas[0].Fields[2].Doc = "in euros"
	return d
}

// varve-event.avsc is what AvroSchemaFor gives, laid out for reading.
func TestAvroExample(t *testing.T) {
	file, err := os.ReadFile("varve-event.avsc")
	if err != nil {
		t.Fatal(err)
	}
	var want bytes.Buffer
	if err := json.Compact(&want, file); err != nil {
		t.Fatal(err)
	}
	if got := AvroSchemaFor(exampleSchema(t).Schema()); string(got) != want.String() {
		t.Fatalf("got\n%s\nwant\n%s", got, want.String())
	}
}

// everyType is a table with a column of every type.
func everyType(t testing.TB) *schemas.Definition {
	return table(t, `id long
		tenant string
		b boolean
		i int
		l long
		f float
		d double
		dec decimal(9, 2)
		wide decimal(38, 3)
		day date
		tm time
		ts timestamp
		tz timestamptz
		tn timestamp_ns
		tzn timestamptz_ns
		s string
		u uuid
		fx fixed[3]
		bin binary
		"1 é-x" int
		_x31 int`, "id", "tenant")
}

func everyValue(t testing.TB, d *schemas.Definition) *rows.Batch {
	b := rows.NewBatch(d.Schema())
	dec := decoder(t, RowsJSON, d, "time.unit=micros")
	for _, v := range []string{
		`{"id":-9223372036854775808,"tenant":"a|b","b":true,"i":-2147483648,"l":9007199254740993,"f":0.1,"d":-1e300,"dec":-1234567.89,
		 "wide":-12345678901234567890123456789012345.678,"day":"1969-12-31","tm":"23:59:59.999999","ts":"1969-12-31T23:59:59.999999",
		 "tz":"2023-03-23T22:00:10Z","tn":"1969-12-31T23:59:59.999999999","tzn":"2023-03-23T22:00:10.000000001Z","s":"é\u0000😀",
		 "u":"f81d4fae-7dec-11d0-a765-00a0c91e6bf6","fx":"AAEC","bin":"","1 é-x":7,"_x31":8}`,
		`{"id":1,"tenant":""}`,
		`{"id":2,"tenant":"x","dec":0,"wide":0.127,"s":"","d":0.5,"__deleted":true}`,
	} {
		if _, err := dec.Decode(b, &Record{Value: []byte(v)}); err != nil {
			t.Fatal(err)
		}
	}
	b.Order[0], b.HasOrder[0] = -5, 1
	return b
}

// What the encoder writes, the decoder reads back.
func TestAvroRoundTrip(t *testing.T) {
	d := everyType(t)
	d.Order = schemas.Order{Kind: schemas.OrderByPath, Path: "order"}
	in := everyValue(t, d)
	e := NewAvroEncoder(d.Schema())
	dec := decoder(t, VarveAvro, d)
	out := rows.NewBatch(d.Schema())
	for i := range in.Len() {
		v, err := e.Append(nil, in, i)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := dec.Decode(out, &Record{Value: v}); err != nil {
			t.Fatal(err)
		}
		for n := range v { // every cut is refused
			var j *Reject
			if _, err := dec.Decode(out, &Record{Value: v[:n]}); !errors.As(err, &j) || out.Len() != i+1 {
				t.Fatalf("a value cut at byte %d: %v", n, err)
			}
		}
	}
	if got, want := show(out, 0), show(in, 0); got != want {
		t.Fatalf("got\n%s\nwant\n%s", got, want)
	}
}

// plainAvro is the schema without logical types, which do not matter to the
// canonical form (goavro's keeps traces of them).
func plainAvro(s *schemas.Schema) string {
	logical := regexp.MustCompile(`\{"type":"([a-z]+)","logicalType":"[a-z-]*"(,"precision":\d+,"scale":\d+)?\}`)
	return logical.ReplaceAllString(string(AvroSchemaFor(s)), `"$1"`)
}

// goavro agrees on the canonical form and the fingerprint.
func TestAvroFingerprint(t *testing.T) {
	for _, d := range []*schemas.Definition{exampleSchema(t), everyType(t)} {
		c, err := goavro.NewCodec(plainAvro(d.Schema()))
		if err != nil {
			t.Fatal(err)
		}
		if got, want := string(avroSchema(d.Schema(), true)), c.CanonicalSchema(); got != want {
			t.Fatalf("got\n%s\nwant\n%s", got, want)
		}
		if got, want := AvroFingerprint(d.Schema()), c.Rabin; got != want {
			t.Fatalf("%016x, want %016x", got, want)
		}
	}
}

// A producer with an ordinary Avro library, and the values that we read.
func TestAvroProducer(t *testing.T) {
	d := exampleSchema(t)
	d.Order = schemas.Order{Kind: schemas.OrderByPath, Path: "order"}
	c, err := goavro.NewCodec(string(AvroSchemaFor(d.Schema())))
	if err != nil {
		t.Fatal(err)
	}
	some := func(typ string, v any) any { return map[string]any{typ: v} }
	at := time.Date(2023, 3, 23, 22, 0, 10, 123456000, time.UTC)
	dec := decoder(t, VarveAvro, d)
	out := rows.NewBatch(d.Schema())
	for _, event := range []map[string]any{
		{"op": "upsert", "order": some("long", 7), "row": map[string]any{
			"order_id": int64(9007199254740993), "customer": some("string", "é"),
			"total": some("bytes.decimal", big.NewRat(-1234, 100)), "placed": some("long.timestamp-micros", at),
			"day": some("int.date", at), "paid": some("boolean", true), "note_x2Dtext": some("string", "n")}},
		{"op": "delete", "order": nil, "row": map[string]any{"order_id": 5, "customer": nil, "total": nil,
			"placed": nil, "day": nil, "paid": nil, "note_x2Dtext": nil}},
	} {
		header := AvroHeader(d.Schema())
		v, err := c.BinaryFromNative(header[:], event)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := dec.Decode(out, &Record{Value: v}); err != nil {
			t.Fatal(err)
		}
	}
	equal(t, show(out, 0), `upsert order=7 order_id=9007199254740993 customer="é" total=-12.34 placed=1679608810123456 day=19439 paid=true note-text="n"
		delete order_id=5`)
}

// Events of every version that the table had are read by field id.
func TestAvroVersions(t *testing.T) {
	d := table(t, "id int\na int\ngone string\nf float\np decimal(5, 2)", "id")
	old := *d.Schema()
	in := rows.NewBatch(&old)
	dec := decoder(t, RowsJSON, d)
	if _, err := dec.Decode(in, &Record{Value: []byte(`{"id":1,"a":2,"gone":"x","f":0.5,"p":1.25}`)}); err != nil {
		t.Fatal(err)
	}
	v, err := NewAvroEncoder(&old).Append(nil, in, 0)
	if err != nil {
		t.Fatal(err)
	}
	// The new version renames a, drops gone, widens, adds a column with a default.
	next := schemas.Schema{ID: 1, Identifier: []int32{1}, Fields: []schemas.Field{
		{ID: 6, Name: "new", Type: schemas.Of(schemas.String), WriteDefault: []byte(`"d"`)},
		{ID: 2, Name: "b", Type: schemas.Of(schemas.Long)},
		{ID: 1, Name: "id", Type: schemas.Of(schemas.Long), Required: true},
		{ID: 4, Name: "f", Type: schemas.Of(schemas.Double)},
		{ID: 5, Name: "p", Type: schemas.DecimalOf(30, 2)}}}
	d.Schemas = append(d.Schemas, next)
	d.CurrentSchema = 1
	out := rows.NewBatch(d.Schema())
	if _, err := decoder(t, VarveAvro, d).Decode(out, &Record{Value: v}); err != nil {
		t.Fatal(err)
	}
	equal(t, show(out, 0), `upsert new="d" b=2 id=1 f=0.5 p=1.25`)

	// A decoder of the older version does not drop what it cannot hold.
	v, err = NewAvroEncoder(d.Schema()).Append(nil, out, 0)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Format: VarveAvro, Def: d, Schema: d.SchemaByID(0)}
	older, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	_, err = older.Decode(rows.NewBatch(o.Schema), &Record{Value: v})
	equal(t, showError(t, err), "reject schema kind=unknown: the event is written in schema 1, which schema 0 does not read")

	// Bare bodies are in the version that the option names, or else the decoder's.
	out.Reset()
	bare := decoder(t, VarveAvro, d, "framing=none")
	if _, err := bare.Decode(out, &Record{Value: v[10:]}); err != nil {
		t.Fatal(err)
	}
	equal(t, show(out, 0), `upsert new="d" b=2 id=1 f=0.5 p=1.25`)
	o.Options = props([]string{"framing=none", "schema.id=9"})
	if _, err := New(o); err == nil || !strings.Contains(err.Error(), "no schema 9") {
		t.Fatalf("schema.id of no version: %v", err)
	}
}

// FuzzAvroDecoder holds the decoder against goavro: what it accepts goavro
// reads as the same values; what it calls ill-formed goavro refuses too,
// unless numbers are longer than they need be.
func FuzzAvroDecoder(f *testing.F) {
	d := everyType(f)
	d.Order = schemas.Order{Kind: schemas.OrderByPath, Path: "order"}
	in := everyValue(f, d)
	for i := range in.Len() {
		v, err := NewAvroEncoder(d.Schema()).Append(nil, in, i)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(v[10:])
	}
	std, err := goavro.NewCodec(plainAvro(d.Schema()))
	if err != nil {
		f.Fatal(err)
	}
	names := avroNames(d.Schema())
	dec := decoder(f, VarveAvro, d, "framing=none")
	batch := rows.NewBatch(d.Schema())
	f.Fuzz(func(t *testing.T, v []byte) {
		batch.Reset()
		_, err := dec.Decode(batch, &Record{Value: v})
		native, rest, stdErr := std.NativeFromBinary(v)
		accepted := stdErr == nil && len(rest) == 0
		var j *Reject
		if errors.As(err, &j) {
			if batch.Len() != 0 {
				t.Fatal("events stay after an error")
			}
			if accepted && j.Code == "malformed" {
				if again, err := std.BinaryFromNative(nil, native); err == nil && bytes.Equal(again, v) {
					t.Fatalf("refused as ill-formed, but goavro reads it: %v", j)
				}
			}
			return
		}
		if !accepted {
			t.Fatalf("accepted, but goavro says %v, %d bytes left", stdErr, len(rest))
		}
		compareNative(t, batch, native.(map[string]any), names)
	})
}

func compareNative(t *testing.T, b *rows.Batch, event map[string]any, names []string) {
	op := map[string]rows.Op{"upsert": rows.Upsert, "delete": rows.Delete}[event["op"].(string)]
	if op != b.Ops[0] {
		t.Fatalf("op %v, goavro says %v", b.Ops[0], event["op"])
	}
	if o, ok := event["order"].(map[string]any); ok != (b.HasOrder[0] == 1) || ok && o["long"].(int64) != b.Order[0] {
		t.Fatalf("order %d, goavro says %v", b.Order[0], event["order"])
	}
	row := event["row"].(map[string]any)
	for c := range b.Cols {
		col := &b.Cols[c]
		if op == rows.Delete && !avroKey(b.Schema, b.Schema.Fields[c].ID) {
			if !col.IsNull(0) {
				t.Fatalf("a delete has a value of %s", names[c])
			}
			continue
		}
		v := row[names[c]]
		if u, ok := v.(map[string]any); ok {
			for _, v = range u {
			}
		}
		want := "null"
		switch v := v.(type) {
		case nil:
		case []byte:
			if col.Type.Kind == schemas.Decimal {
				u := new(big.Int).SetBytes(v)
				if v[0] >= 0x80 {
					u.Sub(u, new(big.Int).Lsh(big.NewInt(1), uint(8*len(v))))
				}
				want = decimalText(u, int(col.Type.Scale))
			} else {
				want = fmt.Sprintf("0x%x", v)
			}
		case string:
			if col.Type.Kind == schemas.UUID {
				want = "0x" + strings.ToLower(strings.ReplaceAll(v, "-", ""))
			} else {
				want = fmt.Sprintf("%q", v)
			}
		case float32:
			tmp := rows.NewColumn(col.Type)
			tmp.AppendFloat(float64(v))
			want = showValue(&tmp, 0)
		case float64:
			tmp := rows.NewColumn(col.Type)
			tmp.AppendFloat(v)
			want = showValue(&tmp, 0)
		default:
			want = fmt.Sprint(v)
		}
		if got := showValue(col, 0); got != want {
			t.Fatalf("column %s is %s, goavro says %s", names[c], got, want)
		}
	}
}

func BenchmarkVarveAvro(b *testing.B) {
	def := table(b, customerColumns+"\nprice decimal(10, 2)\nat timestamptz", "id")
	in := rows.NewBatch(def.Schema())
	dec := decoder(b, RowsJSON, def)
	e := NewAvroEncoder(def.Schema())
	var events, bodies [][]byte
	for i := range 1000 {
		v := fmt.Appendf(nil, `{"id":%d,"first_name":"Sally","last_name":"Thomas","email":"sally.thomas@acme.com","price":%d.25,"at":"2023-03-23T22:00:10.123456Z"}`, i, i)
		if _, err := dec.Decode(in, &Record{Value: v}); err != nil {
			b.Fatal(err)
		}
		v, err := e.Append(nil, in, i)
		if err != nil {
			b.Fatal(err)
		}
		events, bodies = append(events, v), append(bodies, v[10:])
	}
	std, err := goavro.NewCodec(string(AvroSchemaFor(def.Schema())))
	if err != nil {
		b.Fatal(err)
	}
	n := 0
	benchBeside(b, decoder(b, VarveAvro, def), def, events, "x-goavro", func([]byte) error {
		n++
		_, _, err := std.NativeFromBinary(bodies[n%len(bodies)])
		return err
	})
}
