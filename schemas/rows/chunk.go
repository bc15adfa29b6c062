package rows

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"math/bits"
	"slices"

	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go/encoding/delta"

	"github.com/varve-io/varve/schemas"
)

// chunkMode is how a column chunk encodes its values. The first page of each
// row group decides.
type chunkMode uint8

const (
	modeUndecided chunkMode = iota
	modePlain
	modeDict
	modeFull // a dictionary page is open, what follows it is plain
)

// use says whether a column is encoded in a special way: strings of one length
// in frames of their own (evenzstd.go), integers by their differences. The first
// page of a file to which it applies decides.
type use uint8

const (
	undecided use = iota
	yes
	no
)

// page is what the page index says about a finished data page.
type page struct {
	offset   int64 // in the chunk's data pages, later in the file
	size     int32 // with its header
	firstRow int64 // in the row group
	bounds   bounds
}

// chunk gathers one column, page by page, and holds the encoded pages until
// the row group is written.
type chunk struct {
	leaf leaf
	opts *WriteOptions
	zstd *zstd.Encoder

	full  bool // the column that rows are taken from has no null
	spans spans
	picks picks

	// The open page. valid has one byte a row (optional columns only); ints,
	// floats, plain or idx have the values that are there.
	rows   int // of a nested column's leaf: entries
	nulls  int
	valid  []uint8
	ints   []int64
	floats []float64
	plain  []byte
	count  int // values in plain
	idx    []uint32
	// Of a nested column's leaf: the levels of its entries, and its rows.
	reps, defs []uint8
	tops       int

	mode    chunkMode
	codec   int32
	decided bool // codec
	even    use
	evens   *evenCoder
	delta   use
	deltas  []byte
	narrow  []int32
	words   wordDict
	strings byteDict

	pages     []page
	body      []byte // encoded data pages
	raw       []byte
	packed    []byte
	thrift    thriftWriter
	rawSize   int64 // uncompressed bytes with headers
	plainUsed bool  // some page is plain
	deltaUsed bool  // some page is DELTA_BINARY_PACKED
	dictUsed  bool
	firstRow  int64 // of the open page in the row group

	group bounds // of the row group
	file  bounds // of the file
	size  int64  // compressed bytes in the file
}

func (c *chunk) reset(l leaf, opts *WriteOptions, enc *zstd.Encoder) {
	c.leaf, c.opts, c.zstd = l, opts, enc
	c.full = false
	// The codec stays through the file: Parquet would allow another one in each
	// row group, but some readers take the first for all.
	c.codec, c.decided = codecZstd, false
	c.even, c.delta = undecided, undecided
	if opts.Uncompressed {
		c.codec, c.decided = codecUncompressed, true
	}
	c.file.reset()
	c.size = 0
	c.resetGroup()
	c.resetPage()
}

func (c *chunk) resetGroup() {
	c.mode = modeUndecided
	c.picks.group++
	if c.leaf.phys == physBoolean || c.opts.NoDictionary || c.leaf.nested && StorageOf(c.leaf.typ) == Bytes {
		c.mode = modePlain
	}
	c.pages, c.body = c.pages[:0], c.body[:0]
	c.rawSize, c.firstRow = 0, 0
	c.plainUsed, c.dictUsed, c.deltaUsed = false, false, false
	c.group.reset()
	if c.leaf.phys != physBoolean {
		if StorageOf(c.leaf.typ) == Bytes {
			prefix := levelPrefixBytes
			if c.leaf.phys == physFixed {
				prefix = 0
			}
			c.strings.reset(prefix)
		} else {
			c.words.reset()
		}
	}
}

func (c *chunk) resetPage() {
	c.rows, c.nulls, c.count = 0, 0, 0
	c.valid, c.ints, c.floats = c.valid[:0], c.ints[:0], c.floats[:0]
	c.plain, c.idx = c.plain[:0], c.idx[:0]
	c.reps, c.defs, c.tops = c.reps[:0], c.defs[:0], 0
}

// look finds out whether a column has no null at all, before rows of it are
// taken: their validity need not be fetched then, a cache line a row. Where few
// rows are taken it costs more than it saves.
func (c *chunk) look(src *Column, rows, taken int) {
	c.full = taken >= rows/4 && allOnes(src.Valid)
}

