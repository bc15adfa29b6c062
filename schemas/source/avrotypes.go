package source

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/varve-io/varve/schemas"
)

// avroKind is a kind of Avro type.
type avroKind uint8

const (
	avroNull avroKind = iota
	avroBool
	avroInt
	avroLong
	avroFloat
	avroDouble
	avroBytes
	avroString
	avroRecord
	avroEnum
	avroArray
	avroMap
	avroFixed
	avroUnion
)

var avroPrimitives = map[string]avroKind{
	"null": avroNull, "boolean": avroBool, "int": avroInt, "long": avroLong, "float": avroFloat,
	"double": avroDouble, "bytes": avroBytes, "string": avroString,
}

// avroType is a writer's type. A named type that is used again is one value.
type avroType struct {
	kind     avroKind
	name     string // of a named type, in full
	fields   []avroField
	symbols  [][]byte
	branches []*avroType // a union's
	items    *avroType   // an array's or a map's
	size     int         // a fixed's
	// null and value are the branches of a union of null and one other type;
	// value is nil for every other union.
	null  int
	value *avroType
	empty bool // its values take no bytes

	logical          string
	precision, scale int
	connectName      string
	parameters       map[string]string
	initial          json.RawMessage // connect.default
}

type avroField struct {
	name    string
	typ     *avroType
	initial json.RawMessage
}

// Bounds on a writer's schema.
const (
	maxAvroParts = maxSchemaParts
	maxAvroDepth = 100
)

// avroParser reads Avro schemas; the names of one are known to the next.
type avroParser struct {
	named map[string]*avroType
	parts int
}

// parseWriter reads a registry's schema.
func parseWriter(w WriterSchema) (*avroType, error) {
	p := &avroParser{named: map[string]*avroType{}}
	for _, r := range w.References {
		if _, err := p.parse([]byte(r), "", 0); err != nil {
			return nil, err
		}
	}
	return p.parse([]byte(w.Text), "", 0)
}

// avroNode is the JSON of a type that is an object.
type avroNode struct {
	Type       json.RawMessage   `json:"type"`
	Name       string            `json:"name"`
	Namespace  *string           `json:"namespace"`
	Fields     []avroNodeField   `json:"fields"`
	Symbols    []string          `json:"symbols"`
	Items      json.RawMessage   `json:"items"`
	Values     json.RawMessage   `json:"values"`
	Size       int               `json:"size"`
	Logical    any               `json:"logicalType"`
	Precision  json.RawMessage   `json:"precision"`
	Scale      json.RawMessage   `json:"scale"`
	Connect    string            `json:"connect.name"`
	Parameters map[string]string `json:"connect.parameters"`
	Initial    json.RawMessage   `json:"connect.default"`
}

type avroNodeField struct {
	Name    string          `json:"name"`
	Type    json.RawMessage `json:"type"`
	Default json.RawMessage `json:"default"`
}

func (p *avroParser) parse(b []byte, namespace string, depth int) (*avroType, error) {
	if p.parts++; p.parts > maxAvroParts || depth > maxAvroDepth {
		return nil, fmt.Errorf("the schema has more than %d parts or %d levels", maxAvroParts, maxAvroDepth)
	}
	b = bytes.TrimSpace(b)
	if len(b) == 0 {
		return nil, fmt.Errorf("a type is missing")
	}
	switch b[0] {
	case '"':
		var name string
		if err := json.Unmarshal(b, &name); err != nil {
			return nil, err
		}
		if k, ok := avroPrimitives[name]; ok {
			return &avroType{kind: k, empty: k == avroNull}, nil
		}
		if t := p.named[fullName(name, namespace)]; t != nil {
			return t, nil
		}
		if t := p.named[name]; t != nil {
			return t, nil
		}
		return nil, fmt.Errorf("it names a type that it does not define")
	case '[':
		var list []json.RawMessage
		if err := json.Unmarshal(b, &list); err != nil {
			return nil, err
		}
		t := &avroType{kind: avroUnion}
		for _, l := range list {
			branch, err := p.parse(l, namespace, depth+1)
			if err != nil {
				return nil, err
			}
			if branch.kind == avroUnion {
				return nil, fmt.Errorf("a union stands directly in a union")
			}
			t.branches = append(t.branches, branch)
		}
		t.null = slices.IndexFunc(t.branches, func(x *avroType) bool { return x.kind == avroNull })
		switch {
		case len(t.branches) == 1 && t.null < 0:
			t.value = t.branches[0]
		case len(t.branches) == 2 && t.null >= 0 && t.branches[1-t.null].kind != avroNull:
			t.value = t.branches[1-t.null]
		}
		return t, nil
	}
	var n avroNode
	if err := json.Unmarshal(b, &n); err != nil {
		return nil, err
	}
	return p.node(&n, namespace, depth)
}

