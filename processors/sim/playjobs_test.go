package sim

import (
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/varve-io/varve/processors/compactor"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
)

// files are the data files of the state that no job holds and that have rows.
func (p *play) files() []*statestore.FileInfo {
	p.t.Helper()
	var all []*statestore.FileInfo
	p.must(p.m.store.Files(p.tableID, func(f *statestore.FileInfo) error {
		if !f.Gone && !f.Job {
			all = append(all, f)
		}
		return nil
	}))
	return all
}

// plan assigns files, by default all, to one job a partition, and gives what is
// dispatched. What has changed is published first (S9).
func (p *play) plan(files []uint64) []*record.Dispatch {
	p.t.Helper()
	p.publish()
	r := &record.PlanJobs{}
	at := map[string]int{}
	for _, f := range p.files() {
		if files != nil && !slices.Contains(files, f.ID) {
			continue
		}
		i, ok := at[string(f.Partition)]
		if !ok {
			i = len(r.Items)
			at[string(f.Partition)] = i
			r.Items = append(r.Items, record.PlanItem{Strategy: "test"})
		}
		r.Items[i].Inputs = append(r.Items[i].Inputs, record.JobInput{File: f.ID, Hi: f.Rows})
	}
	if len(r.Items) == 0 {
		return nil
	}
	p.dispatched = nil
	out := p.told(r)
	if out.Code == record.Rejected && len(p.dispatched) > 0 {
		p.t.Fatalf("a plan was rejected (%s) and %d jobs were dispatched", out.Reason, len(p.dispatched))
	}
	return once(p.dispatched)
}

// told appends a record and gives its outcome.
func (p *play) told(v any) record.Outcome {
	p.t.Helper()
	p.must(p.request(tableName, p.tableID, v))
	p.apply()
	return p.decided[len(p.decided)-1].Outcome.Outcome
}

// once leaves out attempts that two members told of.
func once(all []*record.Dispatch) (out []*record.Dispatch) {
	for _, d := range all {
		if !slices.ContainsFunc(out, func(x *record.Dispatch) bool { return x.Job == d.Job }) {
			out = append(out, d)
		}
	}
	return out
}

// compact plans jobs of these files, by default all, and executes them. They are
// not completed.
func (p *play) compact(files []uint64) []*compactor.Done {
	p.t.Helper()
	var done []*compactor.Done
	for _, d := range p.plan(files) {
		x, err := p.execute(d)
		p.must(err)
		done = append(done, x)
	}
	return done
}

// complete tells of executed jobs, and gives the outcome.
func (p *play) complete(done ...*compactor.Done) record.Outcome {
	p.t.Helper()
	if len(done) == 0 {
		return record.Outcome{}
	}
	c, err := compactor.Complete(p.ctx, p.bodies, done)
	p.must(err)
	return p.told(c)
}

// strikeAt deletes positions of a file, as it was when they were taken.
func (p *play) strikeAt(f *statestore.FileInfo, positions ...uint32) record.Outcome {
	p.t.Helper()
	p.must(p.strike(f, roaring.BitmapOf(positions...)))
	p.apply()
	return p.decided[len(p.decided)-1].Outcome.Outcome
}

func bitmapOf(positions ...int) *roaring.Bitmap {
	b := roaring.New()
	for _, p := range positions {
		b.AddInt(p)
	}
	return b
}