func allOnes(v []uint8) bool {
	const ones = 0x0101010101010101
	for len(v) >= 8 {
		if binary.LittleEndian.Uint64(v) != ones {
			return false
		}
		v = v[8:]
	}
	for _, b := range v {
		if b != 1 {
			return false
		}
	}
	return true
}

// gather takes the rows sel of a column. It closes pages that are full by
// bytes; the writer closes the others.
func (c *chunk) gather(src *Column, sel []uint32) error {
	if src.Storage == Bytes {
		return c.gatherBytes(src, sel)
	}
	nulls := c.gatherLevels(src, sel)
	n := 0
	if src.Storage == Floats {
		at := len(c.floats)
		c.floats = grown(c.floats, len(sel))
		out := c.floats[at:]
		if nulls == 0 {
			for i, r := range sel {
				out[i] = src.Floats[r]
			}
			n = len(sel)
		} else {
			for _, r := range sel {
				out[n] = src.Floats[r]
				n += int(src.Valid[r])
			}
		}
		c.floats = c.floats[:at+n]
	} else {
		at := len(c.ints)
		c.ints = grown(c.ints, len(sel))
		out := c.ints[at:]
		if nulls == 0 {
			for i, r := range sel {
				out[i] = src.Ints[r]
			}
			n = len(sel)
		} else {
			for _, r := range sel {
				out[n] = src.Ints[r]
				n += int(src.Valid[r])
			}
		}
		c.ints = c.ints[:at+n]
	}
	return c.checkNulls(nulls)
}

// gatherLevels takes the rows' validity and counts the nulls among them.
func (c *chunk) gatherLevels(src *Column, sel []uint32) (nulls int) {
	at := len(c.valid)
	c.valid = grown(c.valid, len(sel))
	out := c.valid[at:]
	there := 0
	if c.full {
		for i := range out {
			out[i] = 1
		}
		there = len(sel)
	} else {
		for i, r := range sel {
			v := src.Valid[r]
			out[i] = v
			there += int(v)
		}
	}
	c.rows += len(sel)
	nulls = len(sel) - there
	c.nulls += nulls
	return nulls
}

func (c *chunk) checkNulls(nulls int) error {
	if nulls > 0 && c.leaf.required {
		return fmt.Errorf("column %q is required and has %d nulls", c.leaf.name, nulls)
	}
	return nil
}

func (c *chunk) gatherBytes(src *Column, sel []uint32) error {
	if c.leaf.phys == physFixed {
		if err := c.checkFixed(src, sel); err != nil {
			return err
		}
	}
	for len(sel) > 0 {
		taken, full := c.gatherSome(src, sel)
		if err := c.checkNulls(c.gatherLevels(src, sel[:taken])); err != nil {
			return err
		}
		sel = sel[taken:]
		if full {
			if err := c.flushPage(); err != nil {
				return err
			}
		}
	}
	return nil
}

// spans are where some rows' values lie in a column's data. Rows come in
// another order than they lie in, so each is a cache miss: finding many places
// first, and touching them, lets the misses overlap.
type spans struct {
	from, to [64]uint32
	row      [64]int32 // in the selection
	n        int
	touched  byte
}

// find takes the spans of sel's values, at most as many as there is room for,
// and says how many rows it looked at.
func (s *spans) find(src *Column, sel []uint32, full bool, skip uint32) (looked int) {
	s.n = 0
	sel = sel[:min(len(sel), len(s.from))]
	for i, r := range sel {
		if !full && src.Valid[r] == 0 {
			continue
		}
		from := uint32(0)
		if r > 0 {
			from = src.Ends[r-1]
		}
		s.from[s.n], s.to[s.n], s.row[s.n] = from+skip, src.Ends[r], int32(i)
		s.n++
	}
	if last := uint32(len(src.Data)); last > 0 {
		last--
		for i := range s.from[:s.n] {
			s.touched += src.Data[min(s.from[i], last)]
		}
	}
	return len(sel)
}

