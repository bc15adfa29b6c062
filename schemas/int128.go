package schemas

import (
	"encoding/binary"
	"math/bits"
)

// int128 is a two's complement integer of 128 bits: every decimal of
// precision ≤ 38 fits, for 10^38 < 2^127.
type int128 struct{ hi, lo uint64 }

func int128Of(v int64) int128 { return int128{uint64(v >> 63), uint64(v)} }

func (a int128) negative() bool { return int64(a.hi) < 0 }

// int64 is the value as an int64, and whether it is one.
func (a int128) int64() (int64, bool) {
	return int64(a.lo), int64(a.hi) == int64(a.lo)>>63
}

func (a int128) neg() int128 {
	lo, carry := bits.Add64(^a.lo, 1, 0)
	return int128{^a.hi + carry, lo}
}

// abs is the magnitude as an unsigned 128-bit number.
func (a int128) abs() int128 {
	if a.negative() {
		return a.neg()
	}
	return a
}

func (a int128) sub(b int128) int128 {
	lo, borrow := bits.Sub64(a.lo, b.lo, 0)
	hi, _ := bits.Sub64(a.hi, b.hi, borrow)
	return int128{hi, lo}
}

// below compares as unsigned numbers.
func (a int128) below(b int128) bool {
	return a.hi < b.hi || a.hi == b.hi && a.lo < b.lo
}

// mulAdd is a*m + d, unsigned; the caller keeps it below 2^127.
func (a int128) mulAdd(m, d uint64) int128 {
	hi, lo := bits.Mul64(a.lo, m)
	lo, carry := bits.Add64(lo, d, 0)
	return int128{a.hi*m + hi + carry, lo}
}

// divMod divides as an unsigned number.
func (a int128) divMod(m uint64) (int128, uint64) {
	hi, rem := a.hi/m, a.hi%m
	lo, rem := bits.Div64(rem, a.lo, m)
	return int128{hi, lo}, rem
}

func (a int128) bytes() (b [16]byte) {
	binary.BigEndian.PutUint64(b[:8], a.hi)
	binary.BigEndian.PutUint64(b[8:], a.lo)
	return b
}

// int128FromBytes reads 1 to 16 bytes of big-endian two's complement.
func int128FromBytes(b []byte) int128 {
	var w [16]byte
	if b[0]&0x80 != 0 {
		for i := range w {
			w[i] = 0xff
		}
	}
	copy(w[16-len(b):], b)
	return int128{binary.BigEndian.Uint64(w[:8]), binary.BigEndian.Uint64(w[8:])}
}

// pow10 holds 10^0 … 10^38.
var pow10 = func() (p [39]int128) {
	p[0] = int128{0, 1}
	for i := 1; i < len(p); i++ {
		p[i] = p[i-1].mulAdd(10, 0)
	}
	return p
}()

// fits says whether a decimal of this precision holds the value.
func (a int128) fits(precision uint8) bool { return a.abs().below(pow10[precision]) }

// minimalBytes drops the leading bytes that only repeat the sign.
func minimalBytes(b []byte) []byte {
	for len(b) > 1 && (b[0] == 0 && b[1] < 0x80 || b[0] == 0xff && b[1] >= 0x80) {
		b = b[1:]
	}
	return b
}

// DecimalBytes is the width of a decimal of this precision as a fixed-length
// two's complement number: the smallest that holds it.
func DecimalBytes(precision uint8) int {
	n := 1
	for ; n < 16; n++ {
		limit := int128{0, 1}
		for range 8*n - 1 {
			limit = limit.mulAdd(2, 0)
		}
		if !limit.below(pow10[precision]) {
			break
		}
	}
	return n
}

// DecimalFits says whether unscaled, 16 bytes of big-endian two's complement,
// is a value of a decimal of this precision.
func DecimalFits(unscaled []byte, precision uint8) bool {
	return int128FromBytes(unscaled[:16]).fits(precision)
}

// AppendDecimal16 appends an unscaled value as 16 bytes of big-endian two's
// complement, the storage of a decimal of precision > 18.
func AppendDecimal16(dst []byte, unscaled int64) []byte {
	b := int128Of(unscaled).bytes()
	return append(dst, b[:]...)
}

// AppendMinimalDecimal appends an unscaled value as the fewest bytes of
// big-endian two's complement that hold it (at least one).
func AppendMinimalDecimal(dst []byte, unscaled int64) []byte {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(unscaled))
	return append(dst, minimalBytes(b[:])...)
}

// MinimalDecimal is the same for 16 bytes; it aliases its argument.
func MinimalDecimal(unscaled []byte) []byte { return minimalBytes(unscaled) }

// TruncateDecimal16 floors 16 bytes of unscaled value to a multiple of width
// (T4); ok is false when the result has more digits than the precision.
func TruncateDecimal16(unscaled []byte, width int32, precision uint8) (out [16]byte, ok bool) {
	v := int128FromBytes(unscaled[:16])
	_, rem := v.abs().divMod(uint64(width))
	if v.negative() && rem > 0 {
		rem = uint64(width) - rem
	}
	v = v.sub(int128{0, rem})
	return v.bytes(), v.fits(precision)
}
