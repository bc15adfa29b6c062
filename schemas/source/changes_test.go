package source

import (
	"fmt"
	"strings"
	"testing"

	"github.com/varve-io/varve/schemas/rows"
)

// changeDialects are the conformance suite's envelopes of other tools.
func changeDialects() []dialect {
	row := func(id int64, name *string) string { return fmt.Sprintf(`{"id":%d,"name":%s}`, id, jsonName(name)) }
	old := "old"
	// build makes a dialect of an envelope: an operation, a row and the row before ("": none).
	build := func(format string, event func(op, row, before string, seq int64) string, insert, update, del string, control ...string) dialect {
		return dialect{
			format: format,
			upsert: func(_ testing.TB, id int64, name *string, seq int64) []byte {
				return []byte(event(insert, row(id, name), "", seq))
			},
			remove: func(_ testing.TB, id, seq int64) []byte { return []byte(event(del, row(id, &old), "", seq)) },
			rekey: func(from, to int64, name string, seq int64) []byte {
				return []byte(event(update, row(to, &name), fmt.Sprintf(`{"id":%d}`, from), seq))
			},
			raw: func(r string) []byte { return []byte(event(insert, r, "", -1)) },
			marker: func(id int64) []byte {
				return []byte(event(insert, fmt.Sprintf(`{"id":%d,"name":"__debezium_unavailable_value"}`, id), "", 1))
			},
			control: control,
		}
	}
	seqOf := func(seq int64) string {
		if seq == -1 {
			return ""
		}
		return fmt.Sprintf(`,"source":{"seq":%d}`, seq)
	}
	maxwell := build(Maxwell, func(op, row, before string, seq int64) string {
		if before != "" {
			before = `,"old":` + before
		}
		return `{"database":"d","table":"t","type":"` + op + `","data":` + row + before + seqOf(seq) + `}`
	}, "insert", "update", "delete", `{"type":"bootstrap-start","table":"t","data":{}}`, `{"type":"bootstrap-complete","data":{}}`,
		`{"type":"table-alter","def":{},"sql":"x"}`, `{"type":"database-create"}`)
	canal := build(Canal, func(op, row, before string, seq int64) string {
		if before != "" {
			before = `,"old":[` + before + `]`
		}
		return `{"isDdl":false,"type":"` + op + `","data":[` + row + `]` + before + seqOf(seq) + `}`
	}, "INSERT", "UPDATE", "DELETE", `{"isDdl":true,"type":"ALTER","sql":"x","data":null}`, `{"type":"QUERY","data":null}`, `{"type":"INSERT","data":[]}`)
	canal.quoted = true
	dms := build(DMS, func(op, row, before string, seq int64) string {
		if before != "" {
			row = strings.TrimSuffix(row, "}") + `,"BI_` + strings.TrimPrefix(before, `{"`)
		}
		return `{"data":` + row + `,"metadata":{"record-type":"data","operation":"` + op + `"}` + seqOf(seq) + `}`
	}, "insert", "update", "delete", `{"metadata":{"record-type":"control","operation":"create-table"}}`)
	golden := build(GoldenGate, func(op, row, before string, seq int64) string {
		if op == "D" {
			return `{"op_type":"D","before":` + row + seqOf(seq) + `}`
		}
		if before != "" {
			before = `,"before":` + before
		}
		return `{"table":"S.T","op_type":"` + op + `"` + before + `,"after":` + row + seqOf(seq) + `}`
	}, "I", "U", "D")
	cdc := dialect{
		format: RowsJSON,
		upsert: func(_ testing.TB, id int64, name *string, seq int64) []byte {
			return fmt.Appendf(nil, `{"id":%d,"name":%s,"source":{"seq":%d},"_cdc":{"op":"U","ts":1,"key":{"id":%d}}}`, id, jsonName(name), seq, id)
		},
		remove: func(_ testing.TB, id, seq int64) []byte {
			return fmt.Appendf(nil, `{"id":%d,"name":"old","source":{"seq":%d},"_cdc":{"ts":1,"op":"D"}}`, id, seq)
		},
	}
	return []dialect{maxwell, canal, dms, golden, cdc}
}

// decodeAll decodes documents into one table and shows the events.
func decodeAll(t *testing.T, format string, docs [][]byte, key string) string {
	t.Helper()
	var sample []Record
	for _, doc := range docs {
		sample = append(sample, Record{Value: doc})
	}
	d, dec := discovered(t, format, sample, []string{key})
	b := rows.NewBatch(d.Schema())
	for i := range sample {
		if _, err := dec.Decode(b, &sample[i]); err != nil {
			t.Fatal(err)
		}
	}
	return show(b, 0)
}

func TestFixtureDMS(t *testing.T) {
	docs := documents(fixture(t, "aws-dms.jsonl"))
	if len(docs) != 4 {
		t.Fatalf("%d documents", len(docs))
	}
	equal(t, decodeAll(t, DMS, docs, "id"), `
		upsert id=105 name="hammer" description="14oz carpenter's hammer" weight=0.875 address="Shanghai"
		delete id=101
		upsert id=105 name="hammer" description="14oz carpenter's hammer" weight=0.875 address="Beijing"
		upsert id=107 name="rocks" description="box of assorted rocks" weight=5.3 address=null`)
}

