package statestore

import (
	"encoding/binary"
	"fmt"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/varve-io/varve/schemas/dv"
	"github.com/varve-io/varve/schemas/record"
)

// root is the number of a tree's root, whatever was added above it.
const root = 0

const (
	// maxChildren bounds the children of a node.
	maxChildren = 4096
	// maxDepth bounds the nodes from the root to a leaf: where keys only grow, the
	// last leaf is the one that is split, again and again.
	maxDepth = 4096
	// maxWays bounds the steps of the ways to leaves that are remembered.
	maxWays = 1 << 20
	// maxParts bounds the references to one file.
	maxParts = 4096
)

// node is a node of a table's tree of key ranges (F8). A table that was never
// split has none in the database: its root is a leaf.
type node struct {
	parent int64 // -1: it is the root
	first  int64 // number of the first child; the others follow
	n      int64 // children, 0: a leaf
	jobs   int64 // that are open on it
	split  int64 // offset of the record that made the children
	item   int64 // of that record
	level  int64 // nodes from the root to it, less those that were above the root then
	next   int64 // of the root: number of the next node
	levels int64 // of the root: nodes from it to the lowest leaf
	above  int64 // of the root: levels that were added above the first one
}

func nodeKey(table, number int64) []byte { return key16(keyNode, uint64(table), uint64(number)) }

func (n *node) encode() []byte {
	var e enc
	e.u(1)
	for _, v := range [...]int64{n.parent, n.first, n.n, n.jobs, n.split, n.item, n.level, n.next, n.levels, n.above} {
		e.i(v)
	}
	return e.b
}

func decodeNode(b []byte) (*node, error) {
	d := dec{b: b}
	if d.u() != 1 {
		d.fail()
	}
	n := &node{parent: d.i(), first: d.i(), n: d.i(), jobs: d.i(), split: d.i(), item: d.i(), level: d.i(), next: d.i(), levels: d.i(), above: d.i()}
	return n, d.done("node of a tree")
}

// node is one of a table's tree, nil when there is none of that number.
func (s *Store) node(t *table, number int64) (*node, error) {
	if number < 0 {
		return nil, nil
	}
	b, err := s.get(nodeKey(t.id, number))
	if err != nil {
		return nil, err
	}
	if b != nil {
		return decodeNode(b)
	}
	if number != root {
		return nil, nil
	}
	n := &node{parent: -1, level: 1, next: root + 1, levels: 1, jobs: t.openJobs}
	for i := range t.finds {
		n.jobs -= int64(t.finds[i].open) // parts of find jobs take nothing
	}
	return n, nil
}

func (s *Store) setNode(t *table, number int64, n *node) error {
	return s.set(nodeKey(t.id, number), n.encode())
}

// isLeaf says whether jobs may run on a node.
func (s *Store) isLeaf(t *table, number int64) (bool, error) {
	n, err := s.node(t, number)
	if err != nil || n == nil {
		return false, err
	}
	return n.n == 0, nil
}

// countJob notes that a job was opened on a node, or ended there. Of a root that
// is a leaf the table's own number tells.
func (s *Store) countJob(t *table, number, by int64) error {
	if number == root {
		return nil
	}
	n, err := s.node(t, number)
	if err != nil {
		return err
	}
	if n == nil {
		return fmt.Errorf("%w: node %d of a job", ErrCorrupt, number)
	}
	n.jobs += by
	return s.setNode(t, number, n)
}

// What became of a reference.
const (
	partFree  = 0
	partTaken = 1 // an open job has it
	partMoved = 2 // a job rewrote it: its rows are where the map says (F7)

	partBack = 4 // beside these: moved by a job that a rollback forgot
)

// part is a reference to a file that is on a node of its own, or covers a range of
// the file only; or what once was one.
type part struct {
	lo, hi int64
	node   int64
	state  uint64
	job    jobID // that has it, or rewrote it
	back   bool  // it was moved by a job that a rollback forgot
}

// lose makes a reference one whose rows are where no way leads any more: the job that
// rewrote them was forgotten (G11).
func (p *part) lose() { p.state, p.job = partMoved, jobID{} }

func (p *part) lost() bool { return p.state == partMoved && p.job == jobID{} }

func partsKey(table int64, file uint64) []byte { return key16(keyParts, uint64(table), file) }

func encodeParts(parts []part) []byte {
	var e enc
	e.u(1)
	e.u(uint64(len(parts)))
	for i := range parts {
		p := &parts[i]
		e.u(uint64(p.hi - p.lo))
		e.u(uint64(p.node))
		if p.back {
			e.u(p.state | partBack)
		} else {
			e.u(p.state)
		}
		if p.state != partFree {
			e.i(p.job.plan)
			e.i(int64(p.job.item))
		}
	}
	return e.b
}

