package keyindex

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"slices"
	"sync/atomic"
)

// fileTable gives files their ordinals in a base and counts their entries.
type fileTable struct {
	ids    []uint64
	rows   []uint64
	byID   map[uint64]uint32
	recent [256]struct {
		id  uint64
		ord uint32
	}
}

// reset begins with what an older base had, so that its blocks keep their
// meaning, or with nothing but the tombstones' ordinal 0.
func (t *fileTable) reset(old *base) {
	t.ids, t.rows = append(t.ids[:0], 0), append(t.rows[:0], 0)
	if old != nil {
		t.ids = append(t.ids, old.files[1:]...)
		t.rows = append(t.rows[:0], old.rows...)
	}
	if t.byID == nil {
		t.byID = make(map[uint64]uint32)
	}
	clear(t.byID)
	clear(t.recent[:])
	for ord, id := range t.ids {
		t.byID[id] = uint32(ord)
	}
}

func (t *fileTable) ordinal(id uint64) uint32 {
	r := &t.recent[uint8(id)]
	if r.id == id {
		return r.ord
	}
	ord, ok := t.byID[id]
	if !ok {
		ord = uint32(len(t.ids))
		t.ids = append(t.ids, id)
		t.rows = append(t.rows, 0)
		t.byID[id] = ord
	}
	r.id, r.ord = id, ord
	return ord
}

// mergeInput is everything that a new base depends on: the same input gives
// the same bytes.
type mergeInput struct {
	base     *base  // nil: none yet
	delta    []*run // newest first
	offset   int64
	horizon  int64 // tombstones before it are left out
	identity []byte
	wide     bool
	entries  int  // entries a block
	fresh    bool // write every block anew, ordinals in order of first use
	cancel   *atomic.Bool
}

// merger writes bases; its memory is used again from one to the next.
type merger struct {
	w      io.Writer
	in     mergeInput
	out    []byte
	pos    int64 // bytes given to out so far
	fences fences
	files  fileTable
	remap  []uint32 // fresh: old ordinal to new one + 1
	built  columns
	dec    columns
	scan   scan
	total  int64
}

const writeSpan = 256 << 10

// staleFiles tells whether so many files of the base have no entry left that
// the table is worth writing anew.
func staleFiles(b *base) bool {
	dead := 0
	for _, n := range b.rows[1:] {
		if n == 0 {
			dead++
		}
	}
	return dead > 64 && dead > len(b.files)/2
}

// write streams the merge of base and delta to w.
func (m *merger) write(w io.Writer, in mergeInput) error {
	m.w, m.in = w, in
	m.out, m.pos, m.total = m.out[:0], 0, 0
	m.built.wide, m.dec.wide = in.wide, in.wide
	m.built.reset()
	m.built.reserve(2 * in.entries)
	f := &m.fences
	f.wide = in.wide
	f.hi, f.lo, f.off, f.n, f.tomb = f.hi[:0], f.lo[:0], f.off[:0], f.n[:0], f.tomb[:0]
	if in.base == nil || in.fresh {
		m.files.reset(nil)
	} else {
		m.files.reset(in.base)
	}

	var head [fileHeader]byte
	copy(head[:], magic[:])
	binary.LittleEndian.PutUint16(head[8:], formatVersion)
	binary.LittleEndian.PutUint16(head[10:], m.flags())
	m.out = append(m.out, head[:]...)

	cur := newCursor(in.delta)
	if in.base != nil {
		if err := m.mergeBlocks(in.base, cur); err != nil {
			return err
		}
	}
	for cur.ok {
		if err := m.addDelta(cur); err != nil {
			return err
		}
	}
	if err := m.flushBlock(); err != nil {
		return err
	}
	return m.finish()
}

func (m *merger) flags() uint16 {
	if m.in.wide {
		return flagWide
	}
	return 0
}

func (m *merger) mergeBlocks(b *base, cur *cursor) error {
	m.scan.b, m.scan.start, m.scan.end = b, 0, 0
	if m.in.fresh {
		m.remap = slices.Grow(m.remap[:0], len(b.files))[:len(b.files)]
		clear(m.remap)
		m.remap[0] = 1
	}
	for i := 0; i < b.blocks(); i++ {
		if m.in.cancel != nil && m.in.cancel.Load() {
			return errCancelled
		}
		if err := m.scan.load(i); err != nil {
			return err
		}
		touched := cur.ok && (i+1 == b.blocks() || cur.key.Less(b.first(i+1)))
		if !touched && !m.in.fresh && b.tomb[i] >= m.in.horizon {
			done, err := m.copyBlock(i)
			if done || err != nil {
				if err != nil {
					return err
				}
				continue
			}
		}
		if err := m.mergeBlock(i, cur, !touched); err != nil {
			return err
		}
	}
	return nil
}

