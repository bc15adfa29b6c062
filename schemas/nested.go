package schemas

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Limits of a nested type. MaxNesting counts the structs, lists and maps around
// a value; MaxNestedText bounds the text of one type.
const (
	MaxNesting    = 32
	MaxNestedText = 1 << 20
)

// IsNested says whether it is a struct, list or map.
func (t Type) IsNested() bool { return t.Kind >= Struct && t.Kind <= Map }

// StructOf is a struct of these fields. Their ids are 0 where a table has still
// to give them (AssignIDs).
func StructOf(fields []Field) Type { return NestedOf(Struct, fields) }

// ListOf is a list of elements of type t.
func ListOf(id int32, t Type, required bool) Type {
	return NestedOf(List, []Field{{ID: id, Name: "element", Type: t, Required: required}})
}

// MapOf is a map. Its keys are never null.
func MapOf(keyID int32, key Type, valueID int32, value Type, required bool) Type {
	return NestedOf(Map, []Field{{ID: keyID, Name: "key", Type: key, Required: true}, {ID: valueID, Name: "value", Type: value, Required: required}})
}

// NestedOf is a struct, list or map of what Children gives of one: a list has one
// child, a map two.
func NestedOf(k Kind, children []Field) Type {
	return Type{Kind: k, Nested: string(appendNested(nil, k, children))}
}

// appendNested writes Iceberg's JSON of a nested type: its one form here.
func appendNested(dst []byte, k Kind, children []Field) []byte {
	switch k {
	case Struct:
		dst = append(dst, `{"type":"struct","fields":`...)
		s := Schema{Fields: children}
		return append(s.AppendFieldsJSON(dst), '}')
	case List:
		e := &children[0]
		dst = append(dst, `{"type":"list","element-id":`...)
		dst = strconv.AppendInt(dst, int64(e.ID), 10)
		dst = append(dst, `,"element":`...)
		dst = e.Type.AppendJSON(dst)
		dst = append(dst, `,"element-required":`...)
		return append(strconv.AppendBool(dst, e.Required), '}')
	}
	key, value := &children[0], &children[1]
	dst = append(dst, `{"type":"map","key-id":`...)
	dst = strconv.AppendInt(dst, int64(key.ID), 10)
	dst = append(dst, `,"key":`...)
	dst = key.Type.AppendJSON(dst)
	dst = append(dst, `,"value-id":`...)
	dst = strconv.AppendInt(dst, int64(value.ID), 10)
	dst = append(dst, `,"value":`...)
	dst = value.Type.AppendJSON(dst)
	dst = append(dst, `,"value-required":`...)
	return append(strconv.AppendBool(dst, value.Required), '}')
}

// AppendJSON appends the type as Iceberg's schema JSON has it.
func (t Type) AppendJSON(dst []byte) []byte {
	if t.IsNested() {
		return append(dst, t.Nested...)
	}
	dst = append(dst, '"')
	dst = append(dst, t.String()...)
	return append(dst, '"')
}

func (t Type) nestedName() string {
	children := t.Children()
	switch {
	case len(children) == 0:
		return kindNames[t.Kind]
	case t.Kind == List:
		return "list<" + children[0].Type.String() + ">"
	case t.Kind == Map:
		return "map<" + children[0].Type.String() + ", " + children[1].Type.String() + ">"
	}
	b := []byte("struct<")
	for i := range children {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = append(append(append(b, children[i].Name...), ": "...), children[i].Type.String()...)
	}
	return string(append(b, '>'))
}

// parseNestedName reads list<…>, map<…, …> and struct<name: …, …>.
func parseNestedName(s string) (Type, error) {
	p := nameParser{s: s, left: MaxColumns}
	t, err := p.parse(0)
	if err == nil && p.s != "" {
		err = fmt.Errorf("it goes on after its end")
	}
	if err != nil {
		return Type{}, fmt.Errorf("type %q: %w; write it as list<long>, map<string, int> or struct<a: long, b: list<string>>", s, err)
	}
	return t, nil
}

type nameParser struct {
	s    string
	left int
}

// cut gives what stands before the first of the marks, outside of parentheses,
// and leaves what stands from it on.
func (p *nameParser) cut(marks string) string {
	depth := 0
	for i := range len(p.s) {
		switch c := p.s[i]; {
		case c == '(':
			depth++
		case c == ')':
			depth--
		case depth == 0 && strings.IndexByte(marks, c) >= 0:
			out := p.s[:i]
			p.s = p.s[i:]
			return strings.TrimSpace(out)
		}
	}
	out := p.s
	p.s = ""
	return strings.TrimSpace(out)
}

// mark takes a mark and the space behind it.
func (p *nameParser) mark(c string) error {
	rest, ok := strings.CutPrefix(strings.TrimSpace(p.s), c)
	if !ok {
		return fmt.Errorf("a %q is missing", c)
	}
	p.s = strings.TrimSpace(rest)
	return nil
}

