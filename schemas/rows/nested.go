package rows

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/varve-io/varve/schemas"
)

// A value of a nested column is kept as one run of bytes, so that whatever
// moves, sorts, spills or carries values needs not know that they have parts.
// Only the Parquet writer takes it apart (shred.go), and the reader puts it
// together (assemble.go). It is, by its type:
//
//	storage Ints       zig-zag varint
//	storage Floats     8 bytes, IEEE little endian
//	storage Bytes      uvarint length, bytes
//	struct             each field in the type's order: 00, or 01 and the value
//	list               uvarint elements; each 00, or 01 and the value
//	map                uvarint entries; each its key, then 00, or 01 and the value
//
// The column's null is its own. Equal values have equal bytes; entries of a map
// keep the order in which they came.

// errNested marks bytes that are no value of their column's type.
var errNested = errors.New("the bytes are no value of the column's type")

// AppendNested appends row i of c, which is not null, as a part of a nested
// value.
func AppendNested(dst []byte, c *Column, i int) []byte {
	switch {
	case c.Type.IsNested():
		return append(dst, c.BytesAt(i)...)
	case c.Storage == Ints:
		return binary.AppendVarint(dst, c.Ints[i])
	case c.Storage == Floats:
		return binary.LittleEndian.AppendUint64(dst, math.Float64bits(c.Floats[i]))
	}
	v := c.BytesAt(i)
	return append(binary.AppendUvarint(dst, uint64(len(v))), v...)
}

// CountBefore puts the number of elements of a list or map before them: they
// are what dst has from start on.
func CountBefore(dst []byte, start int, count uint64) []byte {
	var head [binary.MaxVarintLen64]byte
	return slices.Insert(dst, start, head[:binary.PutUvarint(head[:], count)]...)
}

// nest is a compiled type: a walk over values need not read its text.
type nest struct {
	name     string
	id       int32
	kind     schemas.Kind
	typ      schemas.Type
	storage  Storage
	required bool
	children []*nest

	// What a data file has of it. def is the definition level of a value that
	// is there, rep the repetition level of a further element of the list or
	// map (else that of what is around it).
	def, rep uint8
	chunk    *chunk   // of a leaf
	leaves   []*chunk // below it, itself included
	field    *schemas.Field
}

// nestOf compiles a field's type.
func nestOf(f *schemas.Field) *nest {
	n := &nest{name: f.Name, id: f.ID, kind: f.Type.Kind, typ: f.Type, storage: StorageOf(f.Type), required: f.Required, field: f}
	children := f.Type.Children()
	for i := range children {
		n.children = append(n.children, nestOf(&children[i]))
	}
	return n
}

// walker goes through the bytes of one value. After bad, nothing it gives means
// anything.
type walker struct {
	b   []byte
	bad bool
}

func (w *walker) count() int {
	v, n := binary.Uvarint(w.b)
	if n <= 0 || v > uint64(len(w.b)) {
		w.bad, w.b = true, nil
		return 0
	}
	w.b = w.b[n:]
	return int(v)
}

// has says whether an optional part is there.
func (w *walker) has() bool {
	if len(w.b) == 0 || w.b[0] > 1 {
		w.bad, w.b = true, nil
		return false
	}
	there := w.b[0] == 1
	w.b = w.b[1:]
	return there
}

func (w *walker) integer() int64 {
	v, n := binary.Varint(w.b)
	if n <= 0 {
		w.bad, w.b = true, nil
		return 0
	}
	w.b = w.b[n:]
	return v
}

func (w *walker) float() float64 {
	if len(w.b) < 8 {
		w.bad, w.b = true, nil
		return 0
	}
	v := math.Float64frombits(binary.LittleEndian.Uint64(w.b))
	w.b = w.b[8:]
	return v
}

func (w *walker) bytes() []byte {
	n := w.count()
	if n > len(w.b) {
		w.bad, w.b = true, nil
		return nil
	}
	v := w.b[:n]
	w.b = w.b[n:]
	return v
}

// NestedText writes values of a nested column as JSON.
type NestedText struct{ root *nest }

// NewNestedText is the text of values of t.
func NewNestedText(t schemas.Type) *NestedText {
	return &NestedText{nestOf(&schemas.Field{Type: t})}
}

// Append appends a value as JSON: parts in Iceberg's JSON form, NaN and the
// infinities as text, a struct as an object, a map as an object where its keys
// are text, else as a list of objects with key and value.
func (t *NestedText) Append(dst, value []byte) ([]byte, error) {
	w := walker{b: value}
	dst, err := t.root.appendText(dst, &w)
	if err == nil && (w.bad || len(w.b) > 0) {
		err = errNested
	}
	return dst, err
}

