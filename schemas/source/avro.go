package source

import (
	"encoding/binary"
	"fmt"
	"math"
	"unicode/utf8"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/rows"
)

// avro decodes varve's own events.
type avro struct {
	*reader
	versions map[uint64]*writer
	last     *writer // the writer of lastPrint, the fingerprint met last
	print    uint64
	bare     *writer // framing=none
	path     bool    // the event's order is the ordering value

	nested, changed []byte // scratch
}

// writer is a version of the table's schema that events are written in.
type writer struct {
	id     int32
	fields []written
	stale  bool // it has columns or types that the decoder's schema has not
}

// written is one field of a writer's row.
type written struct {
	name     string
	kind     schemas.Kind
	length   int // fixed
	scale    int // decimal
	col      int // -1: dropped since
	key      bool
	required bool
	nest     *ownNest           // of a nested column
	change   *rows.NestedChange // from the writer's type of it, nil: none
}

const avroMagic = 0x01C3 // the first two bytes, little-endian

func newAvro(o Options, set *settings) (*avro, error) {
	r, err := newReader(o, set, false)
	if err != nil {
		return nil, err
	}
	d := &avro{reader: r, versions: make(map[uint64]*writer), path: o.Def.Order.Kind == schemas.OrderByPath}
	for i := range o.Def.Schemas {
		s := &o.Def.Schemas[i]
		w, err := d.writer(s)
		if err != nil {
			return nil, fmt.Errorf("table %s: schema %d: %w", o.Def.Name, s.ID, err)
		}
		d.versions[AvroFingerprint(s)] = w
		if set.plain && s.ID == set.schemaID {
			d.bare = w
		}
	}
	if set.plain && d.bare == nil {
		if set.schemaID >= 0 {
			return nil, fmt.Errorf("table %s has no schema %d, which option schema.id names", o.Def.Name, set.schemaID)
		}
		if d.bare, err = d.writer(d.schema); err != nil {
			return nil, fmt.Errorf("table %s: %w", o.Def.Name, err)
		}
	}
	return d, nil
}

func (d *avro) writer(s *schemas.Schema) (*writer, error) {
	w := &writer{id: s.ID}
	for i := range s.Fields {
		f := &s.Fields[i]
		out := written{name: f.Name, kind: f.Type.Kind, length: int(f.Type.Length), scale: int(f.Type.Scale),
			col: d.schema.ByID(f.ID), key: avroKey(s, f.ID)}
		if out.col >= 0 {
			out.required = d.required[out.col] || d.keyOf[out.col] >= 0
			t := d.schema.Fields[out.col].Type
			if t != f.Type && !f.Type.CanWiden(t) {
				w.stale = true
			} else if t != f.Type && t.IsNested() {
				var err error
				if out.change, err = rows.NewNestedChange(f.Type, t); err != nil {
					return nil, fmt.Errorf("column %q: %w", f.Name, err)
				}
			}
		} else if s.ID > d.schema.ID {
			w.stale = true
		}
		if f.Type.IsNested() {
			out.nest = newOwnNest(f.Type, false)
		}
		w.fields = append(w.fields, out)
	}
	return w, nil
}

func (d *avro) Decode(dst *rows.Batch, rec *Record) (Result, error) {
	if rec.Value == nil {
		n := dst.Len()
		res, err := d.tombstone(dst, rec)
		if err != nil {
			dst.Truncate(n)
		}
		return res, err
	}
	if len(rec.Value) > d.set.maxBytes {
		return Result{}, Rejectf(KindUnknown, "too-large", "the record has more than %d bytes (max.record.bytes)", d.set.maxBytes)
	}
	b, w := rec.Value, d.bare
	if !d.set.plain {
		if len(b) < 10 || binary.LittleEndian.Uint16(b) != avroMagic {
			return Result{}, Rejectf(KindUnknown, "malformed", "the value is not in Avro's single-object encoding (C3 01, fingerprint, body)")
		}
		print := binary.LittleEndian.Uint64(b[2:])
		if d.last == nil || print != d.print {
			d.last, d.print = d.versions[print], print
		}
		b, w = b[10:], d.last
		if w == nil {
			return Result{}, Rejectf(KindUnknown, "schema", "fingerprint %016x is of no version of the table's schema", print)
		}
	}
	if w.stale {
		return Result{}, Rejectf(KindUnknown, "schema", "the event is written in schema %d, which schema %d does not read", w.id, d.schema.ID)
	}
	return d.event(dst, rec, b, w)
}

