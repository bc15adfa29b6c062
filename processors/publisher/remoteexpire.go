package publisher

import (
	"context"
	"fmt"
	"slices"

	"github.com/varve-io/varve/schemas/iceberg"
	"github.com/varve-io/varve/schemas/restcat"
	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/statestore/restclient"
)

// The protocol has no requirement "no branch or tag names this snapshot": a catalog
// that is asked to remove a snapshot removes what names it as well. So what is removed
// is decided by the metadata as it is just before the commit, and where the catalog
// swaps the place of the metadata itself, the commit is held to that (restcat's Base).

// expirable are the snapshots of a cut that can go: that are there, and that nothing names.
func expirable(f *statestore.FrozenCut, meta *iceberg.Metadata) []int64 {
	return slices.DeleteFunc(unreferenced(meta, f.Expire), func(id int64) bool { return meta.Snapshot(id) == nil })
}

// expiring are the snapshots that a commit removes, and the metadata by which that was
// decided. Building a snapshot takes its time: the table is read again then.
func (p *Publisher) expiring(ctx context.Context, f *statestore.FrozenCut, id restcat.Identifier, meta *iceberg.Metadata, read *restclient.Table, built bool) ([]int64, string, error) {
	out := expirable(f, meta)
	if len(out) == 0 || !built {
		return out, read.MetadataLocation, nil
	}
	t, err := p.cfg.Remote.Load(ctx, id)
	if err != nil {
		return nil, "", fmt.Errorf("%w: %w", errCatalog, err)
	}
	if t.MetadataLocation == read.MetadataLocation {
		return out, t.MetadataLocation, nil
	}
	now, err := remoteMetadata(f, id, t)
	if err != nil {
		return nil, "", err
	}
	return expirable(f, now), t.MetadataLocation, nil
}

// lookForLost looks, after a commit that removed snapshots, for a branch or tag that
// another writer set on one of them between our last reading and the commit: the
// version before ours tells of it. It cannot be brought back, a catalog takes no
// snapshot of an older sequence number; but it does not go unsaid.
func (p *Publisher) lookForLost(ctx context.Context, f *statestore.FrozenCut, after *iceberg.Metadata, removed []int64, read string) {
	if len(removed) == 0 || len(after.MetadataLog) == 0 {
		return
	}
	before := after.MetadataLog[len(after.MetadataLog)-1].File
	if before == read {
		return
	}
	log := p.cfg.Logger.With("table", f.Definition.Name, "metadata", before)
	text, err := p.read(ctx, before, restclient.MaxTableBytes)
	var m *iceberg.Metadata
	if err == nil {
		m, err = iceberg.ParseMetadata(text)
	}
	if err != nil {
		log.Warn("another writer committed just before a commit that removed snapshots; whether a branch or tag of theirs named one of them cannot be told", "error", err)
		return
	}
	for i := range m.Refs {
		if r := &m.Refs[i]; slices.Contains(removed, r.SnapshotID) {
			log.Error("a branch or tag is lost: another writer set it in the moment in which its snapshot was expired; set it on another snapshot, and longer retention if it was wanted",
				"ref", r.Name, "kind", r.Type, "snapshot", r.SnapshotID)
		}
	}
}
