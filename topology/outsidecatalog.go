package topology

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/varve-io/varve/processors/publisher"
	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/iceberg"
	"github.com/varve-io/varve/schemas/restcat"
	"github.com/varve-io/varve/statestore/objstore"
	"github.com/varve-io/varve/statestore/restclient"
	"github.com/varve-io/varve/statestore/sqlcat"
)

// RemoteFacts is where a deployment's tables are published outside of their
// own folders; no secrets.
type RemoteFacts struct {
	URI       string `json:"uri"`
	Warehouse string `json:"warehouse,omitempty"`
	Prefix    string `json:"prefix,omitempty"`
	// How requests are signed.
	SigningRegion string `json:"signing_region,omitempty"`
	SigningName   string `json:"signing_name,omitempty"`
}

// OutsideCatalog is a catalog that other programs write to as well.
type OutsideCatalog interface {
	publisher.Remote
	// URI is its address; it holds no secret.
	URI() string
	// CheckCommits says why tables cannot be published there, nil when they can.
	CheckCommits() error
}

// stager is a catalog that says where a new table is to lie.
type stager interface {
	Stage(ctx context.Context, namespace []string, r *restcat.CreateTable) (*restclient.Table, error)
}

// OpenOutside reaches a catalog: a REST one, or one in a PostgreSQL database,
// whose name is what the warehouse says and whose login the credential.
func OpenOutside(ctx context.Context, o *restclient.Options, store objstore.Store) (OutsideCatalog, error) {
	if sqlcat.IsURI(o.URI) {
		c, err := sqlcat.Open(ctx, sqlOptions(o, store))
		if err != nil {
			return nil, err
		}
		return c, nil
	}
	c, err := restclient.Open(ctx, *o)
	if err != nil {
		return nil, err
	}
	return c, nil
}

func sqlOptions(o *restclient.Options, store objstore.Store) sqlcat.Options {
	user, password, _ := strings.Cut(o.Credential, ":")
	return sqlcat.Options{URI: o.URI, Name: o.Warehouse, User: user, Password: password, Timeout: o.Timeout, Store: store}
}

func checkOutside(o *restclient.Options) error {
	if !sqlcat.IsURI(o.URI) {
		return restclient.CheckOptions(*o)
	}
	if o.Token != "" || o.Prefix != "" || len(o.Headers) > 0 || o.SigningRegion != "" || o.SigningName != "" {
		return fmt.Errorf("%w: a catalog in PostgreSQL takes no access token, prefix, headers or signatures; its login is the credential user:password", restclient.ErrOptions)
	}
	return sqlcat.CheckOptions(sqlOptions(o, nil))
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
	n.publishes = &RemoteFacts{URI: o.URI, Warehouse: o.Warehouse, Prefix: o.Prefix, SigningRegion: o.SigningRegion, SigningName: o.SigningName}
	if !n.has(RolePublisher) {
		return nil
	}
	c, err := n.reachCatalog(ctx, o)
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

func (n *Node) reachCatalog(ctx context.Context, o *restclient.Options) (OutsideCatalog, error) {
	for try := 0; ; try++ {
		c, err := OpenOutside(ctx, o, n.store)
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
	catalog, says := n.remote.(stager)
	if !says {
		return ours, true, nil
	}
	id := restcat.IdentifierOf(d.Name)
	s := d.Schema()
	t, err := n.stage(ctx, catalog, id, &restcat.CreateTable{
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

func (n *Conn) stage(ctx context.Context, catalog stager, id restcat.Identifier, r *restcat.CreateTable) (*iceberg.Metadata, error) {
	if err := n.remote.CreateNamespace(ctx, id.Namespace); err != nil {
		return nil, err
	}
	t, err := catalog.Stage(ctx, id.Namespace, r)
	if err != nil {
		return nil, err
	}
	return iceberg.ParseMetadata(t.Metadata)
}