func decodeParts(b []byte) ([]part, error) {
	d := dec{b: b}
	if d.u() != 1 {
		d.fail()
	}
	var all []part
	lo := int64(0)
	for n := d.count(); n > 0; n-- {
		p := part{lo: lo, hi: lo + int64(d.u()), node: int64(d.u()), state: d.u()}
		p.back, p.state = p.state&partBack != 0, p.state&^partBack
		if p.state != partFree {
			p.job = jobID{d.i(), int32(d.i())}
		}
		lo = p.hi
		all = append(all, p)
	}
	return all, d.done("references to a file")
}

// parts are the references to a file, nil when it is whole and on the root.
func (s *Store) parts(t *table, c *chunk, file uint64) ([]part, error) {
	if !c.parted.has(uint(file & 127)) {
		return nil, nil
	}
	b, err := s.get(partsKey(t.id, file))
	if err != nil {
		return nil, err
	}
	if b == nil {
		return nil, fmt.Errorf("%w: the references to file %d are not there", ErrCorrupt, file)
	}
	return decodeParts(b)
}

// setParts gives a file its references.
func (s *Store) setParts(t *table, c *chunk, file uint64, parts []part) error {
	bit := uint(file & 127)
	s.touch(c)
	c.dirty = true
	c.parted.set(bit)
	c.moved.clear(bit)
	for i := range parts {
		if parts[i].state == partMoved {
			c.moved.set(bit)
		}
	}
	return s.set(partsKey(t.id, file), encodeParts(parts))
}

// partAt is the reference that covers just this range, nil: none does.
func partAt(parts []part, lo, hi int64) *part {
	for i := range parts {
		if parts[i].lo == lo && parts[i].hi == hi {
			return &parts[i]
		}
	}
	return nil
}

// take gives an input of a job to it, or frees it (nil).
func (s *Store) take(t *table, c *chunk, in *jobInput, id *jobID) error {
	s.touch(c)
	c.dirty = true
	if !c.parted.has(uint(in.file & 127)) {
		c.setJob(in.file, id)
		return nil
	}
	parts, err := s.parts(t, c, in.file)
	if err != nil {
		return err
	}
	p := partAt(parts, in.lo, in.hi)
	if p == nil {
		return fmt.Errorf("%w: file %d has no reference of a job", ErrCorrupt, in.file)
	}
	p.state, p.job = partFree, jobID{}
	if id != nil {
		p.state, p.job = partTaken, *id
	}
	return s.setParts(t, c, in.file, parts)
}

// rewritten notes that a job rewrote a reference, and says whether none is left to
// the file.
func (s *Store) rewritten(t *table, c *chunk, in *jobInput) (all bool, _ error) {
	if !c.parted.has(uint(in.file & 127)) {
		return true, nil
	}
	parts, err := s.parts(t, c, in.file)
	if err != nil {
		return false, err
	}
	p := partAt(parts, in.lo, in.hi)
	if p == nil {
		return false, fmt.Errorf("%w: file %d has no reference of a job", ErrCorrupt, in.file)
	}
	p.state = partMoved
	all = true
	for i := range parts {
		all = all && parts[i].state == partMoved
	}
	return all, s.setParts(t, c, in.file, parts)
}

// within is what of a position set lies in [lo,hi), nil: nothing.
func within(set []byte, lo, hi int64) ([]byte, error) {
	b, err := dv.ReadBitmap(set)
	if err != nil {
		return nil, fmt.Errorf("%w: dead positions", ErrCorrupt)
	}
	b = b.Clone()
	b.RemoveRange(0, uint64(lo))
	b.RemoveRange(uint64(hi), 1<<32)
	if b.IsEmpty() {
		return nil, nil
	}
	return dv.AppendBitmap(nil, b)
}

// movedSet is the positions of the references that jobs rewrote, nil: none.
func movedSet(parts []part) ([]byte, error) {
	b := roaring.New()
	for i := range parts {
		if parts[i].state == partMoved {
			b.AddRange(uint64(parts[i].lo), uint64(parts[i].hi))
		}
	}
	if b.IsEmpty() {
		return nil, nil
	}
	return dv.AppendBitmap(nil, b)
}

// movedBefore is the positions of a file that jobs rewrote before a log offset.
func (s *Store) movedBefore(t *table, c *chunk, file uint64, offset int64) ([]byte, error) {
	parts, err := s.parts(t, c, file)
	if err != nil {
		return nil, err
	}
	for i := range parts {
		p := &parts[i]
		if p.state != partMoved {
			continue
		}
		done, err := s.doneJob(t.id, p.job)
		if err != nil {
			return nil, err
		}
		if done != nil && done.at >= offset {
			p.state = partTaken
		}
	}
	return movedSet(parts)
}

// vectorNow unites what died of a file with what moved: that is what is published
// (F7).
func (s *Store) vectorNow(t *table, c *chunk, file uint64, dead []byte) ([]byte, error) {
	if !c.moved.has(uint(file & 127)) {
		return dead, nil
	}
	parts, err := s.parts(t, c, file)
	if err != nil {
		return nil, err
	}
	moved, err := movedSet(parts)
	if err != nil || moved == nil {
		return dead, err
	}
	if dead == nil {
		return moved, nil
	}
	both, err := dv.Union(nil, dead, moved)
	if err != nil {
		return nil, fmt.Errorf("%w: dead positions of file %d", ErrCorrupt, file)
	}
	return both, nil
}

