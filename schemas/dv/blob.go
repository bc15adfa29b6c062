package dv

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"

	"github.com/RoaringBitmap/roaring/v2"
)

// BlobType is the Puffin blob type of a deletion vector.
const BlobType = "deletion-vector-v1"

// ErrEmpty is returned for a vector without positions: such a vector is never
// published (V1), its data file simply has no vector.
var ErrEmpty = errors.New("deletion vector without positions: publish no vector for this file")

const (
	lengthSize = 4
	magicSize  = 4
	crcSize    = 4
	countSize  = 8
	keySize    = 4
	frameSize  = lengthSize + magicSize + crcSize
	// maxKey is the highest key that Java's reader accepts: 2^31 - 2.
	maxKey = math.MaxInt32 - 1
)

var magic = [magicSize]byte{0xd1, 0xd3, 0x39, 0x64}

// AppendBlob appends the blob of b, whose positions are rows of one data file. b is
// not changed. An empty b is refused with ErrEmpty.
func AppendBlob(dst []byte, b *roaring.Bitmap) ([]byte, error) {
	if b.IsEmpty() {
		return dst, ErrEmpty
	}
	out, frame := beginBlob(dst)
	out = binary.LittleEndian.AppendUint64(out, 1)
	out = binary.LittleEndian.AppendUint32(out, 0)
	out, err := AppendBitmap(out, b)
	if err != nil {
		return dst, err
	}
	return endBlob(dst, out, frame)
}

// AppendBlobFromSet appends the blob of a position set as the state stores it, and
// returns the number of positions. An empty set is refused with ErrEmpty.
func AppendBlobFromSet(dst, set []byte) (blob []byte, count uint64, err error) {
	count, err = Count(set)
	if err != nil {
		return dst, 0, err
	}
	if count == 0 {
		return dst, 0, ErrEmpty
	}
	out, frame := beginBlob(dst)
	out = binary.LittleEndian.AppendUint64(out, 1)
	out = binary.LittleEndian.AppendUint32(out, 0)
	if out, err = Canonical(out, set); err != nil {
		return dst, 0, err
	}
	out, err = endBlob(dst, out, frame)
	return out, count, err
}

// AppendBlob appends the vector's blob. An empty vector is refused with ErrEmpty.
func (v *Vector) AppendBlob(dst []byte) ([]byte, error) {
	if v.IsEmpty() {
		return dst, ErrEmpty
	}
	return v.appendBlob(dst)
}

func (v *Vector) appendBlob(dst []byte) ([]byte, error) {
	out, frame := beginBlob(dst)
	out, err := v.AppendMap(out)
	if err != nil {
		return dst, err
	}
	return endBlob(dst, out, frame)
}

// beginBlob leaves room for the length and writes the magic; frame is where the
// blob begins.
func beginBlob(dst []byte) (out []byte, frame int) {
	frame = len(dst)
	out = append(dst, 0, 0, 0, 0)
	return append(out, magic[:]...), frame
}

func endBlob(dst, out []byte, frame int) ([]byte, error) {
	covered := out[frame+lengthSize:]
	// Java reads the length as a signed integer.
	if int64(len(covered)) > math.MaxInt32-frameSize {
		return dst, fmt.Errorf("deletion vector of %d bytes: a blob holds at most %d", len(covered), math.MaxInt32-frameSize)
	}
	binary.BigEndian.PutUint32(out[frame:], uint32(len(covered)))
	return binary.BigEndian.AppendUint32(out, crc32.ChecksumIEEE(covered)), nil
}

// Decode reads a whole blob of any writer: exact length, magic, CRC, ascending keys
// of at most 2^31 - 2, nothing behind the last bitmap. An empty vector is accepted:
// other writers publish it. The vector reads from blob, which must not change while
// the vector or a bitmap made from it is in use; changing the vector does not change
// blob.
func Decode(blob []byte) (*Vector, error) {
	payload, err := openBlob(blob)
	if err != nil {
		return nil, err
	}
	return DecodeMap(payload)
}

// openBlob checks the frame and returns the bare map inside.
func openBlob(blob []byte) ([]byte, error) {
	if len(blob) < frameSize+countSize {
		return nil, fmt.Errorf("%w: blob of %d bytes, the smallest has %d", ErrCorrupt, len(blob), frameSize+countSize)
	}
	length := binary.BigEndian.Uint32(blob)
	if uint64(length) != uint64(len(blob)-lengthSize-crcSize) {
		return nil, fmt.Errorf("%w: blob of %d bytes says that magic and vector have %d, want %d", ErrCorrupt, len(blob), length, len(blob)-lengthSize-crcSize)
	}
	covered := blob[lengthSize : len(blob)-crcSize]
	if [magicSize]byte(covered) != magic {
		return nil, fmt.Errorf("%w: magic % x, want % x", ErrCorrupt, covered[:magicSize], magic)
	}
	want := binary.BigEndian.Uint32(blob[len(blob)-crcSize:])
	if got := crc32.ChecksumIEEE(covered); got != want {
		return nil, fmt.Errorf("%w: CRC-32 %08x, the blob says %08x", ErrCorrupt, got, want)
	}
	return covered[magicSize:], nil
}
