package source

import (
	"fmt"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/rows"
)

// Header is one record header.
type Header struct {
	Key   string
	Value []byte
}

// Record is one record of a source topic. A nil Key or Value is null.
type Record struct {
	Topic     string
	Partition int32
	Offset    int64
	TimeMs    int64
	Key       []byte
	Value     []byte
	Headers   []Header
}

// Kind says what a refused record would have done, as far as it could be
// read: dead letters of updates and deletes may leave a stale row (K7).
type Kind uint8

const (
	KindUnknown Kind = iota
	KindUpsert
	KindDelete
)

// Reject is a record that a decoder refuses: it goes to the dead letters.
// Reason names the column and the rule, never a value. Code is a short
// stable word (e.g. "malformed", "key", "type", "unsupported-op"). The code
// "schema" of format varve-avro may only mean that the decoder's definition is
// older than the producer's: read the definition again, and decode once more,
// before the record is given up.
type Reject struct {
	Code   string
	Reason string
	Kind   Kind
}

func (r *Reject) Error() string { return r.Code + ": " + r.Reason }

// Rejectf makes a Reject.
func Rejectf(kind Kind, code, format string, args ...any) *Reject {
	return &Reject{Code: code, Reason: fmt.Sprintf(format, args...), Kind: kind}
}

// SchemaChange is returned for a record that needs columns or wider types
// that the table's schema lacks. The caller alters the table, then decodes
// the record again with a decoder of the new schema. Add lists new columns
// without ids; Widen gives existing columns (by field id) their new type.
type SchemaChange struct {
	Add   []schemas.Field
	Widen []schemas.Field
}

func (c *SchemaChange) Error() string {
	return fmt.Sprintf("the event has %d new columns and %d wider ones", len(c.Add), len(c.Widen))
}

// Result says what a record held when it was no error.
type Result struct {
	Events  int  // events appended
	Control bool // a control record (heartbeat, transaction marker, …): counted, skipped
	// Elsewhere: a Control that is so because the record is of another table
	// (route.by), or of none.
	Elsewhere bool
}

// Decoder decodes records of one topic for one version of a table's schema.
// A decoder is used by one goroutine.
type Decoder interface {
	// Decode appends rec's events to dst. On an error nothing stays appended.
	// Errors are *Reject or *SchemaChange, or wrap ErrAway.
	Decode(dst *rows.Batch, rec *Record) (Result, error)
	// Framing is the framing of a record key (K5): equal for keys whose bytes
	// were built alike (schema id, JSON field order), 0 when there is none to tell.
	// The key is of the record decoded last: its headers count too.
	Framing(key []byte) uint64
}

// Options of a decoder. Unknown options are an error of New.
type Options struct {
	// Format is one of Formats, or several of them (SplitFormats).
	Format  string
	Options []schemas.Property
	Def     *schemas.Definition
	// Schema is the version of the table's schema to decode into.
	Schema *schemas.Schema
	// Registry is where writers' schemas come from, for the formats that need
	// one. Without it their records wait (ErrAway).
	Registry SchemaSource
}

// New makes the decoder that o asks for. An unknown format or option is an
// error that lists the known ones.
func New(o Options) (Decoder, error) {
	names, err := SplitFormats(o.Format)
	switch {
	case err != nil:
		return nil, err
	}
	set, err := parseSettings(o.Format, o.Options)
	if err != nil {
		return nil, err
	}
	var d Decoder
	if len(names) > 1 {
		d, err = newMixed(o, names)
	} else {
		d, err = newOne(o)
	}
	if err == nil && set.routeBy != "" {
		return newRouted(d, o, set)
	}
	return d, err
}

func newOne(o Options) (Decoder, error) {
	set, err := parseSettings(o.Format, o.Options)
	if err != nil {
		return nil, err
	}
	switch o.Format {
	case DebeziumJSON:
		return newDebezium(o, set)
	case VarveAvro:
		return newAvro(o, set)
	case Maxwell, Canal, DMS, GoldenGate:
		return newChanges(o, set)
	case DebeziumAvro, RowsAvro:
		return newRegistryAvro(o, set)
	case RowsJSONSchema:
		return newRegistryJSON(o, set)
	case RowsProtobuf:
		return newRegistryProto(o, set)
	default:
		return newRowsJSON(o, set)
	}
}

// Open makes the decoder of a table for a version of its schema.
func Open(def *schemas.Definition, schema *schemas.Schema, registry SchemaSource) (Decoder, error) {
	format, options := def.SourceFormat()
	return New(Options{Format: format, Options: options, Def: def, Schema: schema, Registry: registry})
}
