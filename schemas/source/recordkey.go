package source

import (
	"unicode/utf8"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/rows"
)

// keyed is a record key that was read: the text that the key spans point
// into, and the plan that reads them.
type keyed struct {
	text []byte
	plan *plan
}

// recordKey reads a record's key: a JSON object, with or without {schema,
// payload}, or one scalar when the table's key is one column. It leaves the
// values' places in keySpans.
func (r *reader) recordKey(key []byte, kind Kind) (keyed, *Reject) {
	for k := range r.keySpans {
		r.keySpans[k] = span{}
	}
	if key == nil {
		return keyed{}, Rejectf(kind, "key", "the record key is null, and the key is nowhere else")
	}
	b := stripFraming(key)
	i := skipSpace(b, 0)
	k := keyed{text: b, plan: r.bare}
	w := wrapped{}
	if i < len(b) && b[i] == '{' && r.isWrapped(b, i) && !r.keyNamed("schema") && !r.keyNamed("payload") {
		var j *Reject
		w, j = r.keyPlans.unwrap(r, b, i, r.bare, r.keyPlan)
		if j != nil {
			j.Kind = kind
			return k, j
		}
		i, k.plan = w.at, w.plan
	}
	switch {
	case i < len(b) && b[i] == '{':
		end, why := r.scan(k.plan, b, i)
		if why == okay && !w.closes(b, end) {
			why = malformed
		}
		if why != okay {
			return k, keyReject(why, kind, r.failCol)
		}
		return k, nil
	case len(r.keys) != 1:
		return k, Rejectf(kind, "key", "the record key is no JSON object, and the table's key has %d columns", len(r.keys))
	}
	end := -1
	if i < len(b) && b[i] != '[' {
		end = skipValue(b, i)
	}
	if end >= 0 && w.closes(b, end) && !r.plainText(b[i:end]) {
		r.keySpans[0] = span{i, end}
		return k, nil
	}
	// Text that is no JSON: what a StringSerializer writes.
	if w.plan != nil || !r.keyIsText() || len(b) == 0 || !utf8.Valid(b) {
		return k, Rejectf(kind, "key", "the record key is no JSON value that fits the key column")
	}
	r.quoted = schemas.AppendJSONString(r.quoted[:0], string(b))
	k.text = r.quoted
	r.keySpans[0] = span{0, len(r.quoted)}
	return k, nil
}

func keyReject(why fail, kind Kind, column string) *Reject {
	j := why.reject(kind, column, true)
	j.Reason = "record key: " + j.Reason
	return j
}

// keyIsText says whether the table's one key column takes text.
func (r *reader) keyIsText() bool {
	switch r.schema.Fields[r.keys[0]].Type.Kind {
	case schemas.String, schemas.UUID, schemas.Date, schemas.Timestamp, schemas.TimestampTz,
		schemas.TimestampNs, schemas.TimestampTzNs, schemas.Time:
		return true
	}
	return false
}

// plainText says that v, though it passes for JSON, is text for the key's
// column: a text column takes 123 and true as they stand.
func (r *reader) plainText(v []byte) bool {
	return r.keyIsText() && v[0] != '"' && string(v) != "null"
}

func (r *reader) keyNamed(name string) bool {
	for _, c := range r.keys {
		if r.schema.Fields[c].Name == name {
			return true
		}
	}
	return false
}

// keyPlan makes the plan for keys of a Connect schema.
func (r *reader) keyPlan(text []byte) (*plan, *Reject) {
	s, err := parseConnect(text)
	if err != nil {
		return nil, Rejectf(KindUnknown, "malformed", "the record key's schema is no Kafka Connect schema")
	}
	if s == nil {
		return nil, nil
	}
	if s.Type != "struct" && len(r.keys) == 1 {
		// A scalar: the schema is the key column's.
		one := *s
		one.Field = r.schema.Fields[r.keys[0]].Name
		s = &connectSchema{Type: "struct", Fields: []connectSchema{one}}
	}
	p := r.compile(s)
	p.change, p.refuse = nil, nil // fields that are no key columns do not matter here
	return p, nil
}

// putRecordKey appends the whole key from the record's key.
func (r *reader) putRecordKey(rec *Record, cols []rows.Column, kind Kind) error {
	if r.framedKey != nil && rec.Key != nil {
		if read, err := r.framedKey(rec, cols, cols[r.keys[0]].Len(), kind); read {
			return err
		}
	}
	k, j := r.recordKey(rec.Key, kind)
	if j != nil {
		return j
	}
	if k.plan.keyChange != nil {
		return k.plan.keyChange
	}
	if why := r.putKey(k.plan, cols, r.keys, k.text); why != okay {
		return keyReject(why, kind, r.failCol)
	}
	return nil
}

// fillKey appends the key columns that a row did not name from the record's key.
func (r *reader) fillKey(rec *Record, cols []rows.Column, base int, kind Kind) error {
	missing := -1
	for _, c := range r.keys {
		if cols[c].Len() == base {
			missing = c
			break
		}
	}
	if missing < 0 {
		return nil
	}
	if rec.Key == nil {
		return Rejectf(kind, "key", "column %q: a key column is absent from the event, and the record key is null",
			r.schema.Fields[missing].Name)
	}
	if r.framedKey != nil {
		absent := 0
		for _, c := range r.keys {
			if cols[c].Len() == base {
				absent++
			}
		}
		if read, err := r.framedKey(rec, cols, base, kind); read {
			r.count += absent
			return err
		}
	}
	k, j := r.recordKey(rec.Key, kind)
	if j != nil {
		return j
	}
	if k.plan.keyChange != nil {
		return k.plan.keyChange
	}
	for n, c := range r.keys {
		if cols[c].Len() != base {
			continue
		}
		name := r.schema.Fields[c].Name
		if why := r.putPart(k.plan.fieldOf(name), &cols[c], k.text, r.keySpans[n]); why != okay {
			return keyReject(why, kind, name)
		}
		r.count++
	}
	return nil
}
