package rows

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"math/bits"

	"github.com/varve-io/varve/schemas"
)

// fileNode is a part of a nested column as the footer describes it.
type fileNode struct {
	name     string
	id       int32
	kind     schemas.Kind // 0: a leaf
	optional bool
	def, rep uint8 // as nest has them
	children []*fileNode
	leaf     int
	typ      schemas.Type // of a leaf
	leaves   []int        // below it, itself included
	why      string
}

// field is the column as this package would make it.
func (n *fileNode) field() schemas.Field {
	out := schemas.Field{ID: n.id, Name: n.name, Type: n.typ, Required: !n.optional}
	var inner []schemas.Field
	for _, c := range n.children {
		inner = append(inner, c.field())
	}
	if n.kind != 0 {
		out.Type = schemas.NestedOf(n.kind, inner)
	}
	return out
}

// maxLevels bounds the levels of a file: varve's own types stay far below it.
const maxLevels = 100

// takeNested builds the trees of the columns that are groups. What is no
// struct, list or map in the form that Iceberg's specification gives them is
// not read.
func (f *File) takeNested(elements []element) error {
	f.nested = make(map[int32]*fileNode)
	at, leaf := 1, 0
	var build func(def, rep uint8, depth int) (*fileNode, error)
	build = func(def, rep uint8, depth int) (*fileNode, error) {
		if at >= len(elements) || depth > maxLevels {
			return nil, fmt.Errorf("its schema is no tree, or one of more than %d levels: %w", maxLevels, ErrBadFile)
		}
		e := &elements[at]
		at++
		n := &fileNode{name: e.name, optional: e.repetition == 1}
		if e.hasID && e.id > 0 && e.id <= math.MaxInt32 {
			n.id = int32(e.id)
		}
		if e.repetition != 0 {
			def++
		}
		n.def, n.rep = def, rep
		if e.repetition == 2 {
			rep++
			n.why = "a repeated field outside of a list or map"
		}
		if e.hasPhys {
			n.leaf, n.leaves = leaf, []int{leaf}
			l := &f.leaves[leaf]
			l.maxDef, l.maxRep = def, rep
			typ, why := e.typeOf()
			n.typ = typ
			if why != "" {
				n.why = why
			}
			leaf++
			return n, nil
		}
		list := e.logical == 3 || e.logical == 0 && e.hasConverted && e.converted == 3
		isMap := e.logical == 2 || e.logical == 0 && e.hasConverted && (e.converted == 1 || e.converted == 2)
		children := e.children
		if list || isMap {
			n.kind = schemas.List
			want := int64(1)
			if isMap {
				n.kind, want = schemas.Map, 2
			}
			if children == 1 && at < len(elements) && !elements[at].hasPhys && elements[at].repetition == 2 && elements[at].children == want {
				// The repeated group between is the list's own.
				at++
				children = want
				def, rep = def+1, rep+1
				n.rep = rep
			} else {
				n.why = "a list or map in an old form"
			}
		} else {
			n.kind = schemas.Struct
		}
		for range children {
			c, err := build(def, rep, depth+1)
			if err != nil {
				return nil, err
			}
			n.children = append(n.children, c)
			n.leaves = append(n.leaves, c.leaves...)
			if c.why != "" && n.why == "" {
				n.why = c.why
			}
			if c.id == 0 && n.why == "" {
				n.why = "a nested field without a field id"
			}
		}
		if len(n.leaves) == 0 && n.why == "" {
			n.why = "a struct without fields"
		}
		return n, nil
	}
	for at < len(elements) {
		top := elements[at].hasPhys
		n, err := build(0, 0, 0)
		if err != nil {
			return err
		}
		if top || n.id == 0 || len(n.leaves) == 0 {
			continue
		}
		if _, twice := f.byID[n.id]; twice || f.nested[n.id] != nil {
			return fmt.Errorf("field id %d stands twice in its schema: %w", n.id, ErrBadFile)
		}
		f.nested[n.id] = n
	}
	return nil
}

