package ingest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/varve-io/varve/processors"
	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/forward"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/schemas/rows"
	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/statestore/keyindex"
)

// moved is the way through a completed job, from one of its inputs (P2): from
// positions [Lo,Hi) of a file.
type moved struct {
	Lo, Hi uint32
	Map    record.Ref
	First  uint64 // file id of the first output
	At     int64  // log offset of the completion
	TimeMs int64  // table time of the completion
}

// movedMs is how long the way through a job is remembered, in ms of table time:
// for as long, a sibling's block, or what a find job found, may name a file from
// before it.
const movedMs = statestore.FindMs

// moveRows is how many rows of an output are moved at a time.
const moveRows = 1 << 16

// completed folds a CompleteJob: the entries of rows that a job carried over move
// to its outputs (K4).
func (s *Shard) completed(ctx context.Context, d *processors.Decided) error {
	if s.index == nil {
		return nil
	}
	return s.eachCompleted(ctx, d, func(x *record.CompletedJob, first uint64) error { return s.move(ctx, &d.Outcome, x, first) })
}

// eachCompleted calls fn with the jobs of a CompleteJob that were accepted, and the
// id of the first output of each, for statestore.FirstOutput: what its inputs are
// stands in its map.
func (s *Shard) eachCompleted(ctx context.Context, d *processors.Decided, fn func(x *record.CompletedJob, first uint64) error) error {
	m := &d.Outcome
	v, err := s.content(ctx, d)
	if err != nil {
		return err
	}
	items := v.(*record.CompleteJob).Items
	rejected, err := m.Outcome.Rejected(len(items))
	if err != nil {
		return err
	}
	if len(m.Outcome.Numbers) < 3 {
		return fmt.Errorf("the outcome of completed jobs has %d numbers, not 3", len(m.Outcome.Numbers))
	}
	next := uint64(m.Outcome.Numbers[2])
	for i := range items {
		if rejected[i] {
			continue
		}
		first := next
		next += uint64(len(items[i].Outputs))
		if err := fn(&items[i], first); err != nil {
			return err
		}
	}
	return nil
}

func (s *Shard) openMap(ctx context.Context, ref *record.Ref) (*forward.Map, error) {
	b, err := s.cfg.Bodies.Map(ctx, ref)
	switch {
	case err != nil && ref.Inline():
		return nil, err
	case err != nil:
		return nil, away(err)
	}
	fwd, err := forward.Open(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return nil, fmt.Errorf("forwarding map %s: %w", ref.Where(), err)
	}
	return fwd, nil
}

// move moves the entries of one job's rows.
func (s *Shard) move(ctx context.Context, m *record.OutcomeMessage, j *record.CompletedJob, first uint64) error {
	fwd, err := s.openMap(ctx, &j.Map)
	if err != nil {
		return err
	}
	mine := false
	first = statestore.FirstOutput(first, fwd.Inputs())
	for i := range fwd.Inputs() {
		in := &fwd.Inputs()[i]
		if f, ok := s.side.Files[in.File]; ok {
			f.Moved = f.withMove(moved{Lo: in.Lo, Hi: in.Hi, Map: j.Map, First: first, At: m.Offset, TimeMs: m.TimeMs})
			s.side.Files[in.File] = f
			mine = true
		}
	}
	if !mine {
		return nil // no row of this shard
	}
	for i := range j.Outputs {
		s.side.Files[first+uint64(i)] = fileInfo{Record: j.Job.Plan, Added: m.Offset, Epoch: -1, FirstRow: -1, Name: j.Outputs[i].Name}
	}
	if m.Offset <= s.index.Offset() {
		return nil
	}
	trace, err := fwd.Trace()
	if err != nil {
		return err
	}
	for i := range j.Outputs {
		if err := s.moveTo(ctx, m, fwd, trace, first+uint64(i), j.Outputs[i].Rows); err != nil {
			return err
		}
	}
	return nil
}

// moveTo moves the entries of the rows of one output. A row whose entry is not
// what it came from any more has died since the plan, or is another shard's.
func (s *Shard) moveTo(ctx context.Context, m *record.OutcomeMessage, fwd *forward.Map, trace *forward.Tracer, id uint64, want int64) error {
	d, err := s.openData(ctx, s.side.Files[id], id)
	if err != nil {
		return err
	}
	defer d.object.Close()
	if d.NumRows() != want {
		return d.failed(fmt.Errorf("it has %d rows, not the %d of its record", d.NumRows(), want))
	}
	fields := append(s.keyFields(), schemas.Field{ID: schemas.RowIDField, Name: schemas.RowIDColumn, Type: schemas.Of(schemas.Long)})
	scan, err := d.Scan(fields, 0, want, 256<<10)
	if err != nil || d.store.err != nil {
		return d.failed(err)
	}
	parts := make([]*rows.Part, len(fields))
	for i := range parts {
		parts[i] = scan.Part(i)
	}
	keys, rowIDs := parts[:len(parts)-1], parts[len(parts)-1]
	x := mover{s: s, fwd: fwd, to: id}
	for {
		n, err := scan.Next(moveRows)
		if errors.Is(err, io.EOF) && d.store.err == nil {
			return nil
		}
		if err != nil || d.store.err != nil {
			return d.failed(err)
		}
		if err := x.take(m.Offset, scan.Row(), n, trace, keys, rowIDs); err != nil {
			return err
		}
	}
}

