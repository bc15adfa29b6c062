package adopt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/dv"
	"github.com/varve-io/varve/schemas/iceberg"
	"github.com/varve-io/varve/schemas/rows"
	"github.com/varve-io/varve/statestore/objstore"
)

// Columns of a position-delete file.
var (
	deletedPath = schemas.Field{ID: 2147483546, Name: "file_path", Type: schemas.Of(schemas.String)}
	deletedPos  = schemas.Field{ID: 2147483545, Name: "pos", Type: schemas.Of(schemas.Long)}
)

// deletes are a snapshot's delete files.
type deletes struct {
	t         *Table
	at        map[string]int // index of a data file by its path
	vectors   map[string]*iceberg.Entry
	positions []*iceberg.Entry
	equality  []*iceberg.Entry
}

func (d *deletes) add(e *iceberg.Entry) error {
	f := &e.File
	switch {
	case f.Content == iceberg.EqualityDeletes:
		d.equality = append(d.equality, e)
	case !strings.EqualFold(f.Format, iceberg.FormatPuffin):
		d.positions = append(d.positions, e)
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
	for i := range d.t.Files {
		f := &d.t.Files[i]
		d.at[f.Path] = i
		for _, e := range d.equality {
			if f.Sequence < *e.Sequence {
				return fmt.Errorf("%w: %s deletes by equality, which is not taken: have its engine rewrite the data files (in Spark: CALL system.rewrite_data_files with delete-file-threshold 1), and take the snapshot after that",
					ErrTable, e.File.Path)
			}
		}
		// A vector has whatever older position deletes said of its file.
		if e := d.vectors[f.Path]; e != nil && f.Sequence <= *e.Sequence {
			if err := d.vector(ctx, f, &e.File); err != nil {
				return err
			}
		}
	}
	for _, e := range d.positions {
		if ref := e.File.ReferencedDataFile; ref != nil && d.applies(e, *ref) == nil {
			continue
		}
		if err := d.file(ctx, e); err != nil {
			return err
		}
	}
	return nil
}

// applies is the data file of a path if a position-delete file is in force for it,
// else nil.
func (d *deletes) applies(e *iceberg.Entry, path string) *File {
	i, known := d.at[path]
	if !known {
		return nil
	}
	f := &d.t.Files[i]
	if v := d.vectors[path]; v != nil && f.Sequence <= *v.Sequence {
		return nil
	}
	if f.Sequence > *e.Sequence || f.SpecID != e.File.SpecID || !bytes.Equal(f.Partition, e.File.Partition) {
		return nil
	}
	return f
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

// file takes a position-delete file, a row group at a time.
func (d *deletes) file(ctx context.Context, e *iceberg.Entry) (err error) {
	path := e.File.Path
	if !strings.EqualFold(e.File.Format, iceberg.FormatParquet) {
		return fmt.Errorf("%w: %s is a position-delete file in the format %s; only Parquet is read", ErrTable, path, e.File.Format)
	}
	object, err := open(ctx, d.t.store, path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, object.Close()) }()
	in, err := rows.Open(object, object.Size())
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrTable, path, err)
	}
	want := []schemas.Field{deletedPath, deletedPos}
	in.MapNames(want)
	if !in.Has(deletedPath.ID) || !in.Has(deletedPos.ID) {
		return fmt.Errorf("%w: %s has no columns file_path and pos", ErrTable, path)
	}
	if in.NumRows() != e.File.Records {
		return fmt.Errorf("%w: %s has %d rows, its manifest says %d", ErrTable, path, in.NumRows(), e.File.Records)
	}
	for g := range in.NumRowGroups() {
		cols, err := in.ReadGroup(g, want)
		if err != nil {
			return fmt.Errorf("%w: %s: %w", ErrTable, path, err)
		}
		var name []byte
		var f *File
		for i := range cols[0].Len() {
			if cols[0].IsNull(i) || cols[1].IsNull(i) {
				return fmt.Errorf("%w: %s has a row without a path or position", ErrTable, path)
			}
			if b := cols[0].BytesAt(i); name == nil || !bytes.Equal(b, name) { // rows are sorted by path
				name = b
				f = d.applies(e, string(b))
			}
			if f == nil {
				continue
			}
			if pos := cols[1].Ints[i]; pos < 0 || pos >= f.Records || pos > maxPosition {
				return fmt.Errorf("%w: %s deletes row %d of %s, which has %d rows", ErrTable, path, pos, f.Path, f.Records)
			}
			f.Dead.Add(uint32(cols[1].Ints[i]))
		}
	}
	return nil
}

const maxPosition = 1<<32 - 1

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
