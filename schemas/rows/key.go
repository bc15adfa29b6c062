package rows

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"sort"

	"github.com/dchest/siphash"

	"github.com/varve-io/varve/schemas"
)

// ErrNullKey marks an event whose key has a null or absent part (K1).
var ErrNullKey = errors.New("a key column is null")

// ErrBadKey marks bytes that are no canonical key of the table.
var ErrBadKey = errors.New("the bytes are no key of this table")

// KeyEncoder writes the canonical bytes of a row's key (K1): injective, and
// ordered as the typed values are, column by column in the order of the
// columns' names (bytewise).
//
//	boolean, int, long, date, time, timestamps  8 bytes big-endian of v ^ 1<<63
//	decimal                                     16 bytes big-endian, sign flipped
//	uuid, fixed                                 as they are
//	string, binary                              00 as 00 FF, ended by 00 01
//
// So int 42 and long 42 are one key, also a decimal before and after its
// precision grew.
type KeyEncoder struct {
	parts []keyPart
}

type keyPart struct {
	id    int32
	index int // of the column in the schema, hence in a Batch
	name  string
	typ   schemas.Type
}

// signBit turns a signed number into one that sorts as unsigned.
const signBit = uint64(1) << 63

// NewKeyEncoder is the encoder of a schema's key columns, by field id.
func NewKeyEncoder(s *schemas.Schema, key []int32) (*KeyEncoder, error) {
	if len(key) == 0 {
		return nil, errors.New("the table has no key")
	}
	e := &KeyEncoder{}
	for _, id := range key {
		i := s.ByID(id)
		if i < 0 {
			return nil, fmt.Errorf("key field id %d is no column", id)
		}
		f := &s.Fields[i]
		if !f.Type.KeyUsable() {
			return nil, fmt.Errorf("key column %q is a %s; floats cannot be keys", f.Name, f.Type)
		}
		e.parts = append(e.parts, keyPart{id: id, index: i, name: f.Name, typ: f.Type})
	}
	sort.Slice(e.parts, func(i, j int) bool { return e.parts[i].name < e.parts[j].name })
	return e, nil
}

// Fields are the key's field ids in the order of the encoding: the order in
// which AppendFrom and Decode take columns.
func (e *KeyEncoder) Fields() []int32 {
	ids := make([]int32, len(e.parts))
	for i := range e.parts {
		ids[i] = e.parts[i].id
	}
	return ids
}

// Narrow says whether the key is one integer-like column: its 8 bytes are then
// a number, and NarrowKey is the quick way to it.
func (e *KeyEncoder) Narrow() bool {
	return len(e.parts) == 1 && StorageOf(e.parts[0].typ) == Ints && e.parts[0].typ.Kind != schemas.Decimal
}

// NarrowKey is the key of a row as a number whose order is the key's. Only
// when Narrow, and never for a null part.
func (e *KeyEncoder) NarrowKey(b *Batch, row int) uint64 {
	return uint64(b.Cols[e.parts[0].index].Ints[row]) ^ signBit
}

// NarrowKeys appends the keys of every row. Only when Narrow.
func (e *KeyEncoder) NarrowKeys(dst []uint64, b *Batch) ([]uint64, error) {
	return e.NarrowKeysFrom(dst, &b.Cols[e.parts[0].index])
}

// NarrowKeysFrom is NarrowKeys over the key column itself.
func (e *KeyEncoder) NarrowKeysFrom(dst []uint64, c *Column) ([]uint64, error) {
	for i, v := range c.Ints {
		if c.Valid[i] == 0 {
			return dst, e.nullPart(0)
		}
		dst = append(dst, uint64(v)^signBit)
	}
	return dst, nil
}

func (e *KeyEncoder) nullPart(i int) error {
	return fmt.Errorf("key column %q: %w", e.parts[i].name, ErrNullKey)
}

// Append appends the key of a row of a batch.
func (e *KeyEncoder) Append(dst []byte, b *Batch, row int) ([]byte, error) {
	for i := range e.parts {
		p := &e.parts[i]
		c := &b.Cols[p.index]
		if c.Valid[row] == 0 {
			return dst, e.nullPart(i)
		}
		dst = appendKeyPart(dst, c, row)
	}
	return dst, nil
}

// AppendFrom appends the key of a row of columns that stand in the order of
// Fields, such as File.ReadColumns(Fields()) gives.
func (e *KeyEncoder) AppendFrom(dst []byte, cols []Column, row int) ([]byte, error) {
	for i := range e.parts {
		if cols[i].Valid[row] == 0 {
			return dst, e.nullPart(i)
		}
		dst = appendKeyPart(dst, &cols[i], row)
	}
	return dst, nil
}

