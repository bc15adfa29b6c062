package statestore

import (
	"slices"
	"strings"

	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore/objstore"
)

// grower takes the items of one SplitPartition.
type grower struct {
	s     *Store
	r     *Record
	t     *table
	next  int64 // number of the next node
	depth int64 // of the lowest node made
	above int64 // levels that were added above the first root
	ways  map[int64][]int64
	steps int   // of ways
	from  int64 // node that ways are below
}

// splitPartition: F8.
func (s *Store) splitPartition(r *Record, t *table, p *record.SplitPartition) (outcomeOf, error) {
	if !t.def.Keyed() {
		return reject(record.NoKey), nil
	}
	if p.Separators != nil && !separatorsInLimits(p.Separators) {
		return reject(record.BadSplit), nil
	}
	top, err := s.node(t, root)
	if err != nil {
		return outcomeOf{}, err
	}
	v := verdicts{n: len(p.Items)}
	g := grower{s: s, r: r, t: t, next: top.next, above: top.above}
	for i := range p.Items {
		reason, err := g.item(int64(i), &p.Items[i], p.Separators != nil)
		if err != nil {
			return outcomeOf{}, err
		}
		if reason != record.ReasonNone {
			v.reject(i, reason)
		}
	}
	if g.next > top.next {
		if err := g.finish(p.Separators); err != nil {
			return outcomeOf{}, err
		}
	}
	return v.outcome(false, top.next), nil
}

// separatorsInLimits: the state keeps where the keys lie, and nobody else's object.
func separatorsInLimits(ref *record.Ref) bool {
	return ref.Length >= 0 && ref.Length <= MaxBody && strings.HasSuffix(ref.Path, "/bodies/"+ref.Hash.String()) && objstore.CheckKey(ref.Path) == nil
}

// finish keeps the next node's number and where the separators of those lie that
// were made.
func (g *grower) finish(separators *record.Ref) error {
	top, err := g.s.node(g.t, root)
	if err != nil {
		return err
	}
	top.next, top.levels = g.next, max(top.levels, g.depth)
	if err := g.s.setNode(g.t, root, top); err != nil {
		return err
	}
	var e enc
	encRef(&e, separators)
	return g.s.set(key16(keySeparators, uint64(g.t.id), uint64(g.r.Offset)), e.b)
}

// cutRef is a reference of an item that was found to be right: the file's
// references, and which of them goes into pieces.
type cutRef struct {
	c     *chunk
	parts []part
	at    int
}

func (g *grower) item(item int64, x *record.SplitItem, separators bool) (record.Reason, error) {
	n, err := g.s.node(g.t, x.Node)
	switch {
	case err != nil:
		return 0, err
	case n == nil:
		return record.NoNode, nil
	case (x.Children == 0) == (n.n == 0):
		return record.NotLeaf, nil
	case x.Children < 0 || x.Children == 1 || x.Children > maxChildren || x.Children > 0 && !separators, x.Children == 0 && len(x.Refs) == 0:
		return record.BadSplit, nil
	case n.jobs > 0 && n.n == 0:
		return record.FileTaken, nil
	case x.Node == root && n.n == 0 && g.t.filesHeld():
		return record.FilesHeld, nil
	}
	depth := int64(0)
	if x.Children > 0 {
		if depth = n.level + g.above; x.Node == root {
			depth = 1
		}
		if depth >= maxDepth {
			return record.BadSplit, nil
		}
	}
	cuts := make([]cutRef, len(x.Refs))
	for i := range x.Refs {
		reason, err := g.ref(x, i, &cuts[i])
		if err != nil || reason != record.ReasonNone {
			return reason, err
		}
	}
	g.depth = max(g.depth, depth+1)
	return record.ReasonNone, g.grow(item, x, n, depth, cuts)
}

// ref holds a reference that an item names against the state, and its pieces
// against it.
func (g *grower) ref(x *record.SplitItem, at int, cut *cutRef) (record.Reason, error) {
	s, t, y := g.s, g.t, &x.Refs[at]
	if at > 0 && x.Refs[at-1].File >= y.File {
		return record.BadSplit, nil
	}
	c, err := s.chunk(t.id, y.File)
	if err != nil {
		return 0, err
	}
	f := c.find(y.File)
	if f == nil || f.gone {
		return record.NoFile, nil
	}
	if t.holdsFile(y.File) {
		return record.FilesHeld, nil
	}
	if IsUnsorted(y.File) {
		return record.NotSorted, nil
	}
	parts, err := s.parts(t, c, y.File)
	if err != nil {
		return 0, err
	}
	if parts == nil {
		parts = []part{{hi: f.rows, node: root}}
		if c.job(y.File) != nil {
			parts[0].state = partTaken
		}
	}
	k := slices.IndexFunc(parts, func(p part) bool { return p.lo == y.Lo && p.hi == y.Hi && p.node == x.Node })
	switch {
	case k < 0:
		return record.BadRange, nil
	case parts[k].state == partTaken:
		return record.FileTaken, nil
	case parts[k].state == partMoved:
		return record.NoFile, nil
	case len(parts)-1+len(y.Pieces) > maxParts:
		return record.BadSplit, nil
	}
	*cut = cutRef{c, parts, k}
	return g.pieces(x, y)
}

