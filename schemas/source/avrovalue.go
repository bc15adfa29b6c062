package source

import (
	"encoding/binary"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/rows"
)

// avroPut appends the value at b[i], written as a t that is no union, to a
// column by way of the plan's field.
func (r *reader) avroPut(c *rows.Column, f *field, t *avroType, b []byte, i int) (int, fail) {
	switch t.kind {
	case avroInt, avroLong:
		v, end := varint(b, i)
		if end < 0 || t.kind == avroInt && v != int64(int32(v)) {
			return i, malformed
		}
		return end, putWhole(c, f, v)
	case avroString, avroBytes:
		n, at := varint(b, i)
		if at < 0 {
			return i, malformed
		}
		end := within(b, at, n)
		if end < 0 {
			return i, malformed
		}
		if t.kind == avroBytes {
			return end, r.rawBytes(c, f, b[at:end])
		}
		return end, r.rawText(c, f, b[at:end])
	case avroEnum:
		n, end := varint(b, i)
		if end < 0 || n < 0 || n >= int64(len(t.symbols)) {
			return i, malformed
		}
		return end, r.rawText(c, f, t.symbols[n])
	case avroBool:
		if i >= len(b) || b[i] > 1 {
			return i, malformed
		}
		if f.op != opBool {
			return i + 1, wrongType
		}
		c.AppendInt(int64(b[i]))
		return i + 1, okay
	case avroFloat:
		if len(b)-i < 4 {
			return i, malformed
		}
		v := float64(math.Float32frombits(binary.LittleEndian.Uint32(b[i:])))
		return i + 4, r.rawFloat(c, f, v, 32)
	case avroDouble:
		if len(b)-i < 8 {
			return i, malformed
		}
		return i + 8, r.rawFloat(c, f, math.Float64frombits(binary.LittleEndian.Uint64(b[i:])), 64)
	case avroFixed:
		end := within(b, i, int64(t.size))
		if end < 0 {
			return i, malformed
		}
		if f.op == opUUID && t.size == 16 {
			c.AppendBytes(b[i:end])
			return end, okay
		}
		return end, r.rawBytes(c, f, b[i:end])
	case avroRecord, avroArray, avroMap:
		switch {
		case f.op == opVarDecimal && t.kind == avroRecord:
			return r.avroVarDecimal(c, t, b, i)
		case f.shape != nil:
			return r.avroNested(c, f, t, b, i)
		}
	}
	end := t.skip(b, i, 0)
	if end < 0 {
		return i, malformed
	}
	return end, wrongType
}

// putWhole appends a whole number to the columns that take one.
func putWhole(c *rows.Column, f *field, v int64) fail {
	switch f.op {
	case opInt64:
		c.AppendInt(v)
	case opInt32:
		if v != int64(int32(v)) {
			return outOfRange
		}
		c.AppendInt(v)
	case opDate:
		if f.unit == semNone {
			return wrongType
		}
		c.AppendInt(dayOf(v))
	case opTime:
		if f.unit == semNone {
			return wrongType
		}
		return putTime(c, v, f.unit, f.floor)
	case opTimestamp:
		if f.unit == semNone {
			return wrongType
		}
		return putTimestamp(c, v, f.unit, f.floor)
	default:
		return wrongType
	}
	return okay
}

// dayOf is a date's day; what lies outside every database's range is infinity.
func dayOf(v int64) int64 {
	switch {
	case v > maxSourceDay:
		return positiveInfDay
	case v < minSourceDay:
		return negativeInfDay
	}
	return v
}

// rawText appends text to the columns that take text.
func (r *reader) rawText(c *rows.Column, f *field, s []byte) fail {
	if len(s) == len(r.marker) && string(s) == r.marker {
		return isUnavailable
	}
	switch f.op {
	case opString:
		if !utf8.Valid(s) {
			return badText
		}
		c.AppendBytes(s)
		return okay
	case opUUID:
		var u [16]byte
		if !parseUUID(&u, s) {
			return badText
		}
		c.AppendBytes(u[:])
		return okay
	case opDate, opTime, opTimestamp:
		if f.text {
			return r.temporalText(c, f, s)
		}
	case opDecimal:
		if f.text {
			d, why := parseDecimal(s, true)
			if why == okay {
				why = putDecimal(c, d)
			}
			return why
		}
	}
	return wrongType
}

