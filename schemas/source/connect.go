package source

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/varve-io/varve/schemas"
)

// sem is what an event says that a value means.
type sem uint8

const (
	semNone sem = iota // it does not say: the JSON kind and the column decide
	semBool
	semInt8
	semInt16
	semInt32
	semInt64
	semFloat
	semDouble
	semString
	semBytes
	semDate
	semTimeMs
	semTimeUs
	semTimeNs
	semTsMs
	semTsUs
	semTsNs
	semInstant // Connect's Timestamp: ms, of an instant or of a wall clock
	semTzMs    // a number of an instant
	semTzUs
	semTzNs
	semZonedTs
	semZonedTime
	semIsoDate
	semIsoTime
	semIsoTs
	semDecimal
	semVarDecimal
	semBits
	semUUID
	semUint64
	semNested
	semStruct // with declared.of
	semArray
	semMap
)

// declared is the type that an event's own schema gives to a field.
type declared struct {
	sem       sem
	scale     int // semDecimal
	precision int // semDecimal; 0: not told
	length    int // semBits
	optional  bool
	initial   json.RawMessage // default value, nil: none
	of        *connectSchema  // of a struct, array or map
}

// literalTypes are the types of a Connect schema that are one value; the others
// are nested.
var literalTypes = map[string]declared{
	"boolean": {sem: semBool},
	"int8":    {sem: semInt8},
	"int16":   {sem: semInt16},
	"int32":   {sem: semInt32},
	"int64":   {sem: semInt64},
	"uint64":  {sem: semUint64},
	"float":   {sem: semFloat},
	"float32": {sem: semFloat},
	"double":  {sem: semDouble},
	"float64": {sem: semDouble},
	"string":  {sem: semString},
	"bytes":   {sem: semBytes},
}

// namedTypes are the semantic types of Debezium and Connect. A name that is
// not here is taken by its literal type (Enum, EnumSet, Json, Xml, Interval,
// Year, MicroDuration, …: text or whole numbers as they are).
var namedTypes = map[string]declared{
	"io.debezium.time.Date":                   {sem: semDate},
	"io.debezium.time.Time":                   {sem: semTimeMs},
	"io.debezium.time.MicroTime":              {sem: semTimeUs},
	"io.debezium.time.NanoTime":               {sem: semTimeNs},
	"io.debezium.time.Timestamp":              {sem: semTsMs},
	"io.debezium.time.MicroTimestamp":         {sem: semTsUs},
	"io.debezium.time.NanoTimestamp":          {sem: semTsNs},
	"io.debezium.time.ZonedTimestamp":         {sem: semZonedTs},
	"io.debezium.time.ZonedTime":              {sem: semZonedTime},
	"io.debezium.time.IsoDate":                {sem: semIsoDate},
	"io.debezium.time.IsoTime":                {sem: semIsoTime},
	"io.debezium.time.IsoTimestamp":           {sem: semIsoTs},
	"io.debezium.data.Bits":                   {sem: semBits},
	"io.debezium.data.Uuid":                   {sem: semUUID},
	"io.debezium.data.VariableScaleDecimal":   {sem: semVarDecimal},
	"timestamp-millis":                        {sem: semTzMs}, // Avro's names
	"timestamp-micros":                        {sem: semTzUs},
	"timestamp-nanos":                         {sem: semTzNs},
	"org.apache.kafka.connect.data.Date":      {sem: semDate},
	"org.apache.kafka.connect.data.Time":      {sem: semTimeMs},
	"org.apache.kafka.connect.data.Timestamp": {sem: semInstant},
	"org.apache.kafka.connect.data.Decimal":   {sem: semDecimal},
}

// connectSchema is a Kafka Connect schema as JsonConverter writes it.
type connectSchema struct {
	Type       string            `json:"type"`
	Optional   bool              `json:"optional"`
	Name       string            `json:"name"`
	Field      string            `json:"field"`
	Fields     []connectSchema   `json:"fields"`
	Parameters map[string]string `json:"parameters"`
	Default    json.RawMessage   `json:"default"`
	Items      *connectSchema    `json:"items"`  // of an array
	Keys       *connectSchema    `json:"keys"`   // of a map
	Values     *connectSchema    `json:"values"` // of a map
}

// maxSchemaParts bounds the objects in an event's schema: before, after and
// source of the widest table, with parameters.
const maxSchemaParts = 8 * schemas.MaxColumns

