package source

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/rows"
)

// registryProto decodes plain rows and keys in Protobuf whose writer's schema a
// registry has. Fields are found by name; a field without presence that is absent
// is its type's zero, one with presence is absent.
type registryProto struct {
	*reader
	registry SchemaSource
	values   writers[protoWriter]
	keyed    writers[protoWriter]
	bareKey  bool // of the record decoded last: its key's framing is in a header
	path     []int32
	pathKey  []byte
	spans    []span
}

// protoWriter is what was made of a schema: the messages met of it.
type protoWriter struct {
	refuse   *Reject
	json     bool // JSON text behind the framing, of a key
	file     protoreflect.FileDescriptor
	messages map[string]*protoMessage
}

func newRegistryProto(o Options, set *settings) (*registryProto, error) {
	r, err := newReader(o, set, true)
	if err != nil {
		return nil, err
	}
	return &registryProto{reader: r, registry: o.Registry}, nil
}

// Framing of a key in a registry's framing is its header's, the message's path
// included.
func (d *registryProto) Framing(key []byte) uint64 {
	if d.bareKey {
		return mix(hashStart, []byte(keySchemaHeader))
	}
	if _, n := readRef(key); n > 0 {
		if _, k := protoPath(nil, key[n:]); k > 0 {
			return max(mix(hashStart, key[:n+k]), 1)
		}
	}
	return d.reader.Framing(key)
}

func (d *registryProto) makeWriter(ref SchemaRef) (*protoWriter, error) {
	if d.registry == nil {
		return nil, fmt.Errorf("%w: none is configured; name it with --schema-registry", ErrAway)
	}
	s, err := d.registry.WriterSchema(ref)
	w := &protoWriter{messages: map[string]*protoMessage{}}
	switch {
	case errors.Is(err, ErrNoSchema):
		w.refuse = Rejectf(KindUnknown, "schema", "the schema registry has no %s", ref)
	case errors.Is(err, ErrAway):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrAway, err)
	case s.Type == TypeJSON:
		w.json = true
	case s.Type != TypeProtobuf:
		w.refuse = Rejectf(KindUnknown, "schema", "%s is of type %s, and the table's format reads Protobuf", ref, typeName(s.Type))
	default:
		if w.file, err = compileProto(s); err != nil {
			w.refuse = Rejectf(KindUnknown, "schema", "%s is no Protobuf schema that stands by itself and its references", ref)
		}
	}
	return w, nil
}

// message finds the message of a value or key, and where its bytes begin.
func (d *registryProto) message(rec *Record, header string, b []byte, cache *writers[protoWriter], bare int32) (m *protoMessage, isJSON bool, body []byte, j *Reject, err error) {
	var ref SchemaRef
	var path []byte // not read yet
	found, named := false, false
	for i := range rec.Headers {
		if h := &rec.Headers[i]; h.Key == header {
			var n int
			if ref, n = readRef(h.Value); n > 0 {
				found, path, body = true, h.Value[n:], b
			}
			break
		}
	}
	switch {
	case found:
	case bare >= 0:
		ref, found, named, body = SchemaRef{ID: uint32(bare)}, true, true, b
	default:
		var n int
		if ref, n = readRef(b); n > 0 {
			found, path = true, b[n:]
		}
	}
	if !found {
		return nil, false, nil, nil, nil
	}
	w, err := cache.get(ref, d.makeWriter)
	switch {
	case err != nil:
		return nil, false, nil, nil, err
	case w.refuse != nil:
		return nil, false, nil, w.refuse, nil
	case w.json:
		return nil, true, nil, nil, nil
	}
	name := ""
	d.path, d.pathKey = append(d.path[:0], 0), append(d.pathKey[:0], "first"...)
	if named {
		name = d.set.message
	} else {
		var n int
		if d.path, n = protoPath(d.path, path); n == 0 {
			return nil, false, nil, Rejectf(KindUnknown, "malformed", "the framing does not say which message of the schema it is"), nil
		}
		if body == nil {
			body = path[n:]
		} else if n != len(path) {
			return nil, false, nil, Rejectf(KindUnknown, "malformed", "the header has more than a schema and a message"), nil
		}
		d.pathKey = append(d.pathKey[:0], path[:n]...)
	}
	m = w.messages[string(d.pathKey)]
	if m == nil {
		if len(w.messages) >= maxWriters {
			clear(w.messages)
		}
		m = d.protoMessageOf(ref, w.file, d.path, name)
		w.messages[string(d.pathKey)] = m
	}
	return m, false, body, m.refuse, nil
}