func (d *avro) event(dst *rows.Batch, rec *Record, b []byte, w *writer) (Result, error) {
	base := dst.Len()
	d.begin()
	kind := KindUnknown
	refuse := func(f fail) (Result, error) {
		dst.Truncate(base)
		j := d.rowReject(f, kind)
		if f == malformed {
			j.Reason = "ill-formed Avro"
		}
		return Result{}, j
	}
	op, i := varint(b, 0)
	if i < 0 || op != 0 && op != 1 {
		return refuse(malformed)
	}
	kind = KindUpsert
	if op == 1 {
		kind = KindDelete
		if len(d.keys) == 0 {
			return Result{}, noKey()
		}
	}
	var order int64
	var has bool
	branch, i := varint(b, i)
	switch {
	case i < 0 || branch != 0 && branch != 1:
		return refuse(malformed)
	case branch == 1:
		if order, i = varint(b, i); i < 0 {
			return refuse(malformed)
		}
		has = d.path
	}
	i, why := d.fields(dst.Cols, b, i, w, op == 1)
	if why == okay && i != len(b) {
		why = malformed
	}
	if why != okay {
		return refuse(why)
	}
	if op == 1 {
		order, has = d.bareDelete(dst, base, order, has)
		dst.AppendEvent(rows.Delete, rec.Offset, order, has)
		return Result{Events: 1}, nil
	}
	if why := d.complete(dst.Cols, base); why != okay {
		return refuse(why)
	}
	if d.orderCol >= 0 {
		order, has = d.orderOf(dst)
	}
	dst.AppendEvent(rows.Upsert, rec.Offset, order, has)
	return Result{Events: 1}, nil
}

// bareDelete leaves a delete its key columns and takes the ordering column's
// value on the way.
func (d *avro) bareDelete(dst *rows.Batch, base int, order int64, has bool) (int64, bool) {
	if d.orderCol >= 0 {
		order, has = d.orderOf(dst)
	}
	for c := range dst.Cols {
		if d.keyOf[c] < 0 {
			dst.Cols[c].Truncate(base)
		}
	}
	return order, has
}

// fields appends a row's fields to their columns.
func (d *avro) fields(cols []rows.Column, b []byte, i int, w *writer, del bool) (int, fail) {
	for k := range w.fields {
		f := &w.fields[k]
		if !f.key {
			if i >= len(b) {
				return i, malformed
			}
			branch := int64(b[i])
			if i++; branch > 2 {
				branch, i = varint(b, i-1)
				branch *= 2
			}
			if i < 0 || branch != 0 && branch != 2 {
				return i, malformed
			}
			if branch == 0 {
				if f.col < 0 {
					continue
				}
				if f.required && !del {
					d.failCol, d.failKey = f.name, d.keyOf[f.col] >= 0
					return i, isNull
				}
				cols[f.col].AppendNull()
				d.count++
				continue
			}
		}
		var c *rows.Column
		if f.col >= 0 {
			c = &cols[f.col]
			d.count++
		} else if f.nest == nil {
			c = &d.dropped
			d.dropped = rows.Column{Type: schemas.Type{Kind: f.kind, Precision: 38, Scale: uint8(f.scale)}}
			d.dropped.Storage = rows.StorageOf(d.dropped.Type)
		}
		var at int
		var why fail
		if f.nest != nil {
			at, why = d.nestedColumn(c, f, b, i)
		} else {
			at, why = d.avroValue(c, f, b, i)
		}
		if why != okay {
			d.failCol, d.failKey = f.name, f.col >= 0 && d.keyOf[f.col] >= 0
			return i, why
		}
		i = at
	}
	return i, okay
}

// avroValue appends one value, whose writer's kind f tells.
func (d *avro) avroValue(c *rows.Column, f *written, b []byte, i int) (int, fail) {
	switch f.kind {
	case schemas.Long, schemas.Timestamp, schemas.TimestampTz, schemas.TimestampNs, schemas.TimestampTzNs:
		v, end := varint(b, i)
		if end < 0 {
			return i, malformed
		}
		c.AppendInt(v)
		return end, okay
	case schemas.Int, schemas.Date:
		v, end := varint(b, i)
		if end < 0 || v != int64(int32(v)) {
			return i, malformed
		}
		c.AppendInt(v)
		return end, okay
	case schemas.Time:
		v, end := varint(b, i)
		if end < 0 {
			return i, malformed
		}
		return end, putTime(c, v, semTimeUs, false)
	case schemas.Boolean:
		if i >= len(b) || b[i] > 1 {
			return i, malformed
		}
		c.AppendInt(int64(b[i]))
		return i + 1, okay
	case schemas.Float:
		if len(b)-i < 4 {
			return i, malformed
		}
		c.AppendFloat(float64(math.Float32frombits(binary.LittleEndian.Uint32(b[i:]))))
		return i + 4, okay
	case schemas.Double:
		if len(b)-i < 8 {
			return i, malformed
		}
		c.AppendFloat(math.Float64frombits(binary.LittleEndian.Uint64(b[i:])))
		return i + 8, okay
	case schemas.Fixed:
		if len(b)-i < f.length {
			return i, malformed
		}
		c.AppendBytes(b[i : i+f.length])
		return i + f.length, okay
	}
	n, i := varint(b, i)
	if i < 0 || n < 0 || n > int64(len(b)-i) {
		return i, malformed
	}
	s := b[i : i+int(n)]
	i += int(n)
	switch f.kind {
	case schemas.String:
		if !utf8.Valid(s) {
			return i, badText
		}
		c.AppendBytes(s)
	case schemas.UUID:
		var u [16]byte
		if !parseUUID(&u, s) {
			return i, badText
		}
		c.AppendBytes(u[:])
	case schemas.Decimal:
		v, why := bigEndian(s, f.scale)
		if why == okay {
			why = putDecimal(c, v)
		}
		return i, why
	default:
		c.AppendBytes(s)
	}
	return i, okay
}

