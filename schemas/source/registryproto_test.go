package source

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
	"pgregory.net/rapid"

	"github.com/varve-io/varve/schemas/rows"
)

const custProto = `syntax = "proto3"; package shop;
message Row { int64 id = 1; optional string name = 2; Source source = 3; optional string __deleted = 4; }
message Source { optional int64 seq = 1; }
message Key { int64 id = 1; }`

func protoRowBytes(id int64, name *string, seq int64, deleted string) []byte {
	b := binary.BigEndian.AppendUint32([]byte{0}, idProto)
	b = append(b, 0) // the first message
	if id != 0 {
		b = protowire.AppendVarint(protowire.AppendTag(b, 1, protowire.VarintType), uint64(id))
	}
	if name != nil {
		b = protowire.AppendString(protowire.AppendTag(b, 2, protowire.BytesType), *name)
	}
	if deleted != "" {
		b = protowire.AppendString(protowire.AppendTag(b, 4, protowire.BytesType), deleted)
	}
	source := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), uint64(seq))
	return protowire.AppendBytes(protowire.AppendTag(b, 3, protowire.BytesType), source)
}

func protoDialect() dialect {
	marker := DefaultUnavailable
	return dialect{
		format: RowsProtobuf, seamless: true,
		upsert: func(_ testing.TB, id int64, name *string, seq int64) []byte { return protoRowBytes(id, name, seq, "") },
		remove: func(_ testing.TB, id, seq int64) []byte { return protoRowBytes(id, nil, seq, "true") },
		marker: func(id int64) []byte { return protoRowBytes(id, &marker, 1, "") },
	}
}

// protoValue frames a message that another implementation wrote.
func protoValue(t testing.TB, text, message string, set func(m *dynamicpb.Message)) []byte {
	t.Helper()
	file, err := compileProto(WriterSchema{Text: text})
	if err != nil {
		t.Fatal(err)
	}
	md := file.Messages().ByName(protoreflect.Name(message))
	m := dynamicpb.NewMessage(md)
	set(m)
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	head := binary.BigEndian.AppendUint32([]byte{0}, 9)
	if md.Index() == 0 {
		return append(append(head, 0), b...)
	}
	head = protowire.AppendVarint(protowire.AppendVarint(head, protowire.EncodeZigZag(1)), protowire.EncodeZigZag(int64(md.Index())))
	return append(head, b...)
}

func protoDecode(t *testing.T, text, columns string, rec *Record, options ...string) string {
	t.Helper()
	reg := &registry{byRef: map[SchemaRef]WriterSchema{{ID: 9}: {Type: TypeProtobuf, Text: text}}}
	return decodeWith(t, reg, RowsProtobuf, table(t, columns, "id"), rec, options...)
}

const allProto = `syntax = "proto3";
import "google/protobuf/timestamp.proto"; import "google/protobuf/wrappers.proto"; import "google/type/date.proto"; import "google/type/timeofday.proto";
import "confluent/meta.proto"; import "confluent/type/decimal.proto";
message Other { int64 x = 1; }
message All {
	int64 id = 1; int32 i32 = 2; sint32 s32 = 3; sfixed32 x32 = 4; uint32 u32 = 5; fixed32 f32 = 6;
	sint64 s64 = 7; sfixed64 x64 = 8; uint64 u64 = 9; fixed64 f64 = 10; float f = 11; double d = 12; bool b = 13; string s = 14; bytes by = 15;
	enum Color { NONE = 0; RED = 5; } Color color = 16;
	google.protobuf.Timestamp ts = 17; google.type.Date day = 18; google.type.TimeOfDay at = 19;
	google.protobuf.StringValue ws = 20; google.protobuf.Int64Value wi = 21;
	confluent.type.Decimal dec = 22 [(confluent.field_meta) = {params: [{key: "scale", value: "2"}, {key: "precision", value: "9"}]}];
	confluent.type.Decimal any = 23;
	optional int32 o = 24; oneof either { string left = 25; int64 right = 26; }
}`

const allProtoColumns = "id long\ni32 int\ns32 int\nx32 int\nu32 long\nf32 long\ns64 long\nx64 long\nu64 decimal(20, 0)\nf64 decimal(20, 0)\nf float\nd double\nb boolean\ns string\nby binary\ncolor string\nts timestamptz\nday date\nat long\nws string\nwi long\ndec decimal(9, 2)\nany decimal(38, 20)\no int\nleft string\nright long"

