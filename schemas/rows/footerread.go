package rows

import (
	"fmt"
	"math"

	"github.com/varve-io/varve/schemas"
)

// element is a SchemaElement.
type element struct {
	phys, length, repetition, children, converted, scale, precision int64
	name                                                            string
	id                                                              int64
	hasPhys, hasID, hasConverted                                    bool
	logical                                                         int16 // member of the LogicalType union, 0: none
	utc                                                             bool
	unit                                                            int16 // 1 millis, 2 micros, 3 nanos
	bits                                                            int64
	signed                                                          bool
}

func (t *thriftReader) element() (e element) {
	t.fields(func(id int16, wire byte) bool {
		switch id {
		case 1:
			e.phys, e.hasPhys = t.integer(wire), true
		case 2:
			e.length = t.integer(wire)
		case 3:
			e.repetition = t.integer(wire)
		case 4:
			e.name = string(t.binary(wire))
		case 5:
			e.children = t.integer(wire)
		case 6:
			e.converted, e.hasConverted = t.integer(wire), true
		case 7:
			e.scale = t.integer(wire)
		case 8:
			e.precision = t.integer(wire)
		case 9:
			e.id, e.hasID = t.integer(wire), true
		case 10:
			if wire != thriftStruct {
				return false
			}
			t.logical(&e)
		default:
			return false
		}
		return true
	})
	return e
}

func (t *thriftReader) logical(e *element) {
	t.fields(func(id int16, wire byte) bool {
		e.logical = id
		if wire != thriftStruct {
			return false
		}
		t.fields(func(field int16, wire byte) bool {
			switch {
			case id == 5 && field == 1:
				e.scale = t.integer(wire)
			case id == 5 && field == 2:
				e.precision = t.integer(wire)
			case (id == 7 || id == 8) && field == 1:
				e.utc = wire == thriftTrue
			case (id == 7 || id == 8) && field == 2 && wire == thriftStruct:
				t.fields(func(unit int16, wire byte) bool { e.unit = unit; return false })
			case id == 10 && field == 1 && wire == 3:
				e.bits = int64(int8(t.byte()))
			case id == 10 && field == 2:
				e.signed = wire == thriftTrue
			default:
				return false
			}
			return true
		})
		return true
	})
}

// typeOf is the type of ours that a leaf holds, or why there is none.
func (e *element) typeOf() (schemas.Type, string) {
	no := func(what string) (schemas.Type, string) { return schemas.Type{}, what }
	decimal := func() (schemas.Type, string) {
		if e.precision < 1 || e.precision > 38 || e.scale < 0 || e.scale > e.precision {
			return no(fmt.Sprintf("decimal(%d, %d)", e.precision, e.scale))
		}
		switch {
		case e.phys == physInt32 && e.precision <= 9, e.phys == physInt64 && e.precision <= 18,
			e.phys == physFixed && e.length <= 16, e.phys == physByteArray:
			return schemas.DecimalOf(int(e.precision), int(e.scale)), ""
		}
		return no("a decimal of another physical type")
	}
	if e.logical == 5 || e.logical == 0 && e.hasConverted && e.converted == convDecimal {
		return decimal()
	}
	switch e.phys {
	case physBoolean:
		return schemas.Of(schemas.Boolean), ""
	case physInt32:
		switch {
		case e.logical == 6, e.logical == 0 && e.hasConverted && e.converted == convDate:
			return schemas.Of(schemas.Date), ""
		case e.millis():
			return schemas.Of(schemas.Time), ""
		case e.logical == 7:
			return no("a time of 32 bits in another unit than milliseconds")
		case e.logical == 10 && !e.signed, e.logical == 0 && e.hasConverted && e.converted >= 11 && e.converted <= 14:
			return no("an unsigned integer")
		}
		return schemas.Of(schemas.Int), ""
	case physInt64:
		converted := int64(convNone)
		if e.logical == 0 && e.hasConverted {
			converted = e.converted
		}
		switch {
		case e.logical == 7 && e.unit == 2, converted == 8:
			return schemas.Of(schemas.Time), ""
		case e.logical == 7:
			return no("time in another unit than microseconds")
		case e.logical == 8 && e.unit == 2 && e.utc, converted == convTimestampMicros:
			return schemas.Of(schemas.TimestampTz), ""
		case e.logical == 8 && e.unit == 2:
			return schemas.Of(schemas.Timestamp), ""
		case e.logical == 8 && e.unit == 3 && e.utc:
			return schemas.Of(schemas.TimestampTzNs), ""
		case e.logical == 8 && e.unit == 3:
			return schemas.Of(schemas.TimestampNs), ""
		case e.millis() && (e.utc || e.logical == 0):
			return schemas.Of(schemas.TimestampTz), ""
		case e.millis():
			return schemas.Of(schemas.Timestamp), ""
		case e.logical == 8:
			return no("a timestamp in a unit that is not known")
		case e.logical == 10 && !e.signed, converted >= 11 && converted <= 14:
			return no("an unsigned integer")
		}
		return schemas.Of(schemas.Long), ""
	case physFloat:
		return schemas.Of(schemas.Float), ""
	case physDouble:
		return schemas.Of(schemas.Double), ""
	case physByteArray:
		if e.logical == 1 || e.logical == 4 || e.logical == 12 || e.logical == 0 && e.hasConverted && (e.converted == convUTF8 || e.converted == 4 || e.converted == 19) {
			return schemas.Of(schemas.String), ""
		}
		return schemas.Of(schemas.Binary), ""
	case physFixed:
		if e.length < 1 || e.length > 1<<20 {
			return no(fmt.Sprintf("a fixed of %d bytes", e.length))
		}
		if e.logical == 14 && e.length == 16 {
			return schemas.Of(schemas.UUID), ""
		}
		if e.logical == 15 {
			return no("a float of 16 bits")
		}
		return schemas.FixedOf(int(e.length)), ""
	case physInt96:
		return schemas.Of(schemas.TimestampTz), ""
	}
	return no(fmt.Sprintf("physical type %d", e.phys))
}

