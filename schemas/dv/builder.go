package dv

import (
	"encoding/binary"
	"math/bits"
	"slices"
)

type containerMeta struct {
	key   uint16
	card1 uint16 // cardinality - 1
	run   bool
	size  uint32
}

// builder appends one canonical set to dst. Containers arrive in ascending key
// order; their bodies are written behind room for the header that is expected, and
// moved once where it turns out to have another size.
type builder struct {
	dst   []byte
	start int
	body  int
	metas []containerMeta
	room  [32]containerMeta
}

func headerSize(n int, runs bool) int {
	if !runs {
		return 8 + 8*n
	}
	size := 4 + (n+7)/8 + 4*n
	if n >= offsetsFrom {
		size += 4 * n
	}
	return size
}

// init prepares for about n containers, some of them runs or none, whose bodies take
// about sizeHint bytes. Both numbers must follow from input that is there, not from
// what its header claims.
func (b *builder) init(dst []byte, n int, runs bool, sizeHint int) {
	room := headerSize(n, runs)
	b.start = len(dst)
	b.body = b.start + room
	b.metas = b.room[:0]
	if n > len(b.room) {
		b.metas = make([]containerMeta, 0, n)
	}
	b.dst = slices.Grow(dst, room+sizeHint)[:b.body]
}

func (b *builder) meta(key uint16, card int, k kind, bodyStart int) {
	b.metas = append(b.metas, containerMeta{
		key: key, card1: uint16(card - 1), run: k == kindRun, size: uint32(len(b.dst) - bodyStart),
	})
}

// copy checks c and appends it in canonical form.
func (b *builder) copy(c *container) error {
	runs, err := c.check()
	if err != nil {
		return err
	}
	k := canonicalKind(c.card, runs)
	at := len(b.dst)
	switch {
	case k == c.kind && k != kindRun:
		b.dst = append(b.dst, c.body...)
	case k == c.kind && runs == len(c.body)/4:
		b.dst = binary.LittleEndian.AppendUint16(b.dst, uint16(runs))
		b.dst = append(b.dst, c.body...)
	default:
		var w words
		c.addTo(&w)
		b.appendWords(&w, k, runs)
	}
	b.meta(c.key, c.card, k, at)
	return nil
}

// words appends w, or nothing when it is empty.
func (b *builder) words(key uint16, w *words) {
	card, runs := w.count()
	if card == 0 {
		return
	}
	k := canonicalKind(card, runs)
	at := len(b.dst)
	b.appendWords(w, k, runs)
	b.meta(key, card, k, at)
}

// array ends an array container whose values have been appended since at: it is
// kept, turned into runs where they are smaller, or dropped when empty.
func (b *builder) array(key uint16, at, runs int) {
	card := (len(b.dst) - at) / 2
	if card == 0 {
		return
	}
	k := canonicalKind(card, runs)
	if k == kindRun {
		values := b.dst[at:]
		b.dst = appendArrayRuns(b.dst, values, runs)
		b.drop(at, len(values))
	}
	b.meta(key, card, k, at)
}

// runs ends a run container whose pairs have been appended since at, behind two bytes
// for their number: it is kept, turned into what is smaller, or dropped when empty.
func (b *builder) runs(key uint16, at, card int) {
	body := b.dst[at+2:]
	runs := len(body) / 4
	if runs == 0 {
		b.dst = b.dst[:at]
		return
	}
	k := canonicalKind(card, runs)
	switch k {
	case kindRun:
		binary.LittleEndian.PutUint16(b.dst[at:], uint16(runs))
	case kindArray:
		for i := range runs {
			v := u16(body, 2*i)
			b.dst = binary.LittleEndian.AppendUint16(b.dst, v)
			for range u16(body, 2*i+1) {
				v++
				b.dst = binary.LittleEndian.AppendUint16(b.dst, v)
			}
		}
		b.drop(at, 2+len(body))
	default:
		var w words
		c := container{kind: kindRun, body: body}
		c.addTo(&w)
		b.dst = b.dst[:at]
		b.appendWords(&w, k, runs)
	}
	b.meta(key, card, k, at)
}

