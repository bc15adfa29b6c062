package source

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/varve-io/varve/schemas"
)

// DiscoverEvents is how many events Discover looks at.
const DiscoverEvents = 10_000

// survey gathers columns by name, in the order met.
type survey struct {
	set     *settings
	columns []surveyed
	byName  map[string]int
	nested  []string
	notes   []string
	large   map[string]int                     // values of no type by column: whole numbers of more than 64 bits
	schemas map[string]bool                    // schemas seen, letter by letter
	bare    bool                               // some row came without a schema
	hint    func(name string) (declared, bool) // what an event says of types beside the row
	prefix  string                             // of before images' names
	err     error

	protos map[bool]*writers[protoWriter] // of values and keys
	seen   map[*protoMessage]bool
}

type surveyed struct {
	name     string
	typ      schemas.Type // Kind 0: only nulls so far
	declared bool
}

// Discover proposes a table's schema from a sample of its events: from their
// own schema where they carry one, else inferred from their values (whole
// numbers long, fractions double, both double; objects structs, arrays lists).
// Mixes of types are refused by column name, and so is what no column holds. Without keyCols the columns of the record
// keys are proposed; if there are none either, the schema has no key. notes
// say what was decided that a user should know.
//
// registry has the writers' schemas of the formats that need one; it may be
// nil for the others.
func Discover(registry SchemaSource, format string, options []schemas.Property, sample []Record, keyCols []string) (*schemas.Schema, []string, error) {
	set, err := parseSettings(format, options)
	if err != nil {
		return nil, nil, err
	}
	formats, err := SplitFormats(format)
	if err != nil {
		return nil, nil, err
	}
	told := newTeller(formats, registry)
	var route *Route
	if set.routeBy != "" {
		if route, err = NewRoute(set.routeBy, format, registry); err != nil {
			return nil, nil, err
		}
	}
	if format == VarveAvro {
		return nil, nil, fmt.Errorf("format %s has no schema of its own to discover: its Avro schema is made from the table's; pass the table's schema", format)
	}
	rows := newSurvey(set)
	keys := newSurvey(set)
	unread := 0
	if len(sample) > DiscoverEvents {
		sample = sample[:DiscoverEvents]
	}
	for i := range sample {
		if route != nil {
			text, ok, err := route.Of(&sample[i])
			if err != nil {
				return nil, nil, err
			}
			if !ok || !set.routeMatch.Match(text) {
				continue
			}
		}
		read := false
		format := formats[0]
		if len(formats) > 1 {
			w, err := told.tell(&sample[i])
			if errors.Is(err, ErrAway) {
				return nil, nil, err
			}
			if format = told.formats[w]; err != nil || format == VarveAvro {
				unread++
				continue
			}
		}
		if format == RowsProtobuf {
			read = keys.proto(registry, true, &sample[i]) && rows.proto(registry, false, &sample[i])
		} else if format == RowsJSONSchema {
			read = keys.key(stripFraming(sample[i].Key)) && rows.jsonSchema(registry, &sample[i])
		} else if format == DebeziumAvro || format == RowsAvro {
			read = keys.avro(registry, "", &sample[i]) && rows.avro(registry, format, &sample[i])
		} else {
			read = keys.key(sample[i].Key) && rows.event(format, sample[i].Value)
		}
		if !read {
			unread++
		}
		for _, err := range []error{rows.err, keys.err} {
			if err != nil {
				return nil, nil, err
			}
		}
	}
	notes := rows.notes
	if unread > 0 {
		notes = append(notes, fmt.Sprintf("%d of %d records could not be read and were passed over", unread, len(sample)))
	}
	if len(rows.nested) > 0 {
		return nil, notes, fmt.Errorf("column %q is an object or array of parts that no column holds, or of several types; "+
			"pass a schema, or list it in columns.exclude to leave it out (all such columns: %s)", rows.nested[0], strings.Join(rows.nested, ", "))
	}
	if len(rows.columns) == 0 {
		if len(sample) == 0 {
			return nil, notes, errors.New("there are no events")
		}
		return nil, notes, fmt.Errorf("none of the first %d events holds a row", len(sample))
	}
	return rows.schema(keys, keyCols, notes)
}

