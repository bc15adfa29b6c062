package statestore

import "sort"

// fileEntry is what the state knows of one data file.
type fileEntry struct {
	id       uint64
	rows     int64
	bytes    int64
	tuple    uint32 // ordinal of (spec, partition tuple)
	record   int64  // offset of the AppendRows that added it
	schema   int32
	gone     bool  // every row is dead: it is in no later snapshot (V7)
	manifest int64 // number of the manifest that lists it, 0: unpublished
	rowID    int64 // first row id, -1: unpublished
	sequence int64 // data sequence number, 0: unpublished
}

// chunk is the files of 128 neighbouring ids, and what of them changed since
// the last frozen cut.
type chunk struct {
	key     chunkKey
	entries []fileEntry // ascending by id
	added   bits128
	killed  bits128
	kills   []kill // delete blocks since the last commit

	dirty, marksDirty bool
}

// kill is a delete block of one file: positions as a set.
type kill struct {
	file uint64
	set  []byte
}

type chunkKey struct {
	table int64
	base  uint64 // id >> 7
}

type bits128 [2]uint64

func (b *bits128) set(i uint)      { b[i>>6] |= 1 << (i & 63) }
func (b *bits128) has(i uint) bool { return b[i>>6]>>(i&63)&1 != 0 }
func (b *bits128) empty() bool     { return b[0]|b[1] == 0 }

func (c *chunk) find(id uint64) *fileEntry {
	i := sort.Search(len(c.entries), func(i int) bool { return c.entries[i].id >= id })
	if i < len(c.entries) && c.entries[i].id == id {
		return &c.entries[i]
	}
	return nil
}

func (c *chunk) encode(dst []byte) []byte {
	e := enc{b: dst}
	e.u(1)
	e.u(uint64(len(c.entries)))
	var prev fileEntry
	for i := range c.entries {
		f := &c.entries[i]
		e.u(f.id & 127)
		e.i(f.rows)
		e.i(f.bytes)
		e.u(uint64(f.tuple))
		e.i(f.record - prev.record)
		e.i(int64(f.schema))
		e.bool(f.gone)
		e.i(f.manifest)
		e.i(f.rowID)
		e.i(f.sequence)
		prev = *f
	}
	return e.b
}

func (c *chunk) decode(b []byte) error {
	d := dec{b: b}
	if d.u() != 1 {
		d.fail()
	}
	n := d.count()
	if n > 128 {
		d.fail()
		n = 0
	}
	prev := int64(0)
	for ; n > 0; n-- {
		f := fileEntry{id: c.key.base<<7 | d.u()&127, rows: d.i(), bytes: d.i(), tuple: uint32(d.u())}
		f.record = prev + d.i()
		f.schema = int32(d.i())
		f.gone = d.bool()
		f.manifest = d.i()
		f.rowID = d.i()
		f.sequence = d.i()
		prev = f.record
		c.entries = append(c.entries, f)
	}
	return d.done("file chunk")
}

func (c *chunk) encodeMarks() []byte {
	var e enc
	for _, w := range [...]uint64{c.added[0], c.added[1], c.killed[0], c.killed[1]} {
		e.u(w)
	}
	return e.b
}

func (c *chunk) decodeMarks(b []byte) error {
	d := dec{b: b}
	c.added = bits128{d.u(), d.u()}
	c.killed = bits128{d.u(), d.u()}
	return d.done("change marks")
}
