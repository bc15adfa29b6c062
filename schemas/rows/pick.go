package rows

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// A pick names a row of one of several sources.
const (
	pickShift = 24
	pickRow   = 1<<pickShift - 1
	// MaxPickSources is how many sources picks can tell apart.
	MaxPickSources = 256
	// MaxPickRows is how many rows a part may have that picks are taken from.
	MaxPickRows = 1 << pickShift
)

// Pick is row of source as AppendPicks takes it.
func Pick(source, row int) uint32 { return uint32(source)<<pickShift | uint32(row) }

// PickSource is the source of a pick.
func PickSource(p uint32) int { return int(p >> pickShift) }

// PickRow is the row of a pick.
func PickRow(p uint32) int { return int(p & pickRow) }

// picks is what a chunk keeps while it takes rows of several sources.
type picks struct {
	full   bool // no source has a null
	ints   [][]int64
	floats [][]float64
	group  int // row groups begun: numbers of their dictionaries differ
	remap  []remap
}

// remap are the numbers that entries of a source's dictionary have in the
// chunk's own: their strings are looked up once a row group, not once a row.
type remap struct {
	dict  *dictionary
	group int
	to    []int32 // -1: not looked up yet
}

// AppendPicks writes rows of several sources in the order of picks: cols[c][s]
// is column c of the options' schema in source s. The values of extra are one a
// pick, -1 is null in RowID and LastSeq. After an error the file is worthless
// and Append and Close repeat it.
func (w *Writer) AppendPicks(cols [][]*Part, picks []uint32, extra Extra) error {
	if w.err == nil {
		w.err = w.appendPicks(cols, picks, extra)
	}
	return w.err
}

func (w *Writer) appendPicks(cols [][]*Part, picks []uint32, extra Extra) error {
	fields := w.opts.Schema.Fields
	if len(cols) != len(fields) {
		return fmt.Errorf("picks of %d columns for a file of %d", len(cols), len(fields))
	}
	for _, v := range [...]int{len(extra.RowID), len(extra.LastSeq), len(extra.Order), len(extra.HasOrder)} {
		if v != 0 && v < len(picks) {
			return fmt.Errorf("%d extra values for %d picks", v, len(picks))
		}
	}
	if (extra.Order == nil) != (extra.HasOrder == nil) {
		return errors.New("ordering values without their presence, or the reverse")
	}
	for i := range fields {
		full := true
		for _, p := range cols[i] {
			if p.typ != fields[i].Type && p.rows > 0 {
				return fmt.Errorf("column %q: a part of %s, the file wants %s", fields[i].Name, p.typ, fields[i].Type)
			}
			full = full && p.valid == nil
		}
		c := w.tops[i].chunk
		if c == nil {
			continue
		}
		c.picks.full = full
		if StorageOf(fields[i].Type) == Bytes {
			c.remaps(cols[i])
		}
	}
	for at := 0; at < len(picks); {
		n := min(len(picks)-at, stepRows-w.groupRows%stepRows, w.opts.PageRows-w.groupRows%w.opts.PageRows,
			w.opts.RowGroupRows-w.groupRows)
		for i := range fields {
			t := &w.tops[i]
			var err error
			if t.nest != nil {
				err = t.nest.pick(cols[i], picks[at:at+n])
			} else {
				err = t.pick(cols[i], picks[at:at+n])
			}
			if err != nil {
				return err
			}
		}
		next := len(fields)
		if w.opts.RowID {
			if err := w.tops[next].takeOrNull(extra.RowID, at, n); err != nil {
				return err
			}
			next++
		}
		if w.opts.LastSeq {
			if err := w.tops[next].takeOrNull(extra.LastSeq, at, n); err != nil {
				return err
			}
			next++
		}
		if w.opts.Order {
			w.tops[next].takeValid(extra.Order, extra.HasOrder, at, n)
		}
		if err := w.stepped(n); err != nil {
			return err
		}
		at += n
	}
	return nil
}

