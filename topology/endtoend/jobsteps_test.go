package endtoend

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/varve-io/varve/processors"
	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/topology"
	"github.com/varve-io/varve/topology/readers"
)

// jobStep is a step of a job at which the process that takes it is killed.
type jobStep struct {
	what string
	role string // the process: "state" (with publisher and planner), "worker" or "ingest"
	at   killPoint
	// many: the job has many files of many rows, so that its forwarding map is an object.
	many bool
}

func sends(topic string, t record.Type) killPoint {
	return killPoint{Topic: topic, Type: t, When: beforeSend}
}

func sent(topic string, t record.Type) killPoint {
	return killPoint{Topic: topic, Type: t, When: afterSend}
}

func reads(t record.Type) killPoint {
	return killPoint{Topic: "transactions", Type: t, When: onRead}
}

func job(message, when string) killPoint {
	return killPoint{Topic: "jobs", Message: message, When: when}
}

func store(op, key string) killPoint { return killPoint{Op: op, Key: key} }

func stored(op, key string) killPoint { return killPoint{Op: op, Key: key, After: true} }

const (
	outputKey   = `/data/[0-9a-f]{32}\.parquet$`
	mapKey      = `/maps/`
	bodyKey     = `/bodies/`
	vectorsKey  = `\.puffin$`
	manifestKey = `-m\d+\.avro$`
	listKey     = `/snap-[^/]*\.avro$`
	versionKey  = `\.metadata\.json$`
	hintKey     = `version-hint\.text$`
)

// jobSteps are the steps of a job, from the plan to the end of its inputs.
var jobSteps = []jobStep{
	// The plan.
	1: {what: "plan made", role: "state", at: sends("transactions", record.TypePlanJobs)},
	2: {what: "plan in the log", role: "state", at: sent("transactions", record.TypePlanJobs)},
	3: {what: "plan read, not applied", role: "state", at: reads(record.TypePlanJobs)},
	4: {what: "plan applied, outcome not sent", role: "state", at: sends("outcomes", record.TypePlanJobs)},
	5: {what: "plan's outcome sent", role: "state", at: sent("outcomes", record.TypePlanJobs)},
	6: {what: "not dispatched", role: "state", at: job("dispatch", beforeSend)},
	7: {what: "dispatched", role: "state", at: job("dispatch", afterSend)},
	8: {what: "heard of by the planner", role: "state", at: job("heartbeat", onRead)},
	// The work.
	9:  {what: "taken by the worker", role: "worker", at: job("dispatch", onRead)},
	10: {what: "first heartbeat not sent", role: "worker", at: job("heartbeat", beforeSend)},
	11: {what: "first heartbeat sent", role: "worker", at: job("heartbeat", afterSend)},
	12: {what: "input opened", role: "worker", at: stored("open", `/data/\d+-\d+-\d+\.parquet$`)},
	13: {what: "output half written", role: "worker", at: stored("write", outputKey)},
	14: {what: "map half written", role: "worker", at: stored("write", mapKey), many: true},
	15: {what: "output written, not there", role: "worker", at: store("put", outputKey)},
	16: {what: "outputs there", role: "worker", at: stored("put", outputKey)},
	17: {what: "map there", role: "worker", at: stored("put", mapKey), many: true},
	18: {what: "output read back", role: "worker", at: stored("open", outputKey)},
	19: {what: "metrics there", role: "worker", at: stored("put", bodyKey)},
	20: {what: "completion not sent", role: "worker", at: sends("transactions", record.TypeCompleteJob)},
	21: {what: "completion in the log, the worker not told", role: "worker", at: sent("transactions", record.TypeCompleteJob)},
	22: {what: "the group's offset not set", role: "worker", at: killPoint{When: onOffsets}},
	// The completion.
	23: {what: "completion read, not applied", role: "state", at: reads(record.TypeCompleteJob)},
	24: {what: "completion applied, outcome not sent", role: "state", at: sends("outcomes", record.TypeCompleteJob)},
	25: {what: "completion's outcome sent", role: "state", at: sent("outcomes", record.TypeCompleteJob)},
	26: {what: "completion seen by a shard's owner, not folded", role: "ingest", at: reads(record.TypeCompleteJob)},
	// The snapshot.
	27: {what: "cut not sent", role: "state", at: sends("transactions", record.TypeCut)},
	28: {what: "cut in the log", role: "state", at: sent("transactions", record.TypeCut)},
	29: {what: "cut frozen, outcome not sent", role: "state", at: sends("outcomes", record.TypeCut)},
	30: {what: "vectors not there", role: "state", at: store("put", vectorsKey)},
	31: {what: "vectors there", role: "state", at: stored("put", vectorsKey)},
	32: {what: "a manifest there", role: "state", at: stored("put", manifestKey)},
	33: {what: "the list there", role: "state", at: stored("put", listKey)},
	34: {what: "not committed", role: "state", at: store("put", versionKey)},
	35: {what: "committed", role: "state", at: stored("put", versionKey)},
	36: {what: "committed, the hint too", role: "state", at: stored("put", hintKey)},
	37: {what: "commit not told", role: "state", at: sends("transactions", record.TypeSnapshotCommitted)},
	38: {what: "commit in the log", role: "state", at: sent("transactions", record.TypeSnapshotCommitted)},
	39: {what: "commit read, not applied", role: "state", at: reads(record.TypeSnapshotCommitted)},
	40: {what: "commit applied, outcome not sent", role: "state", at: sends("outcomes", record.TypeSnapshotCommitted)},
	// The inputs' end.
	41: {what: "collection not sent", role: "state", at: sends("transactions", record.TypeCollectFiles)},
	42: {what: "collection read, not applied", role: "state", at: reads(record.TypeCollectFiles)},
	43: {what: "collection applied, outcome not sent", role: "state", at: sends("outcomes", record.TypeCollectFiles)},
	44: {what: "collected, no input deleted", role: "state", at: store("delete", `\.parquet$`)},
	45: {what: "an input deleted", role: "state", at: stored("delete", `\.parquet$`)},
	46: {what: "deleted, not told", role: "state", at: sends("transactions", record.TypeFilesCollected)},
	47: {what: "told that they are deleted", role: "state", at: sends("outcomes", record.TypeFilesCollected)},
}

