package ingest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/rows"
	"github.com/varve-io/varve/schemas/source"
	"github.com/varve-io/varve/statestore/keyindex"
	"github.com/varve-io/varve/statestore/objstore"
)

// Limits of the events whose unchanged values a flush looks up: each may read
// a page of a data file, and has the values of a row.
const (
	firstCarries = 64
	maxCarries   = 4096
	// goneRows is how near the end of a flush an event deleted a row that the next
	// flush may bring back under another key.
	goneRows = 16
	maxGone  = 64
	// carryGap is up to which distance two rows of a file are read in one go.
	carryGap = 2048
)

// held is a record some of whose values an older version of the row has. Without
// such a version it is a dead letter, which needs the record whole.
type held struct {
	rec    source.Record
	events int
}

// hold keeps a record until the buffer is flushed.
func (b *buffer) hold(r *source.Record, events int) {
	h := held{rec: copyRecords([]source.Record{*r})[0], events: events}
	b.held = append(b.held, h)
	b.heldBytes += len(r.Key) + len(r.Value)
	for i := range r.Headers {
		b.heldBytes += len(r.Headers[i].Key) + len(r.Headers[i].Value)
	}
}

// cell is where a carried value is.
type cell struct {
	row  int // of the buffer, -1: in a file
	file uint64
	pos  uint32
}

// goneRow is a row that an event near the end of the last flush deleted.
type goneRow struct {
	key  keyindex.Key
	at   cell
	info fileInfo
}

// life is what befell one key, up to some event of the buffer.
type life struct {
	found      keyindex.Found
	next, end  int // items not taken yet
	live       bool
	at         cell // the live version
	made       int  // the event that made it, -1: it was there before
	hasOrd     bool
	order      int64
	gone       bool // an event of the buffer removed goneAt
	goneAt     cell
	ended      int // that event
	unsure     bool
	valueless  int64 // newest answer without a value (log offset), -1
	hasValue   bool
	valueOrder int64 // largest answer with a value
}

// carrier finds the versions that unchanged values come from.
type carrier struct {
	s       *Shard
	n       int // events in the buffer
	lives   map[keyindex.Key]*life
	keyOf   map[int]keyindex.Key // of rows that carry values, and of their records' others
	was     []keyindex.Key       // of Was
	source  map[rows.Carried]cell
	refused map[int]int // row → column that has no older version
}

// errLetters: events of the buffer became dead letters, which are acknowledged
// before the append that covers them (A4).
var errLetters = errors.New("dead letters are on their way")

// carryOver puts the values that sources did not send into the buffer: those of
// the version that is live where the event stands, else of the one that the
// record deletes under another key. It may be called again, and then finds what
// holds by then. Answers of this flush count: what a request removes is carried
// nowhere.
func (s *Shard) carryOver(ctx context.Context, answers []answer, forgets int64) error {
	b := &s.buf
	if len(b.batch.Carries) == 0 {
		return nil
	}
	if err := b.sortKeys(s.keys, s.cfg.Deployment, answers); err != nil {
		return err
	}
	c := &carrier{s: s, n: b.batch.Len(), source: map[rows.Carried]cell{}, refused: map[int]int{}}
	if err := c.begin(answers, forgets); err != nil {
		return err
	}
	all := b.batch.Carries
	for i := 0; i < len(all); {
		j := i + 1
		for j < len(all) && all[j].Row == all[i].Row {
			j++
		}
		c.row(all[i:j])
		i = j
	}
	if len(c.refused) == 0 {
		if err := c.fill(ctx); err != nil {
			return err
		}
	}
	if len(c.refused) > 0 {
		return c.refuse()
	}
	return nil
}

