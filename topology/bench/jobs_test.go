package bench

import (
	"cmp"
	"context"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/topology"
)

// TestJobsTakeTurns: tables whose plans are large are sent side by side: none of
// them waits until another one's jobs are all sent, and each one's are sent once,
// in the order of its plans.
func TestJobsTakeTurns(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped with -short: it starts nodes")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	o := quick(t)
	o.dir, o.Seed = o.Dir, DefaultSeed
	closeBroker, err := o.openBroker(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer closeBroker()
	const each = 3000
	w := &jobsWork{name: "turns", tables: 3, refs: 3 * each * jobInputs, jobs: 3 * each, each: each}
	log, err := newJobsLog(filepath.Join(o.dir, "maker"), o.Seed, w)
	if err != nil {
		t.Fatal(err)
	}
	defer log.st.Close()
	node := func(roles ...string) *topology.Node {
		n, err := topology.OpenNode(ctx, topology.NodeOptions{
			Data: filepath.Join(o.dir, "node"), Brokers: o.client.Brokers, Deployment: "turns", Partitions: 1, Roles: roles,
			Jobs: topology.JobOptions{Partitions: 1, PlanEvery: time.Hour}, Logger: o.Logger,
		})
		if err == nil {
			err = n.Start(ctx)
		}
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	closeNode := func(n *topology.Node) {
		t.Helper()
		if err := n.Close(ctx); err != nil {
			t.Fatal(err)
		}
	}
	// Every plan is there before the first job is sent.
	n := node(topology.RoleState)
	p, err := topology.NewLogProducer(o.client, topology.ProducerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	x := &jobsRun{o: &o, w: w, log: log, topics: n.Topics(), producer: p, failed: make(chan error, 1)}
	for i := range log.log.setup[1:] {
		p.Append(ctx, x.topics.Transactions, 0, entryOf(&log.log.setup[i+1]), func(_ int64, err error) {
			if err != nil {
				x.fail(err)
			}
		})
	}
	for _, tab := range log.tables {
		plan := &record.PlanJobs{}
		for i := range int64(each) {
			plan.Items = append(plan.Items, record.PlanItem{Strategy: "bench", Inputs: tab.inputs(i)})
		}
		if err := x.append(ctx, tab, plan); err != nil {
			t.Fatal(err)
		}
	}
	outcomes, err := x.outcomes(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer outcomes.Close()
	last := int64(len(log.log.setup) + len(log.tables) - 1)
	if err := followOutcomes(ctx, outcomes, x.failed, func(m *record.OutcomeMessage) bool { return m.Offset == last }); err != nil {
		t.Fatal(err)
	}
	closeNode(n)

	n = node(topology.RoleState, topology.RolePlanner)
	jobs, err := topology.OpenLogReader(ctx, o.client, topology.ReaderOptions{Topic: x.topics.Jobs, MaxWait: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer jobs.Close()
	sent := map[int64][]record.JobID{}
	for all, ended := 0, false; all < len(log.tables)*each; {
		rs, err := jobs.Poll(ctx, time.Second, 0)
		if err != nil {
			t.Fatalf("%v; sent are %d", err, all)
		}
		for i := range rs {
			var d record.Dispatch
			if err := record.DecodeDispatch(rs[i].Value, &d); err != nil {
				t.Fatal(err)
			}
			sent[d.TableID] = append(sent[d.TableID], d.Job)
			all++
			if len(sent[d.TableID]) < each || ended {
				continue
			}
			ended = true
			for _, other := range log.tables {
				if got := len(sent[other.id]); got < each/2 {
					t.Errorf("table %s has %d of its jobs sent when another one has all %d", other.name, got, each)
				}
			}
		}
	}
	for _, tab := range log.tables {
		s := sent[tab.id]
		if len(s) != each || !slices.IsSortedFunc(s, func(a, b record.JobID) int { return cmp.Compare(a.Item, b.Item) }) || s[0].Item != 0 || s[each-1].Item != each-1 {
			t.Errorf("table %s: %d jobs sent, of %d, or not in their order", tab.name, len(s), each)
		}
	}
	closeNode(n)
}
