package rows

import "github.com/varve-io/varve/schemas"

// Storage is how a column keeps its values.
type Storage uint8

const (
	// Ints: Boolean (0, 1), Int, Long, Date (days), Time (µs of day),
	// Timestamp and TimestampTz (µs), TimestampNs and TimestampTzNs (ns),
	// Decimal of precision ≤ 18 (unscaled).
	Ints Storage = iota
	// Floats: Float, Double.
	Floats
	// Bytes: String, Binary, Fixed, UUID (16 bytes), Decimal of precision > 18
	// (unscaled, 16 bytes, big-endian two's complement), Struct, List and Map
	// (nested.go).
	Bytes
)

// StorageOf is the storage of a type.
func StorageOf(t schemas.Type) Storage {
	switch t.Kind {
	case schemas.Float, schemas.Double:
		return Floats
	case schemas.String, schemas.Binary, schemas.Fixed, schemas.UUID, schemas.Struct, schemas.List, schemas.Map:
		return Bytes
	case schemas.Decimal:
		if t.Precision > 18 {
			return Bytes
		}
	}
	return Ints
}

// Column is an arena of the values of one field. A null has Valid 0 and a
// zero value in its storage.
type Column struct {
	Type    schemas.Type
	Storage Storage
	Valid   []uint8   // 1: a value, 0: null
	Ints    []int64   // Storage Ints
	Floats  []float64 // Storage Floats
	Ends    []uint32  // Storage Bytes: value i is Data[Ends[i-1]:Ends[i]]
	Data    []byte
}

// NewColumn is an empty column of type t.
func NewColumn(t schemas.Type) Column { return Column{Type: t, Storage: StorageOf(t)} }

// Len is the number of rows.
func (c *Column) Len() int { return len(c.Valid) }

// AppendNull appends a null.
func (c *Column) AppendNull() {
	c.Valid = append(c.Valid, 0)
	switch c.Storage {
	case Ints:
		c.Ints = append(c.Ints, 0)
	case Floats:
		c.Floats = append(c.Floats, 0)
	default:
		c.Ends = append(c.Ends, uint32(len(c.Data)))
	}
}

// AppendInt appends a value of an Ints column.
func (c *Column) AppendInt(v int64) {
	c.Valid = append(c.Valid, 1)
	c.Ints = append(c.Ints, v)
}

// AppendFloat appends a value of a Floats column.
func (c *Column) AppendFloat(v float64) {
	c.Valid = append(c.Valid, 1)
	c.Floats = append(c.Floats, v)
}

// AppendBytes appends a copy of a value of a Bytes column.
func (c *Column) AppendBytes(v []byte) {
	c.Valid = append(c.Valid, 1)
	c.Data = append(c.Data, v...)
	c.Ends = append(c.Ends, uint32(len(c.Data)))
}

// IsNull says whether row i is null.
func (c *Column) IsNull(i int) bool { return c.Valid[i] == 0 }

// BytesAt is the value of row i of a Bytes column; it aliases the arena.
func (c *Column) BytesAt(i int) []byte {
	start := uint32(0)
	if i > 0 {
		start = c.Ends[i-1]
	}
	return c.Data[start:c.Ends[i]:c.Ends[i]]
}

// Truncate drops every row from n on.
func (c *Column) Truncate(n int) {
	if n >= len(c.Valid) {
		return
	}
	c.Valid = c.Valid[:n]
	switch c.Storage {
	case Ints:
		c.Ints = c.Ints[:n]
	case Floats:
		c.Floats = c.Floats[:n]
	default:
		end := uint32(0)
		if n > 0 {
			end = c.Ends[n-1]
		}
		c.Ends = c.Ends[:n]
		c.Data = c.Data[:end]
	}
}

// Op is what an event does to its key.
type Op uint8

const (
	Upsert Op = 1
	Delete Op = 2
)

// Batch is an arena of events: one row an event. A Delete carries its key
// columns; its other columns are null. Columns stand in the schema's order.
type Batch struct {
	Schema   *schemas.Schema
	Cols     []Column
	Ops      []Op
	Offsets  []int64 // source offset of each event's record
	Order    []int64 // ordering value, where HasOrder is 1
	HasOrder []uint8

	// Carries are the values that older versions have, rows ascending, and Was
	// the keys that rows with such values had before, nil: none.
	Carries []Carried
	Was     *Batch
}

// NewBatch is an empty batch of a schema.
func NewBatch(s *schemas.Schema) *Batch {
	b := &Batch{Schema: s, Cols: make([]Column, len(s.Fields))}
	for i := range s.Fields {
		b.Cols[i] = NewColumn(s.Fields[i].Type)
	}
	return b
}

// Len is the number of events.
func (b *Batch) Len() int { return len(b.Ops) }

// AppendEvent closes one event whose columns were appended. Columns that were
// not appended to become null.
func (b *Batch) AppendEvent(op Op, offset int64, order int64, hasOrder bool) {
	b.Ops = append(b.Ops, op)
	b.Offsets = append(b.Offsets, offset)
	b.Order = append(b.Order, order)
	h := uint8(0)
	if hasOrder {
		h = 1
	}
	b.HasOrder = append(b.HasOrder, h)
	n := len(b.Ops)
	for i := range b.Cols {
		for b.Cols[i].Len() < n {
			b.Cols[i].AppendNull()
		}
	}
}

// Truncate drops events from n on, and whatever columns hold beyond n: it
// undoes a record that was refused half-way.
func (b *Batch) Truncate(n int) {
	for i := range b.Cols {
		b.Cols[i].Truncate(n)
	}
	b.truncateCarries(n)
	if n < len(b.Ops) {
		b.Ops, b.Offsets = b.Ops[:n], b.Offsets[:n]
		b.Order, b.HasOrder = b.Order[:n], b.HasOrder[:n]
	}
}

// Reset empties the batch and keeps its memory.
func (b *Batch) Reset() { b.Truncate(0) }

// Size is the memory that the batch's values take, in bytes.
func (b *Batch) Size() int {
	n := len(b.Ops)*18 + len(b.Carries)*24
	if b.Was != nil {
		n += b.Was.Size()
	}
	for i := range b.Cols {
		c := &b.Cols[i]
		n += len(c.Valid) + 8*len(c.Ints) + 8*len(c.Floats) + 4*len(c.Ends) + len(c.Data)
	}
	return n
}

// Remove takes rows out; they ascend. It is meant for few rows near the end:
// what lies behind the first one is copied.
func (b *Batch) Remove(rows []int) {
	if len(rows) == 0 {
		return
	}
	n := b.Len()
	carries := removeCarries(b.Carries, rows)
	b.Carries = nil // the keys in Was stay
	was := b.Was
	b.Was = nil
	tail := NewBatch(b.Schema)
	for i, next := rows[0], 0; i < n; i++ {
		if next < len(rows) && rows[next] == i {
			next++
			continue
		}
		for c := range b.Cols {
			tail.Cols[c].AppendRow(&b.Cols[c], i)
		}
		tail.AppendEvent(b.Ops[i], b.Offsets[i], b.Order[i], b.HasOrder[i] != 0)
	}
	b.Truncate(rows[0])
	for i := range tail.Len() {
		for c := range b.Cols {
			b.Cols[c].AppendRow(&tail.Cols[c], i)
		}
		b.AppendEvent(tail.Ops[i], tail.Offsets[i], tail.Order[i], tail.HasOrder[i] != 0)
	}
	b.Carries, b.Was = carries, was
}
