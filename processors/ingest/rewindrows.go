package ingest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/varve-io/varve/processors"
	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/dv"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/schemas/rows"
	"github.com/varve-io/varve/statestore/keyindex"
)

// died are positions that blocks named within the tombstone time before a
// rollback's target, by file: dead rows whose values were not forgotten by then.
type died map[uint64]*roaring.Bitmap

// deaths notes blocks, the rejected ones apart. Those of appends are among them: a
// request without a value leaves the one that was remembered, and nothing but the
// dead row tells it (K2).
func (w *Rewind) deaths(m *record.OutcomeMessage, blocks []record.DeleteBlock, rejected map[int]bool) error {
	if w.since < 0 {
		return nil // forgotten by then
	}
	for i := range blocks {
		if rejected[i] {
			continue
		}
		set, err := dv.ReadBitmap(blocks[i].Bitmap)
		if err != nil {
			return fmt.Errorf("delete block of log offset %d: %w", m.Offset, err)
		}
		if all := w.died[blocks[i].File]; all != nil {
			all.Or(set)
		} else {
			w.died[blocks[i].File] = set
		}
	}
	return nil
}

// deathsByOthers notes those of a DeletePositions, of what a find job found, or of
// another writer's vectors.
func (w *Rewind) deathsByOthers(ctx context.Context, d *processors.Decided) error {
	v, err := w.s.content(ctx, d)
	if err != nil {
		return err
	}
	var blocks []record.DeleteBlock
	var rejected map[int]bool
	switch x := v.(type) {
	case *record.RowsFound:
		blocks = x.Deletes
	case *record.DeletePositions:
		blocks = x.Deletes
		if rejected, err = d.Outcome.Outcome.Rejected(len(blocks)); err != nil {
			return err
		}
	case *record.ForeignSnapshot:
		for i := range x.Vectors {
			if len(x.Vectors[i].Dead) > 0 {
				blocks = append(blocks, record.DeleteBlock{File: x.Vectors[i].File, Bitmap: x.Vectors[i].Dead})
			}
		}
	}
	return w.deaths(&d.Outcome, blocks, rejected)
}

