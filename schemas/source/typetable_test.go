package source

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/varve-io/varve/schemas"
)

// typesFile is the table of source types, made from this package's own decisions.
const typesFile = "TYPES.md"

//go:generate env VARVE_UPDATE=1 go test -run TestTypeTable .

// losses is what a value loses on its way into a column of the type that is made
// for it. TestLossesAreTrue decodes values that have it.
func losses(d declared, t schemas.Type) string {
	switch d.sem {
	case semTimeNs, semTsNs, semTzNs:
		if t.Kind != schemas.TimestampNs && t.Kind != schemas.TimestampTzNs {
			return "what is finer than 1 µs"
		}
	case semZonedTs:
		return "the offset (the instant stays), what is finer than 1 µs"
	case semZonedTime:
		return "the offset (the time is that of UTC), what is finer than 1 µs"
	case semIsoTime, semIsoTs:
		return "what is finer than 1 µs"
	case semInstant:
		return "whether it is an instant: it is shown as a wall clock of UTC; give the column as timestamptz where it is one"
	case semDecimal:
		if d.precision == 0 {
			return "nothing; more than 38 digits are refused"
		}
	case semVarDecimal:
		return "nothing; what does not fit is refused"
	case semBits:
		return "the width"
	}
	return "nothing"
}

// readInto are the types of existing columns that take values so declared, as
// they are or after the column became wider.
func readInto(d declared) string {
	made, _ := d.columnType(false, false)
	var out []string
	for _, t := range []schemas.Type{
		schemas.Of(schemas.Boolean), schemas.Of(schemas.Int), schemas.Of(schemas.Long), schemas.Of(schemas.Float), schemas.Of(schemas.Double),
		schemas.DecimalOf(38, 10), schemas.Of(schemas.Date), schemas.Of(schemas.Time), schemas.Of(schemas.Timestamp), schemas.Of(schemas.TimestampTz),
		schemas.Of(schemas.TimestampNs), schemas.Of(schemas.TimestampTzNs), schemas.Of(schemas.String), schemas.Of(schemas.UUID), schemas.Of(schemas.Binary), schemas.FixedOf(8),
	} {
		f := field{key: -1}
		wide, ok := (&settings{}).resolve(&f, d, t)
		if !ok || t.Kind == made.Kind {
			continue
		}
		name := t.String()
		switch t.Kind {
		case schemas.Decimal:
			name = "decimal"
		case schemas.Fixed:
			name = "fixed"
		}
		if wide.Kind != 0 {
			name += " (becomes " + wide.String() + ")"
		}
		out = append(out, name)
	}
	return strings.Join(out, ", ")
}

