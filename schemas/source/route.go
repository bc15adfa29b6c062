package source

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/varve-io/varve/schemas/rows"
)

// headerRoute begins a route.by that names a record header.
const headerRoute = "header:"

// routeOptions are options of every format.
var routeOptions = []string{"route.by", "route.match", "route.tombstones"}

// Route finds what says of which table a record is: the text of a field (a path
// such as source.table, which begins at the envelope) or of a header
// (header:NAME). It is used by one goroutine.
type Route struct {
	teller
	header string
	path   []string
	avro   writers[avroType]
	name   []byte
	text   []byte
}

// NewRoute makes the route of a format's records.
func NewRoute(by, format string, registry SchemaSource) (*Route, error) {
	names, err := SplitFormats(format)
	if err != nil {
		return nil, err
	}
	r := &Route{teller: newTeller(names, registry)}
	if name, ok := strings.CutPrefix(by, headerRoute); ok {
		if r.header = name; name == "" {
			return nil, errors.New("route.by: name the header, as in header:__table")
		}
		return r, nil
	}
	if r.path = strings.Split(by, "."); by == "" || strings.Contains("."+by+".", "..") {
		return nil, fmt.Errorf("route.by is the path of a field, as source.table, or header:NAME, not %q", by)
	}
	for _, f := range names {
		if f == RowsProtobuf || f == VarveAvro {
			return nil, fmt.Errorf("route.by: events of format %s are routed by a record header (header:NAME)", f)
		}
	}
	return r, nil
}

// Of is the text that routes a record, until the next call; ok is false where it
// has none, or cannot be read. Errors wrap ErrAway.
func (r *Route) Of(rec *Record) (text []byte, ok bool, err error) {
	if r.header != "" {
		for i := range rec.Headers {
			if h := &rec.Headers[i]; h.Key == r.header {
				return h.Value, h.Value != nil, nil
			}
		}
		return nil, false, nil
	}
	if rec.Value == nil {
		return nil, false, nil
	}
	w, err := r.tell(rec)
	if err != nil {
		var j *Reject
		if errors.As(err, &j) {
			return nil, false, nil
		}
		return nil, false, err
	}
	switch w {
	case wireAvro:
		return r.ofAvro(rec)
	case wireJSONSchema:
		if _, b, ok := framed(rec, valueSchemaHeader, rec.Value, -1); ok {
			text, ok = r.ofJSON(b)
			return text, ok, nil
		}
	}
	text, ok = r.ofJSON(stripFraming(rec.Value))
	return text, ok, nil
}

// ofJSON reads no further than the field.
func (r *Route) ofJSON(b []byte) ([]byte, bool) {
	i := skipSpace(b, 0)
	if i >= len(b) || b[i] != '{' {
		return nil, false
	}
	if r.path[0] != "schema" && r.path[0] != "payload" {
		if name, v := member(b, skipSpace(b, i+1), &r.name); v >= 0 && (string(name) == "schema" || string(name) == "payload") {
			if v = r.find("payload", b, i); v >= 0 && b[v] == '{' {
				i = v
			}
		}
	}
	for _, name := range r.path {
		if b[i] != '{' {
			return nil, false
		}
		if i = r.find(name, b, i); i < 0 {
			return nil, false
		}
	}
	if b[i] == '"' {
		end, plain := scanString(b, i+1)
		if end < 0 {
			return nil, false
		}
		if plain {
			return b[i+1 : end], true
		}
		r.text = unescape(r.text[:0], b[i+1:end])
		return r.text, true
	}
	end := skipValue(b, i)
	if end < 0 || b[i] == '{' || b[i] == '[' || b[i] == 'n' {
		return nil, false
	}
	return b[i:end], true
}

// find is the place of a member's value in the object at b[i], -1: there is none.
func (r *Route) find(want string, b []byte, i int) int {
	i = skipSpace(b, i+1)
	for more := true; more; {
		name, v := member(b, i, &r.name)
		if v < 0 {
			return -1
		}
		if string(name) == want {
			return v
		}
		end := skipValue(b, v)
		if end < 0 {
			return -1
		}
		if i, more = next(b, end); i < 0 {
			return -1
		}
	}
	return -1
}

func (r *Route) ofAvro(rec *Record) ([]byte, bool, error) {
	ref, b, ok := framed(rec, valueSchemaHeader, rec.Value, -1)
	if !ok {
		return nil, false, nil
	}
	t, err := r.avro.get(ref, func(ref SchemaRef) (*avroType, error) {
		s, err := schemaOf(r.registry, ref)
		if err != nil {
			return nil, err
		}
		return parseWriter(s)
	})
	if errors.Is(err, ErrAway) {
		return nil, false, err
	}
	if err != nil {
		return nil, false, nil
	}
	i := 0
	for _, name := range r.path {
		if t, i = avroBranch(t, b, i); i < 0 || t == nil || t.kind != avroRecord {
			return nil, false, nil
		}
		at := t.field(name)
		if at < 0 {
			return nil, false, nil
		}
		for k := range at {
			if i = t.fields[k].typ.skip(b, i, 0); i < 0 {
				return nil, false, nil
			}
		}
		t = t.fields[at].typ
	}
	t, i = avroBranch(t, b, i)
	if i < 0 || t == nil {
		return nil, false, nil
	}
	switch end := t.skip(b, i, 0); {
	case end < 0:
	case t.kind == avroString:
		_, from := varint(b, i)
		return b[from:end], true, nil
	case t.kind == avroEnum:
		n, _ := varint(b, i)
		return []byte(t.symbols[n]), true, nil
	}
	return nil, false, nil
}

// routed takes of a topic's records those that are of its table.
type routed struct {
	Decoder
	route *Route
	match *regexp.Regexp
	rows  bool // a null value is the only delete of its row
	last  string
	taken bool // of last
	some  bool // last is one
}

func newRouted(d Decoder, o Options, set *settings) (*routed, error) {
	route, err := NewRoute(set.routeBy, o.Format, o.Registry)
	if err != nil {
		return nil, err
	}
	r := &routed{Decoder: d, route: route, match: set.routeMatch}
	for _, f := range strings.Split(o.Format, ",") {
		r.rows = r.rows || strings.HasPrefix(f, "rows-") && !set.routeSkip
	}
	return r, nil
}

func (d *routed) Decode(dst *rows.Batch, rec *Record) (Result, error) {
	text, ok, err := d.route.Of(rec)
	if err != nil {
		return Result{}, err
	}
	if rec.Value == nil && d.route.header == "" && d.rows {
		return Result{}, Rejectf(KindDelete, "route", "a record without a value does not say of which table it is: route by a header, write deletes with __deleted, "+
			"or, where they come twice, pass over those without a value with route.tombstones=skip")
	}
	if !ok {
		return Result{Control: true, Elsewhere: true}, nil
	}
	if !d.some || string(text) != d.last {
		d.last, d.some = string(text), true
		d.taken = d.match.MatchString(d.last)
	}
	if !d.taken {
		return Result{Control: true, Elsewhere: true}, nil
	}
	return d.Decoder.Decode(dst, rec)
}
