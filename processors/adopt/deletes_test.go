package adopt

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/varve-io/varve/processors/deletefiles"
	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/dv"
	"github.com/varve-io/varve/schemas/iceberg"
	"github.com/varve-io/varve/schemas/rows"
	"github.com/varve-io/varve/statestore/objstore"
)

// where is a position by the path of its file.
type where struct {
	path string
	pos  int64
}

// world is a store with the files of another table.
type world struct {
	t     *testing.T
	store *objstore.Mem
	table *Table
	d     deletes
}

func newWorld(t *testing.T) *world {
	store := objstore.NewMem()
	w := &world{t: t, store: store, table: &Table{store: store, specs: map[int32]*schemas.Spec{}}}
	w.d = deletes{t: w.table, vectors: map[string]*iceberg.Entry{}}
	return w
}

func (w *world) data(name string, records, sequence int64, tuple []byte) {
	w.table.Files = append(w.table.Files, File{
		DataFile: iceberg.DataFile{Path: w.store.Location(name), Format: iceberg.FormatParquet, Records: records, Partition: tuple}, Sequence: sequence, Dead: roaring.New(),
	})
}

func (w *world) put(name string, b []byte) string {
	w.t.Helper()
	if err := w.store.Create(w.t.Context(), name, b); err != nil {
		w.t.Fatal(err)
	}
	return w.store.Location(name)
}

func (w *world) add(e *iceberg.Entry) error { return w.d.add(e) }

func entryOf(sequence int64, f iceberg.DataFile) *iceberg.Entry {
	return &iceberg.Entry{Status: iceberg.Added, Sequence: &sequence, File: f}
}

// positions adds a position-delete file.
func (w *world) positions(name string, sequence int64, tuple []byte, at ...where) {
	w.t.Helper()
	s := &schemas.Schema{Fields: []schemas.Field{deletefiles.Path, deletefiles.Position}}
	b := rows.NewBatch(s)
	for _, x := range at {
		b.Cols[0].AppendBytes([]byte(w.store.Location(x.path)))
		b.Cols[1].AppendInt(x.pos)
		b.AppendEvent(rows.Upsert, 0, 0, false)
	}
	var out bytes.Buffer
	if _, err := rows.Write(&out, rows.WriteOptions{Schema: s}, b, nil, rows.Extra{}); err != nil {
		w.t.Fatal(err)
	}
	path := w.put(name, out.Bytes())
	if err := w.add(entryOf(sequence, iceberg.DataFile{Content: iceberg.PositionDeletes, Path: path, Format: "parquet", Partition: tuple, Records: int64(len(at))})); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) vector(name string, sequence int64, of string, at ...uint32) error {
	w.t.Helper()
	blob, err := dv.AppendBlob([]byte("head"), roaring.BitmapOf(at...))
	if err != nil {
		w.t.Fatal(err)
	}
	path := w.put(name, blob)
	of = w.store.Location(of)
	offset, size := int64(4), int64(len(blob)-4)
	return w.add(entryOf(sequence, iceberg.DataFile{
		Content: iceberg.PositionDeletes, Path: path, Format: iceberg.FormatPuffin, Records: int64(len(at)), ReferencedDataFile: &of, ContentOffset: &offset, ContentSize: &size,
	}))
}

func (w *world) dead(name string, want ...uint32) {
	w.t.Helper()
	for i := range w.table.Files {
		if f := &w.table.Files[i]; f.Path == w.store.Location(name) && !slices.Equal(f.Dead.ToArray(), want) {
			w.t.Errorf("of %s the rows %v are dead, want %v", name, f.Dead.ToArray(), want)
		}
	}
}

// TestDeletes (H14): a position delete is in force for files of its own partition and
// of no later sequence number, a vector puts it out of force, and what it says of
// other files is nothing.
func TestDeletes(t *testing.T) {
	w := newWorld(t)
	other := schemas.EncodeTuple([][]byte{{1}})
	w.data("a", 5, 1, nil)
	w.data("newer", 5, 3, nil)
	w.data("other", 5, 1, other)
	w.data("vector", 5, 1, nil)
	w.data("newer than its vector", 5, 9, nil)
	w.data("same commit", 5, 2, nil)
	w.positions("d1", 2, nil, where{"a", 3}, where{"newer", 1}, where{"other", 0}, where{"vector", 2}, where{"gone", 7}, where{"same commit", 4}, where{"a", 0})
	w.positions("d2", 2, other, where{"other", 4}, where{"a", 1})
	w.positions("d3", 9, nil, where{"newer than its vector", 3})
	if err := errors.Join(w.vector("v1", 3, "vector", 4), w.vector("v2", 8, "newer than its vector", 1), w.vector("v3", 8, "gone", 1)); err != nil {
		t.Fatal(err)
	}
	// Deletes by equality of what is not older than any file are in force for nothing.
	if err := w.add(entryOf(1, iceberg.DataFile{Content: iceberg.EqualityDeletes, Path: "e", Format: "parquet"})); err != nil {
		t.Fatal(err)
	}
	if err := w.d.apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.dead("a", 0, 3)
	w.dead("newer")
	w.dead("other", 4)
	w.dead("vector", 4)
	w.dead("newer than its vector", 3)
	w.dead("same commit", 4)
}

