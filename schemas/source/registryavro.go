package source

import (
	"errors"
	"fmt"

	"github.com/varve-io/varve/schemas/rows"
)

// registryAvro decodes Avro values and keys whose writer's schema a registry
// has: Debezium's envelopes (debezium-avro) or plain rows (rows-avro).
// Writers' fields are found by name.
type registryAvro struct {
	*reader
	envelope bool
	registry SchemaSource
	values   writers[avroWriter]
	keyed    writers[avroKeyWriter]
	bareKey  bool // of the record decoded last: its key's framing is in a header
}

// maxWriters bounds the writers' schemas remembered of values and of keys.
const maxWriters = 256

// writers remembers what was made of writers' schemas.
type writers[T any] struct {
	last   *T
	lastID SchemaRef
	known  map[SchemaRef]*T
}

func (w *writers[T]) get(ref SchemaRef, make func(SchemaRef) (*T, error)) (*T, error) {
	if w.last != nil && w.lastID == ref {
		return w.last, nil
	}
	t, ok := w.known[ref]
	if !ok {
		var err error
		if t, err = make(ref); err != nil {
			return nil, err
		}
		if w.known == nil || len(w.known) >= maxWriters {
			w.known = map[SchemaRef]*T{}
		}
		w.known[ref] = t
	}
	w.last, w.lastID = t, ref
	return t, nil
}

// avroWriter is what was made of a value's schema.
type avroWriter struct {
	refuse  *Reject
	typ     *avroType
	control bool // every event is a control record
	members []envelopeMember
	row     *plan // of the row itself, or of after's rows
	rowType *avroType
	// before's rows, when their type is another one
	before     *plan
	beforeType *avroType
}

type envelopeMember struct {
	kind memberKind
	path []string // pathMember: what is below it
}

func newRegistryAvro(o Options, set *settings) (*registryAvro, error) {
	r, err := newReader(o, set, o.Format == RowsAvro)
	if err != nil {
		return nil, err
	}
	d := &registryAvro{reader: r, envelope: o.Format == DebeziumAvro, registry: o.Registry}
	if d.envelope && len(r.orderAt) > 0 {
		switch r.orderAt[0] {
		case "before", "after", "op":
			return nil, fmt.Errorf("table %s: order path %q is inside the row; name the column as the ordering column instead",
				o.Def.Name, o.Def.Order.Path)
		}
	}
	return d, nil
}

// Framing of a key in a registry's framing is its header's: the schema decides
// the body's bytes. A key whose framing stands in a record header has one of
// its own, whatever its first bytes look like. Other keys are JSON or text, as
// in the other formats.
func (d *registryAvro) Framing(key []byte) uint64 {
	if d.bareKey {
		return mix(hashStart, []byte(keySchemaHeader))
	}
	if _, n := readRef(key); n > 0 {
		return max(mix(hashStart, key[:n]), 1)
	}
	return d.reader.Framing(key)
}

// fetch gets a writer's schema. A Reject says that there is none to be had: that
// is not remembered here, for it may be registered later.
func (d *registryAvro) fetch(ref SchemaRef) (WriterSchema, error) { return schemaOf(d.registry, ref) }

func schemaOf(registry SchemaSource, ref SchemaRef) (WriterSchema, error) {
	if registry == nil {
		return WriterSchema{}, fmt.Errorf("%w: none is configured; name it with --schema-registry", ErrAway)
	}
	w, err := registry.WriterSchema(ref)
	switch {
	case err == nil:
		return w, nil
	case errors.Is(err, ErrNoSchema):
		return w, Rejectf(KindUnknown, "schema", "the schema registry has no %s", ref)
	case errors.Is(err, ErrAway):
		return w, err
	}
	return w, fmt.Errorf("%w: %w", ErrAway, err)
}

func (d *registryAvro) makeWriter(ref SchemaRef) (*avroWriter, error) {
	s, err := d.fetch(ref)
	if err != nil {
		return nil, err
	}
	return d.compileWriter(s, ref), nil
}

