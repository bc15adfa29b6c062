package dv

import (
	"bytes"
	"fmt"
	"slices"
	"sync"

	"github.com/RoaringBitmap/roaring/v2"
)

// The functions of this file work on position sets: portable 32-bit Roaring bytes.
// Each checks its input completely and returns an error wrapping ErrCorrupt for
// bytes that are no valid set; a valid set that is not canonical is accepted. Each
// appends its result, canonical, to dst, which must not share memory with the
// input, and returns the extended slice; on an error dst is returned as it came.

// AppendBitmap appends the canonical serialization of b, which is not changed. An
// empty bitmap gives the serialized empty set of eight bytes.
func AppendBitmap(dst []byte, b *roaring.Bitmap) ([]byte, error) {
	raw := rawBuffers.Get().(*bytes.Buffer)
	raw.Reset()
	raw.Grow(int(b.GetSerializedSizeInBytes()))
	if _, err := b.WriteTo(raw); err != nil {
		return dst, fmt.Errorf("serialize positions: %w", err)
	}
	out, err := Canonical(dst, raw.Bytes())
	if raw.Cap() <= maxPooled {
		rawBuffers.Put(raw)
	}
	return out, err
}

// rawBuffers hold a bitmap as the library writes it until it is copied in canonical
// form. Those of rare, large vectors are not kept.
var rawBuffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

const maxPooled = 1 << 20

// ReadBitmap decodes a set into a bitmap that shares no memory with data and may be
// changed.
func ReadBitmap(data []byte) (*roaring.Bitmap, error) {
	own, err := Canonical(nil, data)
	if err != nil {
		return nil, err
	}
	return viewBitmap(own)
}

// viewBitmap makes a bitmap on top of checked canonical bytes. The library copies a
// container before it changes it, so the bytes are read only.
func viewBitmap(data []byte) (*roaring.Bitmap, error) {
	b := roaring.New()
	n, err := b.FromUnsafeBytes(data)
	if err != nil {
		return nil, fmt.Errorf("%w: %v", ErrCorrupt, err)
	}
	if n != int64(len(data)) {
		return nil, fmt.Errorf("%w: the library read %d of %d bytes", ErrCorrupt, n, len(data))
	}
	return b, nil
}

// viewPrefix checks the set at the beginning of data and makes a bitmap on top of it,
// or of a canonical copy: the library relies on runs that do not touch.
func viewPrefix(data []byte) (b *roaring.Bitmap, rest []byte, err error) {
	stat, size, err := inspectPrefix(data)
	if err != nil {
		return nil, nil, err
	}
	set := data[:size:size]
	if !stat.Canonical {
		if set, err = Canonical(nil, set); err != nil {
			return nil, nil, err
		}
	}
	b, err = viewBitmap(set)
	return b, data[size:], err
}

// Canonical appends the canonical serialization of the set in data.
func Canonical(dst, data []byte) ([]byte, error) {
	var (
		cur cursor
		c   container
		b   builder
	)
	if err := cur.init(data); err != nil {
		return dst, err
	}
	b.init(dst, cur.n, cur.runBits != nil, len(data)-cur.pos)
	for {
		ok, err := cur.next(&c)
		if err != nil {
			return dst, err
		}
		if !ok {
			break
		}
		if err := b.copy(&c); err != nil {
			return dst, err
		}
	}
	if err := cur.end(); err != nil {
		return dst, err
	}
	return b.finish(), nil
}

// Stat describes a position set.
type Stat struct {
	Count     uint64 // positions in the set
	Max       uint32 // largest position, 0 for the empty set
	Canonical bool   // whether the bytes are those that this package would write
}

// Inspect checks data completely and describes it.
func Inspect(data []byte) (Stat, error) {
	if s, ok := inspectOneArray(data); ok {
		return s, nil
	}
	s, size, err := inspectPrefix(data)
	if err != nil {
		return Stat{}, err
	}
	if size != len(data) {
		return Stat{}, errTrailing(len(data) - size)
	}
	return s, nil
}

// inspectPrefix is Inspect for a set of size bytes with other bytes behind it.
func inspectPrefix(data []byte) (s Stat, size int, err error) {
	var (
		cur     cursor
		c       container
		anyRuns bool
	)
	if err := cur.init(data); err != nil {
		return Stat{}, 0, err
	}
	s.Canonical = true
	for {
		ok, err := cur.next(&c)
		if err != nil {
			return Stat{}, 0, err
		}
		if !ok {
			break
		}
		runs, err := c.check()
		if err != nil {
			return Stat{}, 0, err
		}
		k := canonicalKind(c.card, runs)
		if k != c.kind || (k == kindRun && runs != len(c.body)/4) {
			s.Canonical = false
		}
		anyRuns = anyRuns || c.kind == kindRun
		s.Count += uint64(c.card)
		if cur.i == cur.n {
			s.Max = uint32(c.key)<<16 | uint32(c.max())
		}
	}
	// The cookie for runs is canonical only with a run; unused flag bits are zero.
	if cur.runBits != nil {
		used := cur.n % 8
		if !anyRuns || (used != 0 && cur.runBits[len(cur.runBits)-1]>>used != 0) {
			s.Canonical = false
		}
	}
	return s, cur.pos, nil
}

