package bench

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/varve-io/varve/processors/planner"
	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/forward"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/schemas/source"
	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/statestore/objstore"
	"github.com/varve-io/varve/topology"
)

const (
	jobsGoal = 20_000
	// jobInputs is how many files a job takes, jobRows how many rows each has.
	jobInputs, jobRows = 10, 100
	// filesPerAppend, jobsPerPlan and jobsPerDone are what one record carries: a
	// flush's files, a planner's plan, and what workers finish at about one time.
	filesPerAppend, jobsPerPlan, jobsPerDone = 10_000, 5_000, 256
	// fairShare is what the slowest of several tables must reach of the mean.
	fairShare = 0.5
	// plainJobs is how many jobs the plain way does, each for itself.
	plainJobs = 1_000
)

// runJobs measures compaction jobs without the work on data: planned, dispatched,
// completed and applied through the broker, on tables of ten times and of a
// hundred times as many references as jobs; then on ten tables at once.
func runJobs(ctx context.Context, o *Options) ([]Result, error) {
	jobs := o.Rows
	var out []Result
	for _, w := range []jobsWork{
		{name: "jobs", tables: 1, refs: jobs * jobInputs, jobs: jobs},
		{name: "jobs.many", tables: 1, refs: 10 * jobs * jobInputs, jobs: jobs},
		{name: "jobs.tables", tables: 10, refs: jobs * jobInputs, jobs: jobs},
	} {
		rs, err := o.jobs(ctx, &w)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", w.name, err)
		}
		out = append(out, rs...)
	}
	return out, nil
}

// jobsWork is a number of jobs on a number of references.
type jobsWork struct {
	name   string
	tables int
	refs   int64 // of all tables
	jobs   int64 // of all tables
	each   int64 // jobs of a table

	partitions int  // of a table by a bucket, 0: it has none
	apply      bool // the log is applied only, not kept
}

// jobsLog is a log whose records make tables of published files.
type jobsLog struct {
	commitLogMaker
	partitions int
	tables     []*jobsTable
}

type jobsTable struct {
	name    string
	id      int64
	first   uint64 // file id; the others follow it
	planned int64
	done    int64

	shard   record.ShardKey
	epoch   int64
	request int64
	files   int64
	head    record.SnapshotCommitted
}

// newJobsLog makes the tables' files: a table has one shard, and a cut for each
// append. The state that learned of them stays open.
func newJobsLog(dir string, seed uint64, w *jobsWork) (_ *jobsLog, err error) {
	l := &jobsLog{commitLogMaker: commitLogMaker{rng: rand.New(rand.NewPCG(seed, 5)), apply: w.apply}, partitions: w.partitions}
	if l.st, err = statestore.Open(dir, statestore.Options{}); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.st.Close())
		}
	}()
	var id [16]byte
	for i := range id {
		id[i] = byte(l.rng.Uint32())
	}
	if _, err := l.do("", -1, &record.SetApplyVersion{Deployment: id, Partitions: 1, Version: statestore.ApplyVersion}); err != nil {
		return nil, err
	}
	for n := range w.tables {
		if err := l.table(n, w.refs/int64(w.tables)); err != nil {
			return nil, err
		}
	}
	return l, nil
}

