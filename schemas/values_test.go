package schemas

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

func mustType(t testing.TB, s string) Type {
	t.Helper()
	typ, err := ParseType(s)
	if err != nil {
		t.Fatal(err)
	}
	return typ
}

// Text, binary and JSON forms of single values (specification, appendix D).
func TestSingleValueForms(t *testing.T) {
	for _, c := range []struct{ typ, text, binary, json string }{
		{"boolean", "true", "01", `true`},
		{"boolean", "false", "00", `false`},
		{"int", "34", "22000000", `34`},
		{"int", "-2147483648", "00000080", `-2147483648`},
		{"long", "34", "2200000000000000", `34`},
		{"long", "9007199254740993", "0100000000002000", `9007199254740993`},
		{"float", "1", "0000803f", `1`},
		{"float", "-0", "00000080", `-0`},
		{"double", "1.1", "9a9999999999f13f", `1.1`},
		{"decimal(9, 2)", "14.20", "058c", `"14.20"`},
		{"decimal(9, 2)", "-0.05", "fb", `"-0.05"`},
		{"decimal(9, 0)", "128", "0080", `"128"`},
		{"decimal(38, 38)", "-0.99999999999999999999999999999999999999", "b4c4b357a5793b85f675ddc000000001", `"-0.99999999999999999999999999999999999999"`},
		{"decimal(38, 10)", "0.0000000000", "00", `"0.0000000000"`},
		{"date", "2017-11-16", "4e440000", `"2017-11-16"`},
		{"date", "1969-12-31", "ffffffff", `"1969-12-31"`},
		{"date", "-0001-02-28", "2504f5ff", `"-0001-02-28"`},
		{"date", "+10000-01-01", "a1c02c00", `"+10000-01-01"`},
		{"time", "22:31:08.123456", "406509e012000000", `"22:31:08.123456"`},
		{"timestamp", "2017-11-16T22:31:08.123456", "40a5282d215e0500", `"2017-11-16T22:31:08.123456"`},
		{"timestamptz", "2017-11-16T22:31:08.123456+00:00", "40a5282d215e0500", `"2017-11-16T22:31:08.123456+00:00"`},
		{"timestamp_ns", "2017-11-16T22:31:08.123456789", "1585c56698b1f714", `"2017-11-16T22:31:08.123456789"`},
		{"timestamptz_ns", "1969-12-31T23:59:59.999999999+00:00", "ffffffffffffffff", `"1969-12-31T23:59:59.999999999+00:00"`},
		{"string", "é\x00\"", "c3a90022", `"é\u0000\""`},
		{"string", "", "", `""`},
		{"uuid", "f79c3e09-677c-4bbd-a479-3f349cb785e7", "f79c3e09677c4bbda4793f349cb785e7", `"f79c3e09-677c-4bbd-a479-3f349cb785e7"`},
		{"fixed[4]", "00010203", "00010203", `"00010203"`},
		{"binary", "00ff", "00ff", `"00ff"`},
	} {
		typ := mustType(t, c.typ)
		single, err := ParseText(typ, c.text)
		if err != nil {
			t.Errorf("%s %q: %v", c.typ, c.text, err)
			continue
		}
		if got := hex.EncodeToString(single); got != c.binary {
			t.Errorf("%s %q: %s, want %s", c.typ, c.text, got, c.binary)
		}
		if err := CheckValue(typ, single); err != nil {
			t.Errorf("%s %q: %v", c.typ, c.text, err)
		}
		text, err := AppendText(nil, typ, single)
		if err != nil || string(text) != c.text {
			t.Errorf("%s: text %q (%v), want %q", c.typ, text, err, c.text)
		}
		js, err := AppendJSONValue(nil, typ, single)
		if err != nil || string(js) != c.json {
			t.Errorf("%s: JSON %s (%v), want %s", c.typ, js, err, c.json)
		}
		back, err := ParseJSONValue(typ, json.RawMessage(c.json))
		if err != nil || !bytes.Equal(back, single) || back == nil {
			t.Errorf("%s: %s became %x (%v)", c.typ, c.json, back, err)
		}
	}
}

// Other texts of the same values, as people and other writers have them.
func TestParseTextVariants(t *testing.T) {
	for _, c := range []struct{ typ, text, same string }{
		{"decimal(10, 2)", "1E+3", "1000.00"},
		{"decimal(38, 10)", "1E-10", "0.0000000001"},
		{"decimal(10, 2)", "12.3000", "12.30"},
		{"decimal(10, 2)", "+12.3", "12.30"},
		{"decimal(4, 2)", "0099.99", "99.99"},
		{"timestamp", "2017-11-16 22:31", "2017-11-16T22:31:00.000000"},
		{"timestamptz", "2017-11-16T14:31:08-08:00", "2017-11-16T22:31:08.000000+00:00"},
		{"timestamptz", "2017-11-16T22:31:08.1Z", "2017-11-16T22:31:08.100000+00:00"},
		{"uuid", "F79C3E09-677C-4BBD-A479-3F349CB785E7", "f79c3e09-677c-4bbd-a479-3f349cb785e7"},
	} {
		typ := mustType(t, c.typ)
		a, errA := ParseText(typ, c.text)
		b, errB := ParseText(typ, c.same)
		if errA != nil || errB != nil || !bytes.Equal(a, b) {
			t.Errorf("%s: %q is %x (%v), %q is %x (%v)", c.typ, c.text, a, errA, c.same, b, errB)
		}
	}
}

