package record

import (
	"fmt"
)

// TreePiece is a part of a reference: so many of its rows, behind those of the
// piece before, go to a child or a leaf (F8).
type TreePiece struct {
	// To is the child's place, from 0, where the item makes children; else the
	// number of a leaf below the item's node.
	To   int64
	Rows int64
}

// TreeRef is a reference that an item takes apart: positions [Lo,Hi) of a file.
// The rows of its pieces add up to Hi − Lo.
type TreeRef struct {
	File   uint64
	Lo, Hi int64
	Pieces []TreePiece // ascending by where they go
}

// SplitItem takes a leaf apart, or brings references of an inner node down to the
// leaves below it.
type SplitItem struct {
	Node int64
	// Children is how many leaves the leaf is divided into; 0: the node is an inner
	// one and stays as it is.
	Children int32
	Refs     []TreeRef
}

// SplitPartition grows a table's tree of key ranges (F8). Each item has its own
// outcome. Separators is an erasable body (TreeBody): for each item one key less
// than it makes children.
type SplitPartition struct {
	Items      []SplitItem
	Separators *Ref   // nil where no item makes children
	Cause      string // for people
}

// ExtendTree adds a level above the root of a table's tree: the root of before
// becomes a child of the new one.
type ExtendTree struct {
	First      int64 // number of the root's first child as the sender knows it, 0: the root is a leaf
	Children   int32 // of the new root
	Place      int32 // of the old root among them, from 0
	Separators Ref   // erasable TreeBody with one item
	Cause      string
}

// TreeKeys are the keys that part the children of one node: child i has the keys
// below Keys[i], and not below Keys[i-1].
type TreeKeys struct{ Keys [][]byte }

// TreeBody is the erasable body of a SplitPartition, or an ExtendTree (E1): the
// canonical keys of each item, which ascend.
type TreeBody struct{ Items []TreeKeys }

func splitPartitionFields(v visitor, r *SplitPartition) {
	records(v, "items", &r.Items, 3, splitItemFields)
	optionalRecord(v, "separators", &r.Separators, refFields)
	v.text("cause", &r.Cause)
}

func splitItemFields(v visitor, x *SplitItem) {
	v.long("node", &x.Node)
	v.int32("children", &x.Children)
	records(v, "refs", &x.Refs, 4, treeRefFields)
}

func treeRefFields(v visitor, x *TreeRef) {
	v.uint64("file", &x.File)
	v.long("lo", &x.Lo)
	v.long("hi", &x.Hi)
	records(v, "pieces", &x.Pieces, 2, treePieceFields)
}

func treePieceFields(v visitor, x *TreePiece) {
	v.long("to", &x.To)
	v.long("rows", &x.Rows)
}

func extendTreeFields(v visitor, r *ExtendTree) {
	v.long("first", &r.First)
	v.int32("children", &r.Children)
	v.int32("place", &r.Place)
	nested(v, "separators", &r.Separators, refFields)
	v.text("cause", &r.Cause)
}

func treeBodyFields(v visitor, b *TreeBody) { records(v, "items", &b.Items, 1, treeKeysFields) }

func treeKeysFields(v visitor, k *TreeKeys) {
	array(v, "keys", &k.Keys, 1, func(v visitor, x *[]byte) { v.bytes("", x) })
}

// EncodeTreeBody appends a body of separators. The keys of an item must ascend.
func EncodeTreeBody(dst []byte, body *TreeBody) ([]byte, error) {
	if i := body.unsorted(); i >= 0 {
		return dst, fmt.Errorf("TreeBody: %w: the keys of item %d do not ascend", ErrNotEncodable, i)
	}
	w := binWriter{b: dst}
	treeBodyFields(&w, body)
	return w.b, w.err
}

// DecodeTreeBody reads into body; keys alias b.
func DecodeTreeBody(b []byte, body *TreeBody) error {
	r := binReader{b: b}
	treeBodyFields(&r, body)
	if err := r.finish("TreeBody"); err != nil {
		return err
	}
	if i := body.unsorted(); i >= 0 {
		return fmt.Errorf("TreeBody: %w: the keys of item %d do not ascend", ErrUndecodable, i)
	}
	return nil
}

// unsorted is the first item whose keys do not ascend, -1: none.
func (b *TreeBody) unsorted() int {
	for i := range b.Items {
		keys := b.Items[i].Keys
		if firstUnsorted(len(keys), func(k int) []byte { return keys[k] }) > 0 {
			return i
		}
	}
	return -1
}
