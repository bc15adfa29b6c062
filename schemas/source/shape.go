package source

import (
	"encoding/binary"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/rows"
)

// shape is how values of one nested column, or of a nested part of one, are
// read: each part by a field of its own, as columns are, into a column of one
// value, whose bytes are then put together (rows.AppendNested).
type shape struct {
	kind     schemas.Kind
	names    []string
	parts    []field // of a struct: its fields; a list: its element; a map: key, value
	cols     []rows.Column
	required []bool
	absent   [][]byte // of a struct: what a field means that the value does not name
	byName   map[string]int
	declared bool // the event's own schema names all fields
	body     []byte
	seen     map[string]bool

	// Of the writer's type met last: the part of each of its fields, -1: none.
	avro   *avroType
	avroAt []int
}

func (s *settings) newShape(t schemas.Type, children []schemas.Field) *shape {
	h := &shape{kind: t.Kind, byName: make(map[string]int, len(children))}
	for i := range children {
		c := &children[i]
		h.names = append(h.names, c.Name)
		h.parts = append(h.parts, field{name: c.Name, col: -1, key: -1, op: opSkip})
		h.cols = append(h.cols, rows.NewColumn(c.Type))
		h.required = append(h.required, c.Required)
		part := []byte{0}
		if c.WriteDefault != nil {
			col := rows.NewColumn(c.Type)
			if col.AppendJSON(c.WriteDefault) == nil { // a valid schema's default is a value
				part = rows.AppendNested([]byte{1}, &col, 0)
			}
		}
		h.absent = append(h.absent, part)
		h.byName[c.Name] = i
	}
	return h
}

var nestedOps = map[schemas.Kind]op{schemas.Struct: opStruct, schemas.List: opList, schemas.Map: opMap}

// resolveBareNested is resolveBare of a nested column.
func (s *settings) resolveBareNested(f *field, t schemas.Type) {
	children := t.Children()
	h := s.newShape(t, children)
	for i := range children {
		s.resolveBare(&h.parts[i], children[i].Type)
	}
	f.op, f.shape = nestedOps[t.Kind], h
}

// resolveNested is resolve of a nested column: what the event's schema has more
// than the column makes it wider.
func (s *settings) resolveNested(f *field, d declared, t schemas.Type) (widen schemas.Type, ok bool) {
	f.op = opMismatch
	if d.of == nil {
		return widen, false
	}
	children := t.Children()
	h := s.newShape(t, children)
	h.declared = true
	grown := false
	part := func(i int, of *connectSchema) bool {
		wide, ok := s.resolve(&h.parts[i], of.declared(), children[i].Type)
		if wide.Kind != 0 {
			if t.Kind == schemas.Map && i == 0 {
				return false // keys stay what they are
			}
			children[i].Type, grown = wide, true
		}
		return ok
	}
	switch {
	case t.Kind == schemas.Struct && d.sem == semStruct:
		for i := range d.of.Fields {
			of := &d.of.Fields[i]
			at, known := h.byName[of.Field]
			if known {
				if !part(at, of) {
					return widen, false
				}
				continue
			}
			ct, ok := of.declared().columnType(s.exactTime, s.exactNanos)
			if !ok {
				return widen, false
			}
			children, grown = append(children, schemas.Field{Name: of.Field, Type: ct}), true
		}
	case t.Kind == schemas.List && d.sem == semArray:
		if !part(0, d.of.Items) {
			return widen, false
		}
	case t.Kind == schemas.Map && d.sem == semMap:
		if !part(0, d.of.Keys) || !part(1, d.of.Values) {
			return widen, false
		}
	default:
		return widen, false
	}
	f.op, f.shape = nestedOps[t.Kind], h
	if grown {
		widen = schemas.NestedOf(t.Kind, children)
	}
	return widen, true
}

// nestedType is the type of a column made for values so declared.
func (d declared) nestedType(exactTime, exactNanos bool, depth int) (t schemas.Type, ok bool) {
	if d.of == nil || depth >= schemas.MaxNesting {
		return t, false
	}
	of := func(s *connectSchema) (schemas.Type, bool) {
		c := s.declared()
		if c.of != nil {
			return c.nestedType(exactTime, exactNanos, depth+1)
		}
		return c.columnType(exactTime, exactNanos)
	}
	switch d.sem {
	case semStruct:
		var fields []schemas.Field
		for i := range d.of.Fields {
			ft, ok := of(&d.of.Fields[i])
			if !ok {
				return t, false
			}
			fields = append(fields, schemas.Field{Name: d.of.Fields[i].Field, Type: ft})
		}
		return schemas.StructOf(fields), true
	case semArray:
		et, ok := of(d.of.Items)
		return schemas.ListOf(0, et, false), ok
	}
	kt, ok := of(d.of.Keys)
	if !ok || kt.IsNested() {
		return t, false
	}
	vt, ok := of(d.of.Values)
	return schemas.MapOf(0, kt, 0, vt, false), ok
}

