package source

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/varve-io/varve/schemas"
)

// The formats.
const (
	DebeziumJSON   = "debezium-json"
	RowsJSON       = "rows-json"
	VarveAvro      = "varve-avro"
	DebeziumAvro   = "debezium-avro"
	RowsAvro       = "rows-avro"
	RowsProtobuf   = "rows-protobuf"
	RowsJSONSchema = "rows-json-schema"
	Maxwell        = "maxwell"
	Canal          = "canal-json"
	DMS            = "aws-dms"
	GoldenGate     = "goldengate-json"
)

// Formats lists the formats that New knows.
func Formats() []string {
	return []string{DebeziumJSON, DebeziumAvro, RowsJSON, RowsJSONSchema, RowsAvro, RowsProtobuf, Maxwell, Canal, DMS, GoldenGate, VarveAvro}
}

// DefaultMaxRecordBytes is the largest record value that is decoded.
const DefaultMaxRecordBytes = 64 << 20

// DefaultUnavailable is Debezium's marker of an unchanged value.
const DefaultUnavailable = "__debezium_unavailable_value"

// settings are a decoder's options, read. See Options in doc.go.
type settings struct {
	exclude     map[string]bool
	refuseNew   bool
	recordKey   bool // rows-json: key.from=record
	maxBytes    int
	exactTime   bool
	exactNanos  bool
	dateUnit    sem // semDate where whole numbers are days
	tsUnit      sem // semTsMs, semTsUs, semTsNs; semNone: not set
	timeUnit    sem
	decimals    sem // semDecimal: base64, semString: text, semNone: not set
	truncate    bool
	lenient     bool // 0 and 1 may stand for false and true
	quoted      bool // and numbers in quotes
	unavailable string
	types       map[string]declared
	plain       bool   // varve-avro: framing=none
	message     string // rows-protobuf: the message of bare values
	routeBy     string
	routeMatch  *regexp.Regexp // of the whole text
	routeSkip   bool
	schemaID    int32 // varve-avro: of the table's schemas; else of a registry's, for bare values
}

// choice sets an option to one of its values.
type choice struct {
	values []string
	set    func(*settings, int)
}

var choices = map[string]choice{
	"columns.new":        {[]string{"add", "refuse"}, func(s *settings, i int) { s.refuseNew = i == 1 }},
	"key.from":           {[]string{"row", "record"}, func(s *settings, i int) { s.recordKey = i == 1 }},
	"exact.time":         {[]string{"false", "true"}, func(s *settings, i int) { s.exactTime = i == 1 }},
	"exact.nanos":        {[]string{"false", "true"}, func(s *settings, i int) { s.exactNanos = i == 1 }},
	"timestamp.truncate": {[]string{"false", "true"}, func(s *settings, i int) { s.truncate = i == 1 }},
	"timestamp.unit": {[]string{"millis", "micros", "nanos"}, func(s *settings, i int) {
		s.tsUnit = [...]sem{semTsMs, semTsUs, semTsNs}[i]
	}},
	"time.unit": {[]string{"millis", "micros", "nanos"}, func(s *settings, i int) {
		s.timeUnit = [...]sem{semTimeMs, semTimeUs, semTimeNs}[i]
	}},
	"decimal.handling": {[]string{"base64", "text"}, func(s *settings, i int) {
		s.decimals = [...]sem{semDecimal, semString}[i]
	}},
	"route.tombstones": {[]string{"refuse", "skip"}, func(s *settings, i int) { s.routeSkip = i == 1 }},
	"framing":          {[]string{"single-object", "none"}, func(s *settings, i int) { s.plain = i == 1 }},
}

var jsonOptions = []string{"columns.exclude", "columns.new", "decimal.handling", "exact.nanos", "exact.time",
	"max.record.bytes", "time.unit", "timestamp.truncate", "timestamp.unit", "type.<column>", "unavailable.value"}

var registryOptions = []string{"columns.exclude", "columns.new", "exact.nanos", "exact.time", "max.record.bytes",
	"schema.id", "type.<column>", "unavailable.value"}

// optionNames are the options of each format.
var optionNames = map[string][]string{
	DebeziumJSON:   jsonOptions,
	Maxwell:        jsonOptions,
	Canal:          jsonOptions,
	DMS:            jsonOptions,
	GoldenGate:     jsonOptions,
	DebeziumAvro:   registryOptions,
	RowsAvro:       append([]string{"key.from"}, registryOptions...),
	RowsJSONSchema: append([]string{"key.from", "schema.id"}, jsonOptions...),
	RowsProtobuf:   append([]string{"key.from", "message.name"}, registryOptions...),
	VarveAvro:      {"framing", "max.record.bytes", "schema.id"},
	RowsJSON:       append([]string{"key.from"}, jsonOptions...),
}

// optionName is an option as the lists of options have it.
func optionName(key string) string {
	if strings.HasPrefix(key, "type.") {
		return "type.<column>"
	}
	return key
}

