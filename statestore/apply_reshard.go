package statestore

import (
	"math"
	"slices"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/record"
)

// Resharding is a Reshard whose shards are not drained yet (A6).
type Resharding struct {
	TopicID    [16]byte
	Offset     int64 // of the Reshard
	Partitions int32
	Ends       []record.ShardEnd // ascending by partition
}

// End is where a partition's shard stops reading, false: the reshard does not
// wait for that shard.
func (r *Resharding) End(partition int32) (int64, bool) {
	for i := range r.Ends {
		if r.Ends[i].Partition == partition {
			return r.Ends[i].Offset, true
		}
	}
	return 0, false
}

// ShardBase is the newest point at which a table's source topic was divided
// anew: indexes of its shards begin with the fold of From at Offset.
type ShardBase struct {
	TopicID    [16]byte
	Offset     int64
	Partitions int32
	From       []Inherited // ascending by partition
}

// Inherited is a shard as it was when its topic was divided anew.
type Inherited struct {
	Partition int32
	Index     record.Ref // its newest checkpoint, none: the log from its beginning
	Base      int64      // the division before that one, or the rollback, which it began with; -1 none
}

// maxEnds bounds the shards of one Reshard: so its body is never in the object store.
const maxEnds = 1 << 13

// reshard: A6.
func (s *Store) reshard(r *Record, t *table, x *record.Reshard) (outcomeOf, error) {
	if !t.def.Keyed() {
		return reject(record.NoKey), nil
	}
	if t.def.Order.Kind == schemas.OrderNone && !x.StoodStill {
		return reject(record.NoOrderColumn), nil
	}
	if t.resharding != nil {
		return reject(record.ReshardOpen, t.resharding.Offset), nil
	}
	known := int32(0)
	if t.base != nil && t.base.TopicID == x.TopicID {
		known = t.base.Partitions
	}
	begun := t.baseOf(x.TopicID) // 0: indexes are of the log from its beginning
	var ends []record.ShardEnd   // as the shards stand
	for _, id := range t.shardOrder {
		if id.topic != x.TopicID {
			continue
		}
		sh := t.shards[id]
		known = max(known, id.partition+1)
		if begun > 0 && sh.index.Path == "" && (!sh.retired || sh.epoch > begun) {
			// Its index could be had from its owner alone.
			return reject(record.BadReshard, 3, int64(id.partition)), nil
		}
		if sh.retired {
			continue
		}
		ends = append(ends, record.ShardEnd{Partition: id.partition, Offset: sh.sourceEnd})
	}
	if len(ends) == 0 {
		return reject(record.NoShard), nil
	}
	if x.Partitions <= known || x.Partitions == math.MaxInt32 {
		return reject(record.BadReshard, 1, int64(known)), nil
	}
	if len(ends) > maxEnds || !slices.EqualFunc(ends, x.Ends, func(have, want record.ShardEnd) bool {
		return have.Partition == want.Partition && have.Offset <= want.Offset
	}) {
		return reject(record.BadReshard, 2), nil
	}
	t.resharding = &Resharding{TopicID: x.TopicID, Offset: r.Offset, Partitions: x.Partitions, Ends: slices.Clone(x.Ends)}
	t.dirty = true
	s.effect('n', t.id, int64(x.Partitions), int64(len(x.Ends)))
	return accepted(false), s.divide(r, t)
}

// divide ends a Reshard that waits for nothing any more: every shard is drained,
// or retired, every request by key is answered, and no file is held.
func (s *Store) divide(r *Record, t *table) error {
	x := t.resharding
	if x == nil || len(t.openDeletes) > 0 || t.filesHeld() {
		return nil
	}
	for _, e := range x.Ends {
		if sh := t.shards[shardID{x.TopicID, e.Partition}]; !sh.retired && sh.sourceEnd < e.Offset {
			return nil
		}
	}
	base := &ShardBase{TopicID: x.TopicID, Offset: r.Offset, Partitions: x.Partitions}
	before := int64(-1)
	if t.base != nil && t.base.TopicID == x.TopicID {
		before = t.base.Offset
	}
	t.baseFloor = r.Offset
	for _, id := range t.shardOrder {
		if id.topic != x.TopicID {
			continue
		}
		sh := t.shards[id]
		closeEpoch(sh, r.Offset, false)
		// A shard that never had an index of the division before knows no more
		// than that one.
		if before < 0 || sh.index.Path != "" {
			base.From = append(base.From, Inherited{Partition: id.partition, Index: sh.index, Base: before})
			t.baseFloor = min(t.baseFloor, sh.indexHorizon)
		}
		sh.index, sh.dirty = record.Ref{}, true
	}
	t.resharding, t.base, t.dirty = nil, base, true
	s.effect('n', t.id, x.Offset)
	return s.derive(r, t, record.TypeReshard, record.ReasonNone, x.Offset)
}

