package source

import (
	"encoding/binary"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// Messages, repeated fields and maps of Protobuf (kind 11).
func TestProtobufNested(t *testing.T) {
	const text = `syntax = "proto3"; import "google/protobuf/timestamp.proto";
	message R { int64 id = 1; S s = 2; repeated int32 n = 3; repeated S many = 4; map<string, S> by = 5; map<int32, double> of = 6; repeated google.protobuf.Timestamp at = 7; repeated string tags = 8; }
	message S { int32 a = 1; optional string b = 2; repeated int64 deep = 3; }`
	const columns = `id long
s struct<a: int, b: string, deep: list<long>>
n list<int>
many list<struct<a: int, b: string, deep: list<long>>>
by map<string, struct<a: int, b: string, deep: list<long>>>
of map<int, double>
at list<timestamptz>
tags list<string>`
	head := append(binary.BigEndian.AppendUint32([]byte{0}, 9), 0)
	message := func(n protowire.Number, b ...byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, n, protowire.BytesType), b)
	}
	varint := func(n protowire.Number, v uint64) []byte {
		return protowire.AppendVarint(protowire.AppendTag(nil, n, protowire.VarintType), v)
	}
	join := func(parts ...[]byte) []byte {
		var out []byte
		for _, p := range parts {
			out = append(out, p...)
		}
		return out
	}
	s := join(varint(1, 5), message(2, 'x'), message(3, 1, 2), varint(3, 3)) // packed, then not
	value := join(head, varint(1, 7), message(2, s...), varint(3, 1), message(3, 2, 3), message(4, s...), message(4),
		message(5, join(message(1, 'k'), message(2, s...))...), message(5, message(1, 'e')...),
		message(6, join(varint(1, 4), protowire.AppendFixed64(protowire.AppendTag(nil, 2, protowire.Fixed64Type), 0x3FE0000000000000))...),
		message(7, varint(1, 1)...), message(8, 'a'), message(8))
	const sText = `{"a":5,"b":"x","deep":[1,2,3]}`
	const empty = `{"a":0,"b":null,"deep":[]}`
	equal(t, protoDecode(t, text, columns, &Record{Value: value}), `upsert id=7 s=`+sText+` n=[1,2,3] many=[`+sText+`,`+empty+`] by={"k":`+sText+`,"e":`+empty+
		`} of=[{"key":4,"value":0.5}] at=["1970-01-01T00:00:01.000000+00:00"] tags=["a",""]`)
	// Nothing sent: a message is absent, a list and a map are empty.
	equal(t, protoDecode(t, text, columns, &Record{Value: head}), `upsert id=0 s=null n=[] many=[] by={} of=[] at=[] tags=[]`)
	equal(t, protoDecode(t, text, "id long\ns struct<a: int>", &Record{Value: value}, "columns.exclude=n,many,by,of,at,tags"), `widen s (2) to struct<a: int, b: string, deep: list<long>>`)
	equal(t, protoDecode(t, text, "id long\ns struct<a: string>", &Record{Value: value}, "columns.exclude=n,many,by,of,at,tags"),
		`reject type kind=upsert: column "s": the value's type does not fit the column's`)
	for name, bad := range map[string][]byte{
		"a packed list that is cut": join(head, message(3, 0x80)),
		"a message that is cut":     join(head, message(4, 0x08)),
		"an entry that is cut":      join(head, message(5, 0x0a, 5)),
	} {
		if got := protoDecode(t, text, columns, &Record{Value: bad}); !strings.HasPrefix(got, "reject malformed") {
			t.Errorf("%s: %s", name, got)
		}
	}
	twice := join(head, message(5, message(1, 'k')...), message(5, message(1, 'k')...))
	equal(t, protoDecode(t, text, columns, &Record{Value: twice}), `reject malformed kind=upsert: column "by": the field occurs twice`)
	// A message that holds itself has no end.
	const tree = `syntax = "proto3"; message R { int64 id = 1; T t = 2; } message T { repeated T in = 1; int32 n = 2; }`
	if got := protoDecode(t, tree, "id long", &Record{Value: head}); !strings.HasPrefix(got, `reject nested kind=upsert: column "t"`) {
		t.Error(got)
	}
	equal(t, protoDecode(t, tree, "id long", &Record{Value: join(head, varint(1, 3))}, "columns.exclude=t"), `upsert id=3`)
}

// Objects and arrays that a JSON Schema describes.
func TestJSONSchemaNested(t *testing.T) {
	const text = `{"type":"object","properties":{"id":{"type":"integer"},
		"s":{"type":"object","properties":{"at":{"type":"string","format":"date-time"},"n":{"type":["null","integer"]}}},
		"tags":{"type":"array","items":{"type":"string"}},"by":{"type":"object","additionalProperties":{"$ref":"#/$defs/p"}}},
		"$defs":{"p":{"type":"object","properties":{"x":{"type":"number"}}}}}`
	reg := &registry{byRef: map[SchemaRef]WriterSchema{{ID: 9}: {Type: TypeJSON, Text: text}}}
	value := &Record{Value: append(binary.BigEndian.AppendUint32([]byte{0}, 9), `{"id":1,"s":{"at":"2024-01-01T00:00:00Z","n":null},"tags":["a"],"by":{"k":{"x":1}}}`...)}
	equal(t, decodeWith(t, reg, RowsJSONSchema, table(t, "id long", "id"), value),
		"add s struct<at: timestamptz, n: long> add tags list<string> add by map<string, struct<x: double>>")
	def := table(t, "id long\ns struct<at: timestamptz, n: long>\ntags list<string>\nby map<string, struct<x: double>>", "id")
	equal(t, decodeWith(t, reg, RowsJSONSchema, def, value), `upsert id=1 s={"at":"2024-01-01T00:00:00.000000+00:00","n":null} tags=["a"] by={"k":{"x":1}}`)
}
