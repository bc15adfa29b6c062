package source

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/rows"
)

// span is a value's place in a record.
type span struct{ at, end int }

// plan says what becomes of each member of a row object: of rows with one
// schema of their own, or of rows without any (bare).
type plan struct {
	fields []field
	byName map[string]int
	first  int // the field that came first last time, -1: not known
	bare   bool
	open   bool // the rows' own schema allows members that it does not name

	// What the rows' own schema asks of the table's. Deletes need key columns
	// only, and so have demands of their own.
	change, keyChange *SchemaChange
	refuse            *Reject
}

func (p *plan) add(f field) {
	f.token = `"` + f.name + `":`
	for i := 0; i < len(f.name); i++ {
		if c := f.name[i]; c < 0x20 || c == '"' || c == '\\' {
			f.token = "\x00" // never met: the name is written with escapes
			break
		}
	}
	f.next = -1
	p.byName[f.name] = len(p.fields)
	p.fields = append(p.fields, f)
}

// unknownField is a member of a bare row that the table has no column for.
type unknownField struct {
	name string
	typ  schemas.Type
	bad  fail
	col  int // the nested column that lacks a part of the value, -1: there is none yet
}

// reader turns row objects into column values for one version of a schema.
type reader struct {
	framer
	set      *settings
	schema   *schemas.Schema
	keys     []int // the key's columns, in the key's order
	keyOf    []int // per column: its ordinal in the key, or -1
	orderCol int   // the ordering column, or -1
	orderAt  []string
	required []bool                             // per column: required, but no key column
	absents  []rows.Column                      // per column: its write-default, or empty
	fill     bool                               // some column is required or has a write-default
	wrapper  bool                               // {schema, payload} cannot be a row
	ordinals []int                              // 0, 1, … for each key column
	prefix   string                             // of the names of before images among a row's members
	hints    func(name string) (declared, bool) // what else says the types of new columns
	flat     bool                               // __deleted and __op have the flattened form's meaning
	bare     *plan
	plans    planCache
	keyPlans planCache
	// framedKey, if any, reads a record key that is no JSON; false: it is JSON or text.
	framedKey func(rec *Record, cols []rows.Column, base int, kind Kind) (bool, error)

	marker, marker64   string
	markerList         string // see markerInts
	scratch, raw, name []byte
	quoted             []byte // a text key as JSON

	// About the row read last.
	failCol   string
	failPath  string // inside a nested column, from its end on
	inside    int    // how many structs, lists and maps are open
	grows     bool   // a struct has a field that the table's has not
	failKey   bool
	keySpans  []span // the key columns' values
	rowOrder  span   // the ordering column's value, when it was not appended
	count     int    // columns appended
	unknown   []unknownField
	unknownAt map[string]int
	deleted   bool // flattened form

	order    int64 // the value at the order path
	hasOrder bool

	image   []rows.Column // key columns of a before image
	carried []int         // columns whose values the row's source did not send
	picked  rows.Column   // a value at the order path
	oldest  rows.Column   // a deleted row's ordering column
	dropped rows.Column   // where values of dropped columns go
}

