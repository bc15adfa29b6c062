package ingest

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/varve-io/varve/processors"
	"github.com/varve-io/varve/processors/rekey"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/schemas/rows"
	"github.com/varve-io/varve/schemas/source"
)

// OnSource takes records of the shard's source partition, in order, from
// SourceFrom on; next is the source offset after them, gaps and control
// records included (A1). It may be called while WantsSource. Record bytes are
// not kept after it returns, but for records parked behind a schema change or
// for a schema registry, which are copied.
func (s *Shard) OnSource(ctx context.Context, nowMs int64, recs []source.Record, next int64) {
	s.nowMs = nowMs
	if s.stage != Running {
		return
	}
	if s.openedMs == 0 {
		s.openedMs = nowMs
	}
	if err := s.take(ctx, recs, next); err != nil {
		s.fail(err)
		return
	}
	s.account()
	s.advance(ctx, nowMs)
	s.account()
}

// take decodes records until one needs another schema, or one of a registry
// that is away.
func (s *Shard) take(ctx context.Context, recs []source.Record, next int64) error {
	for i := range recs {
		r := &recs[i]
		if r.Offset < s.position {
			continue // read again after a seek
		}
		if s.cfg.Drain && r.Offset >= s.cfg.DrainTo {
			s.position = max(s.position, s.cfg.DrainTo)
			return nil
		}
		ok, err := s.decode(ctx, r)
		if errors.Is(err, source.ErrAway) {
			s.wait(&s.sourceWait, err)
			s.parked, s.parkedTo = copyRecords(recs[i:]), next
			return nil
		}
		s.there(&s.sourceWait)
		if err != nil || s.stage != Running {
			return err
		}
		if !ok {
			s.parked, s.parkedTo = copyRecords(recs[i:]), next
			return nil
		}
		s.position = r.Offset + 1
		s.buf.tally.Records++
	}
	if s.cfg.Drain {
		next = min(next, s.cfg.DrainTo)
	}
	s.position = max(s.position, next)
	return nil
}

// bytes.Clone keeps a null key or value apart from an empty one.
func copyRecords(recs []source.Record) []source.Record {
	out := make([]source.Record, len(recs))
	for i := range recs {
		out[i] = recs[i]
		out[i].Key, out[i].Value = bytes.Clone(recs[i].Key), bytes.Clone(recs[i].Value)
		out[i].Headers = append([]source.Header(nil), recs[i].Headers...)
		for j := range out[i].Headers {
			out[i].Headers[j].Value = bytes.Clone(out[i].Headers[j].Value)
		}
	}
	return out
}

// decode takes one record; false means that it waits for a schema change.
func (s *Shard) decode(ctx context.Context, r *source.Record) (bool, error) {
	b := &s.buf
	before, carries := b.batch.Len(), len(b.batch.Carries)
	res, err := s.decoder.Decode(b.batch, r)
	var change *source.SchemaChange
	var reject *source.Reject
	decided := false // by the log
	switch {
	case err == nil && s.keys == nil && hasDelete(b.batch.Ops[before:]):
		b.batch.Truncate(before)
		reject = source.Rejectf(source.KindDelete, "no-key", "the table has no key: a delete event names no row")
	case err == nil:
	case errors.As(err, &change):
		if s.refuse {
			s.refuse, decided = false, true
			reject = source.Rejectf(source.KindUpsert, "schema", "the event's schema does not fit the table's; alter the table or mend the event")
			break
		}
		return false, s.alter(ctx, change)
	case errors.As(err, &reject):
	default:
		return false, fmt.Errorf("decode source offset %d: %w", r.Offset, err)
	}
	s.refuse = false
	if reject != nil && !decided && s.unsettled(r, reject) {
		return false, nil
	}
	if reject != nil {
		return true, s.deadLetter(r, reject)
	}
	if s.cfg.Rekeyed && res.Events > 0 {
		if res.Events, err = s.ownEvents(before); err != nil {
			return false, err
		}
		if res.Events == 0 {
			b.batch.Truncate(before)
			return true, s.deadLetter(r, source.Rejectf(source.KindUnknown, "partition",
				"the event's key belongs to another partition of the internal topic: only varve writes there"))
		}
		b.counts.Events += int64(res.Events)
		b.tally.Applied++
		if len(b.batch.Carries) > carries {
			b.hold(r, res.Events)
		}
		return true, nil
	}
	if len(b.batch.Carries) > carries {
		b.hold(r, res.Events)
	}
	switch {
	case res.Elsewhere:
		b.counts.Control++
		b.tally.Elsewhere++
	case res.Control:
		b.counts.Control++
		b.tally.Control++
	case res.Events > 0:
		b.tally.Applied++
	}
	b.counts.Events += int64(res.Events)
	if s.cfg.Partitions > 1 && s.keys != nil && res.Events > 0 {
		return true, s.checkFraming(r)
	}
	return true, nil
}

// ownEvents keeps, of the events from row on, those of keys that belong to
// this shard's partition (K5), and returns how many they are.
func (s *Shard) ownEvents(row int) (int, error) {
	b := s.buf.batch
	n := b.Len() - row
	s.foreign = s.foreign[:0]
	for i := row; i < b.Len(); i++ {
		key, err := s.keys.Append(s.keyScratch[:0], b, i)
		if err != nil {
			return 0, fmt.Errorf("the key of an event: %w", err)
		}
		if s.keyScratch = key; rekey.PartitionOf(key, s.cfg.Partitions) != s.cfg.Shard.Partition {
			s.foreign = append(s.foreign, i)
		}
	}
	if len(s.foreign) > 0 && len(s.foreign) < n {
		b.Remove(s.foreign)
	}
	return n - len(s.foreign), nil
}

