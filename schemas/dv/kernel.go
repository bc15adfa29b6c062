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
	if err := checkBoth(x, y); err != nil {
		return err
	}
	switch {
	case x.kind == kindArray && y.kind == kindArray && (x.card >= skew*y.card || y.card >= skew*x.card):
		b.minusArrays(x, y)
	case x.kind == kindArray:
		b.minusArray(x, y)
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
	switch {
	case len(p) >= skew*len(q):
		k = unionSkewed(out, p, q)
	case len(q) >= mergeInTwo:
		k = unionInTwo(out, p, q)
	default:
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

// unionSkewed searches the places of the few values of q in p. out has room for both.
func unionSkewed(out, p, q []byte) int {
	i, k := 0, 0
	for j := 0; j < len(q); j += 2 {
		v := binary.LittleEndian.Uint16(q[j:])
		to := lowerBound(p, i, v)
		k += copyNear(out[k:], p[i:], to-i)
		binary.LittleEndian.PutUint16(out[k:], v)
		k += 2
		if i = to; i < len(p) && binary.LittleEndian.Uint16(p[i:]) == v {
			i += 2
		}
	}
	return k + copy(out[k:], p[i:])
}

// near is how many bytes copyNear moves at once.
const near = 64

// copyNear copies the first n bytes of src, and where there is room some more:
// a copy of one size for all needs no branch that a processor guesses wrong.
func copyNear(dst, src []byte, n int) int {
	if n <= near && len(src) >= near && len(dst) >= near {
		*(*[near]byte)(dst) = *(*[near]byte)(src)
		return n
	}
	return copy(dst, src[:n])
}

// merge is where a merge of two arrays stands, in bytes: read of both, written.
type merge struct{ i, j, k int }

// unionMerge ends a merge. Each step writes one value and goes on in the array, or
// both, that it came from, without a branch on the data.
func unionMerge(out, p, q []byte, m merge) int {
	i, j, k := m.i, m.j, m.k
	for i < len(p)-1 && j < len(q)-1 {
		v := int(binary.LittleEndian.Uint16(p[i:]))
		w := int(binary.LittleEndian.Uint16(q[j:]))
		binary.LittleEndian.PutUint16(out[k:], uint16(min(v, w)))
		k += 2
		i += 2 &^ (2 * int(uint(w-v)>>(bits.UintSize-1))) // v ≤ w
		j += 2 &^ (2 * int(uint(v-w)>>(bits.UintSize-1))) // w ≤ v
	}
	k += copy(out[k:], p[i:])
	return k + copy(out[k:], q[j:])
}

// mergeInTwo is from how many bytes of the shorter array on a merge is done in two.
const mergeInTwo = 128

// unionInTwo merges what is below a value in the middle and what is not side by side:
// a step waits for the one before it, and so two of them wait at once.
func unionInTwo(out, p, q []byte) int {
	mid := len(p) / 4 * 2
	cut := lowerBound(q, 0, binary.LittleEndian.Uint16(p[mid:]))
	p1, q1, p2, q2 := p[:mid], q[:cut], p[mid:], q[cut:]
	out2 := out[mid+cut:]
	var m, n merge
	for m.i < len(p1)-1 && m.j < len(q1)-1 && n.i < len(p2)-1 && n.j < len(q2)-1 {
		v, w := int(binary.LittleEndian.Uint16(p1[m.i:])), int(binary.LittleEndian.Uint16(q1[m.j:]))
		v2, w2 := int(binary.LittleEndian.Uint16(p2[n.i:])), int(binary.LittleEndian.Uint16(q2[n.j:]))
		binary.LittleEndian.PutUint16(out[m.k:], uint16(min(v, w)))
		binary.LittleEndian.PutUint16(out2[n.k:], uint16(min(v2, w2)))
		m.k += 2
		n.k += 2
		m.i += 2 &^ (2 * int(uint(w-v)>>(bits.UintSize-1)))
		n.i += 2 &^ (2 * int(uint(w2-v2)>>(bits.UintSize-1)))
		m.j += 2 &^ (2 * int(uint(v-w)>>(bits.UintSize-1)))
		n.j += 2 &^ (2 * int(uint(v2-w2)>>(bits.UintSize-1)))
	}
	k := unionMerge(out, p1, q1, m)
	k2 := unionMerge(out2, p2, q2, n)
	return k + copy(out[k:], out2[:k2])
}

// skew is how many times longer one array must be before the shorter one's values
// are searched in it.
const skew = 8

// lowerBound returns the byte index of the first value of ascending array that is at
// least v, from byte index from on. It strides, then bisects without a branch on the
// data: neighbouring searches are a few values apart.
func lowerBound(array []byte, from int, v uint16) int {
	const stride = 64
	for from+stride <= len(array) && binary.LittleEndian.Uint16(array[from+stride-2:]) < v {
		from += stride
	}
	n := min(len(array)-from, stride) / 2
	for n > 0 {
		half := n / 2
		step := 2 * (n - half)
		less := int(uint(int(binary.LittleEndian.Uint16(array[from+step-2:]))-int(v)) >> (bits.UintSize - 1))
		from += step & -less
		n = half
	}
	return from
}

// minusArrays appends a checked array without the values of a checked array that is
// much shorter or much longer.
func (b *builder) minusArrays(x, y *container) {
	at := len(b.dst)
	b.dst = extend(b.dst, len(x.body))
	out, p, q := b.dst[at:], x.body, y.body
	i, j, k := 0, 0, 0
	if len(p) > len(q) {
		for ; j < len(q); j += 2 {
			v := binary.LittleEndian.Uint16(q[j:])
			to := lowerBound(p, i, v)
			k += copyNear(out[k:], p[i:], to-i)
			if i = to; i < len(p) && binary.LittleEndian.Uint16(p[i:]) == v {
				i += 2
			}
		}
		k += copy(out[k:], p[i:])
	} else {
		for ; i < len(p); i += 2 {
			v := binary.LittleEndian.Uint16(p[i:])
			j = lowerBound(q, j, v)
			if j == len(q) || binary.LittleEndian.Uint16(q[j:]) != v {
				binary.LittleEndian.PutUint16(out[k:], v)
				k += 2
			}
		}
	}
	runs, _ := countArray(out[:k])
	b.dst = b.dst[:at+k]
	b.array(x.key, at, runs)
}

// minusArray filters a checked array by a checked container.
func (b *builder) minusArray(x, y *container) {
	var w words
	dead := y.body
	if y.kind != kindBitmap {
		y.addTo(&w)
		dead = nil
	}
	at := len(b.dst)
	b.dst = extend(b.dst, len(x.body))
	out, k := b.dst[at:], 0
	for body := x.body; len(body) >= 2; body = body[2:] {
		v := binary.LittleEndian.Uint16(body)
		var drop uint64
		if dead != nil {
			drop = uint64(dead[v>>3]) >> (v & 7) & 1
		} else {
			drop = w[v>>6] >> (v & 63) & 1
		}
		binary.LittleEndian.PutUint16(out[k:], v)
		k += 2 - 2*int(drop)
	}
	runs, _ := countArray(out[:k])
	b.dst = b.dst[:at+k]
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