// nestedDeclared is what a Connect schema of a struct, array or map says.
func (s *connectSchema) nestedDeclared() declared {
	switch {
	case s.Type == "struct" && len(s.Fields) > 0:
		return declared{sem: semStruct, of: s}
	case s.Type == "array" && s.Items != nil:
		return declared{sem: semArray, of: s}
	case s.Type == "map" && s.Keys != nil && s.Values != nil:
		return declared{sem: semMap, of: s}
	}
	return declared{sem: semNested}
}

// nested appends the nested value at b[i] to a column.
func (r *reader) nested(c *rows.Column, f *field, b []byte, i int) (end int, why fail) {
	r.inside++
	switch f.op {
	case opStruct:
		end, why = r.structValue(c, f.shape, b, i)
	case opList:
		end, why = r.listValue(c, f.shape, b, i)
	default:
		end, why = r.mapValue(c, f.shape, b, i)
	}
	if r.inside--; why == isUnavailable && r.inside > 0 {
		why = partUnavailable
	}
	return end, why
}

// part reads one part of a nested value into its column.
func (r *reader) part(h *shape, k int, b []byte, i int) (int, fail) {
	c := &h.cols[k]
	c.Truncate(0)
	if b[i] == 'n' {
		end := scanWord(b, i, "null")
		switch {
		case end < 0:
			return i, malformed
		case h.required[k]:
			return end, r.in(h, k, isNull)
		}
		c.AppendNull()
		return end, okay
	}
	end, why := r.value(c, &h.parts[k], b, i)
	return end, r.in(h, k, why)
}

// whole refuses a part that the source did not send: only whole columns are
// carried over.
func (r *reader) whole(h *shape, k int, why fail) fail {
	if why == isUnavailable {
		return r.in(h, k, partUnavailable)
	}
	return why
}

// in notes the path of a part that was refused.
func (r *reader) in(h *shape, k int, why fail) fail {
	if why != okay && why != isUnavailable {
		r.failPath = "." + h.names[k] + r.failPath
	}
	return why
}

// add appends part k, read before, as an optional one.
func (h *shape) add(k int) {
	if c := &h.cols[k]; c.IsNull(0) {
		h.body = append(h.body, 0)
	} else {
		h.body = rows.AppendNested(append(h.body, 1), c, 0)
	}
}

// putStruct puts a struct together whose named fields are read; the others are
// their write-default, or null.
func (r *reader) putStruct(c *rows.Column, h *shape) fail {
	h.body = h.body[:0]
	for k := range h.cols {
		switch {
		case h.cols[k].Len() == 1:
			h.add(k)
		case h.required[k] && h.absent[k][0] == 0:
			return r.in(h, k, absent)
		default:
			h.body = append(h.body, h.absent[k]...)
		}
	}
	c.AppendBytes(h.body)
	return okay
}

// putMany appends a list or map of n elements whose bytes are in the body.
func (h *shape) putMany(c *rows.Column, n int) {
	var head [binary.MaxVarintLen64]byte
	k := binary.PutUvarint(head[:], uint64(n))
	c.Valid = append(c.Valid, 1)
	c.Data = append(append(c.Data, head[:k]...), h.body...)
	c.Ends = append(c.Ends, uint32(len(c.Data)))
}

func (h *shape) reset() {
	for k := range h.cols {
		h.cols[k].Truncate(0)
	}
	h.body = h.body[:0]
}

