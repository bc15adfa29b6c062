package rows

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/varve-io/varve/schemas"
)

const (
	// DefaultReadAhead is how much of a column a Scan reads at a time.
	DefaultReadAhead = 1 << 20
	minReadAhead     = 16 << 10
	// maxPageHeader bounds a page's header; statistics in it may hold values.
	maxPageHeader = 1 << 20
	// A column that the file lacks is handed on in pieces of these sizes.
	defaultRows  = 1 << 13
	defaultBytes = 4 << 20
)

// Scan reads a range of a file's rows page by page: its memory is a page, a
// dictionary and the read-ahead of each column, whatever the file's size. Pages
// outside of the range are skipped, by the offset index where there is one, else
// by their headers. It must not be used from several goroutines.
type Scan struct {
	f      *File
	hi     int64
	row    int64 // of the window
	rows   int   // of the window
	group  int
	ends   int64 // row behind the group
	cols   []columnScan
	views  []Part
	failed error
}

// Scan begins a scan of the rows [lo,hi) with fields of another schema version,
// as Read takes them. readAhead is per column; 0: DefaultReadAhead.
func (f *File) Scan(want []schemas.Field, lo, hi int64, readAhead int) (*Scan, error) {
	if lo < 0 || lo > hi || hi > f.rows {
		return nil, fmt.Errorf("rows %d to %d of a file that has %d", lo, hi, f.rows)
	}
	if readAhead <= 0 {
		readAhead = DefaultReadAhead
	}
	s := &Scan{f: f, hi: hi, row: lo, cols: make([]columnScan, len(want)), views: make([]Part, len(want))}
	for s.group < len(f.groups)-1 && s.ends+f.groups[s.group].rows <= lo {
		s.ends += f.groups[s.group].rows
		s.group++
	}
	start := s.ends
	if len(f.groups) > 0 {
		s.ends += f.groups[s.group].rows
	}
	for i := range want {
		c := &s.cols[i]
		*c = columnScan{f: f, field: &want[i], group: s.group, start: start, lo: lo, hi: hi}
		at, ok := f.byID[want[i].ID]
		if f.isNested(&want[i], ok) {
			var err error
			if c.nested, err = f.assemble(&want[i], s.group, readAhead); err != nil {
				return nil, err
			}
			if err := c.nested.skip(lo - start); err != nil {
				return nil, err
			}
			c.col, c.nestedRow = NewColumn(want[i].Type), lo
			continue
		}
		if !ok {
			if err := c.constant(); err != nil {
				return nil, err
			}
			continue
		}
		l := &f.leaves[at]
		if l.why != "" {
			return nil, fmt.Errorf("column %q: %s: %w", l.name, l.why, ErrUnsupported)
		}
		typ := l.as(want[i].Type)
		if typ != want[i].Type && !typ.CanWiden(want[i].Type) {
			return nil, fmt.Errorf("column %q is a %s in the file, which no %s can hold", want[i].Name, typ, want[i].Type)
		}
		c.leaf = at
		c.col = NewColumn(typ)
		c.in = stream{r: f.r, step: max(readAhead, minReadAhead)}
		bytesAsText := l.bare && typ.Kind == schemas.String // each is checked
		c.r = chunkReader{leaf: l, view: c.col.Storage == Bytes && typ.Kind != schemas.Decimal && !bytesAsText}
	}
	return s, nil
}

// Next moves on to the next rows, at most limit: as many as all columns have in
// their page at hand. io.EOF: there are no more. After another error the scan
// is of no use and repeats it.
func (s *Scan) Next(limit int) (int, error) {
	if s.failed != nil {
		return 0, s.failed
	}
	for i := range s.cols {
		s.cols[i].used += s.rows
	}
	s.row += int64(s.rows)
	s.rows = 0
	n, err := s.next(limit)
	if err != nil {
		s.failed = err
		return 0, err
	}
	s.rows = n
	return n, nil
}

func (s *Scan) next(limit int) (int, error) {
	if s.row >= s.hi {
		return 0, io.EOF
	}
	for s.row >= s.ends {
		s.group++
		s.ends += s.f.groups[s.group].rows
	}
	n := int(min(int64(max(limit, 1)), s.hi-s.row, s.ends-s.row))
	for i := range s.cols {
		c := &s.cols[i]
		for c.used == c.page.rows {
			if err := c.nextPage(); err != nil {
				return 0, err
			}
		}
		n = min(n, c.page.rows-c.used)
	}
	for i := range s.cols {
		c := &s.cols[i]
		s.views[i].slice(&c.page, c.used, c.used+n)
	}
	return n, nil
}

