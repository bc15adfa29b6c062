package statestore

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/varve-io/varve/schemas/record"
)

// fileEntry is what the state knows of one data file.
type fileEntry struct {
	id       uint64
	rows     int64
	bytes    int64
	tuple    uint32 // ordinal of (spec, partition tuple)
	record   int64  // offset of the AppendRows that added it
	schema   int32
	gone     bool  // every row is dead: it is in no later snapshot (V7)
	left     int64 // of one that is gone: build offset of the cut that took it out, 0: none yet
	manifest int64 // number of the manifest that lists it, 0: unpublished
	rowID    int64 // first row id, -1: unpublished
	sequence int64 // data sequence number, 0: unpublished
	member   bool  // its partition has a list of files
}

// body is the erasable body of an AppendRows, with its files' metrics.
type body struct {
	record int64
	length int64
	hash   record.Hash
	dir    string // path, less the hash's digits where it ends in them
	named  bool   // it does
}

// chunk is the files of 128 neighbouring ids, and what of them changed since
// the last frozen cut.
type chunk struct {
	key     chunkKey
	entries []fileEntry  // ascending by id
	rows    [128]uint32  // plus 1, by low bits of the id; 0: no such file
	bodies  []body       // of the files that no cut has published, ascending by record
	names   []outputName // of the files that jobs wrote, ascending
	jobs    []fileJob    // of the files that jobs took, ascending
	added   bits128
	killed  bits128
	gone    bits128
	// collected are files that were here, and whose entries a CollectFiles took out (G2).
	collected bits128
	// out are files that a Rollback took out: no block may name them (H3, P3).
	out bits128
	// parted are files that are not one reference on the root of the table's tree;
	// moved are those of which a job has rewritten a reference, but not all (F7).
	parted bits128
	moved  bits128
	dead   bits128 // once deadKnown: all files that the database has dead positions of, and perhaps others
	kills  []byte  // delete blocks that the database lacks: low bits of the id, length, set
	stored int     // entries that the database has

	dirty, marksDirty, touched bool
	deadKnown                  bool
}

// memory is about how many bytes the chunk takes.
func (c *chunk) memory() int {
	return 1024 + 88*cap(c.entries) + 80*cap(c.bodies) + 24*(cap(c.names)+cap(c.jobs)) + cap(c.kills)
}

type chunkKey struct {
	table int64
	base  uint64 // id >> 7
}

func (k chunkKey) near() int {
	return int((k.base*0x9e3779b97f4a7c15 + uint64(k.table)*0xc2b2ae3d27d4eb4f) >> 54)
}

type bits128 [2]uint64

func (b *bits128) set(i uint)      { b[i>>6] |= 1 << (i & 63) }
func (b *bits128) clear(i uint)    { b[i>>6] &^= 1 << (i & 63) }
func (b *bits128) has(i uint) bool { return b[i>>6]>>(i&63)&1 != 0 }
func (b *bits128) empty() bool     { return b[0]|b[1] == 0 }

// fileRows is the rows of a file, -1 when there is none. It reads one number,
// since that is all that a delete block asks of a file.
func (c *chunk) fileRows(id uint64) int64 { return int64(c.rows[id&127]) - 1 }

// at is where the entry of a file is, or would be.
func (c *chunk) at(id uint64) (int, bool) {
	// Most chunks have all of their ids, or all from the first one on.
	if n := len(c.entries); n > 0 {
		if i := id - c.entries[0].id; i < uint64(n) && c.entries[i].id == id {
			return int(i), true
		}
	}
	return slices.BinarySearchFunc(c.entries, id, func(f fileEntry, id uint64) int { return cmp.Compare(f.id, id) })
}

func (c *chunk) find(id uint64) *fileEntry {
	i, found := c.at(id)
	if !found {
		return nil
	}
	return &c.entries[i]
}

// add appends an entry whose id is above all others.
func (c *chunk) add(f fileEntry) {
	if n := len(c.entries); n == cap(c.entries) {
		grown := make([]fileEntry, n, min(128, max(8, 4*n)))
		copy(grown, c.entries)
		c.entries = grown
	}
	c.entries = append(c.entries, f)
	c.index(&f)
}

func (c *chunk) index(f *fileEntry) {
	c.rows[f.id&127] = uint32(f.rows) + 1
	if f.gone {
		c.gone.set(uint(f.id & 127))
	}
}

// kill appends a delete block.
func (c *chunk) kill(id uint64, set []byte) {
	c.kills = binary.AppendUvarint(append(c.kills, byte(id&127)), uint64(len(set)))
	c.kills = append(c.kills, set...)
}

