package iceberg

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrCorrupt marks every error of a decoder of this package that is caused by
// the bytes it was given.
var ErrCorrupt = errors.New("corrupt")

func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrCorrupt}, args...)...)
}

func appendAvroLong(dst []byte, v int64) []byte {
	return binary.AppendUvarint(dst, uint64(v)<<1^uint64(v>>63))
}

func appendAvroBytes(dst, v []byte) []byte {
	return append(appendAvroLong(dst, int64(len(v))), v...)
}

func appendAvroString(dst []byte, v string) []byte {
	return append(appendAvroLong(dst, int64(len(v))), v...)
}

func appendAvroBool(dst []byte, v bool) []byte {
	if v {
		return append(dst, 1)
	}
	return append(dst, 0)
}

// Branches of a union ["null", T].
const (
	avroNull  = 0 // branch 0, zig-zag
	avroValue = 2 // branch 1, zig-zag
)

func appendAvroOptLong(dst []byte, v *int64) []byte {
	if v == nil {
		return append(dst, avroNull)
	}
	return appendAvroLong(append(dst, avroValue), *v)
}

func appendAvroOptBytes(dst, v []byte) []byte {
	if v == nil {
		return append(dst, avroNull)
	}
	return appendAvroBytes(append(dst, avroValue), v)
}

// avroReader reads Avro's binary encoding from a slice. Bytes that it returns
// alias the slice.
type avroReader struct {
	b   []byte
	off int
}

func (r *avroReader) left() int { return len(r.b) - r.off }

func (r *avroReader) long() (int64, error) {
	u, n := binary.Uvarint(r.b[r.off:])
	if n <= 0 {
		return 0, corrupt("ill-formed or cut number at byte %d", r.off)
	}
	r.off += n
	return int64(u>>1) ^ -int64(u&1), nil
}

func (r *avroReader) take(n int64) ([]byte, error) {
	if n < 0 || n > int64(r.left()) {
		return nil, corrupt("length %d at byte %d, where %d bytes are left", n, r.off, r.left())
	}
	v := r.b[r.off : r.off+int(n) : r.off+int(n)]
	r.off += int(n)
	return v, nil
}

func (r *avroReader) bytes() ([]byte, error) {
	n, err := r.long()
	if err != nil {
		return nil, err
	}
	return r.take(n)
}

func (r *avroReader) bool() (bool, error) {
	v, err := r.take(1)
	if err != nil {
		return false, err
	}
	if v[0] > 1 {
		return false, corrupt("boolean %d at byte %d", v[0], r.off-1)
	}
	return v[0] == 1, nil
}

// blocks calls each for every item of an array or map. Items must take at
// least one byte each, so that a count cannot ask for more work than there
// are bytes.
func (r *avroReader) blocks(each func() error) error {
	for {
		n, err := r.long()
		if err != nil {
			return err
		}
		if n == 0 {
			return nil
		}
		if n < 0 {
			if _, err := r.long(); err != nil { // the block's size in bytes
				return err
			}
			n = -n
		}
		if n < 0 || n > int64(r.left()) {
			return corrupt("%d items at byte %d, where %d bytes are left", n, r.off, r.left())
		}
		for ; n > 0; n-- {
			if err := each(); err != nil {
				return err
			}
		}
	}
}
