package sim

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/varve-io/varve/processors"
	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/dv"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/schemas/rows"
)

// added is an AddFiles as the test made it: the rows of each file.
type added struct {
	record record.AddFiles
	adopt  *record.AdoptFiles // instead of record, if the files are of another table
	seen   int64              // log offset that its sender had read before it wrote the files
	files  [][]event
}

// addSome writes some files and asks for them, or first does that later.
func (w *World) addSome() error {
	if n := len(w.adding); n > 0 && (n > 2 || w.rng.Intn(3) > 0) {
		return w.askAdd(w.rng.Intn(n))
	}
	a := &added{seen: int64(len(w.log)) - 1}
	for range 1 + w.rng.Intn(3) {
		var events []event
		for range 1 + w.rng.Intn(4) {
			w.values++
			events = append(events, event{
				key: w.rng.Intn(w.opt.Keys), value: w.values, order: 1 + int64(w.rng.Intn(12)), hasOrd: w.rng.Intn(5) > 0,
			})
		}
		a.files = append(a.files, events)
	}
	if w.opt.Adopt && w.rng.Intn(3) > 0 {
		a.adopt = &record.AdoptFiles{Cause: "sim"}
	}
	if err := w.writeAdded(a); err != nil {
		return err
	}
	w.adding = append(w.adding, a)
	if w.rng.Intn(3) > 0 {
		return w.askAdd(len(w.adding) - 1)
	}
	return nil
}

func (w *World) askAdd(i int) error {
	a := w.adding[i]
	w.adding = slices.Delete(w.adding, i, i+1)
	w.added[int64(len(w.log))] = a
	var what any = &a.record
	if a.adopt != nil {
		what = a.adopt
	}
	m, err := w.bodies.Message(w.ctx, record.Envelope{
		ApplyVersion: 1, Request: w.requestID(), OffsetSeen: a.seen, Table: tableName, TableID: w.tableID,
	}, what)
	if err != nil {
		return err
	}
	w.append(m)
	return nil
}

// neverRows puts rows among those of a file that were dead in the table that it is
// from, and says where they are.
func (w *World) neverRows(events []event) ([]event, *roaring.Bitmap) {
	never := roaring.New()
	var out []event
	for i := 0; i < len(events) || w.rng.Intn(3) == 0; {
		if i == len(events) || w.rng.Intn(3) == 0 {
			never.Add(uint32(len(out)))
			bucket := func(v int64) int32 { return schemas.BucketOf(schemas.HashInt(schemas.Of(schemas.Long), v), buckets) }
			for w.values++; w.opt.Partitioned && bucket(w.values) != bucket(events[0].value); {
				w.values++
			}
			e := event{key: w.rng.Intn(w.opt.Keys), value: w.values, order: 1 + int64(w.rng.Intn(14)), hasOrd: w.rng.Intn(5) > 0}
			out = append(out, e)
			continue
		}
		out = append(out, events[i])
		i++
	}
	return out, never
}

