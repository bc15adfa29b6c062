package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/varve-io/varve/statestore/objstore"
)

// openLakes gives the run a folder of its own in the warehouse.
func (o *Options) openLakes(ctx context.Context) (remove func() error, err error) {
	if o.Warehouse == "" {
		return func() error { return nil }, nil
	}
	if o.lakes, err = below(o.Warehouse, "varve-bench-"+strconv.FormatUint(rand.Uint64(), 36)); err != nil {
		return nil, err
	}
	store, err := objstore.Open(ctx, o.lakes)
	if err != nil {
		return nil, fmt.Errorf("the bench's warehouse: %w", err)
	}
	return func() error {
		// Whatever ended the run: what it made is removed.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Minute)
		defer cancel()
		var keys []string
		err := store.List(ctx, "", func(i objstore.Info) error {
			keys = append(keys, i.Key)
			return nil
		})
		if err = errors.Join(err, store.Delete(ctx, keys...)); err != nil {
			return fmt.Errorf("remove what the bench wrote to %s: %w", store.Location(""), err)
		}
		return nil
	}, nil
}

// lake is where a node with this data folder has its lake.
func (o *Options) lake(data string) (string, error) {
	if o.lakes == "" {
		return filepath.Join(data, "lake"), nil
	}
	return below(o.lakes, filepath.Base(data))
}

// below is a folder below a store URL, or below a folder.
func below(where, name string) (string, error) {
	if !strings.Contains(where, "://") {
		return filepath.Join(where, name), nil
	}
	u, err := url.Parse(where)
	if err != nil {
		return "", fmt.Errorf("the bench's warehouse is no URL: %w", err)
	}
	return u.JoinPath(name).String(), nil
}
