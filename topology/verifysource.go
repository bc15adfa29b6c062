package topology

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/varve-io/varve/processors/rekey"
	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/schemas/rows"
	"github.com/varve-io/varve/schemas/source"
	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/statestore/keyindex"
)

// rowHasher hashes the values of rows.
type rowHasher struct{ b []byte }

func (h *rowHasher) row(cols []rows.Column, i int) [2]uint64 {
	h.b = h.b[:0]
	for j := range cols {
		c := &cols[j]
		if c.IsNull(i) {
			h.b = append(h.b, 0)
			continue
		}
		h.b = append(h.b, 1)
		switch c.Storage {
		case rows.Ints:
			h.b = binary.BigEndian.AppendUint64(h.b, uint64(c.Ints[i]))
		case rows.Floats:
			h.b = binary.BigEndian.AppendUint64(h.b, math.Float64bits(c.Floats[i]))
		default:
			v := c.BytesAt(i)
			h.b = append(binary.BigEndian.AppendUint64(h.b, uint64(len(v))), v...)
		}
	}
	s := sha256.Sum256(h.b)
	// The last bits of the second word are an event's flags.
	return [2]uint64{binary.BigEndian.Uint64(s[:]), binary.BigEndian.Uint64(s[8:]) &^ eventFlags}
}

// Flags of a source event, or of a request, in an item's d. Its a is a log offset
// that orders it among the key's others, b the source offset and the row of the
// record there, e its ordering value.
const (
	eventDelete   = 1
	eventHasOrder = 2
	eventRequest  = 4
	eventFlags    = 7
)

// source folds a table's source topics by key, up to where its shards have
// read, and holds what comes out against the table's live rows, row by row.
func (v *verifier) source(ctx context.Context, t *statestore.TableInfo) (err error) {
	if v.imported[t.ID] {
		v.skip("table %s: files were added to it, whose rows no event is of; the source is not compared", t.Name)
		return nil
	}
	if v.skipped[t.ID] {
		v.skip("table %s: a user moved a source end past events; the source is not compared", t.Name)
		return nil
	}
	if t.Rolled > 0 {
		v.skip("table %s: it was rolled back at log offset %d, and events that were undone are not read again; the source is not compared", t.Name, t.Rolled)
		return nil
	}
	if t.Definition.Property(schemas.PropertyFormat) != "" {
		v.skip("table %s: the format of its source was changed, and what could not be read before may be read now; the source is not compared", t.Name)
		return nil
	}
	if !v.complete {
		v.skip("table %s: the log's beginning is gone; the source is not compared", t.Name)
		return nil
	}
	d := t.Definition
	keyed := d.Keyed()
	events, lake := newSortedRuns(v.scratch), newSortedRuns(v.scratch)
	defer func() { err = errors.Join(err, events.close(), lake.close()) }()
	for i := range t.Shards {
		if ok, err := v.sourceEvents(ctx, t, &t.Shards[i], events); err != nil || !ok {
			return err
		}
	}
	if err := v.liveRows(ctx, t, true, func(f *statestore.FileInfo, k keyindex.Key, row int64, h [2]uint64) error {
		if !keyed {
			k = keyindex.Key{Hi: h[0], Lo: h[1]}
		}
		return lake.add(item{hi: k.Hi, lo: k.Lo, a: f.ID, b: uint64(row), c: h[0], d: h[1]})
	}); err != nil {
		return err
	}
	if v.unread[t.ID] > 0 {
		v.skip("table %s: a data file cannot be read; the source is not compared", t.Name)
		return nil
	}
	if keyed {
		if ok, err := v.requests(ctx, t, events); err != nil || !ok {
			return err
		}
	}
	es, err := events.sorted()
	if err != nil {
		return err
	}
	ls, err := lake.sorted()
	if err != nil {
		return err
	}
	var shards shardsAt
	if x := v.taken[t.ID]; x != nil {
		shards = x.shards()
	}
	return v.joinSource(t, keyed, es, ls, shards)
}

// takenSource is when a table's source was taken into the log: what a key's
// events mean depends on the order of the log, where its events come from two
// partitions (A11) and where requests by key lie between them (A5).
type takenSource struct {
	runs map[sourceShard][]takenRun
	asks []askedAt
	mark int64 // a run that began at or before this offset has ended
}

