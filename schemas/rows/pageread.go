package rows

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"sync"
	"unicode/utf8"

	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go/compress"
	"github.com/parquet-go/parquet-go/compress/brotli"
	"github.com/parquet-go/parquet-go/compress/gzip"
	"github.com/parquet-go/parquet-go/compress/lz4"
	"github.com/parquet-go/parquet-go/compress/snappy"

	"github.com/varve-io/varve/schemas"
)

// Encodings that other writers use and this package only reads.
const (
	encPlainDictionary = 2
	encDeltaLength     = 6
	encDeltaBytes      = 7
	encByteStreamSplit = 9
	pageIndexKind      = 1
	pageDataV2         = 3
)

// pageHeader is what a page says about itself.
type pageHeader struct {
	kind             int64
	raw, packed      int64
	crc              int64
	hasCRC           bool
	values, nulls    int64
	encoding         int64
	levels           int64 // encoding of the definition levels
	defBytes         int64 // version 2
	repBytes         int64
	compressedValues bool
}

func (t *thriftReader) pageHeader() (h pageHeader) {
	h.raw, h.packed, h.values, h.compressedValues, h.levels = -1, -1, -1, true, encRLE
	t.fields(func(id int16, wire byte) bool {
		switch {
		case id == 1:
			h.kind = t.integer(wire)
		case id == 2:
			h.raw = t.integer(wire)
		case id == 3:
			h.packed = t.integer(wire)
		case id == 4:
			h.crc, h.hasCRC = t.integer(wire), true
		case (id == 5 || id == 7) && wire == thriftStruct:
			t.fields(func(field int16, wire byte) bool {
				switch {
				case field == 1:
					h.values = t.integer(wire)
				case field == 2:
					h.encoding = t.integer(wire)
				case field == 3 && id == 5:
					h.levels = t.integer(wire)
				default:
					return false
				}
				return true
			})
		case id == 8 && wire == thriftStruct:
			t.fields(func(field int16, wire byte) bool {
				switch field {
				case 1:
					h.values = t.integer(wire)
				case 2:
					h.nulls = t.integer(wire)
				case 4:
					h.encoding = t.integer(wire)
				case 5:
					h.defBytes = t.integer(wire)
				case 6:
					h.repBytes = t.integer(wire)
				case 7:
					h.compressedValues = wire == thriftTrue
				default:
					return false
				}
				return true
			})
		default:
			return false
		}
		return true
	})
	return h
}

// chunkReader decodes one column chunk into a column.
type chunkReader struct {
	leaf    *fileLeaf
	codec   int32
	dst     *Column
	dict    Column
	hasDict bool
	raw     []byte
	numbers []uint32

	// A scan takes values of storage Bytes where they lie (view): as numbers in
	// the dictionary, or as places in the page. dst then has validity only.
	view     bool
	full     bool // the last page has no null
	indexed  bool // the last page's values are numbers
	placed   bool // they are data[from[i]:to[i]]
	data     []byte
	from, to []uint32
}

// readChunk appends a column chunk to c. The decompressors are
// libraries: what one panics on is a damaged file, and becomes an error here.
func (f *File) readChunk(c *Column, g, at int) (err error) {
	l, ch := &f.leaves[at], &f.groups[g].chunks[at]
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("a page cannot be decoded (%v): %w", p, ErrBadFile)
		}
		if err != nil {
			err = fmt.Errorf("column %q, row group %d: %w", l.name, g, err)
		}
	}()
	if l.why != "" {
		return fmt.Errorf("%s: %w", l.why, ErrUnsupported)
	}
	if ch.size > math.MaxInt32 {
		return fmt.Errorf("a chunk of %d bytes: %w", ch.size, ErrUnsupported)
	}
	buf := make([]byte, ch.size)
	if err := readAt(f.r, buf, ch.offset); err != nil {
		return err
	}
	r := &chunkReader{leaf: l, codec: ch.codec, dst: c}
	left := f.groups[g].rows
	for left > 0 {
		t := &thriftReader{b: buf}
		h := t.pageHeader()
		if t.err != nil || h.packed < 0 || h.packed > int64(len(t.b)) || h.raw < 0 || h.raw > maxPageSize {
			return fmt.Errorf("a page header is ill-formed or missing, %d rows short: %w", left, ErrBadFile)
		}
		body := t.b[:h.packed]
		buf = t.b[h.packed:]
		if h.hasCRC && uint32(h.crc) != crc32.ChecksumIEEE(body) {
			return fmt.Errorf("a page's checksum is wrong: %w", ErrBadFile)
		}
		switch h.kind {
		case pageIndexKind:
			continue
		case pageDictionary:
			if r.hasDict {
				return fmt.Errorf("a second dictionary: %w", ErrBadFile)
			}
			if err := r.readDict(&h, body); err != nil {
				return err
			}
		case pageData, pageDataV2:
			if h.values < 0 || h.values > left || h.values > maxPageRows {
				return fmt.Errorf("a page of %d values where %d are left: %w", h.values, left, ErrBadFile)
			}
			if err := r.readPage(&h, body); err != nil {
				return err
			}
			left -= h.values
		default:
			return fmt.Errorf("page kind %d: %w", h.kind, ErrUnsupported)
		}
	}
	return nil
}

