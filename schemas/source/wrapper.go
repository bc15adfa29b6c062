package source

import "bytes"

// planCache remembers the plans of the schemas met. Records of one topic
// mostly repeat one schema letter by letter, in front of their payload: such
// a record is recognised by comparing bytes, and its schema is not read.
type planCache struct {
	prefix []byte // the last record up to its payload
	plan   *plan  // the plan of prefix's schema
	known  map[string]*plan
}

// maxPlans bounds the schemas remembered, maxSchemaText the bytes of each.
const (
	maxPlans      = 16
	maxSchemaText = 4 << 20
)

// wrapped is where a record's value proper lies, and its plan.
type wrapped struct {
	at   int
	plan *plan
	tail tail
}

// tail says what may follow the value.
type tail uint8

const (
	tailSpace   tail = iota // white space: there is no wrapper
	tailBrace               // the wrapper's brace
	tailChecked             // the whole wrapper was read before
)

// isWrapped says whether the object at b[i] looks like {schema, payload}: the
// first member has one of those names.
func (r *reader) isWrapped(b []byte, i int) bool {
	j := skipSpace(b, i+1)
	if j+1 >= len(b) || b[j+1] != 's' && b[j+1] != 'p' {
		return false
	}
	name, v := member(b, j, &r.name)
	return v >= 0 && (string(name) == "schema" || string(name) == "payload")
}

// unwrap finds the payload of the object at b[i]. make gives the plan for a
// schema's bytes; bare is the plan when there is none.
func (c *planCache) unwrap(r *reader, b []byte, i int, bare *plan, make func(schema []byte) (*plan, *Reject)) (w wrapped, j *Reject) {
	if n := len(c.prefix); n > 0 && len(b) > n && string(b[:n]) == string(c.prefix) {
		return wrapped{at: n, plan: c.plan, tail: tailBrace}, nil
	}
	broken := func() *Reject { return malformed.reject(KindUnknown, "", false) }
	var schema, payload span
	start := i
	i = skipSpace(b, i+1)
	for more := true; more; {
		name, v := member(b, i, &r.name)
		if v < 0 {
			return w, broken()
		}
		end := skipValue(b, v)
		if end < 0 {
			return w, broken()
		}
		switch string(name) {
		case "schema":
			if schema.end != 0 {
				return w, twice.reject(KindUnknown, "schema", false)
			}
			schema = span{v, end}
		case "payload":
			if payload.end != 0 {
				return w, twice.reject(KindUnknown, "payload", false)
			}
			payload = span{v, end}
		}
		at, again := next(b, end)
		if at < 0 {
			return w, broken()
		}
		i, more = at, again
	}
	if skipSpace(b, i) != len(b) {
		return w, broken()
	}
	if payload.end == 0 {
		return w, Rejectf(KindUnknown, "malformed", "the record has a schema but no payload")
	}
	w = wrapped{at: payload.at, plan: bare, tail: tailChecked}
	if schema.end == 0 {
		return w, nil
	}
	text := b[schema.at:schema.end]
	p, ok := c.known[string(text)]
	if !ok {
		if p, j = make(text); j != nil {
			return w, j
		}
		if p == nil {
			p = bare
		}
		if len(text) <= maxSchemaText {
			if c.known == nil || len(c.known) >= maxPlans {
				c.known = map[string]*plan{}
			}
			c.known[string(text)] = p
		}
	}
	w.plan = p
	if payload.at <= maxSchemaText && schema.at < payload.at && start == skipSpace(b, 0) {
		c.prefix = append(c.prefix[:0], b[:payload.at]...)
		c.plan = p
	}
	return w, nil
}

// closes says whether the record ends as it must after the value that ended before i.
func (w *wrapped) closes(b []byte, i int) bool {
	if w.tail == tailChecked {
		return true
	}
	i = skipSpace(b, i)
	if w.tail == tailBrace {
		if i >= len(b) || b[i] != '}' {
			return false
		}
		i = skipSpace(b, i+1)
	}
	return i == len(b)
}

// open finds the object that a record's value holds, in its {schema, payload}
// wrapper if mayWrap. A null value, bare or wrapped, is a delete by the record
// key. noun names the object in a refusal.
func (r *reader) open(rec *Record, mayWrap bool, makePlan func(schema []byte) (*plan, *Reject), noun string) (b []byte, w wrapped, deleted bool, refused *Reject) {
	if rec.Value == nil {
		return nil, w, true, nil
	}
	if len(rec.Value) > r.set.maxBytes {
		return nil, w, false, Rejectf(KindUnknown, "too-large", "the record has more than %d bytes (max.record.bytes)", r.set.maxBytes)
	}
	b = stripFraming(rec.Value)
	i := skipSpace(b, 0)
	if i >= len(b) {
		return nil, w, false, malformed.reject(KindUnknown, "", false)
	}
	if b[i] == 'n' && string(bytes.TrimSpace(b)) == "null" {
		return nil, w, true, nil
	}
	w = wrapped{at: i, plan: r.bare}
	if b[i] == '{' && mayWrap && r.isWrapped(b, i) {
		if w, refused = r.plans.unwrap(r, b, i, r.bare, makePlan); refused != nil {
			return nil, w, false, refused
		}
		if b[w.at] == 'n' {
			if end := scanWord(b, w.at, "null"); end < 0 || !w.closes(b, end) {
				return nil, w, false, malformed.reject(KindUnknown, "", false)
			}
			return nil, w, true, nil
		}
	}
	if b[w.at] != '{' {
		return nil, w, false, Rejectf(KindUnknown, "malformed", "the %s is no JSON object", noun)
	}
	return b, w, false, nil
}
