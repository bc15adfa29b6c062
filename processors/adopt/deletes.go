package adopt

import (
	"context"
	"errors"
	"fmt"

	"github.com/varve-io/varve/processors/deletefiles"
	"github.com/varve-io/varve/schemas/dv"
	"github.com/varve-io/varve/schemas/iceberg"
	"github.com/varve-io/varve/statestore/objstore"
)

// deletes are a snapshot's delete files.
type deletes struct {
	t       *Table
	vectors map[string]*iceberg.Entry
	files   []*iceberg.Entry
}

func (d *deletes) add(e *iceberg.Entry) error {
	f := &e.File
	switch {
	case deletefiles.Is(f):
		d.files = append(d.files, e)
	case f.ReferencedDataFile == nil || f.ContentOffset == nil || f.ContentSize == nil:
		return fmt.Errorf("%w: the deletion vector in %s does not say of which file it is", ErrTable, f.Path)
	case d.vectors[*f.ReferencedDataFile] != nil:
		return fmt.Errorf("%w: it lists two deletion vectors of %s", ErrTable, *f.ReferencedDataFile)
	default:
		d.vectors[*f.ReferencedDataFile] = e
	}
	return nil
}

// apply finds what of the table's files is dead.
func (d *deletes) apply(ctx context.Context) error {
	data := make([]deletefiles.Data, len(d.t.Files))
	for i := range d.t.Files {
		f := &d.t.Files[i]
		// A vector has whatever older position deletes said of its file.
		e := d.vectors[f.Path]
		inForce := e != nil && f.Sequence <= *e.Sequence
		if inForce {
			if err := d.vector(ctx, f, &e.File); err != nil {
				return err
			}
		}
		data[i] = deletefiles.Data{File: &f.DataFile, Sequence: f.Sequence, Vector: inForce, Dead: f.Dead}
	}
	finder := deletefiles.Finder{
		Open:   func(ctx context.Context, path string) (objstore.Object, error) { return open(ctx, d.t.store, path) },
		Schema: d.t.Schema,
		Spec:   d.t.Spec,
	}
	err := finder.Find(ctx, d.files, data)
	if errors.Is(err, deletefiles.ErrDeletes) {
		return fmt.Errorf("%w: %w", ErrTable, err)
	}
	return err
}

func (d *deletes) vector(ctx context.Context, f *File, v *iceberg.DataFile) (err error) {
	object, err := open(ctx, d.t.store, v.Path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, object.Close()) }()
	offset, length := *v.ContentOffset, *v.ContentSize
	if offset < 0 || length < 0 || length > maxVectorBytes || offset > object.Size()-length {
		return fmt.Errorf("%w: %s has %d bytes, and no deletion vector of %d at %d", ErrTable, v.Path, object.Size(), length, offset)
	}
	blob := make([]byte, length)
	if n, err := object.ReadAt(blob, offset); n < len(blob) {
		return fmt.Errorf("%s: %w", v.Path, err)
	}
	x, err := dv.Decode(blob)
	if err != nil {
		return fmt.Errorf("%w: %s, deletion vector at %d: %w", ErrTable, v.Path, offset, err)
	}
	set, ok := x.Bitmap32()
	if !ok || int64(set.GetCardinality()) != v.Records {
		return fmt.Errorf("%w: %s: its deletion vector at %d does not have the %d positions that its manifest tells of", ErrTable, v.Path, offset, v.Records)
	}
	f.Dead.Or(set)
	return f.checkDead(v.Path)
}

// checkDead: a position that the file does not have is of another file, or means
// nothing.
func (f *File) checkDead(by string) error {
	if !f.Dead.IsEmpty() && int64(f.Dead.Maximum()) >= f.Records {
		return fmt.Errorf("%w: %s deletes row %d of %s, which has %d rows", ErrTable, by, f.Dead.Maximum(), f.Path, f.Records)
	}
	return nil
}

func open(ctx context.Context, store objstore.Store, location string) (objstore.Object, error) {
	key, ok := store.Key(location)
	if !ok {
		return nil, outside(store, location)
	}
	object, err := store.Open(ctx, key)
	if errors.Is(err, objstore.ErrNotFound) {
		return nil, fmt.Errorf("%w: %s is not there", ErrTable, location)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", location, err)
	}
	return object, nil
}
