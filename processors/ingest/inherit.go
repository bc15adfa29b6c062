package ingest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore/keyindex"
)

// A source topic that was divided anew (A6) has shards that know, each of them,
// all keys of the shards before: nobody but the producers can tell to which
// partition a key goes now. A key's entries in the shards to which it does not
// go are of no harm: no event of it comes there, and a block on a dead version
// changes nothing (P5).

// drainFor: the shard reads up to the end that a Reshard names for it.
func (s *Shard) drainFor(x *record.Reshard) {
	if x.TopicID != s.cfg.Shard.TopicID {
		return
	}
	for _, e := range x.Ends {
		if e.Partition == s.cfg.Shard.Partition {
			s.cfg.Drain, s.cfg.DrainTo = true, e.Offset
			s.flushNow = true
		}
	}
}

func (s *Shard) owedInFlight() bool {
	return slices.ContainsFunc(s.flight, func(f flight) bool { return f.pays })
}

// inheritRows is how many entries Inherit folds at a time, inheritFlush after
// how many it writes them: entries of one log offset wait in memory until then.
const (
	inheritRows  = 8192
	inheritFlush = 1 << 20
)

// Inherit makes a shard's folder of what its topic's old shards know, which
// have taken every decided entry up to cfg.Base and nothing of a later one.
// Whatever the folder held is gone. The side file is written last: without it
// New tells ErrNoBase.
func Inherit(cfg Config, def *schemas.Definition, olds []*Shard) error {
	to := &Shard{cfg: cfg, side: newSide()}
	if cfg.FS == nil {
		to.cfg.FS = olds[0].cfg.FS
	}
	if err := to.cfg.FS.RemoveAll(cfg.Dir); err != nil {
		return fmt.Errorf("make the index folder: %w", err)
	}
	if err := to.cfg.FS.MkdirAll(cfg.Dir, 0o755); err != nil {
		return fmt.Errorf("make the index folder: %w", err)
	}
	index, err := keyindex.Open(cfg.Dir, keyindex.Options{
		Wide: !olds[0].narrow, Identity: to.identity(), Sync: cfg.SyncIndex, DeltaLimit: cfg.IndexDelta, FS: to.cfg.FS,
	})
	if err != nil {
		return fmt.Errorf("key index of table %s: %w", def.Name, err)
	}
	for _, old := range olds {
		for id, f := range old.side.Files {
			if have, twice := to.side.Files[id]; twice {
				f.FirstRow = max(f.FirstRow, have.FirstRow)
				for _, m := range have.Moved {
					f.Moved = f.withMove(m)
				}
			}
			to.side.Files[id] = f
		}
		to.side.Debts = append(to.side.Debts, old.side.Debts...)
		to.before = max(to.before, old.cfg.Base)
	}
	for _, old := range olds {
		if err == nil {
			err = to.inherit(index, old)
		}
	}
	if err == nil {
		err = index.SetOffset(cfg.Base)
	}
	if err == nil {
		err = index.Flush()
	}
	if err = errors.Join(err, index.Close()); err != nil {
		return fmt.Errorf("key index of table %s: %w", def.Name, err)
	}
	to.side.Offset, to.side.IndexAt = cfg.Base, cfg.Base
	return to.side.save(to.cfg.FS, cfg.Dir)
}

// inherit folds one old shard's entries.
func (s *Shard) inherit(index *keyindex.Index, old *Shard) error {
	if old.index.Offset() > s.cfg.Base {
		return fmt.Errorf("the index of partition %d is of log offset %d, after %d", old.cfg.Shard.Partition, old.index.Offset(), s.cfg.Base)
	}
	var entries []keyindex.Entry
	var keys []keyindex.Key
	var found []keyindex.Found
	waiting := 0
	fold := func() error {
		if len(entries) == 0 {
			return nil
		}
		var err error
		if found, err = index.Lookup(keys, found[:0]); err != nil {
			return err
		}
		for i := range entries {
			if found[i].Present {
				entries[i] = s.succeed(&found[i].Entry, &entries[i])
			}
		}
		if err := index.Apply(entries, s.cfg.Base); err != nil {
			return err
		}
		if waiting += len(entries); waiting >= inheritFlush {
			waiting = 0
			err = index.Flush()
		}
		entries, keys = entries[:0], keys[:0]
		return err
	}
	if err := old.index.Iterate(func(e *keyindex.Entry) error {
		entries, keys = append(entries, *e), append(keys, e.Key)
		if len(entries) < inheritRows {
			return nil
		}
		return fold()
	}); err != nil {
		return err
	}
	return fold()
}

// succeed decides between what two shards know of one key. It was in one of them
// alone, unless producers wrote on while the topic gained partitions: then the
// larger ordering value wins, and the version that loses is owed its death. The
// other shard may still have a tombstone, of a request that named the key.
func (s *Shard) succeed(x, y *keyindex.Entry) keyindex.Entry {
	switch {
	case x.Tombstone() && y.Tombstone():
		out := *x
		if y.HasOrder && (!x.HasOrder || y.Order > x.Order) {
			out.HasOrder, out.Order = true, y.Order
		}
		out.Time, out.Offset = max(x.Time, y.Time), max(x.Offset, y.Offset)
		return out
	case y.Tombstone():
		return s.succeed(y, x)
	case x.Tombstone():
		if s.common(y) {
			return *x
		}
		if x.HasOrder && y.HasOrder && x.Order > y.Order {
			s.side.Debts = append(s.side.Debts, killed{y.File, y.Pos})
			return *x
		}
		return *y
	case x.File == y.File && x.Pos == y.Pos:
		return *x
	}
	won, lost := x, y
	if s.later(y, x) {
		won, lost = y, x
	}
	if !s.common(lost) {
		s.side.Debts = append(s.side.Debts, killed{lost.File, lost.Pos})
	}
	return *won
}

// common says whether all old shards began with this version: the one that has
// another has it because it ended this one.
func (s *Shard) common(e *keyindex.Entry) bool { return s.side.Files[e.File].Record <= s.before }

// later says whether x is the newer version of two.
func (s *Shard) later(x, y *keyindex.Entry) bool {
	if a, b := s.common(x), s.common(y); a != b {
		return b
	}
	if x.HasOrder && y.HasOrder && x.Order != y.Order {
		return x.Order > y.Order
	}
	a, b := s.side.Files[x.File].Record, s.side.Files[y.File].Record
	if a != b {
		return a > b
	}
	return x.File > y.File
}
