package topology

import (
	"context"
	"fmt"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/topology/restcatalog"
)

// CatalogOptions say how a node serves the tables of its warehouse to other
// engines (W4).
type CatalogOptions struct {
	// Address to listen on. Default: restcatalog.DefaultAddress, or a free port
	// of loopback where that one is taken.
	Address string
	// Token that every request must bring. An address beyond loopback needs one.
	Token string
}

// serveCatalog starts the catalog, if the options ask for one.
func (n *Node) serveCatalog() (err error) {
	o := n.opt.Catalog
	if o == nil {
		return nil
	}
	address := o.Address
	if address == "" {
		address = restcatalog.DefaultAddress
	}
	if err := restcatalog.CheckAddress(address, o.Token); err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	n.catalog, err = restcatalog.Listen(n.store, address, o.Address == "", restcatalog.Options{
		Token: o.Token, Placed: n.placedTables, TableConfig: restcatalog.StoreConfig(n.opt.Warehouse), Logger: n.log,
	})
	return err
}

// Catalog is the URL at which the node serves its warehouse, or empty.
func (n *Node) Catalog() string {
	if n.catalog == nil {
		return ""
	}
	return n.catalog.URL()
}

// placedTables is the folders of the tables, of those that this node has the
// state of, that do not lie where their name says.
func (n *Node) placedTables(ctx context.Context) (map[string]string, error) {
	known, err := n.Tables(ctx)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, t := range known {
		key, ok := n.store.Key(t.Definition.Location)
		if !ok {
			continue // it lies in another warehouse, which is not served
		}
		if namespace, table := schemas.SplitName(t.Name); key != namespace+"/"+table {
			out[namespace+"."+table] = key
		}
	}
	return out, nil
}
