package schemas

import (
	"encoding/json"
	"strings"
	"testing"
)

// A nested type has one text, which is Iceberg's JSON; what people write of it
// is read too.
func TestNestedTypeText(t *testing.T) {
	next := int32(9)
	typ := StructOf([]Field{
		{Name: "a b", Type: DecimalOf(9, 2), Doc: "for people"},
		{Name: "l", Type: ListOf(0, MapOf(0, Of(String), 0, Of(Double), true), false), Required: true},
		{Name: "d", Type: Of(Int), InitialDefault: json.RawMessage("5"), WriteDefault: json.RawMessage("6")},
	}).AssignIDs(func() int32 { next++; return next })
	// Iceberg's order: the fields of one level before what they hold.
	const want = `{"type":"struct","fields":[{"id":10,"name":"a b","required":false,"type":"decimal(9, 2)","doc":"for people"},` +
		`{"id":11,"name":"l","required":true,"type":{"type":"list","element-id":13,"element":{"type":"map","key-id":14,"key":"string","value-id":15,"value":"double","value-required":true},"element-required":false}},` +
		`{"id":12,"name":"d","required":false,"type":"int","initial-default":5,"write-default":6}]}`
	if string(typ.AppendJSON(nil)) != want {
		t.Errorf("%s, want %s", typ.AppendJSON(nil), want)
	}
	if !typ.Valid() {
		t.Error("it is not valid")
	}
	back, err := ParseTypeJSON([]byte(strings.ReplaceAll(want, `,"`, " ,\n \"")))
	if err != nil || back != typ {
		t.Errorf("it is read as %s, %v", back.AppendJSON(nil), err)
	}
	if s := typ.String(); s != "struct<a b: decimal(9, 2), l: list<map<string, double>>, d: int>" {
		t.Error(s)
	}
	plain, err := ParseType(typ.String())
	if err != nil || plain.String() != typ.String() {
		t.Errorf("%s, %v", plain, err)
	}
	for _, bad := range []string{"list<", "list<long", "list<long>>", "map<long>", "struct<>", "struct<a>", "struct<a: lon>", "bag<long>", "list<long,int>",
		`{"type":"bag"}`, `{"type":"list"}`, `{`, `{"type":"struct","fields":[{"name":"a"}]}`, strings.Repeat("list<", 40) + "long" + strings.Repeat(">", 40)} {
		if typ, err := ParseType(bad); err == nil {
			t.Errorf("%q is %s", bad, typ)
		}
	}
	for name, bad := range map[string]Type{
		"another form":              {Kind: List, Nested: strings.ReplaceAll(ListOf(1, Of(Int), false).Nested, ",", ", ")},
		"another kind":              {Kind: Map, Nested: ListOf(1, Of(Int), false).Nested},
		"no fields":                 StructOf(nil),
		"names in two cases":        StructOf([]Field{{ID: 1, Name: "a", Type: Of(Int)}, {ID: 2, Name: "A", Type: Of(Int)}}),
		"a nested map key":          MapOf(1, ListOf(2, Of(Int), false), 3, Of(Int), false),
		"a default of another type": StructOf([]Field{{ID: 1, Name: "a", Type: Of(Int), InitialDefault: json.RawMessage(`"x"`)}}),
		"an inner type":             ListOf(1, Type{Kind: Fixed}, false),
	} {
		if bad.Valid() {
			t.Errorf("%s: it is valid", name)
		}
	}
}

// A schema's ids are told apart whatever they stand in, and a nested column is
// neither key nor partition.
func TestNestedSchema(t *testing.T) {
	s, err := ParseSchema([]byte(`{"type":"struct","fields":[{"id":1,"name":"id","required":true,"type":"long"},
		{"id":2,"name":"l","type":{"type":"list","element-id":3,"element":"int"}},{"name":"s","id":4,"type":{"type":"struct","fields":[{"name":"x","type":"int"}]}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Validate(); err != nil || s.HighestID() != 5 {
		t.Errorf("%v, highest id %d", err, s.HighestID())
	}
	twice := s
	twice.Fields = append([]Field{}, s.Fields...)
	twice.Fields[1].Type = ListOf(1, Of(Int), false)
	if err := twice.Validate(); err == nil {
		t.Error("an id stands twice")
	}
	key := s
	key.Identifier = []int32{2}
	key.Fields = append([]Field{}, s.Fields...)
	key.Fields[1].Required = true
	if err := key.Validate(); err == nil || !strings.Contains(err.Error(), "cannot be keys") {
		t.Errorf("a list as key: %v", err)
	}
	for _, k := range []TransformKind{Identity, Bucket, Truncate, Day} {
		if _, err := TransformResult(k, 4, s.Fields[1].Type); err == nil {
			t.Errorf("a list is partitioned by %s", TransformName(k, 4))
		}
	}
}

// The next version of a schema may add to what is nested, and take nothing away.
func TestNestedNext(t *testing.T) {
	of := func(types ...Type) *Schema {
		s := &Schema{}
		for i, typ := range types {
			s.Fields = append(s.Fields, Field{ID: int32(i + 1), Name: string(rune('a' + i)), Type: typ})
		}
		return s
	}
	old := of(StructOf([]Field{{ID: 10, Name: "x", Type: Of(Int)}}), ListOf(11, Of(Float), false), MapOf(12, Of(Int), 13, Of(Int), false))
	if err := old.CheckNext(of(StructOf([]Field{{ID: 20, Name: "y", Type: Of(String)}, {ID: 10, Name: "x", Type: Of(Long)}}), ListOf(11, Of(Double), false), MapOf(12, Of(Int), 13, Of(Long), false)), 19); err != nil {
		t.Error(err)
	}
	for name, next := range map[string]*Schema{
		"an old id":           of(StructOf([]Field{{ID: 10, Name: "x", Type: Of(Int)}, {ID: 15, Name: "y", Type: Of(Int)}}), old.Fields[1].Type, old.Fields[2].Type),
		"a required field":    of(StructOf([]Field{{ID: 10, Name: "x", Type: Of(Int)}, {ID: 25, Name: "y", Type: Of(Int), Required: true}}), old.Fields[1].Type, old.Fields[2].Type),
		"a renamed field":     of(StructOf([]Field{{ID: 10, Name: "z", Type: Of(Int)}}), old.Fields[1].Type, old.Fields[2].Type),
		"a dropped field":     of(StructOf([]Field{{ID: 20, Name: "x", Type: Of(Int)}}), old.Fields[1].Type, old.Fields[2].Type),
		"a wider key":         of(old.Fields[0].Type, old.Fields[1].Type, MapOf(12, Of(Long), 13, Of(Int), false)),
		"another element":     of(old.Fields[0].Type, ListOf(11, Of(String), false), old.Fields[2].Type),
		"a required element":  of(old.Fields[0].Type, ListOf(11, Of(Float), true), old.Fields[2].Type),
		"another nested type": of(old.Fields[1].Type, old.Fields[1].Type, old.Fields[2].Type),
	} {
		if err := old.CheckNext(next, 19); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}