// begin looks up the keys that matter.
func (c *carrier) begin(answers []answer, forgets int64) error {
	s, b := c.s, &c.s.buf
	batch := b.batch
	need := map[int]bool{}
	for _, x := range batch.Carries {
		lo, hi := c.record(x.Row)
		for r := lo; r < hi; r++ {
			need[r] = true
		}
	}
	c.lives, c.keyOf = map[keyindex.Key]*life{}, map[int]keyindex.Key{}
	for i := range b.items {
		if at := int(b.items[i].at); at < c.n && need[at] {
			c.keyOf[at] = b.items[i].key
			c.lives[b.items[i].key] = nil
		}
	}
	if batch.Was != nil {
		var scratch []byte
		for i := range batch.Was.Len() {
			var err error
			if scratch, err = s.keys.Append(scratch[:0], batch.Was, i); err != nil {
				return fmt.Errorf("the key that a row had before: %w", err)
			}
			k, err := indexKey(s.keys, s.cfg.Deployment, scratch)
			if err != nil {
				return err
			}
			c.was = append(c.was, k)
			c.lives[k] = nil
		}
	}
	keys := make([]keyindex.Key, 0, len(c.lives))
	for k := range c.lives {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, compareKeys)
	found, err := s.index.Lookup(keys, nil)
	if err != nil {
		return err
	}
	for i := range found {
		f := found[i]
		forget(&f, forgets)
		l := &life{found: f, made: -1, valueless: -1, at: cell{row: -1}}
		l.hasOrd, l.order = f.Present && f.HasOrder, f.Order
		if f.Present && f.File != 0 {
			l.live, l.at = true, cell{row: -1, file: f.File, pos: f.Pos}
		}
		l.next, _ = slices.BinarySearchFunc(b.items, keys[i], func(it item, k keyindex.Key) int { return compareKeys(it.key, k) })
		for l.end = l.next; l.end < len(b.items) && b.items[l.end].key == keys[i]; l.end++ {
			if at := int(b.items[l.end].at); at >= c.n {
				switch r := answers[at-c.n].req; {
				case !r.HasOrder:
					l.valueless = max(l.valueless, r.Offset)
				case !l.hasValue || r.Order > l.valueOrder:
					l.hasValue, l.valueOrder = true, r.Order
				}
			}
		}
		c.lives[keys[i]] = l
	}
	return nil
}

func compareKeys(x, y keyindex.Key) int {
	if d := cmp.Compare(x.Hi, y.Hi); d != 0 {
		return d
	}
	return cmp.Compare(x.Lo, y.Lo)
}

// record is the range of rows of the record that a row is of.
func (c *carrier) record(row int) (lo, hi int) {
	o := c.s.buf.batch.Offsets
	for lo = row; lo > 0 && o[lo-1] == o[row]; lo-- {
	}
	for hi = row + 1; hi < len(o) && o[hi] == o[row]; hi++ {
	}
	return lo, hi
}

// late says whether K2 ignores the event at a row.
func (c *carrier) late(l *life, row int) bool {
	b := c.s.buf.batch
	return c.s.def.Order.Kind != schemas.OrderNone && b.HasOrder[row] != 0 && l.hasOrd && b.Order[row] < l.order
}

// live replays a key's events before a row, as judge does.
func (c *carrier) live(l *life, before int) {
	b := &c.s.buf
	for ; l.next < l.end && int(b.items[l.next].at) < min(before, c.n); l.next++ {
		at := int(b.items[l.next].at)
		if _, refused := c.refused[at]; refused || c.late(l, at) {
			continue
		}
		if c.s.def.Order.Kind != schemas.OrderNone && b.batch.HasOrder[at] != 0 {
			l.hasOrd, l.order = true, b.batch.Order[at]
		}
		if b.batch.Ops[at] == rows.Upsert {
			l.live, l.at, l.made = true, cell{row: at}, at
			continue
		}
		if l.live {
			l.gone, l.goneAt, l.ended = true, l.at, at
		}
		l.live = false
	}
}

// row finds where the values of one row come from.
func (c *carrier) row(carries []rows.Carried) {
	row := carries[0].Row
	own := c.lives[c.keyOf[row]]
	c.live(own, row)
	var old *life
	if from := carries[0].From; from >= 0 {
		old = c.lives[c.was[from]]
		c.live(old, row)
	}
	if own.unsure || old != nil && old.unsure {
		return // after the refused ones have left
	}
	if c.late(own, row) {
		return
	}
	at, from, ok := own.at, own, own.live
	if old != nil {
		switch {
		case old.gone && (!ok || own.made < old.ended):
			at, from, ok = old.goneAt, old, true
		case !ok && !old.live:
			if g := c.goneBefore(c.was[carries[0].From]); g != nil {
				at, from, ok = g.at, old, true
			}
		}
	}
	if ok && at.row < 0 && c.answered(from, at) {
		ok = false
	}
	if !ok {
		c.refuseRow(row, carries[0].Col)
		return
	}
	for _, x := range carries {
		to := at
		if at.row >= 0 {
			if s, carried := c.source[rows.Carried{Row: at.row, Col: x.Col}]; carried {
				to = s
			}
		}
		c.source[rows.Carried{Row: x.Row, Col: x.Col}] = to
	}
}

