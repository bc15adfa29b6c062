package rows

import (
	"encoding/binary"
	"fmt"
	"math"
)

// readDelta appends what DELTA_BINARY_PACKED holds, and returns what lies behind
// it. At most limit values are taken; width is that of the physical type, by
// which sums wrap.
func readDelta(out []int64, b []byte, limit, width int) (_ []int64, rest []byte, err error) {
	short := func() ([]int64, []byte, error) { return out, nil, errShortValues }
	var head [3]uint64 // values of a block, miniblocks of a block, values
	for i := range head {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			return short()
		}
		head[i], b = v, b[n:]
	}
	block, minis, total := head[0], head[1], head[2]
	first, n := binary.Varint(b)
	if n <= 0 || total > uint64(limit) {
		return short()
	}
	b = b[n:]
	if total == 0 {
		return out, b, nil
	}
	if block == 0 || block > 1<<24 || minis == 0 || minis > block || block%minis != 0 || block/minis%8 != 0 {
		return out, nil, fmt.Errorf("a delta block is ill-formed: %w", ErrBadFile)
	}
	mini := int(block / minis)
	wrap := func(v int64) int64 {
		if width == 32 {
			return int64(int32(v))
		}
		return v
	}
	last := wrap(first)
	out = append(out, last)
	for left := int(total) - 1; left > 0; {
		least, n := binary.Varint(b)
		if n <= 0 || uint64(len(b)-n) < minis {
			return short()
		}
		widths := b[n:][:minis]
		b = b[n+int(minis):]
		for _, w := range widths {
			if left == 0 {
				break
			}
			if w > 64 {
				return out, nil, fmt.Errorf("deltas of %d bits: %w", w, ErrBadFile)
			}
			size := mini / 8 * int(w)
			count := min(mini, left)
			// The last miniblock's padding may be cut off.
			if len(b) < size {
				if left > mini || len(b)*8 < count*int(w) {
					return short()
				}
				size = len(b)
			}
			at := len(out)
			out = grown(out, count)
			unpackDeltas(out[at:], b[:size], int(w))
			for i, d := range out[at:] {
				last = wrap(last + least + d)
				out[at+i] = last
			}
			b = b[size:]
			left -= count
		}
	}
	return out, b, nil
}

// unpackDeltas reads numbers of width bits that lie one after another.
func unpackDeltas(out []int64, b []byte, width int) {
	i, pos := 0, 0
	if width <= 56 {
		mask := uint64(1)<<width - 1
		for ; i < len(out) && pos/8+8 <= len(b); i++ {
			out[i] = int64(binary.LittleEndian.Uint64(b[pos/8:]) >> (pos % 8) & mask)
			pos += width
		}
	}
	for ; i < len(out); i++ {
		out[i] = int64(bitsAt(b, pos, width))
		pos += width
	}
}

// bitsAt reads width ≤ 64 bits at a bit position.
func bitsAt(b []byte, pos, width int) (v uint64) {
	for got := 0; got < width; {
		at := pos + got
		take := min(8-at%8, width-got)
		v |= uint64(b[at/8]>>(at%8)&(1<<take-1)) << got
		got += take
	}
	return v
}

// deltaLengths appends n values of DELTA_LENGTH_BYTE_ARRAY.
func (r *chunkReader) deltaLengths(b []byte, n int) error {
	lengths, rest, err := readDelta(nil, b, n, 32)
	if err != nil {
		return err
	}
	if len(lengths) < n {
		return errShortValues
	}
	for _, size := range lengths[:n] {
		if size < 0 || size > int64(len(rest)) {
			return errShortValues
		}
		if err := r.appendBytes(r.dst, rest[:size]); err != nil {
			return err
		}
		rest = rest[size:]
	}
	return nil
}

// deltaStrings appends n values of DELTA_BYTE_ARRAY: each begins with so many
// bytes of the one before.
func (r *chunkReader) deltaStrings(b []byte, n int) error {
	prefixes, rest, err := readDelta(nil, b, n, 32)
	if err != nil {
		return err
	}
	lengths, rest, err := readDelta(nil, rest, n, 32)
	if err != nil {
		return err
	}
	if len(prefixes) < n || len(lengths) < n {
		return errShortValues
	}
	var value []byte
	total := int64(len(r.dst.Data))
	for i := range n {
		p, size := prefixes[i], lengths[i]
		if p < 0 || p > int64(len(value)) || size < 0 || size > int64(len(rest)) {
			return errShortValues
		}
		if total += p + size; total > math.MaxUint32 {
			return errLargeColumn
		}
		value = append(value[:p], rest[:size]...)
		rest = rest[size:]
		if r.leaf.phys == physFixed && len(value) != int(r.leaf.length) {
			return fmt.Errorf("a value of %d bytes in a fixed of %d: %w", len(value), r.leaf.length, ErrBadFile)
		}
		if err := r.appendBytes(r.dst, value); err != nil {
			return err
		}
	}
	return nil
}

// joinStreams undoes BYTE_STREAM_SPLIT: byte j of value i lies at j*n+i.
func joinStreams(b []byte, n, width int) ([]byte, error) {
	if n > 0 && len(b)/width != n {
		return nil, errShortValues
	}
	out := make([]byte, n*width)
	for j := range width {
		for i := range n {
			out[i*width+j] = b[j*n+i]
		}
	}
	return out, nil
}