// bare says that nothing is told of a leaf's values but how they are stored.
func (e *element) bare() bool { return e.logical == 0 && !e.hasConverted }

// millis says that a leaf holds times or timestamps in milliseconds.
func (e *element) millis() bool {
	converted := e.logical == 0 && e.hasConverted
	switch e.phys {
	case physInt32:
		return e.logical == 7 && e.unit == 1 || converted && e.converted == convTimeMillis
	case physInt64:
		return e.logical == 8 && e.unit == 1 || converted && e.converted == convTimestampMillis
	}
	return false
}

// parse reads the file metadata.
func (f *File) parse(footer []byte) error {
	t := &thriftReader{b: footer}
	var elements []element
	var groups []fileGroup
	rows := int64(-1)
	encrypted := false
	var chunkErr error
	t.fields(func(id int16, wire byte) bool {
		switch id {
		case 2:
			t.structs(wire, func(int) { elements = append(elements, t.element()) })
		case 3:
			rows = t.integer(wire)
		case 4:
			t.structs(wire, func(int) {
				g, err := t.group()
				if err != nil && chunkErr == nil {
					chunkErr = err
				}
				groups = append(groups, g)
			})
		case 6:
			f.ours = string(t.binary(wire)) == createdBy
		case 8:
			encrypted = true
			return false
		default:
			return false
		}
		return true
	})
	if t.err != nil {
		return fmt.Errorf("%w: %w", t.err, ErrBadFile)
	}
	if encrypted {
		return fmt.Errorf("encrypted columns: %w", ErrUnsupported)
	}
	if chunkErr != nil {
		return chunkErr
	}
	if err := f.takeSchema(elements); err != nil {
		return err
	}
	return f.takeGroups(groups, rows)
}

func (t *thriftReader) group() (g fileGroup, err error) {
	g.rows = -1
	t.fields(func(id int16, wire byte) bool {
		switch id {
		case 1:
			t.structs(wire, func(int) {
				c, e := t.chunk()
				if e != nil {
					err = e
				}
				g.chunks = append(g.chunks, c)
			})
		case 3:
			g.rows = t.integer(wire)
		default:
			return false
		}
		return true
	})
	return g, err
}

