package topology

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"
)

// groupNode starts a node that shares its deployment with others.
func groupNode(ctx context.Context, t *testing.T, o NodeOptions) *Node {
	t.Helper()
	o.Groups = true
	if o.Data == "" {
		o.Data = t.TempDir()
	}
	if o.SessionTimeout == 0 {
		o.SessionTimeout = 6 * time.Second
	}
	o.Logger = slog.New(slog.NewTextHandler(testWriter{t}, nil)).With("node", o.NodeID)
	n, err := OpenNode(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Start(ctx); err != nil {
		t.Fatal(errors.Join(err, n.Close(ctx)))
	}
	return n
}

// testBroker is an embedded broker that nodes reach as they would a cluster.
func testBroker(t *testing.T) *Broker {
	t.Helper()
	b, err := OpenBroker(BrokerOptions{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func groupContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func eventually(ctx context.Context, t *testing.T, what string, ok func() bool) {
	t.Helper()
	for !ok() {
		if sleep(ctx, 20*time.Millisecond) != nil {
			t.Fatal("it never came that ", what)
		}
	}
}

func running(n *Node) int {
	c := 0
	for _, s := range n.Shards() {
		if s.Stage == 2 {
			c++
		}
	}
	return c
}

// produceRows produces n rows over so many keys, and waits until they are in a snapshot.
func produceRows(ctx context.Context, t *testing.T, n *Node, table string, events, keys int) {
	t.Helper()
	if _, err := n.Produce(ctx, table, 0, rowEvents(events, keys), nil); err != nil {
		t.Fatal(err)
	}
}

// TestGroupOfTwo: two nodes share states and shards, one leaves, one comes:
// every row is there once.
func TestGroupOfTwo(t *testing.T) {
	ctx := groupContext(t)
	b := testBroker(t)
	lake := t.TempDir()
	o := NodeOptions{Brokers: []string{b.Addr()}, Warehouse: lake, Partitions: 4, Tables: []string{"t*"}}
	one := o
	one.NodeID = "one"
	a := groupNode(ctx, t, one)
	if _, err := a.Produce(ctx, "t", 4, rowEvents(400, 100), nil); err != nil {
		t.Fatal(err)
	}
	if _, created, err := a.EnsureTable(ctx, testDefinition("t")); err != nil || !created {
		t.Fatalf("created %v: %v", created, err)
	}
	if err := a.WaitLoaded(ctx, "t", nil); err != nil {
		t.Fatal(err)
	}
	two := o
	two.NodeID, two.LeaveGroups = "two", true
	c := groupNode(ctx, t, two)
	eventually(ctx, t, "two nodes have two shards each", func() bool { return running(a) == 2 && running(c) == 2 })
	eventually(ctx, t, "two nodes have two states each", func() bool { return len(a.openStateList()) == 2 && len(c.openStateList()) == 2 })
	produceRows(ctx, t, c, "t", 400, 100)
	for _, n := range []*Node{a, c} {
		c2, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		if err := n.WaitLoaded(c2, "t", nil); err != nil {
			info, err2 := n.Table(ctx, "t")
			t.Logf("%+v %v %+v", info, err2, n.Shards())
			for p := range n.dirs {
				t.Logf("dir %d rests %v head %+v state %v", p, n.dirs[p].rests, n.dirs[p].head.Offset, n.state(int32(p)) != nil)
			}
			t.Fatal(err)
		}
		info, err := n.Table(ctx, "t")
		if err != nil || info.Counts.Events != 800 {
			t.Fatalf("%d events: %v", info.Counts.Events, err)
		}
	}
	if err := c.Close(ctx); err != nil {
		t.Fatal(err)
	}
	eventually(ctx, t, "the first has all again", func() bool { return running(a) == 4 && len(a.openStateList()) == 4 })
	produceRows(ctx, t, a, "t", 400, 50)
	if err := a.WaitLoaded(ctx, "t", nil); err != nil {
		t.Fatal(err)
	}
	info, err := a.Table(ctx, "t")
	if err != nil {
		t.Fatal(err)
	}
	if live := info.Rows - info.Dead; live != 100 || info.Counts.Events != 1200 {
		t.Errorf("%d rows, %d events; want 100, 1200", live, info.Counts.Events)
	}
	if err := a.Close(ctx); err != nil {
		t.Fatal(err)
	}
}

var _ = fmt.Sprint
var _ = slices.Sort[[]int]