func (d *registryAvro) compileWriter(s WriterSchema, ref SchemaRef) *avroWriter {
	w := &avroWriter{}
	if s.Type != TypeAvro {
		w.refuse = Rejectf(KindUnknown, "schema", "%s is of type %s, and the table's format reads Avro", ref, typeName(s.Type))
		return w
	}
	t, err := parseWriter(s)
	if err != nil {
		w.refuse = Rejectf(KindUnknown, "schema", "%s is no Avro schema", ref)
		return w
	}
	if t = t.plain(); t.kind != avroRecord {
		w.refuse = Rejectf(KindUnknown, "schema", "%s is no record", ref)
		return w
	}
	w.typ = t
	if !d.envelope {
		w.row, w.rowType = d.compile(t.row()), t
		return w
	}
	d.compileEnvelope(w)
	return w
}

// typeName keeps what a registry calls a type out of reasons unless it is known.
func typeName(t string) string {
	switch t {
	case TypeAvro, TypeJSON, TypeProtobuf:
		return t
	}
	return "another kind"
}

func (d *registryAvro) compileEnvelope(w *avroWriter) {
	hasOp, control := false, len(w.typ.fields) == 1 && w.typ.fields[0].name == "ts_ms"
	for k := range w.typ.fields {
		f := &w.typ.fields[k]
		m := envelopeMember{}
		switch f.name {
		case "before", "after":
			m.kind = beforeMember
			if f.name == "after" {
				m.kind = afterMember
			}
			t := f.typ.plain()
			if t.kind != avroRecord {
				if f.typ.kind != avroNull {
					w.refuse = Rejectf(KindUnknown, "schema", "the schema's %s is no record", f.name)
				}
				m.kind = other
				break
			}
			p := w.row
			if t != w.rowType && t != w.beforeType {
				p = d.compile(t.row())
			}
			if m.kind == afterMember || w.row == nil {
				if w.row != nil && t != w.rowType {
					w.before, w.beforeType = w.row, w.rowType
				}
				w.row, w.rowType = p, t
			} else {
				w.before, w.beforeType = p, t
			}
		case "op":
			m.kind, hasOp = opMember, true
			if f.typ.plain().kind != avroString && f.typ.plain().kind != avroEnum {
				w.refuse = Rejectf(KindUnknown, "schema", "the schema's op is no text")
			}
		case "ddl", "databaseName", "tableChanges", "status", "event_count", "data_collections", "message":
			control = true
		}
		if len(d.orderAt) > 0 && f.name == d.orderAt[0] {
			m.kind, m.path = pathMember, d.orderAt[1:]
		}
		w.members = append(w.members, m)
	}
	switch {
	case w.refuse != nil || hasOp && w.row != nil:
	case control && w.row == nil:
		w.control = true
	case !hasOp:
		w.refuse = Rejectf(KindUnknown, "malformed", "the event has no op; flattened events are read by format %s", RowsAvro)
	default:
		w.refuse = Rejectf(KindUnknown, "schema", "the schema has no record before or after")
	}
}

func (d *registryAvro) Decode(dst *rows.Batch, rec *Record) (Result, error) {
	n := dst.Len()
	res, err := d.decode(dst, rec)
	if err != nil || res.Events == 0 {
		dst.Truncate(n)
	}
	return res, err
}

func (d *registryAvro) decode(dst *rows.Batch, rec *Record) (Result, error) {
	d.hasOrder, d.order = false, 0
	d.bareKey = false
	for i := range rec.Headers {
		d.bareKey = d.bareKey || rec.Headers[i].Key == keySchemaHeader
	}
	if rec.Value == nil {
		if len(d.keys) == 0 {
			return Result{}, noKey()
		}
		return d.deleteByRecordKey(dst, rec, 0, false)
	}
	if len(rec.Value) > d.set.maxBytes {
		return Result{}, Rejectf(KindUnknown, "too-large", "the record has more than %d bytes (max.record.bytes)", d.set.maxBytes)
	}
	ref, b, ok := framed(rec, valueSchemaHeader, rec.Value, d.set.schemaID)
	if !ok {
		return Result{}, Rejectf(KindUnknown, "malformed", "the value has no schema registry's framing (00 and an id, 01 and a GUID, or a header); "+
			"name the schema of bare values with schema.id")
	}
	if len(b) == 0 {
		return Result{}, illAvro(KindUnknown)
	}
	w, err := d.values.get(ref, d.makeWriter)
	switch {
	case err != nil:
		return Result{}, err
	case w.refuse != nil:
		j := *w.refuse
		return Result{}, &j
	case w.control:
		if w.typ.skip(b, 0, 0) != len(b) {
			return Result{}, illAvro(KindUnknown)
		}
		return Result{Control: true}, nil
	case d.envelope:
		return d.event(dst, rec, b, w)
	}
	return d.plainRow(dst, rec, b, w)
}

