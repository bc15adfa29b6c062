package finder

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/varve-io/varve/processors"
	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/dv"
	"github.com/varve-io/varve/schemas/predicate"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/schemas/rows"
	"github.com/varve-io/varve/statestore/objstore"
)

// ErrDispatch marks a part that cannot be read, now or later.
var ErrDispatch = errors.New("the part of the find job cannot be read")

// windowRows is how many rows are looked at together at most.
const windowRows = 1 << 16

// Executor executes parts of find jobs. Its methods may be called concurrently.
type Executor struct {
	Store  objstore.Store
	Bodies *processors.Bodies
}

// Progress is how far a part is.
type Progress struct{ Rows, TotalRows int64 }

// Execute reads the files of a part. progress may be nil.
func (e *Executor) Execute(ctx context.Context, d *record.FindDispatch, progress func(Progress)) (*record.RowsFound, error) {
	b, err := e.Bodies.Get(ctx, &d.Definition)
	if err != nil {
		return nil, err
	}
	def := new(schemas.Definition)
	if err := record.DecodeDefinition(b, def); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDispatch, err)
	}
	if b, err = e.Bodies.Get(ctx, &d.Where); err != nil {
		return nil, err
	}
	var where record.WhereBody
	if err := record.DecodeWhereBody(b, &where); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDispatch, err)
	}
	schema := def.SchemaByID(d.SchemaID)
	if schema == nil {
		return nil, fmt.Errorf("%w: table %s has no schema %d", ErrDispatch, d.Table, d.SchemaID)
	}
	p, err := predicate.Parse(where.Predicate, schema)
	if err != nil {
		return nil, fmt.Errorf("%w: the predicate: %w", ErrDispatch, err)
	}
	return e.Find(ctx, p, d, progress)
}

// Find is Execute with a predicate at hand.
func (e *Executor) Find(ctx context.Context, p *predicate.Predicate, d *record.FindDispatch, progress func(Progress)) (*record.RowsFound, error) {
	f := finding{e: e, ctx: ctx, p: p, eval: p.Evaluator(), out: &record.RowsFound{Job: d.Job}, progress: progress}
	for i := range d.Inputs {
		f.total += d.Inputs[i].Rows
	}
	for i := range d.Inputs {
		if err := f.file(&d.Inputs[i]); err != nil {
			return nil, err
		}
	}
	return f.out, nil
}

// Rows is how many rows a block names.
func Rows(b *record.DeleteBlock) (int64, error) {
	n, err := dv.Count(b.Bitmap)
	if err != nil {
		return 0, fmt.Errorf("rows found in file %d: %w", b.File, err)
	}
	return int64(n), nil
}

type finding struct {
	e           *Executor
	ctx         context.Context
	p           *predicate.Predicate
	eval        *predicate.Evaluator
	out         *record.RowsFound
	matches     []uint32
	done, total int64
	progress    func(Progress)
}

// file looks for rows of one data file.
func (f *finding) file(in *record.DispatchInput) (err error) {
	dead, err := f.dead(in)
	if err != nil {
		return err
	}
	if int64(dead.GetCardinality()) == in.Rows {
		return f.passed(in.Rows)
	}
	key, ok := f.e.Store.Key(in.Path)
	if !ok {
		return fmt.Errorf("%w: data file %s is not in the warehouse %s", ErrDispatch, in.Path, f.e.Store.Location(""))
	}
	object, err := f.e.Store.Open(f.ctx, key)
	if err != nil {
		return fmt.Errorf("read data file %s: %w", in.Path, err)
	}
	defer func() { err = errors.Join(err, object.Close()) }()
	if object.Size() != in.Bytes {
		return fmt.Errorf("%w: data file %s has %d bytes, the log says %d", ErrDispatch, in.Path, object.Size(), in.Bytes)
	}
	file, err := rows.Open(object, object.Size())
	if err != nil {
		return fmt.Errorf("data file %s: %w", in.Path, err)
	}
	switch {
	case file.NumRows() != in.Rows:
		return fmt.Errorf("%w: data file %s has %d rows, the log says %d", ErrDispatch, in.Path, file.NumRows(), in.Rows)
	case !file.HasFieldIDs():
		return fmt.Errorf("%w: data file %s has no field ids, so its columns are not known", ErrDispatch, in.Path)
	}
	found, err := f.scan(file)
	if err != nil {
		return fmt.Errorf("data file %s: %w", in.Path, err)
	}
	found.AndNot(dead)
	if found.IsEmpty() {
		return nil
	}
	set, err := dv.AppendBitmap(nil, found)
	if err != nil {
		return fmt.Errorf("rows found in %s: %w", in.Path, err)
	}
	f.out.Deletes = append(f.out.Deletes, record.DeleteBlock{File: in.File, Bitmap: set})
	return nil
}

// dead are the rows of a file that need no look.
func (f *finding) dead(in *record.DispatchInput) (*roaring.Bitmap, error) {
	b := in.Dead
	if in.DeadRef != nil {
		var err error
		if b, err = f.e.Bodies.Get(f.ctx, in.DeadRef); err != nil {
			return nil, err
		}
	}
	if len(b) == 0 {
		return roaring.New(), nil
	}
	set, err := dv.ReadBitmap(b)
	if err != nil {
		return nil, fmt.Errorf("%w: dead positions of %s: %w", ErrDispatch, in.Path, err)
	}
	return set, nil
}

func (f *finding) scan(file *rows.File) (*roaring.Bitmap, error) {
	found := roaring.New()
	s, err := file.Scan(f.p.Fields(), 0, file.NumRows(), 0)
	if err != nil {
		return nil, err
	}
	fields := f.p.Fields()
	for {
		for {
			g, ok := s.NextGroup()
			if !ok || f.p.May(func(i int) (rows.Bounds, bool) { return file.GroupBounds(g, &fields[i]) }) {
				break
			}
			if err := s.SkipGroup(); err != nil {
				return nil, err
			}
			if err := f.passed(file.GroupRows(g)); err != nil {
				return nil, err
			}
		}
		n, err := s.Next(windowRows)
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return nil, err
		}
		f.matches = f.eval.Matches(f.matches[:0], s.Part, n)
		first := uint32(s.Row())
		for i := range f.matches {
			f.matches[i] += first
		}
		found.AddMany(f.matches)
		f.out.Rows += int64(n)
		if err := f.passed(int64(n)); err != nil {
			return nil, err
		}
	}
}

// passed notes that rows are behind.
func (f *finding) passed(n int64) error {
	if f.done += n; f.progress != nil {
		f.progress(Progress{f.done, f.total})
	}
	return f.ctx.Err()
}
