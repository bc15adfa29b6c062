package source

import (
	"fmt"
	"strconv"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/rows"
)

// ownNest is a nested type of varve-avro, or a part of one.
type ownNest struct {
	kind     schemas.Kind
	required bool
	children []*ownNest
	leaf     written
	col      rows.Column // of a leaf: one value
	textKeys bool        // of a map: it is an Avro map, else an array of records
}

func newOwnNest(t schemas.Type, required bool) *ownNest {
	n := &ownNest{kind: t.Kind, required: required}
	if !t.IsNested() {
		n.leaf = written{kind: t.Kind, length: int(t.Length), scale: int(t.Scale)}
		n.col = rows.NewColumn(t)
		return n
	}
	children := t.Children()
	for i := range children {
		n.children = append(n.children, newOwnNest(children[i].Type, children[i].Required))
	}
	n.textKeys = t.Kind == schemas.Map && children[0].Type.Kind == schemas.String
	return n
}

// nestedValue appends the value at b[i], written in the type n.
func (d *avro) nestedValue(dst []byte, n *ownNest, b []byte, i int) ([]byte, int, fail) {
	switch n.kind {
	case schemas.Struct:
		var why fail
		for _, c := range n.children {
			if dst, i, why = d.nestedPart(dst, c, b, i); why != okay {
				return dst, i, why
			}
		}
		return dst, i, okay
	case schemas.List, schemas.Map:
		return d.nestedMany(dst, n, b, i)
	}
	n.col.Truncate(0)
	end, why := d.avroValue(&n.col, &n.leaf, b, i)
	if why != okay {
		return dst, i, why
	}
	return rows.AppendNested(dst, &n.col, 0), end, okay
}

// nestedPart is nestedValue of an optional part.
func (d *avro) nestedPart(dst []byte, n *ownNest, b []byte, i int) ([]byte, int, fail) {
	if !n.required {
		branch, at := varint(b, i)
		if at < 0 || branch != 0 && branch != 1 {
			return dst, i, malformed
		}
		if i = at; branch == 0 {
			return append(dst, 0), i, okay
		}
	}
	return d.nestedValue(append(dst, 1), n, b, i)
}

func (d *avro) nestedMany(dst []byte, n *ownNest, b []byte, i int) ([]byte, int, fail) {
	start, total := len(dst), uint64(0)
	for {
		count, at := varint(b, i)
		if at < 0 {
			return dst, i, malformed
		}
		if i = at; count == 0 {
			break
		}
		if count < 0 {
			if _, i = varint(b, i); i < 0 {
				return dst, at, malformed
			}
			count = -count
		}
		if count < 0 || count > int64(len(b)) {
			return dst, i, malformed
		}
		var why fail
		for range count {
			if n.kind == schemas.Map {
				if dst, i, why = d.nestedValue(dst, n.children[0], b, i); why != okay {
					return dst, i, why
				}
			}
			from := i
			if dst, i, why = d.nestedPart(dst, n.children[len(n.children)-1], b, i); why != okay {
				return dst, i, why
			}
			if i == from {
				return dst, i, malformed // elements without a byte could be any number
			}
			total++
		}
	}
	return rows.CountBefore(dst, start, total), i, okay
}

// nestedColumn appends the value at b[i] to its column, in the column's type.
func (d *avro) nestedColumn(c *rows.Column, f *written, b []byte, i int) (int, fail) {
	var why fail
	if d.nested, i, why = d.nestedValue(d.nested[:0], f.nest, b, i); why != okay || f.col < 0 {
		return i, why
	}
	value := d.nested
	if f.change != nil {
		var err error
		if d.changed, err = f.change.Append(d.changed[:0], value); err != nil {
			return i, badText
		}
		value = d.changed
	}
	c.AppendBytes(value)
	return i, okay
}

// appendOwnNested appends a value's Avro.
func appendOwnNested(dst []byte, n *ownNest, r *rows.NestedReader) []byte {
	part := func(dst []byte, c *ownNest) []byte {
		has := r.Has()
		if !c.required {
			if !has {
				return append(dst, 0)
			}
			dst = append(dst, 2)
		}
		return appendOwnNested(dst, c, r)
	}
	switch n.kind {
	case schemas.Struct:
		for _, c := range n.children {
			dst = part(dst, c)
		}
		return dst
	case schemas.List, schemas.Map:
		count := r.Count()
		if count > 0 {
			dst = appendVarint(dst, int64(count))
		}
		for range count {
			if n.kind == schemas.Map {
				dst = appendOwnNested(dst, n.children[0], r)
			}
			dst = part(dst, n.children[len(n.children)-1])
		}
		return append(dst, 0)
	}
	n.col.Truncate(0)
	r.Take(&n.col)
	return appendAvro(dst, &n.col, 0)
}

// avroNestedType writes the Avro type of a nested column, or of a part of one.
// id is its field's, by which its named types are told apart. named begins a
// named type up to its fields or size.
func avroNestedType(b []byte, t schemas.Type, id int32, canonical bool, named func(b []byte, kind, name string) []byte) []byte {
	prim, logical := avroPrimitive(t), avroLogical(t)
	name := strconv.Itoa(int(id))
	switch {
	case t.Kind == schemas.Fixed:
		return append(named(b, "fixed", "F"+name), `"size":`+strconv.Itoa(int(t.Length))+`}`...)
	case !t.IsNested() && logical != "" && !canonical:
		return append(b, `{"type":"`+prim+`",`+logical+`}`...)
	case !t.IsNested():
		return append(b, `"`+prim+`"`...)
	}
	children := t.Children()
	part := func(b []byte, c *schemas.Field) []byte {
		if c.Required {
			return avroNestedType(b, c.Type, c.ID, canonical, named)
		}
		return append(avroNestedType(append(b, `["null",`...), c.Type, c.ID, canonical, named), ']')
	}
	fields := func(b []byte) []byte {
		names := avroNames(&schemas.Schema{Fields: children})
		b = append(b, `"fields":[`...)
		for i := range children {
			c := &children[i]
			if i > 0 {
				b = append(b, ',')
			}
			b = part(append(b, `{"name":"`+names[i]+`","type":`...), c)
			if !canonical {
				if !c.Required {
					b = append(b, `,"default":null`...)
				}
				b = append(b, `,"field-id":`+strconv.Itoa(int(c.ID))...)
			}
			b = append(b, '}')
		}
		return append(b, `]}`...)
	}
	ids := func(b []byte, format string, ids ...any) []byte {
		if canonical {
			return b
		}
		return fmt.Appendf(b, format, ids...)
	}
	switch {
	case t.Kind == schemas.Struct:
		return fields(named(b, "record", "S"+name))
	case t.Kind == schemas.List:
		b = part(append(b, `{"type":"array","items":`...), &children[0])
		return append(ids(b, `,"element-id":%d`, children[0].ID), '}')
	case children[0].Type.Kind == schemas.String:
		b = part(append(b, `{"type":"map","values":`...), &children[1])
		return append(ids(b, `,"key-id":%d,"value-id":%d`, children[0].ID, children[1].ID), '}')
	}
	b = fields(named(append(b, `{"type":"array","items":`...), "record", "K"+name))
	return append(ids(b, `,"logicalType":"map"`), '}')
}
