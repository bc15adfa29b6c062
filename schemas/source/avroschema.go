package source

import (
	"encoding/binary"
	"fmt"
	"strconv"

	"github.com/varve-io/varve/schemas"
)

// varve's own events. The Avro schema of a table's events is made from a
// version of the table's schema:
//
//	record varve.schema<id>.Event
//	  op     enum upsert, delete
//	  order  null or long: the ordering value, for tables that order by a path
//	  row    record: a field for each column, in the schema's order; key
//	         columns as their type, every other column null or its type
//
// A struct is a record, a list an array, a map with text keys a map, any other
// map an array of records of key and value.
//
// A delete fills the key columns and leaves the others null. Names that Avro
// does not allow are written as Iceberg writes them in manifests (a-b is
// a_x2Db); field-id tells which column is meant. varve-event.avsc is an
// example.
//
// A Kafka record's value is Avro's single-object encoding: C3 01, the CRC-64
// fingerprint of the schema's Parsing Canonical Form (little-endian), the body.
// Some libraries' canonical forms are not the specification's where logical
// types are; since the ten bytes before the body are constant for a version of
// the table (AvroHeader), a producer may as well write them and let its
// library write the body. The namespace holds the schema's id, so each version of a table
// has its own fingerprint and a decoder reads events of every version that the
// table ever had, by field id. With framing=none the value is the bare body,
// in the version that schema.id names.

// avroPrimitive is the Avro type of a column without its logical type.
func avroPrimitive(t schemas.Type) string {
	switch t.Kind {
	case schemas.Boolean:
		return "boolean"
	case schemas.Int, schemas.Date:
		return "int"
	case schemas.Float:
		return "float"
	case schemas.Double:
		return "double"
	case schemas.String, schemas.UUID:
		return "string"
	case schemas.Decimal, schemas.Binary:
		return "bytes"
	case schemas.Fixed:
		return "fixed"
	}
	return "long"
}

// avroLogical is the logical type's attributes, "" without one.
func avroLogical(t schemas.Type) string {
	switch t.Kind {
	case schemas.Date:
		return `"logicalType":"date"`
	case schemas.Time:
		return `"logicalType":"time-micros"`
	case schemas.Timestamp:
		return `"logicalType":"local-timestamp-micros"`
	case schemas.TimestampTz:
		return `"logicalType":"timestamp-micros"`
	case schemas.TimestampNs:
		return `"logicalType":"local-timestamp-nanos"`
	case schemas.TimestampTzNs:
		return `"logicalType":"timestamp-nanos"`
	case schemas.UUID:
		return `"logicalType":"uuid"`
	case schemas.Decimal:
		return fmt.Sprintf(`"logicalType":"decimal","precision":%d,"scale":%d`, t.Precision, t.Scale)
	}
	return ""
}

// avroName writes a column's name so that Avro takes it.
func avroName(name string) string {
	ok := true
	for i, c := range name {
		ok = ok && (c == '_' || c|0x20 >= 'a' && c|0x20 <= 'z' || i > 0 && c >= '0' && c <= '9')
	}
	if ok && name != "" {
		return name
	}
	var out []byte
	for i, c := range name {
		switch {
		case c == '_' || c|0x20 >= 'a' && c|0x20 <= 'z' || i > 0 && c >= '0' && c <= '9':
			out = append(out, byte(c))
		case i == 0 && c >= '0' && c <= '9':
			out = append(out, '_', byte(c))
		default:
			out = append(out, "_x"...)
			for _, d := range strconv.FormatInt(int64(c), 16) {
				if d >= 'a' {
					d -= 'a' - 'A'
				}
				out = append(out, byte(d))
			}
		}
	}
	return string(out)
}

// avroNames are the names of a schema's columns in Avro, made distinct.
func avroNames(s *schemas.Schema) []string {
	taken := make(map[string]bool, len(s.Fields))
	names := make([]string, len(s.Fields))
	for i := range s.Fields {
		// A name that needs no writing keeps it, whatever comes before it.
		if n := s.Fields[i].Name; avroName(n) == n {
			names[i], taken[n] = n, true
		}
	}
	for i := range s.Fields {
		if names[i] != "" {
			continue
		}
		n := avroName(s.Fields[i].Name)
		for taken[n] {
			n += "_" + strconv.Itoa(int(s.Fields[i].ID))
		}
		names[i], taken[n] = n, true
	}
	return names
}

func avroKey(s *schemas.Schema, id int32) bool {
	for _, k := range s.Identifier {
		if k == id {
			return true
		}
	}
	return false
}

// AvroSchemaFor is the Avro schema of the events of a table with this schema.
// Its bytes depend on the schema alone.
func AvroSchemaFor(s *schemas.Schema) []byte { return avroSchema(s, false) }

// avroSchema writes the schema, or its Parsing Canonical Form.
func avroSchema(s *schemas.Schema, canonical bool) []byte {
	ns := "varve.schema" + strconv.Itoa(int(s.ID))
	// record begins a named type up to its fields.
	named := func(b []byte, kind, name string, top bool) []byte {
		if canonical {
			return append(b, `{"name":"`+ns+"."+name+`","type":"`+kind+`",`...)
		}
		b = append(b, `{"type":"`+kind+`","name":"`+name+`",`...)
		if top {
			b = append(b, `"namespace":"`+ns+`",`...)
		}
		return b
	}
	b := named(nil, "record", "Event", true)
	b = append(b, `"fields":[{"name":"op","type":`...)
	b = named(b, "enum", "Op", false)
	b = append(b, `"symbols":["upsert","delete"]}},{"name":"order","type":["null","long"]`...)
	if !canonical {
		b = append(b, `,"default":null`...)
	}
	b = append(b, `},{"name":"row","type":`...)
	b = named(b, "record", "Row", false)
	b = append(b, `"fields":[`...)
	names := avroNames(s)
	for i := range s.Fields {
		f := &s.Fields[i]
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"name":"`+names[i]+`","type":`...)
		key := avroKey(s, f.ID)
		if !key {
			b = append(b, `["null",`...)
		}
		b = avroNestedType(b, f.Type, f.ID, canonical, func(b []byte, kind, name string) []byte { return named(b, kind, name, false) })
		if !key {
			b = append(b, ']')
		}
		if !canonical {
			if !key {
				b = append(b, `,"default":null`...)
			}
			if f.Doc != "" {
				b = schemas.AppendJSONString(append(b, `,"doc":`...), f.Doc)
			}
			b = append(b, `,"field-id":`+strconv.Itoa(int(f.ID))...)
		}
		b = append(b, '}')
	}
	return append(b, `]}}]}`...)
}

// avroEmpty is the fingerprint of the empty text, which the polynomial is
// taken from (Avro specification, Schema Fingerprints).
const avroEmpty uint64 = 0xc15d213aa4d7a795

var avroTable = func() (t [256]uint64) {
	for i := range t {
		fp := uint64(i)
		for range 8 {
			fp = fp>>1 ^ avroEmpty&-(fp&1)
		}
		t[i] = fp
	}
	return t
}()

// AvroHeader is what stands before the body of every event written in s.
func AvroHeader(s *schemas.Schema) [10]byte {
	h := [10]byte{0xC3, 0x01}
	binary.LittleEndian.PutUint64(h[2:], AvroFingerprint(s))
	return h
}

// AvroFingerprint is the CRC-64-AVRO fingerprint of AvroSchemaFor's schema.
func AvroFingerprint(s *schemas.Schema) uint64 {
	fp := avroEmpty
	for _, c := range avroSchema(s, true) {
		fp = fp>>8 ^ avroTable[byte(fp)^c]
	}
	return fp
}