// writeAdded writes the files of an AddFiles, each of one partition value and
// sorted by key, or those of an AdoptFiles, in any order.
func (w *World) writeAdded(a *added) error {
	if w.opt.Partitioned {
		a.files = parted(a.files, func(e *event) int64 { return e.value })
	}
	var body record.RowsBody
	a.record.Cause = "sim"
	for _, events := range a.files {
		never := roaring.New()
		if a.adopt != nil {
			events, never = w.neverRows(events)
		}
		if !w.opt.NoKey && a.adopt == nil {
			var fault error
			slices.SortStableFunc(events, func(x, y event) int {
				kx, err := w.canonicalKey(x.key)
				if err != nil {
					fault = err
				}
				ky, err := w.canonicalKey(y.key)
				if err != nil {
					fault = err
				}
				return bytes.Compare(kx, ky)
			})
			if fault != nil {
				return fault
			}
		}
		b, err := w.batchOf(events)
		if err != nil {
			return err
		}
		var tuple []byte
		if w.opt.Partitioned {
			enc, err := rows.NewTupleEncoder(w.def.Schema(), &w.def.Specs[0])
			if err != nil {
				return err
			}
			if tuple, err = enc.Append(nil, b, 0); err != nil {
				return err
			}
		}
		var out bytes.Buffer
		info, err := rows.Write(&out, rows.WriteOptions{Schema: w.def.Schema()}, b, nil, rows.Extra{})
		if err != nil {
			return err
		}
		w.serial++
		name := [16]byte{1}
		binary.BigEndian.PutUint64(name[8:], uint64(w.serial))
		binary.BigEndian.PutUint32(name[2:], uint32(w.serial))
		path := w.def.Location + "/data/" + schemas.JobFileName(name)
		if a.adopt != nil {
			path = w.mem.Location(fmt.Sprintf("theirs/%d.parquet", w.serial))
			name = record.PathName(path)
		}
		key, ok := w.mem.Key(path)
		if !ok {
			return fmt.Errorf("no key for an added file")
		}
		if err := w.mem.Create(w.ctx, key, out.Bytes()); err != nil {
			return err
		}
		body.Files = append(body.Files, processors.FileMetrics(record.MetricsID(name), &info))
		if a.adopt != nil {
			item := record.AdoptedFile{Path: path, Rows: info.Rows, Bytes: info.Bytes, Partition: tuple}
			if !never.IsEmpty() {
				if item.Dead, err = dv.AppendBitmap(nil, never); err != nil {
					return err
				}
			}
			a.adopt.Items = append(a.adopt.Items, item)
			continue
		}
		a.record.Items = append(a.record.Items, record.AddedFile{Name: name, Rows: info.Rows, Bytes: info.Bytes, Partition: tuple})
	}
	enc, err := record.EncodeRowsBody(nil, &body)
	if err != nil {
		return err
	}
	ref, err := w.bodies.Put(w.ctx, enc)
	a.record.Metrics = &ref
	if a.adopt != nil {
		a.adopt.Metrics = &ref
	}
	return err
}

// batchOf makes rows of events.
func (w *World) batchOf(events []event) (*rows.Batch, error) {
	b := rows.NewBatch(w.def.Schema())
	for _, e := range events {
		if w.opt.Strings {
			var s string
			if err := json.Unmarshal([]byte(keyText(e.key, true)), &s); err != nil {
				return nil, err
			}
			b.Cols[0].AppendBytes([]byte(s))
		} else {
			b.Cols[0].AppendInt(int64(e.key))
		}
		b.Cols[1].AppendInt(e.value)
		if e.hasOrd {
			b.Cols[2].AppendInt(e.order)
		} else {
			b.Cols[2].AppendNull()
		}
		for i := 3; i < len(b.Cols); i++ {
			b.Cols[i].AppendNull()
		}
		b.AppendEvent(rows.Upsert, 0, 0, false)
	}
	return b, nil
}

// heldRow is a row of a held file in the model.
type heldRow struct {
	event
	died int64 // offset of the DeletePositions that ended it, -1: none
	// Of another writer's commit: where it stands in the log, and its row id.
	theirs    bool
	place, id int64
	file      uint64
}

// add: H1. Rows of a table without a key live at once.
func (m *model) add(o *record.OutcomeMessage) error {
	a := m.w.added[o.Offset]
	if a == nil || o.Outcome.Code != record.Accepted {
		return fmt.Errorf("added files are %s: %v", o.Outcome.Code, o.Outcome.Reason)
	}
	var all []*heldRow
	for _, f := range a.files {
		for _, e := range f {
			if m.w.opt.NoKey {
				m.live[int(e.value)] = &version{row: row{e.value, 0}, accepted: o.Offset, published: -1, keep: -1, fresh: true, added: true}
				continue
			}
			all = append(all, &heldRow{event: e, died: -1, place: o.Offset})
		}
	}
	if !m.w.opt.NoKey {
		m.held[o.Offset] = all
	}
	return nil
}

