package rows

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/varve-io/varve/schemas"
)

// allTypes is a schema with a column of each type, the key first.
func allTypes() *schemas.Schema {
	types := []schemas.Type{
		schemas.Of(schemas.Long), schemas.Of(schemas.Boolean), schemas.Of(schemas.Int), schemas.Of(schemas.Long),
		schemas.Of(schemas.Float), schemas.Of(schemas.Double), schemas.DecimalOf(9, 2), schemas.DecimalOf(18, 4),
		schemas.DecimalOf(19, 3), schemas.DecimalOf(38, 10), schemas.Of(schemas.Date), schemas.Of(schemas.Time),
		schemas.Of(schemas.Timestamp), schemas.Of(schemas.TimestampTz), schemas.Of(schemas.TimestampNs),
		schemas.Of(schemas.TimestampTzNs), schemas.Of(schemas.String), schemas.Of(schemas.UUID),
		schemas.FixedOf(5), schemas.FixedOf(20), schemas.Of(schemas.Binary),
	}
	s := &schemas.Schema{Identifier: []int32{1}}
	for i, t := range types {
		f := schemas.Field{ID: int32(i + 1), Name: fmt.Sprintf("c%d %s", i, t), Type: t, Required: i == 0}
		s.Fields = append(s.Fields, f)
	}
	return s
}

// randomValue appends a value of the column's type; few distinct ones make
// dictionaries.
func randomValue(c *Column, rng *rand.Rand, distinct int) {
	k := rng.Uint64()
	if distinct > 0 {
		k = uint64(rng.IntN(distinct)) * 0x9E3779B97F4A7C15
	}
	r := rand.New(rand.NewPCG(k, 7))
	switch c.Storage {
	case Ints:
		lo, hi := c.Type.IntRange()
		switch r.IntN(20) {
		case 0:
			c.AppendInt(lo)
		case 1:
			c.AppendInt(hi)
		default:
			if span := uint64(hi) - uint64(lo); span == math.MaxUint64 {
				c.AppendInt(int64(r.Uint64()))
			} else {
				c.AppendInt(lo + int64(r.Uint64N(span+1)))
			}
		}
	case Floats:
		specials := []float64{0, math.Copysign(0, -1), math.NaN(), math.Inf(1), math.Inf(-1)}
		v := r.NormFloat64() * 1e6
		if i := r.IntN(40); i < len(specials) {
			v = specials[i]
		}
		if c.Type.Kind == schemas.Float {
			v = float64(float32(v))
		}
		c.AppendFloat(v)
	default:
		switch c.Type.Kind {
		case schemas.Decimal:
			text := "-"
			if r.IntN(2) == 0 {
				text = ""
			}
			for range int(c.Type.Precision) - int(c.Type.Scale) {
				text += string(rune('0' + r.IntN(10)))
			}
			text += "."
			for range c.Type.Scale {
				text += string(rune('0' + r.IntN(10)))
			}
			if err := ParseKeyText(c, text); err != nil {
				panic(err)
			}
		case schemas.String:
			var s []rune
			alphabet := []rune{'a', 'b', 0, 'é', '€', 0x1F600, 0xD7FF, 0xFFFF, 0x10FFFF}
			for range r.IntN(24) {
				s = append(s, alphabet[r.IntN(len(alphabet))])
			}
			c.AppendBytes([]byte(string(s)))
		default:
			n := r.IntN(24)
			if c.Type.Kind == schemas.UUID {
				n = 16
			} else if c.Type.Kind == schemas.Fixed {
				n = int(c.Type.Length)
			}
			v := make([]byte, n)
			for i := range v {
				v[i] = byte(r.Uint32())
				if r.IntN(3) == 0 {
					v[i] = 0xFF
				}
			}
			c.AppendBytes(v)
		}
	}
}

// randomBatch has n rows; column i has nulls by i, and few distinct values in
// every other column.
func randomBatch(s *schemas.Schema, n int, seed uint64) *Batch {
	rng := rand.New(rand.NewPCG(seed, 1))
	b := NewBatch(s)
	for row := range n {
		for i := range b.Cols {
			c := &b.Cols[i]
			switch {
			case i == 0:
				c.AppendInt(int64(row) - 5)
			case rng.IntN(len(b.Cols)) < i%7:
				c.AppendNull()
			case i%2 == 0:
				randomValue(c, rng, 40)
			default:
				randomValue(c, rng, 0)
			}
		}
		b.AppendEvent(Upsert, int64(row), int64(row)*3-7, row%4 != 1)
	}
	return b
}

