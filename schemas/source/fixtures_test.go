package source

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/rows"
)

// documents are the JSON documents of a captured file; comment marks between
// them are the capture's.
func documents(b []byte) (docs [][]byte) {
	for _, l := range strings.Split(string(b), "\n") {
		if l = strings.TrimSuffix(strings.TrimSpace(l), "/*"); strings.HasPrefix(l, "{") {
			docs = append(docs, []byte(l))
		}
	}
	return docs
}

// discovered makes a table from events and its decoder.
func discovered(t *testing.T, format string, sample []Record, key []string, options ...string) (*schemas.Definition, Decoder) {
	t.Helper()
	s, _, err := Discover(nil, format, props(options), sample, key)
	if err != nil {
		t.Fatal(err)
	}
	d := &schemas.Definition{Name: "t", Schemas: []schemas.Schema{*s}, Key: s.Identifier}
	return d, decoder(t, format, d, options...)
}

func equal(t *testing.T, got, want string) {
	t.Helper()
	want = strings.Join(strings.Fields(want), " ")
	got = strings.Join(strings.Fields(got), " ")
	if got != want {
		t.Fatalf("got\n%s\nwant\n%s", got, want)
	}
}

const geometry = "_point,_geometry,_linestring,_polygon,_multipoint,_multiline,_multipolygon,_geometrycollection"

// Every MySQL type of a captured event, worked out by hand.
func TestFixtureAllTypes(t *testing.T) {
	docs := documents(fixture(t, "debezium-mysql-alltypes.jsonl"))
	sample := []Record{{Value: docs[0]}}

	all, _, err := Discover(nil, DebeziumJSON, nil, sample, []string{"_id"})
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all.Fields, func(f schemas.Field) bool { return f.Name == "_point" })
	if i < 0 || all.Fields[i].Type.String() != "struct<x: double, y: double, wkb: binary, srid: int>" {
		t.Fatalf("a point is no struct: field %d of %+v", i, all.Fields)
	}

	d, dec := discovered(t, DebeziumJSON, sample, []string{"_id"}, "columns.exclude="+geometry)
	b := rows.NewBatch(d.Schema())
	if _, err := dec.Decode(b, &sample[0]); err != nil {
		t.Fatal(err)
	}
	equal(t, show(b, 0), `upsert _id=1 pt=1.1 _bit1=true _bit=1991
		_tinyint1=1 _boolean=1 _bool=0 _tinyint=1 _tinyint_unsigned=2 _tinyint_unsigned_zerofill=3
		_smallint=1000 _smallint_unsigned=2000 _smallint_unsigned_zerofill=3000
		_mediumint=100000 _mediumint_unsigned=200000 _mediumint_unsigned_zerofill=300000
		_int=1000000 _int_unsigned=2000000 _int_unsigned_zerofill=3000000
		_bigint=10000000000 _bigint_unsigned=20000000000 _bigint_unsigned_zerofill=30000000000 _serial=40000000000
		_float=1.5 _float_unsigned=2.5 _float_unsigned_zerofill=3.5
		_real=1.000001 _real_unsigned=2.000002 _real_unsigned_zerofill=3.000003
		_double=1.000011 _double_unsigned=2.000022 _double_unsigned_zerofill=3.000033
		_double_precision=1.000111 _double_precision_unsigned=2.000222 _double_precision_unsigned_zerofill=3.000333
		_numeric=12345.110 _numeric_unsigned=12345.220 _numeric_unsigned_zerofill=12345.330
		_fixed=123456789876543212345678987654321.110 _fixed_unsigned=123456789876543212345678987654321.220
		_fixed_unsigned_zerofill=123456789876543212345678987654321.330
		_decimal=11111 _decimal_unsigned=22222 _decimal_unsigned_zerofill=33333
		_big_decimal=2222222222222222300000001111.1234567890
		_date=19439 _datetime=1679581805000000 _datetime3=1679581805123000 _datetime6=1679581805123456
		_datetime_p=1679668200000000 _datetime_p2=1679668205120000
		_timestamp=1679608810123456 _timestamp0=1679555400000000
		_char="Paimon" _varchar="Apache Paimon" _tinytext="Apache Paimon MySQL TINYTEXT Test Data"
		_text="Apache Paimon MySQL Test Data" _mediumtext="Apache Paimon MySQL MEDIUMTEXT Test Data"
		_longtext="Apache Paimon MySQL Long Test Data"
		_bin=0x62797465730000000000 _varbin=0x6d6f7265206279746573
		_tinyblob=0x54494e59424c4f42207479706520746573742064617461
		_blob=0x424c4f42207479706520746573742064617461
		_mediumblob=0x4d454449554d424c4f42207479706520746573742064617461
		_longblob=0x4c4f4e47424c4f422020627974657320746573742064617461
		_json="{\"a\": \"b\"}" _enum="value1" _year=2023 _time=36803000000 _set="a,b"`)

	types := map[string]string{"pt": "decimal(2, 1)", "_bit1": "boolean", "_bit": "decimal(20, 0)", "_tinyint": "int",
		"_int_unsigned": "long", "_bigint_unsigned": "decimal(38, 0)", "_float": "double", "_numeric": "decimal(8, 3)",
		"_fixed": "decimal(38, 3)", "_big_decimal": "decimal(38, 10)", "_date": "date", "_datetime": "timestamp",
		"_datetime6": "timestamp", "_timestamp": "timestamptz", "_char": "string", "_bin": "binary", "_json": "string",
		"_year": "int", "_time": "long", "_set": "string"}
	for name, want := range types {
		if got := d.Schema().Fields[d.Schema().ByName(name)].Type.String(); got != want {
			t.Errorf("%s is a %s, want %s", name, got, want)
		}
	}
}

