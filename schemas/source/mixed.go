package source

import (
	"errors"
	"fmt"
	"strings"

	"github.com/varve-io/varve/schemas/rows"
)

// wire is what a record's bytes tell of their format, whatever they say.
type wire uint8

const (
	wireJSON       wire = iota // JSON text, framed or not
	wireAvro                   // a framing whose schema is Avro
	wireProtobuf               // a framing whose schema is Protobuf
	wireJSONSchema             // a framing whose schema is a JSON Schema
	wireOwn                    // Avro's single-object encoding
	wires
)

func wireOfFormat(format string) wire {
	switch format {
	case DebeziumAvro, RowsAvro:
		return wireAvro
	case RowsProtobuf:
		return wireProtobuf
	case RowsJSONSchema:
		return wireJSONSchema
	case VarveAvro:
		return wireOwn
	}
	return wireJSON
}

// SplitFormats reads a table's format: one name, or several separated by commas
// for a topic whose records are of several formats, as after a converter was
// changed. Each record is read by the one that its own bytes are of, so that
// two formats which only their contents tell apart cannot stand together.
func SplitFormats(format string) ([]string, error) {
	names := strings.Split(format, ",")
	for i, f := range names {
		if _, ok := optionNames[f]; !ok {
			return nil, fmt.Errorf("format %q is unknown; the formats are %s", f, strings.Join(Formats(), ", "))
		}
		for _, g := range names[:i] {
			if wireOfFormat(f) == wireOfFormat(g) {
				return nil, fmt.Errorf("formats %s and %s are not told apart by a record's framing: name one of them; for a topic that changes from one to the other, "+
					"let the table read all that was written before, change its format, and then write on", g, f)
			}
		}
	}
	return names, nil
}

// teller says of which of a table's formats a record is.
type teller struct {
	registry SchemaSource
	formats  [wires]string
	first    wire
	asks     bool                 // some format needs the types of a registry's schemas
	types    map[SchemaRef]string // by framing
}

func newTeller(names []string, registry SchemaSource) teller {
	t := teller{registry: registry, types: map[SchemaRef]string{}, first: wireOfFormat(names[0])}
	for _, f := range names {
		w := wireOfFormat(f)
		t.formats[w] = f
		t.asks = t.asks || w == wireAvro || w == wireProtobuf || w == wireJSONSchema
	}
	return t
}

// mixture reads records of several formats, each by the decoder that its framing
// names.
type mixture struct {
	teller
	by      [wires]Decoder
	bareKey bool // of the record decoded last: its key's framing is in a header
}

// own is what every decoder of JSON embeds.
func (r *reader) own() *reader { return r }

// keyReader reads keys in a registry's framing.
type keyReader interface {
	recordKeyInto(rec *Record, cols []rows.Column, base int, kind Kind) error
}

func newMixed(o Options, names []string) (*mixture, error) {
	m := &mixture{teller: newTeller(names, o.Registry)}
	for _, p := range o.Options {
		if p.Key == "schema.id" || p.Key == "framing" {
			return nil, fmt.Errorf("option %s is for values that do not say what they are, and a table of several formats reads none", p.Key)
		}
	}
	if _, err := parseSettings(o.Format, o.Options); err != nil {
		return nil, err
	}
	for _, f := range names {
		one := o
		one.Format, one.Options = f, nil
		for _, p := range o.Options {
			if takesOption(optionNames[f], p.Key) {
				one.Options = append(one.Options, p)
			}
		}
		d, err := newOne(one)
		if err != nil {
			return nil, err
		}
		m.by[wireOfFormat(f)] = d
	}
	if d, ok := m.by[wireJSON].(interface{ own() *reader }); ok && m.asks {
		d.own().framedKey = m.framedKey
	}
	return m, nil
}

// typeOf is the type of a framing's schema.
func (t *teller) typeOf(ref SchemaRef) (string, error) {
	if typ, ok := t.types[ref]; ok {
		return typ, nil
	}
	s, err := schemaOf(t.registry, ref)
	if err != nil {
		return "", err
	}
	if len(t.types) >= maxWriters {
		clear(t.types)
	}
	t.types[ref] = s.Type
	return s.Type, nil
}

