package endtoend

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/varve-io/varve/topology"
)

// TestKill: a node is killed at random moments while events come in. In the
// end the table holds what the events ask for, each applied once; every
// snapshot on the way was right; nothing that a snapshot names is missing, and
// what lies around unnamed belongs to closed epochs.
func TestKill(t *testing.T) {
	onBackends(t, func(t *testing.T, b backend) { killNodes(t, b, nil, 4) })
}

// killNodes is TestKill with the lake in a folder, or on S3.
func killNodes(t *testing.T, b backend, lake *s3Lake, kills int) {
	s := seed(t)
	r := rng(s)
	kills = count(t, "VARVE_KILLS", kills, kills)
	if len(b.brokers) > 0 {
		kills = (kills + 2) / 3
	}
	w := workloads["orders"]()
	o := &childOrder{Data: dataDir(t), Brokers: b.brokers, Deployment: "kill", Partitions: 1, Workload: "orders", Roles: topology.Roles(), Jobs: quickJobs}
	if lake != nil {
		o.Warehouse = lake.url
	}
	log := filepath.Join(t.TempDir(), "child.log")
	p := &eventProducer{t: t, w: w, seed: s, acked: map[int32]int64{}}
	early := 0
	var stopAll func() // on Kafka events go on coming while no node runs
	for k := range kills {
		c := startChild(t, o, log)
		if k != kills/2 && (r.IntN(4) == 0 || k == 0 && r.IntN(2) == 0) {
			// While it starts: it opens, replays, claims.
			time.Sleep(time.Duration(r.IntN(400)) * time.Millisecond)
			c.kill()
			early++
			continue
		}
		broker := c.ready()
		if len(b.brokers) > 0 && stopAll == nil {
			stopAll = p.start(broker)
		}
		stop := func() {}
		if len(b.brokers) == 0 {
			stop = p.start(broker)
		}
		time.Sleep(time.Duration(100+r.IntN(1200)) * time.Millisecond)
		c.kill()
		// Before the broker is back: it would not know the producer any more.
		stop()
	}
	if stopAll != nil {
		stopAll()
	}
	t.Logf("%d kills, %d of them during the start; %v events acknowledged", kills, early, p.acked)
	p.settleAll(o.options(testLog(t, 8)), lake)
}

// settleAll opens a last node and holds everything against what was produced:
// rows at every snapshot, files, and what a replay of the log writes.
// With an outside catalog the replay is held against manifests, lists and vectors, not against the catalog's metadata.
func (p *eventProducer) settleAll(o topology.NodeOptions, lake *s3Lake) settled {
	t := p.t
	t.Helper()
	o.Jobs.PlanEvery = time.Hour // no more than those that are open
	n := start(t, o)
	began := time.Now()
	ctx := longContext(t)
	if err := prepare(ctx, n, p.w); err != nil {
		t.Fatal(err)
	}
	jobsOver(ctx, t, n, p.w.def.Name)
	f := newFeed(p.w, p.seed)
	p.verify(ctx, n, f)
	m := f.model()
	settle(ctx, t, n, f, m)
	time.Sleep(firstPlan - time.Since(began))
	published(ctx, t, n, p.w.def.Name)
	var others []*history
	for _, x := range p.beside {
		others = append(others, x(ctx, n))
	}
	h := readHistory(ctx, t, n, p.w.def.Name)
	jobs := countJobs(ctx, t, n, p.w.def.Name)
	location := n.Store().Location("")
	stop(t, n)
	if lake != nil {
		lake.copyTo(t, filepath.Join(o.Data, "lake"))
	}
	h.outside = o.Remote != nil
	if len(others) > 0 {
		h.folder = strings.ReplaceAll(p.w.def.Name, ".", "/")
	}
	audit(t, o.Data, h)
	for _, x := range others {
		x.outside = h.outside
		audit(t, o.Data, x)
	}
	replaySame(ctx, t, topology.ReplayOptions{Brokers: o.Brokers, Deployment: o.Deployment, Outside: h.outside}, o.Data, location, o.Partitions, nil)
	return settled{events: m.good + m.bad, rows: len(m.lines(nil)), history: h, jobs: jobs}
}

// settled is what a run came to.
type settled struct {
	events  int64
	rows    int
	history *history
	jobs    jobCounts
}

