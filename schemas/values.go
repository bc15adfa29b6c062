package schemas

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"
)

// A single value is one value of a type in Iceberg's binary single-value
// serialization (specification, appendix D): it stands in bounds, partition
// tuples and column defaults. Integers are little-endian, decimals unscaled
// big-endian in the fewest bytes.

// ErrNotExact marks a value that its type cannot hold exactly.
var ErrNotExact = errors.New("the value does not fit its type")

// storesInts says whether values of t are one signed 64-bit number each.
func (t Type) storesInts() bool {
	switch t.Kind {
	case Boolean, Int, Long, Date, Time, Timestamp, TimestampTz, TimestampNs, TimestampTzNs:
		return true
	case Decimal:
		return t.Precision <= 18
	}
	return false
}

// IntRange is the smallest and largest value of an integer-like type (a
// decimal of precision ≤ 18: unscaled).
func (t Type) IntRange() (lo, hi int64) {
	switch t.Kind {
	case Boolean:
		return 0, 1
	case Int, Date:
		return math.MinInt32, math.MaxInt32
	case Time:
		return 0, MicrosPerDay - 1
	case Decimal:
		p := int64(pow10[t.Precision].lo) - 1
		return -p, p
	}
	return math.MinInt64, math.MaxInt64
}

// AppendIntValue appends the single value of an integer-like type.
func AppendIntValue(dst []byte, t Type, v int64) ([]byte, error) {
	if lo, hi := t.IntRange(); v < lo || v > hi {
		return dst, fmt.Errorf("%s: %w", t, ErrNotExact)
	}
	switch t.Kind {
	case Boolean:
		return append(dst, byte(v)), nil
	case Int, Date:
		return binary.LittleEndian.AppendUint32(dst, uint32(v)), nil
	case Decimal:
		return AppendMinimalDecimal(dst, v), nil
	}
	return binary.LittleEndian.AppendUint64(dst, uint64(v)), nil
}

// AppendFloatValue appends the single value of a float or double.
func AppendFloatValue(dst []byte, t Type, v float64) []byte {
	if t.Kind == Float {
		return binary.LittleEndian.AppendUint32(dst, math.Float32bits(float32(v)))
	}
	return binary.LittleEndian.AppendUint64(dst, math.Float64bits(v))
}

// AppendBytesValue appends the single value of a string, binary, fixed, uuid,
// or a decimal of precision > 18 given as 16 bytes. The result is never nil,
// which in tuples and bounds means that there is no value.
func AppendBytesValue(dst []byte, t Type, v []byte) ([]byte, error) {
	if dst == nil {
		dst = []byte{}
	}
	switch t.Kind {
	case Decimal:
		if len(v) != 16 || !DecimalFits(v, t.Precision) {
			return dst, fmt.Errorf("%s: %w", t, ErrNotExact)
		}
		return append(dst, minimalBytes(v)...), nil
	case UUID:
		if len(v) != 16 {
			return dst, fmt.Errorf("a uuid has 16 bytes, not %d: %w", len(v), ErrNotExact)
		}
	case Fixed:
		if len(v) != int(t.Length) {
			return dst, fmt.Errorf("a %s has %d bytes, not %d: %w", t, t.Length, len(v), ErrNotExact)
		}
	}
	return append(dst, v...), nil
}

// IntValue reads the single value of an integer-like type. A shorter form
// that a promoted column left behind (int in a long column) is read too.
func IntValue(t Type, b []byte) (int64, error) {
	var v int64
	switch {
	case t.Kind == Boolean && len(b) == 1:
		v = int64(b[0])
	case t.Kind == Decimal && len(b) >= 1 && len(b) <= 16:
		w, ok := int128FromBytes(b).int64()
		if !ok {
			return 0, fmt.Errorf("single value of a %s: %w", t, ErrNotExact)
		}
		v = w
	case (t.Kind == Int || t.Kind == Date || t.Kind == Long) && len(b) == 4:
		v = int64(int32(binary.LittleEndian.Uint32(b)))
	case t.storesInts() && t.Kind != Boolean && t.Kind != Decimal && t.Kind != Int && t.Kind != Date && len(b) == 8:
		v = int64(binary.LittleEndian.Uint64(b))
	default:
		return 0, fmt.Errorf("%d bytes are no single value of a %s", len(b), t)
	}
	if lo, hi := t.IntRange(); v < lo || v > hi {
		return 0, fmt.Errorf("single value of a %s: %w", t, ErrNotExact)
	}
	return v, nil
}

