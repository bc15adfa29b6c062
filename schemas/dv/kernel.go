package dv

import (
	"encoding/binary"
	"fmt"
)

// union appends x ∪ y, containers of one key.
func (b *builder) union(x, y *container) error {
	if x.kind == kindArray && y.kind == kindArray && x.card+y.card <= maxArrayCard {
		return b.unionArrays(x, y)
	}
	return b.unionWords(x, y)
}

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

func (b *builder) unionWords(x, y *container) error {
	if _, err := x.check(); err != nil {
		return err
	}
	if _, err := y.check(); err != nil {
		return err
	}
	var w words
	x.addTo(&w)
	y.addTo(&w)
	b.words(x.key, &w)
	return nil
}

// unionArrays merges two arrays whose union is an array or less. An input that is
// not ascending shows as an output that is not.
func (b *builder) unionArrays(x, y *container) error {
	at := len(b.dst)
	dst := b.dst
	p, q := x.body, y.body
	prev, runs := -2, 0
	for len(p) >= 2 || len(q) >= 2 {
		const none = containerRange
		v, w := none, none
		if len(p) >= 2 {
			v = int(binary.LittleEndian.Uint16(p))
		}
		if len(q) >= 2 {
			w = int(binary.LittleEndian.Uint16(q))
		}
		least := min(v, w)
		if v == least {
			p = p[2:]
		}
		if w == least {
			q = q[2:]
		}
		if least <= prev {
			b.dst = b.dst[:at]
			return fmt.Errorf("%w: array container %d is not ascending", ErrCorrupt, x.key)
		}
		if least != prev+1 {
			runs++
		}
		prev = least
		dst = binary.LittleEndian.AppendUint16(dst, uint16(least))
	}
	b.dst = dst
	b.array(x.key, at, runs)
	return nil
}

// minus appends x without y, containers of one key.
func (b *builder) minus(x, y *container) error {
	if _, err := x.check(); err != nil {
		return err
	}
	if _, err := y.check(); err != nil {
		return err
	}
	if x.kind == kindArray && y.kind != kindRun {
		b.minusArray(x, y)
		return nil
	}
	var w words
	x.addTo(&w)
	y.removeFrom(&w)
	b.words(x.key, &w)
	return nil
}

// minusArray filters a checked array by a checked array or bitmap.
func (b *builder) minusArray(x, y *container) {
	at := len(b.dst)
	dst := b.dst
	other := y.body
	prev, runs := -2, 0
	for body := x.body; len(body) >= 2; body = body[2:] {
		v := binary.LittleEndian.Uint16(body)
		if y.kind == kindBitmap {
			if other[v>>3]&(1<<(v&7)) != 0 {
				continue
			}
		} else {
			for len(other) >= 2 && binary.LittleEndian.Uint16(other) < v {
				other = other[2:]
			}
			if len(other) >= 2 && binary.LittleEndian.Uint16(other) == v {
				continue
			}
		}
		if int(v) != prev+1 {
			runs++
		}
		prev = int(v)
		dst = binary.LittleEndian.AppendUint16(dst, v)
	}
	b.dst = dst
	b.array(x.key, at, runs)
}
