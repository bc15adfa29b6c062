package predicate

import (
	"cmp"

	"github.com/varve-io/varve/schemas/rows"
)

// May says whether some row of a row group may match, by what its statistics
// say of the column of Fields()[i]; false of ok: they say nothing.
func (p *Predicate) May(bounds func(i int) (b rows.Bounds, ok bool)) bool { return p.root.may(bounds) }

func (n *node) may(bounds func(int) (rows.Bounds, bool)) bool {
	if n.kids != nil {
		for i := range n.kids {
			if n.kids[i].may(bounds) == n.or {
				return n.or
			}
		}
		return !n.or
	}
	b, ok := bounds(n.col)
	if !ok {
		return true
	}
	if n.op == isNull {
		if n.not {
			return b.Nulls < b.Rows
		}
		return b.Nulls > 0
	}
	if b.Nulls == b.Rows {
		return false // unknown of every row
	}
	v := &n.values
	switch storage := rows.StorageOf(v.typ); {
	case !b.Has:
		return true
	case storage == rows.Ints:
		return overlaps(n, v.ints, b.IntLow, b.IntHigh, cmp.Compare[int64])
	case storage == rows.Floats:
		// A NaN lies in no bounds, and only != and NOT are true of it.
		return n.not || n.op == notEqual || overlaps(n, v.floats, b.FloatLow, b.FloatHigh, cmp.Compare[float64])
	}
	return overlaps(n, v.bytes, b.Low, b.High, v.compare)
}

// overlaps says whether a value that passes the test may lie from lo to hi.
func overlaps[T any](n *node, vs []T, lo, hi T, compare func(a, b T) int) bool {
	o := n.op
	if n.not {
		switch o {
		case equal:
			o = notEqual
		case notEqual:
			o = equal
		case less:
			o = greaterEqual
		case lessEqual:
			o = greater
		case greater:
			o = lessEqual
		case greaterEqual:
			o = less
		default:
			return true
		}
	}
	switch o {
	case equal, in:
		for _, v := range vs {
			if compare(lo, v) <= 0 && compare(v, hi) <= 0 {
				return true
			}
		}
		return false
	case notEqual:
		return compare(lo, hi) != 0 || compare(lo, vs[0]) != 0
	case less:
		return compare(lo, vs[0]) < 0
	case lessEqual:
		return compare(lo, vs[0]) <= 0
	case greater:
		return compare(hi, vs[0]) > 0
	}
	return compare(hi, vs[0]) >= 0
}
