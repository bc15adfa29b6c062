package rows

import "github.com/varve-io/varve/schemas"

// Part is a view of consecutive rows of one column, as a Scan hands them on: the
// values of a page, or a slice of them, without a copy. It holds until the Scan
// moves on.
type Part struct {
	typ     schemas.Type
	storage Storage
	valid   []uint8 // nil: no row is null
	ints    []int64
	floats  []float64

	// Storage Bytes, in one of two forms: value i is data[from[i]:to[i]], or
	// entry index[i] of dict.
	data     []byte
	from, to []uint32
	index    []uint32
	dict     *dictionary
	rows     int
}

// dictionary is the dictionary of a column chunk of storage Bytes. Its address
// tells it from others.
type dictionary struct{ values Column }

// Len is the number of rows.
func (p *Part) Len() int { return p.rows }

// IsNull says whether row i is null.
func (p *Part) IsNull(i int) bool { return p.valid != nil && p.valid[i] == 0 }

// HasNulls says whether some row may be null.
func (p *Part) HasNulls() bool { return p.valid != nil }

// Ints are the values of a part of storage Ints; a null is 0.
func (p *Part) Ints() []int64 { return p.ints }

// Floats are the values of a part of storage Floats; a null is 0.
func (p *Part) Floats() []float64 { return p.floats }

// BytesAt is the value of row i of a part of storage Bytes, which is not null.
func (p *Part) BytesAt(i int) []byte {
	if p.index != nil {
		return p.dict.values.BytesAt(int(p.index[i]))
	}
	return p.data[p.from[i]:p.to[i]]
}

// AppendTo appends the part's rows to a column of its type.
func (p *Part) AppendTo(c *Column) {
	for i := range p.rows {
		switch {
		case p.IsNull(i):
			c.AppendNull()
		case p.storage == Ints:
			c.AppendInt(p.ints[i])
		case p.storage == Floats:
			c.AppendFloat(p.floats[i])
		default:
			c.AppendBytes(p.BytesAt(i))
		}
	}
}

// slice makes p the rows [a,b) of page.
func (p *Part) slice(page *Part, a, b int) {
	p.typ, p.storage, p.rows = page.typ, page.storage, b-a
	p.valid = nil
	if page.valid != nil {
		p.valid = page.valid[a:b]
	}
	switch {
	case page.storage == Ints:
		p.ints = page.ints[a:b]
	case page.storage == Floats:
		p.floats = page.floats[a:b]
	case page.dict != nil:
		p.index, p.dict = page.index[a:b], page.dict
		p.data, p.from, p.to = nil, nil, nil
	default:
		p.data, p.from, p.to = page.data, page.from[a:b], page.to[a:b]
		p.index, p.dict = nil, nil
	}
}

// ofColumn makes p all rows of a column. starts is room for where values begin.
func (p *Part) ofColumn(c *Column, full bool, starts []uint32) []uint32 {
	p.typ, p.storage, p.rows = c.Type, c.Storage, c.Len()
	p.valid = c.Valid
	if full {
		p.valid = nil
	}
	p.ints, p.floats = c.Ints, c.Floats
	p.data, p.from, p.to, p.index, p.dict = nil, nil, nil, nil, nil
	if c.Storage == Bytes {
		starts = grown(starts[:0], len(c.Ends))
		last := uint32(0)
		for i, e := range c.Ends {
			starts[i] = last
			last = e
		}
		p.data, p.from, p.to = c.Data, starts, c.Ends
	}
	return starts
}

// AppendParts appends the key of a row of parts that stand in the order of
// Fields.
func (e *KeyEncoder) AppendParts(dst []byte, parts []*Part, row int) ([]byte, error) {
	for i := range e.parts {
		p := parts[i]
		if p.IsNull(row) {
			return dst, e.nullPart(i)
		}
		if p.storage == Ints {
			dst = appendIntKey(dst, p.typ, p.ints[row])
		} else {
			dst = appendBytesKey(dst, p.typ, p.BytesAt(row))
		}
	}
	return dst, nil
}

// CheckNoNulls refuses a part of the key's only column that holds a null.
func (e *KeyEncoder) CheckNoNulls(p *Part) error {
	for _, v := range p.valid {
		if v == 0 {
			return e.nullPart(0)
		}
	}
	return nil
}
