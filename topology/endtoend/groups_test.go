package endtoend

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/varve-io/varve/processors/ingest"
	"github.com/varve-io/varve/topology"
	"github.com/varve-io/varve/topology/testcluster"
)

// groupSession is the shortest that Kafka takes.
const groupSession = 6 * time.Second

// member is a node that shares a deployment: its folder is its own, the lake
// is everyone's.
func groupMember(t *testing.T, o topology.NodeOptions, id string) *topology.Node {
	t.Helper()
	o.Groups, o.NodeID, o.Data, o.SessionTimeout = true, id, dataDir(t), groupSession
	o.Logger = testLog(t, 8).With("node", id)
	return start(t, o)
}

// owned counts the shards that a node drives.
func owned(n *topology.Node) int {
	c := 0
	for _, s := range n.Shards() {
		if s.Stage == ingest.Running {
			c++
		}
	}
	return c
}

func waitUntil(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(longTime / 2); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it never came that ", what)
		}
	}
}

func publish(t *testing.T, brokers []string, f *feed, events int) {
	t.Helper()
	if _, err := topology.ProduceTo(longContext(t), topology.ClientOptions{Brokers: brokers}, f.def.SourceTopic, f.partitions, f.take(events), nil); err != nil {
		t.Fatal(err)
	}
}

// TestGroups: nodes that share a deployment come, go, are killed and stall
// while events flow; rows are the model's, and every event is taken once.
func TestGroups(t *testing.T) {
	brokers := testcluster.Start(t, 1).Brokers()

	t.Run("join and leave", func(t *testing.T) {
		ctx := longContext(t)
		s := seed(t)
		o := topology.NodeOptions{Brokers: brokers, Deployment: "joins", Partitions: 4, Warehouse: dataDir(t)}
		feeds := []*feed{newFeed(orders("joins.orders", 40, 600), s), newFeed(users("joins.users", 30, 600), s)}
		models := []*model{feeds[0].model(), feeds[1].model()}
		flow := func(events int) {
			for _, f := range feeds {
				publish(t, brokers, f, events)
			}
		}
		a := groupMember(t, o, "a")
		for _, f := range feeds {
			if err := prepare(ctx, a, f.workload); err != nil {
				t.Fatal(err)
			}
		}
		flow(300)
		o.LeaveGroups = true
		b := groupMember(t, o, "b")
		flow(300)
		o.LeaveGroups = false
		c := groupMember(t, o, "c")
		flow(300)
		waitUntil(t, "three nodes share five shards", func() bool {
			x, y, z := owned(a), owned(b), owned(c)
			return x+y+z == 5 && min(x, y, z) >= 1
		})
		flow(300)
		stop(t, b)
		flow(300)
		waitUntil(t, "two nodes share five shards", func() bool { return owned(a)+owned(c) == 5 })
		stop(t, a) // without leaving: what it had is taken when its session is over
		flow(300)
		waitUntil(t, "one node has five shards", func() bool { return owned(c) == 5 })
		for i, f := range feeds {
			settle(ctx, t, c, f, models[i])
		}
		stop(t, c)
	})

	t.Run("kill", func(t *testing.T) {
		ctx := longContext(t)
		s := seed(t)
		w := workloads["orders"]()
		base := childOrder{Brokers: brokers, Deployment: "killed", Partitions: 2, Workload: "orders", Warehouse: dataDir(t), Session: groupSession}
		var children []*child
		var orders []childOrder
		for i := range 3 {
			o := base
			o.Data, o.NodeID = dataDir(t), fmt.Sprint("node-", i)
			orders = append(orders, o)
			children = append(children, startChild(t, &o, filepath.Join(t.TempDir(), "child.log")))
		}
		for _, c := range children {
			c.ready()
		}
		p := &eventProducer{t: t, w: w, seed: s, acked: map[int32]int64{}}
		halt := p.start(brokers[0])
		time.Sleep(time.Second)
		children[1].kill()
		time.Sleep(groupSession + 2*time.Second)
		children[1] = startChild(t, &orders[1], filepath.Join(t.TempDir(), "child.log")) // back, after its session
		children[0].kill()
		children[1].ready()
		time.Sleep(time.Second)
		children[0] = startChild(t, &orders[0], filepath.Join(t.TempDir(), "child.log")) // back, within it
		children[0].ready()
		time.Sleep(time.Second)
		halt()
		last := base
		last.Data, last.NodeID = dataDir(t), "last"
		n := start(t, last.options(testLog(t, 8)))
		settleGroup(ctx, t, n, p, w, s)
		for _, c := range children {
			c.kill()
		}
		stop(t, n)
	})

	t.Run("stalled", func(t *testing.T) { testStalled(t, brokers) })
}

// settleGroup holds what a producer brought into the topic against the table.
func settleGroup(ctx context.Context, t *testing.T, n *topology.Node, p *eventProducer, w workload, s uint64) {
	t.Helper()
	f := newFeed(w, s)
	p.verify(ctx, n, f)
	settle(ctx, t, n, f, f.model())
}
