package sim

import (
	"errors"
	"fmt"
	"slices"

	"github.com/varve-io/varve/processors/splitter"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
)

// treeStep grows the table's tree (F8): a leaf is divided, references of an inner
// node are brought down, or a level is added above the root. Where a reference is
// cut is what its keys say, or anything: rows do not hang on it (F18).
func (w *World) treeStep(m *member) error {
	tree := map[int64]*statestore.NodeInfo{}
	var inner, leaves []int64
	if err := m.store.Tree(w.tableID, func(n *statestore.NodeInfo) error {
		tree[n.Number] = n
		if n.Children > 0 {
			inner = append(inner, n.Number)
		} else {
			leaves = append(leaves, n.Number)
		}
		return nil
	}); err != nil {
		return err
	}
	if len(tree) == 0 {
		leaves = []int64{0}
	}
	refs := map[int64][]splitter.Ref{}
	var files []uint64
	var at []int64
	if err := m.store.References(w.tableID, 0, func(r *statestore.Reference) bool {
		refs[r.Node] = append(refs[r.Node], splitter.Ref{File: r.File, Lo: r.Lo, Hi: r.Hi, Rows: r.Rows})
		files, at = append(files, r.File), append(at, r.Node)
		return true
	}); err != nil {
		return err
	}
	paths, err := m.store.FilePaths(w.tableID, files)
	if err != nil {
		return err
	}
	next := map[int64]int{}
	for i, node := range at {
		refs[node][next[node]].Path = paths[i]
		next[node]++
	}
	switch n := w.rng.Intn(40); {
	case n == 0 && len(tree) < 40:
		return w.extend(m, tree)
	case n < 10 && len(tree) < 40:
		return w.divide(m, leaves, refs)
	case len(inner) > 0:
		return w.down(m, tree, inner, leaves, refs)
	}
	return nil
}

// some is some of a node's references, mostly all.
func (w *World) some(refs []splitter.Ref) []splitter.Ref {
	if w.rng.Intn(3) > 0 {
		return refs
	}
	return slices.DeleteFunc(slices.Clone(refs), func(splitter.Ref) bool { return w.rng.Intn(2) == 0 })
}

func (w *World) divide(m *member, leaves []int64, refs map[int64][]splitter.Ref) error {
	x, err := splitter.New(w.mem, w.bodies, &w.def)
	if err != nil {
		return err
	}
	p := &record.SplitPartition{Cause: "sim"}
	body := &record.TreeBody{}
	for range 1 + w.rng.Intn(2) {
		node := leaves[w.rng.Intn(len(leaves))]
		if full := slices.DeleteFunc(slices.Clone(leaves), func(n int64) bool { return len(refs[n]) == 0 }); len(full) > 0 && w.rng.Intn(10) > 0 {
			node = full[w.rng.Intn(len(full))]
		}
		mine := w.some(refs[node])
		children := 2 + w.rng.Intn(2)
		item, keys, err := x.Divide(w.ctx, node, mine, children)
		switch {
		case errors.Is(err, splitter.ErrOneKey):
			item, keys = record.SplitItem{Node: node, Children: 2, Refs: w.anywhere(mine, seq(2))}, [][]byte{w.anyKey()}
		case err != nil && w.opt.Garbage:
			return nil // a file of a state that is behind may be deleted
		case err != nil:
			return err
		}
		if w.rng.Intn(3) == 0 {
			item.Refs = w.anywhere(mine, seq(int(item.Children)))
		}
		p.Items, body.Items = append(p.Items, item), append(body.Items, record.TreeKeys{Keys: keys})
	}
	if len(p.Items) == 0 {
		return nil
	}
	ref, err := w.separators(body)
	if err != nil {
		return err
	}
	p.Separators = ref
	return w.enqueue(m, p)
}

func (w *World) separators(body *record.TreeBody) (*record.Ref, error) {
	b, err := record.EncodeTreeBody(nil, body)
	if err != nil {
		return nil, err
	}
	ref, err := w.bodies.Put(w.ctx, b)
	return &ref, err
}

func seq(n int) (all []int64) {
	for i := range n {
		all = append(all, int64(i))
	}
	return all
}

