package deletefiles

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/iceberg"
	"github.com/varve-io/varve/schemas/rows"
	"github.com/varve-io/varve/statestore/objstore"
)

// ErrDeletes marks delete files that cannot be applied.
var ErrDeletes = errors.New("its deletes cannot be taken")

// Columns of a position-delete file.
var (
	Path     = schemas.Field{ID: 2147483546, Name: "file_path", Type: schemas.Of(schemas.String)}
	Position = schemas.Field{ID: 2147483545, Name: "pos", Type: schemas.Of(schemas.Long)}
)

// Is says whether an entry of a delete manifest is a delete file, and no deletion
// vector.
func Is(d *iceberg.DataFile) bool {
	return d.Content == iceberg.EqualityDeletes || d.Content == iceberg.PositionDeletes && !strings.EqualFold(d.Format, iceberg.FormatPuffin)
}

// Data is a data file that deletes may apply to.
type Data struct {
	File     *iceberg.DataFile
	Sequence int64           // data sequence number
	Vector   bool            // a deletion vector is in force: position-delete files are not
	Dead     *roaring.Bitmap // takes what is found

	tuple []byte // its partition
}

// deletion is a delete file, and what it may apply to.
type deletion struct {
	*iceberg.Entry
	tuple  []byte // its partition
	global bool   // by equality: the files of any partition
}

// A Finder finds the rows that delete files end.
type Finder struct {
	// Open opens a data or delete file by its path.
	Open func(ctx context.Context, path string) (objstore.Object, error)
	// Schema is the table's.
	Schema *schemas.Schema
	// Spec is a partition spec of the table; nil: one that is not known.
	Spec func(id int32) *schemas.Spec

	atOnce int // equality deletes in memory; 0: keysAtOnce
}

// Find adds to each data file's Dead the positions that the delete files end.
// Entries have their data sequence numbers. ErrDeletes: one of them cannot be read,
// or says what cannot be.
func (f *Finder) Find(ctx context.Context, deletes []*iceberg.Entry, data []Data) error {
	at := make(map[string]*Data, len(data))
	for i := range data {
		data[i].tuple = f.tuple(data[i].File)
		at[data[i].File.Path] = &data[i]
	}
	var equality []deletion
	for _, entry := range deletes {
		e := deletion{entry, f.tuple(&entry.File), f.global(entry.File.SpecID)}
		switch {
		case len(e.File.KeyMetadata) > 0:
			return fmt.Errorf("%w: %s is encrypted", ErrDeletes, e.File.Path)
		case !strings.EqualFold(e.File.Format, iceberg.FormatParquet):
			return fmt.Errorf("%w: %s is a delete file in the format %s; only Parquet is read", ErrDeletes, e.File.Path, e.File.Format)
		case e.File.Content == iceberg.EqualityDeletes:
			equality = append(equality, e)
		default:
			if ref := e.File.ReferencedDataFile; ref != nil && inForce(e, at[*ref]) == nil {
				continue
			}
			if err := f.positions(ctx, e, at); err != nil {
				return err
			}
		}
	}
	// Those of the same columns and partition stand together.
	slices.SortStableFunc(equality, func(a, b deletion) int {
		return cmp.Or(slices.Compare(a.File.EqualityIDs, b.File.EqualityIDs), cmp.Compare(a.File.SpecID, b.File.SpecID), bytes.Compare(a.tuple, b.tuple))
	})
	p := pass{f: f, data: data, room: cmp.Or(f.atOnce, keysAtOnce)}
	for _, e := range equality {
		if !slices.ContainsFunc(data, func(d Data) bool { return d.Sequence < *e.Sequence && e.within(&d) }) {
			continue
		}
		if err := p.take(ctx, e); err != nil {
			return err
		}
	}
	return p.end(ctx)
}

// global says whether equality deletes of a partition spec apply to files of any: it
// has no fields, or such as are always null, which stand for fields that were dropped.
func (f *Finder) global(spec int32) bool {
	s := f.Spec(spec)
	return s != nil && !slices.ContainsFunc(s.Fields, func(p schemas.PartitionField) bool { return p.Transform != schemas.Void })
}

