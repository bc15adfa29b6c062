package adopt

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/dv"
	"github.com/varve-io/varve/schemas/iceberg"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/schemas/rows"
	"github.com/varve-io/varve/statestore/objstore"
)

// ErrFile marks a data file that cannot be taken as it lies.
var ErrFile = errors.New("it cannot be taken as it lies")

// filesAtOnce bounds the footers that are read at the same time.
const filesAtOnce = 8

// Fit is what a table of ours can take of another one.
type Fit struct {
	Items   []record.AdoptedFile
	Metrics []record.FileMetrics // of each item
	Refused []Refused
	// Rows are those of the items, Dead of them the dead ones. Empty are files of
	// which every row is dead: nothing is to be taken of them.
	Rows, Dead, Bytes, Empty int64
}

// Refused is a data file that cannot be taken, and why.
type Refused struct {
	Path string
	Why  error
}

// Check holds a table's data files against a definition: where they lie, their
// footers, their columns and partitions. checked, if any, hears of each file.
func (t *Table) Check(ctx context.Context, d *schemas.Definition, checked func()) (*Fit, error) {
	if err := t.columns(d); err != nil {
		return nil, err
	}
	items := make([]record.AdoptedFile, len(t.Files))
	why := make([]error, len(t.Files))
	g, some := errgroup.WithContext(ctx)
	g.SetLimit(filesAtOnce)
	for i := range t.Files {
		f := &t.Files[i]
		g.Go(func() error {
			var err error
			if f.live() == 0 {
				err = t.isDead(some, f)
			} else {
				err = t.fits(some, d, f, &items[i])
			}
			if errors.Is(err, ErrFile) || errors.Is(err, ErrTable) {
				why[i], err = err, nil
			}
			if checked != nil && err == nil {
				checked()
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	out := &Fit{}
	for i := range t.Files {
		f := &t.Files[i]
		switch {
		case why[i] != nil:
			out.Refused = append(out.Refused, Refused{f.Path, why[i]})
		case f.live() == 0:
			out.Empty++
		default:
			out.Items = append(out.Items, items[i])
			out.Metrics = append(out.Metrics, metrics(f, items[i].Path, d.Schema()))
			out.Rows += f.Records
			out.Dead += int64(f.Dead.GetCardinality())
			out.Bytes += f.Bytes
		}
	}
	return out, nil
}

func (f *File) live() int64 { return f.Records - int64(f.Dead.GetCardinality()) }

// columns: a field id means one column. What the other table has under an id must be
// ours of that id, and what a file lacks must be read as the same.
func (t *Table) columns(d *schemas.Definition) error {
	ours := d.Schema()
	for i := range t.Schema.Fields {
		theirs := &t.Schema.Fields[i]
		j := ours.ByID(theirs.ID)
		if j < 0 || ours.Fields[j].Name != theirs.Name {
			return fmt.Errorf("%w: its column %q has the field id %d, which is another column of table %s, or none; make a table that has its field ids (\"varve table create --iceberg\")", ErrTable, theirs.Name, theirs.ID, d.Name)
		}
		have := &ours.Fields[j]
		if !holds(have.Type, theirs.Type) {
			return fmt.Errorf("%w: its column %q is a %s, which no %s can hold", ErrTable, theirs.Name, theirs.Type, have.Type)
		}
		if !sameDefault(have.Type, have.InitialDefault, theirs.InitialDefault) {
			return fmt.Errorf("%w: its column %q has another initial default than table %s has: rows of older files would be read otherwise", ErrTable, theirs.Name, d.Name)
		}
	}
	for i := range ours.Fields {
		if x := &ours.Fields[i]; t.Schema.ByID(x.ID) < 0 && x.Required {
			return fmt.Errorf("%w: it has no column %q, which table %s requires", ErrTable, x.Name, d.Name)
		}
	}
	return nil
}

func holds(have, file schemas.Type) bool { return file == have || file.CanWiden(have) }

// sameDefault: writers spell a JSON value in their own ways.
func sameDefault(t schemas.Type, a, b json.RawMessage) bool {
	if len(a) == 0 || len(b) == 0 {
		return len(a) == len(b)
	}
	x, err := schemas.ParseJSONValue(t, a)
	if err != nil {
		return false
	}
	y, err := schemas.ParseJSONValue(t, b)
	return err == nil && bytes.Equal(x, y)
}

func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrFile}, args...)...)
}

