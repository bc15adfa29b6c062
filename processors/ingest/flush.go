package ingest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/varve-io/varve/processors"
	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/dv"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/schemas/rows"
	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/statestore/keyindex"
)

// verdict is what a flush decides about one key. A buffer holds one a key, so
// it is kept small.
type verdict struct {
	order  int64
	place  int64 // of a tombstone: the request that left it, 0: the append's own offset
	rowID  int64 // row id that the row carries over, -1: a new one (C6)
	item   int32 // first item of the key
	row    int32 // buffer row that lives at the end, -1: none
	touch  bool  // some event or answer applied
	listed bool  // the key ended deleted by an event (K3)
	hasOrd bool
}

// flushPlan is a flush before anything is written.
type flushPlan struct {
	verdicts []verdict
	kills    []killed // older versions that die
	counts   record.Counts
	// answers is what of counts is no source event's, superseded how many events'
	// rows others of the buffer ended.
	answers    record.Counts
	superseded int64
}

type killed struct {
	file uint64
	pos  uint32
}

// judge replays every key's events in order against what the index knows (K2),
// then the answers of the request range (A5).
func (s *Shard) judge(answers []answer, forgets int64) (*flushPlan, error) {
	b := &s.buf
	if err := b.sortKeys(s.keys, s.cfg.Deployment, answers); err != nil {
		return nil, err
	}
	p := &flushPlan{counts: b.counts, verdicts: slices.Grow(b.verdicts[:0], len(b.uniq)), kills: b.kills[:0]}
	b.gone = b.gone[:0]
	n := uint32(b.batch.Len())
	ordered := s.def.Order.Kind != schemas.OrderNone
	i := 0
	for k := range b.uniq {
		// Some keys at a time: answers are many times their size.
		if k%lookupKeys == 0 {
			var err error
			if b.found, err = s.index.Lookup(b.uniq[k:min(k+lookupKeys, len(b.uniq))], b.found[:0]); err != nil {
				if errors.Is(err, keyindex.ErrCorrupt) {
					err = fmt.Errorf("%w; remove the folder %s: the index is built again from the log", err, s.cfg.Dir)
				}
				return nil, err
			}
		}
		f := &b.found[k%lookupKeys]
		forget(f, forgets)
		v := verdict{item: int32(i), row: -1, rowID: -1}
		live := f.Present && f.File != 0
		indexLive := live // the index's version is still the live one
		v.hasOrd, v.order = f.Present && f.HasOrder, f.Order
		if live {
			v.rowID = s.publishedRow(&f.Entry)
		}
		for ; i < len(b.items) && b.items[i].key == b.uniq[k]; i++ {
			at := b.items[i].at
			if at >= n {
				a := &answers[at-n]
				if a.req.HasOrder {
					if v.hasOrd && a.req.Order < v.order {
						p.counts.LateIgnored++
						p.answers.LateIgnored++
						continue
					}
					v.hasOrd, v.order = true, a.req.Order
				} else if v.row >= 0 || indexLive && s.placeOf(f) >= a.req.Offset {
					continue // accepted above the request: it stays
				} else if !live && !v.touch && f.Present && f.File == 0 && s.placeOf(f) >= a.req.Offset {
					// The version that died was above the request, or its end was: that
					// tombstone stays, whether or not its maker knew of this request.
					p.counts.AbsentDeletes++
					p.answers.AbsentDeletes++
					continue
				}
				if live {
					p.counts.Deletes++
					p.answers.Deletes++
				} else {
					p.counts.AbsentDeletes++
					p.answers.AbsentDeletes++
				}
				p.ends(&v)
				switch { // a deletion of the append itself is later than the request
				case a.req.HasOrder && v.listed:
				case a.req.HasOrder || !v.touch || v.place != 0:
					v.place = a.req.Offset
				}
				live, indexLive, v.row, v.rowID = false, false, -1, -1
				v.touch = true
				continue
			}
			if ordered && b.batch.HasOrder[at] != 0 {
				if o := b.batch.Order[at]; v.hasOrd && o < v.order {
					p.counts.LateIgnored++
					continue
				}
				v.hasOrd, v.order = true, b.batch.Order[at]
			}
			v.touch = true
			p.ends(&v)
			if b.batch.Ops[at] == rows.Delete {
				if indexLive && at+goneRows >= n {
					b.gone = append(b.gone, goneRow{b.uniq[k], cell{row: -1, file: f.File, pos: f.Pos}, s.infoOf(f)})
				}
				if live {
					p.counts.Deletes++
				} else {
					p.counts.AbsentDeletes++
				}
				live, indexLive, v.row, v.rowID, v.listed = false, false, -1, -1, true
				continue
			}
			live, indexLive, v.row, v.listed = true, false, int32(at), false
		}
		if !v.touch {
			continue
		}
		if f.Present && f.File != 0 && !indexLive {
			p.kills = append(p.kills, killed{f.File, f.Pos})
		}
		if v.row >= 0 {
			p.counts.Upserts++
		}
		p.verdicts = append(p.verdicts, v)
	}
	b.verdicts, b.kills = p.verdicts, p.kills
	return p, nil
}

