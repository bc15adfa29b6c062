package splitter

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/varve-io/varve/processors"
	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/schemas/rows"
	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/statestore/objstore"
)

// Ref is a reference to a data file on a node.
type Ref struct {
	File   uint64
	Lo, Hi int64
	Path   string
	Rows   int64 // of the whole file
}

// Splitter cuts references of one table.
type Splitter struct {
	Store  objstore.Store
	Bodies *processors.Bodies

	keys   *rows.KeyEncoder
	fields []schemas.Field
}

// New is the splitter of a table, which must have a key.
func New(store objstore.Store, bodies *processors.Bodies, def *schemas.Definition) (*Splitter, error) {
	schema := def.Schema()
	keys, err := rows.NewKeyEncoder(schema, def.Key)
	if err != nil {
		return nil, err
	}
	x := &Splitter{Store: store, Bodies: bodies, keys: keys}
	for _, id := range keys.Fields() {
		x.fields = append(x.fields, schema.Fields[schema.ByID(id)])
	}
	return x, nil
}

// sketchKeys is about how many keys a leaf's sketch has.
const sketchKeys = 4096

// sample is a key of a sketch, and how many rows it stands for.
type sample struct {
	key    []byte
	weight int64
}

// ErrOneKey: a leaf cannot be split, for its sketch has one key only.
var ErrOneKey = errors.New("the leaf's rows have too few different keys to part them")

// Divide cuts a leaf into at most so many children. keys part them.
func (x *Splitter) Divide(ctx context.Context, node int64, refs []Ref, children int) (item record.SplitItem, keys [][]byte, err error) {
	samples, err := x.sketch(ctx, refs)
	if err != nil {
		return item, nil, err
	}
	if keys = separators(samples, children); len(keys) == 0 {
		return item, nil, ErrOneKey
	}
	item = record.SplitItem{Node: node, Children: int32(len(keys) + 1)}
	to := make([]int64, len(keys)+1)
	for i := range to {
		to[i] = int64(i)
	}
	item.Refs, err = x.cut(ctx, refs, keys, to)
	return item, keys, err
}

// Down brings references of an inner node to the leaves below it.
func (x *Splitter) Down(ctx context.Context, node int64, refs []Ref, leaves *Leaves) (record.SplitItem, error) {
	cut, err := x.cut(ctx, refs, leaves.keys, leaves.nodes)
	return record.SplitItem{Node: node, Refs: cut}, err
}

