package rows

import (
	"bytes"
	"encoding/hex"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/varve-io/varve/schemas"
)

// oneColumn writes a column beside a key, and returns its metrics.
func oneColumn(t *testing.T, o WriteOptions, typ schemas.Type, fill func(c *Column)) (ColumnMetrics, FileInfo) {
	t.Helper()
	o.Schema = &schemas.Schema{Fields: []schemas.Field{
		{ID: 7, Name: "v", Type: typ}, {ID: 1, Name: "k", Type: schemas.Of(schemas.Long), Required: true},
	}}
	b := NewBatch(o.Schema)
	fill(&b.Cols[0])
	for i := range b.Cols[0].Len() {
		b.Cols[1].AppendInt(int64(i))
		b.AppendEvent(Upsert, int64(i), 0, false)
	}
	info, err := Write(&bytes.Buffer{}, o, b, nil, Extra{})
	if err != nil {
		t.Fatal(err)
	}
	if len(info.Columns) != 2 || info.Columns[0].FieldID != 1 || info.Metrics(3) != nil {
		t.Fatalf("metrics %+v", info.Columns)
	}
	return *info.Metrics(7), info
}

// Bounds by M5, with inputs' kind 12.
func TestBounds(t *testing.T) {
	long := strings.Repeat
	for _, c := range []struct {
		typ          string
		values       []string
		lower, upper string // hex; - : none
	}{
		{"int", []string{"-1", "7"}, "ffffffff", "07000000"},
		{"long", []string{"5"}, "0500000000000000", "0500000000000000"},
		{"boolean", []string{"true", "false"}, "00", "01"},
		{"date", []string{"1969-12-31", "1970-01-02"}, "ffffffff", "01000000"},
		{"time", []string{"00:00:00.000001"}, "0100000000000000", "0100000000000000"},
		{"timestamp_ns", []string{"1970-01-01T00:00:00.000000001"}, "0100000000000000", "0100000000000000"},
		{"decimal(9, 2)", []string{"14.20", "-0.05", "1.28"}, "fb", "058c"},
		{"decimal(18, 0)", []string{"128"}, "0080", "0080"},
		{"decimal(38, 2)", []string{"14.20", "-0.05", "-2.56"}, "ff00", "058c"},
		{"double", []string{"1.5", "-2"}, "00000000000000c0", "000000000000f83f"},
		{"double", []string{"0", "5"}, "0000000000000080", "0000000000001440"},
		{"double", []string{"-0", "-5"}, "00000000000014c0", "0000000000000000"},
		{"double", []string{"0"}, "0000000000000080", "0000000000000000"},
		{"float", []string{"-0"}, "00000080", "00000000"},
		{"double", []string{"Inf", "-Inf"}, "000000000000f0ff", "000000000000f07f"},
		{"double", []string{"NaN", "1", "NaN"}, "000000000000f03f", "000000000000f03f"},
		{"double", []string{"NaN"}, "-", "-"},
		{"string", []string{"", "b"}, "", hex.EncodeToString([]byte("b"))},
		{"string", []string{"abcdefghijklmnop"}, hex.EncodeToString([]byte("abcdefghijklmnop")), hex.EncodeToString([]byte("abcdefghijklmnop"))},
		{"string", []string{"abcdefghijklmnopq"}, hex.EncodeToString([]byte("abcdefghijklmnop")), hex.EncodeToString([]byte("abcdefghijklmnoq"))},
		{"string", []string{long("é", 17)}, hex.EncodeToString([]byte(long("é", 16))), hex.EncodeToString([]byte(long("é", 15) + "ê"))},
		{"string", []string{long("a", 15) + "\x7fz"}, hex.EncodeToString([]byte(long("a", 15) + "\x7f")), hex.EncodeToString([]byte(long("a", 15) + "\u0080"))},
		{"string", []string{long("a", 15) + "\U0010FFFFz"}, hex.EncodeToString([]byte(long("a", 15) + "\U0010FFFF")), hex.EncodeToString([]byte(long("a", 14) + "b"))},
		{"string", []string{long("a", 15) + "\uD7FFz"}, hex.EncodeToString([]byte(long("a", 15) + "\uD7FF")), hex.EncodeToString([]byte(long("a", 15) + "\uE000"))},
		{"string", []string{long("\U0010FFFF", 17)}, hex.EncodeToString([]byte(long("\U0010FFFF", 16))), "-"},
		{"string", []string{long("\U0010FFFF", 17), "a"}, "61", "-"},
		{"string", []string{"a\x00b"}, "610062", "610062"},
		{"binary", []string{long("ff", 17)}, long("ff", 16), "-"},
		{"binary", []string{long("00", 15) + "ffff"}, long("00", 15) + "ff", long("00", 14) + "01"},
		{"binary", []string{"", "00"}, "", "00"},
		{"fixed[2]", []string{"00ff", "7f00"}, "00ff", "7f00"},
		{"fixed[17]", []string{long("7f", 17)}, long("7f", 16), long("7f", 15) + "80"},
		{"uuid", []string{"f79c3e09-677c-4bbd-a479-3f349cb785e7"}, "-", "-"},
		{"string", nil, "-", "-"},
		{"int", nil, "-", "-"},
	} {
		typ, err := schemas.ParseType(c.typ)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range []WriteOptions{{}, {PageRows: 8, RowGroupRows: 16}, {NoDictionary: true}} {
			m, _ := oneColumn(t, o, typ, func(col *Column) {
				for range 20 { // enough for a dictionary, and for more than one page
					col.AppendNull()
					for _, v := range c.values {
						if err := ParseKeyText(col, v); err != nil {
							t.Fatal(err)
						}
					}
				}
			})
			show := func(v []byte) string {
				if v == nil {
					return "-"
				}
				return hex.EncodeToString(v)
			}
			if show(m.Lower) != c.lower || show(m.Upper) != c.upper {
				t.Errorf("%s %q %+v: %s to %s, want %s to %s", c.typ, c.values, o, show(m.Lower), show(m.Upper), c.lower, c.upper)
			}
			nans := 0
			for _, v := range c.values {
				if v == "NaN" {
					nans += 20
				}
			}
			if m.Values != int64(20*(1+len(c.values))) || m.Nulls != 20 || m.NaNs != int64(nans) || m.Floats != (StorageOf(typ) == Floats) {
				t.Errorf("%s %q: counts %+v", c.typ, c.values, m)
			}
		}
	}
}

