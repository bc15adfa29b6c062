package endtoend

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/source"
	"github.com/varve-io/varve/topology"
	"github.com/varve-io/varve/topology/readers"
)

// captured is a set of events in files, and the rows that they must leave,
// worked out by hand. Fixtures of other systems are read from VARVE_FIXTURES;
// beside each stands one of our own of the same shape.
type captured struct {
	name    string
	files   []string // below VARVE_FIXTURES, or in testdata
	outside bool
	format  string
	key     string
	sample  int // events that the schema is discovered from, 0: all
	options []schemas.Property
	letters int64
	rekeys  int64    // events that change a key: a delete and an upsert each
	want    []string // column=value of every row, the columns by name
}

var captures = []captured{
	{
		name: "customers", files: []string{"customers.jsonl"}, format: source.DebeziumJSON, key: "id", rekeys: 1,
		want: []string{
			"email=a@example.org first_name=Ada id=1 last_name=Lovelace",
			"email=∅ first_name=Alan id=3 last_name=T.",
			"email=k@example.org first_name=Kurt id=4 last_name=Gödel",
		},
	},
	{
		name: "debezium-log", files: []string{"data/cdc/debezium-log.jsonl"}, outside: true, format: source.DebeziumJSON, key: "id",
		want: []string{
			"email=sally.thomas@acme.com first_name=Sally id=1001 last_name=Thomas",
			"email=gbailey@foobar.com first_name=George id=1002 last_name=Bailey",
			"email=ed@walker.com first_name=Edward id=1003 last_name=Walker",
			"email=annek@noanswer.org first_name=Anne1 id=1004 last_name=Kretchmar",
			"email=add first_name=add id=1005 last_name=add2",
		},
	},
	{
		// A column is added, becomes wider, comes narrow again (its rows fit), and
		// comes as text (a dead letter); then a row is deleted by an event without schema.
		name: "evolution", files: []string{"evolution.jsonl"}, format: source.DebeziumJSON, key: "id", sample: 1, letters: 1,
		want: []string{
			"id=2 name=b size=7",
			"id=3 name=c size=5000000000",
			"id=4 name=d size=9",
		},
	},
	{
		name:  "debezium-schema-evolution",
		files: []string{"data/cdc/debezium-schema-evolution.jsonl", "data/cdc/debezium-with-delete.jsonl"}, outside: true,
		format: source.DebeziumJSON, key: "id", sample: 1, letters: 1,
		want: []string{
			"age=18 description=12-pack of drill bits with sizes ranging from #40 to #3 id=103 name=12-pack drill bits weight=0.8",
			"age=24 description=12oz carpenter's hammer id=104 name=hammer weight=0.75",
			"age=24 description=14oz carpenter's hammer id=105 name=hammer weight=0.875",
		},
	},
	{
		name: "keyed", files: []string{"keyed.txt"}, format: source.RowsJSON, key: "ID",
		want: []string{
			"ID=1 height=5.25 name=Uno",
			"ID=3 height=6 name=Tres",
		},
	},
	{
		name: "upsert-key-caret-value", files: []string{"data/cdc/upsert-key-caret-value.txt"}, outside: true, format: source.RowsJSON, key: "ID",
		want: []string{
			"ID=1 age=18 firstName=Ethan height=6.1 lastName=Martinez weight=180",
			"ID=2 age=19 firstName=Emily height=5.4 lastName=Jackson weight=110",
			"ID=3 age=21 firstName=Noah height=6.3 lastName=Thompson weight=195",
			"ID=4 age=20 firstName=Emma height=5.3 lastName=Brown weight=130",
			"ID=5 age=22 firstName=Michael height=6.2 lastName=Williams weight=190",
			"ID=6 age=18 firstName=Leah height=5.7 lastName=Davis weight=140",
			"ID=9 age=20 firstName=Jacob height=5.8 lastName=Anderson weight=155",
		},
	},
	{
		name: "debezium-mysql-alltypes", files: []string{"data/cdc/debezium-mysql-alltypes.jsonl"}, outside: true, format: source.DebeziumJSON, key: "_id",
		options: []schemas.Property{{
			Key: "columns.exclude", Value: "_point,_geometry,_linestring,_polygon,_multipoint,_multiline,_multipolygon,_geometrycollection",
		}},
		want: []string{allTypes},
	},
	{
		name: "aws-dms", files: []string{"data/cdc/aws-dms.jsonl"}, outside: true, format: source.DMS, key: "id",
		want: []string{
			"address=Beijing description=14oz carpenter's hammer id=105 name=hammer weight=0.875",
			"address=∅ description=box of assorted rocks id=107 name=rocks weight=5.3",
		},
	},
	{
		name: "canal", files: []string{"data/cdc/canal.jsonl"}, outside: true, format: source.Canal, key: "id",
		want: []string{"balance=1500.62 id=1 is_adult=false name=mike reg_time=2018-01-01T00:00:01.000000 win_rate=0.65"},
	},
	{
		name: "maxwell", files: []string{"data/cdc/maxwell.jsonl"}, outside: true, format: source.Maxwell, key: "id",
		want: []string{
			"birthday=2017-12-31 16:00:01 id=1 is_adult=0 name=tom",
			"birthday=1999-12-31 16:00:01 id=2 is_adult=1 name=chi",
		},
	},
}

