package sim

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/varve-io/varve/processors/compactor"
	"github.com/varve-io/varve/processors/state"
	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/dv"
	"github.com/varve-io/varve/schemas/forward"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/schemas/rows"
	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/statestore/objstore"
)

// dispatch puts the attempts that a member tells of into the jobs topic. All of
// them are perhaps there again (L11).
func (m *member) dispatch() error {
	p := state.Dispatcher{Store: m.store, Bodies: m.w.bodies}
	for _, n := range m.machine.Jobs() {
		if n.Find {
			d, err := p.Find(m.w.ctx, &n)
			if err != nil {
				return err
			}
			if d != nil {
				m.w.finds = append(m.w.finds, d)
				m.w.sent(d.Job)
			}
			continue
		}
		d, err := p.Dispatch(m.w.ctx, &n)
		if err != nil {
			return err
		}
		if d != nil {
			m.w.dispatched = append(m.w.dispatched, d)
			m.w.sent(d.Job)
		}
	}
	return nil
}

// sent notes that an attempt was dispatched.
func (w *World) sent(id record.JobID) {
	if w.ever == nil {
		w.ever = map[record.JobID]bool{}
	}
	w.ever[id] = true
}

// jobStep is one thing that planner, workers and senders of positions do.
func (w *World) jobStep() error {
	m := w.pickMember()
	if w.opt.Where && w.rng.Intn(3) == 0 {
		return w.findStep(m)
	}
	if w.opt.Tree && w.rng.Intn(4) == 0 {
		return w.treeStep(m)
	}
	switch n := w.rng.Intn(10); {
	case n < 4:
		if w.opt.Settled && w.rng.Intn(4) > 0 {
			if err := w.settleSome(m); err != nil {
				return err
			}
		}
		return w.planSome(m)
	case n < 7:
		if len(w.dispatched) == 0 {
			return nil
		}
		i := w.rng.Intn(len(w.dispatched))
		done, err := w.execute(w.dispatched[i])
		if w.opt.Garbage && errors.Is(err, objstore.ErrNotFound) {
			return w.tooLate(i, err)
		}
		if err != nil {
			return err
		}
		w.executed = append(w.executed, done)
		if w.rng.Intn(4) > 0 { // else it will be executed again
			w.dispatched = slices.Delete(w.dispatched, i, i+1)
		}
	case n < 9:
		return w.tell(m)
	case w.rng.Intn(4) == 0:
		return w.release(m)
	case !w.scripted:
		return w.strikeSome()
	}
	return nil
}

// settleSome lets owners take what is held, and publishes it, as far as a few rounds go.
func (w *World) settleSome(m *member) error {
	for range 12 {
		for _, o := range slices.Clone(w.owners) {
			if err := o.deliverDecided(1 << 20); err != nil {
				return err
			}
			o.shard.FlushSoon()
			o.tick()
			if err := o.wake(); err != nil {
				return err
			}
			for len(o.net.queue) > 0 {
				o.net.deliver()
			}
		}
		if err := m.apply(1 << 20); err != nil {
			return err
		}
		t, err := m.store.Table(tableName)
		if err != nil || t == nil {
			return err
		}
		if len(t.Held)+len(t.Requests) > 0 {
			continue
		}
		w.now += 1000
		m.machine.Tick(w.ctx, w.now)
		if err := errors.Join(m.machine.Err(), w.arrive(m)); err != nil {
			return err
		}
		return w.upToDate(m)
	}
	return nil
}

// planSome plans one or two jobs: mostly of files that are free, as the member
// knows them, now and then of any.
func (w *World) planSome(m *member) error {
	t, err := m.store.Table(tableName)
	if err != nil || t == nil || len(t.Requests) > 0 && w.rng.Intn(20) > 0 {
		return err // what is not settled is mostly waited for
	}
	var all []*statestore.FileInfo
	if err := m.store.Files(w.tableID, func(f *statestore.FileInfo) error {
		all = append(all, f)
		return nil
	}); err != nil {
		return err
	}
	refs, err := w.references(m, all)
	if err != nil {
		return err
	}
	p := &record.PlanJobs{}
	for range 1 + w.rng.Intn(2) {
		wild := w.rng.Intn(8) == 0
		w.rng.Shuffle(len(refs), func(i, j int) { refs[i], refs[j] = refs[j], refs[i] })
		var first *planned
		item := record.PlanItem{Strategy: "sim"}
		if w.rng.Intn(3) == 0 {
			item.TargetBytes = 1 // many outputs
		}
		for i := range refs {
			f := &refs[i]
			if len(item.Inputs) > w.rng.Intn(4) {
				break
			}
			if !wild && !f.free {
				continue
			}
			if first == nil {
				first = f
			}
			if wild || bytes.Equal(f.file.Partition, first.file.Partition) && f.node == first.node {
				item.Inputs = append(item.Inputs, record.JobInput{File: f.file.ID, Lo: f.lo, Hi: f.hi})
			}
		}
		if len(item.Inputs) > 0 {
			p.Items = append(p.Items, item)
		}
	}
	if len(p.Items) == 0 {
		return nil
	}
	return w.enqueue(m, p)
}

