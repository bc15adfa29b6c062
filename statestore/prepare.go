package statestore

import (
	"github.com/varve-io/varve/schemas/dv"
	"github.com/varve-io/varve/schemas/record"
)

// Prepared is what an AppendRows says, decoded ahead of Apply, which may be on
// another goroutine: it follows from the record's bytes alone. A record that is
// of another type, or not sound, has none, and Apply decodes it by itself.
type Prepared struct {
	env    record.Envelope
	rec    record.AppendRows
	blocks []dv.Stat // of the delete blocks
}

// Preparer prepares records. One goroutine uses it.
type Preparer struct {
	names map[string]string // each table's name once
}

// maxPreparedNames bounds what a Preparer remembers.
const maxPreparedNames = 1 << 16

// Prepare decodes a record into room, which nobody may touch until the record was
// applied.
func (p *Preparer) Prepare(r *Record, room *Prepared) {
	r.Prepared = nil
	if r.Control {
		return
	}
	if _, typ, _, _, ok := record.PeekHeader(r.Header); !ok || typ != record.TypeAppendRows {
		return
	}
	name, known := p.names[string(r.Key)]
	if known {
		room.env.Table = name // decoding keeps a string that is the same
	}
	if record.DecodeEnvelope(r.Key, r.Header, r.Value, &room.env) != nil || room.env.BodyRef != nil || room.rec.Decode(room.env.Body) != nil {
		return
	}
	if !known {
		if p.names == nil || len(p.names) >= maxPreparedNames {
			p.names = map[string]string{}
		}
		p.names[room.env.Table] = room.env.Table
	}
	room.blocks = room.blocks[:0]
	for i := range room.rec.Deletes {
		s, err := dv.Inspect(room.rec.Deletes[i].Bitmap)
		if err != nil {
			return
		}
		room.blocks = append(room.blocks, s)
	}
	r.Prepared = room
}
