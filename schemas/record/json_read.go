package record

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/varve-io/varve/schemas"
)

// ParseRecordJSON reads a record as AppendRecordJSON writes it and returns a
// pointer to the struct. Fields with a default in the Avro schema (optional
// ones, arrays, texts for people) may be left out; no others, and none may be
// there that the type does not have. Words (types, transforms) may also be
// numbers. Errors name the field by its path.
func ParseRecordJSON(t Type, b []byte) (any, error) {
	v := New(t)
	if v == nil {
		return nil, fmt.Errorf("%w: %s has no JSON form", ErrUnknownType, t)
	}
	if err := readJSON(b, func(r visitor) { walk(r, v) }); err != nil {
		return nil, fmt.Errorf("%s: %w", t, err)
	}
	return v, nil
}

func readJSON(b []byte, fields func(visitor)) error {
	n, err := parseJSON(b)
	if err != nil {
		return err
	}
	r := jsonReader{top: n}
	r.begin("")
	if r.err == nil {
		fields(&r)
	}
	r.end()
	return r.err
}

// jsonReader is the visitor that fills a struct from a JSON tree.
type jsonReader struct {
	top   node
	stack []frame
	err   error
}

// frame is an open object, or an open array and how far it was read.
type frame struct {
	name   string
	object *object
	items  []node
	at     int
	handed bool // block has told the number of items
}

func (r *jsonReader) reading() bool { return true }
func (r *jsonReader) failed() bool  { return r.err != nil }

func (r *jsonReader) refuse(name, why string) {
	if r.err != nil {
		return
	}
	at := ""
	for _, f := range append(r.stack, frame{name: name, object: &object{}}) {
		if f.name != "" && at != "" {
			at += "."
		}
		at += f.name
		if f.object == nil && f.at > 0 {
			at += "[" + strconv.Itoa(f.at-1) + "]"
		}
	}
	if at == "" {
		at = "the record"
	}
	r.err = fmt.Errorf("%s %s", at, why)
}

// get is the value of a field; nil when it is absent or null.
func (r *jsonReader) get(name string) node {
	if r.err != nil {
		return nil
	}
	if len(r.stack) == 0 {
		return r.top
	}
	f := &r.stack[len(r.stack)-1]
	if f.object != nil {
		return f.object.get(name)
	}
	f.at++
	return f.items[f.at-1]
}

func (r *jsonReader) begin(name string) {
	n := r.get(name)
	o, ok := n.(*object)
	if !ok {
		r.mistaken(name, n, "an object")
		o = &object{asked: map[string]bool{}}
	}
	r.stack = append(r.stack, frame{name: name, object: o})
}

func (r *jsonReader) end() {
	if r.err == nil {
		o := r.stack[len(r.stack)-1].object
		for _, name := range o.names {
			if !o.asked[name] {
				fields := "it has none"
				if len(o.order) > 0 {
					fields = "its fields are " + strings.Join(o.order, ", ")
				}
				r.refuse(name, "is no field of this version; "+fields)
				break
			}
		}
	}
	r.stack = r.stack[:len(r.stack)-1]
}

// mistaken refuses a value of another kind than wanted, without showing it.
func (r *jsonReader) mistaken(name string, n node, wanted string) {
	switch n.(type) {
	case nil:
		r.refuse(name, "is missing, "+wanted+" is wanted")
	case bool:
		r.refuse(name, "is a boolean, not "+wanted)
	case json.Number:
		r.refuse(name, "is a number, not "+wanted)
	case string:
		r.refuse(name, "is a string, not "+wanted)
	case []node:
		r.refuse(name, "is an array, not "+wanted)
	case *object:
		r.refuse(name, "is an object, not "+wanted)
	}
}

func (r *jsonReader) optional(name string, _ bool) bool {
	f := r.stack[len(r.stack)-1]
	return r.err == nil && f.object.get(name) != nil
}

func (r *jsonReader) open(name string, _ int) {
	n := r.get(name)
	items, ok := n.([]node)
	if !ok && n != nil {
		r.mistaken(name, n, "an array")
	}
	r.stack = append(r.stack, frame{name: name, items: items})
}

func (r *jsonReader) close() { r.stack = r.stack[:len(r.stack)-1] }

