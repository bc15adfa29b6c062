package ingest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/varve-io/varve/processors"
	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/schemas/rows"
	"github.com/varve-io/varve/statestore/keyindex"
)

// ErrRolledBack: the table was rolled back: its shards begin again, with indexes
// of what its head lists now (G1). It is an ErrDivided.
var ErrRolledBack = fmt.Errorf("the table was rolled back: %w", ErrDivided)

// rolledBack: the state closed every epoch of the table, and files that the index
// names are gone from it. One without a key has no index.
func (s *Shard) rolledBack(offset int64) error {
	switch {
	case s.keys != nil && offset > s.cfg.Base:
		return ErrRolledBack
	case s.keys == nil && s.stage == Running && offset > s.epoch:
		s.lose()
	}
	return nil
}

// Rewind makes a shard's folder of what a Rollback brought back, at cfg.Base, its
// offset: every live row of the files that the record lists, and, where the table
// has an ordering column, the remembered values of keys that were deleted by
// then: those that key change lists and requests with a value tell of, and those
// of the dead rows of these files (G12). It learns the ways through the jobs that led
// to these files. Each shard of the table gets all keys, as
// where a topic is divided anew (A11).
//
// It looks at the decided entries that may hold such lists, to find earlier
// rollbacks: what one of them undid was undone at the target too. Then it takes
// them, in order, and at last the Rollback itself. The side file is written last:
// without it New tells ErrNoBase.
type Rewind struct {
	s      *Shard
	build  int64    // build offset of the target: what came later is undone
	rolled []rolled // earlier rollbacks, in order
	timeMs int64    // table time at the build offset
	since  int64    // the first accepted entry within the tombstone time before that, -1: none yet
	died   died
	ways   []way // jobs that were completed at the target, in order
	done   bool
	wait   int // entries since the last flush
}

// rolled is an accepted Rollback: what lies between build and offset was undone.
type rolled struct{ offset, build int64 }

// NewRewind empties the folder. What was decided after the build offset is not
// folded.
func NewRewind(cfg Config, def *schemas.Definition, build int64) (*Rewind, error) {
	s := &Shard{cfg: cfg, side: newSide(), def: def}
	if cfg.FS == nil {
		s.cfg.FS = vfs.Default
	}
	s.log = cfg.Logger
	if s.log == nil {
		s.log = slog.Default()
	}
	var err error
	if s.keys, err = rows.NewKeyEncoder(def.Schema(), def.Key); err != nil {
		return nil, fmt.Errorf("table %s: %w", def.Name, err)
	}
	s.narrow = s.keys.Narrow()
	if err := s.cfg.FS.RemoveAll(cfg.Dir); err != nil {
		return nil, fmt.Errorf("make the index folder: %w", err)
	}
	if err := s.cfg.FS.MkdirAll(cfg.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the index folder: %w", err)
	}
	if s.index, err = keyindex.Open(cfg.Dir, keyindex.Options{
		Wide: !s.narrow, Identity: s.identity(), Sync: cfg.SyncIndex, DeltaLimit: cfg.IndexDelta, FS: s.cfg.FS,
	}); err != nil {
		return nil, fmt.Errorf("key index of table %s: %w", def.Name, err)
	}
	return &Rewind{s: s, build: build, since: -1, died: died{}}, nil
}

// Done says that the Rollback was folded.
func (w *Rewind) Done() bool { return w.done }

// Look notes a decided entry before any is taken.
func (w *Rewind) Look(ctx context.Context, d *processors.Decided) error {
	m := &d.Outcome
	if m.Offset <= w.build {
		w.timeMs = max(w.timeMs, m.TimeMs)
	}
	if m.Type != record.TypeRollback || m.Offset > w.build || !w.concerns(m) {
		return nil
	}
	v, err := w.s.content(ctx, d)
	if err == nil {
		w.rolled = append(w.rolled, rolled{d.Outcome.Offset, v.(*record.Rollback).Build})
	}
	return err
}

func (w *Rewind) concerns(m *record.OutcomeMessage) bool {
	taken := m.Outcome.Code == record.Accepted || m.Outcome.Code == record.Partly
	return !m.Derived && taken && m.TableID == w.s.cfg.TableID && m.Table == w.s.cfg.Table
}

// stood says that what was accepted at an offset was not undone at the target.
func (w *Rewind) stood(offset int64) bool {
	to := w.build
	for i := len(w.rolled) - 1; i >= 0 && offset <= to; i-- {
		if x := &w.rolled[i]; x.offset <= to {
			if offset > x.offset {
				return true
			}
			to = x.build
		}
	}
	return offset <= to
}

