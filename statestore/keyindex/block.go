package keyindex

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math"
	"math/bits"
)

// FORMAT.md describes a block byte by byte.
const (
	blockHeader   = 56
	groupEntries  = 128 // keys are packed against the first key of their group
	groupShift    = 7
	groupHeader   = 12
	blockPadding  = 8 // a 64-bit load at the last bit stays inside
	maxBlock      = 8192
	maxGroupStart = 1<<24 - 1
	// maxBlockBytes bounds what a trailer may ask a reader to allocate.
	maxBlockBytes = blockHeader + maxBlock*64

	orderNone  = 0
	orderAll   = 1
	orderMixed = 2
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// bitColumn is a column of integers packed against their minimum.
type bitColumn struct {
	off  int
	w    uint
	mask uint64
	min  uint64
}

// widthFor is the packed width of values up to span: a width above 56 would
// not fit one unaligned 64-bit load.
func widthFor(span uint64) uint {
	w := uint(bits.Len64(span))
	if w > 56 {
		return 64
	}
	return w
}

func maskFor(w uint) uint64 {
	if w == 64 {
		return math.MaxUint64
	}
	return 1<<w - 1
}

func packedSize(n int, w uint) int { return (n*int(w) + 7) / 8 }

// get needs blockPadding bytes behind the column.
func (c *bitColumn) get(buf []byte, i int) uint64 {
	bit := uint(i) * c.w
	return c.min + binary.LittleEndian.Uint64(buf[c.off+int(bit>>3):])>>(bit&7)&c.mask
}

// unpack writes n values from the column's start.
func unpack[T uint32 | uint64 | int64](c *bitColumn, buf []byte, out []T) {
	lo := T(c.min)
	if c.w == 0 {
		for i := range out {
			out[i] = lo
		}
		return
	}
	b := buf[c.off:]
	bit, w, mask := uint(0), c.w, c.mask
	for i := range out {
		out[i] = lo + T(binary.LittleEndian.Uint64(b[bit>>3:])>>(bit&7)&mask)
		bit += w
	}
}

// pack appends v, each less lo, in w bits.
func pack[T uint32 | uint64 | int64](dst []byte, v []T, lo T, w uint) []byte {
	switch w {
	case 0:
		return dst
	case 64:
		for _, x := range v {
			dst = binary.LittleEndian.AppendUint64(dst, uint64(x)-uint64(lo))
		}
		return dst
	}
	var acc uint64
	var n uint
	for _, x := range v {
		d := uint64(x) - uint64(lo)
		acc |= d << n
		n += w
		if n >= 64 {
			dst = binary.LittleEndian.AppendUint64(dst, acc)
			n -= 64
			acc = d >> (w - n)
		}
	}
	for ; n > 0; n -= min(n, 8) {
		dst = append(dst, byte(acc))
		acc >>= 8
	}
	return dst
}

func bounds[T uint32 | uint64 | int64](v []T) (lo, hi T) {
	if len(v) == 0 {
		return 0, 0
	}
	lo, hi = v[0], v[0]
	for _, x := range v[1:] {
		lo, hi = min(lo, x), max(hi, x)
	}
	return lo, hi
}

// appendBlock appends the block of c to dst. keys may be the packed keys of a
// block that has the same.
func (c *columns) appendBlock(dst, keys []byte) []byte {
	n := c.n
	base := len(dst)
	dst = append(dst, make([]byte, blockHeader)...)
	binary.LittleEndian.PutUint16(dst[base+4:], uint16(n))
	binary.LittleEndian.PutUint16(dst[base+14:], uint16(len(c.toff)))
	if keys != nil {
		dst = append(dst, keys...)
	} else {
		dst = c.appendKeys(dst)
	}

	ordLo, ordHi := bounds(c.ord[:n])
	w := widthFor(uint64(ordHi - ordLo))
	dst[base+7] = byte(w)
	binary.LittleEndian.PutUint32(dst[base+16:], ordLo)
	dst = pack(dst, c.ord[:n], ordLo, w)

	posLo, posHi := bounds(c.pos[:n])
	w = widthFor(uint64(posHi - posLo))
	dst[base+8] = byte(w)
	binary.LittleEndian.PutUint32(dst[base+20:], posLo)
	dst = pack(dst, c.pos[:n], posLo, w)

	if mode := c.orderMode(); mode != orderNone {
		dst[base+6] = mode
		if mode == orderMixed {
			bitmap := len(dst)
			dst = append(dst, make([]byte, packedSize(n, 1))...)
			for i := 0; i < n; i++ {
				dst[bitmap+i>>3] |= c.has[i] << (i & 7)
			}
		}
		lo, hi := bounds(c.order[:n])
		w = widthFor(uint64(hi) - uint64(lo))
		dst[base+9] = byte(w)
		binary.LittleEndian.PutUint64(dst[base+24:], uint64(lo))
		dst = pack(dst, c.order[:n], lo, w)
	}

	// Row ids are never below -1, so the missing one is just the smallest
	// value; a column of nothing else has width 0.
	rowLo, rowHi := NoRowID, NoRowID
	if c.rowN > 0 {
		c.fillRow(n)
		rowLo, rowHi = bounds(c.row[:n])
	}
	w = widthFor(uint64(rowHi - rowLo))
	dst[base+10] = byte(w)
	binary.LittleEndian.PutUint64(dst[base+32:], uint64(rowLo))
	dst = pack(dst, c.row[:n], rowLo, w)

	if len(c.toff) > 0 {
		lo, hi := bounds(c.toff)
		w = widthFor(uint64(hi) - uint64(lo))
		dst[base+11] = byte(w)
		binary.LittleEndian.PutUint64(dst[base+40:], uint64(lo))
		dst = pack(dst, c.toff, lo, w)
		lo, hi = bounds(c.ttime)
		w = widthFor(uint64(hi) - uint64(lo))
		dst[base+12] = byte(w)
		binary.LittleEndian.PutUint64(dst[base+48:], uint64(lo))
		dst = pack(dst, c.ttime, lo, w)
	}
	dst = append(dst, make([]byte, blockPadding)...)
	binary.LittleEndian.PutUint32(dst[base:], crc32.Checksum(dst[base+4:], castagnoli))
	return dst
}

// appendKeys appends the directory of the key groups and the keys.
func (c *columns) appendKeys(dst []byte) []byte {
	groups := (c.n + groupEntries - 1) / groupEntries
	dir := len(dst)
	dst = append(dst, make([]byte, groups*groupHeader)...)
	keys := len(dst)
	for g := 0; g < groups; g++ {
		hi := c.hi[g*groupEntries : min(c.n, (g+1)*groupEntries)]
		w := widthFor(hi[len(hi)-1] - hi[0])
		at := dst[dir+g*groupHeader:]
		binary.LittleEndian.PutUint64(at, hi[0])
		binary.LittleEndian.PutUint32(at[8:], uint32(len(dst)-keys)|uint32(w)<<24)
		dst = pack(dst, hi, hi[0], w)
	}
	if c.wide {
		for _, lo := range c.lo[:c.n] {
			dst = binary.LittleEndian.AppendUint64(dst, lo)
		}
	}
	return dst
}

// orderMode tells how many entries have an ordering value. Those without borrow
// the first one, so that the range stays as narrow as the values are.
func (c *columns) orderMode() byte {
	if c.orderN == 0 {
		return orderNone
	}
	c.fillOrder(c.n)
	has := c.has[:c.n]
	first := bytes.IndexByte(has, 1)
	if first < 0 {
		return orderNone
	}
	if bytes.IndexByte(has, 0) < 0 {
		return orderAll
	}
	for i, h := range has {
		if h == 0 {
			c.order[i] = c.order[first]
		}
	}
	return orderMixed
}

// block is a parsed view of one block's bytes.
type block struct {
	buf      []byte
	wide     bool
	n, tombs int
	mode     byte
	dir      int // group directory
	keys     int // packed keys
	lo       int // wide: low halves
	has      int // mixed order: bitmap
	ord      bitColumn
	pos      bitColumn
	order    bitColumn
	row      bitColumn
	toff     bitColumn
	ttime    bitColumn
}

// parse checks the checksum and that every column lies inside buf, so that the
// readers below need no checks but those on ordinals.
func (b *block) parse(buf []byte, wide bool) error {
	if len(buf) < blockHeader+blockPadding {
		return corruptf("block of %d bytes is shorter than its header", len(buf))
	}
	if got, want := crc32.Checksum(buf[4:], castagnoli), binary.LittleEndian.Uint32(buf); got != want {
		return corruptf("block checksum is %08x, its header says %08x", got, want)
	}
	b.buf, b.wide = buf, wide
	b.n = int(binary.LittleEndian.Uint16(buf[4:]))
	b.tombs = int(binary.LittleEndian.Uint16(buf[14:]))
	b.mode = buf[6]
	if b.n == 0 || b.n > maxBlock || b.tombs > b.n || b.mode > orderMixed || buf[13] != 0 {
		return corruptf("block header: %d entries, %d tombstones, order mode %d", b.n, b.tombs, b.mode)
	}
	at := blockHeader
	groups := b.groups()
	b.dir = at
	at += groups * groupHeader
	if at > len(buf) {
		return corruptf("block of %d bytes ends in the directory of its %d key groups", len(buf), groups)
	}
	b.keys = at
	for g := 0; g < groups; g++ {
		start, w := b.group(g)
		if !widthOK(w, 64) || start != at {
			return corruptf("key group %d starts at %d with width %d, expected at %d", g, start, w, at)
		}
		at += packedSize(min(groupEntries, b.n-g*groupEntries), w)
	}
	if wide {
		b.lo = at
		at += 8 * b.n
	}
	column := func(c *bitColumn, n int, w byte, most uint, lo uint64) bool {
		*c = bitColumn{off: at, w: uint(w), mask: maskFor(uint(w)), min: lo}
		at += packedSize(n, uint(w))
		return widthOK(uint(w), most)
	}
	ok := column(&b.ord, b.n, buf[7], 32, uint64(binary.LittleEndian.Uint32(buf[16:])))
	ok = column(&b.pos, b.n, buf[8], 32, uint64(binary.LittleEndian.Uint32(buf[20:]))) && ok
	orderN := b.n
	switch b.mode {
	case orderNone:
		orderN = 0
	case orderMixed:
		b.has = at
		at += packedSize(b.n, 1)
	}
	ok = column(&b.order, orderN, buf[9], 64, binary.LittleEndian.Uint64(buf[24:])) && ok
	ok = column(&b.row, b.n, buf[10], 64, binary.LittleEndian.Uint64(buf[32:])) && ok
	ok = column(&b.toff, b.tombs, buf[11], 64, binary.LittleEndian.Uint64(buf[40:])) && ok
	ok = column(&b.ttime, b.tombs, buf[12], 64, binary.LittleEndian.Uint64(buf[48:])) && ok
	if !ok || at+blockPadding != len(buf) {
		return corruptf("block columns end at %d, the block at %d", at+blockPadding, len(buf))
	}
	return nil
}

func widthOK(w, most uint) bool { return w <= most && (w <= 56 || w == 64) }

func (b *block) groups() int { return (b.n + groupEntries - 1) >> groupShift }

func (b *block) first(g int) uint64 {
	return binary.LittleEndian.Uint64(b.buf[b.dir+g*groupHeader:])
}

// group gives where group g's keys start in the block, and their width.
func (b *block) group(g int) (int, uint) {
	x := binary.LittleEndian.Uint32(b.buf[b.dir+g*groupHeader+8:])
	return b.keys + int(x&maxGroupStart), uint(x >> 24)
}

func (b *block) keyColumn(g int) bitColumn {
	start, w := b.group(g)
	return bitColumn{off: start, w: w, mask: maskFor(w), min: b.first(g)}
}

// packedKeys are the directory of the key groups and the keys.
func (b *block) packedKeys() []byte { return b.buf[b.dir:b.ord.off] }

func (b *block) loAt(i int) uint64 { return binary.LittleEndian.Uint64(b.buf[b.lo+8*i:]) }

// blockSeeker finds ascending keys in a block.
type blockSeeker struct {
	b   *block
	g   int
	col bitColumn
}

func (b *block) seeker() blockSeeker { return blockSeeker{b: b, col: b.keyColumn(0)} }

// find gives the place of k, -1 where the block does not hold it. Keys of
// successive calls do not descend.
func (s *blockSeeker) find(k Key) int {
	b := s.b
	// The last group whose first key is below k.Hi holds the first place that
	// is not below it, or that place opens the next group.
	g := s.g
	for groups := b.groups(); g+1 < groups && b.first(g+1) < k.Hi; {
		g++
	}
	if g != s.g {
		s.g, s.col = g, b.keyColumn(g)
	}
	start := g << groupShift
	n := min(groupEntries, b.n-start)
	p := 0
	if k.Hi > s.col.min {
		target := k.Hi - s.col.min
		col := bitColumn{off: s.col.off, w: s.col.w, mask: s.col.mask}
		// One conditional add a step: no branch to predict.
		for n > 1 {
			half := n >> 1
			q := p + half
			if col.get(b.buf, q-1) < target {
				p = q
			}
			n -= half
		}
		if col.get(b.buf, p) < target {
			p++
		}
	}
	p += start
	if !b.wide {
		if p < b.n && b.hiAt(p) == k.Hi {
			return p
		}
		return -1
	}
	for ; p < b.n && b.hiAt(p) == k.Hi; p++ {
		if lo := b.loAt(p); lo == k.Lo {
			return p
		} else if lo > k.Lo {
			break
		}
	}
	return -1
}

func (b *block) hiAt(p int) uint64 {
	c := b.keyColumn(p >> groupShift)
	return c.get(b.buf, p&(groupEntries-1))
}

// entry writes the values of place p; an expired tombstone gives false.
func (b *block) entry(p int, files []uint64, horizon int64, e *Entry) (bool, error) {
	ord, pos := b.ord.get(b.buf, p), b.pos.get(b.buf, p)
	if ord >= uint64(len(files)) || pos > math.MaxUint32 {
		return false, corruptf("entry %d of a block names file ordinal %d of %d, position %d", p, ord, len(files), pos)
	}
	if ord == 0 {
		if pos >= uint64(b.tombs) {
			return false, corruptf("entry %d of a block names tombstone %d of %d", p, pos, b.tombs)
		}
		e.Time = int64(b.ttime.get(b.buf, int(pos)))
		if e.Time < horizon {
			e.Time = 0
			return false, nil
		}
		e.Offset = int64(b.toff.get(b.buf, int(pos)))
		e.File, e.Pos, e.RowID = 0, 0, NoRowID
	} else {
		e.File, e.Pos = files[ord], uint32(pos)
		e.RowID = int64(b.row.get(b.buf, p))
		e.Offset, e.Time = 0, 0
		if e.RowID < NoRowID {
			return false, corruptf("entry %d of a block has row id %d", p, e.RowID)
		}
	}
	e.Order, e.HasOrder = 0, false
	if b.mode == orderAll || b.mode == orderMixed && b.buf[b.has+p>>3]>>(p&7)&1 != 0 {
		e.Order, e.HasOrder = int64(b.order.get(b.buf, p)), true
	}
	return true, nil
}

// decode writes all entries to c and checks what parse could not: keys ascend,
// ordinals name something.
func (b *block) decode(c *columns, nfiles int) error {
	c.reset()
	c.reserve(b.n)
	c.n = b.n
	for g := 0; g < b.groups(); g++ {
		col := b.keyColumn(g)
		unpack(&col, b.buf, c.hi[g*groupEntries:min(b.n, (g+1)*groupEntries)])
	}
	if b.wide {
		for i := range c.lo[:b.n] {
			c.lo[i] = b.loAt(i)
		}
	}
	for i := 1; i < b.n; i++ {
		if c.hi[i-1] >= c.hi[i] && !(b.wide && c.key(i-1).Less(c.key(i))) {
			return corruptf("key %d of a block does not sort after the one before it", i)
		}
	}
	if b.ord.min+b.ord.mask > math.MaxUint32 || b.pos.min+b.pos.mask > math.MaxUint32 {
		// Rare: only then can a packed value wrap around.
		for i := 0; i < b.n; i++ {
			if b.ord.get(b.buf, i) > math.MaxUint32 || b.pos.get(b.buf, i) > math.MaxUint32 {
				return corruptf("entry %d of a block has a file ordinal or a position above 2^32", i)
			}
		}
	}
	unpack(&b.ord, b.buf, c.ord[:b.n])
	unpack(&b.pos, b.buf, c.pos[:b.n])
	for _, o := range c.ord[:b.n] {
		if uint64(o) >= uint64(nfiles) {
			return corruptf("a block names file ordinal %d of %d", o, nfiles)
		}
	}
	if b.mode != orderNone {
		unpack(&b.order, b.buf, c.order[:b.n])
		c.orderN = b.n
		for i := range c.has[:b.n] {
			c.has[i] = 1
		}
		if b.mode == orderMixed {
			for i := range c.has[:b.n] {
				c.has[i] = b.buf[b.has+i>>3] >> (i & 7) & 1
			}
		}
	}
	if b.row.w > 0 || int64(b.row.min) != NoRowID {
		unpack(&b.row, b.buf, c.row[:b.n])
		c.rowN = b.n
		for _, r := range c.row[:b.n] {
			if r < NoRowID {
				return corruptf("a block has row id %d", r)
			}
		}
	}
	tombs := 0
	if b.tombs > 0 || b.ord.min == 0 {
		for i, o := range c.ord[:b.n] {
			if o != 0 {
				continue
			}
			// The writer numbers tombstones in key order.
			if int(c.pos[i]) != tombs || tombs == b.tombs {
				return corruptf("tombstone %d of a block names place %d of %d", tombs, c.pos[i], b.tombs)
			}
			if c.rowN > 0 && c.row[i] != NoRowID {
				return corruptf("tombstone %d of a block has a row id", tombs)
			}
			tombs++
		}
	}
	if tombs != b.tombs {
		return corruptf("a block has %d tombstones, its header says %d", tombs, b.tombs)
	}
	c.toff = append(c.toff, make([]int64, tombs)...)
	c.ttime = append(c.ttime, make([]int64, tombs)...)
	unpack(&b.toff, b.buf, c.toff)
	unpack(&b.ttime, b.buf, c.ttime)
	return nil
}
