package matrix

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/topology/readers"
)

// null is a value that is none; an empty text is one.
const null = "∅"

// column is a column of a table and the values that it gets: text as readers
// show it.
type column struct {
	name  string
	typ   schemas.Type
	value func(r *rand.Rand) string
}

// filter is a condition on a column in the words of SQL and of PyIceberg, and
// which values meet it.
type filter struct {
	column       string
	sql, py      string
	holds        func(text string) bool
	sqlForPolars bool // its SQL is also Polars'
}

// tableCase is one table of the matrix.
type tableCase struct {
	name, what string
	columns    []column // beside the key, id
	partition  func(s *schemas.Schema) []schemas.PartitionField
	filters    []filter
	appendOnly bool
	// compacted: all files are merged before the last round, whose vectors then
	// lie on what came out.
	compacted bool
	// upgraded: before the second round the files of another table come in, written
	// under version 2. It is made where there is the reference catalog.
	upgraded bool
	// alter changes the table before its last round, and the model's rows with it.
	alter *alteration
	// respec says how the table is partitioned from a round on.
	respec map[int][]record.PartitionTerm
	// refused is what engines are known to say of the table, instead of rows.
	refused map[readers.Engine]string
	// filterRefused is the same of the filters alone.
	filterRefused map[readers.Engine]string
}

type alteration struct {
	change  record.AlterTable
	columns []column                    // after it
	old     map[string]string           // values of the new columns in rows that were there
	rewrite func(row map[string]string) // changes values of rows that were there
}

var kinds = map[string]schemas.Type{
	"boolean": schemas.Of(schemas.Boolean), "int": schemas.Of(schemas.Int), "long": schemas.Of(schemas.Long), "float": schemas.Of(schemas.Float),
	"double": schemas.Of(schemas.Double), "date": schemas.Of(schemas.Date), "time": schemas.Of(schemas.Time), "timestamp": schemas.Of(schemas.Timestamp),
	"timestamptz": schemas.Of(schemas.TimestampTz), "timestamp_ns": schemas.Of(schemas.TimestampNs), "timestamptz_ns": schemas.Of(schemas.TimestampTzNs),
	"string": schemas.Of(schemas.String), "binary": schemas.Of(schemas.Binary), "uuid": schemas.Of(schemas.UUID),
}

// of picks one of some texts, and null now and then.
func of(texts ...string) func(*rand.Rand) string {
	return func(r *rand.Rand) string {
		if r.IntN(8) == 0 {
			return null
		}
		return texts[r.IntN(len(texts))]
	}
}

func whole(lo, hi int64) func(*rand.Rand) string {
	edges := of(strconv.FormatInt(lo, 10), strconv.FormatInt(hi, 10), "0", "-1")
	return func(r *rand.Rand) string {
		if r.IntN(4) == 0 {
			return edges(r)
		}
		return strconv.FormatInt(r.Int64N(1000)-500, 10)
	}
}

func decimals(whole, scale int) func(*rand.Rand) string {
	return func(r *rand.Rand) string {
		if r.IntN(8) == 0 {
			return null
		}
		s := ""
		if r.IntN(2) == 0 {
			s = "-"
		}
		digits := 1 + r.IntN(whole)
		s += strconv.Itoa(1 + r.IntN(9))
		for i := 1; i < digits; i++ {
			s += strconv.Itoa(r.IntN(10))
		}
		s += "."
		for range scale {
			s += strconv.Itoa(r.IntN(10))
		}
		return s
	}
}

// instants are points in time of a layout, over a century and some edges.
func instants(layout string, edges ...string) func(*rand.Rand) string {
	edge := of(edges...)
	return func(r *rand.Rand) string {
		if r.IntN(4) == 0 {
			return edge(r)
		}
		return time.Unix(r.Int64N(3_000_000_000)-1_000_000_000, r.Int64N(1_000_000_000)).UTC().Format(layout)
	}
}

const (
	micros   = "2006-01-02T15:04:05.000000"
	microsTz = "2006-01-02T15:04:05.000000+00:00"
	nanos    = "2006-01-02T15:04:05.000000000"
	nanosTz  = "2006-01-02T15:04:05.000000000+00:00"
)

var (
	dates       = instants("2006-01-02", "0001-01-01", "9999-12-31", "1970-01-01", "1969-12-31", "1582-10-10", "2024-02-29")
	timestamps  = instants(micros, "0001-01-01T00:00:00.000000", "9999-12-31T23:59:59.999999", "1970-01-01T00:00:00.000000", "1969-12-31T23:59:59.999999", "2024-02-29T12:00:00.000001")
	timestampTz = instants(microsTz, "0001-01-01T00:00:00.000000+00:00", "9999-12-31T23:59:59.999999+00:00", "1970-01-01T00:00:00.000000+00:00", "1969-12-31T23:59:59.999999+00:00")
	names       = of("", "a", "Zoë", "naïve café", "日本語", "🐟 fish", "it's \"quoted\"", "tab\tnew\nline", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "Ω")
	countries   = of("PT", "FR", "DE", "KR", "São Tomé")
)