func (l *jobsLog) table(n int, files int64) error {
	t := &jobsTable{name: "shop.jobs" + strconv.Itoa(n)}
	def := customers(t.name, source.DebeziumJSON, 24*3600*1000)
	def.Location = "file:///lake/shop/jobs" + strconv.Itoa(n)
	def.Properties = []schemas.Property{{Key: planner.PropertyPaused, Value: "true"}} // the plans are ours
	if l.partitions > 0 {
		def.Specs = []schemas.Spec{{Fields: []schemas.PartitionField{{SourceID: 1, FieldID: 1000, Name: "id_bucket", Transform: schemas.Bucket, N: int32(l.partitions)}}}}
		def.LastPartitionID = 1000
	}
	o, err := l.do(t.name, -1, &record.CreateTable{Definition: def})
	if err != nil {
		return err
	}
	t.id = o.Offset
	var topic [16]byte
	topic[15] = byte(n + 1)
	t.shard = record.ShardKey{TopicID: topic, Topic: "dbserver1." + t.name}
	claim, err := l.do(t.name, t.id, &record.ClaimShard{Shard: t.shard})
	if err != nil {
		return err
	}
	t.epoch, t.request = claim.Offset, claim.Outcome.Numbers[record.ClaimRequestEnd]
	t.first = statestore.FileID(uint32(claim.Outcome.Numbers[record.ClaimWriter]), 1)
	if err := l.publish(t); err != nil {
		return err
	}
	for t.files < files {
		if err := l.grow(t, min(filesPerAppend, files-t.files)); err != nil {
			return err
		}
	}
	l.tables = append(l.tables, t)
	return nil
}

// publish cuts, and says that the catalog has it.
func (l *jobsLog) publish(t *jobsTable) error {
	cut, err := l.do(t.name, t.id, &record.Cut{})
	if err != nil {
		return err
	}
	h := &t.head
	h.Cut, h.Build, h.TimestampMs, h.MetadataVersion = cut.Offset, cut.Offset, 1_700_000_000_000, h.Sequence+1
	_, err = l.do(t.name, t.id, h)
	return err
}

// partition is that of a table's file n: the inputs of a job share one.
func (l *jobsLog) partition(n int64) []byte {
	if l.partitions == 0 {
		return nil
	}
	return schemas.EncodeTuple([][]byte{binary.LittleEndian.AppendUint32(nil, uint32(n/jobInputs%int64(l.partitions)))})
}

// grow appends files and publishes them.
func (l *jobsLog) grow(t *jobsTable, files int64) error {
	a := &record.AppendRows{
		Shard: t.shard, Epoch: t.epoch, Counter: t.files + 1, SourceFrom: t.files, SourceTo: t.files + files,
		RequestFrom: t.request, RequestTo: t.request, Changes: &record.Ref{Path: "_varve/varve/bodies/c", Length: 1, Hash: record.Hash{1}},
	}
	h := &t.head
	t.head = record.SnapshotCommitted{
		Parent: h.SnapshotID, SnapshotID: h.SnapshotID + 1, Sequence: h.Sequence + 1, FirstRowID: h.FirstRowID + h.AddedRows,
		Manifests: []record.ManifestInfo{{Path: "m" + strconv.FormatInt(t.files, 10)}},
	}
	for n := t.files; n < t.files+files; n++ {
		f := t.first + uint64(n)
		a.Files = append(a.Files, record.DataFile{ID: f, Rows: jobRows, Bytes: 3000, Partition: l.partition(n)})
		h.Files = append(h.Files, record.FileRowID{File: f, FirstRowID: h.FirstRowID + h.AddedRows})
		h.AddedRows += jobRows
	}
	t.files += files
	if _, err := l.do(t.name, t.id, a); err != nil {
		return err
	}
	if err := l.publish(t); err != nil {
		return err
	}
	if _, err := l.st.Commit(); err != nil {
		return err
	}
	l.st.Sent(l.next - 1)
	return nil
}

// inputs are the files of a table's job n.
func (t *jobsTable) inputs(n int64) []record.JobInput {
	in := make([]record.JobInput, jobInputs)
	for i := range in {
		in[i] = record.JobInput{File: t.first + uint64(n*jobInputs+int64(i)), Hi: jobRows}
	}
	return in
}

// jobOrder is the input of each row that a job without dead rows writes.
func jobOrder(inputs []forward.Input) []byte {
	var order []byte
	left := make([]uint64, len(inputs))
	for i := range inputs {
		left[i] = inputs[i].Rows
	}
	for more := true; more; {
		more = false
		for i := range left {
			at := i * 7 % len(left)
			if left[at] > 0 {
				left[at]--
				order, more = append(order, byte(at)), true
			}
		}
	}
	return order
}

