package rows

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/varve-io/varve/schemas"
)

// Defaults of WriteOptions.
const (
	// DefaultRowGroupRows keeps a row group's columns in memory while it is
	// open, encoded: some tens of MiB for usual rows.
	DefaultRowGroupRows = 1 << 20
	// DefaultRowGroupBytes closes a row group of wide rows earlier.
	DefaultRowGroupBytes = 128 << 20
	// DefaultPageRows is the finest step of a reader that skips by page index.
	DefaultPageRows = 1 << 15
	// DefaultPageBytes bounds a page of strings or binaries (one value may
	// still be larger).
	DefaultPageBytes = 1 << 20
	// DefaultZstdLevel is zstd's fastest. Levels up to 22 are known; a higher
	// one takes two to ten times the time for some percent of size.
	DefaultZstdLevel = 1
)

// stepRows is how many rows go through all columns in turn, and how often a
// row group's size is looked at.
const stepRows = 1024

// WriteOptions say how a data file is laid out. The zero value of each field
// but Schema is its default.
type WriteOptions struct {
	// Schema gives the columns, in its order. Required fields are required in
	// the file: a null there is an error. The others are optional.
	Schema *schemas.Schema
	// Order adds _varve_order (OrderKind OrderByPath).
	Order bool
	// RowID adds _row_id, LastSeq _last_updated_sequence_number. Write sets
	// them where some row of its selection carries one.
	RowID, LastSeq bool

	RowGroupRows  int
	RowGroupBytes int
	PageRows      int // rounded up to a multiple of 8
	PageBytes     int
	ZstdLevel     int
	Uncompressed  bool
	// NoDictionary writes every column plain.
	NoDictionary bool
	// DeltaIntegers writes DELTA_BINARY_PACKED where no dictionary helps:
	// smaller files for sorted or rising integers. Not every engine reads it,
	// so it is off by default.
	DeltaIntegers bool
}

func (o *WriteOptions) fill() {
	set := func(v *int, def int) {
		if *v <= 0 {
			*v = def
		}
	}
	set(&o.RowGroupRows, DefaultRowGroupRows)
	set(&o.RowGroupBytes, DefaultRowGroupBytes)
	set(&o.PageRows, DefaultPageRows)
	set(&o.PageBytes, DefaultPageBytes)
	set(&o.ZstdLevel, DefaultZstdLevel)
	o.PageRows = (o.PageRows + 7) &^ 7
}

// Extra are columns of a data file beside the table's, one value per row of
// the batch (not of the selection). Nil slices: no row has one; for Order and
// HasOrder: the batch's own are taken.
type Extra struct {
	RowID    []int64 // -1: null
	LastSeq  []int64 // -1: null
	Order    []int64
	HasOrder []uint8
}

// FileInfo is what a manifest entry needs to know of a written file.
type FileInfo struct {
	Bytes        int64
	Rows         int64
	SplitOffsets []int64         // where row groups start, ascending
	Columns      []ColumnMetrics // the table's columns, by ascending field id
}

// ColumnMetrics are counts and bounds of one column (M5), from its values.
type ColumnMetrics struct {
	FieldID int32
	Size    int64 // compressed bytes in the file
	Values  int64 // nulls and NaNs included
	Nulls   int64
	Floats  bool  // NaNs counts
	NaNs    int64 // of a float or double column
	// Lower and Upper are single values; nil: none. A string's are cut to 16
	// code points, a binary's and fixed's to 16 bytes.
	Lower, Upper []byte
}

// Metrics of a field id, or nil.
func (f *FileInfo) Metrics(id int32) *ColumnMetrics {
	for i := range f.Columns {
		if f.Columns[i].FieldID == id {
			return &f.Columns[i]
		}
	}
	return nil
}

// Writer writes one data file from batches. The bytes depend on the options
// and the rows in their order alone, not on how they were parted into batches.
type Writer struct {
	out       io.Writer
	opts      WriteOptions
	cols      []*chunk // the leaves, as the file has them
	own       int      // of cols: those of the schema's columns
	tops      []top    // the columns: the schema's, then the extra ones
	spare     []*chunk
	offset    int64
	rows      int64 // of the file
	groupRows int   // of the open row group
	groups    []rowGroup
	thrift    thriftWriter
	whole     []uint32 // 0, 1, 2, …
	extra     Column
	err       error
}