// takesOption says whether an option is one of these.
func takesOption(names []string, key string) bool {
	return slices.Contains(names, optionName(key)) || slices.Contains(routeOptions, key)
}

func parseSettings(format string, options []schemas.Property) (*settings, error) {
	formats, err := SplitFormats(format)
	if err != nil {
		return nil, err
	}
	names := optionNames[formats[0]]
	for _, f := range formats[1:] {
		for _, n := range optionNames[f] {
			if !slices.Contains(names, n) {
				names = append(slices.Clip(names), n)
			}
		}
	}
	s := &settings{maxBytes: DefaultMaxRecordBytes, unavailable: DefaultUnavailable, schemaID: -1}
	for _, o := range options {
		column, _ := strings.CutPrefix(o.Key, "type.")
		name := optionName(o.Key)
		if !takesOption(names, o.Key) {
			return nil, fmt.Errorf("format %s has no option %q; did you mean %q? (options: %s)",
				format, o.Key, nearest(o.Key, names), strings.Join(names, ", "))
		}
		if c, ok := choices[name]; ok {
			i := slices.Index(c.values, o.Value)
			if i < 0 {
				return nil, fmt.Errorf("option %s of format %s is one of %s, not %q",
					o.Key, format, strings.Join(c.values, ", "), o.Value)
			}
			c.set(s, i)
			continue
		}
		switch name {
		case "columns.exclude":
			s.exclude = make(map[string]bool)
			for _, n := range strings.Split(o.Value, ",") {
				if n = strings.TrimSpace(n); n != "" {
					s.exclude[n] = true
				}
			}
		case "max.record.bytes":
			n, err := strconv.Atoi(o.Value)
			if err != nil || n < 1 || n > 1<<30 {
				return nil, fmt.Errorf("option max.record.bytes is a number from 1 to %d, not %q", 1<<30, o.Value)
			}
			s.maxBytes = n
		case "unavailable.value":
			if o.Value == "" {
				return nil, fmt.Errorf("option unavailable.value is the connector's marker of unchanged values; it cannot be empty")
			}
			s.unavailable = o.Value
		case "route.by":
			s.routeBy = o.Value
		case "route.match":
			if s.routeMatch, err = regexp.Compile("^(?:" + o.Value + ")$"); err != nil {
				return nil, fmt.Errorf("option route.match is a regular expression: %w", err)
			}
		case "message.name":
			s.message = strings.TrimPrefix(o.Value, ".")
		case "schema.id":
			n, err := strconv.ParseInt(o.Value, 10, 32)
			if err != nil || n < 0 {
				return nil, fmt.Errorf("option schema.id is the number of a schema, not %q", o.Value)
			}
			s.schemaID = int32(n)
		case "type.<column>":
			d, err := parseDeclared(o.Value)
			if err != nil {
				return nil, fmt.Errorf("option %s: %w", o.Key, err)
			}
			if s.types == nil {
				s.types = make(map[string]declared)
			}
			s.types[column] = d
		}
	}
	if (s.routeBy != "") != (s.routeMatch != nil) {
		return nil, fmt.Errorf("options route.by and route.match go together: which field says of which table an event is, and which of its texts are this table's")
	}
	return s, nil
}

// parseDeclared reads the value of a type.<column> option: the name of a
// Debezium or Connect type, with ":scale" for a Decimal.
func parseDeclared(v string) (declared, error) {
	name, param, _ := strings.Cut(v, ":")
	d, ok := literalTypes[name]
	if !ok {
		if d, ok = namedTypes[name]; !ok {
			return d, fmt.Errorf("%q is not a type name of Debezium or Kafka Connect (for example io.debezium.time.MicroTimestamp)", name)
		}
	}
	switch {
	case d.sem == semDecimal || d.sem == semBits:
		n, err := strconv.Atoi(param)
		if err != nil || n < 0 || n > 1<<20 {
			return d, fmt.Errorf("%s needs its scale or length, as in %s:2", name, name)
		}
		if d.sem == semDecimal {
			d.scale = n
			if n > 38 {
				return d, fmt.Errorf("%s: a decimal column has a scale of at most 38", name)
			}
		} else {
			d.length = n
		}
	case param != "":
		return d, fmt.Errorf("%s takes no parameter", name)
	}
	return d, nil
}

// nearest is the name with the smallest edit distance to s.
func nearest(s string, names []string) string {
	best, found := "", 1<<30
	for _, n := range names {
		row := make([]int, len(n)+1)
		for j := range row {
			row[j] = j
		}
		for i := 1; i <= len(s); i++ {
			diag := row[0]
			row[0] = i
			for j := 1; j <= len(n); j++ {
				cost := diag
				if s[i-1] != n[j-1] {
					cost++
				}
				diag = row[j]
				row[j] = min(cost, row[j]+1, row[j-1]+1)
			}
		}
		if row[len(n)] < found {
			best, found = n, row[len(n)]
		}
	}
	return best
}