func (d *registryProto) Decode(dst *rows.Batch, rec *Record) (Result, error) {
	n := dst.Len()
	res, err := d.decode(dst, rec)
	if err != nil || res.Events == 0 {
		dst.Truncate(n)
	}
	return res, err
}

func illProto(kind Kind) *Reject { return Rejectf(kind, "malformed", "ill-formed Protobuf") }

func (d *registryProto) decode(dst *rows.Batch, rec *Record) (Result, error) {
	d.hasOrder, d.order = false, 0
	d.bareKey = false
	for i := range rec.Headers {
		d.bareKey = d.bareKey || rec.Headers[i].Key == keySchemaHeader
	}
	if rec.Value == nil {
		if len(d.keys) == 0 {
			return Result{}, noKey()
		}
		return d.deleteByRecordKey(dst, rec)
	}
	if len(rec.Value) > d.set.maxBytes {
		return Result{}, Rejectf(KindUnknown, "too-large", "the record has more than %d bytes (max.record.bytes)", d.set.maxBytes)
	}
	m, isJSON, b, refused, err := d.message(rec, valueSchemaHeader, rec.Value, &d.values, d.set.schemaID)
	switch {
	case err != nil:
		return Result{}, err
	case refused != nil:
		j := *refused
		return Result{}, &j
	case isJSON:
		return Result{}, Rejectf(KindUnknown, "schema", "the value's schema is of type %s, and the table's format reads Protobuf", TypeJSON)
	case m == nil:
		return Result{}, Rejectf(KindUnknown, "malformed", "the value has no schema registry's framing (00 and an id, 01 and a GUID, or a header); "+
			"name the schema of bare values with schema.id")
	}
	return d.row(dst, rec, m, b)
}

func (d *registryProto) row(dst *rows.Batch, rec *Record, m *protoMessage, b []byte) (Result, error) {
	d.begin()
	var why fail
	if d.spans, why = protoSpans(m, d.spans, b); why == malformed {
		return Result{}, illProto(KindUnknown)
	} else if why != okay {
		return Result{}, why.reject(KindUnknown, "", false)
	}
	if len(d.orderAt) > 0 {
		switch why := d.protoPick(m.desc, b); why {
		case okay:
		case malformed:
			return Result{}, illProto(KindUnknown)
		default:
			return Result{}, d.orderReject(why, KindUpsert)
		}
	}
	if m.plan.flagged() {
		deleted, why := d.protoFlags(m, b)
		switch {
		case why != okay:
			return Result{}, d.rowReject(why, KindUnknown)
		case deleted && len(d.keys) == 0:
			return Result{}, noKey()
		case deleted:
			return d.deleteRow(dst, rec, m, b)
		}
	}
	switch {
	case m.plan.refuse != nil:
		j := *m.plan.refuse
		j.Kind = KindUpsert
		return Result{}, &j
	case m.plan.change != nil:
		return Result{}, m.plan.change
	}
	base := dst.Len()
	for k := range m.fields {
		f, p := &m.plan.fields[k], &m.fields[k]
		s := d.spans[k]
		if f.col < 0 || f.key >= 0 && d.set.recordKey || s.end == 0 && p.presence {
			continue
		}
		c := &dst.Cols[f.col]
		if why := d.protoField(c, f, p, s, false, b); why != okay {
			if why == isUnavailable && d.carries(f) {
				c.AppendNull()
			} else {
				d.failCol, d.failKey = f.name+d.failPath, f.key >= 0
				if why == malformed {
					return Result{}, illProto(KindUpsert)
				}
				return Result{}, d.rowReject(why, KindUpsert)
			}
		}
		d.count++
	}
	if err := d.fillProtoKey(rec, dst.Cols, base, KindUpsert); err != nil {
		return Result{}, err
	}
	if why := d.complete(dst.Cols, base); why != okay {
		return Result{}, d.rowReject(why, KindUpsert)
	}
	order, has := d.orderOf(dst)
	d.upserted(dst, rec, order, has, len(d.carried) > 0 && d.headerKey(rec))
	return Result{Events: 1}, nil
}

