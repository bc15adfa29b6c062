package sim

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/varve-io/varve/processors/ingest"
	"github.com/varve-io/varve/processors/publisher"
	"github.com/varve-io/varve/schemas/iceberg"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
)

// timeStep is what a user does with snapshots. Whom they ask may be behind.
func (w *World) timeStep() error {
	m := w.pickMember()
	t, err := m.store.Table(tableName)
	if err != nil || t == nil || len(t.Snapshots) == 0 {
		return err
	}
	snapshot := t.Snapshots[w.rng.Intn(len(t.Snapshots))].ID
	switch w.rng.Intn(8) {
	case 0, 1:
		return w.enqueue(m, &record.AlterRefs{Set: []record.TableRef{{Name: "tag" + strconv.Itoa(w.rng.Intn(3)), Snapshot: snapshot}}})
	case 2:
		if len(t.Refs) == 0 {
			return nil
		}
		return w.enqueue(m, &record.AlterRefs{Drop: []string{t.Refs[w.rng.Intn(len(t.Refs))].Name}})
	case 3:
		return w.enqueue(m, &record.ExpireSnapshots{Snapshots: []int64{snapshot}})
	case 4:
		return w.enqueue(m, &record.ExpireSnapshots{BeforeMs: w.now, KeepLast: int64(2 + w.rng.Intn(4))})
	}
	if w.opt.Undo {
		return w.undo(m)
	}
	if t.Pending != nil && w.rng.Intn(8) > 0 {
		return nil // mostly it is waited for
	}
	return w.rollBack(m, t, snapshot)
}

// undo is a user who waits for what is pending, and asks for a rollback to one of
// the newest snapshots. It comes to the log at once.
func (w *World) undo(m *member) error {
	if err := w.upToDate(m); err != nil {
		return err
	}
	t, err := m.store.Table(tableName)
	if err != nil || t == nil || t.Pending != nil || len(t.Snapshots) == 0 || w.rng.Intn(3) > 0 {
		return err // it was only published
	}
	n := len(t.Snapshots)
	if err := w.rollBack(m, t, t.Snapshots[n-1-w.rng.Intn(min(n, 4))].ID); err != nil {
		return err
	}
	return w.arrive(m)
}

// rollBack asks for a rollback, as a node does that has the table's state.
func (w *World) rollBack(m *member, t *statestore.TableInfo, snapshot int64) error {
	x := &record.Rollback{Snapshot: snapshot, Cause: "sim"}
	for i := range t.Snapshots {
		if t.Snapshots[i].ID == snapshot {
			x.Build, x.ManifestList = t.Snapshots[i].Build, t.Snapshots[i].List
		}
	}
	err := w.whole(func() error { return publisher.ReadListed(w.ctx, w.mem, m.store, t, x) })
	if err != nil {
		if w.opt.Garbage && w.behind(m) {
			w.saw["a rollback to what is gone"]++
			return nil
		}
		return fmt.Errorf("read the retained snapshot of the cut at %d: %w", x.Build, err)
	}
	return w.enqueue(m, x)
}

// rolled is the log offset of the newest rollback that the outcomes tell of.
func (w *World) rolled() int64 {
	for i := len(w.decided) - 1; i >= 0; i-- {
		if o := &w.decided[i].Outcome; o.Type == record.TypeRollback && o.Outcome.Code == record.Accepted {
			return o.Offset
		}
	}
	return 0
}

// memberRolled is that of the state whose index checkpoints are taken.
func (w *World) memberRolled() (int64, error) {
	t, err := w.members[0].store.Table(tableName)
	if err != nil || t == nil {
		return 0, err
	}
	return t.Rolled, nil
}

// rewind makes an owner's folder of what a rollback brought back.
func (w *World) rewind(cfg ingest.Config) (err error) {
	env, body, err := w.bodies.Open(w.ctx, w.log[cfg.Base].Key, w.log[cfg.Base].Header, w.log[cfg.Base].Value)
	if err != nil {
		return err
	}
	v, err := record.DecodeBody(env.Type, env.TypeVersion, body)
	if err != nil {
		return err
	}
	def := w.def
	r, err := ingest.NewRewind(cfg, &def, v.(*record.Rollback).Build)
	if err != nil {
		return err
	}
	for i := 0; i < len(w.decided) && err == nil; i++ {
		err = r.Look(w.ctx, &w.decided[i])
	}
	for i := 0; i < len(w.decided) && !r.Done() && err == nil; i++ {
		err = r.Take(w.ctx, &w.decided[i])
	}
	if err == nil && !r.Done() {
		err = fmt.Errorf("log offset %d holds no rollback", cfg.Base)
	}
	return errors.Join(err, r.Close())
}

