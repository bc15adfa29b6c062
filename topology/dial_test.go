package topology

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The address in a killed node's folder may be another node's by now: no
// command must take that one for its own.
func TestDialRefusesAnotherDeployment(t *testing.T) {
	ctx, cancel := contextWithTimeout(time.Minute)
	defer cancel()
	n, err := OpenNode(ctx, NodeOptions{Data: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Start(ctx); err != nil {
		t.Fatal(err)
	}
	f, err := readNodeFile(n.opt.Data)
	if err != nil {
		t.Fatal(err)
	}
	c, st, err := Dial(ctx, n.opt.Data, ClientOptions{})
	if err != nil || st.ID != f.ID {
		t.Fatalf("its own node: %v", err)
	}
	if err := c.CloseConn(); err != nil {
		t.Fatal(err)
	}
	f.ID = strings.Repeat("ab", 16)
	b, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	killed := t.TempDir()
	if err := os.WriteFile(filepath.Join(killed, "node.json"), b, 0o600); err != nil {
		t.Fatal(err)
	}
	_, _, err = Dial(ctx, killed, ClientOptions{})
	if !errors.Is(err, ErrNotRunning) || !strings.Contains(err.Error(), "another deployment") {
		t.Errorf("got %v", err)
	}
	if err := n.Close(ctx); err != nil {
		t.Fatal(err)
	}
}
