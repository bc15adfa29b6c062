package dv

import (
	"encoding/binary"
	"fmt"
	"math/bits"
)

// maxIntervals is up to how many runs and single positions two containers combine as
// intervals; above it plain words are faster.
const maxIntervals = 1024

// intervals is the number of runs of a run container, or of positions of an array.
func (c *container) intervals() int {
	if c.kind == kindRun {
		return len(c.body) / 4
	}
	return c.card
}

// unionGroup appends the union of containers of one key.
func (b *builder) unionGroup(group []container) error {
	switch len(group) {
	case 1:
		return b.copy(&group[0])
	case 2:
		return b.union(&group[0], &group[1])
	}
	var w words
	for i := range group {
		if _, err := group[i].check(); err != nil {
			return err
		}
		group[i].addTo(&w)
	}
	b.words(group[0].key, &w)
	return nil
}

// union appends x ∪ y, containers of one key.
func (b *builder) union(x, y *container) error {
	if y.kind == kindBitmap {
		x, y = y, x
	}
	switch {
	case x.kind == kindBitmap && y.kind == kindBitmap:
		return b.bitmaps(x, y, 0)
	case x.kind == kindBitmap && y.kind == kindArray:
		return b.bitmapArray(x, y, true)
	case x.kind == kindArray && y.kind == kindArray && x.card+y.card <= maxArrayCard:
		return b.unionArrays(x, y)
	}
	if err := checkBoth(x, y); err != nil {
		return err
	}
	if x.card == containerRange {
		return b.copy(x)
	}
	if y.card == containerRange {
		return b.copy(y)
	}
	if x.kind != kindBitmap && x.intervals()+y.intervals() <= maxIntervals {
		b.unionIntervals(x, y)
		return nil
	}
	var w words
	x.addTo(&w)
	y.addTo(&w)
	b.words(x.key, &w)
	return nil
}

// minus appends x without y, containers of one key.
func (b *builder) minus(x, y *container) error {
	switch {
	case x.kind == kindBitmap && y.kind == kindBitmap:
		return b.bitmaps(x, y, ^uint64(0))
	case x.kind == kindBitmap && y.kind == kindArray:
		return b.bitmapArray(x, y, false)
	}
	runs, err := x.check()
	if err != nil {
		return err
	}
	if _, err := y.check(); err != nil {
		return err
	}
	switch {
	case x.kind == kindArray:
		b.minusArray(x, y, runs)
	case x.kind == kindRun && y.kind != kindBitmap && x.intervals()+y.intervals() <= maxIntervals:
		b.minusIntervals(x, y)
	default:
		var w words
		x.addTo(&w)
		y.removeFrom(&w)
		b.words(x.key, &w)
	}
	return nil
}

func checkBoth(x, y *container) error {
	if _, err := x.check(); err != nil {
		return err
	}
	_, err := y.check()
	return err
}

// unionArrays merges two arrays whose union is an array or less. Both inputs are
// subsequences of the output: it ascends only if they do.
func (b *builder) unionArrays(x, y *container) error {
	at := len(b.dst)
	b.dst = extend(b.dst, len(x.body)+len(y.body))
	out, p, q := b.dst[at:], x.body, y.body
	if len(p) < len(q) {
		p, q = q, p
	}
	var k int
	if len(p) >= unionByBlocks*len(q) {
		k = unionBlocks(out, p, q)
	} else {
		k = unionMerge(out, p, q, merge{})
	}
	runs, ascending := countArray(out[:k])
	if !ascending {
		return fmt.Errorf("%w: array container %d is not ascending", ErrCorrupt, x.key)
	}
	b.dst = b.dst[:at+k]
	b.array(x.key, at, runs)
	return nil
}

// minusArray appends a checked array of so many runs without the values of a checked
// container.
func (b *builder) minusArray(x, y *container, runs int) {
	at := len(b.dst)
	b.dst = extend(b.dst, len(x.body))
	out, p, q := b.dst[at:], x.body, y.body
	var k int
	switch {
	case y.kind == kindArray && len(p) >= minusByBlocks*len(q):
		k = minusBlocks(out, p, q)
	case y.kind == kindArray && len(q) >= skew*len(p):
		k = minusSearch(out, p, q)
	default:
		var w words
		y.addTo(&w)
		k = minusWords(out, p, &w)
	}
	b.dst = b.dst[:at+k]
	// Each value that went took one run at most with it: most arrays need no second
	// count to be known as arrays.
	runs -= (len(p) - k) / 2
	if canonicalKind(k/2, runs) == kindRun {
		runs, _ = countArray(out[:k])
	}
	b.array(x.key, at, runs)
}