// assembler puts a nested column together, row by row, from its leaves.
type assembler struct {
	f      *File
	field  *schemas.Field
	root   *reading
	leaves []*leafScan
	value  []byte
}

// reading is a part of the wanted type and where the file has it.
type reading struct {
	to       *nest
	from     *fileNode
	children []*reading // of a struct: nil where the file lacks the field
	absent   [][]byte   // of a struct: the optional part of what the file lacks
	leaves   []*leafScan
	wide     bool // a decimal that passes 18 digits
}

// maxNestedValue bounds one value of a nested column.
const maxNestedValue = 256 << 20

// assemble begins to read a column at a row group.
func (f *File) assemble(want *schemas.Field, group int, readAhead int) (*assembler, error) {
	n := f.nested[want.ID]
	switch {
	case n == nil || !want.Type.IsNested():
		return nil, fmt.Errorf("column %q is nested in the file or in the table, but not in both: %w", want.Name, ErrUnsupported)
	case n.why != "":
		return nil, fmt.Errorf("column %q: %s: %w", want.Name, n.why, ErrUnsupported)
	}
	a := &assembler{f: f, field: want}
	scans := make(map[int]*leafScan)
	open := func(leaf int, typ schemas.Type) *leafScan {
		if s := scans[leaf]; s != nil {
			return s
		}
		l := &f.leaves[leaf]
		s := &leafScan{f: f, leaf: leaf, group: group}
		s.col = NewColumn(typ)
		s.in = stream{r: f.r, step: max(readAhead, minReadAhead)}
		s.r = chunkReader{leaf: l}
		scans[leaf] = s
		a.leaves = append(a.leaves, s)
		return s
	}
	root, err := f.readingOf(nestOf(want), n, open)
	if err != nil {
		return nil, fmt.Errorf("column %q: %w", want.Name, err)
	}
	a.root = root
	return a, nil
}

func (f *File) readingOf(to *nest, from *fileNode, open func(int, schemas.Type) *leafScan) (*reading, error) {
	r := &reading{to: to, from: from}
	kind := from.kind
	if kind == 0 {
		l := &f.leaves[from.leaf]
		typ := l.as(to.typ)
		if typ != to.typ && !typ.CanWiden(to.typ) || to.typ.IsNested() {
			return nil, fmt.Errorf("field %q is a %s in the file, which no %s can hold", to.name, typ, to.typ)
		}
		r.wide = StorageOf(typ) != to.storage
		r.leaves = []*leafScan{open(from.leaf, typ)}
		return r, nil
	}
	if kind != to.kind {
		return nil, fmt.Errorf("field %q is another nested type in the file than in the table", to.name)
	}
	for i, c := range to.children {
		var old *fileNode
		for _, o := range from.children {
			if o.id == c.id {
				old = o
			}
		}
		if old == nil {
			if kind != schemas.Struct {
				return nil, fmt.Errorf("field %q of field %q is not in the file", c.name, to.name)
			}
			if c.required && c.field.InitialDefault == nil {
				return nil, fmt.Errorf("field %q is required, but the file lacks it and it has no initial-default", c.name)
			}
			part, err := absentPart(c)
			if err != nil {
				return nil, err
			}
			r.children, r.absent = append(r.children, nil), append(r.absent, part)
			continue
		}
		if kind == schemas.Map && old != from.children[i] {
			return nil, fmt.Errorf("the key and value of field %q are exchanged in the file", to.name)
		}
		child, err := f.readingOf(c, old, open)
		if err != nil {
			return nil, err
		}
		r.children, r.absent = append(r.children, child), append(r.absent, nil)
		r.leaves = append(r.leaves, child.leaves...)
	}
	if len(r.leaves) == 0 {
		// All its fields are new: some leaf says whether it is there.
		best := from.leaves[0]
		for _, l := range from.leaves {
			if f.leaves[l].maxRep < f.leaves[best].maxRep {
				best = l
			}
		}
		r.leaves = []*leafScan{open(best, f.leaves[best].typ)}
	}
	return r, nil
}