// stepWorld is a deployment of three processes, one of which is killed at each
// step, over a broker that this process has.
type stepWorld struct {
	t      *testing.T
	dir    string
	broker string // its address
	feed   *feed
	nodes  map[string]*child
	conn   *topology.Conn // to the process that has the state; nil: ask again
}

var stepRoles = map[string][]string{
	"state": {topology.RoleState, topology.RolePublisher, topology.RolePlanner}, "worker": {topology.RoleCompactor}, "ingest": {topology.RoleIngest},
}

func (w *stepWorld) order(name string) *childOrder {
	o := &childOrder{
		Data: filepath.Join(w.dir, name), Brokers: []string{w.broker}, Warehouse: killScheme + "://" + filepath.ToSlash(filepath.Join(w.dir, "lake")), Deployment: "steps",
		Partitions: 1, NodeID: name, Session: clusterSession, Roles: stepRoles[name], Jobs: quickJobs, KillPoints: true,
		Garbage:     topology.GarbageOptions{Grace: -1, Every: 200 * time.Millisecond, SweepEvery: 2 * time.Second},
		Checkpoints: topology.CheckpointOptions{IndexAppends: 5, IndexEvery: 300 * time.Millisecond},
	}
	if name == "ingest" {
		o.Workload = "steps"
	}
	return o
}

func (w *stepWorld) start(name string) {
	w.t.Helper()
	w.nodes[name] = startChild(w.t, w.order(name), filepath.Join(w.dir, name+".log"))
	w.nodes[name].ready()
	if name == "state" {
		w.connect()
	}
}

