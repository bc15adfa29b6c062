package source

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
	"pgregory.net/rapid"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/rows"
)

// numberTypes are the types that take numbers.
var numberTypes = []string{"int", "long", "float", "double", "decimal(9, 2)", "decimal(18, 18)", "decimal(38, 10)"}

// exact is a stored number as a fraction.
func exact(t testing.TB, c *rows.Column, i int) *big.Rat {
	t.Helper()
	text := showValue(c, i)
	if c.Storage == rows.Floats {
		return new(big.Rat).SetFloat64(c.Floats[i])
	}
	r, ok := new(big.Rat).SetString(text)
	if !ok {
		t.Fatalf("%s is no number", text)
	}
	return r
}

// holds says whether a type of exact numbers holds one.
func holds(typ schemas.Type, v *big.Rat) bool {
	inside := func(bits uint) bool {
		limit := new(big.Int).Lsh(big.NewInt(1), bits-1)
		return v.IsInt() && (v.Num().Cmp(limit) < 0) && v.Num().Cmp(new(big.Int).Neg(limit)) >= 0
	}
	switch typ.Kind {
	case schemas.Int:
		return inside(32)
	case schemas.Long:
		return inside(64)
	case schemas.Decimal:
		scaled := new(big.Rat).Mul(v, new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(typ.Scale)), nil)))
		limit := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(typ.Precision)), nil)
		return scaled.IsInt() && new(big.Int).Abs(scaled.Num()).Cmp(limit) < 0
	}
	return false
}

// holdsFloat says whether a floating-point type takes a number as it is written:
// a fraction stands for the nearest double, a whole number must be one, or its
// shortest digits; a float takes doubles that it holds or whose digits are its
// own shortest ones.
func holdsFloat(typ schemas.Type, text string, v *big.Rat) (float64, bool) {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, false
	}
	if !strings.ContainsAny(text, ".eE") && math.Abs(f) >= 1<<53 && new(big.Rat).SetFloat64(f).Cmp(v) != 0 {
		if s, _ := new(big.Rat).SetString(strconv.FormatFloat(f, 'g', -1, 64)); s.Cmp(v) != 0 {
			return 0, false
		}
	}
	if typ.Kind == schemas.Double {
		return f, true
	}
	w := float64(float32(f))
	if w == f {
		return w, true
	}
	back, err := strconv.ParseFloat(strconv.FormatFloat(w, 'g', -1, 32), 64)
	return w, err == nil && back == f && !math.IsInf(w, 0)
}

// drawNumber draws the text of a JSON number, often one at the edge of a type.
func drawNumber(r *rapid.T) string {
	sign := rapid.SampledFrom([]string{"", "-"}).Draw(r, "sign")
	edge := rapid.SampledFrom([]string{"", "", "", "2147483647", "2147483648", "9223372036854775807", "9223372036854775808", "9007199254740993", "16777217",
		"99999999.99", "9999999.995", "0.1", "0.30000000000000004", "1234567890123456.5", "3.4028234663852886e38", "3.4028236e38", "1e-45", "1.7976931348623157e308", "1e309"}).Draw(r, "edge")
	if edge != "" {
		return sign + edge
	}
	whole := rapid.StringMatching(`0|[1-9][0-9]{0,20}`).Draw(r, "whole")
	frac := rapid.OneOf(rapid.Just(""), rapid.StringMatching(`\.[0-9]{1,20}`)).Draw(r, "frac")
	exp := rapid.OneOf(rapid.Just(""), rapid.Just(""), rapid.StringMatching(`[eE][+-]?[0-9]{1,2}`)).Draw(r, "exp")
	return sign + whole + frac + exp
}

