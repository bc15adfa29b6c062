package topology

import (
	"context"
	"net/http"
	"net/url"

	"github.com/varve-io/varve/statestore"
)

// TreeNode is a node of a table's tree of key ranges, and what lies on it. Which
// keys part it from others stands in no listing.
type TreeNode struct {
	Node     int64 `json:"node"`
	Parent   int64 `json:"parent"` // -1: it is the root
	Depth    int64 `json:"depth"`  // of the root: 0
	Children int64 `json:"children"`
	Files    int64 `json:"files"` // or parts of them
	Rows     int64 `json:"rows"`  // dead ones too
	Bytes    int64 `json:"bytes"`
	Jobs     int64 `json:"jobs"` // open
}

// Tree lists a table's tree of key ranges by number, parents before their
// children; the root alone when it was never split. The error is ErrNotHere on a
// node that does not have the table's state.
func (n *Node) Tree(ctx context.Context, table string) ([]TreeNode, error) {
	w, err := n.tableWorker(table)
	if err != nil {
		return nil, err
	}
	t, err := n.Table(ctx, table)
	if err != nil {
		return nil, err
	}
	var out []TreeNode
	err = w.read(func() error {
		at := map[int64]*TreeNode{}
		if err := w.store.Tree(t.ID, func(x *statestore.NodeInfo) error {
			out = append(out, TreeNode{Node: x.Number, Parent: x.Parent, Children: x.Children, Jobs: x.Jobs})
			return nil
		}); err != nil {
			return err
		}
		if len(out) == 0 {
			out = append(out, TreeNode{Parent: -1})
		}
		for i := range out {
			at[out[i].Node] = &out[i]
		}
		for i := range out {
			for p := at[out[i].Parent]; p != nil && out[i].Depth <= int64(len(out)); p = at[p.Parent] {
				out[i].Depth++
			}
		}
		return w.store.References(t.ID, 0, func(r *statestore.Reference) bool {
			if x := at[r.Node]; x != nil {
				x.Files++
				x.Rows += r.Hi - r.Lo
				x.Bytes += r.Bytes
			}
			return ctx.Err() == nil
		})
	})
	if err == nil {
		err = ctx.Err()
	}
	return out, err
}

func (n *Node) serveTree(w http.ResponseWriter, r *http.Request) {
	out, err := n.Tree(r.Context(), r.URL.Query().Get("table"))
	n.answer(w, out, err)
}

// RequestTree asks the node that runs on a data folder; an error wrapping
// ErrNotRunning when none does.
func RequestTree(ctx context.Context, data, table string) ([]TreeNode, error) {
	var out []TreeNode
	return out, askNode(ctx, data, http.MethodGet, "/tree", url.Values{"table": {table}}, &out)
}