// ends counts the event whose row ends in the buffer.
func (p *flushPlan) ends(v *verdict) {
	if v.row >= 0 {
		p.superseded++
	}
}

// lookupKeys is how many keys are looked up at a time.
const lookupKeys = 8192

// forget makes a tombstone of an earlier time absent. One that is in flight has
// no time yet.
func forget(f *keyindex.Found, before int64) {
	if f.Present && f.File == 0 && !f.Pending && f.Time < before {
		*f = keyindex.Found{Entry: keyindex.Entry{Key: f.Key}}
	}
}

// publishedRow is the row id that an upsert of this version keeps: its own
// explicit one, or its file's once that is published; -1 when it has none yet.
func (s *Shard) publishedRow(e *keyindex.Entry) int64 {
	if e.RowID != keyindex.NoRowID {
		return e.RowID
	}
	if f, ok := s.side.Files[e.File]; ok && f.FirstRow >= 0 {
		return f.FirstRow + int64(e.Pos)
	}
	return -1
}

// flush writes what the buffer holds and appends one AppendRows for it and for
// the source and request ranges up to now.
func (s *Shard) flush(ctx context.Context) error {
	requestTo := max(s.requestEnd, s.decided+1)
	if s.keys != nil && s.side.nextHeld(s.requestEnd) != nil {
		return s.flushTake(ctx)
	}
	a := record.AppendRows{
		Shard: s.cfg.Shard, Epoch: s.epoch, Counter: s.counter + 1, SourceFrom: s.sourceEnd, SourceTo: s.position,
		RequestFrom: s.requestEnd, RequestTo: requestTo, SchemaID: s.def.CurrentSchema,
	}
	if s.cfg.Partitions > 1 {
		a.Framing = s.framing
	}
	var body record.RowsBody
	var entries []keyindex.Entry
	var err error
	if s.keys != nil {
		a.Forgets = s.forgets(a.RequestFrom, a.RequestTo)
	}
	if s.keys == nil {
		a.Counts = s.buf.counts
		sel := make([]uint32, s.buf.len())
		for i := range sel {
			sel[i] = uint32(i)
		}
		a.Counts.Upserts = int64(len(sel))
		s.buf.tally.judged(&a.Counts, &record.Counts{}, 0)
		_, err = s.writeFiles(ctx, &a, &body, sel, nil)
	} else {
		entries, err = s.flushKeyed(ctx, &a, &body)
	}
	if errors.Is(err, errLetters) {
		return nil
	}
	if err == nil {
		err = s.buf.tally.Check()
	}
	if err != nil {
		return err
	}
	if len(a.Files) > 0 || len(body.Changes) > 0 {
		enc, err := record.EncodeRowsBody(nil, &body)
		if err != nil {
			return fmt.Errorf("encode a rows body: %w", err)
		}
		ref, err := s.cfg.Bodies.Put(ctx, enc)
		if err != nil {
			return away(err)
		}
		a.Changes = &ref
	}
	f := flight{tally: s.buf.tally, pays: len(s.side.Debts) > 0 && s.keys != nil}
	if err := s.send(ctx, &a, entries, f); err != nil {
		return err
	}
	s.buf.reset(s.def.Schema())
	s.flushNow, s.openedMs = false, 0
	return nil
}