// FloatValue reads the single value of a float or double; a float in a
// promoted double column too.
func FloatValue(t Type, b []byte) (float64, error) {
	switch {
	case (t.Kind == Float || t.Kind == Double) && len(b) == 4:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b))), nil
	case t.Kind == Double && len(b) == 8:
		return math.Float64frombits(binary.LittleEndian.Uint64(b)), nil
	}
	return 0, fmt.Errorf("%d bytes are no single value of a %s", len(b), t)
}

// BytesValue reads the single value of a string, binary, fixed, uuid, or a
// decimal of precision > 18, which it returns as 16 bytes. Others alias b.
func BytesValue(t Type, b []byte) ([]byte, error) {
	switch t.Kind {
	case String:
		if !utf8.Valid(b) {
			return nil, errors.New("single value of a string is not UTF-8")
		}
		return b, nil
	case Binary:
		return b, nil
	case UUID:
		if len(b) == 16 {
			return b, nil
		}
	case Fixed:
		if len(b) == int(t.Length) {
			return b, nil
		}
	case Decimal:
		if len(b) >= 1 && len(b) <= 16 {
			v := int128FromBytes(b)
			if !v.fits(t.Precision) {
				return nil, fmt.Errorf("single value of a %s: %w", t, ErrNotExact)
			}
			w := v.bytes()
			return w[:], nil
		}
	}
	return nil, fmt.Errorf("%d bytes are no single value of a %s", len(b), t)
}

// CheckValue says whether b is a single value of t.
func CheckValue(t Type, b []byte) error {
	var err error
	switch {
	case t.storesInts():
		_, err = IntValue(t, b)
	case t.Kind == Float || t.Kind == Double:
		_, err = FloatValue(t, b)
	default:
		_, err = BytesValue(t, b)
	}
	return err
}

// AppendText appends a single value as text: Iceberg's JSON form without its
// quotes. ParseText reads it back.
func AppendText(dst []byte, t Type, single []byte) ([]byte, error) {
	switch {
	case t.Kind == Decimal:
		if err := CheckValue(t, single); err != nil {
			return dst, err
		}
		return appendDecimalText(dst, int128FromBytes(single), int(t.Scale)), nil
	case t.storesInts():
		v, err := IntValue(t, single)
		if err != nil {
			return dst, err
		}
		switch t.Kind {
		case Boolean:
			return strconv.AppendBool(dst, v == 1), nil
		case Date:
			return AppendDate(dst, v), nil
		case Time:
			return appendTimeOfDay(dst, v, 6), nil
		case Timestamp, TimestampTz:
			return appendTimestamp(dst, v, 6, t.Kind == TimestampTz), nil
		case TimestampNs, TimestampTzNs:
			return appendTimestamp(dst, v, 9, t.Kind == TimestampTzNs), nil
		}
		return strconv.AppendInt(dst, v, 10), nil
	case t.Kind == Float || t.Kind == Double:
		v, err := FloatValue(t, single)
		if err != nil {
			return dst, err
		}
		bits := 64
		if t.Kind == Float {
			bits = 32
		}
		return strconv.AppendFloat(dst, v, 'g', -1, bits), nil
	}
	v, err := BytesValue(t, single)
	if err != nil {
		return dst, err
	}
	switch t.Kind {
	case UUID:
		for i, n := range []int{4, 2, 2, 2, 6} {
			if i > 0 {
				dst = append(dst, '-')
			}
			dst = hex.AppendEncode(dst, v[:n])
			v = v[n:]
		}
		return dst, nil
	case String:
		return append(dst, v...), nil
	}
	return hex.AppendEncode(dst, v), nil
}