// killOrder is where the delete blocks are, by file.
func (c *chunk) killOrder(dst []uint64) []uint64 {
	var next [129]int // where the next block of a file goes, by the low bits of its id plus 1
	n := 0
	for at := 0; at < len(c.kills); n++ {
		next[c.kills[at]&127+1]++
		at = c.afterKill(at)
	}
	for i := range 127 {
		next[i+1] += next[i]
	}
	dst = slices.Grow(dst[:0], n)[:n]
	for at := 0; at < len(c.kills); {
		bit := c.kills[at] & 127
		dst[next[bit]] = uint64(bit)<<56 | uint64(at)
		next[bit]++
		at = c.afterKill(at)
	}
	return dst
}

// afterKill is where the delete block behind the one at at begins.
func (c *chunk) afterKill(at int) int {
	n, size := binary.Uvarint(c.kills[at+1:])
	return at + 1 + size + int(n)
}

// killsOf appends the delete blocks of the file that order[i] is of, and
// returns its low bits and where the next file begins.
func (c *chunk) killsOf(order []uint64, i int, sets [][]byte) (uint, [][]byte, int) {
	bit := order[i] >> 56
	for ; i < len(order) && order[i]>>56 == bit; i++ {
		b := c.kills[order[i]&(1<<56-1)+1:]
		n, size := binary.Uvarint(b)
		sets = append(sets, b[size:size+int(n)])
	}
	return uint(bit), sets, i
}

// addBody keeps the body of a record that adds a file here. Bodies mostly lie
// in one folder: dir is the last one's, used again.
func (c *chunk) addBody(offset int64, ref *record.Ref, dir string) string {
	n := len(c.bodies)
	if n > 0 && c.bodies[n-1].record == offset {
		return dir
	}
	b := body{record: offset, length: ref.Length, hash: ref.Hash, dir: ref.Path}
	if k := len(ref.Path) - 2*len(ref.Hash); k >= 0 {
		if b.named = isHex(ref.Path[k:], ref.Hash[:]); b.named {
			if ref.Path[:k] != dir {
				dir = strings.Clone(ref.Path[:k])
			}
			b.dir = dir
		}
	}
	if n == cap(c.bodies) {
		grown := make([]body, n, max(8, 4*n))
		copy(grown, c.bodies)
		c.bodies = grown
	}
	c.bodies = append(c.bodies, b)
	return dir
}

func (c *chunk) body(offset int64) (r record.Ref, ok bool) {
	i, found := slices.BinarySearchFunc(c.bodies, offset, func(b body, o int64) int { return cmp.Compare(b.record, o) })
	if !found {
		return r, false
	}
	b := &c.bodies[i]
	r = record.Ref{Path: b.dir, Length: b.length, Hash: b.hash}
	if b.named {
		r.Path += b.hash.String()
	}
	return r, true
}

// dropBodies forgets the bodies that no cut will ask for.
func (c *chunk) dropBodies() {
	i := 0
	c.bodies = slices.DeleteFunc(c.bodies, func(b body) bool {
		wanted := false
		for ; i < len(c.entries) && c.entries[i].record <= b.record; i++ {
			f := &c.entries[i]
			wanted = wanted || f.record == b.record && f.manifest == 0 && !f.gone
		}
		return !wanted
	})
}

// outputName is the name of a file that a job wrote.
type outputName struct {
	bit  uint8 // low bits of the file id
	name [16]byte
}

// name is that of a file that a job wrote, zeros for any other.
func (c *chunk) name(id uint64) [16]byte {
	for i := range c.names {
		if uint64(c.names[i].bit) == id&127 {
			return c.names[i].name
		}
	}
	return [16]byte{}
}

// job is the one that took a file, nil when none did.
func (c *chunk) job(id uint64) *jobID {
	for i := range c.jobs {
		if uint64(c.jobs[i].bit) == id&127 {
			return &c.jobs[i].id
		}
	}
	return nil
}

// setJob says which job took a file, nil: none.
func (c *chunk) setJob(id uint64, job *jobID) {
	i, found := slices.BinarySearchFunc(c.jobs, uint8(id&127), func(j fileJob, bit uint8) int { return cmp.Compare(j.bit, bit) })
	switch {
	case job == nil && found:
		c.jobs = slices.Delete(c.jobs, i, i+1)
	case job != nil && found:
		c.jobs[i].id = *job
	case job != nil:
		c.jobs = slices.Insert(c.jobs, i, fileJob{uint8(id & 127), *job})
	}
}

// collect takes out the entry of a file that nothing names any more.
func (c *chunk) collect(id uint64) {
	i, found := c.at(id)
	if !found {
		return
	}
	bit := uint8(id & 127)
	c.entries = slices.Delete(c.entries, i, i+1)
	if i < c.stored {
		c.stored--
	}
	c.rows[bit] = 0
	c.collected.set(uint(bit))
	c.names = slices.DeleteFunc(c.names, func(n outputName) bool { return n.bit == bit })
	c.setJob(id, nil)
	c.dropKills(bit)
	c.parted.clear(uint(bit))
	c.moved.clear(uint(bit))
	c.dirty = true
}

