package record

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strconv"

	"github.com/varve-io/varve/schemas"
)

// AppendRecordJSON appends a record, an *Envelope, an *Outcome, an
// *OutcomeMessage or a *schemas.Definition as one line of JSON, for people
// and for ParseRecordJSON. Fields are named as in the Avro schemas; ids and
// hashes (Avro fixed) are hex, other bytes base64; types, transforms, codes
// and reasons are words. An envelope's inline body is left out. Erasable
// bodies are refused: key values are never shown (E1).
func AppendRecordJSON(dst []byte, v any) ([]byte, error) {
	w := jsonWriter{b: dst, start: len(dst)}
	w.begin("")
	switch x := v.(type) {
	case *Envelope:
		envelopeJSON(&w, x)
	case *Outcome:
		outcomeFields(&w, x)
	case *OutcomeMessage:
		w.long("offset", &x.Offset)
		w.bool("derived", &x.Derived)
		outcomeMessageFields(&w, x)
	case *schemas.Definition:
		definitionFields(&w, x)
	default:
		if !walk(&w, v) {
			return dst, fmt.Errorf("%T is not shown as JSON", v)
		}
	}
	w.end()
	return w.b, nil
}

func envelopeJSON(w *jsonWriter, e *Envelope) {
	w.enum("type", (*uint8)(&e.Type), typeNames)
	w.number("type_version", int64(e.TypeVersion))
	w.number("apply_version", int64(e.ApplyVersion))
	w.fixed("request", e.Request[:])
	w.long("offset_seen", &e.OffsetSeen)
	w.str("table", &e.Table)
	w.long("table_id", &e.TableID)
	optionalRecord(w, "body_ref", &e.BodyRef, refFields)
}

// jsonWriter is the visitor that writes JSON; it never fails.
type jsonWriter struct {
	b     []byte
	start int
}

func (w *jsonWriter) reading() bool         { return false }
func (w *jsonWriter) failed() bool          { return false }
func (w *jsonWriter) block(int) int         { return 0 }
func (w *jsonWriter) refuse(string, string) {}

// key begins a value: the comma before it, and its name.
func (w *jsonWriter) key(name string) {
	if n := len(w.b); n > w.start && w.b[n-1] != '{' && w.b[n-1] != '[' {
		w.b = append(w.b, ',')
	}
	if name != "" {
		w.b = append(schemas.AppendJSONString(w.b, name), ':')
	}
}

func (w *jsonWriter) begin(name string) { w.key(name); w.b = append(w.b, '{') }
func (w *jsonWriter) end()              { w.b = append(w.b, '}') }

func (w *jsonWriter) open(name string, _ int) { w.key(name); w.b = append(w.b, '[') }
func (w *jsonWriter) close()                  { w.b = append(w.b, ']') }

func (w *jsonWriter) optional(name string, present bool) bool {
	if !present {
		w.key(name)
		w.b = append(w.b, "null"...)
	}
	return present
}

func (w *jsonWriter) number(name string, v int64) {
	w.key(name)
	w.b = strconv.AppendInt(w.b, v, 10)
}

func (w *jsonWriter) int32(name string, v *int32)   { w.number(name, int64(*v)) }
func (w *jsonWriter) long(name string, v *int64)    { w.number(name, *v) }
func (w *jsonWriter) uint8(name string, v *uint8)   { w.number(name, int64(*v)) }
func (w *jsonWriter) uint32(name string, v *uint32) { w.number(name, int64(*v)) }

func (w *jsonWriter) uint64(name string, v *uint64) {
	w.key(name)
	w.b = strconv.AppendUint(w.b, *v, 10)
}

func (w *jsonWriter) word(name string, n int, names []string) {
	if n >= len(names) || names[n] == "" {
		w.number(name, int64(n))
		return
	}
	w.key(name)
	w.b = schemas.AppendJSONString(w.b, names[n])
}

func (w *jsonWriter) enum(name string, v *uint8, names []string) { w.word(name, int(*v), names) }
func (w *jsonWriter) reason(name string, v *Reason)              { w.word(name, int(*v), reasonNames) }

func (w *jsonWriter) bool(name string, v *bool) {
	w.key(name)
	w.b = strconv.AppendBool(w.b, *v)
}

func (w *jsonWriter) str(name string, v *string) {
	w.key(name)
	w.b = schemas.AppendJSONString(w.b, *v)
}

func (w *jsonWriter) text(name string, v *string) { w.str(name, v) }

func (w *jsonWriter) bytes(name string, v *[]byte) {
	w.key(name)
	w.b = append(w.b, '"')
	w.b = base64.StdEncoding.AppendEncode(w.b, *v)
	w.b = append(w.b, '"')
}

func (w *jsonWriter) fixed(name string, v []byte) {
	w.key(name)
	w.b = append(w.b, '"')
	w.b = hex.AppendEncode(w.b, v)
	w.b = append(w.b, '"')
}

// columnType is the type's name, or its numbers when it is no type at all.
func (w *jsonWriter) columnType(name string, t *schemas.Type) {
	s := t.String()
	if t.IsNested() {
		s = t.Nested
	}
	if parsed, err := schemas.ParseType(s); err == nil && parsed == *t {
		w.str(name, &s)
		return
	}
	nested(w, name, t, columnTypeFields)
}

func columnTypeFields(v visitor, t *schemas.Type) {
	v.uint8("kind", (*uint8)(&t.Kind))
	v.uint8("precision", &t.Precision)
	v.uint8("scale", &t.Scale)
	v.int32("length", &t.Length)
	v.text("nested", &t.Nested)
}
