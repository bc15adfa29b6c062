package ingest

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/varve-io/varve/processors"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
)

// foreignCommits takes what other writers committed (H2): rows that their vectors
// ended died by another path; files that they added are taken like those of an
// AddFiles, but their rows stand where the snapshot stood that they descend from
// (H1).
func (s *Shard) foreignCommits(ctx context.Context, d *processors.Decided) error {
	m := &d.Outcome
	if s.index == nil {
		return nil
	}
	v, err := s.content(ctx, d)
	if err != nil {
		return err
	}
	x := v.(*record.ForeignSnapshot)
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
	if err := s.foldBlocks(ctx, m, blocks, false); err != nil {
		return err
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
	if n == 0 {
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
