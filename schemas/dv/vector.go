package dv

import (
	"encoding/binary"
	"fmt"
	"iter"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"
)

// MaxPosition64 is the highest position that a Vector holds: key 2^31 - 2 and all
// low bits.
const MaxPosition64 = uint64(maxKey)<<32 | 0xffffffff

// Vector is a decoded deletion vector: positions of at most MaxPosition64. The zero
// Vector is empty and ready to use. It must not be used from several goroutines
// while one changes it.
type Vector struct {
	keys []uint32          // ascending
	maps []*roaring.Bitmap // none empty
}

// FromBitmap returns a vector of b's positions. It takes b over: the caller must not
// change it afterwards.
func FromBitmap(b *roaring.Bitmap) *Vector {
	if b.IsEmpty() {
		return &Vector{}
	}
	return &Vector{keys: []uint32{0}, maps: []*roaring.Bitmap{b}}
}

// IsEmpty reports whether the vector holds no position.
func (v *Vector) IsEmpty() bool { return len(v.keys) == 0 }

// Cardinality returns the number of positions.
func (v *Vector) Cardinality() uint64 {
	var n uint64
	for _, m := range v.maps {
		n += m.GetCardinality()
	}
	return n
}

// Contains reports whether pos is in the vector.
func (v *Vector) Contains(pos uint64) bool {
	key := pos >> 32
	// Nearly every vector has key 0 only.
	if len(v.keys) == 1 {
		return uint64(v.keys[0]) == key && v.maps[0].Contains(uint32(pos))
	}
	if key > maxKey {
		return false
	}
	i, ok := slices.BinarySearch(v.keys, uint32(key))
	return ok && v.maps[i].Contains(uint32(pos))
}

// Max returns the largest position; ok is false for an empty vector.
func (v *Vector) Max() (pos uint64, ok bool) {
	if v.IsEmpty() {
		return 0, false
	}
	last := len(v.keys) - 1
	return uint64(v.keys[last])<<32 | uint64(v.maps[last].Maximum()), true
}

// All iterates over the positions in ascending order. The vector must not change
// meanwhile.
func (v *Vector) All() iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		buf := make([]uint32, 1024)
		for i, m := range v.maps {
			high := uint64(v.keys[i]) << 32
			it := m.ManyIterator()
			for n := it.NextMany(buf); n > 0; n = it.NextMany(buf) {
				for _, low := range buf[:n] {
					if !yield(high | uint64(low)) {
						return
					}
				}
			}
		}
	}
}

// Bitmap32 returns the positions as one 32-bit bitmap, which still belongs to the
// vector; ok is false when a position is 2^32 or more.
func (v *Vector) Bitmap32() (b *roaring.Bitmap, ok bool) {
	switch {
	case v.IsEmpty():
		return roaring.New(), true
	case len(v.keys) == 1 && v.keys[0] == 0:
		return v.maps[0], true
	default:
		return nil, false
	}
}

// Add puts pos into the vector.
func (v *Vector) Add(pos uint64) error {
	if pos > MaxPosition64 {
		return fmt.Errorf("position %d: a deletion vector holds at most %d", pos, MaxPosition64)
	}
	key := uint32(pos >> 32)
	i, ok := slices.BinarySearch(v.keys, key)
	if !ok {
		v.keys = slices.Insert(v.keys, i, key)
		v.maps = slices.Insert(v.maps, i, roaring.New())
	}
	v.maps[i].Add(uint32(pos))
	return nil
}

// Or adds the positions of other, which is not changed.
func (v *Vector) Or(other *Vector) {
	for j, key := range other.keys {
		i, ok := slices.BinarySearch(v.keys, key)
		if !ok {
			v.keys = slices.Insert(v.keys, i, key)
			v.maps = slices.Insert(v.maps, i, other.maps[j].Clone())
			continue
		}
		v.maps[i].Or(other.maps[j])
	}
}

// Equal reports whether both hold the same positions.
func (v *Vector) Equal(other *Vector) bool {
	if !slices.Equal(v.keys, other.keys) {
		return false
	}
	for i, m := range v.maps {
		if !m.Equals(other.maps[i]) {
			return false
		}
	}
	return true
}

// AppendMap appends the bare portable 64-bit Roaring map: number of bitmaps, then
// per ascending key the key and a canonical 32-bit bitmap. Keys without positions
// are left out.
func (v *Vector) AppendMap(dst []byte) ([]byte, error) {
	return v.appendMap(dst, AppendBitmap)
}

func (v *Vector) appendMap(dst []byte, appendBitmap func([]byte, *roaring.Bitmap) ([]byte, error)) ([]byte, error) {
	out := binary.LittleEndian.AppendUint64(dst, uint64(len(v.keys)))
	for i, m := range v.maps {
		out = binary.LittleEndian.AppendUint32(out, v.keys[i])
		var err error
		if out, err = appendBitmap(out, m); err != nil {
			return dst, fmt.Errorf("key %d: %w", v.keys[i], err)
		}
	}
	return out, nil
}

// DecodeMap reads a bare portable 64-bit Roaring map. Keys must ascend and be at
// most 2^31 - 2; empty bitmaps, which Java writes for skipped keys, are accepted and
// dropped; bytes behind the last bitmap are refused. The vector reads from data, which
// must not change while the vector or a bitmap made from it is in use; changing the
// vector does not change data.
func DecodeMap(data []byte) (*Vector, error) {
	if len(data) < countSize {
		return nil, fmt.Errorf("%w: map of %d bytes, the smallest has %d", ErrCorrupt, len(data), countSize)
	}
	n := binary.LittleEndian.Uint64(data)
	rest := data[countSize:]
	if n > uint64(len(rest)/(keySize+minSetSize)) {
		return nil, fmt.Errorf("%w: %d bitmaps cannot fit into %d bytes", ErrCorrupt, n, len(rest))
	}
	v := &Vector{}
	prev := int64(-1)
	for range n {
		if len(rest) < keySize {
			return nil, fmt.Errorf("%w: map ends before the key that follows %d", ErrCorrupt, prev)
		}
		key := binary.LittleEndian.Uint32(rest)
		if key > maxKey {
			return nil, fmt.Errorf("%w: key %d, the highest possible is %d", ErrCorrupt, key, maxKey)
		}
		if int64(key) <= prev {
			return nil, fmt.Errorf("%w: key %d follows %d, keys must ascend", ErrCorrupt, key, prev)
		}
		prev = int64(key)
		m, left, err := viewPrefix(rest[keySize:])
		if err != nil {
			return nil, fmt.Errorf("key %d: %w", key, err)
		}
		rest = left
		if !m.IsEmpty() {
			v.keys = append(v.keys, key)
			v.maps = append(v.maps, m)
		}
	}
	if len(rest) != 0 {
		return nil, fmt.Errorf("%w: %d bytes follow the last bitmap", ErrCorrupt, len(rest))
	}
	return v, nil
}