func (p *avroParser) node(n *avroNode, namespace string, depth int) (*avroType, error) {
	var kind string
	if json.Unmarshal(n.Type, &kind) != nil {
		kind = "" // {"type": {…}} or {"type": […]}
	}
	if n.Namespace != nil {
		namespace = *n.Namespace
	}
	t := &avroType{}
	name := func(k avroKind) error {
		t.kind, t.name = k, fullName(n.Name, namespace)
		if n.Name == "" || p.named[t.name] != nil {
			return fmt.Errorf("a named type has no name, or one that is taken")
		}
		p.named[t.name] = t
		if i := strings.LastIndexByte(t.name, '.'); i >= 0 {
			namespace = t.name[:i]
		}
		return nil
	}
	var err error
	switch kind {
	case "record", "error":
		if err = name(avroRecord); err != nil {
			return nil, err
		}
		taken := map[string]bool{}
		for i := range n.Fields {
			f := &n.Fields[i]
			if f.Name == "" || taken[f.Name] {
				return nil, fmt.Errorf("a record's field has no name, or one that is taken")
			}
			taken[f.Name] = true
			ft, err := p.parse(f.Type, namespace, depth+1)
			if err != nil {
				return nil, err
			}
			t.fields = append(t.fields, avroField{f.Name, ft, f.Default})
		}
		// What names this record inside itself has seen it take bytes.
		t.empty = !slices.ContainsFunc(t.fields, func(f avroField) bool { return !f.typ.empty })
	case "enum":
		if err = name(avroEnum); err != nil {
			return nil, err
		}
		for _, s := range n.Symbols {
			t.symbols = append(t.symbols, []byte(s))
		}
	case "fixed":
		if err = name(avroFixed); err != nil {
			return nil, err
		}
		if n.Size < 0 || n.Size > 1<<30 {
			return nil, fmt.Errorf("a fixed has a size outside 0 to %d", 1<<30)
		}
		t.size, t.empty = n.Size, n.Size == 0
	case "array":
		t.kind = avroArray
		t.items, err = p.parse(n.Items, namespace, depth+1)
	case "map":
		t.kind = avroMap
		t.items, err = p.parse(n.Values, namespace, depth+1)
	default:
		var inner *avroType
		if inner, err = p.parse(n.Type, namespace, depth+1); err == nil {
			if inner.name != "" || inner.kind == avroUnion || inner.kind == avroArray || inner.kind == avroMap {
				return inner, nil // attributes beside a type that has its own
			}
			*t = *inner
		}
	}
	if err != nil {
		return nil, err
	}
	t.logical, _ = n.Logical.(string)
	t.precision, _ = strconv.Atoi(string(n.Precision))
	t.scale, _ = strconv.Atoi(string(n.Scale))
	t.connectName, t.parameters, t.initial = n.Connect, n.Parameters, n.Initial
	return t, nil
}

func fullName(name, namespace string) string {
	if namespace == "" || strings.ContainsRune(name, '.') {
		return name
	}
	return namespace + "." + name
}

// avroLogicalNames are the names under which the plan knows Avro's logical types.
var avroLogicalNames = map[string]string{
	"date":                   "org.apache.kafka.connect.data.Date",
	"time-millis":            "org.apache.kafka.connect.data.Time",
	"time-micros":            "io.debezium.time.MicroTime",
	"timestamp-millis":       "timestamp-millis",
	"timestamp-micros":       "timestamp-micros",
	"timestamp-nanos":        "timestamp-nanos",
	"local-timestamp-millis": "io.debezium.time.Timestamp",
	"local-timestamp-micros": "io.debezium.time.MicroTimestamp",
	"local-timestamp-nanos":  "io.debezium.time.NanoTimestamp",
	"uuid":                   "io.debezium.data.Uuid",
	"decimal":                "org.apache.kafka.connect.data.Decimal",
}

var connectLiterals = [...]string{
	avroBool: "boolean", avroInt: "int32", avroLong: "int64", avroFloat: "float", avroDouble: "double",
	avroBytes: "bytes", avroFixed: "bytes", avroString: "string", avroEnum: "string", avroRecord: "struct",
	avroArray: "array", avroMap: "map", avroNull: "null", avroUnion: "union",
}

// connect is the Connect schema that says the same of a field as t does.
func (t *avroType) connect(name string, initial json.RawMessage) connectSchema {
	budget := maxAvroParts
	return t.connectAt(name, initial, 0, &budget)
}