// TestDeletesRefused: what cannot be taken is said, with the file.
func TestDeletesRefused(t *testing.T) {
	for name, c := range map[string]struct {
		make func(w *world) error
		want string
	}{
		"equality": {func(w *world) error {
			return w.add(entryOf(2, iceberg.DataFile{Content: iceberg.EqualityDeletes, Path: "theirs/e", Format: "parquet"}))
		}, "theirs/e deletes by equality, and its manifest does not say of which columns"},
		"a position that is not there": {func(w *world) error {
			w.positions("d", 2, nil, where{"a", 5})
			return nil
		}, "deletes row 5 of"},
		"a position below 0": {func(w *world) error {
			w.positions("d", 2, nil, where{"a", -1})
			return nil
		}, "deletes row -1 of"},
		"a vector of a position that is not there": {func(w *world) error { return w.vector("v", 2, "a", 5) }, "deletes row 5 of"},
		"two vectors": {func(w *world) error { return errors.Join(w.vector("v", 2, "a", 1), w.vector("w", 2, "a", 2)) }, "two deletion vectors"},
		"Avro": {func(w *world) error {
			return w.add(entryOf(2, iceberg.DataFile{Content: iceberg.PositionDeletes, Path: "theirs/p", Format: "AVRO"}))
		}, "in the format AVRO"},
		"no Parquet": {func(w *world) error {
			path := w.put("p", []byte("nothing that one could read"))
			return w.add(entryOf(2, iceberg.DataFile{Content: iceberg.PositionDeletes, Path: path, Format: "PARQUET"}))
		}, "/p: "},
		"fewer positions than were written": {func(w *world) error {
			w.positions("d", 2, nil, where{"a", 1})
			w.d.files[0].File.Records = 2
			return nil
		}, "has 1 rows, its manifest says 2"},
		"a vector of fewer positions than were written": {func(w *world) error {
			err := w.vector("v", 2, "a", 1, 3)
			w.d.vectors[w.store.Location("a")].File.Records = 3
			return err
		}, "does not have the 3 positions"},
		"a damaged vector": {func(w *world) error {
			blob, err := dv.AppendBlob(nil, roaring.BitmapOf(1, 3))
			if err != nil {
				return err
			}
			blob[len(blob)-1] ^= 1 // of its checksum
			of, offset, size := w.store.Location("a"), int64(0), int64(len(blob))
			return w.add(entryOf(2, iceberg.DataFile{
				Content: iceberg.PositionDeletes, Path: w.put("damaged", blob), Format: iceberg.FormatPuffin, Records: 2, ReferencedDataFile: &of, ContentOffset: &offset, ContentSize: &size,
			}))
		}, "/damaged, deletion vector at 0: "},
		"a lost file": {func(w *world) error {
			return w.add(entryOf(2, iceberg.DataFile{Content: iceberg.PositionDeletes, Path: w.store.Location("lost"), Format: "PARQUET"}))
		}, "/lost is not there"},
		"elsewhere": {func(w *world) error {
			return w.add(entryOf(2, iceberg.DataFile{Content: iceberg.PositionDeletes, Path: "s3://elsewhere/p", Format: "PARQUET"}))
		}, "does not lie in the warehouse"},
		"a vector out of its file": {func(w *world) error {
			of, offset, size := w.store.Location("a"), int64(3), int64(100)
			return w.add(entryOf(2, iceberg.DataFile{
				Content: iceberg.PositionDeletes, Path: w.put("short", []byte("short")), Format: iceberg.FormatPuffin, ReferencedDataFile: &of, ContentOffset: &offset, ContentSize: &size,
			}))
		}, "no deletion vector of 100 at 3"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.data("a", 5, 1, nil)
			err := c.make(w)
			if err == nil {
				err = w.d.apply(t.Context())
			}
			if !errors.Is(err, ErrTable) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}
