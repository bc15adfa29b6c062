package ingest

import (
	"bytes"
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
	"github.com/varve-io/varve/statestore/objstore"
)

// appended takes the outcome of an AppendRows of the table.
func (s *Shard) appended(ctx context.Context, d *processors.Decided) error {
	m := &d.Outcome
	if m.Outcome.Reason == record.Undecodable {
		// Its body is no longer there to say whose it was (L10).
		if s.stage == Running && len(s.flight) > 0 {
			s.log.Warn("an append of the table was declared lost, perhaps one of this shard; claiming the shard again", "offset", m.Offset)
			s.lose()
		}
		return nil
	}
	_, body, err := s.cfg.Bodies.Open(ctx, d.Record.Key, d.Record.Header, d.Record.Value)
	if err != nil {
		if errors.Is(err, record.ErrUndecodable) {
			return nil // rejected as such by everyone (L7)
		}
		return away(err)
	}
	var a record.AppendRows
	if err := a.Decode(body); err != nil {
		return nil // likewise
	}
	mine := a.Shard.TopicID == s.cfg.Shard.TopicID && a.Shard.Partition == s.cfg.Shard.Partition
	if mine && s.stage == Running && a.Epoch == s.epoch {
		return s.ownAppend(ctx, m, &a)
	}
	if m.Outcome.Code != record.Accepted {
		return nil
	}
	if !mine {
		return s.foldSibling(ctx, m, &a)
	}
	return s.foldOwn(ctx, m, &a)
}

// ownAppend: an append of the open epoch has its outcome.
func (s *Shard) ownAppend(ctx context.Context, m *record.OutcomeMessage, a *record.AppendRows) error {
	o := &m.Outcome
	switch o.Code {
	case record.Already: // A8: a doubled record; its first one decided
		return nil
	case record.Accepted:
	default:
		if o.Reason == record.EpochClosed && len(o.Numbers) > 1 && o.Numbers[1] == 1 {
			s.fence(o.Numbers[0])
			return nil
		}
		// Rejected while the epoch was open: it is closed now, claim again (A3).
		s.log.Warn("append rejected; claiming the shard again", "reason", o.Reason.String(), "offset", m.Offset)
		s.lose()
		return nil
	}
	if len(s.flight) == 0 || s.flight[0].counter != a.Counter {
		return fmt.Errorf("append %d of epoch %d was accepted out of turn", a.Counter, a.Epoch)
	}
	if s.index != nil {
		f := &s.flight[0]
		if !f.confirmed {
			kept, err := s.stillStand(f.kept)
			if err != nil {
				return err
			}
			if err := s.index.ConfirmAt(uint64(a.Counter), m.Offset, m.TimeMs); err != nil {
				return awayDisk(err)
			}
			f.confirmed, f.kept = true, kept
		}
		if err := s.applyFold(f.kept, m.Offset); err != nil {
			return awayDisk(err)
		}
		if err := s.tookOwn(ctx, m, a); err != nil {
			return err
		}
		s.index.Expire(a.Forgets)
	}
	for i := range s.flight[0].files {
		s.side.Files[s.flight[0].files[i].ID] = fileInfo{Record: m.Offset, Added: m.Offset, Epoch: a.Epoch, FirstRow: -1}
	}
	s.tally.Add(&s.flight[0].tally)
	if s.cfg.Tallied != nil {
		s.cfg.Tallied(&s.flight[0].tally)
	}
	if s.flight[0].pays {
		s.side.Debts = nil
	}
	s.flight = append(s.flight[:0], s.flight[1:]...)
	s.accepted(m.Offset, a.RequestTo)
	s.keepSide(m)
	if s.sinceIndex++; s.sinceIndex >= s.cfg.CheckpointAppends {
		if err := s.checkpoint(ctx); err != nil {
			// It only spares a later owner some reading: an eighth of the way on it is tried again.
			s.sinceIndex -= max(s.cfg.CheckpointAppends/8, 1)
			s.log.Warn("no index checkpoint", "error", err)
		}
	}
	return nil
}

