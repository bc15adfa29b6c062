package source

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/rows"
)

// registryJSON decodes plain JSON rows whose JSON Schema a registry has: it says
// the types that the values' text does not.
type registryJSON struct {
	rowsJSON
	registry SchemaSource
	values   writers[jsonWriter]
}

type jsonWriter struct {
	refuse *Reject
	plan   *plan
}

func newRegistryJSON(o Options, set *settings) (*registryJSON, error) {
	r, err := newReader(o, set, true)
	if err != nil {
		return nil, err
	}
	return &registryJSON{rowsJSON: rowsJSON{reader: r}, registry: o.Registry}, nil
}

func (d *registryJSON) Decode(dst *rows.Batch, rec *Record) (Result, error) {
	n := dst.Len()
	res, err := d.decode(dst, rec)
	if err != nil {
		dst.Truncate(n)
	}
	return res, err
}

func (d *registryJSON) decode(dst *rows.Batch, rec *Record) (Result, error) {
	d.hasOrder, d.order = false, 0
	if rec.Value == nil {
		return d.tombstone(dst, rec)
	}
	if len(rec.Value) > d.set.maxBytes {
		return Result{}, Rejectf(KindUnknown, "too-large", "the record has more than %d bytes (max.record.bytes)", d.set.maxBytes)
	}
	ref, b, ok := framed(rec, valueSchemaHeader, rec.Value, d.set.schemaID)
	if !ok {
		return Result{}, Rejectf(KindUnknown, "malformed", "the value has no schema registry's framing (00 and an id, 01 and a GUID, or a header); "+
			"name the schema of bare values with schema.id, or read them with format %s", RowsJSON)
	}
	w, err := d.values.get(ref, func(ref SchemaRef) (*jsonWriter, error) {
		row, j, err := jsonSchemaOf(d.registry, ref)
		if err != nil || j != nil {
			return &jsonWriter{refuse: j}, err
		}
		p := d.compile(&row.connectSchema)
		p.open = row.open
		return &jsonWriter{plan: p}, nil
	})
	if err != nil {
		return Result{}, err
	}
	if w.refuse != nil {
		j := *w.refuse
		return Result{}, &j
	}
	i := skipSpace(b, 0)
	if i < len(b) && b[i] == 'n' && string(bytes.TrimSpace(b)) == "null" {
		return d.tombstone(dst, rec)
	}
	if i >= len(b) || b[i] != '{' {
		return Result{}, Rejectf(KindUnknown, "malformed", "the row is no JSON object")
	}
	return d.object(dst, rec, b, wrapped{at: i, plan: w.plan})
}

// jsonRow is what a JSON Schema says of an object.
type jsonRow struct {
	connectSchema
	open bool // an object may have members that the schema does not name
}

// jsonSchemaOf asks for a schema. A Reject says that there is none to be had.
func jsonSchemaOf(registry SchemaSource, ref SchemaRef) (*jsonRow, *Reject, error) {
	if registry == nil {
		return nil, nil, fmt.Errorf("%w: none is configured; name it with --schema-registry", ErrAway)
	}
	s, err := registry.WriterSchema(ref)
	switch {
	case errors.Is(err, ErrNoSchema):
		return nil, Rejectf(KindUnknown, "schema", "the schema registry has no %s", ref), nil
	case errors.Is(err, ErrAway):
		return nil, nil, err
	case err != nil:
		return nil, nil, fmt.Errorf("%w: %w", ErrAway, err)
	case s.Type != TypeJSON:
		return nil, Rejectf(KindUnknown, "schema", "%s is of type %s, and the table's format reads JSON Schema", ref, typeName(s.Type)), nil
	}
	row, err := parseJSONSchema([]byte(s.Text))
	if err != nil {
		return nil, Rejectf(KindUnknown, "schema", "%s is no JSON Schema of an object", ref), nil
	}
	return row, nil, nil
}