// pieces: exact counts, in the order of the keys.
func (g *grower) pieces(x *record.SplitItem, y *record.TreeRef) (record.Reason, error) {
	left := y.Hi - y.Lo
	var before []int64
	for i := range y.Pieces {
		p := &y.Pieces[i]
		if p.Rows < 1 || p.Rows > left {
			return record.BadSplit, nil
		}
		left -= p.Rows
		way := []int64{p.To}
		if x.Children == 0 {
			var err error
			var reason record.Reason
			if way, reason, err = g.way(x.Node, p.To); err != nil || reason != record.ReasonNone {
				return reason, err
			}
		} else if p.To < 0 || p.To >= int64(x.Children) {
			return record.BadSplit, nil
		}
		if i > 0 && slices.Compare(before, way) >= 0 {
			return record.BadSplit, nil
		}
		before = way
	}
	if left != 0 {
		return record.BadSplit, nil
	}
	return record.ReasonNone, nil
}

// way is the places of the children from a node down to a leaf below it. They
// compare as the leaves' keys do.
func (g *grower) way(from, leaf int64) ([]int64, record.Reason, error) {
	if g.from != from || g.ways == nil || g.steps > maxWays {
		g.from, g.ways, g.steps = from, map[int64][]int64{}, 0
	}
	if w := g.ways[leaf]; w != nil {
		return w, record.ReasonNone, nil
	}
	n, err := g.s.node(g.t, leaf)
	switch {
	case err != nil:
		return nil, 0, err
	case n == nil:
		return nil, record.NoNode, nil
	case n.n > 0:
		return nil, record.NotLeaf, nil
	}
	var way []int64
	for at := leaf; at != from; {
		if n.parent < 0 || len(way) > maxDepth {
			return nil, record.NoNode, nil // it is not below the node
		}
		up, err := g.s.node(g.t, n.parent)
		if err != nil {
			return nil, 0, err
		}
		if up == nil {
			return nil, 0, ErrCorrupt
		}
		way = append(way, at-up.first)
		at, n = n.parent, up
	}
	slices.Reverse(way)
	g.ways[leaf] = way
	g.steps += len(way)
	return way, record.ReasonNone, nil
}

// grow does what an item says.
func (g *grower) grow(item int64, x *record.SplitItem, n *node, depth int64, cuts []cutRef) error {
	s, t := g.s, g.t
	s.effect('T', t.id, item, x.Node, g.next, int64(x.Children), int64(len(cuts)))
	first := int64(0) // what a piece's place is counted from
	if x.Children > 0 {
		first = g.next
		n.first, n.n, n.split, n.item = first, int64(x.Children), g.r.Offset, item
		if err := s.setNode(t, x.Node, n); err != nil {
			return err
		}
		for range x.Children {
			if err := s.setNode(t, g.next, &node{parent: x.Node, level: depth + 1 - g.above}); err != nil {
				return err
			}
			g.next++
		}
		g.ways = nil
	}
	for i := range cuts {
		c, y := &cuts[i], &x.Refs[i]
		s.effect('q', int64(y.File), y.Lo, y.Hi)
		lo := y.Lo
		made := make([]part, 0, len(y.Pieces))
		for _, p := range y.Pieces {
			made = append(made, part{lo: lo, hi: lo + p.Rows, node: first + p.To, back: c.parts[c.at].back})
			lo += p.Rows
			s.effect('Q', first+p.To, p.Rows)
		}
		if err := s.setParts(t, c.c, y.File, slices.Replace(c.parts, c.at, c.at+1, made...)); err != nil {
			return err
		}
	}
	return nil
}

// holdsFile says whether a file waits for shards to take it.
func (t *table) holdsFile(file uint64) bool {
	return slices.ContainsFunc(t.adds, func(a openAdd) bool { return file >= a.first && file < a.first+uint64(a.n) })
}

// extendTree adds a level above the root. Its references stay there, to be brought
// down to any leaf; what is below it keeps its numbers.
func (s *Store) extendTree(r *Record, t *table, p *record.ExtendTree) (outcomeOf, error) {
	if !t.def.Keyed() {
		return reject(record.NoKey), nil
	}
	top, err := s.node(t, root)
	if err != nil {
		return outcomeOf{}, err
	}
	switch {
	case p.First != top.first:
		return reject(record.NoNode, top.first), nil
	case top.levels >= maxDepth || p.Children < 2 || p.Children > maxChildren || p.Place < 0 || p.Place >= p.Children || !separatorsInLimits(&p.Separators):
		return reject(record.BadSplit), nil
	case top.n == 0 && top.jobs > 0:
		return reject(record.FileTaken), nil
	case top.n == 0 && t.filesHeld():
		return reject(record.FilesHeld), nil
	}
	old := *top
	first := top.next
	for i := range int64(p.Children) {
		n := &node{}
		if i == int64(p.Place) && old.n > 0 {
			n = &node{first: old.first, n: old.n, split: old.split, item: old.item}
			for k := range old.n {
				child, err := s.node(t, old.first+k)
				if err != nil {
					return outcomeOf{}, err
				}
				if child == nil {
					return outcomeOf{}, ErrCorrupt
				}
				child.parent = first + i
				if err := s.setNode(t, old.first+k, child); err != nil {
					return outcomeOf{}, err
				}
			}
		}
		n.parent, n.level = root, 2-(top.above+1)
		if err := s.setNode(t, first+i, n); err != nil {
			return outcomeOf{}, err
		}
	}
	if err := s.setNode(t, root, &node{parent: -1, level: 1, first: first, n: int64(p.Children), split: r.Offset, next: first + int64(p.Children), levels: top.levels + 1, above: top.above + 1}); err != nil {
		return outcomeOf{}, err
	}
	s.effect('T', t.id, -1, root, first, int64(p.Children), int64(p.Place))
	var e enc
	encRef(&e, &p.Separators)
	return accepted(false, first), s.set(key16(keySeparators, uint64(t.id), uint64(r.Offset)), e.b)
}
