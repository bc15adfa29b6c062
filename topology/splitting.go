package topology

import (
	"context"
	"errors"
	"fmt"

	"github.com/varve-io/varve/processors/planner"
	"github.com/varve-io/varve/processors/splitter"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
)

const (
	// maxTreeRefs bounds the references that one SplitPartition of the planner takes
	// apart, and with them what it reads at a time.
	maxTreeRefs = 4096
	// maxTreeItems bounds its items.
	maxTreeItems = 256
	// maxTreeRounds bounds the records that one look at a table asks for.
	maxTreeRounds = 16
)

// treePlan is what is to be done to a table's tree.
type treePlan struct {
	tree  map[int64]*statestore.NodeInfo
	nodes map[int64]*planner.Node
	// divide and down are the nodes to be taken apart now, and their references.
	divide, down map[int64][]splitter.Ref
	waits        map[int64]bool // leaves on which no job is to be planned
}

// growTree splits the leaves of a table's tree that have grown too large, and brings
// references on inner nodes down (F8). It returns the leaves that have still to be
// split. A table without a key, or without the property, has no tree to grow.
func (w *stateWorker) growTree(ctx context.Context, t *statestore.TableInfo, policy *planner.Policy) (map[int64]bool, error) {
	if policy.SplitBytes <= 0 || !t.Definition.Keyed() {
		return nil, nil
	}
	for round := 0; ; round++ {
		p, err := w.planTree(t, policy)
		if err != nil || len(p.divide)+len(p.down) == 0 || round == maxTreeRounds {
			return p.waits, err
		}
		grown, err := w.growOnce(ctx, t, policy, p)
		if err != nil || !grown {
			return p.waits, err
		}
	}
}

// planTree looks at a table's tree, and at what is on its nodes.
func (w *stateWorker) planTree(t *statestore.TableInfo, policy *planner.Policy) (*treePlan, error) {
	p := &treePlan{
		tree: map[int64]*statestore.NodeInfo{}, nodes: map[int64]*planner.Node{},
		divide: map[int64][]splitter.Ref{}, down: map[int64][]splitter.Ref{}, waits: map[int64]bool{},
	}
	return p, w.read(func() error {
		if err := w.store.Tree(t.ID, func(n *statestore.NodeInfo) error {
			p.tree[n.Number] = n
			p.nodes[n.Number] = &planner.Node{Number: n.Number, Leaf: n.Children == 0, Busy: n.Children == 0 && n.Jobs > 0}
			return nil
		}); err != nil {
			return err
		}
		if len(p.tree) == 0 {
			p.nodes[0] = &planner.Node{Leaf: true}
		}
		if err := w.store.References(t.ID, 0, func(r *statestore.Reference) bool {
			if n := p.nodes[r.Node]; n != nil && (n.Leaf || !r.Held) {
				n.Busy = n.Busy || r.Taken || r.Held
				if statestore.IsUnsorted(r.File) {
					return true // nobody has promised that its rows ascend
				}
				n.Refs++
				n.Bytes += r.Bytes
			}
			return true
		}); err != nil {
			return err
		}
		p.choose(policy)
		return w.gatherRefs(t.ID, p)
	})
}

// choose picks nodes by their numbers, as many as one record is to have.
func (p *treePlan) choose(policy *planner.Policy) {
	refs := 0
	for number := int64(0); refs <= maxTreeRefs && len(p.divide)+len(p.down) < maxTreeItems; number++ {
		n := p.nodes[number]
		if n == nil {
			break
		}
		switch {
		case policy.Children(n) > 0:
			p.waits[number] = true
			if !n.Busy && len(p.down) == 0 {
				p.divide[number] = nil
				refs += n.Refs
			}
		case policy.Down(n) && len(p.divide) == 0: // leaves that are split now are none to bring down to
			p.down[number] = nil
			refs += n.Refs
		}
	}
}

// gatherRefs finds the references of the nodes that were picked, as many as one record
// is to have.
func (w *stateWorker) gatherRefs(table int64, p *treePlan) error {
	var files []uint64
	var into []*splitter.Ref
	taken := 0
	if err := w.store.References(table, 0, func(r *statestore.Reference) bool {
		for _, set := range [...]map[int64][]splitter.Ref{p.divide, p.down} {
			if refs, ok := set[r.Node]; ok && !r.Held && !r.Taken && !statestore.IsUnsorted(r.File) {
				set[r.Node] = append(refs, splitter.Ref{File: r.File, Lo: r.Lo, Hi: r.Hi, Rows: r.Rows})
				taken++
			}
		}
		return taken < maxTreeRefs // what is not listed stays on the node, and is brought down next (F8)
	}); err != nil {
		return err
	}
	for _, set := range [...]map[int64][]splitter.Ref{p.divide, p.down} {
		for _, refs := range set {
			for i := range refs {
				files, into = append(files, refs[i].File), append(into, &refs[i])
			}
		}
	}
	paths, err := w.store.FilePaths(table, files)
	for i := range paths {
		into[i].Path = paths[i]
	}
	return err
}

// growOnce asks for one SplitPartition, and says whether some of it was accepted.
func (w *stateWorker) growOnce(ctx context.Context, t *statestore.TableInfo, policy *planner.Policy, p *treePlan) (bool, error) {
	x, err := splitter.New(w.n.store, w.n.bodies, t.Definition)
	if err != nil {
		return false, err
	}
	rec := &record.SplitPartition{Cause: "the planner"}
	body := &record.TreeBody{}
	for number := int64(0); number < int64(len(p.nodes)); number++ {
		var item record.SplitItem
		var keys [][]byte
		if refs, ok := p.divide[number]; ok {
			if item, keys, err = x.Divide(ctx, number, refs, policy.Children(p.nodes[number])); errors.Is(err, splitter.ErrOneKey) {
				delete(p.waits, number) // it stays a leaf, however large
				continue
			}
		} else if refs, ok := p.down[number]; ok && len(refs) > 0 {
			var leaves *splitter.Leaves
			if leaves, err = x.Leaves(ctx, p.tree, number); err == nil {
				item, err = x.Down(ctx, number, refs, leaves)
			}
		} else {
			continue
		}
		if err != nil {
			return false, fmt.Errorf("the tree of table %s is not grown: %w", t.Name, err)
		}
		rec.Items, body.Items = append(rec.Items, item), append(body.Items, record.TreeKeys{Keys: keys})
	}
	if len(rec.Items) == 0 {
		return false, nil
	}
	if len(p.divide) > 0 {
		b, err := record.EncodeTreeBody(nil, body)
		if err != nil {
			return false, err
		}
		ref, err := w.n.bodies.Put(ctx, b)
		if err != nil {
			return false, err
		}
		rec.Separators = &ref
	}
	m, err := w.n.Request(ctx, t.Name, t.ID, rec)
	if err != nil {
		return false, err
	}
	o := &m.Outcome
	if o.Code == record.Rejected {
		w.log.Info("the tree was not grown", "table", t.Name, "items", len(rec.Items), "reason", o.Reason)
		return false, nil
	}
	if len(o.Numbers) > record.SplitFirst {
		w.log.Info("the tree has grown", "table", t.Name, "nodes", o.Numbers[record.SplitAccepted], "rejected", o.Numbers[record.SplitRejected], "offset", m.Offset)
	}
	return true, nil
}