// jsonSchema is what is read of a JSON Schema; connect.… is what Kafka Connect's
// converter adds.
type jsonSchema struct {
	Type       json.RawMessage            `json:"type"`
	Title      string                     `json:"title"`
	Format     string                     `json:"format"`
	OneOf      []json.RawMessage          `json:"oneOf"`
	AnyOf      []json.RawMessage          `json:"anyOf"`
	Enum       []json.RawMessage          `json:"enum"`
	Ref        string                     `json:"$ref"`
	Properties json.RawMessage            `json:"properties"`
	Required   []string                   `json:"required"`
	Additional json.RawMessage            `json:"additionalProperties"`
	Default    json.RawMessage            `json:"default"`
	Items      json.RawMessage            `json:"items"`
	Definition map[string]json.RawMessage `json:"definitions"`
	Defs       map[string]json.RawMessage `json:"$defs"`

	ConnectType string            `json:"connect.type"`
	Parameters  map[string]string `json:"connect.parameters"`
	Contents    string            `json:"contentEncoding"`
}

var errJSONSchema = errors.New("no JSON Schema of an object")

const maxJSONSchemaRefs = 16

func parseJSONSchema(text []byte) (*jsonRow, error) {
	if i := skipSpace(text, 0); i >= len(text) || skipValue(text, i) < 0 || !json.Valid(text) || bytes.Count(text, []byte("{")) > maxSchemaParts {
		return nil, errJSONSchema
	}
	var root jsonSchema
	if err := json.Unmarshal(text, &root); err != nil {
		return nil, errJSONSchema
	}
	x := &jsonSchemas{root: &root}
	s, _ := x.plain(&root, 0)
	if s == nil || len(s.Properties) == 0 || s.Properties[0] != '{' {
		return nil, errJSONSchema
	}
	row := &jsonRow{connectSchema: connectSchema{Type: "struct"}, open: string(s.Additional) != "false"}
	members(s.Properties, func(name string, value []byte) {
		c := x.connect(value, 0)
		c.Field = name
		c.Optional = c.Optional || !slices.Contains(s.Required, name)
		row.Fields = append(row.Fields, c)
	})
	return row, nil
}

// jsonSchemas finds what a schema refers to inside its own text.
type jsonSchemas struct {
	root  *jsonSchema
	parts int // that were read: references can stand for many
}

// plain is a schema without the null that it may be, its references followed;
// nil: it is several things at once.
func (x *jsonSchemas) plain(s *jsonSchema, depth int) (out *jsonSchema, optional bool) {
	if depth > maxJSONSchemaRefs {
		return nil, false
	}
	if s.Ref != "" {
		var text json.RawMessage
		if name, ok := strings.CutPrefix(s.Ref, "#/definitions/"); ok {
			text = x.root.Definition[name]
		} else if name, ok := strings.CutPrefix(s.Ref, "#/$defs/"); ok {
			text = x.root.Defs[name]
		}
		var t jsonSchema
		if text == nil || json.Unmarshal(text, &t) != nil {
			return nil, false
		}
		return x.plain(&t, depth+1)
	}
	either := s.OneOf
	if len(either) == 0 {
		either = s.AnyOf
	}
	if len(either) == 0 {
		return s, false
	}
	for _, text := range either {
		var t jsonSchema
		if json.Unmarshal(text, &t) != nil {
			return nil, false
		}
		if string(t.Type) == `"null"` {
			optional = true
			continue
		}
		if out != nil {
			return nil, false
		}
		var also bool
		if out, also = x.plain(&t, depth+1); out == nil {
			return nil, false
		}
		optional = optional || also
		if out.Default == nil {
			out.Default = s.Default
		}
	}
	return out, optional
}