// The table that is proposed for a schema takes its rows.
func TestProtobufDiscovery(t *testing.T) {
	reg := &registry{byRef: map[SchemaRef]WriterSchema{{ID: 9}: {Type: TypeProtobuf, Text: allProto}}}
	rec := Record{Value: protoValue(t, allProto, "All", func(*dynamicpb.Message) {})}
	s, _, err := Discover(reg, RowsProtobuf, nil, []Record{rec}, []string{"id"})
	if err != nil {
		t.Fatal(err)
	}
	want := table(t, allProtoColumns, "id").Schema()
	if len(s.Fields) != len(want.Fields) {
		t.Fatalf("%d columns, want %d", len(s.Fields), len(want.Fields))
	}
	for i := range want.Fields {
		if f := s.Fields[i]; f.Name != want.Fields[i].Name || f.Type != want.Fields[i].Type {
			t.Errorf("column %s %s, want %s %s", f.Name, f.Type, want.Fields[i].Name, want.Fields[i].Type)
		}
	}
	// Nothing set: zeroes where there is no presence, else null.
	equal(t, protoDecode(t, allProto, allProtoColumns, &rec), `upsert id=0 i32=0 s32=0 x32=0 u32=0 f32=0 s64=0 x64=0 u64=0 f64=0 f=0 d=0 b=false s="" by=0x color="NONE" ts=null day=null at=null ws=null wi=null dec=null any=null o=null left=null right=null`)
}

// What Google's implementation writes is read as it means it.
func TestProtobufValues(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		i64 := rapid.Int64().Draw(r, "i64")
		i32 := rapid.Int32().Draw(r, "i32")
		u64 := rapid.Uint64().Draw(r, "u64")
		u32 := rapid.Uint32().Draw(r, "u32")
		text := rapid.String().Draw(r, "text")
		raw := rapid.SliceOf(rapid.Byte()).Draw(r, "bytes")
		d := rapid.Float64().Draw(r, "double")
		sec, nanos := rapid.Int64Range(-62135596800, 253402300799).Draw(r, "seconds"), rapid.Int32Range(0, 999_999_999).Draw(r, "nanos")
		value := protoValue(t, allProto, "All", func(m *dynamicpb.Message) {
			set := func(name string, v any) {
				m.Set(m.Descriptor().Fields().ByName(protoreflect.Name(name)), protoreflect.ValueOf(v))
			}
			sub := func(name string, values map[string]any) {
				fd := m.Descriptor().Fields().ByName(protoreflect.Name(name))
				x := dynamicpb.NewMessage(fd.Message())
				for k, v := range values {
					x.Set(fd.Message().Fields().ByName(protoreflect.Name(k)), protoreflect.ValueOf(v))
				}
				m.Set(fd, protoreflect.ValueOf(x))
			}
			set("id", i64)
			set("i32", i32)
			set("s32", i32)
			set("x32", i32)
			set("u32", u32)
			set("f32", u32)
			set("s64", i64)
			set("x64", i64)
			set("u64", u64)
			set("f64", u64)
			set("d", d)
			set("s", strings.ToValidUTF8(text, ""))
			set("by", raw)
			set("color", protoreflect.EnumNumber(5))
			sub("ts", map[string]any{"seconds": sec, "nanos": nanos})
			sub("day", map[string]any{"year": int32(1969), "month": int32(12), "day": int32(31)})
			sub("at", map[string]any{"hours": int32(23), "nanos": int32(5000)})
			sub("ws", map[string]any{})
			sub("wi", map[string]any{"value": i64})
			sub("dec", map[string]any{"value": []byte{0xff, 0x38}, "scale": int32(2)})
			sub("any", map[string]any{"value": []byte{0x01, 0xe2, 0x40}, "scale": int32(4)})
			set("o", int32(0))
			set("right", i64)
		})
		micros := sec*1_000_000 + int64(nanos/1000)
		want := fmt.Sprintf(`upsert id=%d i32=%d s32=%d x32=%d u32=%d f32=%d s64=%d x64=%d u64=%d f64=%d f=0 d=%s b=false s=%q by=0x%x color="RED" ts=%d day=-1 at=82800000005 ws="" wi=%d dec=-2.00 any=12.34560000000000000000 o=0 left=null right=%d`,
			i64, i32, i32, i32, u32, u32, i64, i64, u64, u64, showFloat(d), strings.ToValidUTF8(text, ""), raw, micros, i64, i64)
		equal(t, protoDecode(t, allProto, allProtoColumns, &Record{Value: value}), want)
	})
}

