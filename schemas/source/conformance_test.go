package source

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/rows"
)

// dialect writes the same changes in one format. A nil function: the format
// has no such record.
type dialect struct {
	format  string
	options []string
	// upsert writes a row: id, name (nil: null), seq (the ordering value).
	upsert func(t testing.TB, id int64, name *string, seq int64) []byte
	// remove writes a delete by the row's key.
	remove func(t testing.TB, id int64, seq int64) []byte
	// rekey writes one record that moves a row from one key to another.
	rekey func(from, to int64, name string, seq int64) []byte
	// raw writes a row from JSON text of its columns.
	raw func(row string) []byte
	// control are records that hold no event.
	control []string
	// marker is a row whose name the source did not send.
	marker func(id int64) []byte
	// seamless: a record that is cut between two members is a shorter one.
	seamless bool
	// quoted: numbers stand in quotes.
	quoted bool
}

// The table of the suite, in every format.
func suiteTable(t testing.TB) *schemas.Definition {
	d := table(t, "id long\nname string", "id")
	d.Order = schemas.Order{Kind: schemas.OrderByPath, Path: "source.seq"}
	return d
}

func jsonName(name *string) string {
	if name == nil {
		return "null"
	}
	return string(schemas.AppendJSONString(nil, *name))
}

func dialects(t testing.TB) []dialect {
	row := func(id int64, name *string) string { return fmt.Sprintf(`{"id":%d,"name":%s}`, id, jsonName(name)) }
	deb := dialect{
		format: DebeziumJSON,
		upsert: func(_ testing.TB, id int64, name *string, seq int64) []byte {
			return fmt.Appendf(nil, `{"before":null,"after":%s,"source":{"seq":%d},"op":"c"}`, row(id, name), seq)
		},
		remove: func(_ testing.TB, id, seq int64) []byte {
			return fmt.Appendf(nil, `{"before":{"id":%d,"name":"old"},"after":null,"source":{"seq":%d},"op":"d"}`, id, seq)
		},
		rekey: func(from, to int64, name string, seq int64) []byte {
			return fmt.Appendf(nil, `{"before":%s,"after":%s,"source":{"seq":%d},"op":"u"}`, row(from, &name), row(to, &name), seq)
		},
		raw: func(r string) []byte { return fmt.Appendf(nil, `{"after":%s,"op":"u"}`, r) },
		control: []string{`{"ts_ms":1}`, `{"op":"m","message":{"prefix":"p"}}`, `{"status":"BEGIN","id":"1","ts_ms":1}`,
			`{"ddl":"x","databaseName":"d"}`, `{"after":{"id":"a","type":"execute-snapshot","data":null},"op":"c"}`},
		marker: func(id int64) []byte {
			return fmt.Appendf(nil, `{"after":{"id":%d,"name":"__debezium_unavailable_value"},"op":"u"}`, id)
		},
	}
	schema := `{"type":"struct","fields":[{"type":"struct","optional":true,"field":"after","fields":[` +
		`{"type":"int64","optional":false,"field":"id"},{"type":"string","optional":true,"field":"name"}]}]}`
	wrap := func(in []byte, late bool) []byte {
		if late {
			return fmt.Appendf(nil, `{"payload":%s,"schema":%s}`, in, schema)
		}
		return fmt.Appendf(nil, `{"schema":%s,"payload":%s}`, schema, in)
	}
	wrapped := func(late bool) dialect {
		d := deb
		d.upsert = func(t testing.TB, id int64, name *string, seq int64) []byte {
			return wrap(deb.upsert(t, id, name, seq), late)
		}
		d.remove = func(t testing.TB, id, seq int64) []byte { return wrap(deb.remove(t, id, seq), late) }
		d.rekey = func(from, to int64, name string, seq int64) []byte { return wrap(deb.rekey(from, to, name, seq), late) }
		d.raw = func(r string) []byte { return wrap(deb.raw(r), late) }
		d.marker = func(id int64) []byte { return wrap(deb.marker(id), late) }
		d.control = []string{string(wrap([]byte(`{"op":"m"}`), late)), `{"schema":{"type":"struct","fields":[]},"payload":{"ts_ms":1}}`}
		return d
	}
	plain := dialect{
		format: RowsJSON,
		upsert: func(_ testing.TB, id int64, name *string, seq int64) []byte {
			return fmt.Appendf(nil, `{"id":%d,"name":%s,"source":{"seq":%d}}`, id, jsonName(name), seq)
		},
		remove: func(_ testing.TB, id, seq int64) []byte {
			return fmt.Appendf(nil, `{"id":%d,"name":"old","source":{"seq":%d},"__deleted":"true"}`, id, seq)
		},
		raw:    func(r string) []byte { return []byte(r) },
		marker: func(id int64) []byte { return fmt.Appendf(nil, `{"id":%d,"name":"__debezium_unavailable_value"}`, id) },
	}
	own := dialect{
		format: VarveAvro,
		upsert: func(t testing.TB, id int64, name *string, seq int64) []byte {
			return avroEvent(t, rows.Upsert, id, name, seq)
		},
		remove: func(t testing.TB, id, seq int64) []byte { return avroEvent(t, rows.Delete, id, nil, seq) },
	}
	early, late := wrapped(false), wrapped(true)
	return append(append([]dialect{deb, early, late, plain, own, protoDialect(), jsonSchemaDialect(plain)}, registryDialects(t)...), changeDialects()...)
}

