package endtoend

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/varve-io/varve/statestore/restclient"
	"github.com/varve-io/varve/topology"
	"github.com/varve-io/varve/topology/testcluster"
)

// clusterSession is the session timeout of the nodes under test: a stalled one
// loses what it has soon.
const clusterSession = 6 * time.Second

// clusterWorld is a deployment of some nodes in processes of their own, over
// three brokers, an S3 gateway and the reference catalog.
type clusterWorld struct {
	t       *testing.T
	dir     string
	kafka   *testcluster.Cluster
	lake    *s3Lake
	order   childOrder
	nodes   []*child // nil: down
	most    int      // nodes that may be up now
	counts  map[string]int
	sigkill int
	stalled []time.Duration
}

const clusterNodes = 4

func (w *clusterWorld) log(i int) string { return filepath.Join(w.dir, fmt.Sprintf("node-%d.log", i)) }

func (w *clusterWorld) data(i int) string { return filepath.Join(w.dir, fmt.Sprintf("n%d", i)) }

func (w *clusterWorld) startNode(i int) {
	w.t.Helper()
	o := w.order
	o.NodeID = fmt.Sprintf("n%d", i)
	o.Data = w.data(i)
	w.nodes[i] = startChild(w.t, &o, w.log(i))
}

// killNode kills a node. One that gave up by itself, since no broker, no store
// or no catalog answered while it started, is what a supervisor would start again.
func (w *clusterWorld) killNode(i int) {
	w.t.Helper()
	c := w.nodes[i]
	select {
	case err := <-c.ended:
		tail := c.tail()
		last := tail[strings.LastIndex(strings.TrimSpace(tail), "\n")+1:]
		switch {
		case strings.Contains(last, topology.ErrUnreachable.Error()), strings.Contains(last, "no answer from"), strings.Contains(last, restclient.ErrAway.Error()):
			w.counts["gave up"]++
		case strings.Contains(last, "another process has this node's id"):
			// What the process before it had sent to a broker that was away came
			// after its own: the group takes the dead one for the newer.
			w.counts["fenced by its predecessor"]++
		default:
			w.t.Fatalf("node %d ended by itself: %v\n%s", i, err, tail)
		}
	default:
		c.kill()
		w.sigkill++
	}
	w.nodes[i] = nil
}

// revive starts nodes again that gave up: see killNode.
func (w *clusterWorld) revive() {
	w.t.Helper()
	for _, i := range w.up() {
		if len(w.nodes[i].ended) > 0 {
			w.killNode(i)
			w.startNode(i)
		}
	}
}

func (w *clusterWorld) up() []int {
	var out []int
	for i, c := range w.nodes {
		if c != nil {
			out = append(out, i)
		}
	}
	return out
}

// scale starts or kills nodes until so many are up; no more will be.
func (w *clusterWorld) scale(n int) {
	w.t.Helper()
	w.most = n
	for i := range w.nodes {
		if w.nodes[i] == nil && len(w.up()) < n {
			w.startNode(i)
		}
	}
	for _, i := range w.up() {
		if len(w.up()) > n {
			w.killNode(i)
		}
	}
}

// signal sends a signal to a node's process.
func (w *clusterWorld) signal(i int, s syscall.Signal) {
	w.t.Helper()
	if err := w.nodes[i].cmd.Process.Signal(s); err != nil {
		w.t.Fatal(err)
	}
}

// away closes a proxy's port for some seconds.
func away(r *rand.Rand, p *testcluster.Proxy) {
	p.Refuse(true)
	time.Sleep(time.Duration(r.IntN(3000)) * time.Millisecond)
	p.Refuse(false)
}

