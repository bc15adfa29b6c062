package dv

import (
	"encoding/binary"
	"math/bits"
	"sort"
)

// Ranker answers how many positions of a set lie below another, straight from
// the set's bytes: it keeps twelve words a container of 2^16 positions and
// nothing a position. Calls with ascending positions go on from the one before.
// It must not be used from several goroutines.
type Ranker struct {
	cs    []container
	below []uint64 // positions before each container; one more: all
	// Where the last call stood, in container at.
	at    int
	unit  int // entry, word or run
	count int // positions of the container before that unit
}

// NewRanker checks a set completely and makes a Ranker on top of it. The bytes
// must not change while it is used.
func NewRanker(set []byte) (*Ranker, error) {
	var (
		cur cursor
		c   container
		r   Ranker
		sum uint64
	)
	if err := cur.init(set); err != nil {
		return nil, err
	}
	for {
		ok, err := cur.next(&c)
		if err != nil {
			return nil, err
		}
		if !ok {
			break
		}
		if _, err := c.check(); err != nil {
			return nil, err
		}
		r.cs = append(r.cs, c)
		r.below = append(r.below, sum)
		sum += uint64(c.card)
	}
	if err := cur.end(); err != nil {
		return nil, err
	}
	r.below = append(r.below, sum)
	return &r, nil
}

// Count is the number of positions in the set.
func (r *Ranker) Count() uint64 { return r.below[len(r.cs)] }

// Rank returns how many positions of the set are smaller than pos, and whether
// pos is one itself.
func (r *Ranker) Rank(pos uint32) (below uint64, in bool) {
	key, low := uint16(pos>>16), uint16(pos)
	if r.at >= len(r.cs) || r.cs[r.at].key != key {
		i := sort.Search(len(r.cs), func(i int) bool { return r.cs[i].key >= key })
		r.at, r.unit, r.count = i, 0, 0
		if i == len(r.cs) || r.cs[i].key != key {
			return r.below[i], false
		}
	}
	c, before := &r.cs[r.at], r.below[r.at]
	switch c.kind {
	case kindArray:
		at := r.unit * 2
		if at > 0 && binary.LittleEndian.Uint16(c.body[at-2:]) >= low {
			at = 0
		}
		// Far ahead is bisected, near is strided to.
		if far := at + 2048; far <= len(c.body) && binary.LittleEndian.Uint16(c.body[far-2:]) < low {
			at = 2 * sort.Search(len(c.body)/2, func(i int) bool { return u16(c.body, i) >= low })
		} else {
			at = lowerBound(c.body, at, low)
		}
		r.unit = at / 2
		return before + uint64(r.unit), at < len(c.body) && binary.LittleEndian.Uint16(c.body[at:]) == low
	case kindBitmap:
		word := int(low >> 6)
		if word < r.unit {
			r.unit, r.count = 0, 0
		}
		for ; r.unit < word; r.unit++ {
			r.count += bits.OnesCount64(u64(c.body, r.unit))
		}
		w := u64(c.body, word)
		n := r.count + bits.OnesCount64(w&(1<<(low&63)-1))
		return before + uint64(n), w>>(low&63)&1 == 1
	default:
		if r.unit > 0 && int(u16(c.body, 2*r.unit-2))+int(u16(c.body, 2*r.unit-1)) >= int(low) {
			r.unit, r.count = 0, 0
		}
		for n := len(c.body) / 4; r.unit < n; r.unit++ {
			first, more := int(u16(c.body, 2*r.unit)), int(u16(c.body, 2*r.unit+1))
			if int(low) <= first+more {
				inside := max(0, int(low)-first)
				return before + uint64(r.count+inside), int(low) >= first
			}
			r.count += more + 1
		}
		return before + uint64(c.card), false
	}
}