// Size is about what the file has by now, with the rows that are not yet
// written out.
func (w *Writer) Size() int64 {
	size := w.offset
	for _, c := range w.cols {
		size += int64(len(c.body))
	}
	return size
}

// takeOrNull takes values where a negative one is null; none: all are.
func (c *chunk) takeOrNull(values []int64, at, n int) error {
	from := len(c.valid)
	c.valid = grown(c.valid, n)
	valid := c.valid[from:]
	c.rows += n
	if values == nil {
		clear(valid)
		c.nulls += n
		return nil
	}
	to := len(c.ints)
	c.ints = grown(c.ints, n)
	out := c.ints[to:]
	there := 0
	for i, v := range values[at : at+n] {
		ok := uint8(uint64(^v) >> 63)
		valid[i] = ok
		out[there] = v
		there += int(ok)
	}
	c.ints = c.ints[:to+there]
	c.nulls += n - there
	return nil
}

func (c *chunk) takeValid(values []int64, has []uint8, at, n int) {
	c.rows += n
	from := len(c.valid)
	c.valid = grown(c.valid, n)
	valid := c.valid[from:]
	if values == nil {
		clear(valid)
		c.nulls += n
		return
	}
	copy(valid, has[at:at+n])
	to := len(c.ints)
	c.ints = grown(c.ints, n)
	out := c.ints[to:]
	there := 0
	for i, v := range values[at : at+n] {
		out[there] = v
		there += int(valid[i])
	}
	c.ints = c.ints[:to+there]
	c.nulls += n - there
}

// remaps makes the tables of the sources' dictionaries ready.
func (c *chunk) remaps(parts []*Part) {
	for len(c.picks.remap) < len(parts) {
		c.picks.remap = append(c.picks.remap, remap{})
	}
	for i, p := range parts {
		if p.index != nil {
			c.picks.remap[i].ready(p.dict, c.picks.group)
		}
	}
}

func (r *remap) ready(d *dictionary, group int) {
	if r.dict == d && r.group == group {
		return
	}
	r.dict, r.group = d, group
	r.to = grown(r.to[:0], d.values.stored())
	for i := range r.to {
		r.to[i] = -1
	}
}

// pick takes rows of parts. It closes pages that are full by bytes; the writer
// closes the others.
func (c *chunk) pick(parts []*Part, sel []uint32) error {
	if StorageOf(c.leaf.typ) == Bytes {
		return c.pickBytes(parts, sel)
	}
	nulls := c.pickLevels(parts, sel)
	valid := c.valid[len(c.valid)-len(sel):]
	if StorageOf(c.leaf.typ) == Floats {
		from := c.picks.floats[:0]
		for _, p := range parts {
			from = append(from, p.floats)
		}
		c.picks.floats = from
		c.floats = appendPicked(c.floats, from, sel, valid, nulls)
		return c.checkNulls(nulls)
	}
	from := c.picks.ints[:0]
	for _, p := range parts {
		from = append(from, p.ints)
	}
	c.picks.ints = from
	c.ints = appendPicked(c.ints, from, sel, valid, nulls)
	return c.checkNulls(nulls)
}

// appendPicked appends the values of the rows that are no nulls.
func appendPicked[T int64 | float64](dst []T, from [][]T, sel []uint32, valid []uint8, nulls int) []T {
	at := len(dst)
	dst = grown(dst, len(sel))
	out := dst[at:]
	if nulls == 0 {
		for i, p := range sel {
			out[i] = from[p>>pickShift][p&pickRow]
		}
		return dst
	}
	there := 0
	for i, p := range sel {
		out[there] = from[p>>pickShift][p&pickRow]
		there += int(valid[i])
	}
	return dst[:at+len(sel)-nulls]
}

// pickLevels takes the rows' validity and counts the nulls among them.
func (c *chunk) pickLevels(parts []*Part, sel []uint32) (nulls int) {
	at := len(c.valid)
	c.valid = grown(c.valid, len(sel))
	out := c.valid[at:]
	c.rows += len(sel)
	if c.picks.full {
		for i := range out {
			out[i] = 1
		}
		return 0
	}
	there := 0
	for i, p := range sel {
		v := uint8(1)
		if has := parts[p>>pickShift].valid; has != nil {
			v = has[p&pickRow]
		}
		out[i] = v
		there += int(v)
	}
	c.nulls += len(sel) - there
	return len(sel) - there
}

