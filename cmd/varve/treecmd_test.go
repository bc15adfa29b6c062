package main

import (
	"fmt"
	"testing"
)

// A table that was never split is one node, which has all its files; a node that
// runs tells the same as its folder when it stopped.
func TestTableTree(t *testing.T) {
	data := t.TempDir()
	for range 2 {
		load(t, "{\"id\":1,\"n\":2}\n{\"id\":2,\"n\":2}\n", "--data", data, "--table", "shop.t", "--format", "rows-json", "--key", "id", "-")
	}
	look := func() {
		t.Helper()
		rows := rowsJSON(t, "table", "tree", "shop.t", "--data", data)
		if len(rows) != 1 || fmt.Sprintln(rows[0]["node"], rows[0]["parent"], rows[0]["depth"], rows[0]["children"], rows[0]["files"], rows[0]["rows"], rows[0]["jobs"]) != "0 <nil> 0 0 1 2 0\n" {
			t.Errorf("%v", rows)
		}
	}
	look()
	n := startNode(t, "--data", data, "--log-level", "warn")
	look()
	if code := n.end(t); code != exitDone {
		t.Errorf("the node ended with %d: %s", code, n.err.String())
	}
}
