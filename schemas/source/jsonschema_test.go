package source

import (
	"encoding/binary"
	"strings"
	"testing"
)

const custJSON = `{"type":"object","title":"Row","properties":{"id":{"type":"integer","connect.type":"int64"},
	"name":{"oneOf":[{"type":"null"},{"type":"string"}]},"source":{"type":"object","properties":{"seq":{"type":"integer"}}},"__deleted":{"type":"string"}},"required":["id"]}`

// jsonSchemaDialect writes the plain rows behind a framing.
func jsonSchemaDialect(plain dialect) dialect {
	frame := func(b []byte) []byte { return append(binary.BigEndian.AppendUint32([]byte{0}, idJSONRow), b...) }
	d := plain
	d.format = RowsJSONSchema
	d.upsert = func(t testing.TB, id int64, name *string, seq int64) []byte {
		return frame(plain.upsert(t, id, name, seq))
	}
	d.remove = func(t testing.TB, id, seq int64) []byte { return frame(plain.remove(t, id, seq)) }
	d.raw = func(r string) []byte { return frame(plain.raw(r)) }
	d.marker = func(id int64) []byte { return frame(plain.marker(id)) }
	return d
}

// The types that the schema gives decide, as Kafka Connect's converter writes them.
func TestJSONSchemaTypes(t *testing.T) {
	const text = `{"type":"object","properties":{
		"id":{"type":"integer","connect.type":"int32","connect.index":0},
		"big":{"type":"integer","connect.index":1,"connect.type":"int64"},
		"f":{"type":"number","connect.type":"float32"},
		"d":{"type":["null","number"]},
		"b":{"type":"boolean"},
		"s":{"oneOf":[{"type":"null"},{"type":"string"}]},
		"by":{"type":"string","connect.type":"bytes"},
		"dec":{"type":"number","title":"org.apache.kafka.connect.data.Decimal","connect.type":"bytes","connect.parameters":{"scale":"2","connect.decimal.precision":"9"}},
		"at":{"type":"integer","title":"org.apache.kafka.connect.data.Timestamp","connect.type":"int64"},
		"day":{"type":"string","format":"date"},
		"when":{"type":"string","format":"date-time"},
		"u":{"type":"string","format":"uuid"},
		"e":{"enum":["A","B",null]},
		"r":{"$ref":"#/definitions/Name"}
	},"required":["id"],"additionalProperties":false,"definitions":{"Name":{"type":"string"}}}`
	reg := &registry{byRef: map[SchemaRef]WriterSchema{{ID: 9}: {Type: TypeJSON, Text: text}}}
	const columns = "id int\nbig long\nf float\nd double\nb boolean\ns string\nby binary\ndec decimal(9, 2)\nat timestamp\nday date\nwhen timestamptz\nu uuid\ne string\nr string"
	frame := func(row string) *Record {
		return &Record{Value: append(binary.BigEndian.AppendUint32([]byte{0}, 9), row...)}
	}
	rec := frame(`{"id":1,"big":9007199254740993,"f":1.5,"d":null,"b":true,"s":"x","by":"/wA=","dec":12.3,"at":1,"day":"1969-12-31","when":"1970-01-01T00:00:00+01:00","u":"00000000-0000-0000-0000-000000000001","e":"B","r":"n"}`)
	equal(t, decodeWith(t, reg, RowsJSONSchema, table(t, columns, "id"), rec),
		`upsert id=1 big=9007199254740993 f=1.5 d=null b=true s="x" by=0xff00 dec=12.30 at=1000 day=-1 when=-3600000000 u=0x00000000000000000000000000000001 e="B" r="n"`)
	s, _, err := Discover(reg, RowsJSONSchema, nil, []Record{*rec}, []string{"id"})
	if err != nil {
		t.Fatal(err)
	}
	want := table(t, columns, "id").Schema()
	for i := range want.Fields {
		if f := s.Fields[i]; f.Name != want.Fields[i].Name || f.Type != want.Fields[i].Type {
			t.Errorf("column %s %s, want %s %s", f.Name, f.Type, want.Fields[i].Name, want.Fields[i].Type)
		}
	}
	if got := decodeWith(t, reg, RowsJSONSchema, table(t, columns, "id"), frame(`{"id":1,"new":1}`)); !strings.HasPrefix(got, `reject malformed kind=upsert: column "new"`) {
		t.Error(got)
	}
	if got := decodeWith(t, reg, RowsJSONSchema, table(t, columns, "id"), &Record{Value: []byte(`{"id":1}`)}); !strings.HasPrefix(got, `reject malformed`) {
		t.Error(got)
	}
	for name, s := range map[string]WriterSchema{
		"Avro": {Type: TypeAvro, Text: `"long"`}, "no JSON": {Type: TypeJSON, Text: `{`}, "no object": {Type: TypeJSON, Text: `{"type":"string"}`},
		"a circle": {Type: TypeJSON, Text: `{"$ref":"#/definitions/A","definitions":{"A":{"$ref":"#/definitions/A"}}}`},
	} {
		reg := &registry{byRef: map[SchemaRef]WriterSchema{{ID: 9}: s}}
		if got := decodeWith(t, reg, RowsJSONSchema, table(t, columns, "id"), frame(`{"id":1}`)); !strings.HasPrefix(got, "reject schema") {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func FuzzJSONSchema(f *testing.F) {
	f.Add([]byte(custJSON))
	f.Add([]byte(`{"$ref":"#/$defs/a","$defs":{"a":{"properties":{"x":{"anyOf":[{"type":"null"},{"enum":["a"]}]}}}}}`))
	f.Add([]byte(`{"properties":{"x":{"type":"string","enum":["\ud800"]},"\ud800":1}}`))
	f.Add([]byte(`{"properties":` + strings.Repeat(`{"a":`, 150) + "1" + strings.Repeat("}", 151)))
	f.Fuzz(func(t *testing.T, text []byte) {
		row, err := parseJSONSchema(text)
		if err != nil {
			return
		}
		for i := range row.Fields {
			row.Fields[i].declared()
		}
	})
}
