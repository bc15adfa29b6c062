package schemas

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Field is one column. InitialDefault and WriteDefault are single values in
// Iceberg's JSON form (nil: none).
type Field struct {
	ID             int32
	Name           string
	Type           Type
	Required       bool
	Doc            string
	InitialDefault json.RawMessage `json:",omitempty"` // else a missing one comes back as null
	WriteDefault   json.RawMessage `json:",omitempty"`
}

// Schema is one version of a table's columns. Identifier lists the key
// columns' field ids, ascending (Iceberg's identifier-field-ids).
type Schema struct {
	ID         int32
	Fields     []Field
	Identifier []int32
}

// Names that belong to row lineage or to varve (inputs.md, kind 9).
const (
	RowIDColumn  = "_row_id"
	LastSeqName  = "_last_updated_sequence_number"
	OrderColumn  = "_varve_order"
	varvePrefix  = "_varve_"
	RowIDField   = 2147483540 // reserved field id of _row_id
	LastSeqField = 2147483539 // reserved field id of _last_updated_sequence_number
	// OrderField is the id of _varve_order in data files. It lies below
	// Iceberg's reserved range (> 2147483447) and above any id a table reaches.
	OrderField = 2147483400
	MaxFieldID = 2147480000 // no column of a table has a larger one
)

// MaxColumns bounds a schema.
const MaxColumns = 10_000

// ByID is the index of the field with this id, or -1.
func (s *Schema) ByID(id int32) int {
	for i := range s.Fields {
		if s.Fields[i].ID == id {
			return i
		}
	}
	return -1
}

// ByName is the index of the field with this exact name, or -1.
func (s *Schema) ByName(name string) int {
	for i := range s.Fields {
		if s.Fields[i].Name == name {
			return i
		}
	}
	return -1
}

// HighestID is the largest field id, nested ones included; 0: there is none.
func (s *Schema) HighestID() int32 {
	var m int32
	s.eachID(func(id int32) { m = max(m, id) })
	return m
}

func (s *Schema) eachID(f func(int32)) {
	for i := range s.Fields {
		f(s.Fields[i].ID)
		s.Fields[i].Type.eachID(f)
	}
}

// AssignIDs gives every field that has no id (0) the next one after last, in
// Iceberg's order, and returns the last given.
func (s *Schema) AssignIDs(last int32) int32 {
	next := func() int32 { last++; return last }
	for i := range s.Fields {
		if s.Fields[i].ID == 0 {
			s.Fields[i].ID = next()
		}
	}
	for i := range s.Fields {
		s.Fields[i].Type = s.Fields[i].Type.AssignIDs(next)
	}
	return last
}

// ReservedName says whether a column may not have this name.
func ReservedName(name string) bool {
	l := strings.ToLower(name)
	return l == RowIDColumn || l == LastSeqName || strings.HasPrefix(l, varvePrefix) ||
		l == "_file" || l == "_pos" || l == "_deleted" || l == "_spec_id" || l == "_partition"
}

// Validate checks what every schema of a varve table must hold: 1 to
// MaxColumns columns, distinct ids and names (also when case is folded), no
// reserved name, key columns present, required and of a usable type (K1).
func (s *Schema) Validate() error {
	if len(s.Fields) == 0 || len(s.Fields) > MaxColumns {
		return fmt.Errorf("a table has 1 to %d columns, not %d", MaxColumns, len(s.Fields))
	}
	ids := make(map[int32]bool, len(s.Fields))
	names := make(map[string]string, len(s.Fields))
	for i := range s.Fields {
		f := &s.Fields[i]
		if f.Name == "" || !utf8.ValidString(f.Name) {
			return fmt.Errorf("column %d has an empty or ill-formed name", i+1)
		}
		if ReservedName(f.Name) {
			return fmt.Errorf("column %q: the name is reserved; rename the column at its source", f.Name)
		}
		if f.ID < 1 || f.ID > MaxFieldID || ids[f.ID] {
			return fmt.Errorf("column %q: field id %d is out of range or used twice", f.Name, f.ID)
		}
		ids[f.ID] = true
		low := strings.ToLower(f.Name)
		if other, dup := names[low]; dup {
			return fmt.Errorf("columns %q and %q differ only in case; engines cannot tell them apart", other, f.Name)
		}
		names[low] = f.Name
		if !f.Type.Valid() {
			if err := f.Type.CheckNested(f.Name); err != nil {
				return err
			}
			return fmt.Errorf("column %q is a %s, which is no type", f.Name, f.Type)
		}
		bad := int32(0)
		f.Type.eachID(func(id int32) {
			if id < 1 || id > MaxFieldID || ids[id] {
				bad = id
			}
			ids[id] = true
		})
		if bad != 0 || ids[0] {
			return fmt.Errorf("column %q: field id %d inside of it is out of range or used twice", f.Name, bad)
		}
		if len(ids) > MaxColumns {
			return fmt.Errorf("a table has 1 to %d columns, those inside of others included", MaxColumns)
		}
	}
	for i, id := range s.Identifier {
		j := s.ByID(id)
		if j < 0 {
			return fmt.Errorf("key field id %d is no column", id)
		}
		if i > 0 && s.Identifier[i-1] >= id {
			return fmt.Errorf("key field ids must ascend")
		}
		f := &s.Fields[j]
		if !f.Required {
			return fmt.Errorf("key column %q is optional; a key column is required", f.Name)
		}
		if !f.Type.KeyUsable() {
			return fmt.Errorf("key column %q is a %s; floats cannot be keys, and nothing that is nested", f.Name, f.Type)
		}
	}
	return nil
}