// Take folds a decided entry.
func (w *Rewind) Take(ctx context.Context, d *processors.Decided) error {
	s, m := w.s, &d.Outcome
	if w.done || !w.concerns(m) {
		return nil
	}
	if w.since < 0 && m.TimeMs >= w.timeMs-s.def.TombstoneTTLMs {
		w.since = m.Offset
	}
	remembers := s.def.Order.Kind != schemas.OrderNone && w.stood(m.Offset)
	switch {
	case m.Type == record.TypeAppendRows && remembers:
		_, body, err := s.cfg.Bodies.Open(ctx, d.Record.Key, d.Record.Header, d.Record.Value)
		if err != nil {
			return err
		}
		var a record.AppendRows
		if err := a.Decode(body); err != nil {
			return fmt.Errorf("log offset %d was accepted but cannot be read: %w", m.Offset, err)
		}
		if err := w.deaths(m, a.Deletes, nil); err != nil {
			return err
		}
		return w.lists(ctx, m, &a)
	case remembers && (m.Type == record.TypeDeletePositions || m.Type == record.TypeRowsFound || m.Type == record.TypeForeignSnapshot):
		return w.deathsByOthers(ctx, d)
	case m.Type == record.TypeCompleteJob && w.stood(m.Offset):
		return w.completed(ctx, d)
	case m.Type == record.TypeDeleteKeys && remembers:
		v, err := s.content(ctx, d)
		if err != nil {
			return err
		}
		k := v.(*record.DeleteKeys)
		s.side.Requests = append(s.side.Requests, request{Offset: m.Offset, Keys: k.Keys, HasOrder: k.HasOrder, Order: k.Order, TimeMs: m.TimeMs})
	case m.Type == record.TypeRollback && m.Offset == s.cfg.Base:
		v, err := s.content(ctx, d)
		if err != nil {
			return err
		}
		if err := errors.Join(w.files(ctx, v.(*record.Rollback)), w.lead(ctx)); err != nil {
			return err
		}
		w.done = true
	}
	return nil
}

// lists folds what an append says of keys that ended deleted. Any shard's: a key
// that is another's does no harm here.
func (w *Rewind) lists(ctx context.Context, m *record.OutcomeMessage, a *record.AppendRows) error {
	s := w.s
	var entries []keyindex.Entry
	if a.Changes != nil {
		b, err := s.cfg.Bodies.Get(ctx, a.Changes)
		if err != nil {
			return err
		}
		if entries, err = s.changed(b, m); err != nil {
			return err
		}
	}
	if err := w.fold(entries); err != nil {
		return err
	}
	answers, err := s.answers(ctx, a.RequestFrom, a.RequestTo)
	if err != nil {
		return err
	}
	for i := range answers {
		x := &answers[i]
		if !x.req.HasOrder {
			continue // it leaves what was remembered of the key
		}
		k, err := indexKey(s.keys, s.cfg.Deployment, x.key)
		if err != nil {
			return err
		}
		found, err := s.index.Lookup([]keyindex.Key{k}, nil)
		if err != nil {
			return err
		}
		if f := &found[0]; f.Present && f.HasOrder && f.Order > x.req.Order {
			continue
		}
		if err := w.fold([]keyindex.Entry{{Key: k, RowID: keyindex.NoRowID, HasOrder: true, Order: x.req.Order, Offset: x.req.Offset, Time: m.TimeMs}}); err != nil {
			return err
		}
	}
	s.index.Expire(a.Forgets)
	return nil
}

func (w *Rewind) fold(entries []keyindex.Entry) error {
	if err := w.s.applyFold(entries, w.s.cfg.Base); err != nil {
		return awayDisk(err)
	}
	if w.wait += len(entries); w.wait < inheritFlush {
		return nil
	}
	w.wait = 0
	return w.s.index.Flush()
}

// Close ends the work; only after Done is the folder of use.
func (w *Rewind) Close() error {
	s := w.s
	if !w.done {
		return s.index.Close()
	}
	err := s.index.SetOffset(s.cfg.Base)
	if err == nil {
		err = s.index.Flush()
	}
	if err = errors.Join(err, s.index.Close()); err != nil {
		return fmt.Errorf("key index of table %s: %w", s.def.Name, err)
	}
	s.side.Requests = nil // all were answered by then
	s.side.Offset, s.side.IndexAt = s.cfg.Base, s.cfg.Base
	return s.side.save(s.cfg.FS, s.cfg.Dir)
}
