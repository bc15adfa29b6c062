package ingest

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/varve-io/varve/processors"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/statestore/keyindex"
)

// foreignCommits takes what other writers committed (H2): rows that their vectors
// ended died by another path; files that they added are taken like those of an
// AddFiles, but their rows stand where the snapshot stood that they descend from
// (H1).
func (s *Shard) foreignCommits(ctx context.Context, d *processors.Decided) error {
	m := &d.Outcome
	v, err := s.content(ctx, d)
	if err != nil {
		return err
	}
	x := v.(*record.ForeignSnapshot)
	if s.index == nil {
		if len(x.Removed) > 0 && s.stage == Running && m.Offset > s.epoch {
			s.lose() // the state closed its epoch (A6)
		}
		return nil
	}
	n := m.Outcome.Numbers
	if len(n) <= record.ForeignPlace {
		return fmt.Errorf("the outcome of other writers' commits has %d numbers", len(n))
	}
	var blocks []record.DeleteBlock
	for i := range x.Vectors {
		if len(x.Vectors[i].Dead) > 0 {
			blocks = append(blocks, record.DeleteBlock{File: x.Vectors[i].File, Bitmap: x.Vectors[i].Dead})
		}
	}
	// The record's own offset stands only when all of it is folded. Deaths that are
	// folded again find their entries ended.
	if err := s.foldBlocksAt(ctx, m, blocks, false, m.Offset-1); err != nil {
		return err
	}
	if err := s.foldLeft(ctx, m, x.Removed, n[record.ForeignPlace]); err != nil {
		return err
	}
	if len(x.Removed) > 0 && s.stage == Running && m.Offset > s.epoch {
		s.log.Info("another writer took files out of the table; claiming the shard again", "files", len(x.Removed), "offset", m.Offset)
		s.lose() // the state closed its epoch
	}
	if len(x.Files) == 0 {
		return nil
	}
	h := heldAdd{Offset: m.Offset, Place: n[record.ForeignPlace], TimeMs: m.TimeMs}
	for i := range x.Files {
		f := &x.Files[i]
		id := uint64(n[record.ForeignFirst]) + uint64(i)
		if m.Offset > s.side.Offset {
			s.side.Files[id] = fileInfo{Record: h.Place, Added: m.Offset, Epoch: -1, FirstRow: f.FirstRowID, Path: f.Path}
		}
		h.Files = append(h.Files, heldPart{id, f.Rows})
		if len(f.Dead) > 0 {
			h.Deaths = append(h.Deaths, heldDeath{m.Offset, id, f.Dead})
		}
	}
	return s.hold(ctx, m, h)
}

// foreignFiles are those of files, in order, that other writers brought.
func (s *side) foreignFiles(ids []uint64) (out []uint64) {
	for _, id := range ids {
		if statestore.IsForeign(id) && s.Files[id].Path != "" {
			out = append(out, id)
		}
	}
	return out
}

// encodeForeign appends the part of a side file that is about files of others:
// their paths, and the places of those that are held.
func (s *side) encodeForeign(b []byte, ids []uint64) []byte {
	b = binary.AppendUvarint(b, uint64(len(ids)))
	for _, id := range ids {
		path := s.Files[id].Path
		b = binary.AppendUvarint(binary.AppendUvarint(b, id), uint64(len(path)))
		b = append(b, path...)
	}
	for i := range s.Held {
		b = binary.AppendVarint(b, s.Held[i].Place)
	}
	return b
}

func (s *side) decodeForeign(r *sideReader) {
	n := r.count()
	if n == 0 && !r.numbered {
		r.bad = errSide
	}
	for last := uint64(0); n > 0 && r.bad == nil; n-- {
		id, path := r.uvarint(), r.text()
		f, known := s.Files[id]
		if !known || id <= last || path == "" || !statestore.IsForeign(id) {
			r.bad = errSide
			return
		}
		last = id
		f.Path = path
		s.Files[id] = f
	}
	for i := range s.Held {
		s.Held[i].Place = r.varint()
	}
}

// foldLeft folds files that another writer took out (H3): whatever the index has of
// their rows ends, wherever jobs have carried them, at its own place but no later
// than that of the rows that came for them.
func (s *Shard) foldLeft(ctx context.Context, m *record.OutcomeMessage, removed []uint64, place int64) error {
	if m.Offset <= s.index.Offset() && s.stage != Running {
		return nil
	}
	var left []keyindex.Entry
	for _, id := range removed {
		f, mine := s.side.Files[id]
		if !mine {
			continue
		}
		d, err := s.openData(ctx, f, id)
		if err != nil {
			return err
		}
		all := roaring.New()
		all.AddRange(0, uint64(d.NumRows()))
		if err := d.object.Close(); err != nil {
			return away(err)
		}
		if err := s.eachNow(ctx, m.Offset, id, all, func(f fileInfo, id uint64, set *roaring.Bitmap) (err error) {
			left, err = s.leftIn(ctx, left, m, f, id, set, place)
			return err
		}); err != nil {
			return err
		}
	}
	return awayDisk(s.applyFold(left, m.Offset-1))
}

// leftIn appends the tombstones of the entries that name rows of a file.
func (s *Shard) leftIn(ctx context.Context, left []keyindex.Entry, m *record.OutcomeMessage, f fileInfo, id uint64, set *roaring.Bitmap, place int64) ([]keyindex.Entry, error) {
	c, err := s.readColumns(ctx, f, id)
	if err != nil {
		return nil, err
	}
	var rowsOf []keyindex.Entry
	var scratch []byte
	for it := set.Iterator(); it.HasNext(); {
		row := int(it.Next())
		if row >= c.n {
			break
		}
		var e keyindex.Entry
		e, scratch, err = s.rowEntry(c, id, row, scratch)
		if noKey(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		rowsOf = append(rowsOf, e)
	}
	slices.SortFunc(rowsOf, func(x, y keyindex.Entry) int { return x.Key.Compare(y.Key) })
	var keys []keyindex.Key
	var found []keyindex.Found
	for i := 0; i < len(rowsOf); {
		keys = keys[:0]
		j := i
		for ; j < len(rowsOf) && (len(keys) < lookupKeys || rowsOf[j].Key == keys[len(keys)-1]); j++ {
			if len(keys) == 0 || rowsOf[j].Key != keys[len(keys)-1] {
				keys = append(keys, rowsOf[j].Key)
			}
		}
		if found, err = s.index.LookupConfirmed(keys, found[:0]); err != nil {
			return nil, awayDisk(err)
		}
		at := 0
		for ; i < j; i++ {
			for found[at].Key != rowsOf[i].Key {
				at++
			}
			if x := &found[at]; x.Present && x.File == id && x.Pos == rowsOf[i].Pos {
				left = append(left, keyindex.Entry{
					Key: x.Key, RowID: keyindex.NoRowID, HasOrder: x.HasOrder, Order: x.Order, Offset: min(f.Record, place), Time: m.TimeMs,
				})
			}
		}
	}
	return left, nil
}