func avroEvent(t testing.TB, op rows.Op, id int64, name *string, seq int64) []byte {
	d := suiteTable(t)
	b := rows.NewBatch(d.Schema())
	b.Cols[0].AppendInt(id)
	if name != nil {
		b.Cols[1].AppendBytes([]byte(*name))
	}
	b.AppendEvent(op, 0, seq, true)
	v, err := NewAvroEncoder(d.Schema()).Append(nil, b, 0)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestConformance holds every format to the same promises.
func TestConformance(t *testing.T) {
	for i, d := range dialects(t) {
		t.Run(fmt.Sprintf("%s-%d", d.format, i), func(t *testing.T) {
			def := suiteTable(t)
			dec := decoder(t, d.format, def, d.options...)
			b := rows.NewBatch(def.Schema())
			// events decodes a record after another one stands in the batch.
			events := func(rec *Record) (string, error) {
				b.Reset()
				b.Cols[0].AppendInt(99)
				b.AppendEvent(rows.Upsert, 1, 0, false)
				rec.Offset = 1234
				res, err := dec.Decode(b, rec)
				if err != nil && (b.Len() != 1 || b.Cols[0].Len() != 1 || b.Cols[1].Len() != 1) {
					t.Fatalf("events stay appended after an error")
				}
				if err == nil && res.Events != b.Len()-1 {
					t.Fatalf("%d events told, %d appended", res.Events, b.Len()-1)
				}
				for i := 1; i < b.Len(); i++ {
					if b.Offsets[i] != 1234 {
						t.Fatalf("offset %d", b.Offsets[i])
					}
				}
				if res.Control {
					return "control", err
				}
				return strings.TrimSpace(show(b, 1)), err
			}
			want := func(rec *Record, want string) {
				t.Helper()
				got, err := events(rec)
				if err != nil {
					t.Fatalf("%v, want %s", err, want)
				}
				equal(t, got, want)
			}
			refused := func(rec *Record, codes ...string) {
				t.Helper()
				_, err := events(rec)
				var j *Reject
				if !errors.As(err, &j) {
					t.Fatalf("not refused: %v", err)
				}
				// What a letter would have done is told apart, where it can be read (K7).
				if rec.Value == nil && j.Kind != KindDelete || j.Code == "type" && j.Kind != KindUpsert {
					t.Fatalf("refused as of kind %d: %v", j.Kind, j)
				}
				for _, c := range codes {
					if j.Code == c {
						return
					}
				}
				t.Fatalf("refused with code %s, want %v", j.Code, codes)
			}
			long, empty := strings.Repeat("é😀x", 750_000), ""
			a := "a\x00\"b"

			want(&Record{Value: d.upsert(t, 1, &a, 7)}, `upsert order=7 id=1 name="a\x00\"b"`)
			want(&Record{Value: d.upsert(t, 1, nil, 8)}, `upsert order=8 id=1 name=null`)
			want(&Record{Value: d.upsert(t, 1, &empty, -8)}, `upsert order=-8 id=1 name=""`)
			want(&Record{Value: d.upsert(t, -9223372036854775808, &empty, 1)}, `upsert order=1 id=-9223372036854775808 name=""`)
			want(&Record{Value: d.upsert(t, 9007199254740993, &empty, 1)}, `upsert order=1 id=9007199254740993 name=""`)
			want(&Record{Value: d.upsert(t, 1, &long, 9)}, `upsert order=9 id=1 name="`+long+`"`)
			want(&Record{Value: d.remove(t, 1, 10)}, `delete order=10 id=1`)
			// A delete after a delete is the same; so is a tombstone by the record key.
			want(&Record{Value: d.remove(t, 1, 10)}, `delete order=10 id=1`)
			for _, key := range []string{`{"id":1}`, `{"schema":{"type":"struct","fields":[{"type":"int32","optional":false,"field":"id"}]},"payload":{"id":1}}`,
				`{"payload":{"id":1},"schema":null}`, `1`, "\x00\x00\x00\x00\x05{\"id\":1}"} {
				want(&Record{Key: []byte(key)}, `delete id=1`)
			}
			for _, key := range []string{`{"id":null}`, `{"other":1}`, `{}`, `{"id":"1"}`, `{"id":1.5}`, `[1]`, `{"id":1`, `x`, ``, `null`, `"1"`} {
				if d.quoted && strings.Contains(key, `"1"`) {
					want(&Record{Key: []byte(key)}, `delete id=1`)
					continue
				}
				refused(&Record{Key: []byte(key)}, "key", "malformed")
			}
			refused(&Record{}, "key")

			for _, v := range []string{``, ` `, `{`, `"`, `{"a"}`, `nul`, `{}{}`, "\xff", "\x00", `[[[[`, strings.Repeat(`[`, 100_000), `{"a":` + strings.Repeat(`{"a":`, 100_000)} {
				refused(&Record{Value: []byte(v)}, "malformed", "key", "schema")
			}
			whole := d.upsert(t, 1, &a, 7)
			for n := range whole {
				if _, err := events(&Record{Value: whole[:n]}); d.seamless && err == nil {
					continue
				}
				refused(&Record{Value: whole[:n]}, "malformed")
			}
			refused(&Record{Value: append(whole[:len(whole):len(whole)], '1')}, "malformed")

			if d.rekey != nil {
				want(&Record{Value: d.rekey(1, 2, "n", 11)}, `delete order=11 id=1 upsert order=11 id=2 name="n"`)
				want(&Record{Value: d.rekey(2, 2, "n", 11)}, `upsert order=11 id=2 name="n"`)
			}
			for _, c := range d.control {
				want(&Record{Value: []byte(c)}, "control")
			}
			if d.marker != nil {
				got, err := events(&Record{Value: d.marker(1)})
				if err != nil {
					t.Fatal(err)
				}
				equal(t, strings.Replace(got, " order=1", "", 1), "upsert id=1 name=null carried=name")
				keyless := suiteTable(t)
				keyless.Key, keyless.Schemas[0].Identifier = nil, nil
				var j *Reject
				if _, err := decoder(t, d.format, keyless, d.options...).Decode(rows.NewBatch(keyless.Schema()), &Record{Value: d.marker(1)}); !errors.As(err, &j) || j.Code != "unavailable-value" {
					t.Fatalf("without a key, an unchanged value: %v", err)
				}
			}
			if d.rekey != nil && d.marker != nil {
				want(&Record{Value: d.rekey(1, 2, DefaultUnavailable, 11)}, `delete order=11 id=1 upsert order=11 id=2 name=null carried=name from id=1`)
			}
			if d.raw != nil {
				want(&Record{Value: d.raw(`{"name":"x","id":5}`)}, `upsert id=5 name="x"`)
				want(&Record{Value: d.raw(`{"id":5}`)}, `upsert id=5 name=null`)
				want(&Record{Key: []byte(`{"id":6}`), Value: d.raw(`{"name":"x"}`)}, `upsert id=6 name="x"`)
				refused(&Record{Value: d.raw(`{"name":"x"}`)}, "key")
				refused(&Record{Value: d.raw(`{"id":null,"name":"x"}`)}, "key")
				if d.quoted {
					want(&Record{Value: d.raw(`{"id":"5"}`)}, `upsert id=5 name=null`)
				} else {
					refused(&Record{Value: d.raw(`{"id":"5"}`)}, "key")
				}
				refused(&Record{Value: d.raw(`{"id":5,"name":1}`)}, "type")
				refused(&Record{Value: d.raw(`{"id":5,"name":{"a":1}}`)}, "nested")
				refused(&Record{Value: d.raw(`{"id":5,"id":6}`)}, "malformed")
				refused(&Record{Value: d.raw("{\"id\":5,\"name\":\"\xff\"}")}, "malformed")
			}

			// A limit on the record's size, and nothing but size.
			small := decoder(t, d.format, def, append(d.options, fmt.Sprintf("max.record.bytes=%d", len(whole)))...)
			b.Reset()
			if _, err := small.Decode(b, &Record{Value: whole}); err != nil {
				t.Fatal(err)
			}
			big := d.upsert(t, 1000000000000000000, &a, 7)
			var j *Reject
			if _, err := small.Decode(b, &Record{Value: big}); !errors.As(err, &j) || j.Code != "too-large" || b.Len() != 1 {
				t.Fatalf("an oversized record: %v", err)
			}

			// No key has another framing than the keys built like it.
			if f := dec.Framing([]byte(`{"id":1}`)); f == 0 || f != dec.Framing([]byte(`{"id":234}`)) || f == dec.Framing([]byte(`{"id": 1}`)) {
				t.Fatal("framing of keys")
			}
			if dec.Framing(nil) != 0 || dec.Framing([]byte("plain")) != 0 {
				t.Fatal("framing of keys that have none")
			}
		})
	}
}

// Errors name columns and rules, never values: they go to logs (E1).
func TestNoValuesInErrors(t *testing.T) {
	const secret = "s3cr3t"
	def := table(t, "id int\nn int\nd decimal(4, 2)\nday date\nu uuid\nb binary\ntz timestamptz", "id")
	for _, format := range []string{DebeziumJSON, RowsJSON} {
		dec := decoder(t, format, def)
		b := rows.NewBatch(def.Schema())
		for _, rec := range []Record{
			{Key: []byte(secret)}, {Key: []byte(`{"id":"` + secret + `"}`)}, {Key: []byte(`{"` + secret + `":1}`)}, {Value: []byte(secret)},
			{Value: []byte(`{"op":"` + secret + `"}`)}, {Value: []byte(`{"schema":{"type":"` + secret + `"},"payload":"` + secret + `"}`)},
			{Value: []byte(`{"schema":"` + secret + `","payload":{}}`)},
		} {
			_, err := dec.Decode(b, &rec)
			if err == nil || strings.Contains(err.Error(), secret) {
				t.Errorf("%v", err)
			}
		}
		for _, col := range []string{"id", "n", "d", "day", "u", "b", "tz"} {
			row := fmt.Sprintf(`{"id":1,%q:%q}`, col, secret)
			if col == "id" {
				row = fmt.Sprintf(`{"id":%q}`, secret)
			}
			if format == DebeziumJSON {
				row = `{"op":"c","after":` + row + `}`
			}
			_, err := dec.Decode(b, &Record{Value: []byte(row)})
			if err == nil || strings.Contains(err.Error(), secret) || !strings.Contains(err.Error(), col) {
				t.Errorf("%s: %v", col, err)
			}
		}
	}
}

func TestNew(t *testing.T) {
	def := table(t, "id long\nf double", "id")
	for _, c := range []struct {
		format  string
		options string
		order   string
		want    string
	}{
		{"avro", "", "", `format "avro" is unknown; the formats are debezium-json, debezium-avro, rows-json, rows-json-schema, rows-avro, rows-protobuf, maxwell, canal-json, aws-dms, goldengate-json, varve-avro`},
		{DebeziumJSON, "column.exclude=a", "", `did you mean "columns.exclude"?`},
		{DebeziumJSON, "key.from=record", "", `has no option "key.from"`},
		{RowsJSON, "key.from=value", "", `option key.from of format rows-json is one of row, record, not "value"`},
		{RowsJSON, "max.record.bytes=x", "", "max.record.bytes"},
		{RowsJSON, "type.f=Float", "", `"Float" is not a type name`},
		{RowsJSON, "type.f=org.apache.kafka.connect.data.Decimal", "", "needs its scale"},
		{VarveAvro, "columns.exclude=a", "", "has no option"},
		{DebeziumJSON, "", "after.seq", "inside the row"},
		{DebeziumJSON, "", "source..x", "empty part"},
	} {
		d := *def
		if c.order != "" {
			d.Order = schemas.Order{Kind: schemas.OrderByPath, Path: c.order}
		}
		o := Options{Format: c.format, Def: &d, Schema: d.Schema()}
		if c.options != "" {
			o.Options = props([]string{c.options})
		}
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s: %v", c.format, c.options, err)
		}
	}
	if _, err := New(Options{Format: RowsJSON}); err == nil {
		t.Error("no definition is no error")
	}
	d := *def
	d.Order = schemas.Order{Kind: schemas.OrderByColumn, Column: 2}
	if _, err := New(Options{Format: RowsJSON, Def: &d, Schema: d.Schema()}); err == nil {
		t.Error("a double as the ordering column is no error")
	}
}