func (n *nest) appendText(dst []byte, w *walker) ([]byte, error) {
	part := func(c *nest) (err error) {
		if !w.has() {
			dst = append(dst, "null"...)
			return nil
		}
		dst, err = c.appendText(dst, w)
		return err
	}
	switch n.kind {
	case schemas.Struct:
		dst = append(dst, '{')
		for i, c := range n.children {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(schemas.AppendJSONString(dst, c.name), ':')
			if err := part(c); err != nil {
				return dst, err
			}
		}
		return append(dst, '}'), nil
	case schemas.List:
		dst = append(dst, '[')
		for i := range w.count() {
			if i > 0 {
				dst = append(dst, ',')
			}
			if err := part(n.children[0]); err != nil {
				return dst, err
			}
			if w.bad {
				return dst, errNested
			}
		}
		return append(dst, ']'), nil
	case schemas.Map:
		key, value := n.children[0], n.children[1]
		text := key.kind == schemas.String
		open, end := byte('['), byte(']')
		if text {
			open, end = '{', '}'
		}
		dst = append(dst, open)
		for i := range w.count() {
			if i > 0 {
				dst = append(dst, ',')
			}
			if !text {
				dst = append(dst, `{"key":`...)
			}
			var err error
			if dst, err = key.appendText(dst, w); err != nil {
				return dst, err
			}
			if text {
				dst = append(dst, ':')
			} else {
				dst = append(dst, `,"value":`...)
			}
			if err := part(value); err != nil {
				return dst, err
			}
			if !text {
				dst = append(dst, '}')
			}
			if w.bad {
				return dst, errNested
			}
		}
		return append(dst, end), nil
	}
	c := NewColumn(n.typ)
	n.take(&c, w)
	if w.bad {
		return dst, errNested
	}
	single, err := c.SingleAt(nil, 0)
	if err != nil {
		return dst, err
	}
	if n.storage == Floats && (math.IsNaN(c.Floats[0]) || math.IsInf(c.Floats[0], 0)) {
		text, err := schemas.AppendText(nil, n.typ, single)
		return schemas.AppendJSONString(dst, string(text)), err
	}
	return schemas.AppendJSONValue(dst, n.typ, single)
}

// take appends the leaf value at hand to a column of its type.
func (n *nest) take(c *Column, w *walker) {
	switch n.storage {
	case Ints:
		c.AppendInt(w.integer())
	case Floats:
		c.AppendFloat(w.float())
	default:
		c.AppendBytes(w.bytes())
	}
}

// check says whether a value is one of its type, to its last byte: each
// part within its type's range.
func (n *nest) check(w *walker) error {
	part := func(c *nest) error {
		if w.has() {
			return c.check(w)
		}
		if c.required && !w.bad {
			return fmt.Errorf("field %q is required and null", c.name)
		}
		return nil
	}
	switch n.kind {
	case schemas.Struct:
		for _, c := range n.children {
			if err := part(c); err != nil {
				return err
			}
		}
	case schemas.List:
		for range w.count() {
			if err := part(n.children[0]); err != nil || w.bad {
				return err
			}
		}
	case schemas.Map:
		for range w.count() {
			if err := n.children[0].check(w); err != nil || w.bad {
				return err
			}
			if err := part(n.children[1]); err != nil {
				return err
			}
		}
	default:
		c := NewColumn(n.typ)
		if n.take(&c, w); !w.bad {
			_, err := c.SingleAt(nil, 0)
			return err
		}
	}
	return nil
}

// NestedChange brings values of one version of a nested type to another, by
// field id: what is new is its initial default, or null.
type NestedChange struct {
	root *change
	same bool
}

// change is a part of the new type and where the old one has it.
type change struct {
	to       *nest
	from     *nest // nil: the old type lacks it
	children []*change
	order    []int // struct: of each old field the new one's place, -1: dropped
	absent   []byte
	parts    [][]byte // struct: scratch for the parts
}

// NewNestedChange compiles the way from one type to another that can hold it.
func NewNestedChange(from, to schemas.Type) (*NestedChange, error) {
	if from != to && !from.CanWiden(to) {
		return nil, fmt.Errorf("a %s cannot hold every %s", to, from)
	}
	root, err := changeOf(nestOf(&schemas.Field{Type: from}), nestOf(&schemas.Field{Type: to}))
	return &NestedChange{root: root, same: from == to}, err
}

