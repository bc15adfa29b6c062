package sim

import (
	"fmt"
	"maps"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/varve-io/varve/schemas/record"
)

// deaths notes the versions that ended with a record: what others bring as copies
// of such is dead (H3).
func (m *model) deaths(offset int64) {
	for k, value := range m.last {
		if v := m.live[k]; v == nil || v.value != value {
			m.diedAt[value] = offset
		}
	}
	clear(m.last)
	for k, v := range m.live {
		m.last[k] = v.value
		delete(m.diedAt, v.value)
	}
}

// foreign: H2, H3, H10, H13. What it does follows from what two snapshots list, as
// their readers found it.
func (m *model) foreign(o *record.OutcomeMessage, r *record.ForeignSnapshot) error {
	n := o.Outcome.Numbers
	place := n[record.ForeignPlace]
	if place != m.through {
		return fmt.Errorf("rows of others stand at %d, the last commit had all up to %d (H10)", place, m.through)
	}
	base, to := m.w.heads[r.Base], m.w.heads[r.Snapshots[len(r.Snapshots)-1].ID]
	if to == nil || base == nil && r.Base != 0 {
		return fmt.Errorf("a ForeignSnapshot from %d to %d, which nobody made", r.Base, r.Snapshots[len(r.Snapshots)-1].ID)
	}
	m.sequence, m.nextRow = r.Sequence, r.NextRowID
	owed := m.owed(base, to, r.AsOf)
	removed := int64(0)
	for _, path := range slices.Sorted(maps.Keys(base)) {
		was, is := base[path], to[path]
		gone := roaring.New()
		if is != nil {
			gone = roaring.AndNot(is.dead, was.dead)
		} else {
			removed++
		}
		for i := range was.rows {
			x := &was.rows[i]
			v := m.live[x.key]
			if v == nil || v.value != x.value || is != nil && !gone.Contains(uint32(i)) || was.dead.Contains(uint32(i)) {
				continue
			}
			at := v.accepted
			if is == nil {
				at = min(at, place)
				m.w.saw["row left"]++
			} else {
				m.struck[x.key] = struckVersion{v, o.Offset}
				m.w.saw["row ended by another writer's vector"]++
			}
			m.tombs[x.key] = tomb{o.TimeMs, o.Offset, at}
			delete(m.live, x.key)
		}
	}
	var all []*heldRow
	for i := range r.Files {
		f := to[r.Files[i].Path]
		if f == nil || base[r.Files[i].Path] != nil {
			return fmt.Errorf("the file %s is not added by that", r.Files[i].Path)
		}
		for at := range f.rows {
			x := &heldRow{event: f.rows[at].event, died: -1, theirs: true, place: place, id: f.rows[at].id, file: uint64(n[record.ForeignFirst]) + uint64(i)}
			if f.dead.Contains(uint32(at)) || owed(f, at) {
				x.died = o.Offset
			}
			m.ids[x.id] = x.key
			all = append(all, x)
		}
	}
	if n[record.ForeignAdded] != int64(len(r.Files)) || n[record.ForeignRemoved] != removed || len(r.Files) != len(to)-(len(base)-int(removed)) {
		return fmt.Errorf("%v files are added and removed; another writer added %d and removed %d", n[:2], len(to)-(len(base)-int(removed)), removed)
	}
	if len(all) > 0 {
		m.held[o.Offset] = all
	}
	return nil
}