func equalColumns(t *testing.T, name string, got, want *Column, sel []uint32) {
	t.Helper()
	if got.Type != want.Type || got.Len() != len(sel) {
		t.Fatalf("%s: %d values of %s, want %d of %s", name, got.Len(), got.Type, len(sel), want.Type)
	}
	for i, r := range sel {
		row := int(r)
		if got.IsNull(i) != want.IsNull(row) {
			t.Fatalf("%s row %d: null is %v", name, i, got.IsNull(i))
		}
		same := true
		switch got.Storage {
		case Ints:
			same = got.Ints[i] == want.Ints[row]
		case Floats:
			same = math.Float64bits(got.Floats[i]) == math.Float64bits(want.Floats[row])
		default:
			same = bytes.Equal(got.BytesAt(i), want.BytesAt(row))
		}
		if !same {
			t.Fatalf("%s row %d: another value than written", name, i)
		}
	}
}

func whole(n int) []uint32 {
	sel := make([]uint32, n)
	for i := range sel {
		sel[i] = uint32(i)
	}
	return sel
}

func TestWriteAndReadBack(t *testing.T) {
	s := allTypes()
	b := randomBatch(s, 9000, 42)
	sel := whole(9000)
	rand.New(rand.NewPCG(1, 1)).Shuffle(len(sel), func(i, j int) { sel[i], sel[j] = sel[j], sel[i] })
	sel = sel[:8000]
	rowID := make([]int64, 9000)
	for i := range rowID {
		rowID[i] = int64(i%3) - 1
	}
	for _, o := range []WriteOptions{
		{},
		{PageRows: 100, RowGroupRows: 2500},
		{PageRows: 1000, PageBytes: 300, RowGroupBytes: 50_000},
		{NoDictionary: true, Uncompressed: true},
		{DeltaIntegers: true, PageRows: 999},
	} {
		t.Run(fmt.Sprintf("%+v", o), func(t *testing.T) {
			o.Schema, o.Order = s, true
			var out bytes.Buffer
			info, err := Write(&out, o, b, sel, Extra{RowID: rowID})
			if err != nil {
				t.Fatal(err)
			}
			if info.Bytes != int64(out.Len()) || info.Rows != 8000 {
				t.Fatalf("%+v for %d bytes", info, out.Len())
			}
			if dir := os.Getenv("VARVE_KEEP_PARQUET"); dir != "" {
				if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("all-%d.parquet", out.Len())), out.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			f, err := Open(bytes.NewReader(out.Bytes()), info.Bytes)
			if err != nil {
				t.Fatal(err)
			}
			var ids []int32
			for i := range s.Fields {
				ids = append(ids, s.Fields[i].ID)
			}
			ids = append(ids, schemas.RowIDField, schemas.OrderField)
			cols, err := f.ReadColumns(ids)
			if err != nil {
				t.Fatal(err)
			}
			for i := range s.Fields {
				equalColumns(t, s.Fields[i].Name, &cols[i], &b.Cols[i], sel)
			}
			for i, r := range sel {
				id, order := &cols[len(s.Fields)], &cols[len(s.Fields)+1]
				if id.IsNull(i) != (rowID[r] < 0) || !id.IsNull(i) && id.Ints[i] != rowID[r] {
					t.Fatalf("row %d: another _row_id", i)
				}
				if order.IsNull(i) != (b.HasOrder[r] == 0) || !order.IsNull(i) && order.Ints[i] != b.Order[r] {
					t.Fatalf("row %d: another _varve_order", i)
				}
			}
			// The same rows in other batches are the same bytes.
			var again bytes.Buffer
			o.RowID = true
			w, err := NewWriter(&again, o)
			if err != nil {
				t.Fatal(err)
			}
			for at := 0; at < len(sel); {
				n := min(777, len(sel)-at)
				if err := w.Append(b, sel[at:at+n], Extra{RowID: rowID}); err != nil {
					t.Fatal(err)
				}
				at += n
			}
			info2, err := w.Close()
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(out.Bytes(), again.Bytes()) || !reflect.DeepEqual(info, info2) {
				t.Fatal("the bytes depend on how rows were parted into batches")
			}
		})
	}
}