func changeOf(from, to *nest) (*change, error) {
	c := &change{to: to, from: from}
	if from == nil {
		var err error
		c.absent, err = absentPart(to)
		return c, err
	}
	for range from.children {
		c.order = append(c.order, -1)
	}
	for i, t := range to.children {
		at := slices.IndexFunc(from.children, func(f *nest) bool { return f.id == t.id })
		var old *nest
		if at >= 0 {
			old = from.children[at]
			c.order[at] = i
		}
		child, err := changeOf(old, t)
		if err != nil {
			return nil, err
		}
		c.children = append(c.children, child)
	}
	c.parts = make([][]byte, len(c.children))
	return c, nil
}

// absentPart is the optional part of a field that older values lack.
func absentPart(n *nest) ([]byte, error) {
	if n.field == nil || n.field.InitialDefault == nil {
		return []byte{0}, nil
	}
	c := NewColumn(n.typ)
	if err := c.AppendJSON(n.field.InitialDefault); err != nil {
		return nil, fmt.Errorf("initial-default of field %q: %w", n.name, err)
	}
	return AppendNested([]byte{1}, &c, 0), nil
}

// Append appends the value in the new type.
func (c *NestedChange) Append(dst, value []byte) ([]byte, error) {
	if c.same {
		return append(dst, value...), nil
	}
	w := walker{b: value}
	dst = c.root.append(dst, &w)
	if w.bad || len(w.b) > 0 {
		return dst, errNested
	}
	return dst, nil
}

func (c *change) append(dst []byte, w *walker) []byte {
	part := func(dst []byte, c *change) []byte {
		if !w.has() {
			return append(dst, 0)
		}
		return c.append(append(dst, 1), w)
	}
	switch c.to.kind {
	case schemas.Struct:
		for i, old := range c.from.children {
			at := c.order[i]
			if at < 0 {
				if w.has() {
					old.skip(w)
				}
				continue
			}
			c.parts[at] = part(c.parts[at][:0], c.children[at])
		}
		for i, child := range c.children {
			if child.from == nil {
				dst = append(dst, child.absent...)
			} else {
				dst = append(dst, c.parts[i]...)
			}
		}
		return dst
	case schemas.List:
		n := w.count()
		dst = binary.AppendUvarint(dst, uint64(n))
		for range n {
			if dst = part(dst, c.children[0]); w.bad {
				break
			}
		}
		return dst
	case schemas.Map:
		n := w.count()
		dst = binary.AppendUvarint(dst, uint64(n))
		for range n {
			dst = c.children[0].append(dst, w)
			if dst = part(dst, c.children[1]); w.bad {
				break
			}
		}
		return dst
	}
	switch {
	case c.from.storage == Floats:
		return binary.LittleEndian.AppendUint64(dst, math.Float64bits(w.float()))
	case c.from.storage == Bytes:
		v := w.bytes()
		return append(binary.AppendUvarint(dst, uint64(len(v))), v...)
	}
	v := w.integer()
	if c.to.storage == Bytes {
		// A decimal that passes 18 digits.
		return schemas.AppendDecimal16(append(dst, 16), v)
	}
	return binary.AppendVarint(dst, v)
}

// skip passes over the value at hand.
func (n *nest) skip(w *walker) {
	part := func(c *nest) {
		if w.has() {
			c.skip(w)
		}
	}
	switch n.kind {
	case schemas.Struct:
		for _, c := range n.children {
			part(c)
		}
	case schemas.List:
		for range w.count() {
			if part(n.children[0]); w.bad {
				return
			}
		}
	case schemas.Map:
		for range w.count() {
			n.children[0].skip(w)
			if part(n.children[1]); w.bad {
				return
			}
		}
	default:
		switch n.storage {
		case Ints:
			w.integer()
		case Floats:
			w.float()
		default:
			w.bytes()
		}
	}
}

// NestedReader goes through the bytes of a nested value part by part, in the
// order in which they stand.
type NestedReader struct{ w walker }

// NewNestedReader begins at a value's first byte.
func NewNestedReader(value []byte) *NestedReader { return &NestedReader{walker{b: value}} }

// Count is the number of elements of the list or map that comes next.
func (r *NestedReader) Count() int { return r.w.count() }

// Has says whether the optional part that comes next is there.
func (r *NestedReader) Has() bool { return r.w.has() }

// Take appends the next value, of c's type, which is no nested one.
func (r *NestedReader) Take(c *Column) {
	n := nest{typ: c.Type, storage: c.Storage}
	n.take(c, &r.w)
}

// End is an error where the bytes were no value, or more than one.
func (r *NestedReader) End() error {
	if r.w.bad || len(r.w.b) > 0 {
		return errNested
	}
	return nil
}