func (p *nameParser) parse(depth int) (t Type, err error) {
	if p.left--; depth > MaxNesting || p.left < 0 {
		return t, fmt.Errorf("it is nested too deep or has too many fields")
	}
	name := p.cut("<,>")
	if p.s == "" || p.s[0] != '<' {
		return ParseType(name)
	}
	p.s = p.s[1:]
	inner := func() (t Type) {
		if err == nil {
			t, err = p.parse(depth + 1)
		}
		return t
	}
	switch strings.ToLower(name) {
	case "list":
		t = ListOf(0, inner(), false)
	case "map":
		key := inner()
		if err == nil {
			err = p.mark(",")
		}
		t = MapOf(0, key, 0, inner(), false)
	case "struct":
		var fields []Field
		for more := true; more && err == nil; {
			f := Field{Name: p.cut(":")}
			if err = p.mark(":"); err == nil {
				f.Type = inner()
				fields = append(fields, f)
				more = p.mark(",") == nil
			}
		}
		t = StructOf(fields)
	default:
		err = fmt.Errorf("%q is none of list, map, struct", name)
	}
	if err == nil {
		err = p.mark(">")
	}
	return t, err
}

// Children are a struct's fields, a list's element, or a map's key and value;
// nil for every other type and for one that is not Valid.
func (t Type) Children() []Field {
	if !t.IsNested() {
		return nil
	}
	p := nestedParser{left: MaxColumns}
	out, err := p.parse([]byte(t.Nested), 0)
	if err != nil || out.Kind != t.Kind {
		return nil
	}
	return p.children
}

type jsonNested struct {
	Type            string          `json:"type"`
	Fields          []jsonField     `json:"fields"`
	ElementID       int32           `json:"element-id"`
	Element         json.RawMessage `json:"element"`
	ElementRequired bool            `json:"element-required"`
	KeyID           int32           `json:"key-id"`
	Key             json.RawMessage `json:"key"`
	ValueID         int32           `json:"value-id"`
	Value           json.RawMessage `json:"value"`
	ValueRequired   bool            `json:"value-required"`
}

// nestedParser reads Iceberg's JSON of a type. children are those of the type
// read last, which at the end is the outermost.
type nestedParser struct {
	left     int // fields that may still come
	children []Field
}

// ParseTypeJSON reads a type as Iceberg's schema JSON has it: a name in quotes,
// or an object.
func ParseTypeJSON(raw []byte) (Type, error) {
	if len(raw) > MaxNestedText {
		return Type{}, fmt.Errorf("the type has %d bytes, more than %d", len(raw), MaxNestedText)
	}
	p := nestedParser{left: MaxColumns}
	return p.parse(raw, 0)
}

func (p *nestedParser) parse(raw []byte, depth int) (Type, error) {
	var name string
	if json.Unmarshal(raw, &name) == nil {
		if strings.HasPrefix(strings.TrimSpace(name), "{") {
			return Type{}, fmt.Errorf("a type stands in quotes")
		}
		return ParseType(name)
	}
	if depth >= MaxNesting {
		return Type{}, fmt.Errorf("structs, lists and maps stand %d levels deep, more than %d", depth+1, MaxNesting)
	}
	var j jsonNested
	if err := json.Unmarshal(raw, &j); err != nil {
		return Type{}, fmt.Errorf("a type is neither a name nor a struct, list or map of Iceberg's schema JSON")
	}
	var k Kind
	var children []Field
	add := func(f Field, raw []byte) (err error) {
		if p.left--; p.left < 0 {
			return fmt.Errorf("a nested type has more than %d fields", MaxColumns)
		}
		if f.Type, err = p.parse(raw, depth+1); err != nil {
			return fmt.Errorf("%s: %w", strconv.Quote(f.Name), err)
		}
		children = append(children, f)
		return nil
	}
	switch j.Type {
	case "struct":
		k = Struct
		for i := range j.Fields {
			in := &j.Fields[i]
			f := Field{Name: in.Name, Required: in.Required, Doc: in.Doc}
			if in.ID != nil {
				f.ID = *in.ID
			}
			f.InitialDefault, f.WriteDefault = notNull(in.InitialDefault), notNull(in.WriteDefault)
			if err := add(f, in.Type); err != nil {
				return Type{}, err
			}
		}
	case "list":
		k = List
		if err := add(Field{ID: j.ElementID, Name: "element", Required: j.ElementRequired}, j.Element); err != nil {
			return Type{}, err
		}
	case "map":
		k = Map
		if err := add(Field{ID: j.KeyID, Name: "key", Required: true}, j.Key); err != nil {
			return Type{}, err
		}
		if err := add(Field{ID: j.ValueID, Name: "value", Required: j.ValueRequired}, j.Value); err != nil {
			return Type{}, err
		}
	default:
		return Type{}, fmt.Errorf("type %q is none that varve stores", j.Type)
	}
	p.children = children
	return NestedOf(k, children), nil
}

func notNull(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	return raw
}

// validNested says whether a nested type is one: its text the form that varve
// writes, 1 to MaxColumns fields, names that engines can tell apart, a map's key
// of one value, defaults that are values.
func (t Type) validNested() bool {
	if t.Precision != 0 || t.Scale != 0 || t.Length != 0 || len(t.Nested) > MaxNestedText {
		return false
	}
	parsed, err := ParseTypeJSON([]byte(t.Nested))
	return err == nil && parsed == t && t.CheckNested("") == nil
}

