package record

import (
	"encoding/binary"
	"encoding/hex"
	"reflect"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/varve-io/varve/schemas"
)

// TestOlderTypes: records of version 1, whose column types have no place for
// nested ones, and a ForeignSnapshot none for delete files, are read as they were meant: a log outlives the builds that wrote
// it.
func TestOlderTypes(t *testing.T) {
	seen := map[string]bool{}
	datadriven.RunTest(t, "testdata/older", func(t *testing.T, d *datadriven.TestData) string {
		seen[d.Cmd] = true
		_, text, _ := strings.Cut(d.Expected, "\n")
		b, err := hex.DecodeString(strings.ReplaceAll(text, "\n", ""))
		if err != nil {
			t.Fatalf("%s: %v", d.Pos, err)
		}
		var got any
		for typ := range typeNames {
			if typeNames[typ] == d.Cmd {
				got, err = DecodeBody(Type(typ), 1, b)
			}
		}
		if err != nil {
			t.Errorf("%s: %v", d.Pos, err)
			return d.Expected
		}
		json, err := AppendRecordJSON(nil, got)
		if err != nil {
			t.Fatal(err)
		}
		if want, got := strings.Join(strings.Fields(d.Input), ""), strings.Join(strings.Fields(string(json)), ""); got != want {
			t.Errorf("%s: read as\n%s\nwant\n%s", d.Pos, got, want)
		}
		return d.Expected
	})
	if len(seen) != 4 {
		t.Errorf("read %v", seen)
	}

	// The outcome of a claim tells the table's definition.
	def := schemas.Definition{
		Name: "t", Schemas: []schemas.Schema{{Fields: []schemas.Field{
			{ID: 1, Name: "id", Type: schemas.Of(schemas.Long), Required: true}, {ID: 2, Name: "note", Type: schemas.Of(schemas.String)},
		}}},
	}
	m := OutcomeMessage{Offset: 4, Type: TypeClaimShard, Table: "t", Definition: &def}
	w := flatWriter{}
	w.b = append(w.b, 1)
	outcomeMessageFields(&w, &m)
	key, value, err := EncodeOutcomeMessage(nil, nil, &m)
	if err != nil {
		t.Fatal(err)
	}
	older := binary.BigEndian.AppendUint32(w.b, checksum(key, w.b))
	if len(older) != len(value)-2 {
		t.Fatalf("%d bytes, and %d with a place for nested types", len(older), len(value))
	}
	for _, v := range [][]byte{older, value} {
		var back OutcomeMessage
		if err := DecodeOutcomeMessage(key, v, &back); err != nil || back.Definition == nil ||
			len(back.Definition.Schemas) != 1 || !reflect.DeepEqual(back.Definition.Schemas[0].Fields, def.Schemas[0].Fields) {
			t.Errorf("read %+v, %v", back.Definition, err)
		}
	}
}

// flatWriter writes column types without a place for nested ones.
type flatWriter struct{ binWriter }

func (w *flatWriter) columnType(_ string, t *schemas.Type) { w.b = appendColumnType(w.b, *t) }
