package rows

import "encoding/binary"

// Thrift's compact protocol, the part of it that Parquet's headers need. The
// bytes are ours, so that no library's version changes a file.
type thriftWriter struct {
	b     []byte
	last  int16
	stack []int16
}

// Wire types of the compact protocol.
const (
	thriftTrue   = 1
	thriftFalse  = 2
	thriftI16    = 4
	thriftI32    = 5
	thriftI64    = 6
	thriftBinary = 8
	thriftList   = 9
	thriftStruct = 12
)

func (t *thriftWriter) reset() { t.b, t.last, t.stack = t.b[:0], 0, t.stack[:0] }

func (t *thriftWriter) uvarint(v uint64) { t.b = binary.AppendUvarint(t.b, v) }

func (t *thriftWriter) zigzag(v int64) { t.uvarint(uint64(v)<<1 ^ uint64(v>>63)) }

func (t *thriftWriter) header(id int16, wire byte) {
	if d := id - t.last; d > 0 && d <= 15 {
		t.b = append(t.b, byte(d)<<4|wire)
	} else {
		t.b = append(t.b, wire)
		t.zigzag(int64(id))
	}
	t.last = id
}

func (t *thriftWriter) i16(id int16, v int16) { t.header(id, thriftI16); t.zigzag(int64(v)) }
func (t *thriftWriter) i32(id int16, v int32) { t.header(id, thriftI32); t.zigzag(int64(v)) }
func (t *thriftWriter) i64(id int16, v int64) { t.header(id, thriftI64); t.zigzag(v) }

func (t *thriftWriter) boolean(id int16, v bool) {
	if v {
		t.header(id, thriftTrue)
	} else {
		t.header(id, thriftFalse)
	}
}

func (t *thriftWriter) rawString(s string) {
	t.uvarint(uint64(len(s)))
	t.b = append(t.b, s...)
}

func (t *thriftWriter) rawBytes(v []byte) {
	t.uvarint(uint64(len(v)))
	t.b = append(t.b, v...)
}

func (t *thriftWriter) str(id int16, s string)    { t.header(id, thriftBinary); t.rawString(s) }
func (t *thriftWriter) binary(id int16, v []byte) { t.header(id, thriftBinary); t.rawBytes(v) }

// open begins a struct: a field of one (id > 0), or an element of a list (0).
func (t *thriftWriter) open(id int16) {
	if id > 0 {
		t.header(id, thriftStruct)
	}
	t.stack = append(t.stack, t.last)
	t.last = 0
}

func (t *thriftWriter) close() {
	t.b = append(t.b, 0)
	t.last = t.stack[len(t.stack)-1]
	t.stack = t.stack[:len(t.stack)-1]
}

// empty is a struct without fields: a member of a union that says all by its id.
func (t *thriftWriter) empty(id int16) { t.open(id); t.close() }

func (t *thriftWriter) list(id int16, n int, wire byte) {
	t.header(id, thriftList)
	if n < 15 {
		t.b = append(t.b, byte(n)<<4|wire)
		return
	}
	t.b = append(t.b, 0xF0|wire)
	t.uvarint(uint64(n))
}