// Inputs, kind 6: exact or refused, never wrapped or rounded.
func TestParseTextRefuses(t *testing.T) {
	for typ, texts := range map[string][]string{
		"boolean":       {"", "True", "1", "null"},
		"int":           {"", "2147483648", "1.0", "1e3", " 1", "0x1", "--1"},
		"long":          {"9223372036854775808", "12a", "１"},
		"float":         {"1e39", "x"},
		"double":        {"1e309", "1,5", ""},
		"decimal(9, 2)": {"", ".5", "5.", "1.234", "10000000.00", "1e9", "--1", "1e999999999999", "1.2.3", "NaN", "0x1"},
		"date":          {"2017-02-29", "2017-13-01", "2017-00-10", "2017-1-1", "17-01-01", "2017-11-16T00:00:00", "+99999999-01-01"},
		"time":          {"24:00:00", "23:60:00", "23:59:60", "1:00:00", "00:00:00.1234567", "00:00:00.", "00:00:00Z"},
		"timestamp":     {"2017-11-16", "2017-11-16T22:31:08Z", "2017-11-16T22:31:08+00:00", "2017-11-16T24:00:00", "2017-11-16x22:31:08"},
		"timestamptz":   {"2017-11-16T22:31:08", "2017-11-16T22:31:08+19:00", "2017-11-16T22:31:08+0100", "2017-11-16T22:31:08Zx"},
		"timestamp_ns":  {"2262-04-11T23:47:16.854775808", "1677-09-21T00:12:43.145224191", "9999-12-31T00:00:00"},
		"uuid":          {"f79c3e09677c4bbda4793f349cb785e7", "g79c3e09-677c-4bbd-a479-3f349cb785e7"},
		"fixed[2]":      {"", "00", "000102", "zz"},
		"binary":        {"0", "zz"},
		"string":        {"\xff", "\xed\xa0\x80"},
	} {
		for _, text := range texts {
			if v, err := ParseText(mustType(t, typ), text); err == nil {
				t.Errorf("%s: %q was taken as %x", typ, text, v)
			}
		}
	}
	for typ, raws := range map[string][]string{
		"int":           {`"1"`, `1.0`, `null`, ``, `1 2`, `1e2`},
		"double":        {`"1"`, `NaN`, `null`},
		"boolean":       {`"true"`, `1`},
		"decimal(9, 2)": {`14.20`, `"14.201"`, `null`},
		"string":        {`1`, `null`, "\"\xff\""},
		"date":          {`17486`},
	} {
		for _, raw := range raws {
			if v, err := ParseJSONValue(mustType(t, typ), json.RawMessage(raw)); err == nil {
				t.Errorf("%s: JSON %s was taken as %x", typ, raw, v)
			}
		}
	}
	for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		if out, err := AppendJSONValue(nil, Of(Double), AppendFloatValue(nil, Of(Double), v)); !errors.Is(err, ErrNotExact) {
			t.Errorf("%v became %s", v, out)
		}
	}
}

func TestValueWidths(t *testing.T) {
	if _, err := AppendIntValue(nil, Of(Int), math.MaxInt32+1); !errors.Is(err, ErrNotExact) {
		t.Errorf("an int beyond 32 bits: %v", err)
	}
	if _, err := AppendIntValue(nil, DecimalOf(3, 1), 1000); !errors.Is(err, ErrNotExact) {
		t.Errorf("a decimal beyond its precision: %v", err)
	}
	if _, err := AppendIntValue(nil, Of(Time), MicrosPerDay); !errors.Is(err, ErrNotExact) {
		t.Errorf("24:00: %v", err)
	}
	for typ, bad := range map[string]string{
		"boolean": "02", "int": "0000", "long": "000000", "float": "00", "double": "0000", "date": "0000000000000000",
		"decimal(3, 1)": "03e8", "decimal(38, 0)": "4b3b4ca85a86c47a098a224000000000", "uuid": "00", "fixed[2]": "000000", "string": "ff",
		"decimal(20, 0)": "", "decimal(5, 0)": "00000000000000000000000000000000000001",
	} {
		b, err := hex.DecodeString(bad)
		if err != nil {
			t.Fatal(err)
		}
		if CheckValue(mustType(t, typ), b) == nil {
			t.Errorf("%s: %s was taken", typ, bad)
		}
	}
	// A column's older, narrower form stays readable after a promotion.
	if v, err := IntValue(Of(Long), []byte{0xff, 0xff, 0xff, 0xff}); v != -1 || err != nil {
		t.Errorf("an int bound of a long column: %d, %v", v, err)
	}
	if v, err := FloatValue(Of(Double), []byte{0, 0, 0x80, 0x3f}); v != 1 || err != nil {
		t.Errorf("a float bound of a double column: %v, %v", v, err)
	}
	for precision, want := range map[uint8]int{1: 1, 2: 1, 3: 2, 4: 2, 5: 3, 9: 4, 10: 5, 18: 8, 19: 9, 20: 9, 38: 16} {
		if got := DecimalBytes(precision); got != want {
			t.Errorf("a decimal of %d digits takes %d bytes, want %d", precision, got, want)
		}
	}
}