// answered says whether a request that this flush answers removes a version
// that was there before it: then its values live on nowhere.
func (c *carrier) answered(l *life, at cell) bool {
	f := &l.found
	if f.File != at.file || f.Pos != at.pos {
		return l.valueless >= 0 || l.hasValue
	}
	if l.hasValue && (!f.HasOrder || f.Order <= l.valueOrder) {
		return true
	}
	return !f.Pending && c.s.side.Files[at.file].Record < l.valueless
}

// goneBefore is a row that the flush before this one deleted near its end.
func (c *carrier) goneBefore(k keyindex.Key) *goneRow {
	for i := len(c.s.gone) - 1; i >= 0; i-- {
		if g := &c.s.gone[i]; g.key == k {
			return g
		}
	}
	return nil
}

// refuseRow: the row's record is a dead letter as a whole. Other keys' rows of it
// may be taken already: what follows for these keys is found once they have left.
func (c *carrier) refuseRow(row, col int) {
	lo, hi := c.record(row)
	for r := lo; r < hi; r++ {
		c.refused[r] = col
		if hi-lo > 1 {
			c.lives[c.keyOf[r]].unsure = true
		}
	}
}

// fill reads the values that are in files, and puts all into the buffer.
func (c *carrier) fill(ctx context.Context) error {
	s := c.s
	batch := s.buf.batch
	type ask struct {
		cell
		row int
	}
	cols := map[int][]ask{}
	for _, x := range batch.Carries {
		if to, ok := c.source[rows.Carried{Row: x.Row, Col: x.Col}]; ok {
			cols[x.Col] = append(cols[x.Col], ask{to, x.Row})
		}
	}
	fetched := 0
	files := map[uint64]*dataFile{}
	defer func() {
		for _, d := range files {
			if d != nil {
				_ = d.object.Close() // it was read only
			}
		}
	}()
	for _, col := range sortedKeys(cols) {
		asks := cols[col]
		slices.SortFunc(asks, func(x, y ask) int {
			return cmp.Or(cmp.Compare(x.row0(), y.row0()), cmp.Compare(x.file, y.file), cmp.Compare(x.pos, y.pos), cmp.Compare(x.row, y.row))
		})
		values := rows.NewColumn(batch.Cols[col].Type)
		type put struct{ row, from int }
		puts := make([]put, 0, len(asks))
		for i := 0; i < len(asks); {
			a := &asks[i]
			if a.cell.row >= 0 {
				values.AppendRow(&batch.Cols[col], a.cell.row)
				puts = append(puts, put{a.row, values.Len() - 1})
				i++
				continue
			}
			j := i + 1
			for j < len(asks) && asks[j].file == a.file && asks[j].pos-asks[j-1].pos <= carryGap {
				j++
			}
			d, err := c.open(ctx, files, a.file)
			if err != nil {
				return err
			}
			// A file without the column is older than it: null would be a guess.
			field := &s.def.Schema().Fields[col]
			if d == nil || !d.Has(field.ID) && field.InitialDefault == nil {
				for _, x := range asks[i:j] {
					c.refuseRow(x.row, col)
				}
				i = j
				continue
			}
			at := values.Len()
			positions := make([]uint32, 0, j-i)
			for _, x := range asks[i:j] {
				positions = append(positions, x.pos)
			}
			if err := d.cells(&values, *field, positions); err != nil {
				return err
			}
			for k := range positions {
				puts = append(puts, put{asks[i+k].row, at + k})
			}
			i = j
		}
		fetched += len(values.Data)
		slices.SortFunc(puts, func(x, y put) int { return cmp.Compare(x.row, y.row) })
		to, from := make([]int, len(puts)), make([]int, len(puts))
		for i, p := range puts {
			to[i], from[i] = p.row, p.from
			if values.IsNull(p.from) && s.def.Schema().Fields[col].Required {
				c.refuseRow(p.row, col)
			}
		}
		batch.Cols[col].Replace(to, &values, from)
	}
	// Values may be of any size: the next flush takes fewer or more.
	s.carries = max(s.carries, firstCarries)
	switch {
	case fetched > s.cfg.FlushBytes:
		s.carries = max(1, s.carries/4)
	case fetched < s.cfg.FlushBytes/4:
		s.carries = min(maxCarries, s.carries*2)
	}
	return nil
}