var zstdDecoder = sync.OnceValue(func() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(maxPageSize))
	if err != nil {
		panic("zstd decoder with fixed options: " + err.Error())
	}
	return d
})

var otherCodecs = map[int32]compress.Codec{1: &snappy.Codec{}, 2: &gzip.Codec{}, 4: &brotli.Codec{}, 7: &lz4.Codec{}}

// expansion bounds how many bytes a codec can make of one: a header that
// claims more lies, and no memory is taken for it.
var expansion = map[int32]int64{1: 64, 2: 1100, 4: 1 << 16, codecZstd: 1 << 16, 7: 256}

// unpack decompresses a page body of raw bytes.
func (r *chunkReader) unpack(body []byte, raw int64) ([]byte, error) {
	if r.codec == codecUncompressed {
		if int64(len(body)) != raw {
			return nil, fmt.Errorf("a page of %d bytes says %d: %w", len(body), raw, ErrBadFile)
		}
		return body, nil
	}
	factor, known := expansion[r.codec]
	if !known {
		return nil, fmt.Errorf("compression codec %d: %w", r.codec, ErrUnsupported)
	}
	if raw > 4096+factor*int64(len(body)) {
		return nil, fmt.Errorf("%d compressed bytes cannot hold %d: %w", len(body), raw, ErrBadFile)
	}
	if int64(cap(r.raw)) < raw {
		r.raw = make([]byte, 0, raw)
	}
	var out []byte
	var err error
	if r.codec == codecZstd {
		out, err = zstdDecoder().DecodeAll(body, r.raw[:0])
	} else {
		out, err = otherCodecs[r.codec].Decode(r.raw[:raw], body)
	}
	if err != nil {
		return nil, fmt.Errorf("a page cannot be decompressed: %w: %w", err, ErrBadFile)
	}
	if int64(len(out)) != raw {
		return nil, fmt.Errorf("a page of %d bytes says %d: %w", len(out), raw, ErrBadFile)
	}
	r.raw = out
	return out, nil
}

func (r *chunkReader) readDict(h *pageHeader, body []byte) error {
	if h.encoding != encPlain && h.encoding != encPlainDictionary {
		return fmt.Errorf("a dictionary of encoding %d: %w", h.encoding, ErrUnsupported)
	}
	raw, err := r.unpack(body, h.raw)
	if err != nil {
		return err
	}
	r.dict = NewColumn(r.dst.Type)
	r.hasDict = true
	if h.values < 0 || h.values > 8*int64(len(raw)) {
		return fmt.Errorf("a dictionary of %d bytes says %d values: %w", len(raw), h.values, ErrBadFile)
	}
	return r.plain(&r.dict, raw, int(h.values))
}

