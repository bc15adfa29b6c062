package readers

import (
	"fmt"
	"strings"
	"testing"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/iceberg"
	"github.com/varve-io/varve/schemas/rows"
	"github.com/varve-io/varve/schemas/source"
)

// Structs, lists and maps of varve's writer come back from every engine as they
// went in, over several pages, row groups and files.
func TestNestedColumns(t *testing.T) {
	fields := []schemas.Field{{ID: 1, Name: "id", Type: schemas.Of(schemas.Long), Required: true}}
	for i, name := range []string{"struct<x: long, y: string, z: struct<w: double>>", "list<string>", "list<struct<sku: string, n: int>>",
		"map<string, int>", "list<list<boolean>>", "map<string, list<struct<a: int>>>"} {
		typ, err := schemas.ParseType(name)
		if err != nil {
			t.Fatal(err)
		}
		fields = append(fields, schemas.Field{ID: int32(2 + i), Name: string(rune('a' + i)), Type: typ})
	}
	s := schemas.Schema{Fields: fields}
	s.AssignIDs(s.HighestID())
	h := newHand(t, s.Fields, schemas.Spec{})
	lines := []string{
		`{"id":1,"a":{"x":1,"y":"t","z":{"w":0.5}},"b":["p",null,""],"c":[{"sku":"k","n":2},null,{}],"d":{"k":1,"":null},"e":[[true,null],[],null],"f":{"q":[{"a":1},null],"r":[],"s":null}}`,
		`{"id":2}`,
		`{"id":3,"a":{},"b":[],"c":[],"d":{},"e":[],"f":{}}`,
		`{"id":4,"a":{"z":{}},"b":["Größe 日本語 😀"],"c":[{"n":-1}],"d":{"é":5},"e":[[]],"f":{"x":[{}]}}`,
	}
	const want = `1|{"x":1,"y":"t","z":{"w":0.5}}|["p",null,""]|[{"n":2,"sku":"k"},null,{"n":null,"sku":null}]|[{"key":"k","value":1},{"key":"","value":null}]|[[true,null],[],null]|[{"key":"q","value":[{"a":1},null]},{"key":"r","value":[]},{"key":"s","value":null}]
2|∅|∅|∅|∅|∅|∅
3|{"x":null,"y":null,"z":null}|[]|[]|[]|[]|[]
4|{"x":null,"y":null,"z":{"w":null}}|["Größe 日本語 😀"]|[{"n":-1,"sku":null}]|[{"key":"é","value":5}]|[[]]|[{"key":"x","value":[{"a":null}]}]`
	def := h.def
	dec, err := source.New(source.Options{Format: source.RowsJSON, Def: def, Schema: def.Schema()})
	if err != nil {
		t.Fatal(err)
	}
	// Each line many times, so that there is more than one page.
	b := rows.NewBatch(def.Schema())
	var sel []uint32
	for range 200 {
		for _, line := range lines {
			if _, err := dec.Decode(b, &source.Record{Value: []byte(line)}); err != nil {
				t.Fatal(err)
			}
			sel = append(sel, uint32(len(sel)))
		}
	}
	h.commit(cut{op: "append", data: [][]iceberg.Entry{h.added(h.dataFile(&schemas.Spec{}, b, sel, rows.Extra{}), h.dataFile(&schemas.Spec{}, b, sel[:4], rows.Extra{}))}})
	var all [][]string
	for i := range 201 * len(lines) {
		all = append(all, strings.Split(strings.Split(want, "\n")[i%len(lines)], "|"))
	}
	for _, e := range All {
		t.Run(string(e), func(t *testing.T) {
			Need(t, e)
			got, want := read(t, e, h.metadataPath(), Options{}).Sorted(), expect(s.Fields, all...)
			if e == PyIceberg {
				// It makes a list of structs anew from its offsets alone, and so
				// takes a null one for an empty one.
				for i := range want {
					want[i] = strings.Replace(want[i], "c=∅", "c=[]", 1)
				}
			}
			for i := range max(len(got), len(want)) {
				if i >= len(got) || i >= len(want) || got[i] != want[i] {
					t.Fatalf("row %d of %d, want %d: got %s, want %s", i, len(got), len(want), fmt.Sprint(got[min(i, len(got)-1):min(i+1, len(got))]), fmt.Sprint(want[min(i, len(want)-1):min(i+1, len(want))]))
				}
			}
		})
	}
}
