package source

import (
	"math"
	"strconv"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/rows"
)

// protoSpans finds a message's fields in b: for each, the last one's value (the
// content of one with a length). A field of another wire type than its own is
// none, as every reader of Protobuf has it. A message that stands twice would be
// merged: that is refused.
func protoSpans(m *protoMessage, spans []span, b []byte) ([]span, fail) {
	spans = append(spans[:0], make([]span, len(m.fields))...)
	for i := 0; i < len(b); {
		num, wire, n := protoTag(b[i:])
		if n < 0 {
			return spans, malformed
		}
		i += n
		v := protowire.ConsumeFieldValue(num, wire, b[i:])
		if v < 0 {
			return spans, malformed
		}
		if k, ok := m.byNumber[num]; ok && wire == m.fields[k].wire {
			s := span{i, i + v}
			if wire == protowire.BytesType {
				_, length := protowire.ConsumeVarint(b[i:])
				s.at += length
			}
			if m.fields[k].kind == protoreflect.MessageKind && spans[k].end != 0 && !m.fields[k].repeated {
				return spans, twice
			}
			spans[k] = s
		}
		i += v
	}
	return spans, okay
}

// protoPut appends a field's value; an absent one is its type's zero.
func (r *reader) protoPut(c *rows.Column, f *field, p *protoField, b []byte) fail {
	switch p.well {
	case wellWrapper:
		// The value is field 1 of a message of its own.
		inner := protoField{number: 1, kind: p.kind, wire: wireOf[p.kind]}
		m := protoMessage{fields: []protoField{inner}, byNumber: map[protowire.Number]int{1: 0}}
		spans, why := protoSpans(&m, nil, b)
		if why != okay {
			return why
		}
		return r.protoScalar(c, f, &inner, b[spans[0].at:spans[0].end])
	case wellTimestamp:
		n, why := protoNumbers(b, 2)
		if why != okay {
			return why
		}
		return putInstant(c, f, n[0], n[1])
	case wellDate:
		n, why := protoNumbers(b, 3)
		if why != okay {
			return why
		}
		if n[0] < 1 || n[0] > 9999 || n[1] < 1 || n[1] > 12 || n[2] < 1 {
			return badText // a part of a date is none
		}
		day := time.Date(int(n[0]), time.Month(n[1]), int(n[2]), 0, 0, 0, 0, time.UTC)
		if day.Day() != int(n[2]) {
			return badText
		}
		return putWhole(c, f, day.Unix()/86400-btoi(day.Unix()%86400 < 0))
	case wellTimeOfDay:
		n, why := protoNumbers(b, 4)
		if why != okay {
			return why
		}
		if n[0] < 0 || n[0] > 23 || n[1] < 0 || n[1] > 59 || n[2] < 0 || n[2] > 59 || n[3] < 0 || n[3] > 999_999_999 {
			return outOfRange
		}
		return putWhole(c, f, ((n[0]*60+n[1])*60+n[2])*1_000_000_000+n[3])
	case wellDecimal:
		return r.protoDecimal(c, f, b)
	}
	if p.inner != nil && !p.isMap {
		if f.op != opStruct {
			return wrongType
		}
		return r.protoStruct(c, f.shape, p.inner, b)
	}
	return r.protoScalar(c, f, p, b)
}

// protoStruct appends the message b to a struct column.
func (r *reader) protoStruct(c *rows.Column, h *shape, m *protoMessage, b []byte) (why fail) {
	if m.spans, why = protoSpans(m, m.spans, b); why != okay {
		return why
	}
	h.reset()
	for k := range m.fields {
		at, known := h.byName[m.fields[k].name]
		if !known {
			continue
		}
		if why := r.protoField(&h.cols[at], &h.parts[at], &m.fields[k], m.spans[k], h.required[at], b); why != okay {
			return r.in(h, at, r.whole(h, at, why))
		}
	}
	return r.putStruct(c, h)
}

// protoField appends a field of the message b, whose value is at s.
func (r *reader) protoField(c *rows.Column, f *field, p *protoField, s span, required bool, b []byte) fail {
	switch {
	case p.repeated:
		return r.protoMany(c, f, p, b)
	case s.end == 0 && p.presence:
		if required {
			return isNull
		}
		c.AppendNull()
		return okay
	}
	return r.protoPut(c, f, p, b[s.at:s.end])
}

