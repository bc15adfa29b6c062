package rows

import "slices"

// Carried is a value that an event's source did not send because it did not
// change: the newest older version of the row has it. It is null until whoever
// knows that version puts it there.
type Carried struct {
	Row, Col int
	// From is the row of Batch.Was with the key that the row had before, -1:
	// the same key.
	From int
}

// Carry notes that the value at (row, col) is to be taken from an older version.
// Rows come in order.
func (b *Batch) Carry(c Carried) { b.Carries = append(b.Carries, c) }

// WasKey appends a row to Was whose key columns are those of image, and returns
// its number. cols are the columns' places.
func (b *Batch) WasKey(cols []int, image []Column) int {
	if b.Was == nil {
		b.Was = NewBatch(b.Schema)
	}
	for k, c := range cols {
		b.Was.Cols[c].AppendRow(&image[k], 0)
	}
	b.Was.AppendEvent(Delete, 0, 0, false)
	return b.Was.Len() - 1
}

// truncateCarries forgets the values of rows from n on.
func (b *Batch) truncateCarries(n int) {
	if len(b.Carries) == 0 && b.Was == nil {
		return
	}
	i := len(b.Carries)
	for i > 0 && b.Carries[i-1].Row >= n {
		i--
	}
	b.Carries = b.Carries[:i]
	if b.Was == nil {
		return
	}
	keep := 0
	for _, c := range b.Carries {
		keep = max(keep, c.From+1)
	}
	b.Was.Truncate(keep)
}

// removeCarries is what Carries says once the ascending rows are taken out.
func removeCarries(all []Carried, rows []int) []Carried {
	var out []Carried
	for _, c := range all {
		before, gone := slices.BinarySearch(rows, c.Row)
		if !gone {
			c.Row -= before
			out = append(out, c)
		}
	}
	return out
}

// Replace puts values in the place of others: of the ascending rows, the i-th
// gets row from[i] of values. It takes the time of one copy of the column.
func (c *Column) Replace(rows []int, values *Column, from []int) {
	if c.Storage != Bytes {
		for i, r := range rows {
			c.Valid[r] = values.Valid[from[i]]
			if c.Storage == Ints {
				c.Ints[r] = values.Ints[from[i]]
			} else {
				c.Floats[r] = values.Floats[from[i]]
			}
		}
		return
	}
	grown := len(c.Data)
	for i := range rows {
		grown += len(values.BytesAt(from[i]))
	}
	data := make([]byte, 0, grown)
	done, start := 0, uint32(0)
	keep := func(to int) { // rows [done,to) as they are
		if to == done {
			return
		}
		shift := uint32(len(data)) - start
		end := c.Ends[to-1]
		data = append(data, c.Data[start:end]...)
		for i := done; i < to; i++ {
			c.Ends[i] += shift
		}
		done, start = to, end
	}
	for i, r := range rows {
		keep(r)
		start = c.Ends[r]
		data = append(data, values.BytesAt(from[i])...)
		c.Ends[r], c.Valid[r] = uint32(len(data)), values.Valid[from[i]]
		done = r + 1
	}
	keep(len(c.Valid))
	c.Data = data
}