type sourceShard struct {
	topic     [16]byte
	partition int32
}

// takenRun are source offsets, up to one, that a shard took into the log at or
// after a log offset, with nothing between that their order could matter to.
type takenRun struct{ at, to int64 }

// askedAt is a request by key: one without a value stands at its own offset, one
// with a value behind the events of each append that answers it.
type askedAt struct {
	offset int64
	keys   record.DeleteKeys
	at     []int64 // of the answers, where it has a value
	by     []sourceShard
}

func (x *takenSource) note(offset int64, v any) {
	switch v := v.(type) {
	case *record.ClaimShard: // the topic may be divided anew before it
		x.mark = offset
	case *record.DeleteKeys:
		x.mark = offset
		x.asks = append(x.asks, askedAt{offset: offset, keys: *v})
	case *record.AppendRows:
		s := sourceShard{v.Shard.TopicID, v.Shard.Partition}
		if v.SourceTo > v.SourceFrom {
			runs := x.runs[s]
			if n := len(runs); n > 0 && runs[n-1].at > x.mark {
				runs[n-1].to = v.SourceTo
			} else {
				x.runs[s] = append(runs, takenRun{offset, v.SourceTo})
			}
		}
		for i := len(x.asks) - 1; i >= 0 && x.asks[i].offset >= v.RequestFrom; i-- {
			if a := &x.asks[i]; a.keys.HasOrder && a.offset < v.RequestTo {
				a.at, a.by = append(a.at, offset), append(a.by, s)
				x.mark = offset
			}
		}
	}
}

// deletedRows are the rows of a table that a condition or a position deleted: its
// source still has their events.
type deletedRows struct {
	at    int64           // the newest record
	finds map[int64]int64 // by the find job's offset
	more  bool            // by position, how many is not known
}

func (x *deletedRows) note(m *record.OutcomeMessage) {
	x.at = m.Offset
	if n := m.Outcome.Numbers; m.Type == record.TypeRowsFound && len(n) > record.WhereRows {
		x.finds[n[record.WhereFind]] = max(x.finds[n[record.WhereFind]], n[record.WhereRows])
	} else {
		x.more = true
	}
}

// most is how many events may be without a row for it.
func (x *deletedRows) most() int64 {
	if x.more {
		return math.MaxInt64
	}
	n := int64(0)
	for _, rows := range x.finds {
		n += rows
	}
	return n
}

// shardsAt is the shard whose events stand at a log offset of a run or an answer.
type shardsAt map[int64]sourceShard

func (x *takenSource) shards() shardsAt {
	out := shardsAt{}
	for s, runs := range x.runs {
		for _, r := range runs {
			out[r.at] = s
		}
	}
	for i := range x.asks {
		for j, at := range x.asks[i].at {
			out[at] = x.asks[i].by[j]
		}
	}
	return out
}

// requests adds what requests by key ask for. One with a value stands where each
// shard answers it; which of them has the key joinSource sees.
func (v *verifier) requests(ctx context.Context, t *statestore.TableInfo, to *sortedRuns) (ok bool, err error) {
	taken := v.taken[t.ID]
	if taken == nil || len(taken.asks) == 0 {
		return true, nil
	}
	enc, err := rows.NewKeyEncoder(t.Definition.Schema(), t.Definition.Key)
	if err != nil {
		return false, err
	}
	for i := range taken.asks {
		a := &taken.asks[i]
		b, err := v.bodies.Get(ctx, &a.keys.Keys)
		if err != nil {
			v.skip("table %s: the keys of the delete request at log offset %d cannot be read (%v); the source is not compared", t.Name, a.offset, err)
			return false, nil
		}
		var k record.KeysBody
		if err := record.DecodeKeysBody(b, &k); err != nil {
			return false, fmt.Errorf("the delete request at log offset %d: %w", a.offset, err)
		}
		for _, key := range k.Keys {
			x := indexKeyOf(enc, v.store.Head().Deployment, key)
			y := item{hi: x.Hi, lo: x.Lo, a: uint64(a.offset), d: eventDelete | eventRequest}
			if !a.keys.HasOrder {
				if err := to.add(y); err != nil {
					return false, err
				}
				continue
			}
			y.b, y.d, y.e = math.MaxUint64, y.d|eventHasOrder, uint64(a.keys.Order)^1<<63
			for _, at := range a.at {
				y.a = uint64(at)
				if err := to.add(y); err != nil {
					return false, err
				}
			}
		}
	}
	return true, nil
}

