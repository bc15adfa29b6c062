package compactor

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/dv"
	"github.com/varve-io/varve/schemas/rows"
)

// windowRows is how many rows of an input are looked at together at most.
const windowRows = 1 << 16

// input is the way through one input: a window of rows at a time, in which the
// live ones are found and their keys made.
type input struct {
	src    *Input
	keys   *rows.KeyEncoder
	narrow int // the column of a narrow key
	reader countingReader
	file   *rows.File
	scan   *rows.Scan
	dead   roaring.IntPeekable
	live   int64 // rows of the range that are not dead
	given  int64 // live rows handed on
	// Columns of the scan behind the schema's; -1: the file has none.
	rowID, lastSeq, order int
	keyParts              []*rows.Part

	done bool
	// block: instead of a window the input stands before a row group that may be
	// copied as it is. Its only key is the group's first.
	block     *block
	least     int64        // rows that a block has at least
	refused   map[int]bool // row groups that were found to be no block
	keyFields []schemas.Field

	// The window's live rows and, for each, the first 8 bytes of its key. wide:
	// the whole keys, row i's is data[ends[i-1]:ends[i]].
	rows  []uint32
	heads []uint64
	data  []byte
	ends  []uint32
	at    int // the next of them

	alive    []uint8
	lastHead uint64
	lastKey  []byte
	begun    bool

	// Row lineage of the window, by window row: values, or idBase + row.
	ids, seqs       []int64
	idRoom, seqRoom []int64
	idBase          int64
}

// countingReader counts what is read.
type countingReader struct {
	r io.ReaderAt
	n int64
}

func (c *countingReader) ReadAt(b []byte, off int64) (int, error) {
	n, err := c.r.ReadAt(b, off)
	c.n += int64(n)
	return n, err
}

// wrap names the file of an error.
func (in *Input) wrap(err error) error {
	return fmt.Errorf("input %s (file %d): %w", in.Name, in.File, err)
}

func openInput(src *Input, j *Job, readAhead int) (*input, error) {
	in := &input{src: src, keys: j.Keys, reader: countingReader{r: src.R}, rowID: -1, lastSeq: -1, order: -1}
	f, err := rows.Open(&in.reader, src.Size)
	if err != nil {
		return nil, err
	}
	switch {
	case f.NumRows() != src.Rows:
		return nil, fmt.Errorf("%w: it has %d rows, not %d", ErrClaim, f.NumRows(), src.Rows)
	case src.Lo > src.Hi || int64(src.Hi) > src.Rows:
		return nil, fmt.Errorf("%w: it has %d rows, the job wants [%d,%d)", ErrClaim, src.Rows, src.Lo, src.Hi)
	}
	if err := in.openDead(); err != nil {
		return nil, err
	}
	want := append([]schemas.Field(nil), j.Schema.Fields...)
	for i := range want { // the writer still refuses a live row's null
		want[i].Required = want[i].Required && !src.Foreign
	}
	add := func(id int32, name string) int {
		if !f.Has(id) {
			return -1
		}
		want = append(want, schemas.Field{ID: id, Name: name, Type: schemas.Of(schemas.Long)})
		return len(want) - 1
	}
	in.file = f
	if in.least = j.copyRows; in.least == 0 {
		in.least = minCopyRows
	}
	in.rowID = add(schemas.RowIDField, schemas.RowIDColumn)
	in.lastSeq = add(schemas.LastSeqField, schemas.LastSeqName)
	in.order = add(schemas.OrderField, schemas.OrderColumn)
	if in.scan, err = f.Scan(want, int64(src.Lo), int64(src.Hi), readAhead); err != nil {
		return nil, err
	}
	if j.Keys != nil {
		in.keyFields = keyFieldsOf(j.Schema, j.Keys)
		for _, id := range j.Keys.Fields() {
			at := j.Schema.ByID(id)
			if at < 0 {
				return nil, fmt.Errorf("%w: key field id %d is no column", ErrJob, id)
			}
			in.narrow = at
			in.keyParts = append(in.keyParts, in.scan.Part(at))
		}
	}
	return in, nil
}

func (in *input) openDead() error {
	src := in.src
	in.live = int64(src.Hi - src.Lo)
	if len(src.Dead) == 0 {
		in.dead = roaring.New().Iterator()
		return nil
	}
	b, err := dv.ReadBitmap(src.Dead)
	if err != nil {
		return fmt.Errorf("dead positions: %w", err)
	}
	if !b.IsEmpty() && (b.Minimum() < src.Lo || b.Maximum() >= src.Hi) {
		return fmt.Errorf("%w: dead positions outside of [%d,%d)", ErrClaim, src.Lo, src.Hi)
	}
	in.live -= int64(b.GetCardinality())
	in.dead = b.Iterator()
	return nil
}