// forwardingMap is what a worker would write of a job: its inputs' rows in turns.
func forwardingMap(inputs []forward.Input, order []byte) ([]byte, error) {
	var text bytes.Buffer
	w, err := forward.NewWriter(&text, inputs)
	if err == nil {
		err = w.Append(order)
	}
	if err == nil {
		w.EndOutput()
		err = w.Close()
	}
	return text.Bytes(), err
}

// writeMaps makes the maps of all jobs, which are the workers' part. As of a worker,
// those that are small stand in the completions.
func (o *Options) writeMaps(ctx context.Context, data, deployment string, w *jobsWork, l *jobsLog) (map[uint64]record.Ref, error) {
	lake, err := o.lake(data)
	if err != nil {
		return nil, err
	}
	put := func(key string, b []byte) error {
		return os.WriteFile(filepath.Join(lake, filepath.FromSlash(key)), b, 0o644)
	}
	folder := "_varve/" + deployment + "/maps/"
	if o.lakes == "" {
		// Not through the store, which would wait for the disk with each.
		if err := os.MkdirAll(filepath.Join(lake, filepath.FromSlash(folder)), 0o755); err != nil {
			return nil, fmt.Errorf("make the folder of maps: %w", err)
		}
	} else {
		store, err := objstore.Open(ctx, lake)
		if err != nil {
			return nil, err
		}
		put = func(key string, b []byte) error { return store.Create(ctx, key, b) }
	}
	refs := map[uint64]record.Ref{}
	var mu sync.Mutex
	var group sync.WaitGroup
	var failed error
	room := make(chan struct{}, 32)
	for _, t := range l.tables {
		for n := range w.each {
			files := t.inputs(n)
			in := make([]forward.Input, len(files))
			for i := range in {
				in[i] = forward.Input{File: files[i].File, Hi: jobRows, Rows: jobRows}
			}
			b, err := forwardingMap(in, jobOrder(in))
			if err != nil {
				return nil, err
			}
			if ref, ok := record.InlineMap(b); ok {
				refs[in[0].File] = ref
				continue
			}
			var name [16]byte
			binary.BigEndian.PutUint64(name[:], uint64(t.id))
			binary.BigEndian.PutUint64(name[8:], uint64(n))
			ref := record.Ref{Path: folder + hex.EncodeToString(name[:]), Length: int64(len(b)), Hash: sha256.Sum256(b)}
			refs[in[0].File] = ref
			room <- struct{}{}
			group.Go(func() {
				if err := put(ref.Path, b); err != nil {
					mu.Lock()
					failed = err
					mu.Unlock()
				}
				<-room
			})
		}
	}
	group.Wait()
	return refs, failed
}

// jobsRun is a run under way.
type jobsRun struct {
	o        *Options
	w        *jobsWork
	log      *jobsLog
	topics   topology.Topics
	producer *topology.LogProducer
	maps     map[uint64]record.Ref
	failed   chan error
	metrics  record.Ref
}

// fail remembers the first fault.
func (x *jobsRun) fail(err error) {
	select {
	case x.failed <- err:
	default:
	}
}

// append sends a record that nobody answers but the outcomes topic.
func (x *jobsRun) append(ctx context.Context, t *jobsTable, v any) error {
	r, err := x.log.encode(t.name, t.id, v)
	if err != nil {
		return err
	}
	x.producer.Append(ctx, x.topics.Transactions, 0, entryOf(&r), func(_ int64, err error) {
		if err != nil {
			x.fail(err)
		}
	})
	return nil
}

