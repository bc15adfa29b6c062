package sim

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/varve-io/varve/processors/finder"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/statestore/objstore"
)

// condition is a predicate as the model has it: on the value of a row, which
// names its version.
type condition struct {
	text  string
	holds func(value int64) bool
}

// drawCondition makes a predicate on values up to now.
func (w *World) drawCondition() condition {
	span := max(w.values, 1)
	a := w.rng.Int63n(span + 1)
	b := a + w.rng.Int63n(span/3+2)
	switch w.rng.Intn(4) {
	case 0:
		return condition{fmt.Sprintf("v >= %d AND v < %d", a, b), func(v int64) bool { return v >= a && v < b }}
	case 1:
		return condition{fmt.Sprintf("NOT (v < %d OR v >= %d)", a, b), func(v int64) bool { return v >= a && v < b }}
	case 2:
		in := map[int64]bool{}
		var texts []string
		for range 1 + w.rng.Intn(6) {
			v := w.rng.Int63n(span + 1)
			in[v] = true
			texts = append(texts, fmt.Sprint(v))
		}
		return condition{"v IN (" + strings.Join(texts, ",") + ") AND id IS NOT NULL", func(v int64) bool { return in[v] }}
	}
	return condition{fmt.Sprintf("v > %d OR v = %d", b, a), func(v int64) bool { return v > b || v == a }}
}

// finding is an open find job as workers and the model know it.
type finding struct {
	where condition
	// values of the rows in the files of each part, by its number.
	parts map[int32][]int64
}

// askWhere opens a find job.
func (w *World) askWhere() error {
	t, err := w.members[0].store.Table(tableName)
	if err != nil || t == nil {
		return err
	}
	c := w.drawCondition()
	b, err := record.EncodeWhereBody(nil, &record.WhereBody{Predicate: c.text})
	if err != nil {
		return err
	}
	ref, err := w.bodies.Put(w.ctx, b)
	if err != nil {
		return err
	}
	if w.findings == nil {
		w.findings = map[int64]*finding{}
	}
	w.findings[int64(len(w.log))] = &finding{where: c, parts: map[int32][]int64{}}
	return w.request(tableName, w.tableID, &record.DeleteWhere{Where: ref, SchemaID: t.Definition.CurrentSchema})
}

// findStep is one thing that workers of find jobs do.
func (w *World) findStep(m *member) error {
	switch n := w.rng.Intn(10); {
	case n == 0:
		return w.askWhere()
	case n < 6:
		if len(w.finds) == 0 {
			return nil
		}
		i := w.rng.Intn(len(w.finds))
		d := w.finds[i]
		found, err := w.find(d)
		if w.rng.Intn(4) > 0 || err != nil { // else it will be done again
			w.finds = slices.Delete(w.finds, i, i+1)
		}
		if errors.Is(err, objstore.ErrNotFound) {
			return w.findOver(d, err)
		}
		if err != nil {
			return err
		}
		w.found = append(w.found, found)
	default:
		if len(w.found) == 0 {
			return nil
		}
		found := w.found[0]
		if w.rng.Intn(6) > 0 {
			w.found = w.found[1:]
		}
		return w.enqueue(m, found)
	}
	return nil
}

// findOver: what a part of an open find job reads is there (G2, C10).
func (w *World) findOver(d *record.FindDispatch, cause error) error {
	if err := w.members[0].apply(1 << 20); err != nil {
		return err
	}
	open := false
	if err := w.members[0].store.OpenJobs(w.tableID, func(j *statestore.JobInfo) error {
		open = open || j.Job == d.Job
		return nil
	}); err != nil {
		return err
	}
	if open {
		return fmt.Errorf("an open find job misses a file: %w", cause)
	}
	w.saw["file of a find job that was over"]++
	return nil
}

// find executes a part, and notes what rows there are in its files.
func (w *World) find(d *record.FindDispatch) (*record.RowsFound, error) {
	e := finder.Executor{Store: w.mem, Bodies: w.bodies}
	found, err := e.Execute(w.ctx, d, nil)
	if err != nil {
		return nil, fmt.Errorf("part %d of the find job at %d: %w", d.Job.Item, d.Job.Plan, err)
	}
	var values []int64
	for i := range d.Inputs {
		more, err := w.valuesIn(d.Inputs[i].Path)
		if err != nil {
			return nil, err
		}
		values = append(values, more...)
	}
	f := w.findings[d.Job.Plan]
	if before, again := f.parts[d.Job.Item]; again && !slices.Equal(before, values) {
		return nil, fmt.Errorf("part %d of the find job at %d reads other rows than the first time (C10)", d.Job.Item, d.Job.Plan)
	}
	f.parts[d.Job.Item] = values
	return found, nil
}

