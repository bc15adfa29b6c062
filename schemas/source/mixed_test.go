package source

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/rows"
)

// A table of several formats reads each record as the table of that one format
// would, whatever came before it.
func TestMixedFormats(t *testing.T) {
	def := suiteTable(t)
	all := dialects(t)
	for i, x := range all {
		for k, y := range all {
			if i == k || wireOfFormat(x.format) == wireOfFormat(y.format) || len(x.options)+len(y.options) > 0 {
				continue
			}
			t.Run(fmt.Sprintf("%s-%d,%s-%d", x.format, i, y.format, k), func(t *testing.T) {
				both := decoder(t, x.format+","+y.format, def)
				name := "n"
				for _, d := range []dialect{x, y, x} {
					one := decoder(t, d.format, def)
					values := [][]byte{d.upsert(t, 7, &name, 5), d.upsert(t, 8, nil, 6), d.remove(t, 7, 7)}
					if d.rekey != nil {
						values = append(values, d.rekey(1, 2, "m", 8))
					}
					if d.marker != nil {
						values = append(values, d.marker(9))
					}
					for _, c := range d.control {
						values = append(values, []byte(c))
					}
					for _, v := range values {
						want, got := rows.NewBatch(def.Schema()), rows.NewBatch(def.Schema())
						r1, err1 := one.Decode(want, &Record{Value: v})
						r2, err2 := both.Decode(got, &Record{Value: v})
						if err1 != nil || err2 != nil || r1 != r2 || show(want, 0) != show(got, 0) {
							t.Fatalf("%q: %v %v, %v %v\n%s%s", v, r1, err1, r2, err2, show(want, 0), show(got, 0))
						}
					}
				}
			})
		}
	}
}

// The value's converter was changed and the key's was not, or the other way
// round: keys are read by their own framing, also for deletes without a row.
func TestMixedKeys(t *testing.T) {
	def := suiteTable(t)
	avroKey := confluent(t, idKey, custKey, m{"id": int32(7)})
	scalarKey := confluent(t, idScalar, `"long"`, int64(7))
	avroDelete := custChange(t, "d", nil, nil, 3)
	for _, formats := range []string{"debezium-avro,debezium-json", "debezium-json,debezium-avro"} {
		dec := decoder(t, formats, def)
		for what, rec := range map[string]*Record{
			"JSON delete, Avro key":        {Key: avroKey, Value: []byte(`{"before":null,"after":null,"op":"d"}`)},
			"JSON delete, scalar Avro key": {Key: scalarKey, Value: []byte(`{"before":null,"after":null,"op":"d"}`)},
			"JSON delete, JSON key":        {Key: []byte(`{"id":7}`), Value: []byte(`{"before":null,"after":null,"op":"d"}`)},
			"Avro delete, JSON key":        {Key: []byte(`{"id":7}`), Value: avroDelete},
			"Avro delete, Avro key":        {Key: avroKey, Value: avroDelete},
			"tombstone, Avro key":          {Key: avroKey},
			"tombstone, JSON key":          {Key: []byte(`{"id":7}`)},
			"tombstone, text key":          {Key: []byte(`7`)},
			"tombstone, key in a header":   {Key: avroKey[5:], Headers: []Header{{Key: keySchemaHeader, Value: avroKey[:5]}}},
		} {
			b := rows.NewBatch(def.Schema())
			res, err := dec.Decode(b, rec)
			if err != nil || res.Events != 1 || b.Ops[0] != rows.Delete || b.Cols[0].Ints[0] != 7 {
				t.Errorf("%s, %s: %v %v\n%s", formats, what, res, err, show(b, 0))
			}
		}
		// A row whose key is only in the record key.
		b := rows.NewBatch(def.Schema())
		if _, err := dec.Decode(b, &Record{Key: avroKey, Value: []byte(`{"after":{"name":"x"},"op":"c"}`)}); err != nil || b.Cols[0].Ints[0] != 7 || b.Len() != 1 {
			t.Errorf("%s: %v", formats, err)
		}
		bad := confluent(t, idHeartbeat, heartbeat, m{"ts_ms": int64(1)})
		if _, err := dec.Decode(b, &Record{Key: bad, Value: []byte(`{"before":null,"after":null,"op":"d"}`)}); showError(t, err) == "" || !strings.Contains(err.Error(), "key") {
			t.Errorf("%s: a key of another schema: %v", formats, err)
		}
	}
}

// A key's framing does not depend on the format of its value, nor on the formats
// that a table has got since: a shard would take one key for two (K5).
func TestMixedFramings(t *testing.T) {
	def := suiteTable(t)
	name := "n"
	json := []byte(`{"after":{"id":7,"name":"n"},"op":"c"}`)
	avro := custChange(t, "c", nil, custImage(7, &name), 1)
	keys := map[string][]byte{
		"JSON": []byte(`{"id":7}`), "JSON wrapped": []byte(`{"schema":{"type":"struct","fields":[]},"payload":{"id":7}}`), "text": []byte(`7`),
		"Avro":        confluent(t, idKey, custKey, m{"id": int32(7)}),
		"Avro {":      confluent(t, idScalar, `"long"`, int64(-62)), // its body is a brace
		"JSON framed": append([]byte{0, 0, 0, 0, idJSONKey}, `{"id":7}`...),
	}
	framing := func(dec Decoder, key, value []byte) uint64 {
		b := rows.NewBatch(def.Schema())
		if _, err := dec.Decode(b, &Record{Key: key, Value: value}); err != nil {
			t.Fatal(err)
		}
		return dec.Framing(key)
	}
	for what, key := range keys {
		for _, formats := range []string{DebeziumAvro, DebeziumJSON} {
			value, added := avro, DebeziumJSON
			if formats == DebeziumJSON {
				value, added = json, DebeziumAvro
			}
			was := framing(decoder(t, formats, def), key, value)
			if formats == DebeziumJSON && what == "Avro {" {
				was = framing(decoder(t, DebeziumAvro, def), key, avro) // no JSON converter writes it
			}
			both := decoder(t, formats+","+added, def)
			for _, v := range [][]byte{json, avro} {
				if f := framing(both, key, v); f != was {
					t.Errorf("%s, key %s: %x became %x", formats, what, was, f)
				}
			}
		}
	}
}