// Dates and times against the standard library, also far from 1970.
func TestCivilDates(t *testing.T) {
	rng := rand.New(rand.NewPCG(42, 0))
	for range 20_000 {
		day := rng.Int64N(200_000_000) - 100_000_000
		y, m, d := CivilDate(day)
		want := time.Unix(day*86400, 0).UTC()
		if int(y) != want.Year() || m != int(want.Month()) || d != want.Day() {
			t.Fatalf("day %d is %d-%d-%d, want %s", day, y, m, d, want)
		}
		if back, ok := DayOf(y, m, d); !ok || back != day {
			t.Fatalf("day %d came back as %d", day, back)
		}
	}
	for _, v := range []int64{math.MinInt64, math.MaxInt64, 0, -1} {
		for _, k := range []Kind{Timestamp, TimestampTz, TimestampNs, TimestampTzNs} {
			single, err := AppendIntValue(nil, Of(k), v)
			if err != nil {
				t.Fatal(err)
			}
			text, err := AppendText(nil, Of(k), single)
			if err != nil {
				t.Fatal(err)
			}
			if back, err := ParseText(Of(k), string(text)); err != nil || !bytes.Equal(back, single) {
				t.Errorf("%d is %s, which is %x (%v)", v, text, back, err)
			}
		}
	}
}

func TestTuple(t *testing.T) {
	values := [][]byte{{1, 2}, nil, {}, {0}}
	b := EncodeTuple(values)
	if got := hex.EncodeToString(b); got != "01020000000102"+"00"+"0100000000"+"010100000000" {
		t.Errorf("tuple bytes %s", got)
	}
	back, err := DecodeTuple(b, 4)
	if err != nil {
		t.Fatal(err)
	}
	for i := range values {
		if (back[i] == nil) != (values[i] == nil) || !bytes.Equal(back[i], values[i]) {
			t.Errorf("field %d: %v, want %v", i, back[i], values[i])
		}
	}
	for n := range 8 {
		if _, err := DecodeTuple(b, n); (err == nil) != (n == 4) {
			t.Errorf("%d fields: %v", n, err)
		}
	}
	for cut := range b {
		if _, err := DecodeTuple(b[:cut], 4); err == nil {
			t.Errorf("a tuple cut at %d was taken", cut)
		}
	}
	if got, err := DecodeTuple(nil, 0); err != nil || len(got) != 0 {
		t.Errorf("the unpartitioned tuple: %v, %v", got, err)
	}
	if err := CheckTuple([]byte{1, 1, 0, 0, 0, 9}, []Type{Of(Int)}); err == nil {
		t.Error("one byte was taken as an int")
	}
}

func FuzzDecodeTuple(f *testing.F) {
	f.Add([]byte{1, 1, 0, 0, 0, 9, 0}, 2)
	f.Add([]byte{1, 0xff, 0xff, 0xff, 0xff}, 1)
	f.Fuzz(func(t *testing.T, b []byte, n int) {
		if n < 0 || n > 1<<20 {
			return
		}
		values, err := DecodeTuple(b, n)
		if err == nil && !bytes.Equal(EncodeTuple(values), b) {
			t.Fatalf("%x has another canonical form", b)
		}
	})
}

// What ParseText takes is the same after a round through text, and through JSON.
func FuzzParseText(f *testing.F) {
	for k := Boolean; k <= Binary; k++ {
		f.Add(uint8(k), uint8(9), uint8(2), "12.30")
		f.Add(uint8(k), uint8(38), uint8(10), "2017-11-16T22:31:08.123456+00:00")
	}
	f.Fuzz(func(t *testing.T, kind, precision, scale uint8, text string) {
		typ := Of(Kind(kind%uint8(Binary)) + 1)
		switch typ.Kind {
		case Decimal:
			typ.Precision = precision%38 + 1
			typ.Scale = scale % (typ.Precision + 1)
		case Fixed:
			typ.Length = int32(precision)%20 + 1
		}
		single, err := ParseText(typ, text)
		if err != nil {
			return
		}
		out, err := AppendText(nil, typ, single)
		if err != nil {
			t.Fatalf("%s %q: %v", typ, text, err)
		}
		back, err := ParseText(typ, string(out))
		if err != nil || !bytes.Equal(back, single) {
			t.Fatalf("%s %q: %x, then %x (%v)", typ, text, single, back, err)
		}
		js, err := AppendJSONValue(nil, typ, single)
		if err != nil {
			return
		}
		if back, err = ParseJSONValue(typ, js); err != nil || !bytes.Equal(back, single) {
			t.Fatalf("%s %q: JSON %s became %x (%v)", typ, text, js, back, err)
		}
	})
}