func (c *chunk) pickBytes(parts []*Part, sel []uint32) error {
	for len(sel) > 0 {
		var taken int
		var full bool
		if c.mode == modeDict {
			taken, full = c.pickNumbers(parts, sel)
		} else {
			taken, full = c.pickPlain(parts, sel)
		}
		if err := c.checkNulls(c.pickLevels(parts, sel[:taken])); err != nil {
			return err
		}
		sel = sel[taken:]
		if full {
			if err := c.flushPage(); err != nil {
				return err
			}
		}
	}
	return nil
}

// shortValue is how much room is made for a value at first.
const shortValue = 24

// pickPlain takes values until the page is full by bytes.
func (c *chunk) pickPlain(parts []*Part, sel []uint32) (taken int, full bool) {
	skip := uint32(c.skipped())
	fixed := c.leaf.phys == physFixed
	out, limit := slices.Grow(c.plain, len(sel)*shortValue), c.opts.PageBytes
	count := 0
	for i, pick := range sel {
		p, r := parts[pick>>pickShift], pick&pickRow
		if p.valid != nil && p.valid[r] == 0 {
			continue
		}
		var v []byte
		if p.index != nil {
			v = p.dict.values.BytesAt(int(p.index[r]))[skip:]
		} else {
			from, to := int(p.from[r]+skip), int(p.to[r])
			n := len(out)
			if size := to - from; !fixed && size <= 16 && from+16 <= len(p.data) && n+20 <= cap(out) {
				// A move of known size, of which too much is cut off again.
				out = out[:n+20]
				binary.LittleEndian.PutUint32(out[n:], uint32(size))
				*(*[16]byte)(out[n+4:]) = [16]byte(p.data[from:])
				out = out[:n+4+size]
				if count++; len(out) >= limit {
					c.plain = out
					c.count += count
					return i + 1, true
				}
				continue
			}
			v = p.data[from:to]
		}
		if !fixed {
			out = binary.LittleEndian.AppendUint32(out, uint32(len(v)))
		}
		out = append(out, v...)
		count++
		if len(out) >= limit {
			c.plain = out
			c.count += count
			return i + 1, true
		}
	}
	c.plain = out
	c.count += count
	return len(sel), false
}

// pickNumbers looks values up in the dictionary until that is full: then what
// follows is plain.
func (c *chunk) pickNumbers(parts []*Part, sel []uint32) (taken int, full bool) {
	skip := c.skipped()
	var last []byte
	var number uint32
	at := len(c.idx)
	c.idx = grown(c.idx, len(sel))
	out := c.idx[at:]
	n := 0
	for i, pick := range sel {
		s, r := pick>>pickShift, pick&pickRow
		p := parts[s]
		if p.valid != nil && p.valid[r] == 0 {
			continue
		}
		if p.index != nil {
			m := &c.picks.remap[s]
			if m.group != c.picks.group {
				m.ready(p.dict, c.picks.group)
			}
			k := p.index[r]
			if m.to[k] < 0 {
				x, ok := c.strings.number(p.dict.values.BytesAt(int(k))[skip:])
				if !ok {
					c.idx = c.idx[:at+n]
					c.mode = modeFull
					return i, true
				}
				m.to[k] = int32(x)
			}
			out[n] = uint32(m.to[k])
			n++
			continue
		}
		v := p.data[int(p.from[r])+skip : p.to[r]]
		if last == nil || !bytes.Equal(v, last) {
			x, ok := c.strings.number(v)
			if !ok {
				c.idx = c.idx[:at+n]
				c.mode = modeFull
				return i, true
			}
			last, number = v, x
		}
		out[n] = number
		n++
	}
	c.idx = c.idx[:at+n]
	return len(sel), false
}
