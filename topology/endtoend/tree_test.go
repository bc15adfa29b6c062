package endtoend

import (
	"context"
	"testing"
	"time"

	"github.com/varve-io/varve/processors"
	"github.com/varve-io/varve/processors/planner"
	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/topology"
)

// treeCounts are what a table's log says of its tree: items of SplitPartition that
// were accepted, those of them that made leaves, and inputs of accepted jobs that
// are ranges of a file.
type treeCounts struct{ items, divided, ranges int }

func countTree(ctx context.Context, t *testing.T, n *topology.Node, table string) (c treeCounts) {
	t.Helper()
	if err := n.Transactions(ctx, table, 0, func(d *processors.Decided) error {
		o := &d.Outcome
		if o.Table != table || o.Derived || o.Outcome.Code == record.Rejected || o.Type != record.TypeSplitPartition && o.Type != record.TypePlanJobs {
			return nil
		}
		env, body, err := n.Bodies().Open(ctx, d.Record.Key, d.Record.Header, d.Record.Value)
		if err != nil {
			return err
		}
		v, err := record.DecodeBody(env.Type, env.TypeVersion, body)
		if err != nil {
			return err
		}
		switch v := v.(type) {
		case *record.SplitPartition:
			bad, err := o.Outcome.Rejected(len(v.Items))
			if err != nil {
				return err
			}
			for i := range v.Items {
				if bad[i] {
					continue
				}
				c.items++
				if v.Items[i].Children > 0 {
					c.divided++
				}
			}
		case *record.PlanJobs:
			bad, err := o.Outcome.Rejected(len(v.Items))
			if err != nil {
				return err
			}
			for i := range v.Items {
				for _, in := range v.Items[i].Inputs {
					if bad[i] {
						continue
					}
					if in.Lo > 0 {
						c.ranges++
					}
				}
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return c
}

// treeListed looks at the listing of a table's tree: each node but the root is
// some node's child, one level below it, and every live row lies on one of them.
func treeListed(ctx context.Context, t *testing.T, n *topology.Node, table string) {
	t.Helper()
	nodes, err := n.Tree(ctx, table)
	if err != nil {
		t.Fatal(err)
	}
	info, err := n.Table(ctx, table)
	if err != nil {
		t.Fatal(err)
	}
	depth, children, rows := map[int64]int64{}, map[int64]int64{}, int64(0)
	for _, x := range nodes {
		depth[x.Node] = x.Depth
		if x.Parent >= 0 {
			children[x.Parent]++
		}
		rows += x.Rows
	}
	for _, x := range nodes {
		if children[x.Node] != x.Children || x.Parent >= 0 && x.Depth != depth[x.Parent]+1 || x.Parent < 0 && x.Depth != 0 {
			t.Errorf("%+v: %d nodes name it as their parent, which is at depth %d", x, children[x.Node], depth[x.Parent])
		}
	}
	if len(nodes) < 4 || rows > info.Rows || rows < info.Rows-info.Dead {
		t.Errorf("%d nodes with %d rows; the table has %d, %d of them dead", len(nodes), rows, info.Rows, info.Dead)
	}
}

// TestTree: a table's leaves are split, new files brought down and jobs run on leaves
// while events come in, so that rows die in files of which a range has moved already
// (F7, F8). Every snapshot is right, rows keep their lineage, three readers agree at
// the end, and a replay makes the same bytes.
func TestTree(t *testing.T) {
	b := backend{name: "embedded"}
	ctx := longContext(t)
	s := seed(t)
	w := orders("shop.orders", 400, 3000)
	w.def.Specs, w.def.LastPartitionID = []schemas.Spec{{}}, 999
	w.def.Properties = append(w.def.Properties,
		schemas.Property{Key: planner.PropertyBatch, Value: "6"}, schemas.Property{Key: planner.PropertySplit, Value: "30000"})
	o := topology.NodeOptions{Data: dataDir(t), Brokers: b.brokers, Deployment: "tree", Partitions: 1, Roles: topology.Roles(), Jobs: quickJobs}
	n := start(t, o)
	if err := prepare(ctx, n, w); err != nil {
		t.Fatal(err)
	}
	f := newFeed(w, s)
	// Until the tree is of several leaves and jobs have taken ranges; a slow machine
	// takes more rounds.
	var c treeCounts
	for round := 0; round < 20 || c.divided < 2 || c.items-c.divided < 2 || c.ranges < 5; round++ {
		if round == 300 {
			t.Fatalf("after %d rounds: %+v", round, c)
		}
		if _, err := n.Produce(ctx, w.def.SourceTopic, w.partitions, f.take(150), nil); err != nil {
			t.Fatal(err)
		}
		if err := n.WaitLoaded(ctx, w.def.Name, nil); err != nil {
			t.Fatal(err)
		}
		c = countTree(ctx, t, n, w.def.Name)
	}
	jobsOver(ctx, t, n, w.def.Name)
	if _, err := n.Produce(ctx, w.def.SourceTopic, w.partitions, f.take(300), nil); err != nil {
		t.Fatal(err)
	}
	stop(t, n)
	o.Jobs.PlanEvery = time.Hour // nothing changes behind what is read now
	n = start(t, o)
	began := time.Now()
	if err := prepare(ctx, n, w); err != nil {
		t.Fatal(err)
	}
	jobsOver(ctx, t, n, w.def.Name)
	settle(ctx, t, n, f, f.model())
	time.Sleep(firstPlan - time.Since(began))
	published(ctx, t, n, w.def.Name)
	treeListed(ctx, t, n, w.def.Name)
	t.Logf("%+v, %+v", countTree(ctx, t, n, w.def.Name), countJobs(ctx, t, n, w.def.Name))
	h := readHistory(ctx, t, n, w.def.Name)
	location := n.Store().Location("")
	stop(t, n)
	audit(t, o.Data, h)
	replaySame(ctx, t, topology.ReplayOptions{Brokers: o.Brokers, Deployment: o.Deployment}, o.Data, location, o.Partitions, nil)
}