// files folds the rows of what the Rollback lists. Live ones stand over every
// remembered value of their keys, for they carry their own (K3); one that has none
// keeps what is remembered. Of the dead ones, those that died within the tombstone
// time leave their values.
func (w *Rewind) files(ctx context.Context, x *record.Rollback) error {
	s := w.s
	v := 0
	for i := range x.Files {
		f := &x.Files[i]
		info := fileInfo{Record: f.Record, Added: f.Record, Epoch: f.Epoch, FirstRow: f.FirstRowID}
		copy(info.Name[:], f.Name)
		s.side.Files[f.File] = info
		for v < len(x.Vectors) && x.Vectors[v].File < f.File {
			v++
		}
		dead := roaring.New()
		if v < len(x.Vectors) && x.Vectors[v].File == f.File {
			var err error
			if dead, err = dv.ReadBitmap(x.Vectors[v].Dead); err != nil {
				return fmt.Errorf("file %d: %w", f.File, err)
			}
		}
		live, ended, err := w.rowsOf(ctx, info, f, dead)
		if err == nil {
			live, err = w.keeping(live)
		}
		if err == nil {
			err = w.fold(live)
		}
		if err == nil {
			ended, err = w.leaving(ended)
		}
		if err == nil {
			err = w.fold(ended)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// rowsOf are the entries of a file's live rows, and of those dead ones that leave
// something: as tombstones at their own place, that count from the target on.
func (w *Rewind) rowsOf(ctx context.Context, info fileInfo, f *record.KeptFile, dead *roaring.Bitmap) (live, ended []keyindex.Entry, _ error) {
	s := w.s
	c, err := s.readColumns(ctx, info, f.File)
	if err != nil {
		return nil, nil, err
	}
	if int64(c.n) != f.Rows {
		return nil, nil, fmt.Errorf("data file %d of epoch %d has %d rows, not the %d of its record", f.File, f.Epoch, c.n, f.Rows)
	}
	leave := roaring.New()
	switch {
	case s.def.Order.Kind == schemas.OrderNone:
	case w.since >= 0 && f.Record >= w.since: // so they died later
		leave = dead
	case w.died[f.File] != nil:
		leave = roaring.And(dead, w.died[f.File])
	}
	var scratch []byte
	var e keyindex.Entry
	for i := range c.n {
		at := uint32(i)
		gone := dead.Contains(at)
		if gone && !leave.Contains(at) {
			continue
		}
		if e, scratch, err = s.rowEntry(c, f.File, i, scratch); err != nil {
			if gone && noKey(err) {
				continue
			}
			return nil, nil, err
		}
		switch {
		case !gone:
			live = append(live, e)
		case e.HasOrder:
			ended = append(ended, keyindex.Entry{Key: e.Key, RowID: keyindex.NoRowID, HasOrder: true, Order: e.Order, Offset: f.Record, Time: w.timeMs})
		}
	}
	return live, ended, nil
}

// keeping gives live rows without a value what is remembered of their keys: an
// added row that lost to one of them left it (H7).
func (w *Rewind) keeping(live []keyindex.Entry) ([]keyindex.Entry, error) {
	if w.s.def.Order.Kind == schemas.OrderNone {
		return live, nil
	}
	slices.SortFunc(live, func(x, y keyindex.Entry) int { return x.Key.Compare(y.Key) })
	var bare []int
	for i := range live {
		if !live[i].HasOrder {
			bare = append(bare, i)
		}
	}
	err := w.known(len(bare), func(i int) keyindex.Key { return live[bare[i]].Key }, func(i int, f *keyindex.Found) {
		if e := &live[bare[i]]; f.Present && f.HasOrder {
			e.HasOrder, e.Order = true, f.Order
		}
	})
	return live, err
}

// leaving takes of dead rows what tells of a larger value than is known of their
// keys, one entry a key. Within the tombstone time nothing was forgotten, so the
// largest is the one that was remembered (K2).
func (w *Rewind) leaving(ended []keyindex.Entry) ([]keyindex.Entry, error) {
	slices.SortFunc(ended, func(x, y keyindex.Entry) int { return x.Key.Compare(y.Key) })
	one := ended[:0]
	for _, e := range ended {
		if n := len(one); n > 0 && one[n-1].Key == e.Key {
			one[n-1].Order = max(one[n-1].Order, e.Order)
			continue
		}
		one = append(one, e)
	}
	out := make([]keyindex.Entry, 0, len(one))
	err := w.known(len(one), func(i int) keyindex.Key { return one[i].Key }, func(i int, f *keyindex.Found) {
		e := one[i]
		switch {
		case f.Present && f.HasOrder && (!f.Tombstone() || f.Order >= e.Order):
			return
		case f.Present && !f.Tombstone(): // it lives, and has no value of its own
			order := e.Order
			e = f.Entry
			e.HasOrder, e.Order = true, order
		case f.Present:
			e.Offset, e.Time = max(e.Offset, f.Offset), max(e.Time, f.Time)
		}
		out = append(out, e)
	})
	return out, err
}

// noKey says that a row has no key, or none that the table can have. Such a row
// died when it was taken (H7).
func noKey(err error) bool { return errors.Is(err, rows.ErrNullKey) || errors.Is(err, rows.ErrBadKey) }

// known looks up n keys, which are in order and distinct.
func (w *Rewind) known(n int, key func(int) keyindex.Key, fn func(int, *keyindex.Found)) error {
	var keys []keyindex.Key
	var found []keyindex.Found
	for i := 0; i < n; {
		keys = keys[:0]
		for j := i; j < n && len(keys) < lookupKeys; j++ {
			keys = append(keys, key(j))
		}
		var err error
		if found, err = w.s.index.Lookup(keys, found[:0]); err != nil {
			return awayDisk(err)
		}
		for k := range found {
			fn(i+k, &found[k])
		}
		i += len(keys)
	}
	return nil
}
