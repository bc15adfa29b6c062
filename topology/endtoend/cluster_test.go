package endtoend

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/varve-io/varve/topology"
	"github.com/varve-io/varve/topology/testcluster"
)

// clusterSession is the session timeout of the nodes under test: a stalled one
// loses what it has soon.
const clusterSession = 6 * time.Second

// clusterWorld is a deployment of some nodes in processes of their own, over
// three brokers and an S3 gateway.
type clusterWorld struct {
	t       *testing.T
	dir     string
	kafka   *testcluster.Cluster
	lake    *s3Lake
	order   childOrder
	nodes   []*child // nil: down
	counts  map[string]int
	stalled []time.Duration
}

const clusterNodes = 4

func (w *clusterWorld) log(i int) string { return filepath.Join(w.dir, fmt.Sprintf("node-%d.log", i)) }

func (w *clusterWorld) startNode(i int) {
	w.t.Helper()
	o := w.order
	o.NodeID = fmt.Sprintf("n%d", i)
	o.Data = filepath.Join(w.dir, o.NodeID)
	w.nodes[i] = startChild(w.t, &o, w.log(i))
}

// killNode kills a node. One that gave up by itself, since no broker or no store
// answered while it started, is what a supervisor would start again.
func (w *clusterWorld) killNode(i int) {
	w.t.Helper()
	c := w.nodes[i]
	select {
	case err := <-c.ended:
		tail := c.tail()
		last := tail[strings.LastIndex(strings.TrimSpace(tail), "\n")+1:]
		if !strings.Contains(last, topology.ErrUnreachable.Error()) && !strings.Contains(last, "no answer from") {
			w.t.Fatalf("node %d ended by itself: %v\n%s", i, err, tail)
		}
		w.counts["gave up"]++
	default:
		c.kill()
	}
	w.nodes[i] = nil
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

// signal sends a signal to a node's process.
func (w *clusterWorld) signal(i int, s syscall.Signal) {
	w.t.Helper()
	if err := w.nodes[i].cmd.Process.Signal(s); err != nil {
		w.t.Fatal(err)
	}
}

// TestCluster: nodes of one deployment are killed, stalled beyond their
// session, robbed of their disks, taken away and added, brokers are killed and
// the store fails, while events come in. In the end the table holds what the
// events ask for, each applied once; every snapshot on the way was right;
// nothing that a snapshot names is missing, and what lies around unnamed belongs
// to closed epochs. VARVE_CLUSTER_STEPS says how many things happen.
func TestCluster(t *testing.T) {
	s := seed(t)
	r := rng(s, 77)
	steps := count(t, "VARVE_CLUSTER_STEPS", 6, 6)
	kafka := testcluster.Start(t, 3)
	l := startLake(t)
	l.disturb(t, 50)
	w := &clusterWorld{
		t: t, dir: dataDir(t), kafka: kafka, lake: l, nodes: make([]*child, clusterNodes), counts: map[string]int{},
		order: childOrder{Brokers: kafka.Brokers(), Warehouse: l.url, Deployment: "cluster", Partitions: 2, Workload: "orders", Session: clusterSession, Roles: topology.Roles(), Jobs: quickJobs},
	}
	pause := 10 * time.Millisecond
	if steps > 20 {
		w.order.Workload, pause = "orders-slow", 200*time.Millisecond
	}
	load := workloads[w.order.Workload]()
	for i := range w.nodes {
		w.startNode(i)
	}
	for i := range w.nodes {
		w.nodes[i].ready()
	}
	p := &eventProducer{t: t, w: load, seed: s, pause: pause, acked: map[int32]int64{}}
	stopEvents := p.start(kafka.Brokers()...)
	for step := range steps {
		time.Sleep(time.Duration(200+r.IntN(1500)) * time.Millisecond)
		up := w.up()
		i := up[r.IntN(len(up))]
		for _, j := range up {
			if len(w.nodes[j].ended) > 0 { // it gave up: see killNode
				w.killNode(j)
				w.startNode(j)
			}
		}
		kinds := []string{"kill", "kill", "kill", "kill", "wipe", "stall", "broker", "down", "up", "store"}
		kind := kinds[r.IntN(len(kinds))]
		if step < 6 { // each once, also in the short form
			kind = []string{"kill", "stall", "broker", "wipe", "down", "up"}[step]
		}
		switch kind {
		case "kill":
			w.killNode(i)
			w.startNode(i)
		case "wipe":
			w.killNode(i)
			if err := os.RemoveAll(filepath.Join(w.dir, fmt.Sprintf("n%d", i))); err != nil {
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
			j := slices.IndexFunc(w.nodes, func(c *child) bool { return c == nil })
			if j < 0 {
				continue
			}
			w.startNode(j)
		case "store":
			l.proxy.Refuse(true)
			time.Sleep(time.Duration(r.IntN(3000)) * time.Millisecond)
			l.proxy.Refuse(false)
		}
		w.counts[kind]++
		t.Logf("step %d: %s, nodes up %v", step, kind, w.up())
	}
	time.Sleep(time.Second)
	stopEvents()
	for _, i := range w.up() {
		w.killNode(i)
	}
	t.Logf("%v; stalls of %v; %v events acknowledged", w.counts, w.stalled, p.acked)

	o := w.order
	o.Data, o.NodeID = filepath.Join(w.dir, "last"), "last"
	options := o.options(testLog(t, slog.LevelError))
	options.LeaveGroups = true
	p.settleAll(options, l)
}
