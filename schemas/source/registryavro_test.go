package source

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/linkedin/goavro/v2"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/rows"
)

// registry is a schema registry in memory.
type registry struct {
	byRef map[SchemaRef]WriterSchema
	away  bool
	asked int
}

func (r *registry) WriterSchema(ref SchemaRef) (WriterSchema, error) {
	r.asked++
	if r.away {
		return WriterSchema{}, fmt.Errorf("%w: connection refused", ErrAway)
	}
	s, ok := r.byRef[ref]
	if !ok {
		return s, ErrNoSchema
	}
	return s, nil
}

const (
	custRow   = `{"type":"record","name":"Value","fields":[{"name":"id","type":"long"},{"name":"name","type":["null","string"],"default":null}]}`
	custEvent = `{"type":"record","name":"Envelope","namespace":"shop.t","fields":[
		{"name":"before","type":["null",` + custRow + `],"default":null},
		{"name":"after","type":["null","Value"],"default":null},
		{"name":"source","type":{"type":"record","name":"Source","fields":[{"name":"tables","type":{"type":"array","items":"string"}},{"name":"seq","type":["null","long"]}]}},
		{"name":"op","type":"string"},
		{"name":"ts_ms","type":["null","long"],"default":null}]}`
	custPlain = `{"type":"record","name":"Row","fields":[{"name":"id","type":"long"},{"name":"name","type":["null","string"]},
		{"name":"source","type":{"type":"record","name":"Source","fields":[{"name":"seq","type":["null","long"]}]}},{"name":"__deleted","type":["null","string"],"default":null}]}`
	custKey   = `{"type":"record","name":"Key","fields":[{"name":"id","type":"int"}]}`
	heartbeat = `{"type":"record","name":"Heartbeat","namespace":"io.debezium.connector.common","fields":[{"name":"ts_ms","type":"long"}]}`
	txRecord  = `{"type":"record","name":"TransactionMetadataValue","fields":[{"name":"status","type":"string"},{"name":"id","type":"string"},{"name":"ts_ms","type":"long"}]}`
)

// ids of the suite's schemas.
const (
	idEvent = iota + 1
	idPlain
	idKey
	idHeartbeat
	idJSONKey // 5: the suite's framed JSON key
	idTx
	idScalar
	idProto
	idJSONRow
)

var suiteRegistry = &registry{byRef: map[SchemaRef]WriterSchema{
	{ID: idEvent}:                           {Type: TypeAvro, Text: custEvent},
	{ID: idPlain}:                           {Type: TypeAvro, Text: custPlain},
	{ID: idKey}:                             {Type: TypeAvro, Text: custKey},
	{ID: idHeartbeat}:                       {Type: TypeAvro, Text: heartbeat},
	{ID: idJSONKey}:                         {Type: TypeJSON, Text: `{"type":"object"}`},
	{ID: idTx}:                              {Type: TypeAvro, Text: txRecord},
	{ID: idScalar}:                          {Type: TypeAvro, Text: `"long"`},
	{ID: idJSONRow}:                         {Type: TypeJSON, Text: custJSON},
	{ID: idProto}:                           {Type: TypeProtobuf, Text: custProto},
	{GUID: [16]byte{1, 2, 3}, ByGUID: true}: {Type: TypeAvro, Text: custEvent},
}}

// confluent frames the Avro of a value in Confluent's form.
func confluent(t testing.TB, id uint32, schema string, value any) []byte {
	t.Helper()
	c, err := goavro.NewCodec(schema)
	if err != nil {
		t.Fatal(err)
	}
	b := binary.BigEndian.AppendUint32([]byte{0}, id)
	if b, err = c.BinaryFromNative(b, value); err != nil {
		t.Fatal(err)
	}
	return b
}

type m = map[string]any

func optional(name *string) any {
	if name == nil {
		return nil
	}
	return m{"string": *name}
}

func custImage(id int64, name *string) any {
	return m{"shop.t.Value": m{"id": id, "name": optional(name)}}
}