// row0 sorts values of the buffer before those of files.
func (c cell) row0() int {
	if c.row >= 0 {
		return c.row
	}
	return int(^uint(0) >> 1)
}

func sortedKeys[V any](m map[int]V) []int {
	out := make([]int, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// open opens a data file once; nil: a row that was deleted before went with it.
func (c *carrier) open(ctx context.Context, files map[uint64]*dataFile, id uint64) (*dataFile, error) {
	if d, known := files[id]; known {
		return d, nil
	}
	s := c.s
	info, gone := s.infoOf(&keyindex.Found{Entry: keyindex.Entry{File: id}}), false
	if _, live := s.side.Files[id]; !live {
		// An append in flight made it, or it went since.
		for i := range s.gone {
			if s.gone[i].at.file == id {
				info, gone = s.gone[i].info, true
			}
		}
	}
	d, err := s.openData(ctx, info, id)
	if errors.Is(err, objstore.ErrNotFound) {
		if gone {
			files[id] = nil
			return nil, nil
		}
		// A job may have replaced it: the log tells soon.
		return nil, away(err)
	}
	if err != nil {
		return nil, err
	}
	files[id] = d
	return d, nil
}

// infoOf is what is known of the file of a live version.
func (s *Shard) infoOf(f *keyindex.Found) fileInfo {
	if info, known := s.side.Files[f.File]; known {
		return info
	}
	return fileInfo{Epoch: s.epoch}
}

// cells appends the values of a column at ascending positions.
func (d *dataFile) cells(to *rows.Column, f schemas.Field, positions []uint32) error {
	lo, hi := int64(positions[0]), int64(positions[len(positions)-1])+1
	scan, err := d.Scan([]schemas.Field{f}, lo, hi, 64<<10)
	if err != nil || d.store.err != nil {
		return d.failed(err)
	}
	part := scan.Part(0)
	for len(positions) > 0 {
		n, err := scan.Next(1 << 16)
		if errors.Is(err, io.EOF) && d.store.err == nil {
			err = fmt.Errorf("it ends before row %d", positions[0])
		}
		if err != nil || d.store.err != nil {
			return d.failed(err)
		}
		first := scan.Row()
		for len(positions) > 0 && int64(positions[0]) < first+int64(n) {
			i := int(int64(positions[0]) - first)
			switch {
			case part.IsNull(i):
				to.AppendNull()
			case to.Storage == rows.Ints:
				to.AppendInt(part.Ints()[i])
			case to.Storage == rows.Floats:
				to.AppendFloat(part.Floats()[i])
			default:
				to.AppendBytes(part.BytesAt(i))
			}
			positions = positions[1:]
		}
	}
	return nil
}

// refuse sends the refused records to the dead letters and takes their events
// out of the buffer.
func (c *carrier) refuse() error {
	s, b := c.s, &c.s.buf
	gone := sortedKeys(c.refused)
	offsets := map[int64]int{}
	for _, r := range gone {
		offsets[b.batch.Offsets[r]] = c.refused[r]
	}
	kept := make([]held, 0, len(b.held))
	var out []held
	for _, h := range b.held {
		if _, refused := offsets[h.rec.Offset]; refused {
			out = append(out, h)
		} else {
			kept = append(kept, h)
		}
	}
	b.held = kept
	b.batch.Remove(gone)
	for i := range out {
		b.counts.Events -= int64(out[i].events)
		b.tally.Applied--
	}
	for i := range out {
		if s.stage != Running {
			break // a letter could not be sent: all is read again
		}
		h := &out[i]
		if err := s.deadLetter(&h.rec, source.Rejectf(source.KindUpsert, "unavailable-value",
			"column %q: the source did not send the unchanged value, and no older version of the row is known", s.def.Schema().Fields[offsets[h.rec.Offset]].Name)); err != nil {
			return err
		}
	}
	return errLetters
}

// keepGone remembers rows that events deleted near the end of a flush: their
// record's other half may come in the next one.
func (s *Shard) keepGone(rowsOf, answers int) {
	if answers > 0 || rowsOf > goneRows {
		s.gone = s.gone[:0]
	}
	if answers > 0 {
		return
	}
	s.gone = append(s.gone, s.buf.gone...)
	if n := len(s.gone) - maxGone; n > 0 {
		s.gone = slices.Delete(s.gone, 0, n)
	}
}
