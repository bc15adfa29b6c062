package rows

import (
	"encoding/binary"
	"errors"
	"math/bits"

	"github.com/klauspost/compress/huff0"
)

// Plain strings of one length (identifiers, hexadecimal, codes) are where a
// general compressor spends most and gains least: every value lies behind a
// length that repeats, so it finds a match in each, and little else. Here the
// match is known beforehand: the zstd frame says "so many literals, then 4 bytes
// as they were a value ago" for every value, in sequences that take a bit or two
// each, and the values themselves go through Huffman coding alone. Any zstd
// decoder reads it.
//
//	raw block         what lies before the first value, and its length
//	compressed block  the first value; the offset of the match is given here
//	compressed blocks the others; the offset is the one before
const (
	evenMin       = 4 << 10 // bytes of values from which it is tried
	evenMaxLength = 255
	zstdBlockMax  = 128 << 10
)

// evenLength is the one length that all of a page's plain values have; ok is
// false where they differ, or are too short, too long or too few.
func evenLength(plain []byte) (length int, ok bool) {
	if len(plain) < evenMin {
		return 0, false
	}
	first := binary.LittleEndian.Uint32(plain)
	if first < 4 || first > evenMaxLength {
		return 0, false
	}
	step := levelPrefixBytes + int(first)
	if len(plain)%step != 0 {
		return 0, false
	}
	for at := step; at < len(plain); at += step {
		if binary.LittleEndian.Uint32(plain[at:]) != first {
			return 0, false
		}
	}
	return int(first), true
}

// evenCoder writes such frames.
type evenCoder struct {
	literals []byte
	huff     huff0.Scratch
}

// encode appends a frame of raw, whose bytes behind head are values of a length.
func (e *evenCoder) encode(dst, raw []byte, head, length int) []byte {
	step := levelPrefixBytes + length
	n := (len(raw) - head) / step
	dst = append(dst, 0x28, 0xB5, 0x2F, 0xFD)
	// One segment, no checksum, the content's size in 4 bytes.
	dst = append(dst, 2<<6|1<<5)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(raw)))
	head += levelPrefixBytes
	dst = appendBlockHeader(dst, false, 0, head)
	dst = append(dst, raw[:head]...)
	values := raw[head:]
	for at, rows := 0, 1; at < n; rows = zstdBlockMax / step {
		rows = min(rows, n-at)
		lits := e.literals[:0]
		for i := at; i < at+rows; i++ {
			lits = append(lits, values[i*step:i*step+length]...)
		}
		e.literals = lits
		last := at+rows == n
		matches := rows
		if last {
			matches-- // no length lies behind the last value
		}
		start := len(dst)
		dst = appendBlockHeader(dst, last, 2, 0)
		dst = e.appendLiterals(dst, lits)
		dst = appendEvenMatches(dst, matches, length, at == 0)
		size := len(dst) - start - 3
		appendBlockHeader(dst[:start], last, 2, size)
		at += rows
	}
	return dst
}

func appendBlockHeader(dst []byte, last bool, kind, size int) []byte {
	h := uint32(kind)<<1 | uint32(size)<<3
	if last {
		h |= 1
	}
	return append(dst, byte(h), byte(h>>8), byte(h>>16))
}

func (e *evenCoder) appendLiterals(dst, lits []byte) []byte {
	e.huff.Reuse = huff0.ReusePolicyNone
	n := uint64(len(lits))
	var packed []byte
	err := error(huff0.ErrIncompressible)
	if n >= 64 {
		packed, _, err = huff0.Compress4X(lits, &e.huff)
	}
	switch {
	case errors.Is(err, huff0.ErrUseRLE):
		return append(appendPlainLiteralsHeader(dst, 1, n), lits[0])
	case err != nil:
		return append(appendPlainLiteralsHeader(dst, 0, n), lits...)
	}
	size := uint64(len(packed))
	var h uint64
	var width int
	switch {
	case n < 1<<10 && size < 1<<10:
		h, width = 2|1<<2|n<<4|size<<14, 3
	case n < 1<<14 && size < 1<<14:
		h, width = 2|2<<2|n<<4|size<<18, 4
	default:
		h, width = 2|3<<2|n<<4|size<<22, 5
	}
	for range width {
		dst = append(dst, byte(h))
		h >>= 8
	}
	return append(dst, packed...)
}

func appendPlainLiteralsHeader(dst []byte, kind, n uint64) []byte {
	switch {
	case n < 1<<5:
		return append(dst, byte(kind|n<<3))
	case n < 1<<12:
		h := kind | 1<<2 | n<<4
		return append(dst, byte(h), byte(h>>8))
	}
	h := kind | 3<<2 | n<<4
	return append(dst, byte(h), byte(h>>8), byte(h>>16))
}

// appendEvenMatches writes n sequences: length literals, then a match of 4 bytes
// at the distance of a value, which is given or the one before.
func appendEvenMatches(dst []byte, n, length int, given bool) []byte {
	switch {
	case n == 0:
		return append(dst, 0)
	case n < 128:
		dst = append(dst, byte(n))
	case n < 0x7F00:
		dst = append(dst, byte(n>>8)+128, byte(n))
	default:
		dst = append(dst, 255, byte(n-0x7F00), byte((n-0x7F00)>>8))
	}
	const everyTheSame = 1 // one symbol for all sequences
	dst = append(dst, everyTheSame<<6|everyTheSame<<4|everyTheSame<<2)
	code, extra, extraBits := literalLengthCode(uint32(length))
	offset := uint32(1) // the offset before
	if given {
		offset = uint32(levelPrefixBytes+length) + 3
	}
	offsetBits := bits.Len32(offset) - 1
	const matchOf4 = 1
	dst = append(dst, code, byte(offsetBits), matchOf4)
	// Read backwards: the offset's bits, then the literal length's.
	var acc uint64
	have := 0
	for range n {
		acc |= uint64(extra) << have
		have += extraBits
		acc |= uint64(offset&(1<<offsetBits-1)) << have
		have += offsetBits
		for have >= 8 {
			dst = append(dst, byte(acc))
			acc >>= 8
			have -= 8
		}
	}
	return append(dst, byte(acc)|1<<have)
}

// literalLengthCode is zstd's code of a literal length up to evenMaxLength.
func literalLengthCode(n uint32) (code byte, extra uint32, extraBits int) {
	if n < 16 {
		return byte(n), 0, 0
	}
	starts := [...]struct {
		from uint32
		bits int
	}{{16, 1}, {18, 1}, {20, 1}, {22, 1}, {24, 2}, {28, 2}, {32, 3}, {40, 3}, {48, 4}, {64, 6}, {128, 7}}
	i := len(starts) - 1
	for starts[i].from > n {
		i--
	}
	return byte(16 + i), n - starts[i].from, starts[i].bits
}