func newSurvey(set *settings) *survey {
	return &survey{set: set, byName: map[string]int{}, large: map[string]int{}, schemas: map[string]bool{}}
}

// schema makes the schema, with its key.
func (v *survey) schema(keys *survey, keyCols, notes []string) (*schemas.Schema, []string, error) {
	if len(keyCols) == 0 {
		for _, c := range keys.columns {
			if _, ok := v.byName[c.name]; ok || c.typ.Kind != 0 {
				keyCols = append(keyCols, c.name)
			}
		}
		if len(keyCols) > 0 {
			notes = append(notes, "key columns proposed from the record keys: "+strings.Join(keyCols, ", "))
		} else {
			notes = append(notes, "no key was given and the record keys name none: name the key columns, or make the table append-only")
		}
	}
	for _, k := range keyCols {
		if _, ok := v.byName[k]; ok {
			continue
		}
		i, ok := keys.byName[k]
		if !ok {
			return nil, notes, fmt.Errorf("key column %q is in no sampled event and no record key", k)
		}
		v.byName[k] = len(v.columns)
		v.columns = append(v.columns, keys.columns[i])
		notes = append(notes, fmt.Sprintf("column %q is only in the record key and is taken from there", k))
	}
	s := &schemas.Schema{}
	for _, c := range v.columns {
		isKey := slices.Contains(keyCols, c.name)
		if n := v.large[c.name] + keys.large[c.name]; n > 0 {
			if c.typ.Kind == 0 {
				return nil, notes, fmt.Errorf("column %q holds whole numbers of more than 64 bits; pass a schema that makes it a decimal", c.name)
			}
			if c.typ.Kind != schemas.Double {
				notes = append(notes, fmt.Sprintf("column %q is a %s, but %d of the sampled values are whole numbers of more than 64 bits: "+
					"their events will be dead letters; pass a schema that makes it a decimal to take them", c.name, c.typ, n))
			}
		}
		if c.typ.Kind == 0 {
			if isKey {
				return nil, notes, fmt.Errorf("key column %q is null in every sampled event", c.name)
			}
			notes = append(notes, fmt.Sprintf("column %q holds only nulls and empty objects or arrays so far; it is added with its first value", c.name))
			continue
		}
		f := schemas.Field{ID: int32(len(s.Fields) + 1), Name: c.name, Type: c.typ, Required: isKey}
		if isKey {
			s.Identifier = append(s.Identifier, f.ID)
		}
		s.Fields = append(s.Fields, f)
	}
	s.AssignIDs(s.HighestID())
	if v.bare {
		notes = append(notes, "the events carry no schema: dates, timestamps, decimals and bytes look like numbers and text; pass a schema to type them")
	}
	return s, notes, s.Validate()
}

// body strips a record's framing and wrapper: the value's text, its schema's
// text (nil: none). ok is false for ill-formed text.
func body(b []byte) (value, schema []byte, ok bool) {
	b = stripFraming(b)
	i := skipSpace(b, 0)
	end := -1
	if i < len(b) {
		end = skipValue(b, i)
	}
	if end < 0 || skipSpace(b, end) != len(b) {
		return nil, nil, false
	}
	value = b[i:end]
	if value[0] != '{' {
		return value, nil, true
	}
	var wrapper, payload []byte
	wrapped := true
	members(value, func(name string, v []byte) {
		switch name {
		case "schema":
			wrapper = v
		case "payload":
			payload = v
		default:
			wrapped = false
		}
	})
	if wrapped && payload != nil {
		if string(wrapper) == "null" {
			wrapper = nil
		}
		return payload, wrapper, true
	}
	return value, nil, true
}

