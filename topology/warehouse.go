package topology

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/varve-io/varve/statestore/objstore"
)

// warehouseWait bounds how long a start waits for the warehouse to answer: a
// wrong endpoint must not look like a node that works.
const warehouseWait = 20 * time.Second

// openWarehouse opens the store of a lake. It does not reach a store that is no
// folder: what is wrong then is the configuration.
func openWarehouse(ctx context.Context, where string, opts ...objstore.Option) (objstore.Store, error) {
	s, err := objstore.Open(ctx, where, opts...)
	if _, local := localFolder(where); err != nil && !local {
		err = fmt.Errorf("%w: the warehouse: %w", ErrConfig, err)
	}
	return s, err
}

// storeURL is what node.json keeps of a warehouse's URL: nothing of a folder,
// whose location is all.
func storeURL(warehouse string) string {
	if _, local := localFolder(warehouse); local {
		return ""
	}
	return warehouse
}

// store is how the deployment's warehouse is opened.
func (f *nodeFile) store() string {
	if f.WarehouseURL != "" {
		return f.WarehouseURL
	}
	return f.Warehouse
}

// ask runs the first calls to a warehouse, in bounded time.
func ask(ctx context.Context, where string, fn func(context.Context) error) error {
	short, cancel := context.WithTimeout(ctx, warehouseWait)
	defer cancel()
	err := fn(short)
	switch {
	case err == nil || ctx.Err() != nil:
		return err
	case errors.Is(err, objstore.ErrSetup):
		return fmt.Errorf("%w: the warehouse: %w", ErrConfig, err)
	case short.Err() != nil:
		return fmt.Errorf("warehouse %s: no answer within %s: %w; check that its store runs and that its address is right", where, warehouseWait, err)
	}
	return err
}
