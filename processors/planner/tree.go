package planner

// Table properties of the tree of key ranges (F8).
const (
	// PropertySplit is from how many bytes of data files on a leaf on it is split. It
	// is absent, or 0: leaves are not split.
	PropertySplit = "varve.tree.split-bytes"
)

const (
	// maxSplit bounds the leaves that one is split into.
	maxSplit = 64
	// downShare: references of an inner node are brought down when they have so large
	// a share of what splits a leaf, or are as many as a job takes.
	downShare = 4
)

// Node is what a planner knows of a node of a table's tree.
type Node struct {
	Number int64
	Leaf   bool
	Refs   int   // references on it
	Bytes  int64 // of them
	Busy   bool  // a job is open on it, or shards have still to take a file
}

// Children is how many leaves a leaf is to be divided into, so that each has about
// half of what splits one; 0: it stays as it is.
func (p *Policy) Children(n *Node) int {
	if p.SplitBytes <= 0 || !n.Leaf || n.Bytes <= p.SplitBytes {
		return 0
	}
	return int(min(max((2*n.Bytes+p.SplitBytes/2)/p.SplitBytes, 2), maxSplit))
}

// Down says whether the references of an inner node are to be brought down.
func (p *Policy) Down(n *Node) bool {
	return p.SplitBytes > 0 && !n.Leaf && n.Refs > 0 && (n.Refs >= p.Batch || n.Bytes >= p.SplitBytes/downShare)
}