func custChange(t testing.TB, op string, before, after any, seq int64) []byte {
	return confluent(t, idEvent, custEvent, m{"before": before, "after": after, "op": op,
		"source": m{"tables": []string{"a", "bc"}, "seq": m{"long": seq}}, "ts_ms": nil})
}

func flatAvro(t testing.TB, id int64, name *string, seq int64, deleted any) []byte {
	return confluent(t, idPlain, custPlain, m{"id": id, "name": optional(name), "source": m{"seq": m{"long": seq}}, "__deleted": deleted})
}

func registryDialects(t testing.TB) []dialect {
	marker := DefaultUnavailable
	return []dialect{{
		format: DebeziumAvro,
		upsert: func(t testing.TB, id int64, name *string, seq int64) []byte {
			return custChange(t, "c", nil, custImage(id, name), seq)
		},
		remove: func(t testing.TB, id, seq int64) []byte {
			return custChange(t, "d", custImage(id, nil), nil, seq)
		},
		rekey: func(from, to int64, name string, seq int64) []byte {
			return custChange(t, "u", custImage(from, &name), custImage(to, &name), seq)
		},
		control: []string{string(confluent(t, idHeartbeat, heartbeat, m{"ts_ms": int64(1)})),
			string(confluent(t, idTx, txRecord, m{"status": "BEGIN", "id": "1", "ts_ms": int64(1)})), string(custChange(t, "m", nil, nil, 1))},
		marker: func(id int64) []byte { return custChange(t, "u", nil, custImage(id, &marker), 1) },
	}, {
		format: RowsAvro,
		upsert: func(t testing.TB, id int64, name *string, seq int64) []byte { return flatAvro(t, id, name, seq, nil) },
		remove: func(t testing.TB, id, seq int64) []byte { return flatAvro(t, id, nil, seq, m{"string": "true"}) },
		marker: func(id int64) []byte { return flatAvro(t, id, &marker, 1, nil) },
	}}
}

// avroCase decodes one value of a schema into a table.
func avroCase(t *testing.T, format, columns, schema string, value any, order string, options ...string) string {
	t.Helper()
	def := table(t, columns, "id")
	if order != "" {
		def.Order = schemas.Order{Kind: schemas.OrderByPath, Path: order}
	}
	reg := &registry{byRef: map[SchemaRef]WriterSchema{{ID: 9}: {Type: TypeAvro, Text: schema}}}
	return decodeWith(t, reg, format, def, &Record{Value: confluent(t, 9, schema, value)}, options...)
}

func decodeWith(t *testing.T, reg SchemaSource, format string, def *schemas.Definition, rec *Record, options ...string) string {
	t.Helper()
	dec, err := New(Options{Format: format, Options: props(options), Def: def, Schema: def.Schema(), Registry: reg})
	if err != nil {
		t.Fatal(err)
	}
	b := rows.NewBatch(def.Schema())
	if _, err := dec.Decode(b, rec); err != nil {
		if b.Len() != 0 {
			t.Fatal("events stay appended after an error")
		}
		return showError(t, err)
	}
	return show(b, 0)
}