// bitmaps appends x ∪ y, or x without y when flip is all ones: x op (y ^ flip), with
// De Morgan for the difference, in one pass that also checks both cardinalities.
func (b *builder) bitmaps(x, y *container, flip uint64) error {
	at := len(b.dst)
	b.dst = extend(b.dst, bitmapSize)
	out, p, q := b.dst[at:at+bitmapSize], x.body[:bitmapSize], y.body[:bitmapSize]
	cardX, cardY, card, runs, carry := 0, 0, 0, 0, uint64(0)
	i := 0
	for ; i <= bitmapSize-8 && runs < manyRuns; i += 8 {
		v := binary.LittleEndian.Uint64(p[i : i+8])
		w := binary.LittleEndian.Uint64(q[i : i+8])
		z := (v ^ flip | w) ^ flip
		binary.LittleEndian.PutUint64(out[i:i+8], z)
		cardX += bits.OnesCount64(v)
		cardY += bits.OnesCount64(w)
		card += bits.OnesCount64(z)
		runs += bits.OnesCount64(z &^ (z<<1 | carry))
		carry = z >> 63
	}
	for ; i <= bitmapSize-8; i += 8 {
		v := binary.LittleEndian.Uint64(p[i : i+8])
		w := binary.LittleEndian.Uint64(q[i : i+8])
		z := (v ^ flip | w) ^ flip
		binary.LittleEndian.PutUint64(out[i:i+8], z)
		cardX += bits.OnesCount64(v)
		cardY += bits.OnesCount64(w)
		card += bits.OnesCount64(z)
	}
	if err := x.checkCard(cardX); err != nil {
		return err
	}
	if err := y.checkCard(cardY); err != nil {
		return err
	}
	b.bitmap(x.key, at, card, runs)
	return nil
}

// bitmapArray appends a bitmap with the positions of an array set or cleared.
func (b *builder) bitmapArray(x, y *container, set bool) error {
	if _, err := y.check(); err != nil {
		return err
	}
	at := len(b.dst)
	b.dst = append(b.dst, x.body...)
	out := b.dst[at : at+bitmapSize]
	hits := 0 // positions of y that x has
	for body := y.body; len(body) >= 2; body = body[2:] {
		v := binary.LittleEndian.Uint16(body)
		old := out[v>>3]
		bit := byte(1) << (v & 7)
		hits += int(old >> (v & 7) & 1)
		if set {
			out[v>>3] = old | bit
		} else {
			out[v>>3] = old &^ bit
		}
	}
	// x's cardinality follows from the result's.
	card, runs := countBytes(out)
	before := card + hits
	if set {
		before = card - (y.card - hits)
	}
	if err := x.checkCard(before); err != nil {
		return err
	}
	b.bitmap(x.key, at, card, runs)
	return nil
}

// bitmap ends a container whose words have been appended since at.
func (b *builder) bitmap(key uint16, at, card, runs int) {
	if card == 0 {
		b.dst = b.dst[:at]
		return
	}
	k := canonicalKind(card, runs)
	if k != kindBitmap {
		var w words
		c := container{kind: kindBitmap, body: b.dst[at:]}
		c.addTo(&w)
		b.dst = b.dst[:at]
		b.appendWords(&w, k, runs)
	}
	b.meta(key, card, k, at)
}

// interval iterates over a checked array or run container.
type interval struct {
	rest        []byte
	array       bool
	first, last int
}

// past is where an exhausted iterator stands: behind every position.
const past = 2 * containerRange

func (c *container) iterate() interval {
	it := interval{rest: c.body, array: c.kind == kindArray}
	it.next()
	return it
}

func (it *interval) next() {
	switch {
	case len(it.rest) < 2:
		it.first, it.last = past, past
	case it.array:
		it.first = int(binary.LittleEndian.Uint16(it.rest))
		it.last = it.first
		it.rest = it.rest[2:]
	default:
		it.first = int(binary.LittleEndian.Uint16(it.rest))
		it.last = it.first + int(binary.LittleEndian.Uint16(it.rest[2:]))
		it.rest = it.rest[4:]
	}
}

// runWriter appends ascending intervals as runs and joins those that touch or overlap.
type runWriter struct {
	dst         []byte
	first, last int
	card        int
}

func (b *builder) beginRuns() runWriter {
	return runWriter{dst: append(b.dst, 0, 0), first: 0, last: -2}
}

func (r *runWriter) add(first, last int) {
	if first <= r.last+1 {
		r.last = max(r.last, last)
		return
	}
	r.flush()
	r.first, r.last = first, last
}

func (r *runWriter) flush() {
	if r.last < 0 {
		return
	}
	r.dst = binary.LittleEndian.AppendUint16(r.dst, uint16(r.first))
	r.dst = binary.LittleEndian.AppendUint16(r.dst, uint16(r.last-r.first))
	r.card += r.last - r.first + 1
}

func (b *builder) endRuns(key uint16, r *runWriter) {
	at := len(b.dst)
	r.flush()
	b.dst = r.dst
	b.runs(key, at, r.card)
}

func (b *builder) unionIntervals(x, y *container) {
	r := b.beginRuns()
	p, q := x.iterate(), y.iterate()
	for p.first != past || q.first != past {
		if p.first <= q.first {
			r.add(p.first, p.last)
			p.next()
		} else {
			r.add(q.first, q.last)
			q.next()
		}
	}
	b.endRuns(x.key, &r)
}

func (b *builder) minusIntervals(x, y *container) {
	r := b.beginRuns()
	q := y.iterate()
	for p := x.iterate(); p.first != past; p.next() {
		from := p.first
		for from <= p.last {
			switch {
			case q.last < from:
				q.next()
			case q.first > p.last:
				r.add(from, p.last)
				from = p.last + 1
			default:
				if q.first > from {
					r.add(from, q.first-1)
				}
				from = q.last + 1
			}
		}
	}
	b.endRuns(x.key, &r)
}