// framedBy is what a framing's schema says; false: none of the formats reads it.
func (t *teller) framedBy(ref SchemaRef) (w wire, ok bool, err error) {
	typ, err := t.typeOf(ref)
	if err != nil {
		return 0, false, err
	}
	switch typ {
	case TypeAvro:
		w = wireAvro
	case TypeProtobuf:
		w = wireProtobuf
	case TypeJSON:
		if w = wireJSONSchema; t.formats[w] == "" {
			w = wireJSON
		}
	default:
		return 0, false, nil
	}
	return w, t.formats[w] != "", nil
}

// tell finds of which format a record is; a Reject says that it is of none.
func (t *teller) tell(rec *Record) (wire, error) {
	header, b := valueSchemaHeader, rec.Value
	if b == nil { // a delete by its key
		header, b = keySchemaHeader, rec.Key
	}
	ref, _, framed := framed(rec, header, b, -1)
	switch {
	case framed && t.asks:
		w, ok, err := t.framedBy(ref)
		if err == nil && !ok {
			err = Rejectf(KindUnknown, "schema", "%s is of a type that none of the table's formats reads", ref)
		}
		return w, err
	case t.formats[wireOwn] != "" && len(rec.Value) >= 2 && rec.Value[0] == 0xC3 && rec.Value[1] == 0x01:
		return wireOwn, nil
	case t.formats[wireJSON] != "":
		return wireJSON, nil
	}
	return t.first, nil
}

func (m *mixture) Decode(dst *rows.Batch, rec *Record) (Result, error) {
	m.bareKey = false
	for i := range rec.Headers {
		m.bareKey = m.bareKey || rec.Headers[i].Key == keySchemaHeader
	}
	w, err := m.tell(rec)
	if err != nil {
		return Result{}, err
	}
	if m.asks && rec.Key != nil {
		// Framing cannot wait.
		if ref, _, ok := framed(rec, keySchemaHeader, rec.Key, -1); ok {
			if _, err := m.typeOf(ref); errors.Is(err, ErrAway) {
				return Result{}, err
			}
		}
	}
	return m.by[w].Decode(dst, rec)
}

// framedKey reads a record key of a registry's Avro or Protobuf for the decoder
// of JSON; false: it is none.
func (m *mixture) framedKey(rec *Record, cols []rows.Column, base int, kind Kind) (bool, error) {
	ref, _, ok := framed(rec, keySchemaHeader, rec.Key, -1)
	if !ok {
		return false, nil
	}
	w, ok, err := m.framedBy(ref)
	var missing *Reject
	switch {
	case errors.As(err, &missing):
		return true, Rejectf(kind, missing.Code, "record key: %s", missing.Reason)
	case err != nil:
		return true, err
	case !ok:
		return true, Rejectf(kind, "key", "record key: %s is of a type that none of the table's formats reads", ref)
	}
	if k, ok := m.by[w].(keyReader); ok {
		return true, k.recordKeyInto(rec, cols, base, kind)
	}
	return false, nil
}

// Framing is that of the format which the table had first, so that a format
// more changes no key's; but a key in a registry's framing, whose bytes the
// schema decides, has its header's.
func (m *mixture) Framing(key []byte) uint64 {
	if m.asks && m.bareKey {
		return mix(hashStart, []byte(keySchemaHeader))
	}
	if ref, n := readRef(key); m.asks && n > 0 {
		switch t := m.types[ref]; {
		case t == TypeProtobuf && m.by[wireProtobuf] != nil:
			return m.by[wireProtobuf].Framing(key)
		case t == TypeAvro || t == TypeProtobuf:
			return max(mix(hashStart, key[:n]), 1)
		}
	}
	return m.by[m.first].Framing(key)
}

// TakesOption says whether one of these formats knows an option.
func TakesOption(formats []string, key string) bool {
	for _, f := range formats {
		if takesOption(optionNames[f], key) {
			return true
		}
	}
	return false
}