// gatherSome takes values until the page is full by bytes, or the dictionary
// is: then what follows is plain.
func (c *chunk) gatherSome(src *Column, sel []uint32) (taken int, full bool) {
	skip := uint32(c.skipped())
	s := &c.spans
	for taken < len(sel) {
		looked := s.find(src, sel[taken:], c.full, skip)
		if c.mode == modeDict {
			if n := c.gatherNumbers(src, s); n < s.n {
				return taken + int(s.row[n]), true
			}
			taken += looked
			continue
		}
		for i := range s.n {
			v := src.Data[s.from[i]:s.to[i]]
			if c.leaf.phys != physFixed {
				c.plain = binary.LittleEndian.AppendUint32(c.plain, uint32(len(v)))
			}
			c.plain = append(c.plain, v...)
			c.count++
			if len(c.plain) >= c.opts.PageBytes {
				return taken + int(s.row[i]) + 1, true
			}
		}
		taken += looked
	}
	return taken, false
}

// skipped is the number of leading bytes of a wide decimal's storage that its
// column leaves out.
func (c *chunk) skipped() int {
	if c.leaf.typ.Kind == schemas.Decimal {
		return 16 - int(c.leaf.length)
	}
	return 0
}

// checkFixed refuses values that are not as wide as their column, and wide
// decimals whose left-out bytes say more than their sign.
func (c *chunk) checkFixed(src *Column, sel []uint32) error {
	skip := c.skipped()
	width := skip + int(c.leaf.length)
	for _, r := range sel {
		if src.Valid[r] == 0 {
			continue
		}
		v := src.BytesAt(int(r))
		if len(v) != width {
			return fmt.Errorf("column %q: a value of %d bytes where a %s has %d", c.leaf.name, len(v), c.leaf.typ, width)
		}
		for i := range skip {
			if v[i] != byte(int8(v[skip])>>7) {
				return fmt.Errorf("column %q: a value has more digits than a %s: %w", c.leaf.name, c.leaf.typ, schemas.ErrNotExact)
			}
		}
	}
	return nil
}

// gatherNumbers looks values up in the dictionary until it is full, and says
// how many it found.
func (c *chunk) gatherNumbers(src *Column, s *spans) (found int) {
	var last []byte
	var number uint32
	for i := range s.n {
		v := src.Data[s.from[i]:s.to[i]]
		if last == nil || !bytes.Equal(v, last) {
			n, ok := c.strings.number(v)
			if !ok {
				c.mode = modeFull
				return i
			}
			last, number = v, n
		}
		c.idx = append(c.idx, number)
	}
	return s.n
}

// flushPage encodes the open page, if it holds rows.
func (c *chunk) flushPage() error {
	if c.rows == 0 {
		if c.mode == modeFull {
			// The dictionary was full at the page's first value: no page of
			// numbers is open that had to be closed.
			c.mode = modePlain
		}
		return nil
	}
	var b bounds
	b.rows, b.nulls = int64(c.rows), int64(c.nulls)
	raw := c.raw[:0]
	top := c.rows
	if c.leaf.nested {
		raw = c.appendNestedLevels(raw)
		top = c.tops
	} else if !c.leaf.required {
		raw = appendLevels(raw, c.valid, c.nulls)
	}
	encoding := int32(encPlain)
	var err error
	switch StorageOf(c.leaf.typ) {
	case Ints:
		raw, encoding, err = c.encodeInts(raw, &b)
	case Floats:
		raw, encoding, err = c.encodeFloats(raw, &b)
	default:
		raw, encoding, err = c.encodeBytes(raw, &b)
	}
	if err != nil {
		return fmt.Errorf("column %q: %w", c.leaf.name, err)
	}
	c.raw = raw
	if c.leaf.nested {
		b = bounds{rows: b.rows, nulls: b.nulls, nans: b.nans} // M5
	}
	switch encoding {
	case encRLEDictionary:
		c.dictUsed = true
	case encDeltaBinary:
		c.deltaUsed = true
	default:
		c.plainUsed = true
	}
	body := c.compress(raw, encoding)
	if len(raw) > math.MaxInt32 {
		return fmt.Errorf("column %q: a page of %d bytes is larger than Parquet allows", c.leaf.name, len(raw))
	}

	t := &c.thrift
	t.dataPageHeader(len(raw), len(body), int32(crc32.ChecksumIEEE(body)), c.rows, encoding)
	offset := len(c.body)
	if need := offset + len(t.b) + len(body); need > cap(c.body) {
		// By doubling: append grows by a quarter, and copies each byte four times.
		c.body = slices.Grow(c.body, max(need, 2*cap(c.body))-offset)
	}
	c.body = append(c.body, t.b...)
	c.body = append(c.body, body...)
	c.rawSize += int64(len(t.b) + len(raw))
	c.pages = append(c.pages, page{
		offset: int64(offset), size: int32(len(c.body) - offset), firstRow: c.firstRow, bounds: b,
	})
	c.firstRow += int64(top)
	c.group.merge(c.leaf.typ, &b)
	c.resetPage()
	return nil
}

