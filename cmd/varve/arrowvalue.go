package main

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/extensions"

	"github.com/varve-io/varve/schemas"
)

// arrowValue is one value of a column as the output mechanism prints it: whole
// numbers, floats and booleans as such, all else in Iceberg's JSON form
// (decimals and times as text, bytes in hex). Nested values are JSON of such
// parts: a struct an object, a list an array, a map an object where its keys are
// text, else an array of objects with key and value.
func arrowValue(a arrow.Array, i int) (any, error) {
	if a.IsNull(i) {
		return nil, nil
	}
	switch a := a.(type) {
	case *array.Boolean:
		return a.Value(i), nil
	case *array.Int32:
		return a.Value(i), nil
	case *array.Int64:
		return a.Value(i), nil
	case *array.Float32:
		return shortFloat(a.Value(i)), nil
	case *array.Float64:
		return a.Value(i), nil
	case *array.String:
		return a.Value(i), nil
	case *array.LargeString:
		return a.Value(i), nil
	case *array.Decimal128:
		return a.Value(i).ToString(a.DataType().(*arrow.Decimal128Type).Scale), nil
	case *array.Date32:
		return time.Unix(int64(a.Value(i))*86400, 0).UTC().Format(time.DateOnly), nil
	case *array.Time64:
		at := time.UnixMicro(int64(a.Value(i)))
		if a.DataType().(*arrow.Time64Type).Unit == arrow.Nanosecond {
			at = time.Unix(0, int64(a.Value(i)))
		}
		return at.UTC().Format("15:04:05.000000"), nil
	case *array.Timestamp:
		return timestampText(a.DataType().(*arrow.TimestampType), int64(a.Value(i))), nil
	case *array.Binary:
		return hex.EncodeToString(a.Value(i)), nil
	case *array.LargeBinary:
		return hex.EncodeToString(a.Value(i)), nil
	case *array.FixedSizeBinary:
		return hex.EncodeToString(a.Value(i)), nil
	case *extensions.UUIDArray:
		return a.Value(i).String(), nil
	case *array.Struct:
		return structValue(a, i)
	case *array.Map: // it is a list too: it stands before one
		return mapValue(a, i)
	case array.ListLike:
		return listValue(a, i)
	}
	b, err := json.Marshal(a.GetOneForMarshal(i))
	if err != nil {
		return nil, fmt.Errorf("a value of Arrow type %s has no JSON form: %w", a.DataType(), err)
	}
	return json.RawMessage(b), nil
}

func appendPart(dst []byte, a arrow.Array, i int) ([]byte, error) {
	v, err := arrowValue(a, i)
	if err != nil {
		return dst, err
	}
	return appendJSON(dst, v), nil
}

func structValue(a *array.Struct, i int) (_ any, err error) {
	b := []byte{'{'}
	fields := a.DataType().(*arrow.StructType).Fields()
	for k := range fields {
		if k > 0 {
			b = append(b, ',')
		}
		b = append(schemas.AppendJSONString(b, fields[k].Name), ':')
		if b, err = appendPart(b, a.Field(k), i); err != nil {
			return nil, err
		}
	}
	return json.RawMessage(append(b, '}')), nil
}

func listValue(a array.ListLike, i int) (_ any, err error) {
	b := []byte{'['}
	from, to := a.ValueOffsets(i)
	for k := from; k < to; k++ {
		if k > from {
			b = append(b, ',')
		}
		if b, err = appendPart(b, a.ListValues(), int(k)); err != nil {
			return nil, err
		}
	}
	return json.RawMessage(append(b, ']')), nil
}

func mapValue(a *array.Map, i int) (_ any, err error) {
	text := false
	switch a.Keys().(type) {
	case *array.String, *array.LargeString:
		text = true
	}
	open, end := byte('['), byte(']')
	if text {
		open, end = '{', '}'
	}
	b := []byte{open}
	from, to := a.ValueOffsets(i)
	for k := from; k < to; k++ {
		if k > from {
			b = append(b, ',')
		}
		if !text {
			b = append(b, `{"key":`...)
		}
		if b, err = appendPart(b, a.Keys(), int(k)); err != nil {
			return nil, err
		}
		if text {
			b = append(b, ':')
		} else {
			b = append(b, `,"value":`...)
		}
		if b, err = appendPart(b, a.Items(), int(k)); err != nil {
			return nil, err
		}
		if !text {
			b = append(b, '}')
		}
	}
	return json.RawMessage(append(b, end)), nil
}

// shortFloat is the float64 with the shortest text that is exact for v.
func shortFloat(v float32) any {
	f := float64(v)
	if f != f || f > 3.5e38 || f < -3.5e38 {
		return f
	}
	return json.RawMessage(fmt.Sprint(v))
}

func timestampText(t *arrow.TimestampType, v int64) string {
	layout := "2006-01-02T15:04:05.000000"
	var at time.Time
	switch t.Unit {
	case arrow.Second:
		at = time.Unix(v, 0)
	case arrow.Millisecond:
		at = time.UnixMilli(v)
	case arrow.Microsecond:
		at = time.UnixMicro(v)
	default:
		layout, at = "2006-01-02T15:04:05.000000000", time.Unix(0, v)
	}
	if t.TimeZone != "" {
		layout += "+00:00"
	}
	return at.UTC().Format(layout)
}
