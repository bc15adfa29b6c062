package schemas

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

var transformNames = [...]string{
	Identity: "identity", Bucket: "bucket", Truncate: "truncate",
	Year: "year", Month: "month", Day: "day", Hour: "hour", Void: "void",
}

// hasN says whether the transform takes a bucket count or a width.
func (k TransformKind) hasN() bool { return k == Bucket || k == Truncate }

// TransformName is the transform in Iceberg's JSON: bucket[16], day, …
func TransformName(k TransformKind, n int32) string {
	if int(k) >= len(transformNames) || transformNames[k] == "" {
		return "unknown(" + strconv.Itoa(int(k)) + ")"
	}
	if k.hasN() {
		return transformNames[k] + "[" + strconv.Itoa(int(n)) + "]"
	}
	return transformNames[k]
}

func transformByName(name string) TransformKind {
	for k, s := range transformNames {
		if s == name && s != "" {
			return TransformKind(k)
		}
	}
	return 0
}

func parseN(s string) (int32, bool) {
	v, err := strconv.ParseInt(strings.TrimSpace(s), 10, 32)
	return int32(v), err == nil && v >= 1
}

// ParseTransformName reads Iceberg's JSON form: bucket[16], truncate[4], day.
func ParseTransformName(s string) (TransformKind, int32, error) {
	name, rest, hasN := strings.Cut(s, "[")
	k := transformByName(name)
	if k == 0 || k.hasN() != hasN {
		return 0, 0, fmt.Errorf("partition transform %q is not one that varve knows", s)
	}
	if !hasN {
		return k, 0, nil
	}
	rest, closed := strings.CutSuffix(rest, "]")
	n, ok := parseN(rest)
	if !closed || !ok {
		return 0, 0, fmt.Errorf("partition transform %q: a positive number stands in its brackets", s)
	}
	return k, n, nil
}

// ParseTransform reads a partition expression as a user writes it: day(ts),
// bucket(16, id), truncate(4, name), identity(x), void(x), or x alone for
// identity. The column may be quoted with backquotes: `a(b)`. Year, month, day
// and hour are also known by their plural (years(ts)), as Spark writes them.
func ParseTransform(s string) (k TransformKind, n int32, column string, err error) {
	s = strings.TrimSpace(s)
	name, args, isCall := strings.Cut(s, "(")
	if strings.HasPrefix(s, "`") || !isCall {
		column, ok := unquoteColumn(s)
		if !ok {
			return 0, 0, "", fmt.Errorf("partition %q names no column", s)
		}
		return Identity, 0, column, nil
	}
	name = strings.ToLower(strings.TrimSpace(name))
	if k = transformByName(name); k == 0 {
		switch name {
		case "years", "months", "days", "hours":
			k = transformByName(strings.TrimSuffix(name, "s"))
		default:
			return 0, 0, "", fmt.Errorf("partition %q: %q is none of identity, bucket, truncate, year, month, day, hour, void", s, name)
		}
	}
	args, closed := strings.CutSuffix(strings.TrimSpace(args), ")")
	if !closed {
		return 0, 0, "", fmt.Errorf("partition %q lacks its closing parenthesis", s)
	}
	if k.hasN() {
		number, rest, two := strings.Cut(args, ",")
		var ok bool
		if n, ok = parseN(number); !ok || !two {
			return 0, 0, "", fmt.Errorf("partition %q: write %s(N, column) with N at least 1", s, name)
		}
		args = rest
	}
	column, ok := unquoteColumn(strings.TrimSpace(args))
	if !ok {
		return 0, 0, "", fmt.Errorf("partition %q names no column", s)
	}
	return k, n, column, nil
}

// unquoteColumn reads a column name, perhaps in backquotes (two inside stand
// for one).
func unquoteColumn(s string) (string, bool) {
	if len(s) >= 2 && s[0] == '`' && s[len(s)-1] == '`' {
		inner := s[1 : len(s)-1]
		if strings.Contains(strings.ReplaceAll(inner, "``", ""), "`") {
			return "", false
		}
		s = strings.ReplaceAll(inner, "``", "`")
	}
	return s, s != ""
}

// TransformResult is the type of a transform's values (T4), or an error when
// the transform cannot take the source type.
func TransformResult(k TransformKind, n int32, source Type) (Type, error) {
	refuse := func() (Type, error) {
		return Type{}, fmt.Errorf("partition transform %s cannot take a %s", TransformName(k, n), source)
	}
	if k.hasN() && n < 1 {
		return Type{}, fmt.Errorf("partition transform %s needs a positive number", TransformName(k, n))
	}
	if source.IsNested() && k != Void {
		return refuse()
	}
	timestamp := false
	switch source.Kind {
	case Timestamp, TimestampTz, TimestampNs, TimestampTzNs:
		timestamp = true
	}
	switch k {
	case Identity, Void:
		return source, nil
	case Bucket:
		switch source.Kind {
		case Boolean, Float, Double:
			return refuse()
		}
		return Of(Int), nil
	case Truncate:
		switch source.Kind {
		case Int, Long, Decimal, String, Binary:
			return source, nil
		}
		return refuse()
	case Year, Month, Day:
		if source.Kind != Date && !timestamp {
			return refuse()
		}
		if k == Day {
			return Of(Date), nil
		}
		return Of(Int), nil
	case Hour:
		if !timestamp {
			return refuse()
		}
		return Of(Int), nil
	}
	return refuse()
}

