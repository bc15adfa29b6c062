package rows

import (
	"fmt"

	"github.com/varve-io/varve/schemas"
)

// TransformColumn applies a partition transform to the rows of c that sel
// names, in that order (nil: all rows). Nulls stay null; void gives nulls.
func TransformColumn(c *Column, sel []uint32, k schemas.TransformKind, n int32) (Column, error) {
	t, err := schemas.TransformResult(k, n, c.Type)
	if err != nil {
		return Column{}, err
	}
	out := NewColumn(t)
	count := len(sel)
	if sel == nil {
		count = c.Len()
	}
	for i := range count {
		row := i
		if sel != nil {
			row = int(sel[i])
		}
		if err := appendTransformed(&out, c, row, k, n); err != nil {
			return Column{}, err
		}
	}
	return out, nil
}

func appendTransformed(out, c *Column, row int, k schemas.TransformKind, n int32) error {
	switch {
	case c.Valid[row] == 0 || k == schemas.Void:
		out.AppendNull()
	case k == schemas.Identity:
		out.AppendRow(c, row)
	case c.Storage == Ints:
		v, err := schemas.TransformInt(k, n, c.Type, c.Ints[row])
		if err != nil {
			return err
		}
		out.AppendInt(v)
	case k == schemas.Bucket:
		out.AppendInt(int64(schemas.BucketOf(schemas.HashBytes(c.Type, c.BytesAt(row)), n)))
	case c.Type.Kind == schemas.Decimal:
		v, ok := schemas.TruncateDecimal16(c.BytesAt(row), n, c.Type.Precision)
		if !ok {
			return fmt.Errorf("truncate to multiples of %d passes the smallest %s: %w", n, c.Type, schemas.ErrNotExact)
		}
		out.AppendBytes(v[:])
	default:
		out.AppendBytes(schemas.TruncateBytes(c.Type, c.BytesAt(row), n))
	}
	return nil
}

// TupleEncoder writes the canonical partition tuple of rows (schemas.EncodeTuple).
type TupleEncoder struct {
	fields []tupleField
}

type tupleField struct {
	index   int // of the source column; -1: always null
	kind    schemas.TransformKind
	n       int32
	name    string
	scratch Column
	single  []byte
}

// NewTupleEncoder is the encoder of a spec over batches of a schema.
func NewTupleEncoder(s *schemas.Schema, spec *schemas.Spec) (*TupleEncoder, error) {
	types, err := spec.ResultTypes(s)
	if err != nil {
		return nil, err
	}
	e := &TupleEncoder{fields: make([]tupleField, len(spec.Fields))}
	for i := range spec.Fields {
		f := &spec.Fields[i]
		e.fields[i] = tupleField{
			index: s.ByID(f.SourceID), kind: f.Transform, n: f.N, name: f.Name,
			scratch: NewColumn(types[i]), single: []byte{},
		}
	}
	return e, nil
}

// Append appends the tuple of a row. An error names the partition field whose
// value the transform cannot give exactly.
func (e *TupleEncoder) Append(dst []byte, b *Batch, row int) ([]byte, error) {
	for i := range e.fields {
		f := &e.fields[i]
		if f.index < 0 || f.kind == schemas.Void || b.Cols[f.index].IsNull(row) {
			dst = schemas.AppendTupleValue(dst, nil)
			continue
		}
		f.scratch.Truncate(0)
		err := appendTransformed(&f.scratch, &b.Cols[f.index], row, f.kind, f.n)
		if err == nil {
			f.single, err = f.scratch.SingleAt(f.single[:0], 0)
		}
		if err != nil {
			return dst, fmt.Errorf("partition field %q: %w", f.name, err)
		}
		dst = schemas.AppendTupleValue(dst, f.single)
	}
	return dst, nil
}