// firstPlan is when a node has looked for files to compact for the first time.
const firstPlan = 3 * time.Second

// published waits until a table has no open job and nothing to publish.
func published(ctx context.Context, t *testing.T, n *topology.Node, table string) {
	t.Helper()
	for end := time.Now().Add(longTime / 2); ; time.Sleep(50 * time.Millisecond) {
		info, err := n.Table(ctx, table)
		if err != nil {
			t.Fatal(err)
		}
		if info.OpenJobs == 0 && !info.Changes && info.Pending == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("it never came to rest: %d jobs open, changes %t, pending cut %+v", info.OpenJobs, info.Changes, info.Pending)
		}
	}
}

// eventProducer produces a workload's events from wherever the topic ends.
type eventProducer struct {
	t    *testing.T
	w    workload
	seed uint64

	pause time.Duration // between twenty events; default 10 ms
	// beside hold the deployment's other tables against what they must be in the end.
	beside []func(context.Context, *topology.Node) *history

	mu    sync.Mutex
	acked map[int32]int64 // end of what the broker acknowledged
}

// start produces until the returned function is called.
func (p *eventProducer) start(brokers ...string) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.run(ctx, brokers) }()
	return func() {
		p.t.Helper()
		cancel()
		if err := <-done; err != nil {
			p.t.Fatal(err)
		}
	}
}

func (p *eventProducer) run(ctx context.Context, brokers []string) error {
	o := topology.ClientOptions{Brokers: brokers}
	a, err := topology.NewAdmin(o)
	if err != nil {
		return err
	}
	defer a.Close()
	ends, err := a.Offsets(ctx, p.w.def.SourceTopic)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	next := make([]int64, len(ends))
	p.mu.Lock()
	for i := range ends {
		if next[i] = ends[i].High; next[i] < p.acked[int32(i)] {
			p.mu.Unlock()
			return fmt.Errorf("the topic's partition %d ends at %d, %d was acknowledged", i, next[i], p.acked[int32(i)])
		}
	}
	p.mu.Unlock()
	lp, err := topology.NewLogProducer(o, topology.ProducerOptions{MaxBatchBytes: topology.DefaultSourceBatchBytes})
	if err != nil {
		return err
	}
	defer lp.Close()
	for round := 0; ctx.Err() == nil; round++ {
		for range 20 {
			part := int32(round) % int32(len(next))
			i := next[part]
			next[part]++
			e := p.w.event(p.seed, part, int(i))
			lp.Append(ctx, p.w.def.SourceTopic, part, topology.Entry{Key: e.key, Value: e.value}, func(offset int64, err error) {
				if err != nil {
					return // how far it got is read from the topic
				}
				p.mu.Lock()
				defer p.mu.Unlock()
				if offset != i {
					p.t.Errorf("event %d of partition %d has offset %d", i, part, offset)
				}
				p.acked[part] = offset + 1
			})
		}
		select {
		case <-ctx.Done():
		case <-time.After(max(p.pause, 10*time.Millisecond)):
		}
	}
	return nil
}

// verify reads the source topic and makes sure that it holds the workload's
// events, each once, and all that were acknowledged. The feed then has them.
func (p *eventProducer) verify(ctx context.Context, n *topology.Node, f *feed) {
	p.t.Helper()
	for part := range int32(p.w.partitions) {
		rs := readTopic(ctx, p.t, n, p.w.def.SourceTopic, part)
		if int64(len(rs)) < p.acked[part] {
			p.t.Fatalf("partition %d has %d events, %d were acknowledged", part, len(rs), p.acked[part])
		}
		for i := range rs {
			e := p.w.event(p.seed, part, i)
			if rs[i].Offset != int64(i) || !bytes.Equal(rs[i].Key, e.key) || !bytes.Equal(rs[i].Value, e.value) || (rs[i].Value == nil) != (e.value == nil) {
				p.t.Fatalf("partition %d, offset %d is not event %d", part, rs[i].Offset, i)
			}
			f.made[part] = append(f.made[part], e)
		}
	}
	p.t.Log("events in the topic: ", slices.Collect(func(yield func(int) bool) {
		for part := range int32(p.w.partitions) {
			if !yield(len(f.made[part])) {
				return
			}
		}
	}))
}
