package record

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"unicode/utf8"

	"github.com/varve-io/varve/schemas"
)

// longAt reads a zigzag varint at b[i:]. The index behind it is -1 when there
// is none, and stays -1 in whatever is read from there.
func longAt(b []byte, i int) (int64, int) {
	if uint(i) < uint(len(b)) && b[i] < 0x80 {
		u := b[i]
		return int64(u>>1) ^ -int64(u&1), i + 1
	}
	return longerAt(b, i)
}

// longerAt is longAt of more than one byte, and of what is no integer.
func longerAt(b []byte, i int) (int64, int) {
	if i < 0 || i > len(b) {
		return 0, -1
	}
	if i+8 <= len(b) {
		// Up to 8 bytes at once: cut behind the first byte without the high
		// bit, then close the gaps between the groups of 7 bits.
		x := binary.LittleEndian.Uint64(b[i:])
		if stop := ^x & 0x8080808080808080; stop != 0 {
			x &= stop ^ (stop - 1)
			x = x&0x007f007f007f007f | x&0x7f007f007f007f00>>1
			x = x&0x00003fff00003fff | x&0x3fff00003fff0000>>2
			x = x&0x000000000fffffff | x&0x0fffffff00000000>>4
			return int64(x>>1) ^ -int64(x&1), i + bits.TrailingZeros64(stop)>>3 + 1
		}
	}
	var u uint64
	for n, c := range b[i:min(len(b), i+10)] {
		u |= uint64(c&0x7f) << (7 * n)
		if c < 0x80 {
			if n == 9 && c > 1 {
				return 0, -1 // more than 64 bits
			}
			return int64(u>>1) ^ -int64(u&1), i + n + 1
		}
	}
	return 0, -1
}

// longsAt reads several, which is faster than one by one.
func longsAt(b []byte, i int, out ...*int64) int {
	for _, v := range out {
		if uint(i) < uint(len(b)) && b[i] < 0x80 {
			u := b[i]
			*v = int64(u>>1) ^ -int64(u&1)
			i++
		} else {
			*v, i = longerAt(b, i)
		}
	}
	return i
}

// blockAt reads the header of an array block: how many elements of at least
// minBytes follow, and where they must end (-1: not said). n is 0 at the
// array's end.
func blockAt(b []byte, i, minBytes int) (n, end, next int) {
	c, i := longAt(b, i)
	if i < 0 || c == 0 {
		return 0, -1, i
	}
	room := len(b) - i
	end = -1
	if c < 0 {
		var size int64
		if size, i = longAt(b, i); i < 0 || c == math.MinInt64 || size < 0 || size > int64(len(b)-i) {
			return 0, -1, -1
		}
		c = -c
		room = int(size)
		end = i + room
	}
	if c > int64(room/minBytes) {
		return 0, -1, -1
	}
	return int(c), end, i
}

// binReader reads Avro and is strict about its form: what does not fit, is
// not UTF-8, or is out of a field's range is ErrUndecodable. Byte fields alias b.
type binReader struct {
	b    []byte
	at   int
	ends []int // of the open arrays' blocks, -1 where not said
	err  error
	flat bool // what older versions wrote: column types have no place for nested ones
}

// older says whether the version before a type's newest one is read.
func older(v visitor) bool {
	r, ok := v.(*binReader)
	return ok && r.flat
}

func (r *binReader) reading() bool { return true }
func (r *binReader) failed() bool  { return r.err != nil }
func (r *binReader) begin(string)  {}
func (r *binReader) end()          {}

func (r *binReader) refuse(name, why string) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: field %q %s (before byte %d of %d)", ErrUndecodable, name, why, r.at, len(r.b))
	}
}

// finish is the error of the whole: nothing may be left.
func (r *binReader) finish(what string) error {
	switch {
	case r.err != nil:
		return fmt.Errorf("%s: %w", what, r.err)
	case r.at != len(r.b):
		return fmt.Errorf("%s: %w: %d bytes are left after its last field", what, ErrUndecodable, len(r.b)-r.at)
	}
	return nil
}

func (r *binReader) number(name string, lo, hi int64) int64 {
	if r.err != nil {
		return 0
	}
	v, next := longAt(r.b, r.at)
	if next < 0 {
		r.refuse(name, "is no integer, or is cut off")
		return 0
	}
	if v < lo || v > hi {
		r.refuse(name, "is out of range")
		return 0
	}
	r.at = next
	return v
}

// take is the next n bytes; nil only after an error.
func (r *binReader) take(name string, n int64) []byte {
	if r.err != nil {
		return nil
	}
	if n < 0 || n > int64(len(r.b)-r.at) {
		r.refuse(name, "is longer than what is left")
		return nil
	}
	b := r.b[r.at : r.at+int(n) : r.at+int(n)]
	r.at += int(n)
	return b
}

func (r *binReader) optional(name string, _ bool) bool { return r.number(name, 0, 1) == 1 }

func (r *binReader) open(string, int) { r.ends = append(r.ends, -1) }
func (r *binReader) close()           { r.ends = r.ends[:len(r.ends)-1] }

func (r *binReader) block(minBytes int) int {
	top := &r.ends[len(r.ends)-1]
	if r.err != nil {
		return 0
	}
	if *top >= 0 && *top != r.at {
		r.refuse("", "array block has another size than it says")
		return 0
	}
	n, end, next := blockAt(r.b, r.at, minBytes)
	if next < 0 {
		r.refuse("", "array count is more than what is left, or is cut off")
		return 0
	}
	*top, r.at = end, next
	return n
}

func (r *binReader) int32(name string, v *int32) {
	*v = int32(r.number(name, math.MinInt32, math.MaxInt32))
}

func (r *binReader) long(name string, v *int64) {
	*v = r.number(name, math.MinInt64, math.MaxInt64)
}

func (r *binReader) uint64(name string, v *uint64) {
	*v = uint64(r.number(name, math.MinInt64, math.MaxInt64))
}

func (r *binReader) uint8(name string, v *uint8)   { *v = uint8(r.number(name, 0, math.MaxUint8)) }
func (r *binReader) reason(name string, v *Reason) { *v = Reason(r.number(name, 0, math.MaxUint16)) }
func (r *binReader) uint32(name string, v *uint32) { *v = uint32(r.number(name, 0, math.MaxUint32)) }

func (r *binReader) enum(name string, v *uint8, _ []string) { r.uint8(name, v) }

func (r *binReader) bool(name string, v *bool) {
	b := r.take(name, 1)
	if r.err == nil && b[0] > 1 {
		r.refuse(name, "is no boolean")
	}
	*v = r.err == nil && b[0] == 1
}

func (r *binReader) bytes(name string, v *[]byte) {
	*v = r.take(name, r.number(name, 0, math.MaxInt64))
}

func (r *binReader) str(name string, v *string) {
	b := r.take(name, r.number(name, 0, math.MaxInt64))
	if !utf8.Valid(b) {
		r.refuse(name, "is not UTF-8")
		return
	}
	if string(b) != *v { // a reader that fills an old value allocates only for a new one
		*v = string(b)
	}
}

func (r *binReader) text(name string, v *string) { r.str(name, v) }

func (r *binReader) fixed(name string, v []byte) { copy(v, r.take(name, int64(len(v)))) }

func (r *binReader) columnType(name string, t *schemas.Type) {
	r.uint8(name, (*uint8)(&t.Kind))
	r.uint8(name, &t.Precision)
	r.uint8(name, &t.Scale)
	r.int32(name, &t.Length)
	if r.flat {
		t.Nested = ""
		return
	}
	r.str(name, &t.Nested)
}