const allTypes = "_big_decimal=2222222222222222300000001111.1234567890 _bigint=10000000000 _bigint_unsigned=20000000000" +
	" _bigint_unsigned_zerofill=30000000000 _bin=62797465730000000000 _bit=1991 _bit1=true" +
	" _blob=424c4f42207479706520746573742064617461 _bool=0 _boolean=1 _char=Paimon _date=2023-03-23" +
	" _datetime=2023-03-23T14:30:05.000000 _datetime3=2023-03-23T14:30:05.123000 _datetime6=2023-03-23T14:30:05.123456" +
	" _datetime_p=2023-03-24T14:30:00.000000 _datetime_p2=2023-03-24T14:30:05.120000" +
	" _decimal=11111 _decimal_unsigned=22222 _decimal_unsigned_zerofill=33333" +
	" _double=1.000011 _double_precision=1.000111 _double_precision_unsigned=2.000222 _double_precision_unsigned_zerofill=3.000333" +
	" _double_unsigned=2.000022 _double_unsigned_zerofill=3.000033 _enum=value1" +
	" _fixed=123456789876543212345678987654321.110 _fixed_unsigned=123456789876543212345678987654321.220" +
	" _fixed_unsigned_zerofill=123456789876543212345678987654321.330" +
	" _float=1.5 _float_unsigned=2.5 _float_unsigned_zerofill=3.5 _id=1 _int=1000000 _int_unsigned=2000000 _int_unsigned_zerofill=3000000" +
	` _json={"a": "b"} _longblob=4c4f4e47424c4f422020627974657320746573742064617461 _longtext=Apache Paimon MySQL Long Test Data` +
	" _mediumblob=4d454449554d424c4f42207479706520746573742064617461 _mediumint=100000 _mediumint_unsigned=200000 _mediumint_unsigned_zerofill=300000" +
	" _mediumtext=Apache Paimon MySQL MEDIUMTEXT Test Data _numeric=12345.110 _numeric_unsigned=12345.220 _numeric_unsigned_zerofill=12345.330" +
	" _real=1.000001 _real_unsigned=2.000002 _real_unsigned_zerofill=3.000003 _serial=40000000000 _set=a,b _smallint=1000 _smallint_unsigned=2000" +
	" _smallint_unsigned_zerofill=3000 _text=Apache Paimon MySQL Test Data _time=36803000000 _timestamp=2023-03-23T22:00:10.123456+00:00" +
	" _timestamp0=2023-03-23T07:10:00.000000+00:00 _tinyblob=54494e59424c4f42207479706520746573742064617461 _tinyint=1 _tinyint1=1" +
	" _tinyint_unsigned=2 _tinyint_unsigned_zerofill=3 _tinytext=Apache Paimon MySQL TINYTEXT Test Data _varbin=6d6f7265206279746573" +
	" _varchar=Apache Paimon _year=2023 pt=1.1"

