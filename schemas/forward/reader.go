package forward

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"slices"
	"sort"
	"sync"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/klauspost/compress/fse"

	"github.com/varve-io/varve/schemas/dv"
)

// DefaultCacheBlocks is how many decoded blocks a Map keeps: 128 KiB each.
const DefaultCacheBlocks = 512

// Map is an opened forwarding map. Its directory is in memory; blocks are read
// when a position needs them. It must not be used from several goroutines.
type Map struct {
	r       io.ReaderAt
	inputs  []Input
	rankers []*dv.Ranker // nil where R is empty
	outputs []uint64     // rows
	starts  []uint64     // first row of each output; one more: all rows
	blocks  []blockRef
	before  []uint64 // of block b and input i at b·inputs+i: rows of i in blocks before b

	// CacheBlocks bounds the decoded blocks that are kept. Default:
	// DefaultCacheBlocks.
	CacheBlocks int
	cache       map[int]*block
	used        int64
}

// decoding is the room that the decoding of a block takes. It goes from map to
// map: small ones are kept by the thousand.
type decoding struct {
	ordinals [BlockRows]byte
	payload  []byte
	scratch  fse.Scratch
}

var decodings = sync.Pool{New: func() any { return new(decoding) }}

type blockRef struct {
	coding byte
	at     int64
	size   int
	sum    uint32
	rows   int
}

// block is a decoded block: for each input its rows, ascending.
type block struct {
	rows   []uint16
	starts []uint32 // where an input's rows begin in rows; one more
	used   int64
}

// Open reads a map's head and directory and holds them against each other
// (F4): per input the rows of all outputs are |L|, and the outputs are filled.
// Errors wrap ErrCorrupt or ErrCounts.
func Open(r io.ReaderAt, size int64) (*Map, error) {
	m := &Map{r: r, cache: map[int]*block{}}
	front := make([]byte, len(magic)+4)
	if size < int64(len(front)+4+footer) {
		return nil, fmt.Errorf("%w: %d bytes", ErrCorrupt, size)
	}
	if err := m.read(front, 0); err != nil {
		return nil, err
	}
	if string(front[:len(magic)]) != magic {
		return nil, fmt.Errorf("%w: it begins otherwise", ErrCorrupt)
	}
	headSize := int64(binary.LittleEndian.Uint32(front[len(magic):]))
	if headSize > maxHead || headSize > size-int64(len(front)+4+footer) {
		return nil, fmt.Errorf("%w: a head of %d in %d bytes", ErrCorrupt, headSize, size)
	}
	head := make([]byte, headSize+4)
	if err := m.read(head, int64(len(front))); err != nil {
		return nil, err
	}
	if crc32.Checksum(head[:headSize], castagnoli) != binary.LittleEndian.Uint32(head[headSize:]) {
		return nil, fmt.Errorf("%w: checksum of the head", ErrCorrupt)
	}
	var err error
	if m.inputs, err = readHead(head[:headSize]); err != nil {
		return nil, err
	}
	m.rankers = make([]*dv.Ranker, len(m.inputs))
	for i := range m.inputs {
		if m.rankers[i], err = m.inputs[i].check(); err != nil {
			return nil, err
		}
	}
	body := int64(len(front)) + headSize + 4
	foot := make([]byte, footer)
	if err := m.read(foot, size-footerSize); err != nil {
		return nil, err
	}
	tailSize := int64(binary.LittleEndian.Uint32(foot))
	if string(foot[8:]) != magicEnd || tailSize > maxTail || tailSize > size-footerSize-body {
		return nil, fmt.Errorf("%w: it ends otherwise", ErrCorrupt)
	}
	tail := make([]byte, tailSize)
	if err := m.read(tail, size-footerSize-tailSize); err != nil {
		return nil, err
	}
	if crc32.Checksum(tail, castagnoli) != binary.LittleEndian.Uint32(foot[4:]) {
		return nil, fmt.Errorf("%w: checksum of the directory", ErrCorrupt)
	}
	return m, m.readTail(tail, body, size-footerSize-tailSize)
}

const footerSize = int64(footer)

func (m *Map) read(b []byte, at int64) error {
	if n, err := m.r.ReadAt(b, at); n < len(b) {
		return fmt.Errorf("read a forwarding map at byte %d: %w", at, err)
	}
	return nil
}

