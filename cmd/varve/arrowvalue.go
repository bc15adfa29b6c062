package main

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/extensions"
)

// arrowValue is one value of a column as the output mechanism prints it: whole
// numbers, floats and booleans as such, all else in Iceberg's JSON form
// (decimals and times as text, bytes in hex). Nested values are JSON.
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
	}
	b, err := json.Marshal(a.GetOneForMarshal(i))
	if err != nil {
		return nil, fmt.Errorf("a value of Arrow type %s has no JSON form: %w", a.DataType(), err)
	}
	return json.RawMessage(b), nil
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
