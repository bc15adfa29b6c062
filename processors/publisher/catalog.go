package publisher

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/varve-io/varve/statestore/hadoopcat"
	"github.com/varve-io/varve/statestore/objstore"
)

// Errors of a Catalog.
var (
	// ErrConflict: the version is there with other bytes, or does not follow the newest.
	ErrConflict = errors.New("the catalog has another version of the table")
	// ErrUnknown: the version may or may not be committed. Publishing the same
	// cut again finds out (C4).
	ErrUnknown = errors.New("it is not known whether the catalog took the commit")
)

// Catalog is where the versions of tables are committed. A table is named by
// the store key of its folder.
type Catalog interface {
	// Load reads version n; objstore.ErrNotFound when there is none.
	Load(ctx context.Context, table string, n int64) ([]byte, error)
	// Commit makes n the table's newest version. nil: it is, also when it
	// already was with these bytes. ErrConflict, ErrUnknown: see there.
	Commit(ctx context.Context, table string, n int64, metadata []byte) error
	// Prune deletes, oldest first, every version n for which version n+keep+1
	// was made before the given time.
	Prune(ctx context.Context, table string, keep int, before time.Time) (deleted int, err error)
}

// Embedded is the catalog in the tables' own folders (W2).
func Embedded(store objstore.Store) Catalog { return embedded{hadoopcat.New(store)} }

type embedded struct{ c *hadoopcat.Catalog }

func (e embedded) Load(ctx context.Context, table string, n int64) ([]byte, error) {
	return e.c.Load(ctx, table, int(n))
}

func (e embedded) Commit(ctx context.Context, table string, n int64, metadata []byte) error {
	err := e.c.Commit(ctx, table, int(n), metadata)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, hadoopcat.ErrConflict):
		return fmt.Errorf("%w: %w", ErrConflict, err)
	}
	// A version whose hint is behind is no success: some readers know only the
	// hint. The next attempt brings it up.
	return fmt.Errorf("%w: %w", ErrUnknown, err)
}

func (e embedded) Prune(ctx context.Context, table string, keep int, before time.Time) (int, error) {
	return e.c.Prune(ctx, table, keep, before)
}
