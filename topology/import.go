package topology

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/varve-io/varve/processors"
	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/schemas/rows"
	"github.com/varve-io/varve/statestore"
)

// importRows is how many rows of a file are written as one, where its row groups
// let it: what an import holds in memory.
const importRows = 1 << 20

// importTries is how often files are written again that a collector may have
// seen before the log had them (H9).
const importTries = 4

// ImportFile is a Parquet file to be brought into a table.
type ImportFile struct {
	Name string // for people
	Size int64
	io.ReaderAt
}

// Imported is what an import brought.
type Imported struct {
	Rows    int64
	Files   int64 // written
	Bytes   int64
	Offsets []int64 // of the AddFiles records
}

// CheckImport says whether a file can be brought into a table, and how many rows
// it has. Its columns are found by their field ids, or, where it has none, by
// their names (T3); each must be a column of the table and fit it.
func CheckImport(d *schemas.Definition, in *ImportFile) (*rows.File, error) {
	fail := func(err error) (*rows.File, error) { return nil, fmt.Errorf("import %s: %w", in.Name, err) }
	f, err := rows.Open(in, in.Size)
	if err != nil {
		return fail(err)
	}
	schema := d.Schema()
	if unknown := f.MapNames(schema.Fields); len(unknown) > 0 {
		return fail(fmt.Errorf("it has no field ids, and table %s has no flat column of the name %q, or none that can hold it: rename or leave out the column, or alter the table", d.Name, unknown[0]))
	}
	for _, c := range append(f.Columns(), f.Fields()...) {
		i := schema.ByID(c.ID)
		if i < 0 || schema.Fields[i].Name != c.Name {
			return fail(fmt.Errorf("its column %q has the field id %d, which is another column of table %s, or none: write it with the table's field ids, or with none", c.Name, c.ID, d.Name))
		}
		if have := schema.Fields[i].Type; !f.Fits(&c, have) && !have.IsNested() {
			return fail(fmt.Errorf("its column %q is a %s, which no %s can hold", c.Name, c.Type, have))
		}
	}
	for i := range schema.Fields {
		if x := &schema.Fields[i]; x.Required && !f.Has(x.ID) {
			return fail(fmt.Errorf("it has no column %q, which table %s requires", x.Name, d.Name))
		}
	}
	return f, nil
}

// Import brings Parquet files into a table (H1): their rows are written anew,
// sorted by the key and parted as the table is, and enter by AddFiles, one a file.
// Of rows of one key the later is the newer one, unless an ordering column decides.
// progress, if any, hears of rows written.
func (n *Conn) Import(ctx context.Context, table string, files []ImportFile, progress func(rows int64)) (*Imported, error) {
	out := &Imported{}
	for i := range files {
		if err := n.importFile(ctx, table, &files[i], out, progress); err != nil {
			return out, err
		}
	}
	return out, nil
}

func (n *Conn) importFile(ctx context.Context, table string, in *ImportFile, out *Imported, progress func(int64)) error {
	for try := 1; ; try++ {
		t, err := n.Table(ctx, table)
		if err != nil {
			return err
		}
		f, err := CheckImport(t.Definition, in)
		if err != nil {
			return err
		}
		// Whatever is written from here on, no collector saw below this offset.
		head, err := n.views.head(ctx, n.partition(table))
		if err != nil {
			return err
		}
		w := importer{n: n, t: t, f: f, progress: progress}
		if err := w.write(ctx); err != nil {
			return errors.Join(fmt.Errorf("import %s: %w", in.Name, err), w.remove(ctx))
		}
		if len(w.add.Items) == 0 {
			return nil // it has no rows
		}
		res, err := n.request(ctx, table, t.ID, &w.add, head.Offset)
		if err != nil {
			return fmt.Errorf("import %s: it is not known whether the files are in the table: see `varve transaction list %s`: %w", in.Name, table, err)
		}
		if o := &res.Outcome; o.Code != record.Accepted {
			err := errors.Join(fmt.Errorf("import %s into %s: %w: %s", in.Name, table, ErrRejected, o.Reason), w.remove(ctx))
			if o.Reason == record.TooOld && try < importTries {
				continue
			}
			return err
		}
		out.Rows += w.rows
		out.Files += int64(len(w.add.Items))
		out.Bytes += w.bytes
		out.Offsets = append(out.Offsets, res.Offset)
		return nil
	}
}

// importer writes one file's rows as files of the table.
type importer struct {
	n        *Conn
	t        *statestore.TableInfo
	f        *rows.File
	add      record.AddFiles
	body     record.RowsBody
	keys     []string // of the objects written
	rows     int64
	bytes    int64
	progress func(int64)
}