// send appends what a flush made.
func (s *Shard) send(ctx context.Context, a *record.AppendRows, entries []keyindex.Entry, f flight) error {
	env := s.envelope()
	env.Request = record.RequestID{} // epoch and counter decide (L9)
	m, err := s.cfg.Bodies.Message(ctx, env, a)
	if err != nil {
		return away(err)
	}
	if s.index != nil {
		if err := s.index.Push(uint64(a.Counter), entries); err != nil {
			return err
		}
	}
	s.counter, s.sourceEnd, s.requestEnd = a.Counter, a.SourceTo, a.RequestTo
	f.counter, f.offset, f.files, f.events, f.sourceFrom, f.sourceTo = a.Counter, -1, a.Files, a.Counts.Events, a.SourceFrom, a.SourceTo
	s.flight = append(s.flight, f)
	epoch, counter, from, to := s.epoch, a.Counter, a.SourceFrom, a.SourceTo
	s.cfg.Log.Append(m, func(offset int64, err error) {
		if epoch != s.epoch || s.stage != Running {
			return
		}
		if err != nil {
			s.unsent(fmt.Sprintf("append rows of source offsets [%d,%d)", from, to), err)
			return
		}
		s.there(&s.appendWait)
		for i := range s.flight {
			if s.flight[i].counter == counter {
				s.flight[i].offset = offset
			}
		}
	})
	return nil
}

func (s *Shard) flushKeyed(ctx context.Context, a *record.AppendRows, body *record.RowsBody) ([]keyindex.Entry, error) {
	answers, err := s.answers(ctx, a.RequestFrom, a.RequestTo)
	if err != nil {
		return nil, err
	}
	if s.buf.len() == 0 && len(answers) == 0 && len(s.side.Debts) == 0 {
		a.Counts = s.buf.counts
		return nil, nil
	}
	if err := s.carryOver(ctx, answers, a.Forgets); err != nil {
		return nil, err
	}
	p, err := s.judge(answers, a.Forgets)
	if err != nil {
		return nil, err
	}
	a.Counts = p.counts
	b := &s.buf
	b.tally.judged(&p.counts, &p.answers, p.superseded)
	n := b.batch.Len()
	b.rowID = resize(b.rowID, n)
	b.order, b.hasOrd = resize(b.order, n), resize(b.hasOrd, n)
	sel := slices.Grow(b.sel[:0], len(p.verdicts))
	for i := range p.verdicts {
		v := &p.verdicts[i]
		if v.row < 0 {
			continue
		}
		sel = append(sel, uint32(v.row))
		b.rowID[v.row] = v.rowID
		b.order[v.row], b.hasOrd[v.row] = v.order, 0
		if v.hasOrd && s.needsOrder(v) {
			b.hasOrd[v.row] = 1
		}
	}
	b.sel = sel
	if !s.narrow {
		b.sortRows(sel, func(row uint32) []byte { return b.keyBytes(s.keys, row, answers) })
	}
	places, err := s.writeFiles(ctx, a, body, sel, &rows.Extra{RowID: b.rowID, Order: b.order, HasOrder: b.hasOrd})
	if err != nil {
		return nil, err
	}
	entries := slices.Grow(b.entries[:0], len(p.verdicts))
	for i := range p.verdicts {
		v := &p.verdicts[i]
		e := keyindex.Entry{Key: b.items[v.item].key, RowID: keyindex.NoRowID, HasOrder: v.hasOrd}
		if v.hasOrd {
			e.Order = v.order
		}
		if v.row >= 0 {
			pl := places[v.row]
			e.File, e.Pos, e.RowID = pl.file, pl.pos, v.rowID
		} else {
			e.Time, e.Offset = keyindex.PendingTime, v.place
			if v.listed {
				c := record.KeyChange{HasOrder: v.hasOrd, Order: e.Order}
				if s.narrow {
					c.Key = binary.BigEndian.AppendUint64(nil, e.Key.Hi)
				} else {
					c.Key = slices.Clone(b.keyBytes(s.keys, b.items[v.item].at, answers))
				}
				body.Changes = append(body.Changes, c)
			}
		}
		entries = append(entries, e)
	}
	b.entries = entries
	if !s.narrow {
		slices.SortFunc(body.Changes, func(x, y record.KeyChange) int { return bytes.Compare(x.Key, y.Key) })
	}
	s.keepGone(n, len(answers))
	b.kills = append(p.kills, s.side.Debts...)
	a.Deletes, err = b.blocks(b.kills)
	return entries, err
}