// protoFlags says whether the flattened form's own members make a row a delete.
func (d *registryProto) protoFlags(m *protoMessage, b []byte) (deleted bool, why fail) {
	for k := range m.fields {
		f, p, s := &m.plan.fields[k], &m.fields[k], d.spans[k]
		if f.col >= 0 || s.end == 0 {
			continue
		}
		d.failCol, d.failKey = f.name, false
		v := b[s.at:s.end]
		switch f.op {
		case opDeleted:
			switch {
			case p.kind == protoreflect.BoolKind && p.well == notWellKnown:
				n, _ := protowire.ConsumeVarint(v)
				deleted = deleted || n != 0
			case p.kind != protoreflect.StringKind || p.well != notWellKnown:
				return false, wrongType
			case string(v) == "true":
				deleted = true
			case string(v) != "false" && len(v) != 0:
				return false, wrongType
			}
		case opFlatOp:
			if p.kind != protoreflect.StringKind || p.well != notWellKnown {
				return false, wrongType
			}
			deleted = deleted || string(v) == "d"
		case opFlatChange:
			md := m.desc.Fields().ByNumber(p.number).Message()
			if md == nil || p.repeated || p.well != notWellKnown {
				return false, wrongType
			}
			fd, op, why := protoFind(md, []string{"op"}, v)
			if why != okay {
				return false, why
			}
			if fd == nil || fd.Kind() != protoreflect.StringKind {
				return false, wrongType
			}
			switch string(op) {
			case "D", "d":
				deleted = true
			case "I", "U", "C", "R", "i", "u", "c", "r":
			default:
				return false, wrongType
			}
		}
	}
	return deleted, okay
}

// keyImage reads the key columns of a message into image. whole says that all are there.
func (d *registryProto) keyImage(m *protoMessage, b []byte) (whole bool, why fail) {
	for k := range d.image {
		d.image[k].Truncate(0)
	}
	for k := range m.fields {
		f, p, s := &m.plan.fields[k], &m.fields[k], d.spans[k]
		if f.key < 0 || s.end == 0 && p.presence {
			continue
		}
		if why := d.protoPut(&d.image[f.key], f, p, b[s.at:s.end]); why != okay {
			d.failCol, d.failKey = f.name, true
			return false, why
		}
	}
	whole = len(d.image) > 0
	for k := range d.image {
		whole = whole && d.image[k].Len() == 1 && !d.image[k].IsNull(0)
	}
	return whole, okay
}