// Row is the position in the file of the first row at hand.
func (s *Scan) Row() int64 { return s.row }

// Len is the number of rows at hand.
func (s *Scan) Len() int { return s.rows }

// Part is column i, in the order of the fields wanted. The pointer stays the
// same over the scan; what it points to holds until Next.
func (s *Scan) Part(i int) *Part { return &s.views[i] }

// NextGroup says whether the rows behind those at hand begin a row group that
// lies in the range as a whole, and which.
func (s *Scan) NextGroup() (group int, ok bool) {
	at := s.row + int64(s.rows)
	g, start := s.group, s.ends
	if at < s.ends {
		start -= s.f.groups[g].rows
	} else {
		for g++; g < len(s.f.groups) && s.f.groups[g].rows == 0; g++ {
		}
	}
	if g >= len(s.f.groups) || at != start {
		return 0, false
	}
	return g, start+s.f.groups[g].rows <= s.hi
}

// SkipGroup leaves out the row group that NextGroup named. The rows at hand are
// given up.
func (s *Scan) SkipGroup() error {
	g, ok := s.NextGroup()
	if !ok {
		return errors.New("there is no whole row group to skip")
	}
	s.row += int64(s.rows)
	s.rows = 0
	if s.row >= s.ends {
		for ; s.group < g; s.group++ {
			s.ends += s.f.groups[s.group+1].rows
		}
	}
	s.row = s.ends
	for i := range s.cols {
		c := &s.cols[i]
		c.used, c.page.rows = 0, 0
		if c.nested != nil {
			c.nested.seekGroup(g + 1)
			c.nestedRow = s.ends
		} else if !c.fixed {
			c.left = 0
			c.group, c.start = g+1, s.ends
		}
	}
	return nil
}

// columnScan is a Scan's way through one column.
type columnScan struct {
	f     *File
	field *schemas.Field
	leaf  int
	fixed bool // a constant: the file lacks the column
	// A nested column is put together from its leaves.
	nested    *assembler
	nestedRow int64 // behind page

	r     chunkReader
	in    stream
	col   Column
	froms []uint32
	page  Part
	used  int // rows of page that were handed on

	group  int   // the row group to open next
	start  int64 // its first row
	lo, hi int64

	opened int   // the open row group
	base   int64 // its first row
	row    int64 // behind page
	left   int64 // rows of it behind page
	dict   *dictionary
	pages  []pagePlace // its offset index, where that was needed
	at     int         // of the next page in pages
}

// pagePlace is an entry of an offset index.
type pagePlace struct {
	offset, size, first int64
}

// constant makes the column one of its field's default.
func (c *columnScan) constant() error {
	one, err := defaults(c.field, 1)
	if err != nil {
		return err
	}
	n := defaultRows
	if len(one.Data) > 0 {
		n = max(1, min(n, defaultBytes/len(one.Data)))
	}
	if c.col, err = defaults(c.field, n); err != nil {
		return err
	}
	c.fixed = true
	return nil
}

// nextPage decodes the next page with rows of the range. The decompressors are
// libraries: what one panics on is a damaged file, and becomes an error here.
func (c *columnScan) nextPage() (err error) {
	if c.fixed {
		c.froms = c.page.ofColumn(&c.col, c.field.InitialDefault != nil, c.froms)
		c.used = 0
		return nil
	}
	if c.nested != nil {
		return c.nextNested()
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("a page cannot be decoded (%v): %w", p, ErrBadFile)
		}
		if err != nil {
			err = fmt.Errorf("column %q, row group %d: %w", c.field.Name, c.opened, err)
		}
	}()
	for {
		for c.left == 0 {
			if c.group >= len(c.f.groups) {
				return fmt.Errorf("rows are missing: %w", ErrBadFile)
			}
			if err := c.open(); err != nil {
				return err
			}
		}
		h, body, err := c.next()
		if err != nil {
			return err
		}
		if body == nil {
			continue
		}
		switch h.kind {
		case pageIndexKind:
		case pageDictionary:
			if c.r.hasDict {
				return fmt.Errorf("a second dictionary: %w", ErrBadFile)
			}
			if err := c.readDict(&h, body); err != nil {
				return err
			}
		default:
			c.left -= h.values
			first := c.row
			c.row += h.values
			if h.values == 0 {
				continue
			}
			if err := c.take(&h, body); err != nil {
				return err
			}
			c.used = int(max(0, c.lo-first))
			return nil
		}
	}
}