// AppendJSON appends the schema as Iceberg's table metadata holds it. The
// bytes depend on the schema alone.
func (s *Schema) AppendJSON(dst []byte) []byte {
	dst = append(dst, `{"type":"struct","schema-id":`...)
	dst = strconv.AppendInt(dst, int64(s.ID), 10)
	if len(s.Identifier) > 0 {
		dst = append(dst, `,"identifier-field-ids":[`...)
		for i, id := range s.Identifier {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = strconv.AppendInt(dst, int64(id), 10)
		}
		dst = append(dst, ']')
	}
	dst = append(dst, `,"fields":`...)
	dst = s.AppendFieldsJSON(dst)
	return append(dst, '}')
}

// AppendFieldsJSON appends the array of fields alone.
func (s *Schema) AppendFieldsJSON(dst []byte) []byte {
	dst = append(dst, '[')
	for i := range s.Fields {
		f := &s.Fields[i]
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"id":`...)
		dst = strconv.AppendInt(dst, int64(f.ID), 10)
		dst = append(dst, `,"name":`...)
		dst = AppendJSONString(dst, f.Name)
		dst = append(dst, `,"required":`...)
		dst = strconv.AppendBool(dst, f.Required)
		dst = append(dst, `,"type":`...)
		dst = f.Type.AppendJSON(dst)
		if f.Doc != "" {
			dst = append(dst, `,"doc":`...)
			dst = AppendJSONString(dst, f.Doc)
		}
		if f.InitialDefault != nil {
			dst = append(dst, `,"initial-default":`...)
			dst = append(dst, f.InitialDefault...)
		}
		if f.WriteDefault != nil {
			dst = append(dst, `,"write-default":`...)
			dst = append(dst, f.WriteDefault...)
		}
		dst = append(dst, '}')
	}
	return append(dst, ']')
}

type jsonField struct {
	ID             *int32          `json:"id"`
	Name           string          `json:"name"`
	Required       bool            `json:"required"`
	Type           json.RawMessage `json:"type"`
	Doc            string          `json:"doc"`
	InitialDefault json.RawMessage `json:"initial-default"`
	WriteDefault   json.RawMessage `json:"write-default"`
}

type jsonSchema struct {
	Type       string      `json:"type"`
	ID         int32       `json:"schema-id"`
	Identifier []int32     `json:"identifier-field-ids"`
	Fields     []jsonField `json:"fields"`
}

// ParseSchema reads Iceberg's schema JSON. Ids that are not told are given. It
// does not call Validate.
func ParseSchema(b []byte) (Schema, error) {
	var j jsonSchema
	if err := json.Unmarshal(b, &j); err != nil {
		return Schema{}, fmt.Errorf("schema is not Iceberg schema JSON: %w", err)
	}
	if j.Type != "" && j.Type != "struct" {
		return Schema{}, fmt.Errorf("schema type is %q, not struct", j.Type)
	}
	if len(j.Fields) > MaxColumns {
		return Schema{}, fmt.Errorf("schema has %d columns, more than %d", len(j.Fields), MaxColumns)
	}
	s := Schema{ID: j.ID, Identifier: j.Identifier}
	for i, f := range j.Fields {
		t, err := ParseTypeJSON(f.Type)
		if err != nil {
			return Schema{}, fmt.Errorf("column %q: %w", f.Name, err)
		}
		id := int32(i + 1)
		if f.ID != nil {
			id = *f.ID
		}
		out := Field{ID: id, Name: f.Name, Type: t, Required: f.Required, Doc: f.Doc}
		if len(f.InitialDefault) > 0 && string(f.InitialDefault) != "null" {
			out.InitialDefault = f.InitialDefault
		}
		if len(f.WriteDefault) > 0 && string(f.WriteDefault) != "null" {
			out.WriteDefault = f.WriteDefault
		}
		s.Fields = append(s.Fields, out)
	}
	s.AssignIDs(s.HighestID())
	return s, nil
}

const hexDigits = "0123456789abcdef"

// AppendJSONString appends s as a JSON string: only what JSON demands is
// escaped, so the bytes do not depend on a library's version. Ill-formed
// UTF-8 becomes U+FFFD.
func AppendJSONString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
			i++
		case c == '\n':
			dst = append(dst, '\\', 'n')
			i++
		case c == '\r':
			dst = append(dst, '\\', 'r')
			i++
		case c == '\t':
			dst = append(dst, '\\', 't')
			i++
		case c < 0x20:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
			i++
		case c < utf8.RuneSelf:
			dst = append(dst, c)
			i++
		default:
			r, n := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && n == 1 {
				dst = append(dst, 0xEF, 0xBF, 0xBD)
			} else {
				dst = append(dst, s[i:i+n]...)
			}
			i += n
		}
	}
	return append(dst, '"')
}