// protoMany appends a list or map: every value of the field in the message b,
// packed or not. None is an empty one.
func (r *reader) protoMany(c *rows.Column, f *field, p *protoField, b []byte) fail {
	if p.isMap && f.op != opMap || !p.isMap && f.op != opList {
		return wrongType
	}
	h, n := f.shape, 0
	h.reset()
	clear(h.seen)
	one := func(v []byte) fail {
		n++
		if !p.isMap {
			h.cols[0].Truncate(0)
			if why := r.protoPut(&h.cols[0], &h.parts[0], p, v); why != okay {
				return r.in(h, 0, r.whole(h, 0, why))
			}
			h.add(0)
			return okay
		}
		m := p.inner
		var why fail
		if m.spans, why = protoSpans(m, m.spans, v); why != okay {
			return why
		}
		at := m.spans[1]
		start := len(h.body)
		h.cols[0].Truncate(0)
		if why := r.protoPut(&h.cols[0], &h.parts[0], &m.fields[0], v[m.spans[0].at:m.spans[0].end]); why != okay {
			return r.in(h, 0, r.whole(h, 0, why))
		}
		if h.body = rows.AppendNested(h.body, &h.cols[0], 0); h.once(h.body[start:]) {
			return twice
		}
		h.cols[1].Truncate(0)
		if why := r.protoPut(&h.cols[1], &h.parts[1], &m.fields[1], v[at.at:at.end]); why != okay {
			return r.in(h, 1, r.whole(h, 1, why))
		}
		h.add(1)
		return okay
	}
	for len(b) > 0 {
		num, wire, k := protoTag(b)
		if k < 0 {
			return malformed
		}
		b = b[k:]
		size := protowire.ConsumeFieldValue(num, wire, b)
		if size < 0 {
			return malformed
		}
		v := b[:size]
		b = b[size:]
		if num != p.number {
			continue
		}
		why := okay
		switch {
		case wire == p.wire && wire == protowire.BytesType:
			v, _ = protowire.ConsumeBytes(v)
			why = one(v)
		case wire == p.wire:
			why = one(v)
		case wire == protowire.BytesType:
			v, _ = protowire.ConsumeBytes(v)
			for len(v) > 0 && why == okay {
				k := protowire.ConsumeFieldValue(num, p.wire, v)
				if k < 0 {
					return malformed
				}
				why = one(v[:k])
				v = v[k:]
			}
		}
		if why != okay {
			return why
		}
	}
	h.putMany(c, n)
	return okay
}

