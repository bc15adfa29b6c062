package rows

import (
	"bytes"
	"encoding/binary"
	"math"
	"unicode/utf8"

	"github.com/varve-io/varve/schemas"
)

// boundLength is where bounds are cut: code points of a string, bytes of a
// binary (M5).
const boundLength = 16

// bounds are the counts and bounds of one column over some rows. For strings,
// binaries and fixed the bounds are cut: lower ≤ every value ≤ upper.
type bounds struct {
	rows, nulls, nans int64
	has               bool // some value that is neither null nor NaN
	loI, hiI          int64
	loF, hiF          float64
	lo, hi            []byte
	noUpper           bool // no short upper bound exists
}

func (b *bounds) reset() { *b = bounds{lo: b.lo[:0], hi: b.hi[:0]} }

// addBytes takes an exact smallest and largest value of the column's storage.
func (b *bounds) addBytes(t schemas.Type, lo, hi []byte) {
	cutLo, upper, ok := cutBounds(t, lo, hi)
	b.mergeBytes(t, cutLo, upper, !ok)
}

func (b *bounds) mergeBytes(t schemas.Type, lo, hi []byte, noUpper bool) {
	if !b.has || compareBytes(t, lo, b.lo) < 0 {
		b.lo = append(b.lo[:0], lo...)
	}
	b.noUpper = b.noUpper || noUpper
	if !b.noUpper && (!b.has || compareBytes(t, hi, b.hi) > 0) {
		b.hi = append(b.hi[:0], hi...)
	}
	b.has = true
}

// merge adds what other rows of the column have.
func (b *bounds) merge(t schemas.Type, o *bounds) {
	b.rows += o.rows
	b.nulls += o.nulls
	b.nans += o.nans
	if !o.has {
		return
	}
	switch StorageOf(t) {
	case Ints:
		if !b.has || o.loI < b.loI {
			b.loI = o.loI
		}
		if !b.has || o.hiI > b.hiI {
			b.hiI = o.hiI
		}
		b.has = true
	case Floats:
		if !b.has || o.loF < b.loF {
			b.loF = o.loF
		}
		if !b.has || o.hiF > b.hiF {
			b.hiF = o.hiF
		}
		b.has = true
	default:
		b.mergeBytes(t, o.lo, o.hi, o.noUpper)
	}
}

// compareBytes compares values of a Bytes column: decimals as numbers, all
// others bytewise, which for UTF-8 is by code point.
func compareBytes(t schemas.Type, a, b []byte) int {
	if t.Kind == schemas.Decimal && len(a) > 0 && len(b) > 0 && (a[0]^b[0])&0x80 != 0 {
		if a[0]&0x80 != 0 {
			return -1
		}
		return 1
	}
	return bytes.Compare(a, b)
}

// cutBounds cuts a smallest and largest value to boundLength; ok is false when
// no cut value lies above hi.
func cutBounds(t schemas.Type, lo, hi []byte) (lower, upper []byte, ok bool) {
	switch t.Kind {
	case schemas.String:
		n := schemas.CodePoints(hi, boundLength)
		if upper, ok = hi, true; n < len(hi) {
			upper, ok = nextString(hi[:n])
		}
		return lo[:schemas.CodePoints(lo, boundLength)], upper, ok
	case schemas.Binary, schemas.Fixed:
		if upper, ok = hi, true; len(hi) > boundLength {
			upper, ok = nextBytes(hi[:boundLength])
		}
		return lo[:min(len(lo), boundLength)], upper, ok
	}
	return lo, hi, true
}

// nextString is the smallest string above every string that begins with
// prefix, no longer than it: its last code point that can be raised is raised
// by one, past the surrogates, and what follows falls away.
func nextString(prefix []byte) ([]byte, bool) {
	for len(prefix) > 0 {
		r, n := utf8.DecodeLastRune(prefix)
		prefix = prefix[:len(prefix)-n]
		if r == utf8.RuneError && n == 1 || r == utf8.MaxRune {
			continue
		}
		r++
		if r == 0xD800 {
			r = 0xE000
		}
		return utf8.AppendRune(bytes.Clone(prefix), r), true
	}
	return nil, false
}