// load moves on to the next window that has a live row, or to a block.
func (in *input) load() error {
	for {
		found, err := in.findBlock()
		if err != nil || found {
			return err
		}
		if more, err := in.window(); err != nil || !more {
			return err
		}
	}
}

// window moves on to the next rows; more says that none of them lives.
func (in *input) window() (more bool, err error) {
	in.block = nil
	n, err := in.scan.Next(windowRows)
	if errors.Is(err, io.EOF) {
		in.done = true
		in.rows, in.heads = in.rows[:0], in.heads[:0]
		in.at = 0
		if in.given != in.live {
			return false, fmt.Errorf("%d live rows were read, not %d", in.given, in.live)
		}
		return false, nil
	}
	if err != nil {
		return false, err
	}
	in.findLive(n)
	if len(in.rows) == 0 {
		return true, nil
	}
	in.given += int64(len(in.rows))
	in.at = 0
	in.lineage(n)
	if in.keys == nil {
		return false, nil
	}
	return false, in.makeKeys()
}

// findLive lists the window's rows that are not dead.
func (in *input) findLive(n int) {
	first := uint32(in.scan.Row())
	end := first + uint32(n)
	in.rows = resize(in.rows, n)
	if !in.dead.HasNext() || in.dead.PeekNext() >= end {
		for i := range in.rows {
			in.rows[i] = uint32(i)
		}
		return
	}
	in.alive = resize(in.alive, n)
	alive := in.alive
	for i := range alive {
		alive[i] = 1
	}
	for in.dead.HasNext() && in.dead.PeekNext() < end {
		alive[in.dead.Next()-first] = 0
	}
	at := 0
	for i, a := range alive {
		in.rows[at] = uint32(i)
		at += int(a)
	}
	in.rows = in.rows[:at]
}

func (in *input) makeKeys() error {
	in.heads = resize(in.heads, len(in.rows))
	if in.keys.Narrow() {
		part := in.scan.Part(in.narrow)
		if err := in.keys.CheckNoNulls(part); err != nil {
			return err
		}
		ints := part.Ints()
		for i, r := range in.rows {
			in.heads[i] = uint64(ints[r]) ^ 1<<63
		}
		last := in.heads[0]
		if in.begun {
			last = in.lastHead
		}
		sorted := true
		for _, h := range in.heads {
			sorted = sorted && h >= last
			last = h
		}
		in.lastHead, in.begun = last, true
		if !sorted {
			return ErrNotSorted
		}
		return nil
	}
	in.data = in.data[:0]
	in.ends = resize(in.ends, len(in.rows))
	last, begun := in.lastKey, in.begun
	for i, r := range in.rows {
		start := len(in.data)
		var err error
		if in.data, err = in.keys.AppendParts(in.data, in.keyParts, int(r)); err != nil {
			return err
		}
		in.ends[i] = uint32(len(in.data))
		in.heads[i] = rows.KeyHead(in.data[start:])
		if begun && bytes.Compare(in.data[start:], last) < 0 {
			return ErrNotSorted
		}
		last, begun = in.data[start:], true
	}
	in.lastKey, in.begun = append(in.lastKey[:0], last...), true
	return nil
}

func headBytes(h uint64) []byte { return binary.BigEndian.AppendUint64(nil, h) }

// key is the whole key of live row i of the window.
func (in *input) key(i int) []byte {
	start := uint32(0)
	if i > 0 {
		start = in.ends[i-1]
	}
	return in.data[start:in.ends[i]]
}

// lineage works the window's row ids and sequence numbers out (C6).
func (in *input) lineage(n int) {
	in.ids, in.seqs = nil, nil
	first := in.src.FirstRowID
	in.idBase = first + in.scan.Row()
	if in.rowID >= 0 || first < 0 {
		in.idRoom = resize(in.idRoom, n)
		in.ids = in.idRoom
		for i := range in.ids {
			in.ids[i] = -1
			if first >= 0 {
				in.ids[i] = in.idBase + int64(i)
			}
		}
		if in.rowID >= 0 {
			override(in.ids, in.scan.Part(in.rowID))
		}
	}
	if in.lastSeq >= 0 {
		in.seqRoom = resize(in.seqRoom, n)
		in.seqs = in.seqRoom
		for i := range in.seqs {
			in.seqs[i] = in.src.DataSequence
		}
		override(in.seqs, in.scan.Part(in.lastSeq))
	}
}

// override puts the part's values over what rows inherit.
func override(inherited []int64, p *rows.Part) {
	values := p.Ints()
	for i := range inherited {
		if !p.IsNull(i) {
			inherited[i] = values[i]
		}
	}
}
