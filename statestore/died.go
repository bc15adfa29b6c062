package statestore

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/varve-io/varve/schemas/dv"
	"github.com/varve-io/varve/schemas/forward"
	"github.com/varve-io/varve/schemas/record"
)

// Deaths is which rows of some files are dead, wherever jobs have carried them (H3).
type Deaths struct {
	AsOf int64 // log offset of the state
	Dead map[uint64]*roaring.Bitmap
	// Open is the oldest DeleteKeys that is not settled, -1: none.
	Open int64
}

// Deaths finds it. maps are forwarding maps by their hash; those that it lacks are
// asked for, and the caller comes again with them. Nothing but a lack of maps
// makes needs.
func (s *Store) Deaths(tableID int64, files []uint64, maps map[record.Hash][]byte) (d *Deaths, needs []record.Ref, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken != nil {
		return nil, nil, s.broken
	}
	t, err := s.tableByID(tableID)
	if err != nil || t == nil {
		return nil, nil, err
	}
	r := deathReader{s: s, t: t, maps: maps, open: map[record.Hash]*forward.Map{}, needs: map[record.Hash]record.Ref{}}
	d = &Deaths{AsOf: s.head.Offset, Dead: map[uint64]*roaring.Bitmap{}, Open: -1}
	if len(t.openDeletes) > 0 {
		d.Open = t.openDeletes[0].offset
	}
	for _, id := range files {
		c, err := s.chunk(t.id, id)
		if err != nil {
			return nil, nil, err
		}
		f := c.find(id)
		if f == nil {
			return nil, nil, fmt.Errorf("%w: the state has no file %d", ErrCorrupt, id)
		}
		all := roaring.New()
		all.AddRange(0, uint64(f.rows))
		if d.Dead[id], err = r.dead(id, all); err != nil {
			return nil, nil, err
		}
	}
	for _, ref := range r.needs {
		needs = append(needs, ref)
	}
	return d, needs, nil
}

type deathReader struct {
	s     *Store
	t     *table
	maps  map[record.Hash][]byte
	open  map[record.Hash]*forward.Map
	needs map[record.Hash]record.Ref
}

// dead is which of some positions of a file are dead. set is not changed.
func (r *deathReader) dead(file uint64, set *roaring.Bitmap) (*roaring.Bitmap, error) {
	c, err := r.s.chunk(r.t.id, file)
	if err != nil {
		return nil, err
	}
	f := c.find(file)
	bit := uint(file & 127)
	switch {
	case f == nil || c.out.has(bit):
		return set.Clone(), nil
	case c.parted.has(bit):
		return r.parts(c, f, set)
	case !f.gone:
		return r.here(c, f, set)
	}
	job := c.job(file)
	if job == nil {
		return set.Clone(), nil
	}
	return r.through(file, *job, set)
}

// here is of a file's own rows.
func (r *deathReader) here(c *chunk, f *fileEntry, set *roaring.Bitmap) (*roaring.Bitmap, error) {
	b, err := r.s.deadNow(r.t, c, f)
	if err != nil || b == nil {
		return roaring.New(), err
	}
	dead, err := dv.ReadBitmap(bytes.Clone(b))
	if err != nil {
		return nil, fmt.Errorf("%w: dead positions of file %d", ErrCorrupt, f.id)
	}
	dead.And(set)
	return dead, nil
}

func (r *deathReader) parts(c *chunk, f *fileEntry, set *roaring.Bitmap) (*roaring.Bitmap, error) {
	parts, err := r.s.parts(r.t, c, f.id)
	if err != nil {
		return nil, err
	}
	out := roaring.New()
	for i := range parts {
		p := &parts[i]
		sub := roaring.New()
		sub.AddRange(uint64(p.lo), uint64(p.hi))
		sub.And(set)
		switch {
		case p.state == partMoved:
			sub, err = r.through(f.id, p.job, sub)
		case !f.gone:
			sub, err = r.here(c, f, sub)
		}
		if err != nil {
			return nil, err
		}
		out.Or(sub)
	}
	return out, nil
}

// through is of rows that a job carried over, or that were dead when it was planned.
func (r *deathReader) through(file uint64, id jobID, set *roaring.Bitmap) (*roaring.Bitmap, error) {
	done, err := r.s.doneJob(r.t.id, id)
	if err != nil || done == nil {
		return set.Clone(), err // the job runs, but every row is dead
	}
	m := r.open[done.forward.Hash]
	if m == nil {
		b, there := r.maps[done.forward.Hash]
		if done.forward.Inline() {
			if b, err = done.forward.OpenInline(); err != nil {
				return nil, mapFault(&done.forward)
			}
		} else if !there {
			r.needs[done.forward.Hash] = done.forward
			return roaring.New(), nil
		}
		if m, err = forward.Open(bytes.NewReader(b), int64(len(b))); err != nil {
			return nil, fmt.Errorf("forwarding map %s: %w", done.forward.Where(), err)
		}
		r.open[done.forward.Hash] = m
	}
	input := slices.IndexFunc(m.Inputs(), func(in forward.Input) bool { return in.File == file })
	if input < 0 {
		return nil, fmt.Errorf("%w: forwarding map %s does not have file %d", ErrCorrupt, done.forward.Where(), file)
	}
	out := roaring.New()
	if base := m.Inputs()[input].Dead; len(base) > 0 {
		if out, err = dv.ReadBitmap(bytes.Clone(base)); err != nil {
			return nil, fmt.Errorf("%w: R of forwarding map %s", ErrCorrupt, done.forward.Where())
		}
		out.And(set)
	}
	alive := roaring.AndNot(set, out).ToArray()
	images, err := m.Rebase(nil, input, alive)
	if err != nil || len(images) != len(alive) {
		return nil, fmt.Errorf("%w: forwarding map %s has %d images of %d positions", ErrCorrupt, done.forward.Where(), len(images), len(alive))
	}
	type at struct {
		set  *roaring.Bitmap
		from map[uint32]uint32
	}
	byOutput := map[uint32]*at{}
	for i, x := range images {
		o := byOutput[x.Output]
		if o == nil {
			o = &at{roaring.New(), map[uint32]uint32{}}
			byOutput[x.Output] = o
		}
		o.set.Add(x.Position)
		o.from[x.Position] = alive[i]
	}
	for output, o := range byOutput {
		dead, err := r.dead(done.first+uint64(output), o.set)
		if err != nil {
			return nil, err
		}
		for it := dead.Iterator(); it.HasNext(); {
			out.Add(o.from[it.Next()])
		}
	}
	return out, nil
}

// diedByOthers notes the newest record by which rows of an outside catalog's table
// died other than by an append: no shard knows of such deaths what a held copy of
// the row would be judged by (H3).
func (s *Store) diedByOthers(t *table, offset int64) error {
	if t.head.Build < 0 || t.head.MetadataVersion != 0 {
		return nil
	}
	var e enc
	e.i(offset)
	return s.set(foreignKey(t.id, foreignDeaths), e.b)
}

func (s *Store) byOthers(table int64) (int64, error) {
	b, err := s.get(foreignKey(table, foreignDeaths))
	if err != nil || b == nil {
		return -1, err
	}
	d := dec{b: b}
	n := d.i()
	return n, d.done("newest death by another path")
}

// What of a table's keyForeign is no file's.
const (
	foreignNext    = 0
	foreignDeaths  = 1
	foreignSpecs   = 2
	foreignAdopted = 3
)
