package topology

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestCopiedFolder: a copy of a data folder does not go on with the tables of the
// original, by a log of its own; the same folder by another path is no copy.
func TestCopiedFolder(t *testing.T) {
	root := t.TempDir()
	at := func(name string) NodeOptions { // with the warehouse that node.json remembers
		return NodeOptions{Data: filepath.Join(root, name), Warehouse: filepath.Join(root, "a", "lake"), Partitions: 1}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	n, err := OpenNode(ctx, at("a"))
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if _, _, err := n.EnsureTable(ctx, testDefinition("t")); err != nil {
		t.Fatal(err)
	}
	if err := n.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(root, "b"), os.DirFS(filepath.Join(root, "a"))); err != nil {
		t.Fatal(err)
	}
	wantConfigError(t, openClosed(t, at("b")), "is a copy of the one whose lake is "+filepath.Join(root, "a", "lake"))
	if err := os.Symlink(filepath.Join(root, "a"), filepath.Join(root, "c")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "c"} {
		if err := openClosed(t, at(name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := os.RemoveAll(filepath.Join(root, "b", "lake")); err != nil {
		t.Fatal(err)
	}
	if err := openClosed(t, at("b")); err != nil {
		t.Errorf("a folder that was moved away from its lake: %v", err)
	}
}