func (r *chunkReader) readPage(h *pageHeader, body []byte) error {
	var levels []byte
	var err error
	if h.kind == pageDataV2 {
		if h.defBytes < 0 || h.repBytes != 0 || h.defBytes > int64(len(body)) || h.raw < h.defBytes {
			return fmt.Errorf("a page's levels are ill-formed: %w", ErrBadFile)
		}
		levels, body = body[:h.defBytes], body[h.defBytes:]
		raw := h.raw - h.defBytes
		if h.compressedValues && (raw > 0 || len(body) > 0) {
			body, err = r.unpack(body, raw)
		}
	} else {
		body, err = r.unpack(body, h.raw)
	}
	if err != nil {
		return err
	}
	rows := int(h.values)
	start := len(r.dst.Valid)
	r.dst.Valid = grown(r.dst.Valid, rows)
	valid := r.dst.Valid[start:]
	there := rows
	if r.leaf.optional {
		if h.kind == pageData {
			if levels, body, err = cutLevels(h, body); err != nil {
				return err
			}
		}
		if h.levels != encRLE {
			return fmt.Errorf("levels of encoding %d: %w", h.levels, ErrUnsupported)
		}
		if there, err = readLevels(valid, levels); err != nil {
			return err
		}
	} else {
		for i := range valid {
			valid[i] = 1
		}
	}
	// The present values are packed first, then spread over their rows. They
	// are no rows of the column yet: Valid has those already.
	r.full, r.indexed, r.placed = there == rows, false, false
	if err := r.values(h, body, there); err != nil {
		return err
	}
	switch {
	case r.full:
	case r.indexed:
		r.numbers = spreadOver(valid, r.numbers)
	case r.placed:
		r.from, r.to = spreadOver(valid, r.from), spreadOver(valid, r.to)
	default:
		r.dst.spread(start, there)
	}
	return nil
}

// spreadOver gives each valid row its value in turn, and the others 0.
func spreadOver(valid []uint8, v []uint32) []uint32 {
	from := len(v)
	v = grown(v, len(valid)-from)
	for i := len(valid) - 1; i >= 0; i-- {
		if valid[i] == 1 {
			from--
			v[i] = v[from]
		} else {
			v[i] = 0
		}
	}
	return v
}

func cutLevels(h *pageHeader, body []byte) (levels, rest []byte, err error) {
	if len(body) < levelPrefixBytes {
		return nil, nil, fmt.Errorf("a page's levels are missing: %w", ErrBadFile)
	}
	n := binary.LittleEndian.Uint32(body)
	body = body[levelPrefixBytes:]
	if uint64(n) > uint64(len(body)) {
		return nil, nil, fmt.Errorf("a page's levels are cut: %w", ErrBadFile)
	}
	return body[:n], body[n:], nil
}

// readLevels decodes definition levels of width 1 and counts the ones.
func readLevels(valid []uint8, b []byte) (there int, err error) {
	short := fmt.Errorf("a page's levels end early: %w", ErrBadFile)
	for len(valid) > 0 {
		head, n := binary.Uvarint(b)
		if n <= 0 {
			return 0, short
		}
		b = b[n:]
		if head&1 == 0 {
			count := min(head>>1, uint64(len(valid)))
			if len(b) == 0 || count == 0 || b[0] > 1 {
				return 0, short
			}
			for i := range valid[:count] {
				valid[i] = b[0]
			}
			there += int(count) * int(b[0])
			valid, b = valid[count:], b[1:]
			continue
		}
		groups := min(head>>1, uint64(len(valid)+7)/8)
		if groups == 0 || groups > uint64(len(b)) {
			return 0, short
		}
		for _, w := range b[:groups] {
			n := min(8, len(valid))
			for i := range n {
				v := w >> i & 1
				valid[i] = v
				there += int(v)
			}
			valid = valid[n:]
		}
		b = b[groups:]
	}
	return there, nil
}

// values appends n packed values to the storage of the column.
func (r *chunkReader) values(h *pageHeader, body []byte, n int) error {
	switch h.encoding {
	case encPlain:
		if r.view {
			return r.places(body, n)
		}
		return r.plain(r.dst, body, n)
	case encRLEDictionary, encPlainDictionary:
		if n == 0 {
			return nil
		}
		if !r.hasDict {
			return fmt.Errorf("indices without a dictionary: %w", ErrBadFile)
		}
		return r.fromDict(body, n)
	case encRLE:
		if r.leaf.phys == physBoolean {
			return r.runBooleans(body, n)
		}
	}
	return r.other(h.encoding, body, n)
}

var errShortValues = fmt.Errorf("a page's values end early: %w", ErrBadFile)