func showFloat(v float64) string {
	c := rows.NewColumn(table(&testing.T{}, "d double").Schema().Fields[0].Type)
	c.AppendFloat(v)
	return showValue(&c, 0)
}

func TestProtobufRefusals(t *testing.T) {
	const text = `syntax = "proto3"; import "google/protobuf/timestamp.proto"; import "google/type/date.proto";
	message R { int64 id = 1; repeated string tags = 2; google.protobuf.Timestamp ts = 3; google.type.Date day = 4; uint64 u = 5; E e = 6; map<string, int32> m = 7; int32 n = 8; }
	enum E { A = 0; }`
	const columns = "id long\nts timestamptz\nday date\nu long\ne string\nn int"
	head := append(binary.BigEndian.AppendUint32([]byte{0}, 9), 0)
	field := func(n protowire.Number, b ...byte) []byte {
		return append(append([]byte(nil), head...), protowire.AppendBytes(protowire.AppendTag(nil, n, protowire.BytesType), b)...)
	}
	exclude := "columns.exclude=tags,m"
	for _, c := range []struct {
		name  string
		value []byte
		want  string
	}{
		{"a list and a map are new columns", head, "add tags list<string>\nadd m map<string, int>\n"},
		{"a partial date", field(4, 0x08, 0xb0, 0x0f), `reject value kind=upsert: column "day"`},
		{"nanoseconds of more than a second", field(3, 0x10, 0x80, 0x94, 0xeb, 0xdc, 0x03), `reject range kind=upsert: column "ts"`},
		{"past 2^63 in a long column", append(append([]byte(nil), head...), 0x28, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01), `reject range kind=upsert: column "u"`},
		{"an enum's unknown number", append(append([]byte(nil), head...), 0x30, 0x07), `reject value kind=upsert: column "e"`},
		{"a message twice", append(field(3, 0x08, 0x01), field(3, 0x08, 0x01)[6:]...), `reject malformed kind=unknown: the field occurs twice`},
		{"a message that is cut", field(3, 0x08), `reject malformed`},
		{"a message that the schema does not have", append(binary.BigEndian.AppendUint32([]byte{0}, 9), 2, 8), `reject schema kind=unknown: schema 9 has no message [4]`},
		{"a path that is cut", binary.BigEndian.AppendUint32([]byte{0}, 9), `reject malformed`},
		{"no framing", []byte{0x08, 0x01}, `reject malformed`},
		{"the last of a scalar counts", append(append([]byte(nil), head...), 0x08, 0x01, 0x08, 0x02), `upsert id=2 `},
		{"another wire type is unknown", append(append([]byte(nil), head...), 0x0d, 1, 0, 0, 0), `upsert id=0 `},
	} {
		t.Run(c.name, func(t *testing.T) {
			options := []string{exclude}
			if c.name == "a list and a map are new columns" {
				options = nil
			}
			if got := protoDecode(t, text, columns, &Record{Value: c.value}, options...); !strings.HasPrefix(got, c.want) {
				t.Errorf("%s\nwant %s", got, c.want)
			}
		})
	}
	for name, s := range map[string]WriterSchema{
		"Avro": {Type: TypeAvro, Text: `"long"`}, "JSON": {Type: TypeJSON, Text: `{}`}, "no schema": {Type: TypeProtobuf, Text: `message {`},
		"an import that is not there": {Type: TypeProtobuf, Text: `syntax = "proto3"; import "a.proto"; message R { A a = 1; }`},
	} {
		reg := &registry{byRef: map[SchemaRef]WriterSchema{{ID: 9}: s}}
		if got := decodeWith(t, reg, RowsProtobuf, table(t, columns, "id"), &Record{Value: head}); !strings.HasPrefix(got, "reject schema") {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// References are imported by their names; keys are messages too; a framing may
// stand in a header, and bare values name their message.
func TestProtobufFramings(t *testing.T) {
	reg := &registry{byRef: map[SchemaRef]WriterSchema{
		{ID: 9}: {Type: TypeProtobuf, Text: `syntax = "proto3"; import "shop/id.proto"; message V { optional string name = 1; shop.N n = 2; } message W { int64 id = 1; }`,
			References: []string{`syntax = "proto3"; package shop; enum N { ZERO = 0; ONE = 1; }`}, Names: []string{"shop/id.proto"}},
		{ID: 10}: {Type: TypeProtobuf, Text: `syntax = "proto3"; message O { message K { int64 id = 1; } }`},
	}}
	def := table(t, "id long\nname string\nn string", "id")
	key := append(binary.BigEndian.AppendUint32([]byte{0}, 10), 4, 0, 0, 0x08, 0x07)
	value := append(binary.BigEndian.AppendUint32([]byte{0}, 9), 0, 0x0a, 0x01, 'x', 0x10, 0x01)
	equal(t, decodeWith(t, reg, RowsProtobuf, def, &Record{Key: key, Value: value}), `upsert id=7 name="x" n="ONE"`)
	equal(t, decodeWith(t, reg, RowsProtobuf, def, &Record{Key: key}), `delete id=7`)
	equal(t, decodeWith(t, reg, RowsProtobuf, def, &Record{Key: []byte(`{"id":8}`), Value: value}), `upsert id=8 name="x" n="ONE"`)
	headers := []Header{{Key: "__value_schema_id", Value: value[:6]}, {Key: "__key_schema_id", Value: key[:8]}}
	equal(t, decodeWith(t, reg, RowsProtobuf, def, &Record{Key: key[8:], Value: value[6:], Headers: headers}), `upsert id=7 name="x" n="ONE"`)
	equal(t, decodeWith(t, reg, RowsProtobuf, def, &Record{Value: []byte{0x08, 0x05}}, "schema.id=9", "message.name=W"), `upsert id=5 name=null n=null`)
	if got := decodeWith(t, reg, RowsProtobuf, def, &Record{Key: key[:9], Value: value}); !strings.HasPrefix(got, "reject key kind=upsert: record key: ill-formed") {
		t.Error(got)
	}
	dec, err := New(Options{Format: RowsProtobuf, Def: def, Schema: def.Schema(), Registry: reg})
	if err != nil {
		t.Fatal(err)
	}
	other := append(append([]byte(nil), key[:9]...), 0x09)
	if f := dec.Framing(key); f == 0 || f != dec.Framing(other) || f == dec.Framing(append(binary.BigEndian.AppendUint32([]byte{0}, 11), key[5:]...)) {
		t.Error("framing of keys")
	}
	reg.away = true
	fresh, err := New(Options{Format: RowsProtobuf, Def: def, Schema: def.Schema(), Registry: reg})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fresh.Decode(rows.NewBatch(def.Schema()), &Record{Key: key, Value: value}); !errors.Is(err, ErrAway) {
		t.Errorf("a registry that is away: %v", err)
	}
}

func FuzzRowsProtobuf(f *testing.F) {
	reg := &registry{byRef: map[SchemaRef]WriterSchema{{ID: 9}: {Type: TypeProtobuf, Text: allProto}}}
	def := table(f, allProtoColumns, "id")
	dec, err := New(Options{Format: RowsProtobuf, Def: def, Schema: def.Schema(), Registry: reg})
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(nil), protoValue(f, allProto, "All", func(m *dynamicpb.Message) {
		m.Set(m.Descriptor().Fields().ByName("d"), protoreflect.ValueOf(math.Pi))
	}))
	file, err := compileProto(WriterSchema{Text: allProto})
	if err != nil {
		f.Fatal(err)
	}
	b := rows.NewBatch(def.Schema())
	f.Fuzz(func(t *testing.T, key, value []byte) {
		b.Reset()
		res, err := dec.Decode(b, &Record{Key: key, Value: value})
		checkBatch(t, b)
		if b.Len() != res.Events || err != nil && b.Len() != 0 {
			t.Fatalf("%d events told, %d appended", res.Events, b.Len())
		}
		if err != nil || value == nil {
			return
		}
		// What is taken as the whole message is well-formed for Google's reader too.
		path, n := protoPath(nil, value[5:])
		if n == 0 || len(path) != 1 || path[0] != 1 {
			return
		}
		if err := (proto.UnmarshalOptions{AllowPartial: true}).Unmarshal(value[5+n:], dynamicpb.NewMessage(file.Messages().Get(1))); err != nil && !strings.Contains(err.Error(), "UTF-8") {
			t.Fatalf("taken, but %v", err)
		}
	})
}

// The compiler takes any text.
func FuzzCompileProto(f *testing.F) {
	f.Add(custProto)
	f.Add(allProto)
	f.Fuzz(func(t *testing.T, text string) {
		file, err := compileProto(WriterSchema{Text: text})
		if err != nil {
			return
		}
		r := &reader{set: &settings{}, schema: table(t, "id long", "id").Schema(), keyOf: []int{0}, orderCol: -1}
		for i := range file.Messages().Len() {
			r.protoMessageOf(SchemaRef{}, file, []int32{int32(i)}, "")
		}
	})
}
