package source

import (
	"encoding/base64"
	"encoding/binary"
	"math"
	"strconv"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/rows"
)

// op is how one field's JSON value becomes its column's value.
type op uint8

const (
	opSkip         op = iota // left out on purpose, or not needed
	opInt32                  // the three hottest ones first
	opInt64                  //
	opString                 //
	opBool                   //
	opFloat32                // the event's schema says float
	opFloat32Exact           // it does not: refused unless float32 holds it
	opFloat64                //
	opBinary                 // base64
	opFixed                  // base64
	opUUID                   //
	opDate                   // days, or text, or both
	opTime                   // number and its unit, or text
	opTimestamp              // number and its unit, or text
	opDecimal                // number, base64 or text
	opVarDecimal             // {scale, value}
	opBits                   // base64, little-endian
	opDeleted                // the flattened form's __deleted
	opFlatOp                 // the flattened form's __op
	opFlatChange             // _cdc
	opMismatch               // another type than the column's
	opStruct                 // the three nested ones: see shape.go
	opList                   //
	opMap                    //
)

// field is one member of a row object and what becomes of it.
type field struct {
	name  string
	token string // `"name":`, as most producers write it
	col   int    // the table's column, -1: none
	key   int    // ordinal in the key, -1: not in the key
	next  int    // the field that followed it last time, -1: not known
	op    op
	unit  sem  // opDate, opTime, opTimestamp: the number's unit, semNone: no number
	text  bool // opDate, opTime, opTimestamp: text is taken; opDecimal: text is digits
	b64   bool // opDecimal: text is base64
	num   bool // opDecimal: a JSON number is taken
	floor bool // drop what is finer than the column (T2)
	scale int  // opDecimal with b64
	shape *shape
}

// resolve decides how values so declared go into a column of type t. When the
// column must become wider first, widen is its new type; ok is false when
// there is no way.
func (s *settings) resolve(f *field, d declared, t schemas.Type) (widen schemas.Type, ok bool) {
	if d.sem == semNone {
		s.resolveBare(f, t)
		return widen, true
	}
	f.op = opMismatch
	switch t.Kind {
	case schemas.Boolean:
		if d.sem == semBool {
			f.op = opBool
		}
	case schemas.Int:
		switch d.sem {
		case semInt8, semInt16, semInt32:
			f.op = opInt32
		case semInt64:
			f.op = opInt32
			return schemas.Of(schemas.Long), true
		}
	case schemas.Long:
		switch d.sem {
		case semInt8, semInt16, semInt32, semInt64, semUint64:
			f.op = opInt64
		case semTimeMs, semTimeUs, semTimeNs:
			f.op, f.unit, f.floor = opTime, d.sem, true
		case semZonedTime, semIsoTime:
			f.op, f.text, f.floor = opTime, true, true
		case semBits:
			if d.length <= 63 {
				f.op = opBits
			}
		}
	case schemas.Float:
		switch d.sem {
		case semFloat:
			f.op = opFloat32
		case semDouble:
			f.op = opFloat32Exact
			return schemas.Of(schemas.Double), true
		}
	case schemas.Double:
		if d.sem == semFloat || d.sem == semDouble {
			f.op = opFloat64
		}
	case schemas.Decimal:
		return s.resolveDecimal(f, d, t)
	case schemas.Struct, schemas.List, schemas.Map:
		return s.resolveNested(f, d, t)
	case schemas.Date:
		switch d.sem {
		case semDate:
			f.op, f.unit = opDate, semDate
		case semIsoDate, semString:
			f.op, f.text = opDate, true
		}
	case schemas.Time:
		switch d.sem {
		case semTimeMs, semTimeUs, semTimeNs:
			f.op, f.unit, f.floor = opTime, d.sem, true
		case semZonedTime, semIsoTime, semString:
			f.op, f.text, f.floor = opTime, true, true
		}
	case schemas.Timestamp, schemas.TimestampNs:
		switch d.sem {
		case semTsMs, semTsUs, semTsNs:
			f.op, f.unit, f.floor = opTimestamp, d.sem, true
		case semInstant:
			f.op, f.unit = opTimestamp, semTsMs
		case semIsoTs, semString:
			f.op, f.text, f.floor = opTimestamp, true, true
		}
	case schemas.TimestampTz, schemas.TimestampTzNs:
		switch d.sem {
		case semTzMs, semTzUs, semTzNs:
			f.op, f.unit, f.floor = opTimestamp, d.sem-semTzMs+semTsMs, true
		case semZonedTs, semString:
			f.op, f.text, f.floor = opTimestamp, true, true
		case semInstant:
			f.op, f.unit = opTimestamp, semTsMs
		}
	case schemas.String:
		switch d.sem {
		case semString, semUUID, semZonedTime, semIsoDate, semIsoTime, semIsoTs, semZonedTs:
			f.op = opString
		case semVarDecimal:
			f.op = opVarDecimal
		}
	case schemas.UUID:
		if d.sem == semUUID || d.sem == semString {
			f.op = opUUID
		}
	case schemas.Fixed:
		switch d.sem {
		case semBytes:
			f.op = opFixed
		case semBits:
			f.op = opBits
		}
	case schemas.Binary:
		switch d.sem {
		case semBytes:
			f.op = opBinary
		case semBits:
			f.op = opBits
		}
	}
	return widen, f.op != opMismatch
}