func hexBytes(lengths ...int) func(*rand.Rand) string {
	return func(r *rand.Rand) string {
		if r.IntN(8) == 0 {
			return null
		}
		s := ""
		for range lengths[r.IntN(len(lengths))] {
			s += fmt.Sprintf("%02x", r.IntN(256))
		}
		return s
	}
}

func uuids(r *rand.Rand) string {
	h := hexBytes(16)(r)
	if h == null {
		return null
	}
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// by partitions by one transform of a column.
func by(t schemas.TransformKind, n int32, columns ...string) func(*schemas.Schema) []schemas.PartitionField {
	return func(s *schemas.Schema) []schemas.PartitionField {
		var out []schemas.PartitionField
		for i, c := range columns {
			name := c
			if t != schemas.Identity {
				name = fmt.Sprint(c, "_part")
			}
			out = append(out, schemas.PartitionField{SourceID: s.Fields[s.ByName(c)].ID, FieldID: int32(1000 + i), Name: name, Transform: t, N: n})
		}
		return out
	}
}

func text(name, value string) filter {
	return filter{column: name, sql: fmt.Sprintf("%s = '%s'", name, value), py: fmt.Sprintf("%s = '%s'", name, value), holds: func(t string) bool { return t == value }, sqlForPolars: true}
}

func below(name string, limit int64) filter {
	return filter{column: name, sql: fmt.Sprintf("%s < %d", name, limit), py: fmt.Sprintf("%s < %d", name, limit), holds: func(t string) bool {
		v, err := strconv.ParseInt(t, 10, 64)
		return t != null && err == nil && v < limit
	}, sqlForPolars: true}
}

// since is a condition on a date or a timestamp; their texts sort as they do.
func since(name, typ, at string) filter {
	sql := map[string]string{"date": "DATE", "timestamp": "TIMESTAMP", "timestamptz": "TIMESTAMP"}[typ]
	lit, py := at, at
	if typ != "date" {
		lit, py = at+" 00:00:00", at+"T00:00:00"
	}
	if typ == "timestamptz" {
		lit, py = lit+" UTC", py+"+00:00"
	}
	return filter{column: name, sql: fmt.Sprintf("%s >= %s '%s'", name, sql, lit), py: fmt.Sprintf("%s >= '%s'", name, py), holds: func(t string) bool { return t != null && t >= at }}
}

var (
	level   = column{"level", kinds["int"], whole(-1<<31, 1<<31-1)}
	name    = column{"name", kinds["string"], names}
	country = column{"country", kinds["string"], countries}
	day     = column{"day", kinds["date"], dates}
	at      = column{"placed", kinds["timestamp"], timestamps}
	tz      = column{"tz", kinds["timestamptz"], timestampTz}
)

// respec partitions a table with a country and a level otherwise before rounds:
// one that time travel does not see, one that it does.
var respec = map[int][]record.PartitionTerm{
	2: {{Column: "country", Transform: schemas.Identity, Name: "country"}},
	3: {{Column: "id", Transform: schemas.Bucket, N: 3, Name: "id_bucket"}, {Column: "level", Transform: schemas.Truncate, N: 1 << 30, Name: "level_trunc"}},
	4: {},
}

// few gives the few first values of another: each is a partition's, and each
// flush writes a file a partition.
func few(c column) column {
	r := rand.New(rand.NewPCG(1, 2))
	pool := make([]string, 9)
	for i := range pool {
		pool[i] = c.value(r)
	}
	c.value = of(pool...)
	return c
}

// cases are the tables. A type that closes a table to a reader has a table of
// its own (T2).
func cases() []tableCase {
	everyday := []column{
		{"bo", kinds["boolean"], of("true", "false")}, {"i", kinds["int"], whole(-1<<31, 1<<31-1)}, {"l", kinds["long"], whole(-1<<63, 1<<63-1)},
		{"f", kinds["float"], of("0", "1.5", "-0.1", "3.4028235e+38", "1e-45", "NaN", "+Inf", "-Inf")},
		{"d", kinds["double"], of("0", "1.5", "-0.1", "1.7976931348623157e+308", "5e-324", "NaN", "+Inf", "-Inf")},
		{"de9", schemas.DecimalOf(9, 2), decimals(7, 2)}, {"de18", schemas.DecimalOf(18, 4), decimals(14, 4)}, {"de38", schemas.DecimalOf(38, 10), decimals(28, 10)},
		day, at, tz, name, {"bi", kinds["binary"], hexBytes(0, 1, 2, 40)}, {"fx", schemas.FixedOf(5), hexBytes(5)}, {"u", kinds["uuid"], uuids},
	}
	one := func(name, typ string, value func(*rand.Rand) string, refused map[readers.Engine]string) tableCase {
		return tableCase{name: "types." + name, what: "type " + typ, columns: []column{{"v", kinds[typ], value}, country}, filters: []filter{text("country", "PT")}, refused: refused}
	}
	part := func(name, what string, c column, p func(*schemas.Schema) []schemas.PartitionField, f ...filter) tableCase {
		return tableCase{name: "parts." + name, what: "by " + what, columns: []column{c, level}, partition: p, filters: append(f, below("id", 40))}
	}
	return slices.Concat([]tableCase{
		{name: "types.everyday", what: "boolean, int, long, float, double, decimals, date, timestamp, timestamptz, string, binary, fixed, uuid", columns: everyday,
			filters: []filter{below("id", 40), below("i", 0), text("name", "日本語"), since("day", "date", "1990-01-01")}},
		one("time", "time", of("00:00:00.000000", "23:59:59.999999", "12:34:56.000001"), map[readers.Engine]string{
			readers.Spark: "Spark does not support time fields", readers.Sail: "[UNSUPPORTED_OPERATION] data type  is not supported.",
		}),
		one("nanos", "timestamp_ns", instants(nanos, "1970-01-01T00:00:00.000000000", "1969-12-31T23:59:59.999999999", "2200-01-01T00:00:00.000000001"), map[readers.Engine]string{
			readers.Spark: "Cannot convert unsupported type to Spark: timestamp_ns", readers.Sail: "cast Timestamp(Nanosecond, None) to Spark data type",
		}),
		one("nanostz", "timestamptz_ns", instants(nanosTz, "1970-01-01T00:00:00.000000000+00:00", "1969-12-31T23:59:59.999999999+00:00"), map[readers.Engine]string{
			readers.DuckDB: "Unrecognized primitive type: timestamptz_ns",
			readers.Spark:  "Cannot convert unsupported type to Spark: timestamptz_ns", readers.Sail: `cast Timestamp(Nanosecond, Some("UTC")) to Spark data type`,
		}),
		part("identity", "identity", country, by(schemas.Identity, 0, "country"), text("country", "São Tomé")),
		part("bucket", "bucket(4) of the key and of a string", name, by(schemas.Bucket, 4, "id", "name"), text("name", "🐟 fish")),
		part("truncate", "truncate(2) of a string", few(name), by(schemas.Truncate, 2, "name"), text("name", "日本語")),
		part("truncint", "truncate(100) of an int", few(column{"num", kinds["int"], whole(-1<<31+100, 1<<31-1)}), by(schemas.Truncate, 100, "num"), below("num", 3)),
		part("year", "year", few(at), by(schemas.Year, 0, "placed"), since("placed", "timestamp", "1990-01-01")),
		part("month", "month", few(day), by(schemas.Month, 0, "day"), since("day", "date", "1990-01-01")),
		part("day", "day", few(tz), by(schemas.Day, 0, "tz"), since("tz", "timestamptz", "1990-01-01")),
		part("hour", "hour", few(at), by(schemas.Hour, 0, "placed"), since("placed", "timestamp", "1990-01-01")),
		part("void", "void", name, by(schemas.Void, 0, "name"), text("name", "Ω")),
		{name: "other.altered", what: "a column added with a default, types widened", columns: []column{level, {"f", kinds["float"], of("1.5", "-0.25")}, {"d", schemas.DecimalOf(9, 2), decimals(5, 2)}},
			filters: []filter{below("id", 40), below("level", 0)},
			alter: &alteration{
				change: record.AlterTable{
					Add:   []record.AddColumn{{Name: "note", Type: kinds["string"], Default: `"as it was"`}, {Name: "more", Type: kinds["long"]}},
					Widen: []record.WidenColumn{{Name: "level", Type: kinds["long"]}, {Name: "f", Type: kinds["double"]}, {Name: "d", Type: schemas.DecimalOf(20, 2)}},
				},
				columns: []column{{"level", kinds["long"], whole(-1<<63, 1<<63-1)}, {"f", kinds["double"], of("1.5", "0.1")}, {"d", schemas.DecimalOf(20, 2), decimals(18, 2)}, {"note", kinds["string"], names}, {"more", kinds["long"], whole(-1<<63, 1<<63-1)}},
				old:     map[string]string{"note": "as it was", "more": null},
			}},
		{name: "other.compacted", what: "compacted, then changed again", columns: []column{level, name}, compacted: true, filters: []filter{below("id", 40)}},
		{name: "other.compactedparts", what: "the same by partitions", columns: []column{country, level}, partition: by(schemas.Identity, 0, "country"), compacted: true,
			filters: []filter{text("country", "PT"), below("id", 40)}},
		{name: "other.respec", what: "a changed partition spec: not partitioned, then by a string, a bucket of the key and an int's range, not any more", columns: []column{country, level}, respec: respec,
			filters: []filter{text("country", "PT"), below("id", 40), below("level", 0)}},
		{name: "other.respecparts", what: "the same from partitions on, compacted under both specs", columns: []column{country, level}, partition: by(schemas.Truncate, 3, "country"), respec: respec, compacted: true,
			filters: []filter{text("country", "PT"), below("id", 40), below("level", 0)}},
		{name: "other.upgraded", what: "upgraded rows: the files of a table of version 2 with position deletes", columns: []column{level, name, day}, upgraded: true,
			filters: []filter{below("id", 40), below("level", 0), since("day", "date", "1990-01-01")}},
		{name: "other.appended", what: "append-only", columns: []column{level, name}, appendOnly: true, filters: []filter{below("id", 40)}},
	}, nestedCases())
}