// fits makes the item of a file that can be taken.
func (t *Table) fits(ctx context.Context, d *schemas.Definition, f *File, out *record.AdoptedFile) (err error) {
	if !strings.EqualFold(f.Format, iceberg.FormatParquet) {
		return refuse("it is a %s file; only Parquet is read", f.Format)
	}
	key, ok := t.store.Key(f.Path)
	if !ok {
		return refuse("it does not lie in the warehouse %s, so that readers of the table, and varve with its credentials, would not find it", t.store.Location(""))
	}
	spec, tuple, err := t.partition(d, f)
	if err != nil {
		return err
	}
	object, err := open(ctx, t.store, f.Path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, object.Close()) }()
	if object.Size() != f.Bytes {
		return refuse("it has %d bytes, its manifest says %d", object.Size(), f.Bytes)
	}
	file, err := rows.Open(object, object.Size())
	if errors.Is(err, rows.ErrBadFile) || errors.Is(err, rows.ErrUnsupported) {
		return refuse("%w", err)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", f.Path, err)
	}
	if err := f.counts(file); err != nil {
		return err
	}
	if err := t.fitsColumns(d, f, file); err != nil {
		return err
	}
	// Writers have put milliseconds into bounds as they stand in the footer.
	converted := func(b iceberg.IDBytes) bool { return file.Converts(b.ID) }
	f.Lower, f.Upper = slices.DeleteFunc(f.Lower, converted), slices.DeleteFunc(f.Upper, converted)
	if err := fitsKeys(d, file); errors.Is(err, ErrFile) {
		return err
	} else if err != nil {
		return fmt.Errorf("%s: %w", f.Path, err)
	}
	*out = record.AdoptedFile{
		Path: t.store.Location(key), Rows: f.Records, Bytes: f.Bytes, SpecID: spec, Partition: tuple, SchemaID: d.CurrentSchema,
	}
	if !f.Dead.IsEmpty() {
		if out.Dead, err = dv.AppendBitmap(nil, f.Dead); err != nil {
			return fmt.Errorf("dead rows of %s: %w", f.Path, err)
		}
	}
	return nil
}

// counts: what is dead of a file, and that all of it is, is reckoned by the rows that
// its manifest tells of.
func (f *File) counts(file *rows.File) error {
	if file.NumRows() != f.Records {
		return refuse("it has %d rows, its manifest says %d", file.NumRows(), f.Records)
	}
	return nil
}

// isDead: a file without a live row, by its manifest, has none that the manifest does
// not count. One that is gone, or no Parquet, has nothing that could be lost.
func (t *Table) isDead(ctx context.Context, f *File) (err error) {
	key, ok := t.store.Key(f.Path)
	if !ok {
		return nil
	}
	object, err := t.store.Open(ctx, key)
	if errors.Is(err, objstore.ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", f.Path, err)
	}
	defer func() { err = errors.Join(err, object.Close()) }()
	file, err := rows.Open(object, object.Size())
	if errors.Is(err, rows.ErrBadFile) || errors.Is(err, rows.ErrUnsupported) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", f.Path, err)
	}
	return f.counts(file)
}

