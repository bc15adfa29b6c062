package deletefiles

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/rows"
)

// keysAtOnce bounds the equality deletes in memory, by their number: some hundred
// bytes each.
const keysAtOnce = 1 << 20

// pass is some equality deletes that the data files are read for together.
type pass struct {
	f      *Finder
	data   []Data
	groups []*group
	keys   int // in memory,
	room   int // and how many may be
}

// group is the equality deletes of the same columns and scope.
type group struct {
	ids    []int32
	of     deletion // one of it: its scope is all others'
	fields []schemas.Field
	last   map[string]int64 // the latest sequence number that ends rows of these values
	newest int64            // of them
}

// within says whether a data file is in the scope of an equality-delete file.
func (e *deletion) within(d *Data) bool {
	return e.global || d.File.SpecID == e.File.SpecID && bytes.Equal(d.tuple, e.tuple)
}

// take brings the rows of a delete file into memory, and ends the pass where it is full.
func (p *pass) take(ctx context.Context, e deletion) (err error) {
	g, err := p.group(e)
	if err != nil {
		return err
	}
	path := e.File.Path
	object, in, err := p.f.open(ctx, &e.File, g.fields)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, object.Close()) }()
	for i := range g.fields {
		if !in.Has(g.fields[i].ID) {
			return fmt.Errorf("%w: %s has no column %q, by which it deletes", ErrDeletes, path, g.fields[i].Name)
		}
	}
	for n := range in.NumRowGroups() {
		cols, err := read(in, path, n, g.fields)
		if err != nil {
			return err
		}
		var key []byte
		for i := range cols[0].Len() {
			key = appendValues(key[:0], cols, i)
			had, known := g.last[string(key)]
			if known && had >= *e.Sequence {
				continue
			}
			if !known {
				p.keys++
			}
			g.last[string(key)] = *e.Sequence
			g.newest = max(g.newest, *e.Sequence)
			if p.keys < p.room {
				continue
			}
			if err := p.end(ctx); err != nil {
				return err
			}
			if g, err = p.group(e); err != nil {
				return err
			}
		}
	}
	return nil
}

// group is that of a delete file; the last one of the pass, or a new one.
func (p *pass) group(e deletion) (*group, error) {
	ids := slices.Clone(e.File.EqualityIDs)
	slices.Sort(ids)
	ids = slices.Compact(ids)
	if n := len(p.groups); n > 0 {
		if g := p.groups[n-1]; slices.Equal(g.ids, ids) && g.of.global == e.global && (e.global || g.of.File.SpecID == e.File.SpecID && bytes.Equal(g.of.tuple, e.tuple)) {
			return g, nil
		}
	}
	if len(ids) == 0 {
		return nil, fmt.Errorf("%w: %s deletes by equality, and its manifest does not say of which columns", ErrDeletes, e.File.Path)
	}
	g := &group{ids: ids, of: e, last: map[string]int64{}}
	for _, id := range ids {
		i := p.f.Schema.ByID(id)
		if i < 0 {
			return nil, fmt.Errorf("%w: %s deletes by equality of the column with field id %d, which the table does not have at its top level (any more)", ErrDeletes, e.File.Path, id)
		}
		field := p.f.Schema.Fields[i]
		if field.Type.IsNested() {
			return nil, fmt.Errorf("%w: %s deletes by equality of the nested column %q", ErrDeletes, e.File.Path, field.Name)
		}
		field.Required = false // a null is a value here
		g.fields = append(g.fields, field)
	}
	p.groups = append(p.groups, g)
	return g, nil
}

// end reads the data files for what is in memory, and forgets that.
func (p *pass) end(ctx context.Context) error {
	for i := range p.data {
		d := &p.data[i]
		for _, g := range p.groups {
			if d.Sequence >= g.newest || !g.of.within(d) {
				continue
			}
			if int64(d.Dead.GetCardinality()) == d.File.Records {
				break
			}
			if err := p.scan(ctx, g, d); err != nil {
				return err
			}
		}
	}
	p.groups, p.keys = nil, 0
	return nil
}

func (p *pass) scan(ctx context.Context, g *group, d *Data) (err error) {
	object, in, err := p.f.open(ctx, d.File, g.fields)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, object.Close()) }()
	row := uint32(0)
	var key []byte
	for n := range in.NumRowGroups() {
		cols, err := read(in, d.File.Path, n, g.fields)
		if err != nil {
			return err
		}
		for i := range cols[0].Len() {
			key = appendValues(key[:0], cols, i)
			if g.last[string(key)] > d.Sequence {
				d.Dead.Add(row)
			}
			row++
		}
	}
	return nil
}

// appendValues is injective, for columns of the same types. All floats that are no
// number are one value.
func appendValues(b []byte, cols []rows.Column, i int) []byte {
	for j := range cols {
		c := &cols[j]
		if c.IsNull(i) {
			b = append(b, 0)
			continue
		}
		b = append(b, 1)
		switch c.Storage {
		case rows.Ints:
			b = binary.BigEndian.AppendUint64(b, uint64(c.Ints[i]))
		case rows.Floats:
			x := c.Floats[i]
			if x != x {
				x = math.NaN()
			}
			b = binary.BigEndian.AppendUint64(b, math.Float64bits(x))
		default:
			v := c.BytesAt(i)
			b = append(binary.AppendUvarint(b, uint64(len(v))), v...)
		}
	}
	return b
}