// Divide makes of a table with a Reshard what it is once that is settled at an
// offset, for who follows outcomes alone.
func (t *TableInfo) Divide(offset int64) {
	x := t.Resharding
	if x == nil {
		return
	}
	before := beforeOf(t.BaseOf(x.TopicID))
	b := &ShardBase{TopicID: x.TopicID, Offset: offset, Partitions: x.Partitions}
	for i := range t.Shards {
		if sh := &t.Shards[i]; sh.TopicID == x.TopicID {
			if before < 0 || sh.Index.Path != "" {
				b.From = append(b.From, Inherited{Partition: sh.Partition, Index: sh.Index, Base: before})
			}
			sh.Index, sh.Open = record.Ref{}, false
		}
	}
	t.Resharding, t.Base = nil, b
}

// baseOf is the log offset at which indexes of a topic's shards begin: where the
// topic was divided anew or the table rolled back, whatever came last; 0: at the
// log's beginning.
func (t *table) baseOf(topic [16]byte) int64 {
	if !t.def.Keyed() {
		return 0
	}
	return baseOf(t.base, t.rolled, topic)
}

func baseOf(b *ShardBase, rolled int64, topic [16]byte) int64 {
	if b != nil && b.TopicID == topic {
		return max(b.Offset, rolled)
	}
	return rolled
}

// BaseOf is the log offset at which indexes of a topic's shards begin: a
// division of the topic (Base), or a rollback (Rolled); 0: the log's beginning.
func (t *TableInfo) BaseOf(topic [16]byte) int64 {
	if !t.Definition.Keyed() {
		return 0
	}
	return baseOf(t.Base, t.Rolled, topic)
}

func beforeOf(base int64) int64 {
	if base > 0 {
		return base
	}
	return -1
}

// horizonOf is the index horizon of a shard that is claimed for the first time
// at an offset: one of a divided topic needs what its bases need, one of a table
// that was rolled back what that brought back.
func (t *table) horizonOf(id shardID, offset int64) int64 {
	if base := t.baseOf(id.topic); base > 0 && base == t.rolled {
		return min(offset, base)
	}
	if b := t.base; b != nil && b.TopicID == id.topic {
		for _, f := range b.From {
			if sh := t.shards[shardID{id.topic, f.Partition}]; sh != nil {
				offset = min(offset, sh.indexHorizon)
			}
		}
	}
	return offset
}

// EncodeReshard is what the state knows of divisions of the table's source
// topic, nil when there was none.
func (t *TableInfo) EncodeReshard() []byte {
	if t.Resharding == nil && t.Base == nil {
		return nil
	}
	var e enc
	encReshard(&e, t.Resharding, t.Base)
	return e.b
}

// DecodeReshard reads what EncodeReshard gave.
func (t *TableInfo) DecodeReshard(b []byte) error {
	d := dec{b: b}
	t.Resharding, t.Base = decReshard(&d)
	return d.done("reshard")
}

func encReshard(e *enc, x *Resharding, b *ShardBase) {
	e.bool(x != nil)
	if x != nil {
		e.raw(x.TopicID[:])
		e.i(x.Offset)
		e.i(int64(x.Partitions))
		e.u(uint64(len(x.Ends)))
		for _, end := range x.Ends {
			e.i(int64(end.Partition))
			e.i(end.Offset)
		}
	}
	e.bool(b != nil)
	if b != nil {
		e.raw(b.TopicID[:])
		e.i(b.Offset)
		e.i(int64(b.Partitions))
		e.u(uint64(len(b.From)))
		for i := range b.From {
			e.i(int64(b.From[i].Partition))
			encRef(e, &b.From[i].Index)
			e.i(b.From[i].Base)
		}
	}
}

func decReshard(d *dec) (x *Resharding, b *ShardBase) {
	if d.bool() {
		x = &Resharding{}
		copy(x.TopicID[:], d.raw(16))
		x.Offset = d.i()
		x.Partitions = int32(d.i())
		for n := d.count(); n > 0; n-- {
			x.Ends = append(x.Ends, record.ShardEnd{Partition: int32(d.i()), Offset: d.i()})
		}
	}
	if d.bool() {
		b = &ShardBase{}
		copy(b.TopicID[:], d.raw(16))
		b.Offset = d.i()
		b.Partitions = int32(d.i())
		for n := d.count(); n > 0; n-- {
			b.From = append(b.From, Inherited{Partition: int32(d.i()), Index: decRef(d), Base: d.i()})
		}
	}
	return x, b
}

// RollBack makes of a table what it is once a Rollback at an offset is accepted,
// for who follows outcomes alone.
func (t *TableInfo) RollBack(offset, snapshot int64) {
	t.Pending = &PendingCut{Cut: offset, Build: offset, Rollback: snapshot}
	t.Rolled, t.LastChange, t.Changes, t.OpenJobs = offset, offset, false, 0
	for i := range t.Shards {
		sh := &t.Shards[i]
		sh.Index, sh.IndexHorizon, sh.Open = record.Ref{}, offset, false
	}
}
