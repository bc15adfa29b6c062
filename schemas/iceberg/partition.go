package iceberg

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf16"

	"github.com/varve-io/varve/schemas"
)

// PartitionTypes is the type of every field of a spec's tuples. A source
// column is looked for in the schemas in order, so a dropped column may come
// from an older one.
func PartitionTypes(spec *schemas.Spec, from ...*schemas.Schema) ([]schemas.Type, error) {
	out := make([]schemas.Type, len(spec.Fields))
next:
	for i := range spec.Fields {
		f := &spec.Fields[i]
		for _, s := range from {
			j := s.ByID(f.SourceID)
			if j < 0 {
				continue
			}
			t, err := schemas.TransformResult(f.Transform, f.N, s.Fields[j].Type)
			if err != nil {
				return nil, fmt.Errorf("partition spec %d, field %q: %w", spec.ID, f.Name, err)
			}
			out[i] = t
			continue next
		}
		if f.Transform == schemas.Void { // always null, so any type will do
			out[i] = schemas.Of(schemas.Int)
			continue
		}
		return nil, fmt.Errorf("partition spec %d: field %q has source column id %d, which is in no schema given", spec.ID, f.Name, f.SourceID)
	}
	return out, nil
}

// avroNames are names for a spec's fields that Avro accepts: letters, digits
// and underscore, anything else written as _xHEX of its UTF-16 code units, as
// Iceberg Java does. Two names that meet are parted by the field id.
func avroNames(spec *schemas.Spec) []string {
	out := make([]string, len(spec.Fields))
	used := make(map[string]bool, len(spec.Fields))
	for i := range spec.Fields {
		name := sanitizeAvroName(spec.Fields[i].Name)
		if used[name] {
			name += "_" + strconv.Itoa(int(spec.Fields[i].FieldID))
		}
		used[name] = true
		out[i] = name
	}
	return out
}

func sanitizeAvroName(name string) string {
	var sb strings.Builder
	for i, u := range utf16.Encode([]rune(name)) {
		switch {
		case u >= 'a' && u <= 'z', u >= 'A' && u <= 'Z', u == '_':
			sb.WriteByte(byte(u))
		case u >= '0' && u <= '9':
			if i == 0 {
				sb.WriteByte('_')
			}
			sb.WriteByte(byte(u))
		default:
			sb.WriteString("_x")
			sb.WriteString(strings.ToUpper(strconv.FormatUint(uint64(u), 16)))
		}
	}
	if sb.Len() == 0 {
		return "_"
	}
	return sb.String()
}

// appendPartitionSchema appends the Avro record of a spec's tuples (field 102).
func appendPartitionSchema(dst []byte, spec *schemas.Spec, types []schemas.Type) []byte {
	names := avroNames(spec)
	fixed := map[string]bool{} // Avro defines a name once, and some readers know no references
	dst = append(dst, `{"type":"record","name":"r102","fields":[`...)
	for i := range spec.Fields {
		f := &spec.Fields[i]
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"name":"`...)
		dst = append(dst, names[i]...)
		dst = append(dst, `","type":["null",`...)
		dst = appendAvroPrimitive(dst, types[i], f.FieldID, fixed)
		dst = append(dst, `],"default":null,"field-id":`...)
		dst = strconv.AppendInt(dst, int64(f.FieldID), 10)
		if names[i] != f.Name {
			dst = append(dst, `,"iceberg-field-name":`...)
			dst = schemas.AppendJSONString(dst, f.Name)
		}
		dst = append(dst, '}')
	}
	return append(dst, `]}`...)
}

