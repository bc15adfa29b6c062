package statestore_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
)

func treeRef(a *args) record.Ref {
	r := record.Ref{Hash: record.Hash{6}, Length: 40}
	r.Path = "_varve/x/bodies/" + r.Hash.String()
	switch a.str("bad", "") {
	case "path":
		r.Path = "_varve/x/maps/" + r.Hash.String()
	case "length":
		r.Length = statestore.MaxBody + 1
	}
	return r
}

// splitFrom reads lines "split 0 into 2" and "down 0", each followed by those of
// its references: "ref 1/1[0,4) 0:2 1:2".
func splitFrom(a *args) *record.SplitPartition {
	p := &record.SplitPartition{Cause: "threshold"}
	for _, l := range a.lines {
		f := strings.Fields(l)
		switch f[0] {
		case "split", "down":
			x := record.SplitItem{Node: number(a.t, f[1])}
			if f[0] == "split" {
				x.Children = int32(number(a.t, f[3]))
			}
			p.Items = append(p.Items, x)
		case "ref":
			name, span, _ := strings.Cut(f[1], "[")
			lo, hi, _ := strings.Cut(strings.TrimSuffix(span, ")"), ",")
			y := record.TreeRef{File: fileID(a.t, name, 0), Lo: number(a.t, lo), Hi: number(a.t, hi)}
			for _, piece := range f[2:] {
				to, rows, _ := strings.Cut(piece, ":")
				y.Pieces = append(y.Pieces, record.TreePiece{To: number(a.t, to), Rows: number(a.t, rows)})
			}
			x := &p.Items[len(p.Items)-1]
			x.Refs = append(x.Refs, y)
		default:
			a.t.Fatalf("split: %s", l)
		}
	}
	if !a.has("no-keys") {
		r := treeRef(a)
		p.Separators = &r
	}
	return p
}

func extendFrom(a *args) *record.ExtendTree {
	return &record.ExtendTree{
		First: a.num("first", 0), Children: int32(a.num("children", 2)), Place: int32(a.num("place", 0)), Separators: treeRef(a),
	}
}

func (s *script) treeText(t *testing.T, id int64) string {
	var b strings.Builder
	if err := s.st.Tree(id, func(n *statestore.NodeInfo) error {
		fmt.Fprintf(&b, "node %d below %d", n.Number, n.Parent)
		if n.Children > 0 {
			fmt.Fprintf(&b, ": %d to %d, made by @%d, item %d", n.First, n.First+n.Children-1, n.Split, n.Item)
		}
		if n.Jobs > 0 {
			fmt.Fprintf(&b, ", %d jobs", n.Jobs)
		}
		b.WriteByte('\n')
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return none(b.String())
}

func partsText(parts []statestore.PartInfo) string {
	text := ""
	for _, p := range parts {
		text += fmt.Sprintf(", [%d,%d) on %d", p.Lo, p.Hi, p.Node)
		switch {
		case p.Moved:
			text += " moved"
		case p.Taken:
			text += " in a job"
		}
	}
	return text
}
