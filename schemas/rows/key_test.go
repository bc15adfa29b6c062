package rows

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/varve-io/varve/schemas"
)

// keyTable is a schema of required columns named by their types' order.
func keyTable(names []string, types []schemas.Type) (*schemas.Schema, []int32) {
	s := &schemas.Schema{}
	var key []int32
	for i := range names {
		s.Fields = append(s.Fields, schemas.Field{ID: int32(i + 1), Name: names[i], Type: types[i], Required: true})
		key = append(key, int32(i+1))
	}
	return s, key
}

func keyOf(t *testing.T, names []string, types []schemas.Type, texts []string) []byte {
	t.Helper()
	s, ids := keyTable(names, types)
	e, err := NewKeyEncoder(s, ids)
	if err != nil {
		t.Fatal(err)
	}
	b := NewBatch(s)
	for i := range texts {
		if err := ParseKeyText(&b.Cols[i], texts[i]); err != nil {
			t.Fatal(err)
		}
	}
	b.AppendEvent(Upsert, 0, 0, false)
	key, err := e.Append(nil, b, 0)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// The canonical bytes are written into index files and hashed: they must not
// change.
func TestKeyBytes(t *testing.T) {
	of := schemas.Of
	for _, c := range []struct{ typ, text, hex string }{
		{"boolean", "false", "8000000000000000"},
		{"boolean", "true", "8000000000000001"},
		{"int", "42", "800000000000002a"},
		{"long", "42", "800000000000002a"},
		{"long", "-1", "7fffffffffffffff"},
		{"long", "-9223372036854775808", "0000000000000000"},
		{"long", "9007199254740993", "8020000000000001"},
		{"date", "1970-01-02", "8000000000000001"},
		{"time", "00:00:00.000001", "8000000000000001"},
		{"timestamp", "1969-12-31T23:59:59.999999", "7fffffffffffffff"},
		{"timestamptz_ns", "1970-01-01T01:00:00+01:00", "8000000000000000"},
		{"decimal(4, 2)", "-0.01", "7fffffffffffffffffffffffffffffff"},
		{"decimal(30, 2)", "-0.01", "7fffffffffffffffffffffffffffffff"},
		{"decimal(38, 2)", "2.56", "80000000000000000000000000000100"},
		{"uuid", "f79c3e09-677c-4bbd-a479-3f349cb785e7", "f79c3e09677c4bbda4793f349cb785e7"},
		{"fixed[3]", "00ff01", "00ff01"},
		{"string", "", "0001"},
		{"string", "a\x00b", "6100ff620001"},
		{"binary", "00ff00", "00ffff00ff0001"},
	} {
		typ, err := schemas.ParseType(c.typ)
		if err != nil {
			t.Fatal(err)
		}
		if got := hex.EncodeToString(keyOf(t, []string{"k"}, []schemas.Type{typ}, []string{c.text})); got != c.hex {
			t.Errorf("%s %q: %s, want %s", c.typ, c.text, got, c.hex)
		}
	}
	// Columns stand in the order of their names, whatever the schema's order.
	ab := keyOf(t, []string{"a", "b"}, []schemas.Type{of(schemas.String), of(schemas.Int)}, []string{"x", "7"})
	ba := keyOf(t, []string{"b", "a"}, []schemas.Type{of(schemas.Int), of(schemas.String)}, []string{"7", "x"})
	if !bytes.Equal(ab, ba) || hex.EncodeToString(ab) != "7800018000000000000007" {
		t.Errorf("%x and %x", ab, ba)
	}
}

// Inputs, kind 1: what is one key and what is two.
func TestKeyIsItsTypedValue(t *testing.T) {
	str, two := schemas.Of(schemas.String), []string{"a", "b"}
	distinct := func(name string, types []schemas.Type, a, b []string) {
		t.Helper()
		if bytes.Equal(keyOf(t, two[:len(types)], types, a), keyOf(t, two[:len(types)], types, b)) {
			t.Errorf("%s: one key where two are meant", name)
		}
	}
	pair := []schemas.Type{str, str}
	distinct("separator inside", pair, []string{"x|y", "z"}, []string{"x", "y|z"})
	distinct("boundary moved", pair, []string{"xy", "z"}, []string{"x", "yz"})
	distinct("NUL at the boundary", pair, []string{"x\x00", "z"}, []string{"x", "\x00z"})
	distinct("NUL and 01", pair, []string{"\x00\x01", ""}, []string{"", "\x00\x01"})
	distinct("composed and decomposed", []schemas.Type{str}, []string{"É"}, []string{"E\u0301"})
	distinct("case", []schemas.Type{str}, []string{"A"}, []string{"a"})
	distinct("beyond 2^53", []schemas.Type{schemas.Of(schemas.Long)}, []string{"9007199254740993"}, []string{"9007199254740992"})
	if !bytes.Equal(keyOf(t, two[:1], []schemas.Type{schemas.Of(schemas.Int)}, []string{"42"}),
		keyOf(t, two[:1], []schemas.Type{schemas.Of(schemas.Long)}, []string{"42"})) {
		t.Error("int 42 and long 42 are two keys")
	}
}

// A null, absent or ill-formed part is an error that names the column (K1).
func TestKeyPartNull(t *testing.T) {
	s, ids := keyTable([]string{"tenant", "id"}, []schemas.Type{schemas.Of(schemas.String), schemas.Of(schemas.Long)})
	e, err := NewKeyEncoder(s, ids)
	if err != nil {
		t.Fatal(err)
	}
	b := NewBatch(s)
	b.Cols[0].AppendBytes(nil) // an empty string is a value
	b.Cols[1].AppendNull()
	b.AppendEvent(Delete, 0, 0, false)
	if _, err := e.Append(nil, b, 0); !errors.Is(err, ErrNullKey) || !strings.Contains(err.Error(), `"id"`) {
		t.Errorf("got %v", err)
	}
	narrow, err := NewKeyEncoder(s, ids[1:])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := narrow.NarrowKeys(nil, b); !errors.Is(err, ErrNullKey) {
		t.Errorf("got %v", err)
	}
	for _, text := range []string{"", "1.0", "0x10", " 1", "9223372036854775808"} {
		if err := ParseKeyText(&b.Cols[1], text); err == nil {
			t.Errorf("%q was taken as a long", text)
		}
	}
	f := &schemas.Schema{Fields: []schemas.Field{{ID: 1, Name: "d", Type: schemas.Of(schemas.Double), Required: true}}}
	if _, err := NewKeyEncoder(f, []int32{1}); err == nil {
		t.Error("a double was taken as a key")
	}
}

// Keys of random rows: injective, ordered as the values are, and read back.
func TestKeyOrderAndDecode(t *testing.T) {
	rng := rand.New(rand.NewPCG(42, 42))
	types := []schemas.Type{
		schemas.Of(schemas.Boolean), schemas.Of(schemas.Int), schemas.Of(schemas.Long), schemas.DecimalOf(10, 3),
		schemas.DecimalOf(30, 3), schemas.Of(schemas.Date), schemas.Of(schemas.Time), schemas.Of(schemas.TimestampNs),
		schemas.Of(schemas.String), schemas.Of(schemas.UUID), schemas.FixedOf(4), schemas.Of(schemas.Binary),
	}
	for range 300 {
		a, z := types[rng.IntN(len(types))], types[rng.IntN(len(types))]
		s, ids := keyTable([]string{"a", "z"}, []schemas.Type{a, z})
		e, err := NewKeyEncoder(s, ids)
		if err != nil {
			t.Fatal(err)
		}
		b := NewBatch(s)
		for range 20 {
			randomValue(&b.Cols[0], rng, 4)
			randomValue(&b.Cols[1], rng, 0)
			b.AppendEvent(Upsert, 0, 0, false)
		}
		keys := make([][]byte, b.Len())
		back := NewBatch(s)
		for i := range keys {
			if keys[i], err = e.Append(nil, b, i); err != nil {
				t.Fatal(err)
			}
			if err := e.Decode(keys[i], []*Column{&back.Cols[0], &back.Cols[1]}); err != nil {
				t.Fatal(err)
			}
			back.AppendEvent(Upsert, 0, 0, false)
		}
		equalColumns(t, "a", &back.Cols[0], &b.Cols[0], whole(b.Len()))
		equalColumns(t, "z", &back.Cols[1], &b.Cols[1], whole(b.Len()))
		for i := range keys {
			for j := range keys {
				want := compareRows(&b.Cols[0], i, j)
				if want == 0 {
					want = compareRows(&b.Cols[1], i, j)
				}
				if got := bytes.Compare(keys[i], keys[j]); got != want {
					t.Fatalf("%s, %s: rows %d and %d compare %d, their keys %d", a, z, i, j, want, got)
				}
			}
		}
	}
}

func compareRows(c *Column, i, j int) int {
	if c.Storage == Ints {
		return cmp.Compare(c.Ints[i], c.Ints[j])
	}
	return compareBytes(c.Type, c.BytesAt(i), c.BytesAt(j))
}

func TestNarrowKey(t *testing.T) {
	s, ids := keyTable([]string{"k"}, []schemas.Type{schemas.Of(schemas.Timestamp)})
	e, err := NewKeyEncoder(s, ids)
	if err != nil {
		t.Fatal(err)
	}
	if !e.Narrow() {
		t.Fatal("a timestamp is a narrow key")
	}
	b := NewBatch(s)
	for _, v := range []int64{math.MinInt64, -1, 0, 1, math.MaxInt64} {
		b.Cols[0].AppendInt(v)
		b.AppendEvent(Upsert, 0, 0, false)
	}
	keys, err := e.NarrowKeys(nil, b)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.IsSorted(keys) || keys[0] != 0 || keys[4] != math.MaxUint64 {
		t.Errorf("%x", keys)
	}
	for i, k := range keys {
		full, err := e.Append(nil, b, i)
		if err != nil {
			t.Fatal(err)
		}
		if k != e.NarrowKey(b, i) || !bytes.Equal(full, []byte{byte(k >> 56), byte(k >> 48), byte(k >> 40), byte(k >> 32), byte(k >> 24), byte(k >> 16), byte(k >> 8), byte(k)}) {
			t.Errorf("row %d: %x and %x", i, k, full)
		}
	}
	for _, wide := range []schemas.Type{schemas.Of(schemas.String), schemas.DecimalOf(5, 0), schemas.Of(schemas.UUID)} {
		s, ids := keyTable([]string{"k"}, []schemas.Type{wide})
		if e, err := NewKeyEncoder(s, ids); err != nil || e.Narrow() {
			t.Errorf("%s: narrow, or %v", wide, err)
		}
	}
}

// SipHash-2-4 of 128 bits: the vector of its reference implementation for the
// key 00…0f and the messages of 0 and 1 bytes.
func TestHash128(t *testing.T) {
	var secret [16]byte
	for i := range secret {
		secret[i] = byte(i)
	}
	for _, c := range []struct {
		msg    []byte
		hi, lo uint64
	}{
		{nil, 0xe6a825ba047f81a3, 0x930255c71472f66d},
		{[]byte{0}, 0x44af996bd8c187da, 0x45fc229b11597634},
	} {
		if hi, lo := Hash128(secret, c.msg); hi != c.hi || lo != c.lo {
			t.Errorf("%x: %x %x, want %x %x", c.msg, hi, lo, c.hi, c.lo)
		}
	}
}

func FuzzDecodeKey(f *testing.F) {
	s, ids := keyTable([]string{"a", "b", "c"}, []schemas.Type{schemas.Of(schemas.String), schemas.DecimalOf(12, 2), schemas.Of(schemas.Int)})
	e, err := NewKeyEncoder(s, ids)
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte("a\x00\x01\x80\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x07\x80\x00\x00\x00\x00\x00\x00\x05"))
	f.Add([]byte("\x00\xff\x00"))
	f.Fuzz(func(t *testing.T, key []byte) {
		b := NewBatch(s)
		if err := e.Decode(key, []*Column{&b.Cols[0], &b.Cols[1], &b.Cols[2]}); err != nil {
			if !errors.Is(err, ErrBadKey) || b.Cols[0].Len()+b.Cols[1].Len()+b.Cols[2].Len() != 0 {
				t.Fatalf("%v, %d values left", err, b.Cols[0].Len())
			}
			return
		}
		b.AppendEvent(Upsert, 0, 0, false)
		back, err := e.Append(nil, b, 0)
		if err != nil || !bytes.Equal(back, key) {
			t.Fatalf("%x became %x (%v)", key, back, err)
		}
	})
}