// open begins the next row group's chunk.
func (c *columnScan) open() error {
	g := &c.f.groups[c.group]
	ch := &g.chunks[c.leaf]
	c.opened = c.group
	c.base, c.row, c.left = c.start, c.start, g.rows
	c.start += g.rows
	c.group++
	c.r.codec, c.r.hasDict, c.r.dict = ch.codec, false, Column{}
	c.dict = nil
	c.pages, c.at = c.pages[:0], 0
	c.in.seek(ch.offset, ch.offset+ch.size)
	if c.row >= c.lo && c.start <= c.hi || ch.indexSize <= 0 || g.rows == 0 {
		return nil
	}
	var err error
	if c.pages, err = readOffsetIndex(c.f, ch, g.rows); err != nil {
		return err
	}
	// Pages [first, last] hold rows of the range.
	first, last := 0, len(c.pages)-1
	for first < last && c.row+c.pages[first+1].first <= c.lo {
		first++
	}
	for last > first && c.row+c.pages[last].first >= c.hi {
		last--
	}
	if head := c.pages[0].offset; head > ch.offset {
		// The dictionary lies before the pages.
		c.in.seek(ch.offset, head)
		for c.in.at < head {
			h, body, err := c.next()
			switch {
			case err != nil:
				return err
			case h.kind == pageIndexKind:
			case h.kind == pageDictionary && !c.r.hasDict:
				if err := c.readDict(&h, body); err != nil {
					return err
				}
			default:
				return fmt.Errorf("its offset index leaves out a page: %w", ErrBadFile)
			}
		}
	}
	c.in.seek(c.pages[first].offset, c.pages[last].offset+c.pages[last].size)
	c.at = first
	c.row += c.pages[first].first
	c.left -= c.pages[first].first
	return nil
}

// next cuts the next page off the chunk. The body is nil where the page has no
// row of the range: it is not read then.
func (c *columnScan) next() (h pageHeader, body []byte, err error) {
	h, err = c.in.pageHeader()
	if err != nil {
		return h, nil, err
	}
	if h.packed < 0 || h.packed > c.in.left() || h.raw < 0 || h.raw > maxPageSize {
		return h, nil, fmt.Errorf("a page header is ill-formed or missing, %d rows short: %w", c.left, ErrBadFile)
	}
	switch h.kind {
	case pageIndexKind, pageDictionary:
	case pageData, pageDataV2:
		if h.values < 0 || h.values > c.left || h.values > maxPageRows {
			return h, nil, fmt.Errorf("a page of %d values where %d are left: %w", h.values, c.left, ErrBadFile)
		}
		if len(c.pages) > 0 {
			if c.at == len(c.pages) {
				return h, nil, fmt.Errorf("its offset index leaves out a page: %w", ErrBadFile)
			}
			end := c.row + c.left
			if c.at+1 < len(c.pages) {
				end = c.base + c.pages[c.at+1].first
			}
			if c.row+h.values != end {
				return h, nil, fmt.Errorf("a page has %d values, its offset index says otherwise: %w", h.values, ErrBadFile)
			}
			c.at++
		}
		if c.row+h.values <= c.lo {
			c.in.skip(h.packed)
			c.row += h.values
			c.left -= h.values
			return h, nil, nil
		}
	default:
		return h, nil, fmt.Errorf("page kind %d: %w", h.kind, ErrUnsupported)
	}
	if body, err = c.in.take(int(h.packed)); err != nil {
		return h, nil, err
	}
	if h.hasCRC && uint32(h.crc) != crc32.ChecksumIEEE(body) {
		return h, nil, fmt.Errorf("a page's checksum is wrong: %w", ErrBadFile)
	}
	return h, body, nil
}

func (c *columnScan) readDict(h *pageHeader, body []byte) error {
	c.r.dst = &c.col
	if err := c.r.readDict(h, body); err != nil {
		return err
	}
	if c.r.view {
		c.dict = &dictionary{c.r.dict}
	}
	return nil
}