var errLevels = fmt.Errorf("the levels of a nested column contradict each other: %w", ErrBadFile)

// next appends the optional part of the next row to dst.
func (a *assembler) next(dst []byte) ([]byte, error) {
	from := len(dst)
	dst, err := a.root.part(dst, 0)
	if err == nil && len(dst)-from > maxNestedValue {
		err = fmt.Errorf("a value of more than %d bytes: %w", maxNestedValue, ErrUnsupported)
	}
	return dst, err
}

// part appends the value at hand with its presence before it. rep is the
// repetition level at which it stands.
func (r *reading) part(dst []byte, rep uint8) ([]byte, error) {
	if len(dst) > maxNestedValue {
		return dst, fmt.Errorf("a value of more than %d bytes: %w", maxNestedValue, ErrUnsupported)
	}
	e, err := r.leaves[0].peek()
	if err != nil {
		return dst, err
	}
	if e.def >= r.from.def {
		return r.value(append(dst, 1), rep)
	}
	if !r.from.optional || e.def+1 < r.from.def {
		return dst, errLevels
	}
	if r.to.required {
		return dst, fmt.Errorf("field %q is required, but the file has a null", r.to.name)
	}
	return append(dst, 0), r.none(rep)
}

// none passes over one place where r has no value.
func (r *reading) none(rep uint8) error {
	for _, l := range r.leaves {
		e, err := l.peek()
		if err != nil {
			return err
		}
		if e.rep != rep || e.def >= r.from.def {
			return errLevels
		}
		l.take()
	}
	return nil
}

// value appends the value at hand, which is there.
func (r *reading) value(dst []byte, rep uint8) ([]byte, error) {
	switch r.to.kind {
	case schemas.Struct:
		return r.structValue(dst, rep)
	case schemas.List, schemas.Map:
		return r.repeated(dst, rep)
	}
	l := r.leaves[0]
	e, err := l.peek()
	if err != nil {
		return dst, err
	}
	if e.rep != rep || e.def != r.from.def {
		return dst, errLevels
	}
	i := l.value
	l.take()
	switch {
	case r.wide:
		return schemas.AppendDecimal16(append(dst, 16), l.col.Ints[i]), nil
	case l.col.Storage == Ints:
		return binary.AppendVarint(dst, l.col.Ints[i]), nil
	case l.col.Storage == Floats:
		return binary.LittleEndian.AppendUint64(dst, math.Float64bits(l.col.Floats[i])), nil
	}
	v := l.col.BytesAt(i)
	return append(binary.AppendUvarint(dst, uint64(len(v))), v...), nil
}

func (r *reading) structValue(dst []byte, rep uint8) (_ []byte, err error) {
	known := false
	for i, c := range r.children {
		if c == nil {
			dst = append(dst, r.absent[i]...)
			continue
		}
		known = true
		if dst, err = c.part(dst, rep); err != nil {
			return dst, err
		}
	}
	if known {
		return dst, nil
	}
	// The leaf that only says whether the struct is there: all of its entries
	// that belong to this value.
	l := r.leaves[0]
	e, err := l.peek()
	if err != nil {
		return dst, err
	}
	if e.rep != rep {
		return dst, errLevels
	}
	for l.take(); ; l.take() {
		if e, err = l.peekOrEnd(); err != nil || e.rep <= r.from.rep {
			return dst, err
		}
	}
}