func typeRow(name string, d declared) string {
	t, ok := d.columnType(false, false)
	if !ok {
		return fmt.Sprintf("| %s | refused by name | | | |\n", name)
	}
	exact := ""
	if x, _ := d.columnType(true, true); x != t {
		exact = x.String()
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %s |\n", name, t, exact, readInto(d), losses(d, t))
}

const typeHead = "| type | new column | with `exact.time`, `exact.nanos` | also read into | lost |\n|---|---|---|---|---|\n"

// literalOf is the Connect type under a semantic one.
func literalOf(d declared) string {
	switch d.sem {
	case semDate, semTimeMs:
		return "int32"
	case semDecimal, semBits:
		return "bytes"
	case semZonedTs, semZonedTime, semIsoDate, semIsoTime, semIsoTs, semUUID:
		return "string"
	case semVarDecimal:
		return "struct"
	}
	return "int64"
}

func typeTable(t *testing.T) string {
	var b strings.Builder
	b.WriteString("# Source types and Iceberg types\n\nMade from the code: `go generate ./schemas/source`. A table's columns are these when it is made from its events; other columns that take a\nvalue are in the fourth column. A value is taken whole or refused: \"lost\" is all that an accepted one does not keep. What no type says (a\nschema's `doc`, names of semantic types) is not kept anywhere.\n")
	b.WriteString("\n## Kafka Connect and Debezium (JSON with a schema, JSON Schema, Avro's `connect.name`)\n" + typeHead)
	for _, name := range slices.Sorted(maps.Keys(literalTypes)) {
		b.WriteString(typeRow("`"+name+"`", literalTypes[name]))
	}
	for _, name := range slices.Sorted(maps.Keys(namedTypes)) {
		if !strings.Contains(name, ".") {
			continue // Avro's
		}
		s := connectSchema{Type: literalOf(namedTypes[name]), Name: name}
		label := "`" + name + "`"
		switch namedTypes[name].sem {
		case semDecimal:
			s.Parameters = map[string]string{"scale": "2"}
			b.WriteString(typeRow(label+", scale 2", s.declared()))
			s.Parameters["connect.decimal.precision"] = "9"
			label += ", precision 9, scale 2"
		case semBits:
			for _, n := range []string{"1", "63", "64"} {
				s.Parameters = map[string]string{"length": n}
				b.WriteString(typeRow(label+", "+n+" bits", s.declared()))
			}
			s.Parameters, label = map[string]string{"length": "65"}, label+", more bits"
		}
		b.WriteString(typeRow(label, s.declared()))
	}
	for _, kind := range []string{"array", "map", "struct"} {
		s := connectSchema{Type: kind}
		b.WriteString(typeRow("`"+kind+"` (also geometry, vectors, hstore as a map)", s.declared()))
	}
	b.WriteString("\nNames that are not here go by the type under them: `…Enum`, `…EnumSet`, `…Json`, `…Xml`, `…Interval`, `…Ltree`, `…Year`, `…MicroDuration`, `…NanoDuration`.\n")
	b.WriteString("\n## Avro's own\n" + typeHead)
	for _, avro := range []string{
		`"boolean"`, `"int"`, `"long"`, `"float"`, `"double"`, `"string"`, `"bytes"`, `{"type":"enum","name":"E","symbols":["A"]}`, `{"type":"fixed","name":"F","size":8}`,
		`{"type":"int","logicalType":"date"}`, `{"type":"int","logicalType":"time-millis"}`, `{"type":"long","logicalType":"time-micros"}`,
		`{"type":"long","logicalType":"timestamp-millis"}`, `{"type":"long","logicalType":"timestamp-micros"}`, `{"type":"long","logicalType":"timestamp-nanos"}`,
		`{"type":"long","logicalType":"local-timestamp-millis"}`, `{"type":"long","logicalType":"local-timestamp-micros"}`, `{"type":"long","logicalType":"local-timestamp-nanos"}`,
		`{"type":"bytes","logicalType":"decimal","precision":9,"scale":2}`, `{"type":"string","logicalType":"uuid"}`, `{"type":"fixed","name":"U","size":16,"logicalType":"uuid"}`,
		`["null","long"]`, `["int","string"]`, `{"type":"array","items":"int"}`, `{"type":"map","values":"int"}`, `{"type":"record","name":"R","fields":[]}`,
	} {
		typ, err := parseWriter(WriterSchema{Type: TypeAvro, Text: avro})
		if err != nil {
			t.Fatalf("%s: %v", avro, err)
		}
		s := typ.connect("x", nil)
		b.WriteString(typeRow("`"+avro+"`", s.declared()))
	}
	b.WriteString("\n## Protobuf\n" + typeHead)
	file, err := compileProto(WriterSchema{Text: strings.Replace(allProto, "oneof either", "repeated int32 list = 27; map<string, int32> pairs = 28; Other other = 29; oneof either", 1)})
	if err != nil {
		t.Fatal(err)
	}
	fields := file.Messages().ByName("All").Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		if fd.ContainingOneof() != nil || fd.Name() == "id" {
			continue
		}
		name := fd.Kind().String()
		switch {
		case fd.IsMap():
			name = "map"
		case fd.IsList():
			name = "repeated"
		case fd.Kind() == protoreflect.MessageKind:
			if name = string(fd.Message().FullName()); name == "Other" {
				name = "other messages"
			}
			if len(metaParams(fd)) > 0 {
				name += ", precision 9, scale 2 in its field_meta"
			}
		}
		c, _ := protoConnect(fd)
		b.WriteString(typeRow("`"+name+"`", c.declared()))
	}
	b.WriteString("\n## MySQL's types as Canal names them\n" + typeHead)
	for _, name := range []string{
		"boolean", "tinyint(4)", "smallint", "mediumint", "int", "int unsigned", "bigint", "bigint unsigned", "year", "float", "double", "decimal(9,2)", "date", "datetime(6)", "timestamp", "time",
		"char(3)", "varchar(9)", "text", "enum('a')", "set('a')", "json", "blob", "bit(8)", "geometry",
	} {
		b.WriteString(typeRow("`"+name+"`", mysqlType(name)))
	}
	return b.String()
}

