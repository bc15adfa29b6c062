package rows

import "github.com/varve-io/varve/schemas"

// Bounds are what a row group's statistics say of a column: no value lies
// outside. Of strings, binaries and fixed they may be cut, and lie outside of the
// values then. NaNs lie in no bounds.
type Bounds struct {
	Rows, Nulls         int64
	Has                 bool // else nothing is told but the nulls
	IntLow, IntHigh     int64
	FloatLow, FloatHigh float64
	Low, High           []byte
}

// GroupBounds are the bounds of a column in a row group, as field of another
// schema version. ok is false where the file does not tell, or was written by
// another program: those have had statistics that are wrong.
func (f *File) GroupBounds(g int, field *schemas.Field) (out Bounds, ok bool) {
	at, has := f.byID[field.ID]
	if !has || !f.ours {
		return out, false
	}
	l := &f.leaves[at]
	ch := &f.groups[g].chunks[at]
	if l.why != "" || l.converts() || ch.nulls < 0 || StorageOf(l.typ) != StorageOf(field.Type) {
		return out, false
	}
	out.Rows, out.Nulls = f.groups[g].rows, ch.nulls
	b := bounds{rows: out.Rows, nulls: out.Nulls}
	own := leaf{typ: l.typ, phys: l.phys, length: l.length}
	own.name = l.name
	if ch.lo == nil || ch.hi == nil || b.fromParquet(&own, ch.lo, ch.hi) != nil || !b.has {
		return out, true
	}
	out.Has = true
	out.IntLow, out.IntHigh, out.FloatLow, out.FloatHigh, out.Low, out.High = b.loI, b.hiI, b.loF, b.hiF, b.lo, b.hi
	return out, true
}
