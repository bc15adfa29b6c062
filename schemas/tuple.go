package schemas

import (
	"encoding/binary"
	"fmt"
	"math"
)

// A partition tuple's canonical bytes: for each field of the spec, in its
// order, one presence byte, and where it is 1 the u32 LE length and the single
// value of the field's result type. A null is the byte 0 alone. Equal tuples
// have equal bytes and the reverse.

// AppendTupleValue appends one field; single is nil for null.
func AppendTupleValue(dst, single []byte) []byte {
	if single == nil {
		return append(dst, 0)
	}
	dst = append(dst, 1)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(single)))
	return append(dst, single...)
}

// WidenSingle is a single value of a partition as one of type t: from before its
// column was widened it is a narrower one, of 4 bytes.
func WidenSingle(v []byte, t Type) []byte {
	if len(v) != 4 {
		return v
	}
	narrow := binary.LittleEndian.Uint32(v)
	switch t.Kind {
	case Long:
		return binary.LittleEndian.AppendUint64(nil, uint64(int32(narrow)))
	case Double:
		return binary.LittleEndian.AppendUint64(nil, math.Float64bits(float64(math.Float32frombits(narrow))))
	}
	return v
}

// EncodeTuple is the canonical bytes of a tuple; a nil value is null.
func EncodeTuple(values [][]byte) []byte {
	var dst []byte
	for _, v := range values {
		dst = AppendTupleValue(dst, v)
	}
	return dst
}

// DecodeTuple reads a tuple of n fields. Values alias b; a null is nil.
func DecodeTuple(b []byte, n int) ([][]byte, error) {
	if n > len(b) {
		return nil, fmt.Errorf("partition tuple of %d bytes cannot hold %d fields", len(b), n)
	}
	values := make([][]byte, n)
	for i := range values {
		if len(b) == 0 {
			return nil, fmt.Errorf("partition tuple ends before field %d of %d", i+1, n)
		}
		present := b[0]
		b = b[1:]
		if present == 0 {
			continue
		}
		if present != 1 || len(b) < 4 {
			return nil, fmt.Errorf("partition tuple field %d is ill-formed", i+1)
		}
		size := binary.LittleEndian.Uint32(b)
		b = b[4:]
		if uint64(size) > uint64(len(b)) {
			return nil, fmt.Errorf("partition tuple field %d says %d bytes, %d are left", i+1, size, len(b))
		}
		values[i] = b[:size:size]
		b = b[size:]
	}
	if len(b) > 0 {
		return nil, fmt.Errorf("partition tuple has %d bytes behind its %d fields", len(b), n)
	}
	return values, nil
}

// CheckTuple says whether b is a canonical tuple of values of these types.
func CheckTuple(b []byte, types []Type) error {
	values, err := DecodeTuple(b, len(types))
	if err != nil {
		return err
	}
	for i, v := range values {
		if v == nil {
			continue
		}
		if err := CheckValue(types[i], v); err != nil {
			return fmt.Errorf("partition tuple field %d: %w", i+1, err)
		}
	}
	return nil
}
