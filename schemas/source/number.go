package source

import (
	"encoding/binary"
	"math"
	"math/bits"
	"strconv"
)

// u128 is an unsigned 128-bit integer.
type u128 struct{ hi, lo uint64 }

// mulAdd is u*m + a; ok is false when it does not fit.
func (u u128) mulAdd(m, a uint64) (r u128, ok bool) {
	hi1, lo := bits.Mul64(u.lo, m)
	hi2, top := bits.Mul64(u.hi, m)
	var c uint64
	r.lo, c = bits.Add64(lo, a, 0)
	r.hi, c = bits.Add64(hi1, top, c)
	return r, hi2 == 0 && c == 0
}

func (u u128) less(v u128) bool { return u.hi < v.hi || u.hi == v.hi && u.lo < v.lo }
func (u u128) zero() bool       { return u.hi|u.lo == 0 }

// pow10 holds 10^0 to 10^38, the largest power below 2^127.
var pow10 = func() (p [39]u128) {
	p[0] = u128{0, 1}
	for i := 1; i < len(p); i++ {
		p[i], _ = p[i-1].mulAdd(10, 0)
	}
	return p
}()

// decimal is coef × 10^-scale, exactly.
type decimal struct {
	neg   bool
	coef  u128
	scale int
}

// maxExponent bounds a number's written exponent: beyond it no column holds
// the value, and nothing need be computed.
const maxExponent = 400

// parseDecimal reads decimal text: JSON's number grammar, in which lenient
// also allows a plus sign and leading zeros (numbers kept as strings).
// Trailing zeros do not count as scale.
func parseDecimal(s []byte, lenient bool) (d decimal, f fail) {
	i := 0
	if i < len(s) && (s[i] == '-' || lenient && s[i] == '+') {
		d.neg = s[i] == '-'
		i++
	}
	var (
		digits, fraction int // digits read, of which after the point
		zeros            int // trailing zeros not yet multiplied in
		point            bool
		over             bool
	)
	first := i
	for ; i < len(s); i++ {
		c := s[i]
		if c == '.' && !point && digits > 0 {
			point = true
			continue
		}
		c -= '0'
		if c > 9 {
			break
		}
		digits++
		if point {
			fraction++
		} else if digits == 2 && s[first] == '0' && !lenient {
			return d, badText
		}
		if c == 0 {
			zeros++
			continue
		}
		if d.coef.zero() {
			d.coef.lo = uint64(c)
			zeros = 0
			continue
		}
		var ok bool
		for ; zeros > 0 && !over; zeros-- {
			if d.coef, ok = d.coef.mulAdd(10, 0); !ok {
				over = true
			}
		}
		if d.coef, ok = d.coef.mulAdd(10, uint64(c)); !ok {
			over = true
		}
	}
	if digits == 0 || point && fraction == 0 {
		return d, badText
	}
	exp := 0
	if i < len(s) && s[i]|0x20 == 'e' {
		i++
		neg := false
		if i < len(s) && (s[i] == '+' || s[i] == '-') {
			neg = s[i] == '-'
			i++
		}
		start := i
		for ; i < len(s) && s[i]-'0' <= 9; i++ {
			if exp <= maxExponent {
				exp = exp*10 + int(s[i]-'0')
			}
		}
		if i == start {
			return d, badText
		}
		if neg {
			exp = -exp
		}
	}
	if i != len(s) {
		return d, badText
	}
	if d.coef.zero() {
		return decimal{}, okay
	}
	if over || exp > maxExponent || exp < -maxExponent {
		return d, outOfRange
	}
	d.scale = fraction - zeros - exp
	return d, okay
}

// unscaled is the value as an integer of the given scale, below 10^precision.
func (d decimal) unscaled(precision, scale int) (u128, fail) {
	up := scale - d.scale
	switch {
	case d.coef.zero():
		return u128{}, okay
	case up < 0:
		return u128{}, tooFine
	case up > 38:
		return u128{}, outOfRange
	}
	u := d.coef
	for ; up > 0; up-- {
		var ok bool
		if u, ok = u.mulAdd(10, 0); !ok {
			return u, outOfRange
		}
	}
	if !u.less(pow10[precision]) {
		return u, outOfRange
	}
	return u, okay
}

// trim takes trailing zeros out of the coefficient, as parseDecimal does.
func (d decimal) trim() decimal {
	if d.coef.zero() {
		return decimal{}
	}
	for {
		hi, r := d.coef.hi/10, d.coef.hi%10
		lo, r := bits.Div64(r, d.coef.lo, 10)
		if r != 0 {
			return d
		}
		d.coef = u128{hi, lo}
		d.scale--
	}
}