// Every framing names the same schema; a record key may be framed, bare JSON, or not needed.
func TestRegistryFramings(t *testing.T) {
	def := suiteTable(t)
	name := "x"
	whole := custChange(t, "c", nil, custImage(1, &name), 7)
	body := whole[5:]
	guid := append([]byte{1, 1, 2, 3}, make([]byte, 13)...)
	const want = `upsert order=7 id=1 name="x"`
	for label, rec := range map[string]*Record{
		"id":          {Value: whole},
		"GUID":        {Value: append(guid[:17:17], body...)},
		"header id":   {Value: body, Headers: []Header{{Key: valueSchemaHeader, Value: whole[:5]}}},
		"header GUID": {Value: body, Headers: []Header{{Key: "other"}, {Key: valueSchemaHeader, Value: guid}}},
	} {
		t.Run(label, func(t *testing.T) { equal(t, decodeWith(t, suiteRegistry, DebeziumAvro, def, rec), want) })
	}
	equal(t, decodeWith(t, suiteRegistry, DebeziumAvro, def, &Record{Value: body}, "schema.id=1"), want)
	if got := decodeWith(t, suiteRegistry, DebeziumAvro, def, &Record{Value: body, Headers: []Header{{Key: valueSchemaHeader, Value: []byte("1")}}}); !strings.HasPrefix(got, "reject malformed") {
		t.Fatal(got)
	}

	key := confluent(t, idKey, custKey, m{"id": int32(42)})
	for label, rec := range map[string]*Record{
		"framed":   {Key: key},
		"header":   {Key: key[5:], Headers: []Header{{Key: keySchemaHeader, Value: key[:5]}}},
		"scalar":   {Key: confluent(t, idScalar, `"long"`, int64(42))},
		"JSON":     {Key: []byte(`{"id":42}`)},
		"envelope": {Key: key, Value: custChange(t, "d", nil, nil, 1)[:0:0]},
	} {
		if label == "envelope" {
			rec.Value = custChange(t, "d", nil, nil, 8)
			equal(t, decodeWith(t, suiteRegistry, DebeziumAvro, def, rec), `delete order=8 id=42`)
			continue
		}
		equal(t, decodeWith(t, suiteRegistry, DebeziumAvro, def, rec), `delete id=42`)
	}
	for _, bad := range [][]byte{key[:5], append(key[:len(key):len(key)], 0), {0, 0, 0, 0, 99, 2}} {
		if got := decodeWith(t, suiteRegistry, DebeziumAvro, def, &Record{Key: bad}); !strings.HasPrefix(got, "reject key kind=delete") && !strings.HasPrefix(got, "reject schema kind=delete") {
			t.Fatal(got)
		}
	}
	// K5: keys of one schema are built alike, of two they are not.
	dec := decoder(t, DebeziumAvro, def)
	other := confluent(t, idKey, custKey, m{"id": int32(-1 << 30)})
	if f := dec.Framing(key); f == 0 || f != dec.Framing(other) || f == dec.Framing(confluent(t, idScalar, `"long"`, int64(42))) {
		t.Fatal("framings of framed keys")
	}
	// A bare key may begin like a framing: its header says that it has none.
	b := rows.NewBatch(def.Schema())
	seen := map[uint64]bool{}
	for _, id := range []int64{0, -1, 1 << 50} {
		bare := append(confluent(t, idScalar, `"long"`, id)[5:], 0, 0, 0, 0, 0)
		rec := &Record{Key: bare, Value: whole, Headers: []Header{{Key: keySchemaHeader, Value: []byte{0, 0, 0, 0, idScalar}}}}
		if _, err := dec.Decode(b, rec); err != nil {
			t.Fatal(err)
		}
		seen[dec.Framing(bare)] = true
	}
	if len(seen) != 1 || seen[0] || seen[dec.Framing(nil)] != true {
		t.Fatalf("framings of bare keys: %v", seen)
	}
}

// A registry that is away refuses nothing; one that answers "no" does.
func TestRegistryAway(t *testing.T) {
	def := suiteTable(t)
	name := "x"
	reg := &registry{byRef: suiteRegistry.byRef, away: true}
	for _, format := range []string{DebeziumAvro, RowsAvro} {
		value := custChange(t, "c", nil, custImage(1, &name), 7)
		if format == RowsAvro {
			value = flatAvro(t, 1, &name, 7, nil)
		}
		for _, r := range []SchemaSource{nil, reg} {
			reg.away = true
			dec, err := New(Options{Format: format, Def: def, Schema: def.Schema(), Registry: r})
			if err != nil {
				t.Fatal(err)
			}
			b := rows.NewBatch(def.Schema())
			for _, rec := range []*Record{{Value: value}, {Key: confluent(t, idKey, custKey, m{"id": int32(4)})}} {
				if _, err := dec.Decode(b, rec); !errors.Is(err, ErrAway) || b.Len() != 0 {
					t.Fatalf("%v, %d events", err, b.Len())
				}
			}
			if r == nil {
				continue
			}
			reg.away, reg.asked = false, 0
			for range 3 {
				if _, err := dec.Decode(b, &Record{Value: value}); err != nil {
					t.Fatal(err)
				}
			}
			if reg.asked != 1 {
				t.Fatalf("the registry was asked %d times for one schema", reg.asked)
			}
		}
	}
	got := decodeWith(t, suiteRegistry, DebeziumAvro, def, &Record{Value: []byte{0, 0, 0, 0, 77, 1, 2}})
	equal(t, got, "reject schema kind=unknown: the schema registry has no schema 77")
	got = decodeWith(t, suiteRegistry, DebeziumAvro, def, &Record{Value: []byte{0, 0, 0, 0, idJSONKey, 1, 2}})
	equal(t, got, "reject schema kind=unknown: schema 5 is of type JSON, and the table's format reads Avro")
}

