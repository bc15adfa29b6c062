package sim

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/varve-io/varve/processors/collector"
	"github.com/varve-io/varve/processors/ingest"
	"github.com/varve-io/varve/schemas/iceberg"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/statestore/objstore"
)

// bin keeps what is deleted, so that the whole log can still be folded: nobody
// but a check reads it.
type bin struct {
	objstore.Store
	gone *objstore.Mem
}

func (b bin) Delete(ctx context.Context, keys ...string) error {
	for _, k := range keys {
		data, err := b.Store.ReadAll(ctx, k, 1<<30)
		if errors.Is(err, objstore.ErrNotFound) {
			continue
		}
		if err == nil {
			err = b.gone.Replace(ctx, k, data)
		}
		if err != nil {
			return err
		}
	}
	return b.Store.Delete(ctx, keys...)
}

// everything is the store as if nothing had been deleted.
type everything struct {
	objstore.Store
	gone *objstore.Mem
}

func (e everything) Open(ctx context.Context, key string) (objstore.Object, error) {
	o, err := e.Store.Open(ctx, key)
	if errors.Is(err, objstore.ErrNotFound) {
		return e.gone.Open(ctx, key)
	}
	return o, err
}

// readEver reads an object that may have been deleted: who names rows of it has
// read it before.
func (w *World) readEver(location string) ([]byte, error) {
	b, err := w.read(location)
	if !errors.Is(err, objstore.ErrNotFound) {
		return b, err
	}
	key, _ := w.mem.Key(location)
	return w.gone.ReadAll(w.ctx, key, 1<<30)
}

func (m *member) collector() *collector.Collector {
	if m.gc == nil {
		m.gc = collector.New(collector.Config{
			State: m.store, Store: bin{m.w.mem, m.w.gone}, Grace: -1,
			Catalog: m.w.publisher(),
		})
	}
	return m.gc
}

// garbageStep is one thing that a collector does. Members may be behind, and both
// of them collect.
func (w *World) garbageStep() error {
	m := w.pickMember()
	t, err := m.store.Table(tableName)
	if err != nil || t == nil {
		return err
	}
	if w.rng.Intn(2) == 0 {
		return w.askCollect(m, t)
	}
	return w.deleteCollected(m, t, w.rng.Intn(3) == 0)
}

func (w *World) askCollect(m *member, t *statestore.TableInfo) error {
	gc := m.collector()
	if w.rng.Intn(4) == 0 {
		if _, err := gc.Sweep(w.ctx, t, func(context.Context) (int64, error) { return int64(len(w.log)) - 1, nil }); err != nil {
			return err
		}
	}
	asks, err := gc.Propose(t, "sim")
	if err != nil {
		return err
	}
	for i := range asks {
		for _, x := range asks[i].Items {
			w.saw[fmt.Sprintf("garbage of kind %d", x.Kind)]++
		}
		if err := w.enqueue(m, &asks[i]); err != nil {
			return err
		}
	}
	return nil
}

func (w *World) deleteCollected(m *member, t *statestore.TableInfo, faulty bool) error {
	all, err := m.store.Collections(t.ID)
	if err != nil || len(all) == 0 {
		return err
	}
	gc := m.collector()
	if err := gc.CheckCatalog(w.ctx, t); errors.Is(err, collector.ErrCatalogAhead) {
		w.saw["catalog ahead"]++
		return nil
	} else if err != nil {
		if w.behind(m) || w.opt.Foreign && w.cat.Metadata(w.ident()) == nil {
			return nil
		}
		return err
	}
	x := &all[w.rng.Intn(len(all))]
	if !gc.Due(x, time.UnixMilli(w.now)) {
		return nil // the broker's clock was set back
	}
	if faulty {
		w.faults = 1 + w.rng.Intn(3)
	}
	done, err := gc.Delete(w.ctx, t, x)
	w.faults = 0
	if errors.Is(err, errInjected) {
		w.saw["deletion failed"]++
		return nil
	}
	if err != nil {
		return err
	}
	if w.rng.Intn(4) == 0 {
		if err := w.checkRetained(); err != nil {
			return err
		}
	}
	if w.rng.Intn(5) == 0 {
		return nil // the collector dies before it can say so
	}
	return w.enqueue(m, done)
}

// keepSnapshot reads a snapshot when it is published: later its files may be gone.
func (w *World) keepSnapshot(c *record.SnapshotCommitted) error {
	if !w.opt.Garbage && !w.opt.Time || c.SnapshotID == 0 || w.kept[c.Build] != nil {
		return nil
	}
	got, err := w.readSnapshot(c)
	if err != nil {
		return fmt.Errorf("snapshot of the cut at %d, just published: %w", c.Build, err)
	}
	if w.kept == nil {
		w.kept = map[int64]*snapshotData{}
	}
	w.kept[c.Build] = got
	return nil
}

// newest is the commit of the catalog's newest metadata, nil: there is none;
// builds are the build offsets of snapshots.
func (w *World) newest() (newest *record.SnapshotCommitted, builds map[int64]int64) {
	builds = map[int64]int64{}
	for build, c := range w.published {
		if c.SnapshotID != 0 {
			builds[c.SnapshotID] = build
		}
		if newest == nil || c.MetadataVersion > newest.MetadataVersion {
			newest = c
		}
	}
	return newest, builds
}

