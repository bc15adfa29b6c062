package dv

import (
	"encoding/binary"
	"math/bits"
	"sync"
)

// fewPositions bounds the sets that unionFew unites.
const fewPositions = 256

// What precedes the values of a set of one container that is an array.
const (
	oneArrayHead = 16                   // cookie, 1, key and cardinality, offset
	oneArrayFrom = cookieNoRuns | 1<<32 // the first eight bytes
)

// inspectOneArray is Inspect of a canonical set of one array container, as most are
// that single flushes delete from one file; ok is false for any others, and for
// those whose bytes are wrong.
func inspectOneArray(set []byte) (s Stat, ok bool) {
	if len(set) < oneArrayHead+2 || binary.LittleEndian.Uint64(set) != oneArrayFrom || binary.LittleEndian.Uint32(set[12:]) != oneArrayHead {
		return s, false
	}
	body, card := set[oneArrayHead:], int(binary.LittleEndian.Uint16(set[10:]))+1
	if len(body) != 2*card || card > maxArrayCard {
		return s, false
	}
	runs, ascending := countArray(body)
	if !ascending || canonicalKind(card, runs) != kindArray {
		return s, false
	}
	high, low := binary.LittleEndian.Uint16(set[8:]), binary.LittleEndian.Uint16(body[len(body)-2:])
	return Stat{Count: uint64(card), Max: uint32(high)<<16 | uint32(low), Canonical: true}, true
}

// unionFew is UnionAll of sets of a few positions within 2^16 of each other, as
// those are that single flushes delete from one file; ok is false for any others,
// and for those whose bytes are wrong.
func unionFew(dst []byte, sets [][]byte) (out []byte, ok bool) {
	const header = oneArrayHead
	sum := 0
	for i, set := range sets {
		if i == 0 {
			if len(set) < header+2 || binary.LittleEndian.Uint64(set) != cookieNoRuns|1<<32 {
				return dst, false
			}
		} else if len(set) < header+2 || [8]byte(set) != [8]byte(sets[0]) || [2]byte(set[8:]) != [2]byte(sets[0][8:]) {
			return dst, false
		}
		body := set[header:]
		sum += len(body) / 2
		if binary.LittleEndian.Uint32(set[12:]) != header || len(body) != 2*int(binary.LittleEndian.Uint16(set[10:]))+2 || sum > fewPositions {
			return dst, false
		}
		if _, ascending := countArray(body); !ascending {
			return dst, false
		}
	}
	if len(sets) == 0 {
		return dst, false
	}
	n := len(dst)
	out = append(dst, sets[0][:header]...)
	at := n + header
	if len(sets) == 1 {
		out = append(out, sets[0][header:]...)
	} else {
		out = extend(out, 2*sum)
		out = out[:at+uniteSorted(out[at:], sets, header)]
	}
	card := (len(out) - at) / 2
	binary.LittleEndian.PutUint16(out[n+10:], uint16(card-1))
	if runs, _ := countArray(out[at:]); canonicalKind(card, runs) != kindArray {
		return dst, false
	}
	return out, true
}

// uniteSorted writes the values behind the headers of sets to out, each once and
// ascending, and returns how many bytes that took. A bit for each value, one for each
// word of those, and one for each word of these: then nothing is compared, and what
// is empty is passed by.
func uniteSorted(out []byte, sets [][]byte, header int) int {
	m := allMarks.Get().(*marks)
	values, full, top := &m.values, &m.full, uint16(0)
	for _, set := range sets {
		for body := set[header:]; len(body) >= 2; body = body[2:] {
			v := binary.LittleEndian.Uint16(body)
			values[v>>6] |= 1 << (v & 63)
			full[v>>12] |= 1 << (v >> 6 & 63)
			top |= 1 << (v >> 12)
		}
	}
	k := 0
	for ; top != 0; top &= top - 1 {
		i := bits.TrailingZeros16(top) & 15
		for some := full[i]; some != 0; some &= some - 1 {
			word := (64*i + bits.TrailingZeros64(some)) & (bitmapWords - 1)
			base := uint16(64 * word)
			for x := values[word]; x != 0; x &= x - 1 {
				binary.LittleEndian.PutUint16(out[k:], base+uint16(bits.TrailingZeros64(x)))
				k += 2
			}
			values[word] = 0
		}
		full[i] = 0
	}
	allMarks.Put(m)
	return k
}

// marks are what uniteSorted works with, all zero between its calls: to clear them
// takes longer than a union of few.
type marks struct {
	values words
	full   [bitmapWords / 64]uint64
}

var allMarks = sync.Pool{New: func() any { return new(marks) }}
