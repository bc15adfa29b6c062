package collector

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/statestore/objstore"
)

// Defaults of a Config.
const (
	// DefaultGrace is gc_grace: how long an object stays after nothing reaches it,
	// for readers that still plan on a snapshot that was given up.
	DefaultGrace = time.Hour
	// DefaultEvery is how often a table is looked at.
	DefaultEvery = time.Minute
	// DefaultSweepEvery is how often a table's folder is listed for strays.
	DefaultSweepEvery = 6 * time.Hour
)

// PropertyPaused is the table property that, "true", ends the collection of its
// garbage; what the log has let go is still deleted.
const PropertyPaused = "varve.gc.paused"

const (
	// maxRecords bounds how many CollectFiles one Propose gives.
	maxRecords = 16
	// maxLater bounds how many objects of a sweep wait for their writers to end.
	maxLater = 1 << 16
	// deleteAtOnce is how many objects are deleted by one call.
	deleteAtOnce = 256
)

// ErrCatalogAhead: the catalog has snapshots of the table that the log does not
// know of. They may reach anything: nothing is deleted until the log knows them.
var ErrCatalogAhead = errors.New("the catalog has snapshots that the log does not know of yet")

// Catalog tells which snapshots a table has.
type Catalog interface {
	Snapshots(ctx context.Context, t *statestore.TableInfo) ([]int64, error)
}

// Config is what a Collector works with.
type Config struct {
	// State is the partition's. Required, as all but Grace.
	State   *statestore.Store
	Store   objstore.Store
	Catalog Catalog
	// Grace: DefaultGrace when 0, none below zero.
	Grace time.Duration
}

// Collector collects the tables of one partition. One goroutine uses it.
type Collector struct {
	cfg    Config
	cursor map[int64][]byte        // by table: where Propose goes on
	later  map[int64][]strayObject // by table
	sweeps map[int64]time.Time     // by table: the last one
}

type strayObject struct {
	name string
	seen int64
}

// New makes a Collector.
func New(cfg Config) *Collector {
	switch {
	case cfg.Grace == 0:
		cfg.Grace = DefaultGrace
	case cfg.Grace < 0:
		cfg.Grace = 0
	}
	return &Collector{cfg: cfg, cursor: map[int64][]byte{}, later: map[int64][]strayObject{}, sweeps: map[int64]time.Time{}}
}

// Paused says whether a table's garbage is left alone.
func Paused(t *statestore.TableInfo) bool {
	for _, p := range t.Definition.Properties {
		if p.Key == PropertyPaused {
			return p.Value == "true"
		}
	}
	return false
}

// Propose is what to ask of the log for a table now.
func (c *Collector) Propose(t *statestore.TableInfo, cause string) ([]record.CollectFiles, error) {
	var out []record.CollectFiles
	for len(out) < maxRecords {
		items, next, err := c.cfg.State.Collectable(t.ID, c.cursor[t.ID], statestore.MaxCollect)
		if err != nil {
			return nil, fmt.Errorf("garbage of table %s: %w", t.Name, err)
		}
		c.cursor[t.ID] = next
		if len(items) > 0 {
			out = append(out, record.CollectFiles{Items: items, Cause: cause})
		}
		if next == nil {
			break
		}
	}
	strays, err := c.proposeStrays(t)
	if err != nil {
		return nil, err
	}
	for part := range slices.Chunk(strays, statestore.MaxCollect) {
		out = append(out, record.CollectFiles{Items: part, Cause: cause})
	}
	return out, nil
}

// Sweep lists a table's folder. end is asked after the listing for the end of the
// log: an object that was seen before was written by who had read at most so far.
func (c *Collector) Sweep(ctx context.Context, t *statestore.TableInfo, end func(context.Context) (int64, error)) (seen int, err error) {
	key, ok := c.cfg.Store.Key(t.Definition.Location)
	if !ok {
		return 0, fmt.Errorf("table %s: its location %s does not lie in the store %s", t.Name, t.Definition.Location, c.cfg.Store.Location(""))
	}
	w, err := c.cfg.State.Sweep(t.ID)
	if err != nil || w == nil {
		return 0, err
	}
	var found []string
	for _, folder := range []string{"data/", "metadata/"} {
		if err := c.cfg.Store.List(ctx, key+"/"+folder, func(i objstore.Info) error {
			seen++
			name := strings.TrimPrefix(i.Key, key+"/")
			if !statestore.IsStrayName(name) {
				return nil
			}
			// With the newest end there is: what is known by then is no stray.
			now, later, err := w.Stray(name, 0)
			if err == nil && (now || later) && len(found) < maxLater {
				found = append(found, name)
			}
			return err
		}); err != nil {
			return seen, fmt.Errorf("list the folder of table %s: %w", t.Name, err)
		}
	}
	at, err := end(ctx)
	if err != nil {
		return seen, fmt.Errorf("the end of the log: %w", err)
	}
	c.later[t.ID] = c.later[t.ID][:0]
	for _, name := range found {
		c.later[t.ID] = append(c.later[t.ID], strayObject{name, at})
	}
	return seen, nil
}

