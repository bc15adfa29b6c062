package bench

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"time"

	"github.com/varve-io/varve/schemas/forward"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
)

const (
	statePartitions = 1_000
	stateMemory     = 512 << 20 // bytes, resident
	stateOpen       = 1         // second
	stateList       = 20        // milliseconds, one of a hundred may take longer
	// refsShare and jobsShare are what a state of ten times as many references
	// must reach of the smaller one's speed.
	refsShare, jobsShare = 0.8, 0.4
	stateLists           = 1_000
	// stateLimit is what a node with one state tells the runtime to keep to.
	stateLimit = 320 << 20
)

// stateTask measures a state that lies in a folder, in a process of its own.
type stateTask struct {
	Dir  string
	Seed uint64
	Next int64 // log offset
	// The table's last records.
	Table jobsTableState
	Refs  int64 // that are added
	Jobs  int64 // that are done
	// CPUProfile is a file for the profile of these.
	CPUProfile string
	Memory     int64 // limit, as a node's
}

// jobsTableState is a jobsTable for another process.
type jobsTableState struct {
	Name    string
	ID      int64
	First   uint64
	Shard   record.ShardKey
	Epoch   int64
	Request int64
	Files   int64
	Head    record.SnapshotCommitted
}

func (t *jobsTable) state() jobsTableState {
	return jobsTableState{t.name, t.id, t.first, t.shard, t.epoch, t.request, t.files, t.head}
}

func (s *jobsTableState) table() *jobsTable {
	return &jobsTable{name: s.Name, id: s.ID, first: s.First, shard: s.Shard, epoch: s.Epoch, request: s.Request, files: s.Files, head: s.Head}
}

type stateReport struct {
	Open    float64 // seconds, by the clock
	List    float64 // milliseconds, the 99th of a hundred
	Refs    float64 // added a second of processor time
	Jobs    float64 // planned, dispatched and completed a second of processor time
	CPU     float64
	RSSPeak int64
}

// runState measures a state of so many references, and one of a tenth of them.
func runState(ctx context.Context, o *Options) ([]Result, error) {
	large, err := o.stateOf(ctx, o.Rows)
	if err != nil {
		return nil, err
	}
	small, err := o.stateOf(ctx, o.Rows/10)
	if err != nil {
		return nil, err
	}
	beside := func(x float64) Beside { return Beside{"the same with a tenth of the references", x} }
	out := []Result{
		{Bench: "state.rss", Figure: float64(large.RSSPeak), Unit: "bytes at most", Better: Lower, Goal: stateMemory, Beside: beside(float64(small.RSSPeak))},
		{Bench: "state.open", Figure: large.Open, Unit: "s", Better: Lower, Goal: stateOpen, Beside: beside(small.Open)},
		{Bench: "state.list", Figure: large.List, Unit: "ms to list a partition, p99", Better: Lower, Goal: stateList, Beside: beside(small.List)},
		{Bench: "state.refs", Figure: large.Refs, Unit: "references/cpu-s", Better: Higher, Goal: refsShare * small.Refs, Beside: beside(small.Refs)},
		{Bench: "state.jobs", Figure: large.Jobs, Unit: "jobs/cpu-s", Better: Higher, Goal: jobsShare * small.Jobs, Beside: beside(small.Jobs)},
	}
	for i := range out {
		x := &out[i]
		x.CPU, x.RSSPeak, x.Setup = large.CPU, large.RSSPeak, o.setup(1, "none")
		x.Setup.Broker = "none"
		x.Setup.Note = fmt.Sprintf("%d partitions; %d files a record; jobs of %d inputs, %d a completion, their maps at hand", statePartitions, filesPerAppend, jobInputs, jobsPerDone)
	}
	return out, nil
}

// stateOf makes a state of so many references and measures it in a process of its own.
func (o *Options) stateOf(ctx context.Context, refs int64) (_ *stateReport, err error) {
	dir := filepath.Join(o.dir, fmt.Sprint("state-", refs))
	w := &jobsWork{name: "state", tables: 1, refs: refs, partitions: statePartitions, apply: true}
	log, err := newJobsLog(dir, o.Seed, w)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(log.st.Flush(), log.st.Close()); err != nil {
		return nil, err
	}
	o.Logger.Info("state made", "references", refs)
	task := &stateTask{Dir: dir, Seed: o.Seed, Next: log.next, Table: log.tables[0].state(), Refs: refs / 20, Jobs: refs / jobInputs / 20, Memory: stateLimit}
	if refs == o.Rows {
		task.CPUProfile = o.CPUProfile
	}
	p, err := o.startNode(ctx, nodeSpec{State: task})
	if err != nil {
		return nil, err
	}
	defer p.abandon()
	var r stateReport
	if err := p.out.Decode(&r); err != nil {
		return nil, p.failed(ctx, err)
	}
	if err := p.cmd.Wait(); err != nil {
		return nil, fmt.Errorf("the process with the state: %w; its last words: %s", err, p.log)
	}
	return &r, nil
}