func newReader(o Options, set *settings, flat bool) (*reader, error) {
	if o.Schema == nil || o.Def == nil {
		return nil, fmt.Errorf("a decoder of format %s needs a table definition and a schema", o.Format)
	}
	r := &reader{set: set, schema: o.Schema, orderCol: -1, flat: flat}
	r.marker = set.unavailable
	r.marker64 = base64.StdEncoding.EncodeToString([]byte(set.unavailable))
	r.markerList = markerInts(set.unavailable)
	n := len(r.schema.Fields)
	r.keyOf = make([]int, n)
	r.required = make([]bool, n)
	r.absents = make([]rows.Column, n)
	for i := range r.keyOf {
		r.keyOf[i] = -1
	}
	for k, id := range o.Def.Key {
		c := r.schema.ByID(id)
		if c < 0 {
			return nil, fmt.Errorf("table %s: key field id %d is no column of schema %d", o.Def.Name, id, r.schema.ID)
		}
		r.keyOf[c] = k
		r.keys = append(r.keys, c)
		r.image = append(r.image, rows.NewColumn(r.schema.Fields[c].Type))
	}
	r.wrapper = r.schema.ByName("schema") < 0 && r.schema.ByName("payload") < 0
	for k := range r.keys {
		r.ordinals = append(r.ordinals, k)
	}
	r.keySpans = make([]span, len(r.keys))
	switch o.Def.Order.Kind {
	case schemas.OrderByColumn:
		if r.orderCol = r.schema.ByID(o.Def.Order.Column); r.orderCol < 0 {
			return nil, fmt.Errorf("table %s: ordering field id %d is no column of schema %d", o.Def.Name, o.Def.Order.Column, r.schema.ID)
		}
		if t := r.schema.Fields[r.orderCol].Type; !t.OrderUsable() {
			return nil, fmt.Errorf("table %s: column %q is a %s, which cannot be the ordering column",
				o.Def.Name, r.schema.Fields[r.orderCol].Name, t)
		}
	case schemas.OrderByPath:
		r.orderAt = strings.Split(o.Def.Order.Path, ".")
		for _, p := range r.orderAt {
			if p == "" {
				return nil, fmt.Errorf("table %s: order path %q has an empty part", o.Def.Name, o.Def.Order.Path)
			}
		}
	}
	r.picked = rows.NewColumn(schemas.Of(schemas.Long))
	if r.orderCol >= 0 {
		r.oldest = rows.NewColumn(r.schema.Fields[r.orderCol].Type)
	}
	r.makeBare()
	if err := r.readDefaults(o.Def.Name); err != nil {
		return nil, err
	}
	return r, nil
}

// makeBare makes the plan for rows without a schema of their own.
func (r *reader) makeBare() {
	p := &plan{byName: make(map[string]int), first: -1, bare: true}
	for c := range r.schema.Fields {
		f := &r.schema.Fields[c]
		out := field{name: f.Name, col: c, key: r.keyOf[c]}
		r.set.resolve(&out, r.set.types[f.Name], f.Type)
		if r.set.exclude[f.Name] && out.key < 0 {
			out.op, out.col = opSkip, -1
		}
		p.add(out)
	}
	out := make(map[string]op, len(r.set.exclude)+3)
	for name := range r.set.exclude {
		out[name] = opSkip
	}
	if r.flat {
		if len(r.orderAt) > 0 {
			out[r.orderAt[0]] = opSkip
		}
		out[flatDeleted], out[flatOp], out[flatChange] = opDeleted, opFlatOp, opFlatChange
	}
	for name, op := range out {
		if _, known := p.byName[name]; !known {
			p.add(field{name: name, col: -1, key: -1, op: op})
		}
	}
	r.bare = p
}

// readDefaults reads the write-defaults, in Iceberg's JSON form: what an
// absent field means.
func (r *reader) readDefaults(table string) error {
	set := *r.set
	set.decimals = semString
	own := reader{set: &set, marker: r.marker, marker64: r.marker64}
	for c := range r.schema.Fields {
		f := &r.schema.Fields[c]
		r.required[c] = f.Required && r.keyOf[c] < 0
		r.fill = r.fill || r.required[c]
		if f.WriteDefault == nil {
			continue
		}
		col := rows.NewColumn(f.Type)
		to := field{name: f.Name, key: -1}
		set.resolveBare(&to, f.Type)
		b := []byte(f.WriteDefault)
		if (f.Type.Kind == schemas.Binary || f.Type.Kind == schemas.Fixed) && len(b) >= 2 {
			raw, err := hex.DecodeString(string(b[1 : len(b)-1]))
			if err != nil {
				return fmt.Errorf("table %s: column %q has an ill-formed write-default: %w", table, f.Name, err)
			}
			col.AppendBytes(raw)
		} else if end, why := own.value(&col, &to, b, 0); why != okay || end != len(b) || col.Len() != 1 {
			return fmt.Errorf("table %s: column %q has an ill-formed write-default", table, f.Name)
		}
		r.absents[c] = col
		r.fill = true
	}
	return nil
}

// begin forgets the row read before.
func (r *reader) begin() {
	r.failCol, r.failPath, r.failKey = "", "", false
	r.inside, r.grows = 0, false
	r.count, r.deleted = 0, false
	r.carried = r.carried[:0]
	if len(r.unknown) > 0 {
		r.unknown = r.unknown[:0]
		clear(r.unknownAt)
	}
	r.rowOrder = span{}
	for k := range r.keySpans {
		r.keySpans[k] = span{}
	}
}

