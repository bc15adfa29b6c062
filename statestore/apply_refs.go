package statestore

import (
	"cmp"
	"slices"
	"strings"

	"github.com/varve-io/varve/schemas/record"
)

const (
	mainBranch = "main"
	maxRefs    = 1000
	maxRefName = 255
)

// refs are the branches and tags that the log made, and what of them the
// catalog lacks (S12). Those that others made in an outside catalog are
// table.held.
type refs struct {
	all     []record.TableRef // ascending by name
	changed []int64           // offset of the newest change of each
	dropped []droppedRef      // ascending by name; not known to be gone from the catalog
}

type droppedRef struct {
	name string
	at   int64
}

// names says whether a ref names a snapshot.
func (r *refs) names(id int64) bool {
	return slices.ContainsFunc(r.all, func(x record.TableRef) bool { return x.Snapshot == id })
}

func (r *refs) find(name string) (int, bool) {
	return slices.BinarySearchFunc(r.all, name, func(x record.TableRef, n string) int { return strings.Compare(x.Name, n) })
}

// holds says whether a branch or tag names a snapshot: it is not expired then (S6).
func (t *table) holds(id int64) bool {
	_, held := slices.BinarySearch(t.held, id)
	return held || t.refs.names(id)
}

// isHead says whether a snapshot is the head, or a rollback to it is under way.
func (t *table) isHead(id int64) bool {
	return id == t.head.SnapshotID || t.pending != nil && t.pending.Rollback == id
}

// Retained says of a snapshot whether the table keeps it: whether everything
// that it lists must stay readable (G2). A snapshot that the pending cut expires
// is retained until that commit is in the log.
func (t *table) retained(id int64) bool {
	return slices.ContainsFunc(t.snapshots, func(x SnapshotRef) bool { return x.ID == id })
}

// leaving are the snapshots that the pending cut's commit removes.
func (s *Store) leaving(t *table) ([]int64, error) {
	if t.pending == nil {
		return nil, nil
	}
	b, err := s.frozenHead(t.id)
	if err != nil {
		return nil, err
	}
	tail, err := frozenTail(b)
	return tail.expire, err
}

// stays says whether a snapshot is retained and nothing asked yet for its end.
func (s *Store) stays(t *table, id int64) (bool, error) {
	if !t.retained(id) || slices.Contains(t.expiring, id) {
		return false, nil
	}
	leaving, err := s.leaving(t)
	return !slices.Contains(leaving, id), err
}

// alterRefs: S12. What it names cannot be expired any more.
func (s *Store) alterRefs(r *Record, t *table, a *record.AlterRefs) (outcomeOf, error) {
	for i := range a.Set {
		x := &a.Set[i]
		if i > 0 && a.Set[i-1].Name >= x.Name {
			return reject(record.BadRef, 1, int64(i)), nil
		}
		if !refName(x.Name) {
			return reject(record.BadRef, 2, int64(i)), nil
		}
		if at, found := t.refs.find(x.Name); found && t.refs.all[at].Branch != x.Branch && !slices.Contains(a.Drop, x.Name) {
			return reject(record.BadRef, 3, int64(i)), nil
		}
		stays, err := s.stays(t, x.Snapshot)
		if err != nil {
			return outcomeOf{}, err
		}
		if !stays {
			return reject(record.NoSnapshot, x.Snapshot), nil
		}
	}
	for i, name := range a.Drop {
		if i > 0 && a.Drop[i-1] >= name {
			return reject(record.BadRef, 1, int64(i)), nil
		}
		if _, found := t.refs.find(name); !found {
			return reject(record.BadRef, 4, int64(i)), nil
		}
	}
	if len(t.refs.all)+len(a.Set)-len(a.Drop) > maxRefs {
		return reject(record.BadRef, 5), nil
	}
	changed := false
	for _, name := range a.Drop {
		t.refs.drop(name, r.Offset)
		changed = true
	}
	for i := range a.Set {
		changed = t.refs.set(&a.Set[i], r.Offset) || changed
	}
	if changed {
		t.metaChange, t.lastChange, t.dirty = r.Offset, r.Offset, true
	}
	s.effect('B', t.id, int64(len(t.refs.all)), int64(len(t.refs.dropped)))
	for i := range t.refs.all {
		s.effectBytes([]byte(t.refs.all[i].Name))
		s.effect('B', flag(t.refs.all[i].Branch), t.refs.all[i].Snapshot)
	}
	return accepted(changed, int64(len(t.refs.all))), nil
}

// refName says whether a branch or tag may be called so: readers take names
// into SQL and paths.
func refName(name string) bool {
	if name == "" || name == mainBranch || len(name) > maxRefName {
		return false
	}
	return !strings.ContainsFunc(name, func(c rune) bool { return c < ' ' || c == 0x7f })
}

func (r *refs) set(x *record.TableRef, at int64) bool {
	i, found := r.find(x.Name)
	switch {
	case !found:
		r.all, r.changed = slices.Insert(r.all, i, *x), slices.Insert(r.changed, i, at)
	case r.all[i] != *x:
		r.all[i], r.changed[i] = *x, at
	default:
		return false
	}
	return true
}