// joinSource folds the events of each key in the order of the log (K2) and holds
// what comes out against its live rows.
func (v *verifier) joinSource(t *statestore.TableInfo, keyed bool, es, ls *sortedItems, shards shardsAt) error {
	e, err := es.next()
	if err != nil {
		return err
	}
	l, err := ls.next()
	if err != nil {
		return err
	}
	deleted, lost := v.gone[t.ID], int64(0)
	for e != nil || l != nil {
		k := keyindex.Key{Hi: math.MaxUint64, Lo: math.MaxUint64}
		if e != nil {
			k = keyindex.Key{Hi: e.hi, Lo: e.lo}
		}
		if l != nil && (keyindex.Key{Hi: l.hi, Lo: l.lo}).Less(k) {
			k = keyindex.Key{Hi: l.hi, Lo: l.lo}
		}
		var want, got int
		var wantHash [2]uint64
		var remembered uint64
		var has bool
		var last item
		seen := false
		for ; e != nil && e.hi == k.Hi && e.lo == k.Lo; e, err = es.next() {
			switch {
			case e.d&eventRequest == 0:
				last, seen = *e, true
			case seen && e.d&eventHasOrder != 0 && shards[int64(last.a)] != shards[int64(e.a)]:
				continue // the answer of a shard that does not have the key
			}
			if !keyed {
				want++
				continue
			}
			if e.d&eventHasOrder != 0 {
				if has && e.e < remembered {
					continue // late (K2)
				}
				has, remembered = true, e.e
			}
			want, wantHash = 1, [2]uint64{e.c, e.d &^ eventFlags}
			if e.d&eventDelete != 0 {
				want = 0
			}
		}
		if err != nil {
			return err
		}
		var first, row item
		other := false
		for ; l != nil && l.hi == k.Hi && l.lo == k.Lo; l, err = ls.next() {
			if got++; got == 1 {
				first = *l
			}
			row = *l
			other = other || keyed && [2]uint64{l.c, l.d} != wantHash
		}
		if err != nil {
			return err
		}
		at := func(i *item) string { return fmt.Sprintf("row %d of file %d", i.b, i.a) }
		switch {
		case got > want && want > 0:
			v.find("source", t.Name, "a row is doubled: %s and %s; the source has it %d times, the table %d", at(&first), at(&row), want, got)
		case got > want:
			v.find("source", t.Name, "%s is live, and the source has no such row", at(&first))
		case got < want && deleted != nil:
			lost += int64(want - got)
		case got < want:
			v.find("source", t.Name, "a row is lost: its last event is at source offset %d (the source has it %d times, the table %d)", last.b>>8, want, got)
		case other && want > 0:
			v.find("source", t.Name, "%s has other values than the event at source offset %d that it comes from", at(&first), last.b>>8)
		}
	}
	switch {
	case lost == 0:
	case lost > deleted.most():
		v.find("source", t.Name, "rows are lost: the source has %d that the table has not, of which conditions deleted %d at most", lost, deleted.most())
	default:
		v.skip("table %s: the source has %d rows that the table has not; rows were deleted by a condition or by position, last at log offset %d, and whether it was these is not compared", t.Name, lost, deleted.at)
	}
	return nil
}

