package dv

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrCorrupt marks bytes that are no valid deletion vector or position set.
var ErrCorrupt = errors.New("corrupt deletion vector")

// cursor walks the containers of one serialized 32-bit set without allocating. It
// checks the frame (cookie, key order, lengths, offset header); the content of a
// container is checked by container.check.
type cursor struct {
	data    []byte
	n, i    int    // containers in all, and read so far
	runBits []byte // nil when the set has no run container
	desc    []byte // 4 bytes a container: key, cardinality - 1
	offsets []byte // 4 bytes a container, or nil
	pos     int    // where the next container starts
	prevKey int
}

// init reads the headers of the set at the beginning of data.
func (c *cursor) init(data []byte) error {
	*c = cursor{data: data, prevKey: -1}
	if len(data) < minSetSize {
		return fmt.Errorf("%w: a position set needs at least %d bytes, got %d", ErrCorrupt, minSetSize, len(data))
	}
	cookie := binary.LittleEndian.Uint32(data)
	switch {
	case cookie == cookieNoRuns:
		n := binary.LittleEndian.Uint32(data[4:])
		if n > maxContainers {
			return fmt.Errorf("%w: %d containers, at most %d are possible", ErrCorrupt, n, maxContainers)
		}
		c.n, c.pos = int(n), 8
	case cookie&0xffff == cookieRuns:
		c.n = int(cookie>>16) + 1
		size := (c.n + 7) / 8
		if len(data)-4 < size {
			return c.short("run flags")
		}
		c.runBits, c.pos = data[4:4+size], 4+size
	default:
		return fmt.Errorf("%w: cookie %#08x is not Roaring's", ErrCorrupt, cookie)
	}
	if len(data)-c.pos < 4*c.n {
		return c.short("descriptive header")
	}
	c.desc = data[c.pos : c.pos+4*c.n]
	c.pos += 4 * c.n
	if c.runBits == nil || c.n >= offsetsFrom {
		if len(data)-c.pos < 4*c.n {
			return c.short("offset header")
		}
		c.offsets = data[c.pos : c.pos+4*c.n]
		c.pos += 4 * c.n
	}
	return nil
}

func (c *cursor) short(what string) error {
	return fmt.Errorf("%w: %d bytes end within the %s of a set of %d containers", ErrCorrupt, len(c.data), what, c.n)
}

// next reads the next container; ok is false behind the last one.
func (c *cursor) next(out *container) (ok bool, err error) {
	if c.i == c.n {
		return false, nil
	}
	out.key = u16(c.desc, 2*c.i)
	out.card = int(u16(c.desc, 2*c.i+1)) + 1
	if int(out.key) <= c.prevKey {
		return false, fmt.Errorf("%w: container key %d follows %d, keys must ascend", ErrCorrupt, out.key, c.prevKey)
	}
	if c.offsets != nil {
		if at := binary.LittleEndian.Uint32(c.offsets[4*c.i:]); int64(at) != int64(c.pos) {
			return false, fmt.Errorf("%w: container %d begins at byte %d, the offset header says %d", ErrCorrupt, out.key, c.pos, at)
		}
	}
	size := bitmapSize
	switch {
	case c.runBits != nil && c.runBits[c.i/8]&(1<<(c.i%8)) != 0:
		if len(c.data)-c.pos < 2 {
			return false, c.short("containers")
		}
		out.kind = kindRun
		size = 4 * int(binary.LittleEndian.Uint16(c.data[c.pos:]))
		c.pos += 2
	case out.card <= maxArrayCard:
		out.kind, size = kindArray, 2*out.card
	default:
		out.kind = kindBitmap
	}
	if len(c.data)-c.pos < size {
		return false, c.short("containers")
	}
	out.body = c.data[c.pos : c.pos+size]
	c.pos += size
	c.prevKey = int(out.key)
	c.i++
	return true, nil
}

// unionKeys counts the different keys of two sets whose cursors are fresh.
func unionKeys(a, b *cursor) int {
	n, i, j := 0, 0, 0
	for i < a.n && j < b.n {
		x, y := u16(a.desc, 2*i), u16(b.desc, 2*j)
		if x <= y {
			i++
		}
		if y <= x {
			j++
		}
		n++
	}
	return n + a.n - i + b.n - j
}

// end reports bytes that follow the last container.
func (c *cursor) end() error {
	if c.pos != len(c.data) {
		return errTrailing(len(c.data) - c.pos)
	}
	return nil
}

func errTrailing(n int) error {
	return fmt.Errorf("%w: %d bytes follow the last container", ErrCorrupt, n)
}