func nextBytes(prefix []byte) ([]byte, bool) {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] != 0xFF {
			out := bytes.Clone(prefix[:i+1])
			out[i]++
			return out, true
		}
	}
	return nil, false
}

// zeros turn a zero bound of floats into −0.0 below and +0.0 above: readers
// order the two.
func (b *bounds) floatBounds() (lo, hi float64) {
	lo, hi = b.loF, b.hiF
	if lo == 0 {
		lo = math.Copysign(0, -1)
	}
	if hi == 0 {
		hi = 0
	}
	return lo, hi
}

// iceberg is the bounds as single values (M5); nil where there is none.
func (b *bounds) iceberg(t schemas.Type) (lower, upper []byte, err error) {
	if !b.has || t.Kind == schemas.UUID {
		return nil, nil, nil
	}
	switch StorageOf(t) {
	case Ints:
		if lower, err = schemas.AppendIntValue([]byte{}, t, b.loI); err == nil {
			upper, err = schemas.AppendIntValue([]byte{}, t, b.hiI)
		}
		return lower, upper, err
	case Floats:
		lo, hi := b.floatBounds()
		return schemas.AppendFloatValue(nil, t, lo), schemas.AppendFloatValue(nil, t, hi), nil
	}
	if t.Kind == schemas.Decimal {
		return append([]byte{}, schemas.MinimalDecimal(b.lo)...), append([]byte{}, schemas.MinimalDecimal(b.hi)...), nil
	}
	lower = append([]byte{}, b.lo...)
	if !b.noUpper {
		upper = append([]byte{}, b.hi...)
	}
	return lower, upper, nil
}

// parquet is the bounds as Parquet's statistics hold them: plain values, at
// their type's full width. Without both bounds, or with a NaN among the rows
// (readers differ in how they order one), ok is false. So it is for uuids: a
// filter on one makes Iceberg's Java reader fail where it finds these.
func (b *bounds) parquet(l *leaf) (lo, hi []byte, ok bool) {
	if !b.has || b.noUpper || b.nans > 0 || l.typ.Kind == schemas.UUID {
		return nil, nil, false
	}
	switch l.phys {
	case physBoolean:
		return []byte{byte(b.loI)}, []byte{byte(b.hiI)}, true
	case physInt32:
		return binary.LittleEndian.AppendUint32(nil, uint32(b.loI)), binary.LittleEndian.AppendUint32(nil, uint32(b.hiI)), true
	case physInt64:
		return binary.LittleEndian.AppendUint64(nil, uint64(b.loI)), binary.LittleEndian.AppendUint64(nil, uint64(b.hiI)), true
	case physFloat, physDouble:
		lo, hi := b.floatBounds()
		return schemas.AppendFloatValue(nil, l.typ, lo), schemas.AppendFloatValue(nil, l.typ, hi), true
	case physFixed:
		return fixedBound(l, b.lo), fixedBound(l, b.hi), true
	}
	return bytes.Clone(b.lo), bytes.Clone(b.hi), true
}

// fixedBound brings a bound to the column's width: a wide decimal loses the
// leading bytes that repeat its sign, a cut fixed gets zeros behind.
func fixedBound(l *leaf, v []byte) []byte {
	if l.typ.Kind == schemas.Decimal {
		return bytes.Clone(v[len(v)-int(l.length):])
	}
	out := make([]byte, l.length)
	copy(out, v)
	return out
}

// below says whether b's bounds lie nowhere above o's, for the order of pages.
func (b *bounds) notAbove(t schemas.Type, o *bounds) bool {
	switch StorageOf(t) {
	case Ints:
		return b.loI <= o.loI && b.hiI <= o.hiI
	case Floats:
		return b.loF <= o.loF && b.hiF <= o.hiF
	}
	return compareBytes(t, b.lo, o.lo) <= 0 && compareBytes(t, b.hi, o.hi) <= 0
}