func TestFixtureCanal(t *testing.T) {
	docs := documents(fixture(t, "canal.jsonl"))
	if len(docs) != 4 {
		t.Fatalf("%d documents", len(docs))
	}
	equal(t, decodeAll(t, Canal, docs, "id"), `
		upsert id=1 name="mike" is_adult=false balance=1000.62 reg_time=1514764801000000 win_rate=0.65
		upsert id=2 name="alice" is_adult=true balance=2000.62 reg_time=1577836801000000 win_rate=0.55
		upsert id=1 name="mike" is_adult=false balance=1500.62 reg_time=1514764801000000 win_rate=0.65
		delete id=2`)
}

func TestFixtureMaxwell(t *testing.T) {
	docs := documents(fixture(t, "maxwell.jsonl"))
	if len(docs) != 3 {
		t.Fatalf("%d documents", len(docs))
	}
	equal(t, decodeAll(t, Maxwell, docs, "id"), `
		upsert id=1 name="tom" is_adult=0 birthday="2017-12-31 16:00:01"
		upsert id=2 name="alex" is_adult=1 birthday="1999-12-31 16:00:01"
		upsert id=2 name="chi" is_adult=1 birthday="1999-12-31 16:00:01"`)
}

// What each envelope has of its own.
func TestChanges(t *testing.T) {
	const columns = "id long\nname string\nok boolean\np decimal(10, 2)\nd double\nat timestamp"
	for _, c := range []struct{ label, format, value, want string }{
		{"many rows, values as text", Canal, `{"type":"INSERT","data":[{"id":"1","name":"1","ok":"1","p":"1234","d":"-2.5e3","at":"2020-01-01 00:00:00"},{"id":"-9223372036854775808","name":"","ok":"0","p":"-0.05","d":"7","at":"0000-00-00 00:00:00"}]}`,
			`upsert id=1 name="1" ok=true p=1234.00 d=-2500 at=1577836800000000 upsert id=-9223372036854775808 name="" ok=false p=-0.05 d=7 at=null`},
		{"all rows or none", Canal, `{"type":"INSERT","data":[{"id":"1"},{"id":"x"}]}`, `reject key kind=upsert: column "id": the value's type does not fit the column's`},
		{"text that is no number", Canal, `{"type":"INSERT","data":[{"id":"12x"}]}`, `reject key kind=upsert: column "id": the text is no value of the column's type`},
		{"too large", Canal, `{"type":"INSERT","data":[{"id":"9223372036854775808"}]}`, `reject key kind=upsert: column "id": the value is outside what the column's type holds`},
		{"new columns by MySQL's types", Canal, `{"type":"INSERT","mysqlType":{"id":"bigint(20)","n":"int(10) unsigned","m":"decimal(9,3)","u":"bigint unsigned","t":"varchar(3)"},"data":[{"id":"1","n":"4294967295","m":"1.5","u":"1","t":"x"}]}`,
			`add n long add m decimal(9, 3) add u decimal(20, 0) add t string`},
		{"bytes as text", Canal, `{"type":"INSERT","mysqlType":{"b":"blob"},"data":[{"id":"1","b":"x"}]}`, `reject nested kind=upsert: column "b": an object or array where the table has a single value, or one of parts that no table has; list the column in columns.exclude to leave it out`},
		{"two keys changed", Canal, `{"type":"UPDATE","data":[{"id":"1","name":"a"},{"id":"5","name":"b"}],"old":[{"name":"z"},{"id":"4"}]}`,
			`upsert id=1 name="a" ok=null p=null d=null at=null delete id=4 upsert id=5 name="b" ok=null p=null d=null at=null`},
		{"many deletes", Canal, `{"type":"DELETE","data":[{"id":"1","name":"a"},{"id":"2"}]}`, `delete id=1 delete id=2`},
		{"truncate", Canal, `{"type":"TRUNCATE","isDdl":true,"data":null}`, `reject unsupported-op kind=delete: a truncate removes every row, which this version does not do; ask for it with varve delete --where, or set the connector's skipped.operations to t`},
		{"0 and 1", Maxwell, `{"type":"bootstrap-insert","data":{"id":1,"ok":1,"p":1.5}}`, `upsert id=1 name=null ok=true p=1.50 d=null at=null`},
		{"2 is no boolean", Maxwell, `{"type":"insert","data":{"id":1,"ok":2}}`, `reject type kind=upsert: column "ok": the value's type does not fit the column's`},
		{"key changed", Maxwell, `{"type":"update","data":{"id":2,"name":"x"},"old":{"id":1}}`, `delete id=1 upsert id=2 name="x" ok=null p=null d=null at=null`},
		{"an operation unknown", Maxwell, `{"type":"upsert","data":{"id":2}}`, `reject unsupported-op kind=unknown: the event's operation is not known`},
		{"no envelope", Maxwell, `{"id":2}`, `reject malformed kind=unknown: the event does not say what happened: it is none of the table's format`},
		{"a full load", DMS, `{"data":{"id":2,"name":"x"},"metadata":{"record-type":"data","operation":"load"}}`, `upsert id=2 name="x" ok=null p=null d=null at=null`},
		{"images of new columns are none", DMS, `{"data":{"id":2,"BI_id":2,"BI_other":{"a":1}},"metadata":{"operation":"update"}}`, `upsert id=2 name=null ok=null p=null d=null at=null`},
		{"unchanged columns from the image before", GoldenGate, `{"op_type":"U","before":{"id":1,"name":"a","ok":true,"p":"1.5","d":2,"at":null},"after":{"id":1,"name":null}}`, `upsert id=1 name=null ok=true p=1.50 d=2 at=null`},
		{"in no image", GoldenGate, `{"op_type":"U","before":{"id":1,"name":"a","ok":true,"p":"1.5","d":2},"after":{"id":1,"name":null}}`,
			`upsert id=1 name=null ok=true p=1.50 d=2 at=null carried=at`},
		{"truncate", GoldenGate, `{"op_type":"T"}`, `reject unsupported-op kind=delete: a truncate removes every row, which this version does not do; ask for it with varve delete --where, or set the connector's skipped.operations to t`},
		{"_cdc of no known operation", RowsJSON, `{"id":1,"_cdc":{"op":"X"}}`, `reject type kind=upsert: column "_cdc": the value's type does not fit the column's`},
		{"_cdc null", RowsJSON, `{"id":1,"_cdc":null}`, `upsert id=1 name=null ok=null p=null d=null at=null`},
	} {
		t.Run(c.format+" "+c.label, func(t *testing.T) {
			equal(t, decodeWith(t, nil, c.format, table(t, columns, "id"), &Record{Value: []byte(c.value)}), c.want)
		})
	}
	cdc := `{"type":"record","name":"R","fields":[{"name":"id","type":"long"},{"name":"_cdc","type":{"type":"record","name":"C","fields":[{"name":"ts","type":"long"},{"name":"op","type":"string"}]}}]}`
	equal(t, avroCase(t, RowsAvro, "id long", cdc, m{"id": int64(1), "_cdc": m{"ts": int64(1), "op": "D"}}, ""), "delete id=1")
	equal(t, avroCase(t, RowsAvro, "id long", cdc, m{"id": int64(1), "_cdc": m{"ts": int64(1), "op": "I"}}, ""), "upsert id=1")
}