// members calls f for each member of an object whose text is well-formed.
func members(object []byte, f func(name string, value []byte)) {
	var scratch []byte
	i := skipSpace(object, 1)
	for more := object[i] != '}'; more; {
		name, v := member(object, i, &scratch)
		end := skipValue(object, v)
		f(string(name), object[v:end])
		i, more = next(object, end)
	}
}

// key surveys a record key that is an object. Other keys name no columns.
func (v *survey) key(b []byte) bool {
	if len(b) == 0 {
		return true
	}
	value, schema, ok := body(b)
	if !ok || value[0] != '{' {
		return true // text keys are no JSON and no mistake
	}
	if schema != nil {
		return v.declared(schema, false)
	}
	v.object(value, false)
	return true
}

// event surveys a record's value.
func (v *survey) event(format string, b []byte) bool {
	if len(b) == 0 {
		return b == nil
	}
	value, schema, ok := body(b)
	if !ok {
		return false
	}
	if value[0] != '{' {
		return string(value) == "null"
	}
	if schema != nil {
		signal := false
		if format == DebeziumJSON && !v.schemas[string(schema)] {
			signal = hasSignal(value)
		}
		return signal || v.declared(schema, format == DebeziumJSON)
	}
	switch format {
	case DebeziumJSON:
	case Maxwell, Canal, DMS, GoldenGate:
		changeRows(format, value, func(row []byte, hint func(string) (declared, bool)) {
			v.hint, v.prefix = hint, ""
			if format == DMS {
				v.prefix = beforePrefix
			}
			v.object(row, hint == nil)
		})
		return true
	default:
		v.object(value, true)
		return true
	}
	if hasSignal(value) {
		return true
	}
	members(value, func(name string, image []byte) {
		if (name == "after" || name == "before") && image[0] == '{' {
			v.object(image, true)
		}
	})
	return true
}

// hasSignal says whether an event writes to a signalling table.
func hasSignal(event []byte) (signal bool) {
	var r reader
	members(event, func(name string, image []byte) {
		signal = signal || name == "after" && image[0] == '{' && r.isSignal(image, 0)
	})
	return signal
}

// declared takes the columns of a Connect schema.
func (v *survey) declared(text []byte, envelope bool) bool {
	if v.schemas[string(text)] {
		return true
	}
	v.schemas[string(text)] = true
	s, err := parseConnect(text)
	if err != nil {
		return false
	}
	if envelope {
		s = rowSchema(s)
	}
	v.fields(s)
	return true
}

// fields takes the columns of a struct's schema.
func (v *survey) fields(s *connectSchema) {
	if s == nil || s.Type != "struct" {
		return
	}
	for i := range s.Fields {
		d := s.Fields[i].declared()
		name := s.Fields[i].Field
		if v.leftOut(name) {
			continue
		}
		if t, ok := v.set.types[name]; ok {
			d = t
		}
		t, ok := d.columnType(v.set.exactTime, v.set.exactNanos)
		if !ok {
			v.refuse(name)
			continue
		}
		v.explain(name, d, t)
		v.column(name, t, true)
	}
}

// object takes the columns of one row without schema.
func (v *survey) object(row []byte, values bool) {
	v.bare = v.bare || values
	members(row, func(name string, value []byte) {
		if v.leftOut(name) {
			return
		}
		var t schemas.Type
		why := okay
		d, ok := v.set.types[name]
		if !ok && v.hint != nil {
			d, ok = v.hint(name)
		}
		if ok {
			if t, ok = d.columnType(v.set.exactTime, v.set.exactNanos); !ok {
				why = nested
			}
		} else if value[0] != 'n' && !v.set.isMarker(value) {
			t, why = inferType(value)
		}
		switch why {
		case nested, mixed, tooDeep, twice:
			v.refuse(name)
		case empty:
			v.column(name, schemas.Type{}, false)
		case outOfRange:
			// The other events say what the column is; this one is a dead letter.
			v.large[name]++
			v.column(name, t, false)
		default:
			v.column(name, t, false)
		}
	})
}

