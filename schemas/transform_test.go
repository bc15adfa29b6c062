package schemas

import (
	"errors"
	"math"
	"testing"
)

// The hash values of the specification, appendix B (T4).
func TestBucketHashOfTheSpecification(t *testing.T) {
	for _, c := range []struct {
		typ, text string
		hash      int32
	}{
		{"int", "34", 2017239379},
		{"long", "34", 2017239379},
		{"decimal(9, 2)", "14.20", -500754589},
		{"decimal(38, 2)", "14.20", -500754589},
		{"date", "2017-11-16", -653330422},
		{"time", "22:31:08", -662762989},
		{"timestamp", "2017-11-16T22:31:08", -2047944441},
		{"timestamp", "2017-11-16T22:31:08.000001", -1207196810},
		{"timestamptz", "2017-11-16T14:31:08-08:00", -2047944441},
		{"timestamptz", "2017-11-16T14:31:08.000001-08:00", -1207196810},
		{"timestamp_ns", "2017-11-16T22:31:08", -2047944441},
		{"timestamp_ns", "2017-11-16T22:31:08.000001001", -1207196810},
		{"timestamptz_ns", "2017-11-16T14:31:08.000001001-08:00", -1207196810},
		{"string", "iceberg", 1210000089},
		{"uuid", "f79c3e09-677c-4bbd-a479-3f349cb785e7", 1488055340},
		{"fixed[4]", "00010203", -188683207},
		{"binary", "00010203", -188683207},
	} {
		typ := mustType(t, c.typ)
		single, err := ParseText(typ, c.text)
		if err != nil {
			t.Fatal(err)
		}
		var got uint32
		if typ.storesInts() {
			v, err := IntValue(typ, single)
			if err != nil {
				t.Fatal(err)
			}
			got = HashInt(typ, v)
		} else {
			v, err := BytesValue(typ, single)
			if err != nil {
				t.Fatal(err)
			}
			got = HashBytes(typ, v)
		}
		if int32(got) != c.hash {
			t.Errorf("%s %s: %d, want %d", c.typ, c.text, int32(got), c.hash)
		}
	}
	if got := BucketOf(0xFFFFFFFF, 16); got != 15 {
		t.Errorf("bucket of the highest hash is %d", got)
	}
}

