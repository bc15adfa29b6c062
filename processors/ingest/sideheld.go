package ingest

import "encoding/binary"

// encodeHeld appends the part of a side file that is about added files.
func (s *side) encodeHeld(b []byte) []byte {
	flag := func(is bool) byte {
		if is {
			return 1
		}
		return 0
	}
	b = binary.AppendUvarint(b, uint64(len(s.Asked)))
	for _, a := range s.Asked {
		b = append(binary.AppendVarint(b, a.At), flag(a.Is))
	}
	b = binary.AppendUvarint(b, uint64(len(s.Held)))
	for i := range s.Held {
		h := &s.Held[i]
		b = binary.AppendVarint(binary.AppendVarint(b, h.Offset), h.TimeMs)
		b = append(binary.AppendVarint(b, h.Taken), flag(h.Folded))
		b = binary.AppendUvarint(b, uint64(len(h.Files)))
		for _, p := range h.Files {
			b = binary.AppendVarint(binary.AppendUvarint(b, p.ID), p.Rows)
		}
		b = binary.AppendUvarint(b, uint64(len(h.Deaths)))
		for _, d := range h.Deaths {
			b = binary.AppendUvarint(binary.AppendVarint(b, d.At), d.File)
			b = append(binary.AppendUvarint(b, uint64(len(d.Set))), d.Set...)
		}
	}
	return b
}

func (s *side) decodeHeld(r *sideReader) {
	last := int64(-1)
	for n := r.count(); n > 0 && r.bad == nil; n-- {
		a := asked{r.varint(), r.flag()}
		if a.At <= last {
			r.bad = errSide
		}
		last = a.At
		s.Asked = append(s.Asked, a)
	}
	last = -1
	for n := r.count(); n > 0 && r.bad == nil; n-- {
		h := heldAdd{Offset: r.varint(), TimeMs: r.varint(), Taken: r.varint(), Folded: r.flag()}
		h.Place = h.Offset
		if h.Offset <= last {
			r.bad = errSide
		}
		last = h.Offset
		for n := r.count(); n > 0 && r.bad == nil; n-- {
			h.Files = append(h.Files, heldPart{r.uvarint(), r.varint()})
		}
		for n := r.count(); n > 0 && r.bad == nil; n-- {
			d := heldDeath{At: r.varint(), File: r.uvarint()}
			d.Set = make([]byte, r.count())
			r.fill(d.Set)
			h.Deaths = append(h.Deaths, d)
		}
		s.Held = append(s.Held, h)
	}
}
