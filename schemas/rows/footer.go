package rows

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
)

// dictionaryPage is the chunk's dictionary, encoded.
func (c *chunk) dictionaryPage() []byte {
	raw := c.raw[:0]
	n := 0
	switch StorageOf(c.leaf.typ) {
	case Bytes:
		raw = append(raw, c.strings.data...)
		n = len(c.strings.ends)
	case Floats:
		n = len(c.words.words)
		for _, w := range c.words.words {
			if c.leaf.phys == physFloat {
				raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(float32(math.Float64frombits(w))))
			} else {
				raw = binary.LittleEndian.AppendUint64(raw, w)
			}
		}
	default:
		n = len(c.words.words)
		for _, w := range c.words.words {
			if c.leaf.phys == physInt32 {
				raw = binary.LittleEndian.AppendUint32(raw, uint32(w))
			} else {
				raw = binary.LittleEndian.AppendUint64(raw, w)
			}
		}
	}
	c.raw = raw
	body := raw
	if c.codec == codecZstd {
		c.packed = c.zstd.EncodeAll(raw, c.packed[:0])
		body = c.packed
	}
	t := &c.thrift
	t.reset()
	t.open(0)
	t.i32(1, pageDictionary)
	t.i32(2, int32(len(raw)))
	t.i32(3, int32(len(body)))
	t.i32(4, int32(crc32.ChecksumIEEE(body)))
	t.open(7)
	t.i32(1, int32(n))
	t.i32(2, encPlain)
	t.close()
	t.close()
	c.rawSize += int64(len(t.b) + len(raw))
	out := append([]byte(nil), t.b...)
	return append(out, body...)
}

// footer writes the page index and the file's metadata.
func (w *Writer) footer() error {
	for g := range w.groups {
		for i := range w.groups[g].chunks {
			m := &w.groups[g].chunks[i]
			w.thrift.reset()
			if !m.appendColumnIndex(&w.thrift, &w.cols[i].leaf) {
				continue
			}
			m.columnIndex, m.columnIndexN = w.offset, int64(len(w.thrift.b))
			if err := w.emit(w.thrift.b); err != nil {
				return err
			}
		}
	}
	for g := range w.groups {
		for i := range w.groups[g].chunks {
			m := &w.groups[g].chunks[i]
			w.thrift.reset()
			m.appendOffsetIndex(&w.thrift)
			m.offsetIndex, m.offsetIndexN = w.offset, int64(len(w.thrift.b))
			if err := w.emit(w.thrift.b); err != nil {
				return err
			}
		}
	}
	t := &w.thrift
	t.reset()
	w.appendMetadata(t)
	size := len(t.b)
	if size > math.MaxInt32 {
		return fmt.Errorf("a footer of %d bytes is larger than Parquet allows; write fewer row groups", size)
	}
	t.b = binary.LittleEndian.AppendUint32(t.b, uint32(size))
	t.b = append(t.b, parquetMagic...)
	return w.emit(t.b)
}

func (w *Writer) appendMetadata(t *thriftWriter) {
	t.open(0)
	t.i32(1, parquetFileVersion)
	elements := 1
	for i := range w.tops {
		if n := w.tops[i].nest; n != nil {
			elements += n.elements()
		} else {
			elements++
		}
	}
	t.list(2, elements, thriftStruct)
	t.open(0)
	t.str(4, "table")
	t.i32(5, int32(len(w.tops)))
	t.close()
	for i := range w.tops {
		if n := w.tops[i].nest; n != nil {
			n.appendElements(t)
		} else {
			w.tops[i].leaf.appendElement(t)
		}
	}
	t.i64(3, w.rows)
	t.list(4, len(w.groups), thriftStruct)
	for g := range w.groups {
		w.appendGroup(t, g)
	}
	t.list(5, 1, thriftStruct)
	t.open(0)
	t.str(1, icebergSchemaKey)
	t.binary(2, w.opts.Schema.AppendJSON(nil))
	t.close()
	t.str(6, createdBy)
	// Every column has its type's own order: without this, readers may not
	// use min_value and max_value.
	t.list(7, len(w.cols), thriftStruct)
	for range w.cols {
		t.open(0)
		t.empty(1)
		t.close()
	}
	t.close()
}

