package schemas

import (
	"fmt"
	"strconv"
	"strings"
)

// Kind is a kind of type of Iceberg v3 that varve stores.
type Kind uint8

// The kinds, in a fixed order: their numbers stand in records and must not change.
const (
	Boolean Kind = iota + 1
	Int
	Long
	Float
	Double
	Decimal
	Date
	Time
	Timestamp
	TimestampTz
	TimestampNs
	TimestampTzNs
	String
	UUID
	Fixed
	Binary
	Struct
	List
	Map
)

// Type is a column type. Precision (1–38) and Scale (0–Precision) belong to
// Decimal, Length (bytes, ≥ 1) to Fixed; both are 0 otherwise. Nested is what a
// struct, list or map is made of: Iceberg's JSON of the type, in the one form
// that varve writes (StructOf, ListOf, MapOf), so that two types are equal
// exactly if they are the same letter by letter.
type Type struct {
	Kind      Kind
	Precision uint8
	Scale     uint8
	Length    int32
	Nested    string
}

// DecimalOf is decimal(precision, scale).
func DecimalOf(precision, scale int) Type {
	return Type{Kind: Decimal, Precision: uint8(precision), Scale: uint8(scale)}
}

// FixedOf is fixed[length].
func FixedOf(length int) Type { return Type{Kind: Fixed, Length: int32(length)} }

// Of is the type of a kind that has no parameters.
func Of(k Kind) Type { return Type{Kind: k} }

var kindNames = [...]string{
	Boolean: "boolean", Int: "int", Long: "long", Float: "float", Double: "double",
	Decimal: "decimal", Date: "date", Time: "time", Timestamp: "timestamp",
	TimestampTz: "timestamptz", TimestampNs: "timestamp_ns", TimestampTzNs: "timestamptz_ns",
	String: "string", UUID: "uuid", Fixed: "fixed", Binary: "binary",
	Struct: "struct", List: "list", Map: "map",
}

// String is the type's name in Iceberg's schema JSON; a nested one is told for
// people, as in struct<a: long, b: list<string>> (AppendJSON tells all of it).
func (t Type) String() string {
	switch t.Kind {
	case Struct, List, Map:
		return t.nestedName()
	case Decimal:
		return "decimal(" + strconv.Itoa(int(t.Precision)) + ", " + strconv.Itoa(int(t.Scale)) + ")"
	case Fixed:
		return "fixed[" + strconv.Itoa(int(t.Length)) + "]"
	}
	if int(t.Kind) < len(kindNames) && kindNames[t.Kind] != "" {
		return kindNames[t.Kind]
	}
	return "unknown(" + strconv.Itoa(int(t.Kind)) + ")"
}

// ParseType reads what String writes, or the JSON of a nested type. Fields inside
// of a nested type told by String have no ids.
func ParseType(s string) (Type, error) {
	if strings.HasPrefix(s, "{") {
		return ParseTypeJSON([]byte(s))
	}
	if strings.HasSuffix(s, ">") {
		return parseNestedName(s)
	}
	if rest, ok := strings.CutPrefix(s, "decimal("); ok {
		rest, ok = strings.CutSuffix(rest, ")")
		p, sc, cut := strings.Cut(rest, ",")
		precision, errP := strconv.ParseUint(strings.TrimSpace(p), 10, 8)
		scale, errS := strconv.ParseUint(strings.TrimSpace(sc), 10, 8)
		if !ok || !cut || errP != nil || errS != nil || precision < 1 || precision > 38 || scale > precision {
			return Type{}, fmt.Errorf("type %q: a decimal is decimal(P, S) with 1 <= P <= 38 and 0 <= S <= P", s)
		}
		return DecimalOf(int(precision), int(scale)), nil
	}
	if rest, ok := strings.CutPrefix(s, "fixed["); ok {
		rest, ok = strings.CutSuffix(rest, "]")
		n, err := strconv.ParseUint(rest, 10, 31)
		if !ok || err != nil || n < 1 || n > MaxFixed {
			return Type{}, fmt.Errorf("type %q: a fixed is fixed[N] with 1 <= N <= 1048576", s)
		}
		return FixedOf(int(n)), nil
	}
	for k, name := range kindNames {
		if name == s && name != "" && Kind(k) != Decimal && Kind(k) < Fixed || name == s && Kind(k) == Binary {
			return Of(Kind(k)), nil
		}
	}
	return Type{}, fmt.Errorf("type %q is not a type that varve stores", s)
}

// MaxFixed bounds the length of a Fixed.
const MaxFixed = 1 << 20

// Valid says whether it is a type at all: a kind with parameters in their
// ranges, and no others. Records bring types that no parser has seen.
func (t Type) Valid() bool {
	switch t.Kind {
	case Decimal:
		return t.Precision >= 1 && t.Precision <= 38 && t.Scale <= t.Precision && t.Length == 0 && t.Nested == ""
	case Fixed:
		return t.Length >= 1 && t.Length <= MaxFixed && t.Precision == 0 && t.Scale == 0 && t.Nested == ""
	case Struct, List, Map:
		return t.validNested()
	}
	return t.Kind >= Boolean && t.Kind <= Binary && t == Of(t.Kind)
}

// CanWiden says whether values of t stay exact in a column of type to by
// Iceberg's promotions: int→long, float→double, decimal to a larger precision
// at the same scale; a nested type, by field id, if what it holds does and what
// is new is optional.
func (t Type) CanWiden(to Type) bool {
	switch {
	case t.Kind == Int && to.Kind == Long, t.Kind == Float && to.Kind == Double:
		return true
	case t.Kind == Decimal && to.Kind == Decimal:
		return t.Scale == to.Scale && to.Precision > t.Precision
	case t.IsNested():
		return t != to && t.canGrow(to)
	}
	return false
}

// KeyUsable says whether a column of this type may be part of a key (K1: no
// floats, nothing nested).
func (t Type) KeyUsable() bool { return t.Kind != Float && t.Kind != Double && !t.IsNested() }

// OrderUsable says whether a column of this type may be the ordering column:
// its values must compare exactly as one signed 64-bit number.
func (t Type) OrderUsable() bool {
	switch t.Kind {
	case Int, Long, Date, Time, Timestamp, TimestampTz, TimestampNs, TimestampTzNs:
		return true
	case Decimal:
		return t.Precision <= 18
	}
	return false
}