func (s *settings) resolveDecimal(f *field, d declared, t schemas.Type) (widen schemas.Type, ok bool) {
	f.op = opDecimal
	switch d.sem {
	case semDecimal:
		f.b64, f.num, f.scale = true, true, d.scale
		if d.scale > int(t.Scale) {
			f.op = opMismatch
			return widen, false
		}
		if d.precision > 0 {
			need := min(38, d.precision-d.scale+int(t.Scale))
			if w := schemas.DecimalOf(need, int(t.Scale)); t.CanWiden(w) {
				return w, true
			}
		}
	case semVarDecimal:
		f.op = opVarDecimal
	case semString:
		f.text = true
	case semDouble, semFloat, semUint64:
		f.num = true
	case semBits:
		f.op = opBits
		if t.Scale != 0 {
			f.op = opMismatch
		}
	default:
		f.op = opMismatch
	}
	return widen, f.op != opMismatch
}

// resolveBare is resolve for events without a schema of their own.
func (s *settings) resolveBare(f *field, t schemas.Type) {
	switch t.Kind {
	case schemas.Boolean:
		f.op = opBool
	case schemas.Int:
		f.op = opInt32
	case schemas.Long:
		f.op = opInt64
	case schemas.Float:
		f.op = opFloat32Exact
	case schemas.Double:
		f.op = opFloat64
	case schemas.Decimal:
		f.op, f.num = opDecimal, true
		f.text = s.decimals == semString
		f.b64 = s.decimals == semDecimal
		f.scale = int(t.Scale)
	case schemas.Date:
		f.op, f.text, f.unit = opDate, true, s.dateUnit
	case schemas.Time:
		f.op, f.text, f.unit, f.floor = opTime, true, s.timeUnit, s.truncate
	case schemas.Timestamp, schemas.TimestampTz, schemas.TimestampNs, schemas.TimestampTzNs:
		f.op, f.text, f.unit, f.floor = opTimestamp, true, s.tsUnit, s.truncate
	case schemas.String:
		f.op = opString
	case schemas.UUID:
		f.op = opUUID
	case schemas.Fixed:
		f.op = opFixed
	case schemas.Struct, schemas.List, schemas.Map:
		s.resolveBareNested(f, t)
	default:
		f.op = opBinary
	}
}

// lenient appends a number in quotes, and 0 or 1 as a boolean; ok is false for
// what is neither.
func (r *reader) lenient(c *rows.Column, f *field, b []byte, i int) (end int, why fail, ok bool) {
	at := i
	if b[i] == '"' {
		if end, plain := scanString(b, i+1); !r.set.quoted || !plain || end == i+1 {
			return i, okay, false
		}
		if at++; b[at]|0x20 == 'n' || b[at] == 'I' || b[at] == '-' && b[at+1] == 'I' || string(b[at:min(len(b), at+len(r.marker))]) == r.marker {
			return i, okay, false // NaN, Infinity, and the marker, which value knows
		}
	}
	if f.op == opBool {
		if b[at] != '0' && b[at] != '1' {
			if b[at] != 't' && b[at] != 'f' || at == i {
				return i, okay, false
			}
			if end, why = r.plainBool(c, b, at); why != okay {
				return i, wrongType, true
			}
		} else {
			c.AppendInt(int64(b[at] - '0'))
			end = at + 1
		}
	} else if at == i {
		return i, okay, false
	} else if b[at] != '-' && b[at]-'0' > 9 {
		return i, wrongType, true
	} else {
		r.set.lenient = false
		end, why = r.value(c, f, b, at)
		if r.set.lenient = true; why != okay {
			return i, why, true
		}
	}
	if at > i {
		if b[end] != '"' {
			return i, badText, true
		}
		end++
	}
	return end, okay, true
}