// A value of 5 MB has bounds of 16 code points.
func TestBoundsOfALargeValue(t *testing.T) {
	m, info := oneColumn(t, WriteOptions{}, schemas.Of(schemas.String), func(c *Column) {
		c.AppendBytes([]byte(strings.Repeat("😀", 5<<18)))
	})
	if string(m.Lower) != strings.Repeat("😀", 16) || string(m.Upper) != strings.Repeat("😀", 15)+"😁" || info.Rows != 1 {
		t.Errorf("%q to %q", m.Lower, m.Upper)
	}
}

// Bounds enclose every value, and merging pages and row groups gives the
// bounds of the whole.
func TestBoundsEncloseAndMerge(t *testing.T) {
	rng := rand.New(rand.NewPCG(42, 9))
	for _, typ := range []schemas.Type{
		schemas.Of(schemas.String), schemas.Of(schemas.Binary), schemas.FixedOf(20), schemas.DecimalOf(30, 2),
		schemas.Of(schemas.Double), schemas.Of(schemas.Long),
	} {
		for range 30 {
			c := NewColumn(typ)
			for range rng.IntN(200) + 1 {
				randomValue(&c, rng, 0)
			}
			fill := func(col *Column) {
				for i := range c.Len() {
					col.AppendRow(&c, i)
				}
			}
			m, _ := oneColumn(t, WriteOptions{}, typ, fill)
			parts, _ := oneColumn(t, WriteOptions{PageRows: 8, RowGroupRows: 40, PageBytes: 64}, typ, fill)
			if !bytes.Equal(m.Lower, parts.Lower) || !bytes.Equal(m.Upper, parts.Upper) || (m.Upper == nil) != (parts.Upper == nil) {
				t.Fatalf("%s: %x to %x in one page, %x to %x in many", typ, m.Lower, m.Upper, parts.Lower, parts.Upper)
			}
			for i := range c.Len() {
				switch {
				case typ.Kind == schemas.Double:
					v := c.Floats[i]
					lo, hi := math.Inf(1), math.Inf(-1)
					var err error
					if m.Lower != nil {
						if lo, err = schemas.FloatValue(typ, m.Lower); err != nil {
							t.Fatal(err)
						}
						if hi, err = schemas.FloatValue(typ, m.Upper); err != nil {
							t.Fatal(err)
						}
					}
					if v < lo || v > hi {
						t.Fatalf("%v outside of %v to %v", v, lo, hi)
					}
				case typ.Kind == schemas.Decimal:
					if v := widen(c.BytesAt(i)); compareBytes(typ, v, widen(m.Lower)) < 0 || compareBytes(typ, v, widen(m.Upper)) > 0 {
						t.Fatalf("%x outside of %x to %x", v, m.Lower, m.Upper)
					}
				case c.Storage == Bytes:
					if v := c.BytesAt(i); bytes.Compare(v, m.Lower) < 0 || m.Upper != nil && bytes.Compare(v, m.Upper) > 0 {
						t.Fatalf("%q outside of %q to %q", v, m.Lower, m.Upper)
					}
				}
			}
		}
	}
}

