package dv

import (
	"encoding/binary"
	"fmt"
	"math/bits"
)

// Constants of the portable Roaring format.
const (
	cookieNoRuns   = 12346
	cookieRuns     = 12347
	offsetsFrom    = 4       // with runs, the offset header exists from this many containers
	maxContainers  = 1 << 16 // a 32-bit set has 16-bit container keys
	maxArrayCard   = 4096    // above it a container without runs is a bitmap
	bitmapWords    = 1024
	bitmapSize     = 8 * bitmapWords
	containerRange = 1 << 16
	minSetSize     = 8 // the empty set
)

type kind uint8

const (
	kindArray kind = iota
	kindBitmap
	kindRun
)

// container is one 2^16 range of a serialized set, still in its serialized form.
type container struct {
	key  uint16
	kind kind
	card int    // 1..65536, as the descriptive header claims
	body []byte // without the run count of a run container
}

// words is a container as a plain bitmap: the form in which any two kinds combine.
type words [bitmapWords]uint64

func u16(b []byte, i int) uint16 { return binary.LittleEndian.Uint16(b[2*i:]) }
func u64(b []byte, i int) uint64 { return binary.LittleEndian.Uint64(b[8*i:]) }

// check verifies the content against the header and returns the number of maximal
// runs, which decides the canonical encoding.
func (c *container) check() (runs int, err error) {
	switch c.kind {
	case kindArray:
		return c.checkArray()
	case kindBitmap:
		card, runs := countBytes(c.body)
		return runs, c.checkCard(card)
	default:
		return c.checkRuns()
	}
}

// checkCard compares the positions that were counted with the header's number.
func (c *container) checkCard(card int) error {
	if card != c.card {
		return fmt.Errorf("%w: container %d holds %d positions, its header says %d", ErrCorrupt, c.key, card, c.card)
	}
	return nil
}

func (c *container) checkArray() (runs int, err error) {
	runs, ascending := countArray(c.body)
	if !ascending {
		return 0, fmt.Errorf("%w: array container %d is not ascending", ErrCorrupt, c.key)
	}
	return runs, nil
}

// countArray returns the number of maximal runs of serialized 16-bit values and
// whether they ascend strictly. Runs mean nothing when they do not.
//
// Four neighbours are compared at a time: each 32-bit lane holds 2^16 + next - this
// - 1, whose bit 16 says next > this, and whose low half is zero when the two touch.
func countArray(body []byte) (runs int, ascending bool) {
	const (
		low  = 0x0000ffff0000ffff
		high = 0x0001000000010000
		one  = 0x0000000100000001
	)
	if len(body) < 2 {
		return 0, true
	}
	ordered, breaks := uint64(high), uint64(0)
	for len(body) >= 10 {
		this := binary.LittleEndian.Uint64(body)
		next := binary.LittleEndian.Uint64(body[2:10])
		even := (next&low | high) - this&low - one
		odd := (next>>16&low | high) - this>>16&low - one
		ordered &= even & odd
		breaks += ((even&low+low)&high + (odd&low+low)&high) >> 16
		body = body[8:]
	}
	runs = 1 + int(breaks&0xffffffff+breaks>>32)
	ascending = ordered&high == high
	this := int(binary.LittleEndian.Uint16(body))
	for body = body[2:]; len(body) >= 2; body = body[2:] {
		next := int(binary.LittleEndian.Uint16(body))
		if next <= this {
			ascending = false
		}
		if next != this+1 {
			runs++
		}
		this = next
	}
	return runs, ascending
}

func (c *container) checkRuns() (runs int, err error) {
	prevEnd, card := -2, 0 // prevEnd is inclusive
	for i := 0; i < len(c.body)/4; i++ {
		start := int(u16(c.body, 2*i))
		end := start + int(u16(c.body, 2*i+1))
		if start <= prevEnd {
			return 0, fmt.Errorf("%w: run container %d: run %d starts inside or before the one before it", ErrCorrupt, c.key, i)
		}
		if end >= containerRange {
			return 0, fmt.Errorf("%w: run container %d: run %d leaves the container", ErrCorrupt, c.key, i)
		}
		// The format asks for sorted, disjoint runs, not for maximal ones: touching
		// runs of another writer are one run here.
		if start != prevEnd+1 {
			runs++
		}
		card += end - start + 1
		prevEnd = end
	}
	return runs, c.checkCard(card)
}

