package rows

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/varve-io/varve/schemas"
)

func int96(nanos int64, day int32) []byte {
	return binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint64(nil, uint64(nanos)), uint32(day))
}

func TestInt96Micros(t *testing.T) {
	const (
		dayNanos = 86_400_000_000_000
		last     = julianEpoch + 106_751_991 // the day in which the microseconds end
		first    = julianEpoch - 106_751_992
	)
	for _, c := range []struct {
		nanos int64
		day   int32
		want  int64
		out   bool
	}{
		{0, julianEpoch, 0, false},
		{999, julianEpoch, 0, false},
		{1000, julianEpoch, 1, false},
		{-1, julianEpoch, -1, false},
		{-1000, julianEpoch, -1, false},
		{-1001, julianEpoch, -2, false},
		{dayNanos - 1, julianEpoch - 1, -1, false},
		{0, julianEpoch - 1, -86_400_000_000, false},
		{-dayNanos / 2, julianEpoch - 1, -129_600_000_000, false},
		{0, 1721426, -62_135_596_800_000_000, false}, // the first day of the year 1
		{14_454_775_807_999, last, math.MaxInt64, false},
		{14_454_775_808_000, last, 0, true},
		{71_945_224_192_000, first, math.MinInt64, false},
		{71_945_224_191_999, first, 0, true},
		{-14_454_775_808_000, first + 1, math.MinInt64, false},
		{-14_454_775_808_001, first + 1, 0, true},
		{0, last + 1, 0, true},
		{0, first - 1, 0, true},
		{0, math.MaxInt32, 0, true},
		{0, math.MinInt32, 0, true},
		{math.MaxInt64, last, 0, true},
		{math.MinInt64, first, 0, true},
	} {
		got, ok := int96Micros(int96(c.nanos, c.day))
		if ok == c.out || ok && got != c.want {
			t.Errorf("%d ns of day %d: %d, %v; want %d", c.nanos, c.day, got, ok, c.want)
		}
	}
}

// Pages of INT96 that are cut, out of range, or of an encoding that no INT96 has.
func TestInt96Pages(t *testing.T) {
	c := NewColumn(schemas.Of(schemas.Timestamp))
	r := &chunkReader{leaf: &fileLeaf{phys: physInt96}, dst: &c}
	two := append(int96(0, julianEpoch), int96(5000, julianEpoch)...)
	if err := r.values(&pageHeader{encoding: encPlain}, two, 2); err != nil || len(c.Ints) != 2 || c.Ints[1] != 5 {
		t.Errorf("%d, %v", c.Ints, err)
	}
	if err := r.values(&pageHeader{encoding: encPlain}, two[:23], 2); !errors.Is(err, ErrBadFile) {
		t.Errorf("a cut page: %v", err)
	}
	if err := r.values(&pageHeader{encoding: encPlain}, int96(0, math.MaxInt32), 1); !errors.Is(err, errInstant) {
		t.Errorf("out of range: %v", err)
	}
	for _, enc := range []int64{encByteStreamSplit, encDeltaBinary, encDeltaBytes} {
		if err := r.values(&pageHeader{encoding: enc}, two, 2); !errors.Is(err, ErrUnsupported) {
			t.Errorf("encoding %d: %v", enc, err)
		}
	}
}

// Footers of old writers have converted types alone.
func TestConvertedTimes(t *testing.T) {
	for _, c := range []struct {
		e      element
		want   schemas.Kind
		millis bool
	}{
		{element{phys: physInt32, hasConverted: true, converted: convTimeMillis}, schemas.Time, true},
		{element{phys: physInt64, hasConverted: true, converted: convTimestampMillis}, schemas.TimestampTz, true},
		{element{phys: physInt64, hasConverted: true, converted: convTimestampMicros}, schemas.TimestampTz, false},
		{element{phys: physInt64, hasConverted: true, converted: convTimestampMillis, logical: 8, unit: 1}, schemas.Timestamp, true},
		{element{phys: physInt64, hasConverted: true, converted: convTimestampMillis, logical: 8, unit: 2}, schemas.Timestamp, false},
		{element{phys: physInt64, logical: 8, unit: 1, utc: true}, schemas.TimestampTz, true},
		{element{phys: physInt32, hasConverted: true, converted: convDate}, schemas.Date, false},
		{element{phys: physInt32}, schemas.Int, false},
		{element{phys: physInt96}, schemas.TimestampTz, false},
	} {
		got, why := c.e.typeOf()
		if why != "" || got != schemas.Of(c.want) || c.e.millis() != c.millis {
			t.Errorf("%+v: %s, %q, milliseconds %v", c.e, got, why, c.e.millis())
		}
	}
	for _, e := range []element{{phys: physInt32, logical: 7, unit: 2}, {phys: physInt64, logical: 7, unit: 3}, {phys: physInt64, logical: 8}} {
		if got, why := e.typeOf(); why == "" {
			t.Errorf("%+v is a %s", e, got)
		}
	}
}

// Bytes without an annotation are a string only if they are text; annotated ones
// of another kind, and fixed ones of another length, are none and no uuid.
func TestBytesAsText(t *testing.T) {
	node := parquet.Group{
		"bytes": parquet.FieldID(parquet.Leaf(parquet.ByteArrayType), 1),
		"five":  parquet.FieldID(parquet.Leaf(parquet.FixedLenByteArrayType(5)), 2),
		"bson":  parquet.FieldID(parquet.BSON(), 3),
	}
	file := func(text string) *File {
		var out bytes.Buffer
		w := parquet.NewWriter(&out, parquet.NewSchema("t", node))
		row := parquet.Row{parquet.ValueOf([]byte("b")).Level(0, 0, 0), parquet.ValueOf([]byte(text)).Level(0, 0, 1), parquet.FixedLenByteArrayValue([]byte("fives")).Level(0, 0, 2)}
		if _, err := w.WriteRows([]parquet.Row{row}); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return opened(t, out.Bytes())
	}
	text := []schemas.Field{{ID: 1, Name: "bytes", Type: schemas.Of(schemas.String)}}
	for value, ok := range map[string]bool{"ø": true, "": true, "\xff": false} {
		cols, err := file(value).Read(text)
		if (err == nil) != ok || ok && string(cols[0].BytesAt(0)) != value {
			t.Errorf("%q: %v", value, err)
		}
		if cols, err = scanned(file(value), text, 0, 1, 1, 0); (err == nil) != ok || ok && string(cols[0].BytesAt(0)) != value {
			t.Errorf("%q, scanned: %v", value, err)
		}
		if !ok && (!errors.Is(err, ErrBadFile) || !strings.Contains(err.Error(), "no text")) {
			t.Errorf("%q: %v", value, err)
		}
		if cols, err = file(value).ReadColumns([]int32{1}); err != nil || cols[0].Type.Kind != schemas.Binary || string(cols[0].BytesAt(0)) != value {
			t.Errorf("%q as binary: %v", value, err)
		}
	}
	f := file("x")
	for _, no := range []schemas.Field{{ID: 2, Name: "five", Type: schemas.Of(schemas.UUID)}, {ID: 3, Name: "bson", Type: schemas.Of(schemas.String)}} {
		if _, err := f.Read([]schemas.Field{no}); err == nil || f.Fits(&no, no.Type) {
			t.Errorf("%q was read as a %s", no.Name, no.Type)
		}
	}
}