func (r *refs) drop(name string, at int64) {
	i, found := r.find(name)
	if !found {
		return
	}
	r.all, r.changed = slices.Delete(r.all, i, i+1), slices.Delete(r.changed, i, i+1)
	j, found := slices.BinarySearchFunc(r.dropped, name, func(x droppedRef, n string) int { return strings.Compare(x.name, n) })
	if found {
		r.dropped[j].at = at
		return
	}
	r.dropped = slices.Insert(r.dropped, j, droppedRef{name, at})
}

// lose takes out the refs whose snapshots an outside catalog has no longer.
func (r *refs) lose(gone []int64) {
	for i := len(r.all) - 1; i >= 0; i-- {
		if _, found := slices.BinarySearch(gone, r.all[i].Snapshot); found {
			r.all, r.changed = slices.Delete(r.all, i, i+1), slices.Delete(r.changed, i, i+1)
		}
	}
}

// published: the catalog has every change up to an offset.
func (r *refs) published(to int64) {
	r.dropped = slices.DeleteFunc(r.dropped, func(x droppedRef) bool { return x.at <= to })
}

// since are the changes that the catalog lacks.
func (r *refs) since(after int64) (c RefChanges) {
	for i := range r.all {
		if r.changed[i] > after {
			c.Set = append(c.Set, r.all[i])
		}
	}
	for i := range r.dropped {
		c.Drop = append(c.Drop, r.dropped[i].name)
	}
	return c
}

// TableRef is a branch or tag of a table.
type TableRef = record.TableRef

// RefChanges are branches and tags that a commit drops, and then sets. Both
// ascend by name; a name may be in both.
type RefChanges struct {
	Set  []TableRef
	Drop []string
}

func (c *RefChanges) encode(e *enc) {
	e.u(uint64(len(c.Set)))
	for i := range c.Set {
		encTableRef(e, &c.Set[i])
	}
	e.u(uint64(len(c.Drop)))
	for _, n := range c.Drop {
		e.str(n)
	}
}

func decRefChanges(d *dec) (c RefChanges) {
	for n := d.count(); n > 0; n-- {
		c.Set = append(c.Set, decTableRef(d))
	}
	for n := d.count(); n > 0; n-- {
		c.Drop = append(c.Drop, d.str())
	}
	return c
}

func encTableRef(e *enc, x *record.TableRef) {
	e.str(x.Name)
	e.bool(x.Branch)
	e.i(x.Snapshot)
}

func decTableRef(d *dec) record.TableRef {
	return record.TableRef{Name: d.str(), Branch: d.bool(), Snapshot: d.i()}
}

func (r *refs) encode(e *enc) {
	e.u(uint64(len(r.all)))
	for i := range r.all {
		encTableRef(e, &r.all[i])
		e.i(r.changed[i])
	}
	e.u(uint64(len(r.dropped)))
	for i := range r.dropped {
		e.str(r.dropped[i].name)
		e.i(r.dropped[i].at)
	}
}

func decRefs(d *dec) (r refs) {
	for n := d.count(); n > 0; n-- {
		r.all = append(r.all, decTableRef(d))
		r.changed = append(r.changed, d.i())
	}
	for n := d.count(); n > 0; n-- {
		r.dropped = append(r.dropped, droppedRef{d.str(), d.i()})
	}
	return r
}

// expireSnapshots: G2. The next cut's commit removes them.
func (s *Store) expireSnapshots(r *Record, t *table, x *record.ExpireSnapshots) (outcomeOf, error) {
	if !ascends(x.Snapshots) || x.BeforeMs < 0 || x.KeepLast < 0 || x.BeforeMs > 0 && x.KeepLast < 1 || x.BeforeMs == 0 && len(x.Snapshots) == 0 {
		return reject(record.BadItem), nil
	}
	leaving, err := s.leaving(t)
	if err != nil {
		return outcomeOf{}, err
	}
	var ids []int64
	for _, id := range x.Snapshots {
		if !t.retained(id) {
			return reject(record.NoSnapshot, id), nil
		}
		if t.isHead(id) || t.holds(id) {
			return reject(record.SnapshotHeld, id), nil
		}
		ids = append(ids, id)
	}
	if x.BeforeMs > 0 {
		n := int64(len(t.snapshots))
		for i := range t.snapshots {
			y := &t.snapshots[i]
			if n-int64(i) > x.KeepLast && y.TimestampMs < x.BeforeMs && !t.isHead(y.ID) && !t.holds(y.ID) {
				ids = append(ids, y.ID)
			}
		}
	}
	slices.SortFunc(ids, cmp.Compare)
	asked := 0
	for _, id := range slices.Compact(ids) {
		if slices.Contains(leaving, id) || slices.Contains(t.expiring, id) {
			continue
		}
		t.expiring = append(t.expiring, id)
		asked++
		s.effect('X', t.id, id)
	}
	if asked > 0 {
		slices.Sort(t.expiring)
		t.metaChange, t.lastChange, t.dirty = r.Offset, r.Offset, true
	}
	return accepted(asked > 0, int64(asked)), nil
}

// lacks says whether the catalog lacks something of the table that is no row.
func (t *table) lacks() bool { return t.defChange > t.defFrozen || t.metaChange > t.metaFrozen }
