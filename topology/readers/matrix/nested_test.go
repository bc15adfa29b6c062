package matrix

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/topology/readers"
)

// nestedCases are the tables with structs, lists and maps, each around single
// values and around each other.
func nestedCases() []tableCase {
	// Leaves are of types that no reader refuses.
	const leaves = "bo: boolean, i: int, l: long, d: double, de: decimal(9, 2), day: date, at: timestamp, s: string, b: binary"
	kind := func(name, what, typ string, f ...filter) tableCase {
		return tableCase{name: "nested." + name, what: what, columns: []column{nested("v", typ), country}, filters: append(f, below("id", 40), text("country", "PT"))}
	}
	grown := nested("v", "struct<n: long, s: string, note: string, inner: struct<x: long, more: list<int>>>")
	added := nested("m", "map<string, list<int>>")
	return []tableCase{
		kind("struct", "struct", "struct<"+leaves+">", inside("v", "i", 100)),
		kind("list", "list", "list<string>"),
		kind("map", "map", "map<string, long>"),
		kind("mapint", "map with keys of a number", "map<int, string>"),
		kind("structs", "struct of structs, lists and maps", "struct<n: int, st: struct<"+leaves+">, li: list<long>, ma: map<string, date>>", inside("v", "n", 100)),
		kind("lists", "list of lists and of maps", "struct<ll: list<list<string>>, lm: list<map<string, int>>>"),
		kind("liststructs", "list of structs", "list<struct<"+leaves+">>"),
		kind("maps", "map of structs, lists and maps", "struct<ms: map<string, struct<"+leaves+">>, ml: map<string, list<int>>, mm: map<string, map<int, string>>>"),
		{name: "nested.compacted", what: "nested columns by partitions, compacted, then changed again", columns: []column{nested("v", "struct<n: int, l: list<struct<s: string>>>"), nested("m", "map<string, list<int>>"), country},
			partition: by(schemas.Identity, 0, "country"), compacted: true, filters: []filter{inside("v", "n", 100), text("country", "PT")}},
		{name: "nested.altered", what: "fields added and widened inside of a struct, a map added", columns: []column{nested("v", "struct<n: int, s: string, inner: struct<x: int>>"), country},
			filters: []filter{inside("v", "n", 100), text("country", "PT")},
			alter: &alteration{
				change:  record.AlterTable{Add: []record.AddColumn{{Name: "m", Type: added.typ}}, Widen: []record.WidenColumn{{Name: "v", Type: grown.typ}}},
				columns: []column{grown, country, added},
				old:     map[string]string{"m": null},
				rewrite: func(row map[string]string) { row["v"] = grow(row["v"]) },
			}},
	}
}

// nested is a column of a nested type, as ParseType reads it, with values of its own making.
func nested(name, typ string) column {
	t, err := schemas.ParseType(typ)
	if err != nil {
		panic(err)
	}
	return column{name, t, func(r *rand.Rand) string {
		v := nestedValue(r, t)
		if v == nil {
			return null
		}
		return nestedText(v)
	}}
}

func nestedText(v any) string {
	s, err := readers.NestedText(v)
	if err != nil {
		panic(err)
	}
	return s
}

// nestedValue makes a value: nil, empty and full ones on every level.
func nestedValue(r *rand.Rand, t schemas.Type) any {
	if r.IntN(8) == 0 {
		return nil
	}
	children := t.Children()
	switch t.Kind {
	case schemas.Struct:
		out := map[string]any{}
		for i := range children {
			out[children[i].Name] = nestedValue(r, children[i].Type)
		}
		return out
	case schemas.List:
		out := []any{}
		for range r.IntN(4) {
			out = append(out, nestedValue(r, children[0].Type))
		}
		return out
	case schemas.Map:
		keys := []any{"", "Zoë", "a", "日本語"} // in the order of their text, as nestedEvent has them
		if children[0].Type.Kind == schemas.Int {
			keys = []any{-1, 0, 2147483647, 7}
		}
		out := []any{}
		for _, k := range keys {
			if r.IntN(2) == 0 {
				out = append(out, map[string]any{"key": k, "value": nestedValue(r, children[1].Type)})
			}
		}
		return out
	}
	s := single(r, t)
	switch {
	case s == null:
		return nil
	case t.Kind == schemas.Boolean || t.Kind == schemas.Int || t.Kind == schemas.Long || t.Kind == schemas.Double:
		return json.RawMessage(s)
	}
	return s
}

