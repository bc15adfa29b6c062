package predicate

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/rows"
)

// Truth values: AND is the smaller, OR the larger, NOT what is left of holds.
const (
	fails   = 0
	unknown = 1
	holds   = 2
)

// Evaluator evaluates a predicate. It must not be used from several goroutines.
type Evaluator struct {
	p    *Predicate
	free [][]uint8
}

// Evaluator makes one.
func (p *Predicate) Evaluator() *Evaluator { return &Evaluator{p: p} }

// Matches appends which of the first n rows match. part gives the column of
// Fields()[i].
func (e *Evaluator) Matches(dst []uint32, part func(i int) *rows.Part, n int) []uint32 {
	truth := e.room(n)
	e.eval(&e.p.root, truth, part)
	for i, t := range truth {
		if t == holds {
			dst = append(dst, uint32(i))
		}
	}
	e.free = append(e.free, truth)
	return dst
}

func (e *Evaluator) room(n int) []uint8 {
	if k := len(e.free); k > 0 {
		b := e.free[k-1]
		e.free = e.free[:k-1]
		if cap(b) >= n {
			return b[:n]
		}
	}
	return make([]uint8, n)
}

func (e *Evaluator) eval(n *node, out []uint8, part func(int) *rows.Part) {
	if n.kids == nil {
		n.test(out, part(n.col))
		return
	}
	e.eval(&n.kids[0], out, part)
	one := e.room(len(out))
	for i := range n.kids[1:] {
		e.eval(&n.kids[i+1], one, part)
		for k, t := range one {
			if n.or {
				out[k] = max(out[k], t)
			} else {
				out[k] = min(out[k], t)
			}
		}
	}
	e.free = append(e.free, one)
}

// test evaluates a test of a column.
func (n *node) test(out []uint8, p *rows.Part) {
	if n.op == isNull {
		for i := range out {
			out[i] = truth(p.IsNull(i) != n.not)
		}
		return
	}
	switch v := &n.values; rows.StorageOf(v.typ) {
	case rows.Ints:
		for i, x := range p.Ints()[:len(out)] {
			out[i] = truth(compare(n.op, x, v.ints) != n.not)
		}
	case rows.Floats:
		for i, x := range p.Floats()[:len(out)] {
			out[i] = truth(compare(n.op, x, v.floats) != n.not)
		}
	default:
		for i := range out {
			if !p.IsNull(i) {
				out[i] = truth(v.bytesPass(n.op, p.BytesAt(i)) != n.not)
			}
		}
	}
	if p.HasNulls() {
		for i := range out {
			if p.IsNull(i) {
				out[i] = unknown
			}
		}
	}
}

func truth(b bool) uint8 {
	if b {
		return holds
	}
	return fails
}

// compare compares by the operators of the language: what a NaN is to them, it
// is here.
func compare[T int64 | float64](o op, x T, vs []T) bool {
	switch o {
	case equal:
		return x == vs[0]
	case notEqual:
		return x != vs[0]
	case less:
		return x < vs[0]
	case lessEqual:
		return x <= vs[0]
	case greater:
		return x > vs[0]
	case greaterEqual:
		return x >= vs[0]
	}
	i, found := slices.BinarySearch(vs, x)
	return found && vs[i] == x
}

// compare orders values of storage Bytes: decimals as numbers, all others bytewise.
func (v *values) compare(a, b []byte) int {
	if v.typ.Kind == schemas.Decimal && len(a) > 0 && len(b) > 0 && (a[0]^b[0])&0x80 != 0 {
		return cmp.Compare(b[0], a[0])
	}
	return bytes.Compare(a, b)
}

func (v *values) bytesPass(o op, x []byte) bool {
	if o == in {
		_, found := slices.BinarySearchFunc(v.bytes, x, v.compare)
		return found
	}
	c := v.compare(x, v.bytes[0])
	switch o {
	case equal:
		return c == 0
	case notEqual:
		return c != 0
	case less:
		return c < 0
	case lessEqual:
		return c <= 0
	case greater:
		return c > 0
	}
	return c >= 0
}
