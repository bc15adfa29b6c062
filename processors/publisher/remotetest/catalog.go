// Package remotetest is an outside catalog in memory, for tests that break what
// a real one keeps whole.
//
// Owns: tables as metadata, requirements and updates as the REST protocol has
// them, faults. May touch: nothing. Never enters: anything but tests.
package remotetest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/varve-io/varve/schemas/iceberg"
	"github.com/varve-io/varve/schemas/restcat"
	"github.com/varve-io/varve/statestore/objstore"
	"github.com/varve-io/varve/statestore/restclient"
)

// Catalog holds tables. Its methods may be called concurrently.
type Catalog struct {
	// Before and After, if given, are called around the effect of a commit; an
	// error ends it, before or after it was taken. Set them before use.
	Before, After func() error
	// Exact: a commit that names its base is refused on another one, as by catalogs
	// that swap the place of the metadata; a server of the protocol does not know of it.
	Exact bool
	// Store, if given, holds each version of the metadata, as a catalog's warehouse.
	Store objstore.Store

	mu     sync.Mutex
	tables map[string]*table
}

type table struct {
	meta    *iceberg.Metadata
	version int
}

// New is an empty catalog.
func New() *Catalog { return &Catalog{tables: map[string]*table{}} }

// CreateNamespace: there are all.
func (c *Catalog) CreateNamespace(context.Context, []string) error { return nil }

// Load is the table as it is now.
func (c *Catalog) Load(_ context.Context, id restcat.Identifier) (*restclient.Table, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.tables[id.String()]
	if t == nil {
		return nil, fmt.Errorf("%w: %s", restclient.ErrNotFound, id)
	}
	return t.answer()
}

func (t *table) answer() (*restclient.Table, error) {
	text, err := t.meta.Marshal()
	if err != nil {
		return nil, err
	}
	return &restclient.Table{MetadataLocation: t.at(), Metadata: text}, nil
}

func (t *table) at() string {
	return fmt.Sprintf("%s/metadata/%05d.metadata.json", t.meta.Location, t.version)
}

// Metadata is a table's metadata, not to be changed; nil: there is no such table.
func (c *Catalog) Metadata(id restcat.Identifier) *iceberg.Metadata {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.tables[id.String()]; t != nil {
		return t.meta
	}
	return nil
}

// Drop drops a table.
func (c *Catalog) Drop(id restcat.Identifier) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.tables, id.String())
}

// Commit takes a commit whole or not at all.
func (c *Catalog) Commit(_ context.Context, r *restcat.CommitTable) (*restclient.Table, error) {
	if c.Before != nil {
		if err := c.Before(); err != nil {
			return nil, err
		}
	}
	out, err := c.commit(r)
	if err == nil && c.After != nil {
		if err := c.After(); err != nil {
			return nil, err
		}
	}
	return out, err
}

func (c *Catalog) commit(r *restcat.CommitTable) (*restclient.Table, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.tables[r.Identifier.String()]
	next := &table{meta: &iceberg.Metadata{LastPartitionID: 999}}
	if old != nil {
		next.meta, next.version = old.meta.Clone(), old.version+1
	}
	var before *iceberg.Metadata
	if old != nil {
		before = old.meta
		if c.Exact && r.Base != "" && r.Base != old.at() {
			return nil, fmt.Errorf("%w: the metadata is at %s", restclient.ErrConflict, old.at())
		}
	}
	if err := restcat.Require(before, r.Requirements); errors.Is(err, restcat.ErrNoTable) {
		return nil, restclient.ErrNotFound
	} else if err != nil {
		return nil, fmt.Errorf("%w: %w", restclient.ErrConflict, err)
	}
	base := next.meta.LastUpdatedMs
	if err := restcat.Apply(next.meta, r.Updates); err != nil {
		return nil, fmt.Errorf("%w: %w", restclient.ErrConflict, err)
	}
	if old != nil {
		next.meta.LogMetadata(old.at(), old.meta.LastUpdatedMs, iceberg.MetadataLogLimit)
		if next.meta.LastUpdatedMs == base {
			next.meta.LastUpdatedMs++ // its own clock is slow
		}
	}
	out, err := next.answer()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", restclient.ErrConflict, err)
	}
	if c.Store != nil {
		key, ok := c.Store.Key(out.MetadataLocation)
		if !ok {
			return nil, fmt.Errorf("%w: %s is not in the store", restclient.ErrNonsense, out.MetadataLocation)
		}
		if err := c.Store.Create(context.Background(), key, out.Metadata); err != nil {
			return nil, err
		}
	}
	c.tables[r.Identifier.String()] = next
	return out, nil
}

// Foreign commits as another program does, without requirements.
func (c *Catalog) Foreign(id restcat.Identifier, updates ...restcat.Update) error {
	_, err := c.commit(&restcat.CommitTable{Identifier: id, Updates: updates})
	return err
}

// ForeignSnapshot commits another program's snapshot to a branch: the current
// list again, and rows that it says it added. It returns its id.
func (c *Catalog) ForeignSnapshot(id restcat.Identifier, branch string, aheadMs int64) (int64, error) {
	m := c.Metadata(id)
	if m == nil || m.Current() == nil {
		return 0, errors.New("there is nothing to branch from")
	}
	cur, rows := m.Current(), int64(3)
	x := iceberg.Snapshot{
		ID: 1_000_000 + m.LastSequence, Sequence: m.LastSequence + 1, ParentID: &cur.ID, TimestampMs: m.NextTimestamp(0) + aheadMs, Operation: "append",
		ManifestList: cur.ManifestList, SchemaID: &m.CurrentSchema, FirstRowID: &m.NextRowID, AddedRows: &rows,
	}
	return x.ID, c.Foreign(id, restcat.AddSnapshot(&x), restcat.SetRef(branch, "branch", x.ID, nil))
}