// find is the field whose name begins at b[i] and the place of its value. The
// field that followed prev last time is tried first: rows of one producer
// have one order. idx is -1 for a name that the plan does not have.
func (r *reader) find(p *plan, prev int, b []byte, i int) (idx int, name []byte, value int) {
	guess := p.first
	if prev >= 0 {
		guess = p.fields[prev].next
	}
	if guess >= 0 {
		t := p.fields[guess].token
		if j := i + len(t); j < len(b) && string(b[i:j]) == t {
			if b[j] > ' ' {
				return guess, nil, j
			}
			if j = skipSpace(b, j); j < len(b) {
				return guess, nil, j
			}
			return -1, nil, -1
		}
	}
	name, value = member(b, i, &r.name)
	if value < 0 {
		return -1, nil, -1
	}
	idx, ok := p.byName[string(name)]
	if !ok {
		return -1, name, value
	}
	if prev >= 0 {
		p.fields[prev].next = idx
	} else {
		p.first = idx
	}
	return idx, nil, value
}

// row appends the object at b[i] to the columns, whose rows before it are
// base. Columns that the object does not name are left without a value; see
// complete.
func (r *reader) row(p *plan, cols []rows.Column, base int, b []byte, i int) (int, fail) {
	i = skipSpace(b, i+1)
	if i < len(b) && b[i] == '}' {
		return i + 1, okay
	}
	prev := -1
	for {
		idx, name, v := r.find(p, prev, b, i)
		if v < 0 {
			return i, malformed
		}
		if idx < 0 {
			if i = r.stranger(p, name, b, v); i < 0 {
				return v, malformed
			}
		} else {
			f := &p.fields[idx]
			prev = idx
			var why fail
			if f.col >= 0 {
				c := &cols[f.col]
				if len(c.Valid) != base {
					r.failCol = f.name
					return v, twice
				}
				r.count++
				if b[v] == 'n' {
					i, why = r.null(c, f, b, v)
				} else {
					if i, why = r.hot(c, f, b, v); why == isUnavailable && r.carries(f) {
						c.AppendNull()
						i, why = skipValue(b, v), okay
					}
					if r.grows && why == okay {
						r.grow(f, b[v:i])
					}
				}
				if f.key >= 0 {
					r.keySpans[f.key] = span{v, i}
				}
			} else {
				i, why = r.offTable(f, b, v)
			}
			if why != okay {
				r.failCol, r.failKey = f.name+r.failPath, f.key >= 0
				return i, why
			}
		}
		if i < len(b) && b[i] == ',' {
			i++
			if i < len(b) && b[i] <= ' ' {
				i = skipSpace(b, i)
			}
			continue
		}
		at, more := next(b, i)
		if at < 0 {
			return i, malformed
		}
		if i = at; !more {
			return i, okay
		}
	}
}

// hot is value, with the commonest cases in front.
func (r *reader) hot(c *rows.Column, f *field, b []byte, i int) (int, fail) {
	switch f.op {
	case opInt64, opInt32:
		if v, end, why := parseInt(b, i); why == okay && (f.op == opInt64 || v == int64(int32(v))) {
			c.AppendInt(v)
			return end, okay
		}
	case opString:
		if b[i] == '"' {
			if end, plain := scanString(b, i+1); plain && end-i-1 != len(r.marker) && end-i-1 != len(r.marker64) {
				c.AppendBytes(b[i+1 : end])
				return end + 1, okay
			}
		}
	}
	return r.value(c, f, b, i)
}

func (r *reader) null(c *rows.Column, f *field, b []byte, i int) (int, fail) {
	end := scanWord(b, i, "null")
	switch {
	case end < 0:
		return i, malformed
	case f.key >= 0 && !r.set.recordKey || r.required[f.col]:
		return end, isNull
	}
	c.AppendNull()
	return end, okay
}

// offTable reads a member that is no column: left out on purpose, or one of
// the flattened form's own.
func (r *reader) offTable(f *field, b []byte, i int) (int, fail) {
	end := skipValue(b, i)
	if end < 0 {
		return i, malformed
	}
	switch f.op {
	case opDeleted:
		switch string(b[i:end]) {
		case "true", `"true"`:
			r.deleted = true
		case "false", `"false"`, "null":
		default:
			return end, wrongType
		}
	case opFlatOp:
		r.deleted = r.deleted || string(b[i:end]) == `"d"`
	case opFlatChange:
		return end, r.flatChange(b, i)
	}
	return end, okay
}