// plainBool appends true or false.
func (r *reader) plainBool(c *rows.Column, b []byte, i int) (int, fail) {
	if b[i] == 't' {
		c.AppendInt(1)
		return word(b, i, "true")
	}
	c.AppendInt(0)
	return word(b, i, "false")
}

// isDigits says whether decimal text cannot be base64: it has a point or a
// sign, or a length that base64 never has.
func isDigits(s []byte) bool {
	if len(s)%4 != 0 {
		return true
	}
	for _, c := range s {
		if c == '.' || c == '-' {
			return true
		}
	}
	return false
}

// value appends the value at b[i], which is not null, to a column.
func (r *reader) value(c *rows.Column, f *field, b []byte, i int) (int, fail) {
	if r.set.lenient && f.op <= opFloat64 && f.op != opString && f.op != opSkip {
		if end, why, ok := r.lenient(c, f, b, i); ok {
			return end, why
		}
	}
	switch f.op {
	case opInt32, opInt64:
		v, end, why := wholeNumber(b, i)
		if why != okay {
			return r.odd(b, i, why)
		}
		if f.op == opInt32 && v != int64(int32(v)) {
			return end, outOfRange
		}
		c.AppendInt(v)
		return end, okay
	case opBool:
		switch b[i] {
		case 't', 'f':
			return r.plainBool(c, b, i)
		}
		return r.odd(b, i, wrongType)
	case opFloat32, opFloat32Exact, opFloat64:
		return r.float(c, f, b, i)
	case opDecimal:
		return r.decimal(c, f, b, i)
	case opVarDecimal:
		return r.varDecimal(c, b, i)
	case opDate, opTime, opTimestamp:
		if b[i] != '"' {
			return r.temporalNumber(c, f, b, i)
		}
	case opMismatch:
		if end := skipValue(b, i); end >= 0 && c.Type.IsNested() {
			return end, wrongType
		}
		return r.odd(b, i, wrongType)
	case opStruct, opList, opMap:
		return r.nested(c, f, b, i)
	case opSkip:
		end := skipValue(b, i)
		if end < 0 {
			return i, malformed
		}
		return end, okay
	}
	if b[i] != '"' {
		return r.odd(b, i, wrongType)
	}
	s, end, why := r.text(b, i)
	if why != okay {
		return end, why
	}
	switch f.op {
	case opString:
		c.AppendBytes(s)
		return end, okay
	case opUUID:
		var u [16]byte
		if !parseUUID(&u, s) {
			return end, badText
		}
		c.AppendBytes(u[:])
		return end, okay
	case opBinary, opFixed, opBits:
		return end, r.bytes(c, f, s)
	}
	if !f.text {
		return end, wrongType
	}
	return end, r.temporalText(c, f, s)
}

func word(b []byte, i int, w string) (int, fail) {
	end := scanWord(b, i, w)
	if end < 0 {
		return i, malformed
	}
	return end, okay
}

// odd tells ill-formed text, objects and markers of unchanged values from a
// value that merely does not fit.
func (r *reader) odd(b []byte, i int, why fail) (int, fail) {
	end := skipValue(b, i)
	switch {
	case end < 0:
		return i, malformed
	case b[i] == '{' || b[i] == '[':
		return end, nested
	case b[i] == '"':
		if _, _, f := r.text(b, i); f != okay {
			return end, f
		}
		return end, wrongType
	case b[i] == 't' || b[i] == 'f':
		return end, wrongType
	}
	return end, why
}