// fence: another claim closed the epoch; the group decides who owns the shard.
func (s *Shard) fence(by int64) {
	s.log.Warn("another owner claimed the shard", "epoch", s.epoch, "claim", by)
	s.dropEpoch()
	s.stage = Fenced
}

// lose: the epoch is closed, but by no other owner.
func (s *Shard) lose() {
	s.dropEpoch()
	s.stage = Idle
}

// keepSide saves the side file from time to time. Without it a restart reads
// more of the log, so a failure is no reason to stop.
func (s *Shard) keepSide(m *record.OutcomeMessage) {
	s.side.Offset = max(s.side.Offset, m.Offset)
	if s.sideAge++; !s.sideDue() {
		return
	}
	s.sideAge = 0
	if s.index != nil {
		s.forgetRequests(m.TimeMs - 2*s.def.TombstoneTTLMs)
	}
	s.forgetFiles()
	if err := s.side.save(s.cfg.FS, s.cfg.Dir); err != nil {
		s.log.Warn("the side file could not be saved; a restart reads more of the log", "error", err)
	}
}

// foldOwn folds an accepted AppendRows of this shard that an earlier owner
// made (K4): key change list, rows, then the answers of its request range; or the
// files that it took and those answers, in the order of the log. All
// that may be away is read before the first of it is folded: a record is folded
// whole or not at all.
func (s *Shard) foldOwn(ctx context.Context, m *record.OutcomeMessage, a *record.AppendRows) error {
	if m.Offset > s.side.Offset {
		for i := range a.Files {
			s.side.Files[a.Files[i].ID] = fileInfo{Record: m.Offset, Added: m.Offset, Epoch: a.Epoch, FirstRow: -1}
		}
	}
	if s.index == nil {
		return nil
	}
	if m.Offset <= s.index.Offset() {
		for _, h := range s.side.held(a.RequestFrom, a.RequestTo) {
			h.Taken = m.Offset
		}
		return nil
	}
	if len(s.side.held(a.RequestFrom, a.RequestTo)) > 0 {
		if err := s.foldTakes(ctx, m, a); err != nil {
			return err
		}
		s.index.Expire(a.Forgets)
		s.accepted(m.Offset, a.RequestTo)
		return nil
	}
	var entries []keyindex.Entry // a key is in the list or in one file
	if a.Changes != nil {
		b, err := s.cfg.Bodies.Get(ctx, a.Changes)
		if err != nil {
			return away(err)
		}
		if entries, err = s.changed(b, m); err != nil {
			return err
		}
	}
	for i := range a.Files {
		f := &a.Files[i]
		rows, err := s.readEntries(ctx, fileInfo{Epoch: a.Epoch}, f.ID, f.Rows)
		if err != nil {
			return err
		}
		entries = append(entries, rows...)
	}
	answers, err := s.answers(ctx, a.RequestFrom, a.RequestTo)
	if err != nil {
		return err
	}
	if err := s.applyFold(entries, m.Offset); err != nil {
		return awayDisk(err)
	}
	for i := range answers {
		if err := s.foldAnswer(m, a, &answers[i]); err != nil {
			return err
		}
	}
	s.index.Expire(a.Forgets)
	s.accepted(m.Offset, a.RequestTo)
	return nil
}

// changed are the entries of a key change list, whose bytes b are, as of the
// record of m: keys that ended deleted, with what is remembered of them.
func (s *Shard) changed(b []byte, m *record.OutcomeMessage) ([]keyindex.Entry, error) {
	var body record.RowsBody
	if err := record.DecodeRowsBody(b, &body); err != nil {
		return nil, fmt.Errorf("rows body: %w", err)
	}
	var entries []keyindex.Entry
	for i := range body.Changes {
		c := &body.Changes[i]
		k, err := indexKey(s.keys, s.cfg.Deployment, c.Key)
		if err != nil {
			return nil, err
		}
		entries = append(entries, keyindex.Entry{
			Key: k, RowID: keyindex.NoRowID, HasOrder: c.HasOrder, Order: c.Order, Offset: m.Offset, Time: m.TimeMs,
		})
	}
	return entries, nil
}

