package rows

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"

	"github.com/varve-io/varve/schemas"
)

// ErrBadFile marks bytes that are no readable Parquet file: damaged, cut, or
// not one at all.
var ErrBadFile = errors.New("not a readable Parquet file")

// ErrUnsupported marks a well-formed Parquet file, or a column of one, that
// uses what this package does not read.
var ErrUnsupported = errors.New("a Parquet feature that varve does not read")

// Bounds on what a footer may claim.
const (
	maxFileRows = math.MaxInt32
	maxPageRows = 1 << 24
	maxPageSize = 1 << 30
)

// File is an open data file. Its methods may be called concurrently.
type File struct {
	r      io.ReaderAt
	size   int64
	rows   int64
	leaves []fileLeaf
	groups []fileGroup
	byID   map[int32]int
	nested map[int32]*fileNode // columns that are groups, by field id
	ours   bool                // written by this package
}

// fileLeaf is one leaf column as the footer describes it.
type fileLeaf struct {
	name     string
	id       int32
	hasID    bool
	phys     int32
	length   int32
	optional bool
	typ      schemas.Type
	why      string // not empty: why the column cannot be read
	bare     bool   // no annotation says what the values are
	millis   bool   // they are scaled to microseconds

	maxDef, maxRep uint8
}

type fileGroup struct {
	rows   int64
	chunks []fileChunk
}

type fileChunk struct {
	offset, size int64 // of all its pages in the file
	// Where its offset index lies; indexSize ≤ 0: nowhere.
	index, indexSize int64
	// What a copy of the chunk needs; raw is 0 where the footer does not say.
	raw                          int64
	columnIndex, columnIndexSize int64
	nulls                        int64  // -1: not told
	lo, hi                       []byte // of its statistics; nil: none
	values                       int64
	codec                        int32
}

// Open reads a file's footer.
func Open(r io.ReaderAt, size int64) (*File, error) {
	bad := func(what string) (*File, error) { return nil, fmt.Errorf("%s: %w", what, ErrBadFile) }
	if size < 12 {
		return bad(fmt.Sprintf("%d bytes", size))
	}
	// One read gets the footer of most files.
	tail := make([]byte, min(size, 32<<10))
	if err := readAt(r, tail, size-int64(len(tail))); err != nil {
		return nil, err
	}
	end := tail[len(tail)-8:]
	if string(end[4:]) != parquetMagic {
		if string(end[4:]) == "PARE" {
			return nil, fmt.Errorf("encrypted footer: %w", ErrUnsupported)
		}
		return bad("no PAR1 at the end")
	}
	length := int64(binary.LittleEndian.Uint32(end))
	if length > size-12 {
		return bad(fmt.Sprintf("a footer of %d bytes in a file of %d", length, size))
	}
	var footer []byte
	if length+8 <= int64(len(tail)) {
		footer = tail[int64(len(tail))-8-length : len(tail)-8]
	} else {
		footer = make([]byte, length)
		if err := readAt(r, footer, size-8-length); err != nil {
			return nil, err
		}
	}
	f := &File{r: r, size: size}
	if err := f.parse(footer); err != nil {
		return nil, fmt.Errorf("footer: %w", err)
	}
	return f, nil
}

func readAt(r io.ReaderAt, b []byte, offset int64) error {
	n, err := r.ReadAt(b, offset)
	if n == len(b) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return fmt.Errorf("bytes %d to %d are missing: %w", offset+int64(n), offset+int64(len(b)), ErrBadFile)
	}
	return fmt.Errorf("read %d bytes at %d: %w", len(b), offset, err)
}

// NumRows is the number of rows in the file.
func (f *File) NumRows() int64 { return f.rows }

// NumRowGroups is the number of row groups.
func (f *File) NumRowGroups() int { return len(f.groups) }

// GroupRows is the number of rows of a row group.
func (f *File) GroupRows(g int) int64 { return f.groups[g].rows }