// text is the string at b[i], unescaped; markers of unchanged values are refused.
func (r *reader) text(b []byte, i int) (s []byte, end int, f fail) {
	end, plain := scanString(b, i+1)
	if end < 0 {
		return nil, i, malformed
	}
	s = b[i+1 : end]
	if !plain {
		r.scratch = unescape(r.scratch[:0], s)
		s = r.scratch
	}
	if len(s) == len(r.marker) && string(s) == r.marker || len(s) == len(r.marker64) && string(s) == r.marker64 {
		return nil, end + 1, isUnavailable
	}
	return s, end + 1, okay
}

func (r *reader) float(c *rows.Column, f *field, b []byte, i int) (int, fail) {
	var v float64
	var end int
	switch c0 := b[i]; {
	case c0 == '"':
		// Jackson writes what JSON numbers cannot say as text.
		s, e, why := r.text(b, i)
		if why != okay {
			return e, why
		}
		switch string(s) {
		case "NaN":
			v = math.NaN()
		case "Infinity":
			v = math.Inf(1)
		case "-Infinity":
			v = math.Inf(-1)
		default:
			return e, wrongType
		}
		end = e
	case c0 == '-' || c0-'0' <= 9:
		var whole bool
		var why fail
		v, end, whole, why = parseFloat(b, i)
		if why != okay {
			return r.odd(b, i, why)
		}
		if whole && math.Abs(v) >= 1<<53 && !wholeFloat(v, b[i:end]) {
			return end, outOfRange
		}
	default:
		return r.odd(b, i, wrongType)
	}
	switch f.op {
	case opFloat32:
		s := v
		if !math.IsInf(v, 0) && !math.IsNaN(v) {
			w, err := strconv.ParseFloat(string(b[i:end]), 32) // one rounding, not two
			if err != nil {
				return end, outOfRange
			}
			s = w
		}
		v = s
	case opFloat32Exact:
		if w := float64(float32(v)); w != v && !math.IsNaN(v) {
			var tmp [32]byte
			if math.IsInf(w, 0) {
				return end, outOfRange
			}
			back, err := strconv.ParseFloat(string(strconv.AppendFloat(tmp[:0], w, 'g', -1, 32)), 64)
			if err != nil || back != v {
				return end, tooFine
			}
			v = w
		}
	}
	c.AppendFloat(v)
	return end, okay
}

// wholeFloat says whether digits name v: exactly, or by its shortest digits
// filled up with zeros. A whole number that no float64 holds is not rounded.
func wholeFloat(v float64, digits []byte) bool {
	var tmp [320]byte
	return string(strconv.AppendFloat(tmp[:0], v, 'f', 0, 64)) == string(digits) ||
		string(strconv.AppendFloat(tmp[:0], v, 'f', -1, 64)) == string(digits)
}

// putDecimal appends d to a decimal column.
func putDecimal(c *rows.Column, d decimal) fail {
	u, f := d.unscaled(int(c.Type.Precision), int(c.Type.Scale))
	if f != okay {
		return f
	}
	neg := d.neg && !u.zero()
	if c.Storage == rows.Ints {
		v := int64(u.lo)
		if neg {
			v = -v
		}
		c.AppendInt(v)
		return okay
	}
	if neg {
		u.hi, u.lo = ^u.hi, ^u.lo
		if u.lo++; u.lo == 0 {
			u.hi++
		}
	}
	var w [16]byte
	binary.BigEndian.PutUint64(w[:8], u.hi)
	binary.BigEndian.PutUint64(w[8:], u.lo)
	c.AppendBytes(w[:])
	return okay
}

func (r *reader) decimal(c *rows.Column, f *field, b []byte, i int) (int, fail) {
	switch c0 := b[i]; {
	case c0 == '"':
		s, end, why := r.text(b, i)
		switch {
		case why != okay:
			return end, why
		case f.b64:
			d, why := r.base64Decimal(s, f.scale)
			if why == okay {
				why = putDecimal(c, d)
			}
			return end, why
		case !f.text && f.num && !isDigits(s):
			return end, noDecimalForm
		case !f.text && !f.num:
			return end, wrongType
		}
		d, why := parseDecimal(s, true)
		if why == okay {
			why = putDecimal(c, d)
		}
		return end, why
	case (c0 == '-' || c0-'0' <= 9) && f.num:
		end, _ := scanNumber(b, i)
		if end < 0 {
			return i, malformed
		}
		d, why := parseDecimal(b[i:end], false)
		if why == okay {
			why = putDecimal(c, d)
		}
		return end, why
	}
	return r.odd(b, i, wrongType)
}