// forwardParts judges positions of a file by the references that cover them (F7).
func (s *Store) forwardParts(t *table, c *chunk, f *fileEntry, set []byte, dst []target) ([]target, error) {
	parts, err := s.parts(t, c, f.id)
	if err != nil {
		return dst, err
	}
	live := roaring.New()
	for i := range parts {
		p := &parts[i]
		if p.state != partMoved && f.gone {
			continue // every row of it is dead
		}
		here, err := within(set, p.lo, p.hi)
		if err != nil {
			return dst, err
		}
		if here == nil {
			continue
		}
		if p.lost() {
			s.metOut = true
			continue
		}
		if p.state == partMoved {
			if dst, err = s.forwardThrough(t, f.id, p.job, here, dst); err != nil {
				return dst, err
			}
			continue
		}
		b, err := dv.ReadBitmap(here)
		if err != nil {
			return dst, fmt.Errorf("%w: dead positions", ErrCorrupt)
		}
		live.Or(b)
	}
	if live.IsEmpty() {
		return dst, nil
	}
	here, err := dv.AppendBitmap(nil, live)
	if err != nil {
		return dst, err
	}
	return append(dst, target{chunk: c, file: f.id, set: here}), nil
}

// jobsOf are the jobs that took a file, or references to it, and have not given
// them back, but for those that a rollback forgot.
func (s *Store) jobsOf(t *table, c *chunk, file uint64) ([]jobID, error) {
	parts, err := s.parts(t, c, file)
	if err != nil {
		return nil, err
	}
	var all []jobID
	if parts == nil {
		if id := c.job(file); id != nil {
			all = append(all, *id)
		}
	}
	for i := range parts {
		if parts[i].state != partFree && !parts[i].lost() {
			all = append(all, parts[i].job)
		}
	}
	return all, nil
}

// PartInfo is a reference to a file (F7), or what was one.
type PartInfo struct {
	Lo, Hi int64
	Node   int64
	Taken  bool // by an open job
	Moved  bool // a job has carried its rows over
}

// partInfos adds to a file's entry what its references tell.
func (s *Store) partInfos(tableID int64, f *FileInfo) error {
	b, err := s.stored(partsKey(tableID, f.ID))
	if err != nil {
		return err
	}
	parts, err := decodeParts(b)
	if err != nil {
		return err
	}
	for i := range parts {
		p := &parts[i]
		f.Parts = append(f.Parts, PartInfo{Lo: p.lo, Hi: p.hi, Node: p.node, Taken: p.state == partTaken, Moved: p.state == partMoved})
		f.Job = f.Job || p.state == partTaken
		f.Moved = f.Moved || f.Gone && p.state == partMoved
	}
	moved, err := movedSet(parts)
	if err != nil || moved == nil || f.Gone {
		return err
	}
	if f.Dead == nil {
		f.Dead = moved
		return nil
	}
	f.Dead, err = dv.Union(nil, f.Dead, moved)
	return err
}

// NodeInfo is a node of a table's tree of key ranges.
type NodeInfo struct {
	Number     int64
	Parent     int64 // -1: it is the root
	First      int64 // number of the first child
	Children   int64 // 0: a leaf
	Jobs       int64 // open on it
	Split      int64 // offset of the record that made its children
	Item       int64 // of that record, whose keys part them
	Separators record.Ref
}

// Tree calls fn with the nodes of a table's tree, by number; with none when it was
// never split.
func (s *Store) Tree(tableID int64, fn func(*NodeInfo) error) error {
	all, err := s.treeNodes(tableID)
	if err != nil {
		return err
	}
	for i := range all {
		if err := fn(&all[i]); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) treeNodes(tableID int64) (all []NodeInfo, _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	refs := map[int64]record.Ref{}
	prefix := key8(keyNode, uint64(tableID))
	if err := s.eachKey(prefix, func(k, v []byte) error {
		n, err := decodeNode(v)
		if err != nil {
			return err
		}
		all = append(all, NodeInfo{
			Number: int64(binary.BigEndian.Uint64(k[len(prefix):])), Parent: n.parent, First: n.first, Children: n.n, Jobs: n.jobs,
			Split: n.split, Item: n.item,
		})
		return nil
	}); err != nil {
		return nil, err
	}
	for i := range all {
		x := &all[i]
		if x.Children == 0 {
			continue
		}
		ref, ok := refs[x.Split]
		if !ok {
			b, err := s.get(key16(keySeparators, uint64(tableID), uint64(x.Split)))
			if err != nil {
				return nil, err
			}
			d := dec{b: b}
			ref = decRef(&d)
			if err := d.done("separators of a tree"); err != nil {
				return nil, err
			}
			refs[x.Split] = ref
		}
		x.Separators = ref
	}
	return all, nil
}
