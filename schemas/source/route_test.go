package source

import (
	"errors"
	"strings"
	"testing"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/rows"
)

func routeOptionsOf(by, match string, more ...schemas.Property) []schemas.Property {
	return append([]schemas.Property{{Key: "route.by", Value: by}, {Key: "route.match", Value: match}}, more...)
}

// A table takes of a topic what its field, or a header, says is its own; all else
// is told to be elsewhere.
func TestRoutes(t *testing.T) {
	def := suiteTable(t)
	name, other := "mine", "other"
	wrapped := func(payload string) []byte {
		return []byte(`{"schema":{"type":"struct","fields":[]},"payload":` + payload + `}`)
	}
	header := func(v string) []Header {
		return []Header{{Key: "h", Value: []byte("x")}, {Key: "__table", Value: []byte(v)}}
	}
	for what, c := range map[string]struct {
		format, by string
		rec        *Record
		taken      bool
		code       string // refused
	}{
		"json":               {DebeziumJSON, "source.table", &Record{Value: []byte(`{"after":{"id":1,"name":"a"},"source":{"db":"x","table":"mine"},"op":"c"}`)}, true, ""},
		"json, escaped":      {DebeziumJSON, "source.table", &Record{Value: []byte(`{"after":{"id":1,"name":"a"},"source":{"table":"m\u0069ne"},"op":"c"}`)}, true, ""},
		"json, another":      {DebeziumJSON, "source.table", &Record{Value: []byte(`{"after":{"id":1,"name":"a"},"source":{"table":"mine2"},"op":"c"}`)}, false, ""},
		"json, none":         {DebeziumJSON, "source.table", &Record{Value: []byte(`{"after":{"id":1,"name":"a"},"op":"c"}`)}, false, ""},
		"json, null":         {DebeziumJSON, "source.table", &Record{Value: []byte(`{"after":{"id":1},"source":{"table":null},"op":"c"}`)}, false, ""},
		"json, no object":    {DebeziumJSON, "source.table", &Record{Value: []byte(`{"after":{"id":1},"source":"mine","op":"c"}`)}, false, ""},
		"json, ill-formed":   {DebeziumJSON, "source.table", &Record{Value: []byte(`{"source":{"table":"mine"`)}, false, "malformed"},
		"json, cut before":   {DebeziumJSON, "source.table", &Record{Value: []byte(`{"source":{"tab`)}, false, ""},
		"json, empty":        {DebeziumJSON, "source.table", &Record{Value: []byte{}}, false, ""},
		"json, {}":           {DebeziumJSON, "source.table", &Record{Value: []byte(`{}`)}, false, ""},
		"json, tombstone":    {DebeziumJSON, "source.table", &Record{Key: []byte(`{"id":1}`)}, false, ""},
		"json, wrapped":      {DebeziumJSON, "source.table", &Record{Value: wrapped(`{"after":{"id":1,"name":"a"},"source":{"table":"mine"},"op":"c"}`)}, true, ""},
		"json, refused":      {DebeziumJSON, "source.table", &Record{Value: []byte(`{"after":{"id":"x"},"source":{"table":"mine"},"op":"c"}`)}, false, "key"},
		"json, refused else": {DebeziumJSON, "source.table", &Record{Value: []byte(`{"after":{"id":"x"},"source":{"table":"other"},"op":"c"}`)}, false, ""},
		"rows":               {RowsJSON, "name", &Record{Value: []byte(`{"id":1,"name":"mine"}`)}, true, ""},
		"rows, number":       {RowsJSON, "id", &Record{Value: []byte(`{"id":1,"name":"mine"}`)}, false, ""},
		"rows, tombstone":    {RowsJSON, "name", &Record{Key: []byte(`{"id":1}`)}, false, "route"},
		"rows, header":       {RowsJSON, "header:__table", &Record{Key: []byte(`{"id":1}`), Headers: header("mine")}, true, ""},
		"rows, header else":  {RowsJSON, "header:__table", &Record{Key: []byte(`{"id":1}`), Headers: header("other")}, false, ""},
		"rows, no header":    {RowsJSON, "header:__table", &Record{Key: []byte(`{"id":1}`)}, false, ""},
		"avro":               {RowsAvro, "name", &Record{Value: flatAvro(t, 1, &name, 1, nil)}, true, ""},
		"avro, another":      {RowsAvro, "name", &Record{Value: flatAvro(t, 1, &other, 1, nil)}, false, ""},
		"avro, null":         {RowsAvro, "name", &Record{Value: flatAvro(t, 1, nil, 1, nil)}, false, ""},
		"avro, cut":          {RowsAvro, "name", &Record{Value: flatAvro(t, 1, &name, 1, nil)[:7]}, false, ""},
		"avro, no schema":    {RowsAvro, "name", &Record{Value: []byte{0, 0, 0, 0, 77, 1}}, false, ""},
		"avro, nested":       {DebeziumAvro, "after.name", &Record{Value: custChange(t, "c", nil, custImage(1, &name), 1)}, true, ""},
		"avro, op":           {DebeziumAvro, "op", &Record{Value: custChange(t, "c", nil, custImage(1, &name), 1)}, false, ""},
		"proto, header":      {RowsProtobuf, "header:__table", &Record{Value: protoRowBytes(1, &name, 1, ""), Headers: header("mine")}, true, ""},
		"json schema":        {RowsJSONSchema, "name", &Record{Value: append([]byte{0, 0, 0, 0, idJSONRow}, `{"id":1,"name":"mine"}`...)}, true, ""},
		"mixed, json":        {"debezium-avro,debezium-json", "after.name", &Record{Value: []byte(`{"after":{"id":1,"name":"mine"},"op":"c"}`)}, true, ""},
		"mixed, avro":        {"debezium-avro,debezium-json", "after.name", &Record{Value: custChange(t, "c", nil, custImage(1, &name), 1)}, true, ""},
		"mixed, avro else":   {"debezium-avro,debezium-json", "after.name", &Record{Value: custChange(t, "c", nil, custImage(1, &other), 1)}, false, ""},
	} {
		dec, err := New(Options{Format: c.format, Options: routeOptionsOf(c.by, "mine|never"), Def: def, Schema: def.Schema(), Registry: suiteRegistry})
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		for range 2 { // the second time from memory
			b := rows.NewBatch(def.Schema())
			res, err := dec.Decode(b, c.rec)
			var j *Reject
			switch {
			case c.code != "":
				if !errors.As(err, &j) || j.Code != c.code {
					t.Errorf("%s: %v", what, err)
				}
			case err != nil || res.Elsewhere == c.taken || res.Control == c.taken || (res.Events == 1) != c.taken || b.Len() != res.Events:
				t.Errorf("%s: %+v, %v", what, res, err)
			}
		}
	}
	for _, c := range []struct{ format, by, match, want string }{
		{RowsJSON, "", "a", "go together"}, {RowsJSON, "a", "", "go together"}, {RowsJSON, "a..b", "x", "path of a field"}, {RowsJSON, "header:", "x", "name the header"},
		{RowsProtobuf, "a", "x", "routed by a record header"}, {VarveAvro, "a", "x", "routed by a record header"}, {RowsJSON, "a", "(", "regular expression"},
	} {
		var o []schemas.Property
		if c.by != "" {
			o = append(o, schemas.Property{Key: "route.by", Value: c.by})
		}
		if c.match != "" {
			o = append(o, schemas.Property{Key: "route.match", Value: c.match})
		}
		if _, err := New(Options{Format: c.format, Options: o, Def: def, Schema: def.Schema(), Registry: suiteRegistry}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	// Where deletes come twice, one of them says no table.
	dec, err := New(Options{Format: RowsJSON, Options: routeOptionsOf("name", "mine", schemas.Property{Key: "route.tombstones", Value: "skip"}), Def: def, Schema: def.Schema()})
	if err != nil {
		t.Fatal(err)
	}
	if res, err := dec.Decode(rows.NewBatch(def.Schema()), &Record{Key: []byte(`{"id":1}`)}); err != nil || !res.Elsewhere {
		t.Error(res, err)
	}
	// A schema is made of the table's own events.
	s, _, err := Discover(suiteRegistry, RowsJSON, routeOptionsOf("name", "mine"), []Record{{Value: []byte(`{"id":1,"name":"mine","a":1}`)}, {Value: []byte(`{"id":1,"name":"other","b":"x"}`)}}, []string{"id"})
	if err != nil || s.ByName("a") < 0 || s.ByName("b") >= 0 {
		t.Error(s, err)
	}
	reg := &registry{byRef: suiteRegistry.byRef, away: true}
	dec, err = New(Options{Format: RowsAvro, Options: routeOptionsOf("name", "mine"), Def: def, Schema: def.Schema(), Registry: reg})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dec.Decode(rows.NewBatch(def.Schema()), &Record{Value: flatAvro(t, 1, &name, 1, nil)}); !errors.Is(err, ErrAway) {
		t.Errorf("the registry is away: %v", err)
	}
}

// FuzzRoute: whatever the bytes, a record is one table's or elsewhere, and who
// takes it reads what the table of the whole topic would.
func FuzzRoute(f *testing.F) {
	def := suiteTable(f)
	name := "mine"
	for _, s := range []string{`{"after":{"id":1,"name":"mine"},"source":{"table":"mine"},"op":"c"}`, `{"source":{"table":"m\u0069ne"}}`, `{"payload":{"source":{"table":"x"}}}`, `{"source":`, `[]`, ``} {
		f.Add([]byte(s))
	}
	f.Add(custChange(f, "c", nil, custImage(1, &name), 1))
	const format = "debezium-avro,debezium-json"
	f.Fuzz(func(t *testing.T, value []byte) {
		var taken [2]bool
		for i, match := range []string{"mine", "(?s).*"} {
			dec, err := New(Options{Format: format, Options: routeOptionsOf("after.name", match), Def: def, Schema: def.Schema(), Registry: suiteRegistry})
			if err != nil {
				t.Fatal(err)
			}
			b := rows.NewBatch(def.Schema())
			res, err := dec.Decode(b, &Record{Value: value})
			if errors.Is(err, ErrAway) {
				t.Fatal(err)
			}
			checkBatch(t, b)
			if taken[i] = !res.Elsewhere; !taken[i] {
				continue
			}
			c := rows.NewBatch(def.Schema())
			one := decoder(t, format, def)
			res2, err2 := one.Decode(c, &Record{Value: value})
			if res != res2 || (err == nil) != (err2 == nil) || show(b, 0) != show(c, 0) {
				t.Fatalf("%v %v, and not %v %v", res, err, res2, err2)
			}
		}
		if taken[0] && !taken[1] {
			t.Fatal("a narrower pattern takes more")
		}
	})
}
