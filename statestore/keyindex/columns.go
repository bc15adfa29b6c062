package keyindex

// columns holds entries column by column: what a decoded block gives and what
// the next block is built from. Columns that most tables leave empty are filled
// lazily: order and has are valid up to orderN, row up to rowN; what lies
// behind is "no value".
type columns struct {
	wide   bool
	n      int
	hi     []uint64
	lo     []uint64 // wide only
	ord    []uint32 // file ordinal, 0: tombstone
	pos    []uint32 // tombstone: ordinal into toff and ttime
	order  []int64
	has    []uint8
	row    []int64
	orderN int
	rowN   int
	toff   []int64
	ttime  []int64
}

func (c *columns) reset() {
	c.n, c.orderN, c.rowN = 0, 0, 0
	c.toff, c.ttime = c.toff[:0], c.ttime[:0]
}

// reserve makes room for n entries in all; it keeps what is there.
func (c *columns) reserve(n int) {
	if n <= len(c.hi) {
		return
	}
	c.hi = grow(c.hi, n)
	if c.wide {
		c.lo = grow(c.lo, n)
	}
	c.ord = grow(c.ord, n)
	c.pos = grow(c.pos, n)
	c.order = grow(c.order, n)
	c.has = grow(c.has, n)
	c.row = grow(c.row, n)
}

func grow[T any](s []T, n int) []T {
	t := make([]T, n)
	copy(t, s)
	return t
}

func (c *columns) key(i int) Key {
	k := Key{Hi: c.hi[i]}
	if c.wide {
		k.Lo = c.lo[i]
	}
	return k
}

// seek gives the first place at or after i whose key is not less than k.
func (c *columns) seek(i int, k Key) int {
	hi := c.hi[:c.n]
	for i < len(hi) && hi[i] < k.Hi {
		i++
	}
	if c.wide {
		for i < len(hi) && hi[i] == k.Hi && c.lo[i] < k.Lo {
			i++
		}
	}
	return i
}

// fillOrder makes order and has valid up to n.
func (c *columns) fillOrder(n int) {
	if c.orderN < n {
		clear(c.order[c.orderN:n])
		clear(c.has[c.orderN:n])
		c.orderN = n
	}
}

// fillRow makes row valid up to n.
func (c *columns) fillRow(n int) {
	for i := c.rowN; i < n; i++ {
		c.row[i] = NoRowID
	}
	c.rowN = max(c.rowN, n)
}

// add appends one entry.
func (c *columns) add(k Key, v *value, ord uint32) {
	n := c.n
	c.hi[n] = k.Hi
	if c.wide {
		c.lo[n] = k.Lo
	}
	c.ord[n] = ord
	if ord == 0 {
		c.pos[n] = uint32(len(c.toff))
		c.toff = append(c.toff, v.b)
		c.ttime = append(c.ttime, int64(v.a))
	} else {
		c.pos[n] = v.pos
		if v.b != NoRowID {
			c.fillRow(n)
			c.row[n] = v.b
			c.rowN = n + 1
		}
	}
	if v.flags&flagOrder != 0 {
		c.fillOrder(n)
		c.order[n], c.has[n] = v.order, 1
		c.orderN = n + 1
	}
	c.n = n + 1
}

// replace puts v in the place of entry i's values. A tombstone that was there
// leaves its offset and time behind: see renumberTombstones.
func (c *columns) replace(i int, v *value, ord uint32) {
	row := NoRowID
	c.ord[i] = ord
	if ord == 0 {
		c.pos[i] = uint32(len(c.toff))
		c.toff = append(c.toff, v.b)
		c.ttime = append(c.ttime, int64(v.a))
	} else {
		c.pos[i] = v.pos
		row = v.b
	}
	if row != NoRowID {
		c.fillRow(c.n)
		c.row[i] = row
	} else if i < c.rowN {
		c.row[i] = NoRowID
	}
	if v.flags&flagOrder != 0 {
		c.fillOrder(c.n)
		c.order[i], c.has[i] = v.order, 1
	} else if i < c.orderN {
		c.has[i] = 0
	}
}

// renumberTombstones brings offsets and times of tombstones into key order,
// without those that were replaced.
func (c *columns) renumberTombstones() {
	old := len(c.toff)
	if old == 0 {
		return
	}
	for i, ord := range c.ord[:c.n] {
		if ord == 0 {
			t := c.pos[i]
			c.pos[i] = uint32(len(c.toff) - old)
			c.toff = append(c.toff, c.toff[t])
			c.ttime = append(c.ttime, c.ttime[t])
		}
	}
	c.toff = append(c.toff[:0], c.toff[old:]...)
	c.ttime = append(c.ttime[:0], c.ttime[old:]...)
}

// addSpan appends s[i:j].
func (c *columns) addSpan(s *columns, i, j int) {
	n, m := c.n, c.n+j-i
	copy(c.hi[n:m], s.hi[i:j])
	if c.wide {
		copy(c.lo[n:m], s.lo[i:j])
	}
	copy(c.ord[n:m], s.ord[i:j])
	copy(c.pos[n:m], s.pos[i:j])
	if k := min(j, s.orderN); k > i {
		c.fillOrder(n)
		copy(c.order[n:m], s.order[i:k])
		copy(c.has[n:m], s.has[i:k])
		c.orderN = n + k - i
	}
	if k := min(j, s.rowN); k > i {
		c.fillRow(n)
		copy(c.row[n:m], s.row[i:k])
		c.rowN = n + k - i
	}
	if len(s.toff) > 0 {
		// Tombstone ordinals are per block.
		for x := n; x < m; x++ {
			if c.ord[x] == 0 {
				t := c.pos[x]
				c.pos[x] = uint32(len(c.toff))
				c.toff = append(c.toff, s.toff[t])
				c.ttime = append(c.ttime, s.ttime[t])
			}
		}
	}
	c.n = m
}

// entry writes entry i; files translates ordinals.
func (c *columns) entry(i int, files []uint64, e *Entry) {
	*e = Entry{Key: c.key(i), RowID: NoRowID}
	if i < c.orderN && c.has[i] != 0 {
		e.HasOrder, e.Order = true, c.order[i]
	}
	if c.ord[i] == 0 {
		e.Offset, e.Time = c.toff[c.pos[i]], c.ttime[c.pos[i]]
		return
	}
	e.File, e.Pos = files[c.ord[i]], c.pos[i]
	if i < c.rowN {
		e.RowID = c.row[i]
	}
}