func (s *Shard) applyFold(entries []keyindex.Entry, offset int64) error {
	if len(entries) == 0 {
		return nil
	}
	slices.SortFunc(entries, func(x, y keyindex.Entry) int { return x.Key.Compare(y.Key) })
	return s.index.Apply(entries, offset)
}

// foldAnswer folds one key of a request that an append answered. It forgets
// what the append's maker had forgotten, and nothing else: appends that were in
// flight then may have been decided since.
func (s *Shard) foldAnswer(m *record.OutcomeMessage, by *record.AppendRows, a *answer) error {
	k, err := indexKey(s.keys, s.cfg.Deployment, a.key)
	if err != nil {
		return err
	}
	found, err := s.index.Lookup([]keyindex.Key{k}, nil)
	if err != nil {
		return err
	}
	f := &found[0]
	forget(f, by.Forgets)
	hasOrd, order := f.Present && f.HasOrder, f.Order
	switch {
	case a.req.HasOrder:
		if hasOrd && a.req.Order < order {
			return nil
		}
		hasOrd, order = true, a.req.Order
	case f.Present && f.File != 0 && s.side.Files[f.File].Record >= a.req.Offset:
		return nil
	case f.Present && f.File == 0 && f.Offset >= a.req.Offset:
		return nil // as its maker did, who may have taken the version for live
	}
	if !hasOrd {
		order = 0
	}
	place := a.req.Offset // the versions from before it end there
	if f.Present && f.File == 0 && f.Offset == m.Offset {
		place = m.Offset // the append's own list has the key
	}
	return s.index.Apply([]keyindex.Entry{{
		Key: k, RowID: keyindex.NoRowID, HasOrder: hasOrd, Order: order, Offset: place, Time: m.TimeMs,
	}}, m.Offset)
}

// fileColumns reads a file's key columns, row ids and remembered values.
type fileColumns struct {
	keys  []rows.Column
	rowID *rows.Column
	own   *rows.Column // _varve_order
	order *rows.Column // the ordering column
	n     int
}

// dataFile is an open data file of the shard. Callers close its object.
type dataFile struct {
	*rows.File
	key    string
	object objstore.Object
	store  *watchedReader
}

// failed is why the file cannot be read: what the store says of it, if anything.
func (d *dataFile) failed(err error) error {
	if d.store != nil && d.store.err != nil {
		err = away(d.store.err)
	}
	return fmt.Errorf("read data file %s: %w", d.key, err)
}

func (s *Shard) openData(ctx context.Context, f fileInfo, id uint64) (*dataFile, error) {
	key, err := s.fileKey(f, id)
	if err != nil {
		return nil, err
	}
	d := &dataFile{key: key}
	d.object, err = s.cfg.Store.Open(ctx, key)
	if errors.Is(err, objstore.ErrNotFound) {
		return nil, d.failed(fmt.Errorf("%w; the log has it: restore it (a shard that was away until it was collected begins again, from its newest checkpoint)", err))
	}
	if err != nil {
		return nil, d.failed(away(err))
	}
	d.store = &watchedReader{ReaderAt: d.object}
	if d.File, err = rows.Open(d.store, d.object.Size()); err != nil || d.store.err != nil {
		return nil, errors.Join(d.failed(err), d.object.Close())
	}
	return d, nil
}

// keyFields are the key columns, in the order of the key's parts.
func (s *Shard) keyFields() (fields []schemas.Field) {
	schema := s.def.Schema()
	for _, id := range s.keys.Fields() {
		fields = append(fields, schema.Fields[schema.ByID(id)])
	}
	return fields
}

func (s *Shard) readColumns(ctx context.Context, f fileInfo, id uint64) (*fileColumns, error) {
	d, err := s.openData(ctx, f, id)
	if err != nil {
		return nil, err
	}
	defer d.object.Close()
	want := s.keyFields()
	n := len(want)
	want = append(want, schemas.Field{ID: schemas.RowIDField, Name: schemas.RowIDColumn, Type: schemas.Of(schemas.Long)})
	cols, err := d.Read(append(want, s.orderFields()...))
	if err != nil || d.store.err != nil {
		return nil, d.failed(err)
	}
	c := &fileColumns{keys: cols[:n], rowID: &cols[n], n: cols[0].Len()}
	c.setOrder(cols[n+1:])
	return c, nil
}