// dataPageHeader writes the header of a data page.
func (t *thriftWriter) dataPageHeader(raw, packed int, crc int32, rows int, encoding int32) {
	t.reset()
	t.open(0)
	t.i32(1, pageData)
	t.i32(2, int32(raw))
	t.i32(3, int32(packed))
	t.i32(4, crc)
	t.open(5)
	t.i32(1, int32(rows))
	t.i32(2, encoding)
	t.i32(3, encRLE)
	t.i32(4, encRLE)
	t.close()
	t.close()
}

// compress packs a page with the column's codec. The first page decides it:
// where zstd saves less than an eighth it costs readers more than it gives.
func (c *chunk) compress(raw []byte, encoding int32) []byte {
	if c.decided && c.codec == codecUncompressed {
		return raw
	}
	c.packed = c.pack(c.packed[:0], raw, encoding)
	if !c.decided {
		c.decided = true
		if len(c.packed)*8 > len(raw)*7 {
			c.codec = codecUncompressed
			return raw
		}
	}
	return c.packed
}

// pack makes a zstd frame of a page.
func (c *chunk) pack(dst, raw []byte, encoding int32) []byte {
	length, even := 0, false
	if c.even != no && encoding == encPlain && c.leaf.phys == physByteArray {
		length, even = evenLength(c.plain)
	}
	if !even {
		return c.zstd.EncodeAll(raw, dst)
	}
	if c.evens == nil {
		c.evens = &evenCoder{}
	}
	head := len(raw) - len(c.plain)
	if c.even == yes {
		return c.evens.encode(dst, raw, head, length)
	}
	general := c.zstd.EncodeAll(raw, nil)
	dst = c.evens.encode(dst, raw, head, length)
	// It takes a tenth of the time, for which some bytes may be given.
	if c.even = yes; len(dst)*20 > len(general)*21 {
		c.even = no
		return append(dst[:0], general...)
	}
	return dst
}

func (c *chunk) encodeInts(raw []byte, b *bounds) ([]byte, int32, error) {
	if len(c.ints) > 0 {
		lo, hi := c.ints[0], c.ints[0]
		for _, v := range c.ints {
			lo, hi = min(lo, v), max(hi, v)
		}
		if least, most := c.leaf.typ.IntRange(); lo < least || hi > most {
			return raw, 0, fmt.Errorf("a value is out of the range of a %s: %w", c.leaf.typ, schemas.ErrNotExact)
		}
		b.has, b.loI, b.hiI = true, lo, hi
	}
	if c.leaf.phys == physBoolean {
		start := len(c.valid)
		c.valid = grown(c.valid, len(c.ints))
		for i, v := range c.ints {
			c.valid[start+i] = uint8(v)
		}
		raw = appendBits(raw, c.valid[start:])
		return raw, encPlain, nil
	}
	width := 8
	if c.leaf.phys == physInt32 {
		width = 4
	}
	if c.mode != modePlain && c.numberWords(len(c.ints), width, func(i int) uint64 { return uint64(c.ints[i]) }) {
		return appendIndices(raw, c.idx), encRLEDictionary, nil
	}
	if c.opts.DeltaIntegers && c.delta != no && len(c.ints) > 0 {
		packed, err := c.packDelta()
		if err != nil {
			return raw, 0, err
		}
		// The first page decides, for the file. Where a quarter is not gained,
		// the bytes hold no order.
		if c.delta == undecided {
			if c.delta = yes; len(packed)*4 > len(c.ints)*width*3 {
				c.delta = no
			}
		}
		if c.delta == yes {
			return append(raw, packed...), encDeltaBinary, nil
		}
	}
	if width == 4 {
		return appendInt32s(raw, c.ints), encPlain, nil
	}
	return appendInt64s(raw, c.ints), encPlain, nil
}