// plain appends n plain values.
func (r *chunkReader) plain(c *Column, b []byte, n int) error {
	switch r.leaf.phys {
	case physBoolean:
		if len(b) < (n+7)/8 {
			return errShortValues
		}
		for i := range n {
			c.Ints = append(c.Ints, int64(b[i/8]>>(i%8)&1))
		}
		return nil
	case physInt32:
		if len(b)/4 < n {
			return errShortValues
		}
		at := len(c.Ints)
		c.Ints = grown(c.Ints, n)
		for i := range c.Ints[at:] {
			c.Ints[at+i] = int64(int32(binary.LittleEndian.Uint32(b[4*i:])))
		}
		return r.checkInts(c, at)
	case physInt64:
		if len(b)/8 < n {
			return errShortValues
		}
		at := len(c.Ints)
		c.Ints = grown(c.Ints, n)
		for i := range c.Ints[at:] {
			c.Ints[at+i] = int64(binary.LittleEndian.Uint64(b[8*i:]))
		}
		return r.checkInts(c, at)
	case physInt96:
		if len(b)/12 < n {
			return errShortValues
		}
		at := len(c.Ints)
		c.Ints = grown(c.Ints, n)
		for i := range c.Ints[at:] {
			v, ok := int96Micros(b[12*i:])
			if !ok {
				return errInstant
			}
			c.Ints[at+i] = v
		}
		return nil
	case physFloat:
		if len(b)/4 < n {
			return errShortValues
		}
		for i := range n {
			c.Floats = append(c.Floats, float64(math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))))
		}
		return nil
	case physDouble:
		if len(b)/8 < n {
			return errShortValues
		}
		at := len(c.Floats)
		c.Floats = grown(c.Floats, n)
		for i := range c.Floats[at:] {
			c.Floats[at+i] = math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:]))
		}
		return nil
	case physFixed:
		width := int(r.leaf.length)
		if len(b)/width < n {
			return errShortValues
		}
		for range n {
			if err := r.appendBytes(c, b[:width]); err != nil {
				return err
			}
			b = b[width:]
		}
		return nil
	}
	for range n {
		if len(b) < 4 {
			return errShortValues
		}
		size := binary.LittleEndian.Uint32(b)
		if uint64(size) > uint64(len(b)-4) {
			return errShortValues
		}
		if err := r.appendBytes(c, b[4:4+size]); err != nil {
			return err
		}
		b = b[4+size:]
	}
	return nil
}

// places finds n plain values in the page instead of copying them.
func (r *chunkReader) places(b []byte, n int) error {
	r.placed, r.data = true, b
	r.from, r.to = grown(r.from[:0], n), grown(r.to[:0], n)
	if r.leaf.phys == physFixed {
		width := int(r.leaf.length)
		if len(b)/width < n {
			return errShortValues
		}
		for i := range n {
			r.from[i], r.to[i] = uint32(i*width), uint32((i+1)*width)
		}
		return nil
	}
	at := uint64(0)
	for i := range n {
		if at+4 > uint64(len(b)) {
			return errShortValues
		}
		end := at + 4 + uint64(binary.LittleEndian.Uint32(b[at:]))
		if end > uint64(len(b)) {
			return errShortValues
		}
		r.from[i], r.to[i] = uint32(at+4), uint32(end)
		at = end
	}
	return nil
}

var errInstant = fmt.Errorf("a timestamp lies further from 1970 than 64 bits of microseconds reach: %w", ErrUnsupported)

// The Julian day number of 1970-01-01.
const julianEpoch = 2440588

// int96Micros is the instant of an INT96: the nanoseconds of the day, then its
// Julian day. Some writers count the nanoseconds of instants before 1970 down
// from a midnight. What is finer than a microsecond is cut off towards the past.
func int96Micros(b []byte) (micros int64, ok bool) {
	day := int64(int32(binary.LittleEndian.Uint32(b[8:]))) - julianEpoch
	rest := schemas.FloorDiv(int64(binary.LittleEndian.Uint64(b)), schemas.NanosPerMicro)
	if day < 0 {
		// The midnight before the first instant is none itself.
		day++
		rest -= schemas.MicrosPerDay
	}
	const most = math.MaxInt64 / schemas.MicrosPerDay
	if day < -most || day > most {
		return 0, false
	}
	midnight := day * schemas.MicrosPerDay
	micros = midnight + rest
	return micros, (micros < midnight) == (rest < 0)
}

// checkInts brings milliseconds to microseconds and refuses numbers beyond the
// column's type, which a damaged or foreign file may hold.
func (r *chunkReader) checkInts(c *Column, from int) error {
	if r.leaf.millis {
		for i, v := range c.Ints[from:] {
			if v < math.MinInt64/1000 || v > math.MaxInt64/1000 {
				return errInstant
			}
			c.Ints[from+i] = 1000 * v
		}
	}
	switch c.Type.Kind {
	case schemas.Decimal, schemas.Time:
		lo, hi := c.Type.IntRange()
		for _, v := range c.Ints[from:] {
			if v < lo || v > hi {
				return fmt.Errorf("a value is no %s: %w", c.Type, ErrBadFile)
			}
		}
	}
	return nil
}