// readOrder reads a file's ordering values alone.
func (s *Shard) readOrder(ctx context.Context, f fileInfo, id uint64) (*fileColumns, error) {
	d, err := s.openData(ctx, f, id)
	if err != nil {
		return nil, err
	}
	defer d.object.Close()
	cols, err := d.Read(s.orderFields())
	if err != nil || d.store.err != nil {
		return nil, d.failed(err)
	}
	c := &fileColumns{n: cols[0].Len()}
	c.setOrder(cols)
	return c, nil
}

// orderFields are the columns that may hold a row's ordering value.
func (s *Shard) orderFields() []schemas.Field {
	fields := []schemas.Field{{ID: schemas.OrderField, Name: schemas.OrderColumn, Type: schemas.Of(schemas.Long)}}
	if s.def.Order.Kind == schemas.OrderByColumn {
		schema := s.def.Schema()
		fields = append(fields, schema.Fields[schema.ByID(s.def.Order.Column)])
	}
	return fields
}

func (c *fileColumns) setOrder(cols []rows.Column) {
	c.own = &cols[0]
	if len(cols) > 1 {
		c.order = &cols[1]
	}
}

// ordering is a row's ordering value.
func (c *fileColumns) ordering(row int) (has bool, value int64) {
	switch {
	case !c.own.IsNull(row):
		return true, c.own.Ints[row]
	case c.order != nil && !c.order.IsNull(row):
		return true, c.order.Ints[row]
	}
	return false, 0
}

// entry is the index entry of one row.
func (s *Shard) rowEntry(c *fileColumns, id uint64, row int, scratch []byte) (keyindex.Entry, []byte, error) {
	scratch, err := s.keys.AppendFrom(scratch[:0], c.keys, row)
	if err != nil {
		return keyindex.Entry{}, scratch, err
	}
	k, err := indexKey(s.keys, s.cfg.Deployment, scratch)
	if err != nil {
		return keyindex.Entry{}, scratch, err
	}
	e := keyindex.Entry{Key: k, File: id, Pos: uint32(row), RowID: keyindex.NoRowID}
	if !c.rowID.IsNull(row) {
		e.RowID = c.rowID.Ints[row]
	}
	e.HasOrder, e.Order = c.ordering(row)
	return e, scratch, nil
}