// ResultTypes are the types of the spec's partition tuple over a schema. A
// field whose source column left the schema has the type of a void (the
// caller writes null).
func (sp *Spec) ResultTypes(s *Schema) ([]Type, error) {
	types := make([]Type, len(sp.Fields))
	for i := range sp.Fields {
		f := &sp.Fields[i]
		j := s.ByID(f.SourceID)
		if j < 0 {
			if f.Transform != Void {
				return nil, fmt.Errorf("partition field %q: column id %d is not in the schema", f.Name, f.SourceID)
			}
			types[i] = Of(Int)
			continue
		}
		t, err := TransformResult(f.Transform, f.N, s.Fields[j].Type)
		if err != nil {
			return nil, fmt.Errorf("partition field %q: %w", f.Name, err)
		}
		types[i] = t
	}
	return types, nil
}

// TransformInt applies a transform to a value of an integer-like type (a
// decimal of precision ≤ 18 unscaled). TransformResult has allowed the pair.
func TransformInt(k TransformKind, n int32, source Type, v int64) (int64, error) {
	switch k {
	case Identity:
		return v, nil
	case Bucket:
		return int64(BucketOf(HashInt(source, v), n)), nil
	case Truncate:
		w := int64(n)
		rem := v % w
		if rem < 0 {
			rem += w
		}
		lo, _ := source.IntRange()
		if v < lo+rem {
			return 0, fmt.Errorf("truncate to multiples of %d passes the smallest %s: %w", n, source, ErrNotExact)
		}
		return v - rem, nil
	}
	// Floor to days, then to larger units.
	unit := int64(1)
	switch source.Kind {
	case Timestamp, TimestampTz:
		unit = MicrosPerDay
	case TimestampNs, TimestampTzNs:
		unit = MicrosPerDay * NanosPerMicro
	}
	var out int64
	switch k {
	case Hour:
		out = FloorDiv(v, unit/24)
	case Day:
		out = FloorDiv(v, unit)
	case Month:
		y, m, _ := CivilDate(FloorDiv(v, unit))
		out = (y-1970)*12 + int64(m-1)
	case Year:
		y, _, _ := CivilDate(FloorDiv(v, unit))
		out = y - 1970
	default:
		return 0, fmt.Errorf("partition transform %s has no number for a %s", TransformName(k, n), source)
	}
	if out < math.MinInt32 || out > math.MaxInt32 {
		return 0, fmt.Errorf("%s of a %s passes an int: %w", TransformName(k, n), source, ErrNotExact)
	}
	return out, nil
}

// TruncateBytes is truncate[width] of a string (by code point) or a binary.
func TruncateBytes(t Type, v []byte, width int32) []byte {
	if t.Kind != String {
		return v[:min(len(v), int(width))]
	}
	return v[:CodePoints(v, int(width))]
}

// CodePoints is the length in bytes of the first n code points of v. An
// ill-formed byte counts as one.
func CodePoints(v []byte, n int) int {
	if len(v) <= n {
		return len(v)
	}
	i := 0
	for ; n > 0 && i < len(v); n-- {
		c := v[i]
		i++
		if c < 0xC0 {
			continue
		}
		more := 1
		if c >= 0xF0 {
			more = 3
		} else if c >= 0xE0 {
			more = 2
		}
		for ; more > 0 && i < len(v) && v[i]&0xC0 == 0x80; more-- {
			i++
		}
	}
	return i
}

// BucketOf is the bucket of a hash (T4: & 0x7fffffff).
func BucketOf(hash uint32, n int32) int32 { return int32(hash&0x7fffffff) % n }

// HashInt is Iceberg's bucket hash of an integer-like value: ints and dates as
// longs, nanoseconds as microseconds, decimals by their minimal bytes.
func HashInt(source Type, v int64) uint32 {
	switch source.Kind {
	case Decimal:
		var b [8]byte
		return Murmur3(AppendMinimalDecimal(b[:0], v))
	case TimestampNs, TimestampTzNs:
		v = FloorDiv(v, NanosPerMicro)
	}
	return murmur3Long(uint64(v))
}

// HashBytes is Iceberg's bucket hash of a string, binary, fixed, uuid or wide
// decimal (16 bytes).
func HashBytes(source Type, v []byte) uint32 {
	if source.Kind == Decimal {
		v = minimalBytes(v)
	}
	return Murmur3(v)
}
