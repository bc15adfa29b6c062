package ingest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
)

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

func (s *side) decodeHeld(r *bytes.Reader) error {
	var bad error
	varint := func() int64 {
		v, err := binary.ReadVarint(r)
		bad = errors.Join(bad, err)
		return v
	}
	uvarint := func() uint64 {
		v, err := binary.ReadUvarint(r)
		bad = errors.Join(bad, err)
		return v
	}
	count := func() int {
		v := uvarint()
		if v > uint64(r.Len()) {
			bad = errSide
			return 0
		}
		return int(v)
	}
	flag := func() bool {
		b, err := r.ReadByte()
		if bad = errors.Join(bad, err); b > 1 {
			bad = errSide
		}
		return b == 1
	}
	last := int64(-1)
	for n := count(); n > 0 && bad == nil; n-- {
		a := asked{varint(), flag()}
		if a.At <= last {
			bad = errSide
		}
		last = a.At
		s.Asked = append(s.Asked, a)
	}
	last = -1
	for n := count(); n > 0 && bad == nil; n-- {
		h := heldAdd{Offset: varint(), TimeMs: varint(), Taken: varint(), Folded: flag()}
		if h.Offset <= last {
			bad = errSide
		}
		last = h.Offset
		for n := count(); n > 0 && bad == nil; n-- {
			h.Files = append(h.Files, heldPart{uvarint(), varint()})
		}
		for n := count(); n > 0 && bad == nil; n-- {
			d := heldDeath{At: varint(), File: uvarint()}
			d.Set = make([]byte, count())
			_, err := io.ReadFull(r, d.Set)
			bad = errors.Join(bad, err)
			h.Deaths = append(h.Deaths, d)
		}
		s.Held = append(s.Held, h)
	}
	return bad
}