// CheckNested refuses what no table takes inside of a nested type, by path.
func (t Type) CheckNested(path string) error {
	if !t.IsNested() {
		return nil
	}
	children := t.Children()
	if len(children) == 0 {
		return fmt.Errorf("column %q is a struct without fields, which no data file can hold", path)
	}
	names := make(map[string]string, len(children))
	for i := range children {
		f := &children[i]
		at := path + "." + f.Name
		if f.Name == "" || !utf8.ValidString(f.Name) {
			return fmt.Errorf("column %q has a field with an empty or ill-formed name", path)
		}
		low := strings.ToLower(f.Name)
		if other, dup := names[low]; dup {
			return fmt.Errorf("fields %q and %q of column %q differ only in case; engines cannot tell them apart", other, f.Name, path)
		}
		names[low] = f.Name
		for _, raw := range [...]json.RawMessage{f.InitialDefault, f.WriteDefault} {
			if raw == nil {
				continue
			}
			if _, err := ParseJSONValue(f.Type, raw); err != nil {
				return fmt.Errorf("column %q: its default is no %s", at, f.Type)
			}
		}
		if t.Kind == Map && i == 0 && f.Type.IsNested() {
			return fmt.Errorf("column %q: the keys of a map are structs, lists or maps, which varve does not store", path)
		}
		if err := f.Type.CheckNested(at); err != nil {
			return err
		}
	}
	return nil
}

// eachID calls f for the ids inside of a type.
func (t Type) eachID(f func(int32)) {
	children := t.Children()
	for i := range children {
		f(children[i].ID)
		children[i].Type.eachID(f)
	}
}

// AssignIDs gives the fields inside of a type that have no id (0) the next ones,
// in Iceberg's order: those of one level first, then what they hold.
func (t Type) AssignIDs(next func() int32) Type {
	children := t.Children()
	if len(children) == 0 {
		return t
	}
	for i := range children {
		if children[i].ID == 0 {
			children[i].ID = next()
		}
	}
	for i := range children {
		children[i].Type = children[i].Type.AssignIDs(next)
	}
	return NestedOf(t.Kind, children)
}

// WithoutIDs is the type with no id given, as an event's own schema has it.
func (t Type) WithoutIDs() Type {
	children := t.Children()
	if len(children) == 0 {
		return t
	}
	for i := range children {
		children[i].ID, children[i].Type = 0, children[i].Type.WithoutIDs()
	}
	return NestedOf(t.Kind, children)
}

// Merge is t with what values of type want need: fields of structs, by name,
// that t lacks come behind its own, optional and without an id; primitive types
// are widened. ok is false where a type has to become another one. What t has
// and want lacks stays.
func (t Type) Merge(want Type) (merged Type, ok bool) {
	switch {
	case t == want || want.CanWiden(t):
		return t, true
	case !t.IsNested() || t.Kind != want.Kind:
		return want, t.CanWiden(want)
	}
	have, need := t.Children(), want.Children()
	if len(have) == 0 || len(need) == 0 {
		return t, false
	}
	if t.Kind == Map && have[0].Type != need[0].Type && !need[0].Type.CanWiden(have[0].Type) {
		return t, false // keys stay what they are
	}
	for i := range need {
		w := &need[i]
		at := -1
		for j := range have {
			if have[j].Name == w.Name {
				at = j
			} else if strings.EqualFold(have[j].Name, w.Name) {
				return t, false
			}
		}
		if at < 0 {
			f := Field{Name: w.Name, Type: w.Type.WithoutIDs(), Doc: w.Doc}
			have = append(have, f)
			continue
		}
		if have[at].Type, ok = have[at].Type.Merge(w.Type); !ok {
			return t, false
		}
	}
	return NestedOf(t.Kind, have), true
}

// Holds says whether a column of type t takes every value of type want as it is.
func (t Type) Holds(want Type) bool {
	merged, ok := t.Merge(want)
	return ok && merged == t
}

// canGrow is CanWiden of nested types: by field id, every field stays what it
// is or becomes wider, new ones are optional.
func (t Type) canGrow(to Type) bool {
	if t.Kind != to.Kind {
		return false
	}
	have, next := t.Children(), to.Children()
	if len(have) == 0 || len(next) == 0 {
		return false
	}
	for i := range have {
		f := &have[i]
		at := -1
		for j := range next {
			if next[j].ID == f.ID {
				at = j
			}
		}
		if at < 0 || next[at].Name != f.Name || next[at].Required != f.Required {
			return false
		}
		if g := next[at].Type; g != f.Type && (t.Kind == Map && f.Name == "key" || !f.Type.CanWiden(g)) {
			return false
		}
		if !sameDefault(f.Type, f.InitialDefault, next[at].InitialDefault) {
			return false
		}
	}
	for j := range next {
		isNew := true
		for i := range have {
			isNew = isNew && have[i].ID != next[j].ID
		}
		if isNew && next[j].Required {
			return false
		}
	}
	return true
}