func (r *reader) structValue(c *rows.Column, h *shape, b []byte, i int) (int, fail) {
	if b[i] != '{' {
		return r.odd(b, i, wrongType)
	}
	h.reset()
	i = skipSpace(b, i+1)
	if i < len(b) && b[i] == '}' {
		return i + 1, r.putStruct(c, h)
	}
	for more := true; more; {
		name, v := member(b, i, &r.name)
		if v < 0 {
			return i, malformed
		}
		k, known := h.byName[string(name)]
		var why fail
		switch {
		case !known:
			if i = skipValue(b, v); i < 0 {
				return v, malformed
			}
			if b[v] != 'n' { // a null says nothing of a type
				why = strange
				if !h.declared {
					_, why = inferType(b[v:i])
				}
				if why != okay {
					r.failPath = "." + string(name)
					return i, why
				}
				r.grows = true
			}
		case h.cols[k].Len() > 0:
			r.failPath = "." + h.names[k]
			return v, twice
		default:
			if i, why = r.part(h, k, b, v); why != okay {
				return i, r.whole(h, k, why)
			}
		}
		if i, more = next(b, i); i < 0 {
			return v, malformed
		}
	}
	return i, r.putStruct(c, h)
}

// nextOf reads what follows an array's element.
func nextOf(b []byte, i int) (at int, more bool) {
	i = skipSpace(b, i)
	if i >= len(b) {
		return -1, false
	}
	switch b[i] {
	case ',':
		if i = skipSpace(b, i+1); i >= len(b) {
			return -1, false
		}
		return i, true
	case ']':
		return i + 1, false
	}
	return -1, false
}

func (r *reader) listValue(c *rows.Column, h *shape, b []byte, i int) (int, fail) {
	if b[i] != '[' {
		return r.odd(b, i, wrongType)
	}
	h.reset()
	i = skipSpace(b, i+1)
	if i >= len(b) {
		return i, malformed
	}
	n := 0
	if b[i] == ']' {
		h.putMany(c, 0)
		return i + 1, okay
	}
	for more := true; more; n++ {
		at, why := r.part(h, 0, b, i)
		if why == isUnavailable {
			// A whole array that did not change is an array of the marker.
			if end, more := nextOf(b, at); n == 0 && end >= 0 && !more {
				return end, isUnavailable
			}
			return at, partUnavailable
		}
		if why != okay {
			return at, why
		}
		h.add(0)
		if i, more = nextOf(b, at); i < 0 {
			return at, malformed
		}
	}
	if n == len(r.marker) && h.cols[0].Storage == rows.Ints && string(h.body) == r.markerList {
		return i, isUnavailable
	}
	h.putMany(c, n)
	return i, okay
}

func (r *reader) mapValue(c *rows.Column, h *shape, b []byte, i int) (int, fail) {
	if b[i] == '[' {
		return r.pairs(c, h, b, i)
	}
	if b[i] != '{' {
		return r.odd(b, i, wrongType)
	}
	h.reset()
	clear(h.seen)
	i = skipSpace(b, i+1)
	if i < len(b) && b[i] == '}' {
		h.putMany(c, 0)
		return i + 1, okay
	}
	n := 0
	for more := true; more; n++ {
		name, v := member(b, i, &r.name)
		if v < 0 {
			return i, malformed
		}
		if string(name) == r.marker {
			end := skipValue(b, v)
			if end < 0 {
				return v, malformed
			}
			if end, more := next(b, end); n == 0 && end >= 0 && !more {
				return end, isUnavailable
			}
			return end, partUnavailable
		}
		if why := h.key(name); why != okay {
			return v, why
		}
		h.body = rows.AppendNested(h.body, &h.cols[0], 0)
		at, why := r.part(h, 1, b, v)
		if why != okay {
			return at, r.whole(h, 1, why)
		}
		h.add(1)
		if i, more = next(b, at); i < 0 {
			return at, malformed
		}
	}
	h.putMany(c, n)
	return i, okay
}

// key reads a map's key from a member's name.
func (h *shape) key(name []byte) fail {
	c := &h.cols[0]
	c.Truncate(0)
	if h.once(name) {
		return twice
	}
	if c.Type.Kind == schemas.String {
		c.AppendBytes(name)
		return okay
	}
	single, err := schemas.ParseText(c.Type, string(name))
	if err != nil || c.AppendSingle(single) != nil {
		return badText
	}
	return okay
}

// once says whether a key was there before.
func (h *shape) once(key []byte) bool {
	if h.seen[string(key)] {
		return true
	}
	if h.seen == nil {
		h.seen = make(map[string]bool)
	}
	h.seen[string(key)] = true
	return false
}