// needsOrder says whether the row must carry its remembered value in
// _varve_order: always for a path, for an ordering column when it does not
// hold it (K3).
func (s *Shard) needsOrder(v *verdict) bool {
	if s.def.Order.Kind == schemas.OrderByPath {
		return true
	}
	i := s.def.Schema().ByID(s.def.Order.Column)
	c := &s.buf.batch.Cols[i]
	return c.IsNull(int(v.row)) || c.Ints[v.row] != v.order
}

// resize gives room for n values of any content.
func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// blocks groups dead versions by file, files and positions ascending.
func (b *buffer) blocks(kills []killed) ([]record.DeleteBlock, error) {
	if len(kills) == 0 {
		return nil, nil
	}
	// Files are few and positions many: with a number for each file, one word
	// says both. Numbers are given as files come, then as they are sorted.
	if b.numbers == nil {
		b.numbers = map[uint64]uint32{}
	}
	clear(b.numbers)
	b.files, b.ranks = b.files[:0], b.ranks[:0]
	for i := range kills {
		k := &kills[i]
		n, known := b.numbers[k.file]
		if !known {
			n = uint32(len(b.files))
			b.numbers[k.file] = n
			b.files = append(b.files, k.file)
		}
		b.ranks = append(b.ranks, rank{by: uint64(n)<<32 | uint64(k.pos)})
	}
	sorted := slices.Clone(b.files)
	slices.Sort(sorted)
	for n, f := range sorted {
		b.numbers[f] = uint32(n)
	}
	renumber := make([]uint64, len(b.files))
	for n, f := range b.files {
		renumber[n] = uint64(b.numbers[f]) << 32
	}
	for i := range b.ranks {
		r := &b.ranks[i]
		r.by = renumber[r.by>>32] | r.by&math.MaxUint32
	}
	b.sortRanks()
	out := make([]record.DeleteBlock, 0, len(sorted))
	set := roaring.New()
	for i := 0; i < len(b.ranks); {
		n := b.ranks[i].by >> 32
		b.pos = b.pos[:0]
		for ; i < len(b.ranks) && b.ranks[i].by>>32 == n; i++ {
			b.pos = append(b.pos, uint32(b.ranks[i].by))
		}
		set.Clear()
		set.AddMany(b.pos)
		enc, err := dv.AppendBitmap(nil, set)
		if err != nil {
			return nil, fmt.Errorf("encode dead positions: %w", err)
		}
		out = append(out, record.DeleteBlock{File: sorted[n], Bitmap: enc})
	}
	return out, nil
}

// maxKeptFile is up to which size the room for a data file is kept for the next one.
const maxKeptFile = 16 << 20

// place is where a buffer row went.
type place struct {
	file uint64
	pos  uint32
}

// writeFiles writes the rows of sel, in that order, to one file a partition
// value, and fills the record and its body. The result is by buffer row.
func (s *Shard) writeFiles(ctx context.Context, a *record.AppendRows, body *record.RowsBody, sel []uint32, extra *rows.Extra) ([]place, error) {
	s.buf.places = resize(s.buf.places, s.buf.len())
	places := s.buf.places
	if len(sel) == 0 {
		return places, nil
	}
	if s.tuples == nil {
		return places, s.writeFile(ctx, a, body, sel, extra, nil, places)
	}
	tuples := make([][]byte, s.buf.len())
	var arena []byte
	for _, r := range sel {
		start := len(arena)
		var err error
		if arena, err = s.tuples.Append(arena, s.buf.batch, int(r)); err != nil {
			return nil, err
		}
		tuples[r] = arena[start:len(arena):len(arena)]
	}
	slices.SortStableFunc(sel, func(x, y uint32) int { return bytes.Compare(tuples[x], tuples[y]) })
	for i := 0; i < len(sel); {
		j := i + 1
		for j < len(sel) && bytes.Equal(tuples[sel[i]], tuples[sel[j]]) {
			j++
		}
		if err := s.writeFile(ctx, a, body, sel[i:j], extra, tuples[sel[i]], places); err != nil {
			return nil, err
		}
		i = j
	}
	return places, nil
}