// Has says whether the file has a column of this field id.
func (f *File) Has(id int32) bool {
	_, flat := f.byID[id]
	return flat || f.nested[id] != nil
}

// Fields are the file's columns that have a field id and a type of ours: in
// the file's order, nested ones last.
func (f *File) Fields() []schemas.Field {
	var out []schemas.Field
	for i := range f.leaves {
		l := &f.leaves[i]
		if l.hasID && l.why == "" {
			out = append(out, schemas.Field{ID: l.id, Name: l.name, Type: l.typ, Required: !l.optional})
		}
	}
	for _, n := range f.nestedColumns() {
		if n.why == "" {
			out = append(out, n.field())
		}
	}
	return out
}

// isNested says whether a wanted column, which the file has flat or not, is read
// as a nested one; flat is one in the table alone then, and refused.
func (f *File) isNested(want *schemas.Field, flat bool) bool {
	return f.nested[want.ID] != nil || flat && want.Type.IsNested()
}

// nestedColumns are the file's nested columns, in its order.
func (f *File) nestedColumns() []*fileNode {
	return slices.SortedFunc(maps.Values(f.nested), func(a, b *fileNode) int { return a.leaves[0] - b.leaves[0] })
}

// HasFieldIDs says whether any column has a field id: files of other writers
// may have none (T3).
func (f *File) HasFieldIDs() bool { return len(f.byID)+len(f.nested) > 0 }

// as is the type that the leaf's values are taken as where a field of another
// type is wanted. Writers of old left it to the table's schema what an INT96, a
// byte array or 16 bytes are.
func (l *fileLeaf) as(want schemas.Type) schemas.Type {
	switch {
	case l.phys == physInt96 && want.Kind == schemas.Timestamp,
		l.bare && l.phys == physByteArray && want.Kind == schemas.String,
		l.bare && l.phys == physFixed && l.length == 16 && want.Kind == schemas.UUID:
		return want
	}
	return l.typ
}

// Fits says whether a column of the file, as Fields and Columns give it, can be
// read as one of the wanted type.
func (f *File) Fits(c *schemas.Field, want schemas.Type) bool {
	have := c.Type
	if at, flat := f.byID[c.ID]; flat {
		have = f.leaves[at].as(want)
	}
	return have == want || have.CanWiden(want)
}

// Converts says whether the values of a flat column are stored in another unit
// or form than its type has: bounds that others took from the stored ones cannot
// be relied on.
func (f *File) Converts(id int32) bool {
	at, flat := f.byID[id]
	return flat && f.leaves[at].converts()
}

func (l *fileLeaf) converts() bool { return l.millis || l.phys == physInt96 }

// ReadColumns reads whole columns by field id, with the types that the file
// has. A column that is not there is an error: see Read.
func (f *File) ReadColumns(ids []int32) ([]Column, error) {
	want := make([]schemas.Field, len(ids))
	for i, id := range ids {
		at, ok := f.byID[id]
		if n := f.nested[id]; n != nil && n.why == "" {
			want[i] = n.field()
			continue
		}
		if !ok {
			return nil, fmt.Errorf("the file has no column of field id %d", id)
		}
		want[i] = schemas.Field{ID: id, Name: f.leaves[at].name, Type: f.leaves[at].typ}
	}
	return f.Read(want)
}

// Read reads whole columns as fields of another schema version ask for them
// (T1): by id; promoted types converted; a column that the file lacks is its
// InitialDefault, else null. A required field without value is an error.
func (f *File) Read(want []schemas.Field) ([]Column, error) {
	cols := make([]Column, len(want))
	for i := range want {
		at, ok := f.byID[want[i].ID]
		if f.isNested(&want[i], ok) {
			c, err := f.readNested(&want[i], 0, f.rows)
			if err != nil {
				return nil, err
			}
			cols[i] = c
			continue
		}
		if !ok {
			c, err := defaults(&want[i], int(f.rows))
			if err != nil {
				return nil, err
			}
			cols[i] = c
			continue
		}
		c := NewColumn(f.leaves[at].as(want[i].Type))
		packed := int64(0)
		for g := range f.groups {
			packed += f.groups[g].chunks[at].size
		}
		c.reserve(f.rows, packed)
		for g := range f.groups {
			if err := f.readChunk(&c, g, at); err != nil {
				return nil, err
			}
		}
		if err := convert(&c, &want[i]); err != nil {
			return nil, err
		}
		cols[i] = c
	}
	return cols, nil
}

