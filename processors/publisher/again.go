package publisher

import (
	"context"
	"fmt"

	"github.com/varve-io/varve/schemas/iceberg"
	"github.com/varve-io/varve/statestore"
)

// Again makes the snapshot of a cut that was published to an outside catalog
// again, without that catalog: all that is ours of it, which is Puffins,
// manifests and list, follows from the frozen cut alone (C1, C7). The result has
// no time and no metadata: the catalog gave those.
func (p *Publisher) Again(ctx context.Context, f *statestore.FrozenCut) (Result, error) {
	r, err := p.again(ctx, f)
	if err != nil {
		return Result{}, fmt.Errorf("publish table %s at offset %d again: %w", f.Definition.Name, f.Build, err)
	}
	return r, nil
}

func (p *Publisher) again(ctx context.Context, f *statestore.FrozenCut) (Result, error) {
	meta, err := iceberg.NewTable(f.Definition, identity(f).UUID(), f.Head.TimestampMs)
	if err != nil {
		return Result{}, fmt.Errorf("%w: %w", ErrInconsistent, err)
	}
	if f.Head.SnapshotID != 0 {
		meta.Snapshots = []iceberg.Snapshot{{ID: f.Head.SnapshotID, TimestampMs: f.Head.TimestampMs, ManifestList: f.Head.ManifestList}}
	}
	n, err := p.buildRemote(ctx, f, meta)
	if err != nil {
		return Result{}, err
	}
	c := &n.result.Committed
	c.TimestampMs, c.MetadataPath = 0, ""
	return n.result, nil
}