// Columns added, widened, narrower again, and at last of another type.
func TestFixtureSchemaEvolution(t *testing.T) {
	docs := documents(fixture(t, "debezium-schema-evolution.jsonl"))
	if len(docs) != 5 {
		t.Fatalf("%d documents", len(docs))
	}
	d, dec := discovered(t, DebeziumJSON, []Record{{Value: docs[0]}}, []string{"id"})
	var got strings.Builder
	for _, doc := range docs {
		b := rows.NewBatch(d.Schema())
		_, err := dec.Decode(b, &Record{Value: doc})
		var c *SchemaChange
		if errors.As(err, &c) {
			got.WriteString(showError(t, err))
			alter(d, c)
			dec = decoder(t, DebeziumJSON, d)
			b = rows.NewBatch(d.Schema())
			_, err = dec.Decode(b, &Record{Value: doc})
		}
		if err != nil {
			got.WriteString(showError(t, err))
		}
		got.WriteString(show(b, 0))
	}
	equal(t, got.String(), `
		upsert id=101 name="scooter" description="Small 2-wheel scooter" weight=3.14
		add age int
		upsert id=103 name="12-pack drill bits" description="12-pack of drill bits with sizes ranging from #40 to #3" weight=0.8 age=18
		widen age (5) to long
		upsert id=104 name="hammer" description="12oz carpenter's hammer" weight=0.75 age=24
		upsert id=105 name="hammer" description="14oz carpenter's hammer" weight=0.875 age=24
		reject type kind=upsert: column "age": the value's type does not fit the column's`)
}

func TestFixtureDelete(t *testing.T) {
	docs := documents(fixture(t, "debezium-with-delete.jsonl"))
	d := table(t, "id long\nname string\ndescription string\nweight double", "id")
	b := rows.NewBatch(d.Schema())
	if _, err := decoder(t, DebeziumJSON, d).Decode(b, &Record{Value: docs[0]}); err != nil {
		t.Fatal(err)
	}
	equal(t, show(b, 0), "delete id=101")
}

func TestFixtureLog(t *testing.T) {
	var sample []Record
	for _, doc := range documents(fixture(t, "debezium-log.jsonl")) {
		sample = append(sample, Record{Value: doc})
	}
	d, _ := discovered(t, DebeziumJSON, sample, []string{"id"})
	d.Order = schemas.Order{Kind: schemas.OrderByPath, Path: "source.pos"}
	dec := decoder(t, DebeziumJSON, d)
	b := rows.NewBatch(d.Schema())
	for i := range sample {
		if _, err := dec.Decode(b, &sample[i]); err != nil {
			t.Fatal(err)
		}
	}
	got := show(b, 0)
	if n := strings.Count(got, "upsert "); n != 9 {
		t.Fatalf("%d upserts, want 9", n)
	}
	lines := strings.Split(strings.TrimSpace(got), "\n")
	equal(t, lines[0], `upsert order=157 id=1001 first_name="Sally" last_name="Thomas" email="sally.thomas@acme.com"`)
	if last := lines[len(lines)-1]; !strings.HasPrefix(last, "delete order=") || !strings.HasSuffix(last, " id=1006") {
		t.Fatalf("the last event is %s", last)
	}
}

// Rows keyed by the record key; an empty value in the file is a tombstone.
func TestFixtureUpsertKey(t *testing.T) {
	lines := strings.Split(strings.TrimSpace(string(fixture(t, "upsert-key-caret-value.txt"))), "\n")
	var sample []Record
	for _, l := range lines {
		key, value, _ := strings.Cut(l, "^")
		rec := Record{Key: []byte(key)}
		if value = strings.TrimSpace(value); value != "" {
			rec.Value = []byte(value)
		}
		sample = append(sample, rec)
	}
	d, dec := discovered(t, RowsJSON, sample, nil)
	if s := d.Schema(); len(s.Identifier) != 1 || s.Fields[s.ByID(s.Identifier[0])].Name != "ID" {
		t.Fatalf("the proposed key is %v", s.Identifier)
	}
	b := rows.NewBatch(d.Schema())
	for i := range sample {
		if _, err := dec.Decode(b, &sample[i]); err != nil {
			t.Fatal(err)
		}
	}
	out := strings.Split(strings.TrimSpace(show(b, 0)), "\n")
	equal(t, out[0], `upsert ID=1 firstName="John" lastName="Doe" age=18 height=5.1 weight=150`)
	equal(t, out[len(out)-2]+" "+out[len(out)-1], `delete ID=7 delete ID=8`)
}