func (m *Map) readTail(tail []byte, at, end int64) error {
	s := scan{b: tail}
	n := s.uv()
	if n > uint64(len(tail)) {
		return fmt.Errorf("%w: %d outputs in %d bytes", ErrCorrupt, n, len(tail))
	}
	total := uint64(0)
	m.outputs, m.starts = make([]uint64, n), make([]uint64, n+1)
	for i := range m.outputs {
		m.outputs[i], m.starts[i] = s.uv(), total
		if m.outputs[i] > math.MaxInt32 {
			return fmt.Errorf("%w: output %d of %d rows", ErrCorrupt, i, m.outputs[i])
		}
		total += m.outputs[i]
	}
	m.starts[n] = total
	blocks := s.uv()
	if s.bad || total > MaxRows || blocks != (total+BlockRows-1)/BlockRows || blocks > uint64(len(s.b)) {
		return fmt.Errorf("%w: %d rows in %d blocks", ErrCorrupt, total, blocks)
	}
	k := len(m.inputs)
	// A directory entry takes a byte an input at least.
	if blocks*uint64(k) > uint64(len(s.b)) {
		return fmt.Errorf("%w: a directory of %d bytes for %d blocks and %d inputs", ErrCorrupt, len(s.b), blocks, k)
	}
	m.blocks = make([]blockRef, blocks)
	m.before = make([]uint64, (int(blocks)+1)*k)
	for b := range m.blocks {
		x := &m.blocks[b]
		x.coding = s.u8()
		size := s.uv()
		x.sum = s.u32()
		x.at, x.rows = at, int(min(BlockRows, total-uint64(b)*BlockRows))
		if s.bad || x.coding > maxCoding || size > uint64(end-at) || size > 2*BlockRows+512 {
			return fmt.Errorf("%w: block %d", ErrCorrupt, b)
		}
		x.size = int(size)
		at += int64(size)
		sum := uint64(0)
		for i := range k {
			c := s.uv()
			if c > uint64(x.rows) {
				return fmt.Errorf("%w: block %d: %d rows of input %d", ErrCorrupt, b, c, i)
			}
			sum += c
			m.before[(b+1)*k+i] = m.before[b*k+i] + c
		}
		if sum != uint64(x.rows) {
			return fmt.Errorf("%w: block %d of %d rows counts %d", ErrCorrupt, b, x.rows, sum)
		}
	}
	if s.bad || len(s.b) != 0 || at != end {
		return fmt.Errorf("%w: its blocks do not fill it", ErrCorrupt)
	}
	for i := range m.inputs {
		if got := m.before[int(blocks)*k+i]; got != m.inputs[i].Rows {
			return fmt.Errorf("%w: input %d (file %d) has %d rows, the outputs hold %d of them", ErrCounts, i, m.inputs[i].File, m.inputs[i].Rows, got)
		}
	}
	return nil
}

// Inputs are those of the job. They belong to the map.
func (m *Map) Inputs() []Input { return m.inputs }

// Outputs are the rows of each output. They belong to the map.
func (m *Map) Outputs() []uint64 { return m.outputs }

// Check reads every block and holds it against the directory.
func (m *Map) Check() error {
	for b := range m.blocks {
		if _, err := m.load(b); err != nil {
			return err
		}
	}
	return nil
}

// load decodes a block: for each input its rows.
func (m *Map) load(b int) (*block, error) {
	m.used++
	if x := m.cache[b]; x != nil {
		x.used = m.used
		return x, nil
	}
	ref := &m.blocks[b]
	room := decodings.Get().(*decoding)
	defer decodings.Put(room)
	room.payload = slices.Grow(room.payload[:0], ref.size+1)
	payload := room.payload[:ref.size+1]
	payload[0] = ref.coding
	if err := m.read(payload[1:], ref.at); err != nil {
		return nil, err
	}
	if crc32.Checksum(payload, castagnoli) != ref.sum {
		return nil, fmt.Errorf("%w: checksum of block %d", ErrCorrupt, b)
	}
	ordinals := room.ordinals[:ref.rows]
	if err := decodeBlock(ordinals, ref.coding, payload[1:], &room.scratch); err != nil {
		return nil, fmt.Errorf("block %d: %w", b, err)
	}
	k := len(m.inputs)
	x := &block{rows: make([]uint16, ref.rows), starts: make([]uint32, k+1), used: m.used}
	var next [MaxInputs]uint32
	for i := range k {
		next[i] = x.starts[i]
		x.starts[i+1] = x.starts[i] + uint32(m.before[(b+1)*k+i]-m.before[b*k+i])
	}
	for row, o := range ordinals {
		if int(o) >= k || next[o] >= x.starts[o+1] {
			return nil, fmt.Errorf("%w: block %d does not have the rows that the directory counts", ErrCorrupt, b)
		}
		x.rows[next[o]] = uint16(row)
		next[o]++
	}
	m.keep(b, x)
	return x, nil
}

// Memory is about how many bytes the opened map takes, with its cache full.
func (m *Map) Memory() int64 {
	limit := m.CacheBlocks
	if limit <= 0 {
		limit = DefaultCacheBlocks
	}
	n := int64(len(m.outputs)+len(m.starts)+len(m.before))*8 + int64(len(m.blocks))*40
	for i := range m.inputs {
		n += 64 + 2*int64(len(m.inputs[i].Dead)) // the set and its ranker
	}
	for i := range min(limit, len(m.blocks)) {
		n += 2*int64(m.blocks[i].rows) + 4*int64(len(m.inputs)) + 64
	}
	return n
}