// connectAt bounds what a type that names itself, or others often, is unrolled
// to: what lies deeper than a table's columns can is no type of one.
func (t *avroType) connectAt(name string, initial json.RawMessage, depth int, budget *int) connectSchema {
	s := connectSchema{Field: name}
	*budget--
	if t.kind == avroUnion && t.value != nil {
		s.Optional = t.null >= 0
		t = t.value
	}
	s.Type, s.Name, s.Parameters = connectLiterals[t.kind], t.connectName, t.parameters
	if depth <= schemas.MaxNesting && *budget > 0 {
		inner := func() *connectSchema {
			c := t.items.connectAt("", nil, depth+1, budget)
			return &c
		}
		switch t.kind {
		case avroRecord:
			for i := range t.fields {
				s.Fields = append(s.Fields, t.fields[i].typ.connectAt(t.fields[i].name, t.fields[i].initial, depth+1, budget))
			}
		case avroArray:
			s.Items = inner()
		case avroMap:
			s.Keys, s.Values = &connectSchema{Type: "string"}, inner()
		}
	}
	if s.Name == "" && t.logical != "" {
		s.Name = avroLogicalNames[t.logical]
		switch {
		case t.logical == "decimal":
			s.Parameters = map[string]string{"scale": strconv.Itoa(t.scale), "connect.decimal.precision": strconv.Itoa(t.precision)}
		case t.logical == "uuid" && t.kind == avroFixed && t.size != 16:
			s.Name = ""
		}
	}
	if len(initial) == 0 || string(initial) == "null" {
		initial = t.initial
	}
	if s.Type == "bytes" && len(initial) > 0 {
		initial = bytesDefault(initial)
	}
	s.Default = initial
	return s
}

// bytesDefault turns Avro's text of bytes, a code point a byte, into base64.
func bytesDefault(initial json.RawMessage) json.RawMessage {
	var text string
	if json.Unmarshal(initial, &text) != nil {
		return nil
	}
	var raw []byte
	for _, c := range text {
		if c > 0xFF {
			return nil
		}
		raw = append(raw, byte(c))
	}
	return json.RawMessage(`"` + base64.StdEncoding.EncodeToString(raw) + `"`)
}

// row is the Connect schema of a record.
func (t *avroType) row() *connectSchema {
	s := &connectSchema{Type: "struct"}
	for i := range t.fields {
		f := &t.fields[i]
		s.Fields = append(s.Fields, f.typ.connect(f.name, f.initial))
	}
	return s
}

// field is the ordinal of a record's field, or -1.
func (t *avroType) field(name string) int {
	return slices.IndexFunc(t.fields, func(f avroField) bool { return f.name == name })
}

// plain is the type without the null that it may be.
func (t *avroType) plain() *avroType {
	if t.kind == avroUnion && t.value != nil {
		return t.value
	}
	return t
}

// skip is the end of the value at b[i], negative when it is cut off.
func (t *avroType) skip(b []byte, i, depth int) int {
	if t.empty {
		return i
	}
	if depth > maxAvroDepth {
		return -1
	}
	switch t.kind {
	case avroBool:
		if i >= len(b) || b[i] > 1 {
			return -1
		}
		return i + 1
	case avroInt, avroLong:
		for n := 0; i < len(b) && n < 10; n++ {
			if b[i] < 0x80 {
				return i + 1
			}
			i++
		}
		return -1
	case avroFloat:
		return within(b, i, 4)
	case avroDouble:
		return within(b, i, 8)
	case avroFixed:
		return within(b, i, int64(t.size))
	case avroBytes, avroString:
		n, i := varint(b, i)
		if i < 0 {
			return -1
		}
		return within(b, i, n)
	case avroEnum:
		n, i := varint(b, i)
		if i < 0 || n < 0 || n >= int64(len(t.symbols)) {
			return -1
		}
		return i
	case avroUnion:
		n, i := varint(b, i)
		if i < 0 || n < 0 || n >= int64(len(t.branches)) {
			return -1
		}
		return t.branches[n].skip(b, i, depth+1)
	case avroRecord:
		for k := range t.fields {
			if i = t.fields[k].typ.skip(b, i, depth+1); i < 0 {
				return -1
			}
		}
		return i
	}
	return t.skipBlocks(b, i, depth)
}

// skipBlocks passes over an array or map.
func (t *avroType) skipBlocks(b []byte, i, depth int) int {
	for {
		n, at := varint(b, i)
		if at < 0 {
			return -1
		}
		i = at
		switch {
		case n == 0:
			return i
		case n < 0:
			size, at := varint(b, i)
			if at < 0 {
				return -1
			}
			if i = within(b, at, size); i < 0 {
				return -1
			}
			continue
		case t.kind == avroArray && t.items.empty:
			continue
		}
		for ; n > 0; n-- {
			if t.kind == avroMap {
				size, at := varint(b, i)
				if at < 0 {
					return -1
				}
				if i = within(b, at, size); i < 0 {
					return -1
				}
			}
			if i = t.items.skip(b, i, depth+1); i < 0 {
				return -1
			}
		}
	}
}

// within is i+n if b has so many bytes, else negative.
func within(b []byte, i int, n int64) int {
	if n < 0 || n > int64(len(b)-i) {
		return -1
	}
	return i + int(n)
}
