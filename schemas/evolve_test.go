package schemas

import (
	"slices"
	"strings"
	"testing"
)

func TestCheckNext(t *testing.T) {
	cur := Schema{Identifier: []int32{1}, Fields: []Field{
		{ID: 1, Name: "id", Type: Of(Int), Required: true}, {ID: 2, Name: "v", Type: Of(Int)}, {ID: 3, Name: "s", Type: Of(String)},
	}}
	for _, x := range []struct {
		name   string
		change func(s *Schema)
		want   string // "": it can be taken
	}{
		{"the same", func(*Schema) {}, ""},
		{"a column more", func(s *Schema) { s.Fields = append(s.Fields, Field{ID: 5, Name: "n", Type: Of(Date)}) }, ""},
		{"a wider column", func(s *Schema) { s.Fields[1].Type = Of(Long) }, ""},
		{"a wider key", func(s *Schema) { s.Fields[0].Type = Of(Long) }, ""},
		{"another order and a text", func(s *Schema) { s.Fields[1], s.Fields[2] = s.Fields[2], s.Fields[1]; s.Fields[1].Doc = "x" }, ""},
		{"dropped", func(s *Schema) { s.Fields = s.Fields[:2] }, `column "s" was dropped`},
		{"renamed", func(s *Schema) { s.Fields[1].Name = "w" }, `renamed to "w"`},
		{"narrower", func(s *Schema) { s.Fields[1].Type = Of(Boolean) }, `does not hold every int`},
		{"optional key", func(s *Schema) { s.Fields[0].Required = false }, "optional"},
		{"required", func(s *Schema) { s.Fields[1].Required = true }, "optional or required"},
		{"another default", func(s *Schema) { s.Fields[1].InitialDefault = []byte("1") }, "initial default"},
		{"new and required", func(s *Schema) { s.Fields = append(s.Fields, Field{ID: 5, Name: "n", Type: Of(Date), Required: true}) }, "required"},
		{"an id used again", func(s *Schema) { s.Fields = append(s.Fields, Field{ID: 4, Name: "n", Type: Of(Date)}) }, "given before"},
		{"a reserved name", func(s *Schema) { s.Fields = append(s.Fields, Field{ID: 5, Name: "_file", Type: Of(Date)}) }, "reserved"},
	} {
		next := Schema{ID: 1, Identifier: cur.Identifier, Fields: slices.Clone(cur.Fields)}
		x.change(&next)
		err := cur.CheckNext(&next, 4)
		if (err == nil) != (x.want == "") || err != nil && !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v, want %q", x.name, err, x.want)
		}
	}
}
