package source

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/varve-io/varve/schemas/rows"
)

// Where each kind of inputs.md is tested:
//
//	 1  a key is its typed value     TestOneKeyInAllFormats, TestTextKeysInAllFormats, TestMixedKeys, TestChangesTypedKey; package rows: the laws of keys
//	 2  one key in two partitions    cmd/varve: TestLoadKeyChangeOverPartitions; topology/endtoend: TestRepartition, TestFormatsInTurn
//	 3  upserts on a live key        TestConformance, TestDebeziumKeyChangeSequence
//	 4  order values are per key     TestDebeziumDeleteOrder; processors/sim: TestLateEvents, TestValueThenNone
//	 5  dead letters                 cmd/varve: TestLoadLetters, TestDeadLetterCommands
//	 6  exact or refused             TestTextInAllFormats, TestNumbersInAllFormats, TestWrittenNumbers, TestNestedAvroRoundTrip, TestNestedJSONRoundTrip, TestLossesAreTrue,
//	                                 FuzzDecimal; unchanged values: cmd/varve TestUnchangedValues
//	 7  special values               TestFixtureAllTypes, testdata/decode
//	 8  schema by name               TestRegistryByName, TestAvroVersions, testdata/decode; inside of columns: testdata/decode/nested
//	 9  names                        TestConformance, testdata/decode; package iceberg: names in manifests
//	10  control records              TestConformance, TestRegistryEnvelope; routed to no table: TestRoutes, cmd/varve: TestManyTablesOfPatterns
//	11  nested types                 TestRegistryNested, TestProtobufNested, TestJSONSchemaNested; package rows:
//	                                 TestNestedRoundTrip; cmd/varve: TestLoadNested; topology/readers: TestNestedColumns
//	12  text edges                   TestTextInAllFormats; package rows: TestBounds, TestBoundsOfALargeValue
//	13  records with keys            TestConformance, TestFixtureDelete
//	14  first loads                  cmd/varve: TestLoadOverPartitions

// A key is its typed value (kind 1 of inputs.md): the table key of a row does not
// depend on the format that brought it, and two keys are one only where their
// values are.
func TestOneKeyInAllFormats(t *testing.T) {
	def := suiteTable(t)
	enc, err := rows.NewKeyEncoder(def.Schema(), def.Key)
	if err != nil {
		t.Fatal(err)
	}
	type open struct {
		d   dialect
		dec Decoder
	}
	var all []open
	for _, d := range dialects(t) {
		all = append(all, open{d, decoder(t, d.format, def, d.options...)})
	}
	b := rows.NewBatch(def.Schema())
	key := func(o open, value []byte) string {
		b.Reset()
		if _, err := o.dec.Decode(b, &Record{Value: value}); err != nil {
			t.Fatalf("%s: %v", o.d.format, err)
		}
		k, err := enc.Append(nil, b, 0)
		if err != nil {
			t.Fatal(err)
		}
		return string(k)
	}
	rapid.Check(t, func(r *rapid.T) {
		x := rapid.Int64().Draw(r, "x")
		y := rapid.OneOf(rapid.Just(x+1), rapid.Just(x-1), rapid.Int64()).Draw(r, "y")
		name := "n"
		first := ""
		for _, o := range all {
			kx, ky := key(o, o.d.upsert(t, x, &name, 1)), key(o, o.d.upsert(t, y, &name, 1))
			if (kx == ky) != (x == y) {
				t.Fatalf("%s: keys of %d and %d", o.d.format, x, y)
			}
			if kd := key(o, o.d.remove(t, x, 1)); kd != kx {
				t.Fatalf("%s: a delete names another key than the row", o.d.format)
			}
			if first == "" {
				first = kx
			}
			if kx != first {
				t.Fatalf("%s: another key for %d", o.d.format, x)
			}
		}
	})
}

// Any text comes through as it is, or not at all (kinds 6 and 12).
func TestTextInAllFormats(t *testing.T) {
	def := suiteTable(t)
	for _, d := range dialects(t) {
		t.Run(d.format, func(t *testing.T) {
			dec := decoder(t, d.format, def, d.options...)
			b := rows.NewBatch(def.Schema())
			rapid.Check(t, func(r *rapid.T) {
				text := rapid.String().Draw(r, "text")
				b.Reset()
				if _, err := dec.Decode(b, &Record{Value: d.upsert(t, 1, &text, 1)}); err != nil {
					t.Fatal(err)
				}
				if b.Cols[1].IsNull(0) || string(b.Cols[1].BytesAt(0)) != text {
					t.Fatalf("%q became %s", text, fmt.Sprint(showValue(&b.Cols[1], 0)))
				}
			})
		})
	}
}
