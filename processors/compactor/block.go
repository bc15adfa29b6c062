package compactor

import (
	"bytes"
	"errors"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/rows"
)

// minCopyRows is how many rows a row group has at least that is copied as it is:
// copies end the output's row group, and small ones cost readers.
const minCopyRows = 1 << 16

// block is a whole row group without dead rows, with its first and last key.
type block struct {
	group       int
	rows        int64
	first, last []byte
}

// findBlock looks whether a row group begins here that may be copied.
func (in *input) findBlock() (bool, error) {
	in.block = nil
	g, ok := in.scan.NextGroup()
	if !ok || in.refused[g] {
		return false, nil
	}
	b := &block{group: g, rows: in.file.GroupRows(g)}
	start := in.scan.Row() + int64(in.scan.Len())
	if b.rows < in.least || in.dead.HasNext() && int64(in.dead.PeekNext()) < start+b.rows {
		return false, nil
	}
	if in.keys != nil {
		var err error
		if b.first, err = in.keyAt(start); err != nil {
			return false, err
		}
		if b.last, err = in.keyAt(start + b.rows - 1); err != nil {
			return false, err
		}
		if in.begun && bytes.Compare(b.first, in.lastWhole()) < 0 || bytes.Compare(b.last, b.first) < 0 {
			return false, ErrNotSorted
		}
		in.heads = append(in.heads[:0], rows.KeyHead(b.first))
		in.data = append(in.data[:0], b.first...)
		in.ends = append(in.ends[:0], uint32(len(b.first)))
	}
	in.rows, in.at = in.rows[:0], 0
	in.block = b
	return true, nil
}

// keyAt reads the key of one row.
func (in *input) keyAt(row int64) ([]byte, error) {
	s, err := in.file.Scan(in.keyFields, row, row+1, minColumnReadAhead)
	if err != nil {
		return nil, err
	}
	if _, err := s.Next(1); err != nil {
		return nil, err
	}
	parts := make([]*rows.Part, len(in.keyFields))
	for i := range parts {
		parts[i] = s.Part(i)
	}
	return in.keys.AppendParts(nil, parts, 0)
}

// lastWhole is the key of the last row that was handed on.
func (in *input) lastWhole() []byte {
	if in.keys.Narrow() {
		return headBytes(in.lastHead)
	}
	return in.lastKey
}

// copied moves on behind the block.
func (in *input) copied() error {
	b := in.block
	if in.keys != nil {
		in.lastHead, in.begun = rows.KeyHead(b.last), true
		in.lastKey = append(in.lastKey[:0], b.last...)
	}
	in.given += b.rows
	in.block = nil
	return in.scan.SkipGroup()
}

// refuse turns the block into rows like others.
func (in *input) refuse() error {
	if in.refused == nil {
		in.refused = map[int]bool{}
	}
	in.refused[in.block.group] = true
	in.block = nil
	return in.load()
}

// take writes the block that the input stands before, as it is if no other
// input has a key in it, else row by row.
func (m *merger) take(n int) (copied bool, err error) {
	in := m.inputs[n]
	b := in.block
	if m.job.Keys != nil && !m.tree.alone(n, b.last) {
		return false, in.refuse()
	}
	c, err := m.out.CopyOf(in.file, b.group, in.src.FirstRowID, in.src.DataSequence)
	if errors.Is(err, rows.ErrCannotCopy) {
		return false, in.refuse()
	}
	if err != nil {
		return false, err
	}
	if err := m.out.Copy(c); err != nil {
		return false, err
	}
	m.ordinals = resize(m.ordinals, chunkRows)
	for i := range m.ordinals {
		m.ordinals[i] = byte(n)
	}
	for left := b.rows; left > 0; left -= chunkRows {
		if err := m.fwd.Append(m.ordinals[:min(left, chunkRows)]); err != nil {
			return false, err
		}
	}
	m.outRows += b.rows
	m.result.Rows += b.rows
	m.result.Copied += b.rows
	if m.job.Keys != nil {
		m.tree.passed(b)
	}
	return true, in.copied()
}

// alone says whether every other input's next key lies above last.
func (t *tree) alone(n int, last []byte) bool {
	h := rows.KeyHead(last)
	for i, in := range t.inputs {
		if i == n || in.done {
			continue
		}
		if t.heads[i] < h || t.heads[i] == h && (!t.wide || bytes.Compare(in.key(in.at), last) <= 0) {
			return false
		}
	}
	return true
}

// passed takes a copied block's keys as those before the next row.
func (t *tree) passed(b *block) {
	if first := rows.KeyHead(b.first); t.begun && first == t.lastHead && (!t.wide || bytes.Equal(b.first, t.lastKey)) {
		t.same++
	}
	t.begun = true
	t.lastHead = rows.KeyHead(b.last)
	t.lastKey = append(t.lastKey[:0], b.last...)
}

func keyFieldsOf(s *schemas.Schema, keys *rows.KeyEncoder) []schemas.Field {
	var out []schemas.Field
	for _, id := range keys.Fields() {
		out = append(out, s.Fields[s.ByID(id)])
	}
	return out
}