func (x *Splitter) sketch(ctx context.Context, refs []Ref) ([]sample, error) {
	total := int64(0)
	for i := range refs {
		total += refs[i].Hi - refs[i].Lo
	}
	var all []sample
	for i := range refs {
		r := &refs[i]
		rows := r.Hi - r.Lo
		n := min(max(rows*sketchKeys/max(total, 1), 1), rows)
		f, err := x.open(ctx, r)
		if err != nil {
			return nil, err
		}
		for k := range n {
			// The middle of the rows that the key stands for.
			key, err := f.at(r.Lo + (2*k+1)*rows/(2*n))
			if err != nil {
				return nil, errors.Join(err, f.close())
			}
			all = append(all, sample{bytes.Clone(key), max(rows/n, 1)})
		}
		if err := f.close(); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// separators are the quantiles of a sketch: at most children − 1 keys that ascend,
// of which none is the least key there is.
func separators(all []sample, children int) (keys [][]byte) {
	slices.SortFunc(all, func(a, b sample) int { return bytes.Compare(a.key, b.key) })
	total := int64(0)
	for i := range all {
		total += all[i].weight
	}
	sum := int64(0)
	for i := range all {
		if k := int64(len(keys) + 1); k < int64(children) && sum >= (total*k+int64(children)-1)/int64(children) {
			last := all[0].key
			if len(keys) > 0 {
				last = keys[len(keys)-1]
			}
			if bytes.Compare(all[i].key, last) > 0 {
				keys = append(keys, all[i].key)
			}
		}
		sum += all[i].weight
	}
	return keys
}

// cut finds the pieces of references: those below keys[0] go to to[0], and so on.
func (x *Splitter) cut(ctx context.Context, refs []Ref, keys [][]byte, to []int64) ([]record.TreeRef, error) {
	out := make([]record.TreeRef, 0, len(refs))
	for i := range refs {
		r := &refs[i]
		f, err := x.open(ctx, r)
		if err != nil {
			return nil, err
		}
		y := record.TreeRef{File: r.File, Lo: r.Lo, Hi: r.Hi}
		y.Pieces, err = f.pieces(keys, to)
		if err := errors.Join(err, f.close()); err != nil {
			return nil, err
		}
		out = append(out, y)
	}
	slices.SortFunc(out, func(a, b record.TreeRef) int { return cmp.Compare(a.File, b.File) })
	return out, nil
}

// pieces goes through the leaves that a file has rows for, and no others: the next
// row's key tells which it is.
func (f *sorted) pieces(keys [][]byte, to []int64) (all []record.TreePiece, _ error) {
	for row := f.ref.Lo; row < f.ref.Hi; {
		key, err := f.at(row)
		if err != nil {
			return nil, err
		}
		// The first separator above the key ends the leaf that it is of.
		k, found := slices.BinarySearchFunc(keys, key, bytes.Compare)
		if found {
			k++
		}
		end := f.ref.Hi
		if k < len(keys) {
			if end, err = f.below(keys[k], row+1); err != nil {
				return nil, err
			}
		}
		all = append(all, record.TreePiece{To: to[k], Rows: end - row})
		row = end
	}
	return all, nil
}

// Leaves are those below a node, in the order of their keys: leaf i has the keys
// below keys[i].
type Leaves struct {
	nodes []int64
	keys  [][]byte
}

// Len is how many there are.
func (l *Leaves) Len() int { return len(l.nodes) }

// Leaves reads what parts the leaves below a node.
func (x *Splitter) Leaves(ctx context.Context, tree map[int64]*statestore.NodeInfo, node int64) (*Leaves, error) {
	w := walker{x: x, tree: tree, bodies: map[record.Hash]*record.TreeBody{}, out: &Leaves{}}
	if err := w.walk(ctx, node, nil, 0); err != nil {
		return nil, err
	}
	return w.out, nil
}

type walker struct {
	x      *Splitter
	tree   map[int64]*statestore.NodeInfo
	bodies map[record.Hash]*record.TreeBody
	out    *Leaves
}

// maxDepth is more levels than a tree can have.
const maxDepth = 8192

// walk appends the leaves below a node whose keys are below hi; nil: it has all that
// are left. A level that was added above the root may have narrowed what is below it.
func (w *walker) walk(ctx context.Context, node int64, hi []byte, depth int) error {
	n := w.tree[node]
	if n == nil || depth > maxDepth {
		return fmt.Errorf("node %d of the tree is not there", node)
	}
	if n.Children == 0 {
		o := w.out
		if k := len(o.keys); k > 0 && hi != nil && bytes.Compare(o.keys[k-1], hi) >= 0 {
			return nil // nothing is left of its range
		}
		o.nodes = append(o.nodes, node)
		if hi != nil {
			o.keys = append(o.keys, hi)
		}
		return nil
	}
	keys, err := w.separators(ctx, n)
	if err != nil {
		return err
	}
	for i := range n.Children {
		end := hi
		if int(i) < len(keys) && (hi == nil || bytes.Compare(keys[i], hi) < 0) {
			end = keys[i]
		}
		if err := w.walk(ctx, n.First+i, end, depth+1); err != nil {
			return err
		}
	}
	return nil
}

func (w *walker) separators(ctx context.Context, n *statestore.NodeInfo) ([][]byte, error) {
	body := w.bodies[n.Separators.Hash]
	if body == nil {
		b, err := w.x.Bodies.Get(ctx, &n.Separators)
		if err != nil {
			return nil, fmt.Errorf("separators of node %d: %w", n.Number, err)
		}
		body = new(record.TreeBody)
		if err := record.DecodeTreeBody(b, body); err != nil {
			return nil, fmt.Errorf("separators of node %d: %w", n.Number, err)
		}
		w.bodies[n.Separators.Hash] = body
	}
	if n.Item < 0 || n.Item >= int64(len(body.Items)) || int64(len(body.Items[n.Item].Keys)) != n.Children-1 {
		return nil, fmt.Errorf("separators of node %d: their body has none for its %d children", n.Number, n.Children)
	}
	return body.Items[n.Item].Keys, nil
}