// rawBytes appends bytes to the columns that take them.
func (r *reader) rawBytes(c *rows.Column, f *field, s []byte) fail {
	if len(s) == len(r.marker) && string(s) == r.marker {
		return isUnavailable
	}
	switch f.op {
	case opBinary, opFixed:
		return putRaw(c, f, s)
	case opBits:
		r.raw = append(r.raw[:0], s...)
		return putRaw(c, f, r.raw)
	case opDecimal:
		if f.b64 {
			d, why := bigEndian(s, f.scale)
			if why == okay {
				why = putDecimal(c, d.trim())
			}
			return why
		}
	}
	return wrongType
}

// rawFloat appends a number of so many bits to the columns that take one.
func (r *reader) rawFloat(c *rows.Column, f *field, v float64, bits int) fail {
	switch f.op {
	case opFloat32, opFloat64:
		c.AppendFloat(v)
		return okay
	case opDecimal:
		if !f.num || math.IsNaN(v) || math.IsInf(v, 0) {
			return wrongType
		}
		r.scratch = strconv.AppendFloat(r.scratch[:0], v, 'g', -1, bits)
		d, why := parseDecimal(r.scratch, false)
		if why == okay {
			why = putDecimal(c, d)
		}
		return why
	}
	return wrongType
}

// avroVarDecimal appends Debezium's decimal whose scale stands beside it.
func (r *reader) avroVarDecimal(c *rows.Column, t *avroType, b []byte, i int) (int, fail) {
	var raw []byte
	scale := int64(0)
	seen := 0
	for k := range t.fields {
		switch f := &t.fields[k]; {
		case f.name == "scale" && f.typ.kind == avroInt:
			if scale, i = varint(b, i); i < 0 {
				return 0, malformed
			}
			seen |= 1
		case f.name == "value" && f.typ.kind == avroBytes:
			n, at := varint(b, i)
			if at < 0 {
				return i, malformed
			}
			if i = within(b, at, n); i < 0 {
				return at, malformed
			}
			raw = b[at:i]
			seen |= 2
		default:
			if i = f.typ.skip(b, i, 0); i < 0 {
				return 0, malformed
			}
		}
	}
	if seen != 3 || scale < -maxExponent || scale > maxExponent {
		return i, badText
	}
	d, why := bigEndian(raw, int(scale))
	if why != okay {
		return i, why
	}
	if d = d.trim(); c.Type.Kind == schemas.String {
		r.scratch = d.text(r.scratch[:0])
		c.AppendBytes(r.scratch)
		return i, okay
	}
	return i, putDecimal(c, d)
}

// avroBranch passes over a union's branch: the type of what follows, nil for null.
func avroBranch(t *avroType, b []byte, i int) (*avroType, int) {
	if t.kind == avroNull {
		return nil, i
	}
	if t.kind != avroUnion {
		return t, i
	}
	n, end := varint(b, i)
	if end < 0 || n < 0 || n >= int64(len(t.branches)) {
		return nil, -1
	}
	if t = t.branches[n]; t.kind == avroNull {
		return nil, end
	}
	return t, end
}

// avroRow appends the record at b[i] to the columns.
func (r *reader) avroRow(p *plan, t *avroType, cols []rows.Column, b []byte, i int) (int, fail) {
	for k := range t.fields {
		f := &p.fields[k]
		ft := t.fields[k].typ
		if f.col < 0 {
			at := i
			if i = ft.skip(b, i, 0); i < 0 {
				r.failCol, r.failKey = f.name, false
				return at, malformed
			}
			if f.op == opDeleted || f.op == opFlatOp || f.op == opFlatChange {
				if why := r.avroFlag(f, ft, b, at); why != okay {
					r.failCol, r.failKey = f.name, false
					return at, why
				}
			}
			continue
		}
		value, at := avroBranch(ft, b, i)
		why := okay
		switch {
		case at < 0:
			at, why = i, malformed
		case value != nil:
			from := at
			if at, why = r.avroPut(&cols[f.col], f, value, b, at); why == isUnavailable && r.carries(f) {
				cols[f.col].AppendNull()
				at, why = value.skip(b, from, 0), okay
			}
		case f.key >= 0 && !r.set.recordKey || r.required[f.col]:
			why = isNull
		default:
			cols[f.col].AppendNull()
		}
		if why != okay {
			r.failCol, r.failKey = f.name+r.failPath, f.key >= 0
			return at, why
		}
		r.count++
		i = at
	}
	return i, okay
}

