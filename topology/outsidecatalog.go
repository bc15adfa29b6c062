package topology

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/iceberg"
	"github.com/varve-io/varve/schemas/restcat"
	"github.com/varve-io/varve/statestore/restclient"
)

// RemoteFacts is where a deployment's tables are published outside of their
// own folders; no secrets.
type RemoteFacts struct {
	URI       string `json:"uri"`
	Warehouse string `json:"warehouse,omitempty"`
	Prefix    string `json:"prefix,omitempty"`
}

// openRemote reaches the catalog that tables are published to. What can only be
// wrong in the configuration is wrong usage.
func (n *Node) openRemote(ctx context.Context, old *nodeFile) error {
	o := n.opt.Remote
	if old != nil && n.has(RolePublisher) {
		switch {
		case old.Remote != nil && o == nil:
			return fmt.Errorf("%w: the deployment's tables are published to the catalog at %s; name it in the configuration", ErrConfig, old.Remote.URI)
		case old.Remote == nil && o != nil && old.Published:
			return fmt.Errorf("%w: the deployment's tables are published to their own folders, not to the catalog at %s; publish there by another deployment", ErrConfig, o.URI)
		}
	}
	if o == nil {
		if old != nil {
			n.publishes = old.Remote
		}
		return nil
	}
	n.publishes = &RemoteFacts{URI: o.URI, Warehouse: o.Warehouse, Prefix: o.Prefix}
	if !n.has(RolePublisher) {
		return nil
	}
	c, err := reachCatalog(ctx, o)
	if err == nil {
		err = c.CheckCommits()
	}
	switch {
	case errors.Is(err, restclient.ErrAway):
		return fmt.Errorf("the catalog that tables are published to: %w; start it, or mend its address", err)
	case err != nil:
		return fmt.Errorf("%w: the catalog that tables are published to: %w", ErrConfig, err)
	}
	n.remote = c
	return nil
}

// A node that starts asks the catalog so often before it gives up, and waits
// longer each time: who restarts it need not hurry.
const (
	catalogTries = 5
	catalogWait  = 200 * time.Millisecond
)

func reachCatalog(ctx context.Context, o *restclient.Options) (*restclient.Client, error) {
	for try := 0; ; try++ {
		c, err := restclient.Open(ctx, *o)
		if !errors.Is(err, restclient.ErrAway) || try == catalogTries-1 {
			return c, err
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), err)
		case <-time.After(catalogWait << try):
		}
	}
}

// place is the location of a new table: what the catalog gives it, where there
// is one and it says; else the folder of its name. suffix says whether the
// table's id may be put behind it.
func (n *Conn) place(ctx context.Context, d *schemas.Definition) (location string, suffix bool, err error) {
	ours := n.store.Location(tablePath(d.Name))
	if n.remote == nil {
		return ours, true, nil
	}
	id := restcat.IdentifierOf(d.Name)
	s := d.Schema()
	t, err := n.stage(ctx, id, &restcat.CreateTable{
		Name: id.Name, Location: ours, Schema: s.AppendJSON(nil), Spec: iceberg.AppendSpecJSON(nil, d.Spec(d.DefaultSpec)),
		Order: []byte(restcat.Unsorted), Properties: map[string]string{"format-version": fmt.Sprint(d.FormatVersion)},
	})
	if err != nil {
		// Not every catalog stages, and this one may be away: the publisher finds
		// out in the end whether it takes our place.
		n.client.Logger.Warn("the catalog does not say where a new table is to lie; it gets the folder of its name", "table", d.Name, "error", err)
		return ours, true, nil
	}
	if t.Location == ours || t.Location == "" {
		return ours, true, nil
	}
	if _, ok := n.store.Key(t.Location); !ok {
		return "", false, fmt.Errorf("%w: table %s: the catalog at %s puts it at %s, outside of the warehouse %s; configure the warehouse that holds it", ErrConfig, d.Name, n.remote.URI(), t.Location, n.store.Location(""))
	}
	return t.Location, false, nil
}

func (n *Conn) stage(ctx context.Context, id restcat.Identifier, r *restcat.CreateTable) (*iceberg.Metadata, error) {
	if err := n.remote.CreateNamespace(ctx, id.Namespace); err != nil {
		return nil, err
	}
	t, err := n.remote.Stage(ctx, id.Namespace, r)
	if err != nil {
		return nil, err
	}
	return iceberg.ParseMetadata(t.Metadata)
}