func (s *Shard) readEntries(ctx context.Context, f fileInfo, id uint64, want int64) ([]keyindex.Entry, error) {
	c, err := s.readColumns(ctx, f, id)
	if err != nil {
		return nil, err
	}
	if int64(c.n) != want {
		return nil, fmt.Errorf("data file %d of epoch %d has %d rows, not the %d of its record", id, f.Epoch, c.n, want)
	}
	out := make([]keyindex.Entry, c.n)
	var scratch []byte
	for i := range out {
		if out[i], scratch, err = s.rowEntry(c, id, i, scratch); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// foldSibling: another shard's block may kill one of this shard's versions.
// The entry becomes a tombstone with the dead version's own ordering value and
// log position (K4).
func (s *Shard) foldSibling(ctx context.Context, m *record.OutcomeMessage, a *record.AppendRows) error {
	return s.foldBlocks(ctx, m, a.Deletes, true)
}

// positions folds a DeletePositions or what a find job found: deaths by another path.
func (s *Shard) positions(ctx context.Context, d *processors.Decided) error {
	v, err := s.content(ctx, d)
	if err != nil {
		return err
	}
	if found, ok := v.(*record.RowsFound); ok { // accepted as a whole
		return s.foldBlocks(ctx, &d.Outcome, found.Deletes, false)
	}
	all := v.(*record.DeletePositions).Deletes
	rejected, err := d.Outcome.Outcome.Rejected(len(all))
	if err != nil {
		return err
	}
	var blocks []record.DeleteBlock
	for i := range all {
		if !rejected[i] {
			blocks = append(blocks, all[i])
		}
	}
	return s.foldBlocks(ctx, &d.Outcome, blocks, false)
}

// foldBlocks folds delete blocks that this shard did not make: those of a sibling,
// or of somebody else.
func (s *Shard) foldBlocks(ctx context.Context, m *record.OutcomeMessage, blocks []record.DeleteBlock, sibling bool) error {
	return s.foldBlocksAt(ctx, m, blocks, sibling, m.Offset)
}

// foldBlocksAt folds them, and has the index stand at an offset then.
func (s *Shard) foldBlocksAt(ctx context.Context, m *record.OutcomeMessage, blocks []record.DeleteBlock, sibling bool, offset int64) error {
	if s.index == nil {
		return nil
	}
	blocks = slices.DeleteFunc(slices.Clone(blocks), func(b record.DeleteBlock) bool { return s.deathOfHeld(m, &b) })
	if m.Offset <= s.index.Offset() && s.stage != Running {
		return nil
	}
	var dead []keyindex.Entry
	for i := range blocks {
		f, mine := s.side.Files[blocks[i].File]
		if !mine || sibling && f.Added <= s.cfg.Base {
			// What the shards had together when the topic was divided, each of
			// them still names: whose row it is now kills it, and says so here.
			continue
		}
		set, err := dv.ReadBitmap(bytes.Clone(blocks[i].Bitmap))
		if err != nil {
			return fmt.Errorf("delete block of another sender: %w", err)
		}
		if err := s.eachNow(ctx, m.Offset, blocks[i].File, set, func(f fileInfo, id uint64, set *roaring.Bitmap) (err error) {
			dead, err = s.foldDeath(ctx, dead, m, f, id, set)
			return err
		}); err != nil {
			return err
		}
	}
	return awayDisk(s.applyFold(dead, offset))
}

// names says whether an entry of the index is a row of a file.
func (s *Shard) names(id uint64) (bool, error) {
	errFound := errors.New("found")
	err := s.index.Iterate(func(e *keyindex.Entry) error {
		if e.File == id {
			return errFound
		}
		return nil
	})
	if errors.Is(err, errFound) {
		return true, nil
	}
	return false, awayDisk(err)
}

// placeDead is the place of a version that died in a file by another path. What a job
// carried is older than all that may still be held, also than rows that stand where the
// snapshot stood which they descend from (H10): no place of the table is below its own.
func (s *Shard) placeDead(f *fileInfo) int64 {
	if f.carried() {
		return s.cfg.TableID
	}
	return f.Record
}

// foldDeath appends the tombstones of the versions that a block killed.
func (s *Shard) foldDeath(ctx context.Context, dead []keyindex.Entry, m *record.OutcomeMessage, f fileInfo, id uint64, set *roaring.Bitmap) ([]keyindex.Entry, error) {
	c, err := s.readColumns(ctx, f, id)
	if errors.Is(err, objstore.ErrNotFound) {
		// A sender may name a file that left the table long ago, and that was
		// collected since (G7): no entry names it then.
		named, e := s.names(id)
		if e == nil && !named {
			if len(f.Moved) == 0 {
				delete(s.side.Files, id)
			}
			return dead, nil
		}
		err = errors.Join(err, e)
	}
	if err != nil {
		return nil, err
	}
	var scratch []byte
	for it := set.Iterator(); it.HasNext(); {
		row := int(it.Next())
		if row >= c.n {
			return nil, fmt.Errorf("delete block names row %d of data file %d, which has %d", row, id, c.n)
		}
		var e keyindex.Entry
		if e, scratch, err = s.rowEntry(c, id, row, scratch); noKey(err) {
			continue // nothing names it
		} else if err != nil {
			return nil, err
		}
		found, err := s.index.LookupConfirmed([]keyindex.Key{e.Key}, nil)
		if err != nil {
			return nil, err
		}
		if x := &found[0]; x.Present && x.File == id && x.Pos == uint32(row) {
			dead = append(dead, keyindex.Entry{
				Key: e.Key, RowID: keyindex.NoRowID, HasOrder: x.HasOrder, Order: x.Order, Offset: s.placeDead(&f), Time: m.TimeMs,
			})
		}
	}
	return dead, nil
}