// mover moves the rows of an output, a window of them at a time.
type mover struct {
	s       *Shard
	fwd     *forward.Map
	to      uint64
	origins []forward.Origin
	rows    []movedRow
	keys    []keyindex.Key
	found   []keyindex.Found
	entries []keyindex.Entry
	scratch []byte
}

// movedRow is a row of an output, and where it came from.
type movedRow struct {
	key   keyindex.Key
	from  uint64
	pos   uint32
	at    uint32
	rowID int64
}

func (x *mover) take(offset, row int64, n int, trace *forward.Tracer, keys []*rows.Part, rowIDs *rows.Part) error {
	s := x.s
	x.origins = resize(x.origins, n)
	if err := trace.Next(x.origins); err != nil {
		return err
	}
	x.rows = x.rows[:0]
	for i := range n {
		from := x.fwd.Inputs()[x.origins[i].Input].File
		if _, mine := s.side.Files[from]; !mine {
			continue
		}
		var err error
		if x.scratch, err = s.keys.AppendParts(x.scratch[:0], keys, i); err != nil {
			return err
		}
		k, err := indexKey(s.keys, s.cfg.Deployment, x.scratch)
		if err != nil {
			return err
		}
		r := movedRow{key: k, from: from, pos: x.origins[i].Position, at: uint32(row) + uint32(i), rowID: keyindex.NoRowID}
		if !rowIDs.IsNull(i) {
			r.rowID = rowIDs.Ints()[i]
		}
		x.rows = append(x.rows, r)
	}
	slices.SortFunc(x.rows, func(a, b movedRow) int { return a.key.Compare(b.key) })
	x.keys = x.keys[:0]
	for i := range x.rows {
		if i == 0 || x.rows[i].key != x.rows[i-1].key {
			x.keys = append(x.keys, x.rows[i].key)
		}
	}
	var err error
	if x.found, err = s.index.LookupConfirmed(x.keys, x.found[:0]); err != nil {
		return awayDisk(err)
	}
	x.entries = x.entries[:0]
	at := 0
	for i := range x.rows {
		r := &x.rows[i]
		for x.found[at].Key != r.key {
			at++
		}
		if f := &x.found[at]; f.Present && f.File == r.from && f.Pos == r.pos {
			e := f.Entry
			e.File, e.Pos, e.RowID = x.to, r.at, r.rowID
			x.entries = append(x.entries, e)
		}
	}
	// The record's own offset stands only when all of it is folded. A move that is
	// made again after a crash or a failed read finds its entry moved.
	return awayDisk(s.index.Apply(x.entries, offset-1))
}

// eachNow calls fn with where positions of a file are at a log offset: through the
// jobs that rewrote it before, to the file that the index names. (The side file may
// be ahead of the index that is folded.) A file that is none of this shard's, or
// that nothing in the index can name, gives nothing.
func (s *Shard) eachNow(ctx context.Context, at int64, id uint64, set *roaring.Bitmap, fn func(f fileInfo, id uint64, set *roaring.Bitmap) error) error {
	f, mine := s.side.Files[id]
	if !mine {
		return nil
	}
	if len(f.Moved) > 0 {
		set = set.Clone()
	}
	for i := range f.Moved {
		m := &f.Moved[i]
		if m.At >= at {
			continue
		}
		went := roaring.New()
		went.AddRange(uint64(m.Lo), uint64(m.Hi))
		went.And(set)
		if went.IsEmpty() {
			continue
		}
		set.AndNot(went)
		if err := s.eachThrough(ctx, at, id, m, went, fn); err != nil {
			return err
		}
	}
	if set.IsEmpty() {
		return nil
	}
	return fn(f, id, set)
}

// eachThrough goes on with positions of a file that a job rewrote.
func (s *Shard) eachThrough(ctx context.Context, at int64, id uint64, m *moved, set *roaring.Bitmap, fn func(f fileInfo, id uint64, set *roaring.Bitmap) error) error {
	fwd, err := s.openMap(ctx, &m.Map)
	if err != nil {
		return err
	}
	input := slices.IndexFunc(fwd.Inputs(), func(in forward.Input) bool { return in.File == id })
	if input < 0 {
		return fmt.Errorf("forwarding map %s does not have file %d", m.Map.Where(), id)
	}
	images, err := fwd.Rebase(nil, input, set.ToArray())
	if err != nil {
		return err
	}
	return forward.ByOutput(images, func(output uint32, to *roaring.Bitmap) error {
		return s.eachNow(ctx, at, m.First+uint64(output), to, fn)
	})
}

// withMove is the ways through the jobs that rewrote a file, with one more. A
// completion may be folded again.
func (f *fileInfo) withMove(m moved) []moved {
	all := slices.Clone(f.Moved)
	i, found := slices.BinarySearchFunc(all, m, compareMoves)
	if found {
		all[i] = m
		return all
	}
	return slices.Insert(all, i, m)
}

func compareMoves(a, b moved) int { return cmp.Or(cmp.Compare(a.Lo, b.Lo), cmp.Compare(a.At, b.At)) }

// lastMove is the table time of the newest completion that rewrote rows of a file.
func (f *fileInfo) lastMove() (ms int64, any bool) {
	for i := range f.Moved {
		if t := f.Moved[i].TimeMs; !any || t > ms {
			ms, any = t, true
		}
	}
	return ms, any
}