func TestWriterRefuses(t *testing.T) {
	of := schemas.Of
	for name, c := range map[string]struct {
		typ      schemas.Type
		required bool
		fill     func(c *Column)
		want     string
	}{
		"null in a required column":      {of(schemas.String), true, func(c *Column) { c.AppendNull() }, "required"},
		"null in a required int":         {of(schemas.Int), true, func(c *Column) { c.AppendNull() }, "required"},
		"int beyond 32 bits":             {of(schemas.Int), false, func(c *Column) { c.AppendInt(1 << 31) }, "range"},
		"boolean 2":                      {of(schemas.Boolean), false, func(c *Column) { c.AppendInt(2) }, "range"},
		"time 24:00":                     {of(schemas.Time), false, func(c *Column) { c.AppendInt(schemas.MicrosPerDay) }, "range"},
		"decimal of too many digits":     {schemas.DecimalOf(4, 2), false, func(c *Column) { c.AppendInt(10000) }, "range"},
		"wide decimal beyond its bytes":  {schemas.DecimalOf(19, 0), false, func(c *Column) { c.AppendBytes(bytes.Repeat([]byte{0x11}, 16)) }, "digits"},
		"wide decimal beyond its digits": {schemas.DecimalOf(19, 0), false, func(c *Column) { c.AppendBytes(append(make([]byte, 7), bytes.Repeat([]byte{0x7f}, 9)...)) }, "digits"},
		"double in a float":              {of(schemas.Float), false, func(c *Column) { c.AppendFloat(0.1) }, "32 bits"},
		"uuid of 15 bytes":               {of(schemas.UUID), false, func(c *Column) { c.AppendBytes(make([]byte, 15)) }, "15 bytes"},
		"fixed of another width":         {schemas.FixedOf(3), false, func(c *Column) { c.AppendBytes(nil) }, "0 bytes"},
	} {
		s := &schemas.Schema{Fields: []schemas.Field{{ID: 1, Name: "the column", Type: c.typ, Required: c.required}}}
		b := NewBatch(s)
		c.fill(&b.Cols[0])
		b.AppendEvent(Upsert, 0, 0, false)
		_, err := Write(&bytes.Buffer{}, WriteOptions{Schema: s}, b, nil, Extra{})
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "the column") {
			t.Errorf("%s: %v", name, err)
		}
	}
	s := &schemas.Schema{Fields: []schemas.Field{{ID: 1, Name: "v", Type: of(schemas.Int)}}}
	other := &schemas.Schema{Fields: []schemas.Field{{ID: 1, Name: "v", Type: of(schemas.Long)}}}
	if _, err := Write(&bytes.Buffer{}, WriteOptions{Schema: s}, NewBatch(other), nil, Extra{}); err == nil {
		t.Error("a batch of other types was taken")
	}
	if _, err := NewWriter(&bytes.Buffer{}, WriteOptions{}); err == nil {
		t.Error("a file without a schema was begun")
	}
}

type failingWriter struct{ left int }

var errDisk = bytes.ErrTooLarge

func (f *failingWriter) Write(p []byte) (int, error) {
	if len(p) > f.left {
		n := f.left
		f.left = 0
		return n, errDisk
	}
	f.left -= len(p)
	return len(p), nil
}

// A failed write is an error wherever it strikes, and the pool of writers
// gives whole files after it.
func TestWriteFails(t *testing.T) {
	s := allTypes()
	b := randomBatch(s, 300, 1)
	var whole bytes.Buffer
	if _, err := Write(&whole, WriteOptions{Schema: s}, b, nil, Extra{}); err != nil {
		t.Fatal(err)
	}
	for at := 0; at < whole.Len(); at += 997 {
		if _, err := Write(&failingWriter{at}, WriteOptions{Schema: s}, b, nil, Extra{}); err == nil {
			t.Fatalf("a file cut at %d was taken as written", at)
		}
		var again bytes.Buffer
		if _, err := Write(&again, WriteOptions{Schema: s}, b, nil, Extra{}); err != nil || !bytes.Equal(again.Bytes(), whole.Bytes()) {
			t.Fatalf("after a failure at %d the next file differs (%v)", at, err)
		}
	}
}