func (w *stepWorld) connect() {
	w.t.Helper()
	w.disconnect()
	var err error
	if w.conn, _, err = topology.Dial(longContext(w.t), filepath.Join(w.dir, "state"), topology.ClientOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *stepWorld) disconnect() {
	w.t.Helper()
	if w.conn != nil {
		if err := w.conn.CloseConn(); err != nil {
			w.t.Error(err)
		}
	}
	w.conn = nil
}

func (w *stepWorld) produce(events int) {
	w.t.Helper()
	publish(w.t, []string{w.broker}, w.feed, events)
}

// set sets a property of the table.
func (w *stepWorld) set(key, value string) {
	w.t.Helper()
	ctx := longContext(w.t)
	info, err := w.conn.Table(ctx, w.feed.def.Name)
	if err != nil {
		w.t.Fatal(err)
	}
	out, err := w.conn.Request(ctx, w.feed.def.Name, info.ID, &record.AlterTable{Set: []schemas.Property{{Key: key, Value: value}}})
	if err != nil || out.Outcome.Code != record.Accepted {
		w.t.Fatalf("%+v, %v", out, err)
	}
}

// kill waits until the process of a step has ended itself there, while events come.
func (w *stepWorld) kill(s *jobStep) {
	w.t.Helper()
	c := w.nodes[s.role]
	if s.many {
		w.set("varve.compaction.paused", "true")
		for range 8 {
			w.produce(700)
			w.rest()
		}
	}
	line, err := json.Marshal(&s.at)
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := c.stdin.Write(append(line, '\n')); err != nil {
		w.t.Fatal(err)
	}
	<-c.armed
	if s.many {
		w.set("varve.compaction.paused", "false")
	}
	for end := time.Now().Add(longTime); ; {
		w.produce(40)
		select {
		case <-c.ended:
			w.produce(40)
			return
		case <-time.After(150 * time.Millisecond):
		}
		if time.Now().After(end) {
			w.t.Fatalf("the process never came to this step; %s", c.tail())
		}
	}
}

// rest waits until all events are taken, all jobs over and all is published.
func (w *stepWorld) rest() {
	w.t.Helper()
	ctx := longContext(w.t)
	for end := time.Now().Add(longTime / 2); ; time.Sleep(30 * time.Millisecond) {
		info, err := w.conn.Table(ctx, w.feed.def.Name)
		if err != nil {
			w.t.Fatal(err)
		}
		taken := 0
		for _, s := range info.Shards {
			taken += int(s.SourceEnd)
		}
		if taken == w.feed.len() && info.OpenJobs == 0 && !info.Changes && info.Pending == nil {
			return
		}
		if time.Now().After(end) {
			w.t.Fatalf("it never came to rest: %d of %d events taken, %d jobs open, changes %t, pending cut %+v; %s", taken, w.feed.len(), info.OpenJobs, info.Changes, info.Pending, w.nodes["state"].tail())
		}
	}
}

// check holds rows and jobs against what they must be, by the log itself.
func (w *stepWorld) check(what string) {
	w.t.Helper()
	ctx := longContext(w.t)
	h := readHistory(ctx, w.t, w.conn, w.feed.def.Name)
	if err := covered(w.feed, h); err != nil {
		w.t.Fatal(err)
	}
	last := h.commits[len(h.commits)-1]
	m := w.feed.model()
	h.commits = nil // older ones may be collected
	h.check(ctx, w.t, m, w.feed.key)
	got, err := readers.Read(ctx, readers.IcebergGo, last.MetadataPath, readers.Options{})
	if err != nil {
		w.t.Fatal(err)
	}
	compare(w.t, what, got, m, w.feed.key)
	oneJob(ctx, w.t, w.conn, w.feed.def.Name)
}

// oneJob: no file is in two jobs at a time, and none is rewritten twice.
func oneJob(ctx context.Context, t *testing.T, n decidedLog, table string) {
	t.Helper()
	type name struct {
		plan int64
		item int32
	}
	inputs := map[name][]record.JobInput{}
	open, done := map[uint64]name{}, map[uint64]name{}
	if err := n.Transactions(ctx, table, 0, func(d *processors.Decided) error {
		o := &d.Outcome
		if o.Table != table || o.Derived || o.Outcome.Code == record.Rejected || o.Type != record.TypePlanJobs && o.Type != record.TypeCompleteJob && o.Type != record.TypeReleaseJob {
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
		each := func(items int, fn func(i int)) {
			bad := map[int]bool{}
			if err := o.Outcome.RejectedItems(items, func(i int, _ record.Reason) { bad[i] = true }); err != nil {
				t.Fatal(err)
			}
			for i := range items {
				if !bad[i] {
					fn(i)
				}
			}
		}
		switch v := v.(type) {
		case *record.PlanJobs:
			each(len(v.Items), func(i int) {
				j := name{o.Offset, int32(i)}
				inputs[j] = v.Items[i].Inputs
				for _, in := range v.Items[i].Inputs {
					if other, taken := open[in.File]; taken {
						t.Errorf("file %d is in the jobs %+v and %+v at once", in.File, other, j)
					}
					if other, gone := done[in.File]; gone {
						t.Errorf("file %d is in the job %+v, and was rewritten by %+v", in.File, j, other)
					}
					open[in.File] = j
				}
			})
		case *record.CompleteJob:
			each(len(v.Items), func(i int) {
				j := name{v.Items[i].Job.Plan, v.Items[i].Job.Item}
				if inputs[j] == nil {
					t.Errorf("the job %+v is completed twice, or was not open", j)
				}
				for _, in := range inputs[j] {
					delete(open, in.File)
					done[in.File] = j
				}
				delete(inputs, j)
			})
		case *record.ReleaseJob:
			each(len(v.Items), func(i int) {
				j := name{v.Items[i].Job.Plan, v.Items[i].Job.Item}
				if v.Items[i].Again {
					return
				}
				for _, in := range inputs[j] {
					delete(open, in.File)
				}
				delete(inputs, j)
			})
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// TestJobKilledAtEachStep: a job goes from its plan to the end of its inputs in
// processes of their own, with a state, a worker and owners of shards; at each step
// that jobSteps lists, the process that takes it ends by SIGKILL and is started again,
// while upserts and deletes come. Each time no job stays open, no file is in two jobs, and the
// rows are those of the events; in the end the whole lake is verified.
// VARVE_STEP runs one step; with VARVE_LONG they run on Kafka too.
func TestJobKilledAtEachStep(t *testing.T) {
	t.Run("embedded", func(t *testing.T) {
		broker, err := topology.OpenBroker(topology.BrokerOptions{Dir: dataDir(t)})
		if err != nil {
			t.Fatal(err)
		}
		defer broker.Close()
		killAtEachStep(t, broker.Addr())
	})
	if os.Getenv("VARVE_LONG") != "" {
		t.Run("kafka", func(t *testing.T) { killAtEachStep(t, kafkaBackend(t).brokers[0]) })
	}
}

func killAtEachStep(t *testing.T, broker string) {
	ctx := longContext(t)
	dir := dataDir(t)
	w := &stepWorld{t: t, dir: dir, broker: broker, feed: newFeed(workloads["steps"](), seed(t)), nodes: map[string]*child{}}
	for _, name := range []string{"state", "ingest", "worker"} {
		w.start(name)
	}
	defer w.disconnect()
	w.produce(400)
	w.rest()
	killed := map[string]int{}
	for i := range jobSteps {
		s := &jobSteps[i]
		if only := os.Getenv("VARVE_STEP"); s.what == "" || only != "" && only != fmt.Sprint(i) {
			continue
		}
		began := time.Now()
		w.kill(s)
		dead := time.Since(began)
		w.start(s.role)
		up := time.Since(began)
		w.rest()
		w.check(fmt.Sprintf("after the kill at step %d, %s", i, s.what))
		killed[s.role]++
		t.Logf("step %d, %s: the process %s was killed after %s, up after %s, all at rest and right after %s", i, s.what, s.role, dead.Round(time.Millisecond), up.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
		if t.Failed() {
			return
		}
	}
	w.rest()
	c := countJobs(ctx, t, w.conn, w.feed.def.Name)
	v, err := topology.Verify(ctx, topology.VerifyOptions{
		Brokers: w.conn.Brokers(), Data: filepath.Join(dir, "state"), Deployment: "steps", Store: w.conn.Store(), Scratch: t.TempDir(), Deep: true, Full: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range v.Findings {
		t.Errorf("verify: %s: %s", x.Check, x.What)
	}
	if c.completed+c.released < c.planned {
		t.Errorf("jobs did not come to their end: %+v", c)
	}
	t.Logf("kills by process: %v; jobs %+v", killed, c)
	for _, name := range []string{"worker", "ingest", "state"} {
		w.nodes[name].kill()
	}
}
