package rows

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"testing"
)

// The layout of a file, pinned: a change here changes every data file from
// now on, and should be meant. (Uncompressed, for zstd's bytes are its own.)
func TestFileBytesArePinned(t *testing.T) {
	b := randomBatch(allTypes(), 500, 11)
	o := WriteOptions{Schema: b.Schema, Order: true, RowID: true, LastSeq: true, Uncompressed: true, PageRows: 128, RowGroupRows: 300}
	var out bytes.Buffer
	info, err := Write(&out, o, b, nil, Extra{})
	if err != nil {
		t.Fatal(err)
	}
	const want = "af12d691aeaf70d28d3789524870366b2aafc81187f9b5e88aa16f44701f9b22"
	sum := sha256.Sum256(out.Bytes())
	if got := hex.EncodeToString(sum[:]); got != want {
		t.Errorf("%d bytes with hash %s, want %s", info.Bytes, got, want)
	}
}

// Lineage of a compaction (C6): both columns come back, nulls included.
func TestLineageColumns(t *testing.T) {
	b := randomBatch(allTypes(), 10, 1)
	rowID := []int64{5, -1, 0, 7, -1, -1, 9, 10, 11, 12}
	seq := []int64{-1, 3, -1, 1 << 40, 0, -1, -1, -1, -1, -1}
	sel := []uint32{3, 1, 0, 5}
	var out bytes.Buffer
	if _, err := Write(&out, WriteOptions{Schema: b.Schema}, b, sel, Extra{RowID: rowID, LastSeq: seq}); err != nil {
		t.Fatal(err)
	}
	cols, err := opened(t, out.Bytes()).ReadColumns([]int32{2147483540, 2147483539})
	if err != nil {
		t.Fatal(err)
	}
	for c, values := range [][]int64{rowID, seq} {
		for i, r := range sel {
			got := int64(-1)
			if !cols[c].IsNull(i) {
				got = cols[c].Ints[i]
			}
			if got != values[r] {
				t.Errorf("column %d row %d: %d, want %d", c, i, got, values[r])
			}
		}
	}
	// No row of the selection carries one: no column.
	out.Reset()
	if _, err := Write(&out, WriteOptions{Schema: b.Schema}, b, []uint32{5}, Extra{RowID: rowID, LastSeq: seq}); err != nil {
		t.Fatal(err)
	}
	if f := opened(t, out.Bytes()); f.Has(2147483540) || f.Has(2147483539) || f.Has(2147483400) {
		t.Error("a column that no row needs was written")
	}
}