// pairs reads a map as Kafka Connect writes one whose keys are no text: an array
// of arrays of two.
func (r *reader) pairs(c *rows.Column, h *shape, b []byte, i int) (int, fail) {
	h.reset()
	clear(h.seen)
	i = skipSpace(b, i+1)
	if i < len(b) && b[i] == ']' {
		h.putMany(c, 0)
		return i + 1, okay
	}
	n := 0
	for more := true; more; n++ {
		if i >= len(b) || b[i] != '[' {
			return i, wrongType
		}
		if i = skipSpace(b, i+1); i >= len(b) {
			return i, malformed
		}
		at, why := r.part(h, 0, b, i)
		if why != okay {
			return at, r.whole(h, 0, why)
		}
		start := len(h.body)
		h.body = rows.AppendNested(h.body, &h.cols[0], 0)
		if h.once(h.body[start:]) {
			return at, twice
		}
		var second bool
		if i, second = nextOf(b, at); i < 0 {
			return at, malformed
		} else if !second {
			return i, wrongType
		}
		if at, why = r.part(h, 1, b, i); why != okay {
			return at, r.whole(h, 1, why)
		}
		h.add(1)
		if i, second = nextOf(b, at); i < 0 {
			return at, malformed
		} else if second {
			return i, wrongType
		}
		if i, more = nextOf(b, i); i < 0 {
			return at, malformed
		}
	}
	h.putMany(c, n)
	return i, okay
}

// markerInts is the array of whole numbers by which a connector says that an
// array of such did not change: the bytes of the marker.
func markerInts(marker string) string {
	var b []byte
	for i := range len(marker) {
		b = binary.AppendVarint(append(b, 1), int64(marker[i]))
	}
	return string(b)
}

// inferNested is the type of a column made for an object or array, whose text is
// well-formed. Nulls and what is empty say nothing: Kind 0.
func inferNested(v []byte, depth int) (schemas.Type, fail) {
	if depth >= schemas.MaxNesting {
		return schemas.Type{}, tooDeep
	}
	of := func(v []byte) (schemas.Type, fail) {
		switch v[0] {
		case 'n':
			return schemas.Type{}, okay
		case '{', '[':
			return inferNested(v, depth+1)
		}
		return inferType(v)
	}
	if v[0] == '{' {
		var fields []schemas.Field
		at := map[string]int{}
		why := okay
		members(v, func(name string, value []byte) {
			t, bad := of(value)
			if bad != okay && why == okay {
				why = bad
			}
			if t.Kind == 0 {
				return
			}
			if _, again := at[name]; again && why == okay {
				why = twice
			}
			at[name] = len(fields)
			fields = append(fields, schemas.Field{Name: name, Type: t})
		})
		if why != okay || len(fields) == 0 {
			return schemas.Type{}, why
		}
		return schemas.StructOf(fields), okay
	}
	var element schemas.Type
	i := skipSpace(v, 1)
	for more := v[i] != ']'; more; {
		end := skipValue(v, i)
		t, why := of(v[i:end])
		if why != okay {
			return schemas.Type{}, why
		}
		ok := false
		if element, ok = mergeInferred(element, t); !ok {
			return schemas.Type{}, mixed
		}
		i, more = nextOf(v, end)
	}
	if element.Kind == 0 {
		return element, okay
	}
	return schemas.ListOf(0, element, false), okay
}

// mergeInferred is a type that takes the values of both.
func mergeInferred(a, b schemas.Type) (schemas.Type, bool) {
	switch {
	case b.Kind == 0 || a == b:
		return a, true
	case a.Kind == 0:
		return b, true
	case a.Kind == schemas.Long && b.Kind == schemas.Double, a.Kind == schemas.Double && b.Kind == schemas.Long:
		return schemas.Of(schemas.Double), true
	case !a.IsNested() || a.Kind != b.Kind:
		return a, false
	}
	have, more := a.Children(), b.Children()
	for i := range more {
		at := -1
		for j := range have {
			if have[j].Name == more[i].Name {
				at = j
			}
		}
		if at < 0 {
			have = append(have, more[i])
			continue
		}
		var ok bool
		if have[at].Type, ok = mergeInferred(have[at].Type, more[i].Type); !ok {
			return a, false
		}
	}
	return schemas.NestedOf(a.Kind, have), true
}

// addFields is t with the fields that values of an inferred type have and t lacks.
// What both have was read by the table's type and stays it.
func addFields(t, inferred schemas.Type) schemas.Type {
	have, more := t.Children(), inferred.Children()
	if len(have) == 0 || len(more) == 0 {
		return t
	}
	if t.Kind == schemas.Map && inferred.Kind == schemas.Struct {
		value := have[1].Type
		for i := range more {
			value = addFields(value, more[i].Type)
		}
		have[1].Type = value
		return schemas.NestedOf(t.Kind, have)
	}
	if t.Kind != inferred.Kind {
		return t
	}
	for i := range more {
		known := false
		for j := range have {
			if have[j].Name == more[i].Name {
				known = true
				have[j].Type = addFields(have[j].Type, more[i].Type)
			}
		}
		if !known {
			have = append(have, more[i])
		}
	}
	return schemas.NestedOf(t.Kind, have)
}