// flatChange reads the object that the Kafka Connect Iceberg sink's transforms
// put beside a row's columns.
func (r *reader) flatChange(b []byte, i int) fail {
	switch b[i] {
	case 'n':
		return okay
	case '{':
	default:
		return wrongType
	}
	i = skipSpace(b, i+1)
	for more := b[i] != '}'; more; {
		name, v := member(b, i, &r.name)
		end := skipValue(b, v)
		if string(name) == "op" {
			switch string(b[v:end]) {
			case `"D"`, `"d"`:
				r.deleted = true
			case `"I"`, `"U"`, `"C"`, `"R"`, `"i"`, `"u"`, `"c"`, `"r"`:
			default:
				return wrongType
			}
		}
		i, more = next(b, end)
	}
	return okay
}

// stranger notes a member without a column and reads its value. A null says
// nothing of its type and is passed over.
func (r *reader) stranger(p *plan, name, b []byte, i int) int {
	end := skipValue(b, i)
	if end < 0 || b[i] == 'n' || r.prefix != "" && strings.HasPrefix(string(name), r.prefix) {
		return end
	}
	if k, again := r.unknownAt[string(name)]; again {
		r.unknown[k].bad = twice
		return end
	}
	if len(r.unknown) == schemas.MaxColumns {
		return end // already more than a table can take
	}
	u := unknownField{name: string(name), bad: strange, col: -1}
	if p.bare || p.open {
		d, ok := r.set.types[u.name]
		if !ok && r.hints != nil {
			d, ok = r.hints(u.name)
		}
		if ok {
			if u.typ, ok = d.columnType(r.set.exactTime, r.set.exactNanos); ok {
				u.bad = okay
			} else {
				u.bad = nested
			}
		} else if r.set.isMarker(b[i:end]) {
			u.bad = isUnavailable // and no older row has it
		} else {
			u.typ, u.bad = inferType(b[i:end])
		}
	}
	if r.unknownAt == nil {
		r.unknownAt = make(map[string]int)
	}
	r.unknownAt[u.name] = len(r.unknown)
	r.unknown = append(r.unknown, u)
	return end
}

// grow notes that a value of a nested column has parts which the table's type
// lacks.
func (r *reader) grow(f *field, value []byte) {
	r.grows = false
	u := unknownField{name: f.name, col: f.col}
	if u.typ, u.bad = inferType(value); u.bad == okay {
		u.typ = addFields(r.schema.Fields[f.col].Type, u.typ)
	}
	r.unknown = append(r.unknown, u)
}

// inferType is the type of a column made for one JSON value.
func inferType(v []byte) (schemas.Type, fail) {
	switch v[0] {
	case '"':
		return schemas.Of(schemas.String), okay
	case 't', 'f':
		return schemas.Of(schemas.Boolean), okay
	case '{', '[':
		t, why := inferNested(v, 0)
		if why == okay && t.Kind == 0 {
			why = empty
		}
		return t, why
	}
	if _, _, f := parseInt(v, 0); f == okay {
		return schemas.Of(schemas.Long), okay
	} else if f == outOfRange {
		return schemas.Type{}, outOfRange
	}
	return schemas.Of(schemas.Double), okay
}

// complete gives the columns that a row did not name their meaning: the
// write-default, or null. Absent key columns are the caller's.
func (r *reader) complete(cols []rows.Column, base int) fail {
	if !r.fill || r.count == len(cols) {
		return okay
	}
	for c := range cols {
		if cols[c].Len() != base {
			continue
		}
		switch d := &r.absents[c]; {
		case d.Len() == 0:
			if r.required[c] {
				r.failCol = r.schema.Fields[c].Name
				return absent
			}
		case d.Storage == rows.Ints:
			cols[c].AppendInt(d.Ints[0])
		case d.Storage == rows.Floats:
			cols[c].AppendFloat(d.Floats[0])
		default:
			cols[c].AppendBytes(d.BytesAt(0))
		}
	}
	return okay
}

