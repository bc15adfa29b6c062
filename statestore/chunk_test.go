package statestore

import (
	"bytes"
	"testing"

	"github.com/varve-io/varve/schemas/record"
)

// A chunk gives back the bodies of what no cut has published, whatever their
// paths, and forgets the others.
func TestChunkBodies(t *testing.T) {
	h := func(n byte) record.Hash { return record.Hash{n, 0xab} }
	refs := []record.Ref{
		{Path: "_varve/a/bodies/" + h(1).String(), Length: 10, Hash: h(1)},
		{Path: "_varve/a/bodies/" + h(2).String(), Length: 20, Hash: h(2)},
		{Path: "elsewhere", Length: 30, Hash: h(3)},
		{Path: h(4).String(), Length: 40, Hash: h(4)},
		{Path: "_varve/b/bodies/" + h(5).String(), Length: 50, Hash: h(5)},
		{Path: "_varve/b/bodies/" + h(9).String(), Length: 60, Hash: h(6)},
	}
	c := &chunk{key: chunkKey{1, 7}}
	dir := ""
	for i := range refs {
		for k := range 2 { // two files a record
			c.add(fileEntry{id: 7<<7 | uint64(10*i+k), rows: 5, record: int64(100 + i), rowID: -1})
			dir = c.addBody(int64(100+i), &refs[i], dir)
		}
	}
	again := func() *chunk {
		t.Helper()
		b := c.encode(nil)
		d := &chunk{key: c.key}
		if err := d.decode(b); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(d.encode(nil), b) {
			t.Fatal("the same chunk has other bytes")
		}
		return d
	}
	d := again()
	for i := range refs {
		if got, ok := d.body(int64(100 + i)); !ok || got != refs[i] {
			t.Errorf("body of record %d: %+v %t, not %+v", 100+i, got, ok, refs[i])
		}
	}
	if d.fileRows(7<<7|11) != 5 || d.fileRows(7<<7|12) != -1 || d.find(7<<7|11) == nil || d.find(7<<7|12) != nil {
		t.Error("files are not found where they are")
	}
	// Record 100's files are published, of record 101 one is gone and one is not.
	c.entries[0].manifest, c.entries[1].manifest, c.entries[2].gone = 1, 1, true
	d = again()
	for i, want := range []bool{false, true, true, true, true, true} {
		if _, ok := d.body(int64(100 + i)); ok != want {
			t.Errorf("body of record %d is kept: %t", 100+i, ok)
		}
	}
}