// top is a column of a file: one chunk, or what a nested column is made of.
type top struct {
	*chunk
	nest *nest // nil: not nested
}

func (t *top) take(src *Column, sel []uint32) error {
	if t.nest != nil {
		return t.nest.gather(src, sel)
	}
	return t.gather(src, sel)
}

// rowGroup is what the footer says about a written row group.
type rowGroup struct {
	offset, rows, raw, packed int64
	chunks                    []chunkMeta
}

type chunkMeta struct {
	dictOffset, dataOffset    int64
	values, raw, packed       int64
	codec                     int32
	dict, plain               bool
	delta                     bool
	bounds                    bounds
	pages                     []page
	columnIndex, columnIndexN int64
	offsetIndex, offsetIndexN int64
}

var errNoSchema = errors.New("a data file needs a schema")

// NewWriter begins a data file on w.
func NewWriter(w io.Writer, opts WriteOptions) (*Writer, error) {
	fw := &Writer{}
	return fw, fw.reset(w, opts)
}

func (w *Writer) reset(out io.Writer, opts WriteOptions) error {
	if opts.Schema == nil {
		return errNoSchema
	}
	opts.fill()
	enc, err := encoderFor(opts.ZstdLevel)
	if err != nil {
		return err
	}
	w.out, w.opts = out, opts
	w.offset, w.rows, w.groupRows, w.err = 0, 0, 0, nil
	w.groups = w.groups[:0]
	w.spare = append(w.spare, w.cols...)
	w.cols, w.tops = w.cols[:0], w.tops[:0]
	chunkOf := func(l leaf) *chunk {
		var c *chunk
		if n := len(w.spare); n > 0 {
			c, w.spare = w.spare[n-1], w.spare[:n-1]
		} else {
			c = &chunk{}
		}
		c.reset(l, &w.opts, enc)
		w.cols = append(w.cols, c)
		return c
	}
	add := func(l leaf) { w.tops = append(w.tops, top{chunk: chunkOf(l)}) }
	for i := range opts.Schema.Fields {
		f := &opts.Schema.Fields[i]
		if f.Type.IsNested() {
			n := nestOf(f)
			n.shred(0, 0, nil, chunkOf)
			w.tops = append(w.tops, top{nest: n})
			continue
		}
		add(leafOf(f.ID, f.Name, f.Type, f.Required))
	}
	w.own = len(w.cols)
	long := schemas.Of(schemas.Long)
	if opts.RowID {
		add(leafOf(schemas.RowIDField, schemas.RowIDColumn, long, false))
	}
	if opts.LastSeq {
		add(leafOf(schemas.LastSeqField, schemas.LastSeqName, long, false))
	}
	if opts.Order {
		add(leafOf(schemas.OrderField, schemas.OrderColumn, long, false))
	}
	return w.emit([]byte(parquetMagic))
}

// encoders are shared: EncodeAll is safe for concurrent use, and an encoder's
// tables are large.
var encoders sync.Map // zstd.EncoderLevel → *zstd.Encoder

func encoderFor(level int) (*zstd.Encoder, error) {
	l := zstd.EncoderLevelFromZstd(level)
	if e, ok := encoders.Load(l); ok {
		return e.(*zstd.Encoder), nil
	}
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(l), zstd.WithEncoderCRC(false),
		zstd.WithEncoderConcurrency(runtime.GOMAXPROCS(0)), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return nil, fmt.Errorf("zstd level %d: %w", level, err)
	}
	kept, _ := encoders.LoadOrStore(l, e)
	return kept.(*zstd.Encoder), nil
}

func (w *Writer) emit(b []byte) error {
	n, err := w.out.Write(b)
	w.offset += int64(n)
	if err != nil {
		return fmt.Errorf("data file at byte %d: %w", w.offset, err)
	}
	return nil
}

// Append writes the rows of b that sel names, in that order (nil: all). The
// batch's columns are those of the options' schema, in its order. After an
// error the file is worthless and Append and Close repeat it.
func (w *Writer) Append(b *Batch, sel []uint32, extra Extra) error {
	if w.err == nil {
		w.err = w.append(b, sel, extra)
	}
	return w.err
}