func (o *Options) jobs(ctx context.Context, w *jobsWork) (_ []Result, err error) {
	w.each = w.jobs / int64(w.tables)
	w.jobs = w.each * int64(w.tables)
	maker := filepath.Join(o.dir, w.name+"-maker")
	log, err := newJobsLog(maker, o.Seed, w)
	if err == nil {
		err = log.st.Close()
	}
	if err = errors.Join(err, os.RemoveAll(maker)); err != nil {
		return nil, err
	}
	o.Logger.Info("log made", "records", len(log.log.setup), "references", w.refs)
	deployment := "bench-" + strconv.FormatUint(rand.Uint64(), 36)
	topics, err := topology.NewTopics(deployment, 1, 1, o.broker == "embedded")
	if err != nil {
		return nil, err
	}
	x := &jobsRun{o: o, w: w, log: log, topics: topics, failed: make(chan error, 1), metrics: record.Ref{Path: "_varve/varve/bodies/m", Length: 1, Hash: record.Hash{2}}}
	spec := nodeSpec{
		Deployment: deployment, Data: filepath.Join(o.dir, w.name), Partitions: 1, Roles: []string{topology.RoleState, topology.RolePlanner}, CPUProfile: o.CPUProfile,
		Jobs: topology.JobOptions{Partitions: 1, MaxJobs: 2 * w.jobs, CheckOutputs: -1}, // there are none
	}
	if x.maps, err = o.writeMaps(ctx, spec.Data, deployment, w, log); err != nil {
		return nil, err
	}
	n, err := o.startNode(ctx, spec)
	if err != nil {
		return nil, err
	}
	defer n.abandon()
	defer func() { err = errors.Join(err, o.dropTopics(topicsOf(deployment)...)) }()
	if x.producer, err = topology.NewLogProducer(o.client, topology.ProducerOptions{}); err != nil {
		return nil, err
	}
	defer x.producer.Close()
	for i := 1; i < len(log.log.setup); i++ {
		r := &log.log.setup[i]
		if i < len(log.log.setup)-1 {
			x.producer.Append(ctx, topics.Transactions, 0, entryOf(r), func(_ int64, err error) {
				if err != nil {
					x.fail(err)
				}
			})
			continue
		}
		if off, err := x.producer.AppendSync(ctx, topics.Transactions, 0, entryOf(r)); err != nil {
			return nil, err
		} else if off != int64(i) {
			return nil, fmt.Errorf("record %d is at offset %d of a new topic", i, off)
		}
	}
	outcomes, err := x.outcomes(ctx)
	if err != nil {
		return nil, err
	}
	defer outcomes.Close()
	if err := x.setUp(ctx, outcomes); err != nil {
		return nil, err
	}
	var before, after nodeReport
	if err := n.ask(ctx, wordSample, &before); err != nil {
		return nil, err
	}
	o.Logger.Info("references applied", "cpu_s", before.CPU, "rss", before.RSS)
	wall, share, err := x.through(ctx, outcomes)
	if err != nil {
		return nil, err
	}
	if err := n.ask(ctx, wordSample, &after); err != nil {
		return nil, err
	}
	if _, err := n.result(ctx); err != nil {
		return nil, err
	}
	cpu := after.CPU - before.CPU
	o.Logger.Info("jobs done", "wall_s", wall, "cpu_s", cpu)
	setup := o.setup(1, "local")
	setup.Rows = w.jobs
	maps, most := "inline", int64(0)
	for _, ref := range x.maps {
		if most = max(most, ref.Length); !ref.Inline() {
			maps = "in the store"
		}
	}
	setup.Note = fmt.Sprintf("%d jobs of %d inputs and an output on %d references of %d tables; %d jobs a plan, up to %d a completion, a map of %d bytes a job, %s",
		w.jobs, jobInputs, w.refs, w.tables, jobsPerPlan, jobsPerDone, most, maps)
	if w.tables > 1 {
		return []Result{{
			Bench: w.name, Figure: share, Unit: "of the mean, the slowest table", Better: Higher, Goal: fairShare,
			Beside: Beside{"the mean of the tables", 1}, CPU: cpu, RSSPeak: after.RSSPeak, Setup: setup,
		}}, nil
	}
	single, batched, err := o.plainJobs(ctx, w)
	if err != nil {
		return nil, err
	}
	through := Result{
		Bench: w.name, Figure: float64(w.jobs) / wall, Unit: "jobs/s", Better: Higher, Goal: jobsGoal,
		Beside: Beside{"a Pebble key per reference, one synced commit a job", single}, CPU: cpu, RSSPeak: after.RSSPeak, Setup: setup,
	}
	node := through
	node.Bench, node.Figure, node.Unit = w.name+".node", float64(w.jobs)/cpu, "jobs/cpu-s"
	node.Beside = Beside{"a Pebble key per reference and partition entry, a batch for every 256 jobs", batched}
	return []Result{through, node}, nil
}

