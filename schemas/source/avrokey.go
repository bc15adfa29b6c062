package source

import (
	"errors"

	"github.com/varve-io/varve/schemas/rows"
)

// avroKeyWriter is what was made of a key's schema.
type avroKeyWriter struct {
	refuse *Reject
	json   bool // JSON text behind the framing
	typ    *avroType
	plan   *plan
	scalar bool
}

// fillAvroKey appends the key columns that a row did not name.
func (d *registryAvro) fillAvroKey(rec *Record, cols []rows.Column, base int, kind Kind) error {
	for _, c := range d.keys {
		if cols[c].Len() == base {
			if rec.Key == nil {
				return Rejectf(kind, "key", "column %q: a key column is absent from the event, and the record key is null", d.schema.Fields[c].Name)
			}
			return d.recordKeyInto(rec, cols, base, kind)
		}
	}
	return nil
}

// recordKeyInto appends the key columns that have no value yet from the
// record's key: Avro behind a framing, else JSON or text.
func (d *registryAvro) recordKeyInto(rec *Record, cols []rows.Column, base int, kind Kind) error {
	ref, b, ok := framed(rec, keySchemaHeader, rec.Key, -1)
	if !ok {
		return d.fillKey(rec, cols, base, kind)
	}
	w, err := d.keyed.get(ref, d.makeKeyWriter)
	var missing *Reject
	switch {
	case errors.As(err, &missing):
		return Rejectf(kind, missing.Code, "record key: %s", missing.Reason)
	case err != nil:
		return err
	case w.refuse != nil:
		j := *w.refuse
		j.Kind = kind
		return &j
	case w.json:
		return d.fillKey(rec, cols, base, kind)
	case w.plan.keyChange != nil:
		return w.plan.keyChange
	}
	end := 0
	whole := false
	why := okay
	if w.scalar {
		for k := range d.image {
			d.image[k].Truncate(0)
		}
		v, at := avroBranch(w.typ, b, 0)
		switch {
		case at < 0:
			why = malformed
		case v == nil:
			why = isNull
		default:
			end, why = d.avroPut(&d.image[0], &w.plan.fields[0], v, b, at)
		}
		d.failCol, whole = d.schema.Fields[d.keys[0]].Name, true
	} else {
		_, _, whole, end, why = d.avroKeyOf(w.plan, w.typ, b, 0)
	}
	if why == okay && end != len(b) {
		why = malformed
	}
	if why == malformed {
		return Rejectf(kind, "key", "record key: ill-formed Avro")
	}
	if why != okay {
		return keyReject(why, kind, d.failCol)
	}
	for k, c := range d.keys {
		if cols[c].Len() > base {
			continue
		}
		if !whole && (d.image[k].Len() == 0 || d.image[k].IsNull(0)) {
			return keyReject(absent, kind, d.schema.Fields[c].Name)
		}
		copyValue(&cols[c], &d.image[k])
		d.count++
	}
	return nil
}

func (d *registryAvro) makeKeyWriter(ref SchemaRef) (*avroKeyWriter, error) {
	s, err := d.fetch(ref)
	if err != nil {
		return nil, err
	}
	w := &avroKeyWriter{}
	if s.Type == TypeJSON {
		w.json = true
		return w, nil
	}
	if s.Type != TypeAvro {
		w.refuse = Rejectf(KindUnknown, "key", "record key: %s is of type %s, and the table's format reads Avro and JSON", ref, typeName(s.Type))
		return w, nil
	}
	t, perr := parseWriter(s)
	if perr != nil {
		w.refuse = Rejectf(KindUnknown, "key", "record key: %s is no Avro schema", ref)
		return w, nil
	}
	w.typ = t
	var row *connectSchema
	switch p := t.plain(); {
	case p.kind == avroRecord && t.kind == avroRecord:
		row = t.row()
	case len(d.keys) == 1 && p.kind != avroRecord:
		w.scalar = true
		row = &connectSchema{Type: "struct", Fields: []connectSchema{t.connect(d.schema.Fields[d.keys[0]].Name, nil)}}
	default:
		w.refuse = Rejectf(KindUnknown, "key", "record key: %s is no record, and the table's key has %d columns", ref, len(d.keys))
		return w, nil
	}
	w.plan = d.compile(row)
	return w, nil
}