// SweepDue says whether a table's folder was not looked at for so long, and notes
// that it is now.
func (c *Collector) SweepDue(table int64, now time.Time, every time.Duration) bool {
	last, ok := c.sweeps[table]
	if !ok {
		// Not at once: a deployment that starts has other things to do, and one that
		// starts again and again need not list its lake each time.
		c.sweeps[table] = now
		return false
	}
	if now.Sub(last) < every {
		return false
	}
	c.sweeps[table] = now
	return true
}

// proposeStrays are the strays that nobody can enter in the log any more. Those
// that somebody can wait.
func (c *Collector) proposeStrays(t *statestore.TableInfo) ([]record.CollectItem, error) {
	all := c.later[t.ID]
	if len(all) == 0 {
		return nil, nil
	}
	w, err := c.cfg.State.Sweep(t.ID)
	if err != nil || w == nil {
		return nil, err
	}
	var items []record.CollectItem
	kept := all[:0]
	for _, x := range all {
		now, later, err := w.Stray(x.name, x.seen)
		if err != nil {
			return nil, err
		}
		switch {
		case now:
			items = append(items, record.CollectItem{Kind: record.GarbageStray, Left: x.seen, Name: x.name})
		case later:
			kept = append(kept, x)
		}
	}
	c.later[t.ID] = kept
	return items, nil
}

// Due says whether a collection's grace has passed.
func (c *Collector) Due(x *statestore.Collection, now time.Time) bool {
	return now.UnixMilli() >= x.TimeMs+c.cfg.Grace.Milliseconds()
}

// Grace is how long a collection waits.
func (c *Collector) Grace() time.Duration { return c.cfg.Grace }

// CheckCatalog makes sure that the log knows every snapshot of a table that its
// catalog has (G2). The table's info must be newer than the collections that are
// deleted then.
func (c *Collector) CheckCatalog(ctx context.Context, t *statestore.TableInfo) error {
	ids, err := c.cfg.Catalog.Snapshots(ctx, t)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if !slices.ContainsFunc(t.Snapshots, func(s statestore.SnapshotRef) bool { return s.ID == id }) {
			return fmt.Errorf("%w: snapshot %d of table %s", ErrCatalogAhead, id, t.Name)
		}
	}
	return nil
}

// Delete deletes a collection's objects. Those that are not there are no error:
// an earlier attempt, or another member, was here.
func (c *Collector) Delete(ctx context.Context, t *statestore.TableInfo, x *statestore.Collection) (*record.FilesCollected, error) {
	keys := make([]string, 0, len(x.Objects))
	for _, path := range x.Objects {
		key, ok := c.cfg.Store.Key(path)
		if !ok {
			return nil, fmt.Errorf("collection at log offset %d of table %s: %s does not lie in the store %s; configure the warehouse that holds it",
				x.Offset, t.Name, path, c.cfg.Store.Location(""))
		}
		keys = append(keys, key)
	}
	for part := range slices.Chunk(keys, deleteAtOnce) {
		if err := c.cfg.Store.Delete(ctx, part...); err != nil {
			return nil, fmt.Errorf("collection at log offset %d of table %s: %w", x.Offset, t.Name, err)
		}
	}
	return &record.FilesCollected{Collect: x.Offset, Objects: int64(len(keys))}, nil
}

// Forget drops what is remembered of tables that are not among those given.
func (c *Collector) Forget(tables map[int64]bool) {
	for id := range c.cursor {
		if !tables[id] {
			delete(c.cursor, id)
		}
	}
	for id := range c.later {
		if !tables[id] {
			delete(c.later, id)
		}
	}
	for id := range c.sweeps {
		if !tables[id] {
			delete(c.sweeps, id)
		}
	}
}