// inlineMaps are the executors' limits, by the seed: forwarding maps are objects, all
// that a world has stand in their completions (F23), or some do.
var inlineMaps = []int{-1, record.MaxInlineMap, 100}

func (w *World) executor() *compactor.Executor {
	limit := inlineMaps[w.opt.Seed%int64(len(inlineMaps))]
	return &compactor.Executor{Store: w.mem, Bodies: w.bodies, InlineMaps: limit, Fresh: func() (name [16]byte) {
		w.serial++
		binary.BigEndian.PutUint64(name[:], uint64(w.serial))
		return name
	}}
}

func (w *World) execute(d *record.Dispatch) (*compactor.Done, error) {
	done, err := w.executor().Execute(w.ctx, d, nil)
	if err != nil {
		return nil, fmt.Errorf("execute job %d.%d: %w", d.Job.Plan, d.Job.Item, err)
	}
	if done.Job.Map.Inline() {
		w.saw["map inline"]++
	} else {
		w.saw["map an object"]++
	}
	if done.Result.SameKey > 0 {
		return nil, fmt.Errorf("job %d.%d has two live rows of one key", d.Job.Plan, d.Job.Item)
	}
	return done, nil
}

// tell completes some of the executed jobs, and may do so again.
func (w *World) tell(m *member) error {
	if len(w.executed) == 0 {
		return nil
	}
	n := 1 + w.rng.Intn(min(2, len(w.executed)))
	c, err := compactor.Complete(w.ctx, w.bodies, w.executed[:n])
	if err != nil {
		return err
	}
	if w.rng.Intn(6) > 0 {
		w.executed = w.executed[n:]
	}
	return w.enqueue(m, c)
}

func (w *World) release(m *member) error {
	var open []record.JobID
	if err := m.store.OpenJobs(w.tableID, func(j *statestore.JobInfo) error {
		open = append(open, j.Job)
		return nil
	}); err != nil || len(open) == 0 {
		return err
	}
	return w.enqueue(m, &record.ReleaseJob{Items: []record.ReleasedJob{{Job: open[w.rng.Intn(len(open))], Again: w.rng.Intn(2) == 0}}, Cause: "sim"})
}

// finishJobs has every job that is open executed and completed.
func (w *World) finishJobs() error {
	open := map[record.JobID]bool{}
	if err := w.members[0].store.OpenJobs(w.tableID, func(j *statestore.JobInfo) error {
		open[j.Job] = true
		return nil
	}); err != nil {
		return err
	}
	var all []*compactor.Done
	for _, d := range w.dispatched {
		if !open[d.Job] {
			continue
		}
		delete(open, d.Job)
		done, err := w.execute(d)
		if err != nil {
			return err
		}
		all = append(all, done)
	}
	w.dispatched = nil
	if err := w.finishFinds(open); err != nil {
		return err
	}
	// A worker that nothing is heard of any more: its job is released and done again.
	silent := &record.ReleaseJob{Cause: "sim"}
	for _, id := range w.sortedJobs(open) {
		if !w.ever[id] {
			return fmt.Errorf("%w: job %+v is open and was never dispatched", errStuck, id)
		}
		silent.Items = append(silent.Items, record.ReleasedJob{Job: id, Again: true})
	}
	if len(silent.Items) > 0 {
		if err := w.request(tableName, w.tableID, silent); err != nil {
			return err
		}
	}
	if len(all) == 0 {
		return nil
	}
	c, err := compactor.Complete(w.ctx, w.bodies, all)
	if err != nil {
		return err
	}
	return w.request(tableName, w.tableID, c)
}

func (w *World) sortedJobs(set map[record.JobID]bool) []record.JobID {
	var all []record.JobID
	for id := range set {
		all = append(all, id)
	}
	slices.SortFunc(all, func(a, b record.JobID) int {
		return cmp.Or(cmp.Compare(a.Plan, b.Plan), cmp.Compare(a.Item, b.Item), cmp.Compare(a.Attempt, b.Attempt))
	})
	return all
}

// struckRows are the values of rows of a file: they name versions.
type struckRows struct {
	file   uint64
	values []int64
}

// in says whether a version that another writer's file brought, or none, is in the
// file. A copy of a version is another one.
func (m *model) in(s *struckRows, theirs uint64) bool {
	from, job := m.origins[s.file]
	switch {
	case job:
		return from[theirs]
	case s.file >= statestore.FileID(statestore.ForeignWriter, 0):
		return theirs == s.file
	}
	return theirs == 0
}

