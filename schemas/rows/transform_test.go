package rows

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	iceberg "github.com/apache/iceberg-go"

	"github.com/varve-io/varve/schemas"
)

func icebergType(t testing.TB, typ schemas.Type) iceberg.Type {
	t.Helper()
	p := iceberg.PrimitiveTypes
	switch typ.Kind {
	case schemas.Boolean:
		return p.Bool
	case schemas.Int:
		return p.Int32
	case schemas.Long:
		return p.Int64
	case schemas.Float:
		return p.Float32
	case schemas.Double:
		return p.Float64
	case schemas.Date:
		return p.Date
	case schemas.Time:
		return p.Time
	case schemas.Timestamp:
		return p.Timestamp
	case schemas.TimestampTz:
		return p.TimestampTz
	case schemas.TimestampNs:
		return p.TimestampNs
	case schemas.TimestampTzNs:
		return p.TimestampTzNs
	case schemas.String:
		return p.String
	case schemas.UUID:
		return p.UUID
	case schemas.Binary:
		return p.Binary
	case schemas.Fixed:
		return iceberg.FixedTypeOf(int(typ.Length))
	case schemas.Decimal:
		return iceberg.DecimalTypeOf(int(typ.Precision), int(typ.Scale))
	}
	t.Fatalf("no type for %s", typ)
	return nil
}

// Transforms and single values against iceberg-go's, on random values.
func TestTransformsAgainstIcebergGo(t *testing.T) {
	rng := rand.New(rand.NewPCG(42, 3))
	tried := 0
	for _, f := range allTypes().Fields {
		c := NewColumn(f.Type)
		for range 300 {
			randomValue(&c, rng, 0)
		}
		c.AppendNull()
		for k := schemas.Identity; k <= schemas.Void; k++ {
			n := int32(0)
			if k == schemas.Bucket || k == schemas.Truncate {
				n = rng.Int32N(100) + 1
			}
			result, err := schemas.TransformResult(k, n, f.Type)
			if err != nil {
				continue
			}
			other, err := iceberg.ParseTransform(schemas.TransformName(k, n))
			if err != nil {
				t.Fatal(err)
			}
			tried++
			for i := range c.Len() {
				got, err := TransformColumn(&c, []uint32{uint32(i)}, k, n)
				if errors.Is(err, schemas.ErrNotExact) {
					continue // beyond the type: iceberg-go wraps
				}
				if err != nil {
					t.Fatal(err)
				}
				if got.Type != result || got.Len() != 1 {
					t.Fatalf("%s of %s: %d values of %s", schemas.TransformName(k, n), f.Type, got.Len(), got.Type)
				}
				if c.IsNull(i) || k == schemas.Void {
					if !got.IsNull(0) {
						t.Fatalf("%s of %s: a value where null is due", schemas.TransformName(k, n), f.Type)
					}
					continue
				}
				single, err := c.SingleAt(nil, i)
				if err != nil {
					t.Fatal(err)
				}
				mine, err := got.SingleAt(nil, 0)
				if err != nil {
					t.Fatal(err)
				}
				literal, err := iceberg.LiteralFromBytes(icebergType(t, f.Type), single)
				if err != nil {
					t.Fatalf("%s %x: %v", f.Type, single, err)
				}
				theirs, err := other.Apply(iceberg.Optional[iceberg.Literal]{Val: literal, Valid: true}).Val.MarshalBinary()
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(mine, theirs) {
					t.Errorf("%s of %s %x: %x, iceberg-go says %x", schemas.TransformName(k, n), f.Type, single, mine, theirs)
					break
				}
			}
		}
	}
	if tried < 60 {
		t.Errorf("only %d pairs of transform and type were tried", tried)
	}
}

func TestTransformColumnTakesRowsInOrder(t *testing.T) {
	c := NewColumn(schemas.Of(schemas.String))
	for _, s := range []string{"iceberg", "", "é€😀x"} {
		c.AppendBytes([]byte(s))
	}
	c.AppendNull()
	out, err := TransformColumn(&c, []uint32{3, 2, 0, 0, 1}, schemas.Truncate, 2)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i := range out.Len() {
		if out.IsNull(i) {
			got = append(got, "null")
			continue
		}
		got = append(got, string(out.BytesAt(i)))
	}
	if strings.Join(got, ",") != "null,é€,ic,ic," {
		t.Errorf("%q", got)
	}
	if _, err := TransformColumn(&c, nil, schemas.Day, 0); err == nil {
		t.Error("a day of a string was taken")
	}
}

func TestTupleEncoder(t *testing.T) {
	of := schemas.Of
	s := &schemas.Schema{Fields: []schemas.Field{
		{ID: 1, Name: "id", Type: of(schemas.Long), Required: true},
		{ID: 2, Name: "at", Type: of(schemas.TimestampTz)},
		{ID: 3, Name: "name", Type: of(schemas.String)},
	}}
	spec := &schemas.Spec{Fields: []schemas.PartitionField{
		{SourceID: 2, FieldID: 1000, Name: "at_day", Transform: schemas.Day},
		{SourceID: 9, FieldID: 1001, Name: "gone", Transform: schemas.Void},
		{SourceID: 3, FieldID: 1002, Name: "name_trunc", Transform: schemas.Truncate, N: 2},
		{SourceID: 1, FieldID: 1003, Name: "id_bucket", Transform: schemas.Bucket, N: 16},
	}}
	e, err := NewTupleEncoder(s, spec)
	if err != nil {
		t.Fatal(err)
	}
	b := NewBatch(s)
	b.Cols[0].AppendInt(34)
	b.Cols[1].AppendInt(-1)
	b.Cols[2].AppendBytes(nil)
	b.AppendEvent(Upsert, 0, 0, false)
	b.Cols[0].AppendInt(34)
	b.AppendEvent(Upsert, 1, 0, false)
	for row, want := range []string{
		"01" + "04000000" + "ffffffff" + "00" + "01" + "00000000" + "01" + "04000000" + "03000000",
		"00" + "00" + "00" + "01" + "04000000" + "03000000",
	} {
		got, err := e.Append(nil, b, row)
		if err != nil || hex.EncodeToString(got) != want {
			t.Errorf("row %d: %x (%v), want %s", row, got, err, want)
		}
		types := []schemas.Type{of(schemas.Date), of(schemas.Int), of(schemas.String), of(schemas.Int)}
		if err := schemas.CheckTuple(got, types); err != nil {
			t.Errorf("row %d: %v", row, err)
		}
	}
	spec.Fields[1].Transform = schemas.Identity
	if _, err := NewTupleEncoder(s, spec); err == nil || !strings.Contains(err.Error(), `"gone"`) {
		t.Errorf("a spec over a column that is not there: %v", err)
	}
}