// drop removes n bytes at at and moves down what follows.
func (b *builder) drop(at, n int) {
	b.dst = b.dst[:at+copy(b.dst[at:], b.dst[at+n:])]
}

func appendArrayRuns(dst, values []byte, runs int) []byte {
	dst = binary.LittleEndian.AppendUint16(dst, uint16(runs))
	for i, n := 0, len(values)/2; i < n; {
		first := u16(values, i)
		last := first
		for i++; i < n && int(u16(values, i)) == int(last)+1; i++ {
			last++
		}
		dst = binary.LittleEndian.AppendUint16(dst, first)
		dst = binary.LittleEndian.AppendUint16(dst, last-first)
	}
	return dst
}

func (b *builder) appendWords(w *words, k kind, runs int) {
	dst := b.dst
	switch k {
	case kindArray:
		for i, x := range w {
			for base := uint16(64 * i); x != 0; x &= x - 1 {
				dst = binary.LittleEndian.AppendUint16(dst, base+uint16(bits.TrailingZeros64(x)))
			}
		}
	case kindBitmap:
		dst = extend(dst, bitmapSize)
		out := dst[len(dst)-bitmapSize:]
		for i := range w {
			binary.LittleEndian.PutUint64(out[8*i:8*i+8], w[i])
		}
	default:
		dst = binary.LittleEndian.AppendUint16(dst, uint16(runs))
		for at := 0; at < containerRange; {
			first := w.nextSet(at)
			if first == containerRange {
				break
			}
			end := w.nextClear(first)
			dst = binary.LittleEndian.AppendUint16(dst, uint16(first))
			dst = binary.LittleEndian.AppendUint16(dst, uint16(end-1-first))
			at = end
		}
	}
	b.dst = dst
}

// extend makes b longer by n bytes of any content.
func extend(b []byte, n int) []byte {
	return slices.Grow(b, n)[:len(b)+n]
}

// nextSet returns the first set position at or after at, or 2^16.
func (w *words) nextSet(at int) int {
	for i := at >> 6; i < bitmapWords; i++ {
		x := w[i]
		if i == at>>6 {
			x &= ^uint64(0) << (at & 63)
		}
		if x != 0 {
			return 64*i + bits.TrailingZeros64(x)
		}
	}
	return containerRange
}

// nextClear returns the first unset position at or after at, or 2^16.
func (w *words) nextClear(at int) int {
	for i := at >> 6; i < bitmapWords; i++ {
		x := ^w[i]
		if i == at>>6 {
			x &= ^uint64(0) << (at & 63)
		}
		if x != 0 {
			return 64*i + bits.TrailingZeros64(x)
		}
	}
	return containerRange
}

// finish writes the header and returns dst with the whole set appended.
func (b *builder) finish() []byte {
	n, hasRuns := len(b.metas), false
	for i := range b.metas {
		hasRuns = hasRuns || b.metas[i].run
	}
	size := headerSize(n, hasRuns)
	if more := b.start + size - b.body; more > 0 {
		b.dst = extend(b.dst, more)
		copy(b.dst[b.body+more:], b.dst[b.body:])
	} else if more < 0 {
		b.dst = b.dst[:b.body+more+copy(b.dst[b.body+more:], b.dst[b.body:])]
	}
	head := b.dst[b.start : b.start+size]
	clear(head)
	at := 8
	if hasRuns {
		binary.LittleEndian.PutUint32(head, cookieRuns|uint32(n-1)<<16)
		for i := range b.metas {
			if b.metas[i].run {
				head[4+i/8] |= 1 << (i % 8)
			}
		}
		at = 4 + (n+7)/8
	} else {
		binary.LittleEndian.PutUint32(head, cookieNoRuns)
		binary.LittleEndian.PutUint32(head[4:], uint32(n))
	}
	for i := range b.metas {
		binary.LittleEndian.PutUint16(head[at:], b.metas[i].key)
		binary.LittleEndian.PutUint16(head[at+2:], b.metas[i].card1)
		at += 4
	}
	if !hasRuns || n >= offsetsFrom {
		offset := uint32(size)
		for i := range b.metas {
			binary.LittleEndian.PutUint32(head[at:], offset)
			at += 4
			offset += b.metas[i].size
		}
	}
	return b.dst
}