// max returns the container's largest value; the content must have been checked.
func (c *container) max() uint16 {
	switch c.kind {
	case kindArray:
		return u16(c.body, c.card-1)
	case kindBitmap:
		for i := bitmapWords - 1; i >= 0; i-- {
			if w := u64(c.body, i); w != 0 {
				return uint16(64*i + 63 - bits.LeadingZeros64(w))
			}
		}
		return 0
	default:
		last := len(c.body)/4 - 1
		return u16(c.body, 2*last) + u16(c.body, 2*last+1)
	}
}

// addTo sets the container's positions in w.
func (c *container) addTo(w *words) {
	switch c.kind {
	case kindArray:
		for body := c.body; len(body) >= 2; body = body[2:] {
			v := binary.LittleEndian.Uint16(body)
			w[v>>6] |= 1 << (v & 63)
		}
	case kindBitmap:
		for i := range w {
			w[i] |= u64(c.body, i)
		}
	default:
		for i := 0; i < len(c.body)/4; i++ {
			start := int(u16(c.body, 2*i))
			w.setRange(start, start+int(u16(c.body, 2*i+1)))
		}
	}
}

// removeFrom clears the container's positions in w.
func (c *container) removeFrom(w *words) {
	switch c.kind {
	case kindArray:
		for body := c.body; len(body) >= 2; body = body[2:] {
			v := binary.LittleEndian.Uint16(body)
			w[v>>6] &^= 1 << (v & 63)
		}
	case kindBitmap:
		for i := range w {
			w[i] &^= u64(c.body, i)
		}
	default:
		for i := 0; i < len(c.body)/4; i++ {
			start := int(u16(c.body, 2*i))
			w.clearRange(start, start+int(u16(c.body, 2*i+1)))
		}
	}
}

// setRange sets first..last, both inclusive and below 2^16.
func (w *words) setRange(first, last int) {
	lo, hi := first>>6, last>>6
	head := ^uint64(0) << (first & 63)
	tail := ^uint64(0) >> (63 - last&63)
	if lo == hi {
		w[lo] |= head & tail
		return
	}
	w[lo] |= head
	for i := lo + 1; i < hi; i++ {
		w[i] = ^uint64(0)
	}
	w[hi] |= tail
}

// clearRange clears first..last, both inclusive and below 2^16.
func (w *words) clearRange(first, last int) {
	lo, hi := first>>6, last>>6
	head := ^uint64(0) << (first & 63)
	tail := ^uint64(0) >> (63 - last&63)
	if lo == hi {
		w[lo] &^= head & tail
		return
	}
	w[lo] &^= head
	for i := lo + 1; i < hi; i++ {
		w[i] = 0
	}
	w[hi] &^= tail
}

// count returns the number of positions and of maximal runs.
func (w *words) count() (card, runs int) {
	carry := uint64(0)
	for i := range w {
		x := w[i]
		card += bits.OnesCount64(x)
		runs += bits.OnesCount64(x &^ (x<<1 | carry)) // bits whose predecessor is unset start a run
		carry = x >> 63
	}
	return card, runs
}

// countBytes is words.count on a serialized bitmap container, except that it stops
// counting runs where their number no longer matters (see manyRuns).
func countBytes(body []byte) (card, runs int) {
	carry := uint64(0)
	for len(body) >= 8 && runs < manyRuns {
		x := binary.LittleEndian.Uint64(body)
		body = body[8:]
		card += bits.OnesCount64(x)
		runs += bits.OnesCount64(x &^ (x<<1 | carry))
		carry = x >> 63
	}
	for len(body) >= 8 {
		card += bits.OnesCount64(binary.LittleEndian.Uint64(body))
		body = body[8:]
	}
	return card, runs
}

// manyRuns is a number of runs at which no container is best kept as runs: they take
// more bytes than a bitmap, and than an array of at most maxArrayCard.
const manyRuns = (bitmapSize-2)/4 + 1

// canonicalKind is the encoding of fewest bytes; a tie goes to the one without runs,
// which is also what Java's runOptimize keeps.
func canonicalKind(card, runs int) kind {
	plain, size := kindArray, 2*card
	if card > maxArrayCard {
		plain, size = kindBitmap, bitmapSize
	}
	if 2+4*runs < size {
		return kindRun
	}
	return plain
}
