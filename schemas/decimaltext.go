package schemas

import (
	"fmt"
	"strconv"
	"strings"
)

// appendDecimalText appends unscaled × 10^-scale in plain notation, with
// exactly scale digits after the point.
func appendDecimalText(dst []byte, unscaled int128, scale int) []byte {
	if unscaled.negative() {
		dst = append(dst, '-')
	}
	var digits [40]byte
	n := len(digits)
	for v := unscaled.abs(); v != (int128{}) || len(digits)-n <= scale; {
		var d uint64
		v, d = v.divMod(10)
		n--
		digits[n] = byte('0' + d)
	}
	point := len(digits) - scale
	dst = append(dst, digits[n:point]...)
	if scale > 0 {
		dst = append(dst, '.')
		dst = append(dst, digits[point:]...)
	}
	return dst
}

// maxDecimalText bounds the text of a decimal: 38 digits, sign, point,
// exponent, and generous zeros.
const maxDecimalText = 128

// parseDecimalText reads plain or scientific notation (Java's BigDecimal
// writes 1E-10). The value must be exact at the type's scale: 12.30 is a
// decimal(4, 1), 12.34 is none.
func parseDecimalText(s string, t Type) (int128, error) {
	wrong := fmt.Errorf("the text is no %s", t)
	if len(s) > maxDecimalText {
		return int128{}, wrong
	}
	mantissa, exponent := s, 0
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		e, err := strconv.Atoi(s[i+1:])
		if err != nil || e < -maxDecimalText || e > maxDecimalText {
			return int128{}, wrong
		}
		mantissa, exponent = s[:i], e
	}
	negative := false
	if mantissa != "" && (mantissa[0] == '-' || mantissa[0] == '+') {
		negative = mantissa[0] == '-'
		mantissa = mantissa[1:]
	}
	whole, fraction, hasPoint := strings.Cut(mantissa, ".")
	if whole == "" || hasPoint && fraction == "" {
		return int128{}, wrong
	}
	// shift zeros are to be appended to the digits, or taken from them.
	digits := whole + fraction
	shift := int(t.Scale) + exponent - len(fraction)
	for i := 0; i < len(digits); i++ {
		if digits[i] < '0' || digits[i] > '9' {
			return int128{}, wrong
		}
	}
	for ; shift < 0; shift++ {
		if digits == "" {
			break
		}
		if digits[len(digits)-1] != '0' {
			return int128{}, fmt.Errorf("the number has more than %d digits after the point: %w", t.Scale, ErrNotExact)
		}
		digits = digits[:len(digits)-1]
	}
	digits = strings.TrimLeft(digits, "0")
	if digits == "" {
		return int128{}, nil
	}
	if len(digits)+shift > int(t.Precision) {
		return int128{}, fmt.Errorf("the number has more digits than a %s: %w", t, ErrNotExact)
	}
	var v int128
	for i := 0; i < len(digits); i++ {
		v = v.mulAdd(10, uint64(digits[i]-'0'))
	}
	for range shift {
		v = v.mulAdd(10, 0)
	}
	if negative {
		v = v.neg()
	}
	return v, nil
}