// A schema that the registry does not have yet is asked for again: of the record
// and of its key.
func TestRegistrySchemaComesLater(t *testing.T) {
	def, name := suiteTable(t), "x"
	for _, format := range []string{DebeziumAvro, RowsAvro} {
		value, id := custChange(t, "c", nil, custImage(1, &name), 7), uint32(idEvent)
		if format == RowsAvro {
			value, id = flatAvro(t, 1, &name, 7, nil), idPlain
		}
		for _, c := range []struct {
			rec *Record
			id  uint32
		}{
			{&Record{Value: value}, id},
			{&Record{Key: confluent(t, idKey, custKey, m{"id": int32(4)})}, idKey},
		} {
			reg := &registry{byRef: map[SchemaRef]WriterSchema{}}
			dec, err := New(Options{Format: format, Def: def, Schema: def.Schema(), Registry: reg})
			if err != nil {
				t.Fatal(err)
			}
			b := rows.NewBatch(def.Schema())
			var refused *Reject
			if _, err := dec.Decode(b, c.rec); !errors.As(err, &refused) || refused.Code != "schema" {
				t.Fatalf("%s: %v", format, err)
			}
			if c.id == idKey && refused.Kind != KindDelete {
				t.Errorf("%s: a tombstone is refused as %v", format, refused.Kind)
			}
			ref := SchemaRef{ID: c.id}
			reg.byRef[ref] = suiteRegistry.byRef[ref]
			if _, err := dec.Decode(b, c.rec); err != nil || b.Len() != 1 {
				t.Fatalf("%s: registered by now: %v, %d events", format, err, b.Len())
			}
		}
	}
}

// A record that names the one around it takes bytes, although it was read before
// that was known: what follows it is read where it stands.
func TestRegistryRecursion(t *testing.T) {
	schema := `{"type":"record","name":"R","fields":[{"name":"id","type":"long"},
		{"name":"tree","type":{"type":"record","name":"A","fields":[
			{"name":"next","type":["null",{"type":"record","name":"B","fields":[{"name":"a","type":"A"}]}]},
			{"name":"n","type":"long"}]}},
		{"name":"v","type":"string"}]}`
	leaf := m{"next": nil, "n": int64(7)}
	tree := m{"next": m{"B": m{"a": m{"next": m{"B": m{"a": leaf}}, "n": int64(8)}}}, "n": int64(9)}
	got := avroCase(t, RowsAvro, "id long\nv string", schema, m{"id": int64(1), "tree": tree, "v": "here"}, "", "columns.exclude=tree")
	if !strings.HasPrefix(got, "upsert id=1") || !strings.Contains(got, "here") {
		t.Fatal(got)
	}
}