// finishFinds has every open part executed and told.
func (w *World) finishFinds(open map[record.JobID]bool) error {
	for _, d := range w.finds {
		if !open[d.Job] {
			continue
		}
		delete(open, d.Job)
		found, err := w.find(d)
		if err != nil {
			return err
		}
		if err := w.request(tableName, w.tableID, found); err != nil {
			return err
		}
	}
	w.finds = nil
	return nil
}

// modelFind is an open find job in the model.
type modelFind struct {
	*finding
	rows int64
	less int64 // of them another shard may have ended already
}

// found: C8, C10. Rows of the part's files of which the predicate holds die, if
// they live still and were accepted before the find job was opened.
func (m *model) found(o *record.OutcomeMessage, r *record.RowsFound) error {
	f := m.finds[r.Job.Plan]
	if f == nil {
		return fmt.Errorf("rows of the find job at %d are accepted, which is not open", r.Job.Plan)
	}
	for _, value := range f.parts[r.Job.Item] {
		if !f.where.holds(value) {
			continue
		}
		for at, all := range m.held {
			for _, x := range all {
				if x.value != value || x.died >= 0 {
					continue
				}
				if at > r.Job.Plan {
					return fmt.Errorf("the find job at %d read a row that was added at %d (C10)", r.Job.Plan, at)
				}
				if end := m.requests[m.w.shardOf(x.key)]; !m.free[at] && end <= at { // not taken yet, so it lives
					x.died = o.Offset
					f.rows++
					if m.w.opt.Shards > 1 {
						f.less++
					}
					m.w.saw["row found while held"]++
				}
			}
		}
		for _, k := range slices.Sorted(maps.Keys(m.live)) {
			v := m.live[k]
			if v.value != value {
				continue
			}
			if v.accepted >= r.Job.Plan {
				return fmt.Errorf("the find job at %d read a row that was accepted at %d (C10)", r.Job.Plan, v.accepted)
			}
			m.struck[k] = struckVersion{v, o.Offset}
			m.tombs[k] = tomb{o.TimeMs, o.Offset, v.accepted}
			delete(m.live, k)
			f.rows++
			if v.added && m.contested(k) {
				f.less++
			}
			m.w.saw["row found"]++
		}
	}
	got := o.Outcome.Numbers[record.WhereRows]
	if got > f.rows || got < f.rows-f.less {
		return fmt.Errorf("the find job at %d killed %d rows by now, or %d fewer, the outcome says %d", r.Job.Plan, f.rows, f.less, got)
	}
	f.rows, f.less = got, 0
	return nil
}

// contested says whether a shard that a key is not of may have ended its row: it took
// rows of the key which the shard of the key has still to take (H7).
func (m *model) contested(k int) bool {
	if m.w.opt.Shards < 2 {
		return false
	}
	for at, all := range m.held {
		if end := m.requests[m.w.shardOf(k)]; m.free[at] || end > at {
			continue
		}
		if slices.ContainsFunc(all, func(x *heldRow) bool { return x.key == k }) {
			return true
		}
	}
	return false
}

// foundAll: no row is left that a find job was to delete, unless it was given up.
func (m *model) foundAll(o *record.OutcomeMessage) error {
	offset := o.Outcome.Numbers[record.WhereFind]
	f := m.finds[offset]
	if f == nil {
		return nil // every outcome is perhaps there again (L11)
	}
	delete(m.finds, offset)
	if o.Outcome.Reason != record.ReasonNone {
		m.w.saw["find job "+o.Outcome.Reason.String()]++
		return nil
	}
	m.w.saw["find job done"]++
	for _, k := range slices.Sorted(maps.Keys(m.live)) {
		v := m.live[k]
		if v.file != 0 && v.published > offset {
			continue // its file came later, whatever its place
		}
		if v.accepted < offset && f.where.holds(v.value) {
			return fmt.Errorf("the find job at %d is over, and the row of key %d that was accepted at %d lives (C10)", offset, k, v.accepted)
		}
	}
	if got := o.Outcome.Numbers[record.WhereRows]; got != f.rows {
		return fmt.Errorf("the find job at %d killed %d rows, the outcome says %d", offset, f.rows, got)
	}
	return nil
}