// One law of kind 1: whatever the envelope, a key is its typed value.
func TestChangesTypedKey(t *testing.T) {
	for _, c := range []struct{ format, value string }{
		{Canal, `{"type":"INSERT","data":[{"id":"9007199254740993"}]}`},
		{Maxwell, `{"type":"insert","data":{"id":9007199254740993}}`},
		{DMS, `{"data":{"id":9007199254740993},"metadata":{"operation":"insert"}}`},
		{GoldenGate, `{"op_type":"I","after":{"id":9007199254740993}}`},
	} {
		equal(t, decodeWith(t, nil, c.format, table(t, "id long", "id"), &Record{Value: []byte(c.value)}), "upsert id=9007199254740993")
	}
}

func FuzzChanges(f *testing.F) {
	for _, d := range changeDialects() {
		name := "x"
		f.Add([]byte(nil), d.upsert(f, 1, &name, 7))
		f.Add([]byte(`{"id":1}`), d.remove(f, 1, 7))
		if d.rekey != nil {
			f.Add([]byte(nil), d.rekey(1, 2, "n", 7))
		}
		for _, c := range d.control {
			f.Add([]byte(nil), []byte(c))
		}
	}
	f.Add([]byte(nil), []byte(`{"type":"UPDATE","isDdl":false,"mysqlType":{"id":"int","new":"decimal(3,1)"},"data":[{"id":"1","b":"1","d":"NaN","new":"x"}],"old":[{"id":"2"},null]}`))
	def := table(f, fuzzColumns, "id")
	f.Fuzz(func(t *testing.T, key, value []byte) {
		for _, format := range []string{Maxwell, Canal, DMS, GoldenGate, RowsJSON} {
			b := rows.NewBatch(def.Schema())
			res, err := decoder(t, format, def).Decode(b, &Record{Key: key, Value: value})
			checkBatch(t, b)
			if b.Len() != res.Events || err != nil && b.Len() != 0 {
				t.Fatalf("%s: %d events told, %d appended", format, res.Events, b.Len())
			}
			if err == nil && res.Events == 0 && !res.Control {
				t.Fatalf("%s: neither an event nor a control record", format)
			}
			_, _, _ = Discover(nil, format, nil, []Record{{Key: key, Value: value}}, nil)
		}
	})
}