// anywhere cuts references without a look at their keys.
func (w *World) anywhere(refs []splitter.Ref, to []int64) (all []record.TreeRef) {
	for i := range refs {
		r := &refs[i]
		y := record.TreeRef{File: r.File, Lo: r.Lo, Hi: r.Hi}
		left := r.Hi - r.Lo
		for k, t := range to {
			n := w.rng.Int63n(left + 1)
			if k == len(to)-1 {
				n = left
			}
			if n > 0 {
				y.Pieces = append(y.Pieces, record.TreePiece{To: t, Rows: n})
			}
			if left -= n; left == 0 {
				break
			}
		}
		all = append(all, y)
	}
	return all
}

func (w *World) down(m *member, tree map[int64]*statestore.NodeInfo, inner, leaves []int64, refs map[int64][]splitter.Ref) error {
	node := inner[w.rng.Intn(len(inner))]
	mine := w.some(refs[node])
	if len(mine) == 0 {
		return nil
	}
	x, err := splitter.New(w.mem, w.bodies, &w.def)
	if err != nil {
		return err
	}
	p := &record.SplitPartition{Cause: "sim"}
	if w.rng.Intn(4) == 0 { // any leaf: it may be below the node
		p.Items = []record.SplitItem{{Node: node, Refs: w.anywhere(mine, []int64{leaves[w.rng.Intn(len(leaves))]})}}
		return w.enqueue(m, p)
	}
	below, err := x.Leaves(w.ctx, tree, node)
	if err != nil {
		return err
	}
	item, err := x.Down(w.ctx, node, mine, below)
	if err != nil {
		if w.opt.Garbage {
			return nil
		}
		return err
	}
	p.Items = []record.SplitItem{item}
	return w.enqueue(m, p)
}

func (w *World) extend(m *member, tree map[int64]*statestore.NodeInfo) error {
	p := &record.ExtendTree{Children: 2, Place: int32(w.rng.Intn(2)), Cause: "sim"}
	if root := tree[0]; root != nil {
		p.First = root.First
	}
	ref, err := w.separators(&record.TreeBody{Items: []record.TreeKeys{{Keys: [][]byte{w.anyKey()}}}})
	if err != nil {
		return err
	}
	p.Separators = *ref
	return w.enqueue(m, p)
}

// anyKey is some key that the table may have.
func (w *World) anyKey() []byte {
	if w.opt.Strings {
		return []byte(fmt.Sprintf("k%d\x00\x01", w.rng.Intn(w.opt.Keys)))
	}
	return []byte{0x80, 0, 0, 0, 0, 0, 0, byte(w.rng.Intn(w.opt.Keys))}
}

// planned is a reference that a job may take.
type planned struct {
	file   *statestore.FileInfo
	lo, hi int64
	node   int64
	free   bool
}

// references are those to a table's files, as jobs may name them.
func (w *World) references(m *member, all []*statestore.FileInfo) (refs []planned, _ error) {
	inner := map[int64]bool{}
	if err := m.store.Tree(w.tableID, func(n *statestore.NodeInfo) error {
		inner[n.Number] = n.Children > 0
		return nil
	}); err != nil {
		return nil, err
	}
	for _, f := range all {
		if f.Parts == nil {
			refs = append(refs, planned{f, 0, f.Rows, 0, !f.Gone && !f.Job && f.Published && !inner[0]})
		}
		if !f.Gone && anyMoved(f) {
			w.saw["part of a file moved"]++
		}
		for _, p := range f.Parts {
			refs = append(refs, planned{f, p.Lo, p.Hi, p.Node, !f.Gone && !p.Moved && !p.Taken && f.Published && !inner[p.Node]})
		}
	}
	return refs, nil
}

func anyMoved(f *statestore.FileInfo) bool {
	return slices.ContainsFunc(f.Parts, func(p statestore.PartInfo) bool { return p.Moved })
}

// checkParts: the references to a file cover it once (F18).
func checkParts(f *statestore.FileInfo) error {
	at := int64(0)
	for _, p := range f.Parts {
		if p.Lo != at || p.Hi <= p.Lo {
			return fmt.Errorf("file %d has a reference [%d,%d) behind row %d", f.ID, p.Lo, p.Hi, at)
		}
		at = p.Hi
	}
	if f.Parts != nil && at != f.Rows {
		return fmt.Errorf("the references to file %d end at row %d of %d", f.ID, at, f.Rows)
	}
	return nil
}