// The table says what the code does. VARVE_UPDATE=1 writes it anew.
func TestTypeTable(t *testing.T) {
	want := typeTable(t)
	if os.Getenv("VARVE_UPDATE") == "1" {
		if err := os.WriteFile(typesFile, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(typesFile)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != want {
		t.Errorf("%s says something else than the code does; go generate ./schemas/source writes it anew", typesFile)
	}
}

// What the table calls lost is lost, and the rest is not.
func TestLossesAreTrue(t *testing.T) {
	one := func(name, literal, column, value string, parameters string) string {
		if parameters != "" {
			parameters = `,"parameters":{` + parameters + `}`
		}
		return decodeWith(t, nil, RowsJSON, table(t, "id long\nv "+column, "id"), &Record{Value: fmt.Appendf(nil,
			`{"schema":{"type":"struct","fields":[{"field":"id","type":"int64"},{"field":"v","type":%q,"name":%q%s}]},"payload":{"id":1,"v":%s}}`, literal, name, parameters, value)})
	}
	for _, c := range []struct{ name, literal, column, value, parameters, want string }{
		{"io.debezium.time.NanoTime", "int64", "long", "1999", "", "v=1"},
		{"io.debezium.time.NanoTimestamp", "int64", "timestamp", "-1", "", "v=-1"},
		{"io.debezium.time.NanoTimestamp", "int64", "timestamp_ns", "1999", "", "v=1999"},
		{"timestamp-nanos", "int64", "timestamptz", "1999", "", "v=1"},
		{"timestamp-nanos", "int64", "timestamptz_ns", "1999", "", "v=1999"},
		{"io.debezium.time.ZonedTimestamp", "string", "timestamptz", `"1970-01-01T01:00:00.000001999+01:00"`, "", "v=1"},
		{"io.debezium.time.ZonedTime", "string", "long", `"01:00:00.000001999+01:00"`, "", "v=1"},
		{"io.debezium.time.IsoTime", "string", "long", `"00:00:00.000001999Z"`, "", "v=1"},
		{"io.debezium.time.IsoTimestamp", "string", "timestamp", `"1970-01-01T00:00:00.000001999Z"`, "", "v=1"},
		{"io.debezium.time.MicroTimestamp", "int64", "timestamp", "1", "", "v=1"},
		{"org.apache.kafka.connect.data.Timestamp", "int64", "timestamp", "1", "", "v=1000"},
		{"org.apache.kafka.connect.data.Timestamp", "int64", "timestamptz", "1", "", "v=1000"},
		{"io.debezium.data.Bits", "bytes", "long", `"AQA="`, `"length":"9"`, "v=1"},
		{"", "uint64", "decimal(20, 0)", "18446744073709551615", "", "v=18446744073709551615"},
		{"", "int64", "long", "9007199254740993", "", "v=9007199254740993"},
		{"", "float", "double", "1.5", "", "v=1.5"},
	} {
		equal(t, one(c.name, c.literal, c.column, c.value, c.parameters), "upsert id=1 "+c.want)
	}
}