// sourceEvents adds the events of a shard up to its source end. ok is false,
// with a reason told, where they cannot all be read.
func (v *verifier) sourceEvents(ctx context.Context, t *statestore.TableInfo, s *statestore.ShardInfo, to *sortedRuns) (ok bool, err error) {
	a, err := NewAdmin(v.src.client)
	if err != nil {
		return false, err
	}
	defer a.Close()
	info, err := a.Topic(ctx, s.Topic)
	if err != nil || info.ID != s.TopicID {
		v.skip("table %s: its source topic %s is gone or was made again; the source is not compared", t.Name, s.Topic)
		return false, nil
	}
	ends, err := a.Offsets(ctx, s.Topic)
	if err != nil {
		return false, err
	}
	if int(s.Partition) >= len(ends) || ends[s.Partition].High < s.SourceEnd {
		v.find("source", t.Name, "source topic %s partition %d ends before offset %d, which the table has read", s.Topic, s.Partition, s.SourceEnd)
		return false, nil
	}
	if ends[s.Partition].Start > 0 {
		v.skip("table %s: source topic %s partition %d begins at offset %d, older events are gone; the source is not compared", t.Name, s.Topic, s.Partition, ends[s.Partition].Start)
		return false, nil
	}
	d := t.Definition
	schema := d.Schema()
	dec, err := source.Open(d, schema, v.o.Registry)
	if err != nil {
		return false, err
	}
	var enc *rows.KeyEncoder
	if d.Keyed() {
		if enc, err = rows.NewKeyEncoder(schema, d.Key); err != nil {
			return false, err
		}
	}
	r, err := OpenLogReader(ctx, v.src.client, ReaderOptions{Topic: s.Topic, Partition: s.Partition, Committed: true})
	if err != nil {
		return false, err
	}
	defer r.Close()
	var runs []takenRun
	if x := v.taken[t.ID]; x != nil {
		runs = x.runs[sourceShard{s.TopicID, s.Partition}]
	}
	batch := rows.NewBatch(schema)
	h := rowHasher{}
	deployment := v.store.Head().Deployment
	var key []byte
	for r.Next() < s.SourceEnd {
		rs, err := r.Poll(ctx, time.Second, 4096)
		if err != nil {
			return false, err
		}
		for i := range rs {
			x := &rs[i]
			if x.Control || x.Offset >= s.SourceEnd {
				continue
			}
			for len(runs) > 0 && runs[0].to <= x.Offset {
				runs = runs[1:]
			}
			if len(runs) == 0 {
				return false, fmt.Errorf("the log has no append that took source offset %d of partition %d", x.Offset, s.Partition)
			}
			at := uint64(runs[0].at)
			batch.Reset()
			rec := source.Record{Topic: s.Topic, Partition: s.Partition, Offset: x.Offset, TimeMs: x.TimeMs, Key: x.Key, Value: x.Value, Headers: sourceHeaders(nil, x.Headers)}
			if _, err := dec.Decode(batch, &rec); err != nil {
				var reject *source.Reject
				if errors.As(err, &reject) {
					continue // a dead letter
				}
				var change *source.SchemaChange
				if errors.As(err, &change) {
					v.skip("table %s: the event at source offset %d of partition %d wants another schema than the table has now; the source is not compared", t.Name, x.Offset, s.Partition)
				} else {
					v.skip("table %s: the event at source offset %d of partition %d cannot be read: %v; the source is not compared", t.Name, x.Offset, s.Partition, err)
				}
				return false, nil
			}
			if len(batch.Carries) > 0 {
				v.skip("table %s: the event at source offset %d of partition %d leaves out unchanged values, which older rows have; the source is not compared", t.Name, x.Offset, s.Partition)
				return false, nil
			}
			for j := range batch.Len() {
				v.out.Events++
				y := item{a: at, b: uint64(x.Offset)<<8 | uint64(min(j, 255))}
				sum := h.row(batch.Cols, j)
				if enc == nil {
					y.hi, y.lo = sum[0], sum[1]
				} else {
					if key, err = enc.Append(key[:0], batch, j); err != nil {
						continue // a dead letter too
					}
					if d.Rekeyed() && rekey.PartitionOf(key, int32(len(ends))) != s.Partition {
						continue // another partition has it too
					}
					k := indexKeyOf(enc, deployment, key)
					y.hi, y.lo = k.Hi, k.Lo
				}
				y.c, y.d = sum[0], sum[1]
				if batch.Ops[j] == rows.Delete {
					y.d |= eventDelete
				}
				if batch.HasOrder[j] == 1 {
					y.e, y.d = uint64(batch.Order[j])^1<<63, y.d|eventHasOrder
				}
				if err := to.add(y); err != nil {
					return false, err
				}
			}
		}
		v.told(fmt.Sprintf("table %s: source %s/%d", t.Name, s.Topic, s.Partition), r.Next(), s.SourceEnd)
	}
	return true, nil
}
