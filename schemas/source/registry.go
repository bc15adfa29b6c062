package source

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
)

// ErrAway is wrapped by a Decode error that says nothing of the record: what
// the decoder needs of the outside, a schema registry, cannot be reached now.
// The same record is decoded again later; it is never a dead letter.
var ErrAway = errors.New("the schema registry is away")

// ErrNoSchema is wrapped by a SchemaSource's error when the registry was asked
// and does not have the schema.
var ErrNoSchema = errors.New("the registry has no such schema")

// SchemaRef names a writer's schema as a record's framing does: by the id that
// a registry gave it, or by its GUID.
type SchemaRef struct {
	ID     uint32
	GUID   [16]byte
	ByGUID bool
}

func (r SchemaRef) String() string {
	if !r.ByGUID {
		return fmt.Sprintf("schema %d", r.ID)
	}
	g := hex.EncodeToString(r.GUID[:])
	return "schema " + g[:8] + "-" + g[8:12] + "-" + g[12:16] + "-" + g[16:20] + "-" + g[20:]
}

// The types of a registry's schemas.
const (
	TypeAvro     = "AVRO"
	TypeJSON     = "JSON"
	TypeProtobuf = "PROTOBUF"
)

// WriterSchema is a schema of a registry: its type, its text, and the texts of
// the schemas that it refers to, each behind those that it refers to itself.
type WriterSchema struct {
	Type       string
	Text       string
	References []string
	Names      []string // what each of References is imported as
}

// SchemaSource gives the schemas that framings name. It answers at once or in
// a bounded time; it keeps what it learned. Its errors wrap ErrAway or
// ErrNoSchema.
type SchemaSource interface {
	WriterSchema(ref SchemaRef) (WriterSchema, error)
}

// Headers in which a framing may stand, instead of in front of the bytes.
const (
	keySchemaHeader   = "__key_schema_id"
	valueSchemaHeader = "__value_schema_id"
)

// readRef reads a framing at the start of b: 00 and an id of four bytes, or 01
// and a GUID. n is its length, 0 when there is none.
func readRef(b []byte) (ref SchemaRef, n int) {
	switch {
	case len(b) >= 5 && b[0] == 0:
		ref.ID = binary.BigEndian.Uint32(b[1:])
		return ref, 5
	case len(b) >= 17 && b[0] == 1:
		copy(ref.GUID[:], b[1:])
		ref.ByGUID = true
		return ref, 17
	}
	return ref, 0
}

// framed finds the schema that a key's or value's framing names and where its
// body begins; ok is false when there is no framing. A schema id of bare
// values, if not negative, is of those without a header: their first bytes
// may look like a framing.
func framed(rec *Record, header string, b []byte, bare int32) (ref SchemaRef, body []byte, ok bool) {
	for i := range rec.Headers {
		if h := &rec.Headers[i]; h.Key == header {
			ref, n := readRef(h.Value)
			return ref, b, n > 0 && n == len(h.Value)
		}
	}
	if bare >= 0 {
		return SchemaRef{ID: uint32(bare)}, b, true
	}
	ref, n := readRef(b)
	return ref, b[n:], n > 0
}
