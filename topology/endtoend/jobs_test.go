package endtoend

import (
	"context"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/varve-io/varve/processors"
	"github.com/varve-io/varve/processors/planner"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/topology"
)

// quickJobs plan often: what takes minutes in a deployment happens in a test.
var quickJobs = topology.JobOptions{PlanEvery: 150 * time.Millisecond, Timeout: 4 * time.Second}

// jobCounts are items of a table's records of jobs, as the log decided them.
type jobCounts struct{ planned, refused, completed, late, released, inputs, outputs int }

func countJobs(ctx context.Context, t *testing.T, n decidedLog, table string) (c jobCounts) {
	t.Helper()
	if err := n.Transactions(ctx, table, 0, func(d *processors.Decided) error {
		if d.Outcome.Table != table || d.Outcome.Derived {
			return nil
		}
		switch d.Outcome.Type {
		case record.TypePlanJobs, record.TypeCompleteJob, record.TypeReleaseJob:
		default:
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
		bad := map[int]bool{}
		items := func(n int) int {
			if d.Outcome.Outcome.Code == record.Rejected {
				for i := range n {
					bad[i] = true
				}
				return 0
			}
			if err := d.Outcome.Outcome.RejectedItems(n, func(i int, _ record.Reason) { bad[i] = true }); err != nil {
				t.Fatal(err)
			}
			return n - len(bad)
		}
		switch v := v.(type) {
		case *record.PlanJobs:
			c.planned += items(len(v.Items))
			c.refused += len(bad)
			for i := range v.Items {
				if !bad[i] {
					c.inputs += len(v.Items[i].Inputs)
				}
			}
		case *record.CompleteJob:
			c.completed += items(len(v.Items))
			c.late += len(bad)
			for i := range v.Items {
				if !bad[i] {
					c.outputs += len(v.Items[i].Outputs)
				}
			}
		case *record.ReleaseJob:
			c.released += items(len(v.Items))
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return c
}

// jobsOver waits until no job of a table is open; it may take a minute at most.
func jobsOver(ctx context.Context, t *testing.T, n *topology.Node, table string) {
	t.Helper()
	for end := time.Now().Add(5 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		info, err := n.Table(ctx, table)
		if err != nil {
			t.Fatal(err)
		}
		if info.OpenJobs == 0 {
			return
		}
		if time.Now().After(end) {
			jobs, err := n.Jobs(table)
			t.Fatalf("%d jobs are open after five minutes: %+v, %v", info.OpenJobs, jobs, err)
		}
	}
}

// TestJobs: events come in while jobs are planned and executed all the time, so
// that rows die before, during and after the jobs of their files. Every snapshot
// is right, rows keep their lineage, no job stays open, and the files are few.
func TestJobs(t *testing.T) {
	onBackends(t, func(t *testing.T, b backend) {
		ctx := longContext(t)
		s := seed(t)
		w := orders("shop.orders", 60, 1500)
		o := topology.NodeOptions{Data: dataDir(t), Brokers: b.brokers, Deployment: "jobs", Partitions: 1, Roles: topology.Roles(), Jobs: quickJobs}
		n := start(t, o)
		if err := prepare(ctx, n, w); err != nil {
			t.Fatal(err)
		}
		f := newFeed(w, s)
		for range count(t, "VARVE_JOB_ROUNDS", 25, 40) {
			if _, err := n.Produce(ctx, w.def.SourceTopic, w.partitions, f.take(60), nil); err != nil {
				t.Fatal(err)
			}
			if err := n.WaitLoaded(ctx, w.def.Name, nil); err != nil {
				t.Fatal(err)
			}
		}
		jobsOver(ctx, t, n, w.def.Name)
		// A job by hand, of all that is left; then rows die in its outputs.
		p, err := n.Compact(ctx, w.def.Name, nil)
		if err != nil {
			t.Fatal(err)
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
		c := countJobs(ctx, t, n, w.def.Name)
		info, err := n.Table(ctx, w.def.Name)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%+v; by hand %+v; %d files of %d rows, %d dead", c, p, info.Files, info.Rows, info.Dead)
		if c.completed < 5 || c.released > 0 || c.completed < c.planned {
			t.Errorf("too few jobs, or some did not come to their end: %+v", c)
		}
		h := readHistory(ctx, t, n, w.def.Name)
		location := n.Store().Location("")
		stop(t, n)
		audit(t, o.Data, h)
		replaySame(ctx, t, topology.ReplayOptions{Brokers: o.Brokers, Deployment: o.Deployment}, o.Data, location, o.Partitions, nil)
	})
}

// TestJobsKilled: of two worker processes one is killed and one stalled while
// they have jobs in hand. Others take over: no job stays open for a minute, what
// the stalled one brings late changes nothing, and the rows are right.
func TestJobsKilled(t *testing.T) {
	b := kafkaBackend(t)
	ctx := longContext(t)
	s := seed(t)
	w := orders("shop.orders", 60, 1500)
	dir := dataDir(t)
	o := topology.NodeOptions{
		Data: filepath.Join(dir, "main"), Warehouse: filepath.Join(dir, "lake"), Brokers: b.brokers, Deployment: "jobskilled", Partitions: 1,
		Roles: []string{topology.RoleIngest, topology.RoleState, topology.RolePublisher, topology.RolePlanner}, Jobs: quickJobs, Groups: true, NodeID: "main",
		SessionTimeout: clusterSession, LeaveGroups: true,
	}
	o.Jobs.Partitions = 4
	n := start(t, o)
	if err := prepare(ctx, n, w); err != nil {
		t.Fatal(err)
	}
	worker := func(id string) *child {
		order := &childOrder{
			Data: filepath.Join(dir, id), Brokers: b.brokers, Warehouse: o.Warehouse, Deployment: o.Deployment, Partitions: 1, NodeID: id, Session: clusterSession,
			Roles: []string{topology.RoleCompactor}, Jobs: quickJobs,
		}
		return startChild(t, order, filepath.Join(t.TempDir(), id+".log"))
	}
	one, two := worker("one"), worker("two")
	one.ready()
	two.ready()
	f := newFeed(w, s)
	// busy feeds the table until a worker has a job in hand.
	busy := func(id string) {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; {
			if _, err := n.Produce(ctx, w.def.SourceTopic, w.partitions, f.take(30), nil); err != nil {
				t.Fatal(err)
			}
			if err := n.WaitLoaded(ctx, w.def.Name, nil); err != nil {
				t.Fatal(err)
			}
			jobs, err := n.Jobs(w.def.Name)
			if err != nil {
				t.Fatal(err)
			}
			for i := range jobs {
				if jobs[i].Worker == id {
					return
				}
			}
			if time.Now().After(end) {
				t.Fatalf("worker %s got no job in a minute: %+v; %s", id, jobs, one.tail())
			}
		}
	}
	busy("one")
	one.kill()
	busy("two")
	if err := two.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	three := worker("three")
	three.ready()
	for range 10 { // meanwhile rows die
		if _, err := n.Produce(ctx, w.def.SourceTopic, w.partitions, f.take(60), nil); err != nil {
			t.Fatal(err)
		}
		if err := n.WaitLoaded(ctx, w.def.Name, nil); err != nil {
			t.Fatal(err)
		}
	}
	jobsOver(ctx, t, n, w.def.Name)
	if err := two.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Second)
	jobsOver(ctx, t, n, w.def.Name)
	settle(ctx, t, n, f, f.model())
	c := countJobs(ctx, t, n, w.def.Name)
	t.Logf("%+v", c)
	if c.completed < 3 {
		t.Errorf("too few jobs: %+v", c)
	}
	two.kill()
	three.kill()
	stop(t, n)
}

// TestJobsWait: jobs that no worker takes wait. What is in the jobs topic is not
// sent again by the next start; an attempt that is given up brings another one.
func TestJobsWait(t *testing.T) {
	ctx := longContext(t)
	o := topology.NodeOptions{
		Roles: []string{topology.RoleIngest, topology.RoleState, topology.RolePublisher, topology.RolePlanner}, Jobs: topology.JobOptions{PlanEvery: time.Hour},
	}
	s, n := newSmall(t, o)
	for range 5 {
		s.load(t, n, 60)
	}
	sent := func(n *topology.Node, want int) {
		t.Helper()
		for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			rs := readTopic(ctx, t, n, n.Topics().Jobs, 0)
			if len(rs) == want {
				return
			}
			if len(rs) > want || time.Now().After(end) {
				t.Fatalf("the jobs topic has %d messages, want %d", len(rs), want)
			}
		}
	}
	p, err := n.Compact(ctx, s.f.def.Name, []planner.Strategy{planner.Full})
	if err != nil || p.Jobs == 0 || p.Rejected > 0 {
		t.Fatalf("%+v, %v", p, err)
	}
	sent(n, int(p.Jobs))
	if again, err := n.Compact(ctx, s.f.def.Name, []planner.Strategy{planner.Full}); err != nil || again.Jobs > 0 {
		t.Fatalf("files are planned twice: %+v, %v", again, err)
	}
	jobs, err := n.Jobs(s.f.def.Name)
	if err != nil || len(jobs) != int(p.Jobs) {
		t.Fatalf("%+v, %v", jobs, err)
	}
	stop(t, n)
	n = start(t, s.o)
	if err := prepare(ctx, n, s.f.workload); err != nil {
		t.Fatal(err)
	}
	s.load(t, n, 60) // rows die in the files of open jobs
	time.Sleep(time.Second)
	sent(n, int(p.Jobs))
	out, err := n.Request(ctx, s.f.def.Name, jobs[0].TableID, &record.ReleaseJob{Items: []record.ReleasedJob{{Job: jobs[0].Job, Again: true}}, Cause: "a test"})
	if err != nil || out.Outcome.Code != record.Accepted {
		t.Fatalf("%+v, %v", out, err)
	}
	sent(n, int(p.Jobs)+1)
	stop(t, n)
	s.o.Roles = topology.Roles()
	n = start(t, s.o)
	jobsOver(ctx, t, n, s.f.def.Name)
	c := countJobs(ctx, t, n, s.f.def.Name)
	// The worker takes the attempt that was given up too; the log does not.
	if c.completed != int(p.Jobs) || c.released != 1 {
		t.Errorf("%+v of %+v", c, p)
	}
	s.load(t, n, 60)
	settle(ctx, t, n, s.f, s.m)
	stop(t, n)
}