// ParseText reads a value's text into a single value. It is exact or an
// error: no rounding, no wrapping, no folding of case.
func ParseText(t Type, s string) ([]byte, error) {
	wrong := func() error { return fmt.Errorf("the text is no %s", t) }
	switch t.Kind {
	case Boolean:
		switch s {
		case "true":
			return []byte{1}, nil
		case "false":
			return []byte{0}, nil
		}
		return nil, wrong()
	case Int, Long:
		v, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return nil, wrong()
		}
		return AppendIntValue(nil, t, v)
	case Float, Double:
		bits := 64
		if t.Kind == Float {
			bits = 32
		}
		v, err := strconv.ParseFloat(s, bits)
		if err != nil {
			return nil, wrong()
		}
		return AppendFloatValue(nil, t, v), nil
	case Decimal:
		v, err := parseDecimalText(s, t)
		if err != nil {
			return nil, err
		}
		b := v.bytes()
		return minimalBytes(b[:]), nil
	case Date, Time, Timestamp, TimestampTz, TimestampNs, TimestampTzNs:
		v, ok := parseTemporal(t, s)
		if !ok {
			return nil, wrong()
		}
		return AppendIntValue(nil, t, v)
	case UUID:
		v, ok := parseUUID(s)
		if !ok {
			return nil, wrong()
		}
		return v, nil
	case String:
		if !utf8.ValidString(s) {
			return nil, wrong()
		}
		return []byte(s), nil
	case Binary, Fixed:
		v, err := hex.DecodeString(s)
		if err != nil {
			return nil, wrong()
		}
		return AppendBytesValue(nil, t, v)
	}
	return nil, wrong()
}

func parseUUID(s string) ([]byte, bool) {
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return nil, false
	}
	v, err := hex.DecodeString(s[:8] + s[9:13] + s[14:18] + s[19:23] + s[24:])
	return v, err == nil
}

// AppendJSONValue appends a single value in Iceberg's JSON form, as column
// defaults hold it. JSON has no NaN and no infinity: those are refused.
func AppendJSONValue(dst []byte, t Type, single []byte) ([]byte, error) {
	switch t.Kind {
	case Boolean, Int, Long:
		return AppendText(dst, t, single)
	case Float, Double:
		v, err := FloatValue(t, single)
		if err != nil {
			return dst, err
		}
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return dst, fmt.Errorf("JSON has no form for NaN or an infinity: %w", ErrNotExact)
		}
		return AppendText(dst, t, single)
	}
	text, err := AppendText(nil, t, single)
	if err != nil {
		return dst, err
	}
	return AppendJSONString(dst, string(text)), nil
}

// ParseJSONValue reads Iceberg's JSON form of a value into a single value. A
// JSON null is an error: a default that is null is no default.
func ParseJSONValue(t Type, raw json.RawMessage) ([]byte, error) {
	raw = bytes.TrimSpace(raw)
	if !json.Valid(raw) {
		return nil, fmt.Errorf("the default of a %s is not JSON", t)
	}
	wrong := fmt.Errorf("the JSON value is no %s", t)
	switch t.Kind {
	case Boolean:
		return ParseText(t, string(raw))
	case Int, Long:
		if raw[0] == '"' {
			return nil, wrong
		}
		return ParseText(t, string(raw))
	case Float, Double:
		if raw[0] != '-' && (raw[0] < '0' || raw[0] > '9') {
			return nil, wrong
		}
		return ParseText(t, string(raw))
	}
	if raw[0] != '"' {
		return nil, wrong
	}
	if !utf8.Valid(raw) {
		return nil, wrong
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, wrong
	}
	return ParseText(t, s)
}