func TestTransformInt(t *testing.T) {
	ts := func(text string) int64 {
		single, err := ParseText(Of(Timestamp), text)
		if err != nil {
			t.Fatal(err)
		}
		v, err := IntValue(Of(Timestamp), single)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	at, before := ts("2017-12-01T10:12:55.038194"), ts("1969-12-31T23:59:58.999999")
	for _, c := range []struct {
		k    TransformKind
		n    int32
		typ  string
		v    int64
		want int64
	}{
		{Year, 0, "timestamp", at, 47},
		{Month, 0, "timestamp", at, 575},
		{Day, 0, "timestamptz", at, 17501},
		{Hour, 0, "timestamptz", at, 420034},
		{Year, 0, "timestamp_ns", at*1000 + 999, 47},
		{Month, 0, "timestamp_ns", at*1000 + 999, 575},
		{Day, 0, "timestamptz_ns", at*1000 + 999, 17501},
		{Hour, 0, "timestamp_ns", at*1000 + 999, 420034},
		{Year, 0, "timestamp", before, -1},
		{Month, 0, "timestamp", before, -1},
		{Day, 0, "timestamp", before, -1},
		{Hour, 0, "timestamp", before, -1},
		{Hour, 0, "timestamp_ns", -1, -1},
		{Year, 0, "date", 17501, 47},
		{Month, 0, "date", -1, -1},
		{Month, 0, "date", -32, -2},
		{Day, 0, "date", -5, -5},
		{Truncate, 10, "int", 1, 0},
		{Truncate, 10, "int", -1, -10},
		{Truncate, 10, "int", -10, -10},
		{Truncate, 10, "long", 19, 10},
		{Truncate, 50, "decimal(9, 2)", 1065, 1050},
		{Truncate, 50, "decimal(9, 2)", -5, -50},
		{Identity, 0, "boolean", 1, 1},
	} {
		got, err := TransformInt(c.k, c.n, mustType(t, c.typ), c.v)
		if err != nil || got != c.want {
			t.Errorf("%s of %s %d: %d (%v), want %d", TransformName(c.k, c.n), c.typ, c.v, got, err, c.want)
		}
	}
	for _, c := range []struct {
		k   TransformKind
		n   int32
		typ string
		v   int64
	}{
		{Truncate, 10, "int", math.MinInt32},
		{Truncate, 7, "long", math.MinInt64},
		{Truncate, 100, "decimal(2, 0)", -99},
		{Hour, 0, "timestamp", math.MaxInt64},
	} {
		if got, err := TransformInt(c.k, c.n, mustType(t, c.typ), c.v); !errors.Is(err, ErrNotExact) {
			t.Errorf("%s of %s %d: %d, %v", TransformName(c.k, c.n), c.typ, c.v, got, err)
		}
	}
}

func TestTruncateBytes(t *testing.T) {
	for _, c := range []struct {
		typ   string
		in    string
		width int32
		want  string
	}{
		{"string", "iceberg", 3, "ice"},
		{"string", "é€😀x", 3, "é€😀"},
		{"string", "ab", 3, "ab"},
		{"string", "", 1, ""},
		{"binary", "\x00\x01\x02\x03", 3, "\x00\x01\x02"},
		{"binary", "é", 1, "\xc3"},
	} {
		if got := TruncateBytes(mustType(t, c.typ), []byte(c.in), c.width); string(got) != c.want {
			t.Errorf("%s %q to %d: %q, want %q", c.typ, c.in, c.width, got, c.want)
		}
	}
}

func TestTruncateWideDecimal(t *testing.T) {
	typ := DecimalOf(38, 2)
	for _, c := range []struct{ in, want string }{
		{"10.65", "10.50"},
		{"-0.05", "-0.50"},
		{"-0.50", "-0.50"},
		{"123456789012345678901234567890.99", "123456789012345678901234567890.50"},
		{"-123456789012345678901234567890.99", "-123456789012345678901234567891.00"},
	} {
		single, err := ParseText(typ, c.in)
		if err != nil {
			t.Fatal(err)
		}
		v, err := BytesValue(typ, single)
		if err != nil {
			t.Fatal(err)
		}
		out, ok := TruncateDecimal16(v, 50, 38)
		got, err := AppendText(nil, typ, MinimalDecimal(out[:]))
		if err != nil || !ok || string(got) != c.want {
			t.Errorf("%s: %s (%v, %v), want %s", c.in, got, ok, err, c.want)
		}
	}
	low, err := ParseText(DecimalOf(20, 0), "-99999999999999999999")
	if err != nil {
		t.Fatal(err)
	}
	v, err := BytesValue(DecimalOf(20, 0), low)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := TruncateDecimal16(v, 50, 20); ok {
		t.Error("a result of 21 digits was taken")
	}
}

func TestTransformResult(t *testing.T) {
	for _, c := range []struct {
		k            TransformKind
		source, want string
	}{
		{Identity, "double", "double"},
		{Void, "float", "float"},
		{Bucket, "string", "int"},
		{Bucket, "time", "int"},
		{Bucket, "double", ""},
		{Bucket, "boolean", ""},
		{Truncate, "decimal(9, 2)", "decimal(9, 2)"},
		{Truncate, "date", ""},
		{Truncate, "fixed[4]", ""},
		{Truncate, "uuid", ""},
		{Year, "date", "int"},
		{Month, "timestamp_ns", "int"},
		{Day, "timestamptz", "date"},
		{Hour, "timestamptz_ns", "int"},
		{Hour, "date", ""},
		{Day, "time", ""},
		{Year, "long", ""},
	} {
		n := int32(0)
		if c.k.hasN() {
			n = 4
		}
		got, err := TransformResult(c.k, n, mustType(t, c.source))
		if (err == nil) != (c.want != "") || err == nil && got.String() != c.want {
			t.Errorf("%s of %s: %s, %v", TransformName(c.k, n), c.source, got, err)
		}
	}
	if _, err := TransformResult(Bucket, 0, Of(Int)); err == nil {
		t.Error("bucket[0] was taken")
	}
}

func TestParseTransform(t *testing.T) {
	for _, c := range []struct {
		in     string
		k      TransformKind
		n      int32
		column string
	}{
		{"day(created_at)", Day, 0, "created_at"},
		{"bucket(16, id)", Bucket, 16, "id"},
		{" Truncate( 4 ,name ) ", Truncate, 4, "name"},
		{"identity(x)", Identity, 0, "x"},
		{"x", Identity, 0, "x"},
		{"void(x)", Void, 0, "x"},
		{"hours(ts)", Hour, 0, "ts"},
		{"`day(x)`", Identity, 0, "day(x)"},
		{"day(`a``b)`)", Day, 0, "a`b)"},
		{"bucket(8, `a, b`)", Bucket, 8, "a, b"},
		{"naïve", Identity, 0, "naïve"},
	} {
		k, n, column, err := ParseTransform(c.in)
		if err != nil || k != c.k || n != c.n || column != c.column {
			t.Errorf("%q: %v %d %q %v", c.in, k, n, column, err)
		}
	}
	for _, in := range []string{"", "day()", "day(x", "bucket(id)", "bucket(0, id)", "bucket(-1, id)", "bucket(99999999999, id)", "dai(x)", "truncate(x, 4)", "``", "day(`a`b`)"} {
		if k, n, column, err := ParseTransform(in); err == nil {
			t.Errorf("%q was taken as %v %d %q", in, k, n, column)
		}
	}
	for k := Identity; k <= Void; k++ {
		n := int32(0)
		if k.hasN() {
			n = 7
		}
		gotK, gotN, err := ParseTransformName(TransformName(k, n))
		if err != nil || gotK != k || gotN != n {
			t.Errorf("%s: %v %d %v", TransformName(k, n), gotK, gotN, err)
		}
	}
	for _, in := range []string{"", "bucket", "bucket[]", "bucket[0]", "bucket[4", "day[1]", "Day", "zorder"} {
		if k, n, err := ParseTransformName(in); err == nil {
			t.Errorf("%q was taken as %v %d", in, k, n)
		}
	}
}