func (w *importer) write(ctx context.Context) error {
	fields := w.t.Definition.Schema().Fields
	if w.f.NumRows() <= importRows {
		cols, err := w.f.Read(fields)
		if err == nil && w.f.NumRows() > 0 {
			err = w.part(ctx, cols)
		}
		if err != nil {
			return err
		}
	} else {
		for g := range w.f.NumRowGroups() {
			cols, err := w.f.ReadGroup(g, fields)
			if err == nil && w.f.GroupRows(g) > 0 {
				err = w.part(ctx, cols)
			}
			if err != nil {
				return err
			}
		}
	}
	w.add.Cause = "import"
	if len(w.add.Items) == 0 {
		return nil
	}
	slices.SortFunc(w.body.Files, func(x, y record.FileMetrics) int { return cmp.Compare(x.ID, y.ID) })
	b, err := record.EncodeRowsBody(nil, &w.body)
	if err != nil {
		return err
	}
	ref, err := w.n.bodies.Put(ctx, b)
	w.add.Metrics = &ref
	return err
}

// part writes some rows, sorted by the key, one file a partition value.
func (w *importer) part(ctx context.Context, cols []rows.Column) error {
	d := w.t.Definition
	b := rows.NewBatch(d.Schema())
	copy(b.Cols, cols)
	sel := make([]uint32, cols[0].Len())
	for i := range sel {
		sel[i] = uint32(i)
		b.AppendEvent(rows.Upsert, 0, 0, false)
	}
	if d.Keyed() {
		enc, err := rows.NewKeyEncoder(d.Schema(), d.Key)
		if err != nil {
			return err
		}
		if _, row, err := sortedBy(enc.Append, b, sel); err != nil {
			return fmt.Errorf("row %d has no key that table %s can have: %w", row, d.Name, err)
		}
	}
	spec := d.Spec(d.DefaultSpec)
	if len(spec.Fields) == 0 {
		return w.file(ctx, b, sel, nil)
	}
	enc, err := rows.NewTupleEncoder(d.Schema(), spec)
	if err != nil {
		return err
	}
	tuple, _, err := sortedBy(enc.Append, b, sel)
	if err != nil {
		return err
	}
	for len(sel) > 0 {
		k := 1
		for k < len(sel) && bytes.Equal(tuple(sel[k]), tuple(sel[0])) {
			k++
		}
		if err := w.file(ctx, b, sel[:k], bytes.Clone(tuple(sel[0]))); err != nil {
			return err
		}
		sel = sel[k:]
	}
	return nil
}

// sortedBy sorts the rows of a batch, of which sel has each, by what enc makes of
// them, and gives that of a row. On an error row is which one.
func sortedBy(enc func(dst []byte, b *rows.Batch, i int) ([]byte, error), b *rows.Batch, sel []uint32) (of func(row uint32) []byte, row int, err error) {
	at := make([]int, len(sel)+1)
	var arena []byte
	for row = range sel {
		if arena, err = enc(arena, b, row); err != nil {
			return nil, row, err
		}
		at[row+1] = len(arena)
	}
	of = func(r uint32) []byte { return arena[at[r]:at[r+1]] }
	slices.SortStableFunc(sel, func(x, y uint32) int { return bytes.Compare(of(x), of(y)) })
	return of, row, nil
}

func (w *importer) file(ctx context.Context, b *rows.Batch, sel []uint32, tuple []byte) error {
	d := w.t.Definition
	var name [16]byte
	if _, err := rand.Read(name[:]); err != nil {
		return fmt.Errorf("no random name: %w", err)
	}
	location := d.Location + "/data/" + schemas.JobFileName(name)
	key, ok := w.n.store.Key(location)
	if !ok {
		return fmt.Errorf("table location %s is not in the warehouse %s", d.Location, w.n.store.Location(""))
	}
	var out bytes.Buffer
	info, err := rows.Write(&out, rows.WriteOptions{Schema: d.Schema()}, b, sel, rows.Extra{})
	if err != nil {
		return fmt.Errorf("write a data file: %w", err)
	}
	w.keys = append(w.keys, key)
	if err := w.n.store.Create(ctx, key, out.Bytes()); err != nil {
		return fmt.Errorf("write data file %s: %w", key, err)
	}
	w.add.Items = append(w.add.Items, record.AddedFile{
		Name: name, Rows: info.Rows, Bytes: info.Bytes, SpecID: d.DefaultSpec, Partition: tuple, SchemaID: d.CurrentSchema,
	})
	w.body.Files = append(w.body.Files, processors.FileMetrics(record.MetricsID(name), &info))
	w.rows += info.Rows
	w.bytes += info.Bytes
	if w.progress != nil {
		w.progress(info.Rows)
	}
	return nil
}

// remove deletes what no record of the log names.
func (w *importer) remove(ctx context.Context) error {
	if len(w.keys) == 0 {
		return nil
	}
	return w.n.store.Delete(context.WithoutCancel(ctx), w.keys...)
}

// WaitKeysTaken waits until every shard has taken the files that these AddFiles
// brought, and returns the log offset up to which their effects lie.
func (n *Conn) WaitKeysTaken(ctx context.Context, table string, offsets []int64) (int64, error) {
	for {
		t, err := n.Table(ctx, table)
		if err != nil {
			return 0, err
		}
		if !slices.ContainsFunc(offsets, func(o int64) bool { return slices.Contains(t.Held, o) }) {
			return t.LastChange, nil
		}
		if err := n.pause(ctx); err != nil {
			return 0, err
		}
	}
}