// released: H1. Every shard has taken the files, or is retired.
func (m *model) released(o *record.OutcomeMessage, q int64) error {
	if m.free[q] {
		return nil
	}
	for p, end := range m.requests {
		if end >= 0 && end <= q && !m.retired[p] {
			return fmt.Errorf("the files of %d are live, shard %d has taken up to %d", q, p, end)
		}
	}
	for p, end := range m.requests {
		if end < 0 || m.retired[p] && end <= q { // nobody is waited for who knows of its keys
			m.take(o, p, q, o.Offset)
		}
	}
	m.free[q] = true
	m.w.saw["files released"]++
	return nil
}

// take: H1, K2. A shard judges the rows of its own keys by what was accepted, in
// the order of the log. Its maker had read up to knew.
func (m *model) take(o *record.OutcomeMessage, p int, at, knew int64) {
	for _, x := range m.amongThemselves(o, p, at) {
		k := x.key
		valued := x.hasOrd && m.w.opt.Ordered
		if m.w.shardOf(k) != p {
			m.takeStrange(x, -1-(p*m.w.opt.Keys+k))
			continue
		}
		m.w.saw["row taken"]++
		cur, order := m.live[k], m.ord[k]
		if s, ok := m.struck[k]; ok && cur == nil && s.at >= knew {
			cur = s.version // its maker takes it for live
		}
		end, dead := m.tombs[k]
		_, ordered := m.ord[k]
		if cur != nil && cur.bare && ordered { // it gives way, whatever becomes of the other
			m.w.saw["row without a value gives way"]++
			m.diedAt[cur.value] = o.Offset
			end, dead = tomb{o.TimeMs, o.Offset, cur.accepted}, true
			m.tombs[k] = end
			delete(m.live, k)
			delete(m.struck, k)
			cur = nil
		}
		present := cur != nil || dead
		place := end.at
		if cur != nil {
			place = cur.accepted
		}
		wins := !present || x.place >= place
		switch {
		case !present || !ordered:
		case !valued && x.theirs && cur == nil && (x.died < 0 || x.died >= knew): // by its place (H13)
		case !valued:
			wins = false
		case x.order != order:
			wins = x.order > order
		}
		if !wins {
			m.w.saw["added row loses"]++
			m.diedAt[x.value] = o.Offset
			if valued && !ordered {
				m.ord[k] = x.order
			}
			continue
		}
		if cur != nil {
			m.diedAt[cur.value] = o.Offset
			m.w.saw["added row replaces"]++
		}
		if x.hasOrd && m.w.opt.Ordered {
			m.ord[k] = x.order
		}
		v := &version{row: row{x.value, 0}, accepted: x.place, published: -1, keep: -1, fresh: true, added: true}
		if x.theirs {
			v.published, v.keep, v.fresh, v.file, v.bare = at, x.id, false, x.file, m.w.opt.Ordered && !valued
			m.w.saw["row of another writer taken"]++
		}
		delete(m.struck, k)
		delete(m.tombs, k)
		delete(m.live, k)
		if x.died < 0 {
			m.live[k] = v
			continue
		}
		m.diedAt[x.value] = x.died
		m.w.saw["struck while held"]++
		// Who makes the next append takes it for live until this one is accepted, if
		// the maker of this one did.
		seen := x.died
		if seen >= knew && at > m.claimed[p] { // else the index had it all the time
			seen = o.Offset
		}
		m.struck[k] = struckVersion{v, seen}
		m.tombs[k] = tomb{o.TimeMs, o.Offset, x.place}
	}
}

// takeStrange: what a shard that the key is not of knows of it, under an id of its
// own (see strange).
func (m *model) takeStrange(x *heldRow, id int) {
	valued := x.hasOrd && m.w.opt.Ordered
	last, ok := m.ord[id]
	if place, bare := m.strangers[id]; bare && ok {
		m.tombs[id] = tomb{at: place}
	}
	delete(m.strangers, id)
	end, dead := m.tombs[id]
	switch {
	case ok && !valued && x.theirs && dead:
		if x.place < end.at {
			return
		}
	case ok && (!valued || x.order < last):
		return
	}
	if !dead || ok && valued && x.order > last || x.place >= end.at {
		delete(m.tombs, id)
		if x.theirs && !valued {
			m.strangers[id] = x.place
		}
	}
	if valued {
		m.ord[id] = x.order
	}
}
