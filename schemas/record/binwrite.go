package record

import (
	"fmt"
	"unicode/utf8"

	"github.com/varve-io/varve/schemas"
)

// appendLong appends an Avro int or long: a zigzag varint.
func appendLong(dst []byte, v int64) []byte {
	u := uint64(v)<<1 ^ uint64(v>>63)
	for u >= 0x80 {
		dst = append(dst, byte(u)|0x80)
		u >>= 7
	}
	return append(dst, byte(u))
}

func appendBytes(dst, b []byte) []byte { return append(appendLong(dst, int64(len(b))), b...) }

func appendString(dst []byte, s string) []byte {
	return append(appendLong(dst, int64(len(s))), s...)
}

func appendBool(dst []byte, v bool) []byte {
	if v {
		return append(dst, 1)
	}
	return append(dst, 0)
}

// binWriter writes canonical Avro: shortest integers, an array in one block.
type binWriter struct {
	b   []byte
	err error
}

func (w *binWriter) reading() bool { return false }
func (w *binWriter) failed() bool  { return w.err != nil }
func (w *binWriter) begin(string)  {}
func (w *binWriter) end()          {}
func (w *binWriter) block(int) int { return 0 }

func (w *binWriter) refuse(name, why string) {
	if w.err == nil {
		w.err = fmt.Errorf("%w: field %q %s", ErrNotEncodable, name, why)
	}
}

func (w *binWriter) optional(_ string, present bool) bool {
	if present {
		w.b = append(w.b, 2) // branch 1
	} else {
		w.b = append(w.b, 0)
	}
	return present
}

func (w *binWriter) open(_ string, n int) {
	if n > 0 {
		w.b = appendLong(w.b, int64(n))
	}
}

func (w *binWriter) close() { w.b = append(w.b, 0) }

func (w *binWriter) int32(_ string, v *int32)            { w.b = appendLong(w.b, int64(*v)) }
func (w *binWriter) long(_ string, v *int64)             { w.b = appendLong(w.b, *v) }
func (w *binWriter) uint8(_ string, v *uint8)            { w.b = appendLong(w.b, int64(*v)) }
func (w *binWriter) reason(_ string, v *Reason)          { w.b = appendLong(w.b, int64(*v)) }
func (w *binWriter) uint32(_ string, v *uint32)          { w.b = appendLong(w.b, int64(*v)) }
func (w *binWriter) uint64(_ string, v *uint64)          { w.b = appendLong(w.b, int64(*v)) }
func (w *binWriter) enum(_ string, v *uint8, _ []string) { w.b = appendLong(w.b, int64(*v)) }
func (w *binWriter) bool(_ string, v *bool)              { w.b = appendBool(w.b, *v) }
func (w *binWriter) bytes(_ string, v *[]byte)           { w.b = appendBytes(w.b, *v) }
func (w *binWriter) fixed(_ string, v []byte)            { w.b = append(w.b, v...) }
func (w *binWriter) text(name string, v *string)         { w.str(name, v) }
func (w *binWriter) columnType(name string, t *schemas.Type) {
	w.b = appendColumnType(w.b, *t)
	w.str(name, &t.Nested)
}

func (w *binWriter) str(name string, v *string) {
	if !utf8.ValidString(*v) {
		w.refuse(name, "is not UTF-8")
	}
	w.b = appendString(w.b, *v)
}

func appendColumnType(dst []byte, t schemas.Type) []byte {
	dst = appendLong(dst, int64(t.Kind))
	dst = appendLong(dst, int64(t.Precision))
	dst = appendLong(dst, int64(t.Scale))
	return appendLong(dst, int64(t.Length))
}