func appendKeyPart(dst []byte, c *Column, row int) []byte {
	if c.Storage == Ints {
		return appendIntKey(dst, c.Type, c.Ints[row])
	}
	return appendBytesKey(dst, c.Type, c.BytesAt(row))
}

func appendIntKey(dst []byte, t schemas.Type, v int64) []byte {
	if t.Kind == schemas.Decimal {
		start := len(dst)
		dst = schemas.AppendDecimal16(dst, v)
		dst[start] ^= 0x80
		return dst
	}
	return binary.BigEndian.AppendUint64(dst, uint64(v)^signBit)
}

func appendBytesKey(dst []byte, t schemas.Type, v []byte) []byte {
	switch t.Kind {
	case schemas.Decimal:
		start := len(dst)
		dst = append(dst, v...)
		dst[start] ^= 0x80
		return dst
	case schemas.String, schemas.Binary:
		for {
			zero := bytes.IndexByte(v, 0)
			if zero < 0 {
				dst = append(dst, v...)
				return append(dst, 0, 1)
			}
			dst = append(dst, v[:zero+1]...)
			dst = append(dst, 0xFF)
			v = v[zero+1:]
		}
	}
	return append(dst, v...)
}

// Decode appends the parts of a canonical key to columns that stand in the
// order of Fields. On an error the columns hold what they held.
func (e *KeyEncoder) Decode(key []byte, cols []*Column) error {
	var before [16]int
	marks := before[:0]
	for i := range e.parts {
		marks = append(marks, cols[i].Len())
	}
	rest := key
	for i := range e.parts {
		var err error
		if rest, err = decodeKeyPart(rest, e.parts[i].typ, cols[i]); err != nil {
			for j, n := range marks {
				cols[j].Truncate(n)
			}
			return fmt.Errorf("key column %q: %w", e.parts[i].name, err)
		}
	}
	if len(rest) > 0 {
		for j, n := range marks {
			cols[j].Truncate(n)
		}
		return fmt.Errorf("%d bytes behind the last part: %w", len(rest), ErrBadKey)
	}
	return nil
}

func decodeKeyPart(b []byte, t schemas.Type, c *Column) (rest []byte, err error) {
	switch t.Kind {
	case schemas.String, schemas.Binary:
		value := make([]byte, 0, 32)
		for i := 0; i < len(b); i++ {
			if b[i] != 0 {
				value = append(value, b[i])
				continue
			}
			i++
			switch {
			case i < len(b) && b[i] == 0xFF:
				value = append(value, 0)
			case i < len(b) && b[i] == 1:
				if _, err := schemas.BytesValue(t, value); err != nil {
					return b, ErrBadKey
				}
				c.AppendBytes(value)
				return b[i+1:], nil
			default:
				return b, ErrBadKey
			}
		}
		return b, ErrBadKey
	case schemas.UUID, schemas.Fixed:
		n := 16
		if t.Kind == schemas.Fixed {
			n = int(t.Length)
		}
		if len(b) < n {
			return b, ErrBadKey
		}
		c.AppendBytes(b[:n])
		return b[n:], nil
	case schemas.Decimal:
		if len(b) < 16 {
			return b, ErrBadKey
		}
		var w [16]byte
		copy(w[:], b)
		w[0] ^= 0x80
		if !schemas.DecimalFits(w[:], t.Precision) {
			return b, ErrBadKey
		}
		if c.Storage == Ints {
			c.AppendInt(int64(binary.BigEndian.Uint64(w[8:])))
		} else {
			c.AppendBytes(w[:])
		}
		return b[16:], nil
	}
	if len(b) < 8 {
		return b, ErrBadKey
	}
	v := int64(binary.BigEndian.Uint64(b) ^ signBit)
	if lo, hi := t.IntRange(); v < lo || v > hi {
		return b, ErrBadKey
	}
	c.AppendInt(v)
	return b[8:], nil
}

// KeyHead is a key's first eight bytes as a number, zeros behind a shorter one:
// of two different heads the smaller one's bytes sort first.
func KeyHead(key []byte) uint64 {
	if len(key) >= 8 {
		return binary.BigEndian.Uint64(key)
	}
	var head [8]byte
	copy(head[:], key)
	return binary.BigEndian.Uint64(head[:])
}

// Hash128 is the keyed 128-bit hash of a key (SipHash-2-4-128); the secret is
// the deployment's id, so that no one outside picks keys that collide.
func Hash128(secret [16]byte, key []byte) (hi, lo uint64) {
	k0 := binary.LittleEndian.Uint64(secret[:8])
	k1 := binary.LittleEndian.Uint64(secret[8:])
	return siphash.Hash128(k0, k1, key)
}
