package iceberg

import (
	"encoding/json"
	"strings"
)

type avroKind uint8

const (
	avroNullKind avroKind = iota + 1
	avroBoolean
	avroInt
	avroLong
	avroFloat
	avroDouble
	avroBytes
	avroString
	avroFixed
	avroEnum
	avroRecord
	avroArray
	avroMap
	avroUnion
)

var avroKindNames = [...]string{
	avroNullKind: "null", avroBoolean: "boolean", avroInt: "int", avroLong: "long", avroFloat: "float",
	avroDouble: "double", avroBytes: "bytes", avroString: "string", avroFixed: "fixed", avroEnum: "enum",
	avroRecord: "record", avroArray: "array", avroMap: "map", avroUnion: "union",
}

func (k avroKind) String() string { return avroKindNames[k] }

// avroType is a parsed writer's schema. Iceberg's schemas are trees: a name is
// usable only behind its definition, so a type cannot hold itself.
type avroType struct {
	kind    avroKind
	logical string
	size    int64       // fixed
	items   *avroType   // array, map
	fields  []avroField // record
	union   []*avroType
	min     int64 // least bytes of a value
	nodes   int   // types below and with this one, references expanded
}

type avroField struct {
	name string
	id   int32 // 0 when the schema gives none; status of an entry is field 0, found by name
	typ  *avroType
}

const (
	maxAvroDepth = 24
	maxAvroNodes = 4096
	maxAvroFixed = 1 << 24
)

type avroSchemaParser struct {
	names map[string]*avroType
}

func parseAvroSchema(text []byte) (*avroType, error) {
	if !json.Valid(text) {
		return nil, corrupt("avro.schema is not JSON")
	}
	p := avroSchemaParser{names: map[string]*avroType{}}
	return p.parse(text, 0)
}

func (p *avroSchemaParser) parse(raw json.RawMessage, depth int) (*avroType, error) {
	if depth > maxAvroDepth {
		return nil, corrupt("avro.schema nests deeper than %d", maxAvroDepth)
	}
	trimmed := strings.TrimLeft(string(raw[:min(len(raw), 64)]), " \t\r\n")
	if trimmed == "" {
		return nil, corrupt("avro.schema with an empty type")
	}
	switch trimmed[0] {
	case '"':
		var name string
		if err := json.Unmarshal(raw, &name); err != nil {
			return nil, corrupt("avro.schema: %v", err)
		}
		return p.named(name)
	case '[':
		return p.parseUnion(raw, depth)
	case '{':
		return p.parseObject(raw, depth)
	}
	return nil, corrupt("avro.schema with a type that is neither name, union nor object")
}

func (p *avroSchemaParser) named(name string) (*avroType, error) {
	for k, n := range avroKindNames {
		if kind := avroKind(k); n == name && kind >= avroNullKind && kind <= avroString {
			return primitive(kind), nil
		}
	}
	if t, ok := p.names[name]; ok {
		return t, nil
	}
	return nil, corrupt("avro.schema uses the name %q before it is defined", name)
}

func primitive(k avroKind) *avroType {
	t := &avroType{kind: k, min: 1, nodes: 1}
	switch k {
	case avroNullKind:
		t.min = 0
	case avroFloat:
		t.min = 4
	case avroDouble:
		t.min = 8
	}
	return t
}

func (p *avroSchemaParser) parseUnion(raw json.RawMessage, depth int) (*avroType, error) {
	var branches []json.RawMessage
	if err := json.Unmarshal(raw, &branches); err != nil {
		return nil, corrupt("avro.schema: %v", err)
	}
	if len(branches) == 0 {
		return nil, corrupt("avro.schema with an empty union")
	}
	t := &avroType{kind: avroUnion, min: 1, nodes: 1}
	for _, b := range branches {
		bt, err := p.parse(b, depth+1)
		if err != nil {
			return nil, err
		}
		t.union = append(t.union, bt)
		if t.nodes += bt.nodes; t.nodes > maxAvroNodes {
			return nil, corrupt("avro.schema has more than %d types", maxAvroNodes)
		}
	}
	return t, nil
}

type avroObject struct {
	Type    json.RawMessage `json:"type"`
	Name    string          `json:"name"`
	Space   string          `json:"namespace"`
	Logical string          `json:"logicalType"`
	Size    *int64          `json:"size"`
	Items   json.RawMessage `json:"items"`
	Values  json.RawMessage `json:"values"`
	Fields  []struct {
		Name string          `json:"name"`
		Type json.RawMessage `json:"type"`
		ID   *int32          `json:"field-id"`
	} `json:"fields"`
}