func illAvro(kind Kind) *Reject { return Rejectf(kind, "malformed", "ill-formed Avro") }

// avroReject is rowReject, or of ill-formed bytes where what follows is.
func (r *reader) avroReject(why fail, kind Kind, t *avroType, b []byte) *Reject {
	if why == malformed || t.skip(b, 0, 0) != len(b) {
		return illAvro(kind) // a cut record says nothing for sure
	}
	return r.rowReject(why, kind)
}

// event reads an envelope in one pass; after goes straight into dst.
func (d *registryAvro) event(dst *rows.Batch, rec *Record, b []byte, w *avroWriter) (Result, error) {
	base := dst.Len()
	d.begin()
	before, after, op := nowhere, nowhere, byte(0)
	i := 0
	var late fail // what was wrong with after's row: a delete does not mind
	var lateCol string
	var lateKey bool
	for k := range w.members {
		m := &w.members[k]
		t := w.typ.fields[k].typ
		switch m.kind {
		case afterMember, beforeMember:
			v, from := avroBranch(t, b, i)
			if from < 0 {
				return Result{}, illAvro(KindUnknown)
			}
			if i = from; v == nil {
				continue
			}
			if m.kind == beforeMember {
				before = from
			} else {
				after = from
				if w.row.change == nil && w.row.refuse == nil {
					end, why := d.avroRow(w.row, v, dst.Cols, b, from)
					if why == okay {
						i = end
						continue
					}
					late, lateCol, lateKey = why, d.failCol, d.failKey
				}
			}
			i = v.skip(b, from, 0)
		case opMember:
			v, from := avroBranch(t, b, i)
			if from < 0 {
				return Result{}, illAvro(KindUnknown)
			}
			if i = from; v == nil {
				continue
			}
			if i = v.skip(b, from, 0); i < 0 {
				return Result{}, illAvro(KindUnknown)
			}
			op = opLetter(v, b, from, i)
		case pathMember:
			end, why := d.avroPick(m.path, t, b, i)
			if why != okay {
				if why == malformed || w.typ.skip(b, 0, 0) != len(b) {
					return Result{}, illAvro(KindUnknown)
				}
				return Result{}, d.orderReject(why, KindUnknown)
			}
			i = end
		default:
			i = t.skip(b, i, 0)
		}
		if i < 0 {
			return Result{}, illAvro(KindUnknown)
		}
	}
	if i != len(b) {
		return Result{}, illAvro(KindUnknown)
	}
	switch op {
	case 'c', 'r', 'u':
		if after == nowhere {
			return Result{}, Rejectf(KindUpsert, "malformed", "the event has no row in after")
		}
		if w.row.refuse != nil || w.row.change != nil || late != okay {
			switch {
			case isAvroSignal(w.rowType, b, after):
				return Result{Control: true}, nil
			case w.row.refuse != nil:
				j := *w.row.refuse
				j.Kind = KindUpsert
				return Result{}, &j
			case w.row.change != nil:
				return Result{}, w.row.change
			}
			d.failCol, d.failKey = lateCol, lateKey
			return Result{}, d.rowReject(late, KindUpsert)
		}
		return d.upsert(dst, rec, b, w, base, before, after, op)
	case 'd':
		dst.Truncate(base)
		return d.delete(dst, rec, b, w, before)
	case 'm':
		return Result{Control: true}, nil
	case 't':
		return Result{}, truncateRefused()
	}
	return Result{}, Rejectf(KindUnknown, "unsupported-op", "the event's op is none of c, r, u, d, t, m")
}

// opLetter is the operation's letter, '?' for anything else.
func opLetter(t *avroType, b []byte, from, end int) byte {
	if t.kind == avroEnum {
		if n, _ := varint(b, from); len(t.symbols[n]) == 1 {
			return t.symbols[n][0]
		}
		return '?'
	}
	if end-from == 2 {
		return b[from+1]
	}
	return '?'
}