// fitsColumns holds a file's columns against the table's, by their field ids.
func (t *Table) fitsColumns(d *schemas.Definition, f *File, file *rows.File) error {
	ours := d.Schema()
	if !file.HasFieldIDs() {
		return refuse("it has no field ids, so that readers would have to take its columns by their names; %s", instead(d))
	}
	for _, x := range [...]struct {
		id   int32
		name string
	}{{schemas.RowIDField, schemas.RowIDColumn}, {schemas.LastSeqField, schemas.LastSeqName}, {schemas.OrderField, schemas.OrderColumn}} {
		if file.Has(x.id) {
			return refuse("it has a column %s, whose values are of the table that it is from; %s", x.name, instead(d))
		}
	}
	for _, c := range append(file.Columns(), file.Fields()...) {
		one := schemas.Schema{Fields: []schemas.Field{c}}
		if highest := one.HighestID(); ours.ByID(c.ID) < 0 && highest > d.LastColumnID {
			return refuse("its column %q has the field id %d, which a new column of table %s would get, and be read from it; make a table that has its field ids (\"varve table create --iceberg\")", c.Name, highest, d.Name)
		}
	}
	readable := map[int32]bool{}
	for _, c := range file.Fields() {
		readable[c.ID] = true
		j := ours.ByID(c.ID)
		switch {
		case j < 0:
			continue // nobody reads it
		case t.Schema.ByID(c.ID) < 0:
			return refuse("its column %q has the field id %d, which was another column before it is table %s's column %q", c.Name, c.ID, d.Name, ours.Fields[j].Name)
		case !file.Fits(&c, ours.Fields[j].Type):
			return refuse("its column %q is a %s, which no %s can hold", c.Name, c.Type, ours.Fields[j].Type)
		}
	}
	for i := range ours.Fields {
		x := &ours.Fields[i]
		switch {
		case file.Has(x.ID) && !readable[x.ID]:
			return refuse("its column %q is stored in a way that varve does not read", x.Name)
		case !file.Has(x.ID) && x.Required:
			return refuse("it has no column %q, which table %s requires", x.Name, d.Name)
		}
	}
	for _, id := range d.Key {
		if n, ok := countOf(f.NullCounts, id); ok && n > 0 {
			return refuse("%d of its rows have no %q, which is of the key of table %s", n, ours.Fields[ours.ByID(id)].Name, d.Name)
		}
	}
	// Files that were taken from Hive have identity partition columns in their
	// metadata alone.
	spec := t.Spec(f.SpecID)
	values, err := schemas.DecodeTuple(f.Partition, len(spec.Fields))
	if err != nil {
		return refuse("%w", err)
	}
	for i := range spec.Fields {
		if p := &spec.Fields[i]; p.Transform == schemas.Identity && values[i] != nil && ours.ByID(p.SourceID) >= 0 && !file.Has(p.SourceID) {
			return refuse("its column of field id %d stands in its partition alone", p.SourceID)
		}
	}
	return nil
}

// instead is the way in for rows whose files cannot be taken. The files alone are
// not: they have the dead rows, too.
func instead(d *schemas.Definition) string {
	return fmt.Sprintf("have an engine write the rows that the table has (SELECT) to Parquet files, and bring those in with \"varve table import %s FILE\"", d.Name)
}

// partition finds the spec of ours by whose terms the file is of one partition.
func (t *Table) partition(d *schemas.Definition, f *File) (int32, []byte, error) {
	theirs := t.Spec(f.SpecID)
	if theirs == nil {
		return 0, nil, refuse("it is partitioned by spec %d, which varve does not know to read", f.SpecID)
	}
	values, err := schemas.DecodeTuple(f.Partition, len(theirs.Fields))
	if err != nil {
		return 0, nil, refuse("its partition: %w", err)
	}
	var plain *schemas.Spec
	for _, spec := range specsByUse(d) {
		if terms(spec) == 0 && plain == nil {
			plain = spec
		}
		if terms(spec) != terms(theirs) {
			continue
		}
		out, ok := make([][]byte, len(spec.Fields)), true
		for i := range spec.Fields {
			p := &spec.Fields[i]
			if p.Transform == schemas.Void {
				continue
			}
			j := slices.IndexFunc(theirs.Fields, func(q schemas.PartitionField) bool {
				return q.SourceID == p.SourceID && q.Transform == p.Transform && q.N == p.N
			})
			if ok = ok && j >= 0; j >= 0 {
				out[i] = values[j]
			}
		}
		if !ok {
			continue
		}
		types, err := spec.ResultTypes(d.Schema())
		if err != nil {
			continue
		}
		tuple := schemas.EncodeTuple(out)
		if err := schemas.CheckTuple(tuple, types); err != nil {
			return 0, nil, refuse("its partition: %w", err)
		}
		return spec.ID, tuple, nil
	}
	if plain == nil {
		return 0, nil, refuse("it is partitioned otherwise than table %s ever was; partition that so with \"varve table alter %s --partition-by\", and back afterwards", d.Name, d.Name)
	}
	// A table without partitions takes a file of any.
	return plain.ID, schemas.EncodeTuple(make([][]byte, len(plain.Fields))), nil
}

