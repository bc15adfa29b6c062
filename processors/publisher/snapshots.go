package publisher

import (
	"context"
	"errors"
	"fmt"

	"github.com/varve-io/varve/schemas/iceberg"
	"github.com/varve-io/varve/schemas/restcat"
	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/statestore/objstore"
	"github.com/varve-io/varve/statestore/restclient"
)

// Snapshots are the ids of all snapshots that the catalog's newest metadata of a
// table has, with those that branches and tags name (G2).
func (p *Publisher) Snapshots(ctx context.Context, t *statestore.TableInfo) ([]int64, error) {
	var text []byte
	if p.cfg.Remote != nil {
		at, err := p.cfg.Remote.Load(ctx, restcat.IdentifierOf(t.Name))
		if errors.Is(err, restclient.ErrNotFound) {
			return nil, fmt.Errorf("%w: the catalog has no table %s", ErrForeign, t.Name)
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errCatalog, err)
		}
		text = at.Metadata
	} else {
		key, ok := p.cfg.Store.Key(t.Definition.Location)
		if !ok {
			return nil, fmt.Errorf("%w: the location %s does not lie in the store %s", ErrInconsistent, t.Definition.Location, p.cfg.Store.Location(""))
		}
		for n := max(t.Head.MetadataVersion, 1); ; n++ {
			found, err := p.cfg.Catalog.Load(ctx, key, n)
			if errors.Is(err, objstore.ErrNotFound) {
				break
			}
			if err != nil {
				return nil, fmt.Errorf("%w: %w", errCatalog, err)
			}
			text = found
		}
		if text == nil && t.Head.Build < 0 {
			return nil, nil // nothing is published yet
		}
		if text == nil {
			return nil, fmt.Errorf("%w: version %d of the table %s is not there", ErrInconsistent, t.Head.MetadataVersion, t.Name)
		}
	}
	m, err := iceberg.ParseMetadata(text)
	if err != nil {
		return nil, fmt.Errorf("%w: the metadata of table %s: %w", ErrInconsistent, t.Name, err)
	}
	var ids []int64
	for i := range m.Snapshots {
		ids = append(ids, m.Snapshots[i].ID)
	}
	for i := range m.Refs {
		ids = append(ids, m.Refs[i].SnapshotID)
	}
	return ids, nil
}
