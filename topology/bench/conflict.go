package bench

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/varve-io/varve/schemas/dv"
	"github.com/varve-io/varve/schemas/forward"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
)

// conflictBatch is how many jobs are under way at a time.
const conflictBatch = 500

// conflictRun has compactions and deletes meet on the same files.
type conflictRun struct {
	log     *jobsLog
	t       *jobsTable
	jobs    []*conflictJob // of the batch
	done    int64
	alone   int64 // no delete landed on their inputs between plan and completion
	deleted int64
}

// conflictJob is a job, with a model of the rows that it carries over.
type conflictJob struct {
	inputs []forward.Input
	order  []byte
	dead   []*roaring.Bitmap // of each input, all that was ever deleted
	carry  []*roaring.Bitmap // of each input, what was alive when it was planned
	notice statestore.JobNotice
	spared bool // nothing is deleted while it is under way
}

// runConflict completes compactions whose inputs lose rows before they are
// planned, while they are under way and after they are done. None may be lost,
// and of each row that was deleted the newest copy must be dead, and no other.
func runConflict(ctx context.Context, o *Options) (_ []Result, err error) {
	w := &jobsWork{name: "conflict", tables: 1, refs: o.Rows * jobInputs, jobs: o.Rows, each: o.Rows, apply: true}
	log, err := newJobsLog(filepath.Join(o.dir, w.name), o.Seed, w)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, log.st.Close()) }()
	x := &conflictRun{log: log, t: log.tables[0]}
	cpu, err := cpuOf(ctx, func() error {
		for x.t.planned < w.each {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := x.batch(min(conflictBatch, w.each-x.t.planned)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	r := Result{
		Bench: "conflict", Figure: float64(x.done), Unit: "compactions completed", Better: Higher, Goal: float64(w.jobs),
		Beside: Beside{"those that a validation against new deletes of their files lets through, as Iceberg's RewriteFiles has it", float64(x.alone)},
		CPU:    cpu, Setup: o.setup(0, "none"),
	}
	r.Setup.Broker, r.Setup.Threads = "none", 1
	r.Setup.Note = fmt.Sprintf("%d inputs of %d rows each; %d rows deleted before, during and after; the dead rows of every output held against a model", jobInputs, jobRows, x.deleted)
	if r.RSSPeak, err = rssPeak(); err != nil {
		return nil, err
	}
	if x.done < w.jobs {
		err = fmt.Errorf("%w: %d of %d compactions were lost", ErrMissed, w.jobs-x.done, w.jobs)
	}
	return []Result{r}, err
}

// kill deletes some rows of each job's inputs, whether or not they are there
// any more, or died before.
func (x *conflictRun) kill(during bool) error {
	d := &record.DeletePositions{}
	for _, j := range x.jobs {
		if during && j.spared {
			continue
		}
		for i := range j.inputs {
			if x.log.rng.IntN(3) > 0 && (i > 0 || !during) {
				continue
			}
			set := roaring.New()
			for range 1 + x.log.rng.IntN(3) {
				set.Add(x.log.rng.Uint32N(jobRows))
			}
			b, err := dv.AppendBitmap(nil, set)
			if err != nil {
				return err
			}
			d.Deletes = append(d.Deletes, record.DeleteBlock{File: j.inputs[i].File, Bitmap: b})
			j.dead[i].Or(set)
			x.deleted += int64(set.GetCardinality())
		}
	}
	_, err := x.log.do(x.t.name, x.t.id, d)
	return err
}

func (x *conflictRun) batch(n int64) error {
	x.jobs = x.jobs[:0]
	p := &record.PlanJobs{}
	for range n {
		files := x.t.inputs(x.t.planned)
		x.t.planned++
		j := &conflictJob{spared: x.log.rng.IntN(10) == 0}
		for _, f := range files {
			j.inputs = append(j.inputs, forward.Input{File: f.File, Hi: uint32(f.Hi)})
			j.dead = append(j.dead, roaring.New())
		}
		x.jobs = append(x.jobs, j)
		p.Items = append(p.Items, record.PlanItem{Strategy: "bench", Inputs: files})
	}
	if err := x.kill(false); err != nil {
		return err
	}
	for _, j := range x.jobs {
		for i := range j.inputs {
			alive := roaring.New()
			alive.AddRange(0, jobRows)
			alive.AndNot(j.dead[i])
			j.carry = append(j.carry, alive)
			j.inputs[i].Rows = alive.GetCardinality()
		}
		j.order = jobOrder(j.inputs)
	}
	if _, err := x.log.do(x.t.name, x.t.id, p); err != nil {
		return err
	}
	box, err := x.log.st.Commit()
	if err != nil {
		return err
	}
	if len(box.Jobs) != len(x.jobs) {
		return fmt.Errorf("%d jobs were planned, %d can be dispatched", len(x.jobs), len(box.Jobs))
	}
	for i, j := range x.jobs {
		j.notice = box.Jobs[i]
		if j.spared {
			x.alone++
		}
	}
	if err := x.kill(true); err != nil {
		return err
	}
	first, err := x.complete()
	if err != nil {
		return err
	}
	if err := x.kill(false); err != nil {
		return err
	}
	if err := x.check(first); err != nil {
		return err
	}
	if _, err := x.log.st.Commit(); err != nil {
		return err
	}
	x.log.st.Sent(x.log.next - 1)
	return nil
}

// complete does the workers' part, and says which file the first output became.
func (x *conflictRun) complete() (first uint64, err error) {
	c := &record.CompleteJob{Metrics: &record.Ref{Path: "_varve/varve/bodies/m", Length: 1, Hash: record.Hash{2}}}
	for i, j := range x.jobs {
		d, _, err := x.log.st.Dispatch(&j.notice)
		if err != nil || d == nil {
			return 0, errors.Join(err, fmt.Errorf("job %d cannot be dispatched", i))
		}
		for k := range d.Inputs {
			j.inputs[k].Dead = d.Inputs[k].Dead
		}
		b, err := forwardingMap(j.inputs, j.order)
		if err != nil {
			return 0, err
		}
		hash := record.Hash(sha256.Sum256(b))
		x.log.st.ProvideMap(hash, b)
		out := record.JobOutput{Rows: int64(len(j.order)), Bytes: 25_000}
		binary.BigEndian.PutUint64(out.Name[:], uint64(x.done)+1)
		x.done++
		c.Items = append(c.Items, record.CompletedJob{
			Job: j.notice.Job, Sorted: true, Outputs: []record.JobOutput{out},
			Map: record.Ref{Path: "_varve/varve/maps/" + hex.EncodeToString(hash[:16]), Length: int64(len(b)), Hash: hash},
		})
	}
	o, err := x.log.do(x.t.name, x.t.id, c)
	if err != nil {
		return 0, err
	}
	return uint64(o.Outcome.Numbers[2]), nil
}

// check holds the dead rows of each output against the model.
func (x *conflictRun) check(first uint64) error {
	outputs := map[uint64]*statestore.FileInfo{}
	if err := x.log.st.Files(x.t.id, func(f *statestore.FileInfo) error {
		if f.ID >= first && f.ID < first+uint64(len(x.jobs)) {
			outputs[f.ID] = f
		}
		return nil
	}); err != nil {
		return err
	}
	for n, j := range x.jobs {
		want := roaring.New()
		walk := make([]roaring.IntPeekable, len(j.carry))
		for i := range walk {
			walk[i] = j.carry[i].Iterator()
		}
		for row, i := range j.order {
			if p := walk[i].Next(); j.dead[i].Contains(p) {
				want.Add(uint32(row))
			}
		}
		f := outputs[first+uint64(n)]
		if f == nil {
			return fmt.Errorf("job %d: its output is not there", n)
		}
		got := roaring.New()
		if f.Dead != nil {
			var err error
			if got, err = dv.ReadBitmap(f.Dead); err != nil {
				return err
			}
		}
		if !got.Equals(want) {
			return fmt.Errorf("job %d: %d rows of its output are dead, %d must be; as many differ: %d", n, got.GetCardinality(), want.GetCardinality(), roaring.Xor(got, want).GetCardinality())
		}
	}
	return nil
}