func (s *Shard) writeFile(ctx context.Context, a *record.AppendRows, body *record.RowsBody, sel []uint32, extra *rows.Extra, tuple []byte, places []place) error {
	s.fileCount++
	id := statestore.FileID(s.writer, s.fileCount)
	for i, r := range sel {
		places[r] = place{id, uint32(i)}
	}
	opt := rows.WriteOptions{Schema: s.def.Schema()}
	var x rows.Extra
	if extra != nil {
		x = *extra
		for _, r := range sel {
			opt.Order = opt.Order || x.HasOrder[r] != 0
		}
	}
	if !opt.Order {
		x.Order, x.HasOrder = nil, nil
	}
	out := &s.buf.out
	out.Reset()
	info, err := rows.Write(out, opt, s.buf.batch, sel, x)
	if err != nil {
		return fmt.Errorf("write a data file: %w", err)
	}
	key, err := s.fileKey(fileInfo{Epoch: s.epoch}, id)
	if err != nil {
		return err
	}
	if err := s.cfg.Store.Create(ctx, key, out.Bytes()); err != nil {
		return away(fmt.Errorf("write data file %s: %w", key, err))
	}
	if out.Cap() > maxKeptFile {
		*out = bytes.Buffer{}
	}
	a.Files = append(a.Files, record.DataFile{
		ID: id, Rows: info.Rows, Bytes: info.Bytes, SpecID: s.def.DefaultSpec, Partition: slices.Clone(tuple),
	})
	body.Files = append(body.Files, processors.FileMetrics(id, &info))
	return nil
}

// fileKey is the object key of one of the shard's files.
func (s *Shard) fileKey(f fileInfo, id uint64) (string, error) {
	return s.fileKeyIn(s.def.Location, f, id)
}

func (s *Shard) fileKeyIn(location string, f fileInfo, id uint64) (string, error) {
	loc := location + "/data/"
	switch {
	case f.Path != "":
		key, ok := s.cfg.Store.Key(f.Path)
		if !ok {
			return "", fmt.Errorf("the file %s, which another writer brought, is not in the warehouse %s", f.Path, s.cfg.Store.Location(""))
		}
		return key, nil
	case f.Name != [16]byte{}:
		loc += schemas.JobFileName(f.Name)
	default:
		loc += schemas.DataFileName(s.cfg.TableID, f.Epoch, statestore.FileCounter(id))
	}
	key, ok := s.cfg.Store.Key(loc)
	if !ok {
		return "", fmt.Errorf("table location %s is not in the warehouse %s", location, s.cfg.Store.Location(""))
	}
	return key, nil
}

// answers are the keys of the requests in [from, to), in order.
func (s *Shard) answers(ctx context.Context, from, to int64) ([]answer, error) {
	var out []answer
	reqs := s.side.pending(from, to)
	for i := range reqs {
		r := &reqs[i]
		b, err := s.cfg.Bodies.Get(ctx, &r.Keys)
		if err != nil {
			return nil, away(fmt.Errorf("keys of the request at log offset %d: %w", r.Offset, err))
		}
		var k record.KeysBody
		if err := record.DecodeKeysBody(b, &k); err != nil {
			// The hash is right: so its sender wrote it, and everyone reads no key in it.
			s.log.Error("a delete request names no keys: its body is none; send it again", "offset", r.Offset, "error", err)
			continue
		}
		for _, key := range k.Keys {
			if s.narrow && len(key) != narrowKey {
				s.log.Error("a delete request names a key that is none of the table's; it is passed over", "offset", r.Offset)
				continue
			}
			out = append(out, answer{key: key, req: r})
		}
	}
	return out, nil
}