func (t *stateTask) run(ctx context.Context, out *json.Encoder) (err error) {
	l := &jobsLog{commitLogMaker: commitLogMaker{rng: rand.New(rand.NewPCG(t.Seed, 6)), next: t.Next, apply: true}, partitions: statePartitions}
	x := t.Table.table()
	debug.SetMemoryLimit(t.Memory)
	began := time.Now()
	if l.st, err = statestore.Open(t.Dir, statestore.Options{}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.st.Close()) }()
	if _, err := l.st.Table(x.name); err != nil {
		return err
	}
	r := stateReport{Open: time.Since(began).Seconds()}
	if r.List, err = t.list(l, x); err != nil {
		return err
	}
	used, err := cpuOf(ctx, func() error {
		for done := int64(0); done < t.Refs; done += filesPerAppend {
			if err := l.grow(x, min(filesPerAppend, t.Refs-done)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	r.Refs, r.CPU = float64(t.Refs)/used, used
	maps, err := os.Create(t.Dir + ".maps")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, maps.Close()) }()
	work, err := t.draw(l, x, maps)
	if err != nil {
		return err
	}
	if _, err := maps.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if used, err = cpuOf(ctx, func() error {
		return profiled(t.CPUProfile, func() error { return doJobs(ctx, l, x, work, bufio.NewReader(maps)) })
	}); err != nil {
		return err
	}
	r.Jobs, r.CPU = float64(t.Jobs)/used, r.CPU+used
	if r.RSSPeak, err = rssPeak(); err != nil {
		return err
	}
	return out.Encode(&r)
}

// list lists partitions at random.
func (t *stateTask) list(l *jobsLog, x *jobsTable) (float64, error) {
	var took []time.Duration
	for range stateLists {
		n := l.rng.Int64N(statePartitions) * jobInputs
		want := int64(0) // of its groups of files
		for g := n / jobInputs; g*jobInputs < x.files; g += statePartitions {
			want += min(jobInputs, x.files-g*jobInputs)
		}
		got := int64(0)
		began := time.Now()
		if err := l.st.PartitionFiles(x.id, 0, l.partition(n), func(uint64) error {
			got++
			return nil
		}); err != nil {
			return 0, err
		}
		took = append(took, time.Since(began))
		if got != want {
			return 0, fmt.Errorf("partition %d has %d files, want %d", n/jobInputs, got, want)
		}
	}
	slices.Sort(took)
	return float64(took[len(took)*99/100].Microseconds()) / 1000, nil
}

// stateJob is a job and what a worker would have made of it.
type stateJob struct {
	group int64 // of its inputs
	hash  record.Hash
	size  int
}

// draw chooses jobs at random places of the table, and does the workers' part: their
// maps are in a file, one after the other, for they are no part of a state.
func (t *stateTask) draw(l *jobsLog, x *jobsTable, maps *os.File) ([]stateJob, error) {
	var all []stateJob
	w := bufio.NewWriter(maps)
	for _, g := range l.rng.Perm(int(x.files / jobInputs))[:t.Jobs] {
		inputs := x.inputs(int64(g))
		in := make([]forward.Input, len(inputs))
		for i := range in {
			in[i] = forward.Input{File: inputs[i].File, Hi: jobRows, Rows: jobRows}
		}
		text, err := forwardingMap(in, jobOrder(in))
		if err != nil {
			return nil, err
		}
		if _, err := w.Write(text); err != nil {
			return nil, err
		}
		all = append(all, stateJob{int64(g), record.Hash(sha256.Sum256(text)), len(text)})
	}
	return all, w.Flush()
}

// completed is what the n-th job's worker says.
func (j *stateJob) completed(n int, id record.JobID) record.CompletedJob {
	o := record.JobOutput{Rows: jobInputs * jobRows, Bytes: 25_000}
	binary.BigEndian.PutUint64(o.Name[:], uint64(n)+1)
	return record.CompletedJob{
		Job: id, Sorted: true, Outputs: []record.JobOutput{o},
		Map: record.Ref{Path: "_varve/varve/maps/" + hex.EncodeToString(j.hash[:16]), Length: int64(j.size), Hash: j.hash},
	}
}

// doJobs plans, dispatches and completes jobs.
func doJobs(ctx context.Context, l *jobsLog, x *jobsTable, all []stateJob, maps io.Reader) error {
	n := 0
	for plan := range slices.Chunk(all, jobsPerPlan) {
		if err := ctx.Err(); err != nil {
			return err
		}
		p := &record.PlanJobs{}
		for i := range plan {
			p.Items = append(p.Items, record.PlanItem{Strategy: "bench", Inputs: x.inputs(plan[i].group)})
		}
		if _, err := l.do(x.name, x.id, p); err != nil {
			return err
		}
		box, err := l.st.Commit()
		if err != nil {
			return err
		}
		c := &record.CompleteJob{Metrics: &record.Ref{Path: "_varve/varve/bodies/m", Length: 1, Hash: record.Hash{2}}}
		for i := range plan {
			d, _, err := l.st.Dispatch(&box.Jobs[i])
			if err != nil || d == nil {
				return errors.Join(err, errors.New("a job cannot be dispatched"))
			}
			text := make([]byte, plan[i].size)
			if _, err := io.ReadFull(maps, text); err != nil {
				return err
			}
			l.st.ProvideMap(plan[i].hash, text)
			c.Items = append(c.Items, plan[i].completed(n, d.Job))
			n++
			if len(c.Items) < jobsPerDone && i < len(plan)-1 {
				continue
			}
			if _, err := l.do(x.name, x.id, c); err != nil {
				return err
			}
			if _, err := l.st.Commit(); err != nil {
				return err
			}
			l.st.Sent(l.next - 1)
			c.Items = c.Items[:0]
		}
	}
	return l.st.Flush()
}