var errLargeColumn = fmt.Errorf("more than 4 GiB in one column; read it by row group: %w", ErrUnsupported)

// appendBytes appends a value of a byte array or fixed to the storage.
func (r *chunkReader) appendBytes(c *Column, v []byte) error {
	if c.Type.Kind == schemas.Decimal {
		if len(v) < 1 || len(v) > 16 {
			return fmt.Errorf("a value is no %s: %w", c.Type, ErrBadFile)
		}
		w := widen(v)
		if !schemas.DecimalFits(w, c.Type.Precision) {
			return fmt.Errorf("a value is no %s: %w", c.Type, ErrBadFile)
		}
		if c.Storage == Ints {
			c.Ints = append(c.Ints, int64(binary.BigEndian.Uint64(w[8:])))
			return nil
		}
		v = w
	}
	if r.leaf.bare && c.Type.Kind == schemas.String && !utf8.Valid(v) {
		return fmt.Errorf("a value of bytes is no text: %w", ErrBadFile)
	}
	if uint64(len(c.Data))+uint64(len(v)) > math.MaxUint32 {
		return errLargeColumn
	}
	c.Data = append(c.Data, v...)
	c.Ends = append(c.Ends, uint32(len(c.Data)))
	return nil
}

// fromDict appends n values by their numbers in the dictionary.
func (r *chunkReader) fromDict(b []byte, n int) error {
	var err error
	if r.numbers, err = readIndices(r.numbers[:0], b, n); err != nil {
		return err
	}
	size := uint32(r.dict.stored())
	for _, k := range r.numbers {
		if k >= size {
			return fmt.Errorf("index %d into a dictionary of %d: %w", k, size, ErrBadFile)
		}
	}
	if r.view {
		r.indexed = true
		return nil
	}
	c := r.dst
	switch c.Storage {
	case Ints:
		at := len(c.Ints)
		c.Ints = grown(c.Ints, n)
		out := c.Ints[at:]
		for i, k := range r.numbers {
			out[i] = r.dict.Ints[k]
		}
	case Floats:
		at := len(c.Floats)
		c.Floats = grown(c.Floats, n)
		out := c.Floats[at:]
		for i, k := range r.numbers {
			out[i] = r.dict.Floats[k]
		}
	default:
		total := uint64(len(c.Data))
		for _, k := range r.numbers {
			total += uint64(len(r.dict.BytesAt(int(k))))
		}
		if total > math.MaxUint32 {
			return errLargeColumn
		}
		for _, k := range r.numbers {
			c.Data = append(c.Data, r.dict.BytesAt(int(k))...)
			c.Ends = append(c.Ends, uint32(len(c.Data)))
		}
	}
	return nil
}

// stored is the number of values in the storage.
func (c *Column) stored() int { return len(c.Ints) + len(c.Floats) + len(c.Ends) }

// readIndices decodes n numbers: a byte of bit width, then runs.
func readIndices(dst []uint32, b []byte, n int) ([]uint32, error) {
	if len(b) == 0 {
		return dst, errShortValues
	}
	width := int(b[0])
	if width > 32 {
		return dst, fmt.Errorf("indices of %d bits: %w", width, ErrBadFile)
	}
	return readRuns(dst, b[1:], n, width)
}

// readRuns decodes n numbers of Parquet's hybrid of runs and packed bits.
func readRuns(dst []uint32, b []byte, n, width int) ([]uint32, error) {
	for n > 0 {
		head, k := binary.Uvarint(b)
		if k <= 0 {
			return dst, errShortValues
		}
		b = b[k:]
		if head&1 == 0 {
			count := int(min(head>>1, uint64(n)))
			size := (width + 7) / 8
			if len(b) < size || count == 0 {
				return dst, errShortValues
			}
			var v uint32
			for i := range size {
				v |= uint32(b[i]) << (8 * i)
			}
			b = b[size:]
			at := len(dst)
			dst = grown(dst, count)
			for i := range dst[at:] {
				dst[at+i] = v
			}
			n -= count
			continue
		}
		groups := head >> 1
		if groups == 0 {
			return dst, errShortValues
		}
		count := int(min(groups, uint64(n+7)/8) * 8)
		// Some writers cut the padding of the last group off.
		size := int(min(uint64(count*width/8), uint64(len(b))))
		count = min(count, n)
		if size*8 < count*width {
			return dst, errShortValues
		}
		dst = unpackBits(dst, b[:size], count, width)
		// What the header covered beyond the page's values lies behind.
		b = b[size:]
		n -= count
	}
	return dst, nil
}

