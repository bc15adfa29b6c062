package forward

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"

	"github.com/klauspost/compress/fse"
)

const (
	codingOne = iota
	codingRuns
	codingPacked
	codingFSE
)

// blockWriter codes blocks; it keeps what codings need between them.
type blockWriter struct {
	fse  fse.Scratch
	runs []byte
	pack []byte
}

// encode gives the smallest coding of a block of ordinals and the counts of each.
func (w *blockWriter) encode(src []byte, counts []uint32) (coding byte, payload []byte, err error) {
	var seen [256]uint32
	for _, o := range src {
		seen[o]++
	}
	symbols := 0
	for o := range counts {
		counts[o] = seen[o]
		if seen[o] > 0 {
			symbols++
		}
	}
	if symbols == 1 {
		return codingOne, src[:1], nil
	}
	w.runs = w.runs[:0]
	for i := 0; i < len(src) && len(w.runs) < len(src); {
		j := i + 1
		for j < len(src) && src[j] == src[i] {
			j++
		}
		w.runs = append(w.runs, src[i])
		w.runs = binary.AppendUvarint(w.runs, uint64(j-i))
		i = j
	}
	coding, payload = codingRuns, w.runs
	width := bits.Len(uint(symbols - 1))
	if size := 1 + symbols + (len(src)*width+7)/8; size < len(payload) || len(w.runs) >= len(src) {
		w.packBits(src, seen[:], symbols, width)
		coding, payload = codingPacked, w.pack
	}
	w.fse.TableLog = 12 // the largest: the finest shares of a byte
	out, err := fse.Compress(src, &w.fse)
	switch {
	case err == nil:
		if len(out) < len(payload) {
			coding, payload = codingFSE, out
		}
	case errors.Is(err, fse.ErrIncompressible), errors.Is(err, fse.ErrUseRLE):
	default:
		return 0, nil, fmt.Errorf("code a block of a forwarding map: %w", err)
	}
	return coding, payload, nil
}

func (w *blockWriter) packBits(src []byte, seen []uint32, symbols, width int) {
	w.pack = append(w.pack[:0], byte(symbols-1))
	var code [256]uint64
	n := uint64(0)
	for o := range seen {
		if seen[o] > 0 {
			code[o] = n
			n++
			w.pack = append(w.pack, byte(o))
		}
	}
	var acc uint64
	held := 0
	for _, o := range src {
		acc |= code[o] << held
		if held += width; held >= 32 {
			w.pack = binary.LittleEndian.AppendUint32(w.pack, uint32(acc))
			acc >>= 32
			held -= 32
		}
	}
	for ; held > 0; held -= 8 {
		w.pack = append(w.pack, byte(acc))
		acc >>= 8
	}
}

// decodeBlock gives the rows' ordinals; out has room for them all.
func decodeBlock(out []byte, coding byte, payload []byte, scratch *fse.Scratch) error {
	switch coding {
	case codingOne:
		if len(payload) != 1 {
			return fmt.Errorf("%w: a block of one ordinal has %d bytes", ErrCorrupt, len(payload))
		}
		for i := range out {
			out[i] = payload[0]
		}
	case codingRuns:
		at := 0
		for s := (scan{b: payload}); len(s.b) > 0; {
			o, n := s.u8(), s.uv()
			if s.bad || n == 0 || n > uint64(len(out)-at) {
				return fmt.Errorf("%w: runs of a block do not fill it", ErrCorrupt)
			}
			run := out[at : at+int(n)]
			for i := range run {
				run[i] = o
			}
			at += int(n)
		}
		if at != len(out) {
			return fmt.Errorf("%w: runs of a block fill %d of %d rows", ErrCorrupt, at, len(out))
		}
	case codingPacked:
		return unpackBits(out, payload)
	case codingFSE:
		scratch.DecompressLimit = len(out)
		got, err := fse.Decompress(payload, scratch)
		if err != nil {
			return fmt.Errorf("%w: entropy coding of a block", ErrCorrupt)
		}
		if len(got) != len(out) {
			return fmt.Errorf("%w: a block of %d rows has %d", ErrCorrupt, len(out), len(got))
		}
		copy(out, got)
	default:
		return fmt.Errorf("%w: unknown coding %d of a block", ErrCorrupt, coding)
	}
	return nil
}

func unpackBits(out, payload []byte) error {
	if len(payload) < 1 {
		return fmt.Errorf("%w: an empty packed block", ErrCorrupt)
	}
	n := int(payload[0]) + 1
	width := bits.Len(uint(n - 1))
	if n < 2 || len(payload) != 1+n+(len(out)*width+7)/8 {
		return fmt.Errorf("%w: a packed block of %d rows and %d ordinals has %d bytes", ErrCorrupt, len(out), n, len(payload))
	}
	symbols, packed := payload[1:1+n], payload[1+n:]
	var acc uint64
	held := 0
	mask := uint64(1)<<width - 1
	for i := range out {
		if held < width {
			if len(packed) >= 4 {
				acc |= uint64(binary.LittleEndian.Uint32(packed)) << held
				packed = packed[4:]
				held += 32
			} else {
				for ; len(packed) > 0 && held < width; packed = packed[1:] {
					acc |= uint64(packed[0]) << held
					held += 8
				}
			}
		}
		code := acc & mask
		if code >= uint64(n) {
			return fmt.Errorf("%w: ordinal %d of %d in a packed block", ErrCorrupt, code, n)
		}
		out[i] = symbols[code]
		acc >>= width
		held -= width
	}
	return nil
}