func appendAvroPrimitive(dst []byte, t schemas.Type, fieldID int32, fixed map[string]bool) []byte {
	named := func(name string, size int, logical string) []byte {
		if fixed[name] {
			name += "_" + strconv.Itoa(int(fieldID))
		}
		fixed[name] = true
		return append(dst, fmt.Sprintf(`{"type":"fixed","name":"%s","size":%d%s}`, name, size, logical)...)
	}
	switch t.Kind {
	case schemas.Boolean:
		return append(dst, `"boolean"`...)
	case schemas.Int:
		return append(dst, `"int"`...)
	case schemas.Long:
		return append(dst, `"long"`...)
	case schemas.Float:
		return append(dst, `"float"`...)
	case schemas.Double:
		return append(dst, `"double"`...)
	case schemas.Date:
		return append(dst, `{"type":"int","logicalType":"date"}`...)
	case schemas.Time:
		return append(dst, `{"type":"long","logicalType":"time-micros"}`...)
	case schemas.Timestamp:
		return append(dst, `{"type":"long","logicalType":"timestamp-micros","adjust-to-utc":false}`...)
	case schemas.TimestampTz:
		return append(dst, `{"type":"long","logicalType":"timestamp-micros","adjust-to-utc":true}`...)
	case schemas.TimestampNs:
		return append(dst, `{"type":"long","logicalType":"timestamp-nanos","adjust-to-utc":false}`...)
	case schemas.TimestampTzNs:
		return append(dst, `{"type":"long","logicalType":"timestamp-nanos","adjust-to-utc":true}`...)
	case schemas.String:
		return append(dst, `"string"`...)
	case schemas.Binary:
		return append(dst, `"bytes"`...)
	case schemas.UUID:
		return named("uuid_fixed", 16, `,"logicalType":"uuid"`)
	case schemas.Fixed:
		return named(fmt.Sprintf("fixed_%d", t.Length), int(t.Length), "")
	case schemas.Decimal:
		return named(fmt.Sprintf("decimal_%d_%d", t.Precision, t.Scale), schemas.DecimalBytes(t.Precision),
			fmt.Sprintf(`,"logicalType":"decimal","precision":%d,"scale":%d`, t.Precision, t.Scale))
	}
	panic(fmt.Sprintf("partition type %s", t)) // checkPartitionTypes has refused it
}

func checkPartitionTypes(spec *schemas.Spec, types []schemas.Type) error {
	if len(types) != len(spec.Fields) {
		return fmt.Errorf("partition spec %d has %d fields, but %d types were given", spec.ID, len(spec.Fields), len(types))
	}
	for i, t := range types {
		if t.Kind < schemas.Boolean || t.Kind > schemas.Binary {
			return fmt.Errorf("partition spec %d: field %q has no type", spec.ID, spec.Fields[i].Name)
		}
	}
	return nil
}

// appendPartition appends a tuple in Avro's encoding. Values of a column that
// was promoted later (int, float, narrower decimal) are widened.
func appendPartition(dst []byte, values [][]byte, types []schemas.Type) ([]byte, error) {
	for i, v := range values {
		if v == nil {
			dst = append(dst, avroNull)
			continue
		}
		dst = append(dst, avroValue)
		var err error
		if dst, err = appendAvroSingle(dst, v, types[i]); err != nil {
			return nil, fmt.Errorf("partition field %d: %w", i+1, err)
		}
	}
	return dst, nil
}

func appendAvroSingle(dst, v []byte, t schemas.Type) ([]byte, error) {
	bad := fmt.Errorf("%d bytes are no single value of %s", len(v), t)
	v = schemas.WidenSingle(v, t)
	switch t.Kind {
	case schemas.Boolean:
		if len(v) != 1 {
			return nil, bad
		}
		return appendAvroBool(dst, v[0] != 0), nil
	case schemas.Int, schemas.Date:
		if len(v) != 4 {
			return nil, bad
		}
		return appendAvroLong(dst, int64(int32(binary.LittleEndian.Uint32(v)))), nil
	case schemas.Long, schemas.Time, schemas.Timestamp, schemas.TimestampTz, schemas.TimestampNs, schemas.TimestampTzNs:
		if len(v) != 8 {
			return nil, bad
		}
		return appendAvroLong(dst, int64(binary.LittleEndian.Uint64(v))), nil
	case schemas.Float:
		if len(v) != 4 {
			return nil, bad
		}
		return append(dst, v...), nil
	case schemas.Double:
		if len(v) != 8 {
			return nil, bad
		}
		return append(dst, v...), nil
	case schemas.String, schemas.Binary:
		return appendAvroBytes(dst, v), nil
	case schemas.UUID:
		if len(v) != 16 {
			return nil, bad
		}
		return append(dst, v...), nil
	case schemas.Fixed:
		if len(v) != int(t.Length) {
			return nil, bad
		}
		return append(dst, v...), nil
	case schemas.Decimal:
		n := schemas.DecimalBytes(t.Precision)
		if len(v) == 0 || len(v) > n {
			return nil, bad
		}
		fill := byte(0)
		if v[0]&0x80 != 0 {
			fill = 0xff
		}
		for i := len(v); i < n; i++ {
			dst = append(dst, fill)
		}
		return append(dst, v...), nil
	}
	return nil, bad
}

