package ingest

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/varve-io/varve/schemas/rows"
)

// rank is a place and what it is sorted by.
type rank struct {
	by uint64
	at uint32
}

// sortRanks sorts b.ranks, stable.
func (b *buffer) sortRanks() {
	b.ranks, b.spare = radix(b.ranks, b.spare)
}

// radix sorts, stable, one byte a pass; bytes that all share are skipped. It
// takes room for as many and gives back the sorted and the other slice.
func radix(from, room []rank) (sorted, spare []rank) {
	if len(from) < 256 {
		slices.SortStableFunc(from, func(x, y rank) int { return cmp.Compare(x.by, y.by) })
		return from, room
	}
	if cap(room) < len(from) {
		room = make([]rank, len(from))
	}
	to := room[:len(from)]
	var or uint64
	and := ^uint64(0)
	for i := range from {
		or |= from[i].by
		and &= from[i].by
	}
	differs := or &^ and
	for shift := 0; shift < 64; shift += 8 {
		if differs>>shift&0xff == 0 {
			continue
		}
		var count [256]int
		for i := range from {
			count[from[i].by>>shift&0xff]++
		}
		sum := 0
		for i, c := range count {
			count[i] = sum
			sum += c
		}
		for i := range from {
			k := from[i].by >> shift & 0xff
			to[count[k]] = from[i]
			count[k]++
		}
		from, to = to, from
	}
	return from, to
}

// sortRows sorts rows of the buffer by their keys' bytes, which are distinct.
// Most keys differ in the eight bytes behind what all of them share.
func (b *buffer) sortRows(sel []uint32, key func(row uint32) []byte) {
	if len(sel) < 2 {
		return
	}
	shared := key(sel[0])
	for _, r := range sel[1:] {
		shared = shared[:sharedPrefix(shared, key(r))]
	}
	b.ranks = b.ranks[:0]
	for _, r := range sel {
		b.ranks = append(b.ranks, rank{rows.KeyHead(key(r)[len(shared):]), r})
	}
	b.sortRanks()
	for i := 0; i < len(b.ranks); {
		j := i + 1
		for j < len(b.ranks) && b.ranks[j].by == b.ranks[i].by {
			j++
		}
		if j > i+1 {
			slices.SortFunc(b.ranks[i:j], func(x, y rank) int { return bytes.Compare(key(x.at), key(y.at)) })
		}
		i = j
	}
	for i := range b.ranks {
		sel[i] = b.ranks[i].at
	}
}

func sharedPrefix(x, y []byte) int {
	n := min(len(x), len(y))
	for i := range n {
		if x[i] != y[i] {
			return i
		}
	}
	return n
}