func (w *Writer) append(b *Batch, sel []uint32, extra Extra) error {
	if err := w.check(b, extra); err != nil {
		return err
	}
	total := len(sel)
	if sel == nil {
		total = b.Len()
	}
	for i := range b.Cols {
		if c := w.tops[i].chunk; c != nil {
			c.look(&b.Cols[i], b.Len(), total)
		}
	}
	for at := 0; at < total; {
		n := min(total-at, stepRows-w.groupRows%stepRows, w.opts.PageRows-w.groupRows%w.opts.PageRows,
			w.opts.RowGroupRows-w.groupRows)
		step := sel
		if sel == nil {
			step = w.identity(at, n)
		} else {
			step = sel[at : at+n]
		}
		if err := w.step(b, step, extra); err != nil {
			return err
		}
		at += n
	}
	return nil
}

// check refuses what a caller mixed up before any row is taken.
func (w *Writer) check(b *Batch, extra Extra) error {
	fields := w.opts.Schema.Fields
	if len(b.Cols) != len(fields) {
		return fmt.Errorf("a batch of %d columns for a file of %d", len(b.Cols), len(fields))
	}
	for i := range fields {
		c := &b.Cols[i]
		if c.Type != fields[i].Type || c.Storage != StorageOf(c.Type) || c.Len() < b.Len() {
			return fmt.Errorf("column %q: the batch has %d values of %s, the file wants %d of %s",
				fields[i].Name, c.Len(), c.Type, b.Len(), fields[i].Type)
		}
	}
	if w.opts.Order && (extra.Order == nil) != (extra.HasOrder == nil) {
		return errors.New("ordering values without their presence, or the reverse")
	}
	for _, v := range [...][]int64{extra.RowID, extra.LastSeq, extra.Order} {
		if v != nil && len(v) < b.Len() {
			return fmt.Errorf("%d extra values for %d rows", len(v), b.Len())
		}
	}
	if extra.HasOrder != nil && len(extra.HasOrder) < b.Len() {
		return fmt.Errorf("%d ordering values for %d rows", len(extra.HasOrder), b.Len())
	}
	return nil
}

func (w *Writer) identity(from, n int) []uint32 {
	for i := len(w.whole); i < from+n; i++ {
		w.whole = append(w.whole, uint32(i))
	}
	return w.whole[from : from+n]
}

// step takes rows that end at the latest where a page does.
func (w *Writer) step(b *Batch, sel []uint32, extra Extra) error {
	at := len(b.Cols)
	for i := range b.Cols {
		if err := w.tops[i].take(&b.Cols[i], sel); err != nil {
			return err
		}
	}
	if w.opts.RowID {
		if err := w.gatherExtra(w.tops[at].chunk, extra.RowID, sel); err != nil {
			return err
		}
		at++
	}
	if w.opts.LastSeq {
		if err := w.gatherExtra(w.tops[at].chunk, extra.LastSeq, sel); err != nil {
			return err
		}
		at++
	}
	if w.opts.Order {
		order := Column{Type: schemas.Of(schemas.Long), Ints: b.Order, Valid: b.HasOrder}
		if extra.Order != nil {
			order.Ints, order.Valid = extra.Order, extra.HasOrder
		}
		if err := w.tops[at].gather(&order, sel); err != nil {
			return err
		}
	}
	return w.stepped(len(sel))
}

// stepped counts rows that all columns have taken, and closes the pages and the
// row group that are full.
func (w *Writer) stepped(n int) error {
	w.groupRows += n
	if w.groupRows%w.opts.PageRows == 0 {
		for _, c := range w.cols {
			if err := c.flushPage(); err != nil {
				return err
			}
		}
	}
	size := 0
	if w.groupRows%stepRows == 0 {
		for _, c := range w.cols {
			size += len(c.body)
		}
	}
	if w.groupRows == w.opts.RowGroupRows || size >= w.opts.RowGroupBytes {
		return w.endGroup()
	}
	return nil
}

// gatherExtra takes values where -1 is null.
func (w *Writer) gatherExtra(c *chunk, values []int64, sel []uint32) error {
	e := &w.extra
	e.Type = schemas.Of(schemas.Long)
	e.Ints, e.Valid = e.Ints[:0], e.Valid[:0]
	for _, r := range sel {
		if values == nil || values[r] < 0 {
			e.AppendNull()
		} else {
			e.AppendInt(values[r])
		}
	}
	return c.gather(e, w.identity(0, len(sel)))
}