// take decodes a data page into page.
func (c *columnScan) take(h *pageHeader, body []byte) error {
	c.col.Truncate(0)
	c.r.dst = &c.col
	if err := c.r.readPage(h, body); err != nil {
		return err
	}
	p := &c.page
	switch {
	case c.r.indexed:
		*p = Part{typ: c.field.Type, storage: Bytes, rows: len(c.col.Valid), index: c.r.numbers, dict: c.dict}
	case c.r.placed:
		*p = Part{typ: c.field.Type, storage: Bytes, rows: len(c.col.Valid), data: c.r.data, from: c.r.from, to: c.r.to}
	default:
		col := &c.col
		if col.Storage != StorageOf(c.field.Type) {
			wide := c.col
			if err := convert(&wide, &schemas.Field{Name: c.field.Name, Type: c.field.Type}); err != nil {
				return err
			}
			col = &wide
		}
		c.froms = p.ofColumn(col, c.r.full, c.froms)
		p.typ = c.field.Type
	}
	if p.valid = nil; !c.r.full {
		if c.field.Required {
			return fmt.Errorf("the column is required, but a page up to row %d of the file has a null", c.row)
		}
		p.valid = c.col.Valid
	}
	return nil
}

// maxIndexSize bounds an offset index: a page takes a few bytes of it.
const maxIndexSize = 64 << 20

func readOffsetIndex(f *File, ch *fileChunk, rows int64) (pages []pagePlace, _ error) {
	if ch.index < 4 || ch.indexSize > maxIndexSize || ch.index > f.size || ch.indexSize > f.size-ch.index {
		return nil, fmt.Errorf("its offset index lies outside of the file: %w", ErrBadFile)
	}
	b := make([]byte, ch.indexSize)
	if err := readAt(f.r, b, ch.index); err != nil {
		return nil, err
	}
	t := &thriftReader{b: b}
	t.fields(func(id int16, wire byte) bool {
		if id != 1 {
			return false
		}
		t.structs(wire, func(int) {
			var p pagePlace
			t.fields(func(id int16, wire byte) bool {
				switch id {
				case 1:
					p.offset = t.integer(wire)
				case 2:
					p.size = t.integer(wire)
				case 3:
					p.first = t.integer(wire)
				default:
					return false
				}
				return true
			})
			pages = append(pages, p)
		})
		return true
	})
	bad := t.err != nil || len(pages) == 0 || pages[0].first != 0
	last, first := ch.offset, int64(-1)
	for _, p := range pages {
		bad = bad || p.offset < last || p.size <= 0 || p.size > ch.offset+ch.size-p.offset || p.first < first || p.first > rows
		last, first = p.offset+p.size, p.first
	}
	if bad {
		return nil, fmt.Errorf("its offset index is ill-formed: %w", ErrBadFile)
	}
	return pages, nil
}

// stream reads a span of a file some steps ahead.
type stream struct {
	r    io.ReaderAt
	step int
	buf  []byte
	from int64 // offset in the file of buf[0]
	at   int64 // of the next byte to be taken
	end  int64
}

func (s *stream) seek(at, end int64) { s.at, s.end = at, end }

func (s *stream) left() int64 { return s.end - s.at }

func (s *stream) skip(n int64) { s.at += n }

// peek gives at least n bytes from at on, or all that are left.
func (s *stream) peek(n int) ([]byte, error) {
	n = int(min(int64(n), s.left()))
	if n <= 0 {
		return nil, nil
	}
	have := s.from + int64(len(s.buf)) - s.at
	if s.at < s.from || have < 0 {
		have = 0
	}
	if have < int64(n) {
		size := int(min(int64(max(n, s.step)), s.left()))
		next := s.buf
		if cap(next) < size {
			next = make([]byte, size)
		}
		next = next[:size]
		if have > 0 {
			copy(next, s.buf[s.at-s.from:])
		}
		if err := readAt(s.r, next[have:], s.at+have); err != nil {
			s.buf = s.buf[:0]
			return nil, err
		}
		s.buf, s.from = next, s.at
	}
	b := s.buf[s.at-s.from:]
	return b[:min(int64(len(b)), s.left())], nil
}

// take gives the next n bytes; they hold until the next call.
func (s *stream) take(n int) ([]byte, error) {
	b, err := s.peek(n)
	if err != nil {
		return nil, err
	}
	s.at += int64(n)
	return b[:n:n], nil
}

// pageHeader takes the next page's header.
func (s *stream) pageHeader() (pageHeader, error) {
	for n := 128; ; n *= 8 {
		b, err := s.peek(n)
		if err != nil {
			return pageHeader{}, err
		}
		t := &thriftReader{b: b}
		h := t.pageHeader()
		if t.err == nil {
			s.at += int64(len(b) - len(t.b))
			return h, nil
		}
		if int64(len(b)) == s.left() || len(b) >= maxPageHeader {
			return h, fmt.Errorf("a page header is ill-formed or missing: %w", ErrBadFile)
		}
		n = max(n, len(b))
	}
}