// Fields go by name: another order, a field more, one less, one with a default.
func TestRegistryByName(t *testing.T) {
	columns := "id long\nname string\nold string default=\"d\""
	writer := `{"type":"record","name":"R","fields":[{"name":"name","type":"string"},{"name":"id","type":"int"}]}`
	equal(t, avroCase(t, RowsAvro, columns, writer, m{"name": "a", "id": int32(1)}, ""), `upsert id=1 name="a" old="d"`)
	writer = `{"type":"record","name":"R","fields":[{"name":"id","type":"long"},{"name":"n","type":"int","default":5},{"name":"b","type":"bytes","default":"\u00ff"},
		{"name":"u","type":["null","double"]},{"name":"at","type":{"type":"long","logicalType":"timestamp-micros"}}]}`
	value := m{"id": int64(1), "n": int32(3), "b": []byte{1}, "u": nil, "at": int64(5)}
	equal(t, avroCase(t, RowsAvro, "id long", writer, value, ""), `add n int default=5 add b binary default="ff" add u double add at timestamptz`)
	// Defaults in a nanosecond column's form, and refusals by name.
	equal(t, avroCase(t, RowsAvro, "id long", writer, value, "", "columns.new=refuse"), `reject schema kind=upsert: column "n" is not in the table, and columns.new is refuse`)
	writer = `{"type":"record","name":"R","fields":[{"name":"id","type":"int"},{"name":"s","type":{"type":"map","values":"int"}}]}`
	value = m{"id": int32(1), "s": m{"k": int32(3)}}
	equal(t, avroCase(t, RowsAvro, "id long", writer, value, ""),
		`add s map<string, int>`)
	equal(t, avroCase(t, RowsAvro, "id long", writer, value, "", "columns.exclude=s"), `upsert id=1`)
	// A wider type widens the column, another one is refused.
	writer = `{"type":"record","name":"R","fields":[{"name":"id","type":"int"},{"name":"v","type":"long"}]}`
	equal(t, avroCase(t, RowsAvro, "id long\nv int", writer, m{"id": int32(1), "v": int64(3)}, ""), `widen v (2) to long`)
	equal(t, avroCase(t, RowsAvro, "id long\nv string", writer, m{"id": int32(1), "v": int64(3)}, ""),
		`reject type kind=upsert: column "v": the value's type does not fit the column's`)
}