// parseConnect reads a schema; nil means that the event has none (null).
func parseConnect(b []byte) (*connectSchema, error) {
	if string(b) == "null" {
		return nil, nil
	}
	if n := bytes.Count(b, []byte("{")); n > maxSchemaParts {
		return nil, fmt.Errorf("the event's schema has %d parts, more than %d", n, maxSchemaParts)
	}
	var s connectSchema
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, fmt.Errorf("the event's schema is no Kafka Connect schema: %w", err)
	}
	return &s, nil
}

// field is the member schema of this name, or nil.
func (s *connectSchema) field(name string) *connectSchema {
	for i := range s.Fields {
		if s.Fields[i].Field == name {
			return &s.Fields[i]
		}
	}
	return nil
}

// declared is what the schema says about its values.
func (s *connectSchema) declared() declared {
	d, known := namedTypes[s.Name]
	lit, scalar := literalTypes[s.Type]
	switch {
	case known && (scalar || d.sem == semVarDecimal && s.Type == "struct"):
	case scalar:
		d = lit
	default:
		d = s.nestedDeclared()
	}
	d.optional = s.Optional
	if len(s.Default) > 0 && string(s.Default) != "null" {
		d.initial = s.Default
	}
	switch d.sem {
	case semDecimal:
		scale, err := strconv.Atoi(s.Parameters["scale"])
		if err != nil || scale < -1000 || scale > 1000 {
			return declared{sem: semNested} // no scale, no value
		}
		d.scale = scale
		if p, err := strconv.Atoi(s.Parameters["connect.decimal.precision"]); err == nil && p > 0 && p < 1<<20 {
			d.precision = p
		}
	case semBits:
		if n, err := strconv.Atoi(s.Parameters["length"]); err == nil && n > 0 {
			d.length = n
		}
	}
	return d
}

// VariableScale and VariablePrecision are the decimal that a column of
// Debezium's VariableScaleDecimal becomes when nobody says otherwise: 18
// digits before the point, 20 after it (what a PostgreSQL division yields).
const (
	VariablePrecision = 38
	VariableScale     = 20
)

// columnType is the type of a column made for values so declared (T2). ok is
// false for what this version does not store.
func (d declared) columnType(exactTime, exactNanos bool) (t schemas.Type, ok bool) {
	switch d.sem {
	case semBool:
		return schemas.Of(schemas.Boolean), true
	case semInt8, semInt16, semInt32:
		return schemas.Of(schemas.Int), true
	case semInt64:
		return schemas.Of(schemas.Long), true
	case semFloat:
		return schemas.Of(schemas.Float), true
	case semDouble:
		return schemas.Of(schemas.Double), true
	case semString:
		return schemas.Of(schemas.String), true
	case semBytes:
		return schemas.Of(schemas.Binary), true
	case semDate, semIsoDate:
		return schemas.Of(schemas.Date), true
	case semTimeMs, semTimeUs, semTimeNs, semZonedTime, semIsoTime:
		if exactTime {
			return schemas.Of(schemas.Time), true
		}
		return schemas.Of(schemas.Long), true
	case semTsNs:
		if exactNanos {
			return schemas.Of(schemas.TimestampNs), true
		}
		return schemas.Of(schemas.Timestamp), true
	case semTsMs, semTsUs, semInstant, semIsoTs:
		return schemas.Of(schemas.Timestamp), true
	case semZonedTs, semTzMs, semTzUs:
		return schemas.Of(schemas.TimestampTz), true
	case semTzNs:
		if exactNanos {
			return schemas.Of(schemas.TimestampTzNs), true
		}
		return schemas.Of(schemas.TimestampTz), true
	case semDecimal:
		scale := max(d.scale, 0)
		if scale > 38 {
			return t, false
		}
		precision := 38
		if d.precision > 0 {
			precision = min(38, max(d.precision+scale-d.scale, scale, 1))
		}
		return schemas.DecimalOf(precision, scale), true
	case semVarDecimal:
		return schemas.DecimalOf(VariablePrecision, VariableScale), true
	case semBits:
		switch {
		case d.length > 0 && d.length <= 63:
			return schemas.Of(schemas.Long), true
		case d.length == 64:
			return schemas.DecimalOf(20, 0), true
		}
		return schemas.Of(schemas.Binary), true
	case semUUID:
		return schemas.Of(schemas.UUID), true
	case semUint64:
		return schemas.DecimalOf(20, 0), true
	case semStruct, semArray, semMap:
		return d.nestedType(exactTime, exactNanos, 0)
	}
	return t, false
}