// remembered are the ordering values and tombstones of a time.
type remembered struct {
	ord   map[int]int64
	tombs map[int]tomb
	told  map[int]int64
}

func (m *model) alterRefs(r *record.AlterRefs) {
	for _, name := range r.Drop {
		delete(m.refs, name)
	}
	for _, x := range r.Set {
		m.refs[x.Name] = x.Snapshot
	}
}

// expire: G2. What a tag names stays.
func (m *model) expire(r *record.ExpireSnapshots) error {
	held := slices.Collect(maps.Values(m.refs))
	for _, id := range r.Snapshots {
		if slices.Contains(held, id) {
			return fmt.Errorf("snapshot %d is asked to go, and a tag names it", id)
		}
		m.expired[id] = true
	}
	return nil
}

// rollback: G1. The rows and what is remembered are those of the target's cut; the
// source goes on where it was.
func (m *model) rollback(r *record.Rollback) error {
	then, ok := m.then[r.Build]
	if !ok {
		return fmt.Errorf("a rollback to the cut at %d, which never was", r.Build)
	}
	for q := range m.asked {
		if m.done[q] {
			continue
		}
		return fmt.Errorf("a rollback while the request at %d is open", q)
	}
	if differ(rowsOf(m.live), rowsOf(m.cuts[r.Build])) != "equal" {
		m.w.saw["rows undone"]++
	}
	m.live = maps.Clone(m.cuts[r.Build])
	m.ord, m.tombs, m.told = maps.Clone(then.ord), maps.Clone(then.tombs), maps.Clone(then.told)
	m.struck = map[int]struckVersion{}
	return m.recall(r.Build)
}

// recall: G12. What is remembered of a deleted key lies in lists and requests, or in
// the dead rows of the target's files. Where they were compacted away it is lost.
func (m *model) recall(build int64) error {
	if !m.w.opt.Ordered {
		return nil
	}
	for _, k := range slices.Sorted(maps.Keys(m.tombs)) {
		want, had := m.ord[k]
		best, known := m.told[k]
		if row, has := m.w.snapshots[build].dead[k]; has && (!known || row > best) {
			best, known = row, true
			m.w.saw["remembered by a dead row"]++
		}
		switch {
		case known && (!had || best > want):
			return fmt.Errorf("key %d: %d stands in lists, requests or dead rows of the cut at %d, and nothing was remembered", k, best, build)
		case !known && had:
			m.w.saw["forgotten with a compaction"]++
			delete(m.ord, k)
			delete(m.tombs, k)
		case known && best < want:
			m.w.saw["forgotten with a compaction"]++
			m.ord[k] = best
		}
	}
	return nil
}

// checkRefs holds the catalog's newest metadata against the tags and expiries that
// the log accepted, and gives the build offset of the current snapshot.
func (w *World) checkRefs(m *model) (int64, error) {
	meta, builds, err := w.newestMetadata()
	if err != nil || meta == nil {
		return -1, err
	}
	tags := map[string]int64{}
	for i := range meta.Refs {
		if r := &meta.Refs[i]; r.Name != iceberg.MainBranch {
			tags[r.Name] = r.SnapshotID
		}
	}
	if !maps.Equal(tags, m.refs) {
		return 0, fmt.Errorf("the catalog has the tags %v, the log %v", tags, m.refs)
	}
	for name, id := range tags {
		if meta.Snapshot(id) == nil {
			return 0, fmt.Errorf("tag %s names snapshot %d, which is gone", name, id)
		}
	}
	s := meta.Current()
	for id := range m.expired {
		if meta.Snapshot(id) != nil && (s == nil || s.ID != id) {
			return 0, fmt.Errorf("snapshot %d was expired and is still there", id)
		}
		w.saw["snapshot expired by hand"]++
	}
	if s == nil {
		return -1, nil
	}
	build, ok := builds[s.ID]
	if !ok {
		return 0, fmt.Errorf("the current snapshot %d is none that was published", s.ID)
	}
	return build, nil
}