// Each logical type of Avro, Connect and Debezium, by values worked out by hand.
func TestRegistryTypes(t *testing.T) {
	writer := `{"type":"record","name":"R","fields":[{"name":"id","type":"long"},
		{"name":"b","type":"boolean"},{"name":"f","type":"float"},{"name":"d","type":"double"},
		{"name":"day","type":{"type":"int","logicalType":"date"}},
		{"name":"tm","type":{"type":"int","logicalType":"time-millis"}},
		{"name":"tu","type":{"type":"long","logicalType":"time-micros"}},
		{"name":"zm","type":{"type":"long","logicalType":"timestamp-millis"}},
		{"name":"zu","type":{"type":"long","logicalType":"timestamp-micros"}},
		{"name":"lm","type":["null",{"type":"long","logicalType":"local-timestamp-millis"}]},
		{"name":"lu","type":{"type":"long","logicalType":"local-timestamp-micros"}},
		{"name":"dec","type":{"type":"bytes","logicalType":"decimal","precision":9,"scale":2}},
		{"name":"fix","type":{"type":"fixed","name":"F","size":3}},
		{"name":"u","type":{"type":"string","logicalType":"uuid"}},
		{"name":"e","type":{"type":"enum","name":"E","symbols":["a","b"]}},
		{"name":"dz","type":{"type":"long","connect.version":1,"connect.name":"io.debezium.time.NanoTimestamp"}},
		{"name":"zt","type":{"type":"string","connect.version":1,"connect.name":"io.debezium.time.ZonedTimestamp"}},
		{"name":"bits","type":{"type":"bytes","connect.name":"io.debezium.data.Bits","connect.parameters":{"length":"12"}}},
		{"name":"vd","type":{"type":"record","name":"VariableScaleDecimal","namespace":"io.debezium.data","connect.name":"io.debezium.data.VariableScaleDecimal",
			"fields":[{"name":"scale","type":"int"},{"name":"value","type":"bytes"}]}}]}`
	s, _, err := Discover(&registry{byRef: map[SchemaRef]WriterSchema{{ID: 9}: {Type: TypeAvro, Text: writer}}},
		RowsAvro, nil, []Record{{Value: []byte{0, 0, 0, 0, 9, 0}}}, []string{"id"})
	if err != nil {
		t.Fatal(err)
	}
	var types []string
	for _, f := range s.Fields {
		types = append(types, f.Name+" "+f.Type.String())
	}
	equal(t, strings.Join(types, " "), `id long b boolean f float d double day date tm long tu long zm timestamptz zu timestamptz
		lm timestamp lu timestamp dec decimal(9, 2) fix binary u uuid e string dz timestamp zt timestamptz bits long vd decimal(38, 20)`)
	plain, err := goavro.NewCodec(strings.NewReplacer(`"logicalType":`, `"x":`).Replace(writer))
	if err != nil {
		t.Fatal(err)
	}
	value := m{"id": int64(-1), "b": true, "f": float32(0.1), "d": -2.5, "day": int32(-1), "tm": int32(1500), "tu": int64(7),
		"zm": int64(-1), "zu": int64(5), "lm": m{"long": int64(1)}, "lu": int64(6), "dec": []byte{0xff}, "fix": []byte{1, 2, 3},
		"u": "f81d4fae-7dec-11d0-a765-00a0c91e6bf6", "e": "b", "dz": int64(-1), "zt": "2020-01-01T00:00:00.5+01:00",
		"bits": []byte{0xc7, 0x07}, "vd": m{"scale": int32(-2), "value": []byte{0x80}}}
	b, err := plain.BinaryFromNative([]byte{0, 0, 0, 0, 9}, value)
	if err != nil {
		t.Fatal(err)
	}
	d := &schemas.Definition{Name: "t", Schemas: []schemas.Schema{*s}, Key: s.Identifier}
	reg := &registry{byRef: map[SchemaRef]WriterSchema{{ID: 9}: {Type: TypeAvro, Text: writer}}}
	equal(t, decodeWith(t, reg, RowsAvro, d, &Record{Value: b}), `upsert id=-1 b=true f=0.1 d=-2.5 day=-1 tm=1500000 tu=7 zm=-1000 zu=5
		lm=1000 lu=6 dec=-0.01 fix=0x010203 u=0xf81d4fae7dec11d0a76500a0c91e6bf6 e="b" dz=-1 zt=1577833200500000 bits=1991 vd=-12800.00000000000000000000`)
}

// Debezium's truncate, a signal, an event whose delete has another before.
func TestRegistryEnvelope(t *testing.T) {
	def := suiteTable(t)
	name := "x"
	got := decodeWith(t, suiteRegistry, DebeziumAvro, def, &Record{Value: custChange(t, "t", nil, nil, 7)})
	if !strings.HasPrefix(got, "reject unsupported-op kind=delete: a truncate") {
		t.Fatal(got)
	}
	got = decodeWith(t, suiteRegistry, DebeziumAvro, def, &Record{Value: custChange(t, "c", nil, nil, 7)})
	equal(t, got, "reject malformed kind=upsert: the event has no row in after")
	got = decodeWith(t, suiteRegistry, DebeziumAvro, def, &Record{Value: custChange(t, "zz", nil, custImage(1, &name), 7)})
	equal(t, got, "reject unsupported-op kind=unknown: the event's op is none of c, r, u, d, t, m")
	signal := `{"type":"record","name":"Envelope","fields":[{"name":"before","type":["null",{"type":"record","name":"Value","fields":[
		{"name":"id","type":"string"},{"name":"type","type":["null","string"]},{"name":"data","type":["null","string"]}]}]},
		{"name":"after","type":["null","Value"]},{"name":"op","type":"string"}]}`
	event := func(kind string) string {
		return avroCase(t, DebeziumAvro, "id long", signal, m{"before": nil, "op": "c",
			"after": m{"Value": m{"id": "a", "type": m{"string": kind}, "data": nil}}}, "")
	}
	equal(t, event("execute-snapshot"), "")
	equal(t, event("other"), "add type string add data string")
}