func (w *Writer) appendGroup(t *thriftWriter, g int) {
	rg := &w.groups[g]
	t.open(0)
	t.list(1, len(rg.chunks), thriftStruct)
	for i := range rg.chunks {
		m := &rg.chunks[i]
		t.open(0)
		t.i64(2, m.dataOffset)
		t.open(3)
		m.appendMeta(t, &w.cols[i].leaf)
		t.close()
		t.i64(4, m.offsetIndex)
		t.i32(5, int32(m.offsetIndexN))
		if m.columnIndexN > 0 {
			t.i64(6, m.columnIndex)
			t.i32(7, int32(m.columnIndexN))
		}
		t.close()
	}
	t.i64(2, rg.raw)
	t.i64(3, rg.rows)
	t.i64(5, rg.offset)
	t.i64(6, rg.packed)
	if g <= math.MaxInt16 {
		t.i16(7, int16(g))
	}
	t.close()
}

func (m *chunkMeta) appendMeta(t *thriftWriter, l *leaf) {
	var encodings []int64
	if m.dict || m.plain {
		encodings = append(encodings, encPlain)
	}
	encodings = append(encodings, encRLE)
	if m.delta {
		encodings = append(encodings, encDeltaBinary)
	}
	if m.dict {
		encodings = append(encodings, encRLEDictionary)
	}
	t.i32(1, l.phys)
	t.list(2, len(encodings), thriftI32)
	for _, e := range encodings {
		t.zigzag(e)
	}
	if l.nested {
		t.list(3, len(l.path), thriftBinary)
		for _, name := range l.path {
			t.rawString(name)
		}
	} else {
		t.list(3, 1, thriftBinary)
		t.rawString(l.name)
	}
	t.i32(4, m.codec)
	t.i64(5, m.values)
	t.i64(6, m.raw)
	t.i64(7, m.packed)
	t.i64(9, m.dataOffset)
	if m.dict {
		t.i64(11, m.dictOffset)
	}
	t.open(12)
	t.i64(3, m.bounds.nulls)
	if lo, hi, ok := m.bounds.parquet(l); ok {
		t.binary(5, hi)
		t.binary(6, lo)
		exact := l.phys != physByteArray && l.phys != physFixed
		if exact {
			t.boolean(7, true)
			t.boolean(8, true)
		}
	}
	t.close()
}

// appendColumnIndex writes bounds by page; false when some page has none, for
// the index is all or nothing.
func (m *chunkMeta) appendColumnIndex(t *thriftWriter, l *leaf) bool {
	lows := make([][]byte, len(m.pages))
	highs := make([][]byte, len(m.pages))
	ascending := true
	last := -1
	for i := range m.pages {
		b := &m.pages[i].bounds
		if b.nulls == b.rows {
			continue
		}
		var ok bool
		if lows[i], highs[i], ok = b.parquet(l); !ok {
			return false
		}
		if last >= 0 && !m.pages[last].bounds.notAbove(l.typ, b) {
			ascending = false
		}
		last = i
	}
	n := len(m.pages)
	t.open(0)
	t.list(1, n, thriftTrue)
	for i := range m.pages {
		if m.pages[i].bounds.nulls == m.pages[i].bounds.rows {
			t.b = append(t.b, thriftTrue)
		} else {
			t.b = append(t.b, thriftFalse)
		}
	}
	t.list(2, n, thriftBinary)
	for _, v := range lows {
		t.rawBytes(v)
	}
	t.list(3, n, thriftBinary)
	for _, v := range highs {
		t.rawBytes(v)
	}
	if ascending {
		t.i32(4, boundaryAscending)
	} else {
		t.i32(4, boundaryUnordered)
	}
	t.list(5, n, thriftI64)
	for i := range m.pages {
		t.zigzag(m.pages[i].bounds.nulls)
	}
	t.close()
	return true
}

func (m *chunkMeta) appendOffsetIndex(t *thriftWriter) {
	t.open(0)
	t.list(1, len(m.pages), thriftStruct)
	for i := range m.pages {
		t.open(0)
		t.i64(1, m.pages[i].offset)
		t.i32(2, m.pages[i].size)
		t.i64(3, m.pages[i].firstRow)
		t.close()
	}
	t.close()
}