// completed notes which files of other writers the rows of jobs' outputs came from, 0:
// from none, and holds the outputs' ids against F24.
func (m *model) completed(o *record.OutcomeMessage, r *record.CompleteJob) error {
	rejected, err := o.Outcome.Rejected(len(r.Items))
	if err != nil {
		return err
	}
	next := uint64(o.Outcome.Numbers[2])
	for i := range r.Items {
		if rejected[i] {
			continue
		}
		x := &r.Items[i]
		b, err := m.w.bodies.Map(m.w.ctx, &x.Map)
		if err != nil {
			return err
		}
		fwd, err := forward.Open(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return err
		}
		from := map[uint64]bool{}
		first, unsorted := next, false
		for _, in := range fwd.Inputs() {
			unsorted = unsorted || statestore.IsUnsorted(in.File)
			was, job := m.origins[in.File]
			switch {
			case job:
				maps.Copy(from, was)
			case in.File >= statestore.FileID(statestore.ForeignWriter, 0):
				from[in.File] = true
			default:
				from[0] = true
			}
			if statestore.IsForeign(in.File) {
				m.w.saw["file of another writer compacted"]++
			} else if statestore.IsUnsorted(in.File) {
				m.w.saw["unsorted output compacted"]++
			}
		}
		if unsorted && !m.w.opt.NoKey {
			first = statestore.FileID(statestore.UnsortedAdoptedWriter, next)
			if slices.ContainsFunc(slices.Collect(maps.Keys(from)), func(f uint64) bool { return f != 0 }) {
				first = statestore.FileID(statestore.UnsortedWriter, next)
			}
			if x.Sorted {
				return errors.New("a job with unsorted inputs says that its outputs ascend (F24)")
			}
		}
		for k := range x.Outputs {
			m.origins[first+uint64(k)] = from
		}
		next += uint64(len(x.Outputs))
	}
	return nil
}

// strikeSome deletes some rows by position, of a file that is live or was.
func (w *World) strikeSome() error {
	m := w.pickMember()
	var all []*statestore.FileInfo
	if err := m.store.Files(w.tableID, func(f *statestore.FileInfo) error {
		if f.Published || !f.Gone {
			all = append(all, f)
		}
		return nil
	}); err != nil || len(all) == 0 {
		return err
	}
	f := all[w.rng.Intn(len(all))]
	if w.opt.Tree && w.rng.Intn(3) == 0 { // one of which a range has moved
		if some := slices.DeleteFunc(slices.Clone(all), func(f *statestore.FileInfo) bool { return f.Gone || !anyMoved(f) }); len(some) > 0 {
			f = some[w.rng.Intn(len(some))]
		}
	}
	if w.opt.Garbage {
		if n := len(w.oldFiles); n > 0 && w.rng.Intn(3) == 0 {
			f = w.oldFiles[w.rng.Intn(n)]
		}
		w.oldFiles = append(w.oldFiles, f)
	}
	set := roaring.New()
	for range 1 + w.rng.Intn(2) {
		set.Add(uint32(w.rng.Int63n(f.Rows)))
	}
	return w.strike(f, set)
}

func (w *World) strike(f *statestore.FileInfo, set *roaring.Bitmap) error {
	values, err := w.valuesOf(f)
	if err != nil {
		return err
	}
	bitmap, err := dv.AppendBitmap(nil, set)
	if err != nil {
		return err
	}
	struck := struckRows{file: f.ID}
	for _, p := range set.ToArray() {
		struck.values = append(struck.values, values[p])
	}
	if w.struck == nil {
		w.struck = map[int64]struckRows{}
	}
	w.struck[int64(len(w.log))] = struck
	if f.Moved {
		w.saw["struck after a job"]++
	}
	if !f.Gone && anyMoved(f) {
		w.saw["struck beside what moved"]++
	}
	return w.request(tableName, w.tableID, &record.DeletePositions{Deletes: []record.DeleteBlock{{File: f.ID, Bitmap: bitmap}}})
}

// valuesOf are the values in a file's rows: each is used once, so that it names a version.
func (w *World) valuesOf(f *statestore.FileInfo) ([]int64, error) {
	values, err := w.valuesIn(f.At(w.def.Location, w.tableID))
	if err != nil {
		return nil, err
	}
	if int64(len(values)) != f.Rows {
		return nil, errors.New("a file has other rows than the state says")
	}
	return values, nil
}

// valuesIn are the values in the rows of the data file at a path.
func (w *World) valuesIn(path string) ([]int64, error) {
	b, err := w.readEver(path)
	if err != nil {
		return nil, err
	}
	file, err := rows.Open(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return nil, err
	}
	cols, err := file.Read([]schemas.Field{w.def.Schema().Fields[1]})
	if err != nil {
		return nil, err
	}
	return cols[0].Ints, nil
}