func hasDelete(ops []rows.Op) bool {
	for _, o := range ops {
		if o == rows.Delete {
			return true
		}
	}
	return false
}

// checkFraming: K5. The first framing that the shard sees is the table's.
func (s *Shard) checkFraming(r *source.Record) error {
	f := s.decoder.Framing(r.Key)
	if s.framing == 0 {
		s.framing = f
	}
	if f != s.framing {
		return fmt.Errorf("%w, at source offset %d: the same key may be in two partitions; publish with the key schema and converter that the topic began with, or load it into a table of its own with repartition always (on a cluster)", ErrFraming, r.Offset)
	}
	return nil
}

func (s *Shard) deadLetter(r *source.Record, reject *source.Reject) error {
	c := &s.buf.counts
	s.buf.tally.Letters++
	switch reject.Kind {
	case source.KindUpsert:
		c.DeadUpserts++
	case source.KindDelete:
		c.DeadDeletes++
	default:
		c.DeadOther++
	}
	if s.cfg.StopOnError {
		return fmt.Errorf("%w: source offset %d: %s; mend the event, skip it with `varve table skip`, or run with --on-error dlq", ErrRefused, r.Offset, reject)
	}
	s.letters++
	epoch, offset := s.epoch, r.Offset
	s.cfg.Letters.Send(&processors.DeadLetter{Record: r, Table: s.cfg.Table, Reject: reject}, func(err error) {
		if epoch != s.epoch || s.stage != Running {
			return
		}
		if err != nil {
			s.unsent(fmt.Sprintf("send a dead letter of source offset %d", offset), err)
			return
		}
		s.letters--
	})
	return nil
}

// alter asks for the columns that an event needs.
func (s *Shard) alter(ctx context.Context, c *source.SchemaChange) error {
	a := record.AlterTable{}
	for i := range c.Add {
		f := &c.Add[i]
		a.Add = append(a.Add, record.AddColumn{Name: f.Name, Type: f.Type, Doc: f.Doc, Default: string(f.InitialDefault)})
	}
	for i := range c.Widen {
		f := &c.Widen[i]
		j := s.def.Schema().ByID(f.ID)
		if j < 0 {
			return fmt.Errorf("widen column id %d: the table has none", f.ID)
		}
		a.Widen = append(a.Widen, record.WidenColumn{Name: s.def.Schema().Fields[j].Name, Type: f.Type})
	}
	env := s.envelope()
	m, err := s.cfg.Bodies.Message(ctx, env, &a)
	if err != nil {
		return err
	}
	s.altering, s.alterID = true, env.Request
	epoch := s.epoch
	s.log.Info("the events' schema changed", "new_columns", len(a.Add), "wider_columns", len(a.Widen))
	s.cfg.Log.Append(m, func(_ int64, err error) {
		if err != nil && epoch == s.epoch && s.stage == Running {
			s.unsent("append a schema change", err)
		}
	})
	return nil
}

// Tick flushes what is due and takes up what waited.
func (s *Shard) Tick(ctx context.Context, nowMs int64) {
	s.nowMs = nowMs
	s.takeDecided(ctx)
	if s.stage == Running {
		s.advance(ctx, nowMs)
		s.account()
	}
}

// due says whether something should be flushed now.
func (s *Shard) due(nowMs int64) bool {
	if s.full() || s.switchTo != nil && (s.buf.len() > 0 || s.position > s.sourceEnd) {
		return true
	}
	waiting := s.buf.len() > 0 || s.position > s.sourceEnd
	answering := s.keys != nil && (len(s.side.pending(s.requestEnd, s.decided+1)) > 0 || s.side.nextHeld(s.requestEnd) != nil)
	owing := len(s.side.Debts) > 0 && !s.owedInFlight()
	if owing {
		return true
	}
	if !waiting && !answering {
		s.openedMs = 0
		return false
	}
	return s.flushNow || answering || s.openedMs > 0 && nowMs-s.openedMs >= s.def.CommitIntervalMs/2
}

func (s *Shard) advance(ctx context.Context, nowMs int64) {
	s.firstCheckpoint(ctx, nowMs)
	s.idleCheckpoint(ctx, nowMs)
	for s.stage == Running {
		// A dead letter is acknowledged before the append that covers it (A4).
		if s.due(nowMs) && s.letters == 0 && len(s.flight) < s.cfg.InFlight && s.appendWait.mayTry(nowMs) {
			err := s.flush(ctx)
			if isAway(err) {
				s.wait(&s.appendWait, err)
				return
			}
			if err != nil {
				s.fail(err)
				return
			}
			continue
		}
		if s.switchTo != nil && s.buf.len() == 0 && s.position == s.sourceEnd {
			if err := s.define(s.switchTo); err != nil {
				s.fail(err)
				return
			}
			s.switchTo = nil
			continue
		}
		if len(s.parked) > 0 && !s.altering && s.settled() && s.switchTo == nil && !s.full() && s.sourceWait.mayTry(nowMs) {
			recs, next := s.parked, s.parkedTo
			s.parked = nil
			if s.openedMs == 0 {
				s.openedMs = nowMs
			}
			if err := s.take(ctx, recs, next); err != nil {
				s.fail(err)
				return
			}
			if len(s.parked) == len(recs) && !s.altering && !s.settle.waiting && s.sourceWait.err == nil {
				s.fail(fmt.Errorf("source offset %d waits for a schema that did not come", recs[0].Offset))
				return
			}
			continue
		}
		return
	}
}