// copyBlock takes block i over as it is, unless it or what is waiting before it
// would leave small blocks behind.
func (m *merger) copyBlock(i int) (bool, error) {
	half := m.in.entries / 2
	blk := &m.scan.block
	if blk.n < half || blk.n > 2*m.in.entries || m.built.n > 0 && m.built.n < half {
		return false, nil
	}
	if err := m.flushBlock(); err != nil {
		return false, err
	}
	at := len(m.out)
	m.out = append(m.out, blk.buf...)
	b := m.scan.b
	return true, m.addFence(b.first(i), at, blk.n, b.tomb[i])
}

// mergeBlock merges block i with the delta's keys up to the next block.
func (m *merger) mergeBlock(i int, cur *cursor, whole bool) error {
	b, d := m.scan.b, &m.dec
	if err := m.scan.block.decode(d, len(b.files)); err != nil {
		return fmt.Errorf("%s: block %d at %d: %w", b.path, i, b.off[i], err)
	}
	last := i+1 == b.blocks()
	var next Key
	if !last {
		next = b.first(i + 1)
	}
	if d.n > 0 && !last && !d.key(d.n-1).Less(next) {
		return corruptf("%s: block %d runs into the one behind it", b.path, i)
	}
	// at is what is not yet built, j where the cursor is.
	at, j, intact := 0, 0, true
	for cur.ok && (last || cur.key.Less(next)) {
		j = d.seek(j, cur.key)
		hit := j < d.n && d.key(j) == cur.key
		if hit && !m.in.fresh && !cur.val.expired(m.in.horizon) {
			// The common case: the key stays, its values are new.
			m.drop(d.ord[j])
			ord := m.ordinal(cur.val)
			m.files.rows[ord]++
			d.replace(j, cur.val, ord)
			cur.next()
			continue
		}
		intact = false
		if err := m.addSpan(at, j); err != nil {
			return err
		}
		at = j
		if hit {
			m.drop(d.ord[j])
			at++
		}
		if err := m.addDelta(cur); err != nil {
			return err
		}
	}
	if intact && !m.in.fresh && b.tomb[i] >= m.in.horizon {
		return m.endBlock(whole)
	}
	return m.addSpan(at, d.n)
}

// endBlock writes a block whose keys are those that it had.
func (m *merger) endBlock(whole bool) error {
	d, half := &m.dec, m.in.entries/2
	if d.n >= half && d.n <= 2*m.in.entries && (m.built.n == 0 || m.built.n >= half) {
		if err := m.flushBlock(); err != nil {
			return err
		}
		d.renumberTombstones()
		return m.emit(d, m.scan.block.packedKeys())
	}
	if whole && m.built.n > 0 && m.built.n+d.n <= m.in.entries*3/2 {
		// A short rest and an untouched block become one, so that the
		// untouched blocks behind them can be taken over as they are.
		m.built.addSpan(d, 0, d.n)
		return m.flushBlock()
	}
	return m.addSpan(0, d.n)
}

// renumber gives the ordinals built last their new numbers and counts them.
func (m *merger) renumber(built []uint32) {
	for i, old := range built {
		ord := m.remap[old]
		if ord == 0 {
			ord = m.files.ordinal(m.scan.b.files[old]) + 1
			m.remap[old] = ord
		}
		built[i] = ord - 1
		m.files.rows[ord-1]++
	}
}

// drop takes an entry of the old base out of the counts that were taken over.
func (m *merger) drop(ord uint32) {
	if !m.in.fresh {
		m.files.rows[ord]--
	}
}

// addSpan appends decoded entries, without expired tombstones.
func (m *merger) addSpan(i, j int) error {
	d := &m.dec
	if len(d.toff) > 0 {
		for x := i; x < j; x++ {
			if d.ord[x] == 0 && d.ttime[d.pos[x]] < m.in.horizon {
				if err := m.addRows(i, x); err != nil {
					return err
				}
				m.drop(0)
				i = x + 1
			}
		}
	}
	return m.addRows(i, j)
}