// avroFlag reads one of the flattened form's own members.
func (r *reader) avroFlag(f *field, t *avroType, b []byte, i int) fail {
	v, i := avroBranch(t, b, i)
	switch {
	case v == nil:
		return okay
	case f.op == opFlatChange:
		if v.kind != avroRecord {
			return wrongType
		}
		return r.avroChange(v, b, i)
	case v.kind == avroBool && f.op == opDeleted:
		r.deleted = r.deleted || b[i] == 1
		return okay
	case v.kind != avroString:
		return wrongType
	}
	n, at := varint(b, i)
	switch text := string(b[at : at+int(n)]); {
	case f.op == opFlatOp:
		r.deleted = r.deleted || text == "d"
	case text == "true":
		r.deleted = true
	case text != "false":
		return wrongType
	}
	return okay
}

// avroChange is flatChange of a well-formed record.
func (r *reader) avroChange(t *avroType, b []byte, i int) fail {
	for k := range t.fields {
		f := &t.fields[k]
		end := f.typ.skip(b, i, 0)
		if f.name == "op" {
			v, at := avroBranch(f.typ, b, i)
			if v == nil || v.kind != avroString {
				return wrongType
			}
			switch opLetter(v, b, at, end) {
			case 'D', 'd':
				r.deleted = true
			case 'I', 'U', 'C', 'R', 'i', 'u', 'c', 'r':
			default:
				return wrongType
			}
		}
		i = end
	}
	return okay
}

// avroKeyOf reads the record at b[i] for its key columns, which go into
// image, and the ordering column. whole says that no part was null or absent.
func (r *reader) avroKeyOf(p *plan, t *avroType, b []byte, i int) (order int64, has, whole bool, end int, why fail) {
	for k := range r.image {
		r.image[k].Truncate(0)
	}
	for k := range t.fields {
		f := &p.fields[k]
		ft := t.fields[k].typ
		value, at := avroBranch(ft, b, i)
		switch {
		case at < 0:
			return 0, false, false, i, malformed
		case value == nil:
			i = at
			continue
		case f.key >= 0 && r.image[f.key].Len() == 0:
			if at, why = r.avroPut(&r.image[f.key], f, value, b, at); why != okay {
				r.failCol, r.failKey = f.name, true
				return 0, false, false, at, why
			}
		case f.col >= 0 && f.col == r.orderCol:
			c := &r.oldest
			c.Truncate(0)
			next := value.skip(b, at, 0)
			if next < 0 {
				return 0, false, false, at, malformed
			}
			if _, why := r.avroPut(c, f, value, b, at); why == okay && !c.IsNull(0) && c.Ints[0] != 0 {
				order, has = c.Ints[0], true
			}
			at = next
		default:
			if at = value.skip(b, at, 0); at < 0 {
				return 0, false, false, i, malformed
			}
		}
		if f.key >= 0 && f.col == r.orderCol && r.image[f.key].Storage == rows.Ints && !r.image[f.key].IsNull(0) {
			order, has = r.image[f.key].Ints[0], true
		}
		i = at
	}
	whole = len(r.image) > 0
	for k := range r.image {
		whole = whole && r.image[k].Len() == 1 && !r.image[k].IsNull(0)
	}
	return order, has, whole, i, okay
}

// avroPick takes the whole number at path inside the value at b[i] as the
// order value. A missing one or null leaves none.
func (r *reader) avroPick(path []string, t *avroType, b []byte, i int) (int, fail) {
	v, at := avroBranch(t, b, i)
	if at < 0 {
		return i, malformed
	}
	if v == nil {
		return at, okay
	}
	if len(path) == 0 {
		switch v.kind {
		case avroInt, avroLong:
			n, end := varint(b, at)
			if end < 0 {
				return i, malformed
			}
			r.order, r.hasOrder = n, true
			return end, okay
		case avroString:
			end := v.skip(b, at, 0)
			if end < 0 {
				return i, malformed
			}
			_, from := varint(b, at)
			n, stop, why := parseInt(b[from:end], 0)
			if why != okay || stop != end-from {
				return end, badText
			}
			r.order, r.hasOrder = n, true
			return end, okay
		}
		return at, badText
	}
	if v.kind != avroRecord {
		if at = v.skip(b, at, 0); at < 0 {
			return i, malformed
		}
		return at, okay
	}
	for k := range v.fields {
		f := &v.fields[k]
		if f.name != path[0] {
			if at = f.typ.skip(b, at, 0); at < 0 {
				return i, malformed
			}
			continue
		}
		var why fail
		if at, why = r.avroPick(path[1:], f.typ, b, at); why != okay {
			return at, why
		}
	}
	return at, okay
}