// single reads one value in Avro's encoding as Iceberg's single-value bytes,
// or null (nil). The writer's schema says all that is needed.
func (r *avroReader) single(t *avroType) ([]byte, error) {
	t, err := r.resolve(t)
	if err != nil {
		return nil, err
	}
	switch t.kind {
	case avroNullKind:
		return nil, nil
	case avroBoolean:
		v, err := r.bool()
		if err != nil {
			return nil, err
		}
		return appendAvroBool(nil, v), nil
	case avroInt, avroLong:
		v, err := r.long()
		if err != nil {
			return nil, err
		}
		if t.kind == avroLong {
			return binary.LittleEndian.AppendUint64(nil, uint64(v)), nil
		}
		if v != int64(int32(v)) {
			return nil, corrupt("int %d has more than 32 bits", v)
		}
		return binary.LittleEndian.AppendUint32(nil, uint32(v)), nil
	case avroFloat:
		return r.take(4)
	case avroDouble:
		return r.take(8)
	case avroBytes, avroString, avroFixed:
		v, err := r.binary(t)
		if err == nil && t.logical == "decimal" {
			v = schemas.MinimalDecimal(v)
		}
		return v, err
	}
	return nil, corrupt("a partition value of Avro type %s", t.kind)
}

// compareSingle orders two single values of a type.
func compareSingle(a, b []byte, t schemas.Type) int {
	cmp := func(x, y int64) int {
		if x < y {
			return -1
		}
		if x > y {
			return 1
		}
		return 0
	}
	switch t.Kind {
	case schemas.Int, schemas.Date, schemas.Long, schemas.Time, schemas.Timestamp, schemas.TimestampTz,
		schemas.TimestampNs, schemas.TimestampTzNs:
		return cmp(littleInt(a), littleInt(b))
	case schemas.Float, schemas.Double:
		x, y := littleFloat(a), littleFloat(b)
		switch {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	case schemas.Decimal:
		return compareDecimal(a, b)
	}
	return bytes.Compare(a, b)
}

func littleInt(v []byte) int64 {
	if len(v) == 4 {
		return int64(int32(binary.LittleEndian.Uint32(v)))
	}
	return int64(binary.LittleEndian.Uint64(v))
}

func littleFloat(v []byte) float64 {
	if len(v) == 4 {
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(v)))
	}
	return math.Float64frombits(binary.LittleEndian.Uint64(v))
}

func compareDecimal(a, b []byte) int {
	na, nb := a[0]&0x80 != 0, b[0]&0x80 != 0
	if na != nb {
		if na {
			return -1
		}
		return 1
	}
	a, b = schemas.MinimalDecimal(a), schemas.MinimalDecimal(b)
	if len(a) != len(b) {
		if (len(a) < len(b)) != na {
			return -1
		}
		return 1
	}
	return bytes.Compare(a, b)
}

// FieldSummary is what a manifest list tells about one partition field of a
// manifest's entries.
type FieldSummary struct {
	ContainsNull bool
	ContainsNaN  *bool  // nil: not known
	Lower, Upper []byte // nil: no value but null and NaN
}

// summarizer gathers the summaries of one manifest.
type summarizer struct {
	types []schemas.Type
	out   []FieldSummary
	// uuids that differ: engines disagree on their order, and take a missing
	// bound for "all null". So then there are no summaries at all.
	mixedUUID bool
}

func newSummarizer(types []schemas.Type) *summarizer {
	s := &summarizer{types: types, out: make([]FieldSummary, len(types))}
	for i := range s.out {
		s.out[i].ContainsNaN = new(bool)
	}
	return s
}

func (s *summarizer) add(values [][]byte) {
	for i, v := range values {
		o := &s.out[i]
		if v == nil {
			o.ContainsNull = true
			continue
		}
		lo, hi := v, v
		if k := s.types[i].Kind; k == schemas.Float || k == schemas.Double {
			f := littleFloat(v)
			if math.IsNaN(f) {
				*o.ContainsNaN = true
				continue
			}
			if len(v) == 4 && k == schemas.Double {
				lo = binary.LittleEndian.AppendUint64(nil, math.Float64bits(f))
				hi = lo
			}
			if f == 0 { // M5: -0.0 lower, +0.0 upper
				hi = make([]byte, len(lo))
				lo = make([]byte, len(lo))
				lo[len(lo)-1] = 0x80
			}
		} else if k == schemas.Long && len(v) == 4 {
			lo = binary.LittleEndian.AppendUint64(nil, uint64(littleInt(v)))
			hi = lo
		}
		if o.Lower != nil && s.types[i].Kind == schemas.UUID && !bytes.Equal(o.Lower, v) {
			s.mixedUUID = true
		}
		if o.Lower == nil || compareSingle(lo, o.Lower, s.types[i]) < 0 {
			o.Lower = lo
		}
		if o.Upper == nil || compareSingle(hi, o.Upper, s.types[i]) > 0 {
			o.Upper = hi
		}
	}
}

func (s *summarizer) summaries() []FieldSummary {
	if s.mixedUUID {
		return nil
	}
	return s.out
}