// A writer's schema comes from outside: nothing in it takes unbounded work.
func TestRegistryHostileSchemas(t *testing.T) {
	wide := `{"type":"record","name":"R0","fields":[]}`
	for i := 1; i <= 60; i++ { // 2^60 empty records
		wide = fmt.Sprintf(`{"type":"record","name":"R%d","fields":[{"name":"a","type":%s},{"name":"b","type":"R%d"}]}`, i, wide, i-1)
	}
	for _, text := range []string{
		`{"type":"record","name":"R","fields":[{"name":"id","type":"long"},{"name":"a","type":{"type":"array","items":"null"}}]}`,
		`{"type":"record","name":"R","fields":[{"name":"id","type":"long"},{"name":"a","type":{"type":"array","items":` + wide + `}}]}`,
		`{"type":"record","name":"R","fields":[{"name":"id","type":"long"},{"name":"r","type":"R"}]}`,
		`{"type":"record","name":"R","fields":[{"name":"id","type":"long"},{"name":"r","type":["null","R"]}]}`,
		`{"type":"record","name":"R","fields":[{"name":"id","type":"long"},{"name":"f","type":{"type":"fixed","name":"F","size":1073741824}}]}`,
		strings.Repeat(`[`, 100_000), `{"type":` + strings.Repeat(`{"type":`, 500) + `"int"` + strings.Repeat(`}`, 501), `{"type":"record"}`, `"R"`, ``, `7`,
		`{"type":"record","name":"R","fields":[{"name":"id","type":"long"},{"name":"id","type":"long"}]}`,
	} {
		reg := &registry{byRef: map[SchemaRef]WriterSchema{{ID: 9}: {Type: TypeAvro, Text: text}}}
		def := table(t, "id long", "id")
		for _, body := range []string{"\x02\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00", strings.Repeat("\x02", 10_000), "\x02"} {
			got := decodeWith(t, reg, RowsAvro, def, &Record{Value: []byte("\x00\x00\x00\x00\x09" + body)}, "columns.exclude=a,r,f")
			if !strings.HasPrefix(got, "reject") && !strings.HasPrefix(got, "upsert id=1") {
				t.Fatal(got)
			}
		}
	}
}

// FuzzRegistryAvro decodes bytes written by any schema.
func FuzzRegistryAvro(f *testing.F) {
	name := "x"
	f.Add(custEvent, custChange(f, "u", custImage(1, &name), custImage(2, &name), 7)[5:], []byte(nil))
	f.Add(custPlain, flatAvro(f, 1, &name, 7, nil)[5:], []byte{2})
	f.Add(custKey, []byte{2}, []byte{4})
	f.Add(`{"type":"record","name":"R","fields":[{"name":"id","type":"long"},{"name":"p","type":{"type":"bytes","logicalType":"decimal","precision":9,"scale":2}}]}`, []byte{2, 2, 9}, []byte(nil))
	def := table(f, fuzzColumns, "id")
	def.Order = schemas.Order{Kind: schemas.OrderByPath, Path: "source.seq"}
	f.Fuzz(func(t *testing.T, schema string, value, key []byte) {
		reg := &registry{byRef: map[SchemaRef]WriterSchema{{ID: 1}: {Type: TypeAvro, Text: schema}}}
		head := []byte{0, 0, 0, 0, 1}
		for _, format := range []string{DebeziumAvro, RowsAvro} {
			dec, err := New(Options{Format: format, Def: def, Schema: def.Schema(), Registry: reg})
			if err != nil {
				t.Fatal(err)
			}
			b := rows.NewBatch(def.Schema())
			for _, rec := range []*Record{{Value: append(head[:5:5], value...)}, {Key: append(head[:5:5], key...)}} {
				before := b.Len()
				res, err := dec.Decode(b, rec)
				checkBatch(t, b)
				if b.Len()-before != res.Events || err != nil && res.Events != 0 {
					t.Fatalf("%d events told, %d appended", res.Events, b.Len()-before)
				}
			}
		}
		_, _, _ = Discover(reg, RowsAvro, nil, []Record{{Value: append(head[:5:5], value...)}}, nil)
	})
}