// scan reads the object at b[i] for its key columns' values and the ordering
// column's, and appends nothing.
func (r *reader) scan(p *plan, b []byte, i int) (int, fail) {
	i = skipSpace(b, i+1)
	if i < len(b) && b[i] == '}' {
		return i + 1, okay
	}
	prev := -1
	for {
		idx, _, v := r.find(p, prev, b, i)
		if v < 0 {
			return i, malformed
		}
		end := skipValue(b, v)
		if end < 0 {
			return v, malformed
		}
		if idx >= 0 {
			prev = idx
			f := &p.fields[idx]
			if f.key >= 0 {
				if r.keySpans[f.key].end != 0 {
					r.failCol = f.name
					return v, twice
				}
				r.keySpans[f.key] = span{v, end}
			}
			if f.col >= 0 && f.col == r.orderCol {
				r.rowOrder = span{v, end}
			}
		}
		at, more := next(b, end)
		if at < 0 {
			return end, malformed
		}
		if i = at; !more {
			return i, okay
		}
	}
}

// hasKey says whether every key column was named, and none was null.
func (r *reader) hasKey(b []byte) bool {
	for _, s := range r.keySpans {
		if s.end == 0 || b[s.at] == 'n' {
			return false
		}
	}
	return len(r.keySpans) > 0
}

// putKey appends the key columns, read before by scan, to cols. which gives
// the place in cols of the key's k-th column.
func (r *reader) putKey(p *plan, cols []rows.Column, which []int, b []byte) fail {
	for k, c := range r.keys {
		f := p.fieldOf(r.schema.Fields[c].Name)
		if why := r.putPart(f, &cols[which[k]], b, r.keySpans[k]); why != okay {
			r.failCol, r.failKey = r.schema.Fields[c].Name, true
			return why
		}
	}
	return okay
}

func (r *reader) putPart(f *field, c *rows.Column, b []byte, s span) fail {
	switch {
	case f == nil || s.end == 0:
		return absent
	case b[s.at] == 'n':
		return isNull
	}
	_, why := r.value(c, f, b, s.at)
	return why
}

func (p *plan) fieldOf(name string) *field {
	if i, ok := p.byName[name]; ok {
		return &p.fields[i]
	}
	return nil
}

// pick reads the value at b[i] and takes the whole number at path inside it
// as the order value. A missing one or null leaves none.
func (r *reader) pick(path []string, b []byte, i int) (int, fail) {
	if len(path) > 0 {
		if b[i] != '{' {
			end := skipValue(b, i)
			if end < 0 {
				return i, malformed
			}
			return end, okay
		}
		i = skipSpace(b, i+1)
		if i < len(b) && b[i] == '}' {
			return i + 1, okay
		}
		for {
			name, v := member(b, i, &r.name)
			if v < 0 {
				return i, malformed
			}
			var end int
			if string(name) == path[0] {
				var why fail
				if end, why = r.pick(path[1:], b, v); why != okay {
					return end, why
				}
			} else if end = skipValue(b, v); end < 0 {
				return v, malformed
			}
			at, more := next(b, end)
			if at < 0 {
				return end, malformed
			}
			if i = at; !more {
				return i, okay
			}
		}
	}
	if r.hasOrder {
		return i, twice
	}
	var v int64
	var end int
	var why fail
	switch b[i] {
	case 'n':
		return word(b, i, "null")
	case '"':
		// Oracle's scn and some others are whole numbers kept as text.
		var s []byte
		if s, end, why = r.text(b, i); why != okay {
			return end, why
		}
		var n int
		if v, n, why = parseInt(s, 0); why != okay || n != len(s) {
			return end, badText
		}
	default:
		if v, end, why = wholeNumber(b, i); why != okay {
			return r.odd(b, i, why)
		}
	}
	r.order, r.hasOrder = v, true
	return end, okay
}

// orderPathReject names the path rather than a column.
func (r *reader) orderReject(f fail, kind Kind) *Reject {
	if f == malformed {
		return f.reject(kind, "", false)
	}
	return Rejectf(kind, "order", "the value at %s is no whole number of 64 bits", strings.Join(r.orderAt, "."))
}

// rowReject is the Reject of a fail that row, scan or putKey gave.
func (r *reader) rowReject(f fail, kind Kind) *Reject {
	return f.reject(kind, r.failCol, r.failKey)
}