func (d *registryAvro) upsert(dst *rows.Batch, rec *Record, b []byte, w *avroWriter, base, before, after int, op byte) (Result, error) {
	if err := d.fillAvroKey(rec, dst.Cols, base, KindUpsert); err != nil {
		return Result{}, err
	}
	if why := d.complete(dst.Cols, base); why != okay {
		return Result{}, d.rowReject(why, KindUpsert)
	}
	events, moved := 1, false
	if op == 'u' && before >= 0 && len(d.keys) > 0 {
		p, t := w.beforeRow()
		_, _, whole, _, why := d.avroKeyOf(p, t, b, before)
		if why != okay {
			j := d.rowReject(why, KindUpsert)
			j.Reason = "before: " + j.Reason
			return Result{}, j
		}
		for k, c := range d.keys {
			moved = moved || whole && !sameValue(&d.image[k], 0, &dst.Cols[c], base)
		}
		if moved {
			// The old key's delete stands before the row.
			order, has := d.orderOf(dst)
			dst.Truncate(base)
			for k, c := range d.keys {
				copyValue(&dst.Cols[c], &d.image[k])
			}
			dst.AppendEvent(rows.Delete, rec.Offset, order, has)
			events = 2
			d.begin()
			if _, why := d.avroRow(w.row, w.rowType, dst.Cols, b, after); why != okay {
				return Result{}, d.rowReject(why, KindUpsert)
			}
			if err := d.fillAvroKey(rec, dst.Cols, base+1, KindUpsert); err != nil {
				return Result{}, err
			}
			if why := d.complete(dst.Cols, base+1); why != okay {
				return Result{}, d.rowReject(why, KindUpsert)
			}
		}
	}
	order, has := d.orderOf(dst)
	d.upserted(dst, rec, order, has, moved || len(d.carried) > 0 && d.headerKey(rec))
	return Result{Events: events}, nil
}

// beforeRow is the plan and type of before's rows.
func (w *avroWriter) beforeRow() (*plan, *avroType) {
	if w.before != nil {
		return w.before, w.beforeType
	}
	return w.row, w.rowType
}

// delete takes the key from before, or else from the record key.
func (d *registryAvro) delete(dst *rows.Batch, rec *Record, b []byte, w *avroWriter, before int) (Result, error) {
	if len(d.keys) == 0 {
		return Result{}, noKey()
	}
	if before < 0 {
		return d.deleteByRecordKey(dst, rec, d.order, d.hasOrder)
	}
	p, t := w.beforeRow()
	return d.deleteImage(dst, rec, b, p, t, before)
}

// deleteImage deletes by the key in the record at b[at], or else by the
// record's own.
func (d *registryAvro) deleteImage(dst *rows.Batch, rec *Record, b []byte, p *plan, t *avroType, at int) (Result, error) {
	if p.keyChange != nil {
		return Result{}, p.keyChange
	}
	order, has := d.order, d.hasOrder
	rowOrder, rowHas, whole, _, why := d.avroKeyOf(p, t, b, at)
	if why != okay {
		return Result{}, d.rowReject(why, KindDelete)
	}
	if d.orderCol >= 0 {
		order, has = rowOrder, rowHas
	}
	if !whole || d.set.recordKey {
		return d.deleteByRecordKey(dst, rec, order, has)
	}
	for k, c := range d.keys {
		copyValue(&dst.Cols[c], &d.image[k])
	}
	dst.AppendEvent(rows.Delete, rec.Offset, order, has)
	return Result{Events: 1}, nil
}

func (d *registryAvro) deleteByRecordKey(dst *rows.Batch, rec *Record, order int64, has bool) (Result, error) {
	if err := d.recordKeyInto(rec, dst.Cols, dst.Len(), KindDelete); err != nil {
		return Result{}, err
	}
	dst.AppendEvent(rows.Delete, rec.Offset, order, has)
	return Result{Events: 1}, nil
}