func btoi(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// protoNumbers are the varint fields 1 … n of a message.
func protoNumbers(b []byte, n int) (out [4]int64, why fail) {
	for len(b) > 0 {
		num, wire, k := protoTag(b)
		if k < 0 {
			return out, malformed
		}
		b = b[k:]
		size := protowire.ConsumeFieldValue(num, wire, b)
		if size < 0 {
			return out, malformed
		}
		if int(num) <= n && wire == protowire.VarintType {
			v, _ := protowire.ConsumeVarint(b)
			out[num-1] = int64(v)
		}
		b = b[size:]
	}
	return out, okay
}

// putInstant appends a Timestamp. What is finer than the column is dropped (T2).
func putInstant(c *rows.Column, f *field, seconds, nanos int64) fail {
	// Years 1 to 9999, as the message's definition says.
	if f.op != opTimestamp || seconds < -62135596800 || seconds > 253402300799 || nanos < 0 || nanos > 999_999_999 {
		if f.op != opTimestamp {
			return wrongType
		}
		return outOfRange
	}
	if k := c.Type.Kind; k == schemas.TimestampNs || k == schemas.TimestampTzNs {
		if seconds < math.MinInt64/1_000_000_000 || seconds >= math.MaxInt64/1_000_000_000 {
			return outOfRange
		}
		return putTimestamp(c, seconds*1_000_000_000+nanos, semTsNs, true)
	}
	return putTimestamp(c, seconds*1_000_000+nanos/1000, semTsUs, true)
}

// protoDecimal appends a Decimal message, whose scale stands in it.
func (r *reader) protoDecimal(c *rows.Column, f *field, b []byte) fail {
	var raw []byte
	scale := int64(0)
	for len(b) > 0 {
		num, wire, n := protoTag(b)
		if n < 0 {
			return malformed
		}
		b = b[n:]
		size := protowire.ConsumeFieldValue(num, wire, b)
		if size < 0 {
			return malformed
		}
		switch {
		case num == 1 && wire == protowire.BytesType:
			raw, _ = protowire.ConsumeBytes(b)
		case num == 3 && wire == protowire.VarintType:
			v, _ := protowire.ConsumeVarint(b)
			scale = int64(int32(v))
		}
		b = b[size:]
	}
	if f.op != opDecimal && f.op != opVarDecimal {
		return wrongType
	}
	if len(raw) == 0 || scale < -maxExponent || scale > maxExponent {
		return badText
	}
	d, why := bigEndian(raw, int(scale))
	if why != okay {
		return why
	}
	if d = d.trim(); c.Type.Kind == schemas.String {
		r.scratch = d.text(r.scratch[:0])
		c.AppendBytes(r.scratch)
		return okay
	}
	return putDecimal(c, d)
}

// protoScalar appends a scalar; b is empty for the type's zero.
func (r *reader) protoScalar(c *rows.Column, f *field, p *protoField, b []byte) fail {
	var v uint64
	switch p.wire {
	case protowire.VarintType:
		if len(b) > 0 {
			v, _ = protowire.ConsumeVarint(b)
		}
	case protowire.Fixed32Type:
		if len(b) > 0 {
			x, _ := protowire.ConsumeFixed32(b)
			v = uint64(x)
		}
	case protowire.Fixed64Type:
		if len(b) > 0 {
			v, _ = protowire.ConsumeFixed64(b)
		}
	}
	switch p.kind {
	case protoreflect.BoolKind:
		if f.op != opBool {
			return wrongType
		}
		c.AppendInt(btoi(v != 0))
		return okay
	case protoreflect.Int32Kind, protoreflect.Sfixed32Kind:
		return putWhole(c, f, int64(int32(v)))
	case protoreflect.Sint32Kind:
		return putWhole(c, f, int64(int32(protowire.DecodeZigZag(v&math.MaxUint32))))
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return putWhole(c, f, int64(uint32(v)))
	case protoreflect.Int64Kind, protoreflect.Sfixed64Kind:
		return putWhole(c, f, int64(v))
	case protoreflect.Sint64Kind:
		return putWhole(c, f, protowire.DecodeZigZag(v))
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		if f.op == opDecimal {
			r.scratch = strconv.AppendUint(r.scratch[:0], v, 10)
			d, why := parseDecimal(r.scratch, false)
			if why == okay {
				why = putDecimal(c, d)
			}
			return why
		}
		if v > math.MaxInt64 {
			return outOfRange
		}
		return putWhole(c, f, int64(v))
	case protoreflect.FloatKind:
		return r.rawFloat(c, f, float64(math.Float32frombits(uint32(v))), 32)
	case protoreflect.DoubleKind:
		return r.rawFloat(c, f, math.Float64frombits(v), 64)
	case protoreflect.EnumKind:
		name, known := p.enum[int32(v)]
		if !known {
			return badText
		}
		return r.rawText(c, f, name)
	case protoreflect.StringKind:
		return r.rawText(c, f, b)
	case protoreflect.BytesKind:
		return r.rawBytes(c, f, b)
	}
	return wrongType
}

// protoFind is the value at a path of names inside a message, the last one
// where there are several; its field is nil where it is absent or no such value.
func protoFind(md protoreflect.MessageDescriptor, path []string, b []byte) (protoreflect.FieldDescriptor, []byte, fail) {
	fd := md.Fields().ByName(protoreflect.Name(path[0]))
	var found []byte
	there := false
	for len(b) > 0 {
		num, wire, n := protoTag(b)
		if n < 0 {
			return nil, nil, malformed
		}
		b = b[n:]
		size := protowire.ConsumeFieldValue(num, wire, b)
		if size < 0 {
			return nil, nil, malformed
		}
		if fd != nil && num == fd.Number() && wire == wireOf[fd.Kind()] {
			there, found = true, b[:size]
			if wire == protowire.BytesType {
				found, _ = protowire.ConsumeBytes(b)
			}
		}
		b = b[size:]
	}
	switch {
	case fd == nil || fd.IsList() || fd.IsMap():
		return nil, nil, okay
	case len(path) == 1:
		if !there && fd.HasPresence() {
			return nil, nil, okay
		}
		return fd, found, okay
	case !there || fd.Kind() != protoreflect.MessageKind:
		return nil, nil, okay
	}
	return protoFind(fd.Message(), path[1:], found)
}

// protoPick takes the whole number at the order path. A missing one leaves none.
func (r *reader) protoPick(md protoreflect.MessageDescriptor, b []byte) fail {
	fd, v, why := protoFind(md, r.orderAt, b)
	if why != okay || fd == nil {
		return why
	}
	_, p := protoConnect(fd)
	if p.well != notWellKnown && p.well != wellWrapper {
		return wrongType
	}
	c := &r.picked
	c.Truncate(0)
	f := field{op: opInt64, key: -1}
	if p.kind == protoreflect.StringKind && p.well == notWellKnown {
		n, end, why := parseInt(v, 0)
		if why != okay || end != len(v) {
			return badText
		}
		c.AppendInt(n)
	} else if why := r.protoPut(c, &f, &p, v); why != okay {
		return why
	}
	r.order, r.hasOrder = c.Ints[0], true
	return okay
}

// protoTag is protowire.ConsumeTag, without numbers that no field has.
func protoTag(b []byte) (protowire.Number, protowire.Type, int) {
	num, wire, n := protowire.ConsumeTag(b)
	if num > protowire.MaxValidNumber {
		return 0, 0, -1
	}
	return num, wire, n
}