func (r *reader) base64Decimal(s []byte, scale int) (decimal, fail) {
	raw, ok := r.base64(s)
	if !ok {
		return decimal{}, badText
	}
	d, f := bigEndian(raw, scale)
	return d.trim(), f
}

// base64 decodes s into the reader's second scratch.
func (r *reader) base64(s []byte) ([]byte, bool) {
	out, err := base64.StdEncoding.Strict().AppendDecode(r.raw[:0], s)
	r.raw = out[:0]
	return out, err == nil
}

func (r *reader) varDecimal(c *rows.Column, b []byte, i int) (int, fail) {
	if b[i] != '{' {
		return r.odd(b, i, wrongType)
	}
	var scale int64
	var raw []byte
	seen := 0
	i = skipSpace(b, i+1)
	for more := true; more; {
		name, v := member(b, i, &r.scratch)
		if v < 0 {
			return i, malformed
		}
		var why fail
		switch string(name) {
		case "scale":
			if scale, i, why = wholeNumber(b, v); why != okay {
				return r.odd(b, v, why)
			}
			seen |= 1
		case "value":
			if b[v] != '"' {
				return r.odd(b, v, wrongType)
			}
			var s []byte
			if s, i, why = r.text(b, v); why != okay {
				return i, why
			}
			var ok bool
			if raw, ok = r.base64(s); !ok {
				return i, badText
			}
			seen |= 2
		default:
			return v, wrongType
		}
		if i, more = next(b, i); i < 0 {
			return v, malformed
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

// bytes appends base64 text to a binary or fixed column, or bits to theirs.
func (r *reader) bytes(c *rows.Column, f *field, s []byte) fail {
	raw, ok := r.base64(s)
	if !ok {
		return badText
	}
	return putRaw(c, f, raw)
}

// putRaw appends bytes to a binary or fixed column, or bits, which it turns
// around where they stand, to theirs.
func putRaw(c *rows.Column, f *field, raw []byte) fail {
	if f.op == opBits {
		// Debezium sends the lowest bits first.
		for i, j := 0, len(raw)-1; i < j; i, j = i+1, j-1 {
			raw[i], raw[j] = raw[j], raw[i]
		}
		switch c.Type.Kind {
		case schemas.Long, schemas.Decimal:
			for len(raw) > 0 && raw[0] == 0 {
				raw = raw[1:]
			}
			if len(raw) > 8 {
				return outOfRange
			}
			var v uint64
			for _, x := range raw {
				v = v<<8 | uint64(x)
			}
			if c.Type.Kind == schemas.Decimal {
				return putDecimal(c, decimal{coef: u128{0, v}}.trim())
			}
			if v > math.MaxInt64 {
				return outOfRange
			}
			c.AppendInt(int64(v))
			return okay
		}
	}
	if c.Type.Kind == schemas.Fixed && len(raw) != int(c.Type.Length) {
		return badLength
	}
	c.AppendBytes(raw)
	return okay
}

func (r *reader) temporalNumber(c *rows.Column, f *field, b []byte, i int) (int, fail) {
	if b[i] != '-' && b[i]-'0' > 9 {
		return r.odd(b, i, wrongType)
	}
	v, end, why := wholeNumber(b, i)
	if why != okay {
		return r.odd(b, i, why)
	}
	if f.unit == semNone {
		return end, noUnit
	}
	switch f.op {
	case opDate:
		c.AppendInt(dayOf(v))
		return end, okay
	case opTime:
		return end, putTime(c, v, f.unit, f.floor)
	}
	return end, putTimestamp(c, v, f.unit, f.floor)
}

// putTime appends a time of day as µs. 24:00:00 and beyond is refused, as are
// negative times.
func putTime(c *rows.Column, v int64, unit sem, floor bool) fail {
	if v < 0 {
		return outOfRange
	}
	switch unit {
	case semTimeMs:
		if v >= microsPerDay/1000 {
			return outOfRange
		}
		v *= 1000
	case semTimeNs:
		if !floor && v%1000 != 0 {
			return tooFine
		}
		v /= 1000
	}
	if v >= microsPerDay {
		return outOfRange
	}
	c.AppendInt(v)
	return okay
}

// putTimestamp appends a number of ms, µs or ns since 1970 to any timestamp column.
func putTimestamp(c *rows.Column, v int64, unit sem, floor bool) fail {
	infinite := 0
	switch unit {
	case semTsMs:
		switch {
		case v >= math.MaxInt64/1000:
			infinite = 1
		case v <= math.MinInt64/1000:
			infinite = -1
		default:
			infinite = infiniteMicros(v * 1000)
		}
	case semTsUs:
		infinite = infiniteMicros(v)
	}
	nanos := c.Type.Kind == schemas.TimestampNs || c.Type.Kind == schemas.TimestampTzNs
	switch {
	case infinite > 0 && nanos:
		v = math.MaxInt64
	case infinite < 0 && nanos:
		v = math.MinInt64
	case infinite > 0:
		v = PositiveInfinity
	case infinite < 0:
		v = NegativeInfinity
	case nanos:
		factor := int64(1)
		switch unit {
		case semTsMs:
			factor = 1e6
		case semTsUs:
			factor = 1e3
		}
		if v > math.MaxInt64/factor || v < math.MinInt64/factor {
			return outOfRange
		}
		v *= factor
	case unit == semTsMs:
		v *= 1000
	case unit == semTsNs:
		if !floor && v%1000 != 0 {
			return tooFine
		}
		v = floorDiv(v, 1000)
	}
	c.AppendInt(v)
	return okay
}

// infiniteMicros is the sign of the infinity that a µs timestamp stands for,
// 0 for a plain one. PostgreSQL's own value lies inside the last day.
func infiniteMicros(v int64) int {
	switch {
	case v >= endDay*microsPerDay:
		return 1
	case v < minSourceDay*microsPerDay:
		return -1
	}
	return 0
}

func (r *reader) temporalText(c *rows.Column, f *field, s []byte) fail {
	switch f.op {
	case opDate:
		switch string(s) {
		case "infinity":
			c.AppendInt(positiveInfDay)
			return okay
		case "-infinity":
			c.AppendInt(negativeInfDay)
			return okay
		}
		days, n, zero, why := scanDate(s)
		if why != okay {
			return why
		}
		if n < len(s) && !(len(s) == n+1 && s[n]|0x20 == 'z') {
			return badText
		}
		switch {
		case zero && f.key >= 0:
			return isNull
		case zero:
			c.AppendNull()
			return okay
		case days > math.MaxInt32:
			days = positiveInfDay
		case days < math.MinInt32:
			days = negativeInfDay
		}
		c.AppendInt(days)
		return okay
	case opTime:
		nanos, n, why := scanClock(s)
		if why != okay {
			return why
		}
		if n < len(s) {
			offset, why := scanOffset(s[n:])
			if why != okay {
				return why
			}
			day := microsPerDay * 1000
			nanos = (nanos - offset*1e9 + day) % day
		}
		return putTime(c, nanos, semTimeNs, f.floor)
	}
	z := zoneUTC
	if c.Type.Kind == schemas.TimestampTz || c.Type.Kind == schemas.TimestampTzNs {
		z = zoneNeeded
	}
	m, why := parseMoment(s, z)
	if why != okay {
		return why
	}
	if m.zero {
		if f.key >= 0 {
			return isNull
		}
		c.AppendNull()
		return okay
	}
	var v int64
	if c.Type.Kind == schemas.TimestampNs || c.Type.Kind == schemas.TimestampTzNs {
		v, why = m.nanosOf()
	} else {
		v, why = m.micros(f.floor)
	}
	if why == okay {
		c.AppendInt(v)
	}
	return why
}

// parseUUID reads the 36-character form.
func parseUUID(u *[16]byte, s []byte) bool {
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return false
	}
	n := 0
	for i := 0; i < 36; i++ {
		c := s[i]
		if c == '-' && (i == 8 || i == 13 || i == 18 || i == 23) {
			continue
		}
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return false
		}
		u[n/2] = u[n/2]<<4 | c
		n++
	}
	return true
}