// owed tells which rows of added files are copies of rows that are dead as of a log
// offset (H13): by their row ids; where a file carries none by key, and where a live
// row that is removed has the key too, by value.
func (m *model) owed(base, to map[string]*theirFile, asOf int64) func(f *theirFile, at int) bool {
	ids := map[int64]bool{}
	type values struct{ died, live map[int64]bool }
	keys := map[int]*values{}
	for _, path := range slices.Sorted(maps.Keys(base)) {
		if to[path] != nil {
			continue
		}
		f := base[path]
		for i := range f.rows {
			x := &f.rows[i]
			if f.dead.Contains(uint32(i)) {
				continue
			}
			k := keys[x.key]
			if k == nil {
				k = &values{map[int64]bool{}, map[int64]bool{}}
				keys[x.key] = k
			}
			if at, dead := m.diedAt[x.value]; dead && at <= asOf {
				ids[x.id], k.died[x.value] = true, true
			} else {
				k.live[x.value] = true
			}
		}
	}
	return func(f *theirFile, at int) bool {
		x := &f.rows[at]
		if slices.ContainsFunc(f.rows, func(r theirRow) bool { return r.own }) {
			if x.own && ids[x.id] {
				m.w.saw["owed by its row id"]++
			}
			return x.own && ids[x.id]
		}
		k := keys[x.key]
		if k == nil || len(k.died) == 0 || len(k.live) > 0 && (!k.died[x.value] || k.live[x.value]) {
			return false
		}
		m.w.saw["owed by its key"]++
		return true
	}
}

// mainRows are the rows that a reader of branch main has now.
func (w *World) mainRows() (map[int]row, error) {
	meta := w.cat.Metadata(w.ident())
	if meta == nil || meta.Current() == nil {
		return map[int]row{}, nil
	}
	got, err := w.readSnapshot(&record.SnapshotCommitted{ManifestList: meta.Current().ManifestList})
	if err != nil {
		return nil, fmt.Errorf("branch main: %w", err)
	}
	return maps.Clone(got.rows), nil
}

// amongThemselves are the rows that a shard takes of a record. Of each key that comes
// several times in a commit of another writer, one is left: the one with the largest
// value, of those the last, or the last one where none has a value (H7). A row that was
// dead in that commit counts by its value alone.
func (m *model) amongThemselves(o *record.OutcomeMessage, p int, at int64) []*heldRow {
	by := map[int][]*heldRow{}
	rows := slices.DeleteFunc(slices.Clone(m.held[at]), func(x *heldRow) bool {
		if !x.theirs || !m.deletedSince(x, at) {
			return false
		}
		m.diedAt[x.value] = o.Offset
		m.w.saw["row of another writer deleted by a request before it came"]++
		return true
	})
	for _, x := range rows {
		if x.theirs {
			by[x.key] = append(by[x.key], x)
		}
	}
	value := func(x *heldRow) int64 {
		if x.hasOrd && m.w.opt.Ordered {
			return x.order
		}
		return -1
	}
	var all []*heldRow
	for _, x := range rows {
		list := by[x.key]
		if len(list) < 2 {
			all = append(all, x)
			continue
		}
		if x != list[0] {
			continue // it is judged with the first one
		}
		var best, dead *heldRow
		for _, y := range list {
			switch {
			case y.died != at && (best == nil || value(y) >= value(best)):
				best = y
			case y.died == at && value(y) >= 0 && (dead == nil || value(y) >= value(dead)):
				dead = y
			}
		}
		if best == nil {
			all = append(all, list...)
			continue
		}
		m.w.saw["rows of a key in one commit"]++
		if m.w.shardOf(x.key) == p {
			for _, y := range list {
				if y != best {
					m.diedAt[y.value] = o.Offset
				}
			}
		}
		if dead != nil && value(dead) > value(best) {
			all = append(all, dead)
			if value(best) >= 0 {
				m.diedAt[best.value] = o.Offset
				continue
			}
		}
		all = append(all, best)
	}
	return all
}

// deletedSince says whether a request from after the place of a row, and before the
// record that brought it, ends it (H7).
func (m *model) deletedSince(x *heldRow, at int64) bool {
	if !m.w.opt.Ordered {
		return false
	}
	for q, r := range m.asked {
		if q > x.place && q < at && slices.Contains(r.keys, x.key) && m.times[q] >= m.times[at]-m.w.def.TombstoneTTLMs &&
			(!r.hasOrd || !x.hasOrd || x.order <= r.order) {
			return true
		}
	}
	return false
}