// dropKills forgets the delete blocks of a file.
func (c *chunk) dropKills(bit uint8) {
	kept := c.kills[:0]
	for at := 0; at < len(c.kills); {
		end := c.afterKill(at)
		if c.kills[at]&127 != bit {
			kept = append(kept, c.kills[at:end]...)
		}
		at = end
	}
	c.kills = kept
}

const chunkLayout = 5

// How the path of a body is written.
const (
	pathWhole    = 0
	pathNamed    = 1 // less the hash's digits, in which it ends
	pathAsBefore = 2 // the same, and the rest as that of the body before
)

func (c *chunk) encode(dst []byte) []byte {
	e := enc{b: dst}
	e.u(chunkLayout)
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
		if f.gone {
			e.i(f.left)
		}
		e.i(f.manifest)
		e.i(f.rowID)
		e.i(f.sequence)
		prev = *f
	}
	c.dropBodies()
	e.u(uint64(len(c.bodies)))
	offset := int64(0)
	for i := range c.bodies {
		b := &c.bodies[i]
		e.i(b.record - offset)
		offset = b.record
		e.i(b.length)
		e.raw(b.hash[:])
		switch {
		case !b.named:
			e.u(pathWhole)
			e.str(b.dir)
		case i > 0 && c.bodies[i-1].named && b.dir == c.bodies[i-1].dir:
			e.u(pathAsBefore)
		default:
			e.u(pathNamed)
			e.str(b.dir)
		}
	}
	e.u(uint64(len(c.names)))
	for i := range c.names {
		e.u(uint64(c.names[i].bit))
		e.raw(c.names[i].name[:])
	}
	e.u(uint64(len(c.jobs)))
	for i := range c.jobs {
		e.u(uint64(c.jobs[i].bit))
		e.i(c.jobs[i].id.plan)
		e.i(int64(c.jobs[i].id.item))
	}
	e.u(c.collected[0])
	e.u(c.collected[1])
	e.u(c.out[0])
	e.u(c.out[1])
	if !c.parted.empty() { // most tables have no tree
		for _, w := range [...]uint64{c.parted[0], c.parted[1], c.moved[0], c.moved[1]} {
			e.u(w)
		}
	}
	return e.b
}

func (c *chunk) decode(b []byte) error {
	d := dec{b: b}
	if d.u() != chunkLayout {
		d.fail()
	}
	n := d.count()
	if n > 128 {
		d.fail()
		n = 0
	}
	prev := int64(0)
	c.entries = make([]fileEntry, 0, n)
	for ; n > 0; n-- {
		f := fileEntry{id: c.key.base<<7 | d.u()&127, rows: d.i(), bytes: d.i(), tuple: uint32(d.u())}
		f.record = prev + d.i()
		f.schema = int32(d.i())
		if f.gone = d.bool(); f.gone {
			f.left = d.i()
		}
		f.manifest = d.i()
		f.rowID = d.i()
		f.sequence = d.i()
		prev = f.record
		c.entries = append(c.entries, f)
		c.index(&f)
	}
	c.stored = len(c.entries)
	offset := int64(0)
	for n := d.count(); n > 0; n-- {
		offset += d.i()
		b := body{record: offset, length: d.i()}
		copy(b.hash[:], d.raw(len(b.hash)))
		switch form := d.u(); {
		case form == pathWhole:
			b.dir = d.str()
		case form == pathNamed:
			b.named, b.dir = true, d.str()
		case form == pathAsBefore && len(c.bodies) > 0:
			b.named, b.dir = true, c.bodies[len(c.bodies)-1].dir
		default:
			d.fail()
		}
		c.bodies = append(c.bodies, b)
	}
	for n := d.count(); n > 0; n-- {
		x := outputName{bit: uint8(d.u() & 127)}
		copy(x.name[:], d.raw(len(x.name)))
		c.names = append(c.names, x)
	}
	for n := d.count(); n > 0; n-- {
		c.jobs = append(c.jobs, fileJob{uint8(d.u() & 127), jobID{d.i(), int32(d.i())}})
	}
	c.collected = bits128{d.u(), d.u()}
	c.out = bits128{d.u(), d.u()}
	if !d.bad && len(d.b) > 0 {
		c.parted, c.moved = bits128{d.u(), d.u()}, bits128{d.u(), d.u()}
	}
	return d.done("file chunk")
}

func (c *chunk) encodeMarks(dst []byte) []byte {
	e := enc{b: dst}
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