// ReadGroup is Read for the rows of one row group.
func (f *File) ReadGroup(g int, want []schemas.Field) ([]Column, error) {
	cols := make([]Column, len(want))
	for i := range want {
		at, ok := f.byID[want[i].ID]
		var err error
		if f.isNested(&want[i], ok) {
			first := int64(0)
			for k := range g {
				first += f.groups[k].rows
			}
			cols[i], err = f.readNested(&want[i], first, first+f.groups[g].rows)
		} else if !ok {
			cols[i], err = defaults(&want[i], int(f.groups[g].rows))
		} else {
			cols[i] = NewColumn(f.leaves[at].as(want[i].Type))
			cols[i].reserve(f.groups[g].rows, f.groups[g].chunks[at].size)
			if err = f.readChunk(&cols[i], g, at); err == nil {
				err = convert(&cols[i], &want[i])
			}
		}
		if err != nil {
			return nil, err
		}
	}
	return cols, nil
}

// What a footer can make a reader take before it has seen a page.
const (
	maxReservedRows  = 1 << 20
	maxReservedBytes = 16 << 20
)

// reserve makes room for rows that a footer tells of, within limits: columns
// that grow by doubling are copied often.
func (c *Column) reserve(rows, packed int64) {
	n := int(min(rows, maxReservedRows))
	c.Valid = make([]uint8, 0, n)
	switch c.Storage {
	case Ints:
		c.Ints = make([]int64, 0, n)
	case Floats:
		c.Floats = make([]float64, 0, n)
	default:
		c.Ends = make([]uint32, 0, n)
		c.Data = make([]byte, 0, min(2*packed, maxReservedBytes))
	}
}

// defaults is a column of n rows that the file does not have.
func defaults(field *schemas.Field, n int) (Column, error) {
	c := NewColumn(field.Type)
	if field.InitialDefault == nil {
		if field.Required && n > 0 {
			return c, fmt.Errorf("column %q is required, but the file lacks it and it has no initial-default", field.Name)
		}
		for range n {
			c.AppendNull()
		}
		return c, nil
	}
	if err := c.AppendJSON(field.InitialDefault); err != nil {
		return c, fmt.Errorf("initial-default of column %q: %w", field.Name, err)
	}
	if c.Storage == Bytes && uint64(len(c.Data))*uint64(n) > math.MaxUint32 {
		return c, fmt.Errorf("column %q: %d times its initial-default passes 4 GiB", field.Name, n)
	}
	one := c
	c = NewColumn(field.Type)
	for range n {
		c.AppendRow(&one, 0)
	}
	return c, nil
}

// convert brings a column to the wanted type by Iceberg's promotions.
func convert(c *Column, want *schemas.Field) error {
	if c.Type != want.Type {
		if !c.Type.CanWiden(want.Type) {
			return fmt.Errorf("column %q is a %s in the file, which no %s can hold", want.Name, c.Type, want.Type)
		}
		if c.Storage != StorageOf(want.Type) {
			// A decimal that passes 18 digits.
			wide := NewColumn(want.Type)
			var b [16]byte
			for i, v := range c.Ints {
				if c.Valid[i] == 0 {
					wide.AppendNull()
				} else {
					wide.AppendBytes(schemas.AppendDecimal16(b[:0], v))
				}
			}
			*c = wide
		}
		c.Type = want.Type
	}
	if want.Required {
		for i, v := range c.Valid {
			if v == 0 {
				return fmt.Errorf("column %q is required, but row %d of the file has a null", want.Name, i)
			}
		}
	}
	return nil
}
