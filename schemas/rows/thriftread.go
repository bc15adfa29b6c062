package rows

import (
	"encoding/binary"
	"errors"
)

var errThrift = errors.New("ill-formed Thrift")

// thriftReader reads the compact protocol from bytes that nobody vouches for:
// it never allocates by a length it was told and stops at its first error.
type thriftReader struct {
	b   []byte
	err error
}

const maxThriftDepth = 32

func (t *thriftReader) fail() {
	t.err = errThrift
	t.b = nil
}

func (t *thriftReader) byte() byte {
	if len(t.b) == 0 {
		t.fail()
		return 0
	}
	v := t.b[0]
	t.b = t.b[1:]
	return v
}

func (t *thriftReader) uvarint() uint64 {
	v, n := binary.Uvarint(t.b)
	if n <= 0 {
		t.fail()
		return 0
	}
	t.b = t.b[n:]
	return v
}

func (t *thriftReader) zigzag() int64 {
	v := t.uvarint()
	return int64(v>>1) ^ -int64(v&1)
}

// integer reads a field of any integer type.
func (t *thriftReader) integer(wire byte) int64 {
	if wire < thriftI16 || wire > thriftI64 {
		t.fail()
		return 0
	}
	return t.zigzag()
}

func (t *thriftReader) binary(wire byte) []byte {
	n := t.uvarint()
	if wire != thriftBinary || n > uint64(len(t.b)) {
		t.fail()
		return nil
	}
	v := t.b[:n:n]
	t.b = t.b[n:]
	return v
}

// list reads a list's head. Each element takes a byte at least, so n never
// passes what is left.
func (t *thriftReader) list(wire byte) (n int, elem byte) {
	if wire != thriftList {
		t.fail()
		return 0, 0
	}
	h := t.byte()
	size := uint64(h >> 4)
	if size == 15 {
		size = t.uvarint()
	}
	if size > uint64(len(t.b)) {
		t.fail()
		return 0, 0
	}
	return int(size), h & 0x0F
}

// fields reads a struct's fields; what read leaves unread (false) is skipped.
func (t *thriftReader) fields(read func(id int16, wire byte) bool) {
	var id int16
	for t.err == nil {
		h := t.byte()
		if h == 0 || t.err != nil {
			return
		}
		if d := h >> 4; d != 0 {
			id += int16(d)
		} else {
			id = int16(t.zigzag())
		}
		if t.err == nil && !read(id, h&0x0F) {
			t.skip(h&0x0F, 0)
		}
	}
}

// structs reads a list of structs.
func (t *thriftReader) structs(wire byte, read func(i int)) {
	n, elem := t.list(wire)
	if n > 0 && elem != thriftStruct {
		t.fail()
	}
	for i := 0; i < n && t.err == nil; i++ {
		read(i)
	}
}

func (t *thriftReader) skip(wire byte, depth int) {
	if depth > maxThriftDepth {
		t.fail()
	}
	if t.err != nil {
		return
	}
	switch wire {
	case thriftTrue, thriftFalse:
	case 3:
		t.byte()
	case thriftI16, thriftI32, thriftI64:
		t.uvarint()
	case 7:
		if len(t.b) < 8 {
			t.fail()
			return
		}
		t.b = t.b[8:]
	case thriftBinary:
		t.binary(wire)
	case thriftList, 10:
		n, elem := t.list(thriftList)
		for i := 0; i < n && t.err == nil; i++ {
			if elem == thriftTrue || elem == thriftFalse {
				t.byte()
			} else {
				t.skip(elem, depth+1)
			}
		}
	case 11:
		n := t.uvarint()
		if n == 0 {
			return
		}
		if n > uint64(len(t.b)) {
			t.fail()
			return
		}
		kinds := t.byte()
		for i := uint64(0); i < 2*n && t.err == nil; i++ {
			elem := kinds >> 4
			if i%2 == 1 {
				elem = kinds & 0x0F
			}
			if elem == thriftTrue || elem == thriftFalse {
				t.byte()
			} else {
				t.skip(elem, depth+1)
			}
		}
	case thriftStruct:
		for t.err == nil {
			h := t.byte()
			if h == 0 || t.err != nil {
				return
			}
			if h>>4 == 0 {
				t.zigzag()
			}
			t.skip(h&0x0F, depth+1)
		}
	default:
		t.fail()
	}
}