// While the registry is away no event is refused, and none that needs no schema
// waits.
func TestMixedAway(t *testing.T) {
	def := suiteTable(t)
	reg := &registry{byRef: suiteRegistry.byRef, away: true}
	d, err := New(Options{Format: "debezium-avro,debezium-json", Def: def, Schema: def.Schema(), Registry: reg})
	if err != nil {
		t.Fatal(err)
	}
	b := rows.NewBatch(def.Schema())
	json := []byte(`{"after":{"id":7,"name":"n"},"op":"c"}`)
	name := "n"
	if _, err := d.Decode(b, &Record{Value: json}); err != nil || reg.asked != 0 {
		t.Fatal(err, reg.asked)
	}
	avro := custChange(t, "c", nil, custImage(7, &name), 1)
	key := confluent(t, idKey, custKey, m{"id": int32(7)})
	for _, rec := range []*Record{{Value: avro}, {Key: key, Value: json}, {Key: key}} {
		if _, err := d.Decode(b, rec); !errors.Is(err, ErrAway) {
			t.Fatalf("%v", err)
		}
	}
	reg.away = false
	for _, rec := range []*Record{{Value: avro}, {Key: key, Value: json}, {Key: key}} {
		if _, err := d.Decode(b, rec); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		rec  *Record
		code string
	}{
		{&Record{Value: []byte{0, 0, 0, 0, 99, 1}}, "schema"},         // the registry has no such
		{&Record{Value: []byte{0, 0, 0, 0, idProto, 0, 1}}, "schema"}, // of none of the formats
		{&Record{Value: []byte("\xC3\x01")}, "malformed"},
		{&Record{Value: []byte{}}, "malformed"},
	} {
		var j *Reject
		if _, err := d.Decode(b, c.rec); !errors.As(err, &j) || j.Code != c.code {
			t.Errorf("%q: %v", c.rec.Value, err)
		}
	}
}

func TestMixedOptions(t *testing.T) {
	def := suiteTable(t)
	for _, c := range []struct{ format, option, want string }{
		{"debezium-json,rows-json", "", "not told apart"},
		{"debezium-avro,rows-avro", "", "not told apart"},
		{"debezium-avro,", "", "is unknown"},
		{"debezium-avro,debezium-json", "schema.id=3", "several formats"},
		{"debezium-avro,debezium-json", "timestamp.unit=millis", ""},
		{"debezium-avro,debezium-json", "columns.new=refuse", ""},
		{"debezium-avro,debezium-json", "type.name=string", ""},
		{"debezium-avro,debezium-json", "key.from=row", "no option"},
	} {
		o := Options{Format: c.format, Def: def, Schema: def.Schema(), Registry: suiteRegistry}
		if k, v, ok := strings.Cut(c.option, "="); ok {
			o.Options = []schemas.Property{{Key: k, Value: v}}
		}
		_, err := New(o)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s: %v", c.format, c.option, err)
		}
	}
	// A sample of both gives one schema.
	name := "n"
	s, _, err := Discover(suiteRegistry, "debezium-avro,debezium-json", nil, []Record{
		{Value: custChange(t, "c", nil, custImage(7, &name), 1)}, {Value: []byte(`{"after":{"id":7,"name":"n","size":3},"op":"c"}`)},
	}, []string{"id"})
	if err != nil || len(s.Fields) != 3 {
		t.Fatal(s, err)
	}
}

// FuzzMixed holds a table of all kinds of bytes against the tables of one format:
// whoever reads a record, it says the same.
func FuzzMixed(f *testing.F) {
	def := suiteTable(f)
	for _, d := range dialects(f) {
		name := "n"
		f.Add([]byte(nil), d.upsert(f, 1, &name, 1))
		f.Add([]byte(`{"id":1}`), d.remove(f, 1, 1))
	}
	names := []string{DebeziumAvro, DebeziumJSON, RowsProtobuf, RowsJSONSchema, VarveAvro}
	both := decoder(f, strings.Join(names, ","), def).(*mixture)
	f.Fuzz(func(t *testing.T, key, value []byte) {
		rec := &Record{Key: key, Value: value}
		b := rows.NewBatch(def.Schema())
		res, err := both.Decode(b, rec)
		checkBatch(t, b)
		if err != nil && b.Len() != 0 || err == nil && b.Len() != res.Events {
			t.Fatalf("%d events told, %d appended, %v", res.Events, b.Len(), err)
		}
		both.Framing(key)
		w, err2 := both.tell(rec)
		if err2 != nil {
			if err == nil {
				t.Fatal(err2)
			}
			return
		}
		one := decoder(t, both.formats[w], def)
		c := rows.NewBatch(def.Schema())
		res2, err2 := one.Decode(c, rec)
		var j *Reject
		if errors.As(err2, &j) && j.Code == "key" && key != nil {
			return // a key in another framing than the value's
		}
		if res != res2 || (err == nil) != (err2 == nil) || show(b, 0) != show(c, 0) {
			t.Fatalf("%v %v, %s alone %v %v", res, err, both.formats[w], res2, err2)
		}
	})
}