// text is the plain decimal text of the value.
func (d decimal) text(dst []byte) []byte {
	var digits [40]byte
	n := len(digits)
	for u := d.coef; n == len(digits) || !u.zero(); {
		hi, r := u.hi/10, u.hi%10
		lo, r := bits.Div64(r, u.lo, 10)
		n--
		digits[n] = '0' + byte(r)
		u = u128{hi, lo}
	}
	if d.neg {
		dst = append(dst, '-')
	}
	text := digits[n:]
	if d.scale <= 0 {
		dst = append(dst, text...)
		if !d.coef.zero() {
			for k := d.scale; k < 0; k++ {
				dst = append(dst, '0')
			}
		}
		return dst
	}
	if d.scale >= len(text) {
		dst = append(dst, '0', '.')
		for k := len(text); k < d.scale; k++ {
			dst = append(dst, '0')
		}
		return append(dst, text...)
	}
	dst = append(dst, text[:len(text)-d.scale]...)
	dst = append(dst, '.')
	return append(dst, text[len(text)-d.scale:]...)
}

// bigEndian reads two's complement bytes of any length, the way Kafka Connect
// and Avro write an unscaled value.
func bigEndian(b []byte, scale int) (decimal, fail) {
	if len(b) == 0 {
		return decimal{}, badText
	}
	neg := b[0] >= 0x80
	sign := byte(0)
	if neg {
		sign = 0xFF
	}
	for len(b) > 16 {
		if b[0] != sign || b[1]&0x80 != sign&0x80 {
			return decimal{}, outOfRange
		}
		b = b[1:]
	}
	var full [16]byte
	for i := range full {
		full[i] = sign
	}
	copy(full[16-len(b):], b)
	u := u128{binary.BigEndian.Uint64(full[:8]), binary.BigEndian.Uint64(full[8:])}
	if neg {
		var c uint64
		u.lo, c = bits.Add64(^u.lo, 1, 0)
		u.hi = ^u.hi + c
	}
	return decimal{neg: neg, coef: u, scale: scale}, okay
}

// parseInt reads a whole number at i, exactly. A fraction or an exponent
// after it gives notWhole.
func parseInt(b []byte, i int) (v int64, end int, f fail) {
	neg := false
	if i < len(b) && b[i] == '-' {
		neg = true
		i++
	}
	start := i
	var u uint64
	for i < len(b) {
		c := b[i] - '0'
		if c > 9 {
			break
		}
		u = u*10 + uint64(c)
		i++
	}
	n := i - start
	switch {
	case n == 0 || n > 1 && b[start] == '0':
		return 0, i, malformed
	case i < len(b) && (b[i] == '.' || b[i]|0x20 == 'e'):
		return 0, i, notWhole
	case n > 19:
		return 0, i, outOfRange
	case neg:
		if u > 1<<63 {
			return 0, i, outOfRange
		}
		return -int64(u), i, okay
	case u > math.MaxInt64:
		return 0, i, outOfRange
	}
	return int64(u), i, okay
}

// wholeNumber reads a JSON number that must be a whole one of 64 bits; 5.0
// and 5e2 are whole.
func wholeNumber(b []byte, i int) (v int64, end int, f fail) {
	v, end, f = parseInt(b, i)
	if f == okay || f == malformed {
		return v, end, f
	}
	end, _ = scanNumber(b, i)
	if end < 0 {
		return 0, i, malformed
	}
	if f == outOfRange {
		return 0, end, f
	}
	d, f := parseDecimal(b[i:end], false)
	if f != okay {
		return 0, end, f
	}
	u, f := d.unscaled(38, 0)
	switch {
	case f == tooFine:
		return 0, end, notWhole
	case f != okay:
		return 0, end, f
	case u.hi != 0 || u.lo > math.MaxInt64 && !(d.neg && u.lo == 1<<63):
		return 0, end, outOfRange
	case d.neg:
		return -int64(u.lo), end, okay
	}
	return int64(u.lo), end, okay
}

// exact10 holds the powers of ten that a float64 holds exactly.
var exact10 = [...]float64{1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11,
	1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22}

// parseFloat reads a JSON number at i as the nearest float64. whole says that
// it was written without fraction and exponent.
func parseFloat(b []byte, i int) (v float64, end int, whole bool, f fail) {
	// Up to 15 digits divided by a power of ten up to 10^22 round once, so
	// the quotient is the nearest float64.
	j := i
	neg := false
	if j < len(b) && b[j] == '-' {
		neg = true
		j++
	}
	first := j
	var u uint64
	for j < len(b) && b[j]-'0' <= 9 && j-first < 16 {
		u = u*10 + uint64(b[j]-'0')
		j++
	}
	digits := j - first
	if digits == 0 || digits > 1 && b[first] == '0' {
		return 0, i, false, malformed
	}
	whole = true
	scale := 0
	if j < len(b) && b[j] == '.' {
		whole = false
		j++
		for j < len(b) && b[j]-'0' <= 9 && digits+scale < 16 {
			u = u*10 + uint64(b[j]-'0')
			scale++
			j++
		}
		if scale == 0 && digits < 16 {
			return 0, i, false, malformed
		}
	}
	if digits+scale <= 15 && (j >= len(b) || b[j]-'0' > 9 && b[j]|0x20 != 'e') {
		v = float64(u) / exact10[scale]
		if neg {
			v = -v
		}
		return v, j, whole, okay
	}
	end, whole = scanNumber(b, i)
	if end < 0 {
		return 0, i, false, malformed
	}
	v, err := strconv.ParseFloat(string(b[i:end]), 64)
	if err != nil {
		return 0, end, whole, outOfRange
	}
	return v, end, whole, okay
}
