package statestore

import (
	"slices"
	"strings"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/record"
)

// catalogBase: H5, C1. Where a number rises, a pending cut gets this record's
// offset for its build offset, and the difference to the last commit is frozen
// anew: no commit of the older build can land any more. Every other fact leaves
// the build as it is: a commit of it that is on its way would land.
func (s *Store) catalogBase(r *Record, t int64, tab *table, c *record.CatalogBase, msg *record.OutcomeMessage) (outcomeOf, error) {
	h := &tab.head
	if h.Build < 0 || h.MetadataVersion != 0 || c.Snapshot != h.SnapshotID {
		return reject(record.NoChange, 1, h.SnapshotID), nil
	}
	if c.Sequence < h.Sequence || c.NextRowID < h.NextRowID { // C6
		return reject(record.NoChange, 2), nil
	}
	if !ascends(c.Removed) || !ascends(c.Held) || !sortedProperties(c.Set) || !slices.IsSorted(c.Unset) || slices.Contains(c.Removed, h.SnapshotID) {
		return reject(record.BadAlter, 5), nil
	}
	def, part := foreignDefinition(tab, c)
	if part != 0 {
		return reject(record.BadAlter, part), nil
	}
	left := slices.DeleteFunc(slices.Clone(tab.snapshots), func(x SnapshotRef) bool {
		_, gone := slices.BinarySearch(c.Removed, x.ID)
		return gone
	})
	if c.Sequence == h.Sequence && c.NextRowID == h.NextRowID && c.TimestampMs <= h.TimestampMs && def == tab.def &&
		len(left) == len(tab.snapshots) && slices.Equal(c.Held, tab.held) {
		return reject(record.NoChange, 3), nil
	}
	rises := c.Sequence > h.Sequence || c.NextRowID > h.NextRowID
	if rises && tab.pending != nil && tab.filesHeld() {
		// A build here would hold some of what the shards make of held files, and
		// not the rest: the sender comes again.
		return reject(record.FilesHeld, tab.adds[0].offset), nil
	}
	for i := range tab.snapshots {
		if _, gone := slices.BinarySearch(c.Removed, tab.snapshots[i].ID); gone {
			if err := s.snapshotLeft(tab, &tab.snapshots[i]); err != nil {
				return outcomeOf{}, err
			}
		}
	}
	h.Sequence, h.NextRowID, h.TimestampMs, h.MetadataPath = c.Sequence, c.NextRowID, max(h.TimestampMs, c.TimestampMs), c.MetadataPath
	tab.snapshots, tab.held = left, slices.Clone(c.Held)
	tab.refs.lose(c.Removed)
	tab.expiring = slices.DeleteFunc(tab.expiring, func(id int64) bool { return !tab.retained(id) })
	tab.dirty = true
	s.effect('=', tab.id, h.Sequence, h.NextRowID, h.TimestampMs, int64(len(left)), int64(len(tab.held)))
	if def != tab.def {
		// What the catalog has already need not be published; what it has not,
		// because an AlterTable waits for its cut, still does.
		if tab.defChange <= tab.defFrozen {
			tab.defFrozen = r.Offset
			tab.published = propertyKeys(def)
		}
		tab.def, tab.defChange, tab.defDirty = def, r.Offset, true
		msg.Definition = def
		s.effect('e', tab.id, int64(def.CurrentSchema), int64(len(def.Properties)))
	}
	build := int64(-1)
	if tab.pending != nil && rises {
		build = r.Offset
		if err := s.refreeze(r, t, tab); err != nil {
			return outcomeOf{}, err
		}
	}
	return accepted(false, h.Sequence, h.NextRowID, build), nil
}

func ascends(ids []int64) bool {
	for i := 1; i < len(ids); i++ {
		if ids[i] <= ids[i-1] {
			return false
		}
	}
	return true
}

func propertyKeys(d *schemas.Definition) []string {
	var keys []string
	for i := range d.Properties {
		keys = append(keys, d.Properties[i].Key)
	}
	return keys
}

// foreignDefinition is the table's definition with what another writer changed
// of it; the table's own when that is nothing. part is which part cannot be
// taken, 0: all can.
func foreignDefinition(t *table, c *record.CatalogBase) (_ *schemas.Definition, part int64) {
	d := *t.def
	changed := false
	props := slices.Clone(d.Properties)
	at := func(key string) int {
		i, found := slices.BinarySearchFunc(props, key, func(x schemas.Property, k string) int { return strings.Compare(x.Key, k) })
		if !found {
			return -1
		}
		return i
	}
	// An AlterTable that is not published yet decides about properties: it is the later word.
	if t.defChange <= t.defFrozen {
		for _, p := range c.Set {
			if i := at(p.Key); i >= 0 && props[i].Value != p.Value {
				props[i].Value, changed = p.Value, true
			}
		}
		for _, k := range c.Unset {
			if i := at(k); i >= 0 {
				props, changed = slices.Delete(props, i, i+1), true
			}
		}
	}
	d.Properties = props
	for i := range c.Schemas {
		next := &c.Schemas[i]
		if d.Schema().CheckNext(next, d.LastColumnID) != nil {
			return nil, 6
		}
		d.LastColumnID = max(d.LastColumnID, next.HighestID())
		d.Schemas = append(slices.Clone(d.Schemas), *next)
		d.CurrentSchema, changed = next.ID, true
	}
	if c.LastColumnID > d.LastColumnID {
		d.LastColumnID, changed = c.LastColumnID, true
	}
	if !changed {
		return t.def, 0
	}
	if !checkDefinition(&d) {
		return nil, 4
	}
	return &d, 0
}

// refreeze gives a pending cut a new build offset: what it had frozen and what
// changed since is one difference to the last commit.
func (s *Store) refreeze(r *Record, t int64, tab *table) error {
	var old []*FrozenFile
	var removed []frozenValue // all of them is dead: nothing can change any more
	if err := s.eachFrozen(tab.id, func(id uint64, value []byte) error {
		x, _, err := decodeFrozen(id, value)
		if err == nil && x.Removed {
			removed = append(removed, frozenValue{id, value})
		} else if err == nil {
			old = append(old, x)
		}
		return err
	}); err != nil {
		return err
	}
	s.clearFrozen(tab.id)
	for _, x := range old {
		c, err := s.chunk(tab.id, x.ID)
		if err != nil {
			return err
		}
		s.touch(c)
		if bit := uint(x.ID & 127); x.Added {
			c.added.set(bit)
		} else {
			c.killed.set(bit)
		}
		c.marksDirty = true
		tab.changed = true
		// freezeFile counts them again.
		tab.totals.Dead -= x.DeadCount
		if x.Vector != nil {
			tab.totals.Dead += x.Vector.Cardinality
		}
	}
	n := 0
	if tab.head.Build >= 0 && tab.changed && tab.pending.Rollback == 0 {
		var err error
		if n, err = s.freeze(tab, r.Offset); err != nil {
			return err
		}
		tab.changed = false
	}
	s.keepFrozen(tab.id, removed)
	tab.pending.Build = r.Offset
	return s.freezeHead(r, t, tab, n+len(removed))
}