// endGroup writes the open row group.
func (w *Writer) endGroup() error {
	if w.groupRows == 0 {
		return nil
	}
	g := rowGroup{offset: w.offset, rows: int64(w.groupRows), chunks: make([]chunkMeta, len(w.cols))}
	for i, c := range w.cols {
		if err := w.emitChunk(c, &g, i, w.groupRows); err != nil {
			return err
		}
	}
	w.groups = append(w.groups, g)
	w.rows += g.rows
	w.groupRows = 0
	return nil
}

// emitChunk writes what a column has gathered as chunk i of a row group.
func (w *Writer) emitChunk(c *chunk, g *rowGroup, i, rows int) error {
	if err := c.flushPage(); err != nil {
		return err
	}
	m := &g.chunks[i]
	start := w.offset
	if c.dictUsed {
		m.dictOffset = w.offset
		if err := w.emit(c.dictionaryPage()); err != nil {
			return err
		}
	}
	m.dataOffset = w.offset
	if err := w.emit(c.body); err != nil {
		return err
	}
	m.pages = append([]page(nil), c.pages...)
	for j := range m.pages {
		m.pages[j].offset += m.dataOffset
	}
	m.codec = c.codec
	m.dict, m.plain, m.delta = c.dictUsed, c.plainUsed, c.deltaUsed
	m.values = int64(rows)
	if c.leaf.nested {
		m.values = c.group.rows
	}
	m.raw, m.packed = c.rawSize, w.offset-start
	m.bounds = c.group
	m.bounds.lo, m.bounds.hi = bytes.Clone(c.group.lo), bytes.Clone(c.group.hi)
	g.raw += m.raw
	g.packed += m.packed
	c.size += m.packed
	c.file.merge(c.leaf.typ, &c.group)
	c.resetGroup()
	return nil
}

// Close writes what is open and the footer. A file without rows is valid.
func (w *Writer) Close() (FileInfo, error) {
	if w.err != nil {
		return FileInfo{}, w.err
	}
	info, err := w.finish()
	if w.err = err; err == nil {
		w.err = errors.New("the data file is closed")
	}
	return info, err
}

func (w *Writer) finish() (FileInfo, error) {
	if err := w.endGroup(); err != nil {
		return FileInfo{}, err
	}
	if err := w.footer(); err != nil {
		return FileInfo{}, err
	}
	info := FileInfo{Bytes: w.offset, Rows: w.rows}
	for i := range w.groups {
		info.SplitOffsets = append(info.SplitOffsets, w.groups[i].offset)
	}
	for _, c := range w.cols[:w.own] {
		lower, upper, err := c.file.iceberg(c.leaf.typ)
		if err != nil {
			return FileInfo{}, fmt.Errorf("column %q: %w", c.leaf.name, err)
		}
		m := ColumnMetrics{
			FieldID: c.leaf.id, Size: c.size, Values: c.file.rows, Nulls: c.file.nulls,
			Floats: StorageOf(c.leaf.typ) == Floats, NaNs: c.file.nans, Lower: lower, Upper: upper,
		}
		at := len(info.Columns)
		for at > 0 && info.Columns[at-1].FieldID > m.FieldID {
			at--
		}
		info.Columns = append(info.Columns, ColumnMetrics{})
		copy(info.Columns[at+1:], info.Columns[at:])
		info.Columns[at] = m
	}
	return info, nil
}

// writers keep the buffers of Write: pages, dictionaries, encoded chunks.
var writers = sync.Pool{New: func() any { return &Writer{} }}

// Write writes one data file of the rows of b that sel names, in that order
// (nil: all).
func Write(out io.Writer, opts WriteOptions, b *Batch, sel []uint32, extra Extra) (FileInfo, error) {
	opts.RowID = opts.RowID || carries(extra.RowID, b.Len(), sel)
	opts.LastSeq = opts.LastSeq || carries(extra.LastSeq, b.Len(), sel)
	w := writers.Get().(*Writer)
	defer func() {
		w.out, w.opts = nil, WriteOptions{}
		clear(w.groups)
		writers.Put(w)
	}()
	if err := w.reset(out, opts); err != nil {
		return FileInfo{}, err
	}
	if err := w.Append(b, sel, extra); err != nil {
		return FileInfo{}, err
	}
	return w.Close()
}

func carries(values []int64, rows int, sel []uint32) bool {
	if values == nil {
		return false
	}
	if sel == nil {
		for _, v := range values[:min(rows, len(values))] {
			if v >= 0 {
				return true
			}
		}
		return false
	}
	for _, r := range sel {
		if int(r) < len(values) && values[r] >= 0 {
			return true
		}
	}
	return false
}