// plainRow decodes a row without an envelope.
func (d *registryAvro) plainRow(dst *rows.Batch, rec *Record, b []byte, w *avroWriter) (Result, error) {
	base := dst.Len()
	d.begin()
	if len(d.orderAt) > 0 {
		if _, why := d.avroPick(d.orderAt, w.typ, b, 0); why != okay {
			if why == malformed || w.typ.skip(b, 0, 0) != len(b) {
				return Result{}, illAvro(KindUnknown)
			}
			return Result{}, d.orderReject(why, KindUpsert)
		}
	}
	p := w.row
	if p.change != nil || p.refuse != nil || p.flagged() {
		if w.typ.skip(b, 0, 0) != len(b) {
			return Result{}, illAvro(KindUnknown)
		}
		deleted, why := d.flags(p, w.typ, b)
		switch {
		case why != okay:
			return Result{}, d.rowReject(why, KindUnknown)
		case deleted && len(d.keys) == 0:
			return Result{}, noKey()
		case deleted:
			return d.deleteImage(dst, rec, b, p, w.typ, 0)
		case p.refuse != nil:
			j := *p.refuse
			j.Kind = KindUpsert
			return Result{}, &j
		case p.change != nil:
			return Result{}, p.change
		}
	}
	end, why := d.avroRow(p, w.typ, dst.Cols, b, 0)
	switch {
	case why != okay:
		return Result{}, d.avroReject(why, KindUpsert, w.typ, b)
	case end != len(b):
		return Result{}, illAvro(KindUpsert)
	}
	if d.set.recordKey {
		for _, c := range d.keys {
			dst.Cols[c].Truncate(base)
		}
	}
	if err := d.fillAvroKey(rec, dst.Cols, base, KindUpsert); err != nil {
		return Result{}, err
	}
	if why := d.complete(dst.Cols, base); why != okay {
		return Result{}, d.rowReject(why, KindUpsert)
	}
	order, has := d.orderOf(dst)
	d.upserted(dst, rec, order, has, len(d.carried) > 0 && d.headerKey(rec))
	return Result{Events: 1}, nil
}

// flagged says whether rows carry the flattened form's own members.
func (p *plan) flagged() bool {
	for i := range p.fields {
		if o := p.fields[i].op; p.fields[i].col < 0 && (o == opDeleted || o == opFlatOp || o == opFlatChange) {
			return true
		}
	}
	return false
}

// flags says whether a well-formed row's own members make it a delete.
func (r *reader) flags(p *plan, t *avroType, b []byte) (bool, fail) {
	r.deleted = false
	i := 0
	for k := range t.fields {
		f := &p.fields[k]
		if f.col < 0 && (f.op == opDeleted || f.op == opFlatOp || f.op == opFlatChange) {
			if why := r.avroFlag(f, t.fields[k].typ, b, i); why != okay {
				r.failCol, r.failKey = f.name, false
				return false, why
			}
		}
		i = t.fields[k].typ.skip(b, i, 0)
	}
	return r.deleted, okay
}

// isAvroSignal says whether a row is one of Debezium's signals.
func isAvroSignal(t *avroType, b []byte, i int) bool {
	known := false
	for k := range t.fields {
		f := &t.fields[k]
		v, at := avroBranch(f.typ, b, i)
		if at < 0 {
			return false
		}
		end := at
		if v != nil {
			if end = v.skip(b, at, 0); end < 0 {
				return false
			}
		}
		switch f.name {
		case "id", "data", "ID", "DATA":
		case "type", "TYPE":
			if v == nil || v.kind != avroString {
				return false
			}
			_, from := varint(b, at)
			known = signals[string(b[from:end])]
		default:
			return false
		}
		i = end
	}
	return known
}

// avroRows is the Connect schema of the rows in events of a writer's schema,
// nil for control records.
func avroRows(format string, s WriterSchema) (*connectSchema, error) {
	t, err := parseWriter(s)
	if err != nil {
		return nil, err
	}
	if t = t.plain(); t.kind != avroRecord {
		return nil, nil
	}
	if format == DebeziumAvro {
		for _, name := range [...]string{"after", "before"} {
			if i := t.field(name); i >= 0 && t.fields[i].typ.plain().kind == avroRecord {
				return t.fields[i].typ.plain().row(), nil
			}
		}
		return nil, nil
	}
	return t.row(), nil
}
