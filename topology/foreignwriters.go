package topology

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/varve-io/varve/processors/publisher"
	"github.com/varve-io/varve/statestore"
)

// DefaultLookEvery is how often a table of an outside catalog is looked at that has
// nothing to publish: what other writers committed to it is taken in by then (H2).
const DefaultLookEvery = 30 * time.Second

// errNotTaken: the state did not take what other writers committed.
var errNotTaken = errors.New("the state did not take what other writers committed")

// takeForeign appends what other writers committed to a table, and waits until the
// state took it.
func (w *stateWorker) takeForeign(ctx context.Context, c statestore.CutNotice, f *statestore.FrozenCut, head *publisher.HeadMoved) error {
	select {
	case w.slots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	rec, err := w.pub.ForeignSnapshot(ctx, w.store, f, head)
	<-w.slots
	if err != nil {
		return err
	}
	off := w.append(ctx, c, rec)
	if off < 0 {
		return errors.New("the record of other writers' commits could not be appended")
	}
	w.waitApplied(ctx, off)
	t, err := w.store.Table(c.Table)
	if err == nil && t != nil && t.ID == c.TableID && t.Head.SnapshotID == f.Head.SnapshotID && t.Head.Build == f.Head.Build {
		err = fmt.Errorf("%w at log offset %d (`varve transaction show %d` tells why); it is tried again", errNotTaken, off, off)
	}
	return err
}

// lookAround looks now and then for what other writers committed to tables that
// have nothing to publish.
func (w *stateWorker) lookAround(ctx context.Context, pubs *sync.WaitGroup) {
	every := w.n.opt.LookEvery
	if every <= 0 {
		every = DefaultLookEvery
	}
	for sleep(ctx, every) == nil {
		_, tables, err := w.tables()
		if err != nil {
			continue // another goroutine stops the partition
		}
		for _, t := range tables {
			if ctx.Err() != nil {
				return
			}
			c := statestore.CutNotice{Table: t.Name, TableID: t.ID}
			if t.Pending != nil || !w.beginPublish(t.ID) {
				continue // its publisher reads the table anyway
			}
			w.look(ctx, c)
			if !w.endPublish(t.ID) { // a cut came meanwhile
				pubs.Go(func() { w.publishTable(ctx, c) })
			}
		}
	}
}

// look takes in what others committed to one table.
func (w *stateWorker) look(ctx context.Context, c statestore.CutNotice) {
	f, err := w.store.Committed(c.TableID)
	if err != nil || f == nil {
		return
	}
	err = w.pub.Look(ctx, f)
	var head *publisher.HeadMoved
	fact, _ := catalogFact(err)
	switch {
	case errors.As(err, &head):
		w.log.Info("other writers committed to the table", "table", c.Table, "what", head.Why)
		err = w.takeForeign(ctx, c, f, head)
	case fact != nil: // columns or specs that their rows need
		w.waitApplied(ctx, w.append(ctx, c, fact))
		return
	}
	switch {
	case ctx.Err() != nil:
	case err == nil:
		if w.setStuck(c.TableID, nil) {
			w.setWaiting(c.TableID, "")
		}
	case errors.Is(err, publisher.ErrForeign), errors.Is(err, publisher.ErrInconsistent):
		w.setWaiting(c.TableID, err.Error())
		if w.setStuck(c.TableID, err) {
			w.log.Error("a table cannot be published until somebody acts; it is looked at again now and then", "table", c.Table, "error", err)
		}
	default:
		w.log.Warn("the table could not be looked at in the catalog; it is tried again", "table", c.Table, "error", err)
	}
}
