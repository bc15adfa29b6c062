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
}

// A Finder finds the rows that delete files end.
type Finder struct {
	// Open opens a data or delete file by its path.
	Open func(ctx context.Context, path string) (objstore.Object, error)
	// Schema is the table's.
	Schema *schemas.Schema
	// Unpartitioned says whether a partition spec has no fields.
	Unpartitioned func(spec int32) bool

	atOnce int // equality deletes in memory; 0: keysAtOnce
}

// Find adds to each data file's Dead the positions that the delete files end.
// Entries have their data sequence numbers. ErrDeletes: one of them cannot be read,
// or says what cannot be.
func (f *Finder) Find(ctx context.Context, deletes []*iceberg.Entry, data []Data) error {
	at := make(map[string]*Data, len(data))
	for i := range data {
		at[data[i].File.Path] = &data[i]
	}
	var equality []*iceberg.Entry
	for _, e := range deletes {
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
	slices.SortStableFunc(equality, func(a, b *iceberg.Entry) int {
		return cmp.Or(slices.Compare(a.File.EqualityIDs, b.File.EqualityIDs), cmp.Compare(a.File.SpecID, b.File.SpecID), bytes.Compare(a.File.Partition, b.File.Partition))
	})
	p := pass{f: f, data: data, room: cmp.Or(f.atOnce, keysAtOnce)}
	for _, e := range equality {
		if !slices.ContainsFunc(data, func(d Data) bool { return p.applies(e, &d) }) {
			continue
		}
		if err := p.take(ctx, e); err != nil {
			return err
		}
	}
	return p.end(ctx)
}

// inForce is d if a position-delete file is in force for it, else nil.
func inForce(e *iceberg.Entry, d *Data) *Data {
	if d == nil || d.Vector || d.Sequence > *e.Sequence || d.File.SpecID != e.File.SpecID || !bytes.Equal(d.File.Partition, e.File.Partition) {
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
		return object, in, nil
	}
	return nil, nil, errors.Join(err, object.Close())
}

const maxPosition = 1<<32 - 1

// positions takes a position-delete file, a row group at a time.
func (f *Finder) positions(ctx context.Context, e *iceberg.Entry, at map[string]*Data) (err error) {
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
		cols, err := in.ReadGroup(g, want)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
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
