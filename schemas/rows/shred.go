package rows

import (
	"encoding/binary"
	"fmt"
	"math/bits"

	"github.com/varve-io/varve/schemas"
)

// Nested columns in a data file: each leaf is a column chunk of its own, whose
// entries say by two small numbers where they stand. The repetition level is the
// depth of the innermost list or map that a further entry continues, 0 at a row's
// begin; the definition level counts the optional parts on the way that are
// there, so that below its maximum it says what is null or empty.
//
// A page of such a chunk ends where a row does, as the page index demands; its
// strings stand plain, for a dictionary that fills within a row could not end a
// page there. It has counts of its entries and nulls but no bounds (M5).

// nestedPageEntries bounds the entries of a page whose rows hold many.
const nestedPageEntries = 1 << 17

// shred gives a compiled type its levels and its leaves their chunks. def and
// rep are the levels of what is around it.
func (n *nest) shred(def, rep uint8, path []string, add func(leaf) *chunk) {
	if !n.required {
		def++
	}
	n.def, n.rep = def, rep
	path = append(path[:len(path):len(path)], n.name)
	switch n.kind {
	case schemas.Struct:
	case schemas.List:
		def, rep = def+1, rep+1
		n.rep = rep
		path = append(path, "list")
	case schemas.Map:
		def, rep = def+1, rep+1
		n.rep = rep
		path = append(path, "key_value")
	default:
		l := leafOf(n.id, n.name, n.typ, n.required)
		l.path, l.nested, l.maxDef, l.maxRep = path, true, def, rep
		n.chunk = add(l)
		n.leaves = []*chunk{n.chunk}
		return
	}
	for _, c := range n.children {
		c.shred(def, rep, path, add)
		n.leaves = append(n.leaves, c.leaves...)
	}
}

// gather takes the rows sel of a nested column.
func (n *nest) gather(src *Column, sel []uint32) error {
	for _, r := range sel {
		var v []byte
		there := src.Valid[r] == 1
		if there {
			v = src.BytesAt(int(r))
		}
		if err := n.row(v, there); err != nil {
			return err
		}
	}
	return nil
}

// pick takes rows of parts.
func (n *nest) pick(parts []*Part, sel []uint32) error {
	for _, p := range sel {
		part, r := parts[PickSource(p)], PickRow(p)
		var v []byte
		there := !part.IsNull(r)
		if there {
			v = part.BytesAt(r)
		}
		if err := n.row(v, there); err != nil {
			return err
		}
	}
	return nil
}

// row takes one row's value.
func (n *nest) row(v []byte, there bool) error {
	w := walker{b: v}
	err := n.put(&w, there, 0, 0)
	if err == nil && (w.bad || len(w.b) > 0) {
		err = errNested
	}
	if err != nil {
		return fmt.Errorf("column %q: %w", n.name, err)
	}
	for _, c := range n.leaves {
		c.tops++
		if len(c.plain) >= c.opts.PageBytes || c.rows >= nestedPageEntries {
			if err := c.flushPage(); err != nil {
				return err
			}
		}
	}
	return nil
}

// put appends the value at hand to the leaves below n; rep and def are the
// levels of its place.
func (n *nest) put(w *walker, there bool, rep, def uint8) error {
	if !there {
		if n.required {
			return fmt.Errorf("field %q is required and null", n.name)
		}
		n.none(rep, def)
		return nil
	}
	switch n.kind {
	case schemas.Struct:
		for _, c := range n.children {
			if err := c.put(w, w.has(), rep, n.def); err != nil {
				return err
			}
		}
		return nil
	case schemas.List, schemas.Map:
		count := w.count()
		if count == 0 {
			n.none(rep, n.def)
		}
		for range count {
			if w.bad {
				return errNested
			}
			at := 0
			if n.kind == schemas.Map {
				if err := n.children[0].put(w, true, rep, n.def+1); err != nil {
					return err
				}
				at = 1
			}
			if err := n.children[at].put(w, w.has(), rep, n.def+1); err != nil {
				return err
			}
			rep = n.rep
		}
		return nil
	}
	c := n.chunk
	c.rows++
	c.reps, c.defs = append(c.reps, rep), append(c.defs, n.def)
	switch n.storage {
	case Ints:
		c.ints = append(c.ints, w.integer())
	case Floats:
		c.floats = append(c.floats, w.float())
	default:
		return n.putBytes(w.bytes())
	}
	return nil
}