func single(r *rand.Rand, t schemas.Type) string {
	switch t.Kind {
	case schemas.Boolean:
		return of("true", "false")(r)
	case schemas.Int:
		return whole(-1<<31, 1<<31-1)(r)
	case schemas.Long:
		return whole(-1<<63, 1<<63-1)(r)
	case schemas.Double:
		return of("1.5", "-0.1", "1234.5678")(r)
	case schemas.Decimal:
		return decimals(int(t.Precision-t.Scale), int(t.Scale))(r)
	case schemas.Date:
		return dates(r)
	case schemas.Timestamp:
		return timestamps(r)
	case schemas.String:
		return names(r)
	case schemas.Binary:
		return hexBytes(0, 1, 40)(r)
	}
	panic(fmt.Sprintf("no values of %s", t))
}

// nestedEvent is a value as rows-json has it: a map is an object, binary is base64.
func nestedEvent(t schemas.Type, v any) any {
	if v == nil {
		return nil
	}
	children := t.Children()
	switch t.Kind {
	case schemas.Struct:
		out := map[string]any{}
		for i := range children {
			if x, ok := v.(map[string]any)[children[i].Name]; ok {
				out[children[i].Name] = nestedEvent(children[i].Type, x)
			}
		}
		return out
	case schemas.List:
		out := []any{}
		for _, x := range v.([]any) {
			out = append(out, nestedEvent(children[0].Type, x))
		}
		return out
	case schemas.Map:
		out := map[string]any{}
		for _, x := range v.([]any) {
			entry := x.(map[string]any)
			out[fmt.Sprint(entry["key"])] = nestedEvent(children[1].Type, entry["value"])
		}
		return out
	case schemas.Binary:
		b, err := hex.DecodeString(v.(string))
		if err != nil {
			panic(err)
		}
		return base64.StdEncoding.EncodeToString(b)
	}
	return v
}

// parsed is what nestedText wrote.
func parsed(text string) any {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		panic(err)
	}
	return v
}

// grow is what a row of nested.altered's first type is in the second.
func grow(text string) string {
	if text == null {
		return null
	}
	v := parsed(text).(map[string]any)
	v["note"] = nil
	if inner, ok := v["inner"].(map[string]any); ok {
		inner["more"] = nil
	}
	return nestedText(v)
}

// inside is a condition on a whole number in a struct.
func inside(column, field string, limit int64) filter {
	f := below(column+"."+field, limit)
	holds := f.holds
	f.column, f.sqlForPolars = column, false
	f.holds = func(text string) bool {
		if text == null {
			return false
		}
		n, ok := parsed(text).(map[string]any)[field].(json.Number)
		return ok && holds(n.String())
	}
	return f
}

// emptiedNote is what PyIceberg makes of null lists and maps of structs: it builds
// them anew from their offsets alone.
const emptiedNote = " null lists and maps of structs are read as empty ones"

// emptied is a row as PyIceberg reads it.
func (w *written) emptied(row map[string]string) map[string]string {
	out := maps.Clone(row)
	for _, c := range w.columns {
		if !c.typ.IsNested() {
			continue
		}
		var v any
		if row[c.name] != null {
			v = parsed(row[c.name])
		}
		if v = emptied(c.typ, v); v != nil {
			out[c.name] = nestedText(v)
		}
	}
	return out
}

func emptied(t schemas.Type, v any) any {
	children := t.Children()
	if v == nil {
		if t.Kind == schemas.List && children[0].Type.Kind == schemas.Struct || t.Kind == schemas.Map && children[1].Type.Kind == schemas.Struct {
			return []any{}
		}
		return nil
	}
	switch v := v.(type) {
	case []any:
		for i, x := range v {
			if t.Kind == schemas.List {
				v[i] = emptied(children[0].Type, x)
			} else {
				x.(map[string]any)["value"] = emptied(children[1].Type, x.(map[string]any)["value"])
			}
		}
	case map[string]any:
		for i := range children {
			v[children[i].Name] = emptied(children[i].Type, v[children[i].Name])
		}
	}
	return v
}
