package dv

import (
	"encoding/binary"
	"math/bits"
)

// fewPositions bounds the sets that unionFew unites.
const fewPositions = 256

// unionFew is UnionAll of sets of a few positions within 2^16 of each other, as
// those are that single flushes delete from one file; ok is false for any others,
// and for those whose bytes are wrong.
func unionFew(dst []byte, sets [][]byte) (out []byte, ok bool) {
	const header = 16 // cookie, 1, key and cardinality, offset
	var room [2][fewPositions]uint16
	union, next := &room[0], &room[1]
	card := 0
	for i, set := range sets {
		if i == 0 {
			if len(set) < header+2 || binary.LittleEndian.Uint64(set) != cookieNoRuns|1<<32 {
				return dst, false
			}
		} else if len(set) < header+2 || [8]byte(set) != [8]byte(sets[0]) || [2]byte(set[8:]) != [2]byte(sets[0][8:]) {
			return dst, false
		}
		body := set[header:]
		if binary.LittleEndian.Uint32(set[12:]) != header || len(body) != 2*int(binary.LittleEndian.Uint16(set[10:]))+2 ||
			len(body)/2 > fewPositions-card {
			return dst, false
		}
		if _, ascending := countArray(body); !ascending {
			return dst, false
		}
		// Each step writes one value and goes on where it came from, without a branch
		// on the data.
		p, q, k := 0, 0, 0
		for p < card && q < len(body) {
			v, w := int(union[p]), int(binary.LittleEndian.Uint16(body[q:]))
			next[k] = uint16(min(v, w))
			k++
			p += 1 &^ int(uint(w-v)>>(bits.UintSize-1))       // v ≤ w
			q += 2 &^ (2 * int(uint(v-w)>>(bits.UintSize-1))) // w ≤ v
		}
		k += copy(next[k:], union[p:card])
		for ; q < len(body); q += 2 {
			next[k] = binary.LittleEndian.Uint16(body[q:])
			k++
		}
		card = k
		union, next = next, union
	}
	if card == 0 {
		return dst, false
	}
	n := len(dst)
	out = append(dst, sets[0][:header]...)
	binary.LittleEndian.PutUint16(out[n+10:], uint16(card-1))
	for _, v := range union[:card] {
		out = binary.LittleEndian.AppendUint16(out, v)
	}
	if runs, _ := countArray(out[n+header:]); canonicalKind(card, runs) != kindArray {
		return dst, false
	}
	return out, true
}