// keep puts a block into the cache, and the one that was not used for longest
// out of a full one.
func (m *Map) keep(b int, x *block) {
	limit := m.CacheBlocks
	if limit <= 0 {
		limit = DefaultCacheBlocks
	}
	for len(m.cache) >= limit {
		oldest := -1
		for i, y := range m.cache {
			if oldest < 0 || y.used < m.cache[oldest].used {
				oldest = i
			}
		}
		delete(m.cache, oldest)
	}
	m.cache[b] = x
}

// Image is where a row went.
type Image struct {
	Output   uint32
	Position uint32
}

// Rebase appends where positions of an input went (F2). They must ascend; one
// outside of L has no image and gives nothing. Images come in the order of
// their positions.
func (m *Map) Rebase(dst []Image, input int, positions []uint32) ([]Image, error) {
	in, ranker := &m.inputs[input], m.rankers[input]
	k := len(m.inputs)
	var (
		x          *block
		b          = -1 // the block of x
		from, to   uint64
		rows       []uint16
		start      uint64 // the first output row of the block
		output     int
		last       uint32
		rangeStart = in.Lo
	)
	for n, p := range positions {
		if n > 0 && p <= last {
			return dst, fmt.Errorf("positions to rebase do not ascend: %d after %d", p, last)
		}
		last = p
		if p < rangeStart || p >= in.Hi {
			continue
		}
		var below uint64
		if ranker != nil {
			n, dead := ranker.Rank(p)
			if dead {
				continue
			}
			below = n
		}
		rank := uint64(p-rangeStart) - below
		if b < 0 || rank >= to {
			// The first block at whose end more than rank rows of the input have been.
			next := b + 1
			at := next + sort.Search(len(m.blocks)-next, func(i int) bool { return m.before[(next+i+1)*k+input] > rank })
			if at == len(m.blocks) {
				return dst, fmt.Errorf("%w: row %d of input %d is in no block", ErrCorrupt, rank, input)
			}
			var err error
			if x, err = m.load(at); err != nil {
				return dst, err
			}
			b = at
			from, to = m.before[b*k+input], m.before[(b+1)*k+input]
			rows = x.rows[x.starts[input]:x.starts[input+1]]
			start = uint64(b) * BlockRows
		}
		g := start + uint64(rows[rank-from])
		if g >= m.starts[output+1] {
			output += sort.Search(len(m.outputs)-output, func(i int) bool { return m.starts[output+i+1] > g })
		}
		dst = append(dst, Image{uint32(output), uint32(g - m.starts[output])})
	}
	return dst, nil
}

// ByOutput calls fn with the positions of each output among images, which are in
// the order that Rebase gives them in.
func ByOutput(images []Image, fn func(output uint32, positions *roaring.Bitmap) error) error {
	for len(images) > 0 {
		output, positions, n := images[0].Output, roaring.New(), 0
		for ; n < len(images) && images[n].Output == output; n++ {
			positions.Add(images[n].Position)
		}
		if err := fn(output, positions); err != nil {
			return err
		}
		images = images[n:]
	}
	return nil
}

// Origin is where an output row came from.
type Origin struct {
	Input    int
	Position uint32
}

// Tracer walks the output rows of a map, output after output.
type Tracer struct {
	m        *Map
	block    int
	ordinals []byte // of the block under way
	at       int    // in ordinals
	next     []uint32
	dead     []roaring.IntPeekable
}

// Trace begins a walk at the first row of the first output.
func (m *Map) Trace() (*Tracer, error) {
	t := &Tracer{m: m, next: make([]uint32, len(m.inputs)), dead: make([]roaring.IntPeekable, len(m.inputs))}
	for i := range m.inputs {
		in := &m.inputs[i]
		t.next[i] = in.Lo
		set := roaring.New()
		if len(in.Dead) > 0 {
			var err error
			if set, err = dv.ReadBitmap(in.Dead); err != nil {
				return nil, fmt.Errorf("%w: file %d: dead positions: %w", ErrCorrupt, in.File, err)
			}
		}
		t.dead[i] = set.Iterator()
	}
	return t, nil
}

// Next fills dst with the origins of the next rows. There must be as many.
func (t *Tracer) Next(dst []Origin) error {
	for i := range dst {
		if t.at == len(t.ordinals) {
			if err := t.load(); err != nil {
				return err
			}
		}
		n := int(t.ordinals[t.at])
		t.at++
		p, dead := t.next[n], t.dead[n]
		for dead.HasNext() && dead.PeekNext() == p {
			dead.Next()
			p++
		}
		dst[i] = Origin{n, p}
		t.next[n] = p + 1
	}
	return nil
}

func (t *Tracer) load() error {
	if t.block == len(t.m.blocks) {
		return fmt.Errorf("%w: it has no more rows", ErrCounts)
	}
	x, err := t.m.load(t.block)
	if err != nil {
		return err
	}
	if t.ordinals == nil {
		t.ordinals = make([]byte, BlockRows)
	}
	t.ordinals, t.at = t.ordinals[:len(x.rows)], 0
	for n := range t.m.inputs {
		for _, row := range x.rows[x.starts[n]:x.starts[n+1]] {
			t.ordinals[row] = byte(n)
		}
	}
	t.block++
	return nil
}
