package rows

import "github.com/varve-io/varve/schemas"

// Parquet's physical types.
const (
	physBoolean   = 0
	physInt32     = 1
	physInt64     = 2
	physInt96     = 3
	physFloat     = 4
	physDouble    = 5
	physByteArray = 6
	physFixed     = 7
)

// Converted types, for readers that know no logical types.
const (
	convNone            = -1
	convUTF8            = 0
	convDecimal         = 5
	convDate            = 6
	convTimeMillis      = 7
	convTimestampMillis = 9
	convTimestampMicros = 10
)

// leaf is a column of a data file: Iceberg's mapping of a type to Parquet
// (specification, appendix A).
type leaf struct {
	id       int32
	name     string
	typ      schemas.Type
	required bool
	phys     int32
	length   int32 // bytes of a physFixed

	// Of a leaf inside of a nested column.
	nested         bool
	path           []string // the names from the row down
	maxDef, maxRep uint8
}

func leafOf(id int32, name string, t schemas.Type, required bool) leaf {
	l := leaf{id: id, name: name, typ: t, required: required}
	switch t.Kind {
	case schemas.Boolean:
		l.phys = physBoolean
	case schemas.Int, schemas.Date:
		l.phys = physInt32
	case schemas.Float:
		l.phys = physFloat
	case schemas.Double:
		l.phys = physDouble
	case schemas.String, schemas.Binary:
		l.phys = physByteArray
	case schemas.UUID:
		l.phys, l.length = physFixed, 16
	case schemas.Fixed:
		l.phys, l.length = physFixed, t.Length
	case schemas.Decimal:
		switch {
		case t.Precision <= 9:
			l.phys = physInt32
		case t.Precision <= 18:
			l.phys = physInt64
		default:
			l.phys, l.length = physFixed, int32(schemas.DecimalBytes(t.Precision))
		}
	default:
		l.phys = physInt64
	}
	return l
}

func (l *leaf) converted() int32 {
	switch l.typ.Kind {
	case schemas.String:
		return convUTF8
	case schemas.Decimal:
		return convDecimal
	case schemas.Date:
		return convDate
	case schemas.TimestampTz:
		// Only the zoned form: the converted type means an instant.
		return convTimestampMicros
	}
	return convNone
}

// appendElement writes the column's SchemaElement.
func (l *leaf) appendElement(t *thriftWriter) {
	t.open(0)
	t.i32(1, l.phys)
	if l.phys == physFixed {
		t.i32(2, l.length)
	}
	if l.required {
		t.i32(3, 0)
	} else {
		t.i32(3, 1)
	}
	t.str(4, l.name)
	if c := l.converted(); c != convNone {
		t.i32(6, c)
	}
	if l.typ.Kind == schemas.Decimal {
		t.i32(7, int32(l.typ.Scale))
		t.i32(8, int32(l.typ.Precision))
	}
	t.i32(9, l.id)
	l.appendLogical(t)
	t.close()
}

func (l *leaf) appendLogical(t *thriftWriter) {
	one := func(id int16, body func()) {
		t.open(10)
		t.open(id)
		if body != nil {
			body()
		}
		t.close()
		t.close()
	}
	instant := func(utc bool, unit int16) func() {
		return func() {
			t.boolean(1, utc)
			t.open(2)
			t.empty(unit)
			t.close()
		}
	}
	const micros, nanos = 2, 3
	switch l.typ.Kind {
	case schemas.String:
		one(1, nil)
	case schemas.Decimal:
		one(5, func() {
			t.i32(1, int32(l.typ.Scale))
			t.i32(2, int32(l.typ.Precision))
		})
	case schemas.Date:
		one(6, nil)
	case schemas.Time:
		one(7, instant(false, micros))
	case schemas.Timestamp:
		one(8, instant(false, micros))
	case schemas.TimestampTz:
		one(8, instant(true, micros))
	case schemas.TimestampNs:
		one(8, instant(false, nanos))
	case schemas.TimestampTzNs:
		one(8, instant(true, nanos))
	case schemas.UUID:
		one(14, nil)
	}
}
