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
		if card != c.card {
			return 0, fmt.Errorf("%w: bitmap container %d holds %d positions, its header says %d", ErrCorrupt, c.key, card, c.card)
		}
		return runs, nil
	default:
		return c.checkRuns()
	}
}

func (c *container) checkArray() (runs int, err error) {
	body := c.body
	prev, breaks, falls := int(-2), 0, 0
	for len(body) >= 2 {
		v := int(binary.LittleEndian.Uint16(body))
		body = body[2:]
		gap := v - prev
		// Branch-free: both counts come from sign bits.
		breaks += int(uint(1-gap) >> (bits.UintSize - 1))
		falls += int(uint(gap-1) >> (bits.UintSize - 1))
		prev = v
	}
	if falls != 0 {
		return 0, fmt.Errorf("%w: array container %d is not ascending", ErrCorrupt, c.key)
	}
	return breaks, nil
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
	if card != c.card {
		return 0, fmt.Errorf("%w: run container %d holds %d positions, its header says %d", ErrCorrupt, c.key, card, c.card)
	}
	return runs, nil
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
	for _, x := range w {
		card += bits.OnesCount64(x)
		runs += bits.OnesCount64(x &^ (x<<1 | carry)) // bits whose predecessor is unset start a run
		carry = x >> 63
	}
	return card, runs
}

// countBytes is words.count on a serialized bitmap container.
func countBytes(body []byte) (card, runs int) {
	carry := uint64(0)
	for len(body) >= 8 {
		x := binary.LittleEndian.Uint64(body)
		body = body[8:]
		card += bits.OnesCount64(x)
		runs += bits.OnesCount64(x &^ (x<<1 | carry))
		carry = x >> 63
	}
	return card, runs
}

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
