package source

import (
	"errors"
	"fmt"
)

// avro surveys a record's value, or its key when no format is given, by its
// writer's schema.
func (v *survey) avro(registry SchemaSource, format string, rec *Record) bool {
	b, header, bare := rec.Value, valueSchemaHeader, v.set.schemaID
	if format == "" {
		b, header, bare = rec.Key, keySchemaHeader, -1
	}
	if b == nil {
		return true
	}
	ref, _, ok := framed(rec, header, b, bare)
	if !ok {
		return format == "" && v.key(b)
	}
	if v.schemas[ref.String()] {
		return true
	}
	if registry == nil {
		v.fail("the events' schemas are in a schema registry; name it with --schema-registry")
		return false
	}
	s, err := registry.WriterSchema(ref)
	switch {
	case errors.Is(err, ErrNoSchema):
		return false
	case err != nil:
		v.err = fmt.Errorf("%s: %w", ref, err)
		return false
	case s.Type == TypeJSON && format == "":
		return v.key(b)
	case s.Type != TypeAvro:
		return false
	}
	if format == "" {
		format = RowsAvro
	}
	row, err := avroRows(format, s)
	if err != nil {
		return false
	}
	v.schemas[ref.String()] = true
	v.fields(row)
	return true
}