// tuple is a file's partition, its values of the types that they have by the table's
// schema: a manifest from before a column was widened has narrower ones.
func (f *Finder) tuple(d *iceberg.DataFile) []byte {
	spec := f.Spec(d.SpecID)
	if spec == nil {
		return d.Partition
	}
	values, err := schemas.DecodeTuple(d.Partition, len(spec.Fields))
	if err != nil {
		return d.Partition
	}
	for i, v := range values {
		p := &spec.Fields[i]
		at := f.Schema.ByID(p.SourceID)
		if at < 0 {
			continue
		}
		if t, err := schemas.TransformResult(p.Transform, p.N, f.Schema.Fields[at].Type); err == nil {
			values[i] = schemas.WidenSingle(v, t)
		}
	}
	return schemas.EncodeTuple(values)
}

// inForce is d if a position-delete file is in force for it, else nil.
func inForce(e deletion, d *Data) *Data {
	if d == nil || d.Vector || d.Sequence > *e.Sequence || d.File.SpecID != e.File.SpecID || !bytes.Equal(d.tuple, e.tuple) {
		return nil
	}
	return d
}

// open opens a file, whose rows are those that its manifest tells of.
func (f *Finder) open(ctx context.Context, d *iceberg.DataFile, want []schemas.Field) (objstore.Object, *rows.File, error) {
	object, err := f.Open(ctx, d.Path)
	if err != nil {
		return nil, nil, err
	}
	in, err := rows.Open(object, object.Size())
	switch {
	case err != nil:
		err = fmt.Errorf("%w: %s: %w", ErrDeletes, d.Path, err)
	case in.NumRows() != d.Records:
		err = fmt.Errorf("%w: %s has %d rows, its manifest says %d", ErrDeletes, d.Path, in.NumRows(), d.Records)
	default:
		in.MapNames(want)
		if err = fits(in, want); err == nil {
			return object, in, nil
		}
		err = fmt.Errorf("%w: %s: %w", ErrDeletes, d.Path, err)
	}
	return nil, nil, errors.Join(err, object.Close())
}

// fits says why a file's columns are none that the wanted ones can be read from.
func fits(in *rows.File, want []schemas.Field) error {
	for _, c := range in.Fields() {
		for i := range want {
			if f := &want[i]; f.ID == c.ID && f.Type != c.Type && !c.Type.CanWiden(f.Type) {
				return fmt.Errorf("it has the column %q as %s, which no %s can hold", f.Name, c.Type, f.Type)
			}
		}
	}
	return nil
}

// read reads a row group. ErrDeletes: nobody can read it, however often.
func read(in *rows.File, path string, group int, want []schemas.Field) ([]rows.Column, error) {
	cols, err := in.ReadGroup(group, want)
	switch {
	case errors.Is(err, rows.ErrBadFile), errors.Is(err, rows.ErrUnsupported):
		return nil, fmt.Errorf("%w: %s: %w", ErrDeletes, path, err)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return cols, nil
}

const maxPosition = 1<<32 - 1

// positions takes a position-delete file, a row group at a time.
func (f *Finder) positions(ctx context.Context, e deletion, at map[string]*Data) (err error) {
	path := e.File.Path
	want := []schemas.Field{Path, Position}
	object, in, err := f.open(ctx, &e.File, want)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, object.Close()) }()
	if !in.Has(Path.ID) || !in.Has(Position.ID) {
		return fmt.Errorf("%w: %s has no columns file_path and pos", ErrDeletes, path)
	}
	for g := range in.NumRowGroups() {
		cols, err := read(in, path, g, want)
		if err != nil {
			return err
		}
		var name []byte
		var d *Data
		for i := range cols[0].Len() {
			if cols[0].IsNull(i) || cols[1].IsNull(i) {
				return fmt.Errorf("%w: %s has a row without a path or position", ErrDeletes, path)
			}
			if b := cols[0].BytesAt(i); name == nil || !bytes.Equal(b, name) { // rows are sorted by path
				name = b
				d = inForce(e, at[string(b)])
			}
			if d == nil {
				continue
			}
			pos := cols[1].Ints[i]
			if pos < 0 || pos >= d.File.Records || pos > maxPosition {
				return fmt.Errorf("%w: %s deletes row %d of %s, which has %d rows", ErrDeletes, path, pos, d.File.Path, d.File.Records)
			}
			d.Dead.Add(uint32(pos))
		}
	}
	return nil
}