func (p *avroSchemaParser) parseObject(raw json.RawMessage, depth int) (*avroType, error) {
	var o avroObject
	if err := json.Unmarshal(raw, &o); err != nil {
		return nil, corrupt("avro.schema: %v", err)
	}
	var name string
	if len(o.Type) == 0 {
		return nil, corrupt("avro.schema with an object without type")
	}
	if err := json.Unmarshal(o.Type, &name); err != nil {
		return p.parse(o.Type, depth+1) // {"type": {…}}
	}
	t := &avroType{logical: o.Logical, nodes: 1}
	switch name {
	case "record", "error":
		t.kind = avroRecord
		for _, f := range o.Fields {
			ft, err := p.parse(f.Type, depth+1)
			if err != nil {
				return nil, err
			}
			out := avroField{name: f.Name, typ: ft}
			if f.ID != nil {
				out.id = *f.ID
			}
			t.fields = append(t.fields, out)
			t.min += ft.min
			if t.nodes += ft.nodes; t.nodes > maxAvroNodes {
				return nil, corrupt("avro.schema has more than %d types", maxAvroNodes)
			}
		}
	case "array", "map":
		t.kind, t.min = avroArray, 1
		inner := o.Items
		if name == "map" {
			t.kind, inner = avroMap, o.Values
		}
		it, err := p.parse(inner, depth+1)
		if err != nil {
			return nil, err
		}
		if t.kind == avroArray && it.min == 0 {
			return nil, corrupt("avro.schema with an array of values that take no bytes")
		}
		t.items = it
		t.nodes += it.nodes
	case "fixed":
		if o.Size == nil || *o.Size < 0 || *o.Size > maxAvroFixed {
			return nil, corrupt("avro.schema with a fixed of no or an impossible size")
		}
		t.kind, t.size, t.min = avroFixed, *o.Size, *o.Size
	case "enum":
		t.kind, t.min = avroEnum, 1
	default:
		named, err := p.named(name)
		if err != nil {
			return nil, err
		}
		cp := *named
		if o.Logical != "" {
			cp.logical = o.Logical
		}
		return &cp, nil
	}
	if o.Name != "" && (t.kind == avroRecord || t.kind == avroFixed || t.kind == avroEnum) {
		p.names[o.Name] = t
		if o.Space != "" {
			p.names[o.Space+"."+o.Name] = t
		}
	}
	return t, nil
}

// field finds a record's field by id, or by name where the writer gave the
// field no id.
func (f *avroField) is(id int32, name string) bool {
	if f.id != 0 {
		return f.id == id
	}
	return f.name == name
}

// resolve reads a union's branch, so that the type behind it is left.
func (r *avroReader) resolve(t *avroType) (*avroType, error) {
	for t.kind == avroUnion {
		i, err := r.long()
		if err != nil {
			return nil, err
		}
		if i < 0 || i >= int64(len(t.union)) {
			return nil, corrupt("union branch %d of %d at byte %d", i, len(t.union), r.off)
		}
		t = t.union[i]
	}
	return t, nil
}

func (r *avroReader) skip(t *avroType) error {
	t, err := r.resolve(t)
	if err != nil {
		return err
	}
	switch t.kind {
	case avroNullKind:
	case avroBoolean:
		_, err = r.take(1)
	case avroInt, avroLong, avroEnum:
		_, err = r.long()
	case avroFloat:
		_, err = r.take(4)
	case avroDouble:
		_, err = r.take(8)
	case avroBytes, avroString:
		_, err = r.bytes()
	case avroFixed:
		_, err = r.take(t.size)
	case avroRecord:
		for i := range t.fields {
			if err := r.skip(t.fields[i].typ); err != nil {
				return err
			}
		}
	case avroArray:
		err = r.blocks(func() error { return r.skip(t.items) })
	case avroMap:
		err = r.blocks(func() error {
			if _, err := r.bytes(); err != nil {
				return err
			}
			return r.skip(t.items)
		})
	}
	return err
}

// integer reads an int or long, or null (ok false).
func (r *avroReader) integer(t *avroType) (v int64, ok bool, err error) {
	if t, err = r.resolve(t); err != nil {
		return 0, false, err
	}
	switch t.kind {
	case avroNullKind:
		return 0, false, nil
	case avroInt, avroLong:
		v, err = r.long()
		return v, err == nil, err
	}
	return 0, false, corrupt("a %s where a whole number belongs", t.kind)
}

// optInteger is integer as a pointer.
func (r *avroReader) optInteger(t *avroType) (*int64, error) {
	v, ok, err := r.integer(t)
	if err != nil || !ok {
		return nil, err
	}
	return &v, nil
}

// binary reads bytes, a string or a fixed, or null (nil). A value is never nil.
func (r *avroReader) binary(t *avroType) ([]byte, error) {
	t, err := r.resolve(t)
	if err != nil {
		return nil, err
	}
	switch t.kind {
	case avroNullKind:
		return nil, nil
	case avroBytes, avroString:
		return r.bytes()
	case avroFixed:
		return r.take(t.size)
	}
	return nil, corrupt("a %s where bytes or a string belong", t.kind)
}

// boolean reads a boolean, or null (ok false).
func (r *avroReader) boolean(t *avroType) (v, ok bool, err error) {
	if t, err = r.resolve(t); err != nil {
		return false, false, err
	}
	switch t.kind {
	case avroNullKind:
		return false, false, nil
	case avroBoolean:
		v, err = r.bool()
		return v, err == nil, err
	}
	return false, false, corrupt("a %s where a boolean belongs", t.kind)
}