// specsByUse are a table's specs, the default one first.
func specsByUse(d *schemas.Definition) []*schemas.Spec {
	out := []*schemas.Spec{d.Spec(d.DefaultSpec)}
	for i := range d.Specs {
		if d.Specs[i].ID != d.DefaultSpec {
			out = append(out, &d.Specs[i])
		}
	}
	return out
}

// terms is how many fields of a spec say anything.
func terms(s *schemas.Spec) (n int) {
	for i := range s.Fields {
		if s.Fields[i].Transform != schemas.Void {
			n++
		}
	}
	return n
}

// countOf is what a manifest counts of a column; ok is false where it says nothing.
func countOf(in []iceberg.IDCount, id int32) (n int64, ok bool) {
	i, found := slices.BinarySearchFunc(in, id, func(c iceberg.IDCount, id int32) int { return int(c.ID) - int(id) })
	if !found || in[i].Count < 0 {
		return 0, false
	}
	return in[i].Count, true
}

// metrics are what the file's manifest says of columns of ours.
func metrics(f *File, path string, ours *schemas.Schema) record.FileMetrics {
	out := record.FileMetrics{ID: record.MetricsID(record.PathName(path)), SplitOffsets: slices.Clone(f.SplitOffsets)}
	bound := func(in []iceberg.IDBytes, id int32, to schemas.Type) ([]byte, bool) {
		i, found := slices.BinarySearchFunc(in, id, func(b iceberg.IDBytes, id int32) int { return int(b.ID) - int(id) })
		if !found {
			return nil, false
		}
		v := widened(in[i].Value, to)
		return v, schemas.CheckValue(to, v) == nil
	}
	var ids []int32
	for _, c := range f.ValueCounts {
		if j := ours.ByID(c.ID); j >= 0 && !ours.Fields[j].Type.IsNested() {
			ids = append(ids, c.ID)
		}
	}
	for _, id := range ids {
		m := record.ColumnMetrics{FieldID: id, NaNs: -1}
		var whole [3]bool
		m.Bytes, whole[0] = countOf(f.ColumnSizes, id)
		m.Values, whole[1] = countOf(f.ValueCounts, id)
		m.Nulls, whole[2] = countOf(f.NullCounts, id)
		if whole != [3]bool{true, true, true} {
			continue // what is not known is not told
		}
		if n, ok := countOf(f.NaNCounts, id); ok {
			m.NaNs = n
		}
		to := ours.Fields[ours.ByID(id)].Type
		m.Lower, m.HasLower = bound(f.Lower, id, to)
		m.Upper, m.HasUpper = bound(f.Upper, id, to)
		out.Columns = append(out.Columns, m)
	}
	return out
}

// widened is a single value in the form that its column has since it was widened.
func widened(v []byte, to schemas.Type) []byte {
	if len(v) != 4 {
		return v
	}
	bits := binary.LittleEndian.Uint32(v)
	switch to.Kind {
	case schemas.Long:
		return binary.LittleEndian.AppendUint64(nil, uint64(int64(int32(bits))))
	case schemas.Double:
		return binary.LittleEndian.AppendUint64(nil, math.Float64bits(float64(math.Float32frombits(bits))))
	}
	return v
}