func unpackBits(dst []uint32, b []byte, n, width int) []uint32 {
	at := len(dst)
	dst = grown(dst, n)
	out := dst[at:]
	mask := uint64(1)<<width - 1
	pos := 0
	i := 0
	for ; i < len(out) && pos/8+8 <= len(b); i++ {
		out[i] = uint32(binary.LittleEndian.Uint64(b[pos/8:]) >> (pos % 8) & mask)
		pos += width
	}
	for ; i < len(out); i++ {
		var w uint64
		for j := 0; j < 8 && pos/8+j < len(b); j++ {
			w |= uint64(b[pos/8+j]) << (8 * j)
		}
		out[i] = uint32(w >> (pos % 8) & mask)
		pos += width
	}
	return dst
}

func (r *chunkReader) runBooleans(b []byte, n int) error {
	if n == 0 {
		return nil
	}
	if len(b) < levelPrefixBytes || uint64(binary.LittleEndian.Uint32(b)) > uint64(len(b)-levelPrefixBytes) {
		return errShortValues
	}
	b = b[levelPrefixBytes:][:binary.LittleEndian.Uint32(b)]
	var err error
	if r.numbers, err = readRuns(r.numbers[:0], b, n, 1); err != nil {
		return err
	}
	for _, v := range r.numbers {
		r.dst.Ints = append(r.dst.Ints, int64(v&1))
	}
	return nil
}

// other decodes what this package does not write by default.
func (r *chunkReader) other(enc int64, b []byte, n int) error {
	c := r.dst
	switch {
	case enc == encDeltaBinary && (r.leaf.phys == physInt32 || r.leaf.phys == physInt64):
		width := 64
		if r.leaf.phys == physInt32 {
			width = 32
		}
		at := len(c.Ints)
		var err error
		if c.Ints, _, err = readDelta(c.Ints, b, n, width); err != nil {
			return err
		}
		if len(c.Ints) < at+n {
			return errShortValues
		}
		return r.checkInts(c, at)
	case enc == encDeltaLength && r.leaf.phys == physByteArray:
		return r.deltaLengths(b, n)
	case enc == encDeltaBytes && (r.leaf.phys == physByteArray || r.leaf.phys == physFixed):
		return r.deltaStrings(b, n)
	case enc == encByteStreamSplit && r.leaf.phys != physByteArray && r.leaf.phys != physBoolean && r.leaf.phys != physInt96:
		width := 8
		switch r.leaf.phys {
		case physInt32, physFloat:
			width = 4
		case physFixed:
			width = int(r.leaf.length)
		}
		joined, err := joinStreams(b, n, width)
		if err != nil {
			return err
		}
		return r.plain(c, joined, n)
	}
	return fmt.Errorf("encoding %d on this type: %w", enc, ErrUnsupported)
}

// spread moves the last there values of the storage to the rows from start on
// that are valid; the others become zero values.
func (c *Column) spread(start, there int) {
	rows := len(c.Valid)
	from := start + there
	switch c.Storage {
	case Ints:
		c.Ints = grown(c.Ints, rows-len(c.Ints))
		for i := rows - 1; i >= start; i-- {
			if c.Valid[i] == 1 {
				from--
				c.Ints[i] = c.Ints[from]
			} else {
				c.Ints[i] = 0
			}
		}
	case Floats:
		c.Floats = grown(c.Floats, rows-len(c.Floats))
		for i := rows - 1; i >= start; i-- {
			if c.Valid[i] == 1 {
				from--
				c.Floats[i] = c.Floats[from]
			} else {
				c.Floats[i] = 0
			}
		}
	default:
		c.Ends = grown(c.Ends, rows-len(c.Ends))
		end := uint32(len(c.Data))
		for i := rows - 1; i >= start; i-- {
			c.Ends[i] = end
			if c.Valid[i] == 1 {
				// The value's own start is the end of the one before it.
				from--
				end = 0
				if from > 0 {
					end = c.Ends[from-1]
				}
			}
		}
	}
}