// varint reads Avro's zig-zag number; a negative place means that it is cut
// off or longer than 64 bits.
func varint(b []byte, i int) (int64, int) {
	if i < len(b) && b[i] < 0x80 {
		u := b[i]
		return int64(u>>1) ^ -int64(u&1), i + 1
	}
	u, n := binary.Uvarint(b[i:])
	if n <= 0 {
		return 0, -1
	}
	return int64(u>>1) ^ -int64(u&1), i + n
}

// AvroEncoder writes a batch's events as varve-avro values.
type AvroEncoder struct {
	schema *schemas.Schema
	header [10]byte
	key    []bool
	nested []*ownNest
}

// NewAvroEncoder is an encoder for events of a table with this schema.
func NewAvroEncoder(s *schemas.Schema) *AvroEncoder {
	e := &AvroEncoder{schema: s, header: AvroHeader(s), key: make([]bool, len(s.Fields))}
	for i := range s.Fields {
		e.key[i] = avroKey(s, s.Fields[i].ID)
		e.nested = append(e.nested, nil)
		if s.Fields[i].Type.IsNested() {
			e.nested[i] = newOwnNest(s.Fields[i].Type, false)
		}
	}
	return e
}

// Append appends event i of b in single-object encoding. b's columns are the
// encoder's schema's; a null in a key column is an error.
func (e *AvroEncoder) Append(dst []byte, b *rows.Batch, i int) ([]byte, error) {
	dst = append(dst, e.header[:]...)
	dst = append(dst, byte(b.Ops[i]-rows.Upsert)*2)
	if b.HasOrder[i] == 1 {
		dst = appendVarint(append(dst, 2), b.Order[i])
	} else {
		dst = append(dst, 0)
	}
	for c := range b.Cols {
		col := &b.Cols[c]
		switch null := col.IsNull(i); {
		case e.key[c] && null:
			return dst, fmt.Errorf("column %q: null in a key column", e.schema.Fields[c].Name)
		case null:
			dst = append(dst, 0)
			continue
		case !e.key[c]:
			dst = append(dst, 2)
		}
		if n := e.nested[c]; n != nil {
			r := rows.NewNestedReader(col.BytesAt(i))
			if dst = appendOwnNested(dst, n, r); r.End() != nil {
				return dst, fmt.Errorf("column %q: %w", e.schema.Fields[c].Name, r.End())
			}
			continue
		}
		dst = appendAvro(dst, col, i)
	}
	return dst, nil
}

func appendVarint(dst []byte, v int64) []byte {
	return binary.AppendUvarint(dst, uint64(v)<<1^uint64(v>>63))
}

func appendAvro(dst []byte, c *rows.Column, i int) []byte {
	switch c.Type.Kind {
	case schemas.Boolean:
		return append(dst, byte(c.Ints[i]))
	case schemas.Float:
		return binary.LittleEndian.AppendUint32(dst, math.Float32bits(float32(c.Floats[i])))
	case schemas.Double:
		return binary.LittleEndian.AppendUint64(dst, math.Float64bits(c.Floats[i]))
	case schemas.Fixed:
		return append(dst, c.BytesAt(i)...)
	case schemas.UUID:
		dst = appendVarint(dst, 36)
		return appendUUID(dst, c.BytesAt(i))
	case schemas.Decimal:
		var wide [16]byte
		s := wide[:]
		if c.Storage == rows.Ints {
			binary.BigEndian.PutUint64(wide[8:], uint64(c.Ints[i]))
			s = wide[8:]
		} else {
			copy(wide[:], c.BytesAt(i))
		}
		for len(s) > 1 && (s[0] == 0 && s[1] < 0x80 || s[0] == 0xFF && s[1] >= 0x80) {
			s = s[1:]
		}
		return append(appendVarint(dst, int64(len(s))), s...)
	case schemas.String, schemas.Binary:
		v := c.BytesAt(i)
		return append(appendVarint(dst, int64(len(v))), v...)
	}
	return appendVarint(dst, c.Ints[i])
}

func appendUUID(dst, u []byte) []byte {
	for k, c := range u {
		if k == 4 || k == 6 || k == 8 || k == 10 {
			dst = append(dst, '-')
		}
		dst = append(dst, "0123456789abcdef"[c>>4], "0123456789abcdef"[c&15])
	}
	return dst
}