// A number in JSON is stored exactly, or refused (kind 6 of inputs.md): in every
// format that has numbers in JSON, for every type that takes them (of floating-point
// columns: holdsFloat).
func TestNumbersInAllFormats(t *testing.T) {
	columns := "id long\n"
	for i, typ := range numberTypes {
		columns += fmt.Sprintf("c%d %s\n", i, typ)
	}
	def := table(t, columns, "id")
	for n, d := range dialects(t) {
		if d.raw == nil || d.format == RowsJSONSchema { // whose schema decides
			continue
		}
		t.Run(fmt.Sprintf("%s-%d", d.format, n), func(t *testing.T) {
			dec := decoder(t, d.format, def, d.options...)
			b := rows.NewBatch(def.Schema())
			rapid.Check(t, func(r *rapid.T) {
				text, col := drawNumber(r), rapid.IntRange(1, len(numberTypes)).Draw(r, "column")
				v, ok := new(big.Rat).SetString(text)
				if !ok {
					t.Fatal(text)
				}
				literal, id := text, "1"
				if d.quoted {
					literal, id = strconv.Quote(text), `"1"`
				}
				value := d.raw(fmt.Sprintf(`{"id":%s,"c%d":%s}`, id, col-1, literal))
				if strings.Contains(string(value), `"schema":`) {
					t.Skip("a row's own schema decides; see TestLossesAreTrue")
				}
				b.Reset()
				_, err := dec.Decode(b, &Record{Value: value})
				var j *Reject
				typ := def.Schema().Fields[col].Type
				switch {
				case err != nil && !errors.As(err, &j):
					t.Fatal(err)
				case typ.Kind == schemas.Float || typ.Kind == schemas.Double:
					f, ok := holdsFloat(typ, text, v)
					if (err == nil) != ok || ok && b.Cols[col].Floats[0] != f {
						t.Fatalf("%s in a %s: %v %v, want %v %v", text, typ, err, b.Cols[col].Floats, ok, f)
					}
				case (err == nil) != holds(typ, v):
					t.Fatalf("%s in a %s: %v", text, typ, err)
				case err != nil:
				case exact(t, &b.Cols[col], 0).Cmp(v) != 0:
					t.Fatalf("%s became %s", text, showValue(&b.Cols[col], 0))
				}
			})
		})
	}
}

// A number of Avro or Protobuf in any column that takes numbers: exactly, or not
// at all. What the column cannot hold of the type as a whole widens it or refuses
// the event; it is never cut.
func TestWrittenNumbers(t *testing.T) {
	type written struct {
		name  string
		value func(r *rapid.T) (any, *big.Rat)
	}
	whole := func(bits int) func(r *rapid.T) (any, *big.Rat) {
		return func(r *rapid.T) (any, *big.Rat) {
			v := rapid.Int64().Draw(r, "v")
			if bits == 32 {
				v = int64(int32(v))
				return int32(v), new(big.Rat).SetInt64(v)
			}
			return v, new(big.Rat).SetInt64(v)
		}
	}
	float := func(r *rapid.T) (any, *big.Rat) {
		v := rapid.Float32().Filter(func(f float32) bool { return !math.IsInf(float64(f), 0) && f == f }).Draw(r, "v")
		return v, new(big.Rat).SetFloat64(float64(v))
	}
	double := func(r *rapid.T) (any, *big.Rat) {
		v := rapid.Float64().Filter(func(f float64) bool { return !math.IsInf(f, 0) && f == f }).Draw(r, "v")
		return v, new(big.Rat).SetFloat64(v)
	}
	decimal := func(r *rapid.T) (any, *big.Rat) {
		v := new(big.Rat).SetFrac(big.NewInt(rapid.Int64().Draw(r, "v")), big.NewInt(1_000_000))
		return v, v
	}
	avro := map[string]written{
		`"int"`: {"int", whole(32)}, `"long"`: {"long", whole(64)}, `"float"`: {"float", float}, `"double"`: {"double", double},
		`{"type":"bytes","logicalType":"decimal","precision":20,"scale":6}`: {"bytes.decimal", decimal},
	}
	proto := map[string]written{"int32": {"", whole(32)}, "sint64": {"", whole(64)}, "fixed64": {"", func(r *rapid.T) (any, *big.Rat) {
		v := rapid.Uint64().Draw(r, "v")
		return v, new(big.Rat).SetInt(new(big.Int).SetUint64(v))
	}}, "float": {"", float}, "double": {"", double}}
	check := func(t *testing.T, reg SchemaSource, format string, typ string, value []byte, v *big.Rat) {
		t.Helper()
		def := table(t, "id long\nv "+typ, "id")
		dec, err := New(Options{Format: format, Def: def, Schema: def.Schema(), Registry: reg})
		if err != nil {
			t.Fatal(err)
		}
		b := rows.NewBatch(def.Schema())
		_, err = dec.Decode(b, &Record{Value: value})
		var j *Reject
		var c *SchemaChange
		if errors.As(err, &c) && len(c.Add) == 0 { // a wider column
			alter(def, c)
			if dec, err = New(Options{Format: format, Def: def, Schema: def.Schema(), Registry: reg}); err != nil {
				t.Fatal(err)
			}
			b = rows.NewBatch(def.Schema())
			_, err = dec.Decode(b, &Record{Value: value})
		}
		switch col := &b.Cols[1]; {
		case errors.As(err, &j):
			if b.Len() != 0 {
				t.Fatal("a refused event stays")
			}
		case err != nil:
			t.Fatal(err)
		case exact(t, col, 0).Cmp(v) != 0 && !shortestOf(col, v):
			t.Fatalf("%s in a %s became %s", v.RatString(), typ, showValue(col, 0))
		}
	}
	for schema, w := range avro {
		t.Run("avro "+w.name, func(t *testing.T) {
			text := fmt.Sprintf(`{"type":"record","name":"Row","fields":[{"name":"id","type":"long"},{"name":"v","type":%s}]}`, schema)
			reg := &registry{byRef: map[SchemaRef]WriterSchema{{ID: 9}: {Type: TypeAvro, Text: text}}}
			rapid.Check(t, func(r *rapid.T) {
				x, v := w.value(r)
				check(t, reg, RowsAvro, rapid.SampledFrom(numberTypes).Draw(r, "type"), confluent(t, 9, text, m{"id": int64(1), "v": x}), v)
			})
		})
	}
	for name, w := range proto {
		t.Run("protobuf "+name, func(t *testing.T) {
			text := fmt.Sprintf(`syntax = "proto3"; message Row { int64 id = 1; %s v = 2; }`, name)
			reg := &registry{byRef: map[SchemaRef]WriterSchema{{ID: 9}: {Type: TypeProtobuf, Text: text}}}
			rapid.Check(t, func(r *rapid.T) {
				x, v := w.value(r)
				value := protoValue(t, text, "Row", func(m *dynamicpb.Message) {
					fs := m.Descriptor().Fields()
					m.Set(fs.ByName("id"), protoreflect.ValueOfInt64(1))
					m.Set(fs.ByName("v"), protoreflect.ValueOf(x))
				})
				check(t, reg, RowsProtobuf, rapid.SampledFrom(numberTypes).Draw(r, "type"), value, v)
			})
		})
	}
}

