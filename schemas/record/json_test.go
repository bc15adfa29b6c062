package record

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Whatever a record holds comes back from its JSON as the same bytes, and the
// names of its fields are those of the Avro schema.
func TestJSONRoundTrip(t *testing.T) {
	for typ := range typeNames {
		if New(Type(typ)) == nil {
			continue
		}
		t.Run(Type(typ).String(), func(t *testing.T) {
			var schema struct{ Fields []struct{ Name string } }
			text, err := Schema(Type(typ).String())
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal([]byte(text), &schema); err != nil {
				t.Fatal(err)
			}
			rapid.Check(t, func(t *rapid.T) {
				v := New(Type(typ))
				fill(t, reflect.ValueOf(v).Elem())
				want, err := EncodeBody(nil, v)
				if err != nil {
					t.Fatal(err)
				}
				line, err := AppendRecordJSON([]byte(`{`), v)
				if err != nil {
					t.Fatal(err)
				}
				line = line[1:]
				var plain map[string]any
				if err := json.Unmarshal(line, &plain); err != nil {
					t.Fatalf("%s: %v", line, err)
				}
				if len(plain) != len(schema.Fields) {
					t.Fatalf("%d fields, the schema has %d", len(plain), len(schema.Fields))
				}
				for _, f := range schema.Fields {
					if _, ok := plain[f.Name]; !ok {
						t.Fatalf("no field %s in %s", f.Name, line)
					}
				}
				back, err := ParseRecordJSON(Type(typ), line)
				if err != nil {
					t.Fatalf("%s: %v", line, err)
				}
				got, err := EncodeBody(nil, back)
				if err != nil || !bytes.Equal(got, want) {
					t.Fatalf("%s reads back as %x, not %x (%v)", line, got, want, err)
				}
			})
		})
	}
}

func TestJSONErrors(t *testing.T) {
	const shard = `"shard":{"topic_id":"000102030405060708090a0b0c0d0e0f","partition":3}`
	for _, c := range []struct {
		t        Type
		in, want string
	}{
		{TypeRetireShard, `{` + shard + `}`, ""},
		{TypeRetireShard, `{` + shard, "unexpected EOF"},
		{TypeRetireShard, ``, "unexpected EOF"},
		{TypeRetireShard, `{` + shard + `} {}`, "more follows the value"},
		{TypeRetireShard, `{` + shard + `,` + shard + `}`, `"shard" stands twice`},
		{TypeRetireShard, "{\"a\xff\":1}", "not UTF-8"},
		{TypeRetireShard, `[]`, "the record is an array, not an object"},
		{TypeRetireShard, strings.Repeat("[", 40), "inside each other"},
		{TypeRetireShard, `{}`, "shard is missing, an object is wanted"},
		{TypeRetireShard, `{` + shard + `,"shards":1}`, "shards is no field of this version; its fields are shard"},
		// K1: a composite key's order follows column names, so nothing renames a column.
		{TypeAlterTable, `{"rename":[{"name":"id","to":"key"}]}`, "rename is no field of this version"},
		{TypeCut, `{"a":1}`, "a is no field of this version; it has none"},
		{TypeRetireShard, `{"shard":{"topic_id":"00","partition":3}}`, "shard.topic_id is not 32 hexadecimal digits"},
		{TypeRetireShard, `{"shard":{"topic_id":"000102030405060708090a0b0c0d0e0f","partition":3000000000}}`,
			"shard.partition is no whole number from -2147483648 to 2147483647"},
		{TypeSkipSource, `{` + shard + `,"from":"1","to":2}`, "from is a string, not a whole number"},
		{TypeSkipSource, `{` + shard + `,"from":1.5,"to":2}`, "from is no whole number"},
		{TypeSkipSource, `{` + shard + `,"from":1,"to":2,"cause":7}`, "cause is a number, not a string"},
		{TypeSkipSource, `{` + shard + `,"from":1,"to":null}`, "to is missing"},
		{TypeAlterTable, `{"add":[{"name":"a","type":"long"},{"name":"b","type":"longer"}]}`, `add[1].type is no type`},
		{TypeAlterTable, `{"add":[{"name":"a"}]}`, `add[0].type is missing`},
		{TypeAlterTable, `{"add":{}}`, `add is an object, not an array`},
		{TypeAlterTable, `{"remove":["a",1]}`, `remove[1] is a number, not a string`},
		{TypeAlterTable, `{"widen":[{"name":"a","type":{"kind":300,"precision":0,"scale":0,"length":0}}]}`,
			`widen[0].type.kind is no whole number from 0 to 255`},
		{TypeAlterTable, `{}`, ""},
		{TypeRequestErasure, `{}`, "unknown record type"},
	} {
		_, err := ParseRecordJSON(c.t, []byte(c.in))
		if c.want == "" && err != nil {
			t.Errorf("%s %s: %v", c.t, c.in, err)
		}
		if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s %s:\n%v\nwant %s", c.t, c.in, err, c.want)
		}
	}
}

func TestJSONOfOthers(t *testing.T) {
	env := sampleEnvelope()
	for _, c := range []struct {
		v    any
		want string
	}{
		{env, `{"type":"Cut","type_version":1,"apply_version":1,"request":"` + env.Request.String() +
			`","offset_seen":41,"table":"shop.orders","table_id":7,"body_ref":null}`},
		{&Outcome{Code: Rejected, Reason: NoBase, Numbers: []int64{3, -1}, Items: []byte{5}},
			`{"code":"rejected","reason":"no base","numbers":[3,-1],"items":"BQ==","digest":"` +
				strings.Repeat("0", 32) + `","changed":false}`},
		{&OutcomeMessage{Offset: 9, Type: TypeCut, Table: "a", TableID: 1, TimeMs: 2, Outcome: Outcome{Code: 99, Reason: 999}},
			`{"offset":9,"derived":false,"type":"Cut","table":"a","table_id":1,"time_ms":2,"outcome":{"code":99,"reason":999,"numbers":[],"items":null,"digest":"` +
				strings.Repeat("0", 32) + `","changed":false},"chain":"` + strings.Repeat("0", 64) + `","definition":null}`},
	} {
		if got, err := AppendRecordJSON(nil, c.v); err != nil || string(got) != c.want {
			t.Errorf("%T:\n%s (%v)\nwant\n%s", c.v, got, err, c.want)
		}
	}
	// E1: key values are never shown.
	for _, v := range []any{&RowsBody{}, &KeysBody{}, 7} {
		if got, err := AppendRecordJSON([]byte("x"), v); err == nil || string(got) != "x" {
			t.Errorf("%T is shown: %s", v, got)
		}
	}
}

func FuzzRecordJSON(f *testing.F) {
	for _, g := range goldenSeeds(f) {
		if t, ok := ParseType(g.name); ok {
			f.Add(uint8(t), g.json)
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, b []byte) {
		v, err := ParseRecordJSON(Type(which%30), b)
		if err != nil {
			return
		}
		line, err := AppendRecordJSON(nil, v)
		if err != nil {
			t.Fatal(err)
		}
		back, err := ParseRecordJSON(Type(which%30), line)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		again, err := AppendRecordJSON(nil, back)
		if err != nil || !bytes.Equal(again, line) {
			t.Fatalf("not stable: %s, then %s (%v)", line, again, err)
		}
		if _, err := EncodeBody(nil, v); err != nil {
			t.Fatalf("%s cannot be encoded: %v", line, err)
		}
	})
}