// repeated appends a list or map. Its elements are counted first into the
// value's own scratch, for their number stands before them.
func (r *reading) repeated(dst []byte, rep uint8) ([]byte, error) {
	e, err := r.leaves[0].peek()
	if err != nil {
		return dst, err
	}
	if e.def == r.from.def {
		for _, l := range r.leaves {
			e, err := l.peek()
			if err != nil {
				return dst, err
			}
			if e.rep != rep || e.def != r.from.def {
				return dst, errLevels
			}
			l.take()
		}
		return append(dst, 0), nil
	}
	start := len(dst)
	count := uint64(0)
	for {
		last := len(r.children) - 1
		if last == 1 {
			e, err := r.leaves[0].peek()
			if err != nil {
				return dst, err
			}
			if e.def < r.children[0].from.def {
				return dst, fmt.Errorf("a map's key is null: %w", ErrBadFile)
			}
			if dst, err = r.children[0].value(dst, rep); err != nil {
				return dst, err
			}
		}
		if dst, err = r.children[last].part(dst, rep); err != nil {
			return dst, err
		}
		count++
		if e, err = r.leaves[0].peekOrEnd(); err != nil {
			return dst, err
		}
		if e.rep != r.from.rep {
			if e.rep > r.from.rep {
				return dst, errLevels
			}
			break
		}
		rep = r.from.rep
	}
	return CountBefore(dst, start, count), nil
}

// leafScan goes through one leaf entry by entry.
type leafScan struct {
	f    *File
	leaf int
	r    chunkReader
	in   stream
	col  Column // the values of the page at hand, packed

	reps, defs []uint8
	levels     []uint32
	at, value  int // of the entry at hand

	group   int   // the row group to open next
	opened  bool  // one is open: group-1
	left    int64 // entries of it behind the page
	skipped bool  // left is not known: the chunk's end says
	rows    int64 // of it that were taken
}

type entry struct{ rep, def uint8 }

// peek is the entry at hand.
func (l *leafScan) peek() (entry, error) {
	for l.at == len(l.defs) {
		if err := l.nextPage(); err != nil {
			return entry{}, err
		}
	}
	return entry{l.reps[l.at], l.defs[l.at]}, nil
}

var errNoMore = errors.New("no entry is left")

// peekOrEnd is peek; at the column's end it is the begin of a row.
func (l *leafScan) peekOrEnd() (entry, error) {
	e, err := l.peek()
	if errors.Is(err, errNoMore) {
		return entry{}, nil
	}
	return e, err
}

func (l *leafScan) take() {
	if l.defs[l.at] == l.r.leaf.maxDef {
		l.value++
	}
	if l.reps[l.at] == 0 {
		l.rows++
	}
	l.at++
}

// open begins the next row group's chunk.
func (l *leafScan) open() error {
	if l.opened && l.rows != l.f.groups[l.group-1].rows {
		return fmt.Errorf("field %q, row group %d: %d rows, the footer says %d: %w", l.r.leaf.name, l.group-1, l.rows, l.f.groups[l.group-1].rows, ErrBadFile)
	}
	if l.group >= len(l.f.groups) {
		return errNoMore
	}
	ch := &l.f.groups[l.group].chunks[l.leaf]
	l.group++
	l.opened, l.skipped, l.rows = true, false, 0
	l.r.codec, l.r.hasDict, l.r.dict = ch.codec, false, Column{}
	l.left = ch.values
	l.in.seek(ch.offset, ch.offset+ch.size)
	return nil
}

// skip passes over rows, which lie in the row group to open next; pages by the
// offset index, where there is one.
func (l *leafScan) skip(rows int64) error {
	if rows == 0 {
		return nil
	}
	if err := l.open(); err != nil {
		return err
	}
	ch := &l.f.groups[l.group-1].chunks[l.leaf]
	if ch.indexSize > 0 {
		pages, err := readOffsetIndex(l.f, ch, l.f.groups[l.group-1].rows)
		if err != nil {
			return err
		}
		at := 0
		for at+1 < len(pages) && pages[at+1].first <= rows {
			at++
		}
		if at > 0 {
			if head := pages[0].offset; head > ch.offset {
				// The dictionary lies before the pages.
				l.in.seek(ch.offset, head)
				for l.in.left() > 0 {
					if err := l.nextPage(); err != nil {
						return err
					}
				}
				if l.left != ch.values {
					return fmt.Errorf("field %q: its offset index leaves out a page: %w", l.r.leaf.name, ErrBadFile)
				}
			}
			l.in.seek(pages[at].offset, ch.offset+ch.size)
			l.skipped, l.rows = true, pages[at].first
		}
	}
	for l.rows < rows {
		if _, err := l.peek(); err != nil {
			return err
		}
		l.take()
	}
	for {
		e, err := l.peekOrEnd()
		if err != nil || e.rep == 0 {
			return err
		}
		l.take()
	}
}