// TestCaptured: captured change events go through a node and leave the right rows.
func TestCaptured(t *testing.T) {
	ctx := longContext(t)
	n := start(t, topology.NodeOptions{Data: dataDir(t)})
	defer stop(t, n)
	for _, c := range captures {
		t.Run(c.name, func(t *testing.T) {
			var events []source.Record
			for _, file := range c.files {
				path := filepath.Join("testdata", file)
				if c.outside {
					dir := os.Getenv("VARVE_FIXTURES")
					if dir == "" {
						t.Skip("skipped: VARVE_FIXTURES names no folder of captured events")
					}
					path = filepath.Join(dir, file)
				}
				text, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				events = append(events, eventsOf(text, strings.HasSuffix(file, ".txt"))...)
			}
			def := c.define(t, events)
			i := 0
			if _, err := n.Produce(ctx, def.SourceTopic, 1, func() (*topology.SourceEvent, error) {
				if i == len(events) {
					return nil, io.EOF
				}
				i++
				return &topology.SourceEvent{Key: events[i-1].Key, Value: events[i-1].Value}, nil
			}, nil); err != nil {
				t.Fatal(err)
			}
			info, _, err := n.EnsureTable(ctx, def)
			if err != nil {
				t.Fatal(err)
			}
			if err := n.Ingest(ctx, info); err != nil {
				t.Fatal(err)
			}
			if err := n.WaitLoaded(ctx, def.Name, nil); err != nil {
				t.Fatal(err)
			}
			if info, err = n.Table(ctx, def.Name); err != nil {
				t.Fatal(err)
			}
			k := &info.Counts
			if dead := k.DeadUpserts + k.DeadDeletes + k.DeadOther; dead != c.letters || k.Events != int64(len(events))-c.letters+c.rekeys {
				t.Errorf("%d dead letters and %d events of %d, want %d dead", dead, k.Events, len(events), c.letters)
			}
			want := slices.Clone(c.want)
			sort.Strings(want)
			for _, engine := range readers.All {
				t.Run(string(engine), func(t *testing.T) {
					readers.Need(t, engine)
					got, err := readers.Read(ctx, engine, info.Head.MetadataPath, readers.Options{})
					if err != nil {
						t.Fatal(err)
					}
					diff(t, string(engine), got.Sorted(), want)
				})
			}
		})
	}
}

// define makes the table's definition from the events' own schema.
func (c *captured) define(t *testing.T, events []source.Record) schemas.Definition {
	t.Helper()
	sample := events
	if c.sample > 0 {
		sample = events[:c.sample]
	}
	s, _, err := source.Discover(nil, c.format, c.options, sample, []string{c.key})
	if err != nil {
		t.Fatal(err)
	}
	def := definition("captured."+c.name, c.format, []schemas.Field{{Name: "x", Type: schemas.Of(schemas.Long)}})
	def.Schemas[0] = *s
	for i := range def.Schemas[0].Fields {
		f := &def.Schemas[0].Fields[i]
		f.Required = f.Name == c.key
	}
	def.Schemas[0].ID, def.LastColumnID, def.FormatOptions = 0, s.HighestID(), c.options
	def.Key = []int32{s.Fields[s.ByName(c.key)].ID}
	def.Schemas[0].Identifier = def.Key
	return def
}

// eventsOf are the events of a file: JSON documents that begin a line, with
// comments about them, or lines of key^value, where an empty value is null.
func eventsOf(text []byte, keyed bool) []source.Record {
	var out []source.Record
	for _, line := range bytes.Split(text, []byte("\n")) {
		line = bytes.TrimSuffix(bytes.TrimSpace(line), []byte("/*"))
		if !bytes.HasPrefix(line, []byte("{")) {
			continue
		}
		r := source.Record{Value: line}
		if keyed {
			r.Key, r.Value, _ = bytes.Cut(line, []byte("^"))
			if len(r.Value) == 0 {
				r.Value = nil
			}
		}
		out = append(out, r)
	}
	return out
}