// shortestOf says whether a decimal is the shortest digits of the double that an
// event wrote: so a double is read into decimals (TYPES.md).
func shortestOf(c *rows.Column, v *big.Rat) bool {
	if c.Type.Kind != schemas.Decimal {
		return false
	}
	for _, bits := range []int{32, 64} {
		f, _ := v.Float64()
		s, ok := new(big.Rat).SetString(strconv.FormatFloat(f, 'g', -1, bits))
		got, _ := new(big.Rat).SetString(showValue(c, 0))
		if ok && s.Cmp(got) == 0 {
			return true
		}
	}
	return false
}

// A text key is its text (kind 1): no case, no composition, no white space is one
// with another, whatever the format, and in the record key as in the row.
func TestTextKeysInAllFormats(t *testing.T) {
	def := table(t, "id long\nname string", "name")
	def.Order = schemas.Order{Kind: schemas.OrderByPath, Path: "source.seq"}
	enc, err := rows.NewKeyEncoder(def.Schema(), def.Key)
	if err != nil {
		t.Fatal(err)
	}
	text := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"", " ", "a", "A", "a ", "\u00e9", "e\u0301", "x|y", "x", "null", "1", "1.0", "\x00", "\U0001F600", "true", `"a"`, "{}"}))
	for n, d := range dialects(t) {
		t.Run(fmt.Sprintf("%s-%d", d.format, n), func(t *testing.T) {
			if d.format == VarveAvro {
				t.Skip("its schema is made from the table's, whose key is another here")
			}
			dec := decoder(t, d.format, def, d.options...)
			b := rows.NewBatch(def.Schema())
			key := func(rec *Record) string {
				b.Reset()
				if _, err := dec.Decode(b, rec); err != nil {
					t.Fatalf("%q: %v", rec.Value, err)
				}
				k, err := enc.Append(nil, b, 0)
				if err != nil {
					t.Fatal(err)
				}
				return string(k)
			}
			rapid.Check(t, func(r *rapid.T) {
				x, y := text.Draw(r, "x"), text.Draw(r, "y")
				kx, ky := key(&Record{Value: d.upsert(t, 1, &x, 1)}), key(&Record{Value: d.upsert(t, 2, &y, 1)})
				if (kx == ky) != (x == y) {
					t.Fatalf("keys of %q and %q", x, y)
				}
				object := fmt.Appendf(nil, `{"name":%s}`, schemas.AppendJSONString(nil, x))
				if k := key(&Record{Key: object}); k != kx {
					t.Fatalf("%q: the record key is another than the row's", x)
				}
			})
		})
	}
}