// nextPage decodes the next data page. The decompressors are libraries: what
// one panics on is a damaged file, and becomes an error here.
func (l *leafScan) nextPage() (err error) {
	for l.left == 0 || l.skipped && l.in.left() <= 0 {
		if err := l.open(); err != nil {
			return err
		}
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("a page cannot be decoded (%v): %w", p, ErrBadFile)
		}
		if err != nil {
			err = fmt.Errorf("field %q, row group %d: %w", l.r.leaf.name, l.group-1, err)
		}
	}()
	h, err := l.in.pageHeader()
	if err != nil {
		return err
	}
	if h.packed < 0 || h.packed > l.in.left() || h.raw < 0 || h.raw > maxPageSize {
		return fmt.Errorf("a page header is ill-formed or missing: %w", ErrBadFile)
	}
	body, err := l.in.take(int(h.packed))
	if err != nil {
		return err
	}
	if h.hasCRC && uint32(h.crc) != crc32.ChecksumIEEE(body) {
		return fmt.Errorf("a page's checksum is wrong: %w", ErrBadFile)
	}
	l.r.dst = &l.col
	switch h.kind {
	case pageIndexKind:
		return nil
	case pageDictionary:
		if l.r.hasDict {
			return fmt.Errorf("a second dictionary: %w", ErrBadFile)
		}
		return l.r.readDict(&h, body)
	case pageData, pageDataV2:
	default:
		return fmt.Errorf("page kind %d: %w", h.kind, ErrUnsupported)
	}
	if h.values < 0 || h.values > l.left || h.values > maxPageRows {
		return fmt.Errorf("a page of %d values where %d are left: %w", h.values, l.left, ErrBadFile)
	}
	l.left -= h.values
	return l.readPage(&h, body)
}

func (l *leafScan) readPage(h *pageHeader, body []byte) error {
	n := int(h.values)
	l.at, l.value = 0, 0
	l.reps, l.defs = grown(l.reps[:0], n), grown(l.defs[:0], n)
	var reps, defs []byte
	var err error
	leaf := l.r.leaf
	if h.kind == pageDataV2 {
		if h.defBytes < 0 || h.repBytes < 0 || h.defBytes > int64(len(body)) || h.repBytes > int64(len(body))-h.defBytes || h.raw < h.defBytes+h.repBytes {
			return fmt.Errorf("a page's levels are ill-formed: %w", ErrBadFile)
		}
		reps, defs, body = body[:h.repBytes], body[h.repBytes:h.repBytes+h.defBytes], body[h.repBytes+h.defBytes:]
		raw := h.raw - h.defBytes - h.repBytes
		if h.compressedValues && (raw > 0 || len(body) > 0) {
			if body, err = l.r.unpack(body, raw); err != nil {
				return err
			}
		}
	} else {
		if body, err = l.r.unpack(body, h.raw); err != nil {
			return err
		}
		if h.levels != encRLE {
			return fmt.Errorf("levels of encoding %d: %w", h.levels, ErrUnsupported)
		}
		if leaf.maxRep > 0 {
			if reps, body, err = cutLevels(h, body); err != nil {
				return err
			}
		}
		if leaf.maxDef > 0 {
			if defs, body, err = cutLevels(h, body); err != nil {
				return err
			}
		}
	}
	if err := l.readLevels(l.reps, reps, leaf.maxRep); err != nil {
		return err
	}
	if err := l.readLevels(l.defs, defs, leaf.maxDef); err != nil {
		return err
	}
	there := 0
	for _, d := range l.defs {
		if d == leaf.maxDef {
			there++
		}
	}
	l.col.Ints, l.col.Floats, l.col.Ends, l.col.Data = l.col.Ints[:0], l.col.Floats[:0], l.col.Ends[:0], l.col.Data[:0]
	if err := l.r.values(h, body, there); err != nil {
		return err
	}
	if l.col.stored() != there {
		return errShortValues
	}
	return nil
}