// packDelta encodes the page's integers as DELTA_BINARY_PACKED.
func (c *chunk) packDelta() (_ []byte, err error) {
	var coder delta.BinaryPackedEncoding
	if c.leaf.phys == physInt64 {
		c.deltas, err = coder.EncodeInt64(c.deltas, c.ints)
		return c.deltas, err
	}
	c.narrow = grown(c.narrow[:0], len(c.ints))
	for i, v := range c.ints {
		c.narrow[i] = int32(v)
	}
	c.deltas, err = coder.EncodeInt32(c.deltas, c.narrow)
	return c.deltas, err
}

func (c *chunk) encodeFloats(raw []byte, b *bounds) ([]byte, int32, error) {
	for _, v := range c.floats {
		switch {
		case v != v:
			b.nans++
		case !b.has:
			b.has, b.loF, b.hiF = true, v, v
		case v < b.loF:
			b.loF = v
		case v > b.hiF:
			b.hiF = v
		}
	}
	single := c.leaf.phys == physFloat
	width := 8
	if single {
		width = 4
		for _, v := range c.floats {
			if float64(float32(v)) != v && v == v {
				return raw, 0, fmt.Errorf("a value is no float of 32 bits: %w", schemas.ErrNotExact)
			}
		}
	}
	if c.mode != modePlain && c.numberWords(len(c.floats), width, func(i int) uint64 { return math.Float64bits(c.floats[i]) }) {
		return appendIndices(raw, c.idx), encRLEDictionary, nil
	}
	for _, v := range c.floats {
		if single {
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(float32(v)))
		} else {
			raw = binary.LittleEndian.AppendUint64(raw, math.Float64bits(v))
		}
	}
	return raw, encPlain, nil
}

// numberWords numbers the page's words into idx. False: this page and all
// that follow are plain.
func (c *chunk) numberWords(n, width int, word func(int) uint64) bool {
	d := &c.words
	first := c.mode == modeUndecided
	c.idx = grown(c.idx[:0], n)
	for i := range n {
		number, ok := d.number(word(i))
		if !ok || first && i+1 >= dictSample && len(d.words)*2 > i+1 {
			c.mode = modePlain
			break
		}
		c.idx[i] = number
	}
	if first && c.mode == modeUndecided {
		c.decide(n, len(d.words), len(d.words)*width, n*width)
	}
	return c.mode == modeDict
}

// decide chooses dictionary or plain by what the first page would take.
func (c *chunk) decide(values, entries, entryBytes, plainBytes int) {
	if values == 0 {
		return // nothing learnt: the next page decides
	}
	packed := values * bits.Len(uint(entries)) / 8
	c.mode = modePlain
	if entries*2 <= values && (entryBytes+packed)*4 <= plainBytes*3 {
		c.mode = modeDict
	}
}

// nextPlain cuts a value off a page's plain bytes.
func (c *chunk) nextPlain(b []byte) (v, rest []byte) {
	if c.leaf.phys == physFixed {
		return b[:c.leaf.length], b[c.leaf.length:]
	}
	n := binary.LittleEndian.Uint32(b)
	return b[4 : 4+n], b[4+n:]
}

func (c *chunk) encodeBytes(raw []byte, b *bounds) ([]byte, int32, error) {
	if c.mode == modeUndecided {
		c.numberPlain()
	}
	if c.mode == modeDict || c.mode == modeFull {
		if c.mode == modeFull {
			c.mode = modePlain
		}
		c.boundNumbers(b)
		if err := c.checkWide(b); err != nil {
			return raw, 0, err
		}
		return appendIndices(raw, c.idx), encRLEDictionary, nil
	}
	c.boundPlain(b)
	if err := c.checkWide(b); err != nil {
		return raw, 0, err
	}
	return append(raw, c.plain...), encPlain, nil
}