func (x *jobsRun) outcomes(ctx context.Context) (*topology.LogReader, error) {
	return topology.OpenLogReader(ctx, x.o.client, topology.ReaderOptions{Topic: x.topics.Outcomes, MaxWait: 50 * time.Millisecond})
}

// setUp waits until the tables' files are there.
func (x *jobsRun) setUp(ctx context.Context, r *topology.LogReader) error {
	last := int64(len(x.log.log.setup)) - 1
	return followOutcomes(ctx, r, x.failed, func(m *record.OutcomeMessage) bool { return m.Offset == last })
}

// through plans all jobs and does the workers' part, until the log says that all
// are done. share is what the table that was behind most had of the mean, when
// the first was done.
func (x *jobsRun) through(ctx context.Context, r *topology.LogReader) (wall, share float64, err error) {
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	jobs, err := topology.OpenLogReader(ctx, x.o.client, topology.ReaderOptions{Topic: x.topics.Jobs, MaxWait: 20 * time.Millisecond})
	if err != nil {
		return 0, 0, err
	}
	group.Go(func() {
		defer jobs.Close()
		if err := x.work(ctx, jobs); ctx.Err() == nil {
			x.fail(err)
		}
	})
	began := time.Now()
	for left := true; left; { // the tables take turns
		left = false
		for _, t := range x.log.tables {
			p := &record.PlanJobs{}
			for range min(jobsPerPlan, x.w.each-t.planned) {
				p.Items = append(p.Items, record.PlanItem{Strategy: "bench", Inputs: t.inputs(t.planned)})
				t.planned++
			}
			if len(p.Items) > 0 {
				left = true
				if err := x.append(ctx, t, p); err != nil {
					return 0, 0, err
				}
			}
		}
	}
	byID := map[int64]*jobsTable{}
	for _, t := range x.log.tables {
		byID[t.id] = t
	}
	done, ended := int64(0), false
	err = followOutcomes(ctx, r, x.failed, func(m *record.OutcomeMessage) bool {
		if !m.Outcome.Changed { // a plan
			return false
		}
		t := byID[m.TableID]
		t.done += m.Outcome.Numbers[0]
		done += m.Outcome.Numbers[0]
		if t.done == x.w.each && !ended {
			ended = true
			least := slices.MinFunc(x.log.tables, func(a, b *jobsTable) int { return int(a.done - b.done) })
			share = float64(least.done) * float64(x.w.tables) / float64(done)
		}
		return done == x.w.jobs
	})
	return time.Since(began).Seconds(), share, err
}