// deleteRow deletes by the key that a row has, or else by the record's.
func (d *registryProto) deleteRow(dst *rows.Batch, rec *Record, m *protoMessage, b []byte) (Result, error) {
	if m.plan.keyChange != nil {
		return Result{}, m.plan.keyChange
	}
	whole, why := d.keyImage(m, b)
	if why != okay {
		return Result{}, d.rowReject(why, KindDelete)
	}
	order, has := d.order, d.hasOrder
	for k := range m.fields {
		if f := &m.plan.fields[k]; d.orderCol >= 0 && f.col == d.orderCol && d.spans[k].end != 0 {
			c := &d.oldest
			c.Truncate(0)
			if why := d.protoPut(c, f, &m.fields[k], b[d.spans[k].at:d.spans[k].end]); why == okay && !c.IsNull(0) && c.Ints[0] != 0 {
				order, has = c.Ints[0], true
			}
		}
	}
	if !whole || d.set.recordKey {
		if err := d.recordKeyInto(rec, dst.Cols, dst.Len(), KindDelete); err != nil {
			return Result{}, err
		}
	} else {
		for k, c := range d.keys {
			copyValue(&dst.Cols[c], &d.image[k])
		}
	}
	dst.AppendEvent(rows.Delete, rec.Offset, order, has)
	return Result{Events: 1}, nil
}

func (d *registryProto) deleteByRecordKey(dst *rows.Batch, rec *Record) (Result, error) {
	if err := d.recordKeyInto(rec, dst.Cols, dst.Len(), KindDelete); err != nil {
		return Result{}, err
	}
	dst.AppendEvent(rows.Delete, rec.Offset, 0, false)
	return Result{Events: 1}, nil
}

// fillProtoKey appends the key columns that a row did not name.
func (d *registryProto) fillProtoKey(rec *Record, cols []rows.Column, base int, kind Kind) error {
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
// record's key: Protobuf behind a framing, else JSON or text.
func (d *registryProto) recordKeyInto(rec *Record, cols []rows.Column, base int, kind Kind) error {
	m, isJSON, b, refused, err := d.message(rec, keySchemaHeader, rec.Key, &d.keyed, -1)
	switch {
	case err != nil:
		return err
	case refused != nil:
		return &Reject{Code: "key", Kind: kind, Reason: "record key: " + refused.Reason}
	case isJSON || m == nil:
		return d.fillKey(rec, cols, base, kind)
	case m.plan.keyChange != nil:
		return m.plan.keyChange
	}
	var why fail
	if d.spans, why = protoSpans(m, d.spans, b); why == okay {
		_, why = d.keyImage(m, b)
	}
	if why == malformed {
		return Rejectf(kind, "key", "record key: ill-formed Protobuf")
	}
	if why != okay {
		return keyReject(why, kind, d.failCol)
	}
	for k, c := range d.keys {
		if cols[c].Len() > base {
			continue
		}
		if d.image[k].Len() == 0 || d.image[k].IsNull(0) {
			return keyReject(absent, kind, d.schema.Fields[c].Name)
		}
		copyValue(&cols[c], &d.image[k])
		d.count++
	}
	return nil
}

// proto surveys a record's value, or its key, by its writer's schema.
func (v *survey) proto(registry SchemaSource, key bool, rec *Record) bool {
	d := registryProto{reader: &reader{set: v.set}, registry: registry}
	b, header, bare := rec.Value, valueSchemaHeader, v.set.schemaID
	if key {
		b, header, bare = rec.Key, keySchemaHeader, -1
	}
	if b == nil {
		return true
	}
	if registry == nil {
		if _, n := readRef(b); n == 0 && key {
			return v.key(b)
		}
		v.fail("the events' schemas are in a schema registry; name it with --schema-registry")
		return false
	}
	if v.protos == nil {
		v.protos = map[bool]*writers[protoWriter]{false: {}, true: {}}
	}
	d.schema = &schemas.Schema{}
	m, isJSON, _, refused, err := d.message(rec, header, b, v.protos[key], bare)
	switch {
	case err != nil:
		v.err = err
		return false
	case isJSON || m == nil && refused == nil:
		return key && v.key(b)
	case refused != nil:
		return false
	}
	if v.seen == nil {
		v.seen = map[*protoMessage]bool{}
	}
	if !v.seen[m] {
		v.seen[m] = true
		row, _ := protoRow(m.desc)
		v.fields(row)
	}
	return true
}