// numberPlain decides the mode from the first page, and numbers it when that
// is the dictionary.
func (c *chunk) numberPlain() {
	c.idx = c.idx[:0]
	for rest := c.plain; len(rest) > 0; {
		var v []byte
		v, rest = c.nextPlain(rest)
		n, ok := c.strings.number(v)
		if !ok || len(c.idx)+1 >= dictSample && len(c.strings.ends)*2 > len(c.idx)+1 {
			c.mode = modePlain
			c.idx = c.idx[:0]
			return
		}
		c.idx = append(c.idx, n)
	}
	c.decide(c.count, len(c.strings.ends), len(c.strings.data), len(c.plain))
}

// boundNumbers takes bounds from the dictionary entries that the page uses.
func (c *chunk) boundNumbers(b *bounds) {
	if len(c.idx) == 0 {
		return
	}
	d := &c.strings
	d.epoch++
	lo, hi := d.at(c.idx[0]), d.at(c.idx[0])
	for _, n := range c.idx {
		if d.marks[n] == d.epoch {
			continue
		}
		d.marks[n] = d.epoch
		v := d.at(n)
		if compareBytes(c.leaf.typ, v, lo) < 0 {
			lo = v
		}
		if compareBytes(c.leaf.typ, v, hi) > 0 {
			hi = v
		}
	}
	c.boundBytes(b, lo, hi)
}

func (c *chunk) boundPlain(b *bounds) {
	if len(c.plain) == 0 {
		return
	}
	lo, rest := c.nextPlain(c.plain)
	hi := lo
	if c.leaf.typ.Kind == schemas.Decimal {
		for len(rest) > 0 {
			var v []byte
			v, rest = c.nextPlain(rest)
			if compareBytes(c.leaf.typ, v, lo) < 0 {
				lo = v
			} else if compareBytes(c.leaf.typ, v, hi) > 0 {
				hi = v
			}
		}
		c.boundBytes(b, lo, hi)
		return
	}
	// The first 8 bytes decide nearly every comparison.
	loWord, hiWord := headWord(lo), headWord(hi)
	for len(rest) > 0 {
		var v []byte
		v, rest = c.nextPlain(rest)
		w := headWord(v)
		if w <= loWord && (w < loWord || bytes.Compare(v, lo) < 0) {
			lo, loWord = v, w
		}
		if w >= hiWord && (w > hiWord || bytes.Compare(v, hi) > 0) {
			hi, hiWord = v, w
		}
	}
	c.boundBytes(b, lo, hi)
}

// headWord is the first 8 bytes as a number, zeros behind a shorter value.
func headWord(v []byte) uint64 {
	if len(v) >= 8 {
		return binary.BigEndian.Uint64(v)
	}
	var w uint64
	for i := range v {
		w |= uint64(v[i]) << (56 - 8*i)
	}
	return w
}

func (c *chunk) boundBytes(b *bounds, lo, hi []byte) {
	if c.leaf.typ.Kind == schemas.Decimal {
		lo, hi = widen(lo), widen(hi)
	}
	b.addBytes(c.leaf.typ, lo, hi)
}

// widen extends a two's complement number to 16 bytes.
func widen(v []byte) []byte {
	out := make([]byte, 16)
	if v[0]&0x80 != 0 {
		for i := range out {
			out[i] = 0xFF
		}
	}
	copy(out[16-len(v):], v)
	return out
}

// checkWide refuses wide decimals beyond their precision.
func (c *chunk) checkWide(b *bounds) error {
	if c.leaf.typ.Kind != schemas.Decimal || !b.has {
		return nil
	}
	if !schemas.DecimalFits(b.lo, c.leaf.typ.Precision) || !schemas.DecimalFits(b.hi, c.leaf.typ.Precision) {
		return fmt.Errorf("a value has more digits than a %s: %w", c.leaf.typ, schemas.ErrNotExact)
	}
	return nil
}