// avroNested appends the array, map or record at b[i] to a nested column.
func (r *reader) avroNested(c *rows.Column, f *field, t *avroType, b []byte, i int) (end int, why fail) {
	r.inside++
	h := f.shape
	switch {
	case f.op == opStruct && t.kind == avroRecord:
		end, why = r.avroStruct(c, h, t, b, i)
	case f.op == opList && t.kind == avroArray, f.op == opMap && t.kind == avroMap:
		end, why = r.avroMany(c, h, t, b, i)
	default:
		if end, why = t.skip(b, i, 0), wrongType; end < 0 {
			end, why = i, malformed
		}
	}
	if r.inside--; why == isUnavailable && r.inside > 0 {
		why = partUnavailable
	}
	return end, why
}

// avroPart reads a part of a nested value, written as t, into its column.
func (r *reader) avroPart(h *shape, k int, t *avroType, b []byte, i int) (int, fail) {
	c := &h.cols[k]
	c.Truncate(0)
	value, at := avroBranch(t, b, i)
	switch {
	case at < 0:
		return i, malformed
	case value == nil && h.required[k]:
		return at, r.in(h, k, isNull)
	case value == nil:
		c.AppendNull()
		return at, okay
	}
	at, why := r.avroPut(c, &h.parts[k], value, b, at)
	return at, r.in(h, k, why)
}

func (r *reader) avroStruct(c *rows.Column, h *shape, t *avroType, b []byte, i int) (int, fail) {
	if h.avro != t {
		h.avro, h.avroAt = t, h.avroAt[:0]
		for k := range t.fields {
			at, known := h.byName[t.fields[k].name]
			if !known {
				at = -1
			}
			h.avroAt = append(h.avroAt, at)
		}
	}
	h.reset()
	for k := range t.fields {
		ft := t.fields[k].typ
		if h.avroAt[k] < 0 {
			end := ft.skip(b, i, 0)
			if end < 0 {
				return i, malformed
			}
			i = end
			continue
		}
		var why fail
		if i, why = r.avroPart(h, h.avroAt[k], ft, b, i); why != okay {
			return i, r.whole(h, h.avroAt[k], why)
		}
	}
	return i, r.putStruct(c, h)
}

// avroMany reads an array or map. Each of their elements takes a byte at least:
// there are no structs without fields.
func (r *reader) avroMany(c *rows.Column, h *shape, t *avroType, b []byte, i int) (int, fail) {
	h.reset()
	clear(h.seen)
	total := 0
	last := len(h.cols) - 1
	for {
		n, at := varint(b, i)
		if at < 0 {
			return i, malformed
		}
		if i = at; n == 0 {
			break
		}
		if n < 0 {
			if _, i = varint(b, i); i < 0 || n == -n {
				return at, malformed
			}
			n = -n
		}
		if n > int64(len(b)) {
			return i, malformed
		}
		for range n {
			if t.kind == avroMap {
				size, from := varint(b, i)
				if from < 0 {
					return i, malformed
				}
				end := within(b, from, size)
				if end < 0 {
					return from, malformed
				}
				if why := r.rawKey(h, b[from:end]); why != okay {
					return end, why
				}
				i = end
			}
			var why fail
			if i, why = r.avroPart(h, last, t.items, b, i); why == isUnavailable && total == 0 && n == 1 && last == 0 {
				return i, isUnavailable
			} else if why != okay {
				return i, r.whole(h, last, why)
			}
			h.add(last)
			total++
		}
	}
	if total == len(r.marker) && last == 0 && h.cols[0].Storage == rows.Ints && string(h.body) == r.markerList {
		return i, isUnavailable
	}
	h.putMany(c, total)
	return i, okay
}

// rawKey reads a map's key that is text.
func (r *reader) rawKey(h *shape, key []byte) fail {
	if string(key) == r.marker && len(h.body) == 0 {
		return isUnavailable
	}
	if h.once(key) {
		return twice
	}
	c := &h.cols[0]
	c.Truncate(0)
	if why := r.rawText(c, &h.parts[0], key); why != okay {
		return why
	}
	h.body = rows.AppendNested(h.body, c, 0)
	return okay
}