func (r *jsonReader) block(int) int {
	f := &r.stack[len(r.stack)-1]
	if f.handed || r.err != nil {
		return 0
	}
	f.handed = true
	return len(f.items)
}

func (r *jsonReader) integer(name string, lo, hi int64) int64 {
	n := r.get(name)
	s, ok := n.(json.Number)
	if !ok {
		r.mistaken(name, n, "a whole number")
		return 0
	}
	v, err := strconv.ParseInt(string(s), 10, 64)
	if err != nil || v < lo || v > hi {
		r.refuse(name, fmt.Sprintf("is no whole number from %d to %d", lo, hi))
		return 0
	}
	return v
}

func (r *jsonReader) int32(name string, v *int32) {
	*v = int32(r.integer(name, math.MinInt32, math.MaxInt32))
}

func (r *jsonReader) long(name string, v *int64) {
	*v = r.integer(name, math.MinInt64, math.MaxInt64)
}

func (r *jsonReader) uint8(name string, v *uint8)   { *v = uint8(r.integer(name, 0, math.MaxUint8)) }
func (r *jsonReader) uint32(name string, v *uint32) { *v = uint32(r.integer(name, 0, math.MaxUint32)) }

func (r *jsonReader) uint64(name string, v *uint64) {
	n := r.get(name)
	s, ok := n.(json.Number)
	if !ok {
		r.mistaken(name, n, "a whole number")
		return
	}
	u, err := strconv.ParseUint(string(s), 10, 64)
	if err != nil {
		r.refuse(name, "is no whole number of 64 bits without sign")
	}
	*v = u
}

func (r *jsonReader) word(name string, highest int, names []string) int {
	switch n := r.get(name).(type) {
	case string:
		if x, ok := numberOf(names, n); ok {
			return x
		}
		var known []string
		for _, s := range names {
			if s != "" {
				known = append(known, s)
			}
		}
		r.refuse(name, "is none of "+strings.Join(known, ", "))
	case json.Number:
		if x, err := strconv.Atoi(string(n)); err == nil && x >= 0 && x <= highest {
			return x
		}
		r.refuse(name, fmt.Sprintf("is no whole number from 0 to %d", highest))
	default:
		r.mistaken(name, n, "a word")
	}
	return 0
}

func (r *jsonReader) enum(name string, v *uint8, names []string) {
	*v = uint8(r.word(name, math.MaxUint8, names))
}

func (r *jsonReader) reason(name string, v *Reason) {
	*v = Reason(r.word(name, math.MaxUint16, reasonNames))
}

func (r *jsonReader) bool(name string, v *bool) {
	n := r.get(name)
	b, ok := n.(bool)
	if !ok {
		r.mistaken(name, n, "true or false")
	}
	*v = b
}

func (r *jsonReader) str(name string, v *string) {
	n := r.get(name)
	s, ok := n.(string)
	if !ok {
		r.mistaken(name, n, "a string")
	}
	*v = s
}

func (r *jsonReader) text(name string, v *string) {
	if r.optional(name, false) {
		r.str(name, v)
	}
}

func (r *jsonReader) bytes(name string, v *[]byte) {
	var s string
	if r.str(name, &s); r.err != nil {
		return
	}
	b, err := base64.StdEncoding.Strict().DecodeString(s)
	if err != nil {
		r.refuse(name, "is not base64 (the standard alphabet, padded)")
	}
	*v = b
}

func (r *jsonReader) fixed(name string, v []byte) {
	var s string
	if r.str(name, &s); r.err != nil {
		return
	}
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(v) {
		r.refuse(name, fmt.Sprintf("is not %d hexadecimal digits", 2*len(v)))
		return
	}
	copy(v, b)
}

func (r *jsonReader) columnType(name string, t *schemas.Type) {
	if r.err != nil {
		return
	}
	f := r.stack[len(r.stack)-1]
	if _, ok := f.object.get(name).(*object); ok {
		nested(r, name, t, columnTypeFields)
		return
	}
	var s string
	if r.str(name, &s); r.err != nil {
		return
	}
	parsed, err := schemas.ParseType(s)
	if err != nil {
		r.refuse(name, "is no type: "+err.Error())
	}
	*t = parsed
}
