package main

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/extensions"
	"github.com/apache/iceberg-go"

	"github.com/varve-io/varve/schemas"
)

// rowTest decides about one row by one column. A null passes IS NULL only.
type rowTest struct {
	column string
	op     iceberg.Operation
	typ    schemas.Type

	number  int64
	float   float64
	decimal decimal128.Num
	bytes   []byte
}

// newRowTest checks a value against its column's type by varve's own rules
// (exact or refused). text is the value as the reader's planner wants it. A
// date stands for its midnight in a timestamp column, a time without zone for
// UTC.
func newRowTest(c *comparison, t iceberg.Type) (test rowTest, text string, err error) {
	typ, err := schemas.ParseType(t.String())
	if err != nil {
		return rowTest{}, "", fmt.Errorf("it is a %s, which --where does not compare", t)
	}
	s := c.value
	test = rowTest{column: c.column, op: c.op, typ: typ}
	switch typ.Kind {
	case schemas.Timestamp, schemas.TimestampTz, schemas.TimestampNs, schemas.TimestampTzNs:
		if len(s) == len("2006-01-02") {
			s += "T00:00:00"
		}
		zoned := typ.Kind == schemas.TimestampTz || typ.Kind == schemas.TimestampTzNs
		if zoned && !strings.HasSuffix(s, "Z") && !strings.ContainsAny(s[min(len(s), 11):], "+-") {
			s += "+00:00"
		}
	case schemas.Binary, schemas.Fixed:
		return rowTest{}, "", fmt.Errorf("it is a %s, which --where does not compare", t)
	}
	single, err := schemas.ParseText(typ, s)
	if err != nil {
		return rowTest{}, "", err
	}
	b, err := schemas.AppendText(nil, typ, single)
	if err != nil {
		return rowTest{}, "", err
	}
	switch typ.Kind {
	case schemas.Float, schemas.Double:
		test.float, err = schemas.FloatValue(typ, single)
	case schemas.Decimal:
		test.decimal, err = decimal128.FromString(string(b), int32(typ.Precision), int32(typ.Scale))
	case schemas.String, schemas.UUID:
		test.bytes = single
	default:
		test.number, err = schemas.IntValue(typ, single)
	}
	return test, string(b), err
}

// pass says whether row i of the column passes.
func (t *rowTest) pass(a arrow.Array, i int) (bool, error) {
	if a.IsNull(i) {
		return t.op == iceberg.OpIsNull, nil
	}
	switch t.op {
	case iceberg.OpIsNull:
		return false, nil
	case iceberg.OpNotNull:
		return true, nil
	}
	c, ordered, err := t.compare(a, i)
	if err != nil {
		return false, err
	}
	switch t.op {
	case iceberg.OpEQ:
		return ordered && c == 0, nil
	case iceberg.OpNEQ:
		return !ordered || c != 0, nil
	case iceberg.OpLT:
		return ordered && c < 0, nil
	case iceberg.OpLTEQ:
		return ordered && c <= 0, nil
	case iceberg.OpGT:
		return ordered && c > 0, nil
	case iceberg.OpGTEQ:
		return ordered && c >= 0, nil
	}
	return false, fmt.Errorf("no comparison %s", t.op)
}

// compare orders the row's value against the test's; NaN is not ordered.
func (t *rowTest) compare(a arrow.Array, i int) (c int, ordered bool, err error) {
	switch a := a.(type) {
	case *array.Boolean:
		v := int64(0)
		if a.Value(i) {
			v = 1
		}
		return cmp.Compare(v, t.number), true, nil
	case *array.Int32:
		return cmp.Compare(int64(a.Value(i)), t.number), true, nil
	case *array.Int64:
		return cmp.Compare(a.Value(i), t.number), true, nil
	case *array.Date32:
		return cmp.Compare(int64(a.Value(i)), t.number), true, nil
	case *array.Time64:
		return cmp.Compare(int64(a.Value(i)), t.number), true, nil
	case *array.Timestamp:
		unit := arrow.Microsecond
		if t.typ.Kind == schemas.TimestampNs || t.typ.Kind == schemas.TimestampTzNs {
			unit = arrow.Nanosecond
		}
		if have := a.DataType().(*arrow.TimestampType).Unit; have == unit {
			return cmp.Compare(int64(a.Value(i)), t.number), true, nil
		}
	case *array.Float32:
		return compareFloats(float64(a.Value(i)), t.float)
	case *array.Float64:
		return compareFloats(a.Value(i), t.float)
	case *array.Decimal128:
		return a.Value(i).Cmp(t.decimal), true, nil
	case *array.String:
		return strings.Compare(a.Value(i), string(t.bytes)), true, nil
	case *array.LargeString:
		return strings.Compare(a.Value(i), string(t.bytes)), true, nil
	case *extensions.UUIDArray:
		v := a.Value(i)
		return bytes.Compare(v[:], t.bytes), true, nil
	}
	return 0, false, fmt.Errorf("column %s: the reader gave a %s for a %s", t.column, a.DataType(), t.typ)
}

func compareFloats(v, than float64) (int, bool, error) {
	if v != v || than != than {
		return 0, false, nil
	}
	return cmp.Compare(v, than), true, nil
}