// newestMetadata is that of the catalog, nil: there is none.
func (w *World) newestMetadata() (*iceberg.Metadata, map[int64]int64, error) {
	newest, builds := w.newest()
	if w.opt.Foreign {
		return w.cat.Metadata(w.ident()), builds, nil
	}
	if newest == nil {
		return nil, builds, nil
	}
	text, err := w.read(newest.MetadataPath)
	if err != nil {
		return nil, nil, err
	}
	meta, err := iceberg.ParseMetadata(text)
	return meta, builds, err
}

// checkRetained: every snapshot that the catalog's newest metadata has can be read,
// and holds the rows that it held when it was made.
func (w *World) checkRetained() error {
	meta, builds, err := w.newestMetadata()
	if err != nil || meta == nil {
		return err
	}
	for i := range meta.Snapshots {
		c := w.published[builds[meta.Snapshots[i].ID]]
		if c == nil {
			continue // published by one who died before anybody heard of it
		}
		got, err := w.readSnapshot(c)
		if err != nil {
			return fmt.Errorf("the retained snapshot of the cut at %d: %w", c.Build, err)
		}
		if d := differ(w.kept[c.Build].rows, got.rows); d != "equal" {
			return fmt.Errorf("the retained snapshot of the cut at %d: %s", c.Build, d)
		}
		w.saw["retained snapshot read again"]++
	}
	return nil
}

// finishGarbage collects until nothing can be collected any more. Then no object
// may be left in the table's folder that nobody needs.
func (w *World) finishGarbage() error {
	m := w.members[0]
	for range 100 {
		if err := m.apply(1 << 20); err != nil {
			return err
		}
		t, err := m.store.Table(tableName)
		if err != nil {
			return err
		}
		at := len(w.log)
		gc := m.collector()
		if _, err := gc.Sweep(w.ctx, t, func(context.Context) (int64, error) { return int64(at) - 1, nil }); err != nil {
			return err
		}
		asks, err := gc.Propose(t, "sim")
		if err != nil {
			return err
		}
		for i := range asks {
			if err := w.request(tableName, w.tableID, &asks[i]); err != nil {
				return err
			}
		}
		all, err := m.store.Collections(t.ID)
		if err != nil {
			return err
		}
		for i := range all {
			if err := gc.CheckCatalog(w.ctx, t); err != nil {
				return err
			}
			done, err := gc.Delete(w.ctx, t, &all[i])
			if err != nil {
				return err
			}
			if err := w.request(tableName, w.tableID, done); err != nil {
				return err
			}
		}
		if len(w.log) == at {
			return w.checkFolder(t)
		}
	}
	return fmt.Errorf("%w: there is garbage after 100 rounds of collecting", errStuck)
}

// checkFolder: every object is known to the state, or an open epoch may still name it.
func (w *World) checkFolder(t *statestore.TableInfo) error {
	sweep, err := w.members[0].store.Sweep(t.ID)
	if err != nil {
		return err
	}
	key, _ := w.mem.Key(w.def.Location)
	return w.mem.List(w.ctx, key+"/", func(i objstore.Info) error {
		name := strings.TrimPrefix(i.Key, key+"/")
		now, _, err := sweep.Stray(name, w.members[0].store.Head().Offset)
		if err == nil && now {
			err = fmt.Errorf("%s is left over", name)
		}
		return err
	})
}

// checkpointEvery is after how many ms an index goes to the store.
func (w *World) checkpointEvery() int64 {
	if w.opt.Garbage {
		return 300
	}
	return 0
}

// overtaken: an owner met a file that is not there. It may only be one that left
// the table before its shard's index horizon: an owner that was silent for long, or
// whose local index is old. It begins again.
func (o *owner) overtaken(cause error) error {
	if err := o.w.members[0].apply(1 << 20); err != nil {
		return err
	}
	t, err := o.w.members[0].store.Table(tableName)
	if err != nil {
		return err
	}
	for i := range t.Shards {
		if sh := &t.Shards[i]; int(sh.Partition) == o.partition && sh.IndexHorizon <= o.shard.Decided() && !sh.Retired && !errors.Is(cause, ingest.ErrOvertaken) {
			return fmt.Errorf("an owner at log offset %d, above its shard's horizon %d: %w", o.shard.Decided(), sh.IndexHorizon, cause)
		}
	}
	o.w.saw["owner overtaken"]++
	if errors.Is(cause, ingest.ErrOvertaken) {
		o.w.saw["overtaken at the claim"]++
	}
	return o.crash()
}

// tooLate: a worker met a file that is not there. Its attempt must be over.
func (w *World) tooLate(i int, cause error) error {
	if err := w.members[0].apply(1 << 20); err != nil {
		return err
	}
	open := false
	if err := w.members[0].store.OpenJobs(w.tableID, func(j *statestore.JobInfo) error {
		open = open || j.Job == w.dispatched[i].Job
		return nil
	}); err != nil {
		return err
	}
	if open {
		return fmt.Errorf("an open job misses an input: %w", cause)
	}
	w.saw["input of a job that was over"]++
	w.dispatched = append(w.dispatched[:i], w.dispatched[i+1:]...)
	return nil
}