// Validate checks data completely.
func Validate(data []byte) error {
	_, err := Inspect(data)
	return err
}

// Count returns the number of positions in the set. It reads the headers only:
// content that contradicts them is found by Validate.
func Count(data []byte) (uint64, error) {
	var (
		cur cursor
		c   container
		sum uint64
	)
	if err := cur.init(data); err != nil {
		return 0, err
	}
	for {
		ok, err := cur.next(&c)
		if err != nil {
			return 0, err
		}
		if !ok {
			return sum, cur.end()
		}
		sum += uint64(c.card)
	}
}

// MaxPosition returns the largest position; ok is false for the empty set.
func MaxPosition(data []byte) (pos uint32, ok bool, err error) {
	s, err := Inspect(data)
	if err != nil {
		return 0, false, err
	}
	return s.Max, s.Count != 0, nil
}

// Empty returns the serialization of the empty set.
func Empty() []byte {
	var b builder
	b.init(nil, 0, false, 0)
	return b.finish()
}

// Union appends a ∪ b.
func Union(dst, a, b []byte) ([]byte, error) {
	return combine(dst, a, b, true)
}

// Minus appends a without the positions of b.
func Minus(dst, a, b []byte) ([]byte, error) {
	return combine(dst, a, b, false)
}

// combine walks two sets by key. Positions only in b are kept for a union and
// checked for a difference.
func combine(dst, a, b []byte, union bool) ([]byte, error) {
	var (
		ca, cb cursor
		xa, xb container
		out    builder
		okA    bool
		okB    bool
		err    error
	)
	if err := ca.init(a); err != nil {
		return dst, err
	}
	if err := cb.init(b); err != nil {
		return dst, err
	}
	n, hint := ca.n, len(a)
	if union {
		n, hint = unionKeys(&ca, &cb), len(a)+len(b)
	}
	out.init(dst, n, ca.runBits != nil || cb.runBits != nil, hint)
	if okA, err = ca.next(&xa); err != nil {
		return dst, err
	}
	if okB, err = cb.next(&xb); err != nil {
		return dst, err
	}
	for okA || okB {
		stepA := okA && (!okB || xa.key <= xb.key)
		stepB := okB && (!okA || xb.key <= xa.key)
		switch {
		case stepA && stepB && union:
			err = out.union(&xa, &xb)
		case stepA && stepB:
			err = out.minus(&xa, &xb)
		case stepA:
			err = out.copy(&xa)
		case union:
			err = out.copy(&xb)
		default:
			_, err = xb.check()
		}
		if err != nil {
			return dst, err
		}
		if stepA {
			if okA, err = ca.next(&xa); err != nil {
				return dst, err
			}
		}
		if stepB {
			if okB, err = cb.next(&xb); err != nil {
				return dst, err
			}
		}
	}
	if err := ca.end(); err != nil {
		return dst, err
	}
	if err := cb.end(); err != nil {
		return dst, err
	}
	return out.finish(), nil
}

// UnionAll appends the union of any number of sets, none giving the empty set. It
// reads each container once, however many sets there are: the way to fold the
// operands of a merge.
func UnionAll(dst []byte, sets ...[]byte) ([]byte, error) {
	if out, ok := unionFew(dst, sets); ok {
		return out, nil
	}
	var all []container
	hint, runs := 0, false
	for i, data := range sets {
		var cur cursor
		if err := cur.init(data); err != nil {
			return dst, fmt.Errorf("set %d of %d: %w", i+1, len(sets), err)
		}
		for {
			var c container
			ok, err := cur.next(&c)
			if err != nil {
				return dst, fmt.Errorf("set %d of %d: %w", i+1, len(sets), err)
			}
			if !ok {
				break
			}
			all = append(all, c)
		}
		if err := cur.end(); err != nil {
			return dst, fmt.Errorf("set %d of %d: %w", i+1, len(sets), err)
		}
		hint += len(data)
		runs = runs || cur.runBits != nil
	}
	slices.SortStableFunc(all, func(x, y container) int { return int(x.key) - int(y.key) })
	n := 0
	for i := range all {
		if i == 0 || all[i].key != all[i-1].key {
			n++
		}
	}
	var out builder
	out.init(dst, n, runs, min(hint, bitmapSize*n))
	for len(all) > 0 {
		same := 1
		for same < len(all) && all[same].key == all[0].key {
			same++
		}
		if err := out.unionGroup(all[:same]); err != nil {
			return dst, err
		}
		all = all[same:]
	}
	return out.finish(), nil
}