// readLevels decodes levels up to most; most 0: there are none, and all are 0.
func (l *leafScan) readLevels(dst []uint8, b []byte, most uint8) error {
	if most == 0 {
		clear(dst)
		return nil
	}
	var err error
	if l.levels, err = readRuns(l.levels[:0], b, len(dst), bits.Len8(most)); err != nil {
		return fmt.Errorf("a page's levels end early: %w", ErrBadFile)
	}
	for i, v := range l.levels {
		if v > uint32(most) {
			return errLevels
		}
		dst[i] = uint8(v)
	}
	return nil
}

// skip passes over rows of the row group that comes next.
func (a *assembler) skip(rows int64) error {
	for _, l := range a.leaves {
		err := l.skip(rows)
		if errors.Is(err, errNoMore) {
			err = fmt.Errorf("rows are missing: %w", ErrBadFile)
		}
		if err != nil {
			return fmt.Errorf("column %q: %w", a.field.Name, err)
		}
	}
	return nil
}

// seekGroup goes on at a row group.
func (a *assembler) seekGroup(group int) {
	for _, l := range a.leaves {
		l.group, l.left, l.opened, l.skipped = group, 0, false, false
		l.reps, l.defs, l.at, l.value = l.reps[:0], l.defs[:0], 0, 0
	}
}

// appendRow appends the next row to a column of the wanted type.
func (a *assembler) appendRow(c *Column) error {
	var err error
	a.value, err = a.next(a.value[:0])
	switch {
	case errors.Is(err, errNoMore):
		err = fmt.Errorf("rows are missing: %w", ErrBadFile)
	case err == nil && a.value[0] == 0:
		c.AppendNull()
	case err == nil && uint64(len(c.Data))+uint64(len(a.value)) > math.MaxUint32:
		err = errLargeColumn
	case err == nil:
		c.AppendBytes(a.value[1:])
	}
	if err != nil {
		return fmt.Errorf("column %q: %w", a.field.Name, err)
	}
	return nil
}

// readNested reads the rows [lo,hi) of a nested column, which begin a row group.
func (f *File) readNested(want *schemas.Field, lo, hi int64) (Column, error) {
	c := NewColumn(want.Type)
	group, start := 0, int64(0)
	for group < len(f.groups) && start < lo {
		start += f.groups[group].rows
		group++
	}
	a, err := f.assemble(want, group, DefaultReadAhead)
	if err != nil {
		return c, err
	}
	for range hi - lo {
		if err := a.appendRow(&c); err != nil {
			return c, err
		}
	}
	return c, nil
}

// nestedRows and nestedBytes bound the rows that a scan puts together at a time.
const (
	nestedRows  = 1 << 12
	nestedBytes = 1 << 20
)

// nextNested makes the next rows the column's page.
func (c *columnScan) nextNested() error {
	c.col.Truncate(0)
	left := c.hi - c.nestedRow
	for int64(c.col.Len()) < min(left, nestedRows) && len(c.col.Data) < nestedBytes {
		if err := c.nested.appendRow(&c.col); err != nil {
			return err
		}
	}
	if c.col.Len() == 0 {
		return fmt.Errorf("column %q: rows are missing: %w", c.field.Name, ErrBadFile)
	}
	c.nestedRow += int64(c.col.Len())
	c.froms = c.page.ofColumn(&c.col, false, c.froms)
	c.page.typ = c.field.Type
	c.used = 0
	return nil
}