// Debezium's own sequence for a key change: d, tombstone, c.
func TestDebeziumKeyChangeSequence(t *testing.T) {
	def := suiteTable(t)
	dec := decoder(t, DebeziumJSON, def)
	b := rows.NewBatch(def.Schema())
	for _, rec := range []Record{
		{Key: []byte(`{"id":1}`), Value: []byte(`{"before":{"id":1,"name":"a"},"after":null,"op":"d","source":{"seq":5}}`),
			Headers: []Header{{Key: "__debezium.newkey", Value: []byte(`{"id":2}`)}}},
		{Key: []byte(`{"id":1}`)},
		{Key: []byte(`{"id":2}`), Value: []byte(`{"before":null,"after":{"id":2,"name":"a"},"op":"c","source":{"seq":5}}`)},
	} {
		if _, err := dec.Decode(b, &rec); err != nil {
			t.Fatal(err)
		}
	}
	equal(t, show(b, 0), `delete order=5 id=1 delete id=1 upsert order=5 id=2 name="a"`)
}

// A deleted row's ordering column counts; zero is what databases that log
// only the key put where null is forbidden.
func TestDebeziumDeleteOrder(t *testing.T) {
	def := table(t, "id int\nat timestamp", "id")
	def.Order = schemas.Order{Kind: schemas.OrderByColumn, Column: 2}
	dec := decoder(t, DebeziumJSON, def, "timestamp.unit=micros")
	b := rows.NewBatch(def.Schema())
	for _, before := range []string{`{"id":1,"at":7}`, `{"id":1,"at":0}`, `{"id":1,"at":null}`, `{"id":1}`, `{"id":1,"at":"x"}`} {
		if _, err := dec.Decode(b, &Record{Value: []byte(`{"op":"d","before":` + before + `}`)}); err != nil {
			t.Fatal(err)
		}
	}
	equal(t, show(b, 0), "delete order=7 id=1 delete id=1 delete id=1 delete id=1 delete id=1")
}

// A framing is recorded with its shard: the numbers must never change.
func TestFramingIsPinned(t *testing.T) {
	dec := decoder(t, DebeziumJSON, suiteTable(t))
	for key, want := range map[string]uint64{
		`{"id":1}`:                       0xd48a652d07882a28,
		"\x00\x00\x00\x00\x07{\"id\":1}": 0x1be5d0e2af6e1e45,
		`{"schema":{"type":"int32"},"payload":{"id":1,"b":"x"}}`: 0x2565da4b5668b285,
	} {
		if got := dec.Framing([]byte(key)); got != want {
			t.Errorf("%q: %#x", key, got)
		}
	}
}