func (v *survey) leftOut(name string) bool {
	return v.set.exclude[name] || name == flatDeleted || name == flatOp || name == flatChange || v.prefix != "" && strings.HasPrefix(name, v.prefix)
}

func (v *survey) refuse(name string) {
	const most = 100 // enough to act on
	if len(v.nested) < most && !slices.Contains(v.nested, name) {
		v.nested = append(v.nested, name)
	}
}

func (v *survey) fail(format string, args ...any) {
	if v.err == nil {
		v.err = fmt.Errorf(format, args...)
	}
}

// column merges a type into a column.
func (v *survey) column(name string, t schemas.Type, declared bool) {
	i, ok := v.byName[name]
	if !ok {
		if len(v.columns) >= schemas.MaxColumns {
			v.fail("the events have more than %d columns", schemas.MaxColumns)
			return
		}
		v.byName[name] = len(v.columns)
		v.columns = append(v.columns, surveyed{name, t, declared})
		return
	}
	c := &v.columns[i]
	switch {
	case t.Kind == 0 || t == c.typ || t.CanWiden(c.typ):
	case c.typ.Kind == 0 || c.typ.CanWiden(t):
		c.typ = t
	case c.typ.IsNested() && t.Kind == c.typ.Kind && declared == c.declared:
		merge := mergeInferred
		if declared {
			merge = func(a, b schemas.Type) (schemas.Type, bool) { return a.Merge(b) }
		}
		wide, ok := merge(c.typ, t)
		if !ok {
			v.fail("column %q is a %s in some events and a %s in others; pass a schema", name, c.typ, t)
		}
		c.typ = wide
	case declared && c.declared:
		v.fail("column %q is a %s in some events and a %s in others; pass a schema", name, c.typ, t)
	case c.typ.Kind == schemas.Long && t.Kind == schemas.Double && !declared && !c.declared:
		c.typ = t
	case c.typ.Kind == schemas.Double && t.Kind == schemas.Long:
	case c.declared && !declared:
		// A value without a schema is read by what the schema said elsewhere.
	case declared:
		c.typ, c.declared = t, true
	default:
		v.fail("column %q holds a %s in some events and a %s in others; pass a schema, or set columns.exclude", name, c.typ, t)
	}
}

// explain notes where a column's type is not the source's.
func (v *survey) explain(name string, d declared, t schemas.Type) {
	note := ""
	switch d.sem {
	case semTimeMs, semTimeUs, semTimeNs, semZonedTime, semIsoTime:
		if t.Kind == schemas.Time {
			note = "a time column closes the whole table to Spark (exact.time)"
		} else {
			note = "a time of day is kept as a long: microseconds since midnight"
		}
	case semTsNs:
		if t.Kind == schemas.TimestampNs {
			note = "a timestamp_ns column closes the whole table to Spark (exact.nanos)"
		} else {
			note = "nanoseconds are cut to microseconds"
		}
	case semVarDecimal:
		note = fmt.Sprintf("its decimals have no fixed scale at the source; %s is proposed, values that do not fit are refused", t)
	case semDecimal:
		if d.precision-d.scale > int(t.Precision)-int(t.Scale) {
			note = fmt.Sprintf("the source's decimals may have %d digits; %s is the widest, longer values are refused", d.precision, t)
		}
	case semBits:
		if t.Kind == schemas.Binary {
			note = "its bits are kept as bytes, highest first"
		} else {
			note = fmt.Sprintf("its bits are kept as a number (%s)", t)
		}
	}
	if note != "" {
		note = fmt.Sprintf("column %q: %s", name, note)
		if !slices.Contains(v.notes, note) {
			v.notes = append(v.notes, note)
		}
	}
}