// TestCluster: one node of a deployment becomes four, then two; they are killed,
// stalled beyond their session and robbed of their disks, brokers are killed,
// store and catalog fail, other programs write to the table, and the source topic
// of a second table gains partitions and is divided anew, while events come in and
// files are compacted. In the end the table holds what the events
// ask for, each applied once; every snapshot on the way was right; nothing that
// a snapshot names is missing, what lies around unnamed belongs to attempts that
// did not come to their end, and what the other programs did is there.
// VARVE_CLUSTER_STEPS says how many things happen.
func TestCluster(t *testing.T) {
	s := seed(t)
	r := rng(s, 77)
	began := time.Now()
	first := []string{"scale to 4", "reshard", "kill", "stall", "reshard", "foreign", "broker", "wipe", "catalog", "scale to 2", "store"} // each once, also in the short form
	steps := count(t, "VARVE_CLUSTER_STEPS", len(first), len(first))
	long := steps > 20
	kafka := testcluster.Start(t, 3)
	l := startLake(t)
	l.disturb(t, 50)
	reference := testcluster.StartCatalog(t, l.location, l.gateway.CatalogProperties()...)
	catalog := testcluster.StartProxy(t, reference.URI())
	w := &clusterWorld{
		t: t, dir: dataDir(t), kafka: kafka, lake: l, nodes: make([]*child, clusterNodes), counts: map[string]int{},
		order: childOrder{
			Brokers: kafka.Brokers(), Warehouse: l.url, Deployment: "cluster", Partitions: 2, Workload: "orders", Session: clusterSession, Roles: topology.Roles(), Jobs: quickJobs,
			Remote: &restclient.Options{URI: catalog.Endpoint(), Timeout: 5 * time.Second},
		},
	}
	pause := 10 * time.Millisecond
	if long {
		w.order.Workload, pause = "orders-slow", 200*time.Millisecond
	}
	load := workloads[w.order.Workload]()
	w.scale(1)
	w.nodes[0].ready()
	p := &eventProducer{t: t, w: load, seed: s, pause: pause, acked: map[int32]int64{}}
	stopEvents := p.start(kafka.Brokers()...)
	disturb(t, "catalog", catalog, 10)
	var others *foreigners
	grows := &growing{resharded: newResharded(s)}
	for step := range steps {
		time.Sleep(time.Duration(200+r.IntN(1500)) * time.Millisecond)
		w.revive()
		up := w.up()
		i := up[r.IntN(len(up))]
		kind := "kill"
		switch {
		case step < len(first) && !long:
			kind = first[step]
		case step == steps/10:
			kind = "scale to 4"
		case step == steps*7/10:
			kind = "scale to 2"
		case long && (step == steps/5 || step == steps/2):
			kind = "reshard"
		case step == steps*9/10:
			kind = "foreign" // by a clock that is ahead
		case r.IntN(10) < 4:
			kind = []string{"wipe", "wipe", "stall", "broker", "down", "up", "store", "catalog", "foreign", "reshard"}[r.IntN(10)]
		}
		switch kind {
		case "kill":
			w.killNode(i)
			w.startNode(i)
		case "wipe":
			w.killNode(i)
			if err := os.RemoveAll(w.data(i)); err != nil {
				t.Fatal(err)
			}
			w.startNode(i)
		case "stall":
			w.signal(i, syscall.SIGSTOP)
			d := clusterSession/2 + time.Duration(r.Int64N(int64(clusterSession)))
			time.Sleep(d)
			w.signal(i, syscall.SIGCONT)
			w.stalled = append(w.stalled, d)
		case "broker":
			b := r.IntN(3)
			kafka.KillNode(b)
			time.Sleep(time.Duration(r.IntN(4000)) * time.Millisecond)
			kafka.StartNode(b)
		case "down":
			if len(up) == 1 {
				continue
			}
			w.killNode(i)
		case "up":
			if len(up) == w.most {
				continue
			}
			w.startNode(slices.Index(w.nodes, nil))
		case "scale to 4":
			w.scale(4)
		case "scale to 2":
			w.scale(2)
		case "store":
			away(r, l.proxy)
		case "catalog":
			if r.IntN(2) == 0 {
				away(r, catalog)
				break
			}
			reference.Kill()
			time.Sleep(time.Duration(r.IntN(2000)) * time.Millisecond)
			reference.Restart()
		case "reshard":
			grows.reshard(longContext(t), w)
		case "foreign":
			if others == nil {
				others = startForeigners(t, reference, l, load.def.Name, long)
			}
			others.act(step >= steps*9/10 || !long && others.step == 3)
		}
		w.counts[kind]++
		t.Logf("%s: step %d: %s, nodes up %v", time.Since(began).Round(time.Second), step, kind, w.up())
	}
	if !long { // the others' whole short list
		for range 3 {
			others.act(others.step == 3)
		}
	}
	time.Sleep(time.Second)
	stopEvents()
	for _, i := range w.up() {
		w.killNode(i)
	}
	_, storeFaults := faultCounts(l.proxy)
	_, catalogFaults := faultCounts(catalog)
	catalog.Fail(nil)

	o := w.order
	o.Data, o.NodeID = filepath.Join(w.dir, "last"), "last"
	options := o.options(testLog(t, slog.LevelError))
	options.LeaveGroups = true
	if grows.partitions > 0 {
		p.beside = append(p.beside, func(ctx context.Context, n *topology.Node) *history { return grows.check(ctx, n, t) })
	}
	got := p.settleAll(options, l)
	foreign := map[string]int{}
	if others != nil {
		others.check(longContext(t))
		foreign = others.did
	}
	t.Logf("figures: %d steps in %s: %v; %d SIGKILLs; stalls of %v; faults of the store %v, of the catalog %v; other writers %v; %d divisions of a topic; %v events acknowledged, %d with an effect or dead; %d records with rows, %d commits, jobs %+v; %d live rows",
		steps, time.Since(began).Round(time.Second), w.counts, w.sigkill, w.stalled, storeFaults, catalogFaults, foreign, grows.divided, p.acked, got.events, len(got.history.appends),
		len(got.history.commits), got.jobs, got.rows)
}
