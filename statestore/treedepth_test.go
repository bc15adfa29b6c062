package statestore_test

import (
	"testing"

	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
)

// TestDeepTree: where keys only grow the last leaf is split again and again. The tree
// gets deep, up to a limit (F19), and references still come down to any leaf.
func TestDeepTree(t *testing.T) {
	l := newLog(t, t.TempDir())
	id, first := jobFiles(t, l, 2)
	keys := treeBody()
	last := int64(0)
	levels := 1
	for {
		o := l.do("t", id, &record.SplitPartition{Separators: &keys, Items: []record.SplitItem{{Node: last, Children: 2}}}).Outcome
		if o.Code != record.Accepted {
			if o.Reason != record.BadSplit {
				t.Fatalf("%s", o.Reason)
			}
			break
		}
		last = o.Numbers[record.SplitFirst] + 1
		if levels++; levels > 5000 {
			t.Fatal("there is no limit")
		}
	}
	l.commit()
	if levels != 4096 {
		t.Errorf("%d levels", levels)
	}
	if o := l.do("t", id, &record.ExtendTree{First: 1, Children: 2, Separators: keys}).Outcome; o.Reason != record.BadSplit {
		t.Errorf("a level above: %s %s", o.Code, o.Reason)
	}
	y := record.TreeRef{File: first, Hi: 100}
	for k := range int64(99) {
		y.Pieces = append(y.Pieces, record.TreePiece{To: 1 + 2*k, Rows: 1}) // each level's first child
	}
	y.Pieces = append(y.Pieces, record.TreePiece{To: last, Rows: 1})
	if o := l.do("t", id, &record.SplitPartition{Items: []record.SplitItem{{Refs: []record.TreeRef{y}}}}).Outcome; o.Code != record.Accepted {
		t.Fatalf("%s: %s", o.Code, o.Reason)
	}
	n := 0
	if err := l.st.References(id, first, func(r *statestore.Reference) bool {
		if r.File == first {
			n++
		}
		return true
	}); err != nil || n != 100 {
		t.Errorf("%d references, %v", n, err)
	}
}