// connect is a property's schema as Connect would say it. What is refused, at
// some depth too, is a struct without fields.
func (x *jsonSchemas) connect(text []byte, depth int) connectSchema {
	nestedType := connectSchema{Type: "struct"}
	var top jsonSchema
	if x.parts++; depth > schemas.MaxNesting || x.parts > maxSchemaParts || json.Unmarshal(text, &top) != nil {
		return nestedType
	}
	s, optional := x.plain(&top, 0)
	if s == nil {
		return nestedType
	}
	kinds := jsonKinds(s)
	if i := slices.Index(kinds, "null"); i >= 0 {
		optional, kinds = true, slices.Delete(kinds, i, i+1)
	}
	c := connectSchema{Optional: optional, Name: s.Title, Parameters: s.Parameters, Default: s.Default}
	if len(kinds) != 1 {
		return nestedType
	}
	switch kinds[0] {
	case "boolean":
		c.Type = "boolean"
	case "integer":
		if c.Type = s.ConnectType; c.Type != "int8" && c.Type != "int16" && c.Type != "int32" {
			c.Type = "int64"
		}
	case "number":
		switch s.ConnectType {
		case "float32":
			c.Type = "float"
		case "bytes": // a Decimal
			c.Type = "bytes"
		default:
			c.Type = "double"
		}
	case "string":
		c.Type = "string"
		switch {
		case s.ConnectType == "bytes" || s.Contents == "base64":
			c.Type = "bytes"
		case s.Format == "date-time" && c.Name == "":
			c.Name = "io.debezium.time.ZonedTimestamp"
		case s.Format == "date" && c.Name == "":
			c.Name = "io.debezium.time.IsoDate"
		case s.Format == "uuid" && c.Name == "":
			c.Name = "io.debezium.data.Uuid"
		}
	case "array":
		if len(s.Items) == 0 || s.Items[0] != '{' {
			return nestedType
		}
		item := x.connect(s.Items, depth+1)
		c.Type, c.Items = "array", &item
	case "object":
		if len(s.Properties) > 2 && s.Properties[0] == '{' {
			c.Type = "struct"
			members(s.Properties, func(name string, value []byte) {
				f := x.connect(value, depth+1)
				f.Field = name
				c.Fields = append(c.Fields, f)
			})
			return c
		}
		if len(s.Additional) == 0 || s.Additional[0] != '{' {
			return nestedType
		}
		value := x.connect(s.Additional, depth+1)
		c.Type, c.Keys, c.Values = "map", &connectSchema{Type: "string"}, &value
	default:
		return nestedType
	}
	return c
}

// jsonKinds are the types that a schema allows.
func jsonKinds(s *jsonSchema) []string {
	var one string
	var many []string
	switch {
	case len(s.Type) == 0 && len(s.Enum) > 0:
		for _, v := range s.Enum {
			kind := "other"
			switch v[0] {
			case '"':
				kind = "string"
			case 'n':
				kind = "null"
			}
			if !slices.Contains(many, kind) {
				many = append(many, kind)
			}
		}
	case len(s.Type) == 0:
	case json.Unmarshal(s.Type, &one) == nil:
		many = []string{one}
	default:
		if json.Unmarshal(s.Type, &many) != nil {
			return nil
		}
	}
	return many
}

// jsonSchema surveys a record's value by its JSON Schema.
func (v *survey) jsonSchema(registry SchemaSource, rec *Record) bool {
	if rec.Value == nil {
		return true
	}
	ref, _, ok := framed(rec, valueSchemaHeader, rec.Value, v.set.schemaID)
	if !ok {
		return false
	}
	if v.schemas[ref.String()] {
		return true
	}
	if registry == nil {
		v.fail("the events' schemas are in a schema registry; name it with --schema-registry")
		return false
	}
	row, j, err := jsonSchemaOf(registry, ref)
	if err != nil {
		v.err = fmt.Errorf("%s: %w", ref, err)
	}
	if err != nil || j != nil {
		return false
	}
	v.schemas[ref.String()] = true
	v.fields(&row.connectSchema)
	return true
}