func (m *merger) addRows(i, j int) error {
	for i < j {
		n := min(j-i, m.in.entries-m.built.n)
		from := m.built.n
		m.built.addSpan(&m.dec, i, i+n)
		if m.in.fresh {
			m.renumber(m.built.ord[from:m.built.n])
		}
		i += n
		if err := m.full(); err != nil {
			return err
		}
	}
	return nil
}

// addDelta appends the cursor's entry and moves on.
func (m *merger) addDelta(cur *cursor) error {
	if !cur.val.expired(m.in.horizon) {
		ord := m.ordinal(cur.val)
		m.files.rows[ord]++
		m.built.add(cur.key, cur.val, ord)
	}
	cur.next()
	return m.full()
}

func (m *merger) ordinal(v *value) uint32 {
	if v.tombstone() {
		return 0
	}
	return m.files.ordinal(v.a)
}

func (m *merger) full() error {
	if m.built.n < m.in.entries {
		return nil
	}
	return m.flushBlock()
}

func (m *merger) flushBlock() error {
	c := &m.built
	if c.n == 0 {
		return nil
	}
	err := m.emit(c, nil)
	c.reset()
	return err
}

// emit writes the block of c, whose packed keys may be at hand.
func (m *merger) emit(c *columns, keys []byte) error {
	oldest := int64(math.MaxInt64)
	for _, t := range c.ttime {
		oldest = min(oldest, t)
	}
	at := len(m.out)
	m.out = c.appendBlock(m.out, keys)
	return m.addFence(c.key(0), at, c.n, oldest)
}

// addFence notes the block that was just appended at out[at:].
func (m *merger) addFence(k Key, at, n int, oldest int64) error {
	f := &m.fences
	f.hi = append(f.hi, k.Hi)
	if f.wide {
		f.lo = append(f.lo, k.Lo)
	}
	f.off = append(f.off, m.pos+int64(at))
	f.n = append(f.n, uint16(n))
	f.tomb = append(f.tomb, oldest)
	m.total += int64(n)
	if len(m.out) >= writeSpan {
		return m.flushOut()
	}
	return nil
}

func (m *merger) flushOut() error {
	m.pos += int64(len(m.out))
	_, err := m.w.Write(m.out)
	m.out = m.out[:0]
	return err
}

// finish writes trailer and footer.
func (m *merger) finish() error {
	le := binary.LittleEndian
	f := &m.fences
	f.off = append(f.off, m.pos+int64(len(m.out)))
	from := len(m.out)
	start := m.pos + int64(from)
	m.out = append(m.out, m.in.identity...)
	for i := range f.hi {
		m.out = le.AppendUint64(m.out, f.hi[i])
		if f.wide {
			m.out = le.AppendUint64(m.out, f.lo[i])
		}
		m.out = le.AppendUint32(m.out, uint32(f.off[i+1]-f.off[i]))
		m.out = le.AppendUint16(m.out, f.n[i])
		m.out = le.AppendUint16(m.out, 0)
		m.out = le.AppendUint64(m.out, uint64(f.tomb[i]))
	}
	for i := range m.files.ids {
		m.out = le.AppendUint64(m.out, m.files.ids[i])
		m.out = le.AppendUint64(m.out, m.files.rows[i])
	}
	trailer := m.out[from:]
	var foot [fileFooter]byte
	le.PutUint64(foot[0:], uint64(start))
	le.PutUint64(foot[8:], uint64(len(trailer)))
	le.PutUint64(foot[16:], uint64(m.total))
	le.PutUint64(foot[24:], m.files.rows[0])
	le.PutUint64(foot[32:], uint64(m.in.offset))
	le.PutUint64(foot[40:], uint64(m.in.horizon))
	le.PutUint32(foot[48:], uint32(len(f.hi)))
	le.PutUint32(foot[52:], uint32(len(m.files.ids)))
	le.PutUint32(foot[56:], uint32(m.in.entries))
	le.PutUint32(foot[60:], uint32(len(m.in.identity)))
	le.PutUint32(foot[64:], crc32.Checksum(trailer, castagnoli))
	le.PutUint16(foot[80:], formatVersion)
	le.PutUint16(foot[82:], m.flags())
	le.PutUint32(foot[84:], crc32.Checksum(foot[:84], castagnoli))
	copy(foot[88:], magic[:])
	m.out = append(m.out, foot[:]...)
	return m.flushOut()
}