// work answers each dispatched job with its completion, without touching data,
// until ctx ends or something fails.
func (x *jobsRun) work(ctx context.Context, jobs *topology.LogReader) error {
	byID := map[int64]*jobsTable{}
	for _, t := range x.log.tables {
		byID[t.id] = t
	}
	ready := map[*jobsTable]*record.CompleteJob{}
	var names uint64
	for {
		rs, err := jobs.Poll(ctx, 20*time.Millisecond, 0)
		if err != nil {
			return err
		}
		for i := range rs {
			if record.IsHeartbeat(rs[i].Value) {
				continue
			}
			var d record.Dispatch
			if err := record.DecodeDispatch(rs[i].Value, &d); err != nil {
				return err
			}
			t := byID[d.TableID]
			names++
			out := record.JobOutput{Rows: jobInputs * jobRows, Bytes: 25_000}
			binary.BigEndian.PutUint64(out.Name[:], names)
			c := ready[t]
			if c == nil {
				c = &record.CompleteJob{Metrics: &x.metrics}
				ready[t] = c
			}
			c.Items = append(c.Items, record.CompletedJob{Job: d.Job, Sorted: true, Outputs: []record.JobOutput{out}, Map: x.maps[d.Inputs[0].File]})
			if len(c.Items) == jobsPerDone {
				delete(ready, t)
				if err := x.append(ctx, t, c); err != nil {
					return err
				}
			}
		}
		for _, t := range x.log.tables { // no company comes for these
			if c := ready[t]; c != nil {
				delete(ready, t)
				if err := x.append(ctx, t, c); err != nil {
					return err
				}
			}
		}
	}
}

// plainJobs swaps references in the way that comes to mind first, on as many
// references: a key per file and one in an index by partition. single is jobs a
// second with a synced commit each, batched jobs a second of processor time.
func (o *Options) plainJobs(ctx context.Context, w *jobsWork) (single, batched float64, err error) {
	dir := filepath.Join(o.dir, w.name+"-plain")
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	st, err := openPlainState(dir, true, o.Logger)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	value := binary.AppendVarint(binary.AppendVarint(nil, jobRows), 3000)
	add := func(b *pebble.Batch, f uint64) error {
		return errors.Join(b.Set(plainKey('f', 1, f), value, nil), b.Set(plainKey('p', 1, 0, f), nil, nil))
	}
	for from := int64(0); from < w.refs; from += filesPerAppend {
		b := st.db.NewBatch()
		for f := from; f < min(from+filesPerAppend, w.refs); f++ {
			if err := add(b, uint64(f)); err != nil {
				return 0, 0, err
			}
		}
		if err := b.Commit(pebble.NoSync); err != nil {
			return 0, 0, err
		}
	}
	job := func(b *pebble.Batch, n int64) error {
		for i := range int64(jobInputs) {
			f := uint64(n*jobInputs + i)
			_, closer, err := b.Get(plainKey('f', 1, f))
			if err != nil {
				return fmt.Errorf("read the plain state: %w", err)
			}
			err = errors.Join(closer.Close(), b.Delete(plainKey('f', 1, f), nil), b.Delete(plainKey('p', 1, 0, f), nil))
			if err != nil {
				return err
			}
		}
		return errors.Join(add(b, uint64(w.refs+n)), b.Set(plainKey('o', uint64(n)), []byte{1}, nil))
	}
	swap := func(from, to, each int64, how *pebble.WriteOptions) error {
		for ; from < to; from += each {
			b := st.db.NewIndexedBatch()
			for n := from; n < min(from+each, to); n++ {
				if err := job(b, n); err != nil {
					return errors.Join(err, b.Close())
				}
			}
			if err := b.Commit(how); err != nil {
				return fmt.Errorf("write the plain state: %w", err)
			}
		}
		return nil
	}
	few := min(plainJobs, w.jobs/2)
	began := time.Now()
	if err := swap(0, few, 1, pebble.Sync); err != nil {
		return 0, 0, err
	}
	single = float64(few) / time.Since(began).Seconds()
	used, err := cpuOf(ctx, func() error {
		if err := swap(few, w.jobs, jobsPerDone, pebble.NoSync); err != nil {
			return err
		}
		return st.db.Flush()
	})
	return single, float64(w.jobs-few) / used, err
}
