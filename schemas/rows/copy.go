package rows

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"

	"github.com/varve-io/varve/schemas"
)

// ErrCannotCopy says that a row group cannot be taken as its bytes are: its rows
// must be decoded.
var ErrCannotCopy = errors.New("the row group cannot be copied as it is")

// GroupCopy is a row group that is taken into another file as its bytes are: no
// page is decoded, but each is held against its checksum.
type GroupCopy struct {
	f     *File
	group int
	cols  []copyColumn
}

// copyColumn is where a column of the new file comes from.
type copyColumn struct {
	leaf   int // of the old file; -1: it is written anew
	bounds bounds
	pages  []page // bounds alone; nil: no page has any
	fresh  func(row int) int64
}

// CopyOf makes row group g of f ready to be copied into a file of w's columns.
// The file must be this package's own, with each of the schema's columns of the
// very type that the schema has now, and with statistics that give back the
// metrics of the values (M5): that leaves out a column with NaNs, and one whose
// largest value has no short upper bound. firstRowID and sequence are what rows
// inherit that carry no values of their own, -1: nothing; a column that has
// values for some rows only, where others inherit one, cannot be copied. The
// error is ErrCannotCopy or ErrBadFile.
func (w *Writer) CopyOf(f *File, g int, firstRowID, sequence int64) (*GroupCopy, error) {
	for i := range w.tops {
		if w.tops[i].nest != nil {
			return nil, fmt.Errorf("%w: column %q is nested", ErrCannotCopy, w.tops[i].nest.name)
		}
	}
	c := &GroupCopy{f: f, group: g, cols: make([]copyColumn, len(w.cols))}
	if !f.ours {
		return nil, fmt.Errorf("%w: another writer's", ErrCannotCopy)
	}
	first := int64(0)
	for i := range g {
		first += f.groups[i].rows
	}
	for i, to := range w.cols {
		if !to.decided && to.rows > 0 {
			// Its codec must be known, for the file has one a column.
			if err := to.flushPage(); err != nil {
				return nil, err
			}
		}
		inherits := int64(-1)
		switch {
		case to.leaf.id == schemas.RowIDField && firstRowID >= 0:
			inherits = firstRowID + first
		case to.leaf.id == schemas.LastSeqField:
			inherits = sequence
		}
		if err := c.column(&c.cols[i], to, i < len(w.opts.Schema.Fields), inherits); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (c *GroupCopy) column(cc *copyColumn, to *chunk, own bool, inherits int64) error {
	at, ok := c.f.byID[to.leaf.id]
	if !ok {
		if own {
			return fmt.Errorf("%w: column %q is not in it", ErrCannotCopy, to.leaf.name)
		}
		cc.leaf = -1
		cc.fresh = func(row int) int64 { return inherits }
		if to.leaf.id == schemas.RowIDField && inherits >= 0 {
			cc.fresh = func(row int) int64 { return inherits + int64(row) }
		}
		return nil
	}
	l := &c.f.leaves[at]
	ch := &c.f.groups[c.group].chunks[at]
	rows := c.f.groups[c.group].rows
	switch {
	case l.typ != to.leaf.typ || l.phys != to.leaf.phys || l.converts() || l.phys == physFixed && l.length != to.leaf.length || l.optional == to.leaf.required:
		return fmt.Errorf("%w: column %q is of another type", ErrCannotCopy, to.leaf.name)
	case to.decided && to.codec != ch.codec:
		return fmt.Errorf("%w: column %q has another codec", ErrCannotCopy, to.leaf.name)
	case ch.nulls < 0 || ch.nulls > rows || ch.raw < 1:
		return fmt.Errorf("%w: column %q has no statistics", ErrCannotCopy, to.leaf.name)
	case !own && ch.nulls > 0 && inherits >= 0:
		return fmt.Errorf("%w: some rows carry %q, others inherit it", ErrCannotCopy, to.leaf.name)
	}
	cc.leaf = at
	cc.bounds.rows, cc.bounds.nulls = rows, ch.nulls
	if err := cc.bounds.fromParquet(&to.leaf, ch.lo, ch.hi); err != nil {
		return err
	}
	if !cc.bounds.has && cc.bounds.nulls < rows {
		return nil // a type without bounds
	}
	return cc.readPageBounds(c.f, ch, &to.leaf)
}

// fromParquet takes bounds as bounds.parquet gave them.
func (b *bounds) fromParquet(l *leaf, lo, hi []byte) error {
	if b.nulls == b.rows || l.typ.Kind == schemas.UUID {
		return nil
	}
	if lo == nil || hi == nil {
		return fmt.Errorf("%w: column %q has no bounds", ErrCannotCopy, l.name)
	}
	width := map[int32]int{physBoolean: 1, physInt32: 4, physFloat: 4, physInt64: 8, physDouble: 8, physFixed: int(l.length)}[l.phys]
	if width > 0 && (len(lo) != width || len(hi) != width) {
		return fmt.Errorf("bounds of column %q have the wrong size: %w", l.name, ErrBadFile)
	}
	b.has = true
	switch l.phys {
	case physBoolean:
		b.loI, b.hiI = int64(lo[0]), int64(hi[0])
	case physInt32:
		b.loI, b.hiI = int64(int32(binary.LittleEndian.Uint32(lo))), int64(int32(binary.LittleEndian.Uint32(hi)))
	case physInt64:
		b.loI, b.hiI = int64(binary.LittleEndian.Uint64(lo)), int64(binary.LittleEndian.Uint64(hi))
	case physFloat:
		b.loF, b.hiF = float64(math.Float32frombits(binary.LittleEndian.Uint32(lo))), float64(math.Float32frombits(binary.LittleEndian.Uint32(hi)))
	case physDouble:
		b.loF, b.hiF = math.Float64frombits(binary.LittleEndian.Uint64(lo)), math.Float64frombits(binary.LittleEndian.Uint64(hi))
	default:
		if l.typ.Kind == schemas.Decimal {
			b.lo, b.hi = widen(lo), widen(hi)
			break
		}
		if l.phys == physFixed {
			// What lies behind the cut are zeros.
			lo, hi = lo[:min(len(lo), boundLength)], hi[:min(len(hi), boundLength)]
		}
		b.lo, b.hi = append([]byte{}, lo...), append([]byte{}, hi...)
	}
	ok := true
	switch {
	case StorageOf(l.typ) == Ints:
		least, most := l.typ.IntRange()
		ok = b.loI >= least && b.hiI <= most && b.loI <= b.hiI
	case l.typ.Kind == schemas.Decimal:
		ok = schemas.DecimalFits(b.lo, l.typ.Precision) && schemas.DecimalFits(b.hi, l.typ.Precision)
	}
	if !ok {
		return fmt.Errorf("the bounds of column %q are none of a %s: %w", l.name, l.typ, ErrBadFile)
	}
	return nil
}

// readPageBounds reads the chunk's column index.
func (cc *copyColumn) readPageBounds(f *File, ch *fileChunk, l *leaf) error {
	if ch.columnIndexSize <= 0 || ch.columnIndexSize > maxIndexSize || ch.columnIndex < 4 || ch.columnIndex > f.size || ch.columnIndexSize > f.size-ch.columnIndex {
		return fmt.Errorf("%w: column %q has no column index", ErrCannotCopy, l.name)
	}
	b := make([]byte, ch.columnIndexSize)
	if err := readAt(f.r, b, ch.columnIndex); err != nil {
		return err
	}
	t := &thriftReader{b: b}
	var empty []bool
	var lows, highs [][]byte
	var nulls []int64
	binaries := func(dst *[][]byte, wire byte) {
		n, elem := t.list(wire)
		for i := 0; i < n && t.err == nil; i++ {
			*dst = append(*dst, t.binary(elem))
		}
	}
	t.fields(func(id int16, wire byte) bool {
		switch id {
		case 1:
			n, _ := t.list(wire)
			for i := 0; i < n && t.err == nil; i++ {
				empty = append(empty, t.byte() == thriftTrue)
			}
		case 2:
			binaries(&lows, wire)
		case 3:
			binaries(&highs, wire)
		case 5:
			n, _ := t.list(wire)
			for i := 0; i < n && t.err == nil; i++ {
				nulls = append(nulls, t.zigzag())
			}
		default:
			return false
		}
		return true
	})
	n := len(empty)
	if t.err != nil || len(lows) != n || len(highs) != n || len(nulls) != n {
		return fmt.Errorf("the column index of %q is ill-formed: %w", l.name, ErrBadFile)
	}
	cc.pages = make([]page, n)
	sum := int64(0)
	for i := range cc.pages {
		p := &cc.pages[i].bounds
		p.nulls = nulls[i]
		sum += nulls[i]
		if empty[i] {
			continue
		}
		p.rows = math.MaxInt64 // until the page is there
		if err := p.fromParquet(l, lows[i], highs[i]); err != nil {
			return err
		}
	}
	if sum != ch.nulls {
		return fmt.Errorf("the column index of %q counts %d nulls, its statistics %d: %w", l.name, sum, ch.nulls, ErrBadFile)
	}
	return nil
}

// Copy writes the row group. After an error the file is worthless and Append and
// Close repeat it.
func (w *Writer) Copy(c *GroupCopy) error {
	if w.err == nil {
		w.err = w.copy(c)
	}
	return w.err
}

func (w *Writer) copy(c *GroupCopy) error {
	if err := w.endGroup(); err != nil {
		return err
	}
	rows := int(c.f.groups[c.group].rows)
	g := rowGroup{offset: w.offset, rows: int64(rows), chunks: make([]chunkMeta, len(w.cols))}
	for i, to := range w.cols {
		cc := &c.cols[i]
		var err error
		if cc.leaf < 0 {
			err = w.freshChunk(to, cc, &g, i, rows)
		} else if err = w.copyChunk(to, c, cc, &g, i); err != nil {
			err = fmt.Errorf("column %q, row group %d: %w", to.leaf.name, c.group, err)
		}
		if err != nil {
			return err
		}
	}
	w.groups = append(w.groups, g)
	w.rows += g.rows
	return nil
}

// freshChunk writes a column that the old file does not have.
func (w *Writer) freshChunk(to *chunk, cc *copyColumn, g *rowGroup, i, rows int) error {
	values := make([]int64, min(rows, w.opts.PageRows))
	for at := 0; at < rows; {
		n := min(len(values), rows-at)
		for k := range n {
			values[k] = cc.fresh(at + k)
		}
		if err := to.takeOrNull(values, 0, n); err != nil {
			return err
		}
		if at += n; at < rows {
			if err := to.flushPage(); err != nil {
				return err
			}
		}
	}
	return w.emitChunk(to, g, i, rows)
}

// copyChunk takes a chunk's pages over, each held against its checksum.
func (w *Writer) copyChunk(to *chunk, c *GroupCopy, cc *copyColumn, g *rowGroup, i int) error {
	ch := &c.f.groups[c.group].chunks[cc.leaf]
	m := &g.chunks[i]
	in := stream{r: c.f.r, step: DefaultReadAhead}
	in.seek(ch.offset, ch.offset+ch.size)
	start := w.offset
	left, raw := g.rows, int64(0)
	for in.left() > 0 {
		from := in.at
		h, err := in.pageHeader()
		if err != nil {
			return err
		}
		head := in.at - from
		raw += head + h.raw
		if h.packed < 0 || h.packed > in.left() || h.raw < 0 || h.raw > maxPageSize || !h.hasCRC {
			return fmt.Errorf("a page header is ill-formed: %w", ErrBadFile)
		}
		in.at = from
		whole, err := in.take(int(head + h.packed))
		if err != nil {
			return err
		}
		if uint32(h.crc) != crc32.ChecksumIEEE(whole[head:]) {
			return fmt.Errorf("a page's checksum is wrong: %w", ErrBadFile)
		}
		switch {
		case h.kind == pageDictionary && !m.dict && len(m.pages) == 0 && h.encoding == encPlain:
			m.dict, m.dictOffset = true, w.offset
		case h.kind == pageData && h.values > 0 && h.values <= left:
			p := page{offset: w.offset, size: int32(len(whole)), firstRow: g.rows - left}
			p.bounds.rows = h.values
			if cc.pages != nil {
				if len(m.pages) == len(cc.pages) {
					return fmt.Errorf("its column index leaves out a page: %w", ErrBadFile)
				}
				p.bounds = cc.pages[len(m.pages)].bounds
				p.bounds.rows = h.values
				if p.bounds.nulls > h.values || !p.bounds.has && p.bounds.nulls != h.values {
					return fmt.Errorf("a page of %d values, its column index says otherwise: %w", h.values, ErrBadFile)
				}
			}
			left -= h.values
			// The header has no checksum: it must be what the writer makes of it.
			w.thrift.dataPageHeader(int(h.raw), int(h.packed), int32(h.crc), int(h.values), int32(h.encoding))
			if !bytes.Equal(w.thrift.b, whole[:head]) {
				return fmt.Errorf("a page header is ill-formed: %w", ErrBadFile)
			}
			switch {
			case h.encoding == encRLEDictionary && m.dict && !m.plain:
			case h.encoding == encPlain:
				m.plain = true
			case h.encoding == encDeltaBinary && StorageOf(to.leaf.typ) == Ints:
				m.delta = true
			default:
				return fmt.Errorf("a page of encoding %d: %w", h.encoding, ErrBadFile)
			}
			if len(m.pages) == 0 {
				m.dataOffset = w.offset
			}
			m.pages = append(m.pages, p)
		default:
			return fmt.Errorf("a page of kind %d with %d values: %w", h.kind, h.values, ErrBadFile)
		}
		if err := w.emit(whole); err != nil {
			return err
		}
	}
	if raw != ch.raw {
		return fmt.Errorf("its pages have %d bytes, the footer says %d: %w", raw, ch.raw, ErrBadFile)
	}
	if left != 0 || cc.pages != nil && len(m.pages) != len(cc.pages) {
		return fmt.Errorf("%d rows are missing: %w", left, ErrBadFile)
	}
	to.codec, to.decided = ch.codec, true
	m.codec, m.values, m.raw, m.packed = ch.codec, g.rows, ch.raw, w.offset-start
	m.bounds = cc.bounds
	g.raw += m.raw
	g.packed += m.packed
	to.size += m.packed
	to.file.merge(to.leaf.typ, &cc.bounds)
	return nil
}
