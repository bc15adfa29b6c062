package endtoend

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/topology"
)

// growing is a second table of the cluster, whose source topic gains a
// partition again and again while nodes come and go (A6).
type growing struct {
	*resharded
	partitions int // of the topic, 0: there is none yet
	divided    int // times
}

// dialed calls fn with a way to a node that runs; one that has just begun to
// start is waited for.
func (w *clusterWorld) dialed(ctx context.Context, fn func(*topology.Conn) error) {
	w.t.Helper()
	var last error
	waitUntil(w.t, "a node can be asked", func() bool {
		w.revive()
		for _, i := range w.up() {
			c, _, err := topology.Dial(ctx, w.data(i), topology.ClientOptions{})
			if err != nil {
				last = err
				continue
			}
			last = errors.Join(fn(c), c.CloseConn())
			if last == nil {
				return true
			}
			w.t.Log("asked again: ", last)
		}
		return false
	})
}

// reshard is a step: the topic gains a partition while producers write on, some
// as if it had not, and is divided anew. Nobody waits for that: it goes on while
// the next things happen. A division that is not over yet is left alone.
func (g *growing) reshard(ctx context.Context, w *clusterWorld) {
	t := w.t
	t.Helper()
	if g.partitions == 0 {
		g.partitions = 2
		g.produce(t, w.kafka, 200, g.partitions)
		w.dialed(ctx, func(c *topology.Conn) error {
			_, _, err := c.EnsureTable(ctx, g.def)
			return err
		})
	}
	// The topic may be divided again once every shard has uploaded its index.
	over := func() (ok bool) {
		w.dialed(ctx, func(c *topology.Conn) error {
			info, err := c.Table(ctx, g.def.Name)
			if err != nil {
				return err
			}
			live := slices.DeleteFunc(info.Shards, func(s statestore.ShardInfo) bool { return s.Retired })
			ok = len(live) == g.partitions && info.Resharding == nil && (g.divided == 0 || !slices.ContainsFunc(live, func(s statestore.ShardInfo) bool { return s.Index.Path == "" }))
			return nil
		})
		return ok
	}
	for end := time.Now().Add(time.Minute); !over(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			w.counts["reshard: the one before is not over"]++
			return
		}
	}
	before := g.partitions
	g.partitions++
	g.grow(t, w.kafka, g.partitions)
	g.produce(t, w.kafka, 60, g.partitions)
	g.produceBy(t, w.kafka, 60, before, g.partitions)
	w.dialed(ctx, func(c *topology.Conn) error {
		out, err := c.Reshard(ctx, g.def.Name, false)
		if err == nil && out.Outcome.Reason != 0 {
			info, err := c.Table(ctx, g.def.Name)
			if err != nil {
				return err
			}
			if info.Resharding == nil && (info.Base == nil || int(info.Base.Partitions) != g.partitions) {
				t.Fatalf("reshard into %d: %s", g.partitions, out.Outcome.Reason)
			}
			return nil // it was asked, and the answer lost
		}
		return err
	})
	g.divided++
	g.produce(t, w.kafka, 100, g.partitions)
}

// check holds the table against its model in the end.
func (g *growing) check(ctx context.Context, n *topology.Node, t *testing.T) *history {
	t.Helper()
	info, err := n.Resharded(ctx, g.def.Name)
	if err != nil {
		t.Fatal(err)
	}
	if g.divided > 0 && (info.Base == nil || int(info.Base.Partitions) != g.partitions) {
		t.Errorf("divided as %+v, want %d partitions", info.Base, g.partitions)
	}
	g.resharded.check(t, n, "the table whose topic grew")
	published(ctx, t, n, g.def.Name)
	h := readHistory(ctx, t, n, g.def.Name)
	h.folder = "shop/grows"
	return h
}