func (t *thriftReader) chunk() (c fileChunk, err error) {
	c.size, c.nulls = -1, -1
	var data, dict int64 = -1, -1
	t.fields(func(id int16, wire byte) bool {
		switch {
		case id == 1:
			if len(t.binary(wire)) > 0 {
				err = fmt.Errorf("a column chunk in another file: %w", ErrUnsupported)
			}
		case id == 3 && wire == thriftStruct:
			t.fields(func(id int16, wire byte) bool {
				switch id {
				case 4:
					c.codec = int32(t.integer(wire))
				case 5:
					c.values = t.integer(wire)
				case 6:
					c.raw = t.integer(wire)
				case 7:
					c.size = t.integer(wire)
				case 9:
					data = t.integer(wire)
				case 11:
					dict = t.integer(wire)
				case 12:
					if wire != thriftStruct {
						return false
					}
					t.statistics(&c)
				default:
					return false
				}
				return true
			})
		case id == 4:
			c.index = t.integer(wire)
		case id == 5:
			c.indexSize = t.integer(wire)
		case id == 6:
			c.columnIndex = t.integer(wire)
		case id == 7:
			c.columnIndexSize = t.integer(wire)
		default:
			return false
		}
		return true
	})
	c.offset = data
	// Some writers leave a zero, some an offset behind the data, where there
	// is no dictionary.
	if dict > 0 && dict < data {
		c.offset = dict
	}
	return c, err
}

func (t *thriftReader) statistics(c *fileChunk) {
	t.fields(func(id int16, wire byte) bool {
		switch id {
		case 3:
			c.nulls = t.integer(wire)
		case 5:
			c.hi = t.binary(wire)
		case 6:
			c.lo = t.binary(wire)
		default:
			return false
		}
		return true
	})
}

// takeSchema flattens the schema. Leaves inside groups keep their place in the
// row groups; the groups themselves become the file's nested columns.
func (f *File) takeSchema(elements []element) error {
	if len(elements) == 0 || elements[0].children < 0 {
		return fmt.Errorf("its schema is no tree: %w", ErrBadFile)
	}
	f.byID = make(map[int32]int)
	// open counts the children still to come, per level.
	var open []int64
	open = append(open, elements[0].children)
	for i := 1; i < len(elements); i++ {
		e := &elements[i]
		for len(open) > 0 && open[len(open)-1] == 0 {
			open = open[:len(open)-1]
		}
		if len(open) == 0 {
			return fmt.Errorf("its schema is no tree: %w", ErrBadFile)
		}
		open[len(open)-1]--
		if !e.hasPhys {
			if e.children < 0 || e.children > int64(len(elements)) {
				return fmt.Errorf("its schema is no tree: %w", ErrBadFile)
			}
			open = append(open, e.children)
			continue
		}
		l := fileLeaf{name: e.name, phys: int32(e.phys), length: int32(min(max(e.length, 0), math.MaxInt32)), optional: e.repetition == 1, bare: e.bare(), millis: e.millis()}
		if e.hasID && e.id > 0 && e.id <= math.MaxInt32 {
			l.id, l.hasID = int32(e.id), true
		}
		l.typ, l.why = e.typeOf()
		if len(open) > 1 || e.repetition == 2 {
			l.why = "a nested type"
			l.hasID = false
		}
		if l.hasID {
			if _, twice := f.byID[l.id]; twice {
				return fmt.Errorf("field id %d stands twice in its schema: %w", l.id, ErrBadFile)
			}
			f.byID[l.id] = len(f.leaves)
		}
		f.leaves = append(f.leaves, l)
	}
	for _, left := range open {
		if left != 0 {
			return fmt.Errorf("its schema is no tree: %w", ErrBadFile)
		}
	}
	return f.takeNested(elements)
}

func (f *File) takeGroups(groups []fileGroup, rows int64) error {
	sum := int64(0)
	for g := range groups {
		gr := &groups[g]
		if gr.rows < 0 || gr.rows > maxFileRows || len(gr.chunks) != len(f.leaves) {
			return fmt.Errorf("row group %d is ill-formed: %w", g, ErrBadFile)
		}
		sum += gr.rows
		if sum > maxFileRows {
			return fmt.Errorf("more than %d rows: %w", maxFileRows, ErrUnsupported)
		}
		for i := range gr.chunks {
			c := &gr.chunks[i]
			if c.offset < 4 || c.size < 0 || c.offset > f.size || c.size > f.size-c.offset {
				return fmt.Errorf("row group %d, column %q lies outside of the file: %w", g, f.leaves[i].name, ErrBadFile)
			}
			if f.leaves[i].why == "" && c.values != gr.rows {
				return fmt.Errorf("row group %d, column %q: %d values for %d rows: %w", g, f.leaves[i].name, c.values, gr.rows, ErrBadFile)
			}
		}
	}
	if rows != sum {
		return fmt.Errorf("%d rows, but its row groups have %d: %w", rows, sum, ErrBadFile)
	}
	f.groups, f.rows = groups, sum
	return nil
}
