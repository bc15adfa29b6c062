package publisher

import (
	"slices"

	"github.com/varve-io/varve/schemas/iceberg"
	"github.com/varve-io/varve/schemas/restcat"
	"github.com/varve-io/varve/statestore"
)

func refKind(branch bool) string {
	if branch {
		return "branch"
	}
	return "tag"
}

// applyRefs brings branches and tags of the metadata to what the log says (S12).
// What is gone already stays gone.
func applyRefs(m *iceberg.Metadata, c *statestore.RefChanges) error {
	for _, name := range c.Drop {
		if m.Ref(name) == nil {
			continue
		}
		if err := m.RemoveRef(name); err != nil {
			return err
		}
	}
	for i := range c.Set {
		x := &c.Set[i]
		if err := m.SetRef(x.Name, refKind(x.Branch), x.Snapshot); err != nil {
			return err
		}
	}
	return nil
}

// refUpdates are the same for an outside catalog, as far as it differs. Each ref
// is asserted to be where it was read: another writer's move is a conflict. A ref
// whose snapshot the catalog has no longer is left alone: the log is told (H5).
func refUpdates(meta *iceberg.Metadata, c *statestore.RefChanges) (asserts []restcat.Requirement, updates []restcat.Update) {
	at := func(name string) int64 {
		if r := meta.Ref(name); r != nil {
			return r.SnapshotID
		}
		return 0
	}
	sets := func(name string) bool {
		return slices.ContainsFunc(c.Set, func(x statestore.TableRef) bool { return x.Name == name })
	}
	for _, name := range c.Drop {
		if old := at(name); old != 0 {
			if !sets(name) {
				asserts = append(asserts, restcat.AssertRef(name, old))
			}
			updates = append(updates, restcat.RemoveRef(name))
		}
	}
	for i := range c.Set {
		x := &c.Set[i]
		old := meta.Ref(x.Name)
		dropped := slices.Contains(c.Drop, x.Name)
		if meta.Snapshot(x.Snapshot) == nil || old != nil && !dropped && old.SnapshotID == x.Snapshot && old.Type == refKind(x.Branch) {
			continue
		}
		var kept []iceberg.Member
		if old != nil && !dropped {
			kept = old.Extra
		}
		asserts = append(asserts, restcat.AssertRef(x.Name, at(x.Name)))
		updates = append(updates, restcat.SetRef(x.Name, refKind(x.Branch), x.Snapshot, kept))
	}
	return asserts, updates
}