// none appends an entry without value to every leaf below n.
func (n *nest) none(rep, def uint8) {
	for _, c := range n.leaves {
		c.rows++
		c.nulls++
		c.reps, c.defs = append(c.reps, rep), append(c.defs, def)
	}
}

func (n *nest) putBytes(v []byte) error {
	c := n.chunk
	if c.leaf.phys != physFixed {
		c.plain = binary.LittleEndian.AppendUint32(c.plain, uint32(len(v)))
	} else {
		skip := c.skipped()
		width := skip + int(c.leaf.length)
		if len(v) != width {
			return fmt.Errorf("a value of %d bytes where a %s has %d", len(v), n.typ, width)
		}
		for i := range skip {
			if v[i] != byte(int8(v[skip])>>7) {
				return fmt.Errorf("a value has more digits than a %s: %w", n.typ, schemas.ErrNotExact)
			}
		}
		v = v[skip:]
	}
	c.plain = append(c.plain, v...)
	c.count++
	return nil
}

// appendNestedLevels writes the levels of a page: repetition, then definition.
func (c *chunk) appendNestedLevels(dst []byte) []byte {
	if c.leaf.maxRep > 0 {
		dst = appendHybrid(dst, c.reps, c.leaf.maxRep)
	}
	if c.leaf.maxDef > 0 {
		dst = appendHybrid(dst, c.defs, c.leaf.maxDef)
	}
	return dst
}

// appendHybrid writes levels: one run where all agree, else bits.
func appendHybrid(dst []byte, levels []uint8, most uint8) []byte {
	at := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	same := true
	for _, v := range levels {
		same = same && v == levels[0]
	}
	if same {
		dst = binary.AppendUvarint(dst, uint64(len(levels))<<1)
		dst = append(dst, levels[0])
	} else {
		width := bits.Len8(most)
		groups := (len(levels) + 7) / 8
		dst = binary.AppendUvarint(dst, uint64(groups)<<1|1)
		end := len(dst) + groups*width
		var acc uint64
		n := 0
		for _, v := range levels {
			acc |= uint64(v) << n
			for n += width; n >= 8; n -= 8 {
				dst = append(dst, byte(acc))
				acc >>= 8
			}
		}
		for len(dst) < end {
			dst = append(dst, byte(acc))
			acc >>= 8
		}
	}
	binary.LittleEndian.PutUint32(dst[at:], uint32(len(dst)-at-levelPrefixBytes))
	return dst
}

// appendElements writes the schema elements of a nested column.
func (n *nest) appendElements(t *thriftWriter) (elements int) {
	group := func(name string, repetition int32, children int, converted, logical int32, id int32) {
		t.open(0)
		t.i32(3, repetition)
		t.str(4, name)
		t.i32(5, int32(children))
		if converted >= 0 {
			t.i32(6, converted)
		}
		if id > 0 {
			t.i32(9, id)
		}
		if logical > 0 {
			t.open(10)
			t.empty(int16(logical))
			t.close()
		}
		t.close()
		elements++
	}
	const (
		required, optional, repeated = 0, 1, 2
		convMap, convMapKeyValue     = 1, 2
		convList                     = 3
		logicalMap, logicalList      = 2, 3
	)
	own := int32(optional)
	if n.required {
		own = required
	}
	switch n.kind {
	case schemas.Struct:
		group(n.name, own, len(n.children), -1, 0, n.id)
	case schemas.List:
		group(n.name, own, 1, convList, logicalList, n.id)
		group("list", repeated, 1, -1, 0, 0)
	case schemas.Map:
		group(n.name, own, 1, convMap, logicalMap, n.id)
		group("key_value", repeated, 2, convMapKeyValue, 0, 0)
	default:
		n.chunk.leaf.appendElement(t)
		return 1
	}
	for _, c := range n.children {
		elements += c.appendElements(t)
	}
	return elements
}

// elements is how many elements appendElements writes.
func (n *nest) elements() int {
	count := 1
	if n.kind == schemas.List || n.kind == schemas.Map {
		count = 2
	}
	for _, c := range n.children {
		count += c.elements()
	}
	return count
}
